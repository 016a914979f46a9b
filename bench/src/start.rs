//! Start and idle memory.
//!
//! * *process*: from `exec` of the program(s) to the first `/readyz` answered with 200 over HTTPS, asked every half
//!   millisecond.
//! * *in process*: from the call of `Cluster::start` to the first answered request through its client.
//! * *idle memory*: memory that is private to the programs (`RssAnon`) two seconds after that, all programs together,
//!   built-in controllers running on our side only.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use kubewright_cluster::Cluster;
use tokio::process::{Child, Command};

use crate::machine::{free_address, private_megabytes};
use crate::peer::{self, Fsync, Peer};
use crate::{RUNS, Spread, https};

/// How long "idle" is before memory is read.
const IDLE: Duration = Duration::from_secs(2);

/// Measures and prints.
pub(crate) async fn measure(kubewright: &Path, peer: Option<&Peer>) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let (mut ours, mut bare, mut theirs) = (Vec::new(), Vec::new(), Vec::new());
    let (mut our_memory, mut bare_memory, mut their_memory) = (Vec::new(), Vec::new(), Vec::new());
    for run in 0..RUNS {
        // In turns, so that a machine that slows down slows all of them down.
        let remember = run < 2;
        let (took, memory) = one_of_ours(kubewright, folder.path(), "all", remember).await?;
        ours.push(took);
        our_memory.extend(memory);
        let (took, memory) = one_of_ours(kubewright, folder.path(), "none", remember).await?;
        bare.push(took);
        bare_memory.extend(memory);
        if let Some(peer) = peer {
            let (took, memory) = one_of_theirs(peer, folder.path(), remember).await?;
            theirs.push(took);
            their_memory.extend(memory);
        }
    }
    let in_process = in_process().await?;

    println!("start and idle memory, {RUNS} runs in turns, median (least–most)\n");
    row("process to /readyz, all controllers", &Spread::of(ours), "ms", &theirs);
    row("process to /readyz, API server alone", &Spread::of(bare), "ms", &theirs);
    row(
        "in process, first answered request",
        &Spread::of(in_process),
        "ms",
        &theirs,
    );
    row(
        "idle memory, all controllers",
        &Spread::of(our_memory),
        "MB",
        &their_memory,
    );
    row(
        "idle memory, API server alone",
        &Spread::of(bare_memory),
        "MB",
        &their_memory,
    );
    Ok(())
}

fn row(what: &str, ours: &Spread, unit: &str, theirs: &[f64]) {
    let beside = if theirs.is_empty() {
        String::new()
    } else {
        let theirs = Spread::of(theirs.to_vec());
        format!(
            "   kube-apiserver + etcd {}   1/{:.0}",
            theirs.show(unit),
            theirs.median() / ours.median()
        )
    };
    println!("{what:<38} {}{beside}", ours.show(unit));
}

async fn one_of_ours(
    program: &Path,
    folder: &Path,
    controllers: &str,
    memory: bool,
) -> Result<(f64, Option<f64>), String> {
    let address = free_address()?;
    let started = Instant::now();
    let mut process: Child = Command::new(program)
        .args([
            "cluster",
            "--controllers",
            controllers,
            "--listen",
            &address.to_string(),
            "--kubeconfig",
        ])
        .arg(folder.join("kubeconfig"))
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|why| format!("cannot start {}: {why}", program.display()))?;
    https::until_ready(address, Duration::from_secs(10)).await?;
    let took = milliseconds(started);
    let memory = if memory {
        tokio::time::sleep(IDLE).await;
        Some(private_megabytes(process.id())?)
    } else {
        None
    };
    process
        .kill()
        .await
        .map_err(|why| format!("cannot stop {}: {why}", program.display()))?;
    Ok((took, memory))
}

async fn one_of_theirs(peer: &Peer, folder: &Path, memory: bool) -> Result<(f64, Option<f64>), String> {
    let started = Instant::now();
    let running = peer.start(folder, Fsync::Off).await?;
    https::until_ready(running.address, peer::PATIENCE).await?;
    let took = milliseconds(started);
    let memory = if memory {
        tokio::time::sleep(IDLE).await;
        Some(running.private_megabytes()?)
    } else {
        None
    };
    running.stop().await;
    Ok((took, memory))
}

async fn in_process() -> Result<Vec<f64>, String> {
    let mut figures = Vec::new();
    for _ in 0..RUNS {
        let started = Instant::now();
        let cluster = Cluster::start()
            .await
            .map_err(|why| format!("the cluster did not start: {why}"))?;
        let request = http::Request::get("/readyz")
            .body(Vec::new())
            .expect("a constant request is valid");
        let answer = cluster
            .client()
            .request_text(request)
            .await
            .map_err(|why| format!("/readyz in process: {why}"))?;
        if answer != "ok" {
            return Err(format!("/readyz in process answered {answer:?}"));
        }
        figures.push(milliseconds(started));
        cluster.stop().await;
    }
    Ok(figures)
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
