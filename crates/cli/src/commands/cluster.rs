//! `kubewright cluster`: the embedded cluster alone, for anyone, in any language.
//!
//! One line on standard output when the server answers; then silence until a signal.

use std::io::ErrorKind;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use kubewright_cluster::controllers::Settings;
use kubewright_cluster::{
    AuditLog, Cluster, Config, Controllers, DataDirError, Error, Listening, Minor, Nodes, Rotation, RunLog,
    ServerError, ServiceRange, Stages, StaticTokens,
};
use serde_json::json;

use crate::images::Runtime;
use crate::kubeconfig::KubeconfigFile;
use crate::output::{DIM, Failure, Format, STRONG, paint, shell_word};
use crate::parent::Parent;
use crate::rollout::duration;
use crate::signals::stop_signal;

/// The nodes and the scheduler, as one says how they are to be.
#[derive(Debug, Args)]
pub(crate) struct Simulation {
    /// How many simulated nodes there are from the start
    #[arg(long, value_name = "N", default_value_t = 1)]
    nodes: usize,

    /// A label of these nodes; may be given more than once
    #[arg(long, value_name = "KEY=VALUE", value_parser = pair)]
    node_label: Vec<(String, String)>,

    /// Capacity of each of these nodes, such as `cpu=4,memory=16Gi,pods=110`
    #[arg(long, value_name = "RESOURCE=AMOUNT,…", value_delimiter = ',', value_parser = pair)]
    node_capacity: Vec<(String, String)>,

    /// Zones over which these nodes are spread in turn (topology.kubernetes.io/zone)
    #[arg(long, value_name = "ZONE,…", value_delimiter = ',', value_parser = clap::builder::NonEmptyStringValueParser::new())]
    node_zones: Vec<String>,

    /// Stages by which pods, nodes and other objects go on, as YAML in kwok's format; may be given more than once
    #[arg(long, value_name = "FILE")]
    stages: Vec<PathBuf>,

    /// Definitions of kwok to install: with Stage, stages can be objects of the cluster
    #[arg(long, value_name = "KIND", value_delimiter = ',', value_enum)]
    enable_crds: Vec<KwokKind>,

    /// A name of the scheduler, for pods with this `spec.schedulerName`; may be given more than once. Pods with
    /// other names are left to other schedulers
    #[arg(long, value_name = "NAME", default_value = "default-scheduler", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    scheduler_name: Vec<String>,

    /// Address range of Services of type LoadBalancer [default: they get no addresses]
    #[arg(long, value_name = "CIDR")]
    load_balancer_range: Option<ServiceRange>,
}

/// A kind of kwok's that can be an object here.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum KwokKind {
    #[value(name = "Stage")]
    Stage,
}

impl Simulation {
    /// The settings of the controllers for it.
    ///
    /// # Errors
    /// When a file of stages cannot be read or understood.
    pub(crate) fn settings(self) -> Result<Settings, Failure> {
        Ok(Settings {
            nodes: Nodes {
                count: self.nodes,
                labels: self.node_label.into_iter().collect(),
                capacity: self.node_capacity.into_iter().collect(),
                zones: self.node_zones,
            },
            stages: self
                .stages
                .iter()
                .map(|path| read_stages(path))
                .collect::<Result<_, _>>()?,
            stage_objects: !self.enable_crds.is_empty(),
            schedulers: self.scheduler_name.into_iter().collect(),
            load_balancer_range: self.load_balancer_range,
            ..Settings::default()
        })
    }
}

