//! The same work done by kubewright and by its peers, side by side in one run.
//!
//! `cargo run --release -p kubewright-bench` measures; the figures of the peer are taken in the same run, in turns,
//! when its binaries are given: `KUBEWRIGHT_BENCH_KUBE_APISERVER` and `KUBEWRIGHT_BENCH_ETCD`. Only ratios of one run
//! are worth quoting: absolute times depend on the machine. Each line names the measured quantity, with its start and
//! end.
//!
//! Without arguments everything is measured; `start`, `load`, `queue`, `instructions`, `memory`, `growth`, `definitions`,
//! `watchers`, `cluster`, `scale`, `time`, `webhooks` and `replicas` name parts.

#![allow(clippy::print_stdout, reason = "printing figures is what this program is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod client;
mod cluster;
mod growth;
mod https;
mod instructions;
mod load;
mod machine;
mod paced;
mod peer;
mod queue;
mod replicas;
mod report;
mod servers;
mod start;
mod watchers;
mod webhooks;

/// Runs of each measurement; the median is printed with the extremes.
const RUNS: usize = 7;

const PARTS: [&str; 13] = [
    "start",
    "load",
    "queue",
    "instructions",
    "memory",
    "definitions",
    "growth",
    "watchers",
    "cluster",
    "scale",
    "time",
    "webhooks",
    "replicas",
];

#[tokio::main(worker_threads = 2)]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            println!("bench: {why}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(instructions::ECHO) {
        return instructions::echo(arguments).await;
    }
    let kubewright = kubewright_binary()?;
    let peer = peer::Peer::from_environment()?;
    if peer.is_none() {
        println!(
            "(no peer: set KUBEWRIGHT_BENCH_KUBE_APISERVER and KUBEWRIGHT_BENCH_ETCD to measure beside a real control plane)"
        );
    }
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let asked = |what: &str| wanted.is_empty() || wanted.iter().any(|name| name == what);
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.contains(&name.as_str())) {
        let parts = PARTS.join(", ");
        return Err(format!("there is no measurement {unknown:?}: {parts}"));
    }
    if asked("start") {
        start::measure(&kubewright, peer.as_ref()).await?;
    }
    if asked("load") {
        report::load(&kubewright, peer.as_ref()).await?;
    }
    if asked("queue") {
        queue::measure(&kubewright).await?;
    }
    if asked("instructions") {
        instructions::measure(&kubewright).await?;
    }
    if asked("memory") {
        report::memory(&kubewright).await?;
    }
    if asked("definitions") {
        growth::definitions(&kubewright).await?;
    }
    if asked("growth") {
        growth::measure(&kubewright).await?;
    }
    if asked("watchers") {
        watchers::measure(&kubewright).await?;
    }
    if asked("cluster") {
        cluster::measure(&kubewright, peer.as_ref()).await?;
    }
    if asked("scale") {
        cluster::scale(&kubewright).await?;
    }
    if asked("time") {
        cluster::time_and_processes(&kubewright).await?;
    }
    if asked("webhooks") {
        webhooks::measure(&kubewright, peer.as_ref()).await?;
    }
    if asked("replicas") {
        replicas::measure(&kubewright).await?;
    }
    Ok(())
}

/// The file of tokens that both servers read: one administrator.
pub(crate) fn write_tokens(folder: &Path, token: &str) -> Result<PathBuf, String> {
    let path = folder.join("tokens.csv");
    std::fs::write(&path, format!("{token},bench,bench-uid,\"system:masters\"\n"))
        .map_err(|why| format!("cannot write {}: {why}", path.display()))?;
    Ok(path)
}

/// A subject of ours, built as users build their operators: in the folder of that profile, beside that of this program.
pub(crate) fn subject(name: &str) -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let profiles = here.parent().and_then(Path::parent).unwrap_or(Path::new(""));
    let path = profiles.join("operator").join(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!(
            "{} does not exist: cargo build --profile operator --bin {name}",
            path.display()
        )),
    }
}

/// The command beside this program in the target folder, or the one that `KUBEWRIGHT_BENCH_KUBEWRIGHT` names.
fn kubewright_binary() -> Result<PathBuf, String> {
    if let Some(named) = std::env::var_os("KUBEWRIGHT_BENCH_KUBEWRIGHT") {
        return Ok(named.into());
    }
    let here = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let beside = here.parent().unwrap_or(Path::new(".")).join("kubewright");
    if beside.exists() {
        Ok(beside)
    } else {
        Err(format!(
            "{} does not exist: build it first with `cargo build --release`",
            beside.display()
        ))
    }
}

/// Minimum, median and maximum of some figures.
pub(crate) struct Spread {
    sorted: Vec<f64>,
}

impl Spread {
    pub(crate) fn of(mut figures: Vec<f64>) -> Spread {
        figures.sort_by(f64::total_cmp);
        Spread { sorted: figures }
    }

    pub(crate) fn median(&self) -> f64 {
        self.sorted.get(self.sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// The figure below which this part of all figures lies.
    pub(crate) fn quantile(&self, part: f64) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        let at = (last as f64 * part).round() as usize;
        self.sorted.get(at).copied().unwrap_or(f64::NAN)
    }

    /// `12.3 ms (11.9–14.0)`.
    pub(crate) fn show(&self, unit: &str) -> String {
        let (least, most) = (
            self.sorted.first().copied().unwrap_or(f64::NAN),
            self.sorted.last().copied().unwrap_or(f64::NAN),
        );
        format!("{:.1} {unit} ({least:.1}–{most:.1})", self.median())
    }
}
