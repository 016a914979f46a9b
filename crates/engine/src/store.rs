//! The objects of one informer, with indexes, as of one resource version.
//!
//! Idea: one store, never two. A relist is staged as the *difference* to the present objects (mark and sweep): an
//! object whose uid and version did not change is only marked, its old `Arc` stays, and it emits nothing. The end of
//! the list makes the difference visible in one step.
//!
//! Invariants:
//! * S1, S4, RF4: one call changes the content, the indexes and the version together; a staged list is not visible.
//! * S2, S7: an index holds exactly its function's values of each object, and no empty sets.
//! * S5: the version moves forward only, except when the server itself says, asked for its newest state, that its
//!   history was replaced ([`Delta::ReplaceEnd`] with `authoritative`; counted in [`Store::history_resets`]).
//! * S6: an index function that fails or panics loses that object in that index, is reported, and nothing else.
//! * RF1: an event that is older than the stored state of the same object is ignored.
//! * RF11: an object that could not be decoded is remembered as such until it changes or is deleted. Its last readable
//!   state, when there is one of the same uid, stays: "deleted" is reported only for a deleted object.
//!
//! Not here: the lock (a shell keeps the store in one), handlers, objects of other kinds.

mod index;
mod replace;

use crate::delta::{Delta, Event};
use crate::key::{KeyRef, ObjectKey};
use crate::meta::{self, Meta, ResourceVersion};
use crate::unreadable::Unreadable;
use index::{Failures, Index};
pub use index::{IndexError, IndexFailure, IndexValues};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::Arc;

/// A consistent read: objects in order of (namespace, name), and the version of the store that they belong to.
#[derive(Debug)]
pub struct Snapshot<V: ?Sized> {
    /// The store's version; `None` before the first list.
    pub resource_version: Option<ResourceVersion>,
    /// The objects, shared with the store.
    pub items: Vec<Arc<V>>,
}

struct Entry<V: ?Sized> {
    object: Arc<V>,
    /// The number of the last replacement that listed this object unchanged.
    mark: u64,
    /// The values of this object in each index, in the order of `Store::indexes`.
    values: Vec<Box<[Arc<str>]>>,
}

/// The store (client-go's `ThreadSafeStore` with an `Indexer`); `M` says how to read keys and versions.
pub struct Store<V: ?Sized, M> {
    items: BTreeMap<ObjectKey, Entry<V>>,
    /// How many objects each namespace has. Also where the text of a namespace is shared.
    namespaces: BTreeMap<Arc<str>, usize>,
    indexes: Vec<Index<V>>,
    failures: Failures,
    resource_version: Option<ResourceVersion>,
    synced: bool,
    /// The number of the present or last replacement, from 1.
    replacement: u64,
    replacing: bool,
    staged: BTreeMap<ObjectKey, Arc<V>>,
    /// Objects that exist and could not be decoded.
    unreadable: BTreeMap<ObjectKey, Unreadable>,
    staged_unreadable: BTreeMap<ObjectKey, Unreadable>,
    /// The keys of unreadable objects that were not reported yet.
    unreported: BTreeSet<ObjectKey>,
    history_resets: u64,
    meta: PhantomData<fn() -> M>,
}

impl<V: ?Sized, M: Meta<V>> Default for Store<V, M> {
    fn default() -> Store<V, M> {
        Store {
            items: BTreeMap::new(),
            namespaces: BTreeMap::new(),
            indexes: Vec::new(),
            failures: BTreeMap::new(),
            resource_version: None,
            synced: false,
            replacement: 0,
            replacing: false,
            staged: BTreeMap::new(),
            unreadable: BTreeMap::new(),
            staged_unreadable: BTreeMap::new(),
            unreported: BTreeSet::new(),
            history_resets: 0,
            meta: PhantomData,
        }
    }
}

/// Reading.
impl<V: ?Sized, M: Meta<V>> Store<V, M> {
    /// An empty store.
    pub fn new() -> Store<V, M> {
        Store::default()
    }

