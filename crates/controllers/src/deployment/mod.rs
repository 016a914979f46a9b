//! The Deployment controller: ReplicaSets that follow a template, one step at a time.
//!
//! A reconcile loads the ReplicaSets, decides one step (`rollout`), takes it, and writes the status (`status`). The
//! next step is decided when the status of the ReplicaSets shows the result of this one: their change enqueues the
//! Deployment again.
//!
//! Why there are no expectations here (client-go's counters of writes that the cache has not shown yet): the client
//! reads its own writes, so a ReplicaSet that was created or scaled is in the next list. Writes of others are caught by
//! resourceVersion: every ReplicaSet is replaced as it was read, and a conflict is simply the next reconcile.
//!
//! Invariants: at most one ReplicaSet per template is made; paused Deployments make none; under deletion only the
//! status is written. Not here: pods. Whether old ones are gone (Recreate) is read from the status of their
//! ReplicaSets, which counts terminating ones.

mod revision;
mod rollout;
mod status;
pub(crate) mod template;

use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::{Action, Context, Controller, Error, EventType, Reconciler, Request, Result};
use kubewright_objects::api::apps::v1::{Deployment, DeploymentSpec, DeploymentStatus, ReplicaSet, ReplicaSetSpec};

use self::rollout::{Bounds, Scale, Size};
use super::claim::{self, Selectors};
use kubewright_objects::meta;

/// Knows all selectors, to find a Deployment for an orphaned ReplicaSet; everything else is in the objects.
#[derive(Default)]
pub(crate) struct DeploymentReconciler {
    selectors: Selectors,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    let reconciler = DeploymentReconciler::default();
    let selectors = reconciler.selectors.clone();
    Controller::of(reconciler)
        .named("deployment-controller")
        .owns::<ReplicaSet>()
        .watches::<ReplicaSet>(move |set| selectors.for_orphan(&set.metadata))
        .concurrency(5)
}

impl Reconciler for DeploymentReconciler {
    type Object = Deployment;

    async fn reconcile(&self, deployment: Arc<Deployment>, ctx: Context) -> Result<Action> {
        let Some(spec) = deployment.spec.clone() else {
            return Ok(Action::await_change());
        };
        let selector = meta::selector(&format!("Deployment {}", ctx.request()), &spec.selector)?;
        if selector.selects_all() {
            let message = "This deployment is selecting all pods. A non-empty selector is required.";
            ctx.event(&*deployment, EventType::Warning, "SelectingAll", message);
            return Ok(Action::await_change());
        }
        self.selectors.remember(ctx.request(), &selector);
        let sets = claim::all(&ctx, &*deployment, &selector, |_: &ReplicaSet| true).await?;
        let mut step = Step::new(&ctx, &deployment, spec, sets);
        step.run().await
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.selectors.forget(&request);
        Ok(Action::await_change())
    }
}

/// One reconcile of one Deployment.
struct Step<'a> {
    ctx: &'a Context,
    /// The Deployment, with the writes of this step.
    deployment: Deployment,
    spec: DeploymentSpec,
    bounds: Bounds,
    /// The ReplicaSet of the present template.
    new: Option<Arc<ReplicaSet>>,
    old: Vec<Arc<ReplicaSet>>,
}

