//! A cluster: an API server and its controllers in this process, and the doors to them.
//!
//! Invariants:
//! - starting does nothing but make the server: controllers start behind the first answer, certificates with the first
//!   listener;
//! - a cluster lives as long as one of its handles; the tasks that it runs never hold one;
//! - [`Cluster::stop`] leaves nothing running, within a second.
//!
//! Not here: the contents of a data folder (see `kubewright_server`); how a test moves the time (`kubewright-testing`).

mod authority;
mod builder;
mod fork;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use kubewright::{StopSource, kube};
use kubewright_apiserver::authentication::Signer;
use kubewright_apiserver::outbound::{AdmissionQuestion, AdmissionVerdict};
use kubewright_apiserver::{ApiServer, Place, UserInfo};
use kubewright_nodes::{Behaviours, Processes};
use kubewright_server::{
    FRONT_PROXY_USER, FileJournal, Front, HttpsOutbound, Limits, Listening, Pki, Threads, Tls, kubeconfig, serve,
};
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use tokio::task::JoinHandle;

use self::authority::LazyAuthority;
pub use self::authority::legacy_tokens;
pub use self::builder::ClusterBuilder;
pub use self::fork::ForkPoint;
use crate::error::{Error, Result};
use crate::inprocess;

/// Everything ends within a second; this much of it is for the tasks to end by themselves.
const STOP: Duration = Duration::from_millis(900);

