//! What a reconcile gets besides the object: why it runs, a client, and methods that set the owner of children.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use jiff::Timestamp;
use kube::api::Patch;
use kube::core::object::HasStatus;
use kube::core::{ApiResource, ObjectMeta};
use kube::{Api, Resource};
use kubewright_engine::ObjectKey;
use serde::Serialize;
use serde_json::{Value, json};

use crate::cache::{Core, SharedInformer};
use crate::cause::Cause;
use crate::client::apply::{Owner, merge_patch_between, replaces_a_list};
use crate::client::{ApiScope, Client};
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::events::{EventNote, EventType, reference};
use crate::form::{AsJson, Cached, Form, typed};
use crate::object::{Given, Object, ObjectRef, api_resource};
use crate::request::Request;
use crate::stop::Stop;

/// One reconcile's view of the world. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

#[derive(Clone)]
pub(crate) struct Inner {
    pub(crate) request: Request,
    pub(crate) causes: Vec<Cause>,
    pub(crate) client: Arc<Client>,
    pub(crate) controller: Arc<str>,
    pub(crate) reconcile_id: u64,
    pub(crate) clock: Arc<dyn Clock>,
    /// Whether events go to the recorder of the client's cluster, or are dropped.
    pub(crate) records: bool,
    pub(crate) owner: Owning,
    pub(crate) stop: Stop,
    pub(crate) term: Option<u64>,
}

/// The owner of applied objects.
#[derive(Clone)]
pub(crate) enum Owning {
    Nobody,
    One(Owner),
    /// An object of a cache. Its name is read when something is applied, which most reconciles do not.
    Cached(Arc<Core>, Arc<dyn Cached>),
}

/// The object of a key, if there is one, and the context for it.
pub(crate) type Subject = (Option<Arc<dyn Cached>>, Context);

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner {
            request,
            causes,
            controller,
            reconcile_id,
            ..
        } = &*self.0;
        let mut out = f.debug_struct("Context");
        out.field("controller", controller)
            .field("request", request)
            .field("reconcile_id", reconcile_id)
            .field("causes", causes);
        out.finish_non_exhaustive()
    }
}

impl Context {
    pub(crate) fn from_inner(inner: Inner) -> Context {
        Context(Arc::new(inner))
    }

    /// A context outside a controller, for calling a reconciler directly in a test. Events are dropped; `owner` is the
    /// owner of applied objects.
    pub fn detached<K: Object>(client: Client, controller: &str, owner: &K) -> Context {
        let controller: Arc<str> = Arc::from(controller);
        Context::from_inner(Inner {
            request: Request::of(owner),
            causes: vec![Cause::requested("called directly")],
            client: Arc::new(client.for_controller(&controller)),
            controller,
            reconcile_id: 0,
            clock: Arc::new(SystemClock),
            records: false,
            owner: Owner::of(owner).map_or(Owning::Nobody, Owning::One),
            stop: Stop::never(),
            term: None,
        })
    }

