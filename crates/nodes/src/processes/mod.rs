//! Containers as processes of this machine: the counterpart of a kubelet's container runtime.
//!
//! The user who starts a cluster may allow it ([`ProcessRuntime`]): then the containers of a pod are programs that run,
//! each in a session and a folder of its own, without privileges, at a loopback address of its pod. They are no
//! containers: they see the files and the network of this machine.
//!
//! The kubelet (`controllers::node`) decides the next steps, as it does for simulated pods, and reads the observed
//! state here (`Processes::seen`); when that changes, its [`Waker`] is told.
//!
//! | file | what |
//! |---|---|
//! | `images` | which program stands for an image |
//! | `environment`, `volumes`, `mounts`, `paths`, `tokens`, `access`, `resolv` | what a program is given |
//! | `instance`, `order` | the life of one container, its hooks; what is started |
//! | `exec` | commands that clients run beside it |
//! | `probes` | its probes |
//! | `proxy`, `names`, `dns` | the addresses of Services, their names, and the name server |
//! | `stop` | how containers and pods end |
//! | `launch`, `shim` | how a program is started so that nothing of it is left behind |
//! | `logs`, `lines` | what it writes |
//! | `templates` | first data folders of databases, made once |
//! | `gauges`, `table` | what it uses, from the process table of this machine |
//! | `home`, `beneath`, `users` | the folders, paths below them, and whose they are |
//!
//! Invariants: nothing of a pod runs when it is forgotten, nothing at all when the cluster has ended, however it did;
//! every folder is the cluster's own, and goes with it, but those of PersistentVolumes in a data folder.

mod access;
mod beneath;
mod dns;
mod environment;
mod exec;
mod gauges;
mod home;
mod images;
mod instance;
mod launch;
mod lines;
mod logs;
mod mounts;
mod names;
mod order;
mod paths;
mod probes;
mod proxy;
mod resolv;
mod shim;
mod stop;
mod table;
mod templates;
mod tokens;
mod users;
mod volumes;

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use kubewright::{EventType, Request, Source, Waker};
use kubewright_objects::api::core::v1::{Pod, Service};
use kubewright_objects::api::discovery::v1::EndpointSlice;
use tokio::sync::watch;

use self::dns::Dns;
pub use self::exec::{Attached, ExecProcess, Input, Terminal};
use self::gauges::Gauges;
pub use self::gauges::Usage;
use self::home::Home;
pub use self::images::Images;
use self::instance::Instance;
use self::launch::Launcher;
pub use self::launch::ShimControl;
pub use self::lines::Line;
pub use self::logs::Reader as LogReader;
use self::names::Names;
pub(crate) use self::names::outside;
use self::proxy::Proxy;
pub use self::shim::called;
use self::users::User;
use kubewright_objects::meta;

/// The RuntimeClass of pods that are processes, and the one of pods that are simulated all the same.
pub(crate) const CLASS: &str = "process";
pub(crate) const SIMULATED_CLASS: &str = "simulated";

/// How many networks are tried before a cluster shares one.
const NETWORKS: usize = 16;
/// How long changes of names are gathered before they are written.
const MOMENT: Duration = Duration::from_millis(20);

/// Allows that pods run as processes of this machine, and says how.
///
/// The program's main function must call [`called`] first: it is started again as the shim of each process.
#[derive(Clone, Debug, Default)]
pub struct ProcessRuntime {
    images: Images,
    every_pod: bool,
}

impl ProcessRuntime {
    /// Pods of the RuntimeClass `process` are processes. The rows of `images` come before the built-in ones.
    #[must_use]
    pub fn new(images: Images) -> ProcessRuntime {
        ProcessRuntime {
            images,
            every_pod: false,
        }
    }

    /// All pods are processes, but those of the RuntimeClass `simulated`.
    #[must_use]
    pub fn every_pod(mut self) -> ProcessRuntime {
        self.every_pod = true;
        self
    }
}

/// The processes of a cluster. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub struct Processes(Arc<Inner>);

struct Inner {
    runtime: ProcessRuntime,
    home: Arc<Home>,
    launcher: Launcher,
    waker: Waker,
    gauges: Gauges,
    /// The second number of the addresses of pods and Services.
    network: u8,
    api: Mutex<Option<SocketAddr>>,
    proxy: Mutex<Proxy>,
    names: Arc<Mutex<Names>>,
    /// None where port 53 is not for this user, or taken, and when the cluster has ended.
    dns: Mutex<Option<Dns>>,
    /// Held while a template is made.
    templates: tokio::sync::Mutex<()>,
    pods: Mutex<BTreeMap<String, OfPod>>,
}

