//! The addresses of Services, for programs: a connection to one is passed on to an endpoint, as kube-proxy does in user
//! space.
//!
//! Where pods are processes the addresses of Services are loopback addresses, and this process listens at each port of
//! each. Which listeners there are to be is pure ([`wanted`]); the shell opens and closes them.
//!
//! Invariants: a Service without an endpoint refuses connections, because nothing listens; a connection goes to one
//! endpoint, in turn, and to the next when that one refuses, but never to a Service again, or one would go round for
//! ever; connections end with their listener, and all with the cluster; the API server keeps its descriptors, however
//! many ports Services have and however many connect to them ([`Bounds`]). Not here: UDP and SCTP, names (`names`),
//! session affinity, and endpoints that are simulated pods, where nothing answers.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use kubewright::Request;
use kubewright_objects::api::core::v1::Service;
use kubewright_objects::api::discovery::v1::{Endpoint, EndpointSlice};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

/// How many endpoints of a port connections go to: a thousand pods are more than a machine runs.
const ENDPOINTS: usize = 1000;
/// How long an endpoint may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a listener rests after the system could not accept, for want of descriptors for instance.
pub(super) const REST: Duration = Duration::from_millis(100);

/// Where is listened for a Service, and to which endpoints connections go.
pub(crate) type Wanted = BTreeMap<SocketAddr, Vec<SocketAddr>>;

/// How many there may be at a time.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Listeners of one Service, and of all.
    of_service: usize,
    listeners: usize,
    /// Connections that a listener passes on, and all of them; more wait in the system's queue.
    of_listener: usize,
    connections: usize,
}

impl Bounds {
    /// The shares of so many connections as the API server may have: a sixteenth of the descriptors is for listeners,
    /// an eighth for connections, which have two each.
    fn of(places: usize) -> Bounds {
        let share = (places / 16).max(16);
        Bounds {
            of_service: (share / 4).max(8),
            listeners: share,
            of_listener: (share / 2).min(1000),
            connections: share,
        }
    }
}

/// The listeners of all Services.
pub(crate) struct Proxy {
    bounds: Bounds,
    open: BTreeMap<Request, BTreeMap<SocketAddr, Open>>,
    /// A permit for each connection that may still be passed on.
    connections: Arc<Semaphore>,
    /// Where is listened.
    addresses: Addresses,
}

/// Where is listened for any Service.
#[derive(Clone, Default)]
struct Addresses(Arc<RwLock<BTreeSet<SocketAddr>>>);

impl Addresses {
    fn has(&self, address: &SocketAddr) -> bool {
        let all = self.0.read().unwrap_or_else(PoisonError::into_inner);
        all.contains(address)
    }

    fn change(&self, change: impl FnOnce(&mut BTreeSet<SocketAddr>) -> bool) {
        change(&mut self.0.write().unwrap_or_else(PoisonError::into_inner));
    }
}

/// A listener. It ends when this is dropped, with its connections.
struct Open {
    address: SocketAddr,
    endpoints: watch::Sender<Vec<SocketAddr>>,
    task: AbortHandle,
    addresses: Addresses,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.addresses.change(|all| all.remove(&self.address));
        self.task.abort();
    }
}

impl Proxy {
    /// No listeners yet; `connections` are those that the API server beside it may have.
    pub(super) fn new(connections: usize) -> Proxy {
        Proxy::of(Bounds::of(connections))
    }

    fn of(bounds: Bounds) -> Proxy {
        Proxy {
            bounds,
            open: BTreeMap::new(),
            connections: Arc::new(Semaphore::new(bounds.connections)),
            addresses: Addresses::default(),
        }
    }

    /// Listens for a Service at these addresses and no others. Answers where it could not, and why.
    pub(super) fn set(&mut self, service: &Request, wanted: Wanted) -> Vec<(SocketAddr, io::Error)> {
        let mut open = self.open.remove(service).unwrap_or_default();
        open.retain(|address, _| wanted.contains_key(address));
        let others: usize = self.open.values().map(BTreeMap::len).sum();
        let most = (self.bounds.listeners.saturating_sub(others)).min(self.bounds.of_service);
        let mut failed = Vec::new();
        for (address, endpoints) in wanted {
            if let Some(present) = open.get(&address) {
                present.endpoints.send_replace(endpoints);
                continue;
            }
            let listening = if open.len() < most {
                self.listen(address, endpoints)
            } else {
                Err(too_many(self.bounds))
            };
            match listening {
                Ok(new) => drop(open.insert(address, new)),
                Err(error) => failed.push((address, error)),
            }
        }
        if !open.is_empty() {
            self.open.insert(service.clone(), open);
        }
        failed
    }

