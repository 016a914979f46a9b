//! An operator out of a `watches.yaml`: its controllers, the proxy, its metrics.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright::kube::core::DynamicObject;
use kubewright::{Client, Controller, Controllers, Error, Event, Operator, Result, Scope, Stop, Waker, predicate};

use super::events::LogEvents;
use super::metrics::Metrics;
use super::proxy::{Dependents, Proxy};
use super::reconciler::{Ansible, Common};
use super::runner::no_program;
use super::user_metrics::UserMetrics;
use super::watch::{self, Defaults, Watch};
use crate::kinds;
use crate::watches::shown;

/// How an operator is to run: the flags of `ansible-operator run`, and the environment.
#[derive(Debug, Clone)]
pub struct Options {
    /// The name, for leader election and logs.
    pub name: String,
    /// `--watches-file`; relative paths in it begin at `folder`.
    pub watches: PathBuf,
    /// The working directory.
    pub folder: PathBuf,
    /// The environment.
    pub environment: BTreeMap<String, String>,
    /// `--ansible-roles-path`.
    pub roles_path: Option<String>,
    /// `--ansible-collections-path`.
    pub collections_path: Option<String>,
    /// `--ansible-args`.
    pub arguments: String,
    /// `--ansible-log-events`.
    pub log_events: LogEvents,
    /// `--ansible-verbosity`.
    pub verbosity: u8,
    /// `--max-concurrent-reconciles`.
    pub max_concurrent_reconciles: usize,
    /// `--reconcile-period`.
    pub reconcile_period: Duration,
    /// `--inject-owner-ref`.
    pub inject_owner_ref: bool,
    /// `--proxy-port`; 0 for any.
    pub proxy_port: u16,
    /// The port on which tasks with `osdk_metric` find the operator; `None` for none.
    pub metrics_port: Option<u16>,
    /// The program that runs roles and playbooks.
    pub runner: PathBuf,
    /// The folder of all runs; nobody else may enter it.
    pub runs: PathBuf,
    /// The namespaces that are watched; none means all.
    pub namespaces: Vec<String>,
}

impl Options {
    /// The defaults of `ansible-operator run`, in a folder and an environment.
    #[must_use]
    pub fn new(folder: impl Into<PathBuf>, environment: BTreeMap<String, String>) -> Options {
        let folder = folder.into();
        let listed = environment
            .get("WATCH_NAMESPACE")
            .map(String::as_str)
            .unwrap_or_default();
        let namespaces = listed.split(',').map(str::trim).filter(|name| !name.is_empty());
        Options {
            name: "ansible-operator".to_owned(),
            watches: folder.join("watches.yaml"),
            folder,
            roles_path: None,
            collections_path: None,
            arguments: String::new(),
            log_events: LogEvents::Tasks,
            verbosity: 2,
            max_concurrent_reconciles: std::thread::available_parallelism().map_or(1, NonZero::get),
            reconcile_period: Duration::from_secs(10 * 60 * 60),
            inject_owner_ref: true,
            proxy_port: 8888,
            metrics_port: Some(5050),
            runner: runner(&environment),
            runs: std::env::temp_dir().join("ansible-operator/runner"),
            namespaces: namespaces.map(str::to_owned).collect(),
            environment,
        }
    }

    /// A variable, with what the flags make of it.
    fn variable(&self, name: &str) -> Option<String> {
        let flag = match name {
            "ANSIBLE_ROLES_PATH" => &self.roles_path,
            "ANSIBLE_COLLECTIONS_PATH" => &self.collections_path,
            _ => &None,
        };
        flag.clone().or_else(|| self.environment.get(name).cloned())
    }

    /// Reads the `watches.yaml`.
    ///
    /// # Errors
    /// With file and line.
    pub fn read(&self) -> Result<Vec<Watch>, crate::watches::Error> {
        let variable = |name: &str| self.variable(name);
        let defaults = Defaults {
            folder: &self.folder,
            variable: &variable,
            max_concurrent_reconciles: self.max_concurrent_reconciles,
            verbosity: self.verbosity,
            reconcile_period: self.reconcile_period,
        };
        watch::read(&self.folder.join(&self.watches), &defaults)
    }
}

/// `ansible-runner`, of the virtual environment if there is one.
fn runner(environment: &BTreeMap<String, String>) -> PathBuf {
    let own = environment
        .get("VIRTUAL_ENV")
        .map(|folder| Path::new(folder).join("bin/ansible-runner"));
    own.filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("ansible-runner"))
}

