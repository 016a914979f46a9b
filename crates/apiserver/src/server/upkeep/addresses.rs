//! IPAddresses: the objects that say which Service holds which cluster IP.
//!
//! A Service gets its addresses before it is stored, and each is written down as an IPAddress, as upstream writes it; a
//! Service that is not stored after all gives them back, and so does one that goes or becomes one without. A Service
//! cannot have an address whose IPAddress exists already, whichever client wrote it.
//!
//! Invariants: a stored Service holds each of its cluster IPs in an IPAddress, unless a client removed that. Upstream
//! puts it back after some minutes; here the next start does. A process that ends between the two writes leaves an
//! IPAddress without a Service, which the next start removes. (Node ports stand in Services alone.)
//!
//! Not here: which address a Service gets (`kinds/services/allocation.rs`). No webhook is called for the server's own
//! writes here.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::env::{rfc3339, uuid};
use crate::model::object;
use crate::model::{ReservedIps, Unallocated};
use crate::server::Inner;
use crate::storage::{ListRequest, Storage, StorageError, StoredObject};
use crate::values::get;

/// Where IPAddresses are stored, and the store whose objects get addresses.
pub(crate) const STORE: &str = "ipaddresses.networking.k8s.io";
pub(crate) const SERVICES: &str = "services";

/// The label that names the writer of an IPAddress, and its value for this server.
const MANAGED_BY: &str = "ipaddress.kubernetes.io/managed-by";
const ALLOCATOR: &str = "ipallocator.k8s.io";

/// Addresses of a Service that is not stored yet: given back when it is dropped before that.
pub(crate) struct Reservation {
    storage: Arc<dyn Storage>,
    addresses: Vec<Arc<StoredObject>>,
}

impl Reservation {
    /// The Service is stored, and its addresses are its own.
    pub(crate) fn keep(mut self) {
        self.addresses.clear();
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        for address in &self.addresses {
            // A client that has changed it meanwhile keeps its change.
            let _ = self
                .storage
                .delete(STORE, object::name(address.value()), address.revision());
        }
    }
}

/// The cluster IPs of a Service; none of a headless one.
fn cluster_ips(service: &Value) -> impl Iterator<Item = IpAddr> {
    let ips = get(service, &["spec", "clusterIPs"]).as_array().into_iter().flatten();
    ips.filter_map(|ip| ip.as_str()?.parse().ok())
}

impl ReservedIps for Inner {
    fn is_reserved(&self, ip: IpAddr) -> bool {
        self.storage.get(STORE, &ip.to_string()).is_some()
    }
}

fn parent(service: &Value) -> Value {
    json!({"resource": SERVICES, "namespace": object::namespace(service), "name": object::name(service)})
}

impl Inner {
    /// Writes down that a Service holds the addresses that it did not have before.
    pub(crate) fn reserve_addresses(&self, service: &Value, old: Option<&Value>) -> Result<Reservation, Unallocated> {
        let mut reservation = Reservation {
            storage: self.storage.clone(),
            addresses: Vec::new(),
        };
        for ip in cluster_ips(service) {
            if old.is_some_and(|old| cluster_ips(old).any(|had| had == ip)) {
                continue;
            }
            match self.storage.create(STORE, &ip.to_string(), self.address(ip, service)) {
                Ok(address) => reservation.addresses.push(address),
                // A client that writes IPAddresses itself was faster.
                Err(StorageError::AlreadyExists(_)) => {
                    let why = format!("failed to allocate IP {ip}: provided IP is already allocated");
                    return Err(Unallocated::Failed(why));
                }
                Err(error) => return Err(Unallocated::Failed(format!("failed to allocate IP {ip}: {error}"))),
            }
        }
        Ok(reservation)
    }

    /// Takes back the addresses that a Service had; not those that it keeps.
    pub(crate) fn release_addresses(&self, service: &Value, kept: &Value) {
        for ip in cluster_ips(service).filter(|ip| cluster_ips(kept).all(|keeps| keeps != *ip)) {
            if let Some(address) = self.storage.get(STORE, &ip.to_string())
                && get(address.value(), &["spec", "parentRef"]) == &parent(service)
            {
                let _ = self.storage.delete(STORE, &ip.to_string(), address.revision());
            }
        }
    }

