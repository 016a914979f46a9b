//! The effects of a write, at once and within the same request: objects that the server itself keeps in step with those
//! of clients.
//!
//! * Definitions of custom resources are accepted, established and served (`definitions`).
//! * APIServices of custom kinds are there as long as a definition serves their version (`api_services`).
//! * APIServices of other servers say whether the way there is open (`availability`).
//! * Endpoints go with the Service of their name, and so do the IPAddresses of its cluster IPs (`addresses`).
//! * FlowSchemas say whether the PriorityLevelConfiguration that they name is there; upstream a controller in the API
//!   server writes it a moment later.
//!
//! Invariant: an effect never fails the write that it follows. A faster write of the same object has its effects here,
//! too.

pub(crate) mod addresses;
pub(crate) mod api_services;
pub(crate) mod availability;
pub(crate) mod bootstrap;
pub(crate) mod claims;
pub(crate) mod compaction;
pub(crate) mod definitions;
pub(crate) mod endings;
pub(crate) mod expiry;
pub(crate) mod quotas;
pub(crate) mod rehearsal;
pub(crate) mod slices;

use std::sync::Arc;

use serde_json::{Map, Value, json};

use self::definitions::is_definition;
use crate::env::rfc3339;
use crate::model::form::key;
use crate::model::object::{self, conditions};
use crate::model::{Minor, Resource};
use crate::server::Inner;
use crate::storage::{Derived, Followed, SharedMap, StoredObject};
use crate::values::{ensure, get};

const FLOW_SCHEMAS: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
const PRIORITY_LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";
const ENDPOINTS: &str = "endpoints";
const SERVICE_RANGES: &str = "servicecidrs.networking.k8s.io";
/// The name of the server's own range.
const SERVICE_RANGE: &str = "kubernetes";

/// The field manager that writes the status of FlowSchemas upstream.
const CONSUMER: &str = "api-priority-and-fairness-config-consumer-v1";

/// The FlowSchemas by the PriorityLevelConfiguration that they name.
#[derive(Clone, Default)]
pub(crate) struct FlowSchemas {
    by_level: SharedMap<Arc<str>, SharedMap<Arc<str>, ()>>,
    levels: SharedMap<Arc<str>, Arc<str>>,
}

impl Derived for FlowSchemas {
    fn apply(&mut self, _store: &'static str, key: &str, object: Option<&Arc<StoredObject>>) {
        if let Some(before) = self.levels.remove(key) {
            self.by_level.remove_within(&before, key);
        }
        if let Some(object) = object {
            let level: Arc<str> = level_of(object.value()).into();
            self.by_level.or_default(level.clone()).insert(key.into(), ());
            self.levels.insert(key.into(), level);
        }
    }
}

/// [`FlowSchemas`], brought up to date at each look.
pub(crate) const fn flow_schemas() -> Followed<FlowSchemas> {
    Followed::new(&[FLOW_SCHEMAS])
}

/// The name of the PriorityLevelConfiguration that a FlowSchema names.
fn level_of(schema: &Value) -> &str {
    let level = get(schema, &["spec", "priorityLevelConfiguration", "name"]);
    level.as_str().unwrap_or("")
}

impl Inner {
    /// Makes all derived state anew from the stored objects.
    pub(crate) fn recall(&self) {
        self.settle_definitions();
        self.record_all_allocations();
        self.slices.forget();
    }

    /// Runs after every write that stored something; returns what was stored, for the response.
    pub(crate) fn after_write(&self, resource: &Arc<Resource>, stored: Arc<StoredObject>) -> Arc<StoredObject> {
        self.record_allocations(resource, &stored);
        self.settle_reachable(resource, &stored);
        if is_definition(resource) {
            return self.after_write_of_definition(stored);
        }
        if resource.store == api_services::STORE {
            self.settle_written_api_service(&stored);
            self.settle_availability(&stored);
        } else if resource.store == FLOW_SCHEMAS {
            self.settle_flow_schema(&stored);
        }
        stored
    }