    /// The object of this key.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<V>> {
        self.items.get(key).map(|entry| entry.object.clone())
    }

    /// The object of this key, borrowed.
    pub fn peek(&self, key: &ObjectKey) -> Option<&Arc<V>> {
        self.items.get(key).map(|entry| &entry.object)
    }

    /// The object of this namespace and name; allocates nothing. `None` as the namespace means cluster scope.
    pub fn get_by_name(&self, namespace: Option<&str>, name: &str) -> Option<Arc<V>> {
        self.items
            .get::<dyn KeyRef>(&(namespace, name) as &dyn KeyRef)
            .map(|entry| entry.object.clone())
    }

    /// All objects, or those of one namespace.
    pub fn list(&self, namespace: Option<&str>) -> Snapshot<V> {
        let items = match namespace {
            None => self.items.values().map(|entry| entry.object.clone()).collect(),
            Some(namespace) => self
                .in_namespace(namespace)
                .map(|(_, entry)| entry.object.clone())
                .collect(),
        };
        self.snapshot(items)
    }

    /// The objects that the index named `index` files under `value`, all or those of one namespace.
    ///
    /// # Errors
    /// [`IndexError::Unknown`] when no such index was added.
    pub fn by_index(&self, index: &str, value: &str, namespace: Option<&str>) -> Result<Snapshot<V>, IndexError> {
        let index = self
            .indexes
            .iter()
            .find(|known| &*known.name == index)
            .ok_or_else(|| IndexError::Unknown {
                name: index.to_owned(),
                known: self.indexes.iter().map(|known| known.name.to_string()).collect(),
            })?;
        let keys = index.sets.get(value).into_iter().flatten();
        let items = keys
            .filter(|key| namespace.is_none() || key.namespace.as_deref() == namespace)
            .filter_map(|key| self.get(key))
            .collect();
        Ok(self.snapshot(items))
    }

    /// The objects that exist and could not be decoded, in order.
    pub fn unreadable(&self) -> impl ExactSizeIterator<Item = &Unreadable> {
        self.unreadable.values()
    }

    /// The facts about the object of this namespace and name, when it exists and could not be decoded. The store may
    /// still hold its last readable state, which is then out of date.
    pub fn unreadable_by_name(&self, namespace: Option<&str>, name: &str) -> Option<&Unreadable> {
        self.unreadable.get::<dyn KeyRef>(&(namespace, name) as &dyn KeyRef)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.items.keys()
    }

    /// The objects, in order, without copying them into a list.
    pub fn iter(&self) -> impl Iterator<Item = (&ObjectKey, &Arc<V>)> {
        self.items.iter().map(|(key, entry)| (key, &entry.object))
    }

    /// The namespaces that have objects here, with how many.
    pub fn namespaces(&self) -> &BTreeMap<Arc<str>, usize> {
        &self.namespaces
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Whether there are no objects.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The version of the content: every change of this kind and scope up to it is here. `None` before the first list.
    pub fn resource_version(&self) -> Option<&ResourceVersion> {
        self.resource_version.as_ref()
    }

    /// Whether the first list is in. Whether handlers have seen it too is the shell's to say.
    pub fn is_synced(&self) -> bool {
        self.synced
    }

    /// How often the server turned out to have another, younger history.
    pub fn history_resets(&self) -> u64 {
        self.history_resets
    }

    fn snapshot(&self, items: Vec<Arc<V>>) -> Snapshot<V> {
        Snapshot {
            resource_version: self.resource_version.clone(),
            items,
        }
    }

    fn in_namespace<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a ObjectKey, &'a Entry<V>)> {
        // No name is empty, so the pair with an empty name stands before all of its namespace.
        let first = (Some(namespace), "");
        let range: (Bound<&dyn KeyRef>, Bound<&dyn KeyRef>) = (Bound::Included(&first), Bound::Unbounded);
        // A range keeps no borrow of its bounds.
        self.items
            .range::<dyn KeyRef, _>(range)
            .take_while(move |(key, _)| key.namespace.as_deref() == Some(namespace))
    }
}

