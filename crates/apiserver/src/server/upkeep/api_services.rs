//! The APIServices that the server keeps itself: one for each version of a group, which says that this server serves it
//! (upstream's autoregistration).
//!
//! Those of built-in kinds are made with a new cluster ([`of_built_in_kinds`]) and are the clients' from then on. Those
//! of custom kinds come with the first definition that serves their version and go with the last, and clients' changes
//! of them are put back; upstream does it a moment later.
//!
//! Invariant: an APIService without the label, or with another value of it, is left alone.

use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http::Request;
use kubewright_schema::base64;
use serde_json::{Value, json};

use crate::discovery::remote::Ranked;
use crate::env::{rfc3339, uuid};
use crate::forward::Forward;
use crate::model::facts::locally_available;
use crate::model::form;
use crate::model::object::{self, conditions};
use crate::registry::Snapshot;
use crate::registry::definitions::Definitions;
use crate::server::Inner;
use crate::storage::{Derived, Followed, ListRequest, SharedMap, StoredObject};
use crate::values::get;

pub(crate) const STORE: &str = "apiservices.apiregistration.k8s.io";
/// The group of APIServices.
const GROUP: &str = "apiregistration.k8s.io";
const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";
/// The field manager that writes them upstream.
const MANAGER: &str = "kube-apiserver";

/// The order in which clients prefer built-in groups and their versions: group, its priority, version, its priority.
const BUILT_IN: [(&str, u32, &str, u32); 22] = [
    ("", 18_000, "v1", 1),
    ("admissionregistration.k8s.io", 16_700, "v1", 15),
    ("apiextensions.k8s.io", 16_700, "v1", 15),
    ("apps", 17_800, "v1", 15),
    ("authentication.k8s.io", 17_700, "v1", 15),
    ("authorization.k8s.io", 17_600, "v1", 15),
    ("autoscaling", 17_500, "v1", 15),
    ("autoscaling", 17_500, "v2", 30),
    ("batch", 17_400, "v1", 15),
    ("certificates.k8s.io", 17_300, "v1", 15),
    ("coordination.k8s.io", 16_500, "v1", 15),
    ("discovery.k8s.io", 16_200, "v1", 15),
    ("events.k8s.io", 17_750, "v1", 15),
    ("flowcontrol.apiserver.k8s.io", 16_100, "v1", 21),
    ("networking.k8s.io", 17_200, "v1", 15),
    ("node.k8s.io", 16_300, "v1", 15),
    ("policy", 17_100, "v1", 15),
    ("rbac.authorization.k8s.io", 17_000, "v1", 15),
    ("resource.k8s.io", 16_200, "v1", 21),
    ("scheduling.k8s.io", 16_600, "v1", 15),
    ("storage.k8s.io", 16_800, "v1", 15),
    ("storagemigration.k8s.io", 15_800, "v1", 15),
];

/// The priorities of custom groups and their versions.
const CUSTOM: (u32, u32) = (1000, 100);

/// The APIServices of built-in kinds, as they are created.
pub(crate) fn of_built_in_kinds(kinds: &Snapshot) -> impl Iterator<Item = Value> {
    let served = BUILT_IN
        .iter()
        .filter(|(group, _, version, _)| kinds.has_version(group, version));
    served.map(|(group, of_group, version, of_version)| {
        let mut spec = json!({"groupPriorityMinimum": of_group, "version": version, "versionPriority": of_version});
        if !group.is_empty() {
            spec["group"] = json!(group);
        }
        let metadata = json!({"name": name(group, version), "labels": {LABEL: "onstart"}});
        json!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": metadata, "spec": spec})
    })
}

fn name(group: &str, version: &str) -> String {
    format!("{version}.{group}")
}

/// The spec that the APIService of a version which definitions serve shall have.
fn spec(group: &str, version: &str) -> Value {
    let (of_group, of_version) = CUSTOM;
    json!({"group": group, "groupPriorityMinimum": of_group, "version": version, "versionPriority": of_version})
}

