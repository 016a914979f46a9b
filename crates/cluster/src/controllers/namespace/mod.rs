//! The namespace controller: empties namespaces that are being deleted, and lets them go.
//!
//! A namespace under deletion keeps the finalizer `kubernetes` in its spec until this controller has found nothing in
//! it, of any kind that discovery knows. Pods go first; while any is left, nothing else is touched, so that the objects
//! that they need stay until they have stopped.
//!
//! Invariants: nothing is deleted in a namespace that is not under deletion (asked of the API server, not of the
//! cache); the finalizer goes only after every kind was listed and found empty, and the conditions say so. Content that
//! cannot be discovered or listed counts as not empty. Not here: refusing new content (the API server does), and
//! objects of other finalizers in `spec.finalizers`.

mod conditions;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::k8s_openapi::api::core::v1::Namespace;
use kubewright::kube::api::{Api, DeleteParams, ListParams, PropagationPolicy};
use kubewright::kube::core::{ApiResource, DynamicObject};
use kubewright::kube::discovery::{Discovery, Scope, verbs};
use kubewright::{Action, Context, Controller, Reconciler, Request, Result};

use self::conditions::Found;
use crate::objects::meta;

/// The entry of `spec.finalizers` that is ours.
const FINALIZER: &str = "kubernetes";

/// The first pause while content is on its way out; it doubles up to [`LONGEST_PAUSE`], since another controller has to
/// act then.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Remembers how often it has looked at each namespace that is going.
#[derive(Default)]
pub(crate) struct NamespaceReconciler {
    looks: Mutex<BTreeMap<Request, u32>>,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    Controller::of(NamespaceReconciler::default())
        .named("namespace-controller")
        .concurrency(10)
}

impl NamespaceReconciler {
    /// How long to wait before the next look.
    fn pause(&self, request: &Request) -> Duration {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let look = looks.entry(request.clone()).or_default();
        *look += 1;
        FIRST_PAUSE
            .saturating_mul(1_u32.checked_shl(*look - 1).unwrap_or(u32::MAX))
            .min(LONGEST_PAUSE)
    }

    fn forget(&self, request: &Request) {
        self.looks
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(request);
    }
}

impl Reconciler for NamespaceReconciler {
    type Object = Namespace;

    async fn reconcile(&self, namespace: Arc<Namespace>, ctx: Context) -> Result<Action> {
        if !is_ours(&namespace) {
            return Ok(Action::await_change());
        }
        // The next steps cannot be undone, so the API server itself is asked.
        let live = ctx.client().live::<Namespace>(None, ctx.request().name()).await?;
        let Some(namespace) = live.filter(|live| live.metadata.uid == namespace.metadata.uid && is_ours(live)) else {
            return Ok(Action::await_change());
        };
        let kinds = discover(&ctx).await;
        let found = match &kinds {
            Ok(kinds) => empty(&ctx, kinds).await,
            Err(error) => Found {
                discovery_failure: Some(super::plain(error)),
                ..Found::default()
            },
        };
        let is_empty = found.is_empty() && !pods_left(&ctx).await?;
        // Reported before the end as well: another finalizer may keep the namespace, and its conditions then list the
        // remaining content.
        let Some(namespace) = say(&ctx, namespace, &found).await? else {
            return Ok(Action::await_change());
        };
        if is_empty {
            finalize(&ctx, namespace).await?;
            self.forget(ctx.request());
            return Ok(Action::await_change());
        }
        Ok(Action::requeue_after(self.pause(ctx.request())))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.forget(&request);
        Ok(Action::await_change())
    }
}

