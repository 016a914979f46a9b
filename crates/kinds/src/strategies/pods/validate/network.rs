//! The network of a pod: DNS and host names.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;

use crate::strategies::check::{At, Errors, check_ip};

pub(super) const DNS_POLICIES: [&str; 4] = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];

/// `validatePodDNSConfig`.
pub(super) fn dns(errors: &mut Errors, at: &At<'_>) {
    let config = at.key("dnsConfig");
    let servers = config.key("nameservers");
    if at.text_of("dnsPolicy") == "None" && servers.is_empty() {
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
        if option.text_of("name").is_empty() {
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
pub(super) fn hostname_override(errors: &mut Errors, spec: &At<'_>) {
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

/// `ValidateHostAliases`.
pub(super) fn host_aliases(errors: &mut Errors, at: &At<'_>) {
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
