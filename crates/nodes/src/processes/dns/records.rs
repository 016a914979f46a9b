//! What the names below `cluster.local` stand for: the records of the specification of DNS names (KEP-496, version
//! 1.1.0), as CoreDNS' plugin `kubernetes` answers them.
//!
//! Pure. Invariant: a name that is there without a record of the wanted type is an empty answer, not an unknown name,
//! because resolvers ask for A and AAAA side by side. Not here: messages (`message`), wildcards, which the specification
//! has dropped.

use std::net::IpAddr;

use kubewright::Request;

use crate::processes::names::{self, Backend, Entry, LINKS, Names, Port, ZONE};

/// The version of the specification, which clients find as a text at `dns-version.cluster.local`.
const VERSION: &str = "1.1.0";
/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    /// A or AAAA.
    Address(IpAddr),
    /// SRV: where a port is served.
    Service { port: u16, target: String },
    /// CNAME.
    Alias(String),
    /// PTR.
    Pointer(String),
    /// TXT.
    Text(String),
}

/// A record: its name, without the final dot, and its content.
pub(super) type Record = (String, Data);

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// It is no name of the cluster.
    Outside,
    /// There is no such name.
    Unknown,
    /// All its records; perhaps none, as a namespace has none.
    Records(Vec<Record>),
}

/// The records of a name in lower case, without its final dot.
pub(super) fn find(names: &Names, name: &str) -> Found {
    if let Some(ip) = reversed(name) {
        return pointers(names, name, ip);
    }
    let Some(rest) = name.strip_suffix(ZONE) else {
        return Found::Outside;
    };
    let rest = match rest.strip_suffix('.') {
        Some(rest) => rest,
        None if rest.is_empty() => return Found::Records(vec![]),
        None => return Found::Outside,
    };
    let labels: Vec<&str> = rest.rsplit('.').collect();
    match labels.as_slice() {
        ["dns-version"] => Found::Records(vec![(name.to_owned(), Data::Text(VERSION.to_owned()))]),
        ["svc" | "pod"] => Found::Records(vec![]),
        ["svc", namespace] if has_services(names, namespace) => Found::Records(vec![]),
        ["svc", namespace, service, below @ ..] => {
            let entry = names.service(&Request::new(*namespace, service));
            entry.map_or(Found::Unknown, |entry| of_service(names, name, entry, below))
        }
        ["pod", _, address] => match dashed(address) {
            Some(ip) => Found::Records(vec![(name.to_owned(), Data::Address(ip))]),
            None => Found::Unknown,
        },
        _ => Found::Unknown,
    }
}

fn has_services(names: &Names, namespace: &str) -> bool {
    let mut services = names.services();
    services.any(|(service, _)| service.namespace() == Some(namespace))
}

/// The records of a name of a Service, or of one `below` it, whose labels come last to first.
fn of_service(names: &Names, name: &str, entry: &Entry, below: &[&str]) -> Found {
    let records = match (entry, below) {
        (Entry::External { .. }, []) => aliases(names, name, entry),
        (Entry::Address { ip, ports }, []) => {
            let mut records = vec![(name.to_owned(), Data::Address(*ip))];
            records.extend(ports.iter().map(|port| served(name, port, name)));
            records
        }
        (Entry::Address { ports, .. }, [protocol, port]) => {
            let (of, own) = (parent(name, 2), wanted(protocol, port));
            ports.iter().filter(own).map(|port| served(name, port, of)).collect()
        }
        (Entry::Headless(backends), []) => {
            let addresses = backends
                .iter()
                .map(|backend| (name.to_owned(), Data::Address(backend.ip)));
            let ports = backends
                .iter()
                .flat_map(|backend| ports_of(name, name, backend, |_| true));
            addresses.chain(ports).collect()
        }
        (Entry::Headless(backends), [protocol, port]) if protocol.starts_with('_') => {
            let (of, own) = (parent(name, 2), wanted(protocol, port));
            let ports = backends.iter().flat_map(|backend| ports_of(name, of, backend, &own));
            ports.collect()
        }
        (Entry::Headless(backends), [host]) => {
            let own = backends.iter().filter(|backend| hostname(backend) == *host);
            own.map(|backend| (name.to_owned(), Data::Address(backend.ip)))
                .collect()
        }
        _ => vec![],
    };
    match records.is_empty() {
        true => Found::Unknown,
        false => Found::Records(records),
    }
}

