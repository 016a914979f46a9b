//! The names of Services, for programs: what the DNS server (`dns`) answers from, and a file of hosts for each
//! namespace, which a program finds at `/etc/hosts`.
//!
//! A DNS server needs port 53, which not every user may listen on. A file needs only a mount namespace, which a shim
//! gives its program where the system lets it, and every resolver reads it first. It has the addresses of the
//! specification of DNS names (KEP-496): Services by their four names, headless Services with the addresses of their
//! endpoints, and endpoints with a hostname below their Service. A file of hosts has no aliases of names, so that of an
//! `externalName` the addresses are written: those of the other Service, or those that this machine's resolver has
//! found.
//!
//! Invariants: the lines of the machine's own file come first; a file keeps its inode, because it is the inode that is
//! mounted. Not here: names of Services without a reachable address; SRV records and names by address (`dns`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubewright::Request;
use kubewright_objects::api::core::v1::{Pod, Service};
use kubewright_objects::api::discovery::v1::EndpointSlice;

use kubewright_objects::meta;

use super::beneath::Below;
use super::home::Home;
use super::proxy;

/// The zone of the cluster's names (`clusterDomain` of a kubelet).
pub(super) const ZONE: &str = "cluster.local";

/// A port of a Service or of an endpoint; one alone may have no name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Port {
    pub(super) name: String,
    /// In lower case, as it stands in names.
    pub(super) protocol: String,
    pub(super) number: u16,
}

/// An endpoint of a headless Service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Backend {
    pub(super) ip: IpAddr,
    pub(super) hostname: Option<String>,
    pub(super) ports: Vec<Port>,
}

/// The targets of a Service's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entry {
    /// An address of its own.
    Address { ip: IpAddr, ports: Vec<Port> },
    /// The endpoints of a headless Service.
    Headless(Vec<Backend>),
    /// Another name, with the addresses that this machine finds of it.
    External { name: String, found: Vec<IpAddr> },
}

impl Entry {
    fn is_empty(&self) -> bool {
        matches!(self, Entry::Headless(backends) if backends.is_empty())
    }
}

/// How many names are followed from one `externalName` to the next.
pub(super) const LINKS: usize = 8;

/// All names, and the namespaces whose programs look for them.
#[derive(Default)]
pub(super) struct Names {
    services: BTreeMap<Request, Entry>,
    files: BTreeMap<PathBuf, Hosts>,
    /// Whether the files say something else.
    pub(super) is_stale: bool,
}

impl Names {
    /// Enters the targets of a Service's names, or removes them.
    pub(super) fn set(&mut self, service: &Request, entry: Option<Entry>) {
        let before = match entry.filter(|entry| !entry.is_empty()) {
            None => self.services.remove(service),
            Some(entry) => self.services.insert(service.clone(), entry),
        };
        self.is_stale |= before.as_ref() != self.services.get(service);
    }

    /// The file of a pod, which is made when it is asked for the first time: that of its namespace, or one of its own
    /// where it has aliases.
    pub(super) fn file(&mut self, home: &Home, pod: &Pod) -> io::Result<PathBuf> {
        let hosts = Hosts {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            aliases: aliases(pod),
        };
        let name = Below::name(&hosts.namespace).map_err(io::Error::other)?;
        let (folder, path) = match hosts.aliases.is_empty() {
            true => (home.names(), home.names().join(name.text())),
            false => {
                let folder = home.pod(meta::uid(&pod.metadata));
                (folder.clone(), folder.join("hosts"))
            }
        };
        if self.files.get(&path) == Some(&hosts) && path.exists() {
            return Ok(path);
        }
        home.make_passage(&folder)?;
        fs::write(&path, self.text(&machine(), &hosts))?;
        // Whoever may ask the name server is told the same.
        home.show_all(&path)?;
        self.files.insert(path.clone(), hosts);
        Ok(path)
    }

    /// Writes all files anew.
    pub(super) fn write(&mut self) -> io::Result<()> {
        self.is_stale = false;
        let machine = machine();
        // That of a pod that has gone.
        self.files.retain(|path, _| path.exists());
        for (path, hosts) in &self.files {
            replace(path, &self.text(&machine, hosts))?;
        }
        Ok(())
    }

