//! A real kube-apiserver with its etcd, started on loopback as a test environment would.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::{Child, Command};

use crate::client::TOKEN;
use crate::machine::{free_address, private_megabytes};
use crate::write_tokens;

/// Where the peer's programs are.
pub(crate) struct Peer {
    kube_apiserver: PathBuf,
    etcd: PathBuf,
}

/// Whether the peer's etcd waits for the disk before it acknowledges.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fsync {
    Off,
    On,
}

/// A peer that runs; it ends when this is dropped.
pub(crate) struct RunningPeer {
    pub(crate) address: SocketAddr,
    processes: Vec<Child>,
}

impl Peer {
    /// The peer of the environment; `None` when none is named.
    ///
    /// # Errors
    /// When only one of the two programs is named, or a named one does not exist.
    pub(crate) fn from_environment() -> Result<Option<Peer>, String> {
        let named = |variable: &str| std::env::var_os(variable).map(PathBuf::from);
        match (named("KUBEWRIGHT_BENCH_KUBE_APISERVER"), named("KUBEWRIGHT_BENCH_ETCD")) {
            (None, None) => Ok(None),
            (Some(kube_apiserver), Some(etcd)) => {
                for path in [&kube_apiserver, &etcd] {
                    if !path.exists() {
                        return Err(format!("{} does not exist", path.display()));
                    }
                }
                Ok(Some(Peer { kube_apiserver, etcd }))
            }
            _ => Err("name both KUBEWRIGHT_BENCH_KUBE_APISERVER and KUBEWRIGHT_BENCH_ETCD, or neither".to_string()),
        }
    }

    /// Where another program of the peer is, if it lies beside kube-apiserver.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.kube_apiserver.with_file_name(name)
    }

    /// Starts both programs in `folder`. The server is not ready yet when this returns.
    pub(crate) async fn start(&self, folder: &Path, fsync: Fsync) -> Result<RunningPeer, String> {
        let tokens = write_tokens(folder, TOKEN)?;
        let sync: &[&str] = if fsync == Fsync::Off {
            &["--unsafe-no-fsync"]
        } else {
            &[]
        };
        let keys = folder.join("sa.key");
        if !keys.exists() {
            let made = Command::new("openssl")
                .args(["genrsa", "-out"])
                .arg(&keys)
                .arg("2048")
                .stderr(Stdio::null())
                .status()
                .await
                .map_err(|why| format!("the peer needs openssl for its service account key: {why}"))?;
            if !made.success() {
                return Err("openssl could not make the peer's service account key".to_string());
            }
        }
        let (client, peers, server) = (free_address()?, free_address()?, free_address()?);
        let data = folder.join("etcd");
        let _ = fs::remove_dir_all(&data); // every run starts with an empty store
        let quiet = |command: &mut Command| {
            command
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .kill_on_drop(true)
                .spawn()
        };
        let etcd = quiet(
            Command::new(&self.etcd)
                .arg("--data-dir")
                .arg(&data)
                .args(sync)
                .args(["--log-level", "error"])
                .arg(format!("--listen-client-urls=http://{client}"))
                .arg(format!("--advertise-client-urls=http://{client}"))
                .arg(format!("--listen-peer-urls=http://{peers}"))
                .arg(format!("--initial-advertise-peer-urls=http://{peers}"))
                .arg(format!("--initial-cluster=default=http://{peers}")),
        )
        .map_err(|why| format!("cannot start {}: {why}", self.etcd.display()))?;
        let apiserver = quiet(
            Command::new(&self.kube_apiserver)
                .arg(format!("--etcd-servers=http://{client}"))
                .arg(format!("--secure-port={}", server.port()))
                .args([
                    "--bind-address=127.0.0.1",
                    "--authorization-mode=RBAC",
                    "--allow-privileged=true",
                ])
                .arg(format!("--token-auth-file={}", tokens.display()))
                .arg(format!("--cert-dir={}", folder.join("certs").display()))
                .arg("--service-account-issuer=https://kubernetes.default.svc.cluster.local")
                .arg(format!("--service-account-key-file={}", keys.display()))
                .arg(format!("--service-account-signing-key-file={}", keys.display()))
                .args([
                    "--service-cluster-ip-range=10.0.0.0/24",
                    "--endpoint-reconciler-type=none",
                ]),
        )
        .map_err(|why| format!("cannot start {}: {why}", self.kube_apiserver.display()))?;
        Ok(RunningPeer {
            address: server,
            processes: vec![apiserver, etcd],
        })
    }
}

