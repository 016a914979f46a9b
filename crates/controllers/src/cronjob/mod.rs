//! The CronJob controller: Jobs at certain times.
//!
//! A reconcile removes old Jobs, compares the others with those that the status calls active, starts the run that is
//! due, if there is one, and waits for the next time. A run is named by its time, so that it is never started twice.
//! Only the most recent one of several that were missed is started (`cronjob_controllerv2.go` of
//! kube-controller-manager).
//!
//! - `schedule.rs`: when a schedule is due,
//! - `due.rs`: the run that is due now.
//!
//! Not here: the work of Jobs.

mod due;
mod schedule;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::jiff::tz::TimeZone;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::api::{DeleteParams, PropagationPolicy};
use kubewright::{Action, Cause, Context, Controller, EventType, Reconciler, Request, Result};
use kubewright_objects::api::batch::v1::{CronJob, CronJobSpec, CronJobStatus, Job};
use kubewright_objects::api::core::v1::ObjectReference;

use self::due::Due;
use self::schedule::Schedule;
use kubewright_objects::meta;

/// Says for which time a Job was made (KEP-4026).
const SCHEDULED: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";
/// How long a conflict with another writer of the status waits, if no event comes before.
const CONFLICT: Duration = Duration::from_millis(50);

/// Remembers the last seen specs: a change of nothing but the schedule starts nothing (`updateCronJob` only sets the
/// timer).
#[derive(Default)]
pub(crate) struct CronJobReconciler {
    known: Mutex<BTreeMap<Request, UserFields>>,
}

/// The user's fields, the schedule apart from the rest.
#[derive(Clone, PartialEq)]
struct UserFields {
    schedule: (String, Option<String>),
    rest: (CronJobSpec, Labels, Labels),
}

type Labels = Option<BTreeMap<String, String>>;

impl UserFields {
    fn of(cron_job: &CronJob) -> UserFields {
        let mut spec = cron_job.spec.clone();
        let schedule = (std::mem::take(&mut spec.schedule), spec.time_zone.take());
        let meta = &cron_job.metadata;
        UserFields {
            schedule,
            rest: (spec, meta.labels.clone(), meta.annotations.clone()),
        }
    }
}

/// The controller, ready to be added to a manager.
pub(crate) fn controller() -> Controller {
    Controller::of(CronJobReconciler::default())
        .named("cronjob-controller")
        .owns::<Job>()
        .concurrency(5)
}

impl Reconciler for CronJobReconciler {
    type Object = CronJob;

    async fn reconcile(&self, cron_job: Arc<CronJob>, ctx: Context) -> Result<Action> {
        let spec = &cron_job.spec;
        let jobs = ctx
            .client()
            .owned_by::<Job>(ctx.request().namespace(), meta::uid(&cron_job.metadata))
            .await?;
        let mut run = Run {
            ctx: &ctx,
            cron_job: &cron_job,
            spec,
            status: cron_job.status.clone().unwrap_or_default(),
        };
        // Jobs that the history has no room for are not told of any more.
        run.clean_up(&jobs).await?;
        run.compare(&jobs).await?;
        let rescheduled = self.is_rescheduled(&ctx, &cron_job);
        let wait = match meta::is_deleting(&cron_job.metadata) {
            true => Ok(None),
            false => run.start(rescheduled).await,
        };
        if cron_job.status.as_ref() != Some(&run.status) {
            let mut written = (*cron_job).clone();
            written.status = Some(run.status);
            match ctx.client().update_status(&written).await {
                Err(error) if error.is_conflict() => return Ok(Action::requeue_after(CONFLICT)),
                Err(error) if error.is_not_found() => return Ok(Action::await_change()),
                written => drop(written?),
            }
        }
        Ok(wait?.map_or_else(Action::await_change, Action::requeue_after))
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.known
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&request);
        Ok(Action::await_change())
    }
}

impl CronJobReconciler {
    /// Whether nothing has changed but the schedule, and no Job either.
    fn is_rescheduled(&self, ctx: &Context, cron_job: &CronJob) -> bool {
        let now = UserFields::of(cron_job);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.insert(ctx.request().clone(), now.clone());
        let of_jobs = |cause: &Cause| cause.object().is_some_and(|object| object.kind == "Job");
        let alone = !ctx.causes().iter().any(of_jobs);
        before.is_some_and(|before| before.schedule != now.schedule && before.rest == now.rest && alone)
    }
}

/// One look at a CronJob.
struct Run<'a> {
    ctx: &'a Context,
    cron_job: &'a CronJob,
    spec: &'a CronJobSpec,
    status: CronJobStatus,
}

