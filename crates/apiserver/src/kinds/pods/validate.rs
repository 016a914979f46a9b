//! Rules for a pod's spec, and for what may change in one that exists.
//!
//! [`spec`] serves pods and every pod template. Errors come in the order of Kubernetes' own validation where it is cheap to keep.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::error::FieldError;
use kubewright_schema::{internal, names};
use serde_json::Value;

use super::{annotations, containers, host, resources, scheduling, volumes};
use crate::kinds::check::{At, Errors, check_ip, ensure, get, keep};

const RESTART_POLICIES: [&str; 3] = ["Always", "OnFailure", "Never"];
const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// Errors in a `PodSpec`.
pub(crate) fn spec(errors: &mut Errors, at: &At<'_>) {
    let claims = host::claims(errors, &at.key("resourceClaims"));
    let facts = containers::PodFacts {
        claims,
        spec: at.clone(),
        volumes: volumes::volumes(errors, &at.key("volumes")),
        by_name: first_by_name(&at.key("volumes")),
        grace_period: at.key("terminationGracePeriodSeconds").int().unwrap_or(30),
    };
    containers::containers(errors, &at.key("containers"), &facts);
    containers::init_containers(errors, &at.key("initContainers"), &at.key("containers"), &facts);
    containers::ephemeral_containers(errors, &at.key("ephemeralContainers"), at, &facts);
    resources::of_pod(errors, at);
    host::network(errors, at);
    errors.one_of(&at.key("restartPolicy"), &RESTART_POLICIES, true);
    errors.one_of(&at.key("dnsPolicy"), &DNS_POLICIES, true);
    node_selector(errors, &at.key("nodeSelector"));
    containers::pod_security(errors, at);
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
            errors.messages(&name, names::dns1123_label(name.text()));
        }
    }
    hostname_override(errors, at);
    scheduling::tolerations(errors, &at.key("tolerations"));
    host_aliases(errors, &at.key("hostAliases"));
    if at.key("preemptionPolicy").present() {
        errors.one_of(&at.key("preemptionPolicy"), &["Never", "PreemptLowerPriority"], true);
    }
    resources::overhead(errors, &at.key("overhead"));
    host::host(errors, at);
}

/// The items of a list by their names; of several of one name the first.
fn first_by_name<'a>(list: &At<'a>) -> BTreeMap<&'a str, At<'a>> {
    let mut named = BTreeMap::new();
    for item in list.items() {
        named.entry(item.key("name").text()).or_insert(item);
    }
    named
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
    searches(errors, &config.key("searches"));
    for option in config.key("options").items() {
        if option.key("name").text().is_empty() {
            errors.required(&option, "must not be empty");
        }
    }
}

/// `dnsConfig.searches`: domains, whose labels may begin with an underscore, or a lone dot.
fn searches(errors: &mut Errors, at: &At<'_>) {
    const MAX: usize = 32;
    const MAX_TEXT: usize = 2048;
    if at.len() > MAX {
        errors.invalid(at, format!("must not have more than {MAX} search paths"));
    }
    let texts: Vec<&str> = at.items().map(|entry| entry.value.as_str().unwrap_or("")).collect();
    if texts.join(" ").len() > MAX_TEXT {
        errors.invalid(
            at,
            format!("must not have more than {MAX_TEXT} characters (including spaces) in the search list"),
        );
    }
    for entry in at.items().filter(|entry| entry.text() != ".") {
        let domain = entry.text().strip_suffix('.').unwrap_or(entry.text());
        for message in names::underscored_subdomain(domain) {
            errors.invalid(&entry, message);
        }
    }
}

