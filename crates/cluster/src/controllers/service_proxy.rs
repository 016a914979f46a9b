//! What kube-proxy is to nodes, where pods are processes: connections to the addresses of Services reach their
//! endpoints.
//!
//! What is listened for is decided and done by `processes::proxy`; this tells it what Services and EndpointSlices say.
//! Invariant: where an address cannot be listened at, an event of the Service says why; one that is taken, or for which
//! there is no room, is tried again.

use std::io;
use std::io::ErrorKind::{AddrInUse, PermissionDenied, QuotaExceeded};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::api::core::v1::Service;
use kubewright::k8s_openapi::api::discovery::v1::EndpointSlice;
use kubewright::kube::core::Selector;
use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result};

use crate::objects::meta;
use crate::processes::Processes;

/// The label of a slice with its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// How many addresses of a Service that cannot be listened at are told; the others fail for the same reason.
const TOLD: usize = 10;
/// How long after an address was taken, or there were too many, it is tried again.
const AGAIN: Duration = Duration::from_secs(10);

/// Passes connections on.
pub(crate) struct ServiceProxy(Processes);

/// The controller, for the processes of a cluster.
pub(crate) fn controller(processes: Processes) -> Controller {
    Controller::of(ServiceProxy(processes))
        .named("service-proxy")
        .watches::<EndpointSlice>(|slice| {
            let service = meta::labels(&slice.metadata).remove(SERVICE_NAME);
            let namespace = slice.metadata.namespace.as_deref();
            service
                .map(|service| Request::new(namespace, &service))
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
        let failed = self.0.proxy(ctx.request(), &service, &slices);
        let is_api_server = namespace == Some("default") && ctx.request().name() == "kubernetes";
        // Programs are told the API server's true address: the Service's port 443 is missed by nobody.
        for (address, error) in failed.iter().filter(|_| !is_api_server).take(TOLD) {
            ctx.event(&*service, EventType::Warning, "FailedToListen", words(*address, error));
        }
        let may_come = |(_, error): &(SocketAddr, io::Error)| [AddrInUse, QuotaExceeded].contains(&error.kind());
        Ok(match failed.iter().any(may_come) {
            true => Action::requeue_after(AGAIN),
            false => Action::await_change(),
        })
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.0.proxy_no_more(&request);
        Ok(Action::await_change())
    }
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