/// Run a Kubernetes cluster in this process, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = listen_address)]
    listen: SocketAddr,

    /// Where to write the kubeconfig; it appears when the server answers [default: a private folder, removed at the
    /// end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Version of Kubernetes to serve: 1.36 or 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    kubernetes_version: Minor,

    /// Keep all objects and keys in this folder, and load what it has [default: everything is in memory]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,

    /// Recover what can be recovered of a damaged --data-dir, print what that is, and exit; the damaged file is kept
    #[arg(long, requires = "data_dir")]
    repair: bool,

    /// Built-in controllers to run: `all`, `none`, or names with commas
    #[arg(long, value_name = "all|none|NAME,…", default_value = "all", add = clap_complete::ArgValueCompleter::new(crate::complete::controllers))]
    controllers: Controllers,

    #[command(flatten)]
    simulation: Simulation,

    /// Where pods run: `simulated`, `process` (as processes of this machine, except pods of the RuntimeClass
    /// `simulated`), or `class` (as processes if they are of the RuntimeClass `process`). `[images]` of kubewright.toml
    /// says which command runs for an image
    #[arg(long, value_enum, default_value_t = Runtime::Simulated)]
    runtime: Runtime,

    /// Users who authenticate with a token: CSV with a line `token,user,uid,"group1,group2"` for each
    #[arg(long, value_name = "FILE")]
    token_auth_file: Option<PathBuf>,

    /// Address range of Services
    #[arg(long, value_name = "CIDR", default_value_t)]
    service_cluster_ip_range: ServiceRange,

    /// How long Events stay after their last write, such as `30m`; `0s`: for ever
    #[arg(long, value_name = "DURATION", default_value = "1h0m0s", value_parser = duration)]
    event_ttl: Duration,

    /// The audit policy: which requests are logged, and how much of them: a Policy of audit.k8s.io/v1
    #[arg(long, value_name = "FILE", requires = "audit_log_path")]
    audit_policy_file: Option<PathBuf>,

    /// Where the audit log is written: a line of JSON for each event; `-` is standard output
    #[arg(long, value_name = "FILE", requires = "audit_policy_file")]
    audit_log_path: Option<PathBuf>,

    /// Write every request, commit and event of a watch into this file, Secrets too; `kubewright log` reads it, also
    /// while it grows
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,

    /// Exit when the parent process has ended, even if it was killed
    #[arg(long)]
    exit_with_parent: bool,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let parent = self.exit_with_parent.then(Parent::now);
        if let (true, Some(folder)) = (self.repair, &self.data_dir) {
            return super::repair::repair(folder, output);
        }
        let config = Config {
            minor: self.kubernetes_version,
            static_tokens: self
                .token_auth_file
                .as_deref()
                .map(read_tokens)
                .transpose()?
                .unwrap_or_default(),
            ..Config::default()
        };
        let audit = match (&self.audit_policy_file, &self.audit_log_path) {
            (Some(policy), Some(path)) => Some(open_audit_log(policy, path)?),
            _ => None,
        };
        let log = self.log.as_deref().map(open_run_log).transpose()?;
        let recorder = log.clone();
        let settings = self.simulation.settings()?;
        let processes = self.runtime.processes()?;
        let signal = stop_signal()?;
        let orphaned = async move {
            match parent {
                Some(parent) => parent.gone().await,
                None => std::future::pending().await,
            }
        };
        let stop = async move {
            tokio::select! {
                () = signal => {}
                () = orphaned => {}
            }
        };
        let start = Running::start(self.listen, self.kubeconfig, |builder| {
            let builder = builder
                .controllers(self.controllers)
                .settings(settings)
                .api(config)
                .service_range(self.service_cluster_ip_range)
                .event_ttl(self.event_ttl);
            let builder = match processes {
                Some(processes) => builder.processes(processes),
                None => builder,
            };
            let builder = match audit {
                Some(log) => builder.audit(log),
                None => builder,
            };
            let builder = match recorder {
                Some(log) => builder.record(log),
                None => builder,
            };
            match self.data_dir {
                Some(folder) => builder.data_dir(folder),
                None => builder,
            }
        });
        let working = crate::progress::during("starting the cluster");
        let mut stop = std::pin::pin!(stop);
        // A large data folder takes a while to read, and may be left at any point, as by a crash.
        let running = tokio::select! {
            running = start => running?,
            () = &mut stop => {
                say_stopped(output);
                return Ok(());
            }
        };
        drop(working);
        let (address, kubeconfig) = (running.address(), running.kubeconfig.path().display().to_string());
        let took = started.elapsed();
        output.say(
            &format!(
                "{} ready in {} ms  {}  {}",
                paint(STRONG, "kubewright cluster"),
                took.as_millis(),
                paint(STRONG, &address),
                paint(STRONG, format!("KUBECONFIG={}", shell_word(&kubeconfig))),
            ),
            &json!({
                "event": "ready",
                "address": address,
                "kubeconfig": kubeconfig,
                "milliseconds": took.as_secs_f64() * 1000.0,
            }),
        );
        crate::rest::until(stop, || running.cluster.api().rehearse()).await;
        running.stop().await;
        if let (Some(log), Some(path)) = (log, &self.log) {
            finish(&log, path)?;
        }
        say_stopped(output);
        Ok(())
    }
}

