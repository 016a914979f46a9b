//! ResourceClaims of pods (Kubernetes' resource claim controller): claims are made from templates, pods say which ones
//! are theirs, and claims forget pods that are done.
//!
//! Two controllers: `Pods` makes and reserves claims for pods, `Claims` cleans up. `plan` decides. Not here: the
//! allocation of devices, which needs a scheduler that knows drivers. A claim that a user allocates by hand is used.
//!
//! Invariant: one claim for each entry of a pod. The claim is found by its owner and its annotation, so that a
//! controller that dies between the two writes makes no second one.

pub(super) mod plan;

use std::sync::Arc;

use kubewright::kube::api::Patch;
use kubewright::{
    Action, AnyObject, Context, Controller, Error, EventType, Reconciler, Request, Result, Source, Watch,
};
use kubewright_objects::api::core::v1::{Pod, PodResourceClaim};
use kubewright_objects::api::resource::v1::{ResourceClaim, ResourceClaimTemplate};
use serde_json::json;

use kubewright_objects::meta;
use kubewright_objects::pods;

/// The field manager that writes the names of claims into the status of a pod.
const MANAGER: &str = "ResourceClaimController";
/// The finalizer of allocated claims.
const FINALIZER: &str = "resource.kubernetes.io/delete-protection";

/// Makes claims for pods, and reserves them.
pub(crate) struct Pods;

/// The controller of pods with claims.
pub(crate) fn pods() -> Controller {
    Controller::of(Pods)
        .named("resource_claim")
        .source(near(Watch::<ResourceClaimTemplate>::new()))
        .source(near(Watch::<ResourceClaim>::new()))
}

/// Wakes the pods with claims of the same namespace. There are so few that each looks itself whether it is meant.
fn near<K: AnyObject>(watch: Watch<K>) -> Source {
    watch.by_index(
        |pod: &Pod| match plan::entries(pod).is_empty() {
            true => vec![],
            false => pod.metadata.namespace.clone().into_iter().collect(),
        },
        |object| object.meta().namespace.clone().into_iter().collect(),
    )
}

impl Reconciler for Pods {
    type Object = Pod;

    async fn reconcile(&self, pod: Arc<Pod>, ctx: Context) -> Result<Action> {
        let entries = plan::entries(&pod);
        if entries.is_empty() || meta::is_deleting(&pod.metadata) {
            return Ok(Action::await_change());
        }
        let mut made = vec![];
        for entry in entries {
            match claim_for(&pod, entry, &ctx).await {
                Ok(name) => made.extend(name.map(|name| json!({ "name": entry.name, "resourceClaimName": name }))),
                Err((_, error)) if super::is_namespace_going(&error) => return Ok(Action::await_change()),
                Err((why, error)) => {
                    let why = format!("PodResourceClaim {}: {why}", entry.name);
                    ctx.event(&*pod, EventType::Warning, "FailedResourceClaimCreation", why);
                    return Err(error);
                }
            }
        }
        if !made.is_empty() {
            let name = meta::name(&pod.metadata);
            let status = json!({ "apiVersion": "v1", "kind": "Pod", "metadata": { "name": name, "uid": pod.metadata.uid },
                "status": { "resourceClaimStatuses": made } });
            let client = ctx.client().with_field_manager(MANAGER);
            let namespace = pod.metadata.namespace.as_deref();
            match client
                .patch_status::<Pod, _>(namespace, name, &Patch::Apply(status))
                .await
            {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                _ => {}
            }
        }
        reserve(&pod, &ctx).await?;
        Ok(Action::await_change())
    }
}

/// The name of the claim that a pod is to be told of, made if need be; none when it knows its claim, or the user is to
/// make it (`handleClaim`).
async fn claim_for(
    pod: &Pod,
    entry: &PodResourceClaim,
    ctx: &Context,
) -> std::result::Result<Option<String>, (String, Error)> {
    let told = |error: Error| (super::plain(&error), error);
    let Some(template) = &entry.resource_claim_template_name else {
        return Ok(None);
    };
    let (client, namespace) = (ctx.client(), pod.metadata.namespace.as_deref());
    match plan::told(pod, entry) {
        plan::ClaimStatus::Unneeded => return Ok(None),
        plan::ClaimStatus::Claim(name) => {
            let claim = client.get::<ResourceClaim>(namespace, name).await.map_err(told)?;
            if claim.is_some_and(|claim| plan::is_for(pod, &claim)) {
                return Ok(None);
            }
        }
        plan::ClaimStatus::Nothing => {}
    }
    let owned = client
        .owned_by::<ResourceClaim>(namespace, meta::uid(&pod.metadata))
        .await
        .map_err(told)?;
    let is_of_entry = |claim: &&Arc<ResourceClaim>| {
        plan::is_for(pod, claim) && meta::annotation(&claim.metadata, plan::ENTRY) == Some(&entry.name)
    };
    if let Some(claim) = owned.iter().find(is_of_entry) {
        return Ok(claim.metadata.name.clone());
    }
    let Some(found) = client
        .get::<ResourceClaimTemplate>(namespace, template)
        .await
        .map_err(told)?
    else {
        let why = format!(
            "resource claim template {template:?}: resourceclaimtemplate.resource.k8s.io {template:?} not found"
        );
        return Err((why.clone(), Error::retry(why)));
    };
    let made = client.create(&plan::claim(pod, entry, &found)).await;
    // The claim has no name yet where upstream says it.
    let made = made.map_err(|error| (format!("create ResourceClaim : {}", super::plain(&error)), error))?;
    Ok(made.metadata.name.clone())
}