/// That the runner is there: without it each object would fail by itself.
fn installed(options: &Options) -> Result<(), String> {
    let runner = &options.runner;
    let path = options.environment.get("PATH").cloned().unwrap_or_default();
    let is_there = match runner.components().count() {
        1 => std::env::split_paths(&path).any(|folder| folder.join(runner).is_file()),
        _ => options.folder.join(runner).is_file(),
    };
    match is_there {
        true => Ok(()),
        false => Err(no_program(runner)),
    }
}

/// What a program of a run gets beside this process' environment.
fn environment(options: &Options) -> Vec<(String, OsString)> {
    let mut all: Vec<(String, OsString)> = options
        .environment
        .iter()
        .map(|(name, value)| (name.clone(), value.into()))
        .collect();
    for name in ["ANSIBLE_ROLES_PATH", "ANSIBLE_COLLECTIONS_PATH"] {
        all.extend(options.variable(name).map(|value| (name.to_owned(), value.into())));
    }
    all.extend(roles_of_the_project(options).map(|paths| ("ANSIBLE_ROLES_PATH".to_owned(), paths)));
    // The runner calls ansible-playbook by name.
    let beside = options.runner.parent().filter(|folder| !folder.as_os_str().is_empty());
    if let Some(folder) = beside {
        let others = options.environment.get("PATH").cloned().unwrap_or_default();
        let paths = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&others));
        all.extend(std::env::join_paths(paths).ok().map(|paths| ("PATH".to_owned(), paths)));
    }
    all
}

/// Where Ansible finds roles that a playbook names: those of the project, as in the images of operator-sdk, before its
/// own places; `None` where the environment or Ansible's configuration says it.
fn roles_of_the_project(options: &Options) -> Option<OsString> {
    let own = options.folder.join("roles");
    let home = options.environment.get("HOME").map(PathBuf::from);
    let said = options.environment.get("ANSIBLE_CONFIG").map(PathBuf::from);
    let configuration = said
        .into_iter()
        .chain(home.iter().map(|home| home.join(".ansible.cfg")))
        .chain([PathBuf::from("/etc/ansible/ansible.cfg")])
        .find_map(|path| std::fs::read_to_string(path).ok())
        .unwrap_or_default();
    let is_said = configuration
        .lines()
        .any(|line| line.trim_start().starts_with("roles_path"));
    if options.variable("ANSIBLE_ROLES_PATH").is_some() || is_said || !own.is_dir() {
        return None;
    }
    let others = home.map(|home| home.join(".ansible/roles")).into_iter();
    let others = others.chain(["/usr/share/ansible/roles", "/etc/ansible/roles"].map(PathBuf::from));
    std::env::join_paths(std::iter::once(own).chain(others)).ok()
}

/// The kinds that are not served yet, each with the reason.
type Missing = Arc<Mutex<BTreeMap<String, String>>>;

/// The operator of a `watches.yaml`. Its kinds may come later than it: each controller begins when its kind is served.
///
/// # Errors
/// When the `watches.yaml` cannot be used, the runner is not installed, or the proxy's port is taken. Call it inside a tokio
/// runtime.
pub async fn operator(options: Options) -> Result<Operator> {
    let configuration = |error: String| Error::Configuration(error);
    let watches = options.read().map_err(|error| configuration(error.to_string()))?;
    installed(&options).map_err(configuration)?;
    let proxy = Proxy::listen(options.proxy_port, options.inject_owner_ref, options.namespaces.clone()).await;
    let proxy = proxy.map_err(|error| {
        let port = options.proxy_port;
        configuration(format!(
            "the proxy cannot listen on port {port} of this machine: {error}; say another --proxy-port"
        ))
    })?;
    if !options.inject_owner_ref {
        tracing::warn!("owners are not injected, and what roles make is not watched (--inject-owner-ref=false)");
    }
    let metrics = Metrics::default();
    let common = Arc::new(Common {
        program: options.runner.clone(),
        base: options.runs.clone(),
        environment: environment(&options),
        virtual_environment: options.environment.get("VIRTUAL_ENV").map(PathBuf::from),
        inventory: options
            .environment
            .get("ANSIBLE_INVENTORY")
            .filter(|path| !path.is_empty())
            .map(|path| options.folder.join(path)),
        explicit_gathering: options
            .environment
            .get("ANSIBLE_GATHERING")
            .is_some_and(|how| how == "explicit"),
        arguments: options.arguments.clone(),
        log_events: options.log_events,
        proxy: proxy.address(),
        runs: proxy.runs(),
        metrics: metrics.clone(),
        jobs: AtomicU64::new(0),
    });
    let of_roles = UserMetrics::default();
    let missing = Missing::default();
    let unserved = missing.clone();
    let operator = Operator::new(&options.name)
        .namespaces(options.namespaces.clone())
        .metrics(|registry| {
            metrics.register(registry);
            of_roles.register(registry);
        })
        .readiness_check("watches.yaml", move || {
            let missing = unserved.lock().unwrap_or_else(PoisonError::into_inner);
            missing.values().next().map_or(Ok(()), |why| Err(why.clone()))
        });
    let controllers = operator.controllers_handle();
    let proxy = Mutex::new(Some(proxy));
    let operator = operator.runnable_on_every_replica("proxy", move |client: Client, stop: Stop| {
        let proxy = proxy.lock().unwrap_or_else(PoisonError::into_inner).take();
        async move {
            if let Some(proxy) = proxy {
                proxy.serve(client.kube().clone(), stop).await;
            }
            Ok(())
        }
    });
    let operator = match options.metrics_port {
        None => operator,
        Some(port) => operator.runnable_on_every_replica("metrics of roles", move |_: Client, stop: Stop| {
            let of_roles = of_roles.clone();
            async move {
                if let Err(error) = of_roles.serve(port, stop).await {
                    tracing::warn!(%error, port, "roles cannot change metrics");
                }
                Ok(())
            }
        }),
    };
    let namespaces = options.namespaces;
    Ok(
        operator.runnable_on_every_replica("watches.yaml", move |client: Client, stop: Stop| {
            let starting = watches.iter().map(|watch| {
                let start = Start {
                    watch: Arc::new(watch.clone()),
                    name: name(watch, &watches),
                    common: common.clone(),
                    missing: missing.clone(),
                    namespaces: namespaces.clone(),
                };
                start.run(client.clone(), controllers.clone(), stop.clone())
            });
            let starting = futures::future::try_join_all(starting.collect::<Vec<_>>());
            async move { starting.await.map(drop) }
        }),
    )
}

