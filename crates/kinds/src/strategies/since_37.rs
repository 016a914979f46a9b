//! What kinds of older versions of Kubernetes do otherwise from 1.37 on: each strategy is the older one with the
//! functions that differ. Rows name them in `changed`.
//!
//! Not here: the words of errors, which rules that are declared with their types say otherwise (`declared`).

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::check::{At, Errors, child, ensure, fill, keep};
use super::system::{empty_status, ensure_status};
use super::{admission_policies, autoscaling, storage, webhooks, workloads};
use crate::cells::is_default_class;
use kubewright_model::facts::REVIEWS;
use kubewright_model::{GenerationRule, MetadataChecks, Minor, StatusMetadata, Strategy};

/// How StatefulSets are written: how many pods may be unavailable at a time is taken, and 1 if nothing is said
/// (`SetDefaults_StatefulSet`).
pub(crate) const STATEFUL_SET: Strategy = Strategy {
    default: |object| {
        (workloads::STATEFUL_SET.default)(object);
        let strategy = object
            .pointer_mut("/spec/updateStrategy")
            .and_then(Value::as_object_mut);
        if let Some(strategy) =
            strategy.filter(|strategy| strategy.get("type").is_some_and(|kind| kind == "RollingUpdate"))
            && let Some(rolling) = child(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", 1);
        }
    },
    prepare_create: workloads::start_empty,
    prepare_update: workloads::keep_status,
    validate_create: |new| {
        let mut errors = (workloads::STATEFUL_SET.validate_create)(new);
        errors.extend(max_unavailable(new));
        errors
    },
    validate_update: |new, old| {
        let mut errors = (workloads::STATEFUL_SET.validate_update)(new, old);
        errors.extend(max_unavailable(new));
        errors
    },
    ..workloads::STATEFUL_SET
};

/// At least one pod may be unavailable, and no more than all (`validateRollingUpdateStatefulSet`).
fn max_unavailable(set: &Value) -> Vec<FieldError> {
    let strategy = At::root(set).keys(&["spec", "updateStrategy"]);
    let most = strategy.keys(&["rollingUpdate", "maxUnavailable"]);
    if !most.present() || strategy.text_of("type") != "RollingUpdate" {
        return Vec::new();
    }
    let percent = most.text().strip_suffix('%').and_then(|number| number.parse().ok());
    let mut errors = Errors::default();
    if most.int().or(percent).unwrap_or(0) == 0 {
        errors.invalid(&most, "cannot be 0");
    }
    if percent.is_some_and(|percent| percent > 100) {
        errors.invalid(&most, "must not be greater than 100%");
    }
    errors.into_vec()
}

/// No generation of an autoscaler that a condition tells of is below 0.
fn observed(scaler: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    for condition in At::root(scaler).keys(&["status", "conditions"]).items() {
        errors.non_negative(&condition.key("observedGeneration"));
    }
    errors.into_vec()
}

/// An autoscaler may go to no pod at all.
fn to_zero(mut errors: Vec<FieldError>) -> Vec<FieldError> {
    const AT_LEAST_ONE: &str = "must be greater than or equal to 1";
    let is_least = |error: &FieldError| error.field == "spec.minReplicas" && error.detail == AT_LEAST_ONE;
    errors.retain(|error| !is_least(error) || error.bad_value != Some(0.into()));
    for error in errors.iter_mut().filter(|error| is_least(error)) {
        "must be greater than or equal to 0".clone_into(&mut error.detail);
    }
    errors
}

/// How autoscalers of `autoscaling/v2` are written: their spec has a generation.
pub(crate) const AUTOSCALER_V2: Strategy = Strategy {
    generation: GenerationRule::Spec,
    validate_create: |new| to_zero((autoscaling::V2.validate_create)(new)),
    validate_update: |new, old| to_zero((autoscaling::V2.validate_update)(new, old)),
    validate_status: |new, old| {
        let mut errors = observed(new);
        errors.extend((autoscaling::V2.validate_status)(new, old));
        errors
    },
    ..autoscaling::V2
};

/// The same of `autoscaling/v1`.
pub(crate) const AUTOSCALER_V1: Strategy = Strategy {
    generation: GenerationRule::AllButMetadataAndStatus,
    validate_create: |new| to_zero((autoscaling::V1.validate_create)(new)),
    validate_update: |new, old| to_zero((autoscaling::V1.validate_update)(new, old)),
    ..autoscaling::V1
};

/// How CSIDrivers are written: whether pods wait for a driver that a node lacks is a field like others.
pub(crate) const CSI_DRIVER: Strategy = Strategy {
    prepare_create: |_, _| {},
    prepare_update: |new, old, _| storage::count_driver(new, old),
    default: |object| {
        (storage::DRIVER.default)(object);
        if let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) {
            fill(spec, "preventPodSchedulingIfMissing", false);
        }
    },
    ..storage::DRIVER
};