    /// The object of a key, and the context with it as the owner of applied objects.
    pub(crate) fn about<'a>(
        self,
        informer: &'a SharedInformer,
        request: &'a Request,
    ) -> BoxFuture<'a, Result<Subject>> {
        Box::pin(async move {
            let found = self.client().get_requested(informer, request).await?;
            let mut ctx = self;
            if let Some(object) = &found {
                Arc::make_mut(&mut ctx.0).owner = Owning::Cached(informer.core().clone(), object.clone());
            }
            Ok((found, ctx))
        })
    }

    /// Whether the object of the key, which the informer does not hold, is gone. Its watch says so, unless it restricts
    /// what it shows or the key came from elsewhere; then the API server is asked.
    pub(crate) fn is_gone<'a>(&'a self, informer: &'a SharedInformer) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let (request, scope) = (self.request(), informer.scope());
            if scope.namespace.is_some() && scope.namespace.as_deref() != request.namespace() {
                return Ok(false); // nothing that this controller may see
            }
            if !scope.is_selective() && informer.core().was_deleted(&ObjectKey::from(request)) {
                return Ok(true);
            }
            Ok(!self.client().exists(informer.resource(), request).await?)
        })
    }

    /// The key that is reconciled.
    pub fn request(&self) -> &Request {
        &self.0.request
    }

    /// Why this reconcile runs: everything that happened since the last one.
    pub fn causes(&self) -> &[Cause] {
        &self.0.causes
    }

    /// The client: cached reads that see your own writes, observed writes.
    pub fn client(&self) -> &Client {
        &self.0.client
    }

    /// The name of the cluster that the object is in: [`HOME_CLUSTER`](crate::HOME_CLUSTER), or that of
    /// [`Controller::in_cluster`](crate::Controller::in_cluster).
    pub fn cluster(&self) -> &str {
        self.client().cache().cluster()
    }

    /// The controller's name.
    pub fn controller(&self) -> &str {
        &self.0.controller
    }

    /// The number of this reconcile; it is also in the logs and observations.
    pub fn reconcile_id(&self) -> u64 {
        self.0.reconcile_id
    }

    /// The time of day, for time stamps in objects. Tests can set it.
    pub fn now(&self) -> Timestamp {
        self.0.clock.now()
    }

    /// Requested when the manager stops: long waits should end.
    pub fn stop(&self) -> &Stop {
        &self.0.stop
    }

    /// The fencing token: the number of the time of leading that this reconcile belongs to (`leaseTransitions`),
    /// greater than that of every leader before. An outside system that remembers the greatest one can refuse late
    /// writes of an earlier leader. `None` without leader election.
    pub fn term(&self) -> Option<u64> {
        self.0.term
    }

    /// Makes an object be as `desired`, by server-side apply under the controller's name: creates it, or changes
    /// different fields, or sends nothing when nothing would change.
    ///
    /// The object becomes controlled by the one that is reconciled (an owner reference with `controller` and
    /// `blockOwnerDeletion`), so that it is deleted with it and its changes lead back here. It is put into the owner's
    /// namespace when it names none. Fields that `desired` mentions become the controller's, whichever manager had set
    /// them; fields that it mentioned before and mentions no longer are removed; all others are left as they are, and
    /// so is `status`. Returns the object as it is now.
    ///
    /// # Errors
    /// [`Error::AlreadyOwned`] when another object controls it; [`Error::Terminal`] when it has no name, or when the
    /// owner may not own it; [`Error::Conflict`] and [`Error::Api`] as the server answers.
    pub async fn apply<K: Object>(&self, desired: K) -> Result<Arc<K>> {
        self.client().apply_for(self.owner().as_ref(), desired).await
    }

    fn owner(&self) -> Option<Owner> {
        match &self.0.owner {
            Owning::Nobody => None,
            Owning::One(owner) => Some(owner.clone()),
            Owning::Cached(core, object) => Owner::of_form(&core.form, &object.metadata()),
        }
    }

    /// Applies this controller's part of the status of an object (server-side apply of the status subresource, under the
    /// controller's name): `fill` sets the fields in an empty status. Fields that it sets become the controller's, those
    /// that it set before and sets no longer are removed, and all others are left to their managers, so that several
    /// controllers keep one status. Nothing is sent when nothing would change. Returns the object as it is now.
    ///
    /// Conditions ([`Context::condition`]) keep their `lastTransitionTime` until their status changes, and get the
    /// object's generation as `observedGeneration`. For two controllers to share the list, its schema must say that its
    /// items are found by their type (`x-kubernetes-list-type: map`, `x-kubernetes-list-map-keys: [type]`; the marker
    /// `+listType=map` with `+listMapKey=type`), as those of Kubernetes do; otherwise the list is one field.
    ///
    /// A field that is not optional in the Rust type is set in any case: let them be `Option`s with
    /// `skip_serializing_if`.
    ///
    /// ```
    /// # use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
    /// # use kubewright::kube::CustomResource;
    /// # use kubewright::schemars::JsonSchema;
    /// # use kubewright::{Context, Result};
    /// # use serde::{Deserialize, Serialize};
    /// # #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema)]
    /// # #[kube(group = "example.com", version = "v1", kind = "Shop", namespaced, status = "ShopStatus")]
    /// # struct ShopSpec {}
    /// # #[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
    /// # struct ShopStatus {
    /// #     #[serde(skip_serializing_if = "Option::is_none")]
    /// #     guests: Option<i64>,
    /// #     #[serde(default, skip_serializing_if = "Vec::is_empty")]
    /// #     conditions: Vec<Condition>,
    /// # }
    /// async fn tell(ctx: &Context, shop: &Shop, guests: i64) -> Result<()> {
    ///     ctx.status(shop, |status| {
    ///         status.guests = Some(guests);
    ///         status.conditions = vec![ctx.condition(shop, "Open", guests > 0, "Counted", "guests were counted")];
    ///     })
    ///     .await?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// [`Error::Conflict`] when the object was deleted and made anew; [`Error::Api`] as the server answers.
    pub async fn status<'a, K>(&self, object: impl Given<'a, K>, fill: impl FnOnce(&mut K::Status)) -> Result<Arc<K>>
    where
        K: Object + HasStatus,
        K::Status: Default + Serialize,
    {
        let object = object.given();
        let form = Form::of::<K>();
        let mut status = K::Status::default();
        fill(&mut status);
        let status = serde_json::to_value(&status)?;
        let newest = self.newest(&form, object).await?;
        let applied = self.client().apply_status(&form, object, newest, status, self.now());
        applied.await.map(typed)
    }

    /// The API of a kind, in the namespace of the object that is reconciled: a `kube::Api` for the verbs that the client
    /// does not offer, under its rules; see [`Client::api`].
    ///
    /// ```
    /// # use kubewright::k8s_openapi::api::core::v1::Pod;
    /// # async fn logs(ctx: kubewright::Context) -> kubewright::Result<()> {
    /// let logs = ctx.api::<Pod>().logs(ctx.request().name(), &Default::default()).await?;
    /// # drop(logs);
    /// # Ok(()) }
    /// ```
    pub fn api<K: Resource>(&self) -> Api<K>
    where
        K::Scope: ApiScope<K>,
    {
        self.client().api(self.request().namespace())
    }

    /// Changes the status of an object: `change` gets the newest known state, and its changes of `status` are sent as a
    /// merge patch of the status subresource. Nothing is sent when nothing changed. Returns the object as it is now.
    ///
    /// A merge patch replaces lists, such as conditions, as a whole. One that does carries the resourceVersion that it
    /// was made from, so that items that other clients wrote into the list meanwhile are not lost; other patches carry
    /// no lock.
    ///
    /// # Errors
    /// [`Error::Terminal`] when `change` touched anything but the status; [`Error::Conflict`] when a list was to be
    /// replaced and the object has changed since (return it: the reconcile runs again); [`Error::Api`] as the server
    /// answers.
    pub async fn patch_status<'a, K: Object>(
        &self,
        object: impl Given<'a, K>,
        change: impl FnOnce(&mut K),
    ) -> Result<Arc<K>> {
        let object = object.given();
        let form = Form::of::<K>();
        let base = match self.newest(&form, object).await? {
            Some(cached) => typed(cached),
            None => Arc::new(object.clone()),
        };
        let mut changed = (*base).clone();
        change(&mut changed);
        let after = changed.json()?;
        self.send_status(&form, base, after).await.map(typed)
    }

    fn send_status<'a>(
        &'a self,
        form: &'a Form,
        base: Arc<dyn Cached>,
        after: Value,
    ) -> BoxFuture<'a, Result<Arc<dyn Cached>>> {
        Box::pin(async move {
            let Some(patch) = merge_patch_between(&base.json()?, &after) else {
                return Ok(base);
            };
            let meta = base.metadata();
            let refused = |why: &str| {
                let object = ObjectRef::new(&form.resource, &meta);
                Err(Error::terminal(format!("patch_status of {object}: {why}")))
            };
            let Value::Object(mut fields) = patch else {
                return refused("not a JSON object");
            };
            let status = fields.remove("status");
            if let Some(field) = fields.keys().next() {
                return refused(&format!(
                    "the change touched {field}; only status can be changed here, use client().update or apply"
                ));
            }
            let mut patch = json!({ "status": status });
            if let Some(version) = meta.resource_version.as_ref().filter(|_| replaces_a_list(&patch)) {
                patch["metadata"] = json!({ "resourceVersion": version });
            }
            let patch = Patch::Merge(patch);
            let name = meta.name.as_deref().unwrap_or_default();
            self.client()
                .patch_shared(form, meta.namespace.as_deref(), name, Some("status"), &patch)
                .await
        })
    }

    /// The state that the cache has after our own writes, when it caches the kind and it is still the same object.
    pub(crate) fn newest<'a>(
        &'a self,
        form: &'a Form,
        object: &'a dyn Cached,
    ) -> BoxFuture<'a, Result<Option<Arc<dyn Cached>>>> {
        Box::pin(async move {
            let meta = object.metadata();
            let (Some(parts), Some(name)) = (self.client().cache().existing_of(form), meta.name.as_deref()) else {
                return Ok(None);
            };
            let cached = self
                .client()
                .get_shared(parts.of(meta.namespace.as_deref()), meta.namespace.as_deref(), name)
                .await?;
            Ok(cached.filter(|cached| cached.object_id().uid == meta.uid.as_deref()))
        })
    }

    /// Records an event on an object: `kubectl describe` shows it. It is written in the background; equal events are
    /// counted up. It never blocks and never fails the reconcile.
    pub fn event<'a, K: Object>(
        &self,
        object: impl Given<'a, K>,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.event_as(self.controller(), object, event_type, reason, message);
    }

    /// [`event`](Context::event) in the name of another component than this controller: for a controller that stands
    /// for several, as a scheduler does for each name that pods may ask for.
    pub fn event_as<'a, K: Object>(
        &self,
        component: &str,
        object: impl Given<'a, K>,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let note = EventNote::new(event_type, reason, message);
        self.record_as(component, &api_resource::<K>(), object.given().meta(), note);
    }

    /// [`event`](Context::event) on an object of a kind that is known at run time.
    pub fn event_dynamic(
        &self,
        resource: &ApiResource,
        meta: &ObjectMeta,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let note = EventNote::new(event_type, reason, message);
        self.record_as(self.controller(), resource, meta, note);
    }

    /// Records an event with an action, or with a related object; see [`EventNote`].
    pub fn record<'a, K: Object>(&self, object: impl Given<'a, K>, note: EventNote) {
        let meta = object.given().meta();
        self.record_as(self.controller(), &api_resource::<K>(), meta, note);
    }

    fn record_as(&self, component: &str, resource: &ApiResource, meta: &ObjectMeta, note: EventNote) {
        let recorder = self.client().cache().recorder().filter(|_| self.0.records);
        if let Some(recorder) = recorder {
            recorder.record_note(component, reference(resource, meta), note);
        }
    }
}
