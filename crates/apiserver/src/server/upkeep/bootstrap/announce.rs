//! Where the API server is reached, said in the cluster: Endpoints and EndpointSlice `kubernetes`, its identity (a
//! Lease), and the authority of client certificates (ConfigMap `extension-apiserver-authentication`), by which servers
//! behind it believe its callers.
//!
//! They are written when a listener is there, and corrected when it is another one. The address is the true one, a
//! loopback address too, which no client may write into endpoints (`ValidateNonSpecialIP`): kube-apiserver writes none
//! at all then.
//!
//! kube-apiserver renews its Lease every ten seconds. This server does so when a request comes and that long has
//! passed: a client that reads the Lease finds it as fresh, and a server without requests sleeps. The Lease does not
//! expire meanwhile: it is good for an hour, and a check of it is a request.
//!
//! Not here: the Service, which every cluster has ([`super::complete`]).

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures::FutureExt as _;
use jiff::Timestamp;
use kubewright_schema::names;
use serde_json::{Map, Value, json};

use super::MANAGER;
use crate::env::{rfc3339, rfc3339_micros, uuid};
use crate::model::form::key;
use crate::model::object;
use crate::model::user::UserInfo;
use crate::model::{GenerationRule, Resource};
use crate::server::managed::Tracking;
use crate::server::write::{Part, Writer};
use crate::server::{ApiServer, Inner};

/// The Lease of kube-apiserver is named after a hash of its host's name; there is one server here, and it stays the
/// same.
const IDENTITY: &str = "apiserver-kubewright";

/// After how many seconds it is renewed (`IdentityLeaseRenewIntervalPeriod`).
const RENEWED: i64 = 10;

/// The label of the server's identity that names its host.
const HOST: &str = "kubernetes.io/hostname";

/// The `managedFields` that ordinary writes would give these objects. Ordinary writes would take a fifth of the time of
/// a start; a test does both and compares them.
const OWNED: [(&str, &str); 4] = [
    (
        "endpoints",
        r#"{"f:metadata":{"f:labels":{".":{},"f:endpointslice.kubernetes.io/skip-mirror":{}}},"f:subsets":{}}"#,
    ),
    (
        "endpointslices",
        r#"{"f:addressType":{},"f:endpoints":{},"f:metadata":{"f:labels":{".":{},"f:kubernetes.io/service-name":{}}},"f:ports":{}}"#,
    ),
    (
        "leases",
        r#"{"f:metadata":{"f:annotations":{".":{},"f:kubernetes.io/peer-advertise-address":{}},"f:labels":{".":{},"f:apiserver.kubernetes.io/identity":{},"f:kubernetes.io/hostname":{}}},"f:spec":{"f:holderIdentity":{},"f:leaseDurationSeconds":{},"f:renewTime":{}}}"#,
    ),
    (
        "configmaps",
        r#"{"f:data":{".":{},"f:client-ca-file":{},"f:requestheader-allowed-names":{},"f:requestheader-client-ca-file":{},"f:requestheader-extra-headers-prefix":{},"f:requestheader-group-headers":{},"f:requestheader-uid-headers":{},"f:requestheader-username-headers":{}}}"#,
    ),
];

/// The Lease that says that this server lives, once it was announced.
pub(crate) struct Identity {
    /// When it is to be renewed, in seconds; a server that was not announced has none.
    due: AtomicI64,
    /// The Lease as it was created, in case a client deletes it.
    lease: Mutex<Value>,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            due: AtomicI64::new(i64::MAX),
            lease: Mutex::default(),
        }
    }
}

impl Identity {
    fn announced(&self, lease: Value, now: jiff::Timestamp) {
        *self.lease.lock().unwrap_or_else(PoisonError::into_inner) = lease;
        self.due.store(now.as_second() + RENEWED, Ordering::Relaxed);
    }

    /// Whether it is to be renewed now, by the caller: of several at once only one is told so.
    fn is_due(&self, now: jiff::Timestamp) -> bool {
        let (due, now) = (self.due.load(Ordering::Relaxed), now.as_second());
        let next = now + RENEWED;
        now >= due
            && self
                .due
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }
}

