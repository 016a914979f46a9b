//! Two lists whose items are compared with each other: by rules, by plugins, by warnings. Each is long, and their
//! product is longer.

use super::kinds::{review, wide};
use crate::hostile::input::{Input, Request, create, get, input, merge_patch, strategic_patch};
use crate::hostile::values::{
    CLUSTER_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS, JOBS, MUTATING_BINDINGS, MUTATING_POLICIES, PODS, SECRETS,
    VALIDATING_BINDINGS, VALIDATING_POLICIES, config_map, fields, items, long, object, pod, pod_with, scaled,
};

const WIDE: &[u16] = &[201, 413, 422];
const CHANGED: &[u16] = &[200, 413, 422];
const LIMITS: &str = "/api/v1/namespaces/default/limitranges";
const STORAGE: &str = "storage.k8s.io/v1";
const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const WEBHOOKS: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = pods();
    inputs.extend(plugins());
    inputs.extend(kinds());
    inputs.extend(users());
    inputs.extend(stored());
    inputs
}

pub(super) fn containers(count: usize) -> String {
    let containers = items(count, |index| format!(r#"{{"name":"c{index}","image":"i"}}"#));
    object(
        "v1",
        "Pod",
        "wide",
        "",
        &format!(r#""spec":{{"containers":{containers}}}"#),
    )
}

fn of_ports(ports: &str) -> Request {
    create(PODS, "wide", pod_with("wide", &format!("\"ports\":{ports}")))
}

fn pods() -> Vec<Input> {
    vec![
        input("a pod that gives the same port 12,000 times", WIDE, || {
            of_ports(&items(12_000, |_| r#"{"containerPort":80}"#.to_owned()))
        }),
        input("a pod with one port at 8,000 ports of its host", WIDE, || {
            of_ports(&items(8_000, |index| {
                format!(r#"{{"containerPort":80,"hostPort":{}}}"#, index + 1)
            }))
        }),
        input("a pod with one port at 8,000 addresses of its host", WIDE, || {
            of_ports(&items(8_000, |index| {
                format!(
                    r#"{{"containerPort":80,"hostPort":80,"hostIP":"10.0.{}.{}"}}"#,
                    index / 250,
                    index % 250
                )
            }))
        }),
        input("a pod with one variable 20,000 times", WIDE, || {
            let variables = items(20_000, |index| format!(r#"{{"name":"A","value":"v{index}"}}"#));
            create(PODS, "wide", pod_with("wide", &format!("\"env\":{variables}")))
        }),
        input("a pod with 8,000 volumes and mounts of 8,000 others", WIDE, || {
            let volumes = items(8_000, |index| format!(r#"{{"name":"v{index}","emptyDir":{{}}}}"#));
            let mounts = items(8_000, |index| {
                format!(r#"{{"name":"w{index}","mountPath":"/m{index}"}}"#)
            });
            let spec = format!(
                r#""spec":{{"volumes":{volumes},"containers":[{{"name":"c","image":"i","volumeMounts":{mounts}}}]}}"#
            );
            create(PODS, "wide", object("v1", "Pod", "wide", "", &spec))
        }),
        input("a pod with 8,000 files at the same place", WIDE, || {
            let sources = items(8_000, |index| {
                format!(r#"{{"configMap":{{"name":"c{index}","items":[{{"key":"k","path":"p"}}]}}}}"#)
            });
            let volume = format!(r#""volumes":[{{"name":"v","projected":{{"sources":{sources}}}}}]"#);
            create(PODS, "wide", pod("wide", &volume))
        }),
        input("a pod with 4,000 containers and their profiles", WIDE, || {
            let profiles = fields(4_000, |_| "\"runtime/default\"".to_owned())
                .replace("\"k", "\"container.apparmor.security.beta.kubernetes.io/c");
            let body = containers(4_000).replace(
                "\"name\":\"wide\"",
                &format!("\"name\":\"wide\",\"annotations\":{profiles}"),
            );
            create(PODS, "wide", body)
        }),
        input("a pod with 90 terms and 1,000 labels that each adds", WIDE, || {
            let labels = fields(1_000, |_| "\"v\"".to_owned());
            let keys = items(1_000, |index| format!("\"k{index}\""));
            let terms = items(90, |index| {
                format!(
                    r#"{{"topologyKey":"t{index}","labelSelector":{{"matchLabels":{{"a":"b"}}}},"matchLabelKeys":{keys}}}"#
                )
            });
            let spec = format!(
                r#""affinity":{{"podAntiAffinity":{{"requiredDuringSchedulingIgnoredDuringExecution":{terms}}}}}"#
            );
            let body =
                pod("wide", &spec).replace("\"name\":\"wide\"", &format!("\"name\":\"wide\",\"labels\":{labels}"));
            create(PODS, "wide", body)
        }),
        input("300 containers with 100 claims each that nobody made", WIDE, || {
            let claims = items(100, |index| format!(r#"{{"name":"r{index}"}}"#));
            let containers = items(300, |index| {
                format!(r#"{{"name":"c{index}","image":"i","resources":{{"claims":{claims}}}}}"#)
            });
            let spec = format!(r#""spec":{{"containers":{containers}}}"#);
            create(PODS, "wide", object("v1", "Pod", "wide", "", &spec))
        }),
        input("a patch of the images of 8,000 containers", CHANGED, || {
            let images = items(8_000, |index| format!(r#"{{"name":"c{index}","image":"j"}}"#));
            let patch = format!(r#"{{"spec":{{"containers":{images}}}}}"#);
            strategic_patch(&format!("{PODS}/wide"), patch).after(create(PODS, "wide", containers(8_000)))
        }),
        input("15,000 containers for a while", CHANGED, || {
            let added = items(15_000, |index| format!(r#"{{"name":"e{index}","image":"i"}}"#));
            let patch = format!(r#"{{"spec":{{"ephemeralContainers":{added}}}}}"#);
            strategic_patch(&format!("{PODS}/wide/ephemeralcontainers"), patch).after(create(
                PODS,
                "wide",
                pod("wide", ""),
            ))
        }),
    ]
}

fn limit_range(name: &str, limits: &str) -> Request {
    let body = object(
        "v1",
        "LimitRange",
        name,
        "",
        &format!(r#""spec":{{"limits":{limits}}}"#),
    );
    create(LIMITS, name, body)
}

/// Writes that plugins check against stored objects.
fn plugins() -> Vec<Input> {
    vec![
        input(
            "2,000 containers where 500 resources have a default",
            &[201, 403, 413, 422],
            || {
                let amounts = fields(500, |_| "\"1\"".to_owned()).replace("\"k", "\"a.io/k");
                let limits = format!(r#"[{{"type":"Container","default":{amounts}}}]"#);
                create(PODS, "wide", containers(2_000)).after(limit_range("wide", &limits))
            },
        ),
        input("5,000 containers under 60 limits", &[201, 403, 413, 422], || {
            let limits = r#"[{"type":"Container","max":{"cpu":"1"},"default":{"cpu":"1"},"defaultRequest":{"cpu":"1m"}},
                {"type":"Pod","max":{"cpu":"1"}}]"#;
            let ranges = (0..60).map(|index| limit_range(&format!("l{index}"), limits));
            ranges.fold(create(PODS, "wide", containers(5_000)), Request::after)
        }),
        input("1,000 webhooks that are asked about 500 KB", &[201, 413], || {
            let data = format!("\"data\":{{\"a\":{}}}", long(500_000));
            asked(&webhooks(1_000, ""), &data)
        }),
        input(
            "1,000 webhooks whose conditions look at 20,000 fields",
            &[201, 413],
            || {
                let conditions = items(10, |index| {
                    format!(r#"{{"name":"n{index}","expression":"object.data.all(k, k == 'a{index}')"}}"#)
                });
                let hooks = webhooks(1_000, &format!(",\"matchConditions\":{conditions}"));
                asked(&hooks, &format!("\"data\":{}", fields(20_000, |_| "\"v\"".to_owned())))
            },
        ),
        input("40 policies that look at 30,000 fields", &[201, 413], || {
            let rest = r#""validations":[{"expression":"object.metadata.name != 'other'"}]"#;
            under(
                40,
                [VALIDATING_POLICIES, VALIDATING_BINDINGS],
                ["ValidatingAdmissionPolicy", "Deny"],
                rest,
            )
        }),
        input(
            "20 policies that change an object of 30,000 fields",
            &[201, 413],
            || changing_policies(20),
        ),
        input("300 webhooks that might change 30,000 fields", &[201, 413], || {
            let rest = format!("\"webhooks\":{}", webhooks(300, ""));
            let path = WEBHOOKS.replace("validating", "mutating");
            let body = object(ADMISSION, "MutatingWebhookConfiguration", "wide", "", &rest);
            secret(30_000).after(create(&path, "wide", body))
        }),
        input("200 webhooks with 64 conditions each", WIDE, || {
            let conditions = items(64, |index| {
                format!(r#"{{"name":"n{index}","expression":"object.metadata.name == 'a{index}'"}}"#)
            });
            configuration(&webhooks(200, &format!(",\"matchConditions\":{conditions}")))
        }),
        input("a webhook with 100,000 rules", WIDE, || {
            let rules = items(100_000, |_| "{}".to_owned());
            configuration(&format!(
                r#"[{{"name":"h.b.io","clientConfig":{{"url":"https://127.0.0.1:1"}},"sideEffects":"None",
                "admissionReviewVersions":["v1"],"rules":{rules}}}]"#
            ))
        }),
    ]
}

fn webhooks(count: usize, rest: &str) -> String {
    items(count, |index| {
        format!(
            r#"{{"name":"h{index}.b.io","clientConfig":{{"url":"https://127.0.0.1:1"}},"failurePolicy":"Ignore",
            "sideEffects":"None","timeoutSeconds":1,"admissionReviewVersions":["v1"],"rules":[{{"apiGroups":[""],
            "apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}}]{rest}}}"#
        )
    })
}

/// A Secret of so many fields.
fn secret(count: usize) -> Request {
    let data = fields(count, |_| "\"v\"".to_owned());
    create(
        SECRETS,
        "asked",
        object("v1", "Secret", "asked", "", &format!("\"stringData\":{data}")),
    )
}

/// A Secret of 30,000 fields that so many policies label.
pub(super) fn changing_policies(count: usize) -> Request {
    let rest = r#""reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":
        {"expression":"Object{metadata: Object.metadata{labels: {'a': 'x'}}}"}}]"#;
    under(
        count,
        [MUTATING_POLICIES, MUTATING_BINDINGS],
        ["MutatingAdmissionPolicy", ""],
        rest,
    )
}

/// A Secret of 30,000 fields under so many policies.
fn under(count: usize, paths: [&str; 2], [kind, action]: [&str; 2], rest: &str) -> Request {
    (0..count).fold(secret(30_000), |request, index| {
        let name = format!("wide-{index}");
        let spec = format!(
            r#""spec":{{"failurePolicy":"Fail","matchConstraints":{{"resourceRules":[{{"apiGroups":[""],
            "apiVersions":["v1"],"operations":["CREATE"],"resources":["secrets"]}}]}},{rest}}}"#
        );
        let actions = if action.is_empty() {
            String::new()
        } else {
            format!(r#","validationActions":["{action}"]"#)
        };
        let binding = format!(r#""spec":{{"policyName":"{name}"{actions}}}"#);
        request
            .after(create(paths[0], &name, object(ADMISSION, kind, &name, "", &spec)))
            .after(create(
                paths[1],
                &name,
                object(ADMISSION, &format!("{kind}Binding"), &name, "", &binding),
            ))
    })
}

fn configuration(webhooks: &str) -> Request {
    let rest = format!("\"webhooks\":{webhooks}");
    create(
        WEBHOOKS,
        "wide",
        object(ADMISSION, "ValidatingWebhookConfiguration", "wide", "", &rest),
    )
}

/// A Secret that these webhooks see: no other client makes any.
fn asked(webhooks: &str, data: &str) -> Request {
    let body = object("v1", "Secret", "asked", "", &data.replace("\"data\"", "\"stringData\""));
    create(SECRETS, "asked", body).after(configuration(webhooks))
}

fn kinds() -> Vec<Input> {
    vec![
        input("a storage class of 15,000 terms", WIDE, || {
            let terms = items(15_000, |index| {
                format!(r#"{{"matchLabelExpressions":[{{"key":"k{index}","values":["v"]}}]}}"#)
            });
            let rest = format!(r#""provisioner":"a.b/c","allowedTopologies":{terms}"#);
            let body = object(STORAGE, "StorageClass", "wide", "", &rest);
            create("/apis/storage.k8s.io/v1/storageclasses", "wide", body)
        }),
        input("a change of the order of 8,000 drivers", CHANGED, || {
            let drivers = |order: fn(usize) -> usize| {
                let drivers = items(8_000, |index| {
                    format!(r#"{{"name":"d{}.io","nodeID":"n","topologyKeys":["k"]}}"#, order(index))
                });
                format!(r#""spec":{{"drivers":{drivers}}}"#)
            };
            let path = "/apis/storage.k8s.io/v1/csinodes";
            let made = object(STORAGE, "CSINode", "wide", "", &drivers(|index| index));
            merge_patch(
                &format!("{path}/wide"),
                format!("{{{}}}", drivers(|index| 10_000 - index)),
            )
            .after(create(path, "wide", made))
        }),
        input("a signing request with 20,000 conditions", &[200, 413, 422], || {
            let conditions = items(20_000, |index| format!(r#"{{"type":"C{index}","status":"True"}}"#));
            let path = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
            let pem = super::hunted::pem(&[], &[]);
            let spec = format!(r#""spec":{{"signerName":"a.b/c","usages":["client auth"],"request":"{pem}"}}"#);
            let made = object("certificates.k8s.io/v1", "CertificateSigningRequest", "wide", "", &spec);
            let patch = format!(r#"{{"status":{{"conditions":{conditions}}}}}"#);
            merge_patch(&format!("{path}/wide/status"), patch).after(create(path, "wide", made))
        }),
        input(
            "a Job with 100,000 intervals that are done and as many that failed",
            CHANGED,
            || {
                let indexes = |first: usize| {
                    let indexes = (0..scaled(100_000)).map(|index| (index * 4 + first).to_string());
                    indexes.collect::<Vec<_>>().join(",")
                };
                let status = format!(
                    r#"{{"status":{{"completedIndexes":"{}","failedIndexes":"{}","startTime":"2020-01-01T00:00:00Z"}}}}"#,
                    indexes(0),
                    indexes(2)
                );
                let spec = r#""spec":{"completions":100000,"parallelism":1,"completionMode":"Indexed",
                "backoffLimitPerIndex":1,"maxFailedIndexes":100000,"template":{"spec":{"restartPolicy":"Never",
                "containers":[{"name":"c","image":"i"}]}}}"#;
                let job = object("batch/v1", "Job", "wide", "", spec);
                merge_patch(&format!("{JOBS}/wide/status"), status).after(create(JOBS, "wide", job))
            },
        ),
        input("a Service of 9,000 ports that are the same", WIDE, || {
            let ports = items(9_000, |index| format!(r#"{{"name":"p{index}","port":1}}"#));
            let spec = format!(r#""spec":{{"type":"NodePort","ports":{ports}}}"#);
            wide("v1", "Service", "services", &spec)
        }),
        input("a network policy that leaves out 60,000 networks", WIDE, || {
            let except = items(60_000, |index| {
                format!("\"10.{}.{}.0/24\"", index / 250 % 250, index % 250)
            });
            let spec = format!(
                r#""spec":{{"podSelector":{{}},"ingress":[{{"from":[{{"ipBlock":{{"cidr":"10.0.0.0/8","except":{except}}}}}]}}]}}"#
            );
            wide("networking.k8s.io/v1", "NetworkPolicy", "networkpolicies", &spec)
        }),
        input(
            "a level of priority with 10,000,000 queues and hands as large",
            WIDE,
            || {
                let spec = r#""spec":{"type":"Limited","limited":{"nominalConcurrencyShares":2147483647,"limitResponse":
                {"type":"Queue","queuing":{"queues":10000000,"handSize":10000000,"queueLengthLimit":2147483647}}}}"#;
                let body = object(
                    "flowcontrol.apiserver.k8s.io/v1",
                    "PriorityLevelConfiguration",
                    "wide",
                    "",
                    spec,
                );
                create(
                    "/apis/flowcontrol.apiserver.k8s.io/v1/prioritylevelconfigurations",
                    "wide",
                    body,
                )
            },
        ),
        input("a range of all addresses for Services", WIDE, || {
            let body = object(
                "networking.k8s.io/v1",
                "ServiceCIDR",
                "wide",
                "",
                r#""spec":{"cidrs":["::/0"]}"#,
            );
            create("/apis/networking.k8s.io/v1/servicecidrs", "wide", body)
        }),
        input(
            "metrics of an autoscaler in an annotation of 200,000 brackets",
            WIDE,
            || {
                let body = object(
                    "autoscaling/v1",
                    "HorizontalPodAutoscaler",
                    "wide",
                    &format!(
                        r#""annotations":{{"autoscaling.alpha.kubernetes.io/metrics":"{}"}}"#,
                        "[".repeat(200_000)
                    ),
                    r#""spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"D","name":"a"}}"#,
                );
                create(
                    "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers",
                    "wide",
                    body,
                )
            },
        ),
    ]
}

/// So many bindings of all who are authenticated, to so many rules each.
fn bound(bindings: usize, rules: usize, request: Request) -> Request {
    const VERSION: &str = "rbac.authorization.k8s.io/v1";
    let rules = items(rules, |index| {
        format!(r#"{{"apiGroups":["g{index}"],"resources":["r{index}"],"verbs":["v"]}}"#)
    });
    let role = object(VERSION, "ClusterRole", "wide", "", &format!("\"rules\":{rules}"));
    let bindings = (0..bindings).map(|index| {
        let name = format!("wide-{index}");
        let rest = r#""roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"wide"},
            "subjects":[{"kind":"Group","apiGroup":"rbac.authorization.k8s.io","name":"system:authenticated"}]"#;
        create(
            CLUSTER_BINDINGS,
            &name,
            object(VERSION, "ClusterRoleBinding", &name, "", rest),
        )
    });
    bindings.fold(request.after(create(CLUSTER_ROLES, "wide", role)), Request::after)
}

fn users() -> Vec<Input> {
    vec![
        input(
            "a review of somebody who is in one group 50,000 times",
            &[201, 413],
            || {
                let groups = items(50_000, |_| "\"system:authenticated\"".to_owned());
                let spec =
                    format!(r#""user":"u","groups":{groups},"resourceAttributes":{{"verb":"list","resource":"pods"}}"#);
                bound(
                    60,
                    100,
                    review(
                        "authorization.k8s.io/v1",
                        "SubjectAccessReview",
                        "subjectaccessreviews",
                        &spec,
                    ),
                )
            },
        ),
        input("a list by somebody with 60 times 3,000 rules", &[200, 403, 413], || {
            bound(60, 3_000, get(CONFIG_MAPS).header("Impersonate-User", "u"))
        }),
        input(
            "a review of access by a selector of 400,000 values",
            &[201, 413],
            || {
                let spec = format!(
                    r#""user":"u","resourceAttributes":{{"verb":"list","resource":"pods","labelSelector":{{"rawSelector":"a in ({}c)"}}}}"#,
                    "b,".repeat(scaled(400_000))
                );
                review(
                    "authorization.k8s.io/v1",
                    "SubjectAccessReview",
                    "subjectaccessreviews",
                    &spec,
                )
            },
        ),
        input("a role for 80,000 paths", WIDE, || {
            let paths = items(80_000, |index| format!("\"/a{index}/*\""));
            let rest = format!(r#""rules":[{{"nonResourceURLs":{paths},"verbs":["get"]}}]"#);
            let body = object("rbac.authorization.k8s.io/v1", "ClusterRole", "wide", "", &rest);
            create(CLUSTER_ROLES, "wide", body)
        }),
    ]
}

/// Objects that must be read again as they were stored.
fn stored() -> Vec<Input> {
    vec![
        input("a Secret whose base64 has 200,000 line ends", &[201, 413], || {
            let value = "YWFh\\n".repeat(scaled(200_000));
            wide("v1", "Secret", "secrets", &format!(r#""data":{{"a":"{value}"}}"#))
        }),
        input("a Secret with an account of 700,000 brackets", &[400, 413, 422], || {
            let data = format!(
                r#""type":"kubernetes.io/dockerconfigjson","stringData":{{".dockerconfigjson":"{}"}}"#,
                "[".repeat(700_000)
            );
            wide("v1", "Secret", "secrets", &data)
        }),
        input("a Table of 8,000 addresses with 2,000 ports each", &[200], || {
            let addresses = items(8_000, |index| {
                format!(r#"{{"ip":"10.0.{}.{}"}}"#, index / 250, index % 250)
            });
            let ports = items(2_000, |index| format!(r#"{{"name":"p{index}","port":{}}}"#, index + 1));
            let made = wide(
                "v1",
                "Endpoints",
                "endpoints",
                &format!(r#""subsets":[{{"addresses":{addresses},"ports":{ports}}}]"#),
            );
            get("/api/v1/namespaces/default/endpoints")
                .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
                .after(made)
        }),
        input("a ConfigMap whose keys stand in both its maps", &[413, 422], || {
            let both = |value: &'static str| fields(40_000, move |_| value.to_owned());
            let rest = format!(r#""data":{},"binaryData":{}"#, both("\"a\""), both("\"YQ==\""));
            create(CONFIG_MAPS, "wide", config_map("wide", "", &rest))
        }),
    ]
}