    /// Writes the missing IPAddresses of stored Services.
    pub(crate) fn complete_addresses(&self) {
        let listed = self.storage.list(SERVICES, &ListRequest::default());
        for (_, service) in listed.iter().flat_map(|listed| &listed.items) {
            let service = service.value();
            for ip in cluster_ips(service) {
                let address = || self.address(ip, service);
                if self.storage.get(STORE, &ip.to_string()).is_none()
                    && let Err(error) = self.storage.create(STORE, &ip.to_string(), address())
                {
                    tracing::error!(%ip, %error, "it cannot be written down which Service holds a cluster IP");
                }
            }
        }
    }

    /// Removes an IPAddress of a Service that was not stored before the process ended, or has that address no more
    /// (`repairip`'s `syncIPAddress`). IPAddresses of other writers are left alone.
    pub(crate) fn release_orphans(&self) {
        let listed = self.storage.list(STORE, &ListRequest::default());
        for (key, address) in listed.iter().flat_map(|listed| &listed.items) {
            let value = address.value();
            if get(value, &["metadata", "labels", MANAGED_BY]) != ALLOCATOR || self.is_used(key, value) {
                continue;
            }
            if let Err(error) = self.storage.delete(STORE, key, address.revision()) {
                tracing::error!(%key, %error, "an address that no Service has cannot be given back");
            }
        }
    }

    /// Whether the Service that an IPAddress names has that address.
    fn is_used(&self, ip: &str, address: &Value) -> bool {
        let parent = |field: &str| get(address, &["spec", "parentRef", field]).as_str().unwrap_or("");
        let key = format!("{}/{}", parent("namespace"), parent("name"));
        let service = self.storage.get(SERVICES, &key);
        service.is_some_and(|service| cluster_ips(service.value()).any(|used| used.to_string() == ip))
    }

