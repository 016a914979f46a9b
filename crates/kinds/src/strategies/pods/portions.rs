//! The fields of a pod that its subresources write, and the documents that they take.

use serde_json::Value;

use super::validate;
use crate::strategies::check::{get, keep};
use kubewright_model::{Document, Portion, READ_WRITE};

/// `/ephemeralcontainers`: only containers for debugging are written.
pub(crate) static EPHEMERAL_CONTAINERS: Portion = Portion {
    name: "ephemeralcontainers",
    verbs: READ_WRITE,
    restrict: |new, old| {
        let wanted = std::mem::replace(new, old.clone());
        take_ephemeral_containers(new, wanted);
    },
    owns_all_that_is_sent: true,
    writes_status: false,
    counts_generation: true,
    prepare: |_, _, _| {},
    validate: validate::ephemeral_containers,
};

/// `/resize`: only the resources of containers are written.
pub(crate) static RESIZE: Portion = Portion {
    name: "resize",
    restrict: |new, old| {
        let wanted = std::mem::replace(new, old.clone());
        take_resources(new, &wanted);
    },
    validate: validate::resize,
    verbs: READ_WRITE,
    owns_all_that_is_sent: true,
    writes_status: false,
    counts_generation: true,
    prepare: |_, _, _| {},
};

/// `/binding`: says on which node the pod runs.
pub(crate) static BINDING: Document = Document {
    name: "binding",
    group: "",
    kind: "Binding",
    schema_name: "io.k8s.api.core.v1.Binding",
    changes_twice: false,
};

/// `/eviction`: a delete that disruption budgets may refuse. It changes a budget before it deletes the pod.
pub(crate) static EVICTION: Document = Document {
    name: "eviction",
    group: "policy",
    kind: "Eviction",
    schema_name: "io.k8s.api.policy.v1.Eviction",
    changes_twice: true,
};

/// Takes the containers for debugging of `wanted` into the pod.
fn take_ephemeral_containers(pod: &mut Value, mut wanted: Value) {
    const FIELD: &str = "ephemeralContainers";
    let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    let taken = wanted.get_mut("spec").and_then(Value::as_object_mut);
    match taken.and_then(|spec| spec.remove(FIELD)) {
        Some(containers) => spec.insert(FIELD.to_owned(), containers),
        None => spec.remove(FIELD),
    };
}

/// Takes the resources and resize policies of `wanted` into the pod. Containers that are others, or stand in another
/// order, are taken as they are, so that validation can say so.
fn take_resources(pod: &mut Value, wanted: &Value) {
    let count = |pod: &Value, list: &str| get(pod, &["spec", list]).as_array().map_or(0, Vec::len);
    let lists = ["containers", "initContainers"];
    let same_count = lists.iter().all(|list| count(pod, list) == count(wanted, list));
    let Some(spec) = pod.get_mut("spec") else { return };
    let wanted = get(wanted, &["spec"]);
    if !same_count {
        *spec = wanted.clone();
        return;
    }
    keep(spec, wanted, "resources");
    for list in lists {
        let (Some(own), Some(others)) = (
            spec.get_mut(list).and_then(Value::as_array_mut),
            get(wanted, &[list]).as_array(),
        ) else {
            continue;
        };
        if own
            .iter()
            .zip(others)
            .any(|(own, other)| own.get("name") != other.get("name"))
        {
            own.clone_from(others);
            continue;
        }
        for (container, other) in own.iter_mut().zip(others) {
            keep(container, other, "resources");
            keep(container, other, "resizePolicy");
        }
    }
}
