//! What a second replica of an operator costs, how soon it takes over, and what a restart writes. Ours alone, against
//! our server without controllers; the operator has the profile `operator` and runs as its user would start it.
//!
//! * *memory*: private, of the leader and of the standby, after each of 50,000 ConfigMaps of 1 KB has changed ten times,
//!   and a moment of rest.
//! * *take-over*: from the moment in which the leader's process has ended, after SIGTERM, to the first reconcile of the
//!   standby, whose queue has all keys to come.
//! * *restart*: the writes that the server counted from the start of an operator with 50,000 children that it had
//!   applied before, until it has reconciled all of them. Writes of its Lease are not counted.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::client::{Call, Connection};
use crate::load::{CONFIG_MAPS, Request, at_once, config_map};
use crate::machine::private_megabytes;
use crate::servers::Server;

const OBJECTS: usize = 50_000;
const CHANGES: usize = 10;
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";
/// Connections that write at the same time.
const WRITERS: usize = 8;
/// How long nothing happens before memory is read.
const REST: Duration = Duration::from_secs(5);
/// How long a replica may be silent.
const PATIENCE: Duration = Duration::from_secs(120);

/// The goals.
const MEMORY: f64 = 1.05;
const TAKE_OVER: f64 = 0.2;

/// Measures and prints.
pub(crate) async fn measure(kubewright: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    println!("\nreplicas of an operator, {OBJECTS} objects\n");
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let measured = standby(&server, folder.path()).await;
    server.stop().await;
    measured?;
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let measured = restart(&server, folder.path()).await;
    server.stop().await;
    measured
}

fn row(what: &str, figure: f64, unit: &str, most: Option<f64>) {
    let goal = most.map_or_else(String::new, |most| {
        let verdict = if figure <= most { "met" } else { "MISSED" };
        format!("   (≤ {most}) {verdict}")
    });
    println!("{what:<52}{figure:>10.2} {unit}{goal}");
}

