//! Networks: `cidr('10.0.0.0/8').containsIP('10.1.2.3')`. Texts are read here, for the words of Go's errors; bits
//! behind the prefix may be set.

use ipnet::IpNet;

use super::Opaque;
use super::{Called, ip};
use crate::error::Error;
use crate::value::Value;
use kubewright_values::error::quote;

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("string_to_cidr", [Value::String(text)]) => from_string(text).map(|cidr| Value::Opaque(Opaque::Cidr(cidr))),
        ("is_cidr", [Value::String(text)]) => Ok(Value::Bool(parse(text).is_ok())),
        ("cidr_to_string", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::string(cidr.to_string())),
        ("cidr_ip", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::Opaque(Opaque::Ip(cidr.addr()))),
        ("cidr_prefix_length", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::Int(i64::from(cidr.prefix_len()))),
        ("cidr_masked", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::Opaque(Opaque::Cidr(cidr.trunc()))),
        ("cidr_contains_ip_string", [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)]) => {
            // The error does not name the fault in the text.
            ip::parse(text)
                .map(|address| Value::Bool(cidr.contains(&address)))
                .map_err(|_| Error::no_overload())
        }
        ("cidr_contains_ip_ip", [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Ip(address))]) => {
            Ok(Value::Bool(cidr.contains(address)))
        }
        ("cidr_contains_cidr_string", [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)]) => {
            from_string(text).map(|other| Value::Bool(cidr.contains(&other)))
        }
        ("cidr_contains_cidr", [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Cidr(other))]) => {
            Ok(Value::Bool(cidr.contains(other)))
        }
        _ => return None,
    })
}

/// Kubernetes says it twice.
fn from_string(text: &str) -> Result<IpNet, Error> {
    parse(text).map_err(|error| {
        Error::new(format!(
            "network address parse error during conversion from string: {error}"
        ))
    })
}

fn parse(text: &str) -> Result<IpNet, String> {
    let cidr = parse_prefix(text)
        .map_err(|error| format!("network address parse error during conversion from string: {error}"))?;
    if ip::is_mapped(cidr.addr()) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok(cidr)
}

/// `netip.ParsePrefix`, with its messages.
fn parse_prefix(text: &str) -> Result<IpNet, String> {
    let fail = |message: String| format!("netip.ParsePrefix({}): {message}", quote(text));
    let (address, bits) = text.rsplit_once('/').ok_or_else(|| fail("no '/'".into()))?;
    let parsed = ip::parse_addr(address).map_err(fail)?;
    if address.contains('%') {
        return Err(fail("IPv6 zones cannot be present in a prefix".into()));
    }
    let bad = || fail(format!("bad bits after slash: {}", quote(bits)));
    let leading_zero = bits.len() > 1 && bits.starts_with('0');
    if bits.is_empty() || leading_zero || !bits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(bad());
    }
    let length: u32 = bits.parse().map_err(|_| bad())?;
    u8::try_from(length)
        .ok()
        .and_then(|bits| IpNet::new(parsed, bits).ok())
        .ok_or_else(|| fail("prefix length out of range".into()))
}
