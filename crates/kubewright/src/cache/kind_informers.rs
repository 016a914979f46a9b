//! One kind in several namespaces: an informer for each, behind one view.
//!
//! A manager that may work in some namespaces only has a Role in each and no ClusterRole, so each is listed and watched
//! by itself. The streams share no version: that one has come to 100 says nothing of the others. So every read, receipt
//! and handler belongs to the part that holds its namespace, and questions about all are asked of each.
//!
//! Invariants: K1 holds in each part; the view is ordered by namespace and name, as one informer's is; it has no
//! resourceVersion.

use std::sync::{Arc, Weak};

use super::core::{Core, Objects, SharedInformer};
use super::informer::Health;
use crate::error::{Error, Result};
use crate::form::Form;
use crate::request::Request;

/// The informers of one kind, one for each namespace of the cache, or one for all. Never none.
#[derive(Clone)]
pub(crate) struct KindInformers(Arc<[SharedInformer]>);

impl KindInformers {
    /// `first`, and the others in the order of their namespaces.
    pub(super) fn new(first: SharedInformer, others: impl IntoIterator<Item = SharedInformer>) -> KindInformers {
        KindInformers([first].into_iter().chain(others).collect())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &SharedInformer> {
        self.0.iter()
    }

    /// The one that there is, when there is one.
    pub(super) fn only(&self) -> Option<&SharedInformer> {
        match &*self.0 {
            [only] => Some(only),
            _ => None,
        }
    }

    pub(crate) fn form(&self) -> &Form {
        self.0[0].form()
    }

    /// The part that holds the objects of a namespace. For a namespace that none holds: one that answers every question
    /// so.
    pub(crate) fn of(&self, namespace: Option<&str>) -> &SharedInformer {
        let holds = |part: &&SharedInformer| part.scope().namespace.as_deref() == namespace;
        self.0.iter().find(holds).unwrap_or(&self.0[0])
    }

    /// The part of a namespace for a read; "it does not exist" would be an invention where none holds it.
    ///
    /// # Errors
    /// [`Error::Configuration`].
    pub(crate) fn covering(&self, namespace: Option<&str>) -> Result<&SharedInformer> {
        let part = self.of(namespace);
        match (part.scope().namespace.as_deref(), namespace) {
            (Some(held), Some(wanted)) if held != wanted => Err(self.not_covered(wanted)),
            _ => Ok(part),
        }
    }

    fn not_covered(&self, wanted: &str) -> Error {
        let held: Vec<&str> = self
            .0
            .iter()
            .filter_map(|part| part.scope().namespace.as_deref())
            .collect();
        let namespaces = if held.len() == 1 { "namespace" } else { "namespaces" };
        Error::Configuration(format!(
            "cannot read {} in namespace {wanted}: this manager is restricted to {namespaces} {}",
            self.form().resource.plural,
            held.join(", ")
        ))
    }

    /// The parts that a list concerns.
    ///
    /// # Errors
    /// As [`KindInformers::covering`].
    pub(crate) fn listed(&self, namespace: Option<&str>) -> Result<Vec<&SharedInformer>> {
        match namespace {
            Some(_) => self.covering(namespace).map(|part| vec![part]),
            None => Ok(self.0.iter().collect()),
        }
    }

    /// How the one fares that fares worst.
    pub(crate) fn health(&self) -> Health {
        let worst = |health: &Health| match health {
            Health::Degraded { .. } => 2,
            Health::Syncing => 1,
            Health::Synced => 0,
        };
        self.0
            .iter()
            .map(SharedInformer::health)
            .max_by_key(worst)
            .unwrap_or(Health::Syncing)
    }

    /// A reader needs the type of its objects; see [`Core::check_objects`].
    pub(crate) fn check_objects(&self) {
        self.0.iter().for_each(|part| part.core().check_objects());
    }

    pub(super) fn cores(&self) -> Vec<Arc<Core>> {
        self.0.iter().map(|part| part.core().clone()).collect()
    }

    /// A view of the keys that does not keep a watch alive.
    pub(crate) fn keys(&self) -> Keys {
        Keys(self.0.iter().map(|part| Arc::downgrade(part.core())).collect())
    }
}

/// The keys of all objects of a kind. It keeps no watch alive.
#[derive(Clone)]
pub(crate) struct Keys(Vec<Weak<Core>>);

impl Keys {
    pub(crate) fn all(&self) -> Vec<Request> {
        let cores = self.0.iter().filter_map(Weak::upgrade);
        cores.flat_map(|core| core.keys()).collect()
    }

    /// The keys of the objects that an index files under a value; none when the index is gone.
    pub(crate) fn filed(&self, index: &str, value: &str) -> Vec<Request> {
        let cores = self.0.iter().filter_map(Weak::upgrade);
        let found = cores.flat_map(|core| core.filed(index, value, None));
        found
            .map(|object| {
                let id = object.object_id();
                Request::new(id.namespace, id.name.unwrap_or_default())
            })
            .collect()
    }

    /// Whether [`Keys::all`] has a key.
    pub(crate) fn has(&self, key: &Request) -> bool {
        let mut cores = self.0.iter().filter_map(Weak::upgrade);
        cores.any(|core| core.get(key.namespace(), key.name()).is_some())
    }
}

/// The answers of all parts, one after the other.
pub(super) fn of_each(cores: &[Arc<Core>], read: impl Fn(&Core) -> Objects) -> Objects {
    cores.iter().flat_map(|core| read(core)).collect()
}
