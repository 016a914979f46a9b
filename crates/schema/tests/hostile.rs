//! Inputs that were made to cost much, and what they cost: the steps and bytes that the budget of a request counts, never a clock.
//!
//! A table for each part of the crate, all through one `check`. What upstream takes is taken cheaply; what it refuses is refused with its
//! words; what it would work on for long is cancelled.

use kubewright_schema::budget::{self, Limits};
use kubewright_schema::error::{self, FieldError};
use kubewright_schema::path::FieldPath;
use kubewright_schema::structural::{self, PruneOptions};
use kubewright_schema::{SchemaRef, catalog, patch};
use serde_json::{Value, json};

/// What becomes of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    Refused,
    /// It costs more than a request may.
    Cancelled,
}
use Outcome::{Cancelled, Refused, Taken};

/// Does the work within so many steps and as many bytes as a request may make. The work answers whether the input was taken.
fn check(name: &str, steps: u64, expected: Outcome, work: impl FnOnce() -> bool) {
    let limits = Limits {
        steps,
        ..Limits::REQUEST
    };
    let found = match budget::within(limits, work) {
        Ok(true) => Taken,
        Ok(false) => Refused,
        Err(_) => Cancelled,
    };
    assert_eq!(found, expected, "{name}");
}

/// A list of the same item again and again.
fn times(count: usize, item: &Value) -> Value {
    Value::from(vec![item.clone(); count])
}

/// The values of the numbers below `count`.
fn numbered(count: usize, item: impl Fn(usize) -> Value) -> Value {
    (0..count).map(item).collect()
}

#[test]
fn json_patches() {
    let check = |name: &str, steps: u64, expected: Outcome, document: &Value, patch: &Value| {
        check(name, steps, expected, || patch::json::apply(document, patch).is_ok());
    };
    let list = json!({"list": times(100_000, &json!(1))});
    let add = |path: &str| json!({"op": "add", "path": path, "value": 1});
    let (head, middle) = (times(2_000, &add("/list/0")), times(2_000, &add("/list/50000")));
    check("inserts at the head of a long list", 300_000, Taken, &list, &head);
    check("inserts in its middle", 300_000, Taken, &list, &middle);
    let both = json!([{"op": "remove", "path": "/list/0"}, {"op": "move", "from": "/list/-1", "path": "/list/0"}]);
    let both: Value = (0..2_000)
        .flat_map(|_| both.as_array().cloned().unwrap_or_default())
        .collect();
    check("removals and moves in turn", 400_000, Taken, &list, &both);
    let copy = |from: &str, path: &str| json!({"op": "copy", "from": from, "path": path});
    let doubling = numbered(40, |at| copy("/list", &format!("/copy{at}")));
    check("copies of a long list", 1_000_000, Refused, &list, &doubling);
    let maps = json!({"list": times(10_000, &json!({"": 0}))});
    let copies = numbered(10_000, |at| copy("/list", &format!("/{at}")));
    check(
        "copies of what is small on the wire alone",
        1_000_000,
        Cancelled,
        &maps,
        &copies,
    );
    let test = json!({"op": "test", "path": "", "value": json!({"list": times(50_000, &json!(1))})});
    check(
        "tests of a long list against another",
        1_000_000,
        Refused,
        &list,
        &times(1, &test),
    );
    let same = json!({"op": "test", "path": "/list/99999", "value": 1});
    check("tests of the last item", 1_000_000, Taken, &list, &times(10_000, &same));
    let path = "/a".repeat(100_000);
    check(
        "a path of many parts",
        1_000_000,
        Refused,
        &list,
        &times(10, &add(&path)),
    );
    check(
        "too many operations",
        1_000_000,
        Refused,
        &list,
        &times(10_001, &add("/a")),
    );
}

fn crd(schema: &Value) -> SchemaRef {
    SchemaRef::from_crd(schema).expect("a schema")
}