/// Reserves allocated claims for a pod that was bound without a scheduler's help.
async fn reserve(pod: &Pod, ctx: &Context) -> Result<()> {
    if pods::node_of(pod).is_none() {
        return Ok(());
    }
    for entry in plan::entries(pod) {
        let Some(name) = plan::claim_name(pod, entry) else {
            continue;
        };
        let claim = ctx
            .client()
            .get::<ResourceClaim>(pod.metadata.namespace.as_deref(), name)
            .await?;
        let is_ours =
            |claim: &Arc<ResourceClaim>| entry.resource_claim_template_name.is_none() || plan::is_for(pod, claim);
        if let Some(next) = claim.filter(is_ours).and_then(|claim| plan::reserved(pod, &claim)) {
            ctx.client().update_status(&next).await?;
        }
    }
    Ok(())
}

/// Cleans up after pods that are done.
pub(crate) struct Claims;

/// The controller of claims.
pub(crate) fn claims() -> Controller {
    Controller::of(Claims)
        .named("resource_claim_cleanup")
        .watches::<Pod>(|pod| {
            let namespace = pod.metadata.namespace.as_deref();
            let names = plan::entries(pod)
                .iter()
                .filter_map(|entry| plan::claim_name(pod, entry));
            names.map(|name| Request::new(namespace, name)).collect()
        })
}

impl Reconciler for Claims {
    type Object = ResourceClaim;

    async fn reconcile(&self, claim: Arc<ResourceClaim>, ctx: Context) -> Result<Action> {
        let mut gone = vec![];
        for consumer in plan::pods_of(&claim) {
            if is_done(&claim, &consumer.name, &consumer.uid, &ctx).await? {
                gone.push(consumer.uid.clone());
            }
        }
        let remain = plan::remaining(&claim, &gone);
        let is_held = claim.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
        let is_unused = remain.is_empty();
        let mut next = (*claim).clone();
        if !gone.is_empty() || (is_held && is_unused && meta::is_deleting(&claim.metadata)) {
            let status = next.status.get_or_insert_default();
            status.reserved_for = Some(remain).filter(|remain| !remain.is_empty());
            if is_unused && is_held {
                status.allocation = None;
            }
            if next.status != claim.status {
                next = (*ctx.client().update_status(&next).await?).clone();
            }
            let is_allocated = next.status.as_ref().is_some_and(|status| status.allocation.is_some());
            if is_held && !is_allocated {
                next.metadata
                    .finalizers
                    .iter_mut()
                    .for_each(|all| all.retain(|one| one != FINALIZER));
                next = (*ctx.client().update(&next).await?).clone();
            }
        }
        let owner =
            meta::controller_of(&claim.metadata).filter(|owner| owner.kind == "Pod" && owner.api_version == "v1");
        if let Some(owner) = owner.filter(|_| is_unused && !meta::is_deleting(&next.metadata)) {
            let pod = ctx.client().get::<Pod>(ctx.request().namespace(), &owner.name).await?;
            // A pod that is gone takes its claims along by garbage collection.
            if pod.is_some_and(|pod| meta::uid(&pod.metadata) != owner.uid || plan::is_finished(&pod)) {
                ctx.client().delete(&next).await?;
            }
        }
        Ok(Action::await_change())
    }
}

/// Whether a pod that reserves a claim will not run any more. One that the cache does not have may be new.
async fn is_done(claim: &ResourceClaim, pod: &str, uid: &str, ctx: &Context) -> Result<bool> {
    let namespace = claim.metadata.namespace.as_deref();
    let is_other = |pod: &Pod| meta::uid(&pod.metadata) != uid;
    if let Some(pod) = ctx.client().get::<Pod>(namespace, pod).await? {
        return Ok(is_other(&pod) || plan::is_finished(&pod));
    }
    let live = ctx.client().live::<Pod>(namespace, pod).await?;
    Ok(live.is_none_or(|live| is_other(&live)))
}
