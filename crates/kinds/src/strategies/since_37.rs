//! What kinds of older versions of Kubernetes do otherwise from 1.37 on: each strategy is the older one with the
//! functions that differ. Rows name them in `changed`.
//!
//! Most differences are words: rules that are declared with their types since then take over, and say less.

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::check::{At, child, ensure, fill, keep};
use super::system::{empty_status, ensure_status};
use super::{admission_policies, autoscaling, flow, policy, rbac, storage, workloads};
use kubewright_model::{GenerationRule, MetadataChecks, StatusMetadata, Strategy};

/// The errors with other words where one has these.
fn reworded(mut errors: Vec<FieldError>, old: &str, new: &str) -> Vec<FieldError> {
    for error in errors.iter_mut().filter(|error| error.detail == old) {
        new.clone_into(&mut error.detail);
    }
    errors
}

const CANNOT_CHANGE: &str = "cannot change roleRef";
const IMMUTABLE: &str = "field is immutable";

/// How RoleBindings are written.
pub(crate) const ROLE_BINDING: Strategy = Strategy {
    validate_update: |new, old| reworded((rbac::ROLE_BINDING.validate_update)(new, old), CANNOT_CHANGE, IMMUTABLE),
    ..rbac::ROLE_BINDING
};

/// How ClusterRoleBindings are written.
pub(crate) const CLUSTER_ROLE_BINDING: Strategy = Strategy {
    validate_update: |new, old| {
        reworded(
            (rbac::CLUSTER_ROLE_BINDING.validate_update)(new, old),
            CANNOT_CHANGE,
            IMMUTABLE,
        )
    },
    ..rbac::CLUSTER_ROLE_BINDING
};

const WITHOUT_VERBS: &str = "verbs must contain at least one value";

/// How Roles are written.
pub(crate) const ROLE: Strategy = Strategy {
    validate_create: |new| reworded((rbac::ROLE.validate_create)(new), WITHOUT_VERBS, ""),
    validate_update: |new, old| reworded((rbac::ROLE.validate_update)(new, old), WITHOUT_VERBS, ""),
    ..rbac::ROLE
};

/// How ClusterRoles are written.
pub(crate) const CLUSTER_ROLE: Strategy = Strategy {
    validate_create: |new| reworded((rbac::CLUSTER_ROLE.validate_create)(new), WITHOUT_VERBS, ""),
    validate_update: |new, old| reworded((rbac::CLUSTER_ROLE.validate_update)(new, old), WITHOUT_VERBS, ""),
    ..rbac::CLUSTER_ROLE
};

const WITHOUT_ACTIONS: &str = "at least one validation action is required";

/// How ValidatingAdmissionPolicyBindings are written.
pub(crate) const VALIDATING_BINDING: Strategy = Strategy {
    validate_create: |new| {
        reworded(
            (admission_policies::VALIDATING_BINDING.validate_create)(new),
            WITHOUT_ACTIONS,
            "",
        )
    },
    validate_update: |new, old| {
        reworded(
            (admission_policies::VALIDATING_BINDING.validate_update)(new, old),
            WITHOUT_ACTIONS,
            "",
        )
    },
    ..admission_policies::VALIDATING_BINDING
};

/// How RuntimeClasses are written. The error about the handler does not show it.
pub(crate) const RUNTIME_CLASS: Strategy = Strategy {
    validate_update: |new, old| {
        let mut errors = (policy::RUNTIME_CLASS.validate_update)(new, old);
        if new.get("handler") != old.get("handler") {
            // The value is nothing at all, which the struct of the kind does not show.
            let detail = format!("null: {IMMUTABLE}");
            errors.push(FieldError {
                bad_value: None,
                ..FieldError::invalid("handler", Value::Null, detail)
            });
        }
        errors
    },
    fields: &[],
    ..policy::RUNTIME_CLASS
};

/// How PriorityLevelConfigurations are written.
pub(crate) const LEVEL: Strategy = Strategy {
    validate_create: level,
    validate_update: |new, _| level(new),
    ..flow::LEVEL
};

fn level(new: &Value) -> Vec<FieldError> {
    let errors = (flow::LEVEL.validate_create)(new);
    let errors = reworded(errors, "must not be empty if limited.limitResponse.type is Limited", "");
    let mut errors = reworded(errors, "must be nil if the type is not Limited", "");
    // What may not be there is looked at all the same.
    let limited = At::root(new).keys(&["spec", "limited"]);
    let kind = limited.keys(&["limitResponse", "type"]);
    if errors.iter().any(|error| error.field == "spec.limited") && limited.present() && kind.text().is_empty() {
        errors.push(FieldError::required(kind.path.to_string(), ""));
    }
    errors
}

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
    ..workloads::STATEFUL_SET
};

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
    fn words_and_defaults_are_those_of_the_version() {
        let check = |errors: Vec<FieldError>, expected: &[&str]| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(errors, expected);
        };
        let binding = |role: &str| json!({"roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}, "subjects": []});
        check(
            (ROLE_BINDING.validate_update)(&binding("b"), &binding("a")),
            &[
                "roleRef: Invalid value: {\"APIGroup\":\"rbac.authorization.k8s.io\",\"Kind\":\"Role\",\"Name\":\"b\"}: field is immutable",
            ],
        );
        let rules = json!({"rules": [{"apiGroups": [""], "resources": ["pods"]}]});
        check((ROLE.validate_create)(&rules), &["rules[0].verbs: Required value"]);
        let level =
            |limited: Value| json!({"metadata": {"name": "l"}, "spec": {"type": "Limited", "limited": limited}});
        check(
            (LEVEL.validate_create)(&level(json!({"limitResponse": {"type": "Queue"}}))),
            &["spec.limited.limitResponse.queuing: Required value"],
        );
        let class = |handler: &str| json!({"handler": handler});
        check(
            (RUNTIME_CLASS.validate_update)(&class("i"), &class("h")),
            &["handler: Invalid value: null: field is immutable"],
        );
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
