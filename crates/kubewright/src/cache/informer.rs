//! The typed face of an informer (client-go's `SharedIndexInformer`): a view of the store of its kind.
//!
//! Everything happens in [`SharedInformer`], without the type; see `form.rs` for why. In a manager of several
//! namespaces there is one for each.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::TryFutureExt;
use kube::core::ApiResource;
use kubewright_engine::HandlerId;
use kubewright_engine::dispatch::Handler;

use super::change::Change;
use super::core::SharedInformer;
use super::kind_informers::KindInformers;
use super::scope::Scope;
use super::store::Store;
use crate::error::Result;
use crate::form::{Cached, Event, typed_event, with_typed};
use crate::object::AnyObject;
use crate::request::Request;

/// How long [`Informer::synced`] waits (controller-runtime's `CacheSyncTimeout`).
pub const SYNC_TIMEOUT: Duration = Duration::from_secs(120);

/// A shared, watched set of objects: a type and a scope. All informers of a kind share one watch and one store, which
/// hold what they need together. Cheap to clone; the watch stops after the last informer of its kind is dropped.
///
/// ```
/// use kubewright::{Cache, Event, Result};
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
///
/// async fn count(cache: &Cache) -> Result<usize> {
///     let informer = cache.informer::<ConfigMap>();
///     informer.add_handler(|event: &Event<ConfigMap>| enqueue(event));
///     informer.synced().await?;
///     Ok(informer.store().len())
/// }
/// # fn enqueue(_event: &Event<ConfigMap>) {}
/// ```
pub struct Informer<K: AnyObject> {
    parts: KindInformers,
    common: Arc<Common>,
    of: PhantomData<fn() -> K>,
}

/// What the informers of several namespaces have in common, beyond their objects.
struct Common {
    name: String,
    scope: Scope,
    /// The handlers that were added through this handle, when there are several parts: in each part they have a number
    /// of its own.
    handlers: Mutex<BTreeMap<HandlerId, Vec<HandlerId>>>,
}

impl<K: AnyObject> Clone for Informer<K> {
    fn clone(&self) -> Self {
        Informer {
            parts: self.parts.clone(),
            common: self.common.clone(),
            of: PhantomData,
        }
    }
}

impl<K: AnyObject> fmt::Debug for Informer<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Informer({}, {:?})", self.name(), self.health())
    }
}

/// How an informer fares.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Health {
    /// The first list is not complete yet.
    Syncing,
    /// The store follows the server.
    Synced,
    /// The last list or watch failed and is tried again, or objects cannot be decoded ([`Informer::unreadable`]). The
    /// store serves its present objects; with objects that cannot be decoded the informer may well be synced.
    Degraded {
        /// The failure.
        reason: String,
    },
}

/// An object that exists and does not decode into the type of its informer. It is in no list; a read of it is
/// [`Error::Undecodable`](crate::Error::Undecodable). Handlers that knew it keep its last readable state until it is
/// deleted. An informer without handlers, indexes, predicates or mappings of its type decodes only objects that are
/// read, and learns of such an object from the first read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unreadable {
    /// Its namespace and name.
    pub request: Request,
    /// The `metadata.resourceVersion` that does not decode.
    pub resource_version: Option<String>,
    /// Why, as serde says it.
    pub error: String,
}

impl<K: AnyObject> Informer<K> {
    /// The informer of the form of `K`.
    pub(super) fn new(parts: KindInformers) -> Informer<K> {
        let first = parts.of(None);
        let (mut name, mut scope) = (first.name().to_owned(), first.scope().clone());
        if parts.only().is_none() {
            let names: Vec<&str> = parts.iter().map(SharedInformer::name).collect();
            name = names.join("; ");
            scope.namespace = None;
        }
        let common = Arc::new(Common {
            name,
            scope,
            handlers: Mutex::default(),
        });
        Informer {
            parts,
            common,
            of: PhantomData,
        }
    }

    /// The informer without its type.
    pub(crate) fn parts(&self) -> &KindInformers {
        &self.parts
    }

    /// The kind and scope in words: `Deployment.apps in all namespaces`.
    pub fn name(&self) -> &str {
        &self.common.name
    }

    /// The watched resource.
    pub fn resource(&self) -> &ApiResource {
        &self.parts.form().resource
    }

    /// Which part of it; in a manager of several namespaces none is named here.
    pub fn scope(&self) -> &Scope {
        &self.common.scope
    }

    /// The contents.
    pub fn store(&self) -> Store<K> {
        Store::new(self.parts.cores())
    }

    /// How the watch fares.
    pub fn health(&self) -> Health {
        self.parts.health()
    }

    /// The objects that exist and cannot be decoded, ordered by namespace and name. Each is read again when it changes.
    pub fn unreadable(&self) -> Vec<Unreadable> {
        self.parts.iter().flat_map(|part| part.core().unreadable()).collect()
    }

    /// Whether the first list is in the store and every handler that there was has been told all of it. It stays true
    /// when the watch fails later, and when handlers join.
    pub fn is_synced(&self) -> bool {
        self.parts.iter().all(SharedInformer::handlers_synced)
    }

