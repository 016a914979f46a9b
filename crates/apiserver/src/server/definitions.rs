//! What follows a write of a CustomResourceDefinition, at once and within the same request: names are accepted, the kind is served; a
//! definition that is deleted takes its objects with it.
//!
//! Invariant: the registry is rebuilt under one lock from what storage holds then, so that it never goes back in time.

use std::sync::{Arc, PoisonError};

use super::managed::{self, Tracking};
use super::write::{Part, Writer};
use super::{Call, Inner};
use crate::object;
use crate::registry::{Resource, crd};
use crate::status::Status;
use crate::storage::{ListRequest, StorageError, StoredObject};
use crate::user::UserInfo;

/// The store of the definitions.
pub(crate) const STORE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Whether a kind is the definitions' own.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    resource.store == STORE
}

impl Inner {
    /// After the removal of a custom resource: the last object of a definition on its way out lets it go.
    pub(crate) fn after_delete_of_custom(&self, definition: &str) {
        let ending = self
            .storage
            .get(STORE, definition)
            .is_some_and(|crd| object::is_terminating(crd.value()));
        if ending {
            self.end_definitions();
        }
    }

    pub(super) fn stored_definitions(&self) -> Vec<Arc<StoredObject>> {
        let listed = self.storage.list(STORE, &ListRequest::default());
        listed
            .map(|listed| listed.items.into_iter().map(|(_, object)| object).collect())
            .unwrap_or_default()
    }

    /// Accepts names, establishes, and serves what is established.
    pub(crate) fn settle_definitions(&self) {
        let _one_at_a_time = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let stored = self.stored_definitions();
            let mut beaten = false;
            for mut changed in crd::settle(stored.iter().map(|object| object.value()), self.env.now()) {
                let name = object::name(&changed).to_owned();
                let present = stored.iter().find(|object| object::name(object.value()) == name);
                if let Some(present) = present {
                    self.enter_settled(&mut changed, present.value());
                }
                let revision = present.map_or(0, |object| object.revision());
                let result = self.storage.update(STORE, &name, revision, changed);
                beaten |= matches!(result, Err(StorageError::Conflict { .. } | StorageError::NotFound(_)));
            }
            if !beaten {
                break;
            }
        }
        let stored = self.stored_definitions();
        self.registry.apply_crds(stored.iter().map(|object| object.value()));
        self.settle_api_services(&stored);
    }

    /// The status of a definition belongs to the server.
    fn enter_settled(&self, changed: &mut serde_json::Value, present: &serde_json::Value) {
        let Some(resource) = self
            .registry
            .lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return;
        };
        let tracking = Tracking::Update("kube-apiserver".to_owned());
        let now = crate::env::rfc3339(self.env.now());
        managed::track_update(
            &resource,
            &tracking,
            Part::Status,
            None,
            Vec::new(),
            changed,
            present,
            &now,
            &kubewright_schema::apply::Views::new(),
        );
    }

    /// Deletes the objects of terminating definitions, and the definitions that have none left.
    pub(crate) fn end_definitions(&self) {
        for definition in self.stored_definitions() {
            let value = definition.value();
            let held = object::is_terminating(value) && object::finalizers(value).contains(&crd::CLEANUP_FINALIZER);
            if held && self.delete_objects(value) {
                self.release(&definition);
            } else if held {
                self.say_in_progress(&definition);
            }
        }
    }

    /// Says of a definition that something holds its objects.
    fn say_in_progress(&self, definition: &Arc<StoredObject>) {
        let present = definition.value();
        let mut next = present.clone();
        if crd::set_terminating(&mut next, crd::Ending::InProgress, self.env.now()) {
            self.enter_settled(&mut next, present);
            // Whoever was faster settles the definition too.
            let _ = self
                .storage
                .update(STORE, object::name(present), definition.revision(), next);
        }
    }

    /// Deletes all objects of a definition; whether none is left.
    fn delete_objects(&self, definition: &serde_json::Value) -> bool {
        let text = |pointer: &str| {
            definition
                .pointer(pointer)
                .and_then(serde_json::Value::as_str)
                .unwrap_or("")
        };
        let (group, plural) = (text("/spec/group"), text("/spec/names/plural"));
        let store = format!("{plural}.{group}");
        let kinds = self.registry.snapshot();
        let resource = kinds
            .resources()
            .iter()
            .find(|resource| resource.store == store && resource.custom.is_some())
            .cloned();
        let Some(resource) = resource else {
            // A definition that was never established has no objects.
            return true;
        };
        let Ok(listed) = self.storage.list(&store, &ListRequest::default()) else {
            return false;
        };
        let user = UserInfo::admin();
        for (_, item) in &listed.items {
            if object::is_terminating(item.value()) {
                continue;
            }
            let mut writer = Writer::new(self, resource.clone(), &user);
            writer.delete_now(object::namespace(item.value()), object::name(item.value()));
        }
        self.storage
            .list(&store, &ListRequest::default())
            .is_ok_and(|listed| listed.items.is_empty())
    }

    /// Takes the cleanup finalizer away, and the definition when nothing else holds it.
    fn release(&self, definition: &Arc<StoredObject>) {
        let name = object::name(definition.value()).to_owned();
        while let Some(present) = self.storage.get(STORE, &name) {
            let mut next = present.value().clone();
            let left: Vec<String> = object::finalizers(&next)
                .into_iter()
                .filter(|finalizer| *finalizer != crd::CLEANUP_FINALIZER)
                .map(str::to_owned)
                .collect();
            let done = if left.is_empty() {
                self.storage.delete(STORE, &name, present.revision()).map(drop)
            } else {
                object::set_finalizers(&mut next, left);
                crd::set_terminating(&mut next, crd::Ending::Completed, self.env.now());
                self.enter_settled(&mut next, present.value());
                self.storage.update(STORE, &name, present.revision(), next).map(drop)
            };
            if !matches!(done, Err(StorageError::Conflict { .. })) {
                break;
            }
        }
        self.settle_definitions();
    }
}

impl Call<'_> {
    /// No new objects of a kind whose definition is being deleted.
    /// Nothing is made of a kind whose definition is on its way out.
    pub(crate) fn refuse_while_definition_ends(&self, name: &str) -> Result<(), Status> {
        let Some(custom) = &self.resource.custom else {
            return Ok(());
        };
        let ending = self
            .server
            .storage
            .get(STORE, &custom.crd_name)
            .is_some_and(|crd| object::is_terminating(crd.value()));
        if !ending {
            return Ok(());
        }
        let why = "create not allowed while custom resource definition is terminating";
        Err(Status::forbidden(&self.resource, name, why))
    }
}