/// The server of a group version that names a Service.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Remote {
    pub(crate) group: String,
    pub(crate) version: String,
    namespace: String,
    service: String,
    pub(super) port: u16,
    ca_bundle: Bytes,
    insecure: bool,
    /// Whether its APIService says that it is available.
    pub(crate) is_available: bool,
}

impl Remote {
    /// The server that an APIService names; none when this server is meant.
    pub(super) fn of(object: &Value) -> Option<Remote> {
        let spec = get(object, &["spec"]);
        let service = get(spec, &["service"]).as_object()?;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("").to_owned();
        let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
        Some(Remote {
            group: text(spec.get("group")),
            version: text(spec.get("version")),
            namespace: text(service.get("namespace")),
            service: text(service.get("name")),
            port: u16::try_from(port).ok()?,
            // What is no base64 is never stored.
            ca_bundle: base64::decode(&text(spec.get("caBundle"))).ok()?.into(),
            insecure: get(spec, &["insecureSkipTLSVerify"]) == true,
            is_available: conditions::is_true(object, "Available"),
        })
    }

    /// Its name, as an APIService has it.
    pub(crate) fn name(&self) -> String {
        name(&self.group, &self.version)
    }

    /// The key of the Service.
    pub(super) fn key(&self) -> String {
        form::key(&self.namespace, &self.service)
    }

    /// The Service, for the log.
    pub(crate) fn shown(&self) -> String {
        format!("{}/{}:{}", self.namespace, self.service, self.port)
    }

    /// Whether both are reached in the same way.
    pub(crate) fn is_reached_as(&self, other: &Remote) -> bool {
        let way = |one: &Remote| (one.key(), one.port, one.ca_bundle.clone(), one.insecure);
        way(self) == way(other)
    }

    /// A request to it.
    pub(crate) fn forward(&self, request: Request<Bytes>) -> Forward {
        Forward {
            namespace: self.namespace.clone(),
            service: self.service.clone(),
            port: self.port,
            ca_bundle: self.ca_bundle.clone(),
            insecure: self.insecure,
            request,
        }
    }
}

/// APIServices of other servers: those that name a Service.
#[derive(Clone, Default)]
pub(crate) struct RemoteServices {
    /// By the name of the APIService.
    services: SharedMap<Arc<str>, Arc<Remote>>,
    /// Names of APIServices, by the key of the Service.
    through: SharedMap<Arc<str>, SharedMap<Arc<str>, ()>>,
}

impl Derived for RemoteServices {
    fn apply(&mut self, _store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if let Some(before) = self.services.remove(key) {
            self.through.remove_within(before.key().as_str(), key);
        }
        let object = object.filter(|object| names_a_service(object.encoded()));
        if let Some(remote) = object.and_then(|object| Remote::of(object.value())) {
            self.through.or_default(remote.key().into()).insert(key.into(), ());
            self.services.insert(key.into(), Arc::new(remote));
        }
    }
}

/// [`RemoteServices`], brought up to date at each look.
pub(crate) const fn remote_services() -> Followed<RemoteServices> {
    Followed::new(&[STORE])
}

/// Whether the text of an APIService may name a Service. Nearly none does, so the text is asked first.
fn names_a_service(encoded: &[u8]) -> bool {
    const NAMED: &[u8] = b"\"service\":{";
    encoded.windows(NAMED.len()).any(|window| window == NAMED)
}

fn is_kept(service: &Value) -> bool {
    get(service, &["metadata", "labels", LABEL]) == "true"
}