/// Writes the conditions, and answers the namespace after it; `None` when it is gone.
async fn say(ctx: &Context, mut namespace: Namespace, found: &Found) -> Result<Option<Namespace>> {
    let status = namespace.status.get_or_insert_default();
    status.phase = Some("Terminating".to_owned());
    status.conditions = Some(conditions::of(
        found,
        status.conditions.as_deref().unwrap_or_default(),
        ctx.now(),
    ));
    match ctx.client().update_status(&namespace).await {
        Ok(written) => Ok(Some((*written).clone())),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

/// Under deletion, and it waits for us.
fn is_ours(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    meta::is_deleting(&namespace.metadata) && finalizers.into_iter().flatten().any(|finalizer| finalizer == FINALIZER)
}

/// Every namespaced kind whose objects can be listed and deleted, each in its most stable version.
async fn discover(ctx: &Context) -> Result<Vec<ApiResource>> {
    let discovery = Discovery::new(ctx.client().kube().clone()).run_aggregated().await?;
    let mut kinds = vec![];
    for group in discovery.groups() {
        for (resource, able) in group.resources_by_stability() {
            // Both groups of Event are one storage; asking once is enough.
            let twice = resource.kind == "Event" && !resource.group.is_empty();
            if able.scope == Scope::Namespaced
                && able.supports_operation(verbs::LIST)
                && able.supports_operation(verbs::DELETE)
                && !twice
            {
                kinds.push(resource);
            }
        }
    }
    Ok(kinds)
}

fn is_pod(resource: &ApiResource) -> bool {
    resource.group.is_empty() && resource.plural == "pods"
}

/// Deletes the content, pods first, and reports the rest of it.
async fn empty(ctx: &Context, kinds: &[ApiResource]) -> Found {
    let mut pods = Found::default();
    for kind in kinds.iter().filter(|kind| is_pod(kind)) {
        delete_all(ctx, kind, &mut pods).await;
    }
    if !pods.content_failures.is_empty() {
        return pods;
    }
    if !pods.remaining.is_empty() {
        // Pods that have their time to stop are not yet "remaining content": it is too early to tell the rest.
        // Kubernetes does the same.
        return Found::default();
    }
    let mut found = Found::default();
    for kind in kinds.iter().filter(|kind| !is_pod(kind)) {
        delete_all(ctx, kind, &mut found).await;
    }
    found
}

async fn pods_left(ctx: &Context) -> Result<bool> {
    let pods: Api<DynamicObject> = Api::namespaced_with(
        ctx.client().kube().clone(),
        ctx.request().name(),
        &ApiResource::erase::<kubewright::k8s_openapi::api::core::v1::Pod>(&()),
    );
    Ok(!pods
        .list_metadata(&ListParams::default().limit(1))
        .await?
        .items
        .is_empty())
}

async fn delete_all(ctx: &Context, kind: &ApiResource, found: &mut Found) {
    let api: Api<DynamicObject> = Api::namespaced_with(ctx.client().kube().clone(), ctx.request().name(), kind);
    let name = format!("{}.{}", kind.plural, kind.group);
    let failed = |error| format!("{name}: {}", super::plain(&kubewright::Error::from(error)));
    // Most kinds have no objects here: a list of one is cheaper than a delete of none, and causes no write.
    match api.list_metadata(&ListParams::default()).await {
        Ok(list) if list.items.is_empty() => return,
        Ok(_) => {}
        Err(error) => return found.content_failures.push(failed(error)),
    }
    let background = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    };
    if let Err(error) = api.delete_collection(&background, &ListParams::default()).await {
        found.content_failures.push(failed(error));
    }
    match api.list_metadata(&ListParams::default()).await {
        Ok(list) if list.items.is_empty() => {}
        Ok(list) => {
            found.remaining.insert(name, list.items.len());
            for finalizer in list
                .items
                .iter()
                .flat_map(|object| object.metadata.finalizers.iter().flatten())
            {
                *found.finalizers.entry(finalizer.clone()).or_default() += 1;
            }
        }
        Err(error) => found.content_failures.push(failed(error)),
    }
}

/// Takes our finalizer out of the spec, by the one request that may.
async fn finalize(ctx: &Context, mut namespace: Namespace) -> Result<()> {
    if let Some(finalizers) = namespace.spec.as_mut().and_then(|spec| spec.finalizers.as_mut()) {
        finalizers.retain(|finalizer| finalizer != FINALIZER);
    }
    let path = format!("/api/v1/namespaces/{}/finalize", ctx.request().name());
    let request = http::Request::put(path)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(serde_json::to_vec(&namespace)?)
        .map_err(kubewright::Error::terminal)?;
    match ctx
        .client()
        .kube()
        .request::<serde_json::Value>(request)
        .await
        .map_err(kubewright::Error::from)
    {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}