    /// Closes everything.
    pub(super) fn clear(&mut self) {
        self.open.clear();
    }

    fn listen(&self, address: SocketAddr, endpoints: Vec<SocketAddr>) -> io::Result<Open> {
        let listener = std::net::TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let (sender, receiver) = watch::channel(endpoints);
        let places = [
            Arc::new(Semaphore::new(self.bounds.of_listener)),
            self.connections.clone(),
        ];
        let addresses = self.addresses.clone();
        addresses.change(|all| all.insert(address));
        let task = tokio::spawn(accept(listener, receiver, places, addresses.clone())).abort_handle();
        Ok(Open {
            address,
            endpoints: sender,
            task,
            addresses,
        })
    }
}

fn too_many(bounds: Bounds) -> io::Error {
    let Bounds {
        of_service, listeners, ..
    } = bounds;
    let why = format!("so many ports are served: {of_service} of a Service, {listeners} in all");
    io::Error::new(io::ErrorKind::QuotaExceeded, why)
}

/// Accepts connections while there are places for them: of this listener, and of all.
async fn accept(
    listener: TcpListener,
    endpoints: watch::Receiver<Vec<SocketAddr>>,
    [own, all]: [Arc<Semaphore>; 2],
    services: Addresses,
) {
    let mut connections = JoinSet::new();
    for turn in 0_usize.. {
        // They are never closed.
        let Ok(place) = own.clone().acquire_owned().await else {
            return;
        };
        while connections.try_join_next().is_some() {}
        let client = loop {
            match listener.accept().await {
                Ok((client, _)) => break client,
                Err(error) => {
                    tracing::warn!(%error, "a Service cannot accept a connection");
                    tokio::time::sleep(REST).await;
                }
            }
        };
        // A listener that waits for clients takes no place from the others.
        let Ok(place_of_all) = all.clone().acquire_owned().await else {
            return;
        };
        let mut endpoints = endpoints.borrow().clone();
        let first = turn % endpoints.len().max(1);
        endpoints.rotate_left(first);
        endpoints.retain(|endpoint| !services.has(endpoint));
        connections.spawn(async move {
            pass_on(client, &endpoints).await;
            drop((place, place_of_all));
        });
    }
}

/// Carries bytes both ways until either side ends. A client whose Service has no answering endpoint is closed.
async fn pass_on(mut client: TcpStream, endpoints: &[SocketAddr]) {
    for endpoint in endpoints {
        let connecting = tokio::time::timeout(PATIENCE, TcpStream::connect(endpoint));
        if let Ok(Ok(mut server)) = connecting.await {
            let _ = (client.set_nodelay(true), server.set_nodelay(true));
            // Whichever side broke off, the other is told by the end of its connection.
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
            return;
        }
    }
}

/// Where to listen for a Service with these slices: at its cluster address, at that of its load balancer and, of a
/// node port, at the address of the nodes. Those that are not this machine's loopback addresses are left out.
pub(crate) fn wanted(service: &Service, slices: &[Arc<EndpointSlice>], of_nodes: IpAddr) -> Wanted {
    let mut wanted = Wanted::new();
    let Some(spec) = &service.spec else { return wanted };
    let cluster_ip = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
    // Addresses of an earlier cluster, or of a configured range, are not this machine's.
    let Some(cluster_ip) = cluster_ip.filter(IpAddr::is_loopback) else {
        return wanted;
    };
    let status = service.status.as_ref().and_then(|status| status.load_balancer.as_ref());
    let ingress = status.iter().flat_map(|status| status.ingress.iter().flatten());
    let balanced = ingress.filter_map(|one| one.ip.as_ref()?.parse::<IpAddr>().ok());
    let balanced: Vec<IpAddr> = balanced.filter(IpAddr::is_loopback).collect();
    let endpoints = endpoints(slices);
    for port in spec.ports.iter().flatten() {
        let is_tcp = port.protocol.as_deref().unwrap_or("TCP") == "TCP";
        let Some(endpoints) = endpoints
            .get(port.name.as_deref().unwrap_or_default())
            .filter(|_| is_tcp)
        else {
            continue;
        };
        let places = [(cluster_ip, Some(port.port)), (of_nodes, port.node_port)];
        let outer = balanced.iter().map(|ip| (*ip, Some(port.port)));
        for (ip, number) in places.into_iter().chain(outer) {
            if let Some(number) = number
                .and_then(|number| u16::try_from(number).ok())
                .filter(|number| *number > 0)
            {
                wanted.insert(SocketAddr::new(ip, number), endpoints.clone());
            }
        }
    }
    wanted
}

