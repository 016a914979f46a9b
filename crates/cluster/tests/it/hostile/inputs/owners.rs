//! Ownership of fields, and patches that name many fields or are nested deeply.

use crate::hostile::input::{Input, Request, any, apply, create, get, input, json_patch, merge_patch, strategic_patch};
use crate::hostile::values::{
    CONFIG_MAPS, DEPLOYMENTS, PODS, config_map, deployment, fields, items, nested, pod, scaled,
};

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = owners();
    inputs.extend(patches());
    inputs.extend(reads());
    inputs
}

fn data(count: usize, value: &str) -> String {
    let data = fields(count, |_| format!("\"{value}\""));
    config_map("wide", "", &format!("\"data\":{data}"))
}

fn wide() -> String {
    format!("{CONFIG_MAPS}/wide")
}

fn owners() -> Vec<Input> {
    vec![
        input("an apply by the 400th manager of one field", &[200, 413], || {
            let managers = (0..scaled(1_000).min(400)).map(|index| apply(&wide(), &format!("m{index}"), data(1, "v")));
            managers.fold(apply(&wide(), "last", data(1, "v")), Request::after)
        }),
        input(
            "an update by the last of 400 managers of 20 fields each",
            &[200, 413],
            || {
                let managers = (0..scaled(1_000).min(400)).map(|index| {
                    let fields: Vec<String> = (0..20).map(|field| format!("\"k{index}-{field}\":\"v\"")).collect();
                    let body = config_map("wide", "", &format!("\"data\":{{{}}}", fields.join(",")));
                    apply(&wide(), &format!("m{index}"), body)
                });
                let change = merge_patch(&wide(), r#"{"data":{"k0-0":"w"}}"#).query("fieldManager=last");
                managers.fold(change, Request::after)
            },
        ),
        input("an apply that gives up 20,000 fields", &[200, 413], || {
            apply(&wide(), "first", data(1, "v")).after(apply(&wide(), "first", data(20_000, "v")))
        }),
        input("an apply against 20,000 fields of another manager", &[409, 413], || {
            any(
                "PATCH",
                &format!("{}?fieldManager=second", wide()),
                "application/apply-patch+yaml",
                data(20_000, "w"),
            )
            .after(apply(&wide(), "first", data(20_000, "v")))
        }),
        input(
            "an update that takes 20,000 fields from an applier",
            &[200, 413],
            || {
                any("PUT", &wide(), "application/json", data(20_000, "w")).after(apply(
                    &wide(),
                    "first",
                    data(20_000, "v"),
                ))
            },
        ),
        input("an apply that says who owns what", &[400], || {
            let owners = r#""managedFields":[{"manager":"m","operation":"Apply","apiVersion":"v1"}]"#;
            apply(&wide(), "first", config_map("wide", owners, ""))
        }),
        input(
            "managed fields of a version that was never there",
            &[201, 400, 422],
            || {
                let owners = r#""managedFields":[{"manager":"m","operation":"Update","apiVersion":"v99",
                "fieldsType":"FieldsV1","fieldsV1":{"f:data":{"f:k0":{}}}}]"#;
                create(CONFIG_MAPS, "wide", config_map("wide", owners, ""))
            },
        ),
        input(
            "managed fields with 50,000 keys of a list that are none",
            &[201, 400, 413, 422],
            || {
                let keys: Vec<String> = (0..scaled(50_000))
                    .map(|index| format!(r#""k:{{{index}":{{}}"#))
                    .collect();
                let owners = format!(
                    r#""managedFields":[{{"manager":"m","operation":"Update","apiVersion":"v1","fieldsType":"FieldsV1",
                "fieldsV1":{{"f:metadata":{{"f:ownerReferences":{{{}}}}}}}}}]"#,
                    keys.join(",")
                );
                create(CONFIG_MAPS, "wide", config_map("wide", &owners, ""))
            },
        ),
        input("managed fields that name the element 2^63", &[201, 400, 422], || {
            let owners = r#""managedFields":[{"manager":"m","operation":"Update","apiVersion":"v1",
                "fieldsType":"FieldsV1","fieldsV1":{"f:metadata":{"f:finalizers":{"i:9223372036854775808":{}}}}}]"#;
            create(CONFIG_MAPS, "wide", config_map("wide", owners, ""))
        }),
    ]
}

