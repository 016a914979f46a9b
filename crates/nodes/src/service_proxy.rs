//! The part of kube-proxy where pods are processes: connections to the addresses of Services reach their endpoints.
//!
//! `processes::proxy` decides where to listen and does it; this hands it the Services and EndpointSlices. Invariant:
//! where an address cannot be listened at, an event of the Service says why; one that is taken, or for which there is
//! no room, is tried again.

use std::io;
use std::io::ErrorKind::{AddrInUse, PermissionDenied, QuotaExceeded};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubewright::kube::core::Selector;
use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result};
use kubewright_objects::api::core::v1::Service;
use kubewright_objects::api::discovery::v1::EndpointSlice;

use crate::processes::{self, Processes};
use kubewright_objects::meta;

/// The label of a slice with its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// How many addresses of a Service that cannot be listened at are told; the others fail for the same reason.
const TOLD: usize = 10;
/// How long after an address was taken, or there were too many, it is tried again.
const AGAIN: Duration = Duration::from_secs(10);
/// How long the addresses of an `externalName` are believed.
const FRESH: Duration = Duration::from_secs(30);
/// How long they are waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many Services are looked at at once: the names of some may take their time to be found.
const WORKERS: usize = 8;

/// Passes connections on.
pub(crate) struct ServiceProxy(Processes);

/// The controller, for the processes of a cluster.
pub(crate) fn controller(processes: Processes) -> Controller {
    Controller::of(ServiceProxy(processes))
        .named("service-proxy")
        .concurrency(WORKERS)
        .watches::<EndpointSlice>(|slice| {
            let service = meta::labels(&slice.metadata).get(SERVICE_NAME);
            let namespace = slice.metadata.namespace.as_deref();
            service
                .map(|service| Request::new(namespace, service))
                .into_iter()
                .collect()
        })
}

impl Reconciler for ServiceProxy {
    type Object = Service;

    async fn reconcile(&self, service: Arc<Service>, ctx: Context) -> Result<Action> {
        let labels = [(SERVICE_NAME.to_owned(), ctx.request().name().to_owned())];
        let labels: Selector = labels.into_iter().collect();
        let namespace = ctx.request().namespace();
        let slices = ctx.client().list_matching::<EndpointSlice>(namespace, &labels).await?;
        let outside = processes::outside(&service);
        let found = match outside {
            Some(name) => look_up(name).await,
            None => vec![],
        };
        let failed = self.0.proxy(ctx.request(), &service, &slices, &found);
        let is_api_server = namespace == Some("default") && ctx.request().name() == "kubernetes";
        // Programs get the API server's true address, so they do not need the Service's port 443.
        for (address, error) in failed.iter().filter(|_| !is_api_server).take(TOLD) {
            ctx.event(&*service, EventType::Warning, "FailedToListen", words(*address, error));
        }
        let may_come = |(_, error): &(SocketAddr, io::Error)| [AddrInUse, QuotaExceeded].contains(&error.kind());
        Ok(match failed.iter().any(may_come) {
            true => Action::requeue_after(AGAIN),
            false if outside.is_some() => Action::requeue_after(FRESH),
            false => Action::await_change(),
        })
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.0.proxy_no_more(&request);
        Ok(Action::await_change())
    }
}

/// The addresses of a name outside of the cluster, as this machine finds them; none when it finds none in time.
async fn look_up(name: &str) -> Vec<IpAddr> {
    let found = tokio::time::timeout(PATIENCE, tokio::net::lookup_host((name, 0))).await;
    let Ok(Ok(found)) = found else { return vec![] };
    let mut addresses: Vec<IpAddr> = found.map(|address| address.ip()).collect();
    addresses.sort();
    addresses.dedup();
    addresses
}

fn words(address: SocketAddr, error: &io::Error) -> String {
    let advice = match error.kind() {
        PermissionDenied => {
            ": ports below 1024 are root's on this machine; give the Service another port, or allow them (sysctl net.ipv4.ip_unprivileged_port_start=0)"
        }
        AddrInUse => ": another program listens there",
        QuotaExceeded => ": give Services fewer ports, or the process more descriptors (ulimit -n)",
        _ => "",
    };
    format!("cannot listen at {address}: {error}{advice}")
}
