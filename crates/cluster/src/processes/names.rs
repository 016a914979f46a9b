//! The names of Services, for programs: a file of hosts for each namespace, which a program finds at `/etc/hosts`.
//!
//! A cluster has a DNS server, at port 53 and with every container's `resolv.conf` naming it. A process has this
//! machine's files; but where the system lets it, its shim gives it a mount namespace of its own, with this file in the
//! place of `/etc/hosts`, which every resolver reads first. The file has the records of KEP-496's specification:
//! Services by their four names, Services without a head with the addresses of their endpoints, and endpoints with a
//! hostname below their Service. A file of hosts has no aliases of names, so that of an `externalName` the addresses
//! are written: those of the other Service, or those that this machine's resolver has found.
//!
//! Invariants: the lines of the machine's own file come first; a file keeps its inode, because it is the inode that is
//! mounted. Not here: SRV records, names of Services without a reachable address.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Seek as _, Write as _};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kubewright::Request;
use kubewright::k8s_openapi::api::core::v1::Service;
use kubewright::k8s_openapi::api::discovery::v1::EndpointSlice;

use super::home::Home;
use super::proxy;

/// The suffix of every cluster's names (`clusterDomain` of a kubelet).
const DOMAIN: &str = "svc.cluster.local";

/// An address of a Service, of the endpoint with this hostname if one is said.
pub(crate) type Line = (IpAddr, Option<String>);

/// The targets of a Service's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    Addresses(Vec<Line>),
    /// Where those of another Service lead.
    Alias(Request),
}

/// How many aliases of aliases are followed.
const LINKS: usize = 8;

/// All names, and the namespaces whose programs look for them.
#[derive(Default)]
pub(super) struct Names {
    services: BTreeMap<Request, Entry>,
    files: BTreeMap<String, PathBuf>,
    /// Whether the files say something else.
    pub(super) is_stale: bool,
}

impl Names {
    /// Enters the targets of a Service's names; an entry without addresses removes it.
    pub(super) fn set(&mut self, service: &Request, entry: Entry) {
        let before = match &entry {
            Entry::Addresses(lines) if lines.is_empty() => self.services.remove(service),
            _ => self.services.insert(service.clone(), entry),
        };
        self.is_stale |= before.as_ref() != self.services.get(service);
    }

    /// The file of a namespace, which is made when it is asked for the first time.
    pub(super) fn file(&mut self, home: &Home, namespace: &str) -> io::Result<PathBuf> {
        if let Some(path) = self.files.get(namespace) {
            return Ok(path.clone());
        }
        let path = home.names().join(namespace);
        home.make_passage(&home.names())?;
        fs::write(&path, self.text(&machine(), namespace))?;
        home.show(&path, 0o600)?;
        self.files.insert(namespace.to_owned(), path.clone());
        Ok(path)
    }

    /// Writes all files anew.
    pub(super) fn write(&mut self) -> io::Result<()> {
        self.is_stale = false;
        let machine = machine();
        for (namespace, path) in &self.files {
            replace(path, &self.text(&machine, namespace))?;
        }
        Ok(())
    }

    /// The addresses behind an entry; none where an alias has no target, or is part of a circle.
    fn addresses<'a>(&'a self, mut entry: &'a Entry) -> Vec<(IpAddr, Option<&'a str>)> {
        for followed in 0..LINKS {
            match entry {
                Entry::Addresses(lines) => {
                    // A hostname is one of the Service itself.
                    let own = |(_, hostname): &&Line| followed == 0 || hostname.is_none();
                    let lines = lines.iter().filter(own);
                    return lines.map(|(ip, hostname)| (*ip, hostname.as_deref())).collect();
                }
                Entry::Alias(of) => match self.services.get(of) {
                    Some(next) => entry = next,
                    None => return vec![],
                },
            }
        }
        vec![]
    }

    fn text(&self, machine: &str, namespace: &str) -> String {
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
                    "{ip} {host}{name}.{of}.{DOMAIN} {host}{name}.{of}.svc {host}{name}.{of}{short}"
                );
            }
        }
        text
    }
}

/// The content of this machine's file. Without one a program still finds itself.
fn machine() -> String {
    fs::read_to_string("/etc/hosts").unwrap_or_else(|_| "127.0.0.1 localhost\n".to_owned())
}

/// Puts a text into a file that stays the same file. Who reads meanwhile may find the end of the text before.
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
fn of_service(name: &str) -> Option<Request> {
    let (service, namespace) = name.strip_suffix(DOMAIN)?.strip_suffix('.')?.split_once('.')?;
    (!namespace.contains('.')).then(|| Request::new(Some(namespace), service))
}

/// Where a Service's names lead: to its own address, to those of its endpoints when it has no head, to another Service,
/// or to the addresses that were found of a name outside.
pub(super) fn entry(service: &Service, slices: &[Arc<EndpointSlice>], found: &[IpAddr]) -> Entry {
    match external(service) {
        None => Entry::Addresses(lines(service, slices)),
        Some(name) => match of_service(name) {
            Some(other) => Entry::Alias(other),
            None => Entry::Addresses(found.iter().map(|ip| (*ip, None)).collect()),
        },
    }
}

fn lines(service: &Service, slices: &[Arc<EndpointSlice>]) -> Vec<Line> {
    let spec = service.spec.as_ref();
    let ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
    if ip != "None" {
        let ip = ip.parse::<IpAddr>().ok().filter(IpAddr::is_loopback);
        return ip.map(|ip| (ip, None)).into_iter().collect();
    }
    let endpoints = slices.iter().flat_map(|slice| slice.endpoints.iter().flatten());
    let mut lines = Vec::new();
    for endpoint in endpoints.filter(|endpoint| proxy::is_ready(endpoint)) {
        let ip = endpoint.addresses.first().and_then(|ip| ip.parse::<IpAddr>().ok());
        let Some(ip) = ip.filter(|ip| !proxy::is_simulated(*ip)) else {
            continue;
        };
        lines.push((ip, None));
        lines.extend(endpoint.hostname.clone().map(|hostname| (ip, Some(hostname))));
    }
    lines.sort();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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
            assert_eq!(names.text("127.0.0.1 localhost", namespace), expected, "{namespace}");
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
        names.set(&Request::new(Some("shop"), "db"), Entry::Addresses(vec![]));
        check(
            &names,
            "other",
            "127.0.0.1 localhost\n127.9.128.7 web.shop.svc.cluster.local web.shop.svc web.shop\n",
        );
        names.is_stale = false;
        names.set(
            &web,
            Entry::Addresses(vec![("127.9.128.7".parse().expect("an address"), None)]),
        );
        assert!(!names.is_stale, "it says the same");
        names.set(&web, Entry::Addresses(vec![]));
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
        let told = names.text("", "shop");
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
