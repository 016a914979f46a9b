//! EndpointSlice: the addresses behind a Service, in pieces of at most a thousand.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::Value;

use super::check::{At, Errors, check_ip, each, ensure, fill, fixed, get};
use super::core::protocol_of_program;
use super::service_warnings;
use kubewright_model::{MetadataChecks, PLAIN, Strategy};

/// The bounds of upstream's `ValidateEndpointSlice`.
const MAX_ENDPOINTS: usize = 1000;
const MAX_ADDRESSES: usize = 100;
const MAX_PORTS: usize = 20_000;
const MAX_HINTS: usize = 8;

/// How EndpointSlices are written.
pub(crate) const ENDPOINT_SLICE: Strategy = Strategy {
    fits_this_machine: Some(super::services::LOOPBACK),
    generation: kubewright_model::GenerationRule::AllButMetadataOrLabels,
    metadata_checks: MetadataChecks::CREATE,
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        fill(object, "endpoints", Value::Null);
        fill(object, "ports", Value::Null);
        for port in each(object, "ports") {
            fill(port, "name", "");
            fill(port, "protocol", "TCP");
        }
        for endpoint in each(object, "endpoints") {
            ensure(endpoint, "conditions");
        }
    },
    // The topology of v1beta1 cannot be written in this version.
    prepare_create: |object, _| drop_topology(object),
    prepare_update: |new, _, _| drop_topology(new),
    validate_create: |new| endpoint_slice(new, None),
    validate_update: |new, old| endpoint_slice(new, Some(old)),
    fields: &[fixed(&["addressType"], "ValidateEndpointSliceUpdate")],
    warnings,
    ..PLAIN
};

fn drop_topology(slice: &mut Value) {
    if let Some(slice) = slice.as_object_mut() {
        each(slice, "endpoints").for_each(|endpoint| drop(endpoint.remove("deprecatedTopology")));
    }
}

/// The hints of an endpoint: the zones and nodes that should use it (`validateHints`).
fn hints(errors: &mut Errors, at: &At<'_>) {
    for (list, is_node) in [("forZones", false), ("forNodes", true)] {
        let entries = at.key(list);
        if entries.len() > MAX_HINTS {
            errors.push(FieldError::too_many(entries.path.to_string(), entries.len(), MAX_HINTS));
            continue;
        }
        let mut seen = std::collections::BTreeSet::new();
        for entry in entries.items() {
            let name = entry.key("name");
            if !seen.insert(name.text()) {
                errors.duplicate(&name);
            }
            errors.messages(
                &name,
                if is_node {
                    names::dns1123_subdomain(name.text())
                } else {
                    names::label_value(name.text())
                },
            );
        }
    }
}

/// `ValidateEndpointSlice`.
fn endpoint_slice(new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let kind = at.key("addressType");
    errors.one_of(&kind, &["FQDN", "IPv4", "IPv6"], true);
    slice_ports(&mut errors, &at.key("ports"));
    let mut of_endpoints = Errors::default();
    endpoints(&mut of_endpoints, &at.key("endpoints"), kind.text());
    let wrong = of_endpoints.into_vec();
    // An endpoint that an older server accepted may stay as it is.
    if !wrong.is_empty() && old.is_none_or(|old| old.get("endpoints") != new.get("endpoints")) {
        errors.extend(wrong);
    }
    errors.into_vec()
}

/// `validateEndpoints`.
fn endpoints(errors: &mut Errors, list: &At<'_>, kind: &str) {
    if list.len() > MAX_ENDPOINTS {
        return errors.push(FieldError::too_many(list.path.to_string(), list.len(), MAX_ENDPOINTS));
    }
    for endpoint in list.items() {
        let addresses = endpoint.key("addresses");
        if addresses.is_empty() {
            errors.required(&addresses, "must contain at least 1 address");
        }
        if addresses.len() > MAX_ADDRESSES {
            let path = addresses.path.to_string();
            errors.push(FieldError::too_many(path, addresses.len(), MAX_ADDRESSES));
        }
        for address in addresses.items() {
            check_address(errors, &addresses, &address, kind);
        }
        let (node, host) = (endpoint.key("nodeName"), endpoint.key("hostname"));
        if node.present() {
            errors.messages(&node, names::dns1123_subdomain(node.text()));
        }
        if host.present() {
            errors.messages(&host, names::dns1123_label(host.text()));
        }
        hints(errors, &endpoint.key("hints"));
    }
}

