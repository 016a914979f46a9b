//! The StatefulSet controller: pods with names, an order, and claims of their own.
//!
//! A reconcile finds the revisions (`history`), decides (`plan`), acts, looks at the pods again and writes the status
//! (`status`). Events wake it while it waits: a change of a pod, of a claim, or minReadySeconds.
//!
//! Invariants: there is never a second pod of an ordinal, because its name is taken; claims come before their pod; a
//! set under deletion makes and deletes nothing. Not here: the deletion of pods and claims with their set, which is the
//! garbage collector's.

mod claims;
mod plan;
mod status;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use kubewright::{Action, Context, Controller, Error, EventType, Reconciler, Request, Result};
use kubewright_objects::api::apps::v1::{ControllerRevision, StatefulSet, StatefulSetSpec};
use kubewright_objects::api::core::v1::{PersistentVolumeClaim, Pod, PodTemplateSpec};

use self::claims::Policy;
use self::plan::{Shape, Step};
use super::claim::{self, Selectors};
use super::{history, intstr, plain, pod_control};
use kubewright_model::Minor;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The label of a pod with its name.
const POD_NAME: &str = "statefulset.kubernetes.io/pod-name";
/// The label of a pod with its ordinal.
const POD_INDEX: &str = "apps.kubernetes.io/pod-index";

/// Knows all selectors, to find a StatefulSet for an orphaned pod; everything else is in the objects.
pub(crate) struct StatefulSetReconciler {
    minor: Minor,
    selectors: Selectors,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller(minor: Minor) -> Controller {
    let reconciler = StatefulSetReconciler {
        minor,
        selectors: Selectors::default(),
    };
    let selectors = reconciler.selectors.clone();
    Controller::of(reconciler)
        .named("statefulset-controller")
        .owns::<Pod>()
        .owns::<ControllerRevision>()
        .watches::<Pod>(move |pod| selectors.for_orphan(&pod.metadata))
        .watches::<PersistentVolumeClaim>(sets_of_claim)
        .concurrency(5)
}

/// The sets that may wait for a claim to go or to change: those that its owners name, as sets or as pods of a set.
fn sets_of_claim(claim: &PersistentVolumeClaim) -> Vec<Request> {
    let owners = claim.metadata.owner_references.iter().flatten();
    let named = owners.filter_map(|owner| match owner.kind.as_str() {
        "StatefulSet" => Some(owner.name.as_str()),
        "Pod" => owner.name.rsplit_once('-').map(|(set, _)| set),
        _ => None,
    });
    named
        .map(|set| Request::new(claim.metadata.namespace.as_deref(), set))
        .collect()
}

impl Reconciler for StatefulSetReconciler {
    type Object = StatefulSet;

