//! Inputs that were made to cost much, and their cost: the steps and bytes that the budget of a request counts, never a
//! clock.
//!
//! A table for each part of the crate, all through one `check`. An input that upstream takes is taken cheaply; one that
//! it refuses is refused with its words; one that it would work on for long is cancelled.

use kubewright_cel::eval::{Bindings, PER_CALL_LIMIT, Patterns, evaluate};
use kubewright_cel::types::{Decl, Type};
use kubewright_cel::value::Value as CelValue;
use kubewright_cel::{Environment, compile};
use kubewright_schema::apply::{self, ManagedFields, Manager, ObjectType, Operation};
use kubewright_schema::budget::{self, Limits};
use kubewright_schema::error::{self, FieldError};
use kubewright_schema::fields::FieldSelector;
use kubewright_schema::jsonpath::JsonPath;
use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use kubewright_schema::quantity::{Format, Quantity};
use kubewright_schema::structural::{self, PruneOptions};
use kubewright_schema::{SchemaRef, catalog, patch};
use serde_json::{Value, json};

/// The outcome of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Taken,
    Refused,
    /// It costs more than a request may.
    Cancelled,
}
use Outcome::{Cancelled, Refused, Taken};

/// Does the work within so many steps and as many bytes as a request may make. The work answers whether the input was
/// taken.
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
        "map": {"type": "object", "additionalProperties":
            {"type": "object", "additionalProperties": {"type": "object"}}}}}));
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
        3_000_000,
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
        200_000,
        Taken,
        valid(unique.clone(), of(numbered(20_000, |at| json!(at)))),
    );
    check(
        "items of which one stands twice",
        200_000,
        Refused,
        valid(unique, of(numbered(20_000, |at| json!(at % 19_999)))),
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
    check("a set of many", 2_000_000, Taken, valid(set, of(numbers)));
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
        "((\\pL{10}){10}){10}$",
        &text,
    );
    for many in ["a{1001}", "((a{100}){100}){100}"] {
        check("repetitions that are too many", 1_000_000, Refused, many, &text);
    }
    for part in ["{", "[[:", "[a]", "(", "\\pL", "\\p{", "[a-", "(?P<a>", "a{1", "|"] {
        let schema = crd(&json!({"type": "string", "pattern": part.repeat(5_000)}));
        let valid = || structural::validate(&json!("x"), &schema, &FieldPath::root()).is_empty();
        let limits = Limits::REQUEST;
        // Taken, refused or cancelled: the work must be as expected.
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
        "items": {"type": "object", "properties":
            {"k": {"type": "integer"}, "v": {"type": "integer", "maximum": 1}}}}}}));
    let list = |keys: &mut dyn Iterator<Item = usize>, value: usize| {
        let items: Value = keys.map(|at| json!({"k": at, "v": value})).collect();
        json!({ "list": items })
    };
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

/// The owners of one field that lies deep.
#[test]
fn owners_of_what_lies_deep() {
    let of_path = |depth: usize| apply::FieldSet::of_path(vec!["a"; depth].into_iter());
    let mut fields = json!({});
    for _ in 0..400 {
        fields = json!({"f:a": fields});
    }
    assert_eq!(Ok(of_path(400)), apply::FieldSet::decode(&fields));
    check("a path of 400 steps", 500, Taken, || !of_path(400).is_empty());
}

/// Evaluates an expression about `object` within the limits of a request; an error is shown.
fn evaluated(source: &str, object: &Value) -> Result<String, String> {
    let environment = Environment::new().variable("object", Decl::new(Type::Dyn));
    let program = compile(source, &environment).map_err(|issues| issues.to_string())?;
    let variables = Bindings::new().with("object", CelValue::from_json(object));
    let outcome = evaluate(&program, &variables, &Patterns::default(), PER_CALL_LIMIT);
    outcome
        .result
        .map(|value| value.type_name().to_owned())
        .map_err(|error| error.to_string())
}

/// Reading values counts: with room for 100,000 steps, 100,000 values are too many.
#[test]
fn expressions_that_look_at_much() {
    let numbers = numbered(100_000, |index| json!(index));
    let object = json!({"list": times(100_000, &json!("ab")), "numbers": numbers, "query": "a=b&".repeat(20_000)});
    let steps = 100_000;
    for source in [
        "object.list.max() != ''",
        "object.list.min() != ''",
        "object.list.isSorted()",
        "object.numbers.sum() > 0",
        "url('/?' + object.query).getQuery().size() > 0",
    ] {
        check(source, steps, Cancelled, || evaluated(source, &object).is_ok());
    }
    check("a few", steps, Taken, || evaluated("[1, 2].max() > 0", &object).is_ok());
}

