//! From one object to its release.
//!
//! A reconcile looks at the release's records first ([`next`]), then asks Helm what the object's values lead to, and
//! then looks at the release's objects. Helm is not asked again while nothing has changed that it could answer
//! differently to: the values, the chart, the record, and the kinds that the server has.
//!
//! Invariants: nothing is installed before the object has the finalizer; a release that belongs to another object or
//! chart is neither changed nor removed; the status says what happened also when it failed; what Helm said in a failed
//! run is in the status without the secrets of the values.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::kube::api::Patch;
use kubewright::kube::core::{ApiResource, DynamicObject};
use kubewright::{Action, Cleanup, Context, Error, EventType, Reconciler, Request, Result};
use serde_json::{Map, Value, json};

use super::assignment::merge;
use super::chart::Chart;
use super::dependents::Dependents;
use super::manifest::{Part, parts};
use super::overrides::Overrides;
use super::owner::{Owner, same};
use super::program::Helm;
use super::release::{Next, Record, Release, next};
use super::releases::{Asked, Releases, Wrong};
use super::repair::{Repair, Verified};
use super::served::ServedKinds;
use super::status::{DEPLOYED, FAILED, INITIALIZED, IRRECONCILABLE, Status};
use crate::watches::{duration, next_after};

/// The finalizer of objects that have a release.
pub(super) const FINALIZER: &str = "helm.sdk.operatorframework.io/uninstall-release";
/// Its name in old versions of operator-sdk.
const OLD_FINALIZER: &str = "uninstall-helm-release";
/// The longest name of a release.
const LONGEST: usize = 53;
/// How often it is asked at least whether everything of an uninstalled release is gone.
const GONE: Duration = Duration::from_secs(5);

/// One kind and its chart.
pub(super) struct HelmReconciler {
    pub(super) helm: Arc<Helm>,
    pub(super) chart: Chart,
    pub(super) overrides: Overrides,
    pub(super) hides_overrides: bool,
    pub(super) resource: ApiResource,
    pub(super) period: Duration,
    /// `client` or `server`.
    pub(super) dry_run: String,
    pub(super) dependents: Arc<Dependents>,
    pub(super) served: Arc<ServedKinds>,
    pub(super) memory: Mutex<HashMap<Request, Memory>>,
}

/// What is known of one object's release. Losing it costs one dry run.
#[derive(Clone, Default)]
pub(super) struct Memory {
    /// The Secret of the release, in its version, and what is in it.
    release: Option<(String, Arc<Release>)>,
    /// What led to the release as it is.
    fingerprint: Option<u64>,
    verified: Verified,
}

/// A step that failed, in the words of the status.
struct Failure {
    condition: &'static str,
    reason: &'static str,
    message: String,
}

impl Failure {
    fn irreconcilable(why: impl ToString) -> Failure {
        Failure {
            condition: IRRECONCILABLE,
            reason: "ReconcileError",
            message: why.to_string(),
        }
    }

    fn release(reason: &'static str, why: impl ToString) -> Failure {
        Failure {
            condition: FAILED,
            reason,
            message: why.to_string(),
        }
    }
}

impl From<Wrong> for Failure {
    fn from(wrong: Wrong) -> Failure {
        Failure::irreconcilable(wrong)
    }
}

/// An object in work.
struct Work<'a> {
    object: &'a DynamicObject,
    ctx: &'a Context,
    owner: Owner,
    releases: Releases<'a>,
}

impl Reconciler for HelmReconciler {
    type Object = DynamicObject;

