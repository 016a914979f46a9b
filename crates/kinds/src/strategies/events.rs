//! Events: one store, two groups with other names for the same fields.
//!
//! Stored in the form of core/v1. The group `events.k8s.io` demands fields that the core group does not.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::check::{At, Errors, Object, ensure, fill, get};
use kubewright_model::{Conversion, MetadataChecks, NameRule, PLAIN, Strategy};

/// How Events of the core group are written.
pub(crate) const CORE: Strategy = Strategy {
    create_on_update: true,
    names: NameRule::Any,
    any_finalizer: true,
    has_dependents: false,
    is_never_cached: true,
    differs_by_group: true,
    metadata_checks: MetadataChecks::NONE,
    default: default_core,
    validate_create: core,
    validate_update: |new, _| core(new),
    ..PLAIN
};

/// How Events of `events.k8s.io` are written.
pub(crate) const EVENTS: Strategy = Strategy {
    create_on_update: true,
    has_dependents: false,
    is_never_cached: true,
    differs_by_group: true,
    default: default_events,
    validate_create: events,
    validate_update: update_events,
    ..PLAIN
};

/// Between `events.k8s.io` and the stored form.
pub(crate) const CONVERSION: Conversion = Conversion {
    to_stored,
    from_stored,
    unfilled: [to_stored, from_stored],
};

/// Names of the fields: stored, and in `events.k8s.io`.
const FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Fields that Go writes even when they are empty.
fn default_core(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    ensure(object, "involvedObject");
    ensure(object, "source");
    for time in ["eventTime", "firstTimestamp", "lastTimestamp"] {
        fill(object, time, Value::Null);
    }
    fill(object, "reportingComponent", "");
    fill(object, "reportingInstance", "");
    drop_empty(object, &["reason", "message", "type", "action"], &["count"]);
}

fn default_events(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    ensure(object, "regarding");
    ensure(object, "deprecatedSource");
    for time in ["eventTime", "deprecatedFirstTimestamp", "deprecatedLastTimestamp"] {
        fill(object, time, Value::Null);
    }
    drop_empty(
        object,
        &[
            "reason",
            "note",
            "type",
            "action",
            "reportingController",
            "reportingInstance",
        ],
        &["deprecatedCount"],
    );
}

fn drop_empty(object: &mut Object, texts: &[&str], numbers: &[&str]) {
    for field in texts {
        if object.get(*field).is_some_and(|value| value == "") {
            object.remove(*field);
        }
    }
    for field in numbers {
        if object.get(*field).is_some_and(|value| value == 0) {
            object.remove(*field);
        }
    }
}

fn to_stored(mut event: Value) -> Value {
    if let Some(object) = event.as_object_mut() {
        for (stored, shown) in FIELDS {
            if let Some(value) = object.remove(shown) {
                object.insert(stored.to_owned(), value);
            }
        }
        object.insert("apiVersion".to_owned(), "v1".into());
    }
    default_core(&mut event);
    event
}

fn from_stored(mut event: Value) -> Value {
    if let Some(object) = event.as_object_mut() {
        for (stored, shown) in FIELDS {
            if let Some(value) = object.remove(stored) {
                object.insert(shown.to_owned(), value);
            }
        }
        object.insert("apiVersion".to_owned(), "events.k8s.io/v1".into());
    }
    default_events(&mut event);
    event
}

/// The namespace of an event is that of its object; events about cluster-scoped objects are in `default`.
fn namespace(errors: &mut Errors, new: &Value, field: &str) {
    let own = get(new, &["metadata", "namespace"]).as_str().unwrap_or("");
    // Kubernetes names the core field in both groups.
    let at = At::root(new)
        .key(field)
        .key("namespace")
        .moved(At::root(new).key("involvedObject").key("namespace").path);
    // An event with an `eventTime` may be reported from any namespace, unless it is about a cluster-scoped object.
    let is_new = !get(new, &["eventTime"]).is_null();
    let fits = match at.text() {
        "" if is_new => matches!(own, "" | "default" | "kube-system"),
        "" => matches!(own, "" | "default"),
        _ if is_new => true,
        text => text == own,
    };
    if !fits {
        errors.invalid_value(&at, at.text(), "does not match event.namespace");
    }
}

/// The fields that an event with an `eventTime` (the new kind of event) must have, whichever group it came through.
fn complete(errors: &mut Errors, new: &Value, controller: &str, message: &str) {
    let at = At::root(new);
    let controller = at.key(controller);
    if controller.text().is_empty() {
        errors.required(&controller, "");
    }
    for text in names::qualified_name(controller.text()) {
        errors.invalid_value(&controller, controller.text(), text);
    }
    for field in ["reportingInstance", "action", "reason"] {
        let field = at.key(field);
        if field.text().is_empty() {
            errors.required(&field, "");
        } else if field.text().len() > 128 {
            errors.invalid_value(&field, "", "can have at most 128 characters");
        }
    }
    if at.key(message).text().len() > 1024 {
        errors.invalid_value(&at.key("message"), "", "can have at most 1024 characters");
    }
}

