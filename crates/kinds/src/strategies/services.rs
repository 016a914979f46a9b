//! Services: defaults, and the rules for ports, addresses and types.
//!
//! Allocations are not a state of their own: [`allocation`] derives them from the stored Services each time, so that
//! they cannot leak or disagree.
//!
//! Not here: endpoints, load balancers.

mod allocation;
mod node_ports;

use std::collections::BTreeSet;
use std::net::IpAddr;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{
    At, Errors, Object, absent, check_ip, check_port, check_port_or_name, child, each, ensure, fill, fill_text, get,
    keep, text,
};
use super::ranges;
use kubewright_model::{Allocation, NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext};

/// How Services are written.
pub(crate) const SERVICE: Strategy = Strategy {
    create_on_update: true,
    // Kubernetes 1.36 takes any RFC 1123 label.
    names: NameRule::Label,
    delete_returns_object: true,
    status_metadata: StatusMetadata::WRITTEN,
    default,
    prepare_create,
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: |new| service(new, &Value::Null),
    validate_update: update,
    validate_status: |new, _| {
        let mut errors = Errors::default();
        let ingress = At::root(new).keys(&["status", "loadBalancer", "ingress"]);
        if !ingress.is_empty() && get(new, &["spec", "type"]) != "LoadBalancer" {
            errors.forbidden(&ingress, "may only be used when `spec.type` is 'LoadBalancer'");
        } else {
            load_balancer(&mut errors, &ingress, true);
        }
        errors.into_vec()
    },
    warnings: super::service_warnings::warnings,
    allocate: Some(Allocation {
        values: allocation::allocated_values,
        give: allocation::allocate,
    }),
    ..PLAIN
};

/// Where a load balancer listens: addresses and names, of services and of Ingresses (`ValidateLoadBalancerStatus`).
pub(super) fn load_balancer(errors: &mut Errors, at: &At<'_>, wants_mode: bool) {
    for entry in at.items() {
        let (ip, mode, host) = (entry.key("ip"), entry.key("ipMode"), entry.key("hostname"));
        if !ip.text().is_empty() {
            check_ip(errors, &ip);
        }
        // The spec that a status comes with says whether addresses get a mode; of an Ingress they have none.
        if wants_mode && !mode.present() && !ip.text().is_empty() {
            errors.required(&mode, "must be specified when `ip` is set");
        } else if mode.present() && ip.text().is_empty() {
            errors.forbidden(&mode, "may not be specified when `ip` is not set");
        } else {
            errors.one_of(&mode, &["Proxy", "VIP"], false);
        }
        if host.text().parse::<std::net::IpAddr>().is_ok() {
            errors.invalid(&host, "must be a DNS name, not an IP address");
        } else if !host.text().is_empty() {
            errors.messages(&host, names::dns1123_subdomain(host.text()));
        }
    }
}

fn default(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        ensure(status, "loadBalancer");
    }
    let is_balanced = object
        .get("spec")
        .is_some_and(|spec| get(spec, &["type"]) == "LoadBalancer");
    let balancer = child(object, "status").and_then(|status| child(status, "loadBalancer"));
    for entry in balancer.into_iter().flat_map(|balancer| each(balancer, "ingress")) {
        if is_balanced && !text(entry, "ip").is_empty() {
            fill(entry, "ipMode", "VIP");
        }
    }
    let Some(spec) = ensure(object, "spec") else { return };
    fill_text(spec, "sessionAffinity", "None");
    match text(spec, "sessionAffinity") {
        "None" => {
            spec.remove("sessionAffinityConfig");
        }
        "ClientIP" => {
            if let Some(client) = ensure(spec, "sessionAffinityConfig").and_then(|config| ensure(config, "clientIP")) {
                fill(client, "timeoutSeconds", 10_800);
            }
        }
        _ => {}
    }
    fill_text(spec, "type", "ClusterIP");
    for port in each(spec, "ports") {
        fill_text(port, "protocol", "TCP");
        if absent(port, "targetPort") || port["targetPort"] == 0 || port["targetPort"] == "" {
            let number = port.get("port").cloned().unwrap_or(Value::Null);
            port.insert("targetPort".to_owned(), number);
        }
        // 0 is the same as absent here, and is not written.
        if port.get("nodePort") == Some(&json!(0)) {
            port.remove("nodePort");
        }
    }
    if may_have_node_ports(text(spec, "type")) || text(spec, "type") == "ClusterIP" && has_items(spec, "externalIPs") {
        fill_text(spec, "externalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") != "ExternalName" {
        fill(spec, "internalTrafficPolicy", "Cluster");
    }
    if text(spec, "type") == "LoadBalancer" {
        fill(spec, "allocateLoadBalancerNodePorts", true);
    }
}

