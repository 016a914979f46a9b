//! One object, one run: the status says that it runs, the role or playbook runs, the status says how it ended.
//!
//! Invariants: a run that did not end with Ansible's counts has failed, whatever its exit code; an object that is being
//! deleted runs only for its finalizer, which goes when that run was well; the status is changed in its newest state, and
//! what others wrote into it stays.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kubewright::kube::api::Patch;
use kubewright::kube::core::DynamicObject;
use kubewright::{Action, Cleanup, Context, Error, Reconciler, Request, Result};
use serde_json::{Value, json};

use super::events::{self, LogEvents, Outcome};
use super::input::{self, Input};
use super::metrics::Metrics;
use super::proxy::{Dependents, Owner, Run, Runs};
use super::receiver::Receiver;
use super::runner::{self, Call};
use super::status::{Progress, conditions};
use super::vars::extra_vars;
use super::watch::{Target, Watch};
use crate::kinds::Served;
use crate::watches::{duration, next_after, shown};

/// How long after a run the next one is due, for one object.
const RECONCILE_PERIOD: &str = "ansible.sdk.operatorframework.io/reconcile-period";
/// Of how many runs artifacts are kept, for one object.
const MAX_RUNNER_ARTIFACTS: &str = "ansible.sdk.operatorframework.io/max-runner-artifacts";
/// The number of `-v`, for one object.
const VERBOSITY: &str = "ansible.sdk.operatorframework.io/verbosity";

/// How often a status is written when others write the object at the same time.
const TRIES: usize = 8;

/// What all controllers of an operator have in common.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) program: PathBuf,
    pub(super) base: PathBuf,
    pub(super) environment: Vec<(String, OsString)>,
    pub(super) virtual_environment: Option<PathBuf>,
    pub(super) inventory: Option<PathBuf>,
    pub(super) explicit_gathering: bool,
    pub(super) arguments: String,
    pub(super) log_events: LogEvents,
    pub(super) proxy: std::net::SocketAddr,
    pub(super) runs: Runs,
    pub(super) metrics: Metrics,
    pub(super) jobs: AtomicU64,
}

/// The reconciler of a kind.
#[derive(Debug)]
pub(super) struct Ansible {
    pub(super) watch: Arc<Watch>,
    pub(super) served: Served,
    pub(super) common: Arc<Common>,
    pub(super) dependents: Arc<Dependents>,
}

impl Reconciler for Ansible {
    type Object = DynamicObject;

    async fn reconcile(&self, object: Arc<DynamicObject>, ctx: Context) -> Result<Action> {
        if object.metadata.deletion_timestamp.is_some() {
            return Ok(Action::await_change()); // there is no finalizer, so it is not ours any more
        }
        let period = self.period(&object, &ctx).await?;
        let asked = self.run(&object, &ctx, false).await?;
        Ok(next_after(asked.unwrap_or(period)))
    }

    async fn cleanup(&self, object: Arc<DynamicObject>, ctx: Context) -> Result<Cleanup> {
        if let Some(period) = self.run(&object, &ctx, true).await?.filter(|period| !period.is_zero()) {
            return Ok(Cleanup::RequeueAfter(period));
        }
        // Before the finalizer goes: an operator that dies after that has nobody who would come back for the folder.
        self.leave(ctx.request()).await?;
        Ok(Cleanup::Done)
    }

    async fn deleted(&self, request: Request, _: Context) -> Result<Action> {
        self.leave(&request).await?;
        Ok(Action::await_change())
    }
}

impl Ansible {
    /// Removes the folder of an object's runs.
    async fn leave(&self, request: &Request) -> Result<()> {
        let folder = input::folder_of(&self.common.base, &self.watch.kind, request);
        let base = self.common.base.clone();
        blocking(move || input::remove(&base, &folder)).await
    }
}

/// Runs what reads and writes files.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(Error::retry)?.map_err(Error::retry)
}

fn annotation<'a>(object: &'a DynamicObject, name: &str) -> Option<&'a str> {
    object.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// A number that an annotation says; one that is none is ignored.
fn number<T: std::str::FromStr>(object: &DynamicObject, name: &str) -> Option<T> {
    let text = annotation(object, name)?;
    let number = text.parse().ok();
    if number.is_none() {
        tracing::warn!(annotation = name, text, "it is no whole number and is ignored");
    }
    number
}

