//! Workloads: Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet, ControllerRevision, PodTemplate.
//!
//! They share the pod template (see `pods`), the rule that a selector matches its template and never changes, and
//! numbers that are not negative. Each has its own defaults. Jobs have a file of their own.

mod daemon_sets;
mod defaults;
mod stateful_sets;
mod template;

use kubewright_schema::error::FieldError;
use serde_json::Value;

use super::check::{At, Errors, FieldRule, check_fields, fill, fixed, get, keep, not_negative};
use super::pods;
use super::system::empty_status;
use daemon_sets::{count_template, daemon_set, template_count};
pub(super) use defaults::default_spec;
use defaults::{
    default_daemon_set, default_deployment, default_replica_set, default_replication_controller, default_stateful_set,
    status_defaults,
};
use kubewright_model::{
    Empties, GenerationRule, MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext,
};
use stateful_sets::{stateful_set, update_stateful_set};
pub(super) use template::{Restart, pod_template};
use template::{lone_template, selector_and_template};

pub(super) const WORKLOAD: Strategy = Strategy {
    generation: GenerationRule::Spec,
    empties: Empties::Seen,
    status_metadata: StatusMetadata::WRITTEN,
    prepare_create: start_empty,
    prepare_update: keep_status,
    warnings,
    ..PLAIN
};

/// How Deployments are written.
pub(crate) const DEPLOYMENT: Strategy = Strategy {
    // Deployments are alone in keeping their labels.
    status_metadata: StatusMetadata::WrittenBut(&["labels"]),
    generation: GenerationRule::SpecOrAnnotations,
    default: default_deployment,
    validate_create: deployment,
    validate_update: |new, _| deployment(new),
    fields: &[fixed(&["spec", "selector"], "deploymentStrategy.ValidateUpdate")],
    validate_status: |new, _| {
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        status_parts(new, DEPLOYMENT_NUMBERS, &parts)
    },
    ..WORKLOAD
};

/// How ReplicaSets are written.
pub(crate) const REPLICA_SET: Strategy = Strategy {
    default: default_replica_set,
    validate_create: replica_set,
    validate_update: |new, _| replica_set(new),
    fields: &[fixed(&["spec", "selector"], "rsStrategy.ValidateUpdate")],
    validate_status: |new, _| {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        status_parts(new, REPLICA_SET_NUMBERS, &parts)
    },
    ..WORKLOAD
};

/// How ReplicationControllers are written.
pub(crate) const REPLICATION_CONTROLLER: Strategy = Strategy {
    orphan_by_default: true,
    names: NameRule::SubdomainInBytes,
    default: default_replication_controller,
    // Of a change nothing is said.
    warnings: |new, old| match old {
        Some(_) => Vec::new(),
        None => warnings(new, None),
    },
    validate_create: replication_controller,
    validate_update: |new, _| replication_controller(new),
    validate_status: |new, _| {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        status_parts(new, REPLICA_SET_NUMBERS, &parts)
    },
    ..WORKLOAD
};

/// How PodTemplates are written.
pub(crate) const POD_TEMPLATE: Strategy = Strategy {
    generation: GenerationRule::AllButMetadata,
    delete_returns_object: true,
    default: |object| {
        if let Some(object) = object.as_object_mut() {
            pods::defaults::template(object);
        }
    },
    prepare_create: |object, context| pods::drop_disabled_in_template(object, context),
    prepare_update: |new, _, context| pods::drop_disabled_in_template(new, context),
    validate_create: lone_template,
    validate_update: |new, _| lone_template(new),
    warnings: |new, old| {
        if pods::warnings::are_told(new, old) {
            pods::warnings::warnings(&At::root(new).key("template"))
        } else {
            Vec::new()
        }
    },
    ..PLAIN
};