fn has_items(spec: &Object, key: &str) -> bool {
    spec.get(key)
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
}

fn may_have_node_ports(kind: &str) -> bool {
    matches!(kind, "NodePort" | "LoadBalancer")
}

fn type_of(service: &Value) -> &str {
    get(service, &["spec", "type"]).as_str().unwrap_or("")
}

fn needs_cluster_ip(service: &Value) -> bool {
    type_of(service) != "ExternalName"
}

/// Whether other machines than those of the cluster may reach it.
fn is_reachable(service: &Value) -> bool {
    match type_of(service) {
        "NodePort" | "LoadBalancer" => true,
        "ClusterIP" => get(service, &["spec", "externalIPs"])
            .as_array()
            .is_some_and(|list| !list.is_empty()),
        _ => false,
    }
}

fn needs_health_check_port(service: &Value) -> bool {
    type_of(service) == "LoadBalancer" && get(service, &["spec", "externalTrafficPolicy"]) == "Local"
}

fn is_headless(service: &Value) -> bool {
    get(service, &["spec", "clusterIPs"]) == &json!(["None"])
}

fn prepare_create(object: &mut Value, _: &StrategyContext<'_>) {
    if let Some(object) = object.as_object_mut() {
        object.insert("status".to_owned(), json!({"loadBalancer": {}}));
    }
}

/// `validateService`.
fn service(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let known = get(old, &["spec", "loadBalancerSourceRanges"]);
    let spec = At::root(new).key("spec");
    let kind = spec.key("type").text();
    let headless = spec.key("clusterIP").text() == "None";
    if spec.key("ports").is_empty() && !headless && kind != "ExternalName" {
        errors.required(&spec.key("ports"), "");
    }
    for_type(&mut errors, &spec, kind, headless);
    ports(&mut errors, &spec);
    selector(&mut errors, &spec.key("selector"));
    errors.one_of(&spec.key("sessionAffinity"), &["ClientIP", "None"], true);
    let timeout = spec.keys(&["sessionAffinityConfig", "clientIP", "timeoutSeconds"]);
    if spec.key("sessionAffinity").text() == "ClientIP"
        && timeout.int().is_some_and(|seconds| !(1..=86_400).contains(&seconds))
    {
        errors.invalid(&timeout, "must be greater than 0 and less than 86400");
    }
    ips(&mut errors, &spec, kind);
    for ip in spec.key("externalIPs").items() {
        external_ip(&mut errors, &ip);
    }
    errors.one_of(
        &spec.key("type"),
        &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"],
        true,
    );
    common_ports(&mut errors, &spec, kind);
    let notes = At::root(new).keys(&["metadata", "annotations"]);
    let note = notes.key(SOURCE_RANGES).moved(notes.path.map_key(SOURCE_RANGES));
    balancer(&mut errors, &note, &spec, kind, known);
    policies(&mut errors, &spec, kind, is_reachable(new));
    errors.into_vec()
}

const EXTERNAL: &str = "may not be set for ExternalName services";

/// `validateService`.
fn for_type(errors: &mut Errors, spec: &At<'_>, kind: &str, headless: bool) {
    match kind {
        "LoadBalancer" | "NodePort" if headless => {
            errors.invalid_value(
                &spec.key("clusterIPs").moved(spec.path.key("clusterIPs").index(0)),
                "None",
                format!("may not be set to 'None' for {kind} services"),
            );
        }
        "ExternalName" => {
            for field in ["clusterIPs", "ipFamilies"] {
                if !spec.key(field).is_empty() {
                    errors.forbidden(&spec.key(field), EXTERNAL);
                }
            }
            if spec.key("ipFamilyPolicy").present() {
                errors.forbidden(&spec.key("ipFamilyPolicy"), EXTERNAL);
            }
            let name = spec.key("externalName");
            if name.text().is_empty() {
                errors.required(&name, "");
            } else {
                errors.messages(
                    &name,
                    names::dns1123_subdomain(name.text().strip_suffix('.').unwrap_or(name.text())),
                );
            }
        }
        _ => {}
    }
}

