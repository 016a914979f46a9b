//! How a cluster is to be, and its start.
//!
//! Invariant: nothing is started before everything that was asked for has been looked at. Not here: the work of a
//! running cluster ([`Cluster`]).

use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kubewright::{Clock, Entropy, Observer, Stop};
use kubewright_apiserver::audit::AuditLog;
use kubewright_apiserver::authentication::Signer;
use kubewright_apiserver::storage::MemoryStorage;
use kubewright_apiserver::{ApiServer, Config, Minor, Parts, ServiceRange, UserInfo};
use kubewright_nodes::{Nodes, ProcessRuntime, Processes, Stages};
use kubewright_runlog::Recorder;
use kubewright_server::{
    Front, FrontProxy, Functions, HttpsOutbound, Limits, Pki, Purpose, RealEnv, ServiceAccountKey, Threads, Workers,
};
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use super::authority::{LazyAuthority, certificates, opened, root_ca, service_account_token};
use super::{Cluster, ForkPoint, Inner};
use crate::control::{self, Controllers, Plan};
use crate::controllers::{Collected, Settings};
use crate::error::{Error, Result};
use crate::kinds;
use crate::{absent, inprocess, meter};

/// How a cluster is to be; see [`Cluster::builder`].
#[derive(Clone)]
pub struct ClusterBuilder {
    controllers: Controllers,
    settings: Settings,
    observer: Option<Arc<dyn Observer>>,
    limits: Limits,
    threads: usize,
    config: Config,
    data_dir: Option<PathBuf>,
    unsynced: bool,
    pki: Option<Pki>,
    advertised: Option<IpAddr>,
    has_endpoints: bool,
    functions: Functions,
    audit: Option<AuditLog>,
    recorder: Option<Arc<dyn Recorder>>,
    still: bool,
    processes: Option<ProcessRuntime>,
    without: BTreeSet<&'static str>,
    fork: Option<ForkPoint>,
}

impl Default for ClusterBuilder {
    fn default() -> ClusterBuilder {
        ClusterBuilder {
            controllers: Controllers::All,
            settings: Settings::default(),
            observer: None,
            limits: Limits::default(),
            threads: 0,
            config: Config::default(),
            data_dir: None,
            unsynced: false,
            pki: None,
            advertised: None,
            has_endpoints: true,
            functions: Functions::default(),
            audit: None,
            recorder: None,
            still: false,
            processes: None,
            without: BTreeSet::new(),
            fork: None,
        }
    }
}

impl ClusterBuilder {
    /// Which controllers run. Default all.
    #[must_use]
    pub fn controllers(mut self, controllers: Controllers) -> ClusterBuilder {
        self.controllers = controllers;
        self
    }

    /// The addresses that Services get. Default `10.0.0.0/24`, as kube-apiserver.
    #[must_use]
    pub fn service_range(mut self, range: ServiceRange) -> ClusterBuilder {
        self.config.service_range = range;
        self
    }

    /// The addresses that Services of type LoadBalancer get. Default none: they wait for a controller of the user's.
    #[must_use]
    pub fn load_balancer_range(mut self, range: ServiceRange) -> ClusterBuilder {
        self.settings.load_balancer_range = Some(range);
        self
    }

    /// How long Events stay after their last write; zero: for ever. Default one hour, as kube-apiserver.
    #[must_use]
    pub fn event_ttl(mut self, lifetime: Duration) -> ClusterBuilder {
        self.config.event_ttl = lifetime;
        self
    }

    /// The simulated nodes that the cluster has from its start: how many, or with labels, capacity and zones.
    ///
    /// ```
    /// use kubewright_cluster::{Cluster, Nodes};
    /// let three = Cluster::builder().nodes(3);
    /// let small = Cluster::builder().nodes(Nodes::from(3).zones(["a", "b", "c"]).capacity("cpu", "2"));
    /// ```
    #[must_use]
    pub fn nodes(mut self, nodes: impl Into<Nodes>) -> ClusterBuilder {
        self.settings.nodes = nodes.into();
        self
    }

