//! Whether an object is ready, by what it says about itself, and why not.
//!
//! Kubernetes has no one field for it: workloads count pods, pods have a phase, most others have conditions. Pure: an
//! object in, a verdict out.

use serde_json::Value;

use crate::rollout::missing;

/// Conditions that say that all is well while they are true; the first that an object has counts.
const GOOD: [&str; 7] = [
    "Ready",
    "Available",
    "Established",
    "Complete",
    "Succeeded",
    "Healthy",
    "Synced",
];
/// Conditions that say that something is wrong while they are true.
const BAD: [&str; 4] = ["Failed", "Degraded", "Stalled", "ReplicaFailure"];

/// What an object says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Health {
    /// `None`: it says nothing.
    pub(super) ready: Option<bool>,
    pub(super) why: String,
}

/// The verdict.
pub(super) fn of(object: &Value) -> Health {
    if object["metadata"]["deletionTimestamp"].is_string() {
        let finalizers = object["metadata"]["finalizers"].as_array();
        let names: Vec<&str> = finalizers.into_iter().flatten().filter_map(Value::as_str).collect();
        return not_ready(match names[..] {
            [] => "is being deleted".to_owned(),
            _ => format!("is being deleted; finalizers: {}", names.join(", ")),
        });
    }
    if matches!(text(object, "kind"), "Deployment" | "StatefulSet" | "DaemonSet")
        && let Some(missing) = missing(object)
    {
        return not_ready(missing);
    }
    let conditions = object["status"]["conditions"].as_array();
    let conditions = conditions.map_or(&[][..], Vec::as_slice);
    let condition = |name: &str| conditions.iter().find(|condition| condition["type"] == name);
    if let Some(bad) = BAD
        .iter()
        .find_map(|name| condition(name).filter(|found| found["status"] == "True"))
    {
        return not_ready(words(bad));
    }
    let Some(good) = GOOD.iter().find_map(|name| condition(name)) else {
        return of_phase(object, conditions);
    };
    let generation = object["metadata"]["generation"].as_i64();
    let observed = good["observedGeneration"].as_i64();
    if observed.is_some_and(|observed| Some(observed) < generation) {
        return not_ready(format!(
            "its controller has not seen the newest spec; before: {}",
            words(good)
        ));
    }
    // A Pod that is done is not ready any more, and all is well.
    if text(&object["status"], "phase") == "Succeeded" {
        return of_phase(object, conditions);
    }
    Health {
        ready: Some(good["status"] == "True"),
        why: words(good),
    }
}

/// The verdict about an object without a condition that is known.
fn of_phase(object: &Value, conditions: &[Value]) -> Health {
    let phase = text(&object["status"], "phase");
    let ready = match phase {
        "Active" | "Bound" | "Available" | "Running" | "Succeeded" | "Ready" => Some(true),
        "Pending" | "Failed" | "Lost" | "Released" | "Terminating" | "Error" | "Unknown" => Some(false),
        _ => None,
    };
    let said = conditions.first().map(words).unwrap_or_default();
    Health {
        ready,
        why: if phase.is_empty() { said } else { phase.to_owned() },
    }
}

fn not_ready(why: String) -> Health {
    Health {
        ready: Some(false),
        why,
    }
}

/// `Ready=False: NoPods: 0 of 1 pods are available`, or `Ready: up to date` while it is true.
fn words(condition: &Value) -> String {
    let status = text(condition, "status");
    let mut words = text(condition, "type").to_owned();
    if status != "True" {
        words.push_str(&format!("={status}"));
    }
    for field in ["reason", "message"] {
        match text(condition, field) {
            "" => {}
            text => words.push_str(&format!(": {text}")),
        }
    }
    words
}

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object[field].as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_object_says_whether_it_is_ready() {
        let condition =
            |name: &str, status: &str| json!({"type": name, "status": status, "reason": "R", "message": "m"});
        let check = |object: Value, ready: Option<bool>, why: &str| {
            let found = of(&object);
            assert_eq!((found.ready, found.why.as_str()), (ready, why), "{object}");
        };
        check(json!({"kind": "ConfigMap"}), None, "");
        check(
            json!({"status": {"conditions": [condition("Ready", "True")]}}),
            Some(true),
            "Ready: R: m",
        );
        check(
            json!({"status": {"conditions": [condition("Progressing", "True"), condition("Available", "False")]}}),
            Some(false),
            "Available=False: R: m",
        );
        check(
            json!({"status": {"conditions": [condition("Ready", "True"), condition("Degraded", "True")]}}),
            Some(false),
            "Degraded: R: m",
        );
        check(
            json!({"metadata": {"generation": 2}, "status": {"conditions": [
                {"type": "Ready", "status": "True", "observedGeneration": 1},
            ]}}),
            Some(false),
            "its controller has not seen the newest spec; before: Ready",
        );
        check(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["a/b"]}}),
            Some(false),
            "is being deleted; finalizers: a/b",
        );
        check(
            json!({"kind": "Deployment", "metadata": {"generation": 1}, "spec": {"replicas": 2},
                "status": {"observedGeneration": 1, "updatedReplicas": 2, "availableReplicas": 1}}),
            Some(false),
            "1 of 2 pods are available",
        );
        check(
            json!({"kind": "Pod", "status": {"phase": "Succeeded", "conditions": [condition("Ready", "False")]}}),
            Some(true),
            "Succeeded",
        );
        check(json!({"status": {"phase": "Pending"}}), Some(false), "Pending");
    }
}
