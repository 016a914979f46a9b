//! The effects of a write of a CustomResourceDefinition, at once and within the same request: names are accepted, the
//! kind is served; a definition that is deleted takes its objects with it.
//!
//! Invariants: the record of a definition is brought up to date under one lock from the present storage, so that the
//! registry never goes back in time; a write of one definition reads no other that shares no name with it.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};

use serde_json::Value;

use crate::model::Resource;
use crate::model::form;
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::UserInfo;
use crate::registry::crd;
use crate::registry::definitions::Definitions;
use crate::server::Call;
use crate::server::Inner;
use crate::server::managed::{self, Tracking};
use crate::server::write::{Part, Writer};
use crate::storage::{Entry, ListRequest, SizeLimit, StorageError, StoredObject};

/// The store of the definitions.
pub(crate) const STORE: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// Whether a definition is deleted and nothing has been done about its objects yet. Of all others only the metadata is
/// read: their schemas may be large.
pub(super) fn waits_for_its_end(definition: &StoredObject) -> bool {
    crd::is_ending(definition.head()) && crd::waits_for_its_end(definition.value())
}

/// A copy without the schemas.
fn without_spec(definition: &Value) -> Value {
    let fields = definition.as_object().into_iter().flatten();
    let kept = fields.filter(|(field, _)| *field != "spec");
    kept.map(|(field, value)| (field.clone(), value.clone())).collect()
}

/// Whether a kind is the definitions' own.
pub(crate) fn is_definition(resource: &Resource) -> bool {
    resource.store == STORE
}

impl Inner {
    /// After the creation of a custom resource: it may have come between the mark of its definition and the end of its
    /// objects, or after that end. In the second case nothing else would ever remove it, and the next definition of
    /// that name would list it.
    pub(crate) fn after_create_of_custom(&self, definition: &str, resource: &Arc<Resource>, made: &StoredObject) {
        if self.registry.snapshot().is_ending(definition) {
            return self.end_definition(definition);
        }
        if self.storage.text_length(STORE, definition) == 0 {
            let key = form::key(object::namespace(made.head()), object::name(made.head()));
            if let Ok(gone) = self.storage.delete(&resource.store, &key, made.revision()) {
                self.after_delete(resource, &gone);
            }
        }
    }

    /// After the removal of a custom resource: the last object of a definition on its way out lets it go.
    pub(crate) fn after_delete_of_custom(&self, definition: &str) {
        // The name of a definition is that of its store.
        if self.registry.snapshot().is_ending(definition) && self.storage.is_empty(definition) {
            self.end_definition(definition);
        }
    }

    /// Runs after every write of a definition. The response needs only its text; its tree of values, which is many
    /// times as large, becomes that of the definition with its status.
    pub(super) fn after_write_of_definition(&self, written: Arc<StoredObject>) -> Arc<StoredObject> {
        let text = Arc::new(written.text_alone());
        let name = object::name(text.head());
        // Where the shell ends definitions, they go a little later.
        let ends_later = self.endings.is_running() && waits_for_its_end(&written);
        self.settle_held(name, Some(written));
        if !ends_later {
            self.end_definition(name);
        }
        text
    }

    /// Accepts names, establishes, and serves established kinds, after a write of one definition.
    pub(crate) fn settle_definition(&self, name: &str) {
        self.settle_held(name, None);
    }

    /// [`Inner::settle_definition`], for which `written` keeps the tree of values of the definition alive until storage
    /// has returned it: it is not decoded again.
    fn settle_held(&self, name: &str, written: Option<Arc<StoredObject>>) {
        let mut definitions = self.definitions.lock().unwrap_or_else(PoisonError::into_inner);
        let present = self.storage.get(STORE, name);
        drop(written);
        definitions.put(name, present.as_deref());
        self.settle_open(&mut definitions, present);
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
        self.settle_open(&mut definitions, None);
        self.settle_api_services(&definitions);
    }