/// Indexes.
impl<V: ?Sized, M: Meta<V>> Store<V, M> {
    /// Adds an index (client-go's `AddIndexers`) and files the present objects. `function` answers the values of an
    /// object, as `Vec<String>` or as `Result<Vec<String>, String>`.
    ///
    /// # Errors
    /// [`IndexError::Exists`] when the name is taken.
    pub fn add_index<F, R>(&mut self, name: &str, function: F) -> Result<(), IndexError>
    where
        F: Fn(&V) -> R + Send + Sync + 'static,
        R: IndexValues,
    {
        if self.has_index(name) {
            return Err(IndexError::Exists { name: name.to_owned() });
        }
        let mut index = Index::new(name, function);
        for (key, entry) in &mut self.items {
            entry.values.push(index.insert(key, &entry.object, &mut self.failures));
        }
        self.indexes.push(index);
        Ok(())
    }

    /// Forgets an index. Without one of this name nothing happens.
    pub fn remove_index(&mut self, name: &str) {
        let Some(position) = self.indexes.iter().position(|index| &*index.name == name) else {
            return;
        };
        self.indexes.remove(position);
        for entry in self.items.values_mut() {
            entry.values.remove(position);
        }
        self.failures.retain(|(index, _), _| &**index != name);
    }

    /// Whether an index of this name exists.
    pub fn has_index(&self, name: &str) -> bool {
        self.indexes.iter().any(|index| &*index.name == name)
    }

    /// The names of all indexes, in the order in which they were added.
    pub fn index_names(&self) -> impl Iterator<Item = &str> {
        self.indexes.iter().map(|index| &*index.name)
    }

    /// The objects that are missing from an index because its function failed on their present state, and why.
    pub fn index_failures(&self) -> impl Iterator<Item = IndexFailure<'_>> {
        self.failures
            .iter()
            .map(|((index, key), message)| IndexFailure { index, key, message })
    }
}

/// Changing.
impl<V: ?Sized, M: Meta<V>> Store<V, M> {
    /// Applies a delta and answers the changes, in order. Objects without a name are skipped (the reflector does not
    /// pass any).
    pub fn apply(&mut self, delta: Delta<V>) -> Vec<Event<V>> {
        let mut events = Vec::new();
        match delta {
            Delta::Added(object) | Delta::Modified(object) => self.upsert_newer(object, &mut events),
            Delta::Deleted(object) => self.delete(object, &mut events),
            Delta::Unreadable(object) => self.set_unreadable(object, &mut events),
            Delta::UnreadableDeleted(object) => self.delete_unreadable(object, &mut events),
            Delta::ReplaceBegin => self.begin_replace(),
            Delta::ReplaceItems(objects) => objects.into_iter().for_each(|object| self.stage(object)),
            Delta::ReplaceUnreadable(objects) => objects.into_iter().for_each(|object| self.stage_unreadable(object)),
            Delta::ReplaceDeleted(key) => self.unstage(&key),
            Delta::ReplaceAborted => self.abort_replace(),
            Delta::ReplaceEnd {
                resource_version,
                authoritative,
            } => {
                self.commit_replace(resource_version, authoritative, &mut events);
            }
            Delta::Bookmark(version) => self.move_to(&version),
        }
        events
    }

    fn upsert_newer(&mut self, object: Arc<V>, events: &mut Vec<Event<V>>) {
        let Some(key) = M::key(&object) else { return };
        let version = M::resource_version(&object).map(ResourceVersion::new);
        let stored = self.items.get(&key).map(|entry| &entry.object);
        let unreadable_since = self
            .unreadable
            .get(&key)
            .and_then(|known| known.resource_version.as_ref());
        let repeated = is_older(version.as_ref(), unreadable_since);
        if !repeated && stored.is_none_or(|stored| is_newer::<V, M>(stored, &object)) {
            self.upsert(key, object, false, events);
        }
        if let Some(version) = version {
            self.move_to(&version);
        }
    }