impl Ansible {
    /// How long after this run the next one is due.
    async fn period(&self, object: &DynamicObject, ctx: &Context) -> Result<Duration> {
        let Some(text) = annotation(object, RECONCILE_PERIOD) else {
            return Ok(self.watch.reconcile_period);
        };
        match duration(text) {
            Some(period) => Ok(period),
            None => {
                let why = format!("Unable to parse reconcile period annotation: {text:?} is no duration such as 30s");
                self.failed(ctx, object, None, &why).await?;
                Err(Error::retry(why))
            }
        }
    }

    /// Runs the role or playbook, and tells how it ended. Answers when the role wants to run again.
    async fn run(&self, object: &DynamicObject, ctx: &Context, finalizing: bool) -> Result<Option<Duration>> {
        self.tell(ctx, object, &Progress::Running).await?;
        let began = Instant::now();
        let ran = self.run_once(object, ctx, finalizing).await;
        self.common.metrics.took(&shown(&self.watch.kind), began.elapsed());
        let (outcome, ended) = match ran {
            Ok(ran) => ran,
            Err(error) => {
                self.failed(ctx, object, None, &format!("Unable to run reconciliation: {error}"))
                    .await?;
                return Err(error);
            }
        };
        if ended.status.is_none() {
            return Err(Error::retry(ended.words())); // the next process runs it again
        }
        let well = ended.status.is_some_and(|status| status.success());
        match &outcome.result {
            Some(result) if !outcome.failed && well => {
                self.common.metrics.ended(&shown(&self.watch.kind), true);
                self.tell(ctx, object, &Progress::Succeeded(result)).await?;
                Ok(outcome.requeue_after)
            }
            result => {
                let mut message = outcome.message();
                if message.is_empty() || result.is_none() {
                    let words = format!("{} before its playbook had ended", ended.words());
                    let parts = [message, words, ended.output.clone()];
                    message = parts
                        .into_iter()
                        .filter(|part| !part.is_empty())
                        .collect::<Vec<_>>()
                        .join("\n");
                }
                let message = events::bounded(&message);
                self.failed(ctx, object, result.as_ref(), &message).await?;
                Err(Error::retry(message))
            }
        }
    }

    /// Runs the program, with its folder, its way to the cluster and its events.
    async fn run_once(
        &self,
        object: &DynamicObject,
        ctx: &Context,
        finalizing: bool,
    ) -> Result<(Outcome, runner::Ended)> {
        let (common, watch) = (&*self.common, &*self.watch);
        let job = self.job();
        let folder = input::folder_of(&common.base, &watch.kind, ctx.request());
        let finalizer = watch.finalizer.as_ref().filter(|_| finalizing);
        let target = finalizer
            .and_then(|finalizer| finalizer.target.as_ref())
            .unwrap_or(&watch.target)
            .clone();
        let admitted = common.runs.admit(self.admission(object)).map_err(Error::retry)?;
        let private = tempfile::Builder::new()
            .prefix("ansibleoperator-")
            .tempdir()
            .map_err(Error::retry)?;
        let (kubeconfig, socket) = (private.path().join("kubeconfig"), private.path().join("events"));
        let text = admitted.kubeconfig(common.proxy, object.metadata.namespace.as_deref());
        let vars = extra_vars(watch, object, finalizing);
        let (given, base) = (
            (folder.clone(), target.clone(), kubeconfig.clone(), socket.clone()),
            common.base.clone(),
        );
        let (arguments, inventory) = (common.arguments.clone(), common.inventory.clone());
        let environment = common.virtual_environment.clone();
        blocking(move || {
            let (folder, target, kubeconfig, socket) = given;
            input::private_folder(&base, &folder)?;
            std::fs::write(&kubeconfig, text)?;
            let input = Input {
                folder: &folder,
                target: &target,
                vars: &vars,
                kubeconfig: &kubeconfig,
                socket: &socket,
                arguments: &arguments,
                inventory: inventory.as_deref(),
                virtual_environment: environment.as_deref(),
            };
            input.write()
        })
        .await?;
        let ran = self
            .call(object, ctx, &job, &folder, &target, (&kubeconfig, &socket))
            .await;
        let (used, name) = (folder, job);
        let forgotten = blocking(move || input::forget(&used).and_then(|()| runner::mark_latest(&used, &name)));
        if let Err(error) = forgotten.await {
            tracing::warn!(%error, "what a run was given is still there");
        }
        ran
    }

