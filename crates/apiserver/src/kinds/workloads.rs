//! Workloads: Deployment, ReplicaSet, ReplicationController, StatefulSet, DaemonSet, ControllerRevision, PodTemplate.
//!
//! They share the pod template (see `pods`), the rule that a selector matches its template and never changes, and numbers that are not
//! negative. Each has its own defaults. Jobs have a file of their own.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::labels::Selector;
use kubewright_schema::measure;
use serde_json::{Value, json};

use super::check::{At, Errors, Object, child, each, ensure, fill, fill_text, get, keep, text};
use super::pods;
use super::pods::scheduling::label_selector;
use super::system::empty_status;
use crate::model::{GenerationRule, Looks, NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext};

pub(super) const WORKLOAD: Strategy = Strategy {
    generation: GenerationRule::Spec,
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
    validate_update: |new, old| update(new, old, deployment, &["selector"]),
    validate_status: |new, _| {
        let parts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
        status_parts(new, &DEPLOYMENT_NUMBERS, &parts)
    },
    ..WORKLOAD
};

/// How ReplicaSets are written.
pub(crate) const REPLICA_SET: Strategy = Strategy {
    default: default_replica_set,
    validate_create: replica_set,
    validate_update: |new, old| update(new, old, replica_set, &["selector"]),
    validate_status: |new, _| {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        status_parts(new, &REPLICA_SET_NUMBERS, &parts)
    },
    ..WORKLOAD
};

/// How ReplicationControllers are written.
pub(crate) const REPLICATION_CONTROLLER: Strategy = Strategy {
    orphan_by_default: true,
    names: NameRule::SubdomainInBytes,
    default: default_replication_controller,
    validate_create: replication_controller,
    validate_update: |new, _| replication_controller(new),
    validate_status: |new, _| {
        let parts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
        status_parts(new, &REPLICA_SET_NUMBERS, &parts)
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
        parts_of(new, &STATEFUL_SET_NUMBERS, &parts, "status.readyReplicas")
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
    validate_status: |new, _| status_numbers(new, &DAEMON_SET_NUMBERS),
    // Its templates are counted, and only a new one is looked at.
    warnings: |new, old| match old {
        Some(old) if template_count(old) == template_count(new) => Vec::new(),
        _ => pods::warnings::warnings(&At::root(new).keys(&["spec", "template"])),
    },
    ..WORKLOAD
};

/// How ControllerRevisions are written: their data never changes.
pub(crate) const CONTROLLER_REVISION: Strategy = Strategy {
    looks: Looks::CHANGED_AND_WHOLE,
    default: |object| {
        if let Some(object) = object.as_object_mut() {
            fill(object, "revision", 0);
        }
    },
    validate_create: revision,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.non_negative(&At::root(new).key("revision"));
        errors.immutable(&At::root(new).key("data"), &At::root(old).key("data"));
        errors.into_vec()
    },
    ..PLAIN
};

const DEPLOYMENT_NUMBERS: [&str; 8] = [
    "terminatingReplicas",
    "observedGeneration",
    "replicas",
    "updatedReplicas",
    "readyReplicas",
    "availableReplicas",
    "unavailableReplicas",
    "collisionCount",
];
const REPLICA_SET_NUMBERS: [&str; 6] = [
    "terminatingReplicas",
    "replicas",
    "fullyLabeledReplicas",
    "readyReplicas",
    "availableReplicas",
    "observedGeneration",
];
const STATEFUL_SET_NUMBERS: [&str; 7] = [
    "replicas",
    "readyReplicas",
    "currentReplicas",
    "updatedReplicas",
    "availableReplicas",
    "observedGeneration",
    "collisionCount",
];
const DAEMON_SET_NUMBERS: [&str; 9] = [
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "observedGeneration",
    "updatedNumberScheduled",
    "numberAvailable",
    "numberUnavailable",
    "collisionCount",
];