    async fn reconcile(&self, object: Arc<DynamicObject>, ctx: Context) -> Result<Action> {
        let period = self.period(&object)?;
        let mut status = Status::of(&object.data["status"], ctx.now());
        status.set(INITIALIZED, true, "", "");
        let work = self.work(&object, &ctx);
        let mut memory = self.remembered(ctx.request());
        let done = self.advance(&work, &mut status, &mut memory).await;
        if let Err(failure) = &done {
            if failure.condition == FAILED {
                status.remove(IRRECONCILABLE);
            }
            status.set(failure.condition, true, failure.reason, &failure.message);
        }
        self.remember(ctx.request(), memory);
        self.write(&work, &status).await?;
        match done {
            Ok(()) => Ok(next_after(period)),
            Err(failure) => Err(Error::retry(failure.message)),
        }
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.memory
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&request);
        Ok(Action::await_change())
    }

    async fn cleanup(&self, object: Arc<DynamicObject>, ctx: Context) -> Result<Cleanup> {
        let mut status = Status::of(&object.data["status"], ctx.now());
        let work = self.work(&object, &ctx);
        let waits = flag(&object, "uninstall-wait").unwrap_or(false);
        let done = self.remove(&work, &mut status, waits).await;
        if let Err(failure) = &done {
            status.set(failure.condition, true, failure.reason, &failure.message);
        }
        self.write(&work, &status).await?;
        match done {
            Err(failure) => Err(Error::retry(failure.message)),
            Ok(false) => {
                let period = self.period(&object)?;
                let wait = if period.is_zero() { GONE } else { period.min(GONE) };
                Ok(Cleanup::RequeueAfter(wait.max(Duration::from_millis(500))))
            }
            Ok(true) => {
                self.release_old_finalizer(&work).await?;
                self.memory
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .remove(ctx.request());
                Ok(Cleanup::Done)
            }
        }
    }
}

