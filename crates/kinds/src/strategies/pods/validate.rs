//! Rules for a pod's spec, and for changes of a stored one.
//!
//! [`spec`] serves pods and every pod template. Errors come in the order of Kubernetes' own validation where it is
//! cheap to keep.

mod changes;
mod network;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::{annotations, containers, host, resources, scheduling, volumes};
use crate::strategies::check::{At, Errors, Must, check_fields, check_ip, get, rule};
pub(crate) use changes::{ephemeral_containers, resize, update};
use network::{DNS_POLICIES, dns, host_aliases, hostname_override};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];

/// Errors in the spec of a pod of this name (`validatePodMetadataAndSpec`).
fn spec(errors: &mut Errors, at: &At<'_>, name: &str) {
    parts(errors, at, name);
    // Templates may have other images, as they always could.
    for container in ["containers", "initContainers"]
        .iter()
        .flat_map(|list| at.key(list).items())
    {
        let image = container.text_of("image");
        if image.trim() != image {
            errors.invalid(&container.key("image"), "must not have leading or trailing whitespace");
        }
    }
}

/// Errors in the spec of a template, whose pods have no name yet (`ValidatePodTemplateSpec`).
pub(crate) fn template(errors: &mut Errors, at: &At<'_>) {
    parts(errors, at, "");
}

/// `ValidatePodSpec`.
fn parts(errors: &mut Errors, at: &At<'_>, name: &str) {
    let claims = host::claims(errors, &at.key("resourceClaims"));
    let facts = containers::PodFacts {
        claims,
        spec: at.clone(),
        volumes: volumes::volumes(errors, &at.key("volumes"), name),
        by_name: OnceCell::new(),
        grace_period: at.key("terminationGracePeriodSeconds").int().unwrap_or(30),
    };
    containers::containers(errors, &at.key("containers"), &facts);
    containers::init_containers(errors, &at.key("initContainers"), &at.key("containers"), &facts);
    containers::ephemeral_containers(errors, &at.key("ephemeralContainers"), at, &facts);
    resources::of_pod(errors, at);
    host::network(errors, at);
    let rules = [
        rule(
            &["restartPolicy"],
            Must::BeOneOf(&RESTART_POLICIES),
            "validateRestartPolicy",
        ),
        rule(&["dnsPolicy"], Must::BeOneOf(&DNS_POLICIES), "validateDNSPolicy"),
    ];
    check_fields(errors, &rules, at, None);
    node_selector(errors, &at.key("nodeSelector"));
    containers::pod_security(errors, at);
    scheduling::affinity(errors, &at.key("affinity"));
    dns(errors, at);
    for gate in at.key("readinessGates").items() {
        errors.messages(
            &gate.key("conditionType"),
            names::qualified_name(gate.text_of("conditionType")),
        );
    }
    gates(errors, at);
    scheduling::spread(errors, &at.key("topologySpreadConstraints"));
    for name in ["serviceAccountName", "nodeName", "priorityClassName"] {
        let name = at.key(name);
        if !name.text().is_empty() {
            errors.messages(&name, names::dns1123_subdomain(name.text()));
        }
    }
    let runtime = at.key("runtimeClassName");
    if runtime.present() {
        errors.messages(&runtime, names::dns1123_subdomain(runtime.text()));
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
            errors.messages(&name, names::dns1123_label(name.text()));
        }
    }
    hostname_override(errors, at);
    scheduling::tolerations(errors, &at.key("tolerations"));
    host_aliases(errors, &at.key("hostAliases"));
    let preemption = at.key("preemptionPolicy");
    errors.one_of(&preemption, &["PreemptLowerPriority", "Never"], preemption.present());
    let overhead = at.key("overhead");
    resources::overhead(errors, &overhead, &overhead);
    host::host(errors, at);
}

/// The items of a list by their names; of several of one name the first.
pub(super) fn first_by_name<'a>(list: &At<'a>) -> BTreeMap<&'a str, At<'a>> {
    let mut named = BTreeMap::new();
    for item in list.items() {
        named.entry(item.text_of("name")).or_insert(item);
    }
    named
}

/// `ValidateNodeSelector`.
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

/// `validateSchedulingGates`.
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
}

