//! Services: defaults, cluster IPs and node ports, and the rules for ports and types.
//!
//! What is allocated is no state of its own: [`allocate`] derives it from the stored Services each time, so that it cannot leak or disagree.
//!
//! Invariants: two stored Services never share a cluster IP or a node port (per protocol); a Service keeps what it has as long as its type
//! needs it; a dry run allocates nothing.
//!
//! Not here: endpoints, load balancers, IPv6 (the cluster has one family, as a default kube-apiserver).

mod range;

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

pub use range::ServiceRange;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{
    At, Errors, Object, absent, check_ip, check_port, check_port_or_name, child, each, ensure, fill, fill_number,
    fill_text, get, keep, text,
};
use super::ranges;
use crate::registry::{NameRule, PLAIN, StatusMetadata, Strategy, StrategyContext};

/// How Services are written.
pub(crate) const SERVICE: Strategy = Strategy {
    create_on_update: true,
    // Kubernetes 1.36 takes any RFC 1123 label.
    names: NameRule::Label,
    delete_returns_object: true,
    status_metadata: StatusMetadata::WRITTEN,
    default,
    prepare_create,
    prepare_update,
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
    allocate: Some(allocate),
    ..PLAIN
};

/// Where a load balancer listens: addresses and names, of services and of Ingresses.
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

const NODE_PORTS: std::ops::RangeInclusive<i64> = 30_000..=32_767;

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
    if needs_node_ports_object(spec) || text(spec, "type") == "ClusterIP" && has_items(spec, "externalIPs") {
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

fn needs_node_ports_object(spec: &Object) -> bool {
    matches!(text(spec, "type"), "NodePort" | "LoadBalancer")
}

fn type_of(service: &Value) -> &str {
    get(service, &["spec", "type"]).as_str().unwrap_or("")
}

fn needs_cluster_ip(service: &Value) -> bool {
    matches!(type_of(service), "ClusterIP" | "NodePort" | "LoadBalancer")
}

fn needs_node_ports(service: &Value) -> bool {
    match type_of(service) {
        "NodePort" => true,
        "LoadBalancer" => get(service, &["spec", "allocateLoadBalancerNodePorts"]) != &json!(false),
        _ => false,
    }
}

fn needs_health_check_port(service: &Value) -> bool {
    type_of(service) == "LoadBalancer" && get(service, &["spec", "externalTrafficPolicy"]) == "Local"
}

fn prepare_create(object: &mut Value, _: &StrategyContext<'_>) {
    let Some(map) = object.as_object_mut() else { return };
    map.insert("status".to_owned(), json!({"loadBalancer": {}}));
    // Who gives several addresses gives the first one too.
    if let Some(spec) = ensure(map, "spec")
        && !has_items(spec, "clusterIPs")
    {
        align_ips(spec);
    }
}

/// `clusterIP` is the first of `clusterIPs`: whichever is given fills the other.
fn align_ips(spec: &mut Object) {
    let single = text(spec, "clusterIP").to_owned();
    if !single.is_empty() && !has_items(spec, "clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([single]));
    } else if single.is_empty()
        && let Some(first) = spec.get("clusterIPs").and_then(|list| list.get(0)).cloned()
    {
        spec.insert("clusterIP".to_owned(), first);
    }
}

fn prepare_update(new: &mut Value, old: &Value, _: &StrategyContext<'_>) {
    keep(new, old, "status");
    let (type_new, type_old) = (type_of(new).to_owned(), type_of(old).to_owned());
    let keeps_ip = needs_cluster_ip(new) && needs_cluster_ip(old);
    let (ports_new, ports_old) = (needs_node_ports(new), needs_node_ports(old));
    let (check_new, check_old) = (needs_health_check_port(new), needs_health_check_port(old));
    let Some(was) = get(old, &["spec"]).as_object() else {
        return;
    };
    let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if keeps_ip {
        keep_ips(spec, was);
    } else if type_new == "ExternalName" {
        for field in [
            "clusterIP",
            "clusterIPs",
            "ipFamilies",
            "ipFamilyPolicy",
            "internalTrafficPolicy",
        ] {
            drop_unchanged(spec, was, field);
        }
    }
    align_ips(spec);
    if ports_new && ports_old {
        keep_node_ports(spec, was);
    } else if ports_old && !ports_new && node_ports(spec) == node_ports(was) && type_new != "LoadBalancer" {
        for port in each(spec, "ports") {
            port.remove("nodePort");
        }
    }
    if check_new && check_old && absent(spec, "healthCheckNodePort") {
        spec.insert(
            "healthCheckNodePort".to_owned(),
            was.get("healthCheckNodePort").cloned().unwrap_or(Value::Null),
        );
    } else if check_old && !check_new {
        drop_unchanged(spec, was, "healthCheckNodePort");
    }
    if type_old == "LoadBalancer" && type_new != "LoadBalancer" {
        drop_unchanged(spec, was, "allocateLoadBalancerNodePorts");
        drop_unchanged(spec, was, "loadBalancerClass");
    }
    if !needs_node_ports_object(spec) && !has_items(spec, "externalIPs") {
        drop_unchanged(spec, was, "externalTrafficPolicy");
    }
}

/// Takes away what the new type does not have, unless the client changed it in the same request (then validation speaks).
fn drop_unchanged(spec: &mut Object, was: &Object, field: &str) {
    if spec.get(field) == was.get(field) {
        spec.remove(field);
    }
}

/// The addresses stay when the client leaves them out.
fn keep_ips(spec: &mut Object, was: &Object) {
    for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
        let empty = absent(spec, field) || spec[field] == "" || spec[field].as_array().is_some_and(Vec::is_empty);
        if let Some(before) = was.get(field).filter(|_| empty) {
            spec.insert(field.to_owned(), before.clone());
        }
    }
    // Only one of the two was changed: the other follows.
    let (ip, ips) = (spec.get("clusterIP").cloned(), spec.get("clusterIPs").cloned());
    if ip.as_ref() != was.get("clusterIP") && ips.as_ref() == was.get("clusterIPs") {
        spec.insert("clusterIPs".to_owned(), json!([ip]));
    } else if ip.as_ref() == was.get("clusterIP")
        && ips.as_ref() != was.get("clusterIPs")
        && let Some(first) = ips.as_ref().and_then(|ips| ips.get(0))
    {
        spec.insert("clusterIP".to_owned(), first.clone());
    }
}

