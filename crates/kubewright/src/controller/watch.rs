//! A controller's watch besides its own kind, as it is declared: which objects, which of their changes, and which keys
//! they wake.
//!
//! `sources.rs` turns it into handlers of informers.

use std::any::TypeId;
use std::fmt;
use std::future::{Future, ready};
use std::marker::PhantomData;
use std::sync::Arc;

use futures::FutureExt;
use kube::core::ApiResource;
use kubewright_engine::queue::Priority;

use super::indexes::typed_values;
use super::sources::{ByIndex, Filter, Mapping, Source, Watching};
use crate::cache::Scope;
use crate::client::Client;
use crate::error::{Error, Result};
use crate::form::{Event, Form, read_typed, typed_event, with_typed};
use crate::object::{AnyObject, Object};
use crate::request::Request;
use crate::webhook::Kind;

/// Objects of kind `K` that lead to reconciles; give it to [`Controller::source`](crate::Controller::source).
///
/// [`Controller::owns`](crate::Controller::owns) and [`Controller::watches`](crate::Controller::watches) are short for
/// the common ones. `K` may be `PartialObjectMeta<Pod>`, say: then only metadata is sent and kept.
///
/// ```
/// use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
/// use kubewright::{Client, Controller, Request, Result, Scope, Watch, predicate};
/// # use std::sync::Arc;
/// # use kubewright::{Action, Context, Reconciler};
/// # struct Sealer;
/// # impl Reconciler for Sealer {
/// #     type Object = ConfigMap;
/// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
/// # }
/// // Every ConfigMap that has asked for this Secret; reads come from the cache.
/// async fn askers(secret: Arc<Secret>, client: Client) -> Result<Vec<Request>> {
///     let all = client.list::<ConfigMap>(&secret.metadata.namespace).await?;
///     let asks = |config: &ConfigMap| config.data.iter().flatten().any(|(_, name)| Some(name) == secret.metadata.name.as_ref());
///     Ok(all.iter().filter(|config| asks(config)).map(|config| Request::of(&**config)).collect())
/// }
///
/// let controller = Controller::of(Sealer)
///     .source(Watch::<Secret>::new().map_with(askers))
///     .source(Watch::<Pod>::new().within(Scope::all().fields("spec.nodeName=n")).when(predicate::deleted).owned_by_any());
/// ```
pub struct Watch<K> {
    form: Form,
    kind: Kind,
    scope: Scope,
    cluster: Option<String>,
    filters: Vec<Filter>,
    priority: Priority,
    of: PhantomData<fn() -> K>,
}

impl<K> fmt::Debug for Watch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watch({} {})", self.form.resource.kind, self.scope)
    }
}

impl<K: Object> Default for Watch<K> {
    fn default() -> Watch<K> {
        Watch::new()
    }
}

impl<K: Object> Watch<K> {
    /// All objects of the kind.
    pub fn new() -> Watch<K> {
        Watch::of_form(Form::of::<K>(), Kind::of::<K>())
    }
}

impl<K: AnyObject> Watch<K> {
    /// All objects of a kind that is known at run time. `K` says in which form, as in
    /// [`Cache::informer_dynamic`](crate::Cache::informer_dynamic).
    pub fn dynamic(resource: &ApiResource) -> Watch<K> {
        Watch::of_form(Form::for_resource::<K>(resource), Kind::dynamic::<K>(resource, true))
    }

    fn of_form(form: Form, kind: Kind) -> Watch<K> {
        Watch {
            form,
            kind,
            scope: Scope::all(),
            cluster: None,
            filters: Vec::new(),
            priority: Priority::NORMAL,
            of: PhantomData,
        }
    }

    /// Only a part of the objects; the server selects. An object that leaves the part is told as deleted.
    #[must_use]
    pub fn within(mut self, scope: Scope) -> Watch<K> {
        self.scope = scope;
        self
    }

    /// In another cluster of the manager ([`ManagerBuilder::cluster`](crate::ManagerBuilder::cluster)) than the
    /// controller's own kind. Owner references do not lead out of a cluster, so its source is one of `map`, `map_with`
    /// and `all`. The operator's role says nothing about other clusters.
    #[must_use]
    pub fn in_cluster(mut self, name: impl Into<String>) -> Watch<K> {
        self.cluster = Some(name.into());
        self
    }

    /// Only changes that pass; see [`crate::predicate`]. Several must all pass. Unlike
    /// [`Controller::with_predicate`](crate::Controller::with_predicate) it concerns this source alone.
    #[must_use]
    pub fn when(mut self, predicate: impl Fn(&Event<K>) -> bool + Send + Sync + 'static) -> Watch<K> {
        self.filters.push(Arc::new(move |event| {
            typed_event(event).is_none_or(|event| predicate(&event))
        }));
        self
    }

    /// Only deletions, as [`predicate::deleted`](crate::predicate::deleted): the objects of other changes are not even
    /// decoded.
    #[must_use]
    pub fn deleted(mut self) -> Watch<K> {
        self.filters.push(Arc::new(|event| {
            matches!(event, kubewright_engine::Event::Deleted { .. })
        }));
        self
    }

