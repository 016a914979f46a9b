//! The Job controller: pods that run to their end, as often as wished.
//!
//! A reconcile claims the pods, creates missing or deletes surplus ones, looks at them again, names in the status those
//! that are to be counted, takes their finalizers away, and counts them. Each step can be the last one before the
//! process ends: the next reconcile goes on from the written state.
//!
//! - `state.rs`: the state of a Job and its pods,
//! - `status.rs`: its status and events,
//! - `policy.rs`, `indexes.rs`, `backoff.rs`: what ends it, which of its pods have which index, when it tries again,
//! - `ttl.rs`: the controller that deletes finished Jobs.
//!
//! Invariants: a pod is counted once; a Job that another controller manages (`managedBy`) is not touched; a Job under
//! deletion makes no pods.

mod backoff;
mod indexes;
mod policy;
mod state;
mod status;
pub(crate) mod ttl;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::future::{join_all, try_join_all};
use kubewright::kube::api::Patch;
use kubewright::{Action, Context, Controller, EventType, Reconciler, Request, Result};
use kubewright_objects::api::batch::v1::{Job, JobStatus};
use kubewright_objects::api::core::v1::Pod;
use serde_json::json;

use self::backoff::Records;
use self::state::{End, State, TRACKING, is_tracked, uid};
use self::status::Suspension;
use super::claim::{self, Selectors};
use super::pod_control;
use kubewright_objects::meta;
use kubewright_objects::pods;

/// The label that names a pod's Job, also when it has lost its owner.
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The index of the pods with the finalizer of Jobs, by the Job that they name, so that those which a Job has left behind
/// are found.
const TRACKED: &str = "job-controller/tracked";
/// The value of `managedBy` for this controller.
const NAME: &str = "kubernetes.io/job-controller";
/// How long a conflict with another writer of the status waits, if no event comes before.
const CONFLICT: Duration = Duration::from_millis(50);

/// Remembers all selectors, and when pods failed; everything else is in the objects.
#[derive(Default)]
pub(crate) struct JobReconciler {
    selectors: Selectors,
    records: Records,
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    let reconciler = JobReconciler::default();
    let selectors = reconciler.selectors.clone();
    Controller::of(reconciler)
        .named("job-controller")
        .owns::<Pod>()
        .watches::<Pod>(move |pod| [selectors.for_orphan(&pod.metadata), left_behind(pod)].concat())
        .indexes(TRACKED, |pod: &Pod| match is_tracked(pod) {
            true => job_of(pod).map(|job| job.name().to_owned()).into_iter().collect(),
            false => vec![],
        })
        .backoff(Duration::from_secs(1), Duration::from_secs(60))
        .concurrency(5)
}

/// The Job that a pod without an owner belonged to, while it carries the finalizer.
fn left_behind(pod: &Pod) -> Vec<Request> {
    let orphan = is_tracked(pod) && meta::controller_of(&pod.metadata).is_none();
    job_of(pod).filter(|_| orphan).into_iter().collect()
}

/// The Job that a pod names, whether it belongs to it or not.
fn job_of(pod: &Pod) -> Option<Request> {
    let name = pod.metadata.labels.as_ref()?.get(JOB_NAME)?;
    Some(Request::new(pod.metadata.namespace.as_deref(), name))
}

impl Reconciler for JobReconciler {
    type Object = Job;

    async fn reconcile(&self, job: Arc<Job>, ctx: Context) -> Result<Action> {
        let Some(spec) = job.spec.as_ref() else {
            return Ok(Action::await_change());
        };
        if spec.managed_by.as_deref().is_some_and(|manager| manager != NAME) {
            return Ok(Action::await_change());
        }
        if !self.selectors.knows(ctx.request()) {
            self.free_orphans(&ctx, Some(&job)).await?;
        }
        if status::is_finished(&job) {
            self.forget(ctx.request());
            return Ok(Action::await_change());
        }
        match self.sync(&job, &ctx).await {
            // The Job has changed since: the event that says so is on its way.
            Err(error) if error.is_conflict() => Ok(Action::requeue_after(CONFLICT)),
            Err(error) if error.is_not_found() => Ok(Action::await_change()),
            other => other,
        }
    }

    async fn deleted(&self, request: Request, ctx: Context) -> Result<Action> {
        self.forget(&request);
        self.free_orphans(&ctx, None).await?;
        Ok(Action::await_change())
    }
}

impl JobReconciler {
    fn forget(&self, request: &Request) {
        self.selectors.forget(request);
        self.records.forget(request);
    }

    /// Pods that a Job of this name has left behind are held by nothing any more (`syncOrphanPod`).
    async fn free_orphans(&self, ctx: &Context, living: Option<&Job>) -> Result<()> {
        let uid = living.map(|job| meta::uid(&job.metadata));
        let (namespace, name) = (ctx.request().namespace(), ctx.request().name());
        for pod in ctx.client().list_by_index::<Pod>(namespace, TRACKED, name).await? {
            let controller = meta::controller_of(&pod.metadata);
            let of_living = controller.is_some_and(|owner| Some(owner.uid.as_str()) == uid);
            let of_others = controller.is_some_and(|owner| owner.kind != "Job");
            let may_be_adopted = controller.is_none() && uid.is_some();
            if !of_living && !of_others && !may_be_adopted {
                free(ctx, &pod).await?;
            }
        }
        Ok(())
    }