    /// A Service that came, changed or went, or an endpoint of one: updates the APIServices that are reached through
    /// it.
    fn settle_reachable(&self, resource: &Resource, changed: &StoredObject) {
        let metadata = changed.head();
        let namespace = object::namespace(metadata);
        if resource.store == addresses::SERVICES {
            self.settle_available_through(namespace, object::name(metadata));
        } else if resource.store == availability::SLICES {
            let written = key(namespace, object::name(metadata));
            self.slices.written(self.storage.as_ref(), &written);
            self.settle_available_through(namespace, availability::service_of(metadata));
        }
    }

    /// Runs after a write that made an object, and after the effects of every write.
    pub(crate) fn after_create(&self, resource: &Arc<Resource>, made: &StoredObject) {
        if let Some(custom) = &resource.custom {
            self.after_create_of_custom(&custom.crd_name, resource, made);
        } else if resource.store == PRIORITY_LEVELS {
            self.settle_flow_schemas(object::name(made.head()));
        }
    }

    /// Runs after a write that replaced an object, and after the effects of every write.
    pub(crate) fn after_update(&self, resource: &Resource, old: &Value, stored: &StoredObject) {
        if resource.store == addresses::SERVICES {
            self.release_addresses(old, stored.value());
        }
    }

    /// Runs after every removal.
    pub(crate) fn after_delete(&self, resource: &Arc<Resource>, gone: &Arc<StoredObject>) {
        self.record_allocations(resource, gone);
        if is_definition(resource) {
            self.settle_definition(object::name(gone.head()));
        } else if let Some(custom) = &resource.custom {
            self.after_delete_of_custom(&custom.crd_name);
        } else if resource.store == api_services::STORE {
            self.settle_written_api_service(gone);
            self.probes.gone(object::name(gone.head()));
        } else if resource.store == addresses::SERVICES {
            if self.config.minor < Minor::V37 {
                self.drop_endpoints(gone.value());
            }
            self.release_addresses(gone.value(), &Value::Null);
        } else if resource.store == PRIORITY_LEVELS {
            self.settle_flow_schemas(object::name(gone.head()));
        }
        self.settle_reachable(resource, gone);
    }

    fn drop_endpoints(&self, service: &Value) {
        let key = key(object::namespace(service), object::name(service));
        if let Some(endpoints) = self.storage.get(ENDPOINTS, &key) {
            // A client that writes the Endpoints at this moment leaves them without a Service, which is allowed.
            let _ = self.storage.delete(ENDPOINTS, &key, endpoints.revision());
        }
    }

    /// The FlowSchemas of a priority level that came or went say whether it is there.
    fn settle_flow_schemas(&self, level: &str) {
        let named = self.flow_schemas.look(self.storage.as_ref(), |schemas| {
            let names = schemas.by_level.get(level).into_iter();
            names.flat_map(SharedMap::keys).cloned().collect::<Vec<_>>()
        });
        for name in named {
            if let Some(schema) = self.storage.get(FLOW_SCHEMAS, &name) {
                self.settle_flow_schema(&schema);
            }
        }
    }

    /// The server's own range of cluster IPs is ready from the beginning.
    pub(crate) fn settle_service_range(&self) {
        if let Some(stored) = self.storage.get(SERVICE_RANGES, SERVICE_RANGE)
            && let Some(next) = with_ready(stored.value(), &rfc3339(self.env.now()))
        {
            let _ = self
                .storage
                .update(SERVICE_RANGES, SERVICE_RANGE, stored.revision(), next);
        }
    }

    fn settle_flow_schema(&self, stored: &Arc<StoredObject>) {
        let level = level_of(stored.value());
        let is_there = self.storage.get(PRIORITY_LEVELS, level).is_some();
        let now = rfc3339(self.env.now());
        if let Some(next) = with_dangling(stored.value(), level, is_there, &now) {
            let name = object::name(stored.value());
            let _ = self.storage.update(FLOW_SCHEMAS, name, stored.revision(), next);
        }
    }
}