    /// The IPAddress, as it is stored.
    fn address(&self, ip: IpAddr, service: &Value) -> Value {
        const FAMILY: &str = "ipaddress.kubernetes.io/ip-family";
        let family = if ip.is_ipv4() { "IPv4" } else { "IPv6" };
        let now = rfc3339(self.env.now());
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, format!("f:{FAMILY}"): {}, format!("f:{MANAGED_BY}"): {}}},
            "f:spec": {"f:parentRef": {".": {}, "f:name": {}, "f:namespace": {}, "f:resource": {}}},
        });
        json!({
            "metadata": {
                "name": ip.to_string(), "uid": uuid(self.env.as_ref()), "creationTimestamp": now,
                "labels": {FAMILY: family, MANAGED_BY: ALLOCATOR},
                "managedFields": [{"manager": "kube-apiserver", "operation": "Update", "apiVersion": "networking.k8s.io/v1",
                    "time": now, "fieldsType": "FieldsV1", "fieldsV1": fields}],
            },
            "spec": {"parentRef": parent(service)},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::tests::World;

    const SERVICES: &str = "/api/v1/namespaces/default/services";
    const ADDRESSES: &str = "/apis/networking.k8s.io/v1/ipaddresses";

    /// The addresses with their holders, as `ADDRESS NAME`.
    fn reserved(world: &World) -> Vec<String> {
        let listed = world
            .api
            .inner
            .storage
            .list(STORE, &ListRequest::default())
            .expect("now");
        let holder = |address: &Value| {
            get(address, &["spec", "parentRef", "name"])
                .as_str()
                .unwrap_or("")
                .to_owned()
        };
        let items = listed.items.iter();
        items
            .map(|(ip, address)| format!("{ip} {}", holder(address.value())))
            .collect()
    }

    fn service(name: &str, spec: Value) -> Value {
        let mut service = json!({"metadata": {"name": name}, "spec": spec});
        service["spec"]["ports"] = json!([{"port": 80}]);
        service
    }

    /// As kube-apiserver 1.36 does it, one request after the other; at each the code, and the Service that holds an
    /// address then.
    #[test]
    fn services_hold_their_addresses() {
        let world = World::new();
        let check = |line: String, body: &Value, code: u16, expected: &[&str]| {
            let answer = world.call(&line, body);
            assert_eq!(answer.code, code, "{line} {body}: {}", answer.body);
            let first = ["10.0.0.1 kubernetes"];
            let expected: Vec<&str> = first.iter().chain(expected).copied().collect();
            assert_eq!(reserved(&world), expected, "{line} {body}");
            answer.body["message"].clone()
        };
        let fixed = |name: &str, ip: &str| service(name, json!({"clusterIP": ip}));
        let post = || format!("POST {SERVICES}");
        check(format!("{}?dryRun=All", post()), &fixed("a", "10.0.0.70"), 201, &[]);
        check(post(), &fixed("a", "10.0.0.70"), 201, &["10.0.0.70 a"]);
        let refused = check(post(), &fixed("b", "10.0.0.70"), 422, &["10.0.0.70 a"]);
        assert_eq!(
            refused,
            "Service \"b\" is invalid: spec.clusterIPs: Invalid value: [\"10.0.0.70\"]: failed to allocate IP 10.0.0.70: provided IP is \
             already allocated"
        );
        // The name is taken, or a rule broken: the address is given back.
        check(post(), &fixed("a", "10.0.0.71"), 409, &["10.0.0.70 a"]);
        let mut broken = fixed("c", "10.0.0.71");
        broken["spec"]["ports"][0]["port"] = json!(0);
        check(post(), &broken, 422, &["10.0.0.70 a"]);
        check(
            post(),
            &service("h", json!({"clusterIP": "None"})),
            201,
            &["10.0.0.70 a"],
        );
        let external =
            json!({"spec": {"type": "ExternalName", "externalName": "a.b", "clusterIP": null, "clusterIPs": null}});
        check(
            format!("PATCH {SERVICES}/a?dryRun=All"),
            &external,
            200,
            &["10.0.0.70 a"],
        );
        check(format!("PATCH {SERVICES}/a"), &external, 200, &[]);
        let back = json!({"spec": {"type": "ClusterIP", "externalName": null, "clusterIP": "10.0.0.72"}});
        check(format!("PATCH {SERVICES}/a"), &back, 200, &["10.0.0.72 a"]);
        check(
            format!("PATCH {SERVICES}/a"),
            &json!({"metadata": {"labels": {"x": "y"}}}),
            200,
            &["10.0.0.72 a"],
        );
        check(format!("DELETE {SERVICES}/a"), &json!({}), 200, &[]);
        // An address whose IPAddress a client wrote is taken, and stays the client's.
        let mut address =
            json!({"apiVersion": "networking.k8s.io/v1", "kind": "IPAddress", "metadata": {"name": "10.0.0.73"}});
        address["spec"] = json!({"parentRef": {"resource": "services", "namespace": "default", "name": "z"}});
        check(format!("POST {ADDRESSES}"), &address, 201, &["10.0.0.73 z"]);
        check(post(), &fixed("d", "10.0.0.73"), 422, &["10.0.0.73 z"]);
    }

    /// As after a process that ended before it stored the Service.
    #[test]
    fn a_start_gives_back_what_no_service_has() {
        let world = World::new();
        let inner = &world.api.inner;
        let service =
            json!({"metadata": {"name": "lost", "namespace": "default"}, "spec": {"clusterIPs": ["10.0.0.80"]}});
        inner
            .reserve_addresses(&service, None)
            .map(Reservation::keep)
            .expect("it is free");
        let mut address = inner.address([10, 0, 0, 81].into(), &service);
        address["metadata"]["labels"] = json!({});
        inner.storage.create(STORE, "10.0.0.81", address).expect("it is free");
        assert_eq!(
            reserved(&world),
            ["10.0.0.1 kubernetes", "10.0.0.80 lost", "10.0.0.81 lost"]
        );
        inner.release_orphans();
        assert_eq!(reserved(&world), ["10.0.0.1 kubernetes", "10.0.0.81 lost"]);
    }

    #[test]
    fn a_start_writes_down_what_is_missing() {
        let world = World::new();
        assert_eq!(
            world.call(&format!("DELETE {ADDRESSES}/10.0.0.1"), &json!({})).code,
            200
        );
        assert!(reserved(&world).is_empty());
        world.api.inner.complete_addresses();
        assert_eq!(reserved(&world), ["10.0.0.1 kubernetes"]);
    }
}
