//! Where the API server is reached, said in the cluster: Endpoints and EndpointSlice `kubernetes`, its identity (a Lease), and the
//! authority of client certificates (ConfigMap `extension-apiserver-authentication`), by which servers behind it believe its callers.
//!
//! They are written when a listener is there, and corrected when it is another one. The address is the true one, a loopback address too,
//! which nobody else may write into endpoints (`ValidateNonSpecialIP`): kube-apiserver writes none at all then.
//!
//! Not here: the Service, which every cluster has ([`super::complete`]).

use std::net::SocketAddr;

use futures::FutureExt as _;
use serde_json::{Value, json};

use super::MANAGER;
use crate::env::{rfc3339_micros, uuid};
use crate::object;
use crate::server::managed::Tracking;
use crate::server::write::{Part, Writer, key};
use crate::server::{ApiServer, Inner};
use crate::user::UserInfo;

/// The Lease of kube-apiserver is named after a hash of its host's name; there is one server here, and it stays the same.
const IDENTITY: &str = "apiserver-kubewright";

impl ApiServer {
    /// Says in the cluster that it is reached at this address, by clients with certificates of this authority (PEM).
    pub fn announce(&self, address: SocketAddr, client_authority: Option<&str>) {
        let inner = &self.inner;
        let (ip, port) = (address.ip().to_string(), address.port());
        let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
        let port = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
        ensure(
            inner,
            "",
            "endpoints",
            json!({"apiVersion": "v1", "kind": "Endpoints",
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
                "subsets": [{"addresses": [{"ip": ip}], "ports": port}]}),
        );
        ensure(
            inner,
            "discovery.k8s.io",
            "endpointslices",
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"}},
                "addressType": family, "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}], "ports": port}),
        );
        let env = inner.env.as_ref();
        ensure(
            inner,
            "coordination.k8s.io",
            "leases",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": IDENTITY, "namespace": "kube-system",
                    "labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}},
                "spec": {"holderIdentity": format!("{IDENTITY}_{}", uuid(env)), "leaseDurationSeconds": 3600,
                    "renewTime": rfc3339_micros(env.now())}}),
        );
        if let Some(authority) = client_authority {
            ensure(
                inner,
                "",
                "configmaps",
                json!({"apiVersion": "v1", "kind": "ConfigMap",
                    "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
                    "data": {"client-ca-file": authority}}),
            );
        }
    }
}

/// Creates the object, or gives the one that is there this content.
fn ensure(server: &Inner, group: &str, plural: &str, wanted: Value) {
    let Some(resource) = server.registry.lookup(group, "v1", plural) else {
        return tracing::error!(
            plural,
            "the resource table has no such kind, so the cluster does not say where it is"
        );
    };
    let (namespace, name) = (object::namespace(&wanted).to_owned(), object::name(&wanted).to_owned());
    let is_there = server.storage.get(&resource.store, &key(&namespace, &name)).is_some();
    let mut resource = (*resource).clone();
    resource.strategy.validate_create = |_| Vec::new();
    resource.strategy.validate_update = |_, _| Vec::new();
    let user = UserInfo::admin();
    let mut writer = Writer {
        tracking: Tracking::Update(MANAGER.to_owned()),
        ..Writer::new(server, resource.into(), &user)
    };
    let written = if is_there {
        let next = |old: &Value, _: &mut Vec<String>| {
            let mut next = old.clone();
            for (field, value) in wanted.as_object().into_iter().flatten() {
                if !["apiVersion", "kind", "metadata"].contains(&field.as_str()) {
                    next[field] = value.clone();
                }
            }
            Ok(next)
        };
        writer.update(&namespace, &name, Part::Main, next).now_or_never()
    } else {
        writer.create(wanted).now_or_never()
    };
    match written {
        Some(Ok(_)) => {}
        Some(Err(status)) => tracing::warn!(plural, name, %status, "the cluster does not say where its API server is"),
        // A webhook of the user's is asked about it, and this does not wait for one.
        None => tracing::warn!(
            plural,
            name,
            "the cluster does not say where its API server is: a webhook is asked first"
        ),
    }
}