impl Inner {
    /// The server of a group version that an APIService gives to another one, whether or not this server has such
    /// kinds. Two stay: the group of the APIServices themselves, as upstream, or nobody could take it back; and
    /// `metrics.k8s.io`, which stands in here, until the other server has answered.
    pub(crate) fn remote(&self, group: &str, version: &str) -> Option<Arc<Remote>> {
        let services = self.remote_services.now(self.storage.as_ref());
        if services.services.is_empty() || group == GROUP {
            return None;
        }
        let name = name(group, version);
        let remote = services.services.get(name.as_str())?;
        let stands_in = self.stands_in(group, version) && !self.probes.has_answered(remote);
        (!stands_in).then(|| remote.clone())
    }

    /// Whether this server stands in for another one that clusters often have.
    pub(crate) fn stands_in(&self, group: &str, version: &str) -> bool {
        let kinds = self.registry.snapshot();
        kinds.stands_in(group) && kinds.has_version(group, version)
    }

    /// The APIServices of other servers, by name.
    pub(crate) fn remotes(&self) -> Vec<(Arc<str>, Arc<Remote>)> {
        let services = self.remote_services.now(self.storage.as_ref());
        let all = services.services.iter();
        all.map(|(name, remote)| (name.clone(), remote.clone())).collect()
    }

    /// How versions are ranked, when another server would serve one of them; nothing otherwise.
    pub(crate) fn ranked(&self) -> Vec<Ranked> {
        let listed = self.storage.entries(STORE, &ListRequest::default());
        let items = listed.map(|listed| listed.items).unwrap_or_default();
        if !items.iter().any(|(_, service)| names_a_service(service.encoded())) {
            return Vec::new();
        }
        let ranked = items.iter().map(|(_, service)| {
            let service = service.object();
            let spec = get(service.value(), &["spec"]);
            let text = |field: &str| get(spec, &[field]).as_str().unwrap_or("").to_owned();
            let number = |field: &str| get(spec, &[field]).as_i64().unwrap_or(0);
            let (group, version) = (text("group"), text("version"));
            let remote = self.remote(&group, &version);
            Ranked {
                of_group: number("groupPriorityMinimum"),
                of_version: number("versionPriority"),
                remote: remote.map(|remote| self.probes.resources_of(&remote)),
                group,
                version,
            }
        });
        ranked.collect()
    }

    /// The names of the APIServices of other servers that are reached through a Service.
    pub(crate) fn reached_through(&self, namespace: &str, service: &str) -> Vec<String> {
        self.remote_services.look(self.storage.as_ref(), |others| {
            if others.services.is_empty() {
                return Vec::new();
            }
            let names = others.through.get(form::key(namespace, service).as_str());
            let names = names.into_iter().flat_map(SharedMap::keys);
            names.map(ToString::to_string).collect()
        })
    }

    /// After a write of an APIService: one of those that the server keeps is put back.
    pub(crate) fn settle_written_api_service(&self, written: &StoredObject) {
        let name = object::name(written.head());
        if let Some((version, group)) = name.split_once('.') {
            let definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
            self.settle_api_service(group, version, &definitions);
        }
    }

    /// Makes the APIServices of all custom kinds those that the definitions want.
    pub(crate) fn settle_api_services(&self, definitions: &Definitions) {
        let listed = self.storage.entries(STORE, &ListRequest::default());
        for (name, _) in listed.iter().flat_map(|listed| &listed.items) {
            if let Some((version, group)) = name.split_once('.') {
                self.settle_api_service(group, version, definitions);
            }
        }
        for (group, version) in definitions.served() {
            self.settle_api_service(group, version, definitions);
        }
    }

    /// Makes the APIService of a version as the definitions want it. Another write at the same moment runs this as
    /// well.
    pub(crate) fn settle_api_service(&self, group: &str, version: &str, definitions: &Definitions) {
        let name = name(group, version);
        let wanted = definitions.serves(group, version);
        let Some(present) = self.storage.get(STORE, &name) else {
            if wanted {
                let made = self.new_api_service(&name, spec(group, version));
                let _ = self.storage.create(STORE, &name, made);
            }
            return;
        };
        if !is_kept(present.value()) {
            return;
        }
        if !wanted {
            // A client's finalizer holds it: then that client deletes it.
            if object::finalizers(present.value()).is_empty() {
                let _ = self.storage.delete(STORE, &name, present.revision());
            }
            return;
        }
        let spec = spec(group, version);
        if get(present.value(), &["spec"]) != &spec {
            let next = put_back(present.value(), spec);
            let _ = self.storage.update(STORE, &name, present.revision(), next);
        }
    }

