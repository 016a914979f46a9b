//! DeviceTaintRules (from Kubernetes 1.37 on): taints that an administrator puts on devices.
//!
//! Not here: what a taint does to claims and pods.

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::super::check::{At, Errors, child, fill_text, get, keep};
use super::super::policy::conditions;
use super::super::system::{empty_status, ensure_status};
use super::slices::taint;
use super::{driver_name, label, pool_name};
use kubewright_model::{GenerationRule, PLAIN, StatusMetadata, Strategy};

/// How many conditions a status may have.
const MAX_CONDITIONS: usize = 8;

/// How DeviceTaintRules are written.
pub(crate) const TAINT_RULE: Strategy = Strategy {
    unconditional_update: false,
    generation: GenerationRule::Spec,
    status_metadata: StatusMetadata::RESET,
    default: ensure_status,
    default_time: Some(note_time),
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, context| {
        keep(new, old, "status");
        // The time is that of the effect, unless the client says another one.
        let of = |object: &Value, field: &str| get(object, &["spec", "taint", field]).clone();
        let changed = of(new, "effect") != of(old, "effect") && of(new, "timeAdded") == of(old, "timeAdded");
        if changed && let Some(taint) = new.pointer_mut("/spec/taint").and_then(Value::as_object_mut) {
            let now = kubewright_model::env::rfc3339(context.env.now());
            taint.insert("timeAdded".to_owned(), now.into());
        }
    },
    validate_create: rule,
    validate_update: |new, _| rule(new),
    validate_status: |new, _| {
        let mut errors = Errors::default();
        let list = At::root(new).keys(&["status", "conditions"]);
        conditions(&mut errors, &list);
        if list.len() > MAX_CONDITIONS {
            errors.push(FieldError::too_many(list.path.to_string(), list.len(), MAX_CONDITIONS));
        }
        errors.into_vec()
    },
    ..PLAIN
};

/// A taint says since when it is there (`SetDefaults_DeviceTaint`).
fn note_time(rule: &mut Value, now: &str) {
    let spec = rule.as_object_mut().and_then(|rule| child(rule, "spec"));
    if let Some(taint) = spec.and_then(|spec| child(spec, "taint")) {
        fill_text(taint, "timeAdded", now);
    }
}

/// `ValidateDeviceTaintRule`.
fn rule(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let selector = spec.key("deviceSelector");
    for (field, check) in [
        ("driver", driver_name as fn(&mut Errors, &At<'_>)),
        ("pool", pool_name),
        ("device", label),
    ] {
        if selector.key(field).present() {
            check(&mut errors, &selector.key(field));
        }
    }
    taint(&mut errors, &spec.key("taint"));
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rule_has_a_taint_and_may_select_devices() {
        let check = |spec: Value, expected: &[&str]| {
            let errors: Vec<String> = rule(&json!({ "spec": spec }))
                .iter()
                .map(|error| error.field.clone())
                .collect();
            assert_eq!(errors, expected);
        };
        let taint = json!({"key": "example.com/broken", "effect": "NoSchedule"});
        check(json!({"taint": taint}), &[]);
        check(
            json!({"taint": taint, "deviceSelector": {"driver": "d.io", "pool": "p", "device": "d"}}),
            &[],
        );
        check(
            json!({"taint": {"key": "a b", "effect": "Odd"}, "deviceSelector": {"device": "A B"}}),
            &["spec.deviceSelector.device", "spec.taint.key", "spec.taint.effect"],
        );
    }
}