fn small(patch: impl FnOnce(&str) -> Request) -> Request {
    patch(&wide()).after(create(
        CONFIG_MAPS,
        "wide",
        config_map("wide", "", "\"data\":{\"a\":\"b\"}"),
    ))
}

fn of_pod(patch: &str) -> Request {
    strategic_patch(&format!("{PODS}/wide"), patch).after(create(PODS, "wide", pod("wide", "")))
}

fn patches() -> Vec<Input> {
    const REFUSED: &[u16] = &[400, 413, 422];
    // Upstream has no better code for a directive that it cannot read (`interpretStrategicMergePatchError`).
    const UNREADABLE: &[u16] = &[500];
    vec![
        input("a JSON patch with a path of 10,000 steps", REFUSED, || {
            let path = "/a".repeat(10_000);
            small(|of| json_patch(of, format!(r#"[{{"op":"add","path":"{path}","value":1}}]"#)))
        }),
        input("a JSON patch of 5,000 tests of paths of 500 steps", REFUSED, || {
            let path = "/a".repeat(500);
            let tests = items(5_000, |_| format!(r#"{{"op":"test","path":"{path}","value":null}}"#));
            small(|of| json_patch(of, tests))
        }),
        input(
            "a JSON patch with a path of 250,000 escapes",
            &[200, 400, 413, 422],
            || {
                let path = "~1~0".repeat(250_000);
                small(|of| json_patch(of, format!(r#"[{{"op":"add","path":"/data/{path}","value":"v"}}]"#)))
            },
        ),
        input("a JSON patch that moves the object into itself", REFUSED, || {
            small(|of| json_patch(of, r#"[{"op":"move","from":"","path":"/data/a"}]"#))
        }),
        input("a JSON patch that removes the object", REFUSED, || {
            small(|of| json_patch(of, r#"[{"op":"remove","path":""}]"#))
        }),
        input("a JSON patch that puts a number in the object's place", REFUSED, || {
            small(|of| json_patch(of, r#"[{"op":"replace","path":"","value":7}]"#))
        }),
        input("a merge patch that is a list", REFUSED, || {
            small(|of| merge_patch(of, "[1,2,3]"))
        }),
        input(
            "a merge patch of 300,000 labels that are null",
            &[200, 413, 422],
            || {
                let labels = fields(300_000, |_| "null".to_owned());
                small(|of| merge_patch(of, format!(r#"{{"metadata":{{"labels":{labels}}}}}"#)))
            },
        ),
        input(
            "a strategic patch whose directives nest 9,000 levels deep",
            &[200, 400, 413, 422],
            || {
                let patch = format!("{}1{}", r#"{"$patch":"merge","a":"#.repeat(9_000), "}".repeat(9_000));
                of_pod(&patch)
            },
        ),
        input(
            "a strategic patch that nests 400 levels of nothing known",
            &[200, 400, 422],
            || of_pod(&nested(400)),
        ),
        input(
            "a strategic patch that retains 50,000 keys",
            &[200, 400, 413, 422],
            || {
                let keys = items(50_000, |index| format!("\"k{index}\""));
                of_pod(&format!(r#"{{"spec":{{"$retainKeys":{keys},"volumes":[]}}}}"#))
            },
        ),
        input(
            "a strategic patch that takes 50,000 finalizers away",
            &[200, 400, 413, 422],
            || {
                let gone = items(50_000, |index| format!("\"a.io/k{index}\""));
                of_pod(&format!(
                    r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":{gone}}}}}"#
                ))
            },
        ),
        input(
            "a strategic patch with an order of 50,000 finalizers",
            &[200, 400, 413, 422],
            || {
                let order = items(50_000, |index| format!("\"a.io/k{index}\""));
                of_pod(&format!(r#"{{"metadata":{{"$setElementOrder/finalizers":{order}}}}}"#))
            },
        ),
        input("a strategic patch whose directive is an object", UNREADABLE, || {
            of_pod(r#"{"spec":{"containers":[{"$patch":{"a":1},"name":"c"}]}}"#)
        }),
        input("a strategic patch of a directive that nobody knows", UNREADABLE, || {
            of_pod(r#"{"spec":{"containers":[{"$patch":"explode","name":"c"}]}}"#)
        }),
        input("a strategic patch of elements without their key", UNREADABLE, || {
            let elements = items(20_000, |_| r#"{"image":"i"}"#.to_owned());
            let patch = format!(r#"{{"spec":{{"template":{{"spec":{{"containers":{elements}}}}}}}}}"#);
            strategic_patch(&format!("{DEPLOYMENTS}/wide"), patch).after(create(
                DEPLOYMENTS,
                "wide",
                deployment("wide", ""),
            ))
        }),
        input(
            "a strategic patch that merges one element 20,000 times",
            &[200, 400, 413, 422],
            || {
                let elements = items(20_000, |index| format!(r#"{{"name":"c","image":"i{index}"}}"#));
                of_pod(&format!(r#"{{"spec":{{"containers":{elements}}}}}"#))
            },
        ),
    ]
}

fn reads() -> Vec<Input> {
    // A pod without a node has no log: 204.
    const READ: &[u16] = &[200, 204, 400, 404];
    const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
    vec![
        input(
            "discovery for somebody who names its type 500 times",
            &[200, 406, 431],
            || get("/apis").header("Accept", &vec![AGGREGATED; 500].join(",")),
        ),
        input(
            "a document of schemas by a hash of 50 KB",
            &[200, 301, 404, 414],
            || get("/openapi/v3/api/v1").query(&format!("hash={}", "A".repeat(50_000))),
        ),
        input("10,000 groups of somebody else", &[431], || {
            (0..10_000).fold(get(CONFIG_MAPS).header("Impersonate-User", "a"), |request, index| {
                request.header("Impersonate-Group", &format!("g{index}"))
            })
        }),
        input("a uid of somebody else of 50 KB", &[400, 403], || {
            get(CONFIG_MAPS)
                .header("Impersonate-User", "a")
                .header("Impersonate-Uid", &"u".repeat(50_000))
        }),
        input("a list of exactly the first version", &[200, 410], || {
            get(CONFIG_MAPS).query("resourceVersion=1&resourceVersionMatch=Exact")
        }),
        input("a watch with the token of a page", &[200, 400, 422], || {
            get(CONFIG_MAPS).query("watch=1&timeoutSeconds=1&continue=abc")
        }),
        input("a Table with objects of a sort that nobody knows", &[400, 422], || {
            get(CONFIG_MAPS)
                .header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
                .query("includeObject=Everything")
        }),
        input("a log of 2^63 - 1 lines", READ, || {
            log("tailLines=9223372036854775807&limitBytes=9223372036854775807")
        }),
        input("a log since 2^63 - 1 seconds", READ, || {
            log("sinceSeconds=9223372036854775807")
        }),
        input("a log since the year 9999", READ, || {
            log("sinceTime=9999-12-31T23:59:59Z")
        }),
        input("a log of -1 bytes", &[400, 422], || log("limitBytes=-1")),
        input("a log of a container of 50 KB", &[400, 404], || {
            log(&format!("container={}", "c".repeat(50_000)))
        }),
        input("a command of 5,000 words", &[400, 403, 404], || {
            get(&format!("{PODS}/wide/exec"))
                .query(&vec!["command=a"; 5_000].join("&"))
                .after(create(PODS, "wide", pod("wide", "")))
        }),
    ]
}

fn log(query: &str) -> Request {
    get(&format!("{PODS}/wide/log"))
        .query(query)
        .after(create(PODS, "wide", pod("wide", "")))
}