impl HelmReconciler {
    fn work<'a>(&'a self, object: &'a DynamicObject, ctx: &'a Context) -> Work<'a> {
        let meta = &object.metadata;
        Work {
            object,
            ctx,
            owner: Owner::of(&self.resource, meta),
            releases: Releases {
                helm: &self.helm,
                chart: &self.chart,
                client: ctx.client(),
                stop: ctx.stop(),
                name: meta.name.as_deref().unwrap_or_default(),
                namespace: meta.namespace.as_deref().unwrap_or_default(),
            },
        }
    }

    fn repair<'a>(&'a self, work: &'a Work<'_>) -> Repair<'a> {
        Repair {
            client: work.ctx.client(),
            dependents: &self.dependents,
            owner: &work.owner,
            release: work.releases.name,
            namespace: work.releases.namespace,
            chart: &self.chart.name,
        }
    }

    fn remembered(&self, request: &Request) -> Memory {
        let memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        memory.get(request).cloned().unwrap_or_default()
    }

    fn remember(&self, request: &Request, memory: Memory) {
        let mut all = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(request.clone(), memory);
    }

    fn period(&self, object: &DynamicObject) -> Result<Duration> {
        match annotation(object, "reconcile-period") {
            None => Ok(self.period),
            Some(text) => duration(text).ok_or_else(|| {
                Error::terminal(format!(
                    "the annotation helm.sdk.operatorframework.io/reconcile-period is no duration, such as 30s or 1h5m: {text:?}"
                ))
            }),
        }
    }

    /// The values of the chart: the object's spec, and what the operator overrides.
    fn values(&self, object: &DynamicObject) -> std::result::Result<Value, Failure> {
        let mut values = match &object.data["spec"] {
            Value::Null => Map::new(),
            Value::Object(spec) => spec.clone(),
            _ => {
                return Err(Failure::irreconcilable(
                    "its spec is no object: the spec is the values of the chart",
                ));
            }
        };
        merge(&mut values, &self.overrides.values);
        Ok(Value::Object(values))
    }

    /// Brings the release and its objects to what the object says.
    async fn advance(
        &self,
        work: &Work<'_>,
        status: &mut Status,
        memory: &mut Memory,
    ) -> std::result::Result<(), Failure> {
        let values = self.values(work.object)?;
        if work.releases.name.len() > LONGEST {
            return Err(Failure::irreconcilable(format!(
                "its name is longer than {LONGEST} characters, which the name of a Helm release may have"
            )));
        }
        let mut records = work.releases.records().await?;
        self.is_ours(work, &records, memory).await?;
        if let Next::Restore { revision } = next(&records) {
            tracing::info!(
                release = work.releases.name,
                revision,
                "an operation on the release did not end; the revision is restored"
            );
            memory.fingerprint = None;
            // When it fails, the upgrade below shows what is wrong.
            if let Err(error) = work.releases.restore(revision, self.rolls_back_by_force(work)).await {
                tracing::warn!(release = work.releases.name, %error, "the revision was not restored");
            }
            records = work.releases.records().await?;
        }
        let (deployed, changed) = match next(&records) {
            Next::Install { stale } => {
                self.install(work, &values, &stale).await?;
                (None, true)
            }
            Next::Restore { revision } => {
                self.upgrade(work, &values, Some(revision)).await?;
                (None, true)
            }
            Next::Compare { deployed } => self.compare(work, &values, deployed, memory).await?,
        };
        let record = match deployed {
            Some(record) => record,
            None => newest(&work.releases.records().await?)
                .ok_or_else(|| Failure::irreconcilable("helm has deployed a release, and its Secret is gone"))?,
        };
        let release = self.release(work, &record, memory).await?;
        if !changed {
            // A change that failed, and was taken back, is attempted no more.
            status.remove(FAILED);
        }
        let manifest = parts(&release.manifest).map_err(Failure::irreconcilable)?;
        let repair = self.repair(work);
        repair
            .run(&manifest, &mut memory.verified)
            .await
            .map_err(Failure::irreconcilable)?;
        if changed || memory.fingerprint.is_none() {
            let hooks: Vec<Part> = release
                .hooks
                .iter()
                .filter_map(|hook| parts(&hook.manifest).ok())
                .flatten()
                .collect();
            repair.own_hooks(&hooks).await.map_err(Failure::irreconcilable)?;
        }
        work.releases.own(&record, &work.owner).await?;
        memory.fingerprint = self.fingerprint(work, &values, release.version).await;
        status.remove(IRRECONCILABLE);
        status.remove(FAILED);
        let reason = match release.version {
            1 => "InstallSuccessful",
            _ => "UpgradeSuccessful",
        };
        status.set(DEPLOYED, true, reason, &release.info.notes);
        status.release(Some((&release.name, &release.manifest)));
        Ok(())
    }

    /// Whether the release belongs to this object: existing ones of its chart are taken over.
    async fn is_ours(
        &self,
        work: &Work<'_>,
        records: &[Record],
        memory: &mut Memory,
    ) -> std::result::Result<(), Failure> {
        let Some(last) = newest(records) else { return Ok(()) };
        let name = work.releases.name;
        if last.owner.as_ref().is_some_and(|owner| *owner != work.owner.uid) {
            return Err(Failure::irreconcilable(format!(
                "duplicate release name: the release {name:?} belongs to another object; name one of the two differently"
            )));
        }
        let release = self.release(work, &last, memory).await?;
        if !release.chart().is_empty() && release.chart() != self.chart.name {
            return Err(Failure::irreconcilable(format!(
                "duplicate release name: found existing release with name {name:?} for chart {:?}; name this object differently, or uninstall that release",
                release.chart()
            )));
        }
        Ok(())
    }

    /// The release of a record, which is read once in each of its versions.
    async fn release(
        &self,
        work: &Work<'_>,
        record: &Record,
        memory: &mut Memory,
    ) -> std::result::Result<Arc<Release>, Failure> {
        // Its owner and labels are no part of what is read; Helm changes a Secret with its status.
        let version = format!(
            "{} {} {}",
            record.secret,
            record.uid.as_deref().unwrap_or_default(),
            record.status
        );
        if let Some((known, release)) = &memory.release
            && *known == version
        {
            return Ok(release.clone());
        }
        let release = work.releases.read(record).await?;
        memory.release = Some((version, release.clone()));
        Ok(release)
    }

    async fn install(&self, work: &Work<'_>, values: &Value, stale: &[Record]) -> std::result::Result<(), Failure> {
        work.releases.forget(stale).await?;
        self.tell_overrides(work);
        let asked = asked(work.object, "install");
        let Err(error) = work.releases.install(values, &asked).await else {
            tracing::info!(
                release = work.releases.name,
                namespace = work.releases.namespace,
                "the release is installed"
            );
            return Ok(());
        };
        let mut message = format!("failed to install release: {error}");
        // A release that was written down is taken back, so that it can be installed again.
        let records = work.releases.records().await?;
        if !records.is_empty()
            && !work.ctx.stop().is_requested()
            && let Err(why) = work.releases.uninstall(&Asked::default()).await
        {
            message = format!("failed installation ({error}) and failed rollback: {why}");
        }
        Err(Failure::release("InstallError", message))
    }

    /// Upgrades the release; when that fails, `deployed` is restored.
    async fn upgrade(
        &self,
        work: &Work<'_>,
        values: &Value,
        deployed: Option<u64>,
    ) -> std::result::Result<(), Failure> {
        self.tell_overrides(work);
        let asked = asked(work.object, "upgrade");
        let Err(error) = work.releases.upgrade(values, &asked).await else {
            tracing::info!(
                release = work.releases.name,
                namespace = work.releases.namespace,
                force = asked.force,
                "the release is upgraded"
            );
            return Ok(());
        };
        let message = format!("failed to upgrade release: {error}");
        let records = work.releases.records().await?;
        let last = newest(&records).map(|last| last.version);
        if let (Some(deployed), Some(last)) = (deployed, last)
            && last > deployed
            && !work.ctx.stop().is_requested()
        {
            match work.releases.restore(deployed, self.rolls_back_by_force(work)).await {
                Ok(()) => tracing::info!(
                    release = work.releases.name,
                    revision = deployed,
                    "the upgrade failed, and the revision before is restored"
                ),
                Err(error) => {
                    tracing::warn!(release = work.releases.name, %error, "the revision before the failed upgrade was not restored");
                }
            }
        }
        Err(Failure::release("UpgradeError", message))
    }

    /// Upgrades a deployed release if its values or its chart lead to another manifest. Answers the record, if it still
    /// is the one, and whether Helm has changed something.
    async fn compare(
        &self,
        work: &Work<'_>,
        values: &Value,
        deployed: Record,
        memory: &mut Memory,
    ) -> std::result::Result<(Option<Record>, bool), Failure> {
        let fingerprint = self.fingerprint(work, values, deployed.version).await;
        if fingerprint.is_some() && fingerprint == memory.fingerprint {
            return Ok((Some(deployed), false));
        }
        let candidate = work.releases.candidate(values, &self.dry_run).await;
        let candidate =
            candidate.map_err(|why| Failure::irreconcilable(format!("failed to get candidate release: {why}")))?;
        let release = self.release(work, &deployed, memory).await?;
        let there = parts(&release.manifest).map_err(Failure::irreconcilable)?;
        let wanted = parts(&candidate).map_err(Failure::irreconcilable)?;
        if same(&work.owner, &there, &wanted) {
            return Ok((Some(deployed), false));
        }
        self.upgrade(work, values, Some(deployed.version)).await?;
        Ok((None, true))
    }

    /// What decides on a release's manifest. None when the cluster's objects do, too, or when it cannot be told.
    async fn fingerprint(&self, work: &Work<'_>, values: &Value, version: u64) -> Option<u64> {
        if self.dry_run == "server" {
            return None;
        }
        let served = self.served.stamp(work.ctx.client()).await?;
        let chart = self.chart.stamp().ok()?;
        let mut hasher = DefaultHasher::new();
        (values.to_string(), chart, served, version).hash(&mut hasher);
        Some(hasher.finish())
    }

    fn rolls_back_by_force(&self, work: &Work<'_>) -> bool {
        flag(work.object, "rollback-force").unwrap_or(true)
    }

    fn tell_overrides(&self, work: &Work<'_>) {
        for (path, text) in &self.overrides.texts {
            let text = if self.hides_overrides { "****" } else { text };
            work.ctx.event_dynamic(
                &self.resource,
                &work.object.metadata,
                EventType::Warning,
                "OverrideValuesInUse",
                format!("Chart value {path:?} overridden to {text:?} by operator's watches.yaml"),
            );
        }
    }

    /// Uninstalls the release; whether everything is gone that is waited for.
    async fn remove(&self, work: &Work<'_>, status: &mut Status, waits: bool) -> std::result::Result<bool, Failure> {
        let records = match work.releases.name.len() > LONGEST {
            true => Vec::new(),
            false => work.releases.records().await?,
        };
        let mut memory = self.remembered(work.ctx.request());
        if !records.is_empty() {
            if let Err(foreign) = self.is_ours(work, &records, &mut memory).await {
                if foreign.message.starts_with("duplicate release name") {
                    tracing::warn!(
                        release = work.releases.name,
                        why = foreign.message,
                        "it is not uninstalled"
                    );
                    return Ok(true);
                }
                return Err(foreign);
            }
            let uninstalled = work.releases.uninstall(&asked(work.object, "uninstall")).await;
            uninstalled.map_err(|why| Failure::release("UninstallError", why))?;
            tracing::info!(
                release = work.releases.name,
                namespace = work.releases.namespace,
                "the release is uninstalled"
            );
        }
        status.remove(FAILED);
        let manifest = status.manifest().map(str::to_owned);
        if let (true, Some(manifest)) = (waits, manifest) {
            let gone = self.repair(work).is_gone(&manifest).await;
            if !gone.map_err(|why| Failure::release("UninstallError", why))? {
                let message = "Waiting until all resources are deleted.";
                status.set(DEPLOYED, false, "UninstallSuccessful", message);
                return Ok(false);
            }
        }
        status.set(DEPLOYED, false, "UninstallSuccessful", "");
        status.release(None);
        Ok(true)
    }

    async fn write(&self, work: &Work<'_>, status: &Status) -> Result<()> {
        let Some(patch) = status.patch() else { return Ok(()) };
        let meta = &work.object.metadata;
        let (namespace, name) = (meta.namespace.as_deref(), work.releases.name);
        let written = work
            .ctx
            .client()
            .patch_status_dynamic(&self.resource, namespace, name, &Patch::Merge(patch))
            .await;
        match written {
            Err(error) if error.is_not_found() => Ok(()),
            written => written.map(drop),
        }
    }

    async fn release_old_finalizer(&self, work: &Work<'_>) -> Result<()> {
        let meta = &work.object.metadata;
        let Some(finalizers) = meta.finalizers.as_ref() else {
            return Ok(());
        };
        if !finalizers.iter().any(|name| name == OLD_FINALIZER) {
            return Ok(());
        }
        let rest: Vec<&String> = finalizers.iter().filter(|name| *name != OLD_FINALIZER).collect();
        // The newest state: the status was written meanwhile.
        let patch = json!({"metadata": {"uid": meta.uid, "finalizers": rest}});
        let (namespace, name) = (meta.namespace.as_deref(), work.releases.name);
        work.ctx
            .client()
            .patch_dynamic(&self.resource, namespace, name, &Patch::Merge(patch))
            .await?;
        Ok(())
    }
}

fn newest(records: &[Record]) -> Option<Record> {
    records.iter().max_by_key(|record| record.version).cloned()
}

fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    let annotations = object.metadata.annotations.as_ref()?;
    let value = annotations.get(&format!("helm.sdk.operatorframework.io/{name}"))?;
    Some(value.as_str())
}

/// A boolean annotation, in the notation of Go's `strconv.ParseBool`; none when it is none.
fn flag(object: &DynamicObject, name: &str) -> Option<bool> {
    match annotation(object, name)? {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        other => {
            tracing::warn!(
                annotation = name,
                value = other,
                "it is neither true nor false, and is not looked at"
            );
            None
        }
    }
}

/// What an object's annotations ask of one of Helm's verbs.
fn asked(object: &DynamicObject, verb: &str) -> Asked {
    Asked {
        force: verb == "upgrade" && flag(object, "upgrade-force").unwrap_or(false),
        no_hooks: flag(object, &format!("{verb}-disable-hooks")).unwrap_or(false),
        description: annotation(object, &format!("{verb}-description")).map(str::to_owned),
    }
}