impl Inner {
    /// Renews the server's Lease when that is due, straight in the storage: no webhook of the user's is asked about it.
    pub(crate) fn renew_identity(&self, now: Timestamp) {
        if !self.identity.is_due(now) {
            return;
        }
        let Some(resource) = self.registry.lookup("coordination.k8s.io", "v1", "leases") else {
            return;
        };
        let at = key("kube-system", IDENTITY);
        let renew = |lease: &mut Value| lease["spec"]["renewTime"] = json!(rfc3339_micros(now));
        let Some(stored) = self.storage.get(&resource.store, &at) else {
            let mut lease = self
                .identity
                .lease
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clone();
            renew(&mut lease);
            create(self, &resource, &at, lease);
            return;
        };
        let mut lease = stored.value().clone();
        renew(&mut lease);
        match self.storage.update(&resource.store, &at, stored.revision(), lease) {
            Ok(stored) => drop(self.after_write(&resource, stored)),
            // Another write came at the same moment: it is renewed with a later request.
            Err(error) => tracing::debug!(%error, "the API server's Lease is not renewed"),
        }
    }
}

/// The kinds of the objects that Services have.
const ENDPOINTS: [&str; 2] = ["endpoints", "endpointslices"];

/// The addresses of a server, and the authority of its clients.
#[derive(Clone, Copy, Debug)]
pub struct Place<'a> {
    /// The address that the cluster is told.
    pub address: SocketAddr,
    /// The name of its host.
    pub host: &'a str,
    /// The authority of its clients' certificates (PEM).
    pub client_authority: Option<&'a str>,
    /// The authority of the cluster's proxy (PEM), and the name in its certificate: who comes with that is believed by
    /// the servers behind APIServices when it says who asks.
    pub front_proxy: Option<(&'a str, &'a str)>,
    /// Whether the server writes the endpoints of the Service `kubernetes`; otherwise another program does
    /// (`--endpoint-reconciler-type=none`).
    pub endpoints: bool,
}

impl ApiServer {
    /// Says in the cluster where it is reached.
    pub fn announce(&self, place: &Place<'_>) {
        for (group, plural, wanted) in objects(&self.inner, place) {
            if plural == "leases" {
                self.inner.identity.announced(wanted.clone(), self.inner.env.now());
            }
            let Some(resource) = self.inner.registry.lookup(group, "v1", plural) else {
                tracing::error!(
                    plural,
                    "the resource table has no such kind, so the cluster does not say where it is"
                );
                continue;
            };
            let at = key(object::namespace(&wanted), object::name(&wanted));
            if self.inner.storage.get(&resource.store, &at).is_none() {
                create(&self.inner, &resource, &at, wanted);
            } else {
                ensure(&self.inner, &resource, wanted);
            }
        }
    }
}

/// The objects that announce the server's address: group and plural of each.
fn objects(server: &Inner, place: &Place<'_>) -> Vec<(&'static str, &'static str, Value)> {
    let Place { address, host, .. } = *place;
    let (ip, port) = (address.ip().to_string(), address.port());
    let family = if address.is_ipv4() { "IPv4" } else { "IPv6" };
    let port = json!([{"name": "https", "port": port, "protocol": "TCP"}]);
    let env = server.env.as_ref();
    let mut objects = vec![
        (
            "",
            "endpoints",
            json!({"apiVersion": "v1", "kind": "Endpoints",
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"endpointslice.kubernetes.io/skip-mirror": "true"}},
                "subsets": [{"addresses": [{"ip": ip}], "ports": port}]}),
        ),
        (
            "discovery.k8s.io",
            "endpointslices",
            json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
                "metadata": {"name": "kubernetes", "namespace": "default",
                    "labels": {"kubernetes.io/service-name": "kubernetes"}},
                "addressType": family, "endpoints": [{"addresses": [ip], "conditions": {"ready": true}}], "ports": port}),
        ),
        (
            "coordination.k8s.io",
            "leases",
            json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": IDENTITY, "namespace": "kube-system", "labels": identity(host),
                    "annotations": {"kubernetes.io/peer-advertise-address": address.to_string()}},
                "spec": {"holderIdentity": format!("{IDENTITY}_{}", uuid(env)), "leaseDurationSeconds": 3600,
                    "renewTime": rfc3339_micros(env.now())}}),
        ),
    ];
    if !place.endpoints {
        objects.retain(|(_, plural, _)| !ENDPOINTS.contains(plural));
    }
    let data = authentication(place);
    if !data.is_empty() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "extension-apiserver-authentication", "namespace": "kube-system"},
            "data": data});
        objects.push(("", "configmaps", object));
    }
    objects
}

