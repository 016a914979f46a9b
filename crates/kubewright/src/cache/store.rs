//! Reading the objects of an informer.
//!
//! Every answer is one consistent state (of each namespace, in a manager of several): objects, indexes and version
//! change together. Objects are immutable and shared; nothing is copied.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use kube::core::Selector;
use kubewright_engine::{Meta, ObjectKey};

use super::core::Core;
use super::kind_informers::of_each;
use super::part;
use crate::error::Result;
use crate::form::{Cached, typed, typed_all};
use crate::namespace::InNamespace;
use crate::object::AnyObject;
use crate::request::Request;

/// The index by the uid of the controller (the owner reference with `controller: true`) that every informer has.
pub const CONTROLLER_UID: &str = "metadata.ownerReferences.controller.uid";

/// The contents of an informer (client-go's `Indexer`). Cheap to clone. It does not keep the watch alive; the
/// [`super::Informer`] does.
pub struct Store<K: AnyObject>(Vec<Arc<Core>>, PhantomData<fn() -> K>);

impl<K: AnyObject> Clone for Store<K> {
    fn clone(&self) -> Self {
        Store::new(self.0.clone())
    }
}

impl<K: AnyObject> fmt::Debug for Store<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.0.iter().map(|core| core.name.as_str()).collect();
        write!(f, "Store({}, {} objects)", names.join("; "), self.len())
    }
}

impl<K: AnyObject> Store<K> {
    pub(super) fn new(cores: Vec<Arc<Core>>) -> Store<K> {
        Store(cores, PhantomData)
    }

    /// One object; `None` also when it cannot be decoded, which [`super::Informer::unreadable`] says.
    pub fn get(&self, namespace: impl InNamespace, name: &str) -> Option<Arc<K>> {
        let namespace = namespace.namespace();
        self.0.iter().find_map(|core| core.shown(namespace, name)).map(typed)
    }

    /// All objects, ordered by namespace and name.
    pub fn list(&self) -> Vec<Arc<K>> {
        self.list_in(None)
    }

    /// The objects of one namespace, or all.
    pub fn list_in(&self, namespace: impl InNamespace) -> Vec<Arc<K>> {
        let namespace = namespace.namespace();
        typed_all(of_each(&self.0, |core| core.all_unpacked(core.list_in(namespace))))
    }

    /// The objects whose labels match.
    pub fn matching(&self, namespace: impl InNamespace, labels: &Selector) -> Vec<Arc<K>> {
        let namespace = namespace.namespace();
        typed_all(of_each(&self.0, |core| {
            core.all_unpacked(core.matching(namespace, labels))
        }))
    }

    /// The objects whose controller has this uid.
    pub fn owned_by(&self, namespace: impl InNamespace, owner_uid: &str) -> Vec<Arc<K>> {
        let namespace = namespace.namespace();
        typed_all(of_each(&self.0, |core| {
            core.all_unpacked(core.owned_by(namespace, owner_uid))
        }))
    }

    /// The objects that an index of [`super::Informer::add_index`] files under a value, in one namespace or in all.
    ///
    /// # Errors
    /// [`Error::Configuration`](crate::Error::Configuration) when there is no index of that name.
    pub fn by_index(&self, index: &str, value: &str, namespace: impl InNamespace) -> Result<Vec<Arc<K>>> {
        let namespace = namespace.namespace();
        let mut found = Vec::new();
        for core in &self.0 {
            found.extend(core.all_unpacked(core.by_index(index, value, namespace)?));
        }
        Ok(typed_all(found))
    }

    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|core| core.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The resourceVersion that the contents correspond to; `None` before the first list, and in a manager of several
    /// namespaces, where each has its own.
    pub fn resource_version(&self) -> Option<String> {
        match &self.0[..] {
            [only] => only.resource_version(),
            _ => None,
        }
    }
}

/// The index of the objects without a controller, by their namespace. An informer has it once orphans were asked for.
pub(crate) const ORPHANS: &str = "metadata.ownerReferences.controller.none";

/// The namespace of an object that no controller owns.
pub(crate) fn orphan_in(object: &dyn Cached) -> Vec<String> {
    let owned = object.controller(|_| ()).is_some();
    let namespace = || object.object_id().namespace.unwrap_or_default().to_owned();
    (!owned).then(namespace).into_iter().collect()
}

/// How the engine reads kube's objects.
#[derive(Debug)]
pub(crate) struct KubeMeta;

impl Meta<dyn Cached> for KubeMeta {
    fn key(object: &dyn Cached) -> Option<ObjectKey> {
        let id = object.object_id();
        Some(ObjectKey::new(id.namespace, id.name?))
    }

    fn uid(object: &dyn Cached) -> Option<&str> {
        object.object_id().uid
    }

    fn resource_version(object: &dyn Cached) -> Option<&str> {
        object.object_id().version
    }

    fn supersedes(new: &dyn Cached, stored: &dyn Cached) -> bool {
        part::supersedes(new, stored)
    }
}

/// The uid of the controller of an object, if it has one.
pub(crate) fn controller_uid(object: &dyn Cached) -> Vec<String> {
    object.controller(|owner| owner.uid.clone()).into_iter().collect()
}

impl From<&Request> for ObjectKey {
    fn from(request: &Request) -> ObjectKey {
        ObjectKey {
            namespace: request.namespace.clone(),
            name: request.name.clone(),
        }
    }
}

impl From<&ObjectKey> for Request {
    fn from(key: &ObjectKey) -> Request {
        Request {
            cluster: None,
            namespace: key.namespace.clone(),
            name: key.name.clone(),
        }
    }
}