    fn delete(&mut self, object: Arc<V>, events: &mut Vec<Event<V>>) {
        let Some(key) = M::key(&object) else { return };
        let version = M::resource_version(&object).map(ResourceVersion::new);
        let stored = self.items.get(&key).map(|entry| &entry.object);
        let stale = stored.is_some_and(|stored| compare_versions::<V, M>(&object, stored) == Some(Ordering::Less));
        if !stale {
            self.forget_unreadable(&key);
        }
        if !stale && let Some(last) = self.remove(&key) {
            // Another uid: the deletion of our object was missed, and this one is about its successor.
            let known = same_object::<V, M>(&last, &object);
            let object = if known { object } else { last };
            events.push(Event::Deleted {
                key,
                object,
                final_state_unknown: !known,
            });
        }
        if let Some(version) = version {
            self.move_to(&version);
        }
    }

    /// The object exists and cannot be read: its last state stays, unless that is another incarnation.
    fn set_unreadable(&mut self, object: Unreadable, events: &mut Vec<Event<V>>) {
        if let Some(version) = object.resource_version.clone() {
            self.move_to(&version);
        }
        let stored = self.items.get(&object.key).map(|entry| &entry.object);
        let known = self.unreadable.get(&object.key);
        let stale = stored.is_some_and(|stored| !newer_unreadable::<V, M>(stored, &object))
            || known.is_some_and(|known| is_older(object.resource_version.as_ref(), known.resource_version.as_ref()));
        if stale {
            return;
        }
        if stored.is_some_and(|stored| !same_uid::<V, M>(stored, &object)) {
            self.lose(object.key.clone(), events);
        }
        self.remember_unreadable(object);
    }

    fn delete_unreadable(&mut self, object: Unreadable, events: &mut Vec<Event<V>>) {
        let stored = self.items.get(&object.key).map(|entry| &entry.object);
        if stored.is_none_or(|stored| newer_unreadable::<V, M>(stored, &object)) {
            self.forget_unreadable(&object.key);
            self.lose(object.key, events);
        }
        if let Some(version) = object.resource_version {
            self.move_to(&version);
        }
    }

    fn remember_unreadable(&mut self, object: Unreadable) {
        let key = object.key.clone();
        if self.unreadable.get(&key) != Some(&object) {
            self.unreported.insert(key.clone());
            self.unreadable.insert(key, object);
        }
    }

    fn forget_unreadable(&mut self, key: &ObjectKey) {
        self.unreadable.remove(key);
        self.unreported.remove(key);
    }

    /// Removes an object whose last state was not seen.
    fn lose(&mut self, key: ObjectKey, events: &mut Vec<Event<V>>) {
        if let Some(object) = self.remove(&key) {
            events.push(Event::Deleted {
                key,
                object,
                final_state_unknown: true,
            });
        }
    }

    /// The unreadable objects that are new, or unreadable in another version, since this was last called. For telling
    /// people.
    pub fn take_unreported(&mut self) -> Vec<Unreadable> {
        let keys = std::mem::take(&mut self.unreported);
        keys.iter()
            .filter_map(|key| self.unreadable.get(key).cloned())
            .collect()
    }

    fn upsert(&mut self, key: ObjectKey, object: Arc<V>, initial: bool, events: &mut Vec<Event<V>>) {
        self.forget_unreadable(&key);
        let Some(entry) = self.items.get_mut(&key) else {
            self.insert(key, object.clone());
            events.push(Event::Added { object, initial });
            return;
        };
        let old = std::mem::replace(&mut entry.object, object.clone());
        entry.mark = self.replacement;
        for (index, values) in self.indexes.iter_mut().zip(&mut entry.values) {
            index.update(&key, &object, values, &mut self.failures);
        }
        if same_object::<V, M>(&old, &object) {
            events.push(Event::Modified { old, new: object });
        } else {
            events.push(Event::Deleted {
                key,
                object: old,
                final_state_unknown: true,
            });
            events.push(Event::Added { object, initial });
        }
    }