/// How many pods of a StatefulSet may be replaced at a time is behind a feature that is off: it is dropped.
fn without_max_unavailable(object: &mut Value) {
    let rolling = object.pointer_mut("/spec/updateStrategy/rollingUpdate");
    if let Some(rolling) = rolling.and_then(Value::as_object_mut) {
        rolling.remove("maxUnavailable");
    }
}

fn start_empty(object: &mut Value, _: &StrategyContext<'_>) {
    empty_status(object);
    status_defaults(object);
}

fn keep_status(new: &mut Value, old: &Value, _: &StrategyContext<'_>) {
    keep(new, old, "status");
}

/// The numbers that Go writes in a status even when they are 0.
fn status_defaults(object: &mut Value) {
    let numbers: &[&str] = match object.get("kind").and_then(Value::as_str) {
        Some("ReplicaSet" | "ReplicationController") => &["replicas"],
        Some("StatefulSet") => &["replicas", "availableReplicas"],
        Some("DaemonSet") => &[
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
        ],
        _ => &[],
    };
    let Some(status) = object.as_object_mut().and_then(|object| ensure(object, "status")) else {
        return;
    };
    for number in numbers {
        fill(status, number, 0);
    }
}

/// What is common to the defaults of all: status, spec and template.
pub(super) fn default_spec(object: &mut Value) -> Option<&mut Object> {
    status_defaults(object);
    let spec = ensure(object.as_object_mut()?, "spec")?;
    pods::defaults::template(spec);
    Some(spec)
}

