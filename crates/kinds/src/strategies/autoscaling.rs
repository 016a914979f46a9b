//! HorizontalPodAutoscaler: stored as `autoscaling/v2`, also served as `autoscaling/v1` ([`v1`]), whose rules are the
//! same.
//!
//! Not here: scaling, which is a controller's.

mod v1;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};
use std::str::FromStr;

use super::check::{At, Errors, FieldRule, absent, check_kind_and_name, child, ensure, fill, keep, not_negative};
use super::pods::resources::{Of, resource_name};
use kubewright_model::{Conversion, Empties, PLAIN, StatusMetadata, Strategy};

const AUTOSCALER: Strategy = Strategy {
    status_metadata: StatusMetadata::WRITTEN,
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_status: |new, _| super::workloads::status_numbers(new, STATUS),
    ..PLAIN
};

/// The rules for the numbers of a status.
const STATUS: &[FieldRule] = &[
    not_negative(&["currentReplicas"], "ValidateHorizontalPodAutoscalerStatusUpdate"),
    not_negative(&["desiredReplicas"], "ValidateHorizontalPodAutoscalerStatusUpdate"),
];

/// How autoscalers of `autoscaling/v2` are written.
pub(crate) const V2: Strategy = Strategy {
    // An empty list of policies is not filled in.
    empties: Empties::Seen,
    default: default_v2,
    prepare_create: |object, _| {
        drop_status(object);
        default_v2(object);
    },
    validate_create: |new| autoscaler(new, &Value::Null),
    validate_update: autoscaler,
    ..AUTOSCALER
};

/// How autoscalers of `autoscaling/v1` are written: its rules are those of v2, and so are the paths in its errors.
pub(crate) const V1: Strategy = Strategy {
    default: v1::default,
    prepare_create: |object, _| {
        v1::keep_status(object, &Value::Null);
        v1::default(object);
    },
    prepare_update: |new, old, _| v1::keep_status(new, old),
    validate_create: |new| autoscaler(&v1::to_bare_v2(new.clone()), &Value::Null),
    validate_update: |new, old| autoscaler(&v1::to_bare_v2(new.clone()), &v1::to_bare_v2(old.clone())),
    ..AUTOSCALER
};

/// Between `autoscaling/v1` and the stored form.
pub(crate) const CONVERSION: Conversion = Conversion {
    to_stored: v1::to_v2,
    from_stored: v1::from_v2,
    unfilled: [v1::to_bare_v2, v1::from_whole_v2],
};

fn drop_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.remove("status");
    }
}

fn cpu(utilization: Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu",
        "target": {"type": "Utilization", "averageUtilization": utilization}}})
}

fn default_v2(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        fill(status, "desiredReplicas", 0);
        fill(status, "currentMetrics", Value::Null);
    }
    let Some(spec) = ensure(object, "spec") else { return };
    fill(spec, "minReplicas", 1);
    if absent(spec, "metrics") {
        spec.insert("metrics".to_owned(), json!([cpu(json!(80))]));
    }
    let Some(behavior) = child(spec, "behavior") else {
        return;
    };
    if let Some(up) = ensure(behavior, "scaleUp") {
        fill(up, "stabilizationWindowSeconds", 0);
        fill(up, "selectPolicy", "Max");
        let policies = json!([{"type": "Pods", "value": 4, "periodSeconds": 15},
            {"type": "Percent", "value": 100, "periodSeconds": 15}]);
        fill(up, "policies", policies);
    }
    if let Some(down) = ensure(behavior, "scaleDown") {
        fill(down, "selectPolicy", "Max");
        fill(
            down,
            "policies",
            json!([{"type": "Percent", "value": 100, "periodSeconds": 15}]),
        );
    }
}

/// The parts of a metric by its type.
const SOURCES: [(&str, &str); 5] = [
    ("Object", "object"),
    ("External", "external"),
    ("Pods", "pods"),
    ("Resource", "resource"),
    ("ContainerResource", "containerResource"),
];

