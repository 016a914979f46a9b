//! All input from outside is read without a panic, and its value keeps its meaning: one target for every reader.
//!
//! As a test each target runs shortly. Longer: `KUBEWRIGHT_FUZZ_SECONDS=600 cargo test --release -p
//! kubewright-schema --test it fuzz::NAME`. A finding of a run becomes a line of a table beside the reader.

mod check;
mod input;

use check::check;
use input::Input;
use kubewright_cel::eval::{Bindings, Patterns, evaluate};
use kubewright_cel::types::{Decl, Type};
use kubewright_cel::{self as cel, Environment};
use kubewright_schema::apply::FieldSet;
use kubewright_schema::fields::FieldSelector;
use kubewright_schema::jsonpath::JsonPath;
use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use kubewright_schema::quantity::Quantity;
use kubewright_schema::schema::SchemaRef;
use kubewright_schema::{catalog, decode, patch, protobuf, structural};
use serde_json::{Value, json};

#[test]
fn json_is_read_as_serde_reads_it() {
    check(|bytes| {
        let text = Input::new(bytes).text(input::JSON);
        for body in [bytes, text.as_bytes()] {
            if let (Ok(ours), Ok(other)) = (decode::json(body), serde_json::from_slice::<Value>(body)) {
                // Numbers have many spellings and keys may stand twice; the rest is the same.
                if ours.duplicates.is_empty() && !contains_number(&other) {
                    assert_eq!(ours.value, other);
                }
            }
        }
    });
}

fn contains_number(value: &Value) -> bool {
    match value {
        Value::Number(_) => true,
        Value::Array(list) => list.iter().any(contains_number),
        Value::Object(map) => map.values().any(contains_number),
        _ => false,
    }
}

#[test]
fn yaml_is_read() {
    check(|bytes| {
        let text = Input::new(bytes).text(input::YAML);
        for body in [bytes, text.as_bytes()] {
            if let Ok(read) = decode::yaml(body) {
                assert!(
                    read.value.to_string().len() < 64 * 1024 * 1024,
                    "a small document became a large value"
                );
            }
        }
    });
}

#[test]
fn protobuf_is_read() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let _ = protobuf::decode(bytes);
        let _ = protobuf::decode(&input.protobuf());
    });
}

#[test]
fn quantities_say_themselves() {
    check(|bytes| {
        let text = Input::new(bytes).text(input::QUANTITY);
        if let Ok(quantity) = text.parse::<Quantity>() {
            let printed = quantity.to_string();
            let again: Quantity = printed
                .parse()
                .unwrap_or_else(|why| panic!("{text:?} became {printed:?}: {why}"));
            assert_eq!(again, quantity, "{text:?} became {printed:?}");
        }
    });
}

#[test]
fn selectors_say_themselves() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let text = input.text(input::SELECTOR);
        let labels = json!({"a": "b", "x/y": "1"});
        if let Ok(selector) = Selector::parse(&text) {
            let again = Selector::parse(&selector.to_string()).expect("what a selector says is one");
            assert_eq!(again.matches(&labels), selector.matches(&labels), "{text:?}");
        }
        let _ = FieldSelector::parse(&text).map(|selector| selector.matches(|_| None));
        let _ = Selector::from_label_selector(&input.value(4), &FieldPath::root());
    });
}

#[test]
fn json_paths_are_walked() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let text = input.text(input::JSONPATH);
        if let Ok(path) = JsonPath::parse(&text) {
            let value = input.value(5);
            assert!(path.find(&value).len() < 1_000_000, "{text:?}");
            let _ = path.render(&value);
        }
    });
}

#[test]
fn json_patches_are_applied() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let (document, operations) = (input.value(4), input.operations());
        let _ = patch::json::apply(&document, &operations);
        let _ = patch::json::apply(&document, &input.value(4));
    });
}

#[test]
fn a_merge_patch_of_a_difference_makes_it() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let (from, to) = (input.object(4), input.object(4));
        let patch = patch::merge::diff(&from, &to);
        let _ = patch::merge::apply(&from, &input.value(4));
        // Null cannot be written with a merge patch.
        if !to.to_string().contains("null") && !from.to_string().contains("null") {
            assert_eq!(patch::merge::apply(&from, &patch), to, "{patch}");
        }
    });
}

#[test]
fn strategic_patches_are_applied() {
    let schema = catalog::for_kind("apps", "v1", "Deployment").expect("a built-in kind");
    check(|bytes| {
        let mut input = Input::new(bytes);
        let (document, patch) = (input.deployment(), input.deployment());
        if let Ok(mut patched) = patch::strategic::apply(&document, patch.clone(), &schema) {
            let _ = structural::convert_check(&patched, &schema);
            structural::go_normalize(&mut patched, &schema);
        }
    });
}

#[test]
fn field_sets_say_themselves() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let fields = input.fields(4);
        if let Ok(set) = FieldSet::decode(&fields) {
            let again = FieldSet::decode(&set.clone().encode()).expect("what a set says is one");
            assert_eq!(again, set);
            assert!(set.contains_all(&set));
        }
    });
}

#[test]
fn schemas_are_read_and_applied() {
    check(|bytes| {
        let mut input = Input::new(bytes);
        let schema = input.schema(4);
        let errors = structural::check_crd_schema(&schema, &FieldPath::root());
        let Ok(schema) = SchemaRef::from_crd(&schema) else {
            return;
        };
        let mut value = input.object(5);
        structural::prune(&mut value, &schema, structural::PruneOptions::BUILT_IN);
        structural::default(&mut value, &schema);
        let once = value.clone();
        structural::default(&mut value, &schema);
        if errors.is_empty() {
            assert_eq!(value, once, "a second run of the defaults changed something");
        }
        let _ = structural::validate(&value, &schema, &FieldPath::root());
    });
}

#[test]
fn expressions_are_checked_and_computed() {
    let environment = Environment::new()
        .variable("self", Decl::new(Type::Dyn))
        .variable("n", Decl::new(Type::Int))
        .variable("s", Decl::new(Type::String));
    check(|bytes| {
        let mut input = Input::new(bytes);
        let text = input.text(input::CEL);
        if let Ok(program) = cel::compile(&text, &environment) {
            let value = input.value(4);
            let variables = Bindings::new()
                .with("self", cel::value::Value::from_json(&value))
                .with("n", cel::value::Value::Int(3))
                .with("s", cel::value::Value::from_json(&value["name"]));
            let outcome = evaluate(&program, &variables, &Patterns::default(), 100_000);
            assert!(outcome.cost <= 200_000, "{text:?} cost {}", outcome.cost);
        }
        let _ = cel::compile(&String::from_utf8_lossy(bytes), &environment);
    });
}
