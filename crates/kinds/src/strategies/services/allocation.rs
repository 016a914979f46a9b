//! The scarce values that a Service is given: address families, cluster IPs and ([`super::node_ports`]) node ports.
//!
//! The order is upstream's, because each step sees the result of the step before: fields that the client left out stay
//! as they were, fields that say the same twice agree, families are settled, addresses and ports are allocated, and
//! fields that the new type does not have are dropped.
//!
//! Invariants: two stored Services never share a cluster IP or the number of a node port (whatever the protocol); a
//! Service keeps what it has as long as its type needs it; a dry run allocates only values that are free.
//!
//! Not here: the rules that the whole Service must obey (`services.rs`), IPv6 (the cluster has one family, as a default
//! kube-apiserver).

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};

use super::node_ports::{Ports, health_check_port, is_given_node_ports, keep_node_ports, node_ports};
use super::{ips, is_headless, is_reachable, may_have_node_ports, needs_cluster_ip, needs_health_check_port, type_of};
use crate::strategies::check::{At, Errors, Object, each, get};
use kubewright_model::{AllocatedValue, AllocatedValues, StrategyContext, Unallocated};

/// The one family that the cluster has addresses of.
const FAMILY: &str = "IPv4";

/// Settles the families of a Service and gives it its addresses and ports.
pub(super) fn allocate(
    service: &mut Value,
    old: Option<&Value>,
    taken: &AllocatedValues,
    context: &StrategyContext<'_>,
) -> Result<(), Unallocated> {
    if let Some(old) = old {
        keep_allocated(service, old);
    }
    link_ips(service, old);
    families(service, old)?;
    if needs_cluster_ip(service) && old.is_none_or(|old| !needs_cluster_ip(old)) {
        cluster_ips(service, taken, context)?;
    }
    let mut ports = Ports {
        taken,
        given: Vec::new(),
        context,
    };
    match old {
        _ if !may_have_node_ports(type_of(service)) => {}
        None => ports.of_new(service)?,
        Some(old) => ports.of_changed(service, old)?,
    }
    if needs_health_check_port(service) && !old.is_some_and(needs_health_check_port) {
        ports.health_check(service)?;
    }
    if let Some(old) = old {
        drop_what_the_type_lacks(service, old);
    }
    // `internalTrafficPolicy` was once a default of every type; it has no meaning for an ExternalName Service. Another
    // word is left there for validation to refuse.
    if type_of(service) == "ExternalName" && matches!(word(service, "internalTrafficPolicy"), "Cluster" | "Local") {
        remove(service, "internalTrafficPolicy");
    }
    Ok(())
}

pub(super) fn spec(service: &mut Value) -> Option<&mut Object> {
    service.get_mut("spec").and_then(Value::as_object_mut)
}

pub(super) fn set(service: &mut Value, field: &str, value: impl Into<Value>) {
    if let Some(spec) = spec(service) {
        spec.insert(field.to_owned(), value.into());
    }
}

fn remove(service: &mut Value, field: &str) {
    if let Some(spec) = spec(service) {
        spec.remove(field);
    }
}

/// The texts of a list of the spec.
fn texts<'a>(service: &'a Value, field: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    let items = get(service, &["spec", field]).as_array().into_iter().flatten();
    items.filter_map(Value::as_str)
}

fn list(service: &Value, field: &str) -> Vec<String> {
    texts(service, field).map(str::to_owned).collect()
}

fn same_list(service: &Value, old: &Value, field: &str) -> bool {
    texts(service, field).eq(texts(old, field))
}

/// Whether the endpoints are the user's own, of either family: a headless Service without a selector.
fn has_own_endpoints(service: &Value) -> bool {
    let selector = get(service, &["spec", "selector"]).as_object();
    is_headless(service) && selector.is_none_or(Object::is_empty)
}

fn word<'a>(service: &'a Value, field: &str) -> &'a str {
    get(service, &["spec", field]).as_str().unwrap_or("")
}

pub(super) fn refuse(errors: Errors) -> Result<(), Unallocated> {
    if errors.is_empty() {
        return Ok(());
    }
    Err(Unallocated::Invalid(errors.into_vec()))
}

/// The addresses and ports of a stored Service.
pub(super) fn allocated_values(service: &Value) -> Vec<AllocatedValue> {
    let ips = texts(service, "clusterIPs").filter_map(|ip| ip.parse().ok());
    let ports = node_ports(service).chain(health_check_port(service));
    ips.map(AllocatedValue::Ip)
        .chain(ports.map(AllocatedValue::Port))
        .collect()
}

/// Whether a cluster IP is taken: by a Service, or by an IPAddress object with this name.
fn is_taken(ip: IpAddr, taken: &AllocatedValues, context: &StrategyContext<'_>) -> bool {
    taken.has(AllocatedValue::Ip(ip)) || context.reserved_ips.is_reserved(ip)
}

