//! Operators that are Helm charts: the spec of an object is the values of a release.
//!
//! Helm itself renders and installs, as a program beside this one ([`Helm`]); the releases are kept in its own Secrets,
//! so that `helm list` and `helm history` show them. What operators of operator-sdk do with an object, its status and its
//! annotations is done here, under the same names.
//!
//! - `watch.rs`: an entry of `watches.yaml`; `overrides.rs`, `assignment.rs`: its `overrideValues`,
//! - `program.rs`: the Helm program; `releases.rs`: what it is asked to do with a release,
//! - `release.rs`: what the Secrets of a release say, and what it needs next,
//! - `reconciler.rs`: the order of it all,
//! - `manifest.rs`, `owner.rs`, `drift.rs`, `repair.rs`: the objects of a release,
//! - `dependents.rs`: their watches; `served.rs`: the kinds that charts may ask for,
//! - `scaffold.rs`: charts for new projects.

mod assignment;
mod chart;
mod dependents;
mod drift;
mod manifest;
mod overrides;
mod owner;
mod program;
mod reconciler;
mod release;
mod releases;
mod repair;
mod scaffold;
mod served;
mod status;
mod watch;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use kubewright::{Client, Controller, Controllers, Error, Operator, Result, Scope, Stop};

use self::dependents::Dependents;
use self::reconciler::{FINALIZER, HelmReconciler};
use self::served::ServedKinds;
use self::watch::Watch;
use crate::kinds::wait_for;

pub use self::program::{Helm, HelmError, PROGRAM};
pub use self::scaffold::{Wanted, copy};

/// The first delay of retries, and the longest: each costs a run of Helm.
const RETRIES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(1000));

/// How an operator of charts works, besides its `watches.yaml`.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its name.
    pub name: String,
    /// How long after a reconcile the next one is due, unless a kind or an object says otherwise; zero for never.
    pub reconcile_period: Duration,
    /// How many objects of a kind are reconciled at the same time, unless the kind says otherwise.
    pub concurrency: usize,
    /// Whether events hide the values that the operator overrides.
    pub suppress_override_values: bool,
    /// The namespaces that it works in; all when there is none.
    pub namespaces: Vec<String>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: "helm-operator".to_owned(),
            reconcile_period: Duration::from_secs(60),
            concurrency: std::thread::available_parallelism().map_or(1, usize::from),
            suppress_override_values: false,
            namespaces: Vec::new(),
        }
    }
}

/// The operator of a `watches.yaml`. Paths of charts in it are relative to the current folder. Its controllers begin when
/// the server serves their kinds.
///
/// # Errors
/// [`Error::Configuration`] when the file cannot be used, with its place.
pub async fn operator(
    watches: &Path,
    helm: Arc<Helm>,
    options: Options,
    variable: impl Fn(&str) -> Option<String> + Sync,
) -> Result<Operator> {
    let wrong = |why: &dyn std::fmt::Display| Error::Configuration(why.to_string());
    let text = std::fs::read_to_string(watches).map_err(|why| {
        wrong(&format_args!(
            "{}: it cannot be read: {why}; name the file with --watches-file",
            watches.display()
        ))
    })?;
    let mut parsed = Vec::new();
    for entry in crate::watches::parse(watches, &text).map_err(|why| wrong(&why))? {
        parsed.push(Watch::of(entry, &helm, &variable).await.map_err(|why| wrong(&why))?);
    }
    let mut names: BTreeMap<String, usize> = BTreeMap::new();
    for watch in &parsed {
        *names.entry(watch.kind.kind.to_lowercase()).or_default() += 1;
    }
    let charts: Vec<String> = parsed.iter().map(|watch| watch.chart.name.clone()).collect();
    let mut operator = Operator::new(&options.name).namespaces(options.namespaces.clone());
    let controllers = operator.controllers_handle();
    let shared = Arc::new(Shared {
        helm,
        charts,
        options,
        served: Arc::default(),
    });
    for watch in parsed {
        let kind = watch.kind.kind.to_lowercase();
        let name = match names.get(&kind) {
            Some(1) => format!("{kind}-controller"),
            _ => format!("{kind}-{}-{}-controller", watch.kind.version, watch.kind.group),
        };
        let (controllers, shared) = (controllers.clone(), shared.clone());
        let watch = Arc::new(watch);
        operator = operator.runnable(format!("watch of {name}"), move |client: Client, stop: Stop| {
            let (controllers, shared, watch, name) = (controllers.clone(), shared.clone(), watch.clone(), name.clone());
            async move { shared.start(&name, &watch, client, stop, &controllers).await }
        });
    }
    Ok(operator)
}

/// What the kinds of one operator share.
struct Shared {
    helm: Arc<Helm>,
    charts: Vec<String>,
    options: Options,
    served: Arc<ServedKinds>,
}

impl Shared {
    /// Adds the controller of a kind when the server serves it, and waits for the stop.
    async fn start(
        &self,
        name: &str,
        watch: &Watch,
        client: Client,
        stop: Stop,
        controllers: &Controllers,
    ) -> Result<()> {
        for unknown in &watch.unknown {
            tracing::warn!("{unknown}");
        }
        let report = |why: &str| tracing::warn!(controller = name, "it waits: {why}");
        let Some(served) = wait_for(client.kube(), &watch.kind, &stop, report).await else {
            return Ok(());
        };
        if !served.namespaced {
            return Err(Error::Configuration(format!(
                "{}: objects of a chart are in a namespace, where their release is; make the kind namespaced",
                crate::watches::shown(&watch.kind)
            )));
        }
        let dependents = Arc::new(Dependents::new(
            served.resource.clone(),
            self.charts.clone(),
            self.options.namespaces.clone(),
            watch.watches_dependents,
        ));
        let reconciler = HelmReconciler {
            helm: self.helm.clone(),
            chart: watch.chart.clone(),
            overrides: watch.overrides.clone(),
            hides_overrides: self.options.suppress_override_values,
            resource: served.resource.clone(),
            period: watch.period.unwrap_or(self.options.reconcile_period),
            dry_run: watch.dry_run.clone(),
            dependents: dependents.clone(),
            served: self.served.clone(),
            memory: Mutex::new(HashMap::new()),
        };
        let scope = match &watch.selector {
            Some(selector) => Scope::all().labels(selector.clone()),
            None => Scope::all(),
        };
        let controller = Controller::dynamic(&served.resource, true, reconciler)
            .named(name)
            .within(scope)
            .concurrency(watch.concurrency.unwrap_or(self.options.concurrency))
            .backoff(RETRIES.0, RETRIES.1)
            .finalizer(FINALIZER)
            .source(dependents.source());
        controllers.add(controller).await?;
        tracing::info!(controller = name, chart = %watch.chart.path.display(), helm = self.helm.version(), "objects of the kind become releases");
        stop.requested().await;
        Ok(())
    }
}

/// The absolute path of a chart.
fn absolute(path: &str) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| PathBuf::from(path))
}