/// `legacyValidateEvent`.
fn core(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    namespace(&mut errors, new, "involvedObject");
    if !get(new, &["eventTime"]).is_null() {
        complete(&mut errors, new, "reportingComponent", "message");
    }
    errors.into_vec()
}

/// `ValidateEventCreate`.
fn events(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    namespace(&mut errors, new, "regarding");
    if !get(new, &["eventTime"]).is_null() {
        complete(&mut errors, new, "reportingController", "note");
    }
    new_style(&mut errors, new);
    errors.into_vec()
}

/// `ValidateEventCreate`.
fn new_style(errors: &mut Errors, new: &Value) {
    let at = At::root(new);
    if !at.key("eventTime").present() {
        errors.required(&at.key("eventTime"), "");
    }
    let kind = at.key("type");
    if !matches!(kind.text(), "Normal" | "Warning") {
        errors.invalid_value(&kind, "", format!("has invalid value: {}", kind.text()));
    }
    for (stored, shown) in &FIELDS[3..6] {
        if at.key(shown).present() {
            errors.invalid_value(&at.key(stored), "", "needs to be unset");
        }
    }
    if !at.key("deprecatedSource").is_empty() {
        errors.invalid_value(&at.key("source"), "", "needs to be unset");
    }
    series(errors, new);
}

/// `validateV1EventSeries`.
fn series(errors: &mut Errors, new: &Value) {
    let series = At::root(new).key("series");
    if series.present() {
        if series.key("count").int().unwrap_or(0) < 2 {
            errors.invalid_value(&series.key("count"), "", "should be at least 2");
        }
        if !series.key("lastObservedTime").present() {
            errors.required(&series.key("lastObservedTime"), "");
        }
    }
}

/// A new-style event is a fact: only its series changes. Events that came through the core group are not held to it.
/// `ValidateEventUpdate`.
fn update_events(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    namespace(&mut errors, new, "regarding");
    if !get(new, &["eventTime"]).is_null() {
        complete(&mut errors, new, "reportingController", "note");
    }
    series(&mut errors, new);
    for (stored, shown) in FIELDS {
        let after = At::root(new).key(shown);
        // The controller is the one whose new name is reported, and without a value it is an empty text.
        let path = if shown == "reportingController" { shown } else { stored };
        if after.value != At::root(old).key(shown).value {
            let value = if shown == "reportingController" {
                after.text().into()
            } else {
                after.value.clone()
            };
            errors.invalid_value(&after.moved(At::root(new).key(path).path), value, "field is immutable");
        }
    }
    // Upstream looks at the reason twice.
    for field in [
        "reason",
        "reason",
        "action",
        "related",
        "reportingInstance",
        "type",
        "eventTime",
    ] {
        let (after, before) = (At::root(new).key(field), At::root(old).key(field));
        if after.value != before.value {
            let text = ["reason", "action", "reportingInstance", "type"].contains(&field);
            let value = if text { after.text().into() } else { after.value.clone() };
            errors.invalid_value(&after, value, "field is immutable");
        }
    }
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_is_the_same_through_both_groups() {
        let mut stored = json!({
            "kind": "Event", "apiVersion": "v1", "metadata": {"name": "ev", "namespace": "n"},
            "involvedObject": {"kind": "Pod", "namespace": "n", "name": "p"}, "reason": "R", "message": "m", "type": "Normal"
        });
        default_core(&mut stored);
        let shown = from_stored(stored.clone());
        assert_eq!(
            shown,
            json!({
                "kind": "Event", "apiVersion": "events.k8s.io/v1", "metadata": {"name": "ev", "namespace": "n"}, "eventTime": null,
                "reason": "R", "regarding": {"kind": "Pod", "namespace": "n", "name": "p"}, "note": "m", "type": "Normal",
                "deprecatedSource": {}, "deprecatedFirstTimestamp": null, "deprecatedLastTimestamp": null
            })
        );
        assert_eq!(to_stored(shown), stored);
    }

    #[test]
    fn rules() {
        let check = |errors: Vec<FieldError>, wanted: &[&str]| {
            assert_eq!(errors.iter().map(ToString::to_string).collect::<Vec<_>>(), wanted);
        };
        check(
            core(&json!({"metadata": {"namespace": "n"}, "involvedObject": {"namespace": "default"}})),
            &["involvedObject.namespace: Invalid value: \"default\": does not match event.namespace"],
        );
        let good = json!({
            "metadata": {"namespace": "n"}, "regarding": {"namespace": "n"}, "eventTime": "2026-01-02T03:04:05.000006Z", "type": "Normal",
            "reportingController": "example.org/c", "reportingInstance": "c-1", "action": "Start", "reason": "Started"
        });
        check(events(&good), &[]);
        let mut changed = good.clone();
        changed["action"] = "Stop".into();
        check(
            update_events(&changed, &good),
            &["action: Invalid value: \"Stop\": field is immutable"],
        );
    }
}