fn node_ports(spec: &Object) -> BTreeSet<i64> {
    let ports = spec.get("ports").and_then(Value::as_array);
    ports
        .into_iter()
        .flatten()
        .filter_map(|port| port.get("nodePort").and_then(Value::as_i64))
        .filter(|port| *port != 0)
        .collect()
}

/// A port that is given without a node port keeps the one it had.
fn keep_node_ports(spec: &mut Object, was: &Object) {
    let mut taken = node_ports(spec);
    let before: Vec<Value> = was.get("ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in each(spec, "ports").filter(|port| absent(port, "nodePort")) {
        let same = |old: &&Value| old.get("port") == port.get("port") && old.get("protocol") == port.get("protocol");
        let kept = before
            .iter()
            .find(same)
            .and_then(|old| old.get("nodePort"))
            .and_then(Value::as_i64);
        if let Some(kept) = kept.filter(|kept| taken.insert(*kept)) {
            port.insert("nodePort".to_owned(), kept.into());
        }
    }
}

/// What the stored Services hold.
#[derive(Debug, Default)]
struct Taken {
    ips: BTreeSet<IpAddr>,
    ports: BTreeSet<(i64, String)>,
}

impl Taken {
    fn of(services: &mut dyn Iterator<Item = &Value>, but: &Value) -> Self {
        let mut taken = Taken::default();
        let own = get(but, &["metadata", "uid"]);
        for service in services.filter(|service| own.is_null() || get(service, &["metadata", "uid"]) != own) {
            let spec = At::root(service).key("spec");
            taken.ips.extend(
                spec.key("clusterIPs")
                    .items()
                    .filter_map(|ip| ip.text().parse::<IpAddr>().ok()),
            );
            for port in spec.key("ports").items() {
                if let Some(number) = port.key("nodePort").int().filter(|number| *number != 0) {
                    taken.ports.insert((number, port.key("protocol").text().to_owned()));
                }
            }
            if let Some(number) = spec.key("healthCheckNodePort").int().filter(|number| *number != 0) {
                taken.ports.insert((number, "TCP".to_owned()));
            }
        }
        taken
    }
}