/// The name of a controller: as in ansible-operator, with the group where that is not enough.
fn name(watch: &Watch, all: &[Watch]) -> String {
    let short = |watch: &Watch| format!("{}-{}-controller", watch.kind.kind, watch.kind.version).to_lowercase();
    let (own, same) = (
        short(watch),
        all.iter().filter(|other| short(other) == short(watch)).count(),
    );
    match same > 1 {
        true => format!("{own}.{}", watch.kind.group),
        false => own,
    }
}

/// A controller that is to begin.
struct Start {
    watch: Arc<Watch>,
    name: String,
    common: Arc<Common>,
    missing: Missing,
    namespaces: Vec<String>,
}

impl Start {
    fn tell(&self, why: Option<&str>) {
        let kind = shown(&self.watch.kind);
        let mut missing = self.missing.lock().unwrap_or_else(PoisonError::into_inner);
        match why {
            Some(why) if missing.get(&kind).is_none_or(|known| known != why) => {
                tracing::warn!("{why}");
                missing.insert(kind, why.to_owned());
            }
            Some(_) => {}
            None => {
                missing.remove(&kind);
            }
        }
    }

    async fn run(self, client: Client, controllers: Controllers, stop: Stop) -> Result<()> {
        let served = kinds::wait_for(client.kube(), &self.watch.kind, &stop, |why| self.tell(Some(why))).await;
        let Some(served) = served else { return Ok(()) };
        self.tell(None);
        let waker = Waker::new();
        let namespaces = self.namespaces.clone();
        let kind = self.watch.kind.clone();
        let dependents = Dependents::new(
            kind,
            served.namespaced,
            waker.clone(),
            client.cache().clone(),
            namespaces,
        );
        let reconciler = Ansible {
            watch: self.watch.clone(),
            served: served.clone(),
            common: self.common.clone(),
            dependents: Arc::new(dependents),
        };
        let watch = self.watch;
        let annotations = watch.watch_annotations_changes;
        let mut controller = Controller::dynamic(&served.resource, served.namespaced, reconciler)
            .named(self.name)
            .concurrency(watch.max_concurrent_reconciles)
            .source(waker.source())
            .with_predicate(move |event: &Event<DynamicObject>| concerns(event, annotations));
        if let Some(selector) = &watch.selector {
            controller = controller.within(Scope::all().labels(selector.clone()));
        }
        if let Some(finalizer) = &watch.finalizer {
            controller = controller.finalizer(&finalizer.name);
        }
        controllers.add(controller).await
    }
}

/// Whether a change of an object is one to run for: of its spec, of annotations if they are watched, and any of an object
/// whose changes the server does not number.
fn concerns(event: &Event<DynamicObject>, annotations: bool) -> bool {
    let unnumbered = event.object().metadata.generation.is_none();
    unnumbered || predicate::generation_changed(event) || annotations && predicate::annotations_changed(event)
}
