//! `networking.k8s.io`: Ingress, IngressClass, NetworkPolicy, IPAddress, ServiceCIDR.
//!
//! They describe a network; nothing here routes or filters.

use std::collections::BTreeSet;
use std::net::IpAddr;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{
    At, Errors, absent, check_kind_and_name, check_port, check_port_or_name, child, each, ensure, fill, fixed, get,
    keep,
};
use super::pods::scheduling::label_selector;
use super::ranges;
use super::service_warnings;
use super::system::empty_status;
use kubewright_model::{Empties, GenerationRule, MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy};

const CLASS_ANNOTATION: &str = "kubernetes.io/ingress.class";

/// How Ingresses are written.
pub(crate) const INGRESS: Strategy = Strategy {
    generation: GenerationRule::Spec,
    empties: Empties::Seen,
    status_metadata: StatusMetadata::WRITTEN,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        ensure(object, "spec");
        if let Some(status) = ensure(object, "status") {
            ensure(status, "loadBalancer");
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({"loadBalancer": {}}));
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_status: |new, _| {
        let mut errors = Errors::default();
        let points = At::root(new).keys(&["status", "loadBalancer", "ingress"]);
        super::services::load_balancer(&mut errors, &points, false);
        errors.into_vec()
    },
    validate_create: |new| {
        let mut errors = Errors::default();
        errors.extend(ingress(new));
        let (annotation, class) = (annotation(new), At::root(new).keys(&["spec", "ingressClassName"]));
        if !annotation.text().is_empty() && class.present() && class.text() != annotation.text() {
            errors.invalid(&annotation, "must match `ingressClassName` when both are specified");
        }
        errors.into_vec()
    },
    validate_update: |new, _| ingress(new),
    warnings: |new, old| {
        let deprecated =
            "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead";
        let unclassed = !At::root(new).keys(&["spec", "ingressClassName"]).present();
        let used = !annotation(new).text().is_empty() && unclassed && old.is_none();
        used.then(|| deprecated.to_owned()).into_iter().collect()
    },
    ..PLAIN
};

/// How IngressClasses are written.
pub(crate) const INGRESS_CLASS: Strategy = Strategy {
    generation: GenerationRule::Spec,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: |object| {
        let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
            return;
        };
        if let Some(parameters) = child(spec, "parameters") {
            fill(parameters, "scope", "Cluster");
        }
    },
    validate_create: ingress_class,
    validate_update: |new, _| ingress_class(new),
    fields: &[fixed(&["spec", "controller"], "ValidateIngressClassUpdate")],
    ..PLAIN
};

/// How NetworkPolicies are written.
pub(crate) const NETWORK_POLICY: Strategy = Strategy {
    generation: GenerationRule::Spec,
    empties: Empties::Changes,
    default: |object| {
        let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
            return;
        };
        ensure(spec, "podSelector");
        for direction in ["ingress", "egress"] {
            for rule in each(spec, direction) {
                for port in each(rule, "ports") {
                    fill(port, "protocol", "TCP");
                }
            }
        }
        if absent(spec, "policyTypes") {
            let both = spec
                .get("egress")
                .and_then(Value::as_array)
                .is_some_and(|rules| !rules.is_empty());
            let types = if both {
                json!(["Ingress", "Egress"])
            } else {
                json!(["Ingress"])
            };
            fill(spec, "policyTypes", types);
        }
    },
    validate_create: network_policy,
    validate_update: |new, _| network_policy(new),
    warnings: |new, _| {
        let spec = At::root(new).key("spec");
        let rules = [("ingress", "from"), ("egress", "to")];
        let peers = rules.map(|(rules, peers)| {
            spec.key(rules)
                .items()
                .map(move |rule| rule.key(peers))
                .collect::<Vec<_>>()
        });
        let blocks = peers
            .iter()
            .flatten()
            .flat_map(At::items)
            .map(|peer| peer.key("ipBlock"));
        let warnings = blocks.flat_map(|block| {
            let except = block.key("except");
            let parts = except.items().filter_map(|part| service_warnings::block(&part));
            service_warnings::block(&block.key("cidr"))
                .into_iter()
                .chain(parts)
                .collect::<Vec<_>>()
        });
        warnings.collect()
    },
    ..PLAIN
};