/// Families, cluster IP, node ports and health check port of a Service that is created or changed.
fn allocate(
    object: &mut Value,
    old: Option<&Value>,
    stored: &mut dyn Iterator<Item = &Value>,
    context: &StrategyContext<'_>,
) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if !needs_cluster_ip(object) {
        return Vec::new();
    }
    ips(&mut errors, &At::root(object).key("spec"), type_of(object));
    if !errors.is_empty() {
        return errors.into_vec();
    }
    families(&mut errors, object);
    if !errors.is_empty() {
        return errors.into_vec();
    }
    // The object that is replaced holds nothing against itself.
    let mut taken = Taken::of(stored, old.unwrap_or(&Value::Null));
    cluster_ip(&mut errors, object, old, &mut taken, context);
    if needs_node_ports(object) {
        node_ports_of(&mut errors, object, old, &mut taken, context);
    }
    if needs_health_check_port(object) && get(object, &["spec", "healthCheckNodePort"]).as_i64().unwrap_or(0) == 0 {
        match free_port(&taken, "TCP", context) {
            Some(port) => object["spec"]["healthCheckNodePort"] = port.into(),
            None => errors.push(FieldError::internal(
                "spec.healthCheckNodePort",
                "failed to allocate a health check node port: range is full",
            )),
        }
    }
    errors.into_vec()
}

fn families(errors: &mut Errors, object: &mut Value) {
    let at = At::root(object).key("spec");
    let listed = at.key("ipFamilies");
    let policy = at.key("ipFamilyPolicy");
    if listed.len() > 1 && policy.text() == "SingleStack" {
        errors.invalid(
            &policy,
            "must be 'RequireDualStack' or 'PreferDualStack' when multiple IP families are specified",
        );
        return;
    }
    let headless = at.key("clusterIP").text() == "None";
    let selectorless = at.key("selector").is_empty();
    // Endpoints of a headless Service without a selector are the user's own, of either family.
    let both = headless
        && selectorless
        && (!policy.present() || policy.text() == "RequireDualStack" || policy.text() == "PreferDualStack");
    if !both {
        for family in listed.items().filter(|family| family.text() == "IPv6") {
            errors.invalid(&family, "not configured on this cluster");
        }
        if policy.text() == "RequireDualStack" {
            errors.invalid(&policy, "this cluster is not configured for dual-stack services");
        }
    }
    let fresh_policy = !policy.present();
    let fresh_families = listed.is_empty();
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    if fresh_policy {
        let dual = both && fresh_families;
        spec.insert(
            "ipFamilyPolicy".to_owned(),
            if dual { "RequireDualStack" } else { "SingleStack" }.into(),
        );
    }
    if fresh_families {
        let dual = both && text(spec, "ipFamilyPolicy") != "SingleStack";
        spec.insert(
            "ipFamilies".to_owned(),
            if dual { json!(["IPv4", "IPv6"]) } else { json!(["IPv4"]) },
        );
    }
}

fn cluster_ip(
    errors: &mut Errors,
    object: &mut Value,
    old: Option<&Value>,
    taken: &mut Taken,
    context: &StrategyContext<'_>,
) {
    let at = At::root(object).key("spec");
    let ips = at.key("clusterIPs");
    let wanted = ips.value.get(0).and_then(Value::as_str).unwrap_or("").to_owned();
    if wanted == "None" {
        return;
    }
    if wanted.is_empty() {
        let Some(free) = free_ip(taken, context) else {
            errors.push(FieldError::internal(
                "spec.clusterIPs",
                "failed to allocate a cluster IP: range is full",
            ));
            return;
        };
        object["spec"]["clusterIP"] = free.to_string().into();
        object["spec"]["clusterIPs"] = json!([free.to_string()]);
        return;
    }
    let kept = old.is_some_and(|old| needs_cluster_ip(old) && get(old, &["spec", "clusterIPs"]) == ips.value);
    let Ok(ip) = wanted.parse::<IpAddr>() else { return };
    if kept || old.is_some_and(needs_cluster_ip) {
        // Unchanged, or changed although it may not: validation says so.
        return;
    }
    let inside = matches!(ip, IpAddr::V4(v4) if context.service_range.contains(v4));
    if !inside {
        let why = if context.dry_run {
            let range = context.service_range;
            format!("the provided IP ({ip}) is not in the valid range. The range of valid IPs is {range}")
        } else {
            "the provided network does not match the current range".to_owned()
        };
        errors.invalid(&ips, format!("failed to allocate IP {ip}: {why}"));
    } else if taken.ips.contains(&ip) {
        errors.invalid(
            &ips,
            format!("failed to allocate IP {ip}: provided IP is already allocated"),
        );
    }
}