#[test]
fn unknown_fields() {
    let wide = |count: usize, key: &str| -> Value { (0..count).map(|at| (format!("{key}{at}"), json!(1))).collect() };
    let pod = catalog::for_kind("", "v1", "Pod").expect("built in");
    let custom = crd(&json!({"type": "object", "properties": {"a": {"type": "object"}}}));
    let check = |name: &str, steps: u64, expected: Outcome, object: &Value| {
        let body = object.to_string();
        check(&format!("{name}, as written"), steps, expected, || {
            structural::unknown_fields_as_written(body.as_bytes(), &pod).is_empty()
        });
        for (schema, options) in [(&pod, PruneOptions::BUILT_IN), (&custom, PruneOptions::CUSTOM_RESOURCE)] {
            check(&format!("{name}, {options:?}"), steps, expected, || {
                structural::prune(&mut object.clone(), schema, options).is_empty()
            });
        }
    };
    check("many fields", 1_000_000, Refused, &wide(100_000, "x"));
    let long = "long".repeat(25_000);
    check(
        "fields below a long name",
        1_000_000,
        Refused,
        &json!({ long.clone(): wide(10_000, "x") }),
    );
    let keys: Value = (0..2_000).map(|at| (format!("{at}"), json!({"x": 1}))).collect();
    let schema = crd(&json!({"type": "object", "properties": {
        "map": {"type": "object", "additionalProperties": {"type": "object", "additionalProperties": {"type": "object"}}}}}));
    self::check("paths that all begin with a long name", 1_000_000, Cancelled, || {
        let mut object = json!({"map": {long: keys}});
        structural::prune(&mut object, &schema, PruneOptions::CUSTOM_RESOURCE).is_empty()
    });
}

#[test]
fn mistakes() {
    let valid = |schema: Value, object: Value| {
        let schema = crd(&schema);
        move || structural::validate(&object, &schema, &FieldPath::root()).is_empty()
    };
    let list = |items: Value| json!({"type": "object", "properties": {"list": {"type": "array", "items": items}}});
    let of = |items: Value| json!({ "list": items });
    let (ones, text) = (times(10_000, &json!(1)), json!({"type": "string"}));
    check(
        "many values of the wrong type",
        5_000_000,
        Refused,
        valid(list(text.clone()), of(ones)),
    );
    let ones = times(200_000, &json!(1));
    check(
        "more than anybody reads",
        2_000_000,
        Cancelled,
        valid(list(text.clone()), of(ones.clone())),
    );
    let long = "long".repeat(25_000);
    let below =
        json!({"type": "object", "properties": {long.clone(): {"type": "array", "items": {"type": "integer"}}}});
    check(
        "items below a long name",
        2_000_000,
        Taken,
        valid(below, json!({ long.clone(): ones.clone() })),
    );
    let below = json!({"type": "object", "properties": {long.clone(): {"type": "array", "items": text}}});
    check(
        "mistakes below a long name",
        2_000_000,
        Cancelled,
        valid(below, json!({ long.clone(): ones.clone() })),
    );
    let members = numbered(20_000, |at| json!(format!("a{at}")));
    let wrong = numbered(20_000, |at| json!(format!("b{at}")));
    let enumerated = list(json!({"type": "string", "enum": members}));
    check(
        "items that no enum has",
        2_000_000,
        Cancelled,
        valid(enumerated, of(wrong)),
    );
    let lists = numbered(300, |at| times(300, &json!(at)));
    let last = times(1_000, &times(300, &json!(299)));
    let enumerated = list(json!({"type": "array", "enum": lists, "items": {"type": "integer"}}));
    check(
        "lists in an enum of lists",
        5_000_000,
        Taken,
        valid(enumerated.clone(), of(last)),
    );
    let wrong = times(1_000, &times(300, &json!(300)));
    check(
        "lists that no enum of lists has",
        2_000_000,
        Cancelled,
        valid(enumerated, of(wrong)),
    );
    let unique = json!({"type": "object", "properties": {"list": {"type": "array", "uniqueItems": true}}});
    check(
        "items that must be unique",
        2_000_000,
        Cancelled,
        valid(unique, of(numbered(20_000, |at| json!(at)))),
    );
    let any =
        |count: usize| json!({"anyOf": numbered(count, |at| json!({"maximum": -(at as i64) - 1})), "type": "integer"});
    check(
        "alternatives of which none fits",
        2_000_000,
        Cancelled,
        valid(list(any(1_000)), of(ones)),
    );
    let mut nested = json!({"type": "integer"});
    for _ in 0..60 {
        nested = json!({"anyOf": [{"minimum": 5}, nested.clone()], "allOf": [{"maximum": 5}]});
    }
    check(
        "alternatives within alternatives",
        100_000,
        Taken,
        valid(list(nested), of(json!([1]))),
    );
    let set = json!({"type": "object", "properties": {"list": {"type": "array", "x-kubernetes-list-type": "set",
        "items": {"type": "integer"}}}});
    let numbers = numbered(100_000, |at| json!(at));
    check("a set of many", 1_000_000, Taken, valid(set, of(numbers)));
    check("errors in one text", 1_000_000, Refused, || {
        let errors: Vec<_> = (0..20_000)
            .map(|at| FieldError::required(format!("a[{at}]"), ""))
            .collect();
        error::aggregate(&errors).is_empty()
    });
    check("errors that show a large value", 1_000_000, Cancelled, || {
        let value = times(1_000, &json!("x"));
        (0..10_000).all(|_| FieldError::invalid("a", value.clone(), "no").detail == "no")
    });
    check("a long text in quotes", 200_000, Taken, || {
        error::quote(&"\u{301}\u{200b}\0".repeat(100_000)).len() > 1_000_000
    });
    check("paths below a long name", 1_000_000, Cancelled, || {
        let at = FieldPath::new("x".repeat(1_000_000));
        (0..10_000).all(|index| !at.index(index).is_root())
    });
}

