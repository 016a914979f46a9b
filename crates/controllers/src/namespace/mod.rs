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

use kubewright::kube::Client;
use kubewright::kube::api::{DeleteParams, ListParams, PropagationPolicy};
use kubewright::kube::core::ApiResource;
use kubewright::kube::discovery::{Discovery, Scope, verbs};
use kubewright::{Action, Context, Controller, Reconciler, Request, Result};
use kubewright_objects::api::core::v1::Namespace;

use self::conditions::Found;
use super::unstructured::{UnstructuredApi, finalizers};
use kubewright_objects::meta;

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
        let content = match discover(&ctx).await {
            Ok(kinds) => empty(ctx.client().kube(), ctx.request().name(), &kinds).await,
            Err(error) => Content::Found(Found {
                discovery_failure: Some(super::plain(&error)),
                ..Found::default()
            }),
        };
        // Reported before the end as well: another finalizer may keep the namespace, and its conditions then list the
        // remaining content.
        let Some(namespace) = say(&ctx, namespace, &content.found()).await? else {
            return Ok(Action::await_change());
        };
        if content.is_gone() {
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

/// How far a look at the content came.
#[derive(Debug, PartialEq, Eq)]
enum Content {
    /// Pods are still stopping. Nothing else was looked at, so the namespace is not empty, whatever became of the pods
    /// since.
    PodsStopping,
    /// Every kind was looked at.
    Found(Found),
}

impl Content {
    /// What the conditions report. Pods that have their time to stop are not yet "remaining content": it is too early
    /// to tell the rest. Kubernetes does the same (`deleteAllContent`).
    fn found(&self) -> Found {
        match self {
            Content::PodsStopping => Found::default(),
            Content::Found(found) => found.clone(),
        }
    }

    fn is_gone(&self) -> bool {
        matches!(self, Content::Found(found) if found.is_empty())
    }
}

/// Deletes the content, pods first, and reports the rest of it.
async fn empty(kube: &Client, namespace: &str, kinds: &[ApiResource]) -> Content {
    let mut pods = Found::default();
    for kind in kinds.iter().filter(|kind| is_pod(kind)) {
        delete_all(kube, namespace, kind, &mut pods).await;
    }
    if !pods.content_failures.is_empty() {
        return Content::Found(pods);
    }
    if !pods.remaining.is_empty() {
        return Content::PodsStopping;
    }
    let mut found = Found::default();
    for kind in kinds.iter().filter(|kind| !is_pod(kind)) {
        delete_all(kube, namespace, kind, &mut found).await;
    }
    Content::Found(found)
}

async fn delete_all(kube: &Client, namespace: &str, kind: &ApiResource, found: &mut Found) {
    let api = UnstructuredApi::new(kube, kind, namespace);
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
    if let Err(error) = api.delete_collection(&background).await {
        found.content_failures.push(failed(error));
    }
    match api.list_metadata(&ListParams::default()).await {
        Ok(list) if list.items.is_empty() => {}
        Ok(list) => {
            found.remaining.insert(name, list.items.len());
            for finalizer in list.items.iter().flat_map(finalizers) {
                *found.finalizers.entry(finalizer.to_owned()).or_default() += 1;
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

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use http_body_util::Full;
    use kubewright_objects::api::core::v1::{ConfigMap, Pod};
    use serde_json::json;

    use super::*;

    type Log = Arc<Mutex<Vec<String>>>;

    /// An API whose lists of a resource have these numbers of objects, one after the other, and then none.
    fn api(lists: &[(&str, &[usize])]) -> (Client, Log) {
        let mut counts: BTreeMap<String, VecDeque<usize>> = lists
            .iter()
            .map(|(resource, counts)| ((*resource).to_owned(), counts.iter().copied().collect()))
            .collect();
        let log = Log::default();
        let written = log.clone();
        let service = tower::service_fn(move |request: http::Request<_>| {
            let resource = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
            let is_list = request.method() == http::Method::GET;
            written.lock().unwrap().push(format!("{} {resource}", request.method()));
            let next = is_list.then(|| counts.get_mut(&resource).and_then(VecDeque::pop_front));
            let items: Vec<_> = (0..next.flatten().unwrap_or_default())
                .map(|number| json!({ "metadata": { "name": format!("{resource}-{number}") } }))
                .collect();
            let list = json!({
                "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {}, "items": items,
            });
            let _: kubewright::kube::client::Body = request.into_body();
            std::future::ready(Ok::<_, std::convert::Infallible>(http::Response::new(Full::from(
                list.to_string(),
            ))))
        });
        (Client::new(service, "default"), log)
    }

    #[tokio::test]
    async fn a_namespace_is_empty_only_after_every_kind_was_looked_at() {
        let kinds = [ApiResource::erase::<ConfigMap>(&()), ApiResource::erase::<Pod>(&())];
        let check = async |lists: &[(&str, &[usize])], requests: &[&str], is_gone: bool| {
            let (kube, log) = api(lists);
            let content = empty(&kube, "house", &kinds).await;
            assert_eq!(*log.lock().unwrap(), requests, "{lists:?}");
            assert_eq!(content.is_gone(), is_gone, "{lists:?}: {content:?}");
        };
        check(&[], &["GET pods", "GET configmaps"], true).await;
        // The pods may be gone a moment later, but the ConfigMaps were not looked at.
        check(
            &[("pods", &[1, 1]), ("configmaps", &[1])],
            &["GET pods", "DELETE pods", "GET pods"],
            false,
        )
        .await;
        let all = [
            "GET pods",
            "DELETE pods",
            "GET pods",
            "GET configmaps",
            "DELETE configmaps",
            "GET configmaps",
        ];
        check(&[("pods", &[1]), ("configmaps", &[1])], &all, true).await;
        check(&[("pods", &[1]), ("configmaps", &[2, 1])], &all, false).await;
    }
}