fn default_deployment(object: &mut Value) {
    let Some(spec) = default_spec(object) else { return };
    fill(spec, "replicas", 1);
    fill(spec, "selector", Value::Null);
    if let Some(strategy) = ensure(spec, "strategy") {
        fill_text(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = ensure(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", "25%");
            fill(rolling, "maxSurge", "25%");
        }
    }
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
}

fn default_replica_set(object: &mut Value) {
    let Some(spec) = default_spec(object) else { return };
    fill(spec, "replicas", 1);
    fill(spec, "selector", Value::Null);
}

/// A controller without a selector or labels takes the labels of its template.
fn default_replication_controller(object: &mut Value) {
    status_defaults(object);
    let labels = get(object, &["spec", "template", "metadata", "labels"]).clone();
    let Some(map) = object.as_object_mut() else { return };
    let Some(spec) = ensure(map, "spec") else { return };
    fill(spec, "replicas", 1);
    // Unlike newer kinds it keeps an absent template absent, so that validation can miss it.
    if spec.contains_key("template") {
        pods::defaults::template(spec);
    }
    if labels.as_object().is_none_or(Object::is_empty) {
        return;
    }
    if child(spec, "selector").is_none_or(|selector| selector.is_empty()) {
        spec.insert("selector".to_owned(), labels.clone());
    }
    if let Some(metadata) = ensure(map, "metadata")
        && child(metadata, "labels").is_none_or(|known| known.is_empty())
    {
        metadata.insert("labels".to_owned(), labels);
    }
}

/// How often the template of a DaemonSet changed stands in this annotation, for clients from before there were ControllerRevisions.
const TEMPLATE_COUNT: &str = "deprecated.daemonset.template.generation";

fn template_count(object: &Value) -> i64 {
    let count = get(object, &["metadata", "annotations", TEMPLATE_COUNT]);
    count.as_str().and_then(|count| count.parse().ok()).unwrap_or(0)
}

fn count_template(object: &mut Value, count: i64) {
    if let Some(annotations) = ensure(crate::model::object::metadata_mut(object), "annotations") {
        annotations.insert(TEMPLATE_COUNT.to_owned(), count.to_string().into());
    }
}

/// Takes the count out of the metadata of a DaemonSet.
pub(crate) fn forget_template_count(metadata: &mut Value) {
    let Some(metadata) = metadata.as_object_mut() else {
        return;
    };
    if let Some(annotations) = child(metadata, "annotations") {
        annotations.remove(TEMPLATE_COUNT);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
}

fn default_daemon_set(object: &mut Value) {
    // It is always written, and so belongs to who writes the object.
    let count = template_count(object);
    count_template(object, count);
    let Some(spec) = default_spec(object) else { return };
    fill(spec, "selector", Value::Null);
    if let Some(strategy) = ensure(spec, "updateStrategy") {
        fill_text(strategy, "type", "RollingUpdate");
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = ensure(strategy, "rollingUpdate")
        {
            fill(rolling, "maxUnavailable", 1);
            fill(rolling, "maxSurge", 0);
        } else if let Some(rolling) = child(strategy, "rollingUpdate") {
            // Without the strategy that they belong to they are plain numbers.
            fill(rolling, "maxUnavailable", 0);
            fill(rolling, "maxSurge", 0);
        }
    }
    fill(spec, "revisionHistoryLimit", 10);
}

fn default_stateful_set(object: &mut Value) {
    let Some(spec) = default_spec(object) else { return };
    fill(spec, "replicas", 1);
    fill(spec, "selector", Value::Null);
    fill_text(spec, "podManagementPolicy", "OrderedReady");
    if let Some(strategy) = ensure(spec, "updateStrategy") {
        // Who says which strategy says how, too.
        if text(strategy, "type").is_empty() {
            fill_text(strategy, "type", "RollingUpdate");
            ensure(strategy, "rollingUpdate");
        }
        if text(strategy, "type") == "RollingUpdate"
            && let Some(rolling) = child(strategy, "rollingUpdate")
        {
            fill(rolling, "partition", 0);
        }
    }
    if let Some(policy) = ensure(spec, "persistentVolumeClaimRetentionPolicy") {
        fill_text(policy, "whenDeleted", "Retain");
        fill_text(policy, "whenScaled", "Retain");
    }
    fill(spec, "revisionHistoryLimit", 10);
    for claim in each(spec, "volumeClaimTemplates") {
        fill_text(claim, "kind", "PersistentVolumeClaim");
        fill_text(claim, "apiVersion", "v1");
        ensure(claim, "metadata");
        if let Some(spec) = ensure(claim, "spec") {
            pods::defaults::claim_spec(spec);
        }
        if let Some(status) = ensure(claim, "status") {
            fill_text(status, "phase", "Pending");
        }
    }
}

fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let name = old.is_none().then(|| pods::warnings::names_of_pods(new)).flatten();
    let mut told: Vec<String> = name.into_iter().collect();
    if pods::warnings::are_told(new, old) {
        told.extend(pods::warnings::warnings(&At::root(new).keys(&["spec", "template"])));
    }
    told
}

pub(super) fn status_numbers(new: &Value, numbers: &[&str]) -> Vec<FieldError> {
    let mut errors = Errors::default();
    for number in numbers {
        errors.non_negative(&At::root(new).key("status").key(number));
    }
    errors.into_vec()
}

/// The same, and that no part is greater than the whole: `parts` of `status.replicas`.
fn status_parts(new: &Value, numbers: &[&str], parts: &[&str]) -> Vec<FieldError> {
    parts_of(new, numbers, parts, "readyReplicas")
}

/// The same; `ready` is what upstream calls the number of those that are ready.
fn parts_of(new: &Value, numbers: &[&str], parts: &[&str], ready: &str) -> Vec<FieldError> {
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

/// A selector that is there, selects something and matches the labels of the template; then the template itself.
fn selector_and_template(errors: &mut Errors, spec: &At<'_>, restart: Restart) {
    let selector = spec.key("selector");
    let template = spec.key("template");
    let labels = template.keys(&["metadata", "labels"]);
    if selector.present() {
        label_selector(errors, &selector);
        if selector.key("matchLabels").is_empty() && selector.key("matchExpressions").is_empty() {
            // Of a ReplicaSet, Kubernetes says the same as of a Deployment.
            let kind = match restart.kind() {
                "replicaset" => "deployment",
                kind => kind,
            };
            errors.invalid(&selector, format!("empty selector is invalid for {kind}"));
        }
    } else {
        errors.required(&selector, "");
    }
    let parsed = Selector::from_label_selector(selector.value, &selector.path);
    if parsed.is_err() {
        // There is nothing to hold the template against, and it is not looked at.
        let why = match restart.kind() {
            "statefulset" => "",
            _ => "invalid label selector",
        };
        errors.invalid(&selector, why);
        if restart.kind() == "statefulset" {
            ends(errors, &template.key("spec"), restart);
        }
        return;
    }
    // An absent selector selects nothing, hence does not match either: Kubernetes reports both.
    let matches = selector.present() && parsed.is_ok_and(|parsed| parsed.matches(labels.value));
    if !matches {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    if restart.kind() == "statefulset" && !spec.key("volumeClaimTemplates").is_empty() {
        let whole = with_claims(&template, &spec.key("volumeClaimTemplates"));
        pod_template(errors, &At::root(&whole).moved(template.path.clone()), restart);
    } else {
        pod_template(errors, &template, restart);
    }
}

/// The template of a StatefulSet as its pods will have it: each claim is a volume of its name, before the volumes of other names.
fn with_claims(template: &At<'_>, claims: &At<'_>) -> Value {
    let mut whole = measure::copy(template.value);
    let Some(spec) = whole.as_object_mut().and_then(|whole| ensure(whole, "spec")) else {
        return whole;
    };
    let mut volumes: Vec<Value> = Vec::new();
    let mut names = BTreeSet::new();
    for claim in claims.items() {
        let name = claim.keys(&["metadata", "name"]).text();
        if names.insert(name) {
            volumes.push(json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
        }
    }
    if volumes.is_empty() {
        return whole;
    }
    let own = spec.get("volumes").and_then(Value::as_array);
    let others = own
        .into_iter()
        .flatten()
        .filter(|volume| get(volume, &["name"]).as_str().is_none_or(|name| !names.contains(name)));
    let others: Vec<Value> = others.cloned().collect();
    volumes.extend(others);
    spec.insert("volumes".to_owned(), volumes.into());
    whole
}

/// What a workload asks of its template besides a valid pod.
#[derive(Clone, Copy)]
pub(super) enum Restart {
    Always(&'static str),
    NotAlways,
    Any,
}

impl Restart {
    fn kind(self) -> &'static str {
        match self {
            Restart::Always(kind) => kind,
            Restart::NotAlways => "job",
            Restart::Any => "podtemplate",
        }
    }
}

pub(super) fn pod_template(errors: &mut Errors, template: &At<'_>, restart: Restart) {
    let metadata = template.key("metadata");
    if metadata.key("labels").present() {
        errors.extend(kubewright_schema::names::labels(
            metadata.key("labels").value,
            // Upstream's structs have no field for the metadata itself.
            &template.path.key("labels"),
        ));
    }
    if metadata.key("annotations").present() {
        errors.extend(kubewright_schema::names::annotations(
            metadata.key("annotations").value,
            &template.path.key("annotations"),
        ));
    }
    let spec = template.key("spec");
    // The path stands so in Kubernetes.
    let annotations = metadata.key("annotations").moved(template.path.key("annotations"));
    pods::annotations::annotations(errors, &annotations, &spec);
    pods::validate::spec(errors, &spec);
    if !spec.key("ephemeralContainers").is_empty() {
        errors.forbidden(
            &spec.key("ephemeralContainers"),
            "ephemeral containers not allowed in pod template",
        );
    }
    ends(errors, &spec, restart);
}

/// How the pods of a template may end.
fn ends(errors: &mut Errors, spec: &At<'_>, restart: Restart) {
    let policy = spec.key("restartPolicy");
    match restart {
        Restart::Always(kind) => {
            let owner = match kind {
                "statefulset" => "StatefulSet",
                "daemonset" => "DaemonSet",
                "replicationcontroller" => "ReplicationController",
                _ => "ReplicaSet",
            };
            let deadline = spec.key("activeDeadlineSeconds");
            if deadline.present() {
                errors.forbidden(&deadline, format!("activeDeadlineSeconds in {owner} is not Supported"));
            }
            if !matches!(policy.text(), "Always" | "") && ["OnFailure", "Never"].contains(&policy.text()) {
                errors.unsupported(&policy, &["Always"]);
            }
        }
        Restart::Any => {}
        Restart::NotAlways => {
            if matches!(policy.text(), "Always" | "") {
                errors.required(&policy, "valid values: \"OnFailure\", \"Never\"");
            } else if !["OnFailure", "Never"].contains(&policy.text()) {
                errors.unsupported(&policy, &["OnFailure", "Never"]);
            }
        }
    }
}

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
    errors.non_negative(&spec.key("minReadySeconds"));
    errors.non_negative(&spec.key("revisionHistoryLimit"));
    let deadline = spec.key("progressDeadlineSeconds");
    errors.non_negative(&deadline);
    if deadline
        .int()
        .is_some_and(|deadline| deadline <= spec.key("minReadySeconds").int().unwrap_or(0))
    {
        errors.invalid(&deadline, "must be greater than minReadySeconds");
    }
    errors.into_vec()
}

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
    if let Value::String(text) = unavailable.value
        && text
            .strip_suffix('%')
            .and_then(|number| number.parse::<u64>().ok())
            .is_some_and(|number| number > 100)
    {
        errors.invalid(&unavailable, "must not be greater than 100%");
    }
}

pub(super) fn int_or_percent(errors: &mut Errors, at: &At<'_>) {
    match at.value {
        Value::String(text) => {
            let number = text
                .strip_suffix('%')
                .filter(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()));
            if number.is_none() {
                errors.invalid(
                    at,
                    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for \
                     validation is '[0-9]+%')",
                );
            }
        }
        Value::Number(_) => errors.non_negative(at),
        _ => {}
    }
}

