//! CustomResourceDefinitions: defaults and rules.
//!
//! Not here: the validation of a definition ([`kubewright_schema::definition`]), conditions and accepted names
//! (`registry::crd`).

use kubewright_schema::decode::settle_numbers;
use kubewright_schema::definition::{check_in, unknown_formats};
use kubewright_schema::error::FieldError;
use serde_json::{Value, json};

use super::check::{At, Errors, check_fields, child, ensure, fill, fill_text, fixed, get, keep, text};
use kubewright_model::{GenerationRule, Minor, PLAIN, StatusMetadata, Strategy, StrategyContext};

/// How CustomResourceDefinitions are written.
pub(crate) const DEFINITION: Strategy = Strategy {
    generation: GenerationRule::Spec,
    unconditional_update: false,
    status_metadata: StatusMetadata::WRITTEN,
    any_finalizer: true,
    rules_others: true,
    default,
    prepare_create,
    prepare_update,
    prepare_status: |new, _, _| {
        let stored = At::root(new).keys(&["status", "storedVersions"]).is_empty();
        if let Some(object) = new.as_object_mut().filter(|_| stored) {
            stored_version(object);
        }
    },
    validate_create: |new| definition(new, Minor::OLDEST),
    validate_update: |new, old| update(new, old, Minor::OLDEST),
    warnings: |new, old| {
        // What a definition had before was reported then.
        let before = old.map(unknown_formats).unwrap_or_default();
        unknown_formats(new)
            .difference(&before)
            .map(|format| format!("unrecognized format {format:?}"))
            .collect()
    },
    ..PLAIN
};

/// The same from Kubernetes 1.37 on, where rules about names cost less.
pub(crate) const DEFINITION_SINCE_37: Strategy = Strategy {
    validate_create: |new| definition(new, Minor::V37),
    validate_update: |new, old| update(new, old, Minor::V37),
    ..DEFINITION
};

fn default(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    // A client that empties the list changes nothing, and so its field manager owns nothing.
    if object
        .get("status")
        .is_none_or(|status| At::root(status).key("storedVersions").is_empty())
    {
        stored_version(object);
    }
    let Some(spec) = ensure(object, "spec") else { return };
    // Examples, defaults and enumerations are read and written again.
    spec.get_mut("versions").into_iter().for_each(settle_numbers);
    if spec.get("preserveUnknownFields") == Some(&Value::Bool(false)) {
        spec.remove("preserveUnknownFields");
    }
    if let Some(names) = ensure(spec, "names") {
        let kind = text(names, "kind").to_owned();
        if !kind.is_empty() {
            fill_text(names, "singular", &kind.to_lowercase());
            fill_text(names, "listKind", &format!("{kind}List"));
        }
    }
    // A conversion that is there must say how.
    fill(spec, "conversion", json!({"strategy": "None"}));
    let Some(conversion) = ensure(spec, "conversion") else {
        return;
    };
    if let Some(service) = child(conversion, "webhook")
        .and_then(|webhook| child(webhook, "clientConfig"))
        .and_then(|client| child(client, "service"))
    {
        fill(service, "port", 443);
    }
}

fn prepare_create(object: &mut Value, _: &StrategyContext<'_>) {
    let Some(object) = object.as_object_mut() else { return };
    object.insert(
        "status".to_owned(),
        json!({"conditions": null, "acceptedNames": {"plural": "", "kind": ""}, "storedVersions": null}),
    );
    stored_version(object);
}

fn prepare_update(new: &mut Value, old: &Value, _: &StrategyContext<'_>) {
    keep(new, old, "status");
    if let Some(object) = new.as_object_mut() {
        stored_version(object);
    }
}

/// The storage version is among `status.storedVersions` from the moment at which it is chosen.
fn stored_version(object: &mut super::check::Object) {
    let storage: Vec<Value> = object
        .get("spec")
        .map(|spec| get(spec, &["versions"]))
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .filter_map(|version| version.get("name").cloned())
        .collect();
    // None or several storage versions are refused by validation, which also names the empty list.
    let Some(storage) = storage.first() else { return };
    let Some(status) = ensure(object, "status") else { return };
    if status.get("storedVersions").is_none_or(Value::is_null) {
        status.insert("storedVersions".to_owned(), json!([]));
    }
    if let Some(stored) = status.get_mut("storedVersions").and_then(Value::as_array_mut)
        && !stored.contains(storage)
    {
        stored.push(storage.clone());
    }
}

/// `ValidateCustomResourceDefinition`.
fn definition(new: &Value, minor: Minor) -> Vec<FieldError> {
    check_in(minor, new, None)
}

/// `ValidateCustomResourceDefinitionUpdate`.
fn update(new: &Value, old: &Value, minor: Minor) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(check_in(minor, new, Some(old)));
    let (spec, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
    let rules = [
        fixed(&["group"], "validateCustomResourceDefinitionSpecUpdate"),
        fixed(&["names", "plural"], "validateCustomResourceDefinitionSpecUpdate"),
    ];
    check_fields(&mut errors, &rules, &spec, Some(&was));
    let established = get(old, &["status", "conditions"]).as_array().is_some_and(|all| {
        all.iter()
            .any(|condition| condition["type"] == "Established" && condition["status"] == "True")
    });
    if established {
        let rules = [
            fixed(&["scope"], "validateCustomResourceDefinitionSpecUpdate"),
            fixed(&["names", "kind"], "validateCustomResourceDefinitionSpecUpdate"),
        ];
        check_fields(&mut errors, &rules, &spec, Some(&was));
    }
    errors.into_vec()
}
