//! The runtime beside kube-runtime and controller-runtime: the same work, on the same server, in one run.
//!
//! Each subject is a process of its own, started anew for each measurement, with its own defaults. The server is
//! neutral (`server.rs`) and runs here. The measured quantities, with their start and end, stand at the top of
//! `measure.rs`; figures of one run belong together, because the machine is shared.
//!
//! Without arguments everything is measured; `cache`, `handlers`, `reconciles`, `queue` and `idle` name
//! parts.
//! `KUBEWRIGHT_BENCH_OBJECTS` says how many objects there are, 50,000 unless it is set; with `KUBEWRIGHT_BENCH_ALONE`
//! only kubewright is measured.

#![allow(clippy::print_stdout, reason = "printing figures is what this program is for")]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

mod measure;
mod pods;
mod process;
mod server;
mod table;

use measure::Figures;

const PARTS: [&str; 5] = ["cache", "handlers", "reconciles", "queue", "idle"];

/// The program of the subject in Go.
const GO: &str = "controller-runtime-bench-subject";

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
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let asked = |what: &str| wanted.is_empty() || wanted.iter().any(|name| name == what);
    if let Some(unknown) = wanted.iter().find(|name| !PARTS.contains(&name.as_str())) {
        return Err(format!("there is no measurement {unknown:?}: {}", PARTS.join(", ")));
    }
    let objects = match std::env::var("KUBEWRIGHT_BENCH_OBJECTS") {
        Ok(text) => text.parse().map_err(|why| format!("KUBEWRIGHT_BENCH_OBJECTS: {why}"))?,
        Err(_) => 50_000,
    };
    let alone = std::env::var_os("KUBEWRIGHT_BENCH_ALONE").is_some();
    let programs = match alone {
        true => [Some(beside("kubewright-bench-subject")?), None, None],
        false => [
            Some(beside("kubewright-bench-subject")?),
            Some(beside("kube-bench-subject")?),
            controller_runtime().await?,
        ],
    };
    let mut columns: [Option<Figures>; 3] = [None, None, None];
    for (program, column) in programs.iter().zip(&mut columns) {
        let Some(program) = program else { continue };
        let figures = column.insert(Figures::new());
        if asked("cache") {
            measure::cache(program, objects, figures).await?;
        }
        // Of controller-runtime the figures of its cache are those of typed handlers.
        if asked("handlers") && !program.ends_with(GO) {
            measure::handlers(program, objects, figures).await?;
        }
        if asked("reconciles") {
            measure::reconciles(program, objects, figures).await?;
        }
        if asked("queue") {
            measure::queue(program, figures).await?;
        }
        if asked("idle") {
            measure::idle(program, figures).await?;
        }
    }
    println!("{objects} objects of {} bytes", measure::object_size());
    table::print(&columns);
    Ok(())
}

/// A program beside this one in the target folder.
fn beside(name: &str) -> Result<PathBuf, String> {
    let here = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let path = here.with_file_name(name);
    match path.exists() {
        true => Ok(path),
        false => Err(format!("{} does not exist: build the whole package", path.display())),
    }
}

/// Builds the subject in Go. `None`, and a line that says so, when there is no Go.
///
/// # Errors
/// When there is one, and it does not build the subject.
async fn controller_runtime() -> Result<Option<PathBuf>, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../peers/controller-runtime");
    let here = std::env::current_exe().map_err(|why| format!("cannot find this program: {why}"))?;
    let program = here.with_file_name(GO);
    let built = tokio::process::Command::new("go")
        .args(["build", "-trimpath", "-o"])
        .arg(&program)
        .arg(".")
        .current_dir(&source)
        .status()
        .await;
    match built {
        Ok(status) if status.success() => Ok(Some(program)),
        Ok(status) => Err(format!("go could not build {}: {status}", source.display())),
        Err(why) => {
            println!("(no controller-runtime: go cannot be run: {why})");
            Ok(None)
        }
    }
}