fn percent_or_number(at: &At<'_>) -> Option<i64> {
    match at.value {
        Value::String(text) => text.strip_suffix('%')?.parse().ok(),
        value => Some(value.as_i64().unwrap_or(0)),
    }
}

fn replica_set(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    errors.non_negative(&spec.key("replicas"));
    errors.non_negative(&spec.key("minReadySeconds"));
    selector_and_template(&mut errors, &spec, Restart::Always("replicaset"));
    errors.into_vec()
}

fn replication_controller(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    errors.non_negative(&spec.key("replicas"));
    errors.non_negative(&spec.key("minReadySeconds"));
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

fn lone_template(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    pod_template(&mut errors, &At::root(new).key("template"), Restart::Any);
    errors.into_vec()
}

/// Rules for a StatefulSet. What may not change is not looked at again in one that exists (`is_new`): it may be older than the rule.
fn stateful_set(new: &Value, is_new: bool) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let management = spec.key("podManagementPolicy");
    match management.text() {
        "" => errors.required(&management, ""),
        "OrderedReady" | "Parallel" => {}
        _ => errors.invalid(&management, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.key("updateStrategy");
    match strategy.key("type").text() {
        "" => errors.required(&strategy, ""),
        "OnDelete" => {
            if strategy.key("rollingUpdate").present() {
                errors.invalid(
                    &strategy.key("rollingUpdate"),
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            errors.non_negative(&strategy.keys(&["rollingUpdate", "partition"]));
            int_or_percent(&mut errors, &strategy.keys(&["rollingUpdate", "maxUnavailable"]));
        }
        _ => errors.invalid(&strategy, "must be 'RollingUpdate' or 'OnDelete'"),
    }
    let policy = spec.key("persistentVolumeClaimRetentionPolicy");
    for when in ["whenDeleted", "whenScaled"] {
        errors.one_of(&policy.key(when), &["Retain", "Delete"], true);
    }
    for claim in spec.key("volumeClaimTemplates").items().filter(|_| is_new) {
        pods::volumes::claim_spec(&mut errors, &claim.key("spec"));
    }
    errors.non_negative(&spec.key("replicas"));
    errors.non_negative(&spec.key("minReadySeconds"));
    errors.non_negative(&spec.keys(&["ordinals", "start"]));
    let service = spec.key("serviceName");
    if is_new && !service.text().is_empty() {
        errors.messages(&service, kubewright_schema::names::dns1123_label(service.text()));
    }
    selector_and_template(&mut errors, &spec, Restart::Always("statefulset"));
    errors.into_vec()
}

/// What of a StatefulSet's spec may change.
const STATEFUL_SET_UPDATABLE: [&str; 8] = [
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
    "status",
];

fn update_stateful_set(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(stateful_set(new, false));
    let without = |value: &Value| {
        let mut spec = get(value, &["spec"]).clone();
        if let Some(spec) = spec.as_object_mut() {
            for field in STATEFUL_SET_UPDATABLE {
                spec.remove(field);
            }
        }
        spec
    };
    if without(new) != without(old) {
        errors.forbidden(
            &At::root(new).key("spec"),
            "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', \
             'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden",
        );
    }
    errors.into_vec()
}

fn daemon_set(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let (selector, template) = (spec.key("selector"), spec.key("template"));
    label_selector(&mut errors, &selector);
    // No selector selects nothing; it is not said to be missing.
    let parsed = Selector::from_label_selector(selector.value, &selector.path);
    let labels = template.keys(&["metadata", "labels"]);
    if !selector.present() || parsed.is_ok_and(|parsed| !parsed.matches(labels.value)) {
        errors.invalid(&labels, "`selector` does not match template `labels`");
    }
    if selector.present() && selector.key("matchLabels").is_empty() && selector.key("matchExpressions").is_empty() {
        errors.invalid(&selector, "empty selector is invalid for daemonset");
    }
    pod_template(&mut errors, &template, Restart::Always("daemonset"));
    errors.non_negative(&spec.key("minReadySeconds"));
    let strategy = spec.key("updateStrategy");
    let rolling = strategy.key("rollingUpdate");
    match strategy.key("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.present() => errors.required(&rolling, ""),
        "RollingUpdate" => {
            let unavailable = rolling.key("maxUnavailable");
            let surge = rolling.key("maxSurge");
            int_or_percent(&mut errors, &unavailable);
            int_or_percent(&mut errors, &surge);
            // What is no percentage is nothing.
            let number = |at: &At<'_>| percent_or_number(at).unwrap_or(0);
            match (number(&unavailable), number(&surge)) {
                (0, 0) => errors.required(&unavailable, "cannot be 0 when maxSurge is 0"),
                (some, more) if some > 0 && more > 0 => {
                    errors.invalid(&surge, "may not be set when maxUnavailable is non-zero");
                }
                _ => {}
            }
        }
        _ => errors.push(FieldError::not_supported(
            strategy.path.to_string(),
            strategy.value.clone(),
            &["RollingUpdate", "OnDelete"],
        )),
    }
    errors.non_negative(&spec.key("revisionHistoryLimit"));
    errors.into_vec()
}

fn revision(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    errors.non_negative(&at.key("revision"));
    let data = at.key("data");
    if !data.present() {
        errors.required(&data, "data is mandatory");
    } else if !data.value.is_object() {
        errors.required(&data, "data must be a valid JSON object");
    }
    errors.into_vec()
}

fn update(new: &Value, old: &Value, create: fn(&Value) -> Vec<FieldError>, immutable: &[&str]) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(create(new));
    for field in immutable {
        errors.immutable(
            &At::root(new).key("spec").key(field),
            &At::root(old).key("spec").key(field),
        );
    }
    errors.into_vec()
}