/// The fields that only a load balancer has. Ranges in `known` were accepted before, however they are written.
/// `validateService`.
fn balancer(errors: &mut Errors, note: &At<'_>, spec: &At<'_>, kind: &str, known: &Value) {
    // The path stands so in Kubernetes.
    let list = spec.key("loadBalancerSourceRanges");
    let list = list.moved(spec.path.key("LoadBalancerSourceRanges"));
    if kind != "LoadBalancer" && !list.is_empty() {
        errors.forbidden(&list, ONLY_BALANCED);
    }
    // The forerunner of the field.
    if list.is_empty() && note.present() {
        if kind != "LoadBalancer" {
            errors.forbidden(note, ONLY_BALANCED);
        }
        let text = note.text().trim();
        for part in text.split(',').filter(|_| !text.is_empty()) {
            ranges::check(errors, note, part.trim(), known);
        }
    }
    for range in list.items() {
        ranges::check(errors, &range, range.text().trim(), known);
    }
    let ports = spec.key("allocateLoadBalancerNodePorts");
    if kind != "LoadBalancer" && ports.present() {
        errors.forbidden(&ports, ONLY_BALANCED);
    }
    balancer_class(errors, &spec.key("loadBalancerClass"), kind);
}

/// The annotation that is `loadBalancerSourceRanges` now.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

/// `validateLoadBalancerClassField`.
fn balancer_class(errors: &mut Errors, class: &At<'_>, kind: &str) {
    if !class.present() {
    } else if kind == "LoadBalancer" {
        errors.messages(class, names::qualified_name(class.text()));
    } else {
        errors.forbidden(class, ONLY_BALANCED);
    }
}

/// `validateServicePort`.
fn ports(errors: &mut Errors, spec: &At<'_>) {
    let list = spec.key("ports");
    let several = list.len() > 1;
    let mut names_seen = BTreeSet::new();
    for port in list.items() {
        let name = port.key("name");
        if name.text().is_empty() {
            if several {
                errors.required(&name, "");
            }
        } else {
            errors.messages(&name, names::dns1123_label(name.text()));
            if !names_seen.insert(name.text()) {
                errors.duplicate(&name);
            }
        }
        check_port(errors, &port.key("port"));
        errors.one_of(&port.key("protocol"), &["SCTP", "TCP", "UDP"], true);
        check_port_or_name(errors, &port.key("targetPort"));
        let app = port.key("appProtocol");
        if app.present() {
            errors.messages(&app, names::qualified_name(app.text()));
        }
    }
}

/// Values that two ports may not share, checked after each port: the node port, and the port with its protocol.
/// `validateService`.
fn common_ports(errors: &mut Errors, spec: &At<'_>, kind: &str) {
    let list = spec.key("ports");
    let mut seen = BTreeSet::new();
    for port in list.items() {
        let node = port.key("nodePort");
        let Some(number) = node.int().filter(|number| *number != 0) else {
            continue;
        };
        if kind == "ClusterIP" {
            errors.forbidden(&node, format!("may not be used when `type` is '{kind}'"));
        }
        if !seen.insert((number, port.key("protocol").text())) {
            errors.duplicate(&node);
        }
    }
    let mut seen = BTreeSet::new();
    for port in list.items() {
        let protocol = port.key("protocol").text();
        if !seen.insert((port.key("port").int(), protocol)) {
            // Only the fields that tell the two ports apart.
            let shown = json!({"protocol": protocol, "port": port.key("port").value});
            errors.push(FieldError::duplicate(port.path.to_string(), shown));
        }
    }
}