    async fn call(
        &self,
        object: &DynamicObject,
        ctx: &Context,
        job: &str,
        folder: &Path,
        target: &Target,
        (kubeconfig, socket): (&Path, &Path),
    ) -> Result<(Outcome, runner::Ended)> {
        let common = &*self.common;
        let (receiver, mut received) = Receiver::start(socket).map_err(Error::retry)?;
        let mut environment = common.environment.clone();
        environment.extend(["K8S_AUTH_KUBECONFIG", "KUBECONFIG"].map(|name| (name.to_owned(), kubeconfig.into())));
        let call = Call {
            program: &common.program,
            folder,
            target,
            job,
            artifacts: number(object, MAX_RUNNER_ARTIFACTS).unwrap_or(self.watch.max_runner_artifacts),
            verbosity: number(object, VERBOSITY)
                .filter(|number| *number <= 7)
                .unwrap_or(self.watch.verbosity),
            explicit_gathering: common.explicit_gathering,
            environment: &environment,
        };
        let shown = format!("{} {}", self.watch.kind.kind, ctx.request());
        tracing::info!(job, object = shown, ?target, "run starts");
        let mut outcome = Outcome::default();
        let ended = {
            let running = call.run(ctx.stop());
            tokio::pin!(running);
            loop {
                tokio::select! {
                    Some(event) = received.recv() => see(&mut outcome, &event, common.log_events, job, &shown),
                    ended = &mut running => break ended.map_err(Error::retry)?,
                }
            }
        };
        while let Ok(event) = received.try_recv() {
            see(&mut outcome, &event, common.log_events, job, &shown);
        }
        drop(receiver);
        if outcome.result.is_none() && outcome.messages.is_empty() {
            let (folder, name) = (folder.to_owned(), job.to_owned());
            for event in blocking(move || runner::recorded(&folder, &name)).await? {
                see(&mut outcome, &event, common.log_events, job, &shown);
            }
        }
        let end = ended.words();
        tracing::info!(job, object = shown, result = ?outcome.result, "run ends: {end}");
        Ok((outcome, ended))
    }

    fn admission(&self, object: &DynamicObject) -> Run {
        let meta = &object.metadata;
        Run {
            owner: Owner {
                kind: self.watch.kind.clone(),
                namespace: meta.namespace.clone().filter(|_| self.served.namespaced),
                name: meta.name.clone().unwrap_or_default(),
                uid: meta.uid.clone().unwrap_or_default(),
            },
            watch: self.watch.clone(),
            dependents: self.dependents.clone(),
        }
    }

    /// A name that no run of this or an earlier process has.
    fn job(&self) -> String {
        let since = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap_or_default();
        let number = self.common.jobs.fetch_add(1, Ordering::Relaxed);
        format!("{}{:04}", since.as_millis(), number % 10_000)
    }

    async fn failed(
        &self,
        ctx: &Context,
        object: &DynamicObject,
        result: Option<&super::status::AnsibleResult>,
        message: &str,
    ) -> Result<()> {
        self.common.metrics.ended(&shown(&self.watch.kind), false);
        self.tell(ctx, object, &Progress::Failed(result, message)).await
    }

    /// Writes the conditions, into the newest state of the same object; one that is gone needs none.
    async fn tell(&self, ctx: &Context, object: &DynamicObject, progress: &Progress<'_>) -> Result<()> {
        if !self.watch.manage_status {
            return Ok(());
        }
        let (client, resource, request) = (ctx.client(), &self.served.resource, ctx.request());
        let now = format!("{:.0}", ctx.now());
        let mut tries = 0;
        loop {
            let newest = client
                .live_of::<DynamicObject>(resource, request.namespace(), request.name())
                .await?;
            let Some(newest) = newest.filter(|newest| newest.metadata.uid == object.metadata.uid) else {
                return Ok(());
            };
            let after = conditions(&newest.data["status"], progress, &now);
            if after == newest.data["status"]["conditions"] {
                return Ok(());
            }
            let version = &newest.metadata.resource_version;
            let patch: Value = json!({"metadata": {"resourceVersion": version}, "status": {"conditions": after}});
            let patch = Patch::Merge(patch);
            tries += 1;
            let told = client
                .patch_status_dynamic(resource, request.namespace(), request.name(), &patch)
                .await;
            match told {
                Err(error) if error.is_conflict() && tries < TRIES => {}
                Err(error) if error.is_not_found() => {
                    let gone = client
                        .live_of::<DynamicObject>(resource, request.namespace(), request.name())
                        .await?;
                    return match gone {
                        None => Ok(()),
                        Some(_) => Err(Error::retry(format!(
                            "{} has no status subresource: add it to the CRD, or say manageStatus: false in watches.yaml",
                            self.watch.kind.kind
                        ))),
                    };
                }
                Err(error) => return Err(error),
                Ok(_) => return Ok(()),
            }
        }
    }
}

fn see(outcome: &mut Outcome, event: &events::Event, wanted: LogEvents, job: &str, object: &str) {
    events::log(event, wanted, job, object);
    outcome.see(event);
}