    fn new_api_service(&self, name: &str, spec: Value) -> Value {
        let now = rfc3339(self.env.now());
        json!({
            "metadata": {
                "name": name, "uid": uuid(self.env.as_ref()), "creationTimestamp": now, "labels": {LABEL: "true"},
                "managedFields": [own_entry(&now)]
            },
            "spec": spec, "status": {"conditions": [locally_available(&now)]}
        })
    }
}

/// The fields that the server owns of an APIService that it keeps.
fn own_entry(time: &str) -> Value {
    json!({
        "manager": MANAGER, "operation": "Update", "apiVersion": "apiregistration.k8s.io/v1", "time": time, "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, (format!("f:{LABEL}")): {}}},
            "f:spec": {"f:group": {}, "f:groupPriorityMinimum": {}, "f:version": {}, "f:versionPriority": {}}
        }
    })
}

/// The APIService with the spec that it shall have, without field managers.
fn put_back(present: &Value, spec: Value) -> Value {
    let mut next = present.clone();
    next["spec"] = spec;
    let own = own_entry(get(present, &["metadata", "creationTimestamp"]).as_str().unwrap_or(""));
    let metadata = object::metadata_mut(&mut next);
    let entries = metadata.get("managedFields").and_then(Value::as_array);
    let others = entries
        .into_iter()
        .flatten()
        .filter(|entry| entry["manager"] != MANAGER);
    let without_spec = others.cloned().filter_map(|mut entry| {
        let fields = entry.get_mut("fieldsV1")?.as_object_mut()?;
        fields.remove("f:spec");
        (!fields.is_empty()).then_some(entry)
    });
    let entries: Vec<Value> = std::iter::once(own).chain(without_spec).collect();
    metadata.insert("managedFields".to_owned(), entries.into());
    next
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::model::Minor;
    use crate::registry::{Kinds, Registry};

    #[test]
    fn every_built_in_version_has_one() {
        for minor in Minor::ALL {
            let kinds = Registry::of(Kinds::new(kubewright_kinds::built_in(minor))).snapshot();
            // But for the group of the APIServices themselves.
            let rows = kinds.resources();
            let rows = rows.iter().filter(|row| &*row.group != "apiregistration.k8s.io");
            let served: BTreeSet<String> = rows.map(|row| name(&row.group, &row.version)).collect();
            let made: BTreeSet<String> = of_built_in_kinds(&kinds)
                .map(|service| object::name(&service).to_owned())
                .collect();
            assert_eq!(made, served);
        }
    }

    #[test]
    fn what_others_own_of_the_spec_goes() {
        let present = json!({"metadata": {"name": "v1.a", "creationTimestamp": "then", "managedFields": [
            {"manager": "a", "fieldsV1": {"f:spec": {"f:versionPriority": {}}}},
            {"manager": "b", "fieldsV1": {"f:spec": {"f:versionPriority": {}}, "f:metadata": {}}},
            {"manager": MANAGER, "fieldsV1": {"f:spec": {"f:group": {}}}}
        ]}, "spec": {"versionPriority": 7}});
        let next = put_back(&present, json!({"versionPriority": 100}));
        assert_eq!(next["spec"], json!({"versionPriority": 100}));
        let left = json!({"manager": "b", "fieldsV1": {"f:metadata": {}}});
        assert_eq!(next["metadata"]["managedFields"], json!([own_entry("then"), left]));
    }
}