/// `validateService`.
fn selector(errors: &mut Errors, at: &At<'_>) {
    if at.present() {
        errors.extend(names::labels(at.value, &at.path));
    }
}

/// The fields about addresses and their families, which must agree before anything is allocated.
/// `ValidateServiceClusterIPsRelatedFields`.
fn ips(errors: &mut Errors, spec: &At<'_>, kind: &str) {
    if kind == "ExternalName" {
        return;
    }
    let (list, single) = (spec.key("clusterIPs"), spec.key("clusterIP"));
    match list.value.get(0).and_then(Value::as_str) {
        None if !single.text().is_empty() => errors.required(&list, ""),
        Some(_) if single.text().is_empty() => {
            errors.invalid(&list, "must be empty when `clusterIP` is not specified");
        }
        Some(first) if first != single.text() => errors.invalid(&list, "first value must match `clusterIP`"),
        _ => {}
    }
    let mut seen = BTreeSet::new();
    for family in spec.key("ipFamilies").items() {
        errors.one_of_all(&family, &["IPv4", "IPv6"]);
        if !seen.insert(family.text()) {
            errors.duplicate(&family);
        }
    }
    errors.one_of_all(
        &spec.key("ipFamilyPolicy"),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
    );
    let before = errors.len();
    for (index, ip) in list.items().enumerate() {
        if index > 0 || ip.text() != "None" {
            check_ip(errors, &ip);
        } else if list.len() > 1 {
            errors.invalid(&list, "'None' must be the first and only value");
        }
    }
    let readable = errors.len() == before;
    if list.len() > 2 {
        errors.invalid(&list, "may only hold up to 2 values");
    }
    // A text that is not an address has no family.
    if readable {
        families_of(errors, spec, &list);
    }
}

/// `ValidateServiceClusterIPsRelatedFields`.
fn families_of(errors: &mut Errors, spec: &At<'_>, list: &At<'_>) {
    let is_six = |ip: &At<'_>| ip.text().contains(':');
    let sixes = list.items().filter(|ip| is_six(ip)).count();
    if list.len() > 1 && (sixes == 0 || sixes == list.len()) {
        errors.invalid(list, "may specify no more than one IP for each IP family");
    }
    if list.len() == 1 && list.value[0] == "None" {
        return;
    }
    for (index, (ip, family)) in list.items().zip(spec.key("ipFamilies").items()).enumerate() {
        let family = family.text();
        if (family == "IPv4" && is_six(&ip)) || (family == "IPv6" && !is_six(&ip)) {
            let why = format!("expected an {family} value as indicated by `ipFamilies[{index}]`");
            errors.invalid(&ip, why);
        }
    }
}

/// `validateService`.
fn external_ip(errors: &mut Errors, at: &At<'_>) {
    if let Some(ip) = check_ip(errors, at) {
        ordinary_ip(errors, at, ip);
    }
}

/// The error for a loopback address.
pub(crate) const LOOPBACK: &str = "may not be in the loopback range (127.0.0.0/8, ::1/128)";

/// An address that other machines can reach (`ValidateEndpointIP`).
pub(super) fn ordinary_ip(errors: &mut Errors, at: &At<'_>, ip: IpAddr) {
    let why = if ip == IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED) {
        "may not be unspecified (0.0.0.0)"
    } else if ip.is_unspecified() {
        "may not be unspecified (::)"
    } else if ip.is_loopback() {
        LOOPBACK
    } else if is_link_local(ip) {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if is_link_local_multicast(ip) {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return;
    };
    errors.invalid(at, why);
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// `net.IP.IsLinkLocalMulticast`.
fn is_link_local_multicast(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(ip) => ip.segments()[0] & 0xff0f == 0xff02,
    }
}