/// A client that leaves out allocated values keeps them.
fn keep_allocated(service: &mut Value, old: &Value) {
    if needs_cluster_ip(service) && needs_cluster_ip(old) {
        if word(service, "clusterIP").is_empty() {
            set(service, "clusterIP", word(old, "clusterIP"));
        }
        if list(service, "clusterIPs").is_empty() {
            set(service, "clusterIPs", list(old, "clusterIPs"));
        }
    }
    if is_given_node_ports(service) && is_given_node_ports(old) {
        keep_node_ports(service, old);
    }
    if needs_health_check_port(service)
        && health_check_port(service).is_none()
        && let Some(port) = health_check_port(old)
    {
        set(service, "healthCheckNodePort", port);
    }
}

/// `clusterIP` is the first of `clusterIPs`: a client that changes only one of them means both.
fn link_ips(service: &mut Value, old: Option<&Value>) {
    let single = word(service, "clusterIP").to_owned();
    let Some(old) = old else {
        if !single.is_empty() && list(service, "clusterIPs").is_empty() {
            set(service, "clusterIPs", json!([single]));
        }
        return;
    };
    let (before, were) = (word(old, "clusterIP"), list(old, "clusterIPs"));
    if single == before {
        if !were.is_empty() && list(service, "clusterIPs").is_empty() {
            set(service, "clusterIPs", were);
        }
    } else if list(service, "clusterIPs") == were {
        if single.is_empty() {
            remove(service, "clusterIPs");
        } else {
            set(service, "clusterIPs", json!([single]));
        }
    }
}

/// Settles `ipFamilyPolicy` and `ipFamilies`, and refuses addresses of families that the cluster does not have.
fn families(service: &mut Value, old: Option<&Value>) -> Result<(), Unallocated> {
    if !needs_cluster_ip(service) || old.is_some_and(|old| stays_preferred(service, old)) {
        return Ok(());
    }
    if !At::root(service).keys(&["spec", "ipFamilyPolicy"]).present() {
        let policy = first_policy(service, old).to_owned();
        set(service, "ipFamilyPolicy", policy);
    }
    let mut errors = Errors::default();
    ips(&mut errors, &At::root(service).key("spec"), type_of(service));
    refuse(errors)?;
    let mut errors = Errors::default();
    if let Some(old) = old {
        release(&mut errors, service, old);
    }
    too_many_for_the_policy(&mut errors, service);
    infer_families(&mut errors, service);
    refuse(errors)?;
    if has_own_endpoints(service) {
        families_without_selector(service);
        return Ok(());
    }
    let mut errors = Errors::default();
    has_families(&mut errors, service);
    refuse(errors)?;
    if list(service, "ipFamilies").is_empty() {
        set(service, "ipFamilies", json!([FAMILY]));
    }
    Ok(())
}

/// A Service that prefers two families keeps the families it got when there was one, until a client says otherwise.
fn stays_preferred(service: &Value, old: &Value) -> bool {
    let prefers = |service: &Value| word(service, "ipFamilyPolicy") == "PreferDualStack";
    type_of(service) == type_of(old)
        && prefers(service)
        && (prefers(old) || word(old, "ipFamilyPolicy").is_empty())
        && ["clusterIPs", "ipFamilies"]
            .iter()
            .all(|field| same_list(service, old, field))
}

fn first_policy<'a>(service: &Value, old: Option<&'a Value>) -> &'a str {
    let before = old.map_or("", |old| word(old, "ipFamilyPolicy"));
    if !before.is_empty() {
        before
    } else if has_own_endpoints(service) {
        "RequireDualStack"
    } else {
        "SingleStack"
    }
}

/// A second address or family goes by asking for a single one, and by nothing else (`initIPFamilyFields`).
fn release(errors: &mut Errors, service: &mut Value, old: &Value) {
    let is_single = word(service, "ipFamilyPolicy") == "SingleStack";
    for (field, what) in [("clusterIPs", "cluster IP"), ("ipFamilies", "IP family")] {
        let (mut now, before) = (list(service, field), list(old, field));
        if is_single && now == before && now.len() > 1 {
            now.truncate(1);
            set(service, field, now);
        } else if !is_single && !now.is_empty() && now.len() < before.len() {
            let policy = At::root(service).keys(&["spec", "ipFamilyPolicy"]);
            errors.invalid(
                &policy,
                format!("must be 'SingleStack' to release the secondary {what}"),
            );
        }
    }
}

/// `initIPFamilyFields`.
fn too_many_for_the_policy(errors: &mut Errors, service: &Value) {
    let policy = At::root(service).keys(&["spec", "ipFamilyPolicy"]);
    if policy.text() != "SingleStack" {
        return;
    }
    for (field, what) in [("clusterIPs", "cluster IPs"), ("ipFamilies", "IP families")] {
        if list(service, field).len() == 2 {
            let why = format!("must be 'RequireDualStack' or 'PreferDualStack' when multiple {what} are specified");
            errors.invalid(&policy, why);
        }
    }
}

