//! A cluster: an API server and its controllers in this process, and the doors to them.
//!
//! Invariants:
//! - starting does nothing but make the server: controllers start behind the first answer, certificates with the first listener;
//! - a cluster lives as long as one of its handles; the tasks that it runs never hold one;
//! - [`Cluster::stop`] leaves nothing running, within a second.
//!
//! Not here: what a data folder looks like inside (see `durable`); how a test moves the time (`kubewright-testing`).

mod authority;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use kubewright::{Clock, Observer, Stop, StopSource, kube};
use kubewright_apiserver::UserInfo;
use kubewright_apiserver::audit::AuditLog;
use kubewright_apiserver::authentication::Signer;
use kubewright_apiserver::storage::MemoryStorage;
use kubewright_apiserver::{ApiServer, Config, Parts, ServiceRange};
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Semaphore};
use tokio::task::JoinHandle;

use crate::control::{self, Controllers, Plan};
use crate::controllers::{Behaviours, Nodes, Settings, Stages};
use crate::durable::FileJournal;
use crate::env::RealEnv;
use crate::error::{Error, Result};
use crate::front::{BODIES, Front};
use crate::listen::{self, Listening, Threads};
use crate::outbound::{Functions, HttpsOutbound};
use crate::pki::Pki;
use crate::places::Limits;
use crate::processes::{self, ProcessRuntime, Processes};
use crate::signer::ServiceAccountKey;
use crate::tls::{Serving, Tls};
use crate::work::Workers;
use crate::{KUBERNETES_VERSION, inprocess, kubeconfig};
use authority::{LazyAuthority, certificates, opened, root_ca, service_account_token};

/// Everything ends within a second; this much of it is for the tasks to end by themselves.
const STOP: Duration = Duration::from_millis(900);

/// A Kubernetes cluster in this process.
///
/// A clone is another handle to the same cluster. It stops when [`stop`](Cluster::stop) is called or the last handle is dropped.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use kubewright_cluster::Cluster;
/// use kubewright::k8s_openapi::api::core::v1::Namespace;
/// use kubewright::kube::Api;
///
/// let cluster = Cluster::start().await?;
/// let namespaces: Api<Namespace> = Api::all(cluster.client());
/// assert_eq!(namespaces.get("default").await?.metadata.name.as_deref(), Some("default"));
/// cluster.stop().await;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Cluster {
    inner: Arc<Inner>,
}

struct Inner {
    front: Front,
    client: kube::Client,
    behaviours: Behaviours,
    limits: Limits,
    /// Serve HTTPS.
    threads: Threads,
    stop: StopSource,
    authority: Arc<LazyAuthority>,
    pki: Option<Pki>,
    advertised: Option<IpAddr>,
    /// Reaches webhooks.
    outbound: Arc<HttpsOutbound>,
    /// Writes to the data folder, when there is one.
    journal: Option<Arc<FileJournal>>,
    /// The controllers, which are stopped first, while the server still answers what they are at.
    controllers: Mutex<Option<JoinHandle<()>>>,
    controllers_stop: StopSource,
    /// Listeners, and what removes old Events.
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

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
    functions: Functions,
    audit: Option<AuditLog>,
    still: bool,
    processes: Option<ProcessRuntime>,
}

impl Default for ClusterBuilder {
    fn default() -> ClusterBuilder {
        let config = Config {
            version: KUBERNETES_VERSION.to_owned(),
            ..Config::default()
        };
        ClusterBuilder {
            controllers: Controllers::All,
            settings: Settings::default(),
            observer: None,
            limits: Limits::default(),
            threads: 0,
            config,
            data_dir: None,
            unsynced: false,
            pki: None,
            advertised: None,
            functions: Functions::default(),
            audit: None,
            still: false,
            processes: None,
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

    /// What becomes of pods on simulated nodes, in kwok's vocabulary (kind Stage).
    #[must_use]
    pub fn stages(mut self, stages: Stages) -> ClusterBuilder {
        self.settings.stages = stages;
        self
    }

    /// Lives in time that is not the machine's: `clock` tells the time of day, and tokio's timers, which are paused, all delays. The
    /// time goes on when nothing is left to do. Everything runs where it is asked for, on no thread of its own; nodes that are well say so
    /// without a Lease that is renewed all the time; watches are told nothing for hours when there is nothing to tell.
    ///
    /// `TestCluster::in_virtual_time` of `kubewright-testing` does what else is needed.
    #[must_use]
    pub fn virtual_time(mut self, clock: Arc<dyn Clock>) -> ClusterBuilder {
        self.settings.clock = clock;
        self.settings.heartbeats = false;
        self.config.bookmark_interval = Duration::from_secs(24 * 3600);
        self.still = true;
        self
    }

    /// What the controllers are told: the simulated nodes, and how long their pods take. The certificate that they publish
    /// is always the cluster's own.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> ClusterBuilder {
        self.settings = settings;
        self
    }

    /// Who is told what the built-in controllers do, and why. Default nobody.
    #[must_use]
    pub fn observe(mut self, observer: Arc<dyn Observer>) -> ClusterBuilder {
        self.observer = Some(observer);
        self
    }

    /// What a client may cost over HTTPS.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> ClusterBuilder {
        self.limits = limits;
        self
    }