impl Run<'_> {
    fn event(&self, type_: EventType, reason: &str, message: String) {
        self.ctx.event(self.cron_job, type_, reason, message);
    }

    fn is_active(&self, uid: &str) -> bool {
        self.status
            .active
            .iter()
            .flatten()
            .any(|job| job.uid.as_deref() == Some(uid))
    }

    fn forget(&mut self, uid: &str) {
        let active = self.status.active.get_or_insert_default();
        active.retain(|job| job.uid.as_deref() != Some(uid));
        if active.is_empty() {
            self.status.active = None;
        }
    }

    /// Makes the status agree with the Jobs that there are.
    async fn compare(&mut self, jobs: &[Arc<Job>]) -> Result<()> {
        for job in jobs {
            let (name, uid) = (meta::name(&job.metadata), meta::uid(&job.metadata));
            let (active, finished) = (self.is_active(uid), due::finished(job));
            match (active, finished) {
                (false, None) => {
                    let message = format!("Saw a job that the controller did not create or forgot: {name}");
                    self.event(EventType::Warning, "UnexpectedJob", message);
                }
                (true, Some(condition)) => {
                    self.forget(uid);
                    let message = format!("Saw completed job: {name}, condition: {condition}");
                    self.event(EventType::Normal, "SawCompletedJob", message);
                }
                (true, None) | (false, Some(_)) => {}
            }
            let completed = job.status.as_ref().and_then(|status| status.completion_time.clone());
            if finished == Some("Complete") && completed > self.status.last_successful_time {
                self.status.last_successful_time = completed;
            }
        }
        let missing = |known: &&ObjectReference| !jobs.iter().any(|job| job.metadata.uid == known.uid);
        let missing: Vec<ObjectReference> = self.status.active.iter().flatten().filter(missing).cloned().collect();
        for known in missing {
            let name = known.name.unwrap_or_default();
            let found = self
                .ctx
                .client()
                .live::<Job>(self.ctx.request().namespace(), &name)
                .await?;
            if found.is_none_or(|job| job.metadata.uid != known.uid) {
                self.event(
                    EventType::Normal,
                    "MissingJob",
                    format!("Active job went missing: {name}"),
                );
                self.forget(known.uid.as_deref().unwrap_or_default());
            }
        }
        Ok(())
    }

    /// Starts the run that is due; answers when to look again.
    async fn start(&mut self, rescheduled: bool) -> Result<Option<Duration>> {
        let Some(zone) = self.zone() else {
            return Ok(None);
        };
        if self.spec.suspend == Some(true) {
            return Ok(None);
        }
        let now = self.ctx.now();
        let Some(schedule) = self.schedule(zone, now) else {
            return Ok(None);
        };
        let due = Due::of(self.cron_job, &self.status, &schedule, now);
        let wait = Some(due.wait);
        let Some(at) = due.start.filter(|_| !rescheduled) else {
            return Ok(wait);
        };
        if due.many {
            let message =
                "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew";
            self.event(EventType::Warning, "TooManyMissedTimes", message.to_owned());
        }
        let name = format!(
            "{}-{}",
            meta::name(&self.cron_job.metadata),
            at.as_second().div_euclid(60)
        );
        let started = self
            .status
            .active
            .iter()
            .flatten()
            .any(|job| job.name.as_deref() == Some(&name));
        if started || self.status.last_schedule_time.as_ref().is_some_and(|last| last.0 == at) {
            return Ok(wait);
        }
        let active = self.status.active.clone().unwrap_or_default();
        match self.spec.concurrency_policy.as_deref() {
            Some("Forbid") if !active.is_empty() => {
                let message = "Not starting job because prior execution is running and concurrency policy is Forbid";
                self.event(EventType::Normal, "JobAlreadyActive", message.to_owned());
                return Ok(wait);
            }
            Some("Replace") => {
                for job in active {
                    self.delete(job.name.as_deref().unwrap_or_default(), job.uid.as_deref())
                        .await?;
                }
            }
            _ => {}
        }
        self.create(&name, at, schedule.zone()).await?;
        Ok(wait)
    }

    /// The time zone; one that is unknown is told in an event, and waits for a change.
    fn zone(&self) -> Option<TimeZone> {
        let Some(name) = self.spec.time_zone.as_deref() else {
            return Some(TimeZone::UTC);
        };
        let zone = schedule::zone(name);
        if zone.is_none() {
            let message = format!("invalid timeZone: {name:?}: unknown time zone {name}");
            self.event(EventType::Warning, "UnknownTimeZone", message);
        }
        zone
    }

    /// The schedule; one that cannot be used, or never comes, is reported in an event, and waits for a change.
    fn schedule(&self, zone: TimeZone, now: Timestamp) -> Option<Schedule> {
        let text = &self.spec.schedule;
        let Some(schedule) = Schedule::parse(text, zone) else {
            let message = format!("unparseable schedule: {text:?}");
            self.event(EventType::Warning, "UnparseableSchedule", message);
            return None;
        };
        if schedule.next(now).is_none() {
            // Go's schedule answers its zero time twice.
            let message =
                format!("invalid schedule: {text} : time difference between two schedules is less than 1 second");
            self.event(EventType::Warning, "InvalidSchedule", message);
            return None;
        }
        Some(schedule)
    }

    async fn create(&mut self, name: &str, at: Timestamp, zone: &TimeZone) -> Result<()> {
        let made = match self.ctx.client().create(&self.job(name, at, zone)).await {
            Ok(job) => {
                self.event(EventType::Normal, "SuccessfulCreate", format!("Created job {name}"));
                job
            }
            Err(error) if super::is_namespace_going(&error) => return Ok(()),
            Err(error) if error.is_already_exists() => {
                // Made by a look of before, whose status was not written.
                let found = self
                    .ctx
                    .client()
                    .live::<Job>(self.ctx.request().namespace(), name)
                    .await?;
                let ours = |job: &Arc<Job>| {
                    let controller = meta::controller_of(&job.metadata);
                    controller.is_some_and(|owner| owner.uid == meta::uid(&self.cron_job.metadata))
                };
                match found.map(Arc::new).filter(ours) {
                    Some(job) => job,
                    None => return Err(error),
                }
            }
            Err(error) => {
                let message = format!("Error creating job: {}", super::plain(&error));
                self.event(EventType::Warning, "FailedCreate", message);
                return Err(error);
            }
        };
        self.status.last_schedule_time = Some(meta::time(at));
        if due::finished(&made).is_none() {
            self.status.active.get_or_insert_default().push(ObjectReference {
                api_version: Some("batch/v1".to_owned()),
                kind: Some("Job".to_owned()),
                namespace: made.metadata.namespace.clone(),
                name: made.metadata.name.clone(),
                uid: made.metadata.uid.clone(),
                resource_version: made.metadata.resource_version.clone(),
                ..ObjectReference::default()
            });
        }
        Ok(())
    }

    fn job(&self, name: &str, at: Timestamp, zone: &TimeZone) -> Job {
        let template = self.spec.job_template.clone();
        let from = template.metadata.unwrap_or_default();
        let mut annotations = from.annotations.unwrap_or_default();
        annotations.insert(SCHEDULED.to_owned(), due::rfc3339(at, zone));
        Job {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: self.cron_job.metadata.namespace.clone(),
                labels: from.labels,
                annotations: Some(annotations),
                owner_references: Some(vec![meta::controller_reference(
                    "batch/v1",
                    "CronJob",
                    &self.cron_job.metadata,
                )]),
                ..ObjectMeta::default()
            },
            spec: template.spec,
            status: None,
        }
    }

    async fn delete(&mut self, name: &str, uid: Option<&str>) -> Result<()> {
        let params = DeleteParams {
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        // Never another Job that has the name by now.
        let job = Job {
            metadata: ObjectMeta {
                name: Some(name.to_owned()),
                namespace: self.cron_job.metadata.namespace.clone(),
                uid: uid.map(str::to_owned),
                ..ObjectMeta::default()
            },
            ..Job::default()
        };
        match self.ctx.client().delete_with(&job, params).await {
            Ok(false) => {}
            Ok(true) => self.event(EventType::Normal, "SuccessfulDelete", format!("Deleted job {name}")),
            Err(error) => {
                let message = format!("Deleted job: {}", super::plain(&error));
                self.event(EventType::Warning, "FailedDelete", message);
                return Err(error);
            }
        }
        self.forget(uid.unwrap_or_default());
        Ok(())
    }

    /// Removes the oldest finished Jobs beyond the limits of the history.
    async fn clean_up(&mut self, jobs: &[Arc<Job>]) -> Result<()> {
        let limits = [
            ("Complete", self.spec.successful_jobs_history_limit),
            ("Failed", self.spec.failed_jobs_history_limit),
        ];
        for (condition, limit) in limits {
            let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()) else {
                continue;
            };
            let mut finished: Vec<&Arc<Job>> = jobs
                .iter()
                .filter(|job| due::finished(job) == Some(condition))
                .collect();
            finished.sort_by_key(|job| due::age(job));
            let excess = finished.len().saturating_sub(limit);
            for job in finished
                .into_iter()
                .take(excess)
                .filter(|job| !meta::is_deleting(&job.metadata))
            {
                self.delete(meta::name(&job.metadata), job.metadata.uid.as_deref())
                    .await?;
            }
        }
        Ok(())
    }
}
