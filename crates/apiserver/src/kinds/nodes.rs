//! Nodes.
//!
//! Not here: the taint of a new node, which is admission's.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, absent, child, ensure, fill, keep, text};
use super::pods::defaults;
use crate::registry::{PLAIN, Strategy};

/// How Nodes are written.
pub(crate) const NODE: Strategy = Strategy {
    status_keeps_metadata: true,
    default,
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: node,
    validate_update: update,
    validate_status: |new, _| {
        let mut errors = Errors::default();
        status(&mut errors, new);
        errors.into_vec()
    },
    ..PLAIN
};

/// What Go writes even when it is empty: the kubelet's port and the facts about the machine.
fn default(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(spec) = ensure(object, "spec") {
        let first = text(spec, "podCIDR").to_owned();
        if absent(spec, "podCIDRs") && !first.is_empty() {
            spec.insert("podCIDRs".to_owned(), json!([first]));
        }
    }
    let Some(status) = ensure(object, "status") else { return };
    if let Some(endpoint) = ensure(status, "daemonEndpoints").and_then(|endpoints| ensure(endpoints, "kubeletEndpoint"))
    {
        fill(endpoint, "Port", 0);
    }
    if let Some(info) = ensure(status, "nodeInfo") {
        for field in [
            "machineID",
            "systemUUID",
            "bootID",
            "kernelVersion",
            "osImage",
            "containerRuntimeVersion",
            "kubeletVersion",
            "kubeProxyVersion",
            "operatingSystem",
            "architecture",
        ] {
            fill(info, field, "");
        }
    }
    for list in ["capacity", "allocatable"] {
        if let Some(list) = child(status, list) {
            defaults::canonical_quantities(list);
        }
    }
    // What a node can give is what it has, unless the kubelet says otherwise.
    if let Some(capacity) = status.get("capacity").cloned().filter(Value::is_object) {
        fill(status, "allocatable", capacity);
    }
}

fn node(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // The path stands so in Kubernetes.
    let path = At::root(new).keys(&["metadata", "taints"]).path;
    let taints = At::root(new).keys(&["spec", "taints"]).moved(path);
    let mut seen = std::collections::BTreeSet::new();
    for taint in taints.items() {
        let key = taint.key("key");
        errors.messages(&key, names::qualified_name(key.text()));
        errors.messages(&taint.key("value"), names::label_value(taint.key("value").text()));
        errors.one_of(
            &taint.key("effect"),
            &["NoSchedule", "PreferNoSchedule", "NoExecute"],
            true,
        );
        if !seen.insert((key.text(), taint.key("effect").text())) {
            errors.duplicate(&taint);
        }
    }
    status(&mut errors, new);
    errors.into_vec()
}

fn status(errors: &mut Errors, new: &Value) {
    let status = At::root(new).key("status");
    for list in ["capacity", "allocatable"] {
        let list = status.key(list);
        for (name, amount) in list.entries() {
            if amount.text().starts_with('-') {
                let at = amount.moved(list.path.key(name));
                errors.invalid(&at, "must be greater than or equal to 0");
            }
        }
    }
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(node(new));
    let (after, before) = (At::root(new).key("spec"), At::root(old).key("spec"));
    for field in ["podCIDR", "providerID"] {
        let was = before.key(field).text();
        if !was.is_empty() && was != after.key(field).text() {
            errors.forbidden(
                &after.key(field),
                format!("node updates may not change {field} except from \"\" to valid"),
            );
        }
    }
    errors.into_vec()
}