    /// How urgent the keys are that it wakes: those of a higher priority come first. Others have 0, and those of the
    /// first list and of resyncs -100. Lower ones do not wait for ever: after a second they take part in turns.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Watch<K> {
        self.priority = Priority(priority);
        self
    }

    /// [`Watch::priority`] of -100, as the first list has it.
    #[must_use]
    pub fn low_priority(self) -> Watch<K> {
        self.priority(Priority::LOW.0)
    }

    /// Wakes the object of the controller's kind that controls the changed one (the owner reference with `controller:
    /// true`).
    pub fn owned(self) -> Source {
        self.wakes(Mapping::Owner { any: false })
    }

    /// Wakes every object of the controller's kind that an owner reference names, whether it controls or not
    /// (`MatchEveryOwner`).
    pub fn owned_by_any(self) -> Source {
        self.wakes(Mapping::Owner { any: true })
    }

    /// Wakes the keys that `map` answers. It is called where changes are told, so it must be quick. For a modification
    /// the old and the new state are asked.
    pub fn map(self, map: impl Fn(&K) -> Vec<Request> + Send + Sync + 'static) -> Source {
        self.wakes(Mapping::Mapped(Arc::new(move |object| {
            with_typed(object, &map).unwrap_or_default()
        })))
    }

    /// Wakes the keys that `map` answers, which may take its time and read through the client. The client does not
    /// write: the function runs on every replica, also on those that do not lead.
    ///
    /// It runs beside the informer, several objects at a time. For a modification the old and the new state are asked,
    /// and so is every state that was replaced meanwhile. An error or a panic is logged, shown by `/readyz`, and tried
    /// again, later each time; with [`Error::terminal`](crate::Error::terminal) the state is given up.
    pub fn map_with<F>(self, map: impl Fn(Arc<K>, Client) -> F + Send + Sync + 'static) -> Source
    where
        F: Future<Output = Result<Vec<Request>>> + Send + 'static,
    {
        self.wakes(Mapping::LookedUp(Arc::new(move |object, client| {
            match read_typed(object) {
                Ok(object) => map(object, client).boxed(),
                Err(reason) => ready(Err(Error::terminal(format!("it cannot be decoded: {reason}")))).boxed(),
            }
        })))
    }

    /// Wakes the objects of the controller's own kind that have a value in common with the changed one. `own` says under
    /// which values the cache files an object of the controller's kind, and `asked` which of them a changed object
    /// concerns (controller-runtime's `IndexField`, and a mapping that lists by it).
    ///
    /// Unlike a memory that reconciles fill, it is complete before the first reconcile and after a restart. An object
    /// that comes later than the change is reconciled because it is new. For a modification the old and the new state
    /// are asked.
    ///
    /// ```
    /// use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kubewright::{Controller, Watch};
    /// # use std::sync::Arc;
    /// # use kubewright::{Action, Context, Reconciler, Result};
    /// # struct Sealer;
    /// # impl Reconciler for Sealer {
    /// #     type Object = ConfigMap;
    /// #     async fn reconcile(&self, _: Arc<ConfigMap>, _: Context) -> Result<Action> { Ok(Action::await_change()) }
    /// # }
    /// // A ConfigMap names the Secrets of its namespace that it needs.
    /// let needed = |config: &ConfigMap| {
    ///     let namespace = config.metadata.namespace.clone().unwrap_or_default();
    ///     config.data.iter().flatten().map(|(_, name)| format!("{namespace}/{name}")).collect()
    /// };
    /// let named = |secret: &Secret| {
    ///     let (namespace, name) = (secret.metadata.namespace.clone(), secret.metadata.name.clone());
    ///     vec![format!("{}/{}", namespace.unwrap_or_default(), name.unwrap_or_default())]
    /// };
    /// let controller = Controller::of(Sealer).source(Watch::<Secret>::new().by_index(needed, named));
    /// ```
    pub fn by_index<O: AnyObject>(
        self,
        own: impl Fn(&O) -> Vec<String> + Send + Sync + 'static,
        asked: impl Fn(&K) -> Vec<String> + Send + Sync + 'static,
    ) -> Source {
        self.wakes(Mapping::ByIndex(ByIndex {
            own: TypeId::of::<O>(),
            filed: typed_values(own),
            asked: typed_values(asked),
        }))
    }

    /// Wakes the objects of the controller's own kind for which `own` holds, such as those that wait for what has changed.
    /// The cache knows them by an index ([`Watch::by_index`]).
    pub fn all_where<O: AnyObject>(self, own: impl Fn(&O) -> bool + Send + Sync + 'static) -> Source {
        let one = || vec![String::new()];
        self.by_index(
            move |object: &O| if own(object) { one() } else { vec![] },
            move |_| one(),
        )
    }

    /// Wakes every object of the controller's kind. For rare, global settings.
    pub fn all(self) -> Source {
        self.wakes(Mapping::All)
    }

    fn wakes(self, mapping: Mapping) -> Source {
        Source::watched(Watching {
            form: self.form,
            kind: self.kind,
            scope: self.scope,
            cluster: self.cluster,
            filters: self.filters,
            priority: self.priority,
            mapping,
        })
    }
}