    /// All Services with their targets, in order.
    pub(super) fn services(&self) -> impl Iterator<Item = (&Request, &Entry)> {
        self.services.iter()
    }

    pub(super) fn service(&self, service: &Request) -> Option<&Entry> {
        self.services.get(service)
    }

    /// The addresses behind an entry, with the hostnames of endpoints; none where an alias has no target, or is part of
    /// a circle.
    fn addresses<'a>(&'a self, mut entry: &'a Entry) -> Vec<(IpAddr, Option<&'a str>)> {
        for followed in 0..LINKS {
            match entry {
                Entry::Address { ip, .. } => return vec![(*ip, None)],
                Entry::Headless(backends) => return lines(backends, followed == 0),
                Entry::External { name, found } => match of_service(name) {
                    None => return found.iter().map(|ip| (*ip, None)).collect(),
                    Some(other) => match self.services.get(&other) {
                        Some(next) => entry = next,
                        None => return vec![],
                    },
                },
            }
        }
        vec![]
    }

    fn text(&self, machine: &str, hosts: &Hosts) -> String {
        let namespace = hosts.namespace.as_str();
        let mut text = machine.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        for (service, entry) in &self.services {
            let (name, of) = (service.name(), service.namespace().unwrap_or_default());
            for (ip, hostname) in self.addresses(entry) {
                let host = hostname.map_or_else(String::new, |hostname| format!("{hostname}."));
                let short = if of == namespace {
                    format!(" {host}{name}")
                } else {
                    String::new()
                };
                // Writing to a text does not fail.
                let _ = writeln!(
                    text,
                    "{ip} {host}{name}.{of}.svc.{ZONE} {host}{name}.{of}.svc {host}{name}.{of}{short}"
                );
            }
        }
        text.push_str(&hosts.aliases);
        text
    }
}

/// What a file of hosts is made from, besides the Services.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hosts {
    namespace: String,
    /// The lines of a pod's own.
    aliases: String,
}

/// The lines for `hostAliases` of a pod (`hostsEntriesFromHostAliases`).
fn aliases(pod: &Pod) -> String {
    let all = pod.spec.iter().flat_map(|spec| spec.host_aliases.iter().flatten());
    let mut text = String::new();
    for alias in all {
        let names = alias.hostnames.iter().flatten();
        let names: Vec<&str> = names.flat_map(|name| name.split_whitespace()).collect();
        if let (Ok(ip), false) = (alias.ip.parse::<IpAddr>(), names.is_empty()) {
            // Writing to a text does not fail.
            let _ = writeln!(text, "{ip} {}", names.join(" "));
        }
    }
    text
}

/// The content of this machine's file. Without one a program still finds itself.
fn machine() -> String {
    fs::read_to_string("/etc/hosts").unwrap_or_else(|_| "127.0.0.1 localhost\n".to_owned())
}

/// Replaces the text of a file in place. A concurrent reader may see the end of the previous text.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).open(path)?;
    file.seek(io::SeekFrom::Start(0))?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)
}

/// The name outside of the cluster that a Service stands for; its addresses have to be found first.
pub(crate) fn outside(service: &Service) -> Option<&str> {
    let name = external(service)?;
    of_service(name).is_none().then_some(name)
}

fn external(service: &Service) -> Option<&str> {
    let spec = service
        .spec
        .as_ref()
        .filter(|spec| spec.type_.as_deref() == Some("ExternalName"))?;
    spec.external_name.as_deref().map(|name| name.trim_end_matches('.'))
}

/// The Service that a full name means.
pub(super) fn of_service(name: &str) -> Option<Request> {
    let (service, namespace) = name.strip_suffix(ZONE)?.strip_suffix(".svc.")?.split_once('.')?;
    (!namespace.contains('.')).then(|| Request::new(Some(namespace), service))
}

/// Each address, and again for its hostname, which is one of the Service itself and of no alias.
fn lines(backends: &[Backend], has_hostnames: bool) -> Vec<(IpAddr, Option<&str>)> {
    let mut lines = Vec::new();
    for backend in backends {
        lines.push((backend.ip, None));
        let hostname = backend.hostname.as_deref().filter(|_| has_hostnames);
        lines.extend(hostname.map(|hostname| (backend.ip, Some(hostname))));
    }
    lines.sort_unstable();
    lines.dedup();
    lines
}