/// Addresses that were asked for say which families are meant (`initIPFamilyFields`).
fn infer_families(errors: &mut Errors, service: &mut Value) {
    let mut families = list(service, "ipFamilies");
    let known = families.len();
    for (index, ip) in list(service, "clusterIPs").iter().enumerate().skip(known) {
        if ip == "None" {
            break;
        }
        if ip.contains(':') {
            let ips = At::root(service).keys(&["spec", "clusterIPs"]);
            errors.invalid(
                &ips.moved(ips.path.index(index)),
                "IPv6 is not configured on this cluster",
            );
        } else {
            families.push(FAMILY.to_owned());
        }
    }
    if families.len() > known {
        set(service, "ipFamilies", families);
    }
}

fn families_without_selector(service: &mut Value) {
    let mut families = list(service, "ipFamilies");
    if families.is_empty() {
        families.push(FAMILY.to_owned());
    }
    if families.len() < 2 && word(service, "ipFamilyPolicy") != "SingleStack" {
        let other = if families[0] == FAMILY { "IPv6" } else { FAMILY };
        families.push(other.to_owned());
    }
    set(service, "ipFamilies", families);
}

/// `initIPFamilyFields`.
fn has_families(errors: &mut Errors, service: &Value) {
    let spec = At::root(service).key("spec");
    let policy = spec.key("ipFamilyPolicy");
    if policy.text() == "RequireDualStack" {
        errors.invalid(&policy, "this cluster is not configured for dual-stack services");
    }
    for family in spec.key("ipFamilies").items().filter(|family| family.text() != FAMILY) {
        errors.invalid(&family, "not configured on this cluster");
    }
}

fn cluster_ips(service: &mut Value, taken: &AllocatedValues, context: &StrategyContext<'_>) -> Result<(), Unallocated> {
    let ips = At::root(service).keys(&["spec", "clusterIPs"]);
    let wanted = ips.value.get(0).and_then(Value::as_str).unwrap_or("").to_owned();
    if wanted == "None" {
        return Ok(());
    }
    if wanted.is_empty() {
        let free = free_ip(taken, context).ok_or_else(|| {
            let name = get(service, &["metadata", "name"]).as_str().unwrap_or("");
            Unallocated::Failed(format!(
                "failed to allocate a serviceIP for Service {name:?}: range is full"
            ))
        })?;
        set(service, "clusterIP", free.to_string());
        set(service, "clusterIPs", json!([free.to_string()]));
        return Ok(());
    }
    let Ok(ip) = wanted.parse::<IpAddr>() else {
        return Ok(());
    };
    let range = context.service_range;
    let why = if !matches!(ip, IpAddr::V4(ip) if range.contains(ip)) {
        if context.dry_run {
            format!("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}")
        } else {
            "the provided network does not match the current range".to_owned()
        }
    } else if is_taken(ip, taken, context) {
        "provided IP is already allocated".to_owned()
    } else {
        return Ok(());
    };
    let mut errors = Errors::default();
    errors.invalid(&ips, format!("failed to allocate IP {ip}: {why}"));
    refuse(errors)
}

fn free_ip(taken: &AllocatedValues, context: &StrategyContext<'_>) -> Option<Ipv4Addr> {
    let range = context.service_range;
    if context.dry_run {
        return Some(range.network());
    }
    range
        .candidates(context.next_search_start())
        .find(|ip| !is_taken(IpAddr::V4(*ip), taken, context))
}

/// Removes fields that the new type does not have, unless the client changed them in the same request: then validation
/// refuses them.
fn drop_what_the_type_lacks(service: &mut Value, old: &Value) {
    let same = |service: &Value, field: &str| get(service, &["spec", field]) == get(old, &["spec", field]);
    let goes = |has: fn(&Value) -> bool, service: &Value| has(old) && !has(service);
    let is_balanced: fn(&Value) -> bool = |service| type_of(service) == "LoadBalancer";
    if goes(needs_cluster_ip, service) {
        if word(service, "clusterIP") == word(old, "clusterIP") && same_list(service, old, "clusterIPs") {
            remove(service, "clusterIP");
            remove(service, "clusterIPs");
        }
        if same_list(service, old, "ipFamilies") {
            remove(service, "ipFamilies");
        }
        if same(service, "ipFamilyPolicy") {
            remove(service, "ipFamilyPolicy");
        }
    }
    if goes(|service| may_have_node_ports(type_of(service)), service) {
        let old_ports: BTreeSet<i64> = node_ports(old).collect();
        let has_no_new = node_ports(service).all(|port| old_ports.contains(&port));
        if let (true, Some(spec)) = (has_no_new, spec(service)) {
            each(spec, "ports").for_each(|port| {
                port.remove("nodePort");
            });
        }
    }
    if goes(needs_health_check_port, service) && same(service, "healthCheckNodePort") {
        remove(service, "healthCheckNodePort");
    }
    for field in ["allocateLoadBalancerNodePorts", "loadBalancerClass"] {
        if goes(is_balanced, service) && same(service, field) {
            remove(service, field);
        }
    }
    if goes(is_reachable, service) && same(service, "externalTrafficPolicy") {
        remove(service, "externalTrafficPolicy");
    }
    if !is_balanced(service)
        && let Some(status) = service.get_mut("status").and_then(Value::as_object_mut)
    {
        status.insert("loadBalancer".to_owned(), json!({}));
    }
}
