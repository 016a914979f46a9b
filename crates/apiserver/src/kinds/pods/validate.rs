//! Rules for a pod's spec, and for what may change in one that exists.
//!
//! [`spec`] serves pods and every pod template. Errors come in the order of Kubernetes' own validation where it is cheap to keep.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::{containers, resources, scheduling, volumes};
use crate::kinds::check::{At, Errors, Object, check_ip, get};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Errors in a `PodSpec`.
pub(crate) fn spec(errors: &mut Errors, at: &At<'_>) {
    let facts = containers::PodFacts {
        volumes: volumes::volumes(errors, &at.key("volumes")),
        host_network: at.key("hostNetwork").is_true(),
        grace_period: at.key("terminationGracePeriodSeconds").int().unwrap_or(30),
    };
    containers::containers(errors, &at.key("containers"), &facts);
    containers::init_containers(errors, &at.key("initContainers"), &at.key("containers"), &facts);
    containers::ephemeral_containers(errors, &at.key("ephemeralContainers"), at, &facts);
    errors.one_of(&at.key("restartPolicy"), &RESTART_POLICIES, true);
    errors.one_of(&at.key("dnsPolicy"), &DNS_POLICIES, true);
    node_selector(errors, &at.key("nodeSelector"));
    containers::pod_security(errors, &at.key("securityContext"));
    scheduling::affinity(errors, &at.key("affinity"));
    dns(errors, at);
    for gate in at.key("readinessGates").items() {
        errors.messages(
            &gate.key("conditionType"),
            names::qualified_name(gate.key("conditionType").text()),
        );
    }
    gates(errors, at);
    scheduling::spread(errors, &at.key("topologySpreadConstraints"));
    for name in [
        "serviceAccountName",
        "nodeName",
        "priorityClassName",
        "runtimeClassName",
    ] {
        let name = at.key(name);
        if !name.text().is_empty() {
            errors.messages(&name, names::dns1123_subdomain(name.text()));
        }
    }
    let deadline = at.key("activeDeadlineSeconds");
    if deadline
        .int()
        .is_some_and(|seconds| !(1..=i64::from(i32::MAX)).contains(&seconds))
    {
        errors.invalid(&deadline, "must be between 1 and 2147483647, inclusive");
    }
    for name in ["hostname", "subdomain"] {
        let name = at.key(name);
        if !name.text().is_empty() {
            label(errors, &name);
        }
    }
    scheduling::tolerations(errors, &at.key("tolerations"));
    host_aliases(errors, &at.key("hostAliases"));
    if at.key("preemptionPolicy").present() {
        errors.one_of(&at.key("preemptionPolicy"), &["Never", "PreemptLowerPriority"], true);
    }
    resources::list(errors, &at.key("overhead"));
    if at.key("os").present() {
        errors.one_of(&at.keys(&["os", "name"]), &["linux", "windows"], true);
    }
}

/// A DNS label; dots are named first.
fn label(errors: &mut Errors, at: &At<'_>) {
    if at.text().contains('.') {
        errors.invalid(at, "must not contain dots");
    } else {
        errors.messages(at, names::dns1123_label(at.text()));
    }
}

fn node_selector(errors: &mut Errors, at: &At<'_>) {
    for (key, value) in at.entries() {
        for message in names::qualified_name(key) {
            errors.invalid_value(at, key, message);
        }
        for message in names::label_value(value.text()) {
            errors.invalid_value(at, value.text(), message);
        }
    }
}

fn dns(errors: &mut Errors, at: &At<'_>) {
    let config = at.key("dnsConfig");
    let servers = config.key("nameservers");
    if at.key("dnsPolicy").text() == "None" && servers.is_empty() {
        if config.present() {
            errors.required(
                &servers,
                "must provide at least one DNS nameserver when `dnsPolicy` is None",
            );
        } else {
            errors.required(&config, "must provide `dnsConfig` when `dnsPolicy` is None");
        }
    }
    if servers.len() > 3 {
        errors.invalid(&servers, "must not have more than 3 nameservers");
    }
    for server in servers.items() {
        check_ip(errors, &server);
    }
    for option in config.key("options").items() {
        if option.key("name").text().is_empty() {
            errors.required(&option, "must not be empty");
        }
    }
}