fn say_stopped(output: Format) {
    output.say(&paint(DIM, "stopped"), &json!({"event": "stopped"}));
}

fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(key, _)| !key.is_empty());
    let (key, value) = pair.ok_or_else(|| "use KEY=VALUE".to_owned())?;
    Ok((key.to_owned(), value.to_owned()))
}

fn open_audit_log(policy: &Path, path: &Path) -> Result<AuditLog, Failure> {
    let opened = crate::audit::open(policy, path, Rotation::default(), false, &crate::audit::Form::default());
    let (log, warnings) = opened.map_err(|why| {
        Failure::new("cannot keep an audit log")
            .because(why)
            .fix("nothing has been started")
    })?;
    for text in warnings {
        tracing::warn!("{text}");
    }
    Ok(log)
}

/// Writes the end of a run log.
pub(crate) fn finish(log: &RunLog, path: &Path) -> Result<(), Failure> {
    let failed = |why: String| Failure::new(format!("cannot write the run log {}", path.display())).because(why);
    log.finish().map_err(failed)
}

pub(crate) fn open_run_log(path: &Path) -> Result<Arc<RunLog>, Failure> {
    let log = RunLog::open(path, RunLog::MAX_BYTES).map_err(|why| {
        Failure::new(format!("cannot write the run log {}", path.display()))
            .because(why)
            .fix("name another file with --log; nothing has been started")
    })?;
    Ok(Arc::new(log))
}

fn read_tokens(path: &Path) -> Result<StaticTokens, Failure> {
    let attempted = || Failure::new(format!("cannot read the token file {}", path.display()));
    let text = crate::regular::text(path).map_err(|why| {
        attempted()
            .because(why)
            .fix("name a readable file with --token-auth-file; nothing has been started")
    })?;
    StaticTokens::parse(&text).map_err(|why| {
        attempted()
            .because(why)
            .fix("each line is token,user,uid,\"group1,group2\"; nothing has been started")
    })
}

/// An address to listen on: `127.0.0.1:8443`, `[::1]:0`, or the name of this machine, `localhost:8443`.
pub(crate) fn listen_address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let missing = "use an address and a port, such as 127.0.0.1:8443 or localhost:0".to_owned();
    match text.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {}
        _ => return Err(missing),
    }
    let found = text
        .to_socket_addrs()
        .map_err(|why| format!("cannot find {text}: {why}"))?;
    // Clients try this address first, and most programs here mean it by a name.
    found.min_by_key(SocketAddr::is_ipv6).ok_or(missing)
}

fn read_stages(path: &Path) -> Result<Stages, Failure> {
    let attempted = || Failure::new(format!("cannot take the stages of {}", path.display()));
    let text = crate::regular::text(path).map_err(|why| {
        attempted()
            .because(why)
            .fix("name a readable file with --stages; nothing has been started")
    })?;
    let refused = |why: String| {
        attempted()
            .because(std::io::Error::other(why))
            .fix("nothing has been started")
    };
    Stages::parse(&text).map_err(refused)
}

