//! The ReplicaSet controller: as many pods as wished, of one template. The ReplicationController is the same on another
//! kind (`kinds`).
//!
//! A reconcile claims the pods that fit, creates or deletes pods up to the wanted number, looks at the pods again, and
//! writes the status. It counts views of them (`replica`): whole pods are read only to adopt, release or delete some. A
//! failure to make pods is written into the status before it is returned, so that it is both seen and retried (5 ms,
//! doubled each time).
//!
//! Why there are no expectations here: the second look, and the first one of the next reconcile, show our own creations
//! and deletions because the client reads its own writes. Counting them (client-go's `ControllerExpectations`) would be
//! a second, weaker bookkeeping.
//!
//! Invariants: failed and succeeded pods are neither counted nor deleted, they are replaced; a ReplicaSet under
//! deletion makes no pods and adopts none; pods of another controller are never touched.

mod kinds;
mod replica;
mod status;

use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;

use kubewright::kube::core::Selector;
use kubewright::{Action, Context, Controller, Error, Reconciler, Request, Result};
use kubewright_objects::api::apps::v1::{ReplicaSet, ReplicaSetStatus};
use kubewright_objects::api::core::v1::{Pod, ReplicationController};

use self::kinds::{Desired, Replicated};
use self::replica::{Labels, Replica};
use self::status::Failure;
use super::claim::{self, Selectors};
use super::pod_control::{self, BURST};
use kubewright_objects::meta;
use kubewright_objects::pods;

/// Knows all selectors, to find an owner for an orphaned pod; everything else is in the objects.
pub(crate) struct ReplicaReconciler<K> {
    selectors: Selectors,
    kind: PhantomData<fn() -> K>,
}

/// The controller of ReplicaSets, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    of_kind::<ReplicaSet>()
}

/// The controller of ReplicationControllers.
pub(crate) fn replication_controller() -> Controller {
    of_kind::<ReplicationController>()
}

fn of_kind<K: Replicated>() -> Controller {
    let selectors = Selectors::default();
    let reconciler = ReplicaReconciler::<K> {
        selectors: selectors.clone(),
        kind: PhantomData,
    };
    Controller::of(reconciler)
        .named(K::CONTROLLER)
        .owns::<Pod>()
        .watches::<Pod>(move |pod| selectors.for_orphan(&pod.metadata))
        .concurrency(5)
}

impl<K: Replicated> Reconciler for ReplicaReconciler<K> {
    type Object = K;

    async fn reconcile(&self, set: Arc<K>, ctx: Context) -> Result<Action> {
        let Some(desired) = set.desired() else {
            return Ok(Action::await_change());
        };
        let selector = meta::selector(&format!("{} {}", K::kind(&()), ctx.request()), &desired.selector)?;
        self.selectors.remember(ctx.request(), &selector);
        let labels = Labels::of(&selector, desired.labels());
        let fits = |replica: &Replica| labels.fit(replica);
        // Finished pods would not count, so there is no use in owning them.
        let mut owned = claim::views(&ctx, &*set, &selector, fits, |pod| !pods::is_finished(pod)).await?;
        let mut managed = Ok(());
        if !meta::is_deleting(set.meta()) {
            let active = owned.iter().filter(|replica| replica.is_active()).count();
            let wanted = usize::try_from(desired.replicas).unwrap_or(0);
            if active != wanted {
                managed = match active < wanted {
                    true => make(&ctx, &*set, &desired, wanted - active).await,
                    false => remove(&ctx, &*set, &selector, wanted).await,
                };
                owned = claim::owned_views(&ctx, &*set, fits).await?;
            }
        }
        let failure = managed.as_ref().err().map(|(failure, _)| failure);
        let status = status::of(&*set, &desired, &owned, &labels, failure, ctx.now());
        write_status(&ctx, &*set, status).await?;
        managed.map_err(|(_, error)| error)?;
        let min_ready = desired.min_ready_seconds;
        let active = owned.iter().filter(|replica| replica.is_active());
        let waits = active.map(|replica| replica.available_in(min_ready, ctx.now()));
        let again = pods::next_of(waits, min_ready);
        Ok(again.map_or_else(Action::await_change, Action::requeue_after))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selectors.forget(&request);
        Ok(Action::await_change())
    }
}

async fn write_status<K: Replicated>(ctx: &Context, set: &K, status: ReplicaSetStatus) -> Result<()> {
    let written = set.with(status);
    // Compared as each kind stores it: one of them has no count of terminating pods.
    if written.present() == set.present() {
        return Ok(());
    }
    match ctx.client().update_status(&written).await {
        // Gone meanwhile: there is nothing to write to, and nothing to retry.
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

fn failed(reason: &'static str) -> impl Fn(Error) -> (Failure, Error) {
    move |error| {
        let message = super::plain(&error);
        (Failure { reason, message }, error)
    }
}

/// Makes the pods that are missing, [`BURST`] of them at most.
async fn make<K: Replicated>(
    ctx: &Context,
    set: &K,
    desired: &Desired,
    missing: usize,
) -> Result<(), (Failure, Error)> {
    let new = vec![pod_control::from_template(&desired.template, set); missing.min(BURST)];
    let made = pod_control::create(ctx, set, &new).await;
    made.map_err(failed("FailedCreate"))
}

/// Deletes the pods that are too many, [`BURST`] of them at most.
async fn remove<K: Replicated>(
    ctx: &Context,
    set: &K,
    selector: &Selector,
    wanted: usize,
) -> Result<(), (Failure, Error)> {
    let removing = async {
        let (namespace, uid) = (ctx.request().namespace(), meta::uid(set.meta()));
        let owned = ctx.client().owned_by::<Pod>(namespace, uid).await?;
        let counts = |pod: &&Pod| meta::fits(selector, &pod.metadata) && pods::is_active(pod);
        let active: Vec<&Pod> = owned.iter().map(|pod| &**pod).filter(counts).collect();
        let surplus = active.len().saturating_sub(wanted).min(BURST);
        let related = related_pods::<K>(ctx, set, &active).await?;
        let related: Vec<&Pod> = related.iter().map(|pod| &**pod).collect();
        let victims = pods::to_delete(&active, &related, surplus);
        pod_control::delete(ctx, set, &victims).await
    };
    removing.await.map_err(failed("FailedDelete"))
}

/// The pods of all siblings (ReplicaSets of the same Deployment): they make a node crowded. Without nodes there is no
/// crowd and no need to look.
async fn related_pods<K: Replicated>(ctx: &Context, set: &K, active: &[&Pod]) -> Result<Vec<Arc<Pod>>> {
    let bound = active
        .iter()
        .any(|pod| pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some()));
    if !bound {
        return Ok(vec![]);
    }
    let (client, namespace) = (ctx.client(), ctx.request().namespace());
    let mut owners: BTreeSet<String> = [meta::uid(set.meta()).to_owned()].into();
    if let Some(controller) = meta::controller_of(set.meta()) {
        let siblings = client.owned_by::<K>(namespace, &controller.uid).await?;
        owners.extend(siblings.iter().map(|sibling| meta::uid(sibling.meta()).to_owned()));
    }
    let mut related = vec![];
    for owner in &owners {
        related.extend(client.owned_by::<Pod>(namespace, owner).await?);
    }
    Ok(related)
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
                    "metadata": { "labels": { "app": "web" }, "annotations": { "a": "b" },
                                  "finalizers": ["example.com/f"] },
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
        let pod = pod_control::from_template(&set.desired().expect("a spec").template, &set);
        assert_eq!(serde_json::to_value(pod).expect("JSON"), expected);
    }
}