#[test]
fn expressions_that_make_much() {
    // An expression fails by its own cost. Memory and steps beyond it are the request's, which ends as a whole.
    const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";
    const MADE: &str = "it makes more out of what was sent than one request may";
    const WORKED: &str = "it takes more work than one request may cause";
    let object = json!({"a": "a".repeat(1000), "text": "ab".repeat(500_000), "list": times(100_000, &json!("ab"))});
    let check = |name: &str, source: &str, expected: Result<&str, &str>| {
        let found = budget::within(Limits::REQUEST, || evaluated(source, &object));
        let found = found.unwrap_or_else(|why| Err(why.to_string()));
        assert_eq!(found.as_deref().map_err(String::as_str), expected, "{name}");
    };
    let bound = |first: &str, step: &str, times: usize| {
        let mut source = "x".to_owned();
        for _ in 0..times {
            source = format!("optional.of({step}).optMap(x, {source}).value()");
        }
        format!("optional.of({first}).optMap(x, {source}).value()")
    };
    check("a text that is doubled", &bound("'ab'", "x + x", 30), Err(EXCEEDED));
    check("a list that is doubled", &bound("[1]", "x + x", 30), Err(MADE));
    check("bytes that are doubled", &bound("b'ab'", "x + x", 30), Err(EXCEEDED));
    check(
        "a text put into itself",
        &bound("object.a", "x.replace('a', x)", 3),
        Err(MADE),
    );
    check(
        "a list within itself, flattened",
        &bound("[1]", "[x, x].flatten()", 30),
        Err(MADE),
    );
    check(
        "a list within itself, as text",
        &format!("'%s'.format([{}])", bound("['ab']", "[dyn(x), dyn(x)]", 30)),
        Err(MADE),
    );
    check(
        "lists of one text, joined",
        "object.list.map(x, object.text).join('')",
        Err(EXCEEDED),
    );
    check("a long text split", "object.text.split('')", Err(MADE));
    check("a range of numbers", "lists.range(999999)", Err(MADE));
    check("digits without end", "'%.999999999f'.format([1.0])", Ok("string"));
    check(
        "the size of a long text, again and again",
        "object.list.all(x, object.text.size() > 0)",
        Err(WORKED),
    );
    check(
        "a long text compared, again and again",
        "object.list.all(x, object.text != 'ab')",
        Err(WORKED),
    );
    check(
        "loops in loops",
        "object.list.all(x, object.list.all(y, x == y))",
        Err(EXCEEDED),
    );
    check(
        "a short one",
        "object.list.filter(x, x.startsWith('b')).size() == 0",
        Ok("bool"),
    );
    let large = "x".repeat(99_990);
    check("a long literal", &format!("'{large}'.size()"), Ok("int"));
}

#[test]
fn expressions_that_are_much() {
    let environment = Environment::new().variable("self", Decl::new(Type::Dyn));
    let check = |name: &str, steps: u64, expected: Outcome, source: &str| {
        check(name, steps, expected, || compile(source, &environment).is_ok());
    };
    check("many lists added", 5_000_000, Refused, &["[]"; 20_000].join("+"));
    check(
        "many lists added in a list",
        5_000_000,
        Taken,
        &format!("[{}]", ["[]+[]"; 3_000].join(",")),
    );
    check(
        "many optional elements",
        5_000_000,
        Taken,
        &format!("[{}]", ["?self.?a"; 9_000].join(",")),
    );
    let mut twice = "x".to_owned();
    for _ in 0..40 {
        twice = format!("optional.of({{x: x}}).optMap(x, {twice}).value()");
    }
    check(
        "a type that holds another one twice",
        5_000_000,
        Cancelled,
        &format!("optional.of(1).optMap(x, {twice})"),
    );
    check("parentheses", 1_000_000, Refused, &"(".repeat(50_000));
    check("nothing but mistakes", 1_000_000, Refused, &"@".repeat(90_000));
    check("too long", 1_000_000, Refused, &"1".repeat(100_001));
    check("a long number", 1_000_000, Refused, &"1".repeat(99_999));
    check(
        "a long chain of fields",
        1_000_000,
        Refused,
        &format!("self{}", ".a".repeat(40_000)),
    );
    check("a long disjunction", 5_000_000, Taken, &["self.a"; 10_000].join("||"));
}