    async fn sync(&self, job: &Arc<Job>, ctx: &Context) -> Result<Action> {
        let spec = job.spec.clone().unwrap_or_default();
        let selector = meta::selector(
            &format!("Job {}", ctx.request()),
            &spec.selector.clone().unwrap_or_default(),
        )?;
        self.selectors.remember(ctx.request(), &selector);
        let worth_adopting = |pod: &Pod| !pods::is_finished(pod);
        let owned = claim::tied(ctx, &**job, &selector, Some(TRACKING), worth_adopting).await?;
        let state = State::of(job, &spec, borrowed(&owned), ctx.now());
        let record = self.records.of(ctx.request(), meta::uid(&job.metadata)).after(
            &state.newly_succeeded,
            &state.newly_failed,
            ctx.now(),
        );
        let mut over = state.end();
        let (managed, mut wait) = match (&over, meta::is_deleting(&job.metadata)) {
            (Some(_), _) => (
                pod_control::delete(ctx, &**job, &state.active().collect::<Vec<_>>()).await,
                None,
            ),
            (None, true) => (Ok(()), None),
            (None, false) => manage(ctx, &state, record.remaining(ctx.now())).await,
        };
        wait = sooner(wait, state.deadline_in().filter(|left| !left.is_zero()));

        let present = ctx
            .client()
            .owned_by::<Pod>(ctx.request().namespace(), meta::uid(&job.metadata))
            .await?;
        let before = state;
        let present = match over {
            Some(_) => borrowed(&present),
            None => as_judged(&before, &present),
        };
        let mut state = State::of(job, &spec, present, ctx.now());
        if over.is_some() {
            // Pods that are deleted because the Job is over fail no further indexes.
            state.failed_indexes = before.failed_indexes;
        }
        if over.is_none() && state.is_complete() && state.active().next().is_none() {
            over = Some(End::completed());
        }
        let mut wanted = state.status.clone();
        status::note_pods(&state, &mut wanted);
        let turn = match over {
            None => status::note_suspension(&state, &mut wanted),
            Some(_) => None,
        };
        self.track(ctx, job, &state, over.as_ref(), wanted).await?;
        // Pods are counted now: a failure to write before would count them again.
        self.records.keep(ctx.request(), meta::uid(&job.metadata), record);
        match turn {
            Some(Suspension::Suspended) => ctx.event(&**job, EventType::Normal, "Suspended", "Job suspended"),
            Some(Suspension::Resumed) => ctx.event(&**job, EventType::Normal, "Resumed", "Job resumed"),
            None => {}
        }
        managed?;
        Ok(wait.map_or_else(Action::await_change, Action::requeue_after))
    }

    /// Names the pods to be counted, frees them, counts them, and ends the Job when all are counted.
    async fn track(
        &self,
        ctx: &Context,
        job: &Job,
        state: &State<'_>,
        over: Option<&End>,
        mut wanted: JobStatus,
    ) -> Result<()> {
        let counted = state.to_count(over);
        status::note_uncounted(state, over, &counted, &mut wanted);
        if let Some(over) = over {
            status::note_end(over, &mut wanted, ctx.now());
        }
        let job = write(ctx, job, &wanted).await?;
        let mut open: BTreeSet<&str> = counted.iter().map(|pod| uid(pod)).collect();
        let freed = join_all(counted.iter().map(|pod| free(ctx, pod))).await;
        let mut failure = None;
        for (pod, freed) in std::iter::zip(&counted, freed) {
            match freed {
                Ok(()) => drop(open.remove(uid(pod))),
                Err(error) => drop(failure.get_or_insert(error)),
            }
        }
        status::count(&mut wanted, &open);
        // A Job that is over is looked at no more: a pod that still holds its finalizer would keep it.
        let may_end = over.filter(|_| failure.is_none());
        let ended = may_end.filter(|over| status::finish(over, &mut wanted, ctx.now()));
        write(ctx, &job, &wanted).await?;
        match ended {
            Some(end) if end.success => ctx.event(&*job, EventType::Normal, "Completed", "Job completed"),
            Some(end) => ctx.event(&*job, EventType::Warning, &end.reason, &end.message),
            None => {}
        }
        failure.map_or(Ok(()), Err)
    }
}