/// Where a Service's names lead: to its own address, to those of its endpoints when it is headless, to another name.
/// None where it has no address that programs reach.
pub(super) fn entry(service: &Service, slices: &[Arc<EndpointSlice>], found: &[IpAddr]) -> Option<Entry> {
    if let Some(name) = external(service) {
        let found = found.to_vec();
        return Some(Entry::External {
            name: name.to_ascii_lowercase(),
            found,
        });
    }
    let spec = service.spec.as_ref()?;
    if spec.cluster_ip.as_deref() == Some("None") {
        return Some(Entry::Headless(backends(slices)));
    }
    let ip = spec.cluster_ip.as_deref()?.parse::<IpAddr>().ok();
    let ports = spec.ports.iter().flatten();
    let mut ports: Vec<_> = ports
        .filter_map(|of| port(of.name.as_deref(), of.protocol.as_deref(), of.port))
        .collect();
    ports.sort();
    ip.filter(IpAddr::is_loopback).map(|ip| Entry::Address { ip, ports })
}

fn backends(slices: &[Arc<EndpointSlice>]) -> Vec<Backend> {
    let mut backends = Vec::new();
    for slice in slices {
        let ports = slice.ports.iter().flatten();
        let mut ports: Vec<_> = ports
            .filter_map(|of| port(of.name.as_deref(), of.protocol.as_deref(), of.port?))
            .collect();
        ports.sort();
        let ready = slice
            .endpoints
            .iter()
            .flatten()
            .filter(|endpoint| proxy::is_ready(endpoint));
        for endpoint in ready {
            // All addresses of an endpoint are the same one.
            let ip = endpoint.addresses.first().and_then(|ip| ip.parse::<IpAddr>().ok());
            let Some(ip) = ip.filter(|ip| !proxy::is_simulated(*ip)) else {
                continue;
            };
            backends.push(Backend {
                ip,
                hostname: endpoint.hostname.clone(),
                ports: ports.clone(),
            });
        }
    }
    backends.sort();
    backends.dedup();
    backends
}

