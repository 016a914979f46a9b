//! Where a claim gets its first content from: `dataSource`, which is older and local, and `dataSourceRef`, which may
//! say anything. Clients write either, and find both.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Map, Value};

use super::super::check::{At, Errors, Object, child, get};

/// Fills one of the two in from the other. A new `dataSource` that stands alone may be a claim or a snapshot,
/// everything else in it is dropped; a source of another namespace is behind a feature that is off.
pub(super) fn fill_in(claim: &mut Value, old: &Value) {
    let before = get(old, &["spec"]).clone();
    let Some(spec) = claim.as_object_mut().and_then(|claim| child(claim, "spec")) else {
        return;
    };
    let apart = spec.get("dataSourceRef").is_some_and(is_cross_namespace);
    if apart && get(&before, &["dataSourceRef"]).is_null() {
        spec.remove("dataSourceRef");
    }
    let known = child(spec, "dataSource").is_none_or(|source| {
        let text = |field: &str| source.get(field).and_then(Value::as_str).unwrap_or("");
        match text("apiGroup") {
            "" => text("kind") == "PersistentVolumeClaim",
            group => group == "snapshot.storage.k8s.io" && text("kind") == "VolumeSnapshot",
        }
    });
    if !known && !spec.contains_key("dataSourceRef") && get(&before, &["dataSource"]).is_null() {
        spec.remove("dataSource");
    }
    match (spec.get("dataSource").map(local), spec.get("dataSourceRef")) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if !is_cross_namespace(reference) => {
            let source = local(reference);
            spec.insert("dataSource".to_owned(), source);
        }
        _ => {}
    }
}

/// Whether a reference leads into a namespace that it names.
fn is_cross_namespace(reference: &Value) -> bool {
    !get(reference, &["namespace"]).as_str().unwrap_or("").is_empty()
}

/// The part that both fields have.
fn local(source: &Value) -> Value {
    let field = |name: &&str| Some(((*name).to_owned(), source.get(*name)?.clone()));
    let fields: Object = ["apiGroup", "kind", "name"]
        .iter()
        .filter_map(field)
        .collect::<Map<_, _>>();
    fields.into()
}

/// The rules of both, and that they say the same (`ValidatePersistentVolumeClaimSpec`).
pub(crate) fn validate(errors: &mut Errors, spec: &At<'_>) {
    let (source, reference) = (spec.key("dataSource"), spec.key("dataSourceRef"));
    for at in [&source, &reference] {
        if at.present() {
            one(errors, at);
        }
    }
    if !reference.present() || !source.present() {
        return;
    }
    let namespace = reference.key("namespace");
    let why = if !namespace.text().is_empty() {
        "may not be specified when dataSourceRef.namespace is specified"
    } else if local(source.value) != local(reference.value) {
        "must match dataSourceRef"
    } else {
        return;
    };
    // Upstream shows the path of the field, which prints as nothing.
    let shown = FieldError::invalid(spec.path.to_string(), Value::Null, format!("{{}}: {why}"));
    errors.push(FieldError {
        bad_value: None,
        ..shown
    });
}

/// `validateDataSource` and `validateDataSourceRef`.
fn one(errors: &mut Errors, at: &At<'_>) {
    for field in ["name", "kind"] {
        if at.key(field).text().is_empty() {
            errors.required(&at.key(field), "");
        }
    }
    let (group, kind) = (at.key("apiGroup"), at.key("kind"));
    if group.text().is_empty() {
        if kind.text() != "PersistentVolumeClaim" {
            let why = "must be 'PersistentVolumeClaim' when referencing the default apiGroup";
            errors.invalid_value(at, kind.text(), why);
        }
    } else {
        errors.messages(&group, names::dns1123_subdomain(group.text()));
    }
    let namespace = at.key("namespace");
    if !namespace.text().is_empty() {
        errors.messages(&namespace, names::dns1123_label(namespace.text()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The values that kube-apiserver 1.36 gives the two fields, and its errors.
    #[test]
    fn sources() {
        let check = |old: Value, spec: Value, expected: Value, wrong: &[&str]| {
            let shown = spec.to_string();
            let mut claim = json!({ "spec": spec });
            fill_in(&mut claim, &json!({ "spec": old }));
            assert_eq!(claim["spec"], expected, "{shown}");
            let mut errors = Errors::default();
            validate(&mut errors, &At::root(&claim).key("spec"));
            let texts: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
            assert_eq!(texts, wrong, "{shown}");
        };
        let snapshot = json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"});
        let thing = json!({"apiGroup": "x.io", "kind": "Thing", "name": "t"});
        let far = json!({"apiGroup": "x.io", "kind": "Thing", "name": "t", "namespace": "o"});
        let here = json!({"apiGroup": "x.io", "kind": "Thing", "name": "t", "namespace": ""});
        let both = |source: &Value, reference: &Value| json!({"dataSource": source, "dataSourceRef": reference});
        let none = json!({});
        let same = both(&snapshot, &snapshot);
        check(none.clone(), json!({ "dataSource": snapshot }), same.clone(), &[]);
        check(none.clone(), json!({ "dataSourceRef": snapshot }), same.clone(), &[]);
        check(none.clone(), json!({ "dataSource": thing }), none.clone(), &[]);
        check(
            none.clone(),
            json!({ "dataSourceRef": thing }),
            both(&thing, &thing),
            &[],
        );
        check(none.clone(), json!({ "dataSourceRef": here }), both(&thing, &here), &[]);
        check(none.clone(), json!({ "dataSourceRef": far }), none.clone(), &[]);
        let mismatch = "spec: Invalid value: {}: must match dataSourceRef";
        check(
            none.clone(),
            both(&snapshot, &thing),
            both(&snapshot, &thing),
            &[mismatch],
        );
        let claims = (
            json!({"kind": "PersistentVolumeClaim", "name": "p"}),
            json!({"apiGroup": "", "kind": "PersistentVolumeClaim", "name": "p"}),
        );
        let apart = both(&claims.0, &claims.1);
        check(none.clone(), apart.clone(), apart, &[mismatch]);
        // A source that was there before may stay, and may change into one that a new claim may not have.
        check(same.clone(), json!({ "dataSource": thing }), both(&thing, &thing), &[]);
        check(
            same,
            json!({ "dataSourceRef": far }),
            json!({ "dataSourceRef": far }),
            &[],
        );
        check(
            none,
            json!({"dataSourceRef": {"kind": "ConfigMap"}}),
            both(&json!({"kind": "ConfigMap"}), &json!({"kind": "ConfigMap"})),
            &[
                "spec.dataSource.name: Required value",
                "spec.dataSource: Invalid value: \"ConfigMap\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
                "spec.dataSourceRef.name: Required value",
                "spec.dataSourceRef: Invalid value: \"ConfigMap\": must be 'PersistentVolumeClaim' when referencing the default apiGroup",
            ],
        );
    }
}