#[test]
fn definitions() {
    let property =
        |count: usize, schema: &Value| -> Value { (0..count).map(|at| (format!("p{at}"), schema.clone())).collect() };
    let check = |name: &str, steps: u64, expected: Outcome, schema: &Value| {
        check(name, steps, expected, || {
            structural::check_crd_schema(schema, &FieldPath::new("schema")).is_empty()
        });
    };
    let object = |properties: Value| json!({"type": "object", "properties": properties});
    check(
        "many properties",
        2_000_000,
        Taken,
        &object(property(10_000, &json!({"type": "string"}))),
    );
    check(
        "more properties than one may read",
        2_000_000,
        Cancelled,
        &object(property(50_000, &json!({"type": "string", "default": ""}))),
    );
    let rule = json!({"rule": "self.p0 == ''", "fieldPath": ".p0"});
    let ruled = |count: usize| {
        let mut schema = object(property(100, &json!({"type": "string"})));
        schema["x-kubernetes-validations"] = times(count, &rule);
        schema
    };
    check("many rules that name a field", 2_000_000, Taken, &ruled(200));
    check("more rules than one may compile", 2_000_000, Cancelled, &ruled(30_000));
    let mut nested = json!({"type": "string"});
    for _ in 0..200 {
        nested = object(json!({ "p0": nested, "p1": {"type": "string"} }));
        nested["default"] = json!({});
    }
    check("defaults at every level", 5_000_000, Taken, &nested);
    let pattern = |at: usize| {
        (
            format!("p{at}"),
            json!({"type": "string", "pattern": format!("^[a-z]{{1,900}}{at}$")}),
        )
    };
    let patterns: Value = (0..2_000).map(pattern).collect();
    check("many large patterns", 20_000_000, Cancelled, &object(patterns));
    let keys = numbered(10_000, |at| json!(format!("p{at}")));
    let items = json!({"type": "object", "required": keys, "properties": property(10_000, &json!({"type": "string"}))});
    let list =
        json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": items});
    check(
        "a list of many keys",
        20_000_000,
        Cancelled,
        &object(json!({ "list": list })),
    );
    let version = |at: usize| {
        json!({"name": format!("v{at}"), "served": true, "storage": at == 0,
        "schema": {"openAPIV3Schema": object(property(20, &json!({"type": "string"})))}})
    };
    let definition = |count: usize| {
        json!({"metadata": {"name": "as.b.c"}, "spec": {"group": "b.c", "scope": "Cluster",
        "names": {"plural": "as", "singular": "a", "kind": "A", "listKind": "AList"},
        "conversion": {"strategy": "None"},
        "versions": numbered(count, version)}, "status": {"storedVersions": ["v0"]}})
    };
    let many = definition(1_000);
    self::check("many versions that are alike", 1_000_000, Taken, || {
        kubewright_schema::definition::check(&many, None).is_empty()
    });
}

/// A write by `kubectl` on top of fields of other managers.
fn updated(kind: &ObjectType, live: &Value, new: &Value, owners: &Value) -> bool {
    let Ok(mut managed) = ManagedFields::decode(Some(owners)) else {
        return false;
    };
    let writer = Manager::new("kubectl", Operation::Update, "v1", "");
    apply::update(kind, live, new, &mut managed, &writer, "v1", "2026-01-01T00:00:00Z");
    managed.encode().is_some()
}

