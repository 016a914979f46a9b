//! The addresses of pods: none has two owners.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};

use kubewright::Request;

/// Which pod has which address.
#[derive(Default)]
pub(super) struct Addresses {
    next: u32,
    /// Whether those that pods had before are known.
    pub(super) learned: bool,
    taken: BTreeSet<String>,
    of: BTreeMap<Request, String>,
}

impl Addresses {
    /// Enters the address that a pod has.
    pub(super) fn take(&mut self, request: &Request, ip: &str) {
        if self.of.get(request).is_some_and(|present| present == ip) {
            return;
        }
        self.give_back(request);
        self.of.insert(request.clone(), ip.to_owned());
        self.taken.insert(ip.to_owned());
    }

    /// An address that no pod has; in this network of loopback addresses, if one is said.
    pub(super) fn give(&mut self, request: &Request, loopback: Option<u8>) -> String {
        if let Some(present) = self.of.get(request) {
            return present.clone();
        }
        loop {
            let ip = numbered(self.next, loopback);
            self.next = self.next.wrapping_add(1);
            if !self.taken.contains(&ip) || self.taken.len() >= room(loopback) {
                self.take(request, &ip);
                return ip;
            }
        }
    }

    /// The pod is gone.
    pub(super) fn give_back(&mut self, request: &Request) {
        if let Some(ip) = self.of.remove(request) {
            self.taken.remove(&ip);
        }
    }
}

/// How many addresses there are: in 10.244.0.0/16, or in 127.x.0.0/17, whose other half is for Services; without the
/// first and the last.
const fn room(loopback: Option<u8>) -> usize {
    match loopback {
        Some(_) => (1 << 15) - 2,
        None => (1 << 16) - 2,
    }
}

/// The pod address with this number.
fn numbered(number: u32, loopback: Option<u8>) -> String {
    let number = number as usize % room(loopback) + 1;
    let network = loopback.map_or_else(|| "10.244".to_owned(), |second| format!("127.{second}"));
    format!("{network}.{}.{}", number / 256, number % 256)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        let check = |number, expected: &str| assert_eq!(numbered(number, None), expected);
        check(0, "10.244.0.1");
        check(254, "10.244.0.255");
        check(255, "10.244.1.0");
        check(65_533, "10.244.255.254");
        check(65_534, "10.244.0.1");
        assert_eq!(numbered(300, Some(77)), "127.77.1.45");
        assert_eq!(numbered(32_766, Some(77)), "127.77.0.1");
    }

    #[test]
    fn each_has_its_own() {
        let mut addresses = Addresses::default();
        let key = |name: &str| Request::new(Some("a"), name);
        addresses.take(&key("old"), "10.244.0.1");
        let check = |addresses: &mut Addresses, name: &str, expected: &str| {
            assert_eq!(addresses.give(&key(name), None), expected, "{name}");
        };
        check(&mut addresses, "p", "10.244.0.2");
        check(&mut addresses, "p", "10.244.0.2");
        check(&mut addresses, "q", "10.244.0.3");
        addresses.give_back(&key("old"));
        addresses.next = 0;
        check(&mut addresses, "r", "10.244.0.1");
    }
}