fn port(name: Option<&str>, protocol: Option<&str>, number: i32) -> Option<Port> {
    Some(Port {
        name: name.unwrap_or_default().to_owned(),
        protocol: protocol.unwrap_or("TCP").to_ascii_lowercase(),
        number: u16::try_from(number).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn of(namespace: &str) -> Hosts {
        Hosts {
            namespace: namespace.to_owned(),
            aliases: String::new(),
        }
    }

    #[test]
    fn the_aliases_of_a_pod() {
        let check = |all: Value, expected: &str| {
            let pod = json!({ "spec": { "containers": [], "hostAliases": all } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(aliases(&pod), expected, "{all}");
        };
        check(json!([]), "");
        check(
            json!([{ "ip": "10.0.0.1", "hostnames": ["a", "b.c"] }, { "ip": "::1", "hostnames": ["d"] }]),
            "10.0.0.1 a b.c\n::1 d\n",
        );
        // Nothing makes a line of its own.
        check(json!([{ "ip": "1.2.3.4 x\n5.6.7.8", "hostnames": ["a"] }]), "");
        check(
            json!([{ "ip": "1.2.3.4", "hostnames": ["a\n5.6.7.8 b"] }]),
            "1.2.3.4 a 5.6.7.8 b\n",
        );
        check(json!([{ "ip": "1.2.3.4", "hostnames": [] }]), "");
    }

    #[test]
    fn the_file_of_a_namespace() {
        let mut names = Names::default();
        let mut enter = |name: &str, ip: &str, endpoints: Value| {
            let service = json!({ "metadata": { "name": name }, "spec": { "clusterIP": ip } });
            let service: Service = serde_json::from_value(service).expect("a Service");
            let slice = json!({ "metadata": {}, "addressType": "IPv4", "endpoints": endpoints });
            let slices = [Arc::new(serde_json::from_value(slice).expect("a slice"))];
            names.set(&Request::new(Some("shop"), name), entry(&service, &slices, &[]));
        };
        enter("web", "127.9.128.7", json!([]));
        enter("old", "10.0.0.7", json!([]));
        let endpoints = json!([
            { "addresses": ["127.9.0.2"], "hostname": "db-0", "conditions": { "ready": true } },
            { "addresses": ["127.9.0.3"], "hostname": "db-1", "conditions": { "ready": false } },
            { "addresses": ["10.244.0.9"], "conditions": {} },
        ]);
        enter("db", "None", endpoints);
        let check = |names: &Names, namespace: &str, expected: &str| {
            assert_eq!(
                names.text("127.0.0.1 localhost", &of(namespace)),
                expected,
                "{namespace}"
            );
        };
        check(
            &names,
            "shop",
            "127.0.0.1 localhost\n\
             127.9.0.2 db.shop.svc.cluster.local db.shop.svc db.shop db\n\
             127.9.0.2 db-0.db.shop.svc.cluster.local db-0.db.shop.svc db-0.db.shop db-0.db\n\
             127.9.128.7 web.shop.svc.cluster.local web.shop.svc web.shop web\n",
        );
        let web = Request::new(Some("shop"), "web");
        names.set(&Request::new(Some("shop"), "db"), None);
        check(
            &names,
            "other",
            "127.0.0.1 localhost\n127.9.128.7 web.shop.svc.cluster.local web.shop.svc web.shop\n",
        );
        names.is_stale = false;
        let same = Entry::Address {
            ip: "127.9.128.7".parse().expect("an address"),
            ports: vec![],
        };
        names.set(&web, Some(same));
        assert!(!names.is_stale, "it says the same");
        names.set(&web, None);
        assert!(names.is_stale);
    }

    #[test]
    fn names_that_stand_for_others() {
        let mut names = Names::default();
        let mut enter = |name: &str, spec: Value, found: &[&str]| {
            let service: Service =
                serde_json::from_value(json!({ "metadata": { "name": name }, "spec": spec })).expect("a Service");
            let found: Vec<IpAddr> = found.iter().map(|ip| ip.parse().expect("an address")).collect();
            names.set(&Request::new(Some("shop"), name), entry(&service, &[], &found));
            outside(&service).map(str::to_owned)
        };
        let external = |name: &str| json!({ "type": "ExternalName", "externalName": name });
        assert_eq!(enter("web", json!({ "clusterIP": "127.9.128.7" }), &[]), None);
        assert_eq!(enter("old", external("web.shop.svc.cluster.local."), &[]), None);
        assert_eq!(enter("older", external("old.shop.svc.cluster.local"), &[]), None);
        enter("nobody", external("gone.shop.svc.cluster.local"), &[]);
        enter("round", external("round.shop.svc.cluster.local"), &[]);
        let far = enter("far", external("db.example.com"), &["192.0.2.1", "192.0.2.2"]);
        assert_eq!(far.as_deref(), Some("db.example.com"));
        let told = names.text("", &of("shop"));
        let short = |line: &str| {
            let mut words = line.split(' ');
            (words.next().map(str::to_owned), words.next_back().map(str::to_owned))
        };
        let told: Vec<_> = told.lines().map(short).collect();
        let expected = [
            ("192.0.2.1", "far"),
            ("192.0.2.2", "far"),
            ("127.9.128.7", "old"),
            ("127.9.128.7", "older"),
            ("127.9.128.7", "web"),
        ];
        let expected = expected.map(|(ip, name)| (Some(ip.to_owned()), Some(name.to_owned())));
        assert_eq!(told, expected);
    }

    #[test]
    fn a_file_stays_the_same_file() {
        use std::os::unix::fs::MetadataExt as _;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("hosts");
        fs::write(&path, "a longer text\n").expect("it is ours");
        let before = fs::metadata(&path).expect("it is there").ino();
        replace(&path, "short\n").expect("it is ours");
        assert_eq!(fs::read_to_string(&path).expect("it is there"), "short\n");
        assert_eq!(fs::metadata(&path).expect("it is there").ino(), before);
    }
}
