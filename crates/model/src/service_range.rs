//! The addresses that Services get.

use std::net::Ipv4Addr;
use std::str::FromStr;

/// A range of IPv4 addresses for Services (`--service-cluster-ip-range` of kube-apiserver), such as `10.0.0.0/24`.
///
/// ```
/// use kubewright_model::ServiceRange;
///
/// let range: ServiceRange = "10.96.0.0/16".parse().expect("a range");
/// assert_eq!(range.to_string(), "10.96.0.0/16");
/// assert_eq!(range.first().to_string(), "10.96.0.1");
/// assert!("10.0.0.0/30".parse::<ServiceRange>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceRange {
    network: u32,
    prefix: u32,
}

impl ServiceRange {
    /// The address of the Service `default/kubernetes`: the first after the network's own.
    pub fn first(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network + 1)
    }

    /// The network's own address, which nothing gets.
    pub fn network(self) -> Ipv4Addr {
        Ipv4Addr::from(self.network)
    }

    /// Whether the address is one that a Service may have.
    pub fn contains(self, address: Ipv4Addr) -> bool {
        let number = u32::from(address);
        number > self.network && number < self.last()
    }

    /// Whether the address is in the network at all.
    pub fn spans(self, address: Ipv4Addr) -> bool {
        (self.network..=self.last()).contains(&u32::from(address))
    }

    fn last(self) -> u32 {
        self.network + (self.size() - 1)
    }

    fn size(self) -> u32 {
        1 << (32 - self.prefix)
    }

    /// The addresses that a Service may have, in the order in which they are tried. The lower part is kept for those
    /// that are asked for by name, and comes last.
    pub fn candidates(self, random: u64) -> impl Iterator<Item = Ipv4Addr> {
        let lower = (self.size() / 16).clamp(16, 256);
        let lower = if self.size() <= 32 { 0 } else { lower };
        let upper_size = self.size() - 2 - lower;
        let rotated = move |first: u32, size: u32| {
            let start = u32::try_from(random % u64::from(size.max(1))).unwrap_or(0);
            (0..size).map(move |step| first + (start + step) % size)
        };
        let first = self.network + 1;
        rotated(first + lower, upper_size)
            .chain(rotated(first, lower))
            .map(Ipv4Addr::from)
    }
}

impl Default for ServiceRange {
    /// `10.0.0.0/24`, as kube-apiserver.
    fn default() -> ServiceRange {
        ServiceRange {
            network: u32::from(Ipv4Addr::new(10, 0, 0, 0)),
            prefix: 24,
        }
    }
}

impl std::fmt::Display for ServiceRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.network(), self.prefix)
    }
}

impl FromStr for ServiceRange {
    type Err = String;

    fn from_str(text: &str) -> Result<ServiceRange, String> {
        let odd = || format!("{text:?} is not a range of IPv4 addresses such as 10.0.0.0/24");
        let (address, prefix) = text.split_once('/').ok_or_else(odd)?;
        let address: Ipv4Addr = address.parse().map_err(|_| odd())?;
        let prefix: u32 = prefix.parse().map_err(|_| odd())?;
        match prefix {
            12..=29 => Ok(ServiceRange {
                network: u32::from(address) & (u32::MAX << (32 - prefix)),
                prefix,
            }),
            0..12 => Err(format!(
                "the range {text} is too large: the number after the slash must be at least 12"
            )),
            30..=32 => Err(format!(
                "the range {text} is too small: it must hold at least 8 addresses"
            )),
            _ => Err(odd()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_a_range() {
        for (text, count) in [("10.0.0.0/24", 254), ("10.9.8.7/29", 6), ("10.96.0.0/16", 65534)] {
            let range: ServiceRange = text.parse().expect("a range");
            for random in [0, 7, u64::MAX] {
                let found: std::collections::BTreeSet<_> = range.candidates(random).collect();
                assert_eq!(found.len(), count, "{text}");
                assert!(found.iter().all(|address| range.contains(*address)), "{text}");
            }
        }
        let first = ServiceRange::default().candidates(0).next();
        assert_eq!(first, Some(Ipv4Addr::new(10, 0, 0, 17)), "the lower part comes last");
        for wrong in [
            "",
            "10.0.0.0",
            "10.0.0/24",
            "10.0.0.0/8",
            "10.0.0.0/31",
            "fd00::/108",
            "10.0.0.0/99",
        ] {
            assert!(wrong.parse::<ServiceRange>().is_err(), "{wrong}");
        }
    }
}
