//! How the rules of a kind look at an object: a value with its field path, and a list of errors.
//!
//! Rules read through [`At`], which answers absent fields with `null`, and write into [`Errors`]; so a rule never
//! panics on a shape that it does not expect, and every error has its path for free. Defaults change maps with the
//! small functions at the end: absent, `null` and Go's zero value are the same to them where they are the same to Go.
//!
//! Reading is work (see [`budget`]): a rule that looks at pairs is cancelled when there are too many of them.

use kubewright_schema::names;
use serde_json::Value;

pub(crate) use kubewright_model::fields::{check_fields, fixed, not_negative, rule};
pub(crate) use kubewright_model::values::{
    At, Errors, Object, absent, child, each, ensure, fill, fill_number, fill_text, get, keep, text,
};
pub(crate) use kubewright_model::{FieldRule, Must};

/// An IP address (`parseIP` of k8s.io/apimachinery, strict).
pub(crate) fn check_ip(errors: &mut Errors, at: &At<'_>) -> Option<std::net::IpAddr> {
    match at.text().parse() {
        Ok(std::net::IpAddr::V6(ip)) if ip.to_ipv4_mapped().is_some() => {
            errors.invalid(at, "must not be an IPv4-mapped IPv6 address");
            None
        }
        Ok(ip) => Some(ip),
        Err(_) if super::service_warnings::sloppy_ip(at.text()).is_some() => {
            errors.invalid(at, "must not have leading 0s");
            None
        }
        Err(_) => {
            errors.invalid(at, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)");
            None
        }
    }
}

/// A number of a port (`IsValidPortNum`).
pub(crate) fn check_port(errors: &mut Errors, at: &At<'_>) {
    if !at.int().is_some_and(|port| (1..=65535).contains(&port)) {
        errors.invalid_value(at, at.int().unwrap_or(0), "must be between 1 and 65535, inclusive");
    }
}

/// A port as a number or a name (`ValidatePortNumOrName`).
pub(crate) fn check_port_or_name(errors: &mut Errors, at: &At<'_>) {
    match at.value {
        Value::String(name) => {
            for message in names::port_name(name) {
                errors.invalid(at, message);
            }
        }
        _ => check_port(errors, at),
    }
}

/// `kind` and `name` of an object that is referred to.
pub(crate) fn check_kind_and_name(errors: &mut Errors, at: &At<'_>) {
    for field in ["kind", "name"] {
        let part = at.key(field);
        if part.text().is_empty() {
            errors.required(&part, "");
        } else {
            errors.messages(&part, names::path_segment_name(part.text()));
        }
    }
}
