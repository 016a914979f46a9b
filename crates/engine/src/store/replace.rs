//! Replacing everything: the objects of a list are staged, and become the content of the store at once.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Store, compare_versions, same_object, same_uid, unchanged};
use crate::delta::Event;
use crate::key::ObjectKey;
use crate::meta::{Meta, ResourceVersion};
use crate::unreadable::Unreadable;

impl<V: ?Sized, M: Meta<V>> Store<V, M> {
    pub(super) fn begin_replace(&mut self) {
        self.staged.clear();
        self.staged_unreadable.clear();
        self.replacement += 1;
        self.replacing = true;
    }

    pub(super) fn abort_replace(&mut self) {
        self.staged = BTreeMap::new();
        self.staged_unreadable = BTreeMap::new();
        self.replacing = false;
    }

    pub(super) fn stage(&mut self, object: Arc<V>) {
        let Some(key) = M::key(&object).filter(|_| self.replacing) else {
            return;
        };
        if self
            .staged
            .get(&key)
            .is_some_and(|staged| compare_versions::<V, M>(&object, staged) == Some(Ordering::Less))
        {
            return; // listed twice: the newer one counts
        }
        self.staged_unreadable.remove(&key);
        if let Some(entry) = self.items.get_mut(&key)
            && same_object::<V, M>(&entry.object, &object)
            && unchanged::<V, M>(&entry.object, &object)
            && !M::supersedes(&object, &entry.object)
        {
            entry.mark = self.replacement;
            self.staged.remove(&key);
            return;
        }
        self.staged.insert(key, object);
    }

    pub(super) fn stage_unreadable(&mut self, object: Unreadable) {
        if !self.replacing {
            return;
        }
        self.staged.remove(&object.key);
        if let Some(entry) = self.items.get_mut(&object.key) {
            let kept = same_uid::<V, M>(&entry.object, &object);
            entry.mark = if kept { self.replacement } else { 0 };
        }
        self.staged_unreadable.insert(object.key.clone(), object);
    }

    pub(super) fn unstage(&mut self, key: &ObjectKey) {
        if !self.replacing {
            return;
        }
        self.staged.remove(key);
        self.staged_unreadable.remove(key);
        if let Some(entry) = self.items.get_mut(key) {
            entry.mark = 0;
        }
    }

    pub(super) fn commit_replace(&mut self, version: ResourceVersion, authoritative: bool, events: &mut Vec<Event<V>>) {
        if !self.replacing {
            return;
        }
        let staged = std::mem::take(&mut self.staged);
        self.replacing = false;
        let gone: Vec<ObjectKey> = self
            .items
            .iter()
            .filter(|(key, entry)| entry.mark != self.replacement && !staged.contains_key(*key))
            .map(|(key, _)| key.clone())
            .collect();
        for key in gone {
            self.lose(key, events);
        }
        self.replace_unreadable();
        let initial = !self.synced;
        for (key, object) in staged {
            self.upsert(key, object, initial, events);
        }
        self.synced = true;
        let older = self
            .resource_version
            .as_ref()
            .and_then(|present| version.compare(present))
            == Some(Ordering::Less);
        if older && authoritative {
            self.history_resets += 1;
            self.resource_version = Some(version);
        } else {
            self.move_to(&version);
        }
    }

    pub(super) fn replace_unreadable(&mut self) {
        let staged = std::mem::take(&mut self.staged_unreadable);
        self.unreadable.retain(|key, _| staged.contains_key(key));
        self.unreported.retain(|key| staged.contains_key(key));
        for object in staged.into_values() {
            self.remember_unreadable(object);
        }
    }
}
