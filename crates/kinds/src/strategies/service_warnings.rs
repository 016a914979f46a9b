//! Warnings about a Service: fields that are allowed, but do not do what their author may expect.
//!
//! Not here: errors (see [`super::services`]).

use std::net::IpAddr;

use kubewright_schema::path::FieldPath;
use serde_json::Value;

use super::check::At;

const HINTS: &str = "service.kubernetes.io/topology-aware-hints";
const MODE: &str = "service.kubernetes.io/topology-mode";

/// The texts of `Warning` headers for a new Service or a changed one.
pub(super) fn warnings(service: &Value, _old: Option<&Value>) -> Vec<String> {
    let root = At::root(service);
    let spec = root.key("spec");
    let mut warnings = Vec::new();
    if root.keys(&["metadata", "annotations"]).key(HINTS).present() {
        warnings.push(format!("annotation {HINTS} is deprecated, please use {MODE} instead"));
    }
    let kind = spec.key("type").text();
    let headless = kind != "ExternalName" && spec.key("clusterIP").text() == "None";
    let has_external_ips = !spec.key("externalIPs").is_empty();
    if kind != "ExternalName" && !headless {
        let ips = spec.key("clusterIPs");
        warnings.extend(ips.items().filter_map(|ip| address(&ip)));
    }
    if headless {
        let ignored = [
            (!spec.key("loadBalancerIP").text().is_empty(), "loadBalancerIP"),
            (has_external_ips, "externalIPs"),
            (spec.key("sessionAffinity").text() != "None", "SessionAffinity"),
        ];
        let ignored = ignored.iter().filter(|(says, _)| *says);
        warnings.extend(ignored.map(|(_, field)| format!("spec.{field} is ignored for headless services")));
    }
    warnings.extend(spec.key("externalIPs").items().filter_map(|ip| address(&ip)));
    warnings.extend(address(&spec.key("loadBalancerIP")));
    warnings.extend(
        spec.key("loadBalancerSourceRanges")
            .items()
            .filter_map(|range| block(&range)),
    );
    if kind == "ExternalName" && has_external_ips {
        warnings.push("spec.externalIPs is ignored when spec.type is \"ExternalName\"".to_owned());
    } else if has_external_ips && !headless {
        warnings.push("spec.externalIPs is deprecated and may no longer be implemented in some clusters".to_owned());
    }
    if kind != "ExternalName" && !spec.key("externalName").text().is_empty() {
        warnings.push("spec.externalName is ignored when spec.type is not \"ExternalName\"".to_owned());
    }
    if spec.key("trafficDistribution").text() == "PreferClose" {
        warnings.push("spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"".to_owned());
    }
    warnings
}

/// A text that some programs read as an address, and others as another one or none: `010.2.3.4`, `::ffff:1.2.3.4`,
/// `2001:0db8::1`.
pub(super) fn address(at: &At<'_>) -> Option<String> {
    let text = at.text();
    let path = &at.path;
    if text.is_empty() || text == "None" {
        return None;
    }
    if let Some(plain) = without_zeros(text) {
        return Some(format!(
            "{path}: non-standard IP address {text:?} is invalid: use {plain:?}"
        ));
    }
    match text.parse().ok()? {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(plain) => Some(format!(
                "{path}: non-standard IP address {text:?} is invalid: use \"{plain}\""
            )),
            None => not_canonical(path, "address", text, &ip.to_string()),
        },
    }
}

/// The same for a block of addresses.
pub(super) fn block(at: &At<'_>) -> Option<String> {
    let (path, text) = (&at.path, at.text().trim());
    let (ip, length) = text.split_once('/')?;
    if let Some(plain) = without_zeros(ip) {
        return Some(format!(
            "{path}: non-standard CIDR value {text:?} is invalid: use \"{plain}/{length}\""
        ));
    }
    match ip.parse().ok()? {
        IpAddr::V4(_) => None,
        IpAddr::V6(ip) => not_canonical(path, "CIDR value", text, &format!("{ip}/{length}")),
    }
}

fn not_canonical(path: &FieldPath, what: &str, text: &str, canonical: &str) -> Option<String> {
    (text != canonical)
        .then(|| format!("{path}: IPv6 {what} {text:?} should be in RFC 5952 canonical format ({canonical:?})"))
}

/// An address as Go once read it, also with leading zeros in the part of IPv4 (`ParseIPSloppy`).
pub(super) fn sloppy_ip(text: &str) -> Option<IpAddr> {
    let plain = match text.rsplit_once(':') {
        None => without_zeros(text),
        Some((front, end)) => without_zeros(end).map(|end| format!("{front}:{end}")),
    };
    plain.as_deref().unwrap_or(text).parse().ok()
}

/// An IPv4 address with leading zeros, which some programs read as octal numbers, in its plain form.
pub(super) fn without_zeros(text: &str) -> Option<String> {
    let parts: Vec<&str> = text.split('.').collect();
    let numbers: Vec<u8> = parts.iter().filter_map(|part| part.parse().ok()).collect();
    let has_zeros = parts.iter().any(|part| part.len() > 1 && part.starts_with('0'));
    (numbers.len() == 4 && parts.len() == 4 && has_zeros)
        .then(|| numbers.iter().map(u8::to_string).collect::<Vec<_>>().join("."))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_told() {
        #[track_caller]
        fn check(mut spec: Value, wanted: &[&str]) {
            if spec.get("sessionAffinity").is_none() {
                spec["sessionAffinity"] = json!("None");
            }
            assert_eq!(warnings(&json!({ "spec": spec }), None), wanted);
        }
        check(json!({"clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}), &[]);
        check(
            json!({"type": "ExternalName", "externalName": "a.b", "externalIPs": ["1.2.3.4"]}),
            &["spec.externalIPs is ignored when spec.type is \"ExternalName\""],
        );
        check(
            json!({"clusterIP": "None", "externalIPs": ["1.2.3.4"], "sessionAffinity": "ClientIP"}),
            &[
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
            ],
        );
        check(
            json!({"type": "LoadBalancer", "loadBalancerIP": "010.2.3.4"}),
            &["spec.loadBalancerIP: non-standard IP address \"010.2.3.4\" is invalid: use \"10.2.3.4\""],
        );
        check(
            json!({"externalIPs": ["2001:0db8::1"]}),
            &[
                "spec.externalIPs[0]: IPv6 address \"2001:0db8::1\" should be in RFC 5952 canonical format (\"2001:db8::1\")",
                "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
            ],
        );
        check(
            json!({"externalName": "x", "trafficDistribution": "PreferClose"}),
            &[
                "spec.externalName is ignored when spec.type is not \"ExternalName\"",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ],
        );
    }
}