/// How StatefulSets are written.
pub(crate) const STATEFUL_SET: Strategy = Strategy {
    names: NameRule::Label,
    default: default_stateful_set,
    prepare_create: |object, context| {
        start_empty(object, context);
        without_max_unavailable(object);
    },
    prepare_update: |new, old, context| {
        keep_status(new, old, context);
        without_max_unavailable(new);
    },
    validate_create: |new| stateful_set(new, true),
    validate_update: update_stateful_set,
    validate_status: |new, _| {
        let parts = [
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ];
        parts_of(new, STATEFUL_SET_NUMBERS, &parts, "status.readyReplicas")
    },
    warnings: |new, old| {
        let mut warnings = warnings(new, old);
        stateful_sets::warnings(new, old.is_none(), &mut warnings);
        warnings
    },
    ..WORKLOAD
};

/// How DaemonSets are written.
pub(crate) const DAEMON_SET: Strategy = Strategy {
    default: default_daemon_set,
    prepare_create: |object, context| {
        start_empty(object, context);
        count_template(object, 1);
    },
    prepare_update: |new, old, context| {
        keep_status(new, old, context);
        let changed = get(new, &["spec", "template"]) != get(old, &["spec", "template"]);
        count_template(new, template_count(old) + i64::from(changed));
    },
    prepare_status: |new, old, _| count_template(new, template_count(old)),
    validate_create: daemon_set,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        let selector = |object| At::root(object).keys(&["spec", "selector"]);
        errors.immutable(&selector(new), &selector(old));
        errors.extend(daemon_set(new));
        errors.into_vec()
    },
    validate_status: |new, _| status_numbers(new, DAEMON_SET_NUMBERS),
    // Its templates are counted, and only a new one is looked at.
    warnings: |new, old| match old {
        Some(old) if template_count(old) == template_count(new) => Vec::new(),
        _ => pods::warnings::warnings(&At::root(new).keys(&["spec", "template"])),
    },
    ..WORKLOAD
};

/// How ControllerRevisions are written: their data never changes.
pub(crate) const CONTROLLER_REVISION: Strategy = Strategy {
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: |object| {
        if let Some(object) = object.as_object_mut() {
            fill(object, "revision", 0);
        }
    },
    validate_create: revision,
    validate_update: |new, _| {
        let mut errors = Errors::default();
        check_fields(&mut errors, REVISION, &At::root(new), None);
        errors.into_vec()
    },
    fields: &[fixed(&["data"], "ValidateControllerRevisionUpdate")],
    ..PLAIN
};

const REVISION: &[FieldRule] = &[not_negative(&["revision"], "ValidateControllerRevision")];

const DEPLOYMENT_NUMBERS: &[FieldRule] = &[
    not_negative(&["terminatingReplicas"], "ValidateDeploymentStatus"),
    not_negative(&["observedGeneration"], "ValidateDeploymentStatus"),
    not_negative(&["replicas"], "ValidateDeploymentStatus"),
    not_negative(&["updatedReplicas"], "ValidateDeploymentStatus"),
    not_negative(&["readyReplicas"], "ValidateDeploymentStatus"),
    not_negative(&["availableReplicas"], "ValidateDeploymentStatus"),
    not_negative(&["unavailableReplicas"], "ValidateDeploymentStatus"),
    not_negative(&["collisionCount"], "ValidateDeploymentStatus"),
];
const REPLICA_SET_NUMBERS: &[FieldRule] = &[
    not_negative(&["terminatingReplicas"], "ValidateReplicaSetStatus"),
    not_negative(&["replicas"], "ValidateReplicaSetStatus"),
    not_negative(&["fullyLabeledReplicas"], "ValidateReplicaSetStatus"),
    not_negative(&["readyReplicas"], "ValidateReplicaSetStatus"),
    not_negative(&["availableReplicas"], "ValidateReplicaSetStatus"),
    not_negative(&["observedGeneration"], "ValidateReplicaSetStatus"),
];
const STATEFUL_SET_NUMBERS: &[FieldRule] = &[
    not_negative(&["replicas"], "ValidateStatefulSetStatus"),
    not_negative(&["readyReplicas"], "ValidateStatefulSetStatus"),
    not_negative(&["currentReplicas"], "ValidateStatefulSetStatus"),
    not_negative(&["updatedReplicas"], "ValidateStatefulSetStatus"),
    not_negative(&["availableReplicas"], "ValidateStatefulSetStatus"),
    not_negative(&["observedGeneration"], "ValidateStatefulSetStatus"),
    not_negative(&["collisionCount"], "ValidateStatefulSetStatus"),
];
const DAEMON_SET_NUMBERS: &[FieldRule] = &[
    not_negative(&["currentNumberScheduled"], "validateDaemonSetStatus"),
    not_negative(&["numberMisscheduled"], "validateDaemonSetStatus"),
    not_negative(&["desiredNumberScheduled"], "validateDaemonSetStatus"),
    not_negative(&["numberReady"], "validateDaemonSetStatus"),
    not_negative(&["observedGeneration"], "validateDaemonSetStatus"),
    not_negative(&["updatedNumberScheduled"], "validateDaemonSetStatus"),
    not_negative(&["numberAvailable"], "validateDaemonSetStatus"),
    not_negative(&["numberUnavailable"], "validateDaemonSetStatus"),
    not_negative(&["collisionCount"], "validateDaemonSetStatus"),
];