fn gates(errors: &mut Errors, at: &At<'_>) {
    let mut seen = BTreeSet::new();
    let gates = at.key("schedulingGates");
    for gate in gates.items() {
        let name = gate.key("name");
        for message in names::qualified_name(name.text()) {
            errors.invalid_value(&gate, name.text(), message);
        }
        if !seen.insert(name.text()) {
            errors.push(FieldError::duplicate(gate.path.to_string(), name.text()));
        }
    }
    if !gates.is_empty() && !at.key("nodeName").text().is_empty() {
        errors.forbidden(
            &at.key("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

fn host_aliases(errors: &mut Errors, at: &At<'_>) {
    for alias in at.items() {
        check_ip(errors, &alias.key("ip"));
        for name in alias.key("hostnames").items() {
            errors.messages(&name, names::dns1123_subdomain(name.text()));
        }
    }
}

/// Errors in a pod that is created.
pub(crate) fn create(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    if !at.key("ephemeralContainers").is_empty() {
        errors.forbidden(&at.key("ephemeralContainers"), "cannot be set on create");
        return errors.into_vec();
    }
    spec(&mut errors, &at);
    errors.into_vec()
}

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
    (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Errors in a pod that changes: nearly nothing of the spec may.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    let was = At::root(old).key("spec");
    for list in ["containers", "initContainers"] {
        if at.key(list).len() != was.key(list).len() {
            errors.forbidden(&at.key(list), "pod updates may not add or remove containers");
            return errors.into_vec();
        }
        for (container, before) in at.key(list).items().zip(was.key(list).items()) {
            let image = container.key("image");
            if image.text().trim().is_empty() {
                errors.required(&image, "");
            } else if image.text() != before.key("image").text() && image.text().trim() != image.text() {
                errors.invalid(&image, "must not have leading or trailing whitespace");
            }
        }
    }
    deadline(&mut errors, &at, &was);
    tolerations(&mut errors, &at, &was);
    scheduling_gates(&mut errors, &at, &was);
    if errors.len() == 0 {
        let changed = changed_fields(new, old);
        if !changed.is_empty() {
            errors.forbidden(
                &at,
                format!(
                    "pod updates may not change fields other than {UPDATABLE}\nchanged: {}",
                    changed.join(", ")
                ),
            );
        }
    }
    errors.into_vec()
}

fn deadline(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    const FIELD: &str = "activeDeadlineSeconds";
    let new = at.key(FIELD);
    match (new.int(), was.key(FIELD).int()) {
        (Some(seconds), _) if !(1..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(&new, "must be between 1 and 2147483647, inclusive");
        }
        (Some(seconds), Some(before)) if seconds > before => {
            errors.invalid(&new, format!("must be less than or equal to previous value {before}"));
        }
        (None, Some(_)) => errors.invalid_value(
            &new,
            Value::Null,
            "must not update from a positive integer to nil value",
        ),
        _ => {}
    }
}

fn tolerations(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let new = at.key("tolerations");
    if new.value != was.key("tolerations").value {
        scheduling::tolerations(errors, &new);
    }
    let without_seconds = |at: &At<'_>| {
        let mut value = at.value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        value
    };
    let kept: Vec<Value> = new.items().map(|toleration| without_seconds(&toleration)).collect();
    if was
        .key("tolerations")
        .items()
        .any(|toleration| !kept.contains(&without_seconds(&toleration)))
    {
        errors.forbidden(
            &new,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    }
}

fn scheduling_gates(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let names = |at: &At<'_>| -> BTreeSet<String> {
        at.key("schedulingGates")
            .items()
            .map(|gate| gate.key("name").text().to_owned())
            .collect()
    };
    let (new, old) = (names(at), names(was));
    let added: Vec<&str> = new.difference(&old).map(String::as_str).collect();
    if !added.is_empty() {
        errors.forbidden(
            &at.key("schedulingGates"),
            format!(
                "only deletion is allowed, but found new scheduling gates '{}'",
                added.join(",")
            ),
        );
    }
}

/// The fields of the spec that differ although they may not, as paths.
fn changed_fields(new: &Value, old: &Value) -> Vec<String> {
    let mut changed = Vec::new();
    let (Some(new), Some(old)) = (get(new, &["spec"]).as_object(), get(old, &["spec"]).as_object()) else {
        return changed;
    };
    let gated = old
        .get("schedulingGates")
        .and_then(Value::as_array)
        .is_some_and(|gates| !gates.is_empty());
    let fields: BTreeSet<&String> = new.keys().chain(old.keys()).collect();
    for field in fields {
        let (after, before) = (
            new.get(field).unwrap_or(&Value::Null),
            old.get(field).unwrap_or(&Value::Null),
        );
        if after == before {
            continue;
        }
        match field.as_str() {
            "activeDeadlineSeconds" | "tolerations" | "schedulingGates" => {}
            // While a gate holds the pod back, where it may run can still be narrowed.
            "nodeSelector" | "affinity" if gated => {}
            "terminationGracePeriodSeconds" if before.as_i64().is_some_and(|before| before < 0) && after == 1 => {}
            "containers" | "initContainers" => changed_containers(field, after, before, &mut changed),
            _ => changed.push(format!("spec.{field}")),
        }
    }
    changed
}

fn changed_containers(list: &str, new: &Value, old: &Value, changed: &mut Vec<String>) {
    let (Some(new), Some(old)) = (new.as_array(), old.as_array()) else {
        return;
    };
    let empty = Object::new();
    for (index, (after, before)) in new.iter().zip(old).enumerate() {
        let (after, before) = (
            after.as_object().unwrap_or(&empty),
            before.as_object().unwrap_or(&empty),
        );
        let fields: BTreeSet<&String> = after.keys().chain(before.keys()).collect();
        for field in fields
            .into_iter()
            .filter(|field| *field != "image" && after.get(*field) != before.get(*field))
        {
            changed.push(format!("spec.{list}[{index}].{field}"));
        }
    }
}

/// Errors in a change of `/ephemeralcontainers`: those that are there stay as they are.
pub(crate) fn ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    spec(&mut errors, &at);
    let list = at.key("ephemeralContainers");
    for before in At::root(old).keys(&["spec", "ephemeralContainers"]).items() {
        let name = before.key("name").text();
        match list.items().find(|entry| entry.key("name").text() == name) {
            None => errors.forbidden(
                &list,
                format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(after) if after.value != before.value => errors.forbidden(
                &list,
                format!("existing ephemeral containers {name:?} may not be changed\n"),
            ),
            Some(_) => {}
        }
    }
    errors.into_vec()
}

/// Errors in a change of `/resize`: requests and limits fit each other, and the class of the pod stays.
pub(crate) fn resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    spec(&mut errors, &at);
    if super::qos_class(new) != super::qos_class(old) {
        errors.invalid_value(
            &at,
            At::root(new).keys(&["status", "qosClass"]).text(),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    errors.into_vec()
}

/// Errors in a change of `/status`.
pub(crate) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("status");
    let was = At::root(old).key("status");
    for list in ["podIPs", "hostIPs"] {
        for entry in at.key(list).items() {
            check_ip(&mut errors, &entry.key("ip").moved(entry.path.clone()));
        }
    }
    let class = at.key("qosClass");
    if !was.key("qosClass").text().is_empty() && class.text() != was.key("qosClass").text() {
        errors.invalid(&class, "field is immutable");
    }
    if at.key("nominatedNodeName").present() && !at.key("nominatedNodeName").text().is_empty() {
        errors.messages(
            &at.key("nominatedNodeName"),
            names::dns1123_subdomain(at.key("nominatedNodeName").text()),
        );
    }
    let before = get(old, &["spec", "nodeName"]);
    let node = At::root(new).key("spec").key("nodeName");
    if node.value != before {
        errors.forbidden(
            &At::root(new).key("status").key("nodeName"),
            "may not be changed directly",
        );
    }
    errors.into_vec()
}
