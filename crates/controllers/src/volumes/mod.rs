//! Claims find their volumes, and volumes lose their claims (Kubernetes' persistent volume controller); and a
//! provisioner whose volumes exist in the API only, with the default StorageClass [`DEFAULT_CLASS`] that uses it.
//!
//! Invariants: the volume is bound first and the claim second, so that one volume never has two claims; a volume whose
//! claim is gone is never given to another without a person or its provisioner. One claim is looked at at a time.
//!
//! Not here: the choice of a node for claims that wait for their first pod (the scheduler says it).

pub(crate) mod binding;
mod expand;
mod reclaim;
pub(crate) mod topology;

use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::{Action, Client, Context, Controller, EventType, Reconciler, Request, Result, Scope, Stop, Watch};
use kubewright_objects::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, PersistentVolumeStatus, Pod};
use kubewright_objects::api::storage::v1::StorageClass;

use self::reclaim::Reclaim;
use kubewright_objects::{install, meta};

/// The class of claims that name none.
const DEFAULT_CLASS: &str = "standard";
/// The name that signs events.
const SIGNS: &str = "persistentvolume-controller";
/// The index of the volumes that may be for a claim.
const INDEX: &str = "spec.claimRef or spec.storageClassName";
const IS_DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";

/// Makes the default StorageClass. One of this name is left as it is.
pub(crate) async fn default_class(client: Client, stop: Stop) -> Result<()> {
    let class = StorageClass {
        metadata: ObjectMeta {
            name: Some(DEFAULT_CLASS.to_owned()),
            annotations: Some([(IS_DEFAULT.to_owned(), "true".to_owned())].into()),
            ..ObjectMeta::default()
        },
        provisioner: binding::SIMULATED.to_owned(),
        reclaim_policy: Some("Delete".to_owned()),
        volume_binding_mode: Some("Immediate".to_owned()),
        ..StorageClass::default()
    };
    install(&client, &class, &stop).await.map(drop)
}

/// Finds volumes for claims.
pub(crate) struct Claims;

/// The controller of claims.
pub(crate) fn claims() -> Controller {
    Controller::of(Claims)
        .named(SIGNS)
        .watches::<PersistentVolume>(|volume| claim_of(volume).into_iter().collect())
        // One that is kept for no claim may be for any that waits.
        .source(
            Watch::<PersistentVolume>::new()
                .when(|event| claim_of(event.object()).is_none())
                .all_where(is_unbound),
        )
        .indexes(INDEX, binding::index_keys)
        .source(Watch::<StorageClass>::new().all_where(is_unbound))
        // The pod that a claim waits for is named in its event; its node says where the volume is to be.
        .reads::<Pod>(Scope::all())
        .reads::<Node>(Scope::all())
}

/// Whether a claim waits for a volume.
fn is_unbound(claim: &PersistentVolumeClaim) -> bool {
    !binding::is_bound(claim) && !meta::is_deleting(&claim.metadata)
}

/// The claim that a volume is kept for.
fn claim_of(volume: &PersistentVolume) -> Option<Request> {
    let reference = volume.spec.as_ref()?.claim_ref.as_ref()?;
    Some(Request::new(reference.namespace.as_deref(), reference.name.as_deref()?))
}

impl Reconciler for Claims {
    type Object = PersistentVolumeClaim;

    async fn reconcile(&self, claim: Arc<PersistentVolumeClaim>, ctx: Context) -> Result<Action> {
        let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
        let named = named.filter(|name| !name.is_empty());
        if binding::is_bound(&claim) {
            return bound(&claim, named, &ctx).await;
        }
        if meta::is_deleting(&claim.metadata) {
            return Ok(Action::await_change());
        }
        match named {
            Some(name) => by_name(&claim, name, &ctx).await,
            None => by_size(&claim, &ctx).await,
        }
    }
}

/// A claim that was bound (`syncBoundClaim`): its volume is there, or it is lost.
async fn bound(claim: &PersistentVolumeClaim, named: Option<&str>, ctx: &Context) -> Result<Action> {
    let Some(name) = named else {
        let message = "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!";
        return lost(claim, "ClaimLost", message, ctx).await;
    };
    let Some(volume) = ctx.client().get::<PersistentVolume>(None, name).await? else {
        let message = "Bound claim has lost its PersistentVolume. Data on the volume is lost!";
        return lost(claim, "ClaimLost", message, ctx).await;
    };
    let taken = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
    if taken && !binding::is_for(&volume, claim) {
        let message = "Two claims are bound to the same volume, this one is bound incorrectly";
        return lost(claim, "ClaimMisbound", message, ctx).await;
    }
    bind_both(claim, &volume, ctx).await?;
    expand::grow(claim, &volume, ctx).await
}

