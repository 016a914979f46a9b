//! Wide or long inputs.

use crate::hostile::input::{Input, create, create_as, input, post};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, EVENTS, PODS, ROLES, SECRETS, SERVICES, SLICES, THINGS, config_map, fields,
    free_definition, items, long, object, pod, pod_with, role, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a ConfigMap with 100,000 keys", &[201, 413, 422], || {
            let rest = format!("\"data\":{}", fields(100_000, |_| "\"\"".to_owned()));
            create(CONFIG_MAPS, "wide", config_map("wide", "", &rest))
        }),
        input("a ConfigMap of 1 MB in one string", &[201], || {
            let rest = format!("\"data\":{{\"a\":{}}}", long(1_000_000));
            create(CONFIG_MAPS, "wide", config_map("wide", "", &rest))
        }),
        input("a body of more than 3 MB", &[413], || {
            post(CONFIG_MAPS, "application/json", " ".repeat(3 * 1024 * 1024 + 1))
        }),
        input("an object with 100,000 unknown fields", &[201, 413], || {
            let mut body = config_map("wide", "", "");
            body.truncate(body.len() - 1);
            body += &format!(",{}", &fields(100_000, |_| "1".to_owned())[1..]);
            create(CONFIG_MAPS, "wide", body)
        }),
        input(
            "an object with 100,000 unknown fields, checked strictly",
            &[400, 413],
            || {
                let mut body = config_map("wide", "", "");
                body.truncate(body.len() - 1);
                body += &format!(",{}", &fields(100_000, |_| "1".to_owned())[1..]);
                create(CONFIG_MAPS, "wide", body).query("fieldValidation=Strict")
            },
        ),
        input("100,000 fields of the same name", &[201, 400, 413], || {
            let twice = vec!["\"a\":\"b\""; 100_000].join(",");
            let rest = format!("\"data\":{{{twice}}}");
            create(CONFIG_MAPS, "wide", config_map("wide", "", &rest))
        }),
        input("24,000 owner references", &[201, 413, 422], || {
            let owners = items(24_000, |index| {
                format!(r#"{{"apiVersion":"v1","kind":"Pod","name":"p{index}","uid":"u{index}"}}"#)
            });
            create(
                CONFIG_MAPS,
                "wide",
                config_map("wide", &format!("\"ownerReferences\":{owners}"), ""),
            )
        }),
        input("100,000 labels", &[201, 413, 422], || {
            create(
                CONFIG_MAPS,
                "wide",
                config_map(
                    "wide",
                    &format!("\"labels\":{}", fields(100_000, |_| "\"v\"".to_owned())),
                    "",
                ),
            )
        }),
        input("100,000 labels with mistakes", &[413, 422], || {
            create(
                CONFIG_MAPS,
                "wide",
                config_map(
                    "wide",
                    &format!("\"labels\":{}", fields(100_000, |_| "\"?\"".to_owned())),
                    "",
                ),
            )
        }),
        input("a label of 1 MB", &[422], || {
            create(
                CONFIG_MAPS,
                "wide",
                config_map("wide", &format!("\"labels\":{{\"a\":{}}}", long(1_000_000)), ""),
            )
        }),
        input("100,000 finalizers", &[201, 413, 422], || {
            let finalizers = items(100_000, |index| format!("\"a.b/f{index}\""));
            create(
                CONFIG_MAPS,
                "wide",
                config_map("wide", &format!("\"finalizers\":{finalizers}"), ""),
            )
        }),
        input("a name of 1 MB", &[422], || {
            create(CONFIG_MAPS, "wide", config_map(&"x".repeat(1_000_000), "", ""))
        }),
        input("20,000 managers of fields", &[201, 413, 422], || {
            let managers = items(20_000, |index| {
                format!(
                    r#"{{"manager":"m{index}","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
                    "fieldsV1":{{"f:data":{{"f:a":{{}}}}}}}}"#
                )
            });
            create(
                CONFIG_MAPS,
                "wide",
                config_map("wide", &format!("\"managedFields\":{managers}"), ""),
            )
        }),
        input("a pod with 20,000 containers", &[201, 413, 422], || {
            let containers = items(20_000, |index| format!(r#"{{"name":"c{index}","image":"i"}}"#));
            let spec = format!(r#""spec":{{"containers":{containers}}}"#);
            create(PODS, "wide", object("v1", "Pod", "wide", "", &spec))
        }),
        input("a pod with 20,000 containers of the same name", &[413, 422], || {
            let containers = items(20_000, |_| r#"{"name":"c","image":"i"}"#.to_owned());
            let spec = format!(r#""spec":{{"containers":{containers}}}"#);
            create(PODS, "wide", object("v1", "Pod", "wide", "", &spec))
        }),
        input("a pod with 30,000 empty containers", &[413, 422], || {
            let spec = format!(r#""spec":{{"containers":{}}}"#, items(30_000, |_| "{}".to_owned()));
            create(PODS, "wide", object("v1", "Pod", "wide", "", &spec))
        }),
        input(
            "a pod with 100,000 empty containers and mistakes in each",
            &[413, 422],
            || {
                let spec = format!(
                    r#""spec":{{"containers":{}}}"#,
                    items(100_000, |_| "{\"name\":\"?\"}".to_owned())
                );
                create(PODS, "wide", object("v1", "Pod", "wide", "", &spec))
            },
        ),
        input(
            "a container with 50,000 environment variables",
            &[201, 413, 422],
            || {
                let env = items(50_000, |index| format!(r#"{{"name":"E{index}","value":"v"}}"#));
                create(PODS, "wide", pod_with("wide", &format!("\"env\":{env}")))
            },
        ),
        input("a container with 50,000 ports", &[201, 413, 422], || {
            let ports = items(50_000, |index| format!(r#"{{"containerPort":{}}}"#, index % 65_000 + 1));
            create(PODS, "wide", pod_with("wide", &format!("\"ports\":{ports}")))
        }),
        input("a pod with 30,000 tolerations", &[201, 413, 422], || {
            let tolerations = items(30_000, |index| format!(r#"{{"key":"k{index}","operator":"Exists"}}"#));
            create(PODS, "wide", pod("wide", &format!("\"tolerations\":{tolerations}")))
        }),
        input("a pod with 30,000 volumes", &[201, 413, 422], || {
            let volumes = items(30_000, |index| format!(r#"{{"name":"v{index}","emptyDir":{{}}}}"#));
            create(PODS, "wide", pod("wide", &format!("\"volumes\":{volumes}")))
        }),
        input("a pod with 30,000 aliases of hosts", &[201, 413, 422], || {
            let aliases = items(30_000, |_| r#"{"ip":"127.0.0.1","hostnames":["a"]}"#.to_owned());
            create(PODS, "wide", pod("wide", &format!("\"hostAliases\":{aliases}")))
        }),
        input(
            "a pod with 30,000 topology spread constraints",
            &[201, 413, 422],
            || {
                let constraints = items(30_000, |index| {
                    format!(r#"{{"maxSkew":1,"topologyKey":"k{index}","whenUnsatisfiable":"DoNotSchedule"}}"#)
                });
                create(
                    PODS,
                    "wide",
                    pod("wide", &format!("\"topologySpreadConstraints\":{constraints}")),
                )
            },
        ),
        input("a pod with 30,000 scheduling gates", &[201, 413, 422], || {
            let gates = items(30_000, |index| format!(r#"{{"name":"g{index}"}}"#));
            create(PODS, "wide", pod("wide", &format!("\"schedulingGates\":{gates}")))
        }),
        input("a Service with 20,000 ports", &[201, 413, 422], || {
            let ports = items(20_000, |index| format!(r#"{{"name":"p{index}","port":{}}}"#, index + 1));
            let spec = format!(r#""spec":{{"ports":{ports}}}"#);
            create(SERVICES, "wide", object("v1", "Service", "wide", "", &spec))
        }),
        input("a Secret with 60,000 values that are no base64", &[400, 413], || {
            let rest = format!("\"data\":{}", fields(60_000, |_| "\"?\"".to_owned()));
            create(SECRETS, "wide", object("v1", "Secret", "wide", "", &rest))
        }),
        input("an EndpointSlice with 50,000 endpoints", &[201, 413, 422], || {
            let endpoints = items(50_000, |_| r#"{"addresses":["10.0.0.1"]}"#.to_owned());
            let rest = format!(r#""addressType":"IPv4","endpoints":{endpoints}"#);
            create(
                SLICES,
                "wide",
                object("discovery.k8s.io/v1", "EndpointSlice", "wide", "", &rest),
            )
        }),
        input("an Event with a message of 1 MB", &[201, 422], || {
            let rest = format!(
                r#""involvedObject":{{"namespace":"default"}},"message":{}"#,
                long(1_000_000)
            );
            create(EVENTS, "wide", object("v1", "Event", "wide", "", &rest))
        }),
        input("a Role with 40,000 rules", &[201, 413, 422], || {
            let rules = items(40_000, |_| {
                r#"{"verbs":["get"],"apiGroups":[""],"resources":["pods"]}"#.to_owned()
            });
            create(ROLES, "wide", role("wide", &rules))
        }),
        input("a Role with 100,000 empty rules", &[413, 422], || {
            create(ROLES, "wide", role("wide", &items(100_000, |_| "{}".to_owned())))
        }),
        input("a custom resource with 300,000 numbers", &[201, 413], || {
            create(THINGS, "wide", thing("wide", &items(300_000, |_| "1".to_owned()))).after(create(
                DEFINITIONS,
                DEFINITION,
                free_definition(),
            ))
        }),
        input("a custom resource with 100,000 fields", &[201, 413], || {
            create(THINGS, "wide", thing("wide", &fields(100_000, |_| "1".to_owned()))).after(create(
                DEFINITIONS,
                DEFINITION,
                free_definition(),
            ))
        }),
        input("YAML in which aliases multiply nine times", &[400, 413], || {
            let mut body =
                "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: wide}\na0: &a0 [x,x,x,x,x,x,x,x,x,x]\n".to_owned();
            for level in 1..10 {
                let aliases = vec![format!("*a{}", level - 1); 10].join(",");
                body += &format!("a{level}: &a{level} [{aliases}]\n");
            }
            create_as(CONFIG_MAPS, "wide", "application/yaml", body)
        }),
    ]
}
