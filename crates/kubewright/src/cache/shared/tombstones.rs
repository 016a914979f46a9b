//! The keys of which the watch said last that their object is deleted.
//!
//! Events of dependents go on leading to the key of an owner that is gone: each pod of a deleted ReplicaSet does.
//! Without this, the API server would be asked each time whether the owner exists.
//!
//! Invariant: a key is here only if the last event of its object was a deletion. There are at most [`MOST`] of them; an
//! older one is forgotten, and only costs a question.

use std::collections::{BTreeSet, VecDeque};

use kubewright_engine::{Event, ObjectKey};

use crate::form::Cached;

const MOST: usize = 1024;

#[derive(Default)]
pub(super) struct Tombstones {
    keys: BTreeSet<ObjectKey>,
    /// Oldest first. A key that has come back is still here, and may be here twice.
    order: VecDeque<ObjectKey>,
}

impl Tombstones {
    pub(super) fn note(&mut self, events: &[Event<dyn Cached>]) {
        for event in events {
            match event {
                Event::Deleted { key, .. } => self.bury(key),
                Event::Added { object, .. } | Event::Modified { new: object, .. } => self.come_back(&**object),
            }
        }
    }

    pub(super) fn has(&self, key: &ObjectKey) -> bool {
        self.keys.contains(key)
    }

    fn bury(&mut self, key: &ObjectKey) {
        if !self.keys.insert(key.clone()) {
            return;
        }
        self.order.push_back(key.clone());
        while self.order.len() > MOST {
            if let Some(oldest) = self.order.pop_front() {
                self.keys.remove(&oldest);
            }
        }
    }

    fn come_back(&mut self, object: &dyn Cached) {
        if self.keys.is_empty() {
            return;
        }
        let id = object.object_id();
        let Some(name) = id.name else { return };
        self.keys.remove(&ObjectKey::new(id.namespace, name));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::core::ObjectMeta;

    use super::*;

    fn object(name: &str) -> Arc<dyn Cached> {
        Arc::new(ConfigMap {
            metadata: ObjectMeta {
                namespace: Some("default".to_owned()),
                name: Some(name.to_owned()),
                ..ObjectMeta::default()
            },
            ..ConfigMap::default()
        })
    }

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Some("default"), name)
    }

    fn deleted(name: &str) -> Event<dyn Cached> {
        Event::Deleted {
            key: key(name),
            object: object(name),
            final_state_unknown: false,
        }
    }

    fn added(name: &str) -> Event<dyn Cached> {
        Event::Added {
            object: object(name),
            initial: false,
        }
    }

    #[test]
    fn the_last_event_decides() {
        let check = |events: &[Event<dyn Cached>], expected: bool| {
            let mut tombstones = Tombstones::default();
            tombstones.note(events);
            assert_eq!(tombstones.has(&key("a")), expected, "{events:?}");
        };
        check(&[], false);
        check(&[added("a")], false);
        check(&[deleted("a")], true);
        check(&[deleted("a"), added("b")], true);
        check(&[deleted("a"), added("a")], false);
        check(&[deleted("a"), added("a"), deleted("a")], true);
    }

    #[test]
    fn they_are_bounded_and_the_oldest_goes() {
        let mut tombstones = Tombstones::default();
        for number in 0..=MOST {
            tombstones.note(&[deleted(&format!("{number}"))]);
        }
        assert_eq!((tombstones.keys.len(), tombstones.order.len()), (MOST, MOST));
        assert!(!tombstones.has(&key("0")) && tombstones.has(&key("1")));
        // A key that comes and goes does not fill the line.
        for _ in 0..2 * MOST {
            tombstones.note(&[added("1"), deleted("1")]);
        }
        assert!(tombstones.order.len() <= MOST);
    }
}