    /// How many threads of its own the cluster serves HTTPS with; each connection stays on one of them. Default 0: on the runtime
    /// that calls [`Cluster::listen`], which is right for tests. A program that serves many clients wants one for each processor, as
    /// far as the clients leave them to it.
    #[must_use]
    pub fn serving_threads(mut self, count: usize) -> ClusterBuilder {
        self.threads = count;
        self
    }

    /// How the API server is to be: the version it claims, how much history it keeps, whose static tokens it takes. Pods get their service
    /// account when the controller `serviceaccount` runs or the configuration says so.
    #[must_use]
    pub fn api(mut self, config: Config) -> ClusterBuilder {
        self.config = config;
        self
    }

    /// Keeps everything in this folder, which is made when it is missing: objects, the certificate authority, keys. A cluster that is
    /// started with it later goes on where this one ended, however it ended: what was acknowledged is on the disk. Default in memory.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> ClusterBuilder {
        self.data_dir = Some(path.into());
        self
    }

    /// Does not wait for the disk of [`data_dir`](ClusterBuilder::data_dir): what was acknowledged survives the end of the process,
    /// however it ends, but not that of the machine. Default no. As etcd's `--unsafe-no-fsync`, for tests.
    #[must_use]
    pub fn unsynced(mut self, unsynced: bool) -> ClusterBuilder {
        self.unsynced = unsynced;
        self
    }

    /// Serves with these certificates and keys, and makes none. Reached by [`Cluster::serve`], since there is no administrator's
    /// certificate that a kubeconfig could hold.
    #[must_use]
    pub fn pki(mut self, pki: Pki) -> ClusterBuilder {
        self.pki = Some(pki);
        self
    }

    /// The address that Endpoints and EndpointSlice `kubernetes` say (`--advertise-address`). Default: that of the listener.
    pub fn advertise(mut self, address: IpAddr) -> ClusterBuilder {
        self.advertised = Some(address);
        self
    }

    /// Pods run as processes of this machine: those of the RuntimeClass `process`, or all. Default none: pods are simulated.
    ///
    /// Whoever may create pods in the cluster then starts programs as the user that started it. In time that a test owns
    /// ([`virtual_time`](ClusterBuilder::virtual_time)) processes do not fit: theirs is the machine's.
    #[must_use]
    pub fn processes(mut self, runtime: ProcessRuntime) -> ClusterBuilder {
        self.processes = Some(runtime);
        self
    }

    /// Keeps an audit log: a policy says which requests are entered in it. [`AuditFile`](crate::AuditFile) writes it to a file. Default none.
    ///
    /// The requests of the built-in controllers and of [`Cluster::client`] are entered as those of others; they come from no address.
    #[must_use]
    pub fn audit(mut self, log: AuditLog) -> ClusterBuilder {
        self.audit = Some(log);
        self
    }

    /// A webhook without a socket: what the API server would post to `url`, it gives to `function`, and takes what that answers
    /// (AdmissionReview, ConversionReview). `url` is the one of the `clientConfig`; for a service it is
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

    /// Starts the cluster. It answers as soon as this returns; its controllers start in the background.
    ///
    /// Must be called inside a tokio runtime with timers (`enable_all`).
    ///
    /// # Errors
    /// [`Error::UnknownController`] when a controller is named that does not exist, [`Error::Nodes`] when nodes cannot be so,
    /// [`Error::Processes`] when pods cannot run as processes here, [`Error::DataDir`] when the folder cannot be used,
    /// and [`Error::Threads`] when the system gives no more threads.
    pub async fn start(self) -> Result<Cluster> {
        let names = self.controllers.names()?;
        if let Some(why) = self.settings.nodes.wrong() {
            return Err(Error::Nodes(why));
        }
        let data = match self.data_dir {
            Some(path) => Some(opened(path, !self.unsynced).await?),
            None => None,
        };
        let authority = Arc::new(LazyAuthority::kept_in(data.as_ref().map(|data| data.folder.clone())));
        let key: Arc<dyn Signer> = match (self.pki.as_ref().and_then(Pki::signer), &data) {
            (Some(given), _) => given,
            (None, Some(data)) => Arc::new(ServiceAccountKey::kept(&data.folder)?),
            (None, None) => Arc::new(ServiceAccountKey::default()),
        };
        let kept = data.as_ref().map(|data| data.folder.path());
        let processes = self.processes.map(|runtime| Processes::start(runtime, kept));
        let processes = processes.transpose().map_err(Error::Processes)?;
        let settings = Settings {
            processes: processes.clone(),
            root_ca: root_ca(authority.clone(), self.pki.as_ref().map(Pki::trust)),
            service_account_token: service_account_token(key.clone()),
            certificates: self.pki.is_none().then(|| certificates(authority.clone())),
            ..self.settings
        };
        let behaviours = settings.behaviours.clone();
        let threads = Threads::start(self.threads).map_err(Error::Threads)?;
        let (source, stop) = Stop::pair();
        let mut config = self.config;
        processes::adapt(processes.as_ref(), &mut config).map_err(Error::Processes)?;
        config.service_account_admission |= names.contains(&"serviceaccount");
        let bounds = config.bounds();
        let mut parts = Parts::new(Arc::new(RealEnv::new(settings.clock.clone())), config);
        parts.signer = key;
        parts.audit = self.audit;
        parts.meter = crate::meter::served(&names, processes.as_ref());
        let journal = data.map(|data| {
            let storage = MemoryStorage::journaled(bounds, data.restored, data.journal.clone());
            parts.storage = Arc::new(storage);
            data.journal
        });
        let outbound = Arc::new(HttpsOutbound::new(parts.storage.clone(), self.functions, stop.clone()));
        parts.outbound = outbound.clone();
        let api = ApiServer::with(parts);
        // What every cluster has from its beginning is safe before anybody looks at it.
        api.settled().await.map_err(Error::NotKept)?;
        let attended = api.clone();
        let expiring = tokio::spawn(async move { attended.expire_events().await });
        let attended = api.clone();
        let ending = tokio::spawn(async move { attended.end_definitions().await });
        let mut front = Front {
            api,
            stop,
            body_timeout: self.limits.body,
            bodies: Arc::new(Semaphore::new(BODIES)),
            workers: if self.still {
                Workers::none()
            } else {
                Workers::for_this_machine()
            },
            warns: !names.is_empty(),
            streams: None,
        };
        front.streams = Some(inprocess::streams(&front, processes));
        let client = inprocess::client(front.clone(), UserInfo::admin());
        let (controllers_stop, stopped) = Stop::pair();
        let controllers = control::start(
            Plan {
                names,
                settings,
                observer: self.observer,
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
            stop: source,
            authority,
            pki: self.pki,
            advertised: self.advertised,
            outbound,
            journal,
            controllers: Mutex::new(controllers),
            controllers_stop,
            tasks: Mutex::new(vec![expiring, ending]),
        };
        Ok(Cluster { inner: Arc::new(inner) })
    }
}