/// `validateServiceExternalTrafficPolicy`.
fn policies(errors: &mut Errors, spec: &At<'_>, kind: &str, is_reachable: bool) {
    let external = spec.key("externalTrafficPolicy");
    if !is_reachable {
        if !external.text().is_empty() {
            errors.invalid(&external, "may only be set for externally-accessible services");
        }
    } else {
        errors.one_of(&external, &["Cluster", "Local"], true);
    }
    let check = spec.key("healthCheckNodePort");
    if check.int().is_some_and(|port| port != 0) && !(kind == "LoadBalancer" && external.text() == "Local") {
        errors.invalid(
            &check,
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'",
        );
    }
    if check.int().is_some_and(|port| port != 0) && kind == "LoadBalancer" && external.text() == "Local" {
        check_port(errors, &check);
    }
    let internal = spec.key("internalTrafficPolicy");
    errors.one_of_all(&internal, &["Cluster", "Local"]);
    errors.one_of_all(
        &spec.key("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
    );
}

/// `ValidateServiceUpdate` and `validateServiceExternalTrafficFieldsUpdate`.
fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        kept_ips(&mut errors, new, old);
        kept_families(&mut errors, new, old);
    }
    let class = At::root(new).keys(&["spec", "loadBalancerClass"]);
    if type_of(old) == "LoadBalancer"
        && type_of(new) == "LoadBalancer"
        && class.value != get(old, &["spec", "loadBalancerClass"])
    {
        errors.invalid(&class, CHANGED);
    }
    // Kubernetes looks at it here and with the rest.
    balancer_class(&mut errors, &class, type_of(new));
    let check = At::root(new).keys(&["spec", "healthCheckNodePort"]);
    if needs_health_check_port(old)
        && needs_health_check_port(new)
        && check.value != get(old, &["spec", "healthCheckNodePort"])
    {
        errors.forbidden(&check, "field is immutable");
    }
    errors.extend(service(new, old));
    errors.into_vec()
}

const CHANGED: &str = "may not change once set";

/// A second address may come and go, the first stays (`validateUpgradeDowngradeClusterIPs`).
fn kept_ips(errors: &mut Errors, new: &Value, old: &Value) {
    if is_headless(new) && is_headless(old) {
        return;
    }
    let spec = At::root(new).key("spec");
    let (ips, before) = (spec.key("clusterIPs"), At::root(old).keys(&["spec", "clusterIPs"]));
    let changed = |errors: &mut Errors, index: usize, why: &str| {
        errors.invalid(&ips.moved(ips.path.index(index)), why);
    };
    if ips.len() == before.len() {
        for (index, (ip, was)) in ips.items().zip(before.items()).enumerate() {
            if ip.value != was.value {
                changed(errors, index, CHANGED);
            }
        }
        return;
    }
    if ips.is_empty() {
        changed(errors, 0, "primary clusterIP can not be unset");
    } else if !before.is_empty() && ips.value.get(0) != before.value.get(0) {
        changed(errors, 0, CHANGED);
    }
    let policy = spec.key("ipFamilyPolicy");
    if ips.len() == 1 && before.len() > 1 && policy.text() != "SingleStack" {
        errors.invalid(
            &policy,
            "must be set to 'SingleStack' when releasing the secondary clusterIP",
        );
    }
}

/// So do families, but of a Service that is headless or was (`validateUpgradeDowngradeIPFamilies`).
fn kept_families(errors: &mut Errors, new: &Value, old: &Value) {
    if is_headless(new) || is_headless(old) {
        return;
    }
    let spec = At::root(new).key("spec");
    let (families, before) = (spec.key("ipFamilies"), At::root(old).keys(&["spec", "ipFamilies"]));
    let first = families.path.index(0);
    if families.len() == before.len() {
        for _ in families
            .items()
            .zip(before.items())
            .filter(|(now, was)| now.value != was.value)
        {
            errors.invalid(&families.moved(first.clone()), CHANGED);
        }
        return;
    }
    let ips = spec.key("clusterIPs");
    let is_released = families.len() < before.len();
    if is_released && ips.is_empty() {
        errors.invalid(&families.moved(first.clone()), "primary ipFamily can not be unset");
    }
    if !before.is_empty() && !families.is_empty() && families.value.get(0) != before.value.get(0) {
        // Upstream shows the addresses here.
        errors.invalid(&ips.moved(first), CHANGED);
    }
    let policy = spec.key("ipFamilyPolicy");
    if is_released && families.len() == 1 && policy.text() != "SingleStack" {
        errors.invalid(
            &policy,
            "must be set to 'SingleStack' when releasing the secondary ipFamily",
        );
    }
}