/// How many pods of a StatefulSet may be replaced at a time is behind a feature that is off: it is dropped.
fn without_max_unavailable(object: &mut Value) {
    let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate");
    if let Some(rolling) = rolling.and_then(Value::as_object_mut) {
        rolling.remove("maxUnavailable");
    }
}

pub(super) fn start_empty(object: &mut Value, context: &StrategyContext<'_>) {
    empty_status(object);
    status_defaults(object);
    pods::drop_disabled_in_template(object, context);
}

pub(super) fn keep_status(new: &mut Value, old: &Value, context: &StrategyContext<'_>) {
    keep(new, old, "status");
    pods::drop_disabled_in_template(new, context);
}

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let name = old.is_none().then(|| pods::warnings::names_of_pods(new)).flatten();
    let mut warnings: Vec<String> = name.into_iter().collect();
    if pods::warnings::are_told(new, old) {
        warnings.extend(pods::warnings::warnings(&At::root(new).keys(&["spec", "template"])));
    }
    warnings
}

/// The errors that the rules find in the status.
pub(super) fn status_numbers(new: &Value, numbers: &[FieldRule]) -> Vec<FieldError> {
    let mut errors = Errors::default();
    check_fields(&mut errors, numbers, &At::root(new).key("status"), None);
    errors.into_vec()
}

/// The same, and that no part is greater than the whole: `parts` of `status.replicas`.
fn status_parts(new: &Value, numbers: &[FieldRule], parts: &[&str]) -> Vec<FieldError> {
    parts_of(new, numbers, parts, "readyReplicas")
}

/// The same; `ready` is upstream's name of the number of ready ones.
fn parts_of(new: &Value, numbers: &[FieldRule], parts: &[&str], ready: &str) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(status_numbers(new, numbers));
    let status = At::root(new).key("status");
    let number = |name: &str| status.key(name).int().unwrap_or(0);
    for part in parts {
        if number(part) > number("replicas") {
            errors.invalid_value(
                &status.key(part),
                number(part),
                "cannot be greater than status.replicas",
            );
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let available = status.key("availableReplicas");
        errors.invalid_value(
            &available,
            number("availableReplicas"),
            format!("cannot be greater than {ready}"),
        );
    }
    errors.into_vec()
}

/// `ValidateDeploymentSpec`.
fn deployment(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    errors.non_negative(&spec.key("replicas"));
    selector_and_template(&mut errors, &spec, Restart::Always("deployment"));
    let strategy = spec.key("strategy");
    let rolling = strategy.key("rollingUpdate");
    match strategy.key("type").text() {
        "Recreate" => {
            if rolling.present() {
                errors.forbidden(&rolling, "may not be specified when strategy `type` is 'Recreate'");
            }
        }
        "RollingUpdate" => rolling_update(&mut errors, &rolling),
        _ => errors.push(FieldError::not_supported(
            strategy.path.to_string(),
            strategy.value.clone(),
            &["Recreate", "RollingUpdate"],
        )),
    }
    let rules = [
        not_negative(&["minReadySeconds"], "ValidateDeploymentSpec"),
        not_negative(&["revisionHistoryLimit"], "ValidateDeploymentSpec"),
        not_negative(&["progressDeadlineSeconds"], "ValidateDeploymentSpec"),
    ];
    check_fields(&mut errors, &rules, &spec, None);
    let deadline = spec.key("progressDeadlineSeconds");
    if deadline
        .int()
        .is_some_and(|deadline| deadline <= spec.key("minReadySeconds").int().unwrap_or(0))
    {
        errors.invalid(&deadline, "must be greater than minReadySeconds");
    }
    errors.into_vec()
}