/// The state of a pod, by its uid.
struct OfPod {
    request: Request,
    containers: BTreeMap<String, Arc<Instance>>,
    /// The events of the pod that are not written yet.
    events: Vec<PodEvent>,
    /// When everything of it is killed.
    deadline: watch::Sender<Option<tokio::time::Instant>>,
    is_stopping: bool,
    tokens: tokens::Tokens,
}

/// An event: its type, reason and message.
pub(crate) type PodEvent = (EventType, &'static str, String);

/// The observed state of a container.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ObservedContainer {
    /// How often it was started before.
    pub(crate) attempt: i32,
    pub(crate) state: State,
    /// The running program, in words.
    pub(crate) about: String,
}

/// How a container is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum State {
    /// It runs, and its probes have said this.
    Running { started: bool, ready: bool },
    /// It has ended.
    Ended {
        at: Timestamp,
        code: i32,
        /// Why, where that does not follow from the code.
        reason: Option<&'static str>,
        message: String,
    },
    /// It could not be started: the reason and the message with which it waits.
    CannotStart { reason: &'static str, message: String },
}

/// Locks data that no panic leaves half changed.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Processes {
    /// Makes the folders and waits for shims; `kept` is the folder in which PersistentVolumes outlive the cluster, and
    /// `connections` are those that the API server of this process may have.
    ///
    /// # Errors
    /// When a folder or the socket cannot be made, and on systems other than Linux.
    pub fn start(runtime: ProcessRuntime, kept: Option<&Path>, connections: usize) -> io::Result<Processes> {
        if !cfg!(target_os = "linux") {
            return Err(io::Error::other("pods run as processes on Linux only"));
        }
        let home = Arc::new(Home::make(kept)?);
        let names = Arc::<Mutex<Names>>::default();
        let (network, dns) = name_server(kept, &names)?;
        Ok(Processes(Arc::new(Inner {
            launcher: Launcher::start(home.clone())?,
            runtime,
            home,
            waker: Waker::new(),
            gauges: Gauges::start(),
            network,
            api: Mutex::default(),
            proxy: Mutex::new(Proxy::new(connections)),
            names,
            dns: Mutex::new(dns.ok()),
            templates: tokio::sync::Mutex::default(),
            pods: Mutex::default(),
        })))
    }

    /// Says where the API server is reached.
    pub fn announce(&self, address: SocketAddr) {
        *lock(&self.0.api) = Some(address);
    }

    /// Wakes the kubelet's pods when something happens to them.
    pub(crate) fn source(&self) -> Source {
        self.0.waker.source()
    }

    /// The second number of the addresses of pods, which are in the lower half of this network.
    pub fn network(&self) -> u8 {
        self.0.network
    }

    /// Passes connections to a Service on to these endpoints. Answers where it cannot be reached, and why.
    pub(crate) fn proxy(
        &self,
        request: &Request,
        service: &Service,
        slices: &[Arc<EndpointSlice>],
        found: &[IpAddr],
    ) -> Vec<(SocketAddr, io::Error)> {
        self.name(request, names::entry(service, slices, found));
        let wanted = proxy::wanted(service, slices, Ipv4Addr::LOCALHOST.into());
        lock(&self.0.proxy).set(request, wanted)
    }

    /// A Service is gone.
    pub(crate) fn proxy_no_more(&self, request: &Request) {
        self.name(request, None);
        lock(&self.0.proxy).set(request, proxy::Wanted::new());
    }

    /// Enters the names of a Service; the files follow a moment later, once for all changes of that moment.
    fn name(&self, request: &Request, entry: Option<names::Entry>) {
        let is_first = {
            let mut names = lock(&self.0.names);
            let was_stale = names.is_stale;
            names.set(request, entry);
            names.is_stale && !was_stale
        };
        if !is_first {
            return;
        }
        let processes = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(MOMENT).await;
            let written = tokio::task::spawn_blocking(move || lock(&processes.0.names).write()).await;
            if let Ok(Err(error)) = written {
                tracing::error!(%error, "programs do not find the present names of Services");
            }
        });
    }

    /// The file of hosts for programs of a pod: that of its namespace, or one with its own aliases.
    fn hosts(&self, pod: &Pod) -> io::Result<PathBuf> {
        lock(&self.0.names).file(&self.0.home, pod)
    }

    /// With whom a pod shares its user, in words; none when the user is its own.
    pub(crate) fn shared_user(&self, pod: &Pod) -> Option<&'static str> {
        if !self.0.home.has_users() {
            return Some(
                "pods have no users of their own here: their programs run as the user who started the cluster, and \
                 read, change and end whatever that user and all other pods may",
            );
        }
        self.lacks_name(pod).then_some(
            "its program needs the name of its user, and none can be given here for lack of a mount namespace: it runs as \
             user 65534, like all such pods, which read, change and end each other",
        )
    }

    /// Whether a program of a pod would not run as the pod's own user, because that has no name here: databases would
    /// not.
    fn lacks_name(&self, pod: &Pod) -> bool {
        if !self.0.home.has_users() || self.0.home.has_names() {
            return false;
        }
        let mut images = pod.spec.iter().flat_map(|spec| {
            let all = spec.init_containers.iter().flatten().chain(&spec.containers);
            all.filter_map(|container| container.image.as_deref())
        });
        images.any(|image| {
            self.0
                .runtime
                .images
                .find(image)
                .is_ok_and(|program| program.template.is_some())
        })
    }

    /// Writes the `resolv.conf` of a container beside its root folder, if it has one of its own. What resolvers would
    /// not read of it is an event.
    fn resolv(&self, pod: &Pod, root: &Path, user: Option<User>) -> io::Result<Option<PathBuf>> {
        let server = lock(&self.0.dns).is_some().then(|| dns::address(self.0.network));
        let machine = std::fs::read_to_string(resolv::FILE).unwrap_or_default();
        let Some((text, left_out)) = resolv::file(pod, server, &machine) else {
            return Ok(None);
        };
        let told = left_out
            .into_iter()
            .map(|why| (EventType::Warning, "DNSConfigForming", why));
        self.with(pod, |of| of.events.extend(told));
        let path = root.with_file_name("resolv.conf");
        std::fs::write(&path, text)?;
        self.0.home.show(&path, 0o600, user)?;
        Ok(Some(path))
    }

    /// Whether a pod is one of processes.
    pub(crate) fn runs(&self, pod: &Pod) -> bool {
        self.runs_class(class(pod))
    }

    /// The same of pods of this RuntimeClass.
    pub fn runs_class(&self, class: Option<&str>) -> bool {
        match class {
            Some(CLASS) => true,
            Some(SIMULATED_CLASS) => false,
            _ => self.0.runtime.every_pod,
        }
    }

    /// The error of an image, if there is one: in words.
    pub(crate) fn cannot_pull(&self, image: &str) -> Option<String> {
        self.0.runtime.images.find(image).err()
    }

    /// The observed containers of a pod.
    pub(crate) fn seen(&self, uid: &str) -> BTreeMap<String, ObservedContainer> {
        let pods = lock(&self.0.pods);
        let containers = pods.get(uid).into_iter().flat_map(|pod| &pod.containers);
        containers
            .map(|(name, instance)| (name.clone(), instance.seen()))
            .collect()
    }

    /// The events of a pod since the last call.
    pub(crate) fn take_events(&self, uid: &str) -> Vec<PodEvent> {
        let mut pods = lock(&self.0.pods);
        pods.get_mut(uid)
            .map(|pod| std::mem::take(&mut pod.events))
            .unwrap_or_default()
    }

    /// The log of a container, or of its life before; none when there is none.
    pub fn log(&self, uid: &str, container: &str, previous: bool) -> Option<LogReader> {
        let instance = self.instance(uid, container)?;
        let log = match previous {
            true => instance.before.as_ref()?,
            false => &instance.log,
        };
        Some(log.reader())
    }

    /// Whether anything of a pod runs here.
    pub fn runs_any_of(&self, uid: &str) -> bool {
        let pods = lock(&self.0.pods);
        let mut containers = pods.get(uid).into_iter().flat_map(|pod| pod.containers.values());
        containers.any(|instance| instance.is_running())
    }

    /// The usage of a running container; none as long as it was not looked at.
    pub fn usage(&self, uid: &str, container: &str) -> Option<Usage> {
        self.instance(uid, container)?.running()?.gauge.as_ref()?.usage()
    }

    /// Whether a container is a process that runs.
    pub fn is_running(&self, uid: &str, container: &str) -> bool {
        self.instance(uid, container)
            .is_some_and(|instance| instance.is_running())
    }

    fn instance(&self, uid: &str, container: &str) -> Option<Arc<Instance>> {
        lock(&self.0.pods).get(uid)?.containers.get(container).cloned()
    }

    /// Looks at the state of a pod.
    fn with<T>(&self, pod: &Pod, look: impl FnOnce(&mut OfPod) -> T) -> T {
        let mut pods = lock(&self.0.pods);
        let known = pods.entry(meta::uid(&pod.metadata).to_owned());
        look(known.or_insert_with(|| OfPod {
            request: Request::of(pod),
            containers: BTreeMap::new(),
            events: Vec::new(),
            deadline: watch::Sender::new(None),
            is_stopping: false,
            tokens: tokens::Tokens::default(),
        }))
    }

    /// Something has happened to a pod: its kubelet looks at it again.
    fn tell(&self, uid: &str, reason: &str, said: Option<PodEvent>) {
        let request = {
            let mut pods = lock(&self.0.pods);
            let Some(pod) = pods.get_mut(uid) else { return };
            pod.events.extend(said);
            pod.request.clone()
        };
        let (waker, reason) = (self.0.waker.clone(), reason.to_owned());
        tokio::spawn(async move { waker.wake(request, reason).await });
    }

    /// Ends everything and takes the folders away. Programs are asked first, and killed when they take longer than
    /// this.
    pub async fn end(&self, grace: Duration) {
        lock(&self.0.proxy).clear();
        drop(lock(&self.0.dns).take());
        let all: Vec<Arc<Instance>> = {
            let mut pods = lock(&self.0.pods);
            let all = std::mem::take(&mut *pods);
            all.into_values().flat_map(|pod| pod.containers.into_values()).collect()
        };
        all.iter().for_each(|instance| instance.terminate());
        let ended = futures::future::join_all(all.iter().map(|instance| instance.ended()));
        if tokio::time::timeout(grace, ended).await.is_err() {
            all.iter().for_each(|instance| instance.kill());
            let killed = futures::future::join_all(all.iter().map(|instance| instance.ended()));
            if tokio::time::timeout(grace, killed).await.is_err() {
                tracing::warn!("a process did not end when it was killed");
            }
        }
        let home = self.0.home.clone();
        // It logs its own failures.
        let _ = tokio::task::spawn_blocking(move || home.clear()).await;
        self.0.launcher.dismiss().await;
    }
}

