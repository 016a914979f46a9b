//! What a reconcile gets besides the object: why it runs, a client, and the verbs that know who the owner is.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::Patch;
use serde_json::{Value, json};

use crate::apply::{Owner, merge_patch_between};
use crate::cause::Cause;
use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::events::{EventRecorder, EventType};
use crate::object::{Object, ObjectRef, api_resource};
use crate::request::Request;
use crate::runnable::Stop;

/// One reconcile's view of the world. Cheap to clone.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

pub(crate) struct Inner {
    pub(crate) request: Request,
    pub(crate) causes: Vec<Cause>,
    pub(crate) client: Client,
    pub(crate) controller: Arc<str>,
    pub(crate) reconcile_id: u64,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) recorder: Option<EventRecorder>,
    pub(crate) owner: Option<Owner>,
    pub(crate) stop: Stop,
}

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

    /// A context outside a controller, for calling a reconciler directly in a test. Events go nowhere; `owner` is who owns what is applied.
    pub fn detached<K: Object>(client: Client, controller: &str, owner: &K) -> Context {
        let controller: Arc<str> = Arc::from(controller);
        Context::from_inner(Inner {
            request: Request::of(owner),
            causes: vec![Cause::requested("called directly")],
            client: client.for_controller(&controller),
            controller,
            reconcile_id: 0,
            clock: Arc::new(SystemClock),
            recorder: None,
            owner: Owner::of(owner),
            stop: Stop::never(),
        })
    }

    /// The same context with the object that it is about.
    pub(crate) fn owned_by<K: Object>(&self, object: &K) -> Context {
        let Inner {
            request,
            causes,
            client,
            controller,
            reconcile_id,
            clock,
            recorder,
            stop,
            ..
        } = &*self.0;
        Context::from_inner(Inner {
            request: request.clone(),
            causes: causes.clone(),
            client: client.clone(),
            controller: controller.clone(),
            reconcile_id: *reconcile_id,
            clock: clock.clone(),
            recorder: recorder.clone(),
            owner: Owner::of(object),
            stop: stop.clone(),
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

    /// Makes an object be as `desired`: creates it, or patches what differs, or sends nothing when nothing does.
    ///
    /// The object becomes controlled by the one that is reconciled (an owner reference with `controller` and `blockOwnerDeletion`), so that
    /// it is deleted with it and its changes lead back here. It is put into the owner's namespace when it names none. Fields that
    /// `desired` does not mention are left as they are; `status` is not touched. Returns the object as it is now.
    ///
    /// # Errors
    /// [`Error::AlreadyOwned`] when another object controls it; [`Error::Terminal`] when it has no name, or when the owner may not own it;
    /// [`Error::Conflict`] and [`Error::Api`] as the server answers.
    pub async fn apply<K: Object>(&self, desired: K) -> Result<Arc<K>> {
        self.client().apply_for(self.0.owner.as_ref(), desired).await
    }

    /// Changes the status of an object: `change` gets the newest state known, and what it changed in `status` is sent as a merge patch of
    /// the status subresource, without a lock. Nothing is sent when nothing changed. Returns the object as it is now.
    ///
    /// # Errors
    /// [`Error::Terminal`] when `change` touched anything but the status; [`Error::Api`] as the server answers.
    pub async fn patch_status<K: Object>(&self, object: &K, change: impl FnOnce(&mut K)) -> Result<Arc<K>> {
        let client = self.client();
        let base = self.newest(object).await?;
        let mut changed = (*base).clone();
        change(&mut changed);
        let (before, after) = (serde_json::to_value(&*base)?, serde_json::to_value(&changed)?);
        let Some(patch) = merge_patch_between(&before, &after) else {
            return Ok(base);
        };
        let patch = match patch {
            Value::Object(mut fields) => {
                let status = fields.remove("status");
                if let Some(field) = fields.keys().next() {
                    return Err(Error::terminal(format!(
                        "patch_status of {}: the change touched {field}; only status can be changed here, use client().update or apply",
                        ObjectRef::of(object)
                    )));
                }
                json!({ "status": status })
            }
            _ => {
                return Err(Error::terminal(format!(
                    "patch_status of {}: not a JSON object",
                    ObjectRef::of(object)
                )));
            }
        };
        let meta = object.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        client
            .patch_status(meta.namespace.as_deref(), name, &Patch::Merge(patch))
            .await
    }

    /// The state that the cache has after our own writes, when it caches the kind and it is still the same object.
    async fn newest<K: Object>(&self, object: &K) -> Result<Arc<K>> {
        let meta = object.meta();
        if let (Some(informer), Some(name)) = (self.client().cache().existing::<K>(), meta.name.as_deref())
            && let Some(cached) = self
                .client()
                .get_from(&informer, meta.namespace.as_deref(), name)
                .await?
            && cached.meta().uid == meta.uid
        {
            return Ok(cached);
        }
        Ok(Arc::new(object.clone()))
    }

    /// Records an event on an object: `kubectl describe` shows it. It is written in the background; equal events are counted up. It never
    /// blocks and never fails the reconcile.
    pub fn event<K: Object>(&self, object: &K, event_type: EventType, reason: &str, message: impl Into<String>) {
        let Some(recorder) = &self.0.recorder else { return };
        let resource = api_resource::<K>();
        let meta = object.meta();
        let involved = ObjectReference {
            api_version: Some(resource.api_version),
            kind: Some(resource.kind),
            name: meta.name.clone(),
            namespace: meta.namespace.clone(),
            resource_version: meta.resource_version.clone(),
            uid: meta.uid.clone(),
            ..Default::default()
        };
        recorder.record(self.controller(), involved, event_type, reason, message);
    }
}
