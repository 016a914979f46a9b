//! Pods, and the pod spec that every workload's template shares.

pub(crate) mod annotations;
pub(crate) mod containers;
pub(crate) mod defaults;
pub(crate) mod host;
pub(crate) mod needs;
mod portions;
mod projections;
pub(crate) mod references;
pub(crate) mod resources;
pub(crate) mod scheduling;
pub(crate) mod validate;
pub(crate) mod volumes;
pub(crate) mod warnings;
mod windows;

use std::collections::BTreeMap;
use std::str::FromStr;

use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

pub(crate) use self::portions::{BINDING, EPHEMERAL_CONTAINERS, EVICTION, RESIZE};
use super::check::{At, Object, child, each, ensure, fill, get, keep, text};
use crate::model::{GenerationRule, GracePeriod, Looks, PLAIN, StatusMetadata, Strategy, StrategyContext};

/// How pods are written.
pub(crate) const POD: Strategy = Strategy {
    generation: GenerationRule::Spec,
    delete_returns_object: true,
    status_metadata: StatusMetadata::WrittenBut(&["deletionTimestamp", "ownerReferences"]),
    looks: Looks::CHANGED_AND_WHOLE,
    grace_period,
    default: defaults::pod,
    prepare_create,
    prepare_update,
    prepare_status,
    validate_create: validate::create,
    validate_update: validate::update,
    validate_status: validate::status,
    warnings: |new, old| match old {
        // Nobody changes pods by hand.
        Some(_) => Vec::new(),
        None => warnings::of_new(new),
    },
    ..PLAIN
};

/// 30 seconds unless the spec says otherwise; at once, whatever is asked for, when no node runs the pod or it has ended.
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
    drop_disabled(object);
    if let Some(spec) = ensure(object, "spec") {
        admit(spec);
        let grace = spec.get("terminationGracePeriodSeconds").and_then(Value::as_i64);
        if grace.is_some_and(|seconds| seconds < 0) {
            spec.insert("terminationGracePeriodSeconds".to_owned(), 1.into());
        }
    }
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if gated {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "lastProbeTime": null,
            "lastTransitionTime": crate::env::rfc3339(context.env.now()),
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates"
        }]);
    }
    object.insert("status".to_owned(), status);
}

/// Takes away what a new pod says in vain: fields that Kubernetes has behind gates that are shut.
fn drop_disabled(pod: &mut Object) {
    let Some(spec) = child(pod, "spec") else { return };
    for list in defaults::CONTAINER_LISTS {
        for container in each(spec, list) {
            let Some(lifecycle) = child(container, "lifecycle") else {
                continue;
            };
            if lifecycle.remove("stopSignal").is_some() && lifecycle.is_empty() {
                container.remove("lifecycle");
            }
        }
    }
    for volume in each(spec, "volumes") {
        let Some(projected) = child(volume, "projected") else {
            continue;
        };
        for source in each(projected, "sources") {
            source.remove("podCertificate");
        }
    }
}

/// What a pod has unless the admission plugin Priority (see `admission`) found a class for it.
fn admit(spec: &mut Object) {
    fill(spec, "priority", 0);
    fill(spec, "preemptionPolicy", "PreemptLowerPriority");
}

/// What the admission plugin DefaultTolerationSeconds adds to every pod that is created or changed.
pub(crate) fn tolerate(spec: &mut Object) {
    for (condition, key) in [
        ("not-ready", "node.kubernetes.io/not-ready"),
        ("unreachable", "node.kubernetes.io/unreachable"),
    ] {
        let tolerated = spec.get("tolerations").and_then(Value::as_array).is_some_and(|list| {
            list.iter().any(|toleration| {
                let of = |field: &str| toleration.get(field).and_then(Value::as_str).unwrap_or("");
                (of("key") == key || of("key").is_empty()) && matches!(of("effect"), "NoExecute" | "")
            })
        });
        if !tolerated {
            tracing::trace!(condition, "a toleration of 300 seconds is added");
            let list = spec.entry("tolerations").or_insert(Value::Null);
            if list.is_null() {
                *list = json!([]);
            }
            if let Some(list) = list.as_array_mut() {
                list.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
            }
        }
    }
}

fn prepare_update(new: &mut Value, old: &Value, _: &StrategyContext<'_>) {
    keep(new, old, "status");
}

/// `Guaranteed` when every container limits cpu and memory and requests just that, `BestEffort` when none asks for anything, else `Burstable`.
pub(crate) fn qos_class(pod: &Value) -> &'static str {
    let spec = At::root(pod).key("spec");
    let mut requests: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut limits: BTreeMap<&str, Quantity> = BTreeMap::new();
    let mut guaranteed = true;
    // What the pod asks for as a whole counts instead of its containers.
    let whole = ["requests", "limits"]
        .iter()
        .any(|list| !spec.keys(&["resources", list]).is_empty());
    let containers = spec.key("containers").items().chain(spec.key("initContainers").items());
    let asking: Vec<At<'_>> = if whole {
        vec![spec.clone()]
    } else {
        containers.collect()
    };
    for container in asking {
        if container.key("resources").is_empty() {
            guaranteed = false;
            continue;
        }
        let mut limited = 0;
        for (list, sums) in [("requests", &mut requests), ("limits", &mut limits)] {
            let of = container.keys(&["resources", list]);
            for name in ["cpu", "memory"] {
                let Some(amount) = Quantity::from_str(of.key(name).text())
                    .ok()
                    .filter(|amount| amount.sign() > 0)
                else {
                    continue;
                };
                limited += usize::from(list == "limits");
                let sum = match sums.remove(name) {
                    Some(sum) => sum + amount,
                    None => amount,
                };
                sums.insert(name, sum);
            }
        }
        guaranteed &= limited == 2;
    }
    if requests.is_empty() && limits.is_empty() {
        "BestEffort"
    } else if guaranteed
        && requests.iter().all(|(name, amount)| limits.get(name) == Some(amount))
        && requests.len() == limits.len()
    {
        "Guaranteed"
    } else {
        "Burstable"
    }
}

/// Binds a pod to a node, as `pods/binding` does: the node's name, annotations and the condition `PodScheduled`.
pub(crate) fn bind(pod: &mut Value, node: &str, now: jiff::Timestamp) {
    let Some(object) = pod.as_object_mut() else { return };
    if let Some(spec) = ensure(object, "spec") {
        spec.insert("nodeName".to_owned(), node.into());
    }
    let Some(status) = ensure(object, "status") else { return };
    // What was nominated is decided now.
    status.remove("nominatedNodeName");
    let condition = json!({
        "type": "PodScheduled",
        "status": "True",
        "lastProbeTime": null,
        "lastTransitionTime": crate::env::rfc3339(now)
    });
    match status.get_mut("conditions").and_then(Value::as_array_mut) {
        Some(conditions) => match conditions.iter_mut().find(|known| known["type"] == "PodScheduled") {
            Some(known) => *known = condition,
            None => conditions.push(condition),
        },
        None => {
            status.insert("conditions".to_owned(), json!([condition]));
        }
    }
}