/// `validateHorizontalPodAutoscalerSpec`.
fn autoscaler(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let (least, most) = (spec.key("minReplicas"), spec.key("maxReplicas"));
    let minimum = least.int().unwrap_or(1);
    if minimum < 1 {
        errors.invalid(&least, "must be greater than or equal to 1");
    }
    let maximum = most.int().unwrap_or(0);
    if maximum == 0 {
        errors.required(&most, "must be set and greater than 0");
    } else if maximum < 0 {
        errors.invalid(&most, "must be greater than or equal to 1");
    }
    if maximum < minimum {
        errors.invalid(&most, "must be greater than or equal to `minReplicas`");
    }
    let (target, was) = (
        spec.key("scaleTargetRef"),
        At::root(old).keys(&["spec", "scaleTargetRef"]),
    );
    check_kind_and_name(&mut errors, &target);
    let (version, kind) = (target.key("apiVersion"), target.key("kind"));
    let kept = was.present() && was.key("apiVersion").value == version.value && was.key("kind").value == kind.value;
    // Only the group tells the scaled kind, except for the one kind of the core group that can be scaled.
    let group = version.text().split_once('/').map_or("", |(group, _)| group);
    if !kept && group.is_empty() && kind.text() != "ReplicationController" {
        errors.invalid(&version, "apiVersion must specify API group");
    }
    if version.text().matches('/').count() > 1 {
        let why = format!("unexpected GroupVersion string: {}", version.text());
        errors.invalid(&version, why);
    }
    let metrics = spec.key("metrics");
    for metric in metrics.items() {
        self::metric(&mut errors, &metric);
    }
    let outside = |metric: At<'_>| metric.key("object").present() || metric.key("external").present();
    if minimum == 0 && !metrics.items().any(outside) {
        errors.forbidden(
            &metrics,
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    for direction in ["scaleUp", "scaleDown"] {
        rules(&mut errors, &spec.keys(&["behavior", direction]));
    }
    errors.into_vec()
}

/// `validateMetricSpec`.
fn metric(errors: &mut Errors, at: &At<'_>) {
    let kind = at.key("type");
    if kind.text().is_empty() {
        errors.required(&kind, "must specify a metric source type");
    }
    const KINDS: [&str; 5] = ["ContainerResource", "External", "Object", "Pods", "Resource"];
    if !KINDS.contains(&kind.text()) {
        errors.unsupported(&kind, &KINDS);
    }
    let present: Vec<At<'_>> = SOURCES
        .iter()
        .map(|(_, part)| at.key(part))
        .filter(At::present)
        .collect();
    let expected = SOURCES
        .iter()
        .find(|(name, _)| *name == kind.text())
        .map(|(_, part)| at.key(part));
    if let Some(first) = present.first() {
        source(errors, at, first);
    }
    if expected.is_none() {
        // Kubernetes notices an unknown type twice.
        errors.unsupported(&kind, &KINDS);
    }
    if let Some(expected) = &expected
        && !expected.present()
    {
        errors.required(expected, "must populate information for the given metric source");
    }
    if present.len() > 1 {
        for other in present {
            if expected.as_ref().is_none_or(|expected| expected.path != other.path) {
                errors.forbidden(&other, "must populate the given metric source only");
            }
        }
    }
}

/// `validateObjectSource`, `validateExternalSource`, `validateResourceSource` and `validateContainerResourceSource`.
fn source(errors: &mut Errors, metric: &At<'_>, at: &At<'_>) {
    let target = at.key("target");
    let (value, average) = (target.key("value"), target.key("averageValue"));
    if metric.key("object").present() {
        check_kind_and_name(errors, &at.key("describedObject"));
        let version = at.keys(&["describedObject", "apiVersion"]);
        if version.text().matches('/').count() > 1 {
            let why = format!("unexpected GroupVersion string: {}", version.text());
            errors.invalid(&version, why);
        }
        metric_name(errors, &at.keys(&["metric", "name"]));
        self::target(errors, &target);
        if !value.present() && !average.present() {
            errors.required(&average, "must set either a target value or averageValue");
        }
    } else if metric.key("external").present() {
        metric_name(errors, &at.keys(&["metric", "name"]));
        self::target(errors, &target);
        if !value.present() && !average.present() {
            errors.required(
                &average,
                "must set either a target value for metric or a per-pod target",
            );
        }
        if value.present() && average.present() {
            errors.forbidden(
                &value,
                "may not set both a target value for metric and a per-pod target",
            );
        }
    } else if metric.key("pods").present() {
        metric_name(errors, &at.keys(&["metric", "name"]));
        self::target(errors, &target);
        if !average.present() {
            errors.required(&average, "must specify a positive target averageValue");
        }
    } else {
        if at.key("name").text().is_empty() {
            errors.required(&at.key("name"), "must specify a resource name");
        }
        let container = at.key("container");
        if !metric.key("resource").present() {
            let name = at.key("name");
            if !name.text().is_empty() {
                resource_name(errors, name.text(), &name, Of::Container);
            }
            if container.text().is_empty() {
                errors.required(&container, "must specify a container");
            } else {
                errors.messages(&container, names::dns1123_label(container.text()));
            }
        }
        self::target(errors, &target);
        let utilization = target.key("averageUtilization");
        match (utilization.present(), average.present()) {
            (false, false) => errors.required(
                &utilization,
                "must set either a target raw value or a target utilization",
            ),
            (true, true) => errors.forbidden(&average, "may not set both a target raw value and a target utilization"),
            _ => {}
        }
    }
}

/// `validateMetricIdentifier`.
fn metric_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        errors.required(at, "must specify a metric name");
    } else {
        errors.messages(at, names::path_segment_name(at.text()));
    }
}

