//! Long sets and lists with keys in custom resources: applied by one and by two, reversed, given up, and judged by
//! rules that see the old and the new. Scales whose paths lie deep.

use super::kinds::versioned;
use super::schemas::thing_of;
use crate::hostile::input::{Input, Request, any, apply, create, input, json_patch};
use crate::hostile::values::{
    DEFINITION, DEFINITIONS, THINGS, definition_of_spec, fields, free_definition, items, nested, scaled, thing,
};

const SET: &str = r#"{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}}"#;
const KEYED: &str = r#"{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k","l"],
    "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string"},
    "l":{"type":"string","default":"d"},"v":{"type":"string"}}}}"#;
const CHANGED: &[u16] = &[200, 413, 422];
const MADE: &[u16] = &[201, 413, 422];

pub(crate) fn inputs() -> Vec<Input> {
    let mut inputs = applied();
    inputs.extend(replaced());
    inputs.extend(judged());
    inputs.extend(deep());
    inputs
}

fn path() -> String {
    format!("{THINGS}/wide")
}

fn defined(schema: &str, request: Request) -> Request {
    request.after(create(DEFINITIONS, DEFINITION, definition_of_spec(schema)))
}

fn by(manager: &str, spec: &str) -> Request {
    apply(&path(), manager, thing("wide", spec))
}

fn texts(count: usize, word: &str) -> String {
    items(count, |index| format!("\"{word}{index}\""))
}

fn reversed(count: usize, item: impl Fn(usize) -> String) -> String {
    let last = scaled(count);
    items(count, |index| item(last - index - 1))
}