async fn lost(claim: &PersistentVolumeClaim, reason: &str, message: &str, ctx: &Context) -> Result<Action> {
    if phase(claim) != Some("Lost") {
        ctx.event(claim, EventType::Warning, reason, message);
    }
    set_phase(claim, "Lost", ctx).await
}

fn phase(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.status.as_ref().and_then(|status| status.phase.as_deref())
}

async fn set_phase(claim: &PersistentVolumeClaim, phase: &str, ctx: &Context) -> Result<Action> {
    if self::phase(claim) != Some(phase) {
        let mut next = claim.clone();
        let status = next.status.get_or_insert_default();
        status.phase = Some(phase.to_owned());
        (status.access_modes, status.capacity) = (None, None);
        ctx.client().update_status(&next).await?;
    }
    Ok(Action::await_change())
}

/// A claim that names its volume.
async fn by_name(claim: &PersistentVolumeClaim, name: &str, ctx: &Context) -> Result<Action> {
    let Some(volume) = ctx.client().get::<PersistentVolume>(None, name).await? else {
        return set_phase(claim, "Pending", ctx).await;
    };
    let taken = volume.spec.as_ref().is_some_and(|spec| spec.claim_ref.is_some());
    if taken && !binding::is_for(&volume, claim) {
        let message = format!("volume \"{name}\" already bound to a different claim.");
        ctx.event(claim, EventType::Warning, "FailedBinding", &message);
        return set_phase(claim, "Pending", ctx).await;
    }
    if let Some(why) = binding::mismatch(&volume, claim).filter(|_| !taken) {
        let message = format!("Cannot bind to requested volume \"{name}\": {why}");
        ctx.event(claim, EventType::Warning, "VolumeMismatch", &message);
        return set_phase(claim, "Pending", ctx).await;
    }
    bind(claim, &volume, ctx).await
}

/// A claim that takes any volume that fits (`syncUnboundClaim`).
async fn by_size(claim: &PersistentVolumeClaim, ctx: &Context) -> Result<Action> {
    let name = binding::class(claim);
    let class = class_of(name, ctx).await?;
    let chosen = meta::annotation(&claim.metadata, binding::SELECTED_NODE).is_some();
    let delayed = class.as_deref().is_some_and(binding::waits);
    let volumes = binding::candidates(claim, INDEX, ctx).await?;
    let volumes: Vec<&PersistentVolume> = volumes.iter().map(|volume| &**volume).collect();
    if let Some(volume) = binding::best(claim, &volumes, delayed && !chosen) {
        return bind(claim, volume, ctx).await;
    }
    let unset = claim
        .spec
        .as_ref()
        .is_some_and(|spec| spec.storage_class_name.is_none());
    if unset
        && name.is_empty()
        && let Some(default) = default_of(ctx).await?
    {
        let mut next = claim.clone();
        next.spec.get_or_insert_default().storage_class_name = Some(default);
        ctx.client().update(&next).await?;
        return Ok(Action::await_change());
    }
    if delayed && !chosen {
        say_that_it_waits(claim, ctx).await?;
    } else if name.is_empty() {
        let message = "no persistent volumes available for this claim and no storage class is set";
        ctx.event(claim, EventType::Normal, "FailedBinding", message);
    } else {
        match class {
            Some(class) => return provision(claim, &class, ctx).await,
            None => {
                let message = format!("storageclass.storage.k8s.io \"{name}\" not found");
                ctx.event(claim, EventType::Warning, "ProvisioningFailed", &message);
            }
        }
    }
    set_phase(claim, "Pending", ctx).await
}

/// A class; the cache may be behind one that is as new as its first claim.
async fn class_of(name: &str, ctx: &Context) -> Result<Option<Arc<StorageClass>>> {
    match ctx.client().get::<StorageClass>(None, name).await? {
        None if !name.is_empty() => Ok(ctx.client().live::<StorageClass>(None, name).await?.map(Arc::new)),
        class => Ok(class),
    }
}