/// A pod that is held back has no node yet: asked of new pods only (`ValidatePodCreate`).
fn gated_has_no_node(errors: &mut Errors, at: &At<'_>) {
    if !at.key("schedulingGates").is_empty() && !at.text_of("nodeName").is_empty() {
        errors.forbidden(
            &at.key("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

/// The rules for the conditions, the users and the devices in a pod's status (`ValidatePodStatusUpdate`).
fn details(errors: &mut Errors, pod: &Value) {
    let (status, spec) = (At::root(pod).key("status"), At::root(pod).key("spec"));
    let generation = status.key("observedGeneration");
    if generation.int().is_some_and(|number| number < 0) {
        errors.invalid(&generation, "must be a non-negative integer");
    }
    for condition in status.key("conditions").items() {
        // Upstream writes the name of the Go field.
        let kind = condition.key("type").moved(condition.path.key("Type"));
        errors.messages(&kind, names::qualified_name(kind.text()));
    }
    for (list, of) in [
        ("containerStatuses", "containers"),
        ("initContainerStatuses", "initContainers"),
        ("ephemeralContainerStatuses", "ephemeralContainers"),
    ] {
        let containers = first_by_name(&spec.key(of));
        for entry in status.key(list).items() {
            for field in ["uid", "gid"] {
                let id = entry.keys(&["user", "linux", field]);
                if id.int().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
                    errors.invalid(&id, "must be between 0 and 2147483647, inclusive");
                }
            }
            if let Some(container) = containers.get(entry.text_of("name")) {
                devices(errors, &entry.key("allocatedResourcesStatus"), container);
            }
        }
    }
}

/// `allocatedResourcesStatus`: the health of a container's requested devices.
fn devices(errors: &mut Errors, at: &At<'_>, container: &At<'_>) {
    let resources = container.key("resources");
    for entry in at.items() {
        let name = entry.key("name");
        match name.text().strip_prefix("claim:") {
            Some(wanted) => {
                let mut claims = resources.key("claims").items();
                let known = claims.any(|claim| match (claim.text_of("name"), claim.text_of("request")) {
                    (name, "") => wanted == name,
                    (name, request) => wanted.split_once('/') == Some((name, request)),
                });
                if !known {
                    errors.invalid(
                        &name,
                        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or \
                         'claim:<claimName>' if request is empty",
                    );
                }
            }
            None if resources.key("requests").key(name.text()).present() => {}
            None => errors.invalid(&name, "must match one of the container's resource requests"),
        }
        for resource in entry.key("resources").items() {
            let health = resource.key("health");
            if !["Healthy", "Unhealthy", "Unknown"].contains(&health.text()) {
                errors.unsupported(&health, &["Healthy", "Unhealthy", "Unknown"]);
            }
        }
    }
}

/// Errors in a pod that is created (`ValidatePodCreate`).
pub(crate) fn create(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    annotations::annotations(&mut errors, &At::root(new).keys(&["metadata", "annotations"]), &at);
    spec(&mut errors, &at, kubewright_model::object::name(new));
    if !at.key("ephemeralContainers").is_empty() {
        errors.forbidden(&at.key("ephemeralContainers"), "cannot be set on create");
    }
    gated_has_no_node(&mut errors, &at);
    tokens_without_account(&mut errors, &at);
    annotations::profiles(&mut errors, &At::root(new));
    errors.into_vec()
}

/// The claim for devices that containers request by the names of resources (`validatePodExtendedResourceClaimStatus`).
pub(crate) fn extended_claims(pod: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(pod).keys(&["status", "extendedResourceClaimStatus"]);
    if !at.present() {
        return Vec::new();
    }
    let spec = At::root(pod).key("spec");
    let mappings = at.key("requestMappings");
    if mappings.is_empty() {
        errors.required(&mappings, "at least one request mapping is required");
    }
    let mut seen = BTreeSet::new();
    for mapping in mappings.items() {
        let [container, resource, request] =
            ["containerName", "resourceName", "requestName"].map(|key| mapping.key(key));
        let lists = ["initContainers", "containers"].map(|list| spec.key(list));
        let of = lists
            .iter()
            .flat_map(At::items)
            .filter(|of| of.text_of("name") == container.text());
        match of.last() {
            None => errors.invalid(
                &container,
                "must match the name of an entry in spec.initContainers.name or spec.containers.name",
            ),
            Some(of) if !of.keys(&["resources", "requests", resource.text()]).present() => errors.invalid(
                &resource,
                "must match the extended resource name of an entry in spec.initContainers.resources.requests or \
                 spec.containers.resources.requests",
            ),
            Some(_) => {}
        }
        errors.messages(
            &request.clone().moved(at.path.key("requestName")),
            names::dns1123_label(request.text()),
        );
        if !seen.insert((container.text(), resource.text(), request.text())) {
            [container, resource, request]
                .iter()
                .for_each(|part| errors.duplicate(part));
        }
    }
    let claim = at.key("resourceClaimName");
    if claim.text().is_empty() {
        errors.required(&claim, "");
    } else {
        errors.messages(&claim, names::dns1123_subdomain(claim.text()));
    }
    errors.into_vec()
}

/// A pod without a service account can have no token of it.
fn tokens_without_account(errors: &mut Errors, spec: &At<'_>) {
    if !spec.text_of("serviceAccountName").is_empty() {
        return;
    }
    for volume in spec.key("volumes").items() {
        for source in volume.keys(&["projected", "sources"]).items() {
            let token = source.key("serviceAccountToken");
            if token.present() {
                errors.forbidden(&token, "must not be specified when serviceAccountName is not set");
            }
        }
    }
}

/// Errors in a change of `/status` (`ValidatePodStatusUpdate`).
pub(crate) fn status(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("status");
    let was = At::root(old).key("status");
    for list in ["podIPs", "hostIPs"] {
        for entry in at.key(list).items() {
            check_ip(&mut errors, &entry.key("ip").moved(entry.path.clone()));
        }
    }
    let ips = at.key("podIPs");
    let families: Vec<bool> = ips
        .items()
        .filter_map(|entry| entry.text_of("ip").parse::<std::net::IpAddr>().ok())
        .map(|address| address.is_ipv4())
        .collect();
    if families.len() > 2 || (families.len() == 2 && families[0] == families[1]) {
        errors.invalid(&ips, "may specify no more than one IP for each IP family");
    }
    for list in ["podIPs", "hostIPs"] {
        let ips = at.key(list);
        let broken = ips
            .items()
            .enumerate()
            .find(|(_, entry)| entry.text_of("ip").parse::<std::net::IpAddr>().is_err());
        if let (Some((index, entry)), true) = (broken, ips.len() > 1) {
            let why = format!(
                "failed to check for dual stack with error:invalid IP[{index}]: {}",
                entry.text_of("ip")
            );
            errors.push(FieldError::internal(ips.path.to_string(), why));
            errors.invalid(&ips, "may specify no more than one IP for each IP family");
        }
    }
    details(&mut errors, new);
    if let Some(first) = at.key("hostIPs").items().next()
        && first.text_of("ip") != at.text_of("hostIP")
    {
        errors.invalid(&first.key("ip"), "must be equal to `hostIP`");
    }
    let spec = At::root(new).key("spec");
    let claims = containers::texts(&spec.key("resourceClaims"), "name");
    for claim in at.key("resourceClaimStatuses").items() {
        let name = claim.key("name");
        if !claims.contains(name.text()) {
            errors.invalid(&name, "must match the name of an entry in `spec.resourceClaims`");
        }
    }
    let class = at.key("qosClass");
    if !was.text_of("qosClass").is_empty() && class.text() != was.text_of("qosClass") {
        errors.invalid(&class, "field is immutable");
    }
    if at.has("nominatedNodeName") && !at.text_of("nominatedNodeName").is_empty() {
        errors.messages(
            &at.key("nominatedNodeName"),
            names::dns1123_subdomain(at.text_of("nominatedNodeName")),
        );
    }
    let nominated = at.key("nominatedNodeName");
    let is_new = !nominated.text().is_empty() && nominated.text() != was.text_of("nominatedNodeName");
    if is_new && !spec.text_of("nodeName").is_empty() {
        errors.forbidden(&nominated, "may not be set on pods that are already bound to a node");
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
