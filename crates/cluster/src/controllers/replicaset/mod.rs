//! The ReplicaSet controller: as many pods as wished, of one template.
//!
//! A reconcile claims the pods that fit, makes or deletes what the number asks for, looks at the pods again, and writes what it sees. A
//! failure to make pods is written into the status before it is returned, so that it is both seen and retried (5 ms, doubled each time).
//!
//! Why there are no expectations here: the second look, and the first one of the next reconcile, show our own creations and deletions
//! because the client reads its own writes. Counting them (client-go's `ControllerExpectations`) would be a second, weaker bookkeeping.
//!
//! Invariants: failed and succeeded pods are neither counted nor deleted, they are replaced; a ReplicaSet under deletion makes no pods and
//! adopts none; pods of another controller are never touched.

mod status;

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::future::join_all;
use kubewright::k8s_openapi::api::apps::v1::ReplicaSet;
use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::kube::core::Selector;
use kubewright::{Action, Context, Controller, Error, EventType, Reconciler, Request, Result};

use self::status::Failure;
use super::claim::{self, Claim, Selectors};
use super::{meta, pods};

/// How many pods one reconcile makes or deletes at most; the rest is the next one's.
const BURST: usize = 500;

/// Knows who selects what, to find a ReplicaSet for an orphaned pod; everything else is in the objects.
#[derive(Default)]
pub(crate) struct ReplicaSetReconciler {
    selectors: Selectors,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    let reconciler = ReplicaSetReconciler::default();
    let selectors = reconciler.selectors.clone();
    Controller::of(reconciler)
        .named("replicaset-controller")
        .owns::<Pod>()
        .watches::<Pod>(move |pod| selectors.for_orphan(&pod.metadata))
        .concurrency(5)
}

impl Reconciler for ReplicaSetReconciler {
    type Object = ReplicaSet;

    async fn reconcile(&self, set: Arc<ReplicaSet>, ctx: Context) -> Result<Action> {
        let Some(spec) = set.spec.as_ref() else {
            return Ok(Action::await_change());
        };
        let selector = meta::selector(&format!("ReplicaSet {}", ctx.request()), &spec.selector)?;
        self.selectors.remember(ctx.request(), &selector);
        let mut owned = claim_pods(&ctx, &set, &selector).await?;
        let mut managed = Ok(());
        if !meta::is_deleting(&set.metadata) {
            let active: Vec<&Pod> = owned
                .iter()
                .map(|pod| &**pod)
                .filter(|pod| pods::is_active(pod))
                .collect();
            let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
            if active.len() != wanted {
                managed = match active.len() < wanted {
                    true => create(&ctx, &set, (wanted - active.len()).min(BURST)).await,
                    false => delete(&ctx, &set, &active, (active.len() - wanted).min(BURST)).await,
                };
                owned = ctx
                    .client()
                    .owned_by::<Pod>(ctx.request().namespace(), meta::uid(&set.metadata))
                    .await?;
                owned.retain(|pod| meta::fits(&selector, &pod.metadata));
            }
        }
        let owned: Vec<&Pod> = owned.iter().map(|pod| &**pod).collect();
        let failure = managed.as_ref().err().map(|(failure, _)| failure);
        let mut written = (*set).clone();
        written.status = Some(status::of(&set, &owned, failure, ctx.now()));
        if written.status != set.status {
            match ctx.client().update_status(&written).await {
                Ok(_) => {}
                // Gone meanwhile: nobody is left to tell, and nothing to retry.
                Err(error) if error.is_not_found() => return Ok(Action::await_change()),
                Err(error) => return Err(error),
            }
        }
        managed.map_err(|(_, error)| error)?;
        Ok(next_look(&ctx, spec.min_ready_seconds.unwrap_or(0), &owned))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selectors.forget(&request);
        Ok(Action::await_change())
    }
}

/// With minReadySeconds time alone makes a ready pod available, so time has to wake us.
fn next_look(ctx: &Context, min_ready_seconds: i32, owned: &[&Pod]) -> Action {
    if min_ready_seconds <= 0 {
        return Action::await_change();
    }
    let waits = owned
        .iter()
        .filter(|pod| pods::is_active(pod))
        .filter_map(|pod| pods::available_in(pod, min_ready_seconds, ctx.now()));
    let soonest = waits.filter(|wait| !wait.is_zero()).min();
    soonest.map_or_else(Action::await_change, Action::requeue_after)
}

/// All pods of the ReplicaSet (finished and terminating ones too), after adoption and release.
async fn claim_pods(ctx: &Context, set: &ReplicaSet, selector: &Selector) -> Result<Vec<Arc<Pod>>> {
    let client = ctx.client();
    let (mut ours, mut may_adopt) = (vec![], None);
    for pod in client.list::<Pod>(ctx.request().namespace()).await? {
        match claim::decide(&set.metadata, selector, &pod.metadata) {
            Claim::Owned => ours.push(pod),
            Claim::Ignore => {}
            Claim::Release => drop(claim::release(client, &*pod, meta::uid(&set.metadata)).await?),
            // Finished pods would not count, so there is no use in owning them.
            Claim::Adopt if pods::is_finished(&pod) => {}
            Claim::Adopt => {
                if may_adopt.is_none() {
                    may_adopt = Some(claim::may_adopt(client, set).await?);
                }
                if may_adopt == Some(true) {
                    let owner = meta::controller_reference("apps/v1", "ReplicaSet", &set.metadata);
                    ours.extend(claim::adopt(client, &*pod, owner).await?);
                }
            }
        }
    }
    Ok(ours)
}

