//! Networks: `cidr('10.0.0.0/8').containsIP('10.1.2.3')`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Opaque;
use super::{Called, ip};
use crate::error::Error;
use crate::value::Value;
use kubewright_values::error::quote;

/// An address with the length of a prefix. The bits behind the prefix may be set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cidr {
    /// The address.
    pub address: IpAddr,
    /// How many bits of it are the prefix.
    pub bits: u8,
}

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("string_to_cidr", [Value::String(text)]) => from_string(text).map(|cidr| Value::Opaque(Opaque::Cidr(cidr))),
        ("is_cidr", [Value::String(text)]) => Ok(Value::Bool(parse(text).is_ok())),
        ("cidr_to_string", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::string(cidr.to_string())),
        ("cidr_ip", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::Opaque(Opaque::Ip(cidr.address))),
        ("cidr_prefix_length", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::Int(i64::from(cidr.bits))),
        ("cidr_masked", [Value::Opaque(Opaque::Cidr(cidr))]) => Ok(Value::Opaque(Opaque::Cidr(cidr.masked()))),
        ("cidr_contains_ip_string", [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)]) => {
            // What is wrong with the text is not said here.
            ip::parse(text)
                .map(|address| Value::Bool(cidr.contains(address)))
                .map_err(|_| Error::no_overload())
        }
        ("cidr_contains_ip_ip", [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Ip(address))]) => {
            Ok(Value::Bool(cidr.contains(*address)))
        }
        ("cidr_contains_cidr_string", [Value::Opaque(Opaque::Cidr(cidr)), Value::String(text)]) => {
            from_string(text).map(|other| Value::Bool(cidr.contains_cidr(&other)))
        }
        ("cidr_contains_cidr", [Value::Opaque(Opaque::Cidr(cidr)), Value::Opaque(Opaque::Cidr(other))]) => {
            Ok(Value::Bool(cidr.contains_cidr(other)))
        }
        _ => return None,
    })
}

/// Kubernetes says it twice.
fn from_string(text: &str) -> Result<Cidr, Error> {
    parse(text).map_err(|error| {
        Error::new(format!(
            "network address parse error during conversion from string: {error}"
        ))
    })
}

fn parse(text: &str) -> Result<Cidr, String> {
    let cidr = parse_prefix(text)
        .map_err(|error| format!("network address parse error during conversion from string: {error}"))?;
    if ip::is_mapped(cidr.address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(text)));
    }
    Ok(cidr)
}

/// `netip.ParsePrefix`, with its messages.
fn parse_prefix(text: &str) -> Result<Cidr, String> {
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
    let most = if parsed.is_ipv4() { 32 } else { 128 };
    match u8::try_from(length) {
        Ok(bits) if bits <= most => Ok(Cidr { address: parsed, bits }),
        _ => Err(fail("prefix length out of range".into())),
    }
}

impl Cidr {
    /// The address in 128 bits, and the bits of the prefix among them.
    fn number(&self) -> (u128, u32) {
        number(self.address, u32::from(self.bits))
    }

    fn contains(&self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && {
            let (mine, bits) = self.number();
            prefix(mine, bits) == prefix(number(address, 0).0, bits)
        }
    }

    fn contains_cidr(&self, other: &Self) -> bool {
        self.bits <= other.bits && self.contains(other.address)
    }

    fn masked(&self) -> Self {
        let (mine, bits) = self.number();
        let masked = prefix(mine, bits);
        let address = match self.address {
            IpAddr::V4(_) => IpAddr::V4(Ipv4Addr::from(u32::try_from(masked >> 96).unwrap_or_default())),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::from(masked)),
        };
        Self { address, ..*self }
    }
}

/// The bits of an address stand at the upper end.
fn number(address: IpAddr, bits: u32) -> (u128, u32) {
    match address {
        IpAddr::V4(v4) => (u128::from(u32::from(v4)) << 96, bits),
        IpAddr::V6(v6) => (u128::from(v6), bits),
    }
}

fn prefix(number: u128, bits: u32) -> u128 {
    match bits {
        0 => 0,
        bits => number & (u128::MAX << (128 - bits)),
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}