/// A Kubernetes cluster in this process.
///
/// A clone is another handle to the same cluster. It stops when [`stop`](Cluster::stop) is called or the last handle is
/// dropped.
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
    /// The pods that run as processes.
    processes: Option<Processes>,
    authority: Arc<LazyAuthority>,
    /// Other API servers know the cluster's proxy by it.
    front_proxy: Arc<LazyAuthority>,
    /// Signs the tokens of service accounts.
    key: Arc<dyn Signer>,
    pki: Option<Pki>,
    advertised: Option<IpAddr>,
    has_endpoints: bool,
    /// Reaches webhooks.
    outbound: Arc<HttpsOutbound>,
    /// Writes to the data folder, when there is one.
    journal: Option<Arc<FileJournal>>,
    /// The controllers, which are stopped first, while the server still answers their requests.
    controllers: Mutex<Option<JoinHandle<()>>>,
    controllers_stop: StopSource,
    /// Listeners, and the task that removes old Events.
    tasks: Mutex<Vec<JoinHandle<()>>>,
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

    /// A client of the administrator that reaches the server without a socket. When the cluster is stopped, its
    /// requests fail with `kube::Error::Service`.
    pub fn client(&self) -> kube::Client {
        self.inner.client.clone()
    }

    /// [`Cluster::client`] for a service account, with the rights of its roles. The account need not exist.
    pub fn client_of_service_account(&self, namespace: &str, name: &str) -> kube::Client {
        let user = UserInfo::service_account(namespace, name);
        inprocess::client(self.inner.front.clone(), user)
    }

    /// [`Cluster::client`] for a user in these groups and in `system:authenticated`, with the rights that roles grant.
    /// `system:masters` may do everything.
    pub fn client_of_user<'a>(&self, name: &str, groups: impl IntoIterator<Item = &'a str>) -> kube::Client {
        let user = UserInfo::authenticated(name, groups);
        inprocess::client(self.inner.front.clone(), user)
    }

    /// How pods with certain labels behave on the simulated nodes.
    pub fn behaviours(&self) -> &Behaviours {
        &self.inner.behaviours
    }

    /// The API server, for callers without HTTP.
    pub fn api(&self) -> &ApiServer {
        &self.inner.front.api
    }

    /// Answers requests of the API server to `url` with a function from now on, as [`ClusterBuilder::webhook_function`]
    /// does from the beginning. An error stands for a webhook that cannot be reached, in words such as `dial tcp:
    /// connect: connection refused`.
    pub fn answer_webhook<F, R>(&self, url: &str, function: F)
    where
        F: Fn(serde_json::Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<serde_json::Value, String>> + Send + 'static,
    {
        self.inner.outbound.add(url, function);
    }

    /// Answers what admission asks at `url` with a function from now on, which is given the objects as they are: no
    /// `AdmissionReview` is written and read, unlike with [`Cluster::answer_webhook`]. Only reviews of version `v1` are
    /// asked so; others, and conversions, go to a function of documents, which must be added first if there is to be
    /// one. The function is told how long it is waited for. An error stands for a webhook that cannot be reached.
    pub fn answer_admission<F, R>(&self, url: &str, function: F)
    where
        F: Fn(AdmissionQuestion, Duration) -> R + Send + Sync + 'static,
        R: Future<Output = Result<AdmissionVerdict, String>> + Send + 'static,
    {
        self.inner.outbound.add_admission(url, function);
    }

    /// Opens HTTPS on `address`, and only there; port 0 takes a free port. It answers as soon as this returns, until
    /// the cluster stops. Call it again for another address: the authority and so the trust of clients is the same.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Stopped`], and [`Error::Server`] when the system has no entropy.
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
        let tls = Tls::of(&authority, address.ip())?;
        let address = self.open(address, tls).await?;
        self.announce(address, Some(&authority.pem()))?;
        let kubeconfig = kubeconfig::admin(address, &authority)?;
        Ok(Listening { address, kubeconfig })
    }

    /// The same with the certificates of [`ClusterBuilder::pki`]; answers the address.
    ///
    /// # Errors
    /// [`Error::Bind`], [`Error::Stopped`], and [`Error::Server`] when there are no such certificates.
    pub async fn serve(&self, address: SocketAddr) -> Result<SocketAddr> {
        let pki = self.inner.pki.as_ref();
        let missing =
            || kubewright_server::Error::Tls("the cluster was given no certificates to serve with".to_owned());
        let pki = pki.ok_or_else(missing)?;
        let address = self.open(address, pki.tls()?).await?;
        self.announce(address, pki.authorities())?;
        Ok(address)
    }

    /// Says in the cluster where it is reached. The latest listener is the one that is told.
    fn announce(&self, mut address: SocketAddr, authorities: Option<&str>) -> Result<()> {
        let front_proxy = self.inner.front_proxy.get()?;
        if let Some(ip) = self.inner.advertised {
            address.set_ip(ip);
        } else if address.ip().is_unspecified() {
            // All addresses of this machine: this one is always among them.
            address.set_ip(match address {
                SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        if let Some(processes) = &self.inner.processes {
            processes.announce(address);
        }
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        self.inner.front.api.announce(&Place {
            address,
            host: &host,
            client_authority: authorities,
            front_proxy: Some((&front_proxy.pem(), FRONT_PROXY_USER)),
            endpoints: self.inner.has_endpoints,
        });
        Ok(())
    }

    async fn open(&self, address: SocketAddr, tls: Tls) -> Result<SocketAddr> {
        let inner = &self.inner;
        // Held until the listener is on the list, so that a stop at the same time sees either none of it or all.
        let mut tasks = inner.tasks.lock().await;
        if inner.front.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        let bound = |source| Error::Bind { address, source };
        let socket = TcpListener::bind(address).await.map_err(bound)?;
        let taken = socket.local_addr().map_err(bound)?;
        tasks.push(tokio::spawn(serve(
            socket,
            inner.front.clone(),
            tls,
            inner.limits.clone(),
            inner.threads.clone(),
        )));
        Ok(taken)
    }

    /// Stops the cluster: watches end cleanly, requests under way are answered, controllers finish their work. Returns
    /// when everything has ended, within a second.
    pub async fn stop(&self) {
        let inner = &self.inner;
        let begun = tokio::time::Instant::now();
        inner.controllers_stop.stop();
        // The lock is held to the end: another caller that stops at the same time also returns only when all is over.
        let mut controllers = inner.controllers.lock().await;
        if let Some(task) = controllers.take() {
            ended(task, begun + STOP / 2).await;
        }
        if let Some(processes) = &inner.processes {
            // The programs may still act on their signal: they have half of the rest.
            let left = (begun + STOP).saturating_duration_since(tokio::time::Instant::now());
            processes.end(left / 2).await;
        }
        inner.end();
        let mut tasks = inner.tasks.lock().await;
        for task in tasks.drain(..) {
            ended(task, begun + STOP).await;
        }
        if let Some(journal) = inner.journal.clone() {
            // Little is left to write; the folder is free for the next cluster when this returns.
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
            .field("stopped", &self.inner.front.stop.is_cancelled())
            .finish_non_exhaustive()
    }
}

/// Waits for a task that was told to end; a task that has not ended by the deadline is cut off.
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
        self.front.stop.cancel();
        self.front.api.shutdown();
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // The tasks notice it and end by themselves; no caller is left to wait for them.
        self.end();
    }
}
