//! Blocks of addresses, such as `10.9.8.0/24`.
//!
//! They were read loosely once, leading zeros and all. Such a text means one thing to one program and another to the
//! next, so that it is refused where it is new, with words of its own.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;
use serde_json::Value;

use super::check::{At, Errors};

/// The error for a text that is not a CIDR block.
pub(super) const NO_BLOCK: &str = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";

/// Reads a block, loosely; none when it is none. Bits behind the prefix may be set.
pub(super) fn read(text: &str) -> Option<IpNet> {
    let (address, length) = text.split_once('/')?;
    let address = address.parse().ok().or_else(|| with_zeros(address).map(IpAddr::V4))?;
    let digits = !length.is_empty() && length.bytes().all(|digit| digit.is_ascii_digit());
    IpNet::new(address, length.parse().ok().filter(|_| digits)?).ok()
}

/// Whether a block lies in another, and is not all of it.
pub(super) fn is_part_of(part: IpNet, whole: IpNet) -> bool {
    // To Go an address of IPv4 is one, however it is written.
    part.prefix_len() > whole.prefix_len() && whole.contains(&part.addr().to_canonical())
}

/// An IPv4 address whose numbers may begin with zeros, which are no octal numbers.
fn with_zeros(text: &str) -> Option<Ipv4Addr> {
    let number = |part: &str| {
        part.bytes()
            .all(|digit| digit.is_ascii_digit())
            .then(|| part.parse().ok())?
    };
    let parts: Option<Vec<u8>> = text.split('.').map(number).collect();
    Some(Ipv4Addr::from(<[u8; 4]>::try_from(parts?).ok()?))
}

/// Checks a block, and answers it; `text` is its value without the white space around it. A block in `known` was
/// accepted before.
/// `IsValidCIDRForLegacyField` and `IsValidCIDR`.
pub(super) fn check(errors: &mut Errors, at: &At<'_>, text: &str, known: &Value) -> Option<IpNet> {
    let block = read(text);
    if known
        .as_array()
        .is_some_and(|known| known.iter().any(|known| known == text))
    {
        return block;
    }
    let mut wrong = |why: &str| errors.invalid_value(at, text, why);
    let Some(found) = block else {
        wrong(NO_BLOCK);
        return None;
    };
    let zeros = |part: &str| part.len() > 1 && part.starts_with('0');
    let (address, length) = text.split_once('/')?;
    if zeros(length) || (found.addr().is_ipv4() && address.split('.').any(zeros)) {
        wrong("must not have leading 0s in IP or prefix length");
    } else if matches!(found.addr(), IpAddr::V6(six) if six.to_ipv4_mapped().is_some()) {
        wrong("must not have an IPv4-mapped IPv6 address");
    } else if found.addr() != found.network() {
        wrong("must not have bits set beyond the prefix length");
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The errors of kube-apiserver 1.36 for a block.
    #[test]
    fn blocks() {
        let check = |text: &str, wrong: Option<&str>| {
            let mut errors = Errors::default();
            let value = Value::from(text);
            super::check(&mut errors, &At::root(&value), text, &Value::Null);
            let found: Vec<String> = errors.into_vec().into_iter().map(|error| error.detail).collect();
            assert_eq!(
                found,
                wrong.map(str::to_owned).into_iter().collect::<Vec<_>>(),
                "{text}"
            );
        };
        let zeros = Some("must not have leading 0s in IP or prefix length");
        let beyond = Some("must not have bits set beyond the prefix length");
        for text in [
            "10.1.0.0/24",
            "FD00::/64",
            "fd00:0::/64",
            "::/0",
            "0.0.0.0/0",
            "10.1.2.3/32",
        ] {
            check(text, None);
        }
        for text in ["10.1.0.5/24", "fd00::1/64"] {
            check(text, beyond);
        }
        for text in ["010.1.0.0/24", "010.1.0.5/24", "10.1.0.0/024", "0000010.1.0.0/24"] {
            check(text, zeros);
        }
        check("::ffff:10.0.0.0/120", Some("must not have an IPv4-mapped IPv6 address"));
        for text in [
            "",
            "x",
            "10.1.0.0",
            "10.1.0.0/",
            "10.1.0.0/33",
            "10.1.0.0/+2",
            "fd00::/129",
            "1.2.3/24",
            "1.2.3.256/32",
        ] {
            check(text, Some(NO_BLOCK));
        }
    }

    #[test]
    fn parts() {
        let check = |inner: &str, outer: &str, expected: bool| {
            let read = |text| read(text).expect("a block");
            assert_eq!(is_part_of(read(inner), read(outer)), expected, "{inner} in {outer}");
        };
        check("10.1.2.0/24", "10.1.0.0/16", true);
        check("10.1.0.0/16", "10.1.0.0/16", false);
        check("10.2.0.0/24", "10.1.0.0/16", false);
        check("10.1.0.0/24", "::/0", false);
        check("10.1.0.0/24", "0.0.0.0/0", true);
    }
}
