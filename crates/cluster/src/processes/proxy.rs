//! The addresses of Services, for programs: a connection to one is passed on to an endpoint, as kube-proxy does in user
//! space.
//!
//! Where pods are processes the addresses of Services are loopback addresses, and this process listens at each port of
//! each. Which listeners there are to be is pure ([`wanted`]); the shell opens and closes them.
//!
//! Invariants: a Service without an endpoint refuses connections, because nothing listens; a connection goes to one
//! endpoint, in turn, and to the next when that one refuses; connections end with their listener, and all with the
//! cluster. Not here: UDP and SCTP, names (`names`), session affinity, and endpoints that are simulated pods, where
//! nothing answers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubewright::Request;
use kubewright::k8s_openapi::api::core::v1::Service;
use kubewright::k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{AbortHandle, JoinSet};

/// How many connections a listener passes on at a time; more wait in the system's queue.
const MOST: usize = 1000;
/// How long an endpoint may take to accept.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a listener rests after the system could not accept, for want of descriptors for instance.
const REST: Duration = Duration::from_millis(100);

/// Where is listened for a Service, and to which endpoints connections go.
pub(crate) type Wanted = BTreeMap<SocketAddr, Vec<SocketAddr>>;

/// The listeners of all Services.
#[derive(Default)]
pub(crate) struct Proxy(BTreeMap<Request, BTreeMap<SocketAddr, Open>>);

/// A listener. It ends when this is dropped, with its connections.
struct Open {
    endpoints: watch::Sender<Vec<SocketAddr>>,
    task: AbortHandle,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Proxy {
    /// Listens for a Service at these addresses and no others. Answers where it could not, and why.
    pub(super) fn set(&mut self, service: &Request, wanted: Wanted) -> Vec<(SocketAddr, io::Error)> {
        let open = self.0.entry(service.clone()).or_default();
        open.retain(|address, _| wanted.contains_key(address));
        let mut failed = Vec::new();
        for (address, endpoints) in wanted {
            if let Some(present) = open.get(&address) {
                present.endpoints.send_replace(endpoints);
                continue;
            }
            match listen(address, endpoints) {
                Ok(new) => drop(open.insert(address, new)),
                Err(error) => failed.push((address, error)),
            }
        }
        if open.is_empty() {
            self.0.remove(service);
        }
        failed
    }

    /// Closes everything.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

fn listen(address: SocketAddr, endpoints: Vec<SocketAddr>) -> io::Result<Open> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    let (sender, receiver) = watch::channel(endpoints);
    let task = tokio::spawn(accept(listener, receiver)).abort_handle();
    Ok(Open {
        endpoints: sender,
        task,
    })
}

async fn accept(listener: TcpListener, endpoints: watch::Receiver<Vec<SocketAddr>>) {
    let places = Arc::new(Semaphore::new(MOST));
    let mut connections = JoinSet::new();
    for turn in 0_usize.. {
        // It is never closed.
        let Ok(place) = places.clone().acquire_owned().await else {
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
        let mut all = endpoints.borrow().clone();
        let first = turn % all.len().max(1);
        all.rotate_left(first);
        connections.spawn(async move {
            pass_on(client, &all).await;
            drop(place);
        });
    }
}

/// Carries bytes both ways until either side ends. A client whose Service answers nowhere is closed.
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

/// Where to listen for a Service with these slices: at its cluster address and, of a node port, at the address of the
/// nodes.
pub(crate) fn wanted(service: &Service, slices: &[Arc<EndpointSlice>], of_nodes: IpAddr) -> Wanted {
    let mut wanted = Wanted::new();
    let Some(spec) = &service.spec else { return wanted };
    let cluster_ip = spec.cluster_ip.as_deref().and_then(|ip| ip.parse::<IpAddr>().ok());
    // Addresses of a cluster from before, or of a range that somebody chose, are not this machine's.
    let Some(cluster_ip) = cluster_ip.filter(IpAddr::is_loopback) else {
        return wanted;
    };
    for port in spec.ports.iter().flatten() {
        let is_tcp = port.protocol.as_deref().unwrap_or("TCP") == "TCP";
        let endpoints = endpoints(slices, port.name.as_deref().unwrap_or_default());
        if !is_tcp || endpoints.is_empty() {
            continue;
        }
        let places = [(cluster_ip, Some(port.port)), (of_nodes, port.node_port)];
        for (ip, number) in places {
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

/// The endpoints behind a port that are ready and lie on this machine or beyond, not in the simulation.
fn endpoints(slices: &[Arc<EndpointSlice>], name: &str) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for slice in slices.iter().filter(|slice| slice.address_type != "FQDN") {
        let ports = slice.ports.iter().flatten();
        let ports = ports.filter(|port| port.name.as_deref().unwrap_or_default() == name);
        for number in ports.filter_map(|port| u16::try_from(port.port?).ok()) {
            let ready = slice.endpoints.iter().flatten().filter(|endpoint| is_ready(endpoint));
            // All addresses of an endpoint are the same one.
            let addresses = ready.filter_map(|endpoint| endpoint.addresses.first()?.parse::<IpAddr>().ok());
            all.extend(
                addresses
                    .filter(|ip| !is_simulated(*ip))
                    .map(|ip| SocketAddr::new(ip, number)),
            );
        }
    }
    all.sort_unstable();
    all.dedup();
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

    /// A server that says its number to everybody.
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
        let mut proxy = Proxy::default();
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
        let taken = Request::new(Some("default"), "t");
        let failed = proxy.set(&taken, [(one, vec![two])].into());
        assert_eq!(failed[0].1.kind(), io::ErrorKind::AddrInUse);
    }
}