/// Which port `_port._protocol` means.
fn wanted<'a>(protocol: &'a str, port: &'a str) -> impl Fn(&&Port) -> bool + 'a {
    let (protocol, name) = (protocol.strip_prefix('_'), port.strip_prefix('_'));
    move |port| protocol == Some(port.protocol.as_str()) && name == Some(port.name.as_str()) && !port.name.is_empty()
}

fn ports_of(name: &str, service: &str, backend: &Backend, own: impl Fn(&&Port) -> bool) -> Vec<Record> {
    let target = format!("{}.{service}", hostname(backend));
    let ports = backend.ports.iter().filter(own);
    ports.map(|port| served(name, port, &target)).collect()
}

fn served(name: &str, port: &Port, target: &str) -> Record {
    let data = Data::Service {
        port: port.number,
        target: target.to_owned(),
    };
    (name.to_owned(), data)
}

/// The chain of names from an `externalName` to its end; the addresses there, if it ends in the cluster.
fn aliases(names: &Names, name: &str, entry: &Entry) -> Vec<Record> {
    let (mut records, mut name, mut entry) = (Vec::new(), name.to_owned(), entry);
    for _ in 0..LINKS {
        let Entry::External { name: target, .. } = entry else {
            break;
        };
        records.push((name, Data::Alias(target.clone())));
        name = target.clone();
        match names::of_service(target).and_then(|service| names.service(&service)) {
            Some(next @ Entry::External { .. }) => entry = next,
            Some(end) => {
                if let Found::Records(of_end) = of_service(names, &name, end, &[]) {
                    records.extend(of_end);
                }
                break;
            }
            None => break,
        }
    }
    records
}

/// The label of an endpoint: its hostname, or its address with hyphens (CoreDNS' `endpointHostname`).
fn hostname(backend: &Backend) -> String {
    let by_address = || backend.ip.to_string().replace(['.', ':'], "-");
    backend.hostname.clone().unwrap_or_else(by_address)
}

/// The address that a name of a pod says: `127-0-0-1`.
fn dashed(label: &str) -> Option<IpAddr> {
    let v4 = label.replace('-', ".").parse().map(IpAddr::V4);
    v4.or_else(|_| label.replace('-', ":").parse().map(IpAddr::V6)).ok()
}

/// The name without so many of its first labels.
fn parent(name: &str, labels: usize) -> &str {
    name.splitn(labels + 1, '.').last().unwrap_or_default()
}

/// The IPv4 address of a name for reverse look-ups. IPv6 is not served: neither pods nor Services have it here.
fn reversed(name: &str) -> Option<IpAddr> {
    let numbers = name.strip_suffix(".in-addr.arpa")?;
    let mut numbers: Vec<&str> = numbers.split('.').collect();
    numbers.reverse();
    numbers.join(".").parse().map(IpAddr::V4).ok()
}