/// One address of a list. Nothing is known of the addresses of another type than these, which is reported elsewhere
/// (`validateEndpoints`).
fn check_address(errors: &mut Errors, list: &At<'_>, address: &At<'_>, kind: &str) {
    if kind == "FQDN" {
        return full_name(errors, address);
    }
    if kind != "IPv4" && kind != "IPv6" {
        return;
    }
    let Some(ip) = check_ip(errors, address) else { return };
    // IPv6 came after the rule that addresses are written in one way only (`validation.IsValidIP`).
    if kind == "IPv6" && ip.to_string() != address.text() {
        let why = format!("must be in canonical form (\"{ip}\")");
        return errors.invalid(address, why);
    }
    // The family is reported at the list.
    let family = list.path.to_string();
    if kind == "IPv4" && !ip.is_ipv4() {
        errors.push(FieldError::invalid(family, address.text(), "must be an IPv4 address"));
    } else if kind == "IPv6" && !ip.is_ipv6() {
        errors.push(FieldError::invalid(family, address.text(), "must be an IPv6 address"));
    }
    super::services::ordinary_ip(errors, address, ip);
}

/// A name with at least two segments; a dot at its end is not looked at (`IsFullyQualifiedDomainName`).
fn full_name(errors: &mut Errors, at: &At<'_>) {
    let text = at.text();
    if text.is_empty() {
        return errors.required(at, "");
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let wrong = names::dns1123_subdomain(name);
    if !wrong.is_empty() {
        return errors.invalid_value(at, name, wrong.join(","));
    }
    if !name.contains('.') {
        let why = "should be a domain with at least two segments separated by dots";
        return errors.invalid_value(at, name, why);
    }
    let wrong = name.split('.').map(|label| (label, names::dns1123_label(label)));
    if let Some((label, wrong)) = wrong.into_iter().find(|(_, wrong)| !wrong.is_empty()) {
        errors.invalid_value(at, label, wrong.join(","));
    }
}

/// The texts of `Warning` headers (`WarningsOnCreate`, `WarningsOnUpdate`).
fn warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let at = At::root(new);
    let is_named = old.is_none() && at.key("addressType").text() == "FQDN";
    let mut warnings = Vec::from_iter(is_named.then(|| "spec.addressType: FQDN endpoints are deprecated".to_owned()));
    let by = get(new, &["metadata", "labels", "endpointslice.kubernetes.io/managed-by"]);
    let by = by.as_str().unwrap_or("");
    // These write addresses well.
    if by != "endpointslice-controller.k8s.io" && by != "endpointslicemirroring-controller.k8s.io" {
        for endpoint in at.key("endpoints").items() {
            let addresses = endpoint.key("addresses");
            warnings.extend(
                addresses
                    .items()
                    .filter_map(|address| service_warnings::address(&address)),
            );
        }
    }
    warnings
}

