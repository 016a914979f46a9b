//! Pods, and the pod spec that every workload's template shares.

pub(crate) mod annotations;
pub(crate) mod containers;
pub(crate) mod defaults;
pub(crate) mod host;
mod images;
mod portions;
mod projections;
pub(crate) mod resources;
pub(crate) mod scheduling;
pub(crate) mod validate;
pub(crate) mod volumes;
pub(crate) mod warnings;
mod windows;

use serde_json::{Value, json};

use kubewright_model::facts::pods::{CONTAINER_LISTS, qos_class};

pub(crate) use self::portions::{BINDING, EPHEMERAL_CONTAINERS, EVICTION, RESIZE};
use super::check::{Object, child, each, ensure, fill, get, keep, text};
use kubewright_model::{
    GenerationRule, GracePeriod, MetadataChecks, Minor, PLAIN, StatusMetadata, Strategy, StrategyContext,
};

/// How pods are written.
pub(crate) const POD: Strategy = Strategy {
    generation: GenerationRule::Spec,
    delete_returns_object: true,
    status_metadata: StatusMetadata::WrittenBut(&["deletionTimestamp", "ownerReferences"]),
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    grace_period,
    default: defaults::pod,
    prepare_create,
    prepare_update,
    prepare_status,
    validate_create: validate::create,
    validate_update: |new, old| validate::update(new, old, Minor::OLDEST),
    validate_status: validate::status,
    warnings: |new, old| match old {
        // Users do not edit pods by hand: an update has no warnings.
        Some(_) => Vec::new(),
        None => warnings::of_new(new),
    },
    ..PLAIN
};

/// The same from Kubernetes 1.37 on: pod-level resources are completed when the containers are known that plugins put in,
/// and clients that do not know a field do not remove it.
pub(crate) const POD_SINCE_37: Strategy = Strategy {
    default: |pod| {
        defaults::pod_but_whole(pod);
        if let Some(spec) = pod.as_object_mut().and_then(|pod| child(pod, "spec")) {
            end_in_time(spec);
        }
    },
    prepare_create: |pod, context| {
        if let Some(spec) = pod.as_object_mut().and_then(|pod| child(pod, "spec")) {
            defaults::complete_whole(spec);
        }
        prepare_create(pod, context);
    },
    prepare_update: |new, old, context| {
        keep_unless_given(new, old, "/spec", &["resources"]);
        prepare_update(new, old, context);
    },
    prepare_status: |new, old, context| {
        const CLAIMS: [&str; 2] = ["resourceClaimStatuses", "extendedResourceClaimStatus"];
        keep_unless_given(new, old, "/status", &CLAIMS);
        prepare_status(new, old, context);
    },
    validate_update: |new, old| validate::update(new, old, Minor::V37),
    validate_status: |new, old| {
        let mut errors = validate::status(new, old);
        errors.extend(validate::extended_claims(new));
        errors
    },
    ..POD
};

/// Carries over fields that a client leaves out.
fn keep_unless_given(new: &mut Value, old: &Value, part: &str, fields: &[&str]) {
    let (Some(new), Some(old)) = (new.pointer_mut(part).and_then(Value::as_object_mut), old.pointer(part)) else {
        return;
    };
    for field in fields {
        if let (None, Some(value)) = (new.get(*field), old.get(field)) {
            new.insert((*field).to_owned(), value.clone());
        }
    }
}

/// 30 seconds unless the spec says otherwise; no time, even when the client asks for some, if no node runs the pod or
/// the pod has ended.
fn grace_period(pod: &Value) -> Option<GracePeriod> {
    let bound = get(pod, &["spec", "nodeName"])
        .as_str()
        .is_some_and(|node| !node.is_empty());
    let ended = matches!(get(pod, &["status", "phase"]).as_str(), Some("Succeeded" | "Failed"));
    if !bound || ended {
        return Some(GracePeriod::AtOnce);
    }
    Some(GracePeriod::Seconds(
        match get(pod, &["spec", "terminationGracePeriodSeconds"]).as_i64() {
            Some(seconds) if seconds < 0 => 1,
            Some(seconds) => seconds,
            None => 30,
        },
    ))
}

fn prepare_status(new: &mut Value, old: &Value, _: &StrategyContext<'_>) {
    let class = get(old, &["status", "qosClass"]).clone();
    let Some(status) = new.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    if text(status, "qosClass").is_empty() && !class.is_null() {
        status.insert("qosClass".to_owned(), class);
    }
}

