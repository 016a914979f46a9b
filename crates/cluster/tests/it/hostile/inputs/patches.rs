//! Patches that make much of little, and applies.

use crate::hostile::input::{Input, Request, apply, create, input, json_patch, merge_patch, strategic_patch};
use crate::hostile::values::{
    CONFIG_MAPS, DEFINITION, DEFINITIONS, DEPLOYMENTS, PODS, THINGS, config_map, deployment, fields, free_definition,
    items, nested, pod, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        input("a JSON patch of 10,001 operations", &[200, 413], || {
            patched(items(10_001, |_| {
                r#"{"op":"test","path":"/kind","value":"ConfigMap"}"#.to_owned()
            }))
        }),
        input(
            "a JSON patch with 2,000 inserts at the head of 600,000 items",
            &[200, 413],
            || {
                let inserts = items(2_000, |_| r#"{"op":"add","path":"/spec/0","value":1}"#.to_owned());
                json_patch(&format!("{THINGS}/wide"), inserts).after(free(&items(600_000, |_| "1".to_owned())))
            },
        ),
        input(
            "a JSON patch that copies the object into itself 30 times",
            &[400, 413, 422],
            || {
                let copies = items(30, |index| {
                    format!(r#"{{"op":"copy","from":"/spec","path":"/spec/c{index}"}}"#)
                });
                json_patch(&format!("{THINGS}/wide"), copies).after(free("{\"a\":1}"))
            },
        ),
        input("a JSON patch of 10,000 copies of 100 KB", &[400, 413, 422], || {
            let copies = items(10_000, |index| {
                format!(r#"{{"op":"copy","from":"/spec/a","path":"/spec/c{index}"}}"#)
            });
            let spec = format!("{{\"a\":\"{}\"}}", "x".repeat(100_000));
            json_patch(&format!("{THINGS}/wide"), copies).after(free(&spec))
        }),
        input(
            "a JSON patch of 10,000 moves through 100,000 fields",
            &[200, 413, 422],
            || {
                let moves = items(10_000, |index| {
                    format!(
                        r#"{{"op":"move","from":"/spec/k{index}","path":"/spec/k{}"}}"#,
                        index + 1
                    )
                });
                json_patch(&format!("{THINGS}/wide"), moves).after(free(&fields(100_000, |_| "1".to_owned())))
            },
        ),
        input(
            "a JSON patch of 10,000 tests of a value of 200 KB",
            &[200, 413, 422],
            || {
                let value = items(100, |_| "1".to_owned());
                let tests = items(10_000, |_| format!(r#"{{"op":"test","path":"/spec","value":{value}}}"#));
                json_patch(&format!("{THINGS}/wide"), tests).after(free(&value))
            },
        ),
        input("a JSON patch with a path of 1,000,000 slashes", &[400, 422], || {
            patched(format!(
                r#"[{{"op":"add","path":"{}","value":1}}]"#,
                "/".repeat(1_000_000)
            ))
        }),
        input("a JSON patch at index 2^64", &[400, 422], || {
            patched(r#"[{"op":"add","path":"/metadata/finalizers/18446744073709551616","value":"a/b"}]"#.to_owned())
        }),
        input("a merge patch with 100,000 fields that are null", &[200, 413], || {
            let patch = format!("{{\"data\":{}}}", fields(100_000, |_| "null".to_owned()));
            merge_patch(&format!("{CONFIG_MAPS}/small"), patch).after(small())
        }),
        input("a merge patch 9,000 levels deep", &[200, 400], || {
            merge_patch(&format!("{CONFIG_MAPS}/small"), nested(9_000)).after(small())
        }),
        input(
            "a strategic patch that merges 20,000 containers",
            &[200, 413, 422],
            || {
                let containers = items(20_000, |index| format!(r#"{{"name":"c{index}","image":"i"}}"#));
                strategic_patch(
                    &format!("{DEPLOYMENTS}/wide"),
                    format!(r#"{{"spec":{{"template":{{"spec":{{"containers":{containers}}}}}}}}}"#),
                )
                .after(create(DEPLOYMENTS, "wide", deployment("wide", "")))
            },
        ),
        input(
            "a strategic patch with an order of 50,000 elements",
            &[200, 400, 413, 422],
            || {
                let order = items(50_000, |index| format!(r#"{{"name":"c{index}"}}"#));
                strategic_patch(
                    &format!("{PODS}/wide"),
                    format!(r#"{{"spec":{{"$setElementOrder/containers":{order}}}}}"#),
                )
                .after(create(PODS, "wide", pod("wide", "")))
            },
        ),
        input(
            "a strategic patch that deletes 50,000 elements",
            &[200, 400, 413, 422],
            || {
                let gone = items(50_000, |index| format!(r#"{{"$patch":"delete","name":"c{index}"}}"#));
                strategic_patch(
                    &format!("{PODS}/wide"),
                    format!(r#"{{"spec":{{"containers":{gone}}}}}"#),
                )
                .after(create(PODS, "wide", pod("wide", "")))
            },
        ),
        input(
            "an apply of 50,000 fields over those of another manager",
            &[200, 413],
            || {
                let body = |value: &str| {
                    let data = fields(50_000, |_| format!("\"{value}\""));
                    config_map("wide", "", &format!("\"data\":{data}"))
                };
                let path = format!("{CONFIG_MAPS}/wide");
                apply(&path, "second", body("2")).after(apply(&path, "first", body("1")))
            },
        ),
        input("an apply of a list with 9,000 keys", &[201, 413, 422], || {
            applied_pod(9_000)
        }),
        // With its managers the pod is larger than 1.5 MiB, which is known when all other work is done.
        input("an apply of a list with 20,000 keys", &[201, 500], || {
            applied_pod(20_000)
        }),
        input("an apply of a custom resource 400 levels deep", &[201, 400], || {
            apply(&format!("{THINGS}/deep"), "first", thing("deep", &nested(400))).after(create(
                DEFINITIONS,
                DEFINITION,
                free_definition(),
            ))
        }),
    ]
}

/// A pod with so many containers, applied.
fn applied_pod(count: usize) -> Request {
    let containers = items(count, |index| format!(r#"{{"name":"c{index}","image":"i"}}"#));
    let body = format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"wide"}},"spec":{{"containers":{containers}}}}}"#
    );
    apply(&format!("{PODS}/wide"), "first", body)
}

fn small() -> Request {
    create(CONFIG_MAPS, "small", config_map("small", "", "\"data\":{\"a\":\"b\"}"))
}

fn patched(patch: String) -> Request {
    json_patch(&format!("{CONFIG_MAPS}/small"), patch).after(small())
}

fn free(spec: &str) -> Request {
    create(THINGS, "wide", thing("wide", spec)).after(create(DEFINITIONS, DEFINITION, free_definition()))
}