#[test]
fn regular_expressions() {
    let check = |name: &str, steps: u64, expected: Outcome, pattern: &str, text: &str| {
        let schema = crd(&json!({"type": "string", "pattern": pattern}));
        check(name, steps, expected, || {
            structural::validate(&json!(text), &schema, &FieldPath::root()).is_empty()
        });
    };
    let text = "ab".repeat(100_000);
    check("a plain one", 500_000, Taken, "^[a-z]+$", &text);
    check(
        "one that remembers much",
        2_000_000,
        Cancelled,
        "(a|b)*a(a|b){800}c",
        &text,
    );
    check(
        "repetitions of repetitions",
        2_000_000,
        Cancelled,
        "((a{100}){100}){100}",
        &text,
    );
    check("repetitions that are too many", 1_000_000, Refused, "a{1001}", &text);
    for part in ["{", "[[:", "[a]", "(", "\\pL", "\\p{", "[a-", "(?P<a>", "a{1", "|"] {
        let schema = crd(&json!({"type": "string", "pattern": part.repeat(5_000)}));
        let valid = || structural::validate(&json!("x"), &schema, &FieldPath::root()).is_empty();
        let limits = Limits::REQUEST;
        // Taken, refused or cancelled: the work is what it must be.
        let _ = budget::within(limits, valid);
    }
}