/// The newest of the classes that say they are the default.
async fn default_of(ctx: &Context) -> Result<Option<String>> {
    let classes = ctx.client().list::<StorageClass>(None).await?;
    let defaults = classes
        .iter()
        .filter(|class| meta::annotation(&class.metadata, IS_DEFAULT) == Some("true"));
    let newest = defaults.max_by_key(|class| meta::created(&class.metadata));
    Ok(newest.and_then(|class| class.metadata.name.clone()))
}

/// Why a claim waits: for a pod at all, or for the scheduler's choice (`emitEventForUnboundDelayBindingClaim`).
async fn say_that_it_waits(claim: &PersistentVolumeClaim, ctx: &Context) -> Result<()> {
    let pods = ctx.client().list::<Pod>(claim.metadata.namespace.as_deref()).await?;
    let users = pods.iter().filter(|pod| {
        let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
        let mut claims = volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref());
        kubewright_objects::pods::node_of(pod).is_none()
            && claims.any(|source| source.claim_name == meta::name(&claim.metadata))
    });
    let names: Vec<&str> = users.map(|pod| meta::name(&pod.metadata)).collect();
    let (reason, message) = match names.as_slice() {
        [] => (
            "WaitForFirstConsumer",
            "waiting for first consumer to be created before binding".to_owned(),
        ),
        [one] => ("WaitForPodScheduled", format!("waiting for pod {one} to be scheduled")),
        more => (
            "WaitForPodScheduled",
            format!("waiting for pods {} to be scheduled", more.join(",")),
        ),
    };
    ctx.event(claim, EventType::Normal, reason, &message);
    Ok(())
}