async fn standby(server: &Server, folder: &Path) -> Result<(), String> {
    write_all(server, |index| {
        let body = config_map(&format!("c-{index}"), &"v".repeat(700));
        Request::new("POST", CONFIG_MAPS.to_owned(), "application/json", body)
    })
    .await?;
    let mut leader = Replica::start(folder, &[]).await?;
    leader.reconciled(OBJECTS).await?;
    let mut standby = Replica::start(folder, &[]).await?;
    for round in 0..CHANGES {
        write_all(server, move |index| {
            let body = format!(r#"{{"metadata":{{"annotations":{{"round":"{round}"}}}}}}"#).into_bytes();
            let path = format!("{CONFIG_MAPS}/c-{index}");
            Request::new("PATCH", path, "application/merge-patch+json", body)
        })
        .await?;
    }
    tokio::time::sleep(REST).await;
    let (leads, stands_by) = (leader.memory()?, standby.memory()?);
    row("memory of the leader", leads, "MB", None);
    row("memory of a standby", stands_by, "MB", None);
    row("beside the leader's", stands_by / leads, "×", Some(MEMORY));
    leader.end().await?;
    let released = Instant::now();
    standby.reconciled(1).await?;
    row(
        "take-over to the first reconcile",
        released.elapsed().as_secs_f64(),
        "s",
        Some(TAKE_OVER),
    );
    standby.reconciled(OBJECTS).await?;
    row(
        "until all keys are reconciled",
        released.elapsed().as_secs_f64(),
        "s",
        None,
    );
    standby.end().await
}

async fn restart(server: &Server, folder: &Path) -> Result<(), String> {
    write_all(server, |index| {
        let body = format!(r#"{{"metadata":{{"name":"a-{index}"}}}}"#).into_bytes();
        Request::new("POST", ACCOUNTS.to_owned(), "application/json", body)
    })
    .await?;
    let children = [("KUBEWRIGHT_BENCH_CHILDREN", "1")];
    let operator = Replica::start(folder, &children).await?;
    let begun = Instant::now();
    // Each child wakes its parent once more, so that reconciles say little.
    while writes(server).await? < OBJECTS as f64 {
        if begun.elapsed() > PATIENCE {
            return Err(format!("{OBJECTS} children were not made within {PATIENCE:?}"));
        }
        tokio::time::sleep(REST).await;
    }
    operator.end().await?;
    let before = writes(server).await?;
    let mut operator = Replica::start(folder, &children).await?;
    operator.reconciled(OBJECTS).await?;
    row(
        "writes of a restart, 50,000 children",
        writes(server).await? - before,
        "",
        Some(0.0),
    );
    operator.end().await
}

/// One write of each object, which `make` describes.
async fn write_all(server: &Server, make: impl Fn(usize) -> Request + Copy + Send + 'static) -> Result<(), String> {
    let each = OBJECTS / WRITERS;
    at_once(server, WRITERS, OBJECTS, move |writer, index| {
        make(writer * each + index)
    })
    .await?;
    Ok(())
}

/// How many requests of the server were writes of ConfigMaps, by its own metrics.
async fn writes(server: &Server) -> Result<f64, String> {
    let (code, body) = Connection::open(server.address)
        .await?
        .answer(&Call::get("/metrics"))
        .await?;
    if code != 200 {
        return Err(format!("/metrics was answered with {code}"));
    }
    let text = String::from_utf8_lossy(&body);
    let is_write = |line: &&str| {
        line.starts_with("apiserver_request_total{")
            && line.contains(r#"resource="configmaps""#)
            && !["GET", "LIST", "WATCH"]
                .iter()
                .any(|verb| line.contains(&format!(r#"verb="{verb}""#)))
    };
    let counts = text.lines().filter(is_write).map(|line| {
        let count = line.rsplit(' ').next().unwrap_or_default();
        count.parse::<f64>().map_err(|why| format!("{line}: {why}"))
    });
    counts.sum()
}

/// A process of the operator; it ends when this is dropped.
struct Replica {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Replica {
    async fn start(folder: &Path, variables: &[(&str, &str)]) -> Result<Replica, String> {
        let mut child = Command::new(crate::subject("kubewright-bench-replica")?)
            .args([
                "--leader-elect",
                "--metrics-bind-address",
                "0",
                "--health-probe-bind-address",
                "0",
            ])
            .arg("--kubeconfig")
            .arg(folder.join("kubeconfig"))
            .envs(variables.iter().copied())
            .env("POD_NAMESPACE", "default")
            .env("RUST_LOG", "warn")
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| format!("cannot start a replica: {why}"))?;
        let output = child.stdout.take().ok_or("the replica has no standard output")?;
        Ok(Replica {
            child,
            lines: BufReader::new(output).lines(),
        })
    }

    /// Waits until it has told of so many reconciles.
    async fn reconciled(&mut self, count: usize) -> Result<(), String> {
        loop {
            let line = match tokio::time::timeout(PATIENCE, self.lines.next_line()).await {
                Err(_) => {
                    return Err(format!(
                        "a replica was silent for {PATIENCE:?} before {count} reconciles"
                    ));
                }
                Ok(line) => line.map_err(|why| format!("a replica: {why}"))?,
            };
            let line = line.ok_or_else(|| format!("a replica ended before {count} reconciles"))?;
            let told = line
                .strip_prefix("reconciled ")
                .and_then(|told| told.parse::<usize>().ok());
            if told.ok_or_else(|| format!("a replica says {line:?}"))? >= count {
                return Ok(());
            }
        }
    }

    fn memory(&self) -> Result<f64, String> {
        private_megabytes(self.child.id())
    }

    /// Ends it as a kubelet would, and waits until it has gone.
    async fn end(mut self) -> Result<(), String> {
        let id = self.child.id().ok_or("the replica has ended")?;
        let told = Command::new("kill").arg(id.to_string()).status().await;
        if !told.map_err(|why| format!("kill: {why}"))?.success() {
            return Err(format!("the replica {id} cannot be told to stop"));
        }
        let ended = tokio::time::timeout(PATIENCE, self.child.wait()).await;
        let status = ended.map_err(|_| format!("the replica goes on for {PATIENCE:?}"))?;
        match status.map_err(|why| why.to_string())? {
            status if status.success() => Ok(()),
            status => Err(format!("the replica ended with {status}")),
        }
    }
}