#[test]
fn owners_of_fields() {
    let items = json!({"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}});
    let kind = ObjectType::custom(crd(&json!({"type": "object", "properties": {
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "map": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": items},
        "fields": {"type": "object", "additionalProperties": {"type": "integer"}}}})));
    let check = |name: &str, steps: u64, expected: Outcome, live: &Value, new: &Value, owners: &Value| {
        check(name, steps, expected, || updated(&kind, live, new, owners));
    };
    let none = json!([]);
    let set = |items: &mut dyn Iterator<Item = usize>| {
        let items: Value = items.map(|at| json!(format!("{at:06}"))).collect();
        json!({ "set": items })
    };
    let map = |items: &mut dyn Iterator<Item = usize>, value: usize| {
        let items: Value = items.map(|at| json!({"k": format!("{at:06}"), "v": value})).collect();
        json!({ "map": items })
    };
    let down = set(&mut (0..20_000).rev());
    check("a set written backwards", 1_000_000, Taken, &Value::Null, &down, &none);
    let (even, odd) = (
        map(&mut (0..10_000).map(|at| 2 * at), 1),
        map(&mut (0..10_000).rev().map(|at| 2 * at + 1), 1),
    );
    let owner = |name: String, fields: Value| {
        json!({"manager": name, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields, "time": "2026-01-01T00:00:00Z"})
    };
    let one = json!([owner("a".to_owned(), json!({"f:map": {}}))]);
    check(
        "items of which each goes and each comes",
        2_000_000,
        Taken,
        &even,
        &odd,
        &one,
    );
    let fields = |from: usize, count: usize| -> Value {
        (from..from + count)
            .map(|at| (format!("f:x{at:06}"), json!({})))
            .collect()
    };
    let many = numbered(2_000, |at| {
        owner(format!("m{at:05}"), json!({"f:fields": fields(at * 10, 10)}))
    });
    let wide = |value: usize| {
        let fields: Value = (0..20_000).map(|at| (format!("x{at:06}"), json!(value))).collect();
        json!({ "fields": fields })
    };
    check(
        "many owners of a wide object",
        3_000_000,
        Taken,
        &wide(1),
        &wide(2),
        &many,
    );
    check(
        "many owners of what did not change",
        2_000_000,
        Taken,
        &wide(1),
        &set(&mut (0..1)),
        &many,
    );
    let malformed = |fields: Value| json!([owner("a".to_owned(), fields)]);
    for fields in [
        json!({"f": {}}),
        json!({"k:{": {}}),
        json!({format!("v:{}", "[".repeat(100_000)): {}}),
        json!({format!("k:{}", "{\"a\":".repeat(100_000)): {}}),
        json!("x".repeat(100_000)),
    ] {
        check(
            "fields that are none",
            100_000,
            Refused,
            &wide(1),
            &wide(1),
            &malformed(fields),
        );
    }
    let mut deep = json!({});
    for _ in 0..400 {
        deep = json!({ "f:a": deep });
    }
    check(
        "fields of deep objects",
        1_000_000,
        Taken,
        &set(&mut (0..1)),
        &set(&mut (1..2)),
        &malformed(deep),
    );
    let applied = |name: &str, expected: Outcome, live: &Value, config: &Value, owners: &Value| {
        self::check(name, 3_000_000, expected, || {
            let mut managed = ManagedFields::decode(Some(owners)).expect("well-formed");
            let manager = Manager::new("me", Operation::Apply, "v1", "");
            apply::apply(
                &kind,
                live,
                config,
                &mut managed,
                &manager,
                "v1",
                false,
                "2026-01-01T00:00:00Z",
            )
            .is_ok()
        });
    };
    applied("an apply against many owners", Refused, &wide(1), &wide(2), &many);
    applied("an apply of a long list", Taken, &even, &odd, &one);
    applied(
        "a list of the same",
        Refused,
        &json!({}),
        &json!({"set": times(20_000, &json!("a"))}),
        &none,
    );
}

#[test]
fn strategic_and_merge_patches() {
    let pod = catalog::for_kind("", "v1", "Pod").expect("built in");
    let check = |name: &str, steps: u64, expected: Outcome, document: &Value, patch: &Value| {
        check(name, steps, expected, || {
            patch::strategic::apply(document, patch.clone(), &pod).is_ok()
        });
    };
    let containers = |keys: &mut dyn Iterator<Item = usize>| {
        let items: Value = keys.map(|at| json!({"name": format!("c{at}"), "image": "i"})).collect();
        json!({"spec": {"containers": items}})
    };
    let (up, down) = (containers(&mut (0..10_000)), containers(&mut (0..10_000).rev()));
    check("lists merged by key", 1_000_000, Taken, &up, &down);
    let mut ordered = down.clone();
    ordered["spec"]["$setElementOrder/containers"] = down["spec"]["containers"].clone();
    check("lists merged in an order", 1_000_000, Taken, &up, &ordered);
    let finalizers = |count: usize| json!({"metadata": {"finalizers": numbered(count, |at| json!(format!("f{at}")))}});
    let gone =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": numbered(20_000, |at| json!(format!("f{at}")))}});
    check(
        "scalars taken out of a list",
        1_000_000,
        Taken,
        &finalizers(20_000),
        &gone,
    );
    let (mut document, mut patch) = (json!({}), json!({}));
    for _ in 0..400 {
        document = json!({"below": document, "beside": numbered(100, |at| json!(at))});
        patch = json!({ "below": patch });
    }
    check("a deep document", 1_000_000, Taken, &document, &patch);
    self::check("a deep merge patch", 1_000_000, Taken, || {
        patch::merge::apply(&document, &patch).is_object()
    });
}

#[test]
fn selectors_and_paths() {
    let selector = |text: String| move || Selector::parse(&text).is_ok_and(|found| !found.matches(&json!({"a": "b"})));
    let many = |count: usize, part: &dyn Fn(usize) -> String| (0..count).map(part).collect::<Vec<_>>().join(",");
    check(
        "many requirements",
        1_000_000,
        Taken,
        selector(many(10_000, &|at| format!("k{at}=v"))),
    );
    check(
        "many values",
        2_000_000,
        Taken,
        selector(format!("a in ({})", many(20_000, &|at| format!("v{at}")))),
    );
    check(
        "values that are none",
        2_000_000,
        Refused,
        selector(format!("a in ({})", many(20_000, &|at| format!("_{at}_")))),
    );
    check("a long key", 10_000_000, Refused, selector("k".repeat(1_000_000)));
    check("commas", 2_000_000, Refused, selector(",".repeat(100_000)));
    check("escapes", 2_000_000, Refused, || {
        FieldSelector::parse(&"\\".repeat(100_001)).is_ok()
    });
    let mut deep = json!({"a": 1});
    for _ in 0..400 {
        deep = json!({"a": deep, "b": [1, 2, 3]});
    }
    let object = json!({"items": times(2_000, &json!({"a": [1, 2, 3]})), "deep": deep});
    let path = |name: &str, steps: u64, expected: Outcome, text: &str| {
        check(name, steps, expected, || {
            JsonPath::parse(text).is_ok_and(|path| {
                path.find(&object);
                path.render(&object);
                true
            })
        });
    };
    path("two descents", 2_000_000, Taken, "..a..b");
    path("three descents", 2_000_000, Refused, "..a..b..c");
    path(
        "descents in filters of descents",
        2_000_000,
        Taken,
        "..[?(@..[?(@..a==1)])]",
    );
    path(
        "unions",
        2_000_000,
        Cancelled,
        &format!(".deep{}", "['a','a']".repeat(40)),
    );
    path(
        "unions of the object itself",
        2_000_000,
        Cancelled,
        &format!("$..{}", "['a','a']".repeat(40)),
    );
    path(
        "ranges in ranges",
        2_000_000,
        Cancelled,
        "{range ..a}{range $..a}{range ..b}{..a}{end}{end}{end}",
    );
    path("a path of many fields", 2_000_000, Taken, &".a".repeat(50_000));
    path("brackets that do not close", 2_000_000, Refused, &"[".repeat(100_000));
}

#[test]
fn numbers_and_differences() {
    for text in [
        "1e999999999",
        "1e-999999999",
        "1E2147483647",
        "1e-2147483648",
        &"9".repeat(1_000_000),
        &format!("0.{}1", "0".repeat(1_000_000)),
        &format!("{}Ei", "9".repeat(1_000_000)),
        &format!("1e{}", "9".repeat(1_000_000)),
    ] {
        check("a quantity", 10_000, Taken, || {
            let Ok(quantity) = text.parse::<Quantity>() else {
                return true;
            };
            let twice = quantity.clone() + quantity.clone();
            twice.to_string().len() < 64 && (twice - quantity).to_string().len() < 64
        });
    }
    assert_eq!(
        Quantity::new(-1, i32::MIN, Format::DecimalSi),
        Quantity::new(-1, -9, Format::DecimalSi)
    );
    let spec =
        |from: usize| json!({"containers": numbered(5_000, |at| json!({"name": format!("c{}", (at * from) % 5_003)}))});
    check("a difference of long lists", 2_000_000, Cancelled, || {
        !kubewright_schema::internal::difference(Default::default(), "", "Pod", "spec", &spec(1), &spec(7)).is_empty()
    });
    check("many structs that are nothing", 2_000_000, Cancelled, || {
        let containers = times(50_000, &json!({}));
        kubewright_schema::internal::show(Default::default(), "", "Pod", "spec.containers", &containers).is_some()
    });
}