/// How IPAddresses are written.
pub(crate) const IP_ADDRESS: Strategy = Strategy {
    names: NameRule::PathSegment,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    validate_create: ip_address,
    validate_update: |new, _| ip_address(new),
    fields: &[fixed(&["spec", "parentRef"], "ValidateIPAddressUpdate")],
    ..PLAIN
};

/// How ServiceCIDRs are written.
pub(crate) const SERVICE_CIDR: Strategy = Strategy {
    empties: Empties::Seen,
    status_metadata: StatusMetadata::RESET,
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        ensure(object, "spec");
        ensure(object, "status");
    },
    prepare_create: |object, _| empty_status(object),
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: service_cidr,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        let (now, before) = (At::root(new).keys(&["spec", "cidrs"]), get(old, &["spec", "cidrs"]));
        let before: &[Value] = before.as_array().map_or(&[], Vec::as_slice);
        // The first may get a second beside it, and no more.
        match before {
            [] => errors.extend(service_cidr(new)),
            _ if now.len() == before.len() || (before.len() == 1 && now.len() == 2) => {
                for (entry, before) in now.items().zip(before) {
                    if entry.value != before {
                        errors.invalid(&entry, "field is immutable");
                    }
                }
                if now.len() > before.len() {
                    errors.extend(service_cidr(new));
                }
            }
            _ => errors.invalid(&now, "field is immutable"),
        }
        errors.into_vec()
    },
    ..PLAIN
};

fn annotation(object: &Value) -> At<'_> {
    At {
        value: get(object, &["metadata", "annotations", CLASS_ANNOTATION]),
        // Kubernetes leaves `metadata` out of the path.
        path: At::root(object).key("annotations").path.key(CLASS_ANNOTATION),
    }
}

/// `ValidateIngressSpec`.
fn ingress(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let backend_of_all = spec.key("defaultBackend");
    if spec.key("rules").is_empty() && !backend_of_all.present() {
        errors.invalid_value(
            &spec,
            spec.key("rules").value.clone(),
            "either `defaultBackend` or `rules` must be specified",
        );
    }
    if backend_of_all.present() {
        backend(&mut errors, &backend_of_all);
    }
    for rule in spec.key("rules").items() {
        host(&mut errors, &rule.key("host"), true);
        if !rule.key("http").present() {
            continue;
        }
        let paths = rule.keys(&["http", "paths"]);
        if paths.is_empty() {
            errors.required(&paths, "");
        }
        for path in paths.items() {
            http_path(&mut errors, &path);
        }
    }
    for tls in spec.key("tls").items() {
        for name in tls.key("hosts").items() {
            host(&mut errors, &name, false);
        }
        let secret = tls.key("secretName");
        if !secret.text().is_empty() {
            errors.messages(&secret, names::dns1123_subdomain(secret.text()));
        }
    }
    let class = spec.key("ingressClassName");
    if class.present() {
        errors.messages(&class, names::dns1123_subdomain(class.text()));
    }
    errors.into_vec()
}

