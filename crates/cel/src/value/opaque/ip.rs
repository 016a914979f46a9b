//! IP addresses: `ip('10.0.0.1').isLoopback()`. Addresses are read, and refused, as Go's `netip` does.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Called;
use super::Opaque;
use crate::error::Error;
use crate::value::Value;
use kubewright_values::error::quote;

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("string_to_ip", [Value::String(text)]) => parse(text).map(|address| Value::Opaque(Opaque::Ip(address))),
        ("is_ip", [Value::String(text)]) => Ok(Value::Bool(parse(text).is_ok())),
        ("ip_is_canonical", [Value::String(text)]) => {
            parse(text).map(|address| Value::Bool(address.to_string() == **text))
        }
        ("ip_to_string", [Value::Opaque(Opaque::Ip(address))]) => Ok(Value::string(address.to_string())),
        ("ip_family", [Value::Opaque(Opaque::Ip(address))]) => Ok(Value::Int(if address.is_ipv4() { 4 } else { 6 })),
        (_, [Value::Opaque(Opaque::Ip(address))]) => Ok(Value::Bool(is(overload, *address)?)),
        _ => return None,
    })
}

fn is(overload: &str, address: IpAddr) -> Option<bool> {
    let link_local_multicast = match address {
        IpAddr::V4(v4) => v4.octets()[..3] == [224, 0, 0],
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    };
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    Some(match overload {
        "ip_is_unspecified" => address.is_unspecified(),
        "ip_is_loopback" => address.is_loopback(),
        "ip_is_link_local_multicast" => link_local_multicast,
        "ip_is_link_local_unicast" => link_local,
        "ip_is_global_unicast" => {
            !(address.is_unspecified() || broadcast || address.is_loopback() || address.is_multicast() || link_local)
        }
        _ => return None,
    })
}

/// An address without a zone that is not a mapped one.
pub(super) fn parse(text: &str) -> Result<IpAddr, Error> {
    let quoted = quote(text);
    if text.contains(':')
        && let Some((_, zone)) = text.split_once('%')
        && !zone.is_empty()
    {
        return Err(Error::new(format!(
            "IP address {quoted} with zone value is not allowed"
        )));
    }
    let address = parse_addr(text).map_err(|error| {
        Error::new(format!(
            "IP Address {quoted} parse error during conversion from string: {error}"
        ))
    })?;
    if is_mapped(address) {
        return Err(Error::new(format!("IPv4-mapped IPv6 address {quoted} is not allowed")));
    }
    Ok(address)
}

/// `::ffff:1.2.3.4`
pub(super) fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// `netip.ParseAddr`, with its messages.
pub(super) fn parse_addr(text: &str) -> Result<IpAddr, String> {
    let fail = |message: &str, at: &str| {
        let place = if at.is_empty() {
            String::new()
        } else {
            format!(" (at {})", quote(at))
        };
        format!("ParseAddr({}): {message}{place}", quote(text))
    };
    let parsed = match text.bytes().find(|b| matches!(b, b'.' | b':' | b'%')) {
        Some(b'.') => v4(text).map(|octets| IpAddr::V4(Ipv4Addr::from(octets))),
        Some(b':') => v6(text),
        Some(_) => Err(("missing IPv6 address", "")),
        None => Err(("unable to parse IP", "")),
    };
    parsed.map_err(|(message, at)| fail(message, at))
}

type Wrong<'t> = (&'static str, &'t str);

fn v4(text: &str) -> Result<[u8; 4], Wrong<'_>> {
    let (mut octets, mut place, mut value, mut digits) = ([0; 4], 0, 0u16, 0);
    let bytes = text.as_bytes();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'0'..=b'9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u16::from(byte - b'0');
                digits += 1;
                octets[place] = u8::try_from(value).map_err(|_| ("IPv4 field has value >255", ""))?;
            }
            b'.' => {
                if at == 0 || at == bytes.len() - 1 || bytes[at - 1] == b'.' {
                    return Err(("IPv4 field must have at least one digit", &text[at..]));
                }
                if place == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                (place, value, digits) = (place + 1, 0, 0);
            }
            _ => return Err(("unexpected character", text.get(at..).unwrap_or_default())),
        }
    }
    if place < 3 {
        return Err(("IPv4 address too short", ""));
    }
    Ok(octets)
}

fn v6(text: &str) -> Result<IpAddr, Wrong<'_>> {
    let mut rest = match text.split_once('%') {
        Some((_, "")) => return Err(("zone must be a non-empty string", "")),
        Some((address, _)) => address,
        None => text,
    };
    let mut groups: Vec<u16> = Vec::new();
    let mut ellipsis = None;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED));
        }
    }
    while groups.len() < 8 {
        let length = rest.bytes().take_while(u8::is_ascii_hexdigit).count();
        if length == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        if length > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if rest[length..].starts_with('.') {
            if ellipsis.is_none() && groups.len() != 6 {
                return Err((
                    "embedded IPv4 address must replace the final 2 fields of the address",
                    rest,
                ));
            }
            if groups.len() > 6 {
                return Err((
                    "too many hex fields to fit an embedded IPv4 at the end of the address",
                    rest,
                ));
            }
            let [a, b, c, d] = v4(rest)?;
            groups.extend([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]);
            rest = "";
            break;
        }
        groups.push(u16::from_str_radix(&rest[..length], 16).map_err(|_| ("IPv6 field has value >=2^16", rest))?);
        rest = &rest[length..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(groups.len());
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match (groups.len(), ellipsis) {
        (8, None) => {}
        (8, Some(_)) => return Err(("the :: must expand to at least one field of zeros", "")),
        (_, None) => return Err(("address string too short", "")),
        (length, Some(at)) => {
            groups.splice(at..at, std::iter::repeat_n(0, 8 - length));
        }
    }
    let groups: [u16; 8] = groups.try_into().map_err(|_| ("address string too short", ""))?;
    Ok(IpAddr::V6(Ipv6Addr::from(groups)))
}