impl<'a> Step<'a> {
    fn new(ctx: &'a Context, deployment: &Deployment, spec: DeploymentSpec, sets: Vec<Arc<ReplicaSet>>) -> Step<'a> {
        let of_template = sets.iter().filter(|set| template::is_of(&spec.template, set));
        // Several can fit, after adoption: the oldest is the one, as for kubectl and every other reader of the same
        // ReplicaSets.
        let new = of_template
            .min_by_key(|set| (meta::created(&set.metadata), meta::name(&set.metadata).to_owned()))
            .cloned();
        let new_uid = new.as_ref().map(|set| meta::uid(&set.metadata).to_owned());
        let old = sets
            .into_iter()
            .filter(|set| Some(meta::uid(&set.metadata)) != new_uid.as_deref())
            .collect();
        Step {
            ctx,
            deployment: deployment.clone(),
            bounds: Bounds::of(&spec),
            spec,
            new,
            old,
        }
    }

    async fn run(&mut self) -> Result<Action> {
        if meta::is_deleting(&self.deployment.metadata) {
            self.write_counts().await?;
            return Ok(Action::await_change());
        }
        if let Some(condition) = status::pause(&self.deployment, self.ctx.now()) {
            status::set(self.deployment.status.get_or_insert_default(), condition);
        }
        let paused = self.spec.paused.unwrap_or(false);
        if paused || self.was_scaled() {
            self.keep_new().await?;
            self.scale_all().await?;
            if paused {
                self.forget_history().await?;
            }
            self.write_counts().await?;
            return Ok(Action::await_change());
        }
        if self.bounds.rolling {
            self.roll().await
        } else {
            self.recreate().await
        }
    }

    fn was_scaled(&self) -> bool {
        let sizes: Vec<Size> = self.all().map(size).collect();
        rollout::was_scaled(&self.bounds, &sizes.iter().collect::<Vec<_>>())
    }

    fn all(&self) -> impl Iterator<Item = &ReplicaSet> {
        self.old.iter().chain(&self.new).map(|set| &**set)
    }

    fn old_sizes(&self) -> Vec<Size> {
        self.old.iter().map(|set| size(set)).collect()
    }

    /// A rolling update: the new one grows, or the old ones shrink, or it is over.
    async fn roll(&mut self) -> Result<Action> {
        if !self.make_new().await? {
            return Ok(Action::await_change());
        }
        let new = self
            .new
            .as_deref()
            .map(size)
            .ok_or_else(|| Error::retry("the new ReplicaSet was just made and is not there"))?;
        let scales = match rollout::scale_new(&self.bounds, &new, &self.old_sizes()) {
            Some(scale) => vec![scale],
            None => rollout::scale_old(&self.bounds, &new, &self.old_sizes()),
        };
        let settled = scales.is_empty();
        self.take(scales).await?;
        self.finish(settled).await
    }

    /// Recreate: the old ones go to nothing, their pods go, and only then is there a new one.
    async fn recreate(&mut self) -> Result<Action> {
        self.keep_new().await?;
        let scales = rollout::scale_old_to_zero(&self.old_sizes());
        if !scales.is_empty() {
            self.take(scales).await?;
            return self.finish(false).await;
        }
        if !self.old.iter().all(|set| has_no_pods(set)) {
            return self.finish(false).await;
        }
        if !self.make_new().await? {
            return Ok(Action::await_change());
        }
        let new = self.new.as_deref().map(size);
        let scale = new.and_then(|new| rollout::scale_new(&self.bounds, &new, &self.old_sizes()));
        let settled = scale.is_none();
        self.take(scale.into_iter().collect()).await?;
        self.finish(settled).await
    }

    async fn scale_all(&mut self) -> Result<()> {
        let there = self
            .deployment
            .status
            .as_ref()
            .and_then(|status| status.replicas)
            .unwrap_or(0);
        let new = self.new.as_deref().map(size);
        let scales = rollout::scale_all(&self.bounds, there, new.as_ref(), &self.old_sizes());
        self.take(scales).await
    }

    /// Executes decisions.
    async fn take(&mut self, scales: Vec<Scale>) -> Result<()> {
        for scale in scales {
            let place = self
                .new
                .iter_mut()
                .chain(&mut self.old)
                .find(|set| meta::name(&set.metadata) == scale.name);
            if let Some(set) = place {
                *set = resize(self.ctx, &self.deployment, &self.bounds, set, scale.to).await?;
            }
        }
        Ok(())
    }

    /// Brings the ReplicaSet of the present template up to date (annotations, revision, minReadySeconds), if there is
    /// one.
    async fn keep_new(&mut self) -> Result<()> {
        let Some(present) = self.new.clone() else { return Ok(()) };
        let next = revision::next(self.old.iter().map(|set| &**set));
        let mut set = (*present).clone();
        set.metadata.annotations = Some(revision::annotations(&self.deployment, &present, next));
        if let Some(spec) = &mut set.spec
            && spec.min_ready_seconds.unwrap_or(0) != self.spec.min_ready_seconds.unwrap_or(0)
        {
            spec.min_ready_seconds = self.spec.min_ready_seconds;
        }
        let set = if set == *present {
            present
        } else {
            self.ctx.client().update(&set).await?
        };
        self.note_revision(&set).await?;
        let unsaid = self
            .deployment
            .status
            .as_ref()
            .and_then(|status| status::get(status, status::PROGRESSING))
            .is_none();
        if unsaid {
            self.say_progressing(
                "FoundNewReplicaSet",
                format!("Found new replica set {:?}", meta::name(&set.metadata)),
            );
        }
        self.new = Some(set);
        Ok(())
    }

    /// [`Step::keep_new`], or makes the ReplicaSet. `false` when the namespace is going away and nothing can be made in
    /// it.
    async fn make_new(&mut self) -> Result<bool> {
        if self.new.is_some() {
            self.keep_new().await?;
            return Ok(true);
        }
        let wanted = self.new_set()?;
        let name = meta::name(&wanted.metadata).to_owned();
        match self.ctx.client().create(&wanted).await {
            Ok(set) => {
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(0);
                if replicas > 0 {
                    let message = format!("Scaled up replica set {name} from 0 to {replicas}");
                    self.ctx
                        .event(&self.deployment, EventType::Normal, "ScalingReplicaSet", &message);
                }
                self.note_revision(&set).await?;
                self.say_progressing("NewReplicaSetCreated", format!("Created new replica set {name:?}"));
                self.new = Some(set);
                Ok(true)
            }
            Err(error) if super::is_namespace_going(&error) => Ok(false),
            Err(error) if error.is_already_exists() => {
                self.collision(&name).await?;
                self.keep_new().await?;
                Ok(true)
            }
            Err(error) => {
                let message = format!("Failed to create new replica set {name:?}: {}", super::plain(&error));
                self.ctx
                    .event(&self.deployment, EventType::Warning, "FailedCreate", &message);
                if status::deadline(&self.deployment).is_some() {
                    let condition = status::condition(
                        status::PROGRESSING,
                        "False",
                        "ReplicaSetCreateError",
                        &message,
                        self.ctx.now(),
                    );
                    status::set(self.deployment.status.get_or_insert_default(), condition);
                    self.write_counts().await?;
                }
                Err(error)
            }
        }
    }

    /// The name of the new ReplicaSet is taken: by ourselves in a write that the cache never showed, or by another
    /// template.
    async fn collision(&mut self, name: &str) -> Result<()> {
        let there = self
            .ctx
            .client()
            .live::<ReplicaSet>(self.deployment.metadata.namespace.as_deref(), name)
            .await?;
        if let Some(set) = there {
            let ours = meta::controller_of(&set.metadata)
                .is_some_and(|owner| owner.uid == meta::uid(&self.deployment.metadata));
            if ours && template::is_of(&self.spec.template, &set) {
                self.new = Some(Arc::new(set));
                return Ok(());
            }
        }
        let status = self.deployment.status.get_or_insert_default();
        status.collision_count = Some(status.collision_count.unwrap_or(0) + 1);
        self.ctx.client().update_status(&self.deployment).await?;
        Err(Error::retry(format!(
            "ReplicaSet {name} exists and belongs to another template; the next attempt uses another name"
        )))
    }

    fn new_set(&self) -> Result<ReplicaSet> {
        let hash = template::hash(
            &self.spec.template,
            self.deployment
                .status
                .as_ref()
                .and_then(|status| status.collision_count),
        )?;
        let mut template = self.spec.template.clone();
        let template_meta = template.metadata.get_or_insert_default();
        template_meta
            .labels
            .get_or_insert_default()
            .insert(template::HASH.to_owned(), hash.clone());
        let labels = template_meta.labels.clone();
        let mut selector = self.spec.selector.clone();
        selector
            .match_labels
            .get_or_insert_default()
            .insert(template::HASH.to_owned(), hash.clone());
        let total = self.old_sizes().iter().map(rollout::occupied).sum();
        let next = revision::next(self.old.iter().map(|set| &**set));
        let mut annotations = revision::annotations(&self.deployment, &ReplicaSet::default(), next);
        revision::note_size(&mut annotations, &self.bounds);
        Ok(ReplicaSet {
            metadata: ObjectMeta {
                name: Some(template::name(meta::name(&self.deployment.metadata), &hash)),
                namespace: self.deployment.metadata.namespace.clone(),
                labels,
                annotations: Some(annotations),
                owner_references: Some(vec![meta::controller_reference(
                    "apps/v1",
                    "Deployment",
                    &self.deployment.metadata,
                )]),
                ..ObjectMeta::default()
            },
            spec: Some(ReplicaSetSpec {
                replicas: Some(rollout::new_size(&self.bounds, 0, total)),
                min_ready_seconds: self.spec.min_ready_seconds,
                selector,
                template: Some(template),
            }),
            status: None,
        })
    }

    /// The Deployment carries the revision of its present ReplicaSet. It is written by way of the status, as
    /// `dc.client…UpdateStatus` does: an annotation that is written otherwise counts as a new generation of a
    /// Deployment.
    async fn note_revision(&mut self, set: &ReplicaSet) -> Result<()> {
        let revision = meta::annotation(&set.metadata, revision::REVISION)
            .unwrap_or_default()
            .to_owned();
        if meta::annotation(&self.deployment.metadata, revision::REVISION) == Some(revision.as_str()) {
            return Ok(());
        }
        let patch = serde_json::json!({ "metadata": { "uid": self.deployment.metadata.uid, "annotations": { revision::REVISION: revision } } });
        let patch = kubewright::kube::api::Patch::Merge(patch);
        let meta = &self.deployment.metadata;
        let written = self
            .ctx
            .client()
            .patch_status::<Deployment, _>(meta.namespace.as_deref(), meta::name(meta), &patch)
            .await?;
        // The spec stays the one that this step was decided on; if it changed in between, its generation has, and we
        // run again.
        self.deployment.metadata.resource_version = written.metadata.resource_version.clone();
        self.deployment.metadata.annotations = written.metadata.annotations.clone();
        Ok(())
    }

    fn say_progressing(&mut self, reason: &str, message: String) {
        if status::deadline(&self.deployment).is_some() {
            let condition = status::condition(status::PROGRESSING, "True", reason, &message, self.ctx.now());
            status::set(self.deployment.status.get_or_insert_default(), condition);
        }
    }

    /// The end of a rollout step: history, status, and when to look again if nothing happens.
    async fn finish(&mut self, settled: bool) -> Result<Action> {
        let now = self.ctx.now();
        let all: Vec<&ReplicaSet> = self.all().collect();
        let mut status = status::count(&self.deployment, &all, self.new.as_deref(), now);
        status::judge(&self.deployment, &all, self.new.as_deref(), &mut status, now);
        if settled && status::is_complete(&self.deployment, &status) {
            self.forget_history().await?;
        }
        let again = status::deadline_in(&self.deployment, &status, now);
        self.write(status).await?;
        // A little later than the deadline: stored times are whole seconds, the clock is not.
        Ok(again.map_or_else(Action::await_change, |left| {
            Action::requeue_after(left + Duration::from_millis(10))
        }))
    }

    async fn write_counts(&mut self) -> Result<()> {
        let all: Vec<&ReplicaSet> = self.all().collect();
        let status = status::count(&self.deployment, &all, self.new.as_deref(), self.ctx.now());
        self.write(status).await
    }

    async fn write(&mut self, status: DeploymentStatus) -> Result<()> {
        if self.deployment.status.as_ref() == Some(&status) {
            return Ok(());
        }
        self.deployment.status = Some(status);
        match self.ctx.client().update_status(&self.deployment).await {
            // The Deployment is gone meanwhile: no status is left to write.
            Err(error) if !error.is_not_found() => Err(error),
            _ => Ok(()),
        }
    }

    async fn forget_history(&mut self) -> Result<()> {
        let old: Vec<&ReplicaSet> = self.old.iter().map(|set| &**set).collect();
        for set in revision::to_forget(&old, self.spec.revision_history_limit) {
            self.ctx.client().delete(set).await?;
        }
        Ok(())
    }
}

/// Gives a ReplicaSet another size, and the annotations that say for which Deployment size; nothing is sent when both
/// are right.
async fn resize(
    ctx: &Context,
    deployment: &Deployment,
    bounds: &Bounds,
    set: &Arc<ReplicaSet>,
    to: i32,
) -> Result<Arc<ReplicaSet>> {
    let from = size(set).wanted;
    let mut wanted = (**set).clone();
    revision::note_size(wanted.metadata.annotations.get_or_insert_default(), bounds);
    wanted.spec.get_or_insert_default().replicas = Some(to);
    if wanted == **set {
        return Ok(set.clone());
    }
    let written = ctx.client().update(&wanted).await?;
    if from != to {
        let direction = if to > from { "up" } else { "down" };
        let message = format!(
            "Scaled {direction} replica set {} from {from} to {to}",
            meta::name(&set.metadata)
        );
        ctx.event(deployment, EventType::Normal, "ScalingReplicaSet", &message);
    }
    Ok(written)
}

/// No pod of it exists, terminating ones included, according to a status that speaks of the present spec.
fn has_no_pods(set: &ReplicaSet) -> bool {
    set.status.as_ref().is_some_and(|status| {
        status.observed_generation >= set.metadata.generation
            && status.replicas == 0
            && status.terminating_replicas.unwrap_or(0) == 0
    })
}

fn size(set: &ReplicaSet) -> Size {
    Size {
        name: meta::name(&set.metadata).to_owned(),
        created: meta::created(&set.metadata),
        wanted: set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1),
        there: set.status.as_ref().map_or(0, |status| status.replicas),
        available: set
            .status
            .as_ref()
            .and_then(|status| status.available_replicas)
            .unwrap_or(0),
        desired: revision::number(&set.metadata, revision::DESIRED),
        max: revision::number(&set.metadata, revision::MAX),
    }
}