/// `validateIngressRules`.
fn host(errors: &mut Errors, at: &At<'_>, of_rule: bool) {
    let name = at.text();
    if name.is_empty() && of_rule {
        return;
    }
    if of_rule && name.parse::<IpAddr>().is_ok() {
        errors.invalid(at, "must be a DNS name, not an IP address");
    } else if name.contains('*') {
        let rest = name.strip_prefix("*.");
        if !rest.is_some_and(|rest| names::dns1123_subdomain(rest).is_empty()) {
            errors.invalid(
                at,
                "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case \
                 alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used for validation \
                 is '\\*\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            );
        }
    } else {
        errors.messages(at, names::dns1123_subdomain(name));
    }
}

/// `validateHTTPIngressPath`.
fn http_path(errors: &mut Errors, at: &At<'_>) {
    let (path, kind) = (at.key("path"), at.key("pathType"));
    match kind.value {
        // Nothing else is looked at then.
        Value::Null => return errors.required(&kind, "pathType must be specified"),
        _ => match kind.text() {
            "Exact" | "Prefix" => {
                if path.text().starts_with('/') {
                    for sequence in ["//", "/./", "/../", "%2f", "%2F"] {
                        if path.text().contains(sequence) {
                            errors.invalid(&path, format!("must not contain '{sequence}'"));
                        }
                    }
                    for end in ["/..", "/."] {
                        if path.text().ends_with(end) {
                            errors.invalid(&path, format!("cannot end with '{end}'"));
                        }
                    }
                } else {
                    errors.invalid_value(&path, path.text(), "must be an absolute path");
                }
            }
            "ImplementationSpecific" => {
                if !path.text().is_empty() && !path.text().starts_with('/') {
                    errors.invalid(&path, "must be an absolute path");
                }
            }
            _ => errors.unsupported(&kind, &["Exact", "ImplementationSpecific", "Prefix"]),
        },
    }
    backend(errors, &at.key("backend"));
}

/// `validateIngressBackend`.
fn backend(errors: &mut Errors, at: &At<'_>) {
    let (service, resource) = (at.key("service"), at.key("resource"));
    match (service.present(), resource.present()) {
        (true, true) => errors.invalid_value(at, "", "cannot set both resource and service backends"),
        (false, false) => errors.invalid_value(at, "", "resource or service backend is required"),
        (false, true) => {
            reference(errors, &resource);
        }
        (true, false) => {
            let name = service.key("name");
            if name.text().is_empty() {
                errors.required(&name, "");
            } else {
                errors.messages(&name, names::dns1123_label(name.text()));
            }
            let (word, number) = (service.keys(&["port", "name"]), service.keys(&["port", "number"]));
            match (!word.text().is_empty(), number.int().unwrap_or(0) != 0) {
                (true, true) => errors.invalid_value(at, "", "cannot set both port name & port number"),
                (false, false) => errors.required(at, "port name or number is required"),
                (true, false) => errors.messages(&word, names::port_name(word.text())),
                (false, true) => check_port(errors, &number),
            }
        }
    }
}

/// `apiGroup`, `kind` and `name` of an object that is named by them.
fn reference(errors: &mut Errors, at: &At<'_>) {
    let group = at.key("apiGroup");
    if group.present() {
        errors.messages(&group, names::dns1123_subdomain(group.text()));
    }
    check_kind_and_name(errors, at);
}

/// `ValidateIngressClass` and `validateIngressClassParametersReference`.
fn ingress_class(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let controller = spec.key("controller");
    if controller.text().is_empty() {
        errors.required(&controller, "");
    } else {
        if controller.text().len() > 250 {
            errors.push(FieldError::too_long(controller.path.to_string(), 250));
        }
        errors.extend(names::domain_prefixed_path(&controller.path, controller.text()));
    }
    let parameters = spec.key("parameters");
    if parameters.present() {
        let group = parameters.key("apiGroup");
        if group.present() && group.text().is_empty() {
            errors.messages(&group, names::dns1123_subdomain(""));
        }
        reference(&mut errors, &parameters);
        let (scope, namespace) = (parameters.key("scope"), parameters.key("namespace"));
        match scope.text() {
            "" if !scope.present() => errors.required(&scope, ""),
            "Cluster" if namespace.present() => {
                errors.forbidden(&namespace, "`parameters.scope` is set to 'Cluster'");
            }
            "Namespace" if !namespace.present() => {
                errors.required(&namespace, "`parameters.scope` is set to 'Namespace'");
            }
            "Namespace" => errors.messages(&namespace, names::dns1123_label(namespace.text())),
            "Cluster" => {}
            _ => errors.unsupported(&scope, &["Cluster", "Namespace"]),
        }
    }
    errors.into_vec()
}

/// `ValidateNetworkPolicySpec`.
fn network_policy(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    label_selector(&mut errors, &spec.key("podSelector"));
    for (direction, peers) in [("ingress", "from"), ("egress", "to")] {
        for rule in spec.key(direction).items() {
            for port in rule.key("ports").items() {
                policy_port(&mut errors, &port);
            }
            for peer in rule.key(peers).items() {
                policy_peer(&mut errors, &peer);
            }
        }
    }
    let types = spec.key("policyTypes");
    if types.len() > 2 {
        errors.invalid(&types, "may not specify more than two policyTypes");
    } else {
        for kind in types.items() {
            errors.one_of_all(&kind, &["Ingress", "Egress"]);
        }
    }
    errors.into_vec()
}

/// `ValidateNetworkPolicyPort`.
fn policy_port(errors: &mut Errors, at: &At<'_>) {
    let (protocol, port, end) = (at.key("protocol"), at.key("port"), at.key("endPort"));
    errors.one_of_all(&protocol, &["TCP", "UDP", "SCTP"]);
    if port.present() {
        check_port_or_name(errors, &port);
    }
    if !end.present() {
        return;
    }
    match port.value {
        Value::Null => errors.invalid(&end, "may not be specified when `port` is not specified"),
        Value::String(_) => errors.invalid(&end, "may not be specified when `port` is non-numeric"),
        first => {
            if end.int() < first.as_i64() {
                // Kubernetes shows the port that the range should not go below.
                errors.invalid_value(&end, first.clone(), "must be greater than or equal to `port`");
            }
            if !end.int().is_some_and(|end| (1..=65535).contains(&end)) {
                check_port(errors, &end);
            }
        }
    }
}

/// `ValidateNetworkPolicyPeer`.
fn policy_peer(errors: &mut Errors, at: &At<'_>) {
    let (pods, namespaces, block) = (at.key("podSelector"), at.key("namespaceSelector"), at.key("ipBlock"));
    label_selector(errors, &pods);
    label_selector(errors, &namespaces);
    if block.present() {
        let outer = block.key("cidr");
        if outer.text().is_empty() {
            errors.required(&outer, "");
        } else if let Some(whole) = ranges::check(errors, &outer, outer.text(), &Value::Null) {
            for part in block.key("except").items() {
                let inner = ranges::check(errors, &part, part.text(), &Value::Null);
                if inner.is_some_and(|inner| !ranges::is_part_of(inner, whole)) {
                    errors.invalid(&part, "must be a strict subset of `cidr`");
                }
            }
        }
    }
    match (pods.present() || namespaces.present(), block.present()) {
        (false, false) => errors.required(at, "must specify a peer"),
        (true, true) => errors.forbidden(at, "may not specify both ipBlock and another peer"),
        _ => {}
    }
}

/// `ValidateIPAddress` and `IsValidIP`.
fn ip_address(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let name = At::root(new).keys(&["metadata", "name"]);
    match name.text().parse::<IpAddr>() {
        _ if name.text().is_empty() => {} // told with the other rules of metadata
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => {
            errors.invalid(&name, "must not be an IPv4-mapped IPv6 address");
        }
        Ok(address) if address.to_string() == name.text() => {}
        Ok(address) => errors.invalid(&name, format!("must be in canonical form (\"{address}\")")),
        Err(_) => {
            let plain: Vec<&str> = name
                .text()
                .split('.')
                .map(|part| part.trim_start_matches('0'))
                .map(|part| if part.is_empty() { "0" } else { part })
                .collect();
            if plain.join(".").parse::<std::net::Ipv4Addr>().is_ok() {
                errors.invalid(&name, "must not have leading 0s");
            } else {
                errors.invalid(&name, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
            }
        }
    }
    let parent = At::root(new).keys(&["spec", "parentRef"]);
    if parent.present() {
        let group = parent.key("group");
        if !group.text().is_empty() {
            errors.messages(&group, names::dns1123_subdomain(group.text()));
        }
        let namespace = parent.key("namespace");
        if !namespace.text().is_empty() {
            errors.messages(&namespace, names::path_segment_name(namespace.text()));
        }
        for field in ["resource", "name"] {
            let part = parent.key(field);
            if part.text().is_empty() {
                errors.required(&part, "");
            } else {
                errors.messages(&part, names::path_segment_name(part.text()));
            }
        }
    } else {
        errors.required(&parent, "");
    }
    errors.into_vec()
}

/// `validateServiceCIDRSpec`.
fn service_cidr(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let list = At::root(new).keys(&["spec", "cidrs"]);
    if list.is_empty() {
        errors.required(&list, "at least one CIDR required");
    }
    if list.len() > 2 {
        // The whole spec is shown, and nothing else looked at.
        errors.invalid(
            &At::root(new).key("spec").moved(list.path.clone()),
            "may only hold up to 2 values",
        );
        return errors.into_vec();
    }
    let mut families = BTreeSet::new();
    let mut twice = false;
    for entry in list.items() {
        let before = errors.len();
        let Some(block) = ranges::check(&mut errors, &entry, entry.text(), &Value::Null) else {
            continue;
        };
        twice |= !families.insert(block.addr().is_ipv4());
        let canonical = block.to_string();
        if errors.len() == before && canonical != entry.text() {
            errors.invalid(&entry, format!("must be in canonical form (\"{canonical}\")"));
        }
    }
    if twice && list.len() == 2 {
        errors.invalid(
            &list,
            "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and 2001:db8::/64",
        );
    }
    errors.into_vec()
}
