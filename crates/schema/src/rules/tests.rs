//! Definitions as kube-apiserver took or refused them.

use serde_json::{Value, json};

use crate::path::FieldPath;
use crate::structural::check_crd_schema;

const RECORDED: &str = include_str!("../../testdata/cel-definitions.json");
const ROOT: &str = "spec.validation.openAPIV3Schema";

/// The schema of a resource with the rule at its place.
fn schema(recorded: &Value, case: &Value) -> Value {
    let mut schema = json!({"type": "object", "properties": {"spec": recorded["schema"]}});
    let place = recorded["places"][case["place"].as_str().expect("a place")].as_str();
    let at = place.map_or(String::new(), |place| format!("/properties/spec{place}"));
    let rule = match &case["rule"] {
        Value::String(rule) => json!({ "rule": rule }),
        rule => rule.clone(),
    };
    let place = schema.pointer_mut(&at).expect("the place is in the schema");
    place["x-kubernetes-validations"] = json!([rule]);
    schema
}

fn check(recorded: &Value, case: &Value) -> Option<String> {
    let errors = check_crd_schema(&schema(recorded, case), &FieldPath::new(ROOT));
    let mut found: Vec<Value> = errors
        .iter()
        .map(|error| {
            let field = error.field.trim_start_matches(ROOT).trim_start_matches('.');
            json!([error.cause_reason(), field, error.body()])
        })
        .collect();
    let mut expected = case["causes"].as_array().cloned().unwrap_or_default();
    let order = |cause: &Value| cause.to_string();
    found.sort_by_key(order);
    expected.sort_by_key(order);
    (found != expected).then(|| {
        format!(
            "{}: {}\nexpected {expected:#?}\nfound {found:#?}",
            case["place"], case["rule"]
        )
    })
}

#[test]
fn definitions_are_refused_as_recorded() {
    let recorded: Value = serde_json::from_str(RECORDED).expect("the table is JSON");
    let cases = recorded["cases"].as_array().expect("cases");
    assert!(cases.len() > 300, "the table is there");
    let wrong: Vec<String> = cases.iter().filter_map(|case| check(&recorded, case)).collect();
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        cases.len(),
        wrong.join("\n\n")
    );
}
