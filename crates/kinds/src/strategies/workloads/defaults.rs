//! The defaults of workloads (`SetDefaults_…` of pkg/apis/apps/v1 and core/v1).

use serde_json::Value;

use super::{count_template, template_count};
use crate::strategies::check::{Object, child, each, ensure, fill, fill_text, get, text};
use crate::strategies::pods;

/// The numbers that Go writes in a status even when they are 0.
pub(super) fn status_defaults(object: &mut Value) {
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

/// The defaults that all workloads share: status, spec and template.
pub(crate) fn default_spec(object: &mut Value) -> Option<&mut Object> {
    status_defaults(object);
    let spec = ensure(object.as_object_mut()?, "spec")?;
    pods::defaults::template(spec);
    Some(spec)
}

/// `SetDefaults_Deployment`.
pub(super) fn default_deployment(object: &mut Value) {
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

/// `SetDefaults_ReplicaSet`.
pub(super) fn default_replica_set(object: &mut Value) {
    let Some(spec) = default_spec(object) else { return };
    fill(spec, "replicas", 1);
    fill(spec, "selector", Value::Null);
}

/// A controller without a selector or labels takes the labels of its template (`SetDefaults_ReplicationController`).
pub(super) fn default_replication_controller(object: &mut Value) {
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

/// `SetDefaults_DaemonSet`.
pub(super) fn default_daemon_set(object: &mut Value) {
    // The field is always written, and so belongs to the field manager that writes the object.
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

/// `SetDefaults_StatefulSet`.
pub(super) fn default_stateful_set(object: &mut Value) {
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
        // Whatever the client says.
        claim.insert("kind".to_owned(), "PersistentVolumeClaim".into());
        claim.insert("apiVersion".to_owned(), "v1".into());
        ensure(claim, "metadata");
        if let Some(spec) = ensure(claim, "spec") {
            pods::defaults::claim_spec(spec);
        }
        if let Some(status) = ensure(claim, "status") {
            fill_text(status, "phase", "Pending");
        }
    }
}