/// The endpoints behind each port, by its name, that are ready and lie on this machine or beyond, not in the
/// simulation.
fn endpoints(slices: &[Arc<EndpointSlice>]) -> BTreeMap<&str, Vec<SocketAddr>> {
    let mut all: BTreeMap<&str, Vec<SocketAddr>> = BTreeMap::new();
    for slice in slices.iter().filter(|slice| slice.address_type != "FQDN") {
        let ready = slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint));
        // All addresses of an endpoint are the same one.
        let addresses = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
        let addresses: Vec<IpAddr> = addresses.filter(|ip| !is_simulated(*ip)).collect();
        if addresses.is_empty() {
            continue;
        }
        for port in slice.ports.iter().flatten() {
            if let Some(number) = port.port.and_then(|number| u16::try_from(number).ok()) {
                let behind = all.entry(port.name.as_deref().unwrap_or_default()).or_default();
                behind.extend(addresses.iter().map(|ip| SocketAddr::new(*ip, number)));
            }
        }
    }
    for behind in all.values_mut() {
        behind.sort_unstable();
        behind.dedup();
        behind.truncate(ENDPOINTS);
    }
    all
}

/// Whether connections may go to an endpoint; one that does not say is.
pub(super) fn is_ready(endpoint: &Endpoint) -> bool {
    let conditions = endpoint.conditions.as_ref();
    conditions.and_then(|conditions| conditions.ready) != Some(false)
}