    /// Whether this handler has returned for everything that was there when it was added, or for all of the first list
    /// when it was added before that.
    pub fn handler_synced(&self, handler: HandlerId) -> bool {
        self.everywhere(handler, SharedInformer::handler_synced)
    }

    /// Waits until [`Informer::is_synced`], at most [`SYNC_TIMEOUT`].
    ///
    /// # Errors
    /// [`Error::NotSynced`](crate::Error::NotSynced), with the last failure of the list.
    pub fn synced(&self) -> impl Future<Output = Result<()>> + Send + '_ {
        self.synced_within(SYNC_TIMEOUT)
    }

    /// Waits until [`Informer::is_synced`], at most `deadline`.
    ///
    /// # Errors
    /// As [`Informer::synced`].
    pub fn synced_within(&self, deadline: Duration) -> impl Future<Output = Result<()>> + Send + '_ {
        let all = self.parts.iter().map(move |part| part.handlers_synced_within(deadline));
        futures::future::try_join_all(all).map_ok(|_| ())
    }

    /// Adds a handler: it is told of everything that is in the store, and then of every change.
    ///
    /// A handler has a task of its own and may take its time: neither the store nor other handlers wait for it. Changes
    /// that it has not been told of are folded by key, so that at most one of each key waits, and it knows the content
    /// of the store when it has caught up. Of an object that came and went meanwhile it is not told.
    ///
    /// A handler must not remove itself.
    pub fn add_handler(&self, handler: impl Fn(&Event<K>) + Send + Sync + 'static) -> HandlerId {
        let handler = self.of_type(handler);
        self.add(|part| part.add_slow_handler(handler.clone()))
    }

    /// Adds a handler that runs on the informer's task: it is told of everything that is in the store before this
    /// returns, and then of every single change as soon as the store shows it.
    ///
    /// The store and all other handlers wait until it returns, so it must be quick: turn the event into keys and add
    /// them to a queue. It must not add or remove handlers of the same kind.
    pub fn add_inline_handler(&self, handler: impl Fn(&Event<K>) + Send + Sync + 'static) -> HandlerId {
        let handler = self.of_type(handler);
        self.add(|part| part.add_handler(handler.clone()))
    }

    /// As [`Informer::add_inline_handler`], for a handler that is content with which object changed, and how. Nothing
    /// is decoded for it.
    pub fn add_key_handler(&self, handler: impl Fn(&Change) + Send + Sync + 'static) -> HandlerId {
        let handler: Handler<dyn Cached> = Arc::new(move |event| handler(&Change::of(event)));
        self.add(|part| part.add_handler(handler.clone()))
    }

    /// A handler of typed events, which wants objects that can be decoded.
    fn of_type(&self, handler: impl Fn(&Event<K>) + Send + Sync + 'static) -> Handler<dyn Cached> {
        self.parts.check_objects();
        Arc::new(move |event| {
            if let Some(event) = typed_event(event) {
                handler(&event);
            }
        })
    }

    /// Removes a handler; when this returns it is not called again. It waits for a call that is under way, except in a
    /// runtime of one thread, where that call may wait for the caller. `false` when it was not there. Remove it through the handle that it was added to, or a clone of that.
    pub fn remove_handler(&self, handler: HandlerId) -> bool {
        let known = self.everywhere(handler, SharedInformer::remove_handler);
        self.handlers().remove(&handler);
        known
    }

    /// Adds a handler to every part.
    fn add(&self, add: impl Fn(&SharedInformer) -> HandlerId) -> HandlerId {
        if let Some(only) = self.parts.only() {
            return add(only);
        }
        let ids: Vec<HandlerId> = self.parts.iter().map(add).collect();
        let mut handlers = self.handlers();
        let next = handlers.last_key_value().map_or(0, |(HandlerId(last), _)| last + 1);
        handlers.insert(HandlerId(next), ids);
        HandlerId(next)
    }

    /// Whether it holds of a handler in every part.
    fn everywhere(&self, handler: HandlerId, holds: fn(&SharedInformer, HandlerId) -> bool) -> bool {
        if let Some(only) = self.parts.only() {
            return holds(only, handler);
        }
        let Some(ids) = self.handlers().get(&handler).cloned() else {
            return false;
        };
        // Every part is asked: it may be a command.
        let each: Vec<bool> = self.parts.iter().zip(ids).map(|(part, id)| holds(part, id)).collect();
        each.into_iter().all(|one| one)
    }

    fn handlers(&self) -> MutexGuard<'_, BTreeMap<HandlerId, Vec<HandlerId>>> {
        self.common.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an index: `values` says under which values an object is found by [`Store::by_index`]. Objects that are
    /// there are indexed too.
    ///
    /// # Errors
    /// [`Error::Configuration`](crate::Error::Configuration) when the name is taken.
    pub fn add_index(&self, name: &str, values: impl Fn(&K) -> Vec<String> + Send + Sync + 'static) -> Result<()> {
        let values = Arc::new(values);
        self.parts.check_objects();
        for part in self.parts.iter() {
            let values = values.clone();
            part.add_index(
                name,
                Box::new(move |object| with_typed(object, &*values).unwrap_or_default()),
            )?;
        }
        Ok(())
    }
}