/// `hostnameOverride`: the name of the pod's host in the pod, instead of one that is made of other fields.
fn hostname_override(errors: &mut Errors, spec: &At<'_>) {
    const MAX: usize = 64;
    let at = spec.key("hostnameOverride");
    if !at.present() {
        return;
    }
    errors.messages(&at, names::dns1123_subdomain(at.text()));
    if at.text().len() > MAX {
        errors.push(FieldError::too_long(at.path.to_string(), MAX));
    }
    for field in ["hostNetwork", "setHostnameAsFQDN"] {
        if spec.key(field).is_true() {
            errors.forbidden(&at, format!("may not be specified when {field} is true"));
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
}

/// A pod that is held back has no node yet: asked of new pods only.
fn gated_has_no_node(errors: &mut Errors, at: &At<'_>) {
    if !at.key("schedulingGates").is_empty() && !at.key("nodeName").text().is_empty() {
        errors.forbidden(
            &at.key("nodeName"),
            "cannot be set until all schedulingGates have been cleared",
        );
    }
}

fn host_aliases(errors: &mut Errors, at: &At<'_>) {
    for alias in at.items() {
        if let Some(std::net::IpAddr::V6(address)) = check_ip(errors, &alias.key("ip"))
            && address.to_ipv4_mapped().is_some()
        {
            errors.invalid(&alias.key("ip"), "must not be an IPv4-mapped IPv6 address");
        }
        for name in alias.key("hostnames").items() {
            errors.messages(&name, names::dns1123_subdomain(name.text()));
        }
    }
}

/// What a status says of conditions, of users and of devices of its containers.
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
        for entry in status.key(list).items() {
            for field in ["uid", "gid"] {
                let id = entry.keys(&["user", "linux", field]);
                if id.int().is_some_and(|id| !(0..=i64::from(i32::MAX)).contains(&id)) {
                    errors.invalid(&id, "must be between 0 and 2147483647, inclusive");
                }
            }
            let mut containers = spec.key(of).items();
            if let Some(container) = containers.find(|known| known.key("name").text() == entry.key("name").text()) {
                devices(errors, &entry.key("allocatedResourcesStatus"), &container);
            }
        }
    }
}

