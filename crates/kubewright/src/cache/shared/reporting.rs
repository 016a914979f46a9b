//! Telling people of objects that cannot be read.
//!
//! Invariants: an object is told of once for each version and type; at most [`REPORTED`] of those that are found
//! together are logged and get an event, the rest are counted; all of them are observed.

use k8s_openapi::api::core::v1::ObjectReference;
use kubewright_engine::{ResourceVersion, Unreadable};

use super::SharedStore;
use crate::events::EventType;
use crate::object::ObjectRef;
use crate::observe::Observation;

/// At most so many objects that became unreadable together are logged and get an event; the rest are counted.
const REPORTED: usize = 10;

impl SharedStore {
    pub(in crate::cache) fn object_ref(&self, object: &Unreadable) -> ObjectRef {
        ObjectRef::named(&self.resource, object.key.namespace.as_deref(), &object.key.name)
    }

    /// Files the objects that reads could not decode, unless they have changed since.
    pub(super) fn file_broken(&self) {
        for (kind, broken) in self.decoders.take_broken() {
            let contents = self.read();
            let is_there = |object: &Unreadable| {
                let stored = contents.store.peek(&object.key).map(|stored| stored.object_id());
                let version = object.resource_version.as_ref().map(ResourceVersion::as_str);
                stored.is_some_and(|stored| stored.version == version && stored.uid == object.uid.as_deref())
            };
            let broken: Vec<Unreadable> = broken.into_iter().filter(is_there).collect();
            let stored = |object: &Unreadable| contents.store.get(&object.key);
            let found: Vec<_> = broken
                .iter()
                .filter_map(|object| Some((object, stored(object)?)))
                .collect();
            drop(contents);
            for part in self.parts().iter().filter(|part| part.kind == kind) {
                for (object, stored) in &found {
                    if part.needs.scope.selects(&**stored) {
                        part.found_broken(object);
                    }
                }
            }
        }
    }

    pub(in crate::cache) fn report_unreadable(&self) {
        self.file_broken();
        let parts = self.parts();
        let mut unreported: Vec<Unreadable> = parts.iter().flat_map(|part| part.take_unreported()).collect();
        // Looked at with a read lock first: this runs after every batch.
        if self.read().store.unreadable().len() > 0 {
            unreported.extend(self.with_store(kubewright_engine::Store::take_unreported));
        }
        unreported.sort_by(|a, b| (&a.key, &a.message).cmp(&(&b.key, &b.message)));
        unreported.dedup();
        for (position, object) in unreported.iter().enumerate() {
            let reference = self.object_ref(object);
            if position < REPORTED {
                let error = &object.message;
                tracing::warn!(object = %reference, error, "an object cannot be decoded; it is left out until it changes");
                self.record_unreadable(object);
            }
            self.listeners.observers.notify(|| Observation::ObjectUnreadable {
                resource: self.resource.kind.clone(),
                object: reference,
                error: object.message.clone(),
            });
        }
        if unreported.len() > REPORTED {
            let (resource, more) = (&self.resource.kind, unreported.len() - REPORTED);
            tracing::warn!(
                resource,
                more,
                "more objects cannot be decoded; Informer::unreadable lists them"
            );
        }
    }

    fn record_unreadable(&self, object: &Unreadable) {
        let Some((recorder, component)) = self.listeners.recorder.get() else {
            return;
        };
        let resource = &self.resource;
        let involved = ObjectReference {
            api_version: Some(resource.api_version.clone()),
            kind: Some(resource.kind.clone()),
            namespace: object.key.namespace.as_deref().map(str::to_owned),
            name: Some(object.key.name.to_string()),
            uid: object.uid.clone(),
            resource_version: object
                .resource_version
                .as_ref()
                .map(|version| version.as_str().to_owned()),
            ..Default::default()
        };
        let message = format!(
            "{component} cannot decode this object and leaves it out until it changes: {}",
            object.message
        );
        recorder.record(component, involved, EventType::Warning, "Unreadable", message);
    }
}