/// Whether an address is that of a simulated pod (`controllers::node::addresses`).
pub(super) fn is_simulated(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[..2] == Ipv4Addr::new(10, 244, 0, 0).octets()[..2])
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn check(spec: Value, endpoints: Value, expected: &[&str]) {
        let service: Service =
            serde_json::from_value(json!({ "metadata": { "name": "s" }, "spec": spec })).expect("a Service");
        let slice = json!({
            "metadata": {}, "addressType": "IPv4",
            "ports": [{ "name": "http", "port": 8080 }, { "name": "dns", "port": 53 }], "endpoints": endpoints,
        });
        let slices = [Arc::new(serde_json::from_value(slice).expect("a slice"))];
        let found = wanted(&service, &slices, Ipv4Addr::LOCALHOST.into());
        let found: Vec<String> = found
            .iter()
            .map(|(address, to)| {
                let to: Vec<String> = to.iter().map(SocketAddr::to_string).collect();
                format!("{address} {}", to.join(" "))
            })
            .collect();
        assert_eq!(found, expected, "{spec} {endpoints}");
    }

    #[test]
    fn where_is_listened() {
        let http = json!([{ "name": "http", "port": 80, "nodePort": 30080 }]);
        let two = json!([
            { "addresses": ["127.9.0.2"], "conditions": { "ready": true } },
            { "addresses": ["127.9.0.1"] },
            { "addresses": ["127.9.0.3"], "conditions": { "ready": false } },
        ]);
        check(
            json!({ "clusterIP": "127.9.128.7", "ports": http }),
            two.clone(),
            &[
                "127.0.0.1:30080 127.9.0.1:8080 127.9.0.2:8080",
                "127.9.128.7:80 127.9.0.1:8080 127.9.0.2:8080",
            ],
        );
        check(json!({ "clusterIP": "10.0.0.7", "ports": http }), two.clone(), &[]);
        check(json!({ "clusterIP": "None", "ports": http }), two.clone(), &[]);
        check(
            json!({ "clusterIP": "127.9.128.7", "ports": [{ "name": "dns", "port": 53, "protocol": "UDP" }] }),
            two,
            &[],
        );
        let simulated = json!([{ "addresses": ["10.244.0.5"] }]);
        check(json!({ "clusterIP": "127.9.128.7", "ports": http }), simulated, &[]);
    }

    #[test]
    fn many_ports_and_many_endpoints() {
        let names = || (0..2000).map(|number| format!("p{number}"));
        let service = |(name, number): (String, u16)| json!({ "name": name, "port": number });
        let ports: Vec<Value> = names().zip(1..).map(service).collect();
        let slice_port = |name: String| json!({ "name": name, "port": 8080 });
        let behind: Vec<Value> = names().map(slice_port).collect();
        let service = json!({ "metadata": {}, "spec": { "clusterIP": "127.9.128.7", "ports": ports } });
        let addresses = (0..30).map(|number| json!({ "addresses": [format!("127.9.0.{number}")] }));
        let endpoints: Vec<Value> = addresses.collect();
        let slice = json!({ "metadata": {}, "addressType": "IPv4", "ports": behind, "endpoints": endpoints });
        let service: Service = serde_json::from_value(service).expect("a Service");
        let slices = [Arc::new(serde_json::from_value(slice).expect("a slice"))];
        let found = wanted(&service, &slices, Ipv4Addr::LOCALHOST.into());
        assert_eq!(found.len(), 2000);
        assert!(found.values().all(|endpoints| endpoints.len() == 30));
    }

    fn bounds(of_service: usize, listeners: usize, connections: usize) -> Bounds {
        Bounds {
            of_service,
            listeners,
            of_listener: connections,
            connections,
        }
    }

    #[tokio::test]
    async fn services_have_so_many_listeners() {
        let mut proxy = Proxy::of(bounds(3, 4, 10));
        let server = server(1).await;
        let mut set = async |name: &str, count: usize| {
            let mut wanted = Wanted::new();
            while wanted.len() < count {
                wanted.insert(free().await, vec![server]);
            }
            let failed = proxy.set(&Request::new(Some("default"), name), wanted);
            let is_bound = |error: &io::Error| error.kind() == io::ErrorKind::QuotaExceeded;
            assert!(failed.iter().all(|(_, error)| is_bound(error)), "{failed:?}");
            count - failed.len()
        };
        assert_eq!(set("greedy", 20).await, 3, "of one Service");
        assert_eq!(set("modest", 1).await, 1);
        assert_eq!(set("late", 1).await, 0, "of all");
        assert_eq!(set("greedy", 0).await, 0);
        assert_eq!(set("late", 1).await, 1, "what ends makes room");
    }

    #[tokio::test]
    async fn connections_of_all_services_are_bounded() {
        let (server, one, two) = (server(1).await, free().await, free().await);
        let mut proxy = Proxy::of(bounds(4, 4, 2));
        for (name, at) in [("one", one), ("two", two)] {
            let failed = proxy.set(&Request::new(Some("default"), name), [(at, vec![server])].into());
            assert!(failed.is_empty(), "{failed:?}");
        }
        // Silent clients that do not go keep their connections, whichever Service they are of.
        let mut held = Vec::new();
        for at in [one, one] {
            let mut stream = TcpStream::connect(at).await.expect("it is accepted");
            assert_eq!(stream.read_u8().await.expect("it answers"), 1);
            held.push(stream);
        }
        let mut late = TcpStream::connect(two).await.expect("the system's queue takes it");
        let patience = Duration::from_millis(50);
        assert!(
            tokio::time::timeout(patience, late.read_u8()).await.is_err(),
            "it waits"
        );
        held.clear();
        assert_eq!(late.read_u8().await.expect("there is room"), 1);
    }

    /// A server that sends its number to every client.
    async fn server(number: u8) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                client.write_all(&[number]).await.expect("it reads");
            }
        });
        address
    }

    async fn free() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        listener.local_addr().expect("an address")
    }

    async fn said(address: SocketAddr) -> io::Result<Vec<u8>> {
        let mut said = Vec::new();
        TcpStream::connect(address).await?.read_to_end(&mut said).await?;
        Ok(said)
    }

    #[tokio::test]
    async fn connections_are_passed_on() {
        let (one, two, dead, at) = (server(1).await, server(2).await, free().await, free().await);
        let mut proxy = Proxy::new(1024);
        let service = Request::new(Some("default"), "s");
        let mut set = |endpoints: &[SocketAddr]| {
            let wanted = match endpoints {
                [] => Wanted::new(),
                some => [(at, some.to_vec())].into(),
            };
            let failed = proxy.set(&service, wanted);
            assert!(failed.is_empty(), "{failed:?}");
        };
        set(&[one, two]);
        let mut heard = [said(at).await.expect("it answers"), said(at).await.expect("it answers")];
        heard.sort();
        assert_eq!(heard, [[1], [2]], "each in turn");
        set(&[dead, two]);
        for _ in 0..2 {
            assert_eq!(said(at).await.expect("it answers"), [2], "the one that answers");
        }
        set(&[]);
        // The task ends at its next turn.
        while said(at).await.is_ok() {
            tokio::task::yield_now().await;
        }
        // A connection to itself, or to another Service, would go round for ever.
        let (here, there) = (free().await, free().await);
        for (name, at, to) in [("here", here, there), ("there", there, here)] {
            let failed = proxy.set(&Request::new(Some("default"), name), [(at, vec![to])].into());
            assert!(failed.is_empty(), "{failed:?}");
        }
        assert_eq!(said(here).await.expect("it is closed"), b"");
        let taken = Request::new(Some("default"), "t");
        let failed = proxy.set(&taken, [(one, vec![two])].into());
        assert_eq!(failed[0].1.kind(), io::ErrorKind::AddrInUse);
    }
}