    /// The names that the scheduler goes by. Default `default-scheduler`. Pods that ask for another one in
    /// `spec.schedulerName` are left to it; all names together are one scheduler, as the profiles of a kube-scheduler.
    ///
    /// ```
    /// use kubewright_cluster::Cluster;
    /// let both = Cluster::builder().schedulers(["default-scheduler", "batch"]);
    /// ```
    #[must_use]
    pub fn schedulers(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> ClusterBuilder {
        self.settings.schedulers = names.into_iter().map(Into::into).collect();
        self
    }

    /// The stages by which pods, nodes and other objects go on, in kwok's vocabulary (kind Stage).
    #[must_use]
    pub fn stages(mut self, stages: Stages) -> ClusterBuilder {
        self.settings.stages = stages;
        self
    }

    /// Installs the definition of kwok's Stage, so that stages can be objects of the cluster.
    #[must_use]
    pub fn stage_objects(mut self) -> ClusterBuilder {
        self.settings.stage_objects = true;
        self
    }

    /// Lives in time that is not the machine's: `clock` tells the time of day, and tokio's timers, which are paused,
    /// all delays. `entropy` makes uids, generated names and all else that is left to chance, so that a seed leads to
    /// the same objects in every run; keys and certificates are made by the system. The time goes on when nothing is left to do. Everything runs where it is asked for, on no thread of
    /// its own; nodes that are well say so without a Lease that is renewed all the time; watches are told nothing for
    /// hours when there is nothing to tell; changes are kept however old they are, since hours pass in milliseconds.
    ///
    /// `TestCluster::in_virtual_time` of `kubewright-testing` sets the other things that this needs.
    #[must_use]
    pub fn virtual_time(mut self, clock: Arc<dyn Clock>, entropy: Entropy) -> ClusterBuilder {
        self.settings.clock = clock;
        self.settings.entropy = entropy;
        self.settings.heartbeats = false;
        self.config.bookmark_interval = Duration::from_secs(24 * 3600);
        self.config.compaction_interval = Duration::ZERO;
        self.still = true;
        self
    }

    /// The settings of the controllers: the simulated nodes, and how long their pods take. The certificate that they
    /// publish is always the cluster's own.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> ClusterBuilder {
        self.settings = settings;
        self
    }

    /// The observer of the built-in controllers: it learns what they do, and why. Default: none.
    #[must_use]
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> ClusterBuilder {
        self.observer = Some(observer);
        self
    }