/// `validatePorts`.
fn slice_ports(errors: &mut Errors, ports: &At<'_>) {
    if ports.len() > MAX_PORTS {
        return errors.push(FieldError::too_many(ports.path.to_string(), ports.len(), MAX_PORTS));
    }
    let mut port_names = std::collections::BTreeSet::new();
    for port in ports.items() {
        let name = port.key("name");
        if !name.text().is_empty() {
            errors.messages(&name, names::dns1123_label(name.text()));
        }
        if !port_names.insert(name.text()) {
            errors.push(FieldError::duplicate(name.path.to_string(), name.text()));
        }
        let protocol = port.key("protocol");
        if protocol.present() {
            errors.one_of_all(&protocol, &["SCTP", "TCP", "UDP"]);
        } else {
            errors.required(&protocol, "");
        }
        protocol_of_program(errors, &port);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const OLD: &str = "10.0.0.1";

    fn slice(kind: &str, addresses: &[&str]) -> Value {
        json!({"addressType": kind, "endpoints": [{"addresses": addresses}]})
    }

    /// The answers of kube-apiserver 1.36.3 to a PUT in the place of an IPv4 slice.
    #[test]
    fn addresses_are_judged_on_updates() {
        let old = slice("IPv4", &[OLD]);
        let check = |new: &Value, wanted: &[&str]| {
            let errors = ENDPOINT_SLICE.errors_of_change(new, &old);
            let said = errors
                .iter()
                .map(|error| format!("{}: {}", error.field, kubewright_model::status::body("", "", error)));
            assert_eq!(said.collect::<Vec<_>>(), wanted, "{new}");
        };
        let invalid =
            |address: &str, why: &str| format!("endpoints[0].addresses[0]: Invalid value: {address:?}: {why}");
        for (address, why) in [
            ("010.0.0.1", "must not have leading 0s"),
            ("::ffff:10.0.0.1", "must not be an IPv4-mapped IPv6 address"),
            ("bad", "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"),
            ("127.0.0.1", "may not be in the loopback range (127.0.0.0/8, ::1/128)"),
            (
                "169.254.1.1",
                "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
            ),
            (
                "224.0.0.1",
                "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
            ),
            ("0.0.0.0", "may not be unspecified (0.0.0.0)"),
        ] {
            check(&slice("IPv4", &[address]), &[&invalid(address, why)]);
        }
        let link_local = "may not be in the link-local range (169.254.0.0/16, fe80::/10)";
        check(
            &slice("IPv4", &["fe80::1"]),
            &[
                "endpoints[0].addresses: Invalid value: \"fe80::1\": must be an IPv4 address",
                &invalid("fe80::1", link_local),
            ],
        );
        check(&slice("IPv4", &[OLD, OLD]), &[]);
        let immutable = |kind: &str| format!("addressType: Invalid value: {kind:?}: field is immutable");
        check(
            &slice("Foo", &["x"]),
            &[
                "addressType: Unsupported value: \"Foo\": supported values: \"FQDN\", \"IPv4\", \"IPv6\"",
                &immutable("Foo"),
            ],
        );
        // The endpoints are as they were, so only the type is reported.
        check(&slice("IPv6", &[OLD]), &[&immutable("IPv6")]);
    }

    #[test]
    fn there_are_bounds() {
        let check = |slice: &Value, wanted: &str| {
            let errors = ENDPOINT_SLICE.errors_of_new(slice);
            let said = errors
                .iter()
                .map(|error| format!("{}: {}", error.field, kubewright_model::status::body("", "", error)));
            assert_eq!(said.collect::<Vec<_>>(), [wanted]);
        };
        let endpoint = json!({"addresses": [OLD]});
        let endpoints = vec![endpoint; 1001];
        check(
            &json!({"addressType": "IPv4", "endpoints": endpoints}),
            "endpoints: Too many: 1001: must have at most 1000 items",
        );
        check(
            &slice("IPv4", &vec![OLD; 101]),
            "endpoints[0].addresses: Too many: 101: must have at most 100 items",
        );
        let ports = vec![json!({"port": 1}); 20_001];
        check(
            &json!({"addressType": "IPv4", "ports": ports}),
            "ports: Too many: 20001: must have at most 20000 items",
        );
    }

    #[test]
    fn names_are_deprecated_addresses() {
        let said = warnings(&slice("FQDN", &["a.b"]), None);
        assert_eq!(said, ["spec.addressType: FQDN endpoints are deprecated"]);
        assert_eq!(warnings(&slice("FQDN", &["a.b"]), Some(&Value::Null)), [""; 0]);
    }
}