    /// Looks at the definitions that changed, and at those that may have names now. `held` keeps the first of them
    /// decoded until storage has returned it.
    fn settle_open(&self, definitions: &mut Definitions, mut held: Option<Arc<StoredObject>>) {
        while let Some(name) = definitions.next_open() {
            let stored = self.storage.get(STORE, &name);
            drop(held.take());
            definitions.put(&name, stored.as_deref());
            let Some(stored) = stored else { continue };
            let built_in = self.registry.snapshot().is_built_in_store(&name);
            if let Some(status) = definitions.settled(&name, stored.value(), built_in, self.env.now()) {
                let revision = stored.revision();
                let next = self.with_status(stored, status);
                let limit = SizeLimit::NONE;
                match self.storage.replace_up_to(STORE, &name, revision, next, &limit) {
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

    /// A definition with another status.
    fn with_status(&self, definition: Arc<StoredObject>, status: Value) -> Value {
        let before = without_spec(definition.value());
        let mut next = definition.into_value();
        if let Some(fields) = next.as_object_mut() {
            fields.insert("status".to_owned(), status);
        }
        self.enter_settled(&mut next, &before);
        next
    }

    /// The status of a definition belongs to the server. `present` is the definition [without its spec](without_spec):
    /// such a write does not change the spec, so it is not compared.
    fn enter_settled(&self, changed: &mut Value, present: &Value) {
        let Some(resource) = self
            .registry
            .lookup("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        else {
            return;
        };
        let spec = changed.as_object_mut().and_then(|fields| fields.remove("spec"));
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
        if let (Some(spec), Some(fields)) = (spec, changed.as_object_mut()) {
            fields.insert("spec".to_owned(), spec);
        }
    }

    /// Deletes the objects of a definition on its way out, and the definition itself when it has none left.
    pub(crate) fn end_definition(&self, name: &str) {
        let Some(definition) = self.storage.get(STORE, name) else {
            return;
        };
        if !crd::is_ending(definition.head()) {
            return;
        }
        if self.delete_objects(definition.value()) {
            self.release(&definition);
        } else {
            self.say_in_progress(definition);
        }
    }

    /// Says of a definition on its way out that its objects are being deleted.
    pub(crate) fn begin_ending(&self, name: &str) {
        let present = self.storage.get(STORE, name);
        if let Some(definition) = present.filter(|present| waits_for_its_end(present)) {
            self.say_in_progress(definition);
        }
    }

    /// Says of a definition that something holds its objects.
    fn say_in_progress(&self, definition: Arc<StoredObject>) {
        let mut said = without_spec(definition.value());
        if crd::set_terminating(&mut said, crd::DeletionProgress::InProgress, self.env.now()) {
            let (name, revision) = (object::name(&said).to_owned(), definition.revision());
            let next = self.with_status(definition, said["status"].take());
            // The write that was faster settles the definition too.
            let limit = SizeLimit::NONE;
            let _ = self.storage.replace_up_to(STORE, &name, revision, next, &limit);
        }
    }

    /// Deletes all objects of a definition; whether none is left.
    fn delete_objects(&self, definition: &Value) -> bool {
        let text = |pointer: &str| definition.pointer(pointer).and_then(Value::as_str).unwrap_or("");
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
                crd::set_terminating(&mut next, crd::DeletionProgress::Completed, self.env.now());
                self.enter_settled(&mut next, &without_spec(present.value()));
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

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use serde_json::json;

    use super::*;
    use crate::server::tests::World;

    /// Larger than what storage keeps open.
    fn large() -> Value {
        let schema = json!({"type": "object", "description": "x".repeat(700_000)});
        json!({
            "metadata": {"name": "foos.ex.io", "uid": "u", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {
                "group": "ex.io", "scope": "Cluster", "names": {"plural": "foos", "kind": "Foo"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]
            },
            "status": {"conditions": [], "acceptedNames": {"plural": "", "kind": ""}}
        })
    }

    #[test]
    fn a_large_definition_is_decoded_once() {
        let world = World::new();
        let inner = &*world.api.inner;
        let written = inner.storage.create(STORE, "foos.ex.io", large());
        let written = written.expect("it is new");
        let revision = written.revision();
        let shown = inner.after_write_of_definition(written);
        assert_eq!(shown.revision(), revision, "the response shows what was written");
        assert!(!shown.is_read(), "the response keeps no tree");
        let settled = inner.storage.get(STORE, "foos.ex.io").expect("it is stored");
        assert!(
            !settled.is_read(),
            "nor does anything else, with the definition at its end"
        );
        let (before, after) = (shown.value(), settled.value());
        assert_eq!(before["spec"], after["spec"]);
        assert!(crd::is_established(after) && !crd::is_established(before));
    }

    #[test]
    fn only_a_definition_at_its_end_is_read() {
        let check = |metadata: Value, waits: bool| {
            let text = json!({"metadata": metadata, "spec": {}}).to_string();
            let stored = StoredObject::restore(1, Bytes::from(text)).expect("it is JSON");
            assert_eq!((waits_for_its_end(&stored), stored.is_read()), (waits, waits));
        };
        let deleted = "2026-01-01T00:00:00Z";
        check(json!({"name": "a"}), false);
        check(json!({"name": "a", "finalizers": [crd::CLEANUP_FINALIZER]}), false);
        check(
            json!({"name": "a", "finalizers": ["ex.io/a"], "deletionTimestamp": deleted}),
            false,
        );
        let finalizers = [crd::CLEANUP_FINALIZER];
        check(
            json!({"name": "a", "finalizers": finalizers, "deletionTimestamp": deleted}),
            true,
        );
    }
}