fn keyed(value: &'static str) -> impl Fn(usize) -> String {
    move |index| format!(r#"{{"k":"k{index}","l":"l","v":"{value}"}}"#)
}

/// Applies `second` where `first` has been applied.
fn twice(schema: &str, first: Request, second: Request) -> Request {
    // The requests before another one are sent in the order of these calls.
    second
        .after(create(DEFINITIONS, DEFINITION, definition_of_spec(schema)))
        .after(first)
}

/// With their managers, the objects take less than 1.5 MiB: an apply that makes more of one is refused by its size alone.
fn applied() -> Vec<Input> {
    vec![
        input("an apply of a set of 45,000 texts", MADE, || {
            defined(SET, by("first", &texts(45_000, "v")))
        }),
        input(
            "an apply of a set of 30,000 texts that somebody else applied",
            CHANGED,
            || {
                let set = texts(30_000, "v");
                twice(SET, by("first", &set), by("second", &set))
            },
        ),
        input("an apply of 45,000 texts to a set of 45,000 others", CHANGED, || {
            twice(SET, by("first", &texts(45_000, "v")), by("first", &texts(45_000, "w")))
        }),
        input("an apply that gives up 45,000 texts of a set", CHANGED, || {
            twice(SET, by("first", &texts(45_000, "v")), by("first", "[\"w\"]"))
        }),
        input("an apply of 12,000 elements with two keys", MADE, || {
            defined(KEYED, by("first", &items(12_000, keyed("x"))))
        }),
        input("an apply of 20,000 elements that lack a key", MADE, || {
            defined(
                KEYED,
                by("first", &items(20_000, |index| format!(r#"{{"k":"k{index}"}}"#))),
            )
        }),
        input("an apply of 8,000 elements in another order", CHANGED, || {
            let first = by("first", &items(8_000, keyed("x")));
            twice(KEYED, first, by("second", &reversed(8_000, keyed("x"))))
        }),
        input("an apply that gives up 12,000 elements", CHANGED, || {
            twice(KEYED, by("first", &items(12_000, keyed("x"))), by("first", "[]"))
        }),
        input("an apply against 12,000 elements of somebody else", &[409, 413], || {
            let second = any(
                "PATCH",
                &format!("{}?fieldManager=second", path()),
                "application/apply-patch+yaml",
                thing("wide", &items(12_000, keyed("y"))),
            );
            twice(KEYED, by("first", &items(12_000, keyed("x"))), second)
        }),
        input("an apply of 1,000 maps of 60 fields", MADE, || {
            let schema = r#"{"type":"object","additionalProperties":{"type":"object","additionalProperties":{"type":"string"}}}"#;
            let map = fields(60, |_| "\"v\"".to_owned());
            defined(schema, by("first", &fields(1_000, |_| map.clone())))
        }),
    ]
}

/// `second` in the place of `first`, which was created. A patch needs no version, as a PUT would.
fn replace(schema: &str, first: &str, second: &str) -> Request {
    let spec = format!(r#"[{{"op":"replace","path":"/spec","value":{second}}}]"#);
    json_patch(&path(), spec)
        .after(create(DEFINITIONS, DEFINITION, definition_of_spec(schema)))
        .after(create(THINGS, "wide", thing("wide", first)))
}

fn replaced() -> Vec<Input> {
    vec![
        input("a set of 80,000 texts in another order", CHANGED, || {
            replace(
                SET,
                &texts(80_000, "v"),
                &reversed(80_000, |index| format!("\"v{index}\"")),
            )
        }),
        input("20,000 elements with other values", CHANGED, || {
            replace(KEYED, &items(20_000, keyed("x")), &items(20_000, keyed("y")))
        }),
        input("60,000 fields in the place of 60,000 others", CHANGED, || {
            let schema = r#"{"type":"object","additionalProperties":{"type":"string"}}"#;
            let first = fields(60_000, |_| "\"v\"".to_owned());
            replace(schema, &first, &first.replace("\"k", "\"l"))
        }),
    ]
}

fn ruled(schema: &str, rule: &str) -> String {
    format!(r#"{{{schema},"x-kubernetes-validations":[{{"rule":"{rule}"}}]}}"#)
}

fn judged() -> Vec<Input> {
    vec![
        input("a rule that looks for 20,000 keys among the old ones", CHANGED, || {
            let schema = ruled(
                r#""type":"object","maxProperties":100000,"additionalProperties":{"type":"string","maxLength":10}"#,
                "self.all(k, k in oldSelf)",
            );
            let map = |value: &'static str| fields(20_000, move |_| format!("\"{value}\""));
            replace(&schema, &map("v"), &map("w"))
        }),
        input(
            "a rule that compares a list of 80,000 with the old one",
            CHANGED,
            || {
                let schema = ruled(
                    r#""type":"array","maxItems":100000,"items":{"type":"string","maxLength":10}"#,
                    "self == oldSelf || true",
                );
                replace(
                    &schema,
                    &texts(80_000, "v"),
                    &reversed(80_000, |index| format!("\"v{index}\"")),
                )
            },
        ),
        input(
            "a rule that compares each of 15,000 elements with the old one",
            CHANGED,
            || {
                let item = ruled(
                    r#""type":"object","required":["k"],"properties":{"k":{"type":"string","maxLength":10},"v":{"type":"integer"}}"#,
                    "self.v >= oldSelf.v",
                );
                let schema = format!(
                    r#"{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"maxItems":20000,"items":{item}}}"#
                );
                let element = |value: usize| move |index| format!(r#"{{"k":"k{index}","v":{value}}}"#);
                replace(&schema, &items(15_000, element(1)), &reversed(15_000, element(2)))
            },
        ),
        input("a set of 30,000 texts that is added to itself", MADE, || {
            let schema = ruled(
                r#""type":"array","x-kubernetes-list-type":"set","maxItems":30000,"items":{"type":"string","maxLength":10}"#,
                "self + self == self",
            );
            thing_of(&schema, &texts(30_000, "v"))
        }),
        input(
            "a list of 5,000 elements with keys that is added to itself",
            MADE,
            || {
                let schema = ruled(
                    r#""type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["k"],"maxItems":5000,
                "items":{"type":"object","required":["k"],"properties":{"k":{"type":"string","maxLength":10}}}"#,
                    "self + self == self",
                );
                thing_of(&schema, &items(5_000, |index| format!(r#"{{"k":"k{index}"}}"#)))
            },
        ),
        input("a choice among 1,000 patterns for 1,000 texts of 1 KB", MADE, || {
            let choices = items(1_000, |index| format!(r#"{{"pattern":"^z{index}[a-z]+$"}}"#));
            let schema = format!(r#"{{"type":"array","items":{{"type":"string","anyOf":{choices}}}}}"#);
            thing_of(&schema, &items(1_000, |_| format!("\"{}\"", "x".repeat(1_000))))
        }),
        input("100 enums of 100 texts, none of which may fit", MADE, || {
            let words = items(100, |index| format!("\"e{index}\""));
            let choices = items(100, |_| format!(r#"{{"enum":{words}}}"#));
            let schema = format!(r#"{{"type":"array","items":{{"type":"string","not":{{"anyOf":{choices}}}}}}}"#);
            thing_of(&schema, &items(10_000, |_| "\"x\"".to_owned()))
        }),
        input("1,000 objects that lack 1,000 fields each", MADE, || {
            let names = items(1_000, |index| format!("\"k{index}\""));
            let properties = fields(1_000, |_| r#"{"type":"string"}"#.to_owned());
            let schema = format!(
                r#"{{"type":"array","items":{{"type":"object","required":{names},"properties":{properties}}}}}"#
            );
            thing_of(&schema, &items(1_000, |_| "{}".to_owned()))
        }),
        input("500 elements with 200 keys each", MADE, || {
            let names = items(200, |index| format!("\"k{index}\""));
            let properties = fields(200, |_| r#"{"type":"string"}"#.to_owned());
            let schema = format!(
                r#"{{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":{names},
                "items":{{"type":"object","required":{names},"properties":{properties}}}}}"#
            );
            thing_of(
                &schema,
                &items(500, |element| fields(200, |_| format!("\"v{element}\""))),
            )
        }),
    ]
}

/// A Scale of a Thing whose number lies so deep.
fn scaled_at(depth: usize) -> Request {
    let path = format!(".spec{}", ".a".repeat(depth));
    let scale =
        format!(r#","subresources":{{"scale":{{"specReplicasPath":"{path}","statusReplicasPath":".status.r"}}}}"#);
    let body = r#"{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"wide","namespace":"default"},"spec":{"replicas":3}}"#;
    any("PUT", &format!("{THINGS}/wide/scale"), "application/json", body)
        .after(versioned(&scale))
        .after(create(THINGS, "wide", thing("wide", r#"{"b":1}"#)))
}

fn deep() -> Vec<Input> {
    vec![
        input("a scale whose number lies 480 levels deep", &[200], || scaled_at(480)),
        input("a scale whose number lies 20,000 levels deep", &[400], || {
            scaled_at(20_000)
        }),
        input("a scale whose number lies 200,000 levels deep", &[400, 413], || {
            scaled_at(200_000)
        }),
        input("an apply of a custom resource 493 levels deep", &[201, 400], || {
            let body = thing("wide", &nested(493));
            apply(&path(), "first", body).after(create(DEFINITIONS, DEFINITION, free_definition()))
        }),
        input(
            "a JSON patch that makes an object deeper, step by step",
            &[400, 422],
            || {
                let steps: Vec<String> = (1..12)
                    .map(|step| {
                        let path = "/a".repeat(step * 90);
                        format!(r#"{{"op":"add","path":"/spec{path}","value":{}}}"#, nested(90))
                    })
                    .collect();
                json_patch(&path(), format!("[{}]", steps.join(",")))
                    .after(create(DEFINITIONS, DEFINITION, free_definition()))
                    .after(create(THINGS, "wide", thing("wide", r#"{"a":1}"#)))
            },
        ),
    ]
}