/// By what servers behind this one know users (`clusterauthenticationtrust`); lists are texts of JSON.
fn authentication(place: &Place<'_>) -> Map<String, Value> {
    let mut data = Map::new();
    let mut add = |key: &str, text: String| data.insert(key.to_owned(), text.into());
    if let Some(authority) = place.client_authority {
        add("client-ca-file", authority.to_owned());
    }
    if let Some((authority, name)) = place.front_proxy {
        add("requestheader-client-ca-file", authority.to_owned());
        for (key, text) in [
            ("requestheader-allowed-names", name),
            ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
            ("requestheader-group-headers", "X-Remote-Group"),
            ("requestheader-uid-headers", "X-Remote-Uid"),
            ("requestheader-username-headers", "X-Remote-User"),
        ] {
            add(key, json!([text]).to_string());
        }
    }
    data
}

/// The labels of the server's identity. A host whose name is no value of a label is not named.
fn identity(host: &str) -> Value {
    let mut labels = json!({"apiserver.kubernetes.io/identity": "kube-apiserver"});
    if !host.is_empty() && names::label_value(host).is_empty() {
        labels[HOST] = json!(host);
    }
    labels
}

/// Creates an object of which everything is known.
fn create(server: &Inner, resource: &Arc<Resource>, at: &str, mut object: Value) {
    object::fill_system_fields(&mut object, server.env.as_ref());
    let owned = OWNED.iter().find(|(plural, _)| *plural == resource.plural);
    let mut owned: Value = serde_json::from_str(owned.map_or("{}", |(_, fields)| fields)).unwrap_or_default();
    let labels = owned.pointer_mut("/f:metadata/f:labels").and_then(Value::as_object_mut);
    if let Some(labels) = labels.filter(|_| object["metadata"]["labels"].get(HOST).is_none()) {
        labels.remove(&format!("f:{HOST}"));
    }
    if let Some(fields) = owned.pointer_mut("/f:data").and_then(Value::as_object_mut) {
        let data = &object["data"];
        fields.retain(|field, _| field.strip_prefix("f:").is_none_or(|key| data.get(key).is_some()));
    }
    let now = rfc3339(server.env.now());
    let metadata = object::metadata_mut(&mut object);
    metadata.insert(
        "managedFields".to_owned(),
        json!([{"manager": MANAGER, "operation": "Update", "apiVersion": resource.api_version(), "time": now,
            "fieldsType": "FieldsV1", "fieldsV1": owned}]),
    );
    if resource.strategy.generation != GenerationRule::Never {
        metadata.insert("generation".to_owned(), json!(1));
    }
    if let Some(fields) = object.as_object_mut() {
        fields.remove("apiVersion");
        fields.remove("kind");
    }
    match server.storage.create(&resource.store, at, object) {
        Ok(stored) => drop(server.after_write(resource, stored)),
        Err(error) => tracing::warn!(at, %error, "the cluster does not say where its API server is"),
    }
}