/// Makes a volume, or names the provisioner that is to make it.
async fn provision(claim: &PersistentVolumeClaim, class: &StorageClass, ctx: &Context) -> Result<Action> {
    let provisioner = class.provisioner.as_str();
    if provisioner == binding::SIMULATED {
        let chosen = meta::annotation(&claim.metadata, binding::SELECTED_NODE).filter(|_| binding::waits(class));
        let node = match chosen {
            Some(chosen) => ctx.client().get::<Node>(None, chosen).await?,
            None => None,
        };
        if let Some(chosen) = chosen.filter(|_| !node.as_ref().is_some_and(|node| topology::serves(class, node))) {
            let message = format!("node \"{chosen}\" is not there, or not in allowedTopologies of the class");
            ctx.event(claim, EventType::Warning, "ProvisioningFailed", &message);
            return set_phase(claim, "Pending", ctx).await;
        }
        let mut volume = binding::provisioned(claim, class);
        volume.spec.get_or_insert_default().node_affinity = topology::of(class, node.as_deref());
        let name = meta::name(&volume.metadata).to_owned();
        match ctx.client().create(&volume).await {
            Err(error) if !error.is_already_exists() => return Err(error),
            _ => {}
        }
        let message = format!("Successfully provisioned volume {name}");
        ctx.event(claim, EventType::Normal, "ProvisioningSucceeded", &message);
        // The new volume is kept for this claim, and its coming leads back here.
        return Ok(Action::await_change());
    }
    if provisioner.starts_with("kubernetes.io/") {
        let message = format!("no volume plugin matched name: {provisioner}");
        ctx.event(claim, EventType::Warning, "ProvisioningFailed", &message);
        return set_phase(claim, "Pending", ctx).await;
    }
    if meta::annotation(&claim.metadata, binding::PROVISIONER) != Some(provisioner) {
        let mut next = claim.clone();
        binding::annotate(&mut next.metadata, binding::PROVISIONER_BETA, provisioner);
        binding::annotate(&mut next.metadata, binding::PROVISIONER, provisioner);
        ctx.client().update(&next).await?;
    }
    let message = format!(
        "Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system administrator. \
         If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    );
    ctx.event(claim, EventType::Normal, "ExternalProvisioning", &message);
    Ok(Action::await_change())
}

/// Binds both sides, as far as they are not bound.
async fn bind(claim: &PersistentVolumeClaim, volume: &PersistentVolume, ctx: &Context) -> Result<Action> {
    bind_both(claim, volume, ctx).await?;
    Ok(Action::await_change())
}

async fn bind_both(claim: &PersistentVolumeClaim, volume: &PersistentVolume, ctx: &Context) -> Result<()> {
    let mut volume = volume.clone();
    if let Some(next) = binding::volume_for(&volume, claim) {
        volume = (*ctx.client().update(&next).await?).clone();
    }
    set_volume_phase(&volume, "Bound", ctx).await?;
    let mut claim = claim.clone();
    if let Some(next) = binding::claim_for(&claim, &volume) {
        claim = (*ctx.client().update(&next).await?).clone();
    }
    if let Some(next) = binding::status_for(&claim, &volume) {
        ctx.client().update_status(&next).await?;
    }
    Ok(())
}

async fn set_volume_phase(volume: &PersistentVolume, phase: &str, ctx: &Context) -> Result<()> {
    let present = volume.status.as_ref();
    if present.is_some_and(|status| status.phase.as_deref() == Some(phase) && status.message.is_none()) {
        return Ok(());
    }
    let mut next = volume.clone();
    let status = next.status.get_or_insert_default();
    (status.phase, status.message) = (Some(phase.to_owned()), None);
    match ctx.client().update_status(&next).await {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

/// Says that a volume could not be reclaimed, once (`updateVolumePhaseWithEvent`).
async fn fail(volume: &PersistentVolume, reason: &str, message: &str, ctx: &Context) -> Result<()> {
    let present = volume.status.as_ref();
    let said = |status: &&PersistentVolumeStatus| {
        status.phase.as_deref() == Some("Failed") && status.message.as_deref() == Some(message)
    };
    if present.filter(said).is_some() {
        return Ok(());
    }
    let mut next = volume.clone();
    let status = next.status.get_or_insert_default();
    (status.phase, status.message) = (Some("Failed".to_owned()), Some(message.to_owned()));
    match ctx.client().update_status(&next).await {
        Err(error) if error.is_not_found() => Ok(()),
        Err(error) => Err(error),
        Ok(_) => {
            ctx.event_as(SIGNS, volume, EventType::Warning, reason, message);
            Ok(())
        }
    }
}

/// Writes the state of volumes, and removes those that were made for a claim which is gone.
pub(crate) struct Volumes;

/// The controller of volumes.
pub(crate) fn volumes() -> Controller {
    Controller::of(Volumes)
        .named("persistentvolume-reclaimer")
        .watches::<PersistentVolumeClaim>(|claim| {
            let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            named.map(|name| Request::new(None, name)).into_iter().collect()
        })
}

impl Reconciler for Volumes {
    type Object = PersistentVolume;

    async fn reconcile(&self, volume: Arc<PersistentVolume>, ctx: Context) -> Result<Action> {
        let reference = volume.spec.as_ref().and_then(|spec| spec.claim_ref.as_ref());
        let Some(uid) = reference
            .and_then(|reference| reference.uid.as_deref())
            .filter(|uid| !uid.is_empty())
        else {
            set_volume_phase(&volume, "Available", &ctx).await?;
            return Ok(Action::await_change());
        };
        let Some(request) = claim_of(&volume) else {
            return Ok(Action::await_change());
        };
        let (namespace, name) = (request.namespace(), request.name());
        let same = |claim: &PersistentVolumeClaim| meta::uid(&claim.metadata) == uid;
        let cached = ctx.client().get::<PersistentVolumeClaim>(namespace, name).await?;
        if let Some(claim) = cached.filter(|claim| same(claim)) {
            let named = claim.spec.as_ref().and_then(|spec| spec.volume_name.as_deref());
            if named == volume.metadata.name.as_deref() {
                set_volume_phase(&volume, "Bound", &ctx).await?;
            }
            return Ok(Action::await_change());
        }
        // The cache may be behind a claim that is new, and a volume is not given away on a guess.
        let live = ctx.client().live::<PersistentVolumeClaim>(namespace, name).await?;
        if live.is_some_and(|claim| same(&claim)) {
            return Ok(Action::await_change());
        }
        let phase = volume.status.as_ref().and_then(|status| status.phase.as_deref());
        if !matches!(phase, Some("Released" | "Failed")) {
            // The change leads back here.
            set_volume_phase(&volume, "Released", &ctx).await?;
            return Ok(Action::await_change());
        }
        match reclaim::of(&volume) {
            Reclaim::Stay => {}
            Reclaim::Delete => drop(ctx.client().delete(&*volume).await?),
            Reclaim::Fail(reason, message) => fail(&volume, reason, &message, &ctx).await?,
        }
        Ok(Action::await_change())
    }
}