/// How StorageClasses are written: a list marks one of them as default.
pub(crate) const STORAGE_CLASS: Strategy = Strategy {
    default_since: Some(|class| {
        let made = class.pointer("/metadata/creationTimestamp")?.as_str()?;
        is_default_class(class).then_some(made)
    }),
    ..storage::CLASS
};

/// Warns of rules that name resources which no webhook is asked about (`warningsForExcludedRules`).
fn without_effect(configuration: &Value) -> Vec<String> {
    let mut warnings = webhooks::static_name(configuration);
    for webhook in At::root(configuration).key("webhooks").items() {
        for rule in webhook.key("rules").items() {
            let [groups, resources] = ["apiGroups", "resources"].map(|list| {
                let list = rule.key(list).value.as_array();
                list.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>()
            });
            if groups.contains(&"*") || resources.contains(&"*") {
                continue;
            }
            let mut told = BTreeSet::new();
            for group in groups {
                for resource in &resources {
                    if REVIEWS.contains(&(group, *resource)) && told.insert((group, *resource)) {
                        warnings.push(format!(
                            "{}: {resource}.{group} is excluded from admission webhooks; this rule will have no effect",
                            rule.path
                        ));
                    }
                }
            }
        }
    }
    warnings
}

/// How configurations of validating webhooks are written.
pub(crate) const VALIDATING_WEBHOOKS: Strategy = Strategy {
    validate_create: |new| webhooks::configuration(new, false, Minor::NEWEST),
    validate_update: |new, _| webhooks::configuration(new, false, Minor::NEWEST),
    warnings: |new, _| without_effect(new),
    ..webhooks::VALIDATING
};

/// The same of mutating ones.
pub(crate) const MUTATING_WEBHOOKS: Strategy = Strategy {
    validate_create: |new| webhooks::configuration(new, true, Minor::NEWEST),
    validate_update: |new, _| webhooks::configuration(new, true, Minor::NEWEST),
    warnings: |new, _| without_effect(new),
    ..webhooks::MUTATING
};

/// How ValidatingAdmissionPolicies are written: expressions may have names in backticks.
pub(crate) const VALIDATING_POLICY: Strategy = Strategy {
    validate_create: |new| admission_policies::validating_policy(new, None, Minor::NEWEST),
    validate_update: |new, old| admission_policies::validating_policy(new, Some(old), Minor::NEWEST),
    ..admission_policies::VALIDATING_POLICY
};

/// The same of mutating ones.
pub(crate) const MUTATING_POLICY: Strategy = Strategy {
    validate_create: |new| admission_policies::mutating_policy(new, None, Minor::NEWEST),
    validate_update: |new, old| admission_policies::mutating_policy(new, Some(old), Minor::NEWEST),
    ..admission_policies::MUTATING_POLICY
};

/// How CSINodes are written: they have a status.
pub(crate) const CSI_NODE: Strategy = Strategy {
    status_metadata: StatusMetadata::RESET,
    status_metadata_checks: MetadataChecks::UPDATE,
    default: ensure_status,
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, _| keep(new, old, "status"),
    // The health of storage is behind a feature that is off.
    prepare_status: |new, _, _| empty_status(new),
    ..storage::NODE
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As kube-apiserver 1.37.2 answers.
    #[test]
    fn bounds_and_defaults_are_those_of_the_version() {
        let check = |errors: Vec<FieldError>, expected: &[&str]| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected);
        };
        let scaler = |least: i64, metric: &str| {
            let part = json!({"describedObject": {"kind": "K", "name": "n"}, "metric": {"name": "m"},
                "target": {"type": "Value", "value": "1"}});
            let mut metrics = json!([{"type": metric}]);
            metrics[0][metric.to_lowercase()] = part;
            json!({"spec": {"minReplicas": least, "maxReplicas": 3, "metrics": metrics,
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}}})
        };
        check((AUTOSCALER_V2.validate_create)(&scaler(0, "Object")), &[]);
        check(
            (AUTOSCALER_V2.validate_create)(&scaler(-1, "Object")),
            &["spec.minReplicas: Invalid value: -1: must be greater than or equal to 0"],
        );
        let mut set = json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 2}}}});
        (STATEFUL_SET.default)(&mut set);
        let rolling = &set["spec"]["updateStrategy"]["rollingUpdate"];
        assert_eq!(*rolling, json!({"partition": 2, "maxUnavailable": 1}));
        let mut set = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        (STATEFUL_SET.default)(&mut set);
        assert_eq!(set["spec"]["updateStrategy"], json!({"type": "OnDelete"}));
    }
}
