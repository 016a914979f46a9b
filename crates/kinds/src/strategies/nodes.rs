//! Nodes.
//!
//! Not here: the taint of a new node, which is admission's.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

use std::collections::BTreeSet;
use std::str::FromStr;

use super::check::{At, Errors, child, ensure, fill, get, keep, text};
use super::pods::defaults;
use super::{ranges, service_warnings};
use kubewright_model::facts::amounts::is_counted_in_wholes;
use kubewright_model::{MetadataChecks, PLAIN, StatusMetadata, Strategy};

/// How Nodes are written.
pub(crate) const NODE: Strategy = Strategy {
    keeps_first_status: true,
    status_metadata: StatusMetadata::WRITTEN,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default,
    prepare_create: |new, _| drop_config_source(new),
    prepare_update: |new, old, _| {
        keep(new, old, "status");
        drop_config_source(new);
    },
    validate_create: |new| node(new, &Value::Null),
    warnings: |new, _| {
        let spec = At::root(new).key("spec");
        let mut warnings = Vec::new();
        if !spec.key("externalID").text().is_empty() {
            warnings.push("spec.externalID: this field is deprecated, and is unused by Kubernetes".to_owned());
        }
        let ranges = spec.key("podCIDRs");
        warnings.extend(ranges.items().filter_map(|range| service_warnings::block(&range)));
        warnings
    },
    validate_update: update,
    validate_status: |new, _| {
        let mut errors = Errors::default();
        addresses(&mut errors, new);
        amounts(&mut errors, new);
        errors.into_vec()
    },
    ..PLAIN
};

/// The configuration of a kubelet is no longer the API server's; plugins still see that one was sent. How pods of a node
/// are preempted is behind a feature that is off.
fn drop_config_source(node: &mut Value) {
    if let Some(spec) = node.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("configSource");
        spec.remove("podPreemptionPolicy");
    }
}

/// Fields that Go writes even when they are empty: the kubelet's port and the facts about the machine.
fn default(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(spec) = ensure(object, "spec") {
        // One is the first of the others, and counts where they differ.
        let single = text(spec, "podCIDR").to_owned();
        let first = spec.get("podCIDRs").and_then(|list| list.get(0)).cloned();
        match first {
            Some(first) if single.is_empty() => drop(spec.insert("podCIDR".to_owned(), first)),
            first if !single.is_empty() && first.as_ref().and_then(Value::as_str) != Some(single.as_str()) => {
                spec.insert("podCIDRs".to_owned(), json!([single]));
            }
            _ => {}
        }
    }
    let Some(status) = ensure(object, "status") else { return };
    status.remove("config");
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
    // A node's allocatable resources are its capacity, unless the kubelet says otherwise.
    if let Some(capacity) = status.get("capacity").cloned().filter(Value::is_object) {
        fill(status, "allocatable", capacity);
    }
}

/// `ValidateNode`.
fn node(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    taints(&mut errors, new);
    let path = ["spec", "podCIDRs"];
    cidrs(&mut errors, &At::root(new).keys(&path), get(old, &path));
    // A new node may have an address twice.
    if !old.is_null() {
        addresses(&mut errors, new);
    }
    amounts(&mut errors, new);
    declared_features(&mut errors, new);
    errors.into_vec()
}

/// Names such as `MyFeature/mySubFeature`, each once, in the order of the alphabet (`validateNodeDeclaredFeatures`).
fn declared_features(errors: &mut Errors, new: &Value) {
    let list = At::root(new).keys(&["status", "declaredFeatures"]);
    let mut before = None;
    for feature in list.items() {
        let name = feature.text();
        match before {
            Some(before) if before == name => errors.duplicate(&feature),
            Some(before) if before > name => errors.invalid(&feature, "list must be sorted alphabetically"),
            _ => {}
        }
        before = Some(name);
        if name.len() > names::SUBDOMAIN_MAX {
            let most = names::SUBDOMAIN_MAX;
            errors.invalid(
                &feature,
                format!("invalid feature name {name:?}: must be no more than {most} characters"),
            );
        } else if !is_feature_name(name) {
            errors.invalid(
                &feature,
                format!(
                    "invalid feature name {name:?}: must start with an UpperCamelCase segment, with subsequent segments separated by '/' \
                     (e.g., MyFeature or MyFeature/mySubFeature), and contain only alphanumeric characters and slashes"
                ),
            );
        }
    }
}

/// `validateNodeDeclaredFeatureName`.
fn is_feature_name(name: &str) -> bool {
    let is_segment = |segment: &str| {
        segment.starts_with(|first: char| first.is_ascii_alphabetic())
            && segment.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    name.starts_with(|first: char| first.is_ascii_uppercase()) && name.split('/').all(is_segment)
}

/// `validateNodeTaints`.
fn taints(errors: &mut Errors, new: &Value) {
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
            let mut error = FieldError::duplicate(taint.path.to_string(), taint.value.clone());
            error.detail = "taints must be unique by key and effect pair".to_owned();
            errors.push(error);
        }
    }
}