/// `ValidateRollingUpdateDeployment`.
fn rolling_update(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        errors.required(at, "this should be defaulted and never be nil");
        return;
    }
    let unavailable = at.key("maxUnavailable");
    let surge = at.key("maxSurge");
    int_or_percent(errors, &unavailable);
    int_or_percent(errors, &surge);
    if percent_or_number(&unavailable) == Some(0) && percent_or_number(&surge) == Some(0) {
        errors.invalid(&unavailable, "may not be 0 when `maxSurge` is 0");
    }
    at_most_all(errors, &unavailable);
}

/// `IsNotMoreThan100Percent`.
pub(super) fn at_most_all(errors: &mut Errors, at: &At<'_>) {
    if at.value.as_str().and_then(percent).is_some_and(|number| number > 100) {
        errors.invalid(at, "must not be greater than 100%");
    }
}

/// `getPercentValue`. What no number holds is the largest one, as for Go.
fn percent(text: &str) -> Option<i64> {
    let digits = text.strip_suffix('%')?;
    let is_number = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
    is_number.then(|| digits.parse().unwrap_or(i64::MAX))
}

/// `ValidatePositiveIntOrPercent`.
pub(super) fn int_or_percent(errors: &mut Errors, at: &At<'_>) {
    match at.value {
        Value::String(text) if percent(text).is_none() => errors.invalid(
            at,
            "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for \
             validation is '[0-9]+%')",
        ),
        Value::Number(_) => errors.non_negative(at),
        _ => {}
    }
}

/// `getIntOrPercentValue`.
fn percent_or_number(at: &At<'_>) -> Option<i64> {
    match at.value {
        Value::String(text) => percent(text),
        value => Some(value.as_i64().unwrap_or(0)),
    }
}

/// `ValidateReplicaSetSpec`.
fn replica_set(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let rules = [
        not_negative(&["replicas"], "ValidateReplicaSetSpec"),
        not_negative(&["minReadySeconds"], "ValidateReplicaSetSpec"),
    ];
    check_fields(&mut errors, &rules, &spec, None);
    selector_and_template(&mut errors, &spec, Restart::Always("replicaset"));
    errors.into_vec()
}

/// `ValidateReplicationControllerSpec`.
fn replication_controller(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let rules = [
        not_negative(&["replicas"], "ValidateReplicationControllerSpec"),
        not_negative(&["minReadySeconds"], "ValidateReplicationControllerSpec"),
    ];
    check_fields(&mut errors, &rules, &spec, None);
    let (selector, template) = (spec.key("selector"), spec.key("template"));
    if selector.is_empty() {
        errors.required(&selector, "");
    }
    if !template.present() {
        errors.required(&template, "");
        return errors.into_vec();
    }
    let labels = template.keys(&["metadata", "labels"]);
    let selected = |(key, value): (&str, At<'_>)| labels.value.get(key) == Some(value.value);
    if !selector.is_empty() && !selector.entries().all(selected) {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    pod_template(&mut errors, &template, Restart::Always("replicationcontroller"));
    errors.into_vec()
}

/// `ValidateControllerRevisionCreate`.
fn revision(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    check_fields(&mut errors, REVISION, &at, None);
    let data = at.key("data");
    if !data.present() {
        errors.required(&data, "data is mandatory");
    } else if !data.value.is_object() {
        errors.required(&data, "data must be a valid JSON object");
    }
    errors.into_vec()
}