/// The FlowSchema with the condition `Dangling`, as server-side apply would write it; none when it is there already.
fn with_dangling(schema: &Value, level: &str, is_there: bool, now: &str) -> Option<Value> {
    let (status, reason, what) = match is_there {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?} {what}");
    let said =
        json!({"type": "Dangling", "status": status, "reason": reason, "message": message, "lastTransitionTime": now});
    let says = |one: &Value| {
        ["type", "status", "reason", "message"]
            .iter()
            .all(|field| one.get(field) == said.get(field))
    };
    let mut known = get(schema, &["status", "conditions"]).as_array().into_iter().flatten();
    if known.any(says) {
        return None;
    }
    let mut next = schema.clone();
    let map = next.as_object_mut()?;
    conditions::set(ensure(map, "status")?, said);
    let fields = ["lastTransitionTime", "message", "reason", "status", "type"];
    let version = "flowcontrol.apiserver.k8s.io/v1";
    enter(ensure(map, "metadata")?, CONSUMER, version, "Dangling", &fields, now);
    Some(next)
}

/// A condition of this type, with these fields, belongs to a manager that applied it; applies stand before updates.
fn enter(metadata: &mut Map<String, Value>, manager: &str, version: &str, condition: &str, fields: &[&str], now: &str) {
    let fields = fields.iter().map(|field| (format!("f:{field}"), json!({})));
    let fields: Map<String, Value> = fields.chain([(".".to_owned(), json!({}))]).collect();
    let own = json!({
        "manager": manager, "operation": "Apply", "apiVersion": version, "time": now, "fieldsType": "FieldsV1", "subresource": "status",
        "fieldsV1": {"f:status": {"f:conditions": {format!("k:{{\"type\":{condition:?}}}"): fields}}}
    });
    let entries = metadata.entry("managedFields").or_insert_with(|| json!([]));
    if let Some(entries) = entries.as_array_mut() {
        entries.retain(|entry| get(entry, &["manager"]) != manager || get(entry, &["operation"]) != "Apply");
        entries.insert(0, own);
    }
}

/// The ServiceCIDR of the server's own range with the condition `Ready`; none when it has conditions.
fn with_ready(range: &Value, now: &str) -> Option<Value> {
    if get(range, &["status", "conditions"]).is_array() {
        return None;
    }
    let message = "Kubernetes default Service CIDR is ready";
    let ready = json!({"type": "Ready", "status": "True", "reason": "", "message": message, "lastTransitionTime": now});
    let mut next = range.clone();
    let map = next.as_object_mut()?;
    ensure(map, "status")?.insert("conditions".to_owned(), json!([ready]));
    let fields = ["lastTransitionTime", "message", "status", "type"];
    let (manager, version) = ("kubernetes-service-cidr-controller", "networking.k8s.io/v1");
    enter(ensure(map, "metadata")?, manager, version, "Ready", &fields, now);
    Some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_schemas_say_whether_they_dangle() {
        let check = |schema: &Value, is_there: bool, status: Option<&str>, since: &str| {
            let next = with_dangling(schema, "high", is_there, "now");
            let condition = next
                .as_ref()
                .map_or(&Value::Null, |next| &next["status"]["conditions"][0]);
            assert_eq!(condition["status"].as_str(), status, "{schema}");
            assert_eq!(
                condition["lastTransitionTime"].as_str(),
                status.map(|_| since),
                "{schema}"
            );
            next.unwrap_or_default()
        };
        let bare = json!({"metadata": {"name": "a", "managedFields": [{"manager": "x", "operation": "Update"}]}, "status": {}});
        let found = check(&bare, true, Some("False"), "now");
        check(&found, true, None, "");
        let mut old = found.clone();
        old["status"]["conditions"][0]["lastTransitionTime"] = "then".into();
        let missing = check(&old, false, Some("True"), "now");
        old["status"]["conditions"][0]["message"] = "else".into();
        check(&old, true, Some("False"), "then");
        let managers: Vec<&str> = missing["metadata"]["managedFields"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|entry| entry["manager"].as_str())
            .collect();
        assert_eq!(managers, [CONSUMER, "x"]);
    }
}