    async fn reconcile(&self, set: Arc<StatefulSet>, ctx: Context) -> Result<Action> {
        let Some(spec) = set.spec.as_ref() else {
            return Ok(Action::await_change());
        };
        let selector = meta::selector(&format!("StatefulSet {}", ctx.request()), &spec.selector)?;
        self.selectors.remember(ctx.request(), &selector);
        let mut revisions = claim::all(&ctx, &*set, &selector, |_: &ControllerRevision| true).await?;
        history::sort(&mut revisions);
        let name = meta::name(&set.metadata);
        let is_member = |pod: &Pod| plan::ordinal(name, meta::name(&pod.metadata)).is_some();
        let mut pods = claim::all(&ctx, &*set, &selector, is_member).await?;
        pods.retain(|pod| is_member(pod));
        if meta::is_deleting(&set.metadata) {
            // Nothing is made any more, no revision either: those that were may be orphans already, for a set to come.
            self.write_status(&ctx, &set, &pods, status::Revisions::of(&set))
                .await?;
            return Ok(Action::await_change());
        }
        let sync = match Sync::new(&ctx, &set, spec, &mut revisions).await {
            // Its revisions went before it.
            Err(error) if super::is_namespace_going(&error) => return Ok(Action::await_change()),
            sync => sync?,
        };
        let acted = sync.act(&pods).await;
        pods = ctx
            .client()
            .owned_by::<Pod>(ctx.request().namespace(), meta::uid(&set.metadata))
            .await?;
        pods.retain(|pod| is_member(pod) && meta::fits(&selector, &pod.metadata));
        self.write_status(&ctx, &set, &pods, sync.revisions()).await?;
        acted?;
        sync.forget(&revisions, &pods).await?;
        let again = pods::next_availability(
            pods.iter().map(|pod| &**pod),
            spec.min_ready_seconds.unwrap_or(0),
            ctx.now(),
        );
        Ok(again.map_or_else(Action::await_change, |wait| {
            // Stored times are whole seconds, the clock is not.
            Action::requeue_after(wait.saturating_add(Duration::from_millis(10)))
        }))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selectors.forget(&request);
        Ok(Action::await_change())
    }
}

impl StatefulSetReconciler {
    async fn write_status(
        &self,
        ctx: &Context,
        set: &StatefulSet,
        pods: &[Arc<Pod>],
        revisions: status::Revisions<'_>,
    ) -> Result<()> {
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let status = status::of(set, &pods, revisions, ctx.now(), self.minor);
        if set.status.as_ref() == Some(&status) {
            return Ok(());
        }
        let written = StatefulSet {
            status: Some(status),
            ..set.clone()
        };
        match ctx.client().update_status(&written).await {
            // Gone meanwhile: there is nothing to write to.
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }
}

/// One reconcile of one StatefulSet.
struct Sync<'a> {
    ctx: &'a Context,
    set: &'a StatefulSet,
    spec: &'a StatefulSetSpec,
    current: Arc<ControllerRevision>,
    update: Arc<ControllerRevision>,
    collisions: i32,
}

impl<'a> Sync<'a> {
    async fn new(
        ctx: &'a Context,
        set: &'a StatefulSet,
        spec: &'a StatefulSetSpec,
        revisions: &mut Vec<Arc<ControllerRevision>>,
    ) -> Result<Sync<'a>> {
        let status = set.status.as_ref();
        let mut collisions = status.and_then(|status| status.collision_count).unwrap_or(0);
        let update = history::present(
            ctx,
            set,
            &spec.template,
            history::HASH_LABEL,
            &mut collisions,
            revisions,
        )
        .await?;
        let current_name = status.and_then(|status| status.current_revision.as_deref());
        let current = revisions
            .iter()
            .find(|revision| revision.metadata.name.as_deref() == current_name)
            .unwrap_or(&update)
            .clone();
        Ok(Sync {
            ctx,
            set,
            spec,
            current,
            update,
            collisions,
        })
    }