fn free_ip(taken: &Taken, context: &StrategyContext<'_>) -> Option<Ipv4Addr> {
    let range = context.service_range;
    if context.dry_run {
        return Some(range.network());
    }
    range
        .candidates(context.turn())
        .find(|ip| !taken.ips.contains(&IpAddr::V4(*ip)))
}

fn free_port(taken: &Taken, protocol: &str, context: &StrategyContext<'_>) -> Option<i64> {
    let (first, last) = (*NODE_PORTS.start(), *NODE_PORTS.end());
    if context.dry_run {
        return Some(first);
    }
    let size = last - first + 1;
    let start = (context.turn() % u64::try_from(size).unwrap_or(1)) as i64;
    (0..size)
        .map(|step| first + (start + step) % size)
        .find(|port| !taken.ports.contains(&(*port, protocol.to_owned())))
}

fn node_ports_of(
    errors: &mut Errors,
    object: &mut Value,
    old: Option<&Value>,
    taken: &mut Taken,
    context: &StrategyContext<'_>,
) {
    let held: BTreeSet<i64> = old
        .filter(|old| needs_node_ports(old))
        .and_then(|old| get(old, &["spec"]).as_object())
        .map(node_ports)
        .unwrap_or_default();
    for port in At::root(object).keys(&["spec", "ports"]).items() {
        let wanted = port.key("nodePort");
        let protocol = port.key("protocol").text().to_owned();
        let Some(number) = wanted.int().filter(|number| *number != 0) else {
            continue;
        };
        if held.contains(&number) {
            taken.ports.insert((number, protocol));
        } else if !NODE_PORTS.contains(&number) && !context.dry_run {
            errors.invalid(
                &wanted,
                "provided port is not in the valid range. The range of valid ports is 30000-32767",
            );
        } else if !taken.ports.insert((number, protocol)) {
            errors.invalid(&wanted, "provided port is already allocated");
        }
    }
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    for port in each(spec, "ports").filter(|port| absent(port, "nodePort")) {
        let protocol = text(port, "protocol").to_owned();
        let Some(free) = free_port(taken, &protocol, context) else {
            errors.push(FieldError::internal(
                "spec.ports",
                "failed to allocate a node port: range is full",
            ));
            return;
        };
        taken.ports.insert((free, protocol));
        fill_number(port, "nodePort", free);
    }
}

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
    ports(&mut errors, &spec, kind);
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
    let notes = At::root(new).keys(&["metadata", "annotations"]);
    let note = notes.key(SOURCE_RANGES).moved(notes.path.map_key(SOURCE_RANGES));
    balancer(&mut errors, &note, &spec, kind, known);
    policies(&mut errors, &spec, kind);
    errors.into_vec()
}

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
                    errors.forbidden(&spec.key(field), "may not be set for ExternalName services");
                }
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

/// What only a load balancer has. Ranges in `known` were accepted before, however they are written.
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

/// The annotation that says what `loadBalancerSourceRanges` says now.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

const ONLY_BALANCED: &str = "may only be used when `type` is 'LoadBalancer'";

fn balancer_class(errors: &mut Errors, class: &At<'_>, kind: &str) {
    if !class.present() {
    } else if kind == "LoadBalancer" {
        errors.messages(class, names::qualified_name(class.text()));
    } else {
        errors.forbidden(class, ONLY_BALANCED);
    }
}

fn ports(errors: &mut Errors, spec: &At<'_>, kind: &str) {
    let list = spec.key("ports");
    let several = list.len() > 1;
    let mut names_seen = BTreeSet::new();
    let mut numbers = BTreeSet::new();
    let mut node_numbers = BTreeSet::new();
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
        let node = port.key("nodePort");
        let protocol = port.key("protocol").text();
        if let Some(number) = node.int().filter(|number| *number != 0) {
            if matches!(kind, "ClusterIP" | "ExternalName") {
                errors.forbidden(&node, format!("may not be used when `type` is '{kind}'"));
            } else if !node_numbers.insert((number, protocol)) {
                errors.duplicate(&node);
            }
        }
        let app = port.key("appProtocol");
        if app.present() {
            errors.messages(&app, names::qualified_name(app.text()));
        }
        if !numbers.insert((port.key("port").int(), protocol)) {
            // Only what tells the two ports apart.
            let shown = json!({"protocol": protocol, "port": port.key("port").value});
            errors.push(FieldError::duplicate(port.path.to_string(), shown));
        }
    }
}