/// `ValidateNode`.
fn cidrs(errors: &mut Errors, list: &At<'_>, known: &Value) {
    let mut families = BTreeSet::new();
    let mut strange = None;
    for (index, entry) in list.items().enumerate() {
        match ranges::check(errors, &entry, entry.text(), known) {
            Some(block) => drop(families.insert(block.addr().is_ipv4())),
            None => strange = strange.or(Some((index, entry))),
        }
    }
    if list.len() < 2 {
        return;
    }
    if let Some((index, entry)) = &strange {
        let why = format!(
            "invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[{index}]: <nil> (invalid CIDR address: {})",
            entry.text()
        );
        errors.push(FieldError::internal(list.path.to_string(), why));
    }
    if list.len() > 2 || families.len() < 2 || strange.is_some() {
        errors.invalid(list, "may specify no more than one CIDR for each IP family");
    }
}

/// `ValidateNodeUpdate`.
fn addresses(errors: &mut Errors, new: &Value) {
    let mut seen = std::collections::BTreeSet::new();
    for address in At::root(new).keys(&["status", "addresses"]).items() {
        if !seen.insert((address.key("type").text(), address.key("address").text())) {
            errors.duplicate(&address);
        }
    }
}

/// `ValidateNodeResources`.
fn amounts(errors: &mut Errors, new: &Value) {
    for list in ["capacity", "allocatable"] {
        let list = At::root(new).keys(&["status", list]);
        for (name, amount) in list.entries() {
            let at = amount.moved(list.path.key(name));
            if amount.text().starts_with('-') {
                errors.invalid(&at, "must be greater than or equal to 0");
            }
            let whole = Quantity::from_str(amount.text()).is_ok_and(|amount| amount.milli_value() % 1000 == 0);
            if is_counted_in_wholes(name) && !whole {
                errors.invalid(&at, "must be an integer");
            }
        }
    }
}

/// `ValidateNodeUpdate`.
fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(node(new, old));
    // Upstream looks at the taints of a changed node twice.
    taints(&mut errors, new);
    let (after, before) = (At::root(new).key("spec"), At::root(old).key("spec"));
    let ranges = before.key("podCIDRs");
    let given = after.key("podCIDRs");
    // Each of as many ranges is reported, others in one.
    let changed = if ranges.len() == given.len() {
        let pairs = ranges.items().zip(given.items());
        pairs.filter(|(was, is)| was.value != is.value).count()
    } else {
        usize::from(!ranges.is_empty())
    };
    for _ in 0..changed {
        errors.forbidden(&given, "node updates may not change podCIDR except from \"\" to valid");
    }
    let provider = before.key("providerID").text();
    if !provider.is_empty() && provider != after.key("providerID").text() {
        errors.forbidden(
            &after.key("providerID"),
            "node updates may not change providerID except from \"\" to valid",
        );
    }
    if before.key("externalID").text() != after.key("externalID").text() {
        errors.forbidden(&after.key("externalID"), "may not be updated");
    }
    errors.into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of kube-apiserver 1.36 for the pod ranges of a node, and for their change.
    #[test]
    fn ranges_of_pods() {
        let check = |old: Value, new: Value, wrong: &[&str]| {
            let as_node = |ranges: &Value| {
                let mut node = json!({"spec": {"podCIDRs": ranges}});
                default(&mut node);
                node
            };
            let found = match &old {
                Value::Null => node(&as_node(&new), &Value::Null),
                old => update(&as_node(&new), &as_node(old)),
            };
            let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
            assert_eq!(texts, wrong, "{old} {new}");
        };
        let changed = "spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
        let one = json!(["10.1.0.0/24"]);
        let two = json!(["10.1.0.0/24", "fd00::/64"]);
        check(Value::Null, two.clone(), &[]);
        check(
            Value::Null,
            json!(["10.1.0.5/24"]),
            &["spec.podCIDRs[0]: Invalid value: \"10.1.0.5/24\": must not have bits set beyond the prefix length"],
        );
        check(
            Value::Null,
            json!(["10.1.0.0/24", "x"]),
            &[
                "spec.podCIDRs[1]: Invalid value: \"x\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
                "spec.podCIDRs: Internal error: invalid PodCIDRs. failed to check with dual stack with error:invalid CIDR[1]: <nil> (invalid CIDR address: x)",
                "spec.podCIDRs: Invalid value: [\"10.1.0.0/24\",\"x\"]: may specify no more than one CIDR for each IP family",
            ],
        );
        check(json!([]), one.clone(), &[]);
        check(one.clone(), one.clone(), &[]);
        check(one, two.clone(), &[changed]);
        check(two, json!(["10.2.0.0/24", "fd01::/64"]), &[changed, changed]);
    }
}
