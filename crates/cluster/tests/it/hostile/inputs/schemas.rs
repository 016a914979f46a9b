//! Definitions, and objects of theirs.

use crate::hostile::input::{Input, Request, create, input};
use crate::hostile::values::{
    DEFINITION, DEFINITIONS, THINGS, definition, definition_of_spec, fields, items, long, thing,
};

pub(crate) fn inputs() -> Vec<Input> {
    vec![
        // 500 is etcd's answer about an object that has become too large.
        input(
            "78 KB that become 44 MB by nested defaults",
            &[201, 400, 413, 500],
            || {
                let spec = items(10_000, |_| "{}".to_owned());
                let value = format!("{{\"b\":{}}}", long(4_400));
                thing_of(
                    &format!(
                        r#"{{"type":"array","items":{{"type":"object","properties":{{
                    "a":{{"type":"object","properties":{{"b":{{"type":"string"}}}},"default":{value}}}}}}}}}"#
                    ),
                    &spec,
                )
            },
        ),
        input("a definition whose defaults double 12 times", &[201, 413, 422], || {
            let mut schema = r#"{"type":"string","default":"x"}"#.to_owned();
            for _ in 0..if cfg!(debug_assertions) { 7 } else { 12 } {
                schema = format!(r#"{{"type":"object","default":{{}},"properties":{{"a":{schema},"b":{schema}}}}}"#);
            }
            thing_of(&schema, "{}")
        }),
        input("an enum over lists of lists", &[201, 413, 422], || {
            let list = items(1_000, |index| format!("[{index}]"));
            let values = items(200, |_| list.clone());
            thing_of(
                &format!(
                    r#"{{"type":"array","items":{{"type":"array","items":{{"type":"integer"}}}},"enum":{values}}}"#
                ),
                &list,
            )
        }),
        input(
            "an enum of 50,000 strings and a list of 50,000 others",
            &[201, 413, 422],
            || {
                let values = items(50_000, |index| format!("\"v{index}\""));
                let spec = items(50_000, |_| "\"w\"".to_owned());
                thing_of(
                    &format!(r#"{{"type":"array","items":{{"type":"string","enum":{values}}}}}"#),
                    &spec,
                )
            },
        ),
        input("a set of 100,000 values", &[201, 413], || {
            thing_of(
                r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#,
                &items(100_000, |index| format!("\"v{index}\"")),
            )
        }),
        input("a set of 100,000 equal values", &[413, 422], || {
            thing_of(
                r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#,
                &items(100_000, |_| "\"v\"".to_owned()),
            )
        }),
        input("a list of 50,000 elements with keys", &[201, 413], || {
            thing_of(LIST_WITH_KEYS, &items(50_000, |index| format!(r#"{{"k":"{index}"}}"#)))
        }),
        input("a list of 50,000 elements with the same key", &[413, 422], || {
            thing_of(LIST_WITH_KEYS, &items(50_000, |_| r#"{"k":"a"}"#.to_owned()))
        }),
        input("100,000 mistakes against a schema", &[413, 422], || {
            thing_of(
                r#"{"type":"array","items":{"type":"string"}}"#,
                &items(100_000, |_| "1".to_owned()),
            )
        }),
        input("100,000 mistakes that quote 1 KB each", &[413, 422], || {
            let schema = r#"{"type":"array","items":{"type":"string","maxLength":1}}"#;
            thing_of(schema, &items(2_500, |_| long(1_000)))
        }),
        input("a pattern that would take for ever elsewhere", &[201, 422], || {
            thing_of(
                r#"{"type":"string","pattern":"^(a+)+$"}"#,
                &format!("\"{}!\"", "a".repeat(100_000)),
            )
        }),
        input(
            "a pattern that repeats a thousand times a thousand",
            &[201, 400, 413, 422],
            || {
                let body = definition_of_spec(r#"{"type":"string","pattern":"((a{1000}){1000}){1000}"}"#);
                create(DEFINITIONS, DEFINITION, body)
            },
        ),
        input("a definition with 1,000 patterns of 200 letters", &[201, 413], || {
            let pattern = r#"{"type":"string","pattern":"[\\p{L}\\p{N}]{1,200}"}"#.to_owned();
            let properties = fields(1_000, |_| pattern.clone());
            let body = definition_of_spec(&format!(r#"{{"type":"object","properties":{properties}}}"#));
            create(DEFINITIONS, DEFINITION, body)
        }),
        input(
            "a definition with 400 patterns of letters, each its own",
            &[201, 413],
            || {
                let properties = fields(400, |index| {
                    format!(r#"{{"type":"string","pattern":"^[\\pL\\pN]{{1,120}}x{index}$"}}"#)
                });
                let body = definition_of_spec(&format!(r#"{{"type":"object","properties":{properties}}}"#));
                create(DEFINITIONS, DEFINITION, body)
            },
        ),
        input(
            "a pattern that folds the cases of all characters 10,000 times",
            &[413],
            || {
                let pattern = format!("(?i){}", r"[a-\\x{10ffff}]".repeat(10_000));
                let body = definition_of_spec(&format!(r#"{{"type":"string","pattern":"{pattern}"}}"#));
                create(DEFINITIONS, DEFINITION, body)
            },
        ),
        input(
            "1,000 texts of letters under a pattern that counts them",
            &[201],
            || {
                let items = items(1_000, |index| format!("\"{}{index}\"", "é".repeat(200)));
                thing_of(
                    r#"{"type":"array","items":{"type":"string","pattern":"^[\\pL\\pN]{1,253}$"}}"#,
                    &items,
                )
            },
        ),
        input("a definition with 20,000 properties", &[201, 413, 422], || {
            let properties = fields(20_000, |_| r#"{"type":"string"}"#.to_owned());
            let body = definition_of_spec(&format!(r#"{{"type":"object","properties":{properties}}}"#));
            create(DEFINITIONS, DEFINITION, body)
        }),
        input("a definition with 1 MB of description", &[201], || {
            let body = definition(&format!(r#"{{"type":"object","description":{}}}"#, long(1_000_000)));
            create(DEFINITIONS, DEFINITION, body)
        }),
        input("a definition with 2,000 versions", &[201, 413, 422], || {
            let versions = items(2_000, |index| {
                format!(
                    r#"{{"name":"v{}","served":true,"storage":{},"schema":{{"openAPIV3Schema":{{"type":"object"}}}}}}"#,
                    index + 1,
                    index == 0
                )
            });
            let body = format!(
                r#"{{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition",
                "metadata":{{"name":"{DEFINITION}"}},"spec":{{"group":"hostile.example.com","scope":"Namespaced",
                "names":{{"plural":"things","kind":"Thing"}},"versions":{versions}}}}}"#
            );
            create(DEFINITIONS, DEFINITION, body)
        }),
        input("a oneOf of 1,000 schemas and 1,000 values", &[201, 413, 422], || {
            let choices = items(1_000, |_| r#"{"required":["x"]}"#.to_owned());
            thing_of(
                &format!(
                    r#"{{"type":"array","items":{{"type":"object","x-kubernetes-preserve-unknown-fields":true,
                    "oneOf":{choices}}}}}"#
                ),
                &items(1_000, |_| "{}".to_owned()),
            )
        }),
    ]
}

const LIST_WITH_KEYS: &str = r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],
    "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"}}}}"#;

/// A Thing with this `spec`, of a definition with this schema of it.
pub(super) fn thing_of(schema: &str, spec: &str) -> Request {
    create(THINGS, "thing", thing("thing", spec)).after(create(DEFINITIONS, DEFINITION, definition_of_spec(schema)))
}