fn selector(errors: &mut Errors, at: &At<'_>) {
    if at.present() {
        errors.extend(names::labels(at.value, &at.path));
    }
}

/// The fields about addresses and their families, which must agree before anything is allocated.
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
        errors.one_of(&family, &["IPv4", "IPv6"], true);
        if !seen.insert(family.text()) {
            errors.duplicate(&family);
        }
    }
    errors.one_of(
        &spec.key("ipFamilyPolicy"),
        &["PreferDualStack", "RequireDualStack", "SingleStack"],
        false,
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
    // What is no address has no family.
    if readable {
        families_of(errors, spec, &list);
    }
}

fn families_of(errors: &mut Errors, spec: &At<'_>, list: &At<'_>) {
    let is_six = |ip: &At<'_>| ip.text().contains(':');
    let sixes = list.items().filter(|ip| is_six(ip)).count();
    if list.len() > 1 && (sixes == 0 || sixes == list.len()) {
        errors.invalid(list, "may specify no more than one IP for each IP family");
    }
    if spec.key("clusterIP").text() == "None" {
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

fn external_ip(errors: &mut Errors, at: &At<'_>) {
    if let Some(ip) = check_ip(errors, at) {
        ordinary_ip(errors, at, ip);
    }
}

/// An address that other machines can reach.
pub(super) fn ordinary_ip(errors: &mut Errors, at: &At<'_>, ip: IpAddr) {
    let why = if ip == IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED) {
        "may not be unspecified (0.0.0.0)"
    } else if ip.is_unspecified() {
        "may not be unspecified (::)"
    } else if ip.is_loopback() {
        "may not be in the loopback range (127.0.0.0/8, ::1/128)"
    } else if matches!(ip, IpAddr::V4(ip) if ip.is_link_local()) {
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)"
    } else if ip.is_multicast() {
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
    } else {
        return;
    };
    errors.invalid(at, why);
}

fn policies(errors: &mut Errors, spec: &At<'_>, kind: &str) {
    let external = spec.key("externalTrafficPolicy");
    let reachable =
        matches!(kind, "NodePort" | "LoadBalancer") || kind == "ClusterIP" && !spec.key("externalIPs").is_empty();
    if !reachable {
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
    let internal = spec.key("internalTrafficPolicy");
    if internal.present() {
        errors.one_of(&internal, &["Cluster", "Local"], true);
    }
    errors.one_of(
        &spec.key("trafficDistribution"),
        &["PreferClose", "PreferSameZone", "PreferSameNode"],
        false,
    );
}

fn update(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    if needs_cluster_ip(old) && needs_cluster_ip(new) {
        let ips = At::root(new).keys(&["spec", "clusterIPs"]);
        let before = get(old, &["spec", "clusterIPs"]);
        if ips.value != before && before.as_array().is_some_and(|list| !list.is_empty()) {
            let first = ips.moved(ips.path.index(0));
            errors.invalid(&first, "may not change once set");
        }
    }
    let class = At::root(new).keys(&["spec", "loadBalancerClass"]);
    if type_of(old) == "LoadBalancer"
        && type_of(new) == "LoadBalancer"
        && class.value != get(old, &["spec", "loadBalancerClass"])
    {
        errors.invalid(&class, "may not change once set");
    }
    // Kubernetes looks at it here and with the rest.
    balancer_class(&mut errors, &class, type_of(new));
    errors.extend(service(new, old));
    errors.into_vec()
}

/// The Service `default/kubernetes` that every cluster has, before it is stored.
pub(crate) fn kubernetes_service(range: ServiceRange) -> Value {
    let address = range.first().to_string();
    json!({
        "kind": "Service",
        "apiVersion": "v1",
        "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}],
            "clusterIP": address,
            "clusterIPs": [address],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster"
        },
        "status": {"loadBalancer": {}}
    })
}