/// The pods after the work on them, but each that has ended since as it was before: it is counted when the failure
/// policy and the back-off have seen its end, which the next look does.
fn as_judged<'a>(before: &State<'a>, present: &'a [Arc<Pod>]) -> Vec<&'a Pod> {
    let judged: BTreeMap<&str, &Pod> = before.pods.iter().map(|pod| (uid(pod), *pod)).collect();
    let is_over = |pod: &Pod| pods::phase(pod) == "Succeeded" || before.has_failed(pod);
    let pods = present.iter().filter_map(|pod| match judged.get(uid(pod)) {
        Some(known) if is_over(pod) && !is_over(known) && is_tracked(pod) => Some(*known),
        None if is_over(pod) && is_tracked(pod) => None,
        _ => Some(&**pod),
    });
    pods.collect()
}

fn borrowed(pods: &[Arc<Pod>]) -> Vec<&Pod> {
    pods.iter().map(|pod| &**pod).collect()
}

fn sooner(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Writes the status, if it differs.
async fn write(ctx: &Context, job: &Job, wanted: &JobStatus) -> Result<Arc<Job>> {
    if job.status.as_ref() == Some(wanted) {
        return Ok(Arc::new(job.clone()));
    }
    let mut written = job.clone();
    written.status = Some(wanted.clone());
    ctx.client().update_status(&written).await
}

/// Creates missing pods or deletes surplus ones; answers also when to look again.
async fn manage(ctx: &Context, state: &State<'_>, back_off: Duration) -> (Result<()>, Option<Duration>) {
    let (mut excess, missing) = state.balance();
    if !excess.is_empty() {
        excess.truncate(pod_control::BURST);
        return (discard(ctx, state.job, &excess).await, None);
    }
    if missing == 0 {
        return (Ok(()), None);
    }
    let per_index = state.spec.backoff_limit_per_index.is_some();
    if !per_index && !back_off.is_zero() {
        return (Ok(()), Some(back_off));
    }
    let missing = missing.min(pod_control::BURST);
    let (new, wait) = match state.indexed() {
        None => (vec![status::new_pod(state, None); missing], None),
        Some(_) => {
            let (indexes, wait) = state.pending_indexes(missing);
            let of = |index: i32| status::new_pod(state, Some((index, state.last_of(index))));
            (indexes.into_iter().map(of).collect(), wait)
        }
    };
    (pod_control::create(ctx, state.job, &new).await, wait)
}

/// Deletes pods that are not to count as failed: their finalizer goes first (`deleteJobPods`).
async fn discard(ctx: &Context, job: &Job, excess: &[&Pod]) -> Result<()> {
    try_join_all(excess.iter().map(|pod| free(ctx, pod))).await?;
    pod_control::delete(ctx, job, excess).await
}

/// Takes the finalizer from a pod; one that is gone has none.
async fn free(ctx: &Context, pod: &Pod) -> Result<()> {
    if !is_tracked(pod) {
        return Ok(());
    }
    let mut finalizers = pod.metadata.finalizers.clone().unwrap_or_default();
    finalizers.retain(|name| name != TRACKING);
    let patch = json!({"metadata": {
        "uid": pod.metadata.uid,
        "$deleteFromPrimitiveList/finalizers": [TRACKING],
    }});
    let (namespace, name) = (pod.metadata.namespace.as_deref(), meta::name(&pod.metadata));
    match ctx
        .client()
        .patch::<Pod, _>(namespace, name, &Patch::Strategic(patch))
        .await
    {
        Err(error) if !error.is_not_found() => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// What has ended between the two looks is counted by the next reconcile.
    #[test]
    fn one_look_decides_and_counts() {
        let pod = |name: &str, phase: &str, finalizers: Value| -> Arc<Pod> {
            let metadata = json!({ "name": name, "uid": name, "finalizers": finalizers });
            Arc::new(
                serde_json::from_value(json!({ "metadata": metadata, "status": { "phase": phase } })).expect("a pod"),
            )
        };
        let job: Job = serde_json::from_value(json!({ "metadata": {}, "spec": { "template": {} } })).expect("a Job");
        let spec = job.spec.clone().expect("a spec");
        let check = |before: &[(&str, &str)], after: &[(&str, &str)], expected: &[(&str, &str)]| {
            let all = |pods: &[(&str, &str)]| -> Vec<Arc<Pod>> {
                pods.iter()
                    .map(|(name, phase)| pod(name, phase, json!([TRACKING])))
                    .collect()
            };
            let (first, second) = (all(before), all(after));
            let state = State::of(
                &job,
                &spec,
                borrowed(&first),
                kubewright::k8s_openapi::jiff::Timestamp::UNIX_EPOCH,
            );
            let seen = as_judged(&state, &second);
            let seen: Vec<(&str, &str)> = seen.into_iter().map(|pod| (uid(pod), pods::phase(pod))).collect();
            assert_eq!(seen, expected, "{before:?} {after:?}");
        };
        check(&[("a", "Running")], &[("a", "Failed")], &[("a", "Running")]);
        check(
            &[("a", "Running")],
            &[("a", "Succeeded"), ("b", "Pending")],
            &[("a", "Running"), ("b", "Pending")],
        );
        check(
            &[("a", "Failed")],
            &[("a", "Failed"), ("b", "Failed")],
            &[("a", "Failed")],
        );
    }
}
