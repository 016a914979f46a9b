//! The answers of kube-apiserver to a create, replayed through the strategies: defaults, preparation, allocation and
//! errors of all kinds at once.

use std::sync::Arc;

use kubewright_schema::structural::go_normalize;
use serde_json::{Value, json};

use crate::rows::{lookup, rows};
use kubewright_model::facts::additions;
use kubewright_model::testing::{Scene, fits};
use kubewright_model::{AllocatedValues, Cell, Resource, StrategyContext, Unallocated};

/// The same text with the keys of the objects in it out of the way: Go prints structs in the order of their fields.
fn loose(text: &str) -> String {
    let Some((before, rest)) = text.split_once(": {\"") else {
        return text.to_owned();
    };
    let Some((object, after)) = rest.rsplit_once('}') else {
        return text.to_owned();
    };
    match serde_json::from_str::<Value>(&format!("{{\"{object}}}")) {
        Ok(value) => format!("{before}: {value}{after}"),
        Err(_) => text.to_owned(),
    }
}

/// Rules see lists that were sent empty, as the server shows them; Go's form of an object has null for these.
fn show_empty_lists(object: &mut Value, sent: &Value) {
    match sent {
        Value::Object(fields) => {
            for (key, sent) in fields {
                if let Some(field) = object.get_mut(key) {
                    show_empty_lists(field, sent);
                }
            }
        }
        Value::Array(items) if items.is_empty() && object.is_null() => *object = json!([]),
        Value::Array(items) => {
            for (index, sent) in items.iter().enumerate() {
                if let Some(item) = object.get_mut(index) {
                    show_empty_lists(item, sent);
                }
            }
        }
        _ => {}
    }
}

fn row_of(case: &Value) -> Arc<Resource> {
    let (group_version, plural) = case["resource"]
        .as_str()
        .and_then(|path| path.rsplit_once('/'))
        .expect("a path");
    let (group, version) = group_version.split_once('/').unwrap_or(("", group_version));
    lookup(group, version, plural).expect("a served kind")
}

fn check(case: &Value) -> Result<(), String> {
    let row = row_of(case);
    let scene = Scene::default();
    let context = StrategyContext {
        minor: Default::default(),
        dry_run: case["dryRun"] == true,
        unlabelled: case["body"]["metadata"]["labels"].is_null(),
        ..scene.context()
    };
    let mut object = case["body"].clone();
    go_normalize(&mut object, &row.schema);
    object["metadata"]["uid"] = "the-uid".into();
    if case["namespaced"] == true {
        object["metadata"]["namespace"] = "ns".into();
    }
    let strategy = &row.strategy;
    (strategy.default)(&mut object);
    additions::tolerate(&row, &mut object, None);
    additions::protect(&row, &mut object);
    (strategy.prepare_create)(&mut object, &context);
    let mut errors = match strategy
        .allocate
        .map(|allocation| (allocation.give)(&mut object, None, &AllocatedValues::default(), &context))
    {
        Some(Err(Unallocated::Invalid(errors))) => errors,
        Some(Err(why)) => panic!("{object}: {why:?}"),
        Some(Ok(())) | None => Vec::new(),
    };
    let mut seen = object.clone();
    show_empty_lists(&mut seen, &case["body"]);
    errors.extend(strategy.errors_of_new(&seen));
    (strategy.default)(&mut object);
    let mut texts: Vec<String> = errors
        .iter()
        .map(|error| {
            let body = kubewright_model::status::body(&row.group, &row.kind, error);
            loose(&format!("{}: {body}", error.field))
        })
        .collect();
    texts.sort();
    texts.dedup();
    let mut wanted: Vec<String> = case["errors"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .map(loose)
        .collect();
    wanted.sort();
    wanted.dedup();
    if texts != wanted {
        return Err(format!("errors\n   ours: {texts:#?}\n   recorded: {wanted:#?}"));
    }
    if case["result"].is_object() {
        // An object is defaulted once more when it is stored.
        (strategy.default)(&mut object);
        let labels = object["metadata"]["labels"].clone();
        for field in ["metadata", "kind", "apiVersion"] {
            object.as_object_mut().expect("an object").remove(field);
        }
        if case["result"].get("status").is_none() {
            object.as_object_mut().expect("an object").remove("status");
        }
        if !fits(&object, &case["result"]) {
            return Err(format!("result\n   ours: {object}\n   recorded: {}", case["result"]));
        }
        if !fits(&labels, &case["labels"]) {
            return Err(format!("labels\n   ours: {labels}\n   recorded: {}", case["labels"]));
        }
        // They were recorded in the order of their texts.
        let mut warnings = (strategy.warnings)(&object_of(case), None);
        warnings.sort();
        let warnings = json!(warnings);
        if case["warnings"].is_array() && warnings != case["warnings"] {
            return Err(format!(
                "warnings\n   ours: {warnings}\n   recorded: {}",
                case["warnings"]
            ));
        }
    }
    Ok(())
}

/// The object again, with its defaults, for the messages about it.
fn object_of(case: &Value) -> Value {
    let row = row_of(case);
    let mut object = case["body"].clone();
    (row.strategy.default)(&mut object);
    object
}

#[test]
fn creates_are_answered_as_kube_apiserver_answered_them() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../testdata/create.json")).expect("the committed extract");
    let failed: Vec<String> = cases
        .iter()
        .filter_map(|case| check(case).err().map(|why| format!("{}: {why}", case["name"])))
        .collect();
    assert!(
        failed.is_empty(),
        "{} of {}:\n{}",
        failed.len(),
        cases.len(),
        failed.join("\n")
    );
}

#[test]
fn defaults_are_idempotent_and_nothing_panics() {
    let cases: Vec<Value> =
        serde_json::from_str(include_str!("../../testdata/create.json")).expect("the committed extract");
    let scene = Scene::default();
    let context = scene.context();
    for row in &rows(Default::default()) {
        let strategy = &row.strategy;
        let odd = [
            json!(null),
            json!([]),
            json!("x"),
            json!({"spec": 1}),
            json!({"spec": {"template": []}, "status": "x", "metadata": 3}),
        ];
        for body in cases.iter().map(|case| &case["body"]).chain(&odd) {
            let mut once = body.clone();
            (strategy.default)(&mut once);
            let mut twice = once.clone();
            (strategy.default)(&mut twice);
            assert_eq!(once, twice, "{}", row.kind);
            (strategy.prepare_create)(&mut twice, &context);
            let _ = strategy.errors_of_new(&twice);
            let _ = strategy.errors_of_change(&twice, body);
            let _ = (strategy.validate_status)(&twice, body);
            let _ = (strategy.warnings)(&twice, Some(body));
            let _ = (strategy.grace_period)(&twice);
            (strategy.prepare_update)(&mut twice, body, &context);
            if let Some(allocation) = strategy.allocate {
                let mut taken = AllocatedValues::default();
                taken.add(&(allocation.values)(body));
                let _ = (allocation.give)(&mut twice, Some(body), &taken, &context);
            }
            let now = "2026-01-01T00:00:00Z".parse().expect("a time");
            for column in &row.columns {
                if let Cell::With(cell) = column.cell {
                    let _ = cell(&twice, now);
                }
            }
        }
    }
}