#[test]
fn defaults_and_zeros() {
    let limits = Limits {
        steps: 2_000_000,
        bytes: 4 * 1024 * 1024,
    };
    let check = |name: &str, expected: Outcome, schema: &Value, object: &Value| {
        let schema = crd(schema);
        let found = budget::within(limits, || structural::default(&mut object.clone(), &schema));
        assert_eq!(found.map_or(Cancelled, |()| Taken), expected, "{name}");
    };
    let mut nested = json!({"type": "string", "default": "x"});
    for _ in 0..3 {
        let items = json!({"type": "object", "properties": {"below": nested}});
        nested = json!({"type": "array", "default": times(60, &json!({})), "items": items});
    }
    let nested = json!({"type": "object", "properties": {"below": nested}});
    check("defaults that nest", Cancelled, &nested, &json!({}));
    let list = |items: Value| json!({"type": "object", "properties": {"list": {"type": "array", "items": items}}});
    let of = |count: usize| json!({"list": times(count, &json!({}))});
    let large = list(json!({"type": "object", "properties": {"a": {"type": "string", "default": "x".repeat(1000)}}}));
    check("a default in each of many items", Cancelled, &large, &of(10_000));
    check("a default in each of a few items", Taken, &large, &of(100));
    let wide: Value = (0..2_000)
        .map(|at| (format!("p{at}"), json!({"type": "string"})))
        .collect();
    let wide = list(json!({"type": "object", "properties": wide}));
    check("many items that might have many fields", Cancelled, &wide, &of(10_000));
    let pod = catalog::for_kind("", "v1", "Pod").expect("built in");
    let mut containers = json!({"spec": {"containers": times(20_000, &json!({}))}});
    let found = budget::within(limits, || structural::go_normalize_read(&mut containers, &pod));
    assert!(found.is_err(), "containers that are nothing until Go has read them");
}

#[test]
fn protobuf_bodies() {
    let body = |message: &[u8]| {
        let mut body = b"k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod".to_vec();
        kubewright_schema::protobuf::write::bytes(2, message, &mut body);
        body
    };
    let check = |name: &str, expected: Outcome, message: &[u8]| {
        let body = body(message);
        check(name, 2_000_000, expected, || {
            kubewright_schema::protobuf::decode(&body).is_ok()
        });
    };
    let in_spec = |fields: &[u8]| {
        let mut message = Vec::new();
        kubewright_schema::protobuf::write::bytes(2, fields, &mut message);
        message
    };
    check("a few containers", Taken, &in_spec(&b"\x12\x03\x0a\x01a".repeat(100)));
    check("many empty containers", Taken, &in_spec(&b"\x12\x00".repeat(100_000)));
    check(
        "containers of one short name",
        Cancelled,
        &in_spec(&b"\x12\x03\x0a\x01a".repeat(100_000)),
    );
    check(
        "more values than a body may hold",
        Cancelled,
        &in_spec(&b"\x12\x00".repeat(600_000)),
    );
    check("fields that are not known", Cancelled, &b"\xfa\x3f\x00".repeat(600_000));
    check("a length beyond the body", Refused, b"\x12\xff\xff\xff\xff\x0f");
    check(
        "a length of 64 bits",
        Refused,
        b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    );
    check("groups in groups", Refused, &b"\xfb\x3f".repeat(500_000));
    let mut deep = Vec::new();
    for _ in 0..200 {
        let mut around = Vec::new();
        kubewright_schema::protobuf::write::bytes(2, &deep, &mut around);
        deep = around;
    }
    check("messages in messages", Taken, &deep);
}

#[test]
fn changes_of_lists() {
    let schema = crd(&json!({"type": "object", "properties": {"list": {"type": "array",
        "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
        "items": {"type": "object", "properties": {"k": {"type": "integer"}, "v": {"type": "integer", "maximum": 1}}}}}}));
    let list = |keys: &mut dyn Iterator<Item = usize>, value: usize| json!({"list": keys.map(|at| json!({"k": at, "v": value})).collect::<Value>()});
    let old = list(&mut (0..20_000), 5);
    let check = |name: &str, new: &Value, errors: usize| {
        check(name, 5_000_000, Taken, || {
            structural::validate_update(new, &old, &schema, &FieldPath::root()).len() == errors
        });
    };
    check("items that moved", &list(&mut (0..20_000).rev(), 5), 0);
    check(
        "one more at the head",
        &list(&mut std::iter::once(20_000).chain(0..20_000), 5),
        1,
    );
}