/// `allocatedResourcesStatus`: how what a container asked for is doing.
fn devices(errors: &mut Errors, at: &At<'_>, container: &At<'_>) {
    let resources = container.key("resources");
    for entry in at.items() {
        let name = entry.key("name");
        match name.text().strip_prefix("claim:") {
            Some(wanted) => {
                let mut claims = resources.key("claims").items();
                let known = claims.any(|claim| match (claim.key("name").text(), claim.key("request").text()) {
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

/// Errors in a pod that is created.
pub(crate) fn create(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    if !at.key("ephemeralContainers").is_empty() {
        errors.forbidden(&at.key("ephemeralContainers"), "cannot be set on create");
        return errors.into_vec();
    }
    annotations::annotations(&mut errors, &At::root(new).keys(&["metadata", "annotations"]), &at);
    spec(&mut errors, &at);
    gated_has_no_node(&mut errors, &at);
    tokens_without_account(&mut errors, &at);
    annotations::profiles(&mut errors, &At::root(new));
    errors.into_vec()
}

/// A pod without a service account can have no token of it.
fn tokens_without_account(errors: &mut Errors, spec: &At<'_>) {
    if !spec.key("serviceAccountName").text().is_empty() {
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

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
    (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Errors in a pod that changes: nearly nothing of the spec may.
pub(crate) fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    let was = At::root(old).key("spec");
    spec(&mut errors, &at);
    for list in ["containers", "initContainers"] {
        if at.key(list).len() != was.key(list).len() {
            errors.forbidden(&at.key(list), "pod updates may not add or remove containers");
            return errors.into_vec();
        }
        for container in at.key(list).items() {
            let image = container.key("image");
            if image.text().is_empty() {
                errors.required(&image, "");
            }
            if image.text().trim().len() != image.text().len() {
                errors.invalid(&image, "must not have leading or trailing whitespace");
            }
        }
    }
    if deadline(&mut errors, &at, &was) {
        return errors.into_vec();
    }
    tolerations(&mut errors, &at, &was);
    scheduling_gates(&mut errors, &at, &was);
    if at.value == was.value {
        return errors.into_vec();
    }
    let munged = with_what_may_change(&mut errors, &at, &was);
    if munged != *was.value {
        let difference = internal::difference("", "Pod", "spec", was.value, &munged);
        errors.forbidden(
            &at,
            format!("pod updates may not change fields other than {UPDATABLE}\n{difference}"),
        );
    }
    errors.into_vec()
}

/// The new spec with the old values of what may change, so that the rest can be compared.
fn with_what_may_change(errors: &mut Errors, at: &At<'_>, was: &At<'_>) -> Value {
    let mut munged = at.value.clone();
    for list in ["containers", "initContainers"] {
        let containers = munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in containers.zip(was.key(list).items()) {
            keep(container, before.value, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(&mut munged, was.value, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if was.key(grace).int().is_some_and(|seconds| seconds < 0) && at.key(grace).int() == Some(1) {
        keep(&mut munged, was.value, grace);
    }
    // While a gate holds the pod back, where it may run can still be narrowed.
    if !was.key("schedulingGates").is_empty() {
        let selector = at.key("nodeSelector");
        let changed = |(key, before): (&str, At<'_>)| selector.key(key).value != before.value;
        if was.key("nodeSelector").entries().any(changed) {
            errors.invalid(
                &selector,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        keep(&mut munged, was.value, "nodeSelector");
        let affinity = was.key("affinity");
        let others = ["podAffinity", "podAntiAffinity"];
        if !affinity.present() && others.iter().all(|kind| !at.key("affinity").key(kind).present()) {
            keep(&mut munged, was.value, "affinity");
        } else if let Some(spec) = munged.as_object_mut()
            && let Some(after) = ensure(spec, "affinity")
        {
            let mut value = Value::Object(std::mem::take(after));
            keep(&mut value, affinity.value, "nodeAffinity");
            spec.insert("affinity".to_owned(), value);
        }
    }
    munged
}

/// Whether the deadline is so wrong that nothing else is looked at.
fn deadline(errors: &mut Errors, at: &At<'_>, was: &At<'_>) -> bool {
    const FIELD: &str = "activeDeadlineSeconds";
    let new = at.key(FIELD);
    match (new.int(), was.key(FIELD).int()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(&new, "must be between 0 and 2147483647, inclusive");
            true
        }
        (Some(seconds), Some(before)) if seconds > before => {
            errors.invalid(&new, "must be less than or equal to previous value");
            true
        }
        (None, Some(_)) => {
            errors.invalid_value(
                &new,
                Value::Null,
                "must not update from a positive integer to nil value",
            );
            false
        }
        _ => false,
    }
}

fn tolerations(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let new = at.key("tolerations");
    let without_seconds = |at: &At<'_>| {
        let mut value = at.value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        value.to_string()
    };
    let kept: BTreeSet<String> = new.items().map(|toleration| without_seconds(&toleration)).collect();
    if was
        .key("tolerations")
        .items()
        .any(|toleration| !kept.contains(&without_seconds(&toleration)))
    {
        errors.forbidden(
            &new,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    } else {
        // Upstream looks at them here and with the rest.
        scheduling::tolerations(errors, &new);
    }
}

fn scheduling_gates(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let names = |at: &At<'_>| -> BTreeSet<String> {
        at.key("schedulingGates")
            .items()
            .map(|gate| gate.key("name").text().to_owned())
            .collect()
    };
    let old = names(was);
    for gate in at.key("schedulingGates").items() {
        let name = gate.key("name");
        if !old.contains(name.text()) {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            errors.forbidden(&name, why);
        }
    }
}

/// Errors in a change of `/ephemeralcontainers`: those that are there stay as they are.
pub(crate) fn ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    spec(&mut errors, &at);
    let list = at.key("ephemeralContainers");
    let named = first_by_name(&list);
    for before in At::root(old).keys(&["spec", "ephemeralContainers"]).items() {
        let name = before.key("name").text();
        match named.get(name) {
            None => errors.forbidden(
                &list,
                format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(after) if after.value != before.value => {
                let path = "spec.ephemeralContainers[0]";
                let difference = internal::difference("", "Pod", path, before.value, after.value);
                errors.forbidden(
                    &list,
                    format!("existing ephemeral containers {name:?} may not be changed\n{difference}"),
                );
            }
            Some(_) => {}
        }
    }
    errors.into_vec()
}

/// Errors in a change of `/resize`: requests and limits fit each other, and the class of the pod stays.
pub(crate) fn resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (at, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
    spec(&mut errors, &at);
    if was.key("os").key("name").text() == "windows" {
        let mut only = Errors::default();
        only.push(FieldError::forbidden("", "windows pods cannot be resized"));
        return only.into_vec();
    }
    let class = super::qos_class(old);
    if super::qos_class(new) != class {
        errors.invalid_value(&at, class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = At::root(old)
        .keys(&["status", "containerStatuses"])
        .items()
        .find(|status| status.keys(&["state", "running"]).present())
        .map(|status| status.key("resources").present());
    if running == Some(false) {
        errors.forbidden(&at, "Pod running on node without support for resize");
    }
    let known = errors.len();
    for list in ["containers", "initContainers"] {
        if at.key(list).len() != was.key(list).len() {
            errors.forbidden(&at.key(list), format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, before) in at.key(list).items().zip(was.key(list).items()) {
            if container.key("name").text() != before.key("name").text() {
                errors.forbidden(
                    &container.key("name"),
                    format!("{list} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    if errors.len() > known {
        return errors.into_vec();
    }
    for list in ["initContainers", "containers"] {
        for (container, before) in at.key(list).items().zip(was.key(list).items()) {
            if list == "containers" || container.key("restartPolicy").text() == "Always" {
                nothing_removed(&mut errors, &container.key("resources"), &before.key("resources"));
            }
        }
    }
    only_cpu_and_memory(&mut errors, &at, &was);
    errors.into_vec()
}

fn nothing_removed(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    for list in ["requests", "limits"] {
        let now = new.key(list);
        if old.key(list).entries().any(|(name, _)| !now.key(name).present()) {
            errors.forbidden(&now, format!("resource {list} cannot be removed"));
        }
    }
}

fn only_cpu_and_memory(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let others = |container: &At<'_>| {
        let mut value = container.value.clone();
        for list in ["requests", "limits"] {
            let amounts = value
                .pointer_mut(&format!("/resources/{list}"))
                .and_then(Value::as_object_mut);
            if let Some(amounts) = amounts {
                amounts.remove("cpu");
                amounts.remove("memory");
            }
        }
        // An empty list of amounts is none.
        if let Some(resources) = value.get_mut("resources").and_then(Value::as_object_mut) {
            resources.retain(|_, amounts| amounts.as_object().is_none_or(|amounts| !amounts.is_empty()));
        }
        value
    };
    for (container, before) in at.key("containers").items().zip(was.key("containers").items()) {
        if others(&container) != others(&before) {
            errors.forbidden(at, "only cpu and memory resources are mutable");
        }
    }
    for (container, before) in at.key("initContainers").items().zip(was.key("initContainers").items()) {
        if container.key("restartPolicy").text() == "Always" {
            if others(&container) != others(&before) {
                errors.forbidden(
                    &container,
                    "only cpu and memory resources for init or sidecar containers are mutable",
                );
            }
        } else if container.value != before.value {
            errors.forbidden(at, "resources for non-sidecar init containers are immutable");
        }
    }
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
    let ips = at.key("podIPs");
    let families: Vec<bool> = ips
        .items()
        .filter_map(|entry| entry.key("ip").text().parse::<std::net::IpAddr>().ok())
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
            .find(|(_, entry)| entry.key("ip").text().parse::<std::net::IpAddr>().is_err());
        if let (Some((index, entry)), true) = (broken, ips.len() > 1) {
            let why = format!(
                "failed to check for dual stack with error:invalid IP[{index}]: {}",
                entry.key("ip").text()
            );
            errors.push(FieldError::internal(ips.path.to_string(), why));
            errors.invalid(&ips, "may specify no more than one IP for each IP family");
        }
    }
    details(&mut errors, new);
    if let Some(first) = at.key("hostIPs").items().next()
        && first.key("ip").text() != at.key("hostIP").text()
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
    if !was.key("qosClass").text().is_empty() && class.text() != was.key("qosClass").text() {
        errors.invalid(&class, "field is immutable");
    }
    if at.key("nominatedNodeName").present() && !at.key("nominatedNodeName").text().is_empty() {
        errors.messages(
            &at.key("nominatedNodeName"),
            names::dns1123_subdomain(at.key("nominatedNodeName").text()),
        );
    }
    let nominated = at.key("nominatedNodeName");
    let is_new = !nominated.text().is_empty() && nominated.text() != was.key("nominatedNodeName").text();
    if is_new && !spec.key("nodeName").text().is_empty() {
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