/// Makes pods in batches of 1, 2, 4, 8 …: when the first is refused, hundreds of others need not ask.
async fn create(ctx: &Context, set: &ReplicaSet, count: usize) -> Result<(), (Failure, Error)> {
    let pod = new_pod(set);
    let (mut left, mut batch) = (count, 1);
    while left > 0 {
        let size = left.min(batch);
        let results = join_all((0..size).map(|_| ctx.client().create(&pod))).await;
        let mut failed = None;
        for result in results {
            match result {
                Ok(pod) => {
                    let message = format!("Created pod: {}", meta::name(&pod.metadata));
                    ctx.event(set, EventType::Normal, "SuccessfulCreate", &message);
                }
                // Everything in the namespace is about to go, this ReplicaSet too.
                Err(error) if super::is_namespace_going(&error) => return Ok(()),
                Err(error) => {
                    let message = super::plain(&error);
                    ctx.event(
                        set,
                        EventType::Warning,
                        "FailedCreate",
                        format!("Error creating: {message}"),
                    );
                    failed.get_or_insert((
                        Failure {
                            reason: "FailedCreate",
                            message,
                        },
                        error,
                    ));
                }
            }
        }
        if let Some(failed) = failed {
            return Err(failed);
        }
        left -= size;
        batch *= 2;
    }
    Ok(())
}

async fn delete(ctx: &Context, set: &ReplicaSet, active: &[&Pod], count: usize) -> Result<(), (Failure, Error)> {
    let failed = |error: Error| {
        (
            Failure {
                reason: "FailedDelete",
                message: super::plain(&error),
            },
            error,
        )
    };
    let related = related_pods(ctx, set, active).await.map_err(failed)?;
    let related: Vec<&Pod> = related.iter().map(|pod| &**pod).collect();
    let victims = pods::to_delete(active, &related, count);
    let results = join_all(victims.iter().map(|pod| ctx.client().delete(*pod))).await;
    let mut failure = None;
    for (pod, result) in std::iter::zip(&victims, results) {
        let name = meta::name(&pod.metadata);
        match result {
            Ok(_) => ctx.event(
                set,
                EventType::Normal,
                "SuccessfulDelete",
                format!("Deleted pod: {name}"),
            ),
            Err(error) => {
                ctx.event(
                    set,
                    EventType::Warning,
                    "FailedDelete",
                    format!("Error deleting: {}", super::plain(&error)),
                );
                failure.get_or_insert_with(|| failed(error));
            }
        }
    }
    failure.map_or(Ok(()), Err)
}

/// The pods of all ReplicaSets of the same Deployment: what makes a node crowded. Without nodes there is no crowd and no need to look.
async fn related_pods(ctx: &Context, set: &ReplicaSet, active: &[&Pod]) -> Result<Vec<Arc<Pod>>> {
    let bound = active
        .iter()
        .any(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    if !bound {
        return Ok(vec![]);
    }
    let (client, namespace) = (ctx.client(), ctx.request().namespace());
    let mut owners: BTreeSet<String> = [meta::uid(&set.metadata).to_owned()].into();
    if let Some(controller) = meta::controller_of(&set.metadata) {
        let siblings = client.owned_by::<ReplicaSet>(namespace, &controller.uid).await?;
        owners.extend(siblings.iter().map(|sibling| meta::uid(&sibling.metadata).to_owned()));
    }
    let mut related = vec![];
    for owner in &owners {
        related.extend(client.owned_by::<Pod>(namespace, owner).await?);
    }
    Ok(related)
}

fn new_pod(set: &ReplicaSet) -> Pod {
    let template = set
        .spec
        .as_ref()
        .and_then(|spec| spec.template.clone())
        .unwrap_or_default();
    let template_meta = template.metadata.unwrap_or_default();
    Pod {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&set.metadata))),
            namespace: set.metadata.namespace.clone(),
            labels: template_meta.labels,
            annotations: template_meta.annotations,
            finalizers: template_meta.finalizers,
            owner_references: Some(vec![meta::controller_reference("apps/v1", "ReplicaSet", &set.metadata)]),
            ..ObjectMeta::default()
        },
        spec: template.spec,
        status: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod_is_what_the_template_says() {
        let set: ReplicaSet = serde_json::from_value(json!({
            "metadata": { "name": "web", "namespace": "default", "uid": "u" },
            "spec": {
                "selector": {},
                "template": {
                    "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" }, "finalizers": ["example.com/f"] },
                    "spec": { "containers": [{ "name": "c", "image": "app:1" }] },
                },
            },
        }))
        .expect("a ReplicaSet");
        let expected = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "generateName": "web-", "namespace": "default", "labels": { "app": "web" }, "annotations": { "a": "b" },
                "finalizers": ["example.com/f"],
                "ownerReferences": [{ "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
                                      "controller": true, "blockOwnerDeletion": true }],
            },
            "spec": { "containers": [{ "name": "c", "image": "app:1" }] },
        });
        assert_eq!(serde_json::to_value(new_pod(&set)).expect("JSON"), expected);
    }
}