/// One for each processor; more than four would not find enough to do, since writes go one after another.
pub(crate) fn serving_threads() -> usize {
    std::thread::available_parallelism().map_or(1, |processors| processors.get().min(4))
}

/// A cluster that listens and has its kubeconfig on disk.
pub(crate) struct Running {
    pub(crate) cluster: Cluster,
    pub(crate) listening: Listening,
    pub(crate) kubeconfig: KubeconfigFile,
}

impl Running {
    /// Starts a cluster, lets it listen, and writes the kubeconfig once it answers.
    ///
    /// # Errors
    /// When the kubeconfig may not be written, the cluster does not start or the address cannot be had.
    pub(crate) async fn start(
        listen: SocketAddr,
        kubeconfig: Option<PathBuf>,
        configure: impl FnOnce(kubewright_cluster::ClusterBuilder) -> kubewright_cluster::ClusterBuilder,
    ) -> Result<Running, Failure> {
        let kubeconfig = KubeconfigFile::plan(kubeconfig.as_deref())?;
        // Tried and given back before a data folder is made.
        std::net::TcpListener::bind(listen).map_err(|source| {
            not_started(Error::Bind {
                address: listen,
                source,
            })
        })?;
        let cluster = configure(Cluster::builder().serving_threads(serving_threads()))
            .start()
            .await
            .map_err(not_started)?;
        let listening = cluster.listen(listen).await.map_err(not_started)?;
        kubeconfig.write(&listening.kubeconfig)?;
        Ok(Running {
            cluster,
            listening,
            kubeconfig,
        })
    }

    /// The address as a URL.
    pub(crate) fn address(&self) -> String {
        format!("https://{}", self.listening.address)
    }

    /// Stops everything; gives up after a second, because a person is waiting.
    pub(crate) async fn stop(self) {
        // Past the deadline the process ends and takes the rest with it.
        let _ = tokio::time::timeout(Duration::from_secs(1), self.cluster.stop()).await;
    }
}

/// Why there is no cluster, and what to do.
fn not_started(why: Error) -> Failure {
    let (what, fix) = match &why {
        Error::Bind { address, .. } => (
            format!("cannot listen on {address}"),
            Some("another port: --listen 127.0.0.1:0 takes a free one"),
        ),
        other => ("cannot start the cluster".to_owned(), fix(other)),
    };
    let failure = Failure::new(what).because(why);
    match fix {
        Some(fix) => failure.fix(fix),
        None => failure,
    }
}

fn fix(why: &Error) -> Option<&'static str> {
    match why {
        Error::Server(ServerError::DataDir(DataDirError::NewerKubernetes { .. })) => {
            Some("a newer version goes on with the data of an older one, but not the other way round")
        }
        Error::Server(ServerError::DataDir(DataDirError::Io { source, .. })) => match source.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Some("make room on the disk, or name another folder: --data-dir DIR")
            }
            ErrorKind::InvalidInput | ErrorKind::InvalidData => {
                Some("put the file back, or name another folder: --data-dir DIR")
            }
            ErrorKind::AlreadyExists | ErrorKind::NotADirectory => Some("name a folder, not a file: --data-dir DIR"),
            _ => Some("make the folder writable for you, or name another: --data-dir DIR"),
        },
        Error::Nodes(_) => Some("correct --nodes, --node-label, --node-capacity or --node-zones"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_may_have_names() {
        let parsed = |text: &str| listen_address(text).map(|address| (address.ip().is_loopback(), address.port()));
        for text in ["127.0.0.1:8443", "[::1]:8443", "localhost:8443"] {
            assert_eq!(parsed(text), Ok((true, 8443)), "{text}");
        }
        for text in ["localhost", "localhost:", ":8443", "8443", "localhost:99999", ""] {
            assert!(parsed(text).is_err(), "{text}");
        }
    }
}