    /// The limits of one client over HTTPS.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> ClusterBuilder {
        self.limits = limits;
        self
    }

    /// How many threads of its own the cluster serves HTTPS with; each connection stays on one of them. Default 0: on
    /// the runtime that calls [`Cluster::listen`], which is right for tests. A program that serves many clients wants
    /// one for each processor, as far as the clients leave them to it.
    #[must_use]
    pub fn serving_threads(mut self, count: usize) -> ClusterBuilder {
        self.threads = count;
        self
    }

    /// The version of Kubernetes that is served. Default [`Minor::default`].
    ///
    /// ```
    /// use kubewright_cluster::{Cluster, Minor};
    /// let newer = Cluster::builder().kubernetes_version(Minor::V37);
    /// ```
    #[must_use]
    pub fn kubernetes_version(mut self, minor: Minor) -> ClusterBuilder {
        self.config.minor = minor;
        self
    }

    /// How the API server is to be: the version it serves, how much history it keeps, whose static tokens it takes, which
    /// admission plugins run.
    /// Pods get their service account when the controller `serviceaccount` runs or the configuration says so.
    #[must_use]
    pub fn api(mut self, config: Config) -> ClusterBuilder {
        self.config = config;
        self
    }

    /// Keeps everything in this folder, which is made when it is missing: objects, the certificate authority, keys. A
    /// cluster that is started with it later goes on where this one ended, even if it was killed: every acknowledged
    /// write is on the disk. Default in memory.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> ClusterBuilder {
        self.data_dir = Some(path.into());
        self
    }

    /// Does not wait for the disk of [`data_dir`](ClusterBuilder::data_dir): an acknowledged write survives the end of
    /// the process, even by a signal, but not that of the machine. Default no. As etcd's `--unsafe-no-fsync`, for
    /// tests.
    #[must_use]
    pub fn unsynced(mut self, unsynced: bool) -> ClusterBuilder {
        self.unsynced = unsynced;
        self
    }

    /// Serves with these certificates and keys, and makes none. Reached by [`Cluster::serve`], since there is no
    /// administrator's certificate that a kubeconfig could hold.
    #[must_use]
    pub fn pki(mut self, pki: Pki) -> ClusterBuilder {
        self.pki = Some(pki);
        self
    }

    /// The address that Endpoints and EndpointSlice `kubernetes` say (`--advertise-address`). Default: that of the
    /// listener.
    pub fn advertise(mut self, address: IpAddr) -> ClusterBuilder {
        self.advertised = Some(address);
        self
    }

    /// Whether it writes Endpoints and EndpointSlice `kubernetes` (`--endpoint-reconciler-type`). Default yes;
    /// otherwise another program maintains them.
    pub fn endpoints(mut self, are_written: bool) -> ClusterBuilder {
        self.has_endpoints = are_written;
        self
    }

    /// Pods run as processes of this machine: those of the RuntimeClass `process`, or all. Default none: pods are
    /// simulated.
    ///
    /// Every user who may create pods in the cluster then starts programs as the user that started it. In time that a
    /// test owns ([`virtual_time`](ClusterBuilder::virtual_time)) processes do not fit: theirs is the machine's.
    #[must_use]
    pub fn processes(mut self, runtime: ProcessRuntime) -> ClusterBuilder {
        self.processes = Some(runtime);
        self
    }

    /// Keeps an audit log: a policy says which requests are entered in it. [`AuditFile`](crate::AuditFile) writes it to
    /// a file. Default none.
    ///
    /// The requests of the built-in controllers and of [`Cluster::client`] are entered as those of others; they come
    /// from no address.
    #[must_use]
    pub fn audit(mut self, log: AuditLog) -> ClusterBuilder {
        self.audit = Some(log);
        self
    }

    /// Records every request, every commit and every event of a watch. [`RunLog`](crate::RunLog) writes them to a file,
    /// which has Secrets in it as other objects. Default none.
    #[must_use]
    pub fn record(mut self, to: Arc<dyn Recorder>) -> ClusterBuilder {
        self.recorder = Some(to);
        self
    }

    /// A webhook without a socket: the body that the API server would post to `url` goes to `function`, and its result
    /// is the answer (AdmissionReview, ConversionReview). `url` is the one of the `clientConfig`; for a service it is
    /// `https://name.namespace.svc:port/path`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use kubewright_cluster::Cluster;
    /// use serde_json::{Value, json};
    ///
    /// let deny = |review: Value| async move {
    ///     json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
    ///         "response": {"uid": review["request"]["uid"], "allowed": false}})
    /// };
    /// let cluster = Cluster::builder().webhook_function("https://hooks.test/deny", deny).start().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn webhook_function<F, R>(mut self, url: &str, function: F) -> ClusterBuilder
    where
        F: Fn(serde_json::Value) -> R + Send + Sync + 'static,
        R: Future<Output = serde_json::Value> + Send + 'static,
    {
        self.functions.add(url, move |document| function(document).map(Ok));
        self
    }

    /// Does not start these of its controllers ([`controllers`](ClusterBuilder::controllers)), because there is nothing
    /// for them to do. The API server is as if they ran.
    #[must_use]
    pub fn idle(mut self, controllers: impl IntoIterator<Item = &'static str>) -> ClusterBuilder {
        self.without = controllers.into_iter().collect();
        self
    }

    /// The garbage collector watches these kinds (with whether they have namespaces), because there is nothing of the
    /// others.
    #[must_use]
    pub fn collects(mut self, kinds: Collected) -> ClusterBuilder {
        self.settings.collected = Some(kinds);
        self
    }

    /// Begins with everything that another cluster held, and with its authority and keys; see
    /// [`Cluster::fork_point`]. The other settings are those of that cluster. Nothing is kept in a folder.
    #[must_use]
    pub fn fork(mut self, point: &ForkPoint) -> ClusterBuilder {
        self.fork = Some(point.clone());
        self
    }

    /// Starts the cluster. It answers as soon as this returns; its controllers start in the background.
    ///
    /// Must be called inside a tokio runtime with timers (`enable_all`).
    ///
    /// # Errors
    /// [`Error::UnknownController`] when a controller is named that does not exist, [`Error::Nodes`] when nodes cannot
    /// be so, [`Error::Processes`] when pods cannot run as processes here, [`Error::Server`] when the folder cannot be
    /// used, and [`Error::Threads`] when the system gives no more threads.
    pub async fn start(self) -> Result<Cluster> {
        let names = self.controllers.names()?;
        if let Some(why) = self.settings.nodes.wrong() {
            return Err(Error::Nodes(why));
        }
        let data = match self.data_dir {
            Some(path) => Some(opened(path, !self.unsynced, self.config.minor).await?),
            None => None,
        };
        let folder = || data.as_ref().map(|data| data.folder.clone());
        let authority = match &self.fork {
            Some(point) => point.authority.clone(),
            None => Arc::new(LazyAuthority::kept_in(Purpose::Cluster, folder())),
        };
        let front_proxy = match &self.fork {
            Some(point) => point.front_proxy.clone(),
            None => Arc::new(LazyAuthority::kept_in(Purpose::FrontProxy, folder())),
        };
        let key: Arc<dyn Signer> = match (&self.fork, self.pki.as_ref().and_then(Pki::signer), &data) {
            (Some(point), _, _) => point.key.clone(),
            (None, Some(given), _) => given,
            (None, None, Some(data)) => Arc::new(ServiceAccountKey::kept(&data.folder)?),
            (None, None, None) => Arc::new(ServiceAccountKey::default()),
        };
        let kept = data.as_ref().map(|data| data.folder.path());
        let connections = Limits::default().places();
        let processes = self
            .processes
            .map(|runtime| Processes::start(runtime, kept, connections));
        let processes = processes.transpose().map_err(Error::Processes)?;
        let settings = Settings {
            minor: self.config.minor,
            processes: processes.clone(),
            root_ca: root_ca(authority.clone(), self.pki.as_ref().map(Pki::trust)),
            service_account_token: service_account_token(key.clone()),
            certificates: self.pki.is_none().then(|| certificates(authority.clone())),
            ..self.settings
        };
        let behaviours = settings.behaviours.clone();
        let threads = Threads::start(self.threads).map_err(Error::Threads)?;
        let stop = CancellationToken::new();
        let mut config = self.config;
        adapt(processes.as_ref(), &mut config).map_err(Error::Processes)?;
        config.service_account_admission |= names.contains(&"serviceaccount");
        let kinds = kinds::of(config.minor);
        let bounds = config.bounds(&kinds);
        let clock = settings.clock.clone();
        let env = match self.still {
            false => RealEnv::new(move || clock.now()),
            true => {
                let entropy = settings.entropy.clone();
                RealEnv::with_random(move || clock.now(), move || entropy.draw())
            }
        };
        let mut parts = Parts::new(kinds, Arc::new(env), config);
        parts.signer = key.clone();
        parts.audit = self.audit;
        parts.recorder = self.recorder;
        parts.advice = match settings.load_balancer_range {
            _ if names.is_empty() => None,
            Some(_) => Some(absent::beside_addresses),
            None => Some(absent::advice),
        };
        parts.meter = meter::served(&names, processes.as_ref());
        let journal = data.map(|data| {
            let storage = MemoryStorage::journaled(bounds, data.restored, data.journal.clone());
            parts.storage = Arc::new(storage);
            data.journal
        });
        if let Some(point) = &self.fork {
            parts = parts.of_fork(&point.api);
        }
        let shown = front_proxy.clone();
        let shown: FrontProxy = Arc::new(move || shown.get());
        let outbound = HttpsOutbound::new(parts.storage.clone(), self.functions, Some(shown), stop.clone());
        let outbound = Arc::new(outbound);
        parts.outbound = outbound.clone();
        parts.forwarder = Some(outbound.clone());
        let api = ApiServer::with(parts);
        // The first objects of a cluster are safe before a client sees them.
        api.settled().await.map_err(Error::NotKept)?;
        let attended = api.clone();
        let expiring = tokio::spawn(async move { attended.expire_events().await });
        let attended = api.clone();
        let ending = tokio::spawn(async move { attended.end_definitions().await });
        let (attended, stopped) = (api.clone(), stop.clone());
        let probing = tokio::spawn(async move {
            tokio::select! {
                () = attended.probe_api_services() => {}
                () = stopped.cancelled() => {}
            }
        });
        let workers = if self.still {
            Workers::none()
        } else {
            Workers::for_this_machine()
        };
        let mut front = Front::new(api, stop, self.limits.body, workers);
        front.connector = Some(Arc::new(inprocess::streams(
            &front,
            processes.clone(),
            behaviours.clone(),
        )));
        let client = inprocess::client(front.clone(), UserInfo::admin());
        let (controllers_stop, stopped) = Stop::pair();
        let controllers = control::start(
            Plan {
                names: names.into_iter().filter(|name| !self.without.contains(name)).collect(),
                settings,
                observer: self.observer,
                election: None,
            },
            &client,
            &stopped,
        );
        let inner = Inner {
            front,
            client,
            behaviours,
            limits: self.limits,
            threads,
            processes,
            authority,
            front_proxy,
            key,
            pki: self.pki,
            advertised: self.advertised,
            has_endpoints: self.has_endpoints,
            outbound,
            journal,
            controllers: Mutex::new(controllers),
            controllers_stop,
            tasks: Mutex::new(vec![expiring, ending, probing]),
        };
        Ok(Cluster { inner: Arc::new(inner) })
    }
}

/// Has the API server accept loopback addresses where pods are processes: pods' in the lower half of their network,
/// Services' in the upper half. A configured range of Services stays.
fn adapt(processes: Option<&Processes>, config: &mut Config) -> io::Result<()> {
    let Some(processes) = processes else { return Ok(()) };
    config.loopback_endpoints = true;
    if config.service_range == ServiceRange::default() {
        let range = format!("127.{}.128.0/17", processes.network()).parse();
        config.service_range = range.map_err(io::Error::other::<String>)?;
    }
    Ok(())
}