impl Cluster {
    /// Says how a cluster is to be, and starts it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use kubewright_cluster::{Cluster, Controllers};
    /// let cluster = Cluster::builder().controllers(Controllers::None).start().await?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    /// A cluster with all controllers, in memory, without a socket.
    ///
    /// # Errors
    /// None today; see [`ClusterBuilder::start`].
    pub async fn start() -> Result<Cluster> {
        Cluster::builder().start().await
    }

    /// A client of the administrator that reaches the server without a socket. When the cluster is stopped, its requests fail
    /// with `kube::Error::Service`.
    pub fn client(&self) -> kube::Client {
        self.inner.client.clone()
    }

    /// [`Cluster::client`] for a service account, which may do what its roles say. The account need not exist.
    pub fn client_of_service_account(&self, namespace: &str, name: &str) -> kube::Client {
        let user = UserInfo::service_account(namespace, name);
        inprocess::client(self.inner.front.clone(), user)
    }

    /// How pods with certain labels behave on the simulated nodes.
    pub fn behaviours(&self) -> &Behaviours {
        &self.inner.behaviours
    }

    /// The API server, for those who talk to it without HTTP.
    pub fn api(&self) -> &ApiServer {
        &self.inner.front.api
    }

    /// Answers what the API server would post to `url` with a function from now on, as [`ClusterBuilder::webhook_function`] does from the
    /// beginning. An error stands for a webhook that cannot be reached, in words such as `dial tcp: connect: connection refused`.
    pub fn answer_webhook<F, R>(&self, url: &str, function: F)
    where
        F: Fn(serde_json::Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<serde_json::Value, String>> + Send + 'static,
    {
        self.inner.outbound.add(url, function);
    }

    /// Opens HTTPS on `address`, and only there; port 0 takes a free port. It answers as soon as this returns, until the cluster
    /// stops. Call it again for another address: the authority and so the trust of clients is the same.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Stopped`], and [`Error::Certificate`] or [`Error::Tls`] when the system has no entropy.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use kubewright_cluster::Cluster;
    /// let cluster = Cluster::start().await?;
    /// let listening = cluster.listen("127.0.0.1:0".parse()?).await?;
    /// println!("https://{}", listening.address);
    /// # cluster.stop().await;
    /// # Ok(()) }
    /// ```
    pub async fn listen(&self, address: SocketAddr) -> Result<Listening> {
        let authority = self.inner.authority.get()?;
        let serving = Serving::from(&authority.serving(address.ip())?);
        let tls = Tls::new(serving, Some(authority.roots()?))?;
        let address = self.open(address, tls).await?;
        self.announce(address, Some(&authority.pem()));
        let kubeconfig = kubeconfig::text(address, &authority, &authority.admin()?);
        Ok(Listening { address, kubeconfig })
    }

    /// The same with the certificates of [`ClusterBuilder::pki`]; answers the address.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Stopped`], and [`Error::Tls`] when there are no such certificates.
    pub async fn serve(&self, address: SocketAddr) -> Result<SocketAddr> {
        let pki = self.inner.pki.as_ref();
        let pki = pki.ok_or_else(|| Error::Tls("the cluster was given no certificates to serve with".to_owned()))?;
        let address = self.open(address, Tls::new(pki.shown(), pki.roots())?).await?;
        self.announce(address, pki.authorities());
        Ok(address)
    }

    /// Says in the cluster where it is reached. The latest listener is the one that is told.
    fn announce(&self, mut address: SocketAddr, authorities: Option<&str>) {
        if let Some(ip) = self.inner.advertised {
            address.set_ip(ip);
        } else if address.ip().is_unspecified() {
            // All addresses of this machine: this one is always among them.
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        if let Some(processes) = self.inner.front.processes() {
            processes.announce(address);
        }
        self.inner.front.api.announce(address, authorities);
    }

    async fn open(&self, address: SocketAddr, tls: Tls) -> Result<SocketAddr> {
        let inner = &self.inner;
        // Held until the listener is on the list, so that a stop at the same time sees either none of it or all.
        let mut tasks = inner.tasks.lock().await;
        if inner.front.stop.is_requested() {
            return Err(Error::Stopped);
        }
        let bound = |source| Error::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bound)?;
        let taken = socket.local_addr().map_err(bound)?;
        tasks.push(tokio::spawn(listen::serve(
            socket,
            inner.front.clone(),
            tls,
            inner.limits.clone(),
            inner.threads.clone(),
        )));
        Ok(taken)
    }

    /// Stops the cluster: watches end cleanly, requests under way are answered, controllers finish what they are at. Returns when
    /// everything has ended, within a second.
    pub async fn stop(&self) {
        let inner = &self.inner;
        let begun = tokio::time::Instant::now();
        inner.controllers_stop.stop();
        // What is locked stays locked: whoever stops at the same time also returns only when all is over.
        let mut controllers = inner.controllers.lock().await;
        if let Some(task) = controllers.take() {
            ended(task, begun + STOP / 2).await;
        }
        if let Some(processes) = inner.front.processes() {
            // What they are told now they may still do: half of what is left.
            let left = (begun + STOP).saturating_duration_since(tokio::time::Instant::now());
            processes.end(left / 2).await;
        }
        inner.end();
        let mut tasks = inner.tasks.lock().await;
        for task in tasks.drain(..) {
            ended(task, begun + STOP).await;
        }
        if let Some(journal) = inner.journal.clone() {
            // What is left to write is little; the folder is free for the next cluster when this returns.
            let closed = tokio::task::spawn_blocking(move || journal.close()).await;
            if let Err(error) = closed {
                tracing::error!(%error, "the data folder was not closed");
            }
        }
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("stopped", &self.inner.front.stop.is_requested())
            .finish_non_exhaustive()
    }
}

/// Waits for a task that was told to end; what has not ended by the deadline is cut off.
async fn ended(mut task: JoinHandle<()>, deadline: tokio::time::Instant) {
    match tokio::time::timeout_at(deadline, &mut task).await {
        Ok(Err(error)) if error.is_panic() => tracing::error!(%error, "a part of the cluster panicked"),
        Ok(_) => {}
        Err(_) => {
            tracing::warn!("a part of the cluster did not stop in time and is cut off");
            task.abort();
        }
    }
}

impl Inner {
    fn end(&self) {
        self.controllers_stop.stop();
        self.stop.stop();
        self.front.api.shutdown();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The tasks hear it and end by themselves; there is nobody left who could wait for them.
        self.end();
    }
}