    fn insert(&mut self, mut key: ObjectKey, object: Arc<V>) {
        if let Some(namespace) = &mut key.namespace {
            match self.namespaces.get_key_value(namespace) {
                Some((shared, _)) => *namespace = shared.clone(),
                None => drop(self.namespaces.insert(namespace.clone(), 0)),
            }
            *self.namespaces.get_mut(namespace).expect("inserted above") += 1;
        }
        let failures = &mut self.failures;
        let values = self
            .indexes
            .iter_mut()
            .map(|index| index.insert(&key, &object, failures))
            .collect();
        self.items.insert(
            key,
            Entry {
                object,
                mark: self.replacement,
                values,
            },
        );
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Arc<V>> {
        let entry = self.items.remove(key)?;
        for (index, values) in self.indexes.iter_mut().zip(&entry.values) {
            index.remove(key, values);
            self.failures.remove(&(index.name.clone(), key.clone()));
        }
        if let Some(namespace) = &key.namespace {
            let count = self
                .namespaces
                .get_mut(namespace)
                .expect("every stored object is counted");
            *count -= 1;
            if *count == 0 {
                self.namespaces.remove(namespace);
            }
        }
        Some(entry.object)
    }

    /// Moves the version forward; never back. Versions without an order count as newer.
    fn move_to(&mut self, version: &ResourceVersion) {
        let older = self
            .resource_version
            .as_ref()
            .and_then(|present| version.compare(present))
            == Some(Ordering::Less);
        if !older {
            self.resource_version = Some(version.clone());
        }
    }

    /// Checks S2 and S7 in full: every index holds exactly the values that were computed for the stored objects. For
    /// tests and self-checks; reads everything.
    ///
    /// # Errors
    /// The first difference, in words.
    pub fn check(&self) -> Result<(), String> {
        for (position, index) in self.indexes.iter().enumerate() {
            let mut expected: BTreeMap<Arc<str>, BTreeSet<ObjectKey>> = BTreeMap::new();
            for (key, entry) in &self.items {
                for value in &entry.values[position] {
                    expected.entry(value.clone()).or_default().insert(key.clone());
                }
            }
            if expected != index.sets {
                return Err(format!(
                    "index {:?} holds {:?}, its objects say {expected:?}",
                    index.name, index.sets
                ));
            }
        }
        let mut counts: BTreeMap<Arc<str>, usize> = BTreeMap::new();
        for namespace in self.items.keys().filter_map(|key| key.namespace.clone()) {
            *counts.entry(namespace).or_default() += 1;
        }
        match counts == self.namespaces {
            true => Ok(()),
            false => Err(format!(
                "namespaces are counted {:?}, the objects say {counts:?}",
                self.namespaces
            )),
        }
    }
}

/// Whether both are the same incarnation: equal uids, or no way to tell.
fn same_object<V: ?Sized, M: Meta<V>>(a: &V, b: &V) -> bool {
    match (M::uid(a), M::uid(b)) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// As [`same_object`], for an object of which only the metadata was read.
fn same_uid<V: ?Sized, M: Meta<V>>(stored: &V, object: &Unreadable) -> bool {
    match (M::uid(stored), object.uid.as_deref()) {
        (Some(stored), Some(uid)) => stored == uid,
        _ => true,
    }
}

/// Whether the unreadable state is not older than the stored one, as far as versions tell.
fn newer_unreadable<V: ?Sized, M: Meta<V>>(stored: &V, object: &Unreadable) -> bool {
    let stored = M::resource_version(stored).map(ResourceVersion::new);
    !is_older(object.resource_version.as_ref(), stored.as_ref())
}

fn is_older(version: Option<&ResourceVersion>, than: Option<&ResourceVersion>) -> bool {
    matches!((version, than), (Some(version), Some(than)) if version.compare(than) == Some(Ordering::Less))
}

fn unchanged<V: ?Sized, M: Meta<V>>(a: &V, b: &V) -> bool {
    matches!((M::resource_version(a), M::resource_version(b)), (Some(a), Some(b)) if a == b)
}

fn compare_versions<V: ?Sized, M: Meta<V>>(a: &V, b: &V) -> Option<Ordering> {
    meta::compare(M::resource_version(a)?, M::resource_version(b)?)
}

/// Whether `new` is to replace `stored`: not when it is the same or an older state. Without an order it is taken as
/// newer.
fn is_newer<V: ?Sized, M: Meta<V>>(stored: &V, new: &V) -> bool {
    !unchanged::<V, M>(stored, new) && compare_versions::<V, M>(new, stored) != Some(Ordering::Less)
}

#[cfg(test)]
mod tests;