fn prepare_create(pod: &mut Value, context: &StrategyContext<'_>) {
    let class = qos_class(pod);
    let gated = get(pod, &["spec", "schedulingGates"])
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    let Some(object) = pod.as_object_mut() else { return };
    annotations::sync_app_armor(object);
    scheduling::narrow_selectors(object);
    drop_disabled(object, context);
    if let Some(spec) = ensure(object, "spec") {
        admit(spec);
        end_in_time(spec);
    }
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if gated {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": kubewright_model::env::rfc3339(context.env.now()),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates"
        }]);
    }
    object.insert("status".to_owned(), status);
}

/// A pod that asks for less than no time to end gets a second (`SetDefaults_Pod`; up to 1.36 `PrepareForCreate`).
fn end_in_time(spec: &mut Object) {
    let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
    if grace.is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
    }
}

/// Removes fields of a workload's template that have no effect (`DropDisabledTemplateFields`).
pub(crate) fn drop_disabled_in_template(workload: &mut Value, context: &StrategyContext<'_>) {
    for place in ["/spec", "/spec/jobTemplate/spec"] {
        if let Some(spec) = workload.pointer_mut(place).and_then(Value::as_object_mut) {
            spec.remove("scheduling");
        }
    }
    for place in ["/template", "/spec/template", "/spec/jobTemplate/spec/template"] {
        if let Some(template) = workload.pointer_mut(place).and_then(Value::as_object_mut) {
            drop_disabled(template, context);
        }
    }
}

/// Removes fields of a new pod that have no effect: those behind feature gates that are off.
fn drop_disabled(pod: &mut Object, context: &StrategyContext<'_>) {
    drop_old_annotations(pod);
    let Some(spec) = child(pod, "spec") else { return };
    spec.remove("schedulingGroup");
    spec.remove("evictionResponders");
    for list in CONTAINER_LISTS {
        for container in each(spec, list) {
            each(container, "volumeMounts").for_each(|mount| drop(mount.remove("bindMountOptions")));
            for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
                if let Some(probe) = child(container, probe) {
                    drop_modes(probe);
                }
            }
            for hook in ["postStart", "preStop"] {
                if let Some(hook) = child(container, "lifecycle").and_then(|lifecycle| child(lifecycle, hook)) {
                    drop_modes(hook);
                }
            }
            let Some(lifecycle) = child(container, "lifecycle") else {
                continue;
            };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                container.remove("lifecycle");
            }
        }
    }
    for volume in each(spec, "volumes") {
        if let Some(folder) = child(volume, "emptyDir") {
            folder.remove("mode");
        }
        for source in ["configMap", "secret", "downwardAPI", "projected"] {
            if let Some(source) = child(volume, source) {
                drop_users(source);
            }
        }
        let Some(projected) = child(volume, "projected") else {
            continue;
        };
        for source in each(projected, "sources") {
            source
                .values_mut()
                .filter_map(Value::as_object_mut)
                .for_each(drop_users);
            if context.minor < Minor::V37 {
                source.remove("clusterTrustBundle");
                source.remove("podCertificate");
            }
        }
    }
}

/// Removes annotations of the time before init containers were a field (`DropInitContainerAnnotations`).
fn drop_old_annotations(pod: &mut Object) {
    let Some(metadata) = child(pod, "metadata") else { return };
    let Some(annotations) = child(metadata, "annotations") else {
        return;
    };
    for stage in ["alpha", "beta"] {
        for what in ["containers", "container-statuses"] {
            annotations.remove(&format!("pod.{stage}.kubernetes.io/init-{what}"));
        }
    }
    if annotations.is_empty() {
        metadata.remove("annotations");
    }
}

/// How a probe or a hook speaks to its server.
fn drop_modes(handler: &mut Object) {
    for (action, field) in [("httpGet", "protocol"), ("grpc", "mode")] {
        if let Some(action) = child(handler, action) {
            action.remove(field);
        }
    }
}

/// Whose the files of a volume are.
fn drop_users(source: &mut Object) {
    source.remove("defaultUser");
    source.remove("user");
    each(source, "items").for_each(|item| drop(item.remove("user")));
}

/// The values of a pod for which the admission plugin Priority (see `admission`) found no class.
fn admit(spec: &mut Object) {
    fill(spec, "priority", 0);
    fill(spec, "preemptionPolicy", "PreemptLowerPriority");
}

fn prepare_update(new: &mut Value, old: &Value, context: &StrategyContext<'_>) {
    keep(new, old, "status");
    if let Some(pod) = new.as_object_mut() {
        drop_disabled(pod, context);
    }
}
