//! The effects of a write of a CustomResourceDefinition, at once and within the same request: names are accepted, the
//! kind is served; a definition that is deleted takes its objects with it.
//!
//! Invariants: the record of a definition is brought up to date under one lock from the present storage, so that the
//! registry never goes back in time; a write of one definition reads no other that shares no name with it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use crate::model::Resource;
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::registry::crd;
use crate::registry::definitions::Definitions;
use crate::server::Call;
use crate::server::Inner;
use crate::server::managed::{self, Tracking};
use crate::server::write::{Part, Writer};
use crate::storage::{Entry, ListRequest, StorageError, StoredObject};

/// The store of the definitions.
pub(crate) const STORE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Whether a kind is the definitions' own.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    resource.store == STORE
}

impl Inner {
    /// After the creation of a custom resource: it may have come between the mark of its definition and the end of its
    /// objects.
    pub(crate) fn after_create_of_custom(&self, definition: &str) {
        if self.registry.snapshot().is_ending(definition) {
            self.end_definition(definition);
        }
    }

    /// After the removal of a custom resource: the last object of a definition on its way out lets it go.
    pub(crate) fn after_delete_of_custom(&self, definition: &str) {
        // The name of a definition is that of its store.
        if self.registry.snapshot().is_ending(definition) && self.storage.is_empty(definition) {
            self.end_definition(definition);
        }
    }

    /// After the creation of a definition: none of its objects is older. One whose creation met the end of an earlier
    /// definition of this name may have stayed behind.
    pub(crate) fn after_create_of_definition(&self, made: &StoredObject) {
        // The name of a definition is that of its store.
        let name = object::name(made.head());
        let Ok(listed) = self.storage.entries(name, &ListRequest::default()) else {
            return;
        };
        let served = name
            .split_once('.')
            .and_then(|(plural, group)| self.registry.snapshot().of_definition(group, plural));
        for (key, entry) in listed.items.iter().filter(|(_, entry)| entry.revision() < made.revision()) {
            // A client that was faster has deleted it.
            if let (Ok(gone), Some(resource)) = (self.storage.delete(name, key, entry.revision()), &served) {
                self.after_delete(resource, &gone);
            }
        }
    }

    /// Accepts names, establishes, and serves established kinds, after a write of one definition.
    pub(crate) fn settle_definition(&self, name: &str) {
        let mut definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        definitions.put(name, self.storage.get(STORE, name).as_deref());
        self.settle_open(&mut definitions);
    }

    /// The same for all definitions, replacing all records: at the start, and when writes were taken back.
    pub(crate) fn settle_definitions(&self) {
        let mut definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok(listed) = self.storage.entries(STORE, &ListRequest::default()) else {
            return;
        };
        let stored: BTreeMap<Arc<str>, Arc<Entry>> = listed.items.into_iter().collect();
        let gone: Vec<Arc<str>> = definitions
            .names()
            .filter(|name| !stored.contains_key(*name))
            .cloned()
            .collect();
        for name in gone {
            definitions.put(&name, None);
        }
        for (name, entry) in &stored {
            if definitions.revision(name) != Some(entry.revision()) {
                definitions.put(name, Some(&entry.object()));
            }
        }
        self.settle_open(&mut definitions);
        self.settle_api_services(&definitions);
    }

    /// Looks at the definitions that changed, and at those that may have names now.
    fn settle_open(&self, definitions: &mut Definitions) {
        while let Some(name) = definitions.next_open() {
            let stored = self.storage.get(STORE, &name);
            definitions.put(&name, stored.as_deref());
            let Some(stored) = stored else { continue };
            let present = stored.value();
            if let Some(mut next) = definitions.settled(&name, present, self.env.now()) {
                self.enter_settled(&mut next, present);
                match self.storage.update(STORE, &name, stored.revision(), next) {
                    Ok(settled) => definitions.put(&name, Some(&settled)),
                    // Another write was faster: the definition is looked at again.
                    Err(StorageError::Conflict { .. } | StorageError::NotFound(_)) => continue,
                    // Nothing can be written now; it stays open.
                    Err(_) => break,
                }
            }
            definitions.close(&name);
        }
        let changes = definitions.take_changes();
        self.registry.apply(&changes, definitions);
        for change in &changes {
            for version in &change.versions {
                self.settle_api_service(&change.group, version, definitions);
            }
        }
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

    /// Deletes the objects of a definition on its way out, and the definition itself when it has none left.
    pub(crate) fn end_definition(&self, name: &str) {
        let Some(definition) = self.storage.get(STORE, name) else {
            return;
        };
        let value = definition.value();
        let held = object::is_terminating(value) && object::finalizers(value).contains(&crd::CLEANUP_FINALIZER);
        if held && self.delete_objects(value) {
            self.release(&definition);
        } else if held {
            self.say_in_progress(&definition);
        }
    }

    /// Says of a definition on its way out that its objects are being deleted.
    pub(crate) fn begin_ending(&self, name: &str) {
        let present = self.storage.get(STORE, name);
        if let Some(definition) = present.filter(|present| crd::waits_for_its_end(present.value())) {
            self.say_in_progress(&definition);
        }
    }

    /// Says of a definition that something holds its objects.
    fn say_in_progress(&self, definition: &Arc<StoredObject>) {
        let present = definition.value();
        let mut next = present.clone();
        if crd::set_terminating(&mut next, crd::Ending::InProgress, self.env.now()) {
            self.enter_settled(&mut next, present);
            // The write that was faster settles the definition too.
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
        let Some(resource) = self.registry.snapshot().of_definition(group, plural) else {
            // A definition that was never established has no objects.
            return true;
        };
        let Ok(listed) = self.storage.entries(&resource.store, &ListRequest::default()) else {
            return false;
        };
        let user = UserInfo::admin();
        for (_, entry) in &listed.items {
            let item = entry.object();
            if !object::is_terminating(item.head()) {
                let mut writer = Writer::new(self, resource.clone(), &user);
                writer.delete_now(object::namespace(item.head()), object::name(item.head()));
            }
        }
        self.storage.is_empty(&resource.store)
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
        self.settle_definition(&name);
    }
}

impl Call<'_> {
    /// Nothing is made of a kind whose definition is on its way out.
    pub(crate) fn refuse_while_definition_ends(&self, name: &str) -> Result<(), Status> {
        let Some(custom) = &self.resource.custom else {
            return Ok(());
        };
        let ending = self.server.registry.snapshot().is_ending(&custom.crd_name);
        if !ending {
            return Ok(());
        }
        let why = "create not allowed while custom resource definition is terminating";
        Err(Status::forbidden(&self.resource, name, why))
    }
}