/// The names of an address. An address that nothing in the cluster has is left to other name servers.
fn pointers(names: &Names, name: &str, ip: IpAddr) -> Found {
    let mut records = Vec::new();
    for (service, entry) in names.services() {
        let of = || {
            format!(
                "{}.{}.svc.{ZONE}",
                service.name(),
                service.namespace().unwrap_or_default()
            )
        };
        match entry {
            Entry::Address { ip: own, .. } if *own == ip => records.push(of()),
            Entry::Headless(backends) => {
                let own = backends.iter().filter(|backend| backend.ip == ip);
                records.extend(own.map(|backend| format!("{}.{}", hostname(backend), of())));
            }
            _ => {}
        }
    }
    match records.is_empty() {
        true => Found::Outside,
        false => Found::Records(
            records
                .into_iter()
                .map(|target| (name.to_owned(), Data::Pointer(target)))
                .collect(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str, protocol: &str, number: u16) -> Port {
        Port {
            name: name.to_owned(),
            protocol: protocol.to_owned(),
            number,
        }
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// A Service with two ports, a headless one with two endpoints, and names for others.
    fn names() -> Names {
        let mut names = Names::default();
        let mut enter = |name: &str, entry| names.set(&Request::new(Some("shop"), name), Some(entry));
        let ports = vec![port("dns", "udp", 53), port("http", "tcp", 8080)];
        enter(
            "web",
            Entry::Address {
                ip: ip("127.9.128.7"),
                ports,
            },
        );
        let backend = |address: &str, hostname: Option<&str>| Backend {
            ip: ip(address),
            hostname: hostname.map(str::to_owned),
            ports: vec![port("sql", "tcp", 5432)],
        };
        enter(
            "db",
            Entry::Headless(vec![backend("127.9.0.2", Some("db-0")), backend("127.9.0.3", None)]),
        );
        let external = |name: &str| Entry::External {
            name: name.to_owned(),
            found: vec![],
        };
        enter("far", external("db.example.com"));
        enter("old", external("older.shop.svc.cluster.local"));
        enter("older", external("web.shop.svc.cluster.local"));
        enter("round", external("round.shop.svc.cluster.local"));
        names
    }

    /// The answer, a record a line.
    fn told(found: &Found) -> String {
        let Found::Records(records) = found else {
            return format!("{found:?}");
        };
        let line = |(name, data): &Record| match data {
            Data::Address(ip) => format!("{name} A {ip}"),
            Data::Service { port, target } => format!("{name} SRV {port} {target}"),
            Data::Alias(of) => format!("{name} CNAME {of}"),
            Data::Pointer(to) => format!("{name} PTR {to}"),
            Data::Text(text) => format!("{name} TXT {text}"),
        };
        let lines: Vec<String> = records.iter().map(line).collect();
        lines.join("\n").replace(".shop.svc.cluster.local", ".~")
    }

    #[test]
    fn names_and_their_records() {
        let names = names();
        let check = |name: &str, expected: &str| {
            let whole = name.replace(".~", ".shop.svc.cluster.local");
            assert_eq!(told(&find(&names, &whole)), expected, "{name}");
        };
        check("web.~", "web.~ A 127.9.128.7\nweb.~ SRV 53 web.~\nweb.~ SRV 8080 web.~");
        check("_http._tcp.web.~", "_http._tcp.web.~ SRV 8080 web.~");
        check("_http._udp.web.~", "Unknown");
        check("_dns._udp.web.~", "_dns._udp.web.~ SRV 53 web.~");
        check("a.web.~", "Unknown");
        check(
            "db.~",
            "db.~ A 127.9.0.2\ndb.~ A 127.9.0.3\ndb.~ SRV 5432 db-0.db.~\ndb.~ SRV 5432 127-9-0-3.db.~",
        );
        check("db-0.db.~", "db-0.db.~ A 127.9.0.2");
        check("127-9-0-3.db.~", "127-9-0-3.db.~ A 127.9.0.3");
        check("127-9-0-2.db.~", "Unknown");
        check(
            "_sql._tcp.db.~",
            "_sql._tcp.db.~ SRV 5432 db-0.db.~\n_sql._tcp.db.~ SRV 5432 127-9-0-3.db.~",
        );
        check("_sql._tcp.db-0.db.~", "Unknown");
        check("far.~", "far.~ CNAME db.example.com");
        check(
            "old.~",
            "old.~ CNAME older.~\nolder.~ CNAME web.~\nweb.~ A 127.9.128.7\nweb.~ SRV 53 web.~\nweb.~ SRV 8080 web.~",
        );
        assert_eq!(
            told(&find(&names, "round.shop.svc.cluster.local")).lines().count(),
            LINKS
        );
        check("gone.~", "Unknown");
        check("web.other.svc.cluster.local", "Unknown");
        for inner in [
            "cluster.local",
            "svc.cluster.local",
            "shop.svc.cluster.local",
            "pod.cluster.local",
        ] {
            check(inner, "");
        }
        check("other.svc.cluster.local", "Unknown");
        check("dns-version.cluster.local", "dns-version.cluster.local TXT 1.1.0");
        check(
            "127-9-0-2.shop.pod.cluster.local",
            "127-9-0-2.shop.pod.cluster.local A 127.9.0.2",
        );
        check("1--2.shop.pod.cluster.local", "1--2.shop.pod.cluster.local A 1::2");
        check("db-0.shop.pod.cluster.local", "Unknown");
        check("7.128.9.127.in-addr.arpa", "7.128.9.127.in-addr.arpa PTR web.~");
        check("3.0.9.127.in-addr.arpa", "3.0.9.127.in-addr.arpa PTR 127-9-0-3.db.~");
        check("9.9.9.9.in-addr.arpa", "Outside");
        check("example.com", "Outside");
        check("notcluster.local", "Outside");
        check("", "Outside");
    }
}