/// Listens for questions about names. A cluster without a data folder takes the first network in which no other cluster
/// of this machine does.
fn name_server(kept: Option<&Path>, names: &Arc<Mutex<Names>>) -> io::Result<(u8, io::Result<Dns>)> {
    let mut tries = 0;
    let (network, dns) = loop {
        let network = network(kept)?;
        tries += 1;
        match Dns::start(network, names.clone()) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && kept.is_none() && tries < NETWORKS => {}
            done => break (network, done),
        }
    };
    let dns = dns.inspect_err(|error| {
        let address = dns::address(network);
        tracing::info!(%error, %address, "programs find Services by name through /etc/hosts alone: no name server can listen at port 53");
    });
    Ok((network, dns))
}

/// The second number of this cluster's addresses: by chance, or the same each time for the cluster of a data folder,
/// whose Services keep theirs. Not 127.0, where other programs are, nor 127.255, where broadcasts are.
fn network(kept: Option<&Path>) -> io::Result<u8> {
    let number = match kept {
        Some(folder) => {
            let folder = folder.canonicalize()?;
            ring::digest::digest(&ring::digest::SHA256, folder.as_os_str().as_encoded_bytes()).as_ref()[0]
        }
        None => random::<1>()?[0],
    };
    Ok(16 + number % 224)
}

/// Random bytes.
fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes)
        .map_err(|_| io::Error::other("the system has no entropy"))?;
    Ok(bytes)
}

/// The runtime class of a pod.
pub(crate) fn class(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.runtime_class_name.as_deref()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So many that two of them would most likely share one by chance.
    #[tokio::test]
    async fn clusters_take_networks_of_their_own() {
        let mut taken = BTreeMap::new();
        for _ in 0..40 {
            let (network, dns) = name_server(None, &Arc::default()).expect("there is entropy");
            match dns {
                Ok(dns) => assert!(
                    taken.insert(network, dns).is_none(),
                    "127.{network} has two name servers"
                ),
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    eprintln!("port 53 is not for this user: networks were not taken");
                    return;
                }
                Err(error) => panic!("no network of 16 is free: {error}"),
            }
        }
    }
}