    fn shape(&self) -> Shape<'_> {
        let strategy = self.spec.update_strategy.as_ref();
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.as_ref());
        let replicas = self.spec.replicas.unwrap_or(1).max(0);
        let number = |number: i32| usize::try_from(number).unwrap_or(0);
        Shape {
            name: meta::name(&self.set.metadata),
            start: number(
                self.spec
                    .ordinals
                    .as_ref()
                    .and_then(|ordinals| ordinals.start)
                    .unwrap_or(0),
            ),
            replicas: number(replicas),
            ordered: self.spec.pod_management_policy.as_deref() != Some("Parallel"),
            min_ready_seconds: self.spec.min_ready_seconds.unwrap_or(0),
            on_delete: strategy.and_then(|strategy| strategy.type_.as_deref()) == Some("OnDelete"),
            partition: number(rolling.and_then(|rolling| rolling.partition).unwrap_or(0)),
            max_unavailable: rolling
                .and_then(|rolling| rolling.max_unavailable.as_ref())
                .map(|max| number(intstr::resolve(max, replicas, false).max(1))),
            update_revision: meta::name(&self.update.metadata),
        }
    }

    /// Takes the next steps: in order one after the other, in parallel in batches of 1, 2, 4, 8 …
    async fn act(&self, pods: &[Arc<Pod>]) -> Result<()> {
        let shape = self.shape();
        let pods: Vec<&Pod> = pods.iter().map(|pod| &**pod).collect();
        let steps = plan::plan(&shape, &pods, self.ctx.now());
        let (mut rest, mut batch) = (steps.as_slice(), 1);
        while !rest.is_empty() {
            let (now, later) = rest.split_at(rest.len().min(batch));
            let results = join_all(now.iter().map(|step| self.take(&shape, step))).await;
            for result in results {
                match result {
                    // Everything in the namespace is about to go, this set too.
                    Err(error) if super::is_namespace_going(&error) => return Ok(()),
                    other => other?,
                }
            }
            rest = later;
            if !shape.ordered {
                batch = batch.saturating_mul(2);
            }
        }
        Ok(())
    }

    async fn take(&self, shape: &Shape<'_>, step: &Step<'_>) -> Result<()> {
        match *step {
            Step::Create { ordinal, updated } => self.create(shape, ordinal, updated).await,
            Step::Delete(pod) => self.delete(pod).await,
            Step::Claim(pod) => {
                self.make_claims(meta::name(&pod.metadata)).await?;
                self.own_claims(shape, pod).await.map(drop)
            }
            Step::Keep(pod) => self.keep(shape, pod).await,
            Step::Condemn(pod) => self.own_claims(shape, pod).await.map(drop),
        }
    }

    fn say(&self, verb: &str, what: &str, result: Result<&str, &Error>) {
        let set = meta::name(&self.set.metadata);
        let (kind, reason, message) = match result {
            Ok(success) => (
                EventType::Normal,
                format!("Successful{verb}"),
                format!("{verb} {what} in StatefulSet {set} {success}"),
            ),
            Err(error) => (
                EventType::Warning,
                format!("Failed{verb}"),
                format!("{verb} {what} in StatefulSet {set} failed error: {}", plain(error)),
            ),
        };
        self.ctx.event(self.set, kind, &reason, message);
    }

    fn say_pod(&self, verb: &str, pod: &str, result: Result<(), &Error>) {
        self.say(verb, &format!("Pod {pod}"), result.map(|()| "successful"));
    }

    async fn create(&self, shape: &Shape<'_>, ordinal: usize, updated: bool) -> Result<()> {
        let revision = if updated { &self.update } else { &self.current };
        // The present template is taken from the spec: a revision keeps only the fields that were known when it was
        // made.
        let template = match updated {
            true => self.spec.template.clone(),
            false => history::template_of(revision).unwrap_or_else(|| self.spec.template.clone()),
        };
        let pod = self.pod(&template, ordinal, meta::name(&revision.metadata));
        let name = meta::name(&pod.metadata);
        if self.awaits_stale_claims(name).await? {
            return Ok(());
        }
        let made = match self.make_claims(name).await {
            Ok(()) => self.ctx.client().create(&pod).await,
            Err(error) => Err(error),
        };
        match made {
            Ok(made) => {
                self.own_claims(shape, &made).await?;
                self.say_pod("Create", name, Ok(()));
                Ok(())
            }
            // The cache has not shown it yet, or another object has the name: the next look tells which.
            Err(error) if error.is_already_exists() => Err(error),
            Err(error) => {
                if !super::is_namespace_going(&error) {
                    self.say_pod("Create", name, Err(&error));
                }
                Err(error)
            }
        }
    }

    fn pod(&self, template: &PodTemplateSpec, ordinal: usize, revision: &str) -> Pod {
        let name = format!("{}-{ordinal}", meta::name(&self.set.metadata));
        let mut pod = pod_control::from_template(template, self.set);
        pod.metadata.generate_name = None;
        pod.metadata.name = Some(name.clone());
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(history::POD_LABEL.to_owned(), revision.to_owned());
        self.identify(&mut pod);
        let spec = pod.spec.get_or_insert_default();
        spec.hostname = Some(name);
        spec.subdomain = self.spec.service_name.clone().filter(|service| !service.is_empty());
        pod
    }

    /// Labels and volumes that every pod of the set has.
    fn identify(&self, pod: &mut Pod) {
        let name = meta::name(&pod.metadata).to_owned();
        let ordinal = plan::ordinal(meta::name(&self.set.metadata), &name);
        let labels = pod.metadata.labels.get_or_insert_default();
        labels.insert(POD_NAME.to_owned(), name.clone());
        if let Some(ordinal) = ordinal {
            labels.insert(POD_INDEX.to_owned(), ordinal.to_string());
        }
        let spec = pod.spec.get_or_insert_default();
        let volumes = claims::volumes(self.set, &name, spec.volumes.take().unwrap_or_default());
        spec.volumes = (!volumes.is_empty()).then_some(volumes);
    }

    fn is_identified(&self, pod: &Pod) -> bool {
        let name = meta::name(&pod.metadata);
        let labelled = pod
            .metadata
            .labels
            .as_ref()
            .and_then(|labels| labels.get(POD_NAME))
            .is_some_and(|of| of == name);
        let volumes = pod
            .spec
            .as_ref()
            .and_then(|spec| spec.volumes.as_deref())
            .unwrap_or_default();
        let claims = claims::of_pod(self.set, name);
        labelled
            && claims.iter().all(|(volume, claim)| {
                let source = volumes.iter().find(|of| of.name == *volume);
                source
                    .and_then(|of| of.persistent_volume_claim.as_ref())
                    .is_some_and(|source| source.claim_name == meta::name(&claim.metadata))
            })
    }

    async fn keep(&self, shape: &Shape<'_>, pod: &Pod) -> Result<()> {
        let name = meta::name(&pod.metadata);
        if self.is_identified(pod) {
            // Upstream writes the pod as well, without a change, and says so.
            if self.own_claims(shape, pod).await? {
                self.say_pod("Update", name, Ok(()));
            }
            return Ok(());
        }
        let mut pod = pod.clone();
        self.identify(&mut pod);
        self.make_claims(name).await?;
        self.own_claims(shape, &pod).await?;
        let updated = self.ctx.client().update(&pod).await;
        self.say_pod("Update", name, updated.as_ref().map(|_| ()));
        updated.map(|_| ())
    }

    async fn delete(&self, pod: &Pod) -> Result<()> {
        let deleted = self.ctx.client().delete(pod).await;
        self.say_pod("Delete", meta::name(&pod.metadata), deleted.as_ref().map(|_| ()));
        deleted.map(|_| ())
    }

    async fn claim(&self, name: &str) -> Result<Option<Arc<PersistentVolumeClaim>>> {
        self.ctx.client().get(self.ctx.request().namespace(), name).await
    }

    /// With `whenScaled: Delete` a claim of the last pod of this name has to go before there is a new one.
    async fn awaits_stale_claims(&self, pod: &str) -> Result<bool> {
        if !Policy::of(self.set).when_scaled {
            return Ok(false);
        }
        let unmade = Pod {
            metadata: kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta {
                name: Some(pod.to_owned()),
                ..Default::default()
            },
            ..Pod::default()
        };
        let reference = claims::pod_reference(&unmade);
        for (_, claim) in claims::of_pod(self.set, pod) {
            let there = self.claim(meta::name(&claim.metadata)).await?;
            if there.is_some_and(|there| claims::is_stale(&there, &reference)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Makes the claims of a pod that are missing.
    async fn make_claims(&self, pod: &str) -> Result<()> {
        for (_, claim) in claims::of_pod(self.set, pod) {
            let name = meta::name(&claim.metadata);
            if let Some(there) = self.claim(name).await? {
                if meta::is_deleting(&there.metadata) {
                    return Err(Error::retry(format!("pvc {name} is being deleted")));
                }
                continue;
            }
            match self.ctx.client().create(&claim).await {
                Ok(_) => self.say("Create", &format!("Claim {name} Pod {pod}"), Ok("success")),
                Err(error) if error.is_already_exists() => return Err(error),
                Err(error) => {
                    self.say("Create", &format!("Claim {name} for Pod {pod}"), Err(&error));
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives the claims of a pod the owners that the retention policy asks for; whether any had others.
    async fn own_claims(&self, shape: &Shape<'_>, pod: &Pod) -> Result<bool> {
        let name = meta::name(&pod.metadata);
        let ordinal = plan::ordinal(shape.name, name);
        let scaled_down = !ordinal.is_some_and(|ordinal| shape.has(ordinal));
        let (set, pod) = (meta::reference_to(self.set), claims::pod_reference(pod));
        let mut changes = false;
        for (_, claim) in claims::of_pod(self.set, name) {
            let Some(there) = self.claim(meta::name(&claim.metadata)).await? else {
                continue;
            };
            if let Some(owners) = claims::owners(Policy::of(self.set), &there, &set, &pod, scaled_down) {
                let mut changed = (*there).clone();
                changed.metadata.owner_references = (!owners.is_empty()).then_some(owners);
                self.ctx.client().update(&changed).await?;
                changes = true;
            }
        }
        Ok(changes)
    }

    fn revisions(&self) -> status::Revisions<'_> {
        status::Revisions {
            current: meta::name(&self.current.metadata),
            update: meta::name(&self.update.metadata),
            collisions: self.collisions,
        }
    }

    /// Revisions that no pod is of any more, beyond the limit.
    async fn forget(&self, revisions: &[Arc<ControllerRevision>], pods: &[Arc<Pod>]) -> Result<()> {
        let mut live: BTreeSet<&str> = pods.iter().map(|pod| plan::revision(pod)).collect();
        live.extend([meta::name(&self.current.metadata), meta::name(&self.update.metadata)]);
        for revision in history::to_forget(revisions, &live, self.spec.revision_history_limit.unwrap_or(10)) {
            self.ctx.client().delete(revision).await?;
        }
        Ok(())
    }
}