/// `validateMetricTarget`.
fn target(errors: &mut Errors, at: &At<'_>) {
    let kind = at.key("type");
    if kind.text().is_empty() {
        errors.required(&kind, "must specify a metric target type");
    }
    if !matches!(kind.text(), "Utilization" | "Value" | "AverageValue") {
        errors.invalid_value(&kind, kind.text(), "must be either Utilization, Value, or AverageValue");
    }
    for field in ["value", "averageValue"] {
        let amount = at.key(field);
        if Quantity::from_str(amount.text()).is_ok_and(|amount| amount.sign() <= 0) {
            errors.invalid(&amount, "must be positive");
        }
    }
    let utilization = at.key("averageUtilization");
    if utilization.int().is_some_and(|percent| percent < 1) {
        errors.invalid(&utilization, "must be greater than 0");
    }
}

/// `validateScalingRules`.
fn rules(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        return;
    }
    let window = at.key("stabilizationWindowSeconds");
    if window.int().is_some_and(|seconds| seconds < 0) {
        errors.invalid(&window, "must be greater than or equal to zero");
    }
    if window.int().is_some_and(|seconds| seconds > 3600) {
        errors.invalid(&window, "must be less than or equal to 3600");
    }
    errors.one_of_all(&at.key("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = at.key("policies");
    if policies.is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        if !["Percent", "Pods"].contains(&policy.key("type").text()) {
            errors.unsupported(&policy.key("type"), &["Percent", "Pods"]);
        }
        for field in ["value", "periodSeconds"] {
            let number = policy.key(field);
            if number.int().unwrap_or(0) <= 0 {
                errors.invalid_value(&number, number.int().unwrap_or(0), "must be greater than zero");
            }
        }
        let period = policy.key("periodSeconds");
        if period.int().is_some_and(|seconds| seconds > 1800) {
            errors.invalid(&period, "must be less than or equal to 1800");
        }
    }
    let tolerance = at.key("tolerance");
    if Quantity::from_str(tolerance.text()).is_ok_and(|amount| amount.sign() < 0) {
        errors.invalid(&tolerance, "must be greater than or equal to 0");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_lost_on_the_way_through_v1() {
        let object = json!({"kind": "HorizontalPodAutoscaler", "apiVersion": "autoscaling/v2",
            "metadata": {"name": "a", "annotations": {"mine": "x"}},
            "spec": {"minReplicas": 2, "maxReplicas": 3, "scaleTargetRef": {"kind": "D", "name": "d"},
                "metrics": [
                    {"type": "Pods", "pods": {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "D", "name": "d"}, "metric": {"name": "o"},
                        "target": {"type": "Value", "value": "2k"}}},
                    {"type": "External", "external": {"metric": {"name": "e", "selector": {"matchLabels": {"a": "b"}}},
                        "target": {"type": "AverageValue", "averageValue": "1"}}},
                    {"type": "ContainerResource", "containerResource": {"name": "memory", "container": "c",
                        "target": {"type": "Utilization", "averageUtilization": 5}}},
                    cpu(json!(60))],
                "behavior": {"scaleUp": {"stabilizationWindowSeconds": 0, "selectPolicy": "Max",
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]},
                    "scaleDown": {"selectPolicy": "Min", "tolerance": "100m", "policies": [{"type": "Pods", "value": 1, "periodSeconds": 5}]}}},
            "status": {"desiredReplicas": 1, "conditions": [{"type": "AbleToScale", "status": "True", "lastTransitionTime": null}],
                "currentMetrics": [{"type": "Resource"}]}});
        let shown = v1::from_v2(object.clone());
        assert_eq!(shown["spec"]["targetCPUUtilizationPercentage"], 60);
        assert!(shown["spec"].get("metrics").is_none() && shown["spec"].get("behavior").is_none());
        assert_eq!(v1::to_v2(shown), object);
    }
}
