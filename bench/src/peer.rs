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

    /// The ids of its processes.
    pub(crate) fn ids(&self) -> Vec<Option<u32>> {
        self.processes.iter().map(Child::id).collect()
    }

    pub(crate) async fn stop(mut self) {
        for process in &mut self.processes {
            // A process that is gone already is what we want.
            let _ = process.kill().await;
        }
    }
}

/// How long a peer may take to start.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
