//! Reading what an informer holds.
//!
//! Every answer is one consistent state: objects, indexes and version change together. Objects are immutable and shared; nothing is copied.

use std::fmt;
use std::sync::Arc;

use kube::Resource;
use kube::core::{Selector, SelectorExt};
use kubewright_engine::{Meta, ObjectKey};

use super::informer::Core;
use crate::error::{Error, Result};
use crate::object::AnyObject;
use crate::request::Request;

/// The index by the uid of the controller (the owner reference with `controller: true`) that every informer has.
pub const CONTROLLER_UID: &str = "metadata.ownerReferences.controller.uid";

/// The contents of an informer (client-go's `Indexer`). Cheap to clone. It does not keep the watch alive; the [`super::Informer`] does.
pub struct Store<K: AnyObject>(pub(crate) Arc<Core<K>>);

impl<K: AnyObject> Clone for Store<K> {
    fn clone(&self) -> Self {
        Store(self.0.clone())
    }
}

impl<K: AnyObject> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({}, {} objects)", self.0.name, self.len())
    }
}

impl<K: AnyObject> Store<K> {
    /// One object.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<Arc<K>> {
        self.0
            .read()
            .get_by_name(namespace.filter(|namespace| !namespace.is_empty()), name)
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.0.read().list(None).items
    }

    /// The objects of one namespace, or all.
    pub fn list_in(&self, namespace: Option<&str>) -> Vec<Arc<K>> {
        self.0.read().list(namespace).items
    }

    /// The objects whose labels match.
    pub fn matching(&self, namespace: Option<&str>, labels: &Selector) -> Vec<Arc<K>> {
        let none = Default::default();
        let mut objects = self.list_in(namespace);
        objects.retain(|object| labels.matches(object.meta().labels.as_ref().unwrap_or(&none)));
        objects
    }

    /// The objects whose controller has this uid.
    pub fn owned_by(&self, namespace: Option<&str>, owner_uid: &str) -> Vec<Arc<K>> {
        let owned = self.0.read().by_index(CONTROLLER_UID, owner_uid, namespace);
        owned.expect("every informer is made with this index").items
    }

    /// The objects that an index of [`super::Informer::add_index`] files under a value, in one namespace or in all.
    ///
    /// # Errors
    /// [`Error::Configuration`] when there is no index of that name.
    pub fn by_index(&self, index: &str, value: &str, namespace: Option<&str>) -> Result<Vec<Arc<K>>> {
        let found = self.0.read().by_index(index, value, namespace);
        found
            .map(|snapshot| snapshot.items)
            .map_err(|error| Error::Configuration(format!("{}: {error}", self.0.name)))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resourceVersion that the contents correspond to; `None` before the first list.
    pub fn resource_version(&self) -> Option<String> {
        self.0
            .read()
            .resource_version()
            .map(|version| version.as_str().to_owned())
    }
}

/// How the engine reads kube's objects.
#[derive(Debug)]
pub(crate) struct KubeMeta;

impl<K: Resource> Meta<K> for KubeMeta {
    fn key(object: &K) -> Option<ObjectKey> {
        let meta = object.meta();
        let name = meta.name.as_deref().filter(|name| !name.is_empty())?;
        Some(ObjectKey::new(meta.namespace.as_deref(), name))
    }

    fn uid(object: &K) -> Option<&str> {
        object.meta().uid.as_deref()
    }

    fn resource_version(object: &K) -> Option<&str> {
        object.meta().resource_version.as_deref()
    }
}

/// The uid of the controller of an object, if it has one.
pub(crate) fn controller_uid<K: Resource>(object: &K) -> Vec<String> {
    let owners = object.meta().owner_references.iter().flatten();
    owners
        .filter(|owner| owner.controller == Some(true))
        .map(|owner| owner.uid.clone())
        .take(1)
        .collect()
}

impl From<&ObjectKey> for Request {
    fn from(key: &ObjectKey) -> Request {
        Request {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
    }
}