/// Creates the object, or gives the one that is there this content, by the ordinary way.
fn ensure(server: &Inner, resource: &Resource, wanted: Value) {
    let (namespace, name) = (object::namespace(&wanted).to_owned(), object::name(&wanted).to_owned());
    let is_there = server.storage.get(&resource.store, &key(&namespace, &name)).is_some();
    let plural = resource.plural.to_string();
    let mut resource = resource.clone();
    resource.strategy.validate_create = |_| Vec::new();
    resource.strategy.validate_update = |_, _| Vec::new();
    let user = UserInfo::admin();
    let mut writer = Writer {
        tracking: Tracking::Update(MANAGER.to_owned()),
        ..Writer::new(server, resource.into(), &user)
    };
    let written = if is_there {
        let next = |old: &mut Value, _: &mut Vec<String>| {
            let mut next = old.clone();
            for (field, value) in wanted.as_object().into_iter().flatten() {
                if !["apiVersion", "kind", "metadata"].contains(&field.as_str()) {
                    next[field] = value.clone();
                }
            }
            for kind in ["labels", "annotations"] {
                let Some(said) = wanted["metadata"][kind].as_object() else {
                    continue;
                };
                let all = object::metadata_mut(&mut next).entry(kind).or_insert_with(|| json!({}));
                if let Some(all) = all.as_object_mut() {
                    all.extend(said.clone());
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

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::server::tests::World;

    fn place(address: SocketAddr, host: &str) -> Place<'_> {
        Place {
            address,
            host,
            client_authority: Some("PEM"),
            front_proxy: Some(("PROXY", "front-proxy-client")),
            endpoints: true,
        }
    }

    #[test]
    fn endpoints_may_be_written_by_another_program() {
        let world = World::new();
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        world.api.announce(&Place {
            endpoints: false,
            ..place(address, "vm")
        });
        let check = |path: &str, code: u16| {
            let found = world.send(&format!("GET {path}"), &[], "", UserInfo::admin());
            assert_eq!(found.code, code, "{path}: {}", found.body);
        };
        check("/api/v1/namespaces/default/endpoints/kubernetes", 404);
        check(
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
            404,
        );
        check("/api/v1/namespaces/default/services/kubernetes", 200);
        check(
            &format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{IDENTITY}"),
            200,
        );
    }

    #[test]
    fn both_ways_of_writing_make_the_same() {
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        let known = |world: &World| -> Vec<Value> {
            let objects = objects(&world.api.inner, &place(address, ""));
            let stored = objects.iter().map(|(group, plural, object)| {
                let resource = world
                    .api
                    .inner
                    .registry
                    .lookup(group, "v1", plural)
                    .expect("it is built in");
                let at = key(object::namespace(object), object::name(object));
                let mut stored = world
                    .api
                    .inner
                    .storage
                    .get(&resource.store, &at)
                    .expect("it was written")
                    .value()
                    .clone();
                for own in ["uid", "resourceVersion"] {
                    object::metadata_mut(&mut stored).remove(own);
                }
                if let Some(spec) = stored.get_mut("spec") {
                    spec["holderIdentity"] = Value::Null;
                }
                stored
            });
            stored.collect()
        };
        for (host, client_authority) in [("vm", Some("PEM")), ("no label-", None)] {
            let (short, ordinary) = (World::new(), World::new());
            let place = Place {
                client_authority,
                ..place(address, host)
            };
            short.api.announce(&place);
            for (group, plural, object) in objects(&ordinary.api.inner, &place) {
                let resource = ordinary
                    .api
                    .inner
                    .registry
                    .lookup(group, "v1", plural)
                    .expect("it is built in");
                ensure(&ordinary.api.inner, &resource, object);
            }
            assert_eq!(known(&short), known(&ordinary));
            let lease = &known(&short)[2]["metadata"];
            let named = (host == "vm").then(|| json!(host));
            assert_eq!(lease["labels"].get(HOST), named.as_ref());
            assert_eq!(
                lease["annotations"],
                json!({"kubernetes.io/peer-advertise-address": "127.0.0.1:6443"})
            );
            // Another listener: the present objects are corrected.
            let elsewhere = Place {
                address: SocketAddr::from(([192, 0, 2, 1], 1)),
                ..place
            };
            short.api.announce(&elsewhere);
            let corrected = known(&short);
            assert_eq!(corrected[0]["subsets"][0]["addresses"], json!([{"ip": "192.0.2.1"}]));
            assert_eq!(
                corrected[2]["metadata"]["annotations"],
                json!({"kubernetes.io/peer-advertise-address": "192.0.2.1:1"})
            );
        }
    }

    /// Every ten seconds, as kube-apiserver does, but only while requests come.
    #[test]
    fn the_lease_is_renewed_while_requests_come() {
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/{IDENTITY}");
        let world = World::new();
        // The state after so many seconds: how long ago the Lease was renewed, and by how many writes the storage went
        // on.
        let check = |seconds: u64, age: Option<i64>, writes: u64| {
            let before = world.api.resource_version();
            world.advance(Duration::from_secs(seconds));
            let found = world.send(&format!("GET {lease}"), &[], "", UserInfo::admin()).body;
            let renewed = found["spec"]["renewTime"].as_str();
            let renewed = renewed.map(|time| time.parse::<jiff::Timestamp>().expect("a time"));
            let now = world.api.inner.env.now();
            assert_eq!(renewed.map(|time| now.as_second() - time.as_second()), age, "{found}");
            assert_eq!(world.api.resource_version() - before, writes, "{found}");
            found
        };
        // A server without a listener has no identity.
        check(20, None, 0);
        let address = SocketAddr::from(([127, 0, 0, 1], 6443));
        world.api.announce(&place(address, "vm"));
        let first = check(9, Some(9), 0);
        let mut renewed = check(1, Some(0), 1);
        check(0, Some(0), 0);
        for own in ["resourceVersion", "uid"] {
            renewed["metadata"][own] = first["metadata"][own].clone();
        }
        renewed["spec"]["renewTime"] = first["spec"]["renewTime"].clone();
        assert_eq!(renewed, first);
        // After any time without requests.
        check(3000, Some(0), 1);
        world.send(&format!("DELETE {lease}"), &[], "", UserInfo::admin());
        check(9, None, 0);
        let again = check(1, Some(0), 1);
        assert_eq!(again["spec"]["holderIdentity"], first["spec"]["holderIdentity"]);
    }
}