impl RunningPeer {
    /// Resident memory of both programs in megabytes.
    pub(crate) fn private_megabytes(&self) -> Result<f64, String> {
        self.processes
            .iter()
            .map(|process| private_megabytes(process.id()))
            .sum()
    }

    /// Starts the rest of a cluster beside a server that is ready: kube-controller-manager, kube-scheduler and kwok, in
    /// this order.
    pub(crate) fn start_the_rest(&mut self, programs: &[PathBuf; 3], folder: &Path) -> Result<(), String> {
        let config = folder.join("kubeconfig");
        let server = self.address;
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: peer, cluster: {{server: \"https://{server}\", insecure-skip-tls-verify: true}}}}]\n\
             users: [{{name: admin, user: {{token: {TOKEN}}}}}]\ncontexts: [{{name: peer, context: {{cluster: peer, user: admin}}}}]\n\
             current-context: peer\n"
        );
        fs::write(&config, text).map_err(|why| format!("cannot write {}: {why}", config.display()))?;
        let stages = folder.join("kwok.yaml");
        fs::write(&stages, STAGES).map_err(|why| format!("cannot write {}: {why}", stages.display()))?;
        let [manager, scheduler, kwok] = programs;
        let kubeconfig = format!("--kubeconfig={}", config.display());
        let component = |program: &Path| -> Result<Command, String> {
            let mut command = Command::new(program);
            command
                .arg(&kubeconfig)
                .args(["--bind-address=127.0.0.1", "--leader-elect=false"])
                // The measurement is about its work, not about its rate limits.
                .args(["--kube-api-qps=10000", "--kube-api-burst=10000"])
                .arg(format!("--secure-port={}", free_address()?.port()))
                .arg(format!("--authentication-kubeconfig={}", config.display()))
                .arg(format!("--authorization-kubeconfig={}", config.display()));
            Ok(command)
        };
        let mut of_manager = component(manager)?;
        of_manager
            .arg(format!(
                "--service-account-private-key-file={}",
                folder.join("sa.key").display()
            ))
            .arg(format!(
                "--root-ca-file={}",
                folder.join("certs/apiserver.crt").display()
            ))
            .arg(format!("--cert-dir={}", folder.join("manager").display()));
        let mut of_scheduler = component(scheduler)?;
        of_scheduler.arg(format!("--cert-dir={}", folder.join("scheduler").display()));
        let mut of_kwok = Command::new(kwok);
        of_kwok
            .arg(&kubeconfig)
            .args([
                "--manage-all-nodes=true",
                "--cidr=10.1.0.0/16",
                "--node-lease-duration-seconds=40",
            ])
            .arg(format!("--config={}", stages.display()));
        for (mut command, program) in [(of_manager, manager), (of_scheduler, scheduler), (of_kwok, kwok)] {
            let quiet = command.stdout(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
            let started = quiet.spawn();
            self.processes
                .push(started.map_err(|why| format!("cannot start {}: {why}", program.display()))?);
        }
        Ok(())
    }

    /// The ids of its processes.
    pub(crate) fn ids(&self) -> Vec<Option<u32>> {
        self.processes.iter().map(Child::id).collect()
    }

    pub(crate) async fn stop(mut self) {
        for process in &mut self.processes {
            // The process may be gone already, which is the aim.
            let _ = process.kill().await;
        }
    }
}

/// The stages that kwok applies to nodes and pods; it has none of its own.
const STAGES: &str = include_str!("cluster/kwok.yaml");

/// How long a peer may take to start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
