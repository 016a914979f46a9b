//! `kubewright dev`: a cluster, the definitions, the operator; built again and restarted on every save.
//!
//! The parts: `lifecycle` decides what is done next; `session` does it, with `watch` (saved files), `program` (builds),
//! `desired` and `objects` (the cluster), `operator` (the process) and `observations` (its socket); `state` is updated by
//! all of them, and `renderer` and `screen` show it.
//!
//! Invariants: the cluster and its objects stay while the operator is replaced; the last good build runs until a newer
//! one is accepted; no cluster outside of this machine is changed unless it was named.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use kubewright_cluster::RunLog;
use kubewright_codegen::{Diagnostic, Place, codes};

use crate::commands::cluster::{Running, finish, open_run_log};
use crate::files::temporary_folder;
use crate::output::{Failure, Format};
use crate::program::BuildOptions;
use crate::project::Project;
use crate::signals::stop_signal;
use crate::target::{Request, Target};

pub(crate) mod account;
mod advice;
mod desired;
mod lifecycle;
pub(crate) mod objects;
mod observations;
pub(crate) mod operator;
mod programs;
mod renderer;
pub(crate) mod screen;
mod session;
mod state;
pub(crate) mod trial;
mod watch;
mod webhooks;

use account::Account;
use renderer::BuiltinObserver;
use screen::Terminal;
use session::{Options, Session};
use state::{Event, State, Update};

/// Run the project's operator in an embedded cluster, and rebuild and restart it on every save
///
/// Starts an embedded cluster, builds the operator, applies its CRDs and runs it. When a file is saved, the operator is
/// rebuilt and restarted; meanwhile, and if the build fails, the last good build keeps running. The cluster and its
/// objects stay until `dev` ends.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Address and port of the embedded cluster; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:0",
        value_parser = crate::commands::cluster::listen_address,
        conflicts_with = "context"
    )]
    listen: SocketAddr,

    /// Keep the cluster's objects and keys in this folder [default: everything is in memory]
    #[arg(long, value_name = "DIR", conflicts_with = "context")]
    data_dir: Option<PathBuf>,

    /// Where to write the kubeconfig [default: .kubewright/kubeconfig]; with --context, where to read it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: an embedded cluster]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    context: Option<String>,

    /// The name of the context once more, to confirm a cluster that is not on this machine
    #[arg(long, value_name = "NAME", requires = "context")]
    allow_context: Option<String>,

    /// Run the operator as the cluster's administrator instead of with its own role
    #[arg(long)]
    as_admin: bool,

    /// Apply config/samples when the operator is ready, and again when a sample is saved
    #[arg(long)]
    samples: bool,

    /// Build with optimizations, as `cargo build --release`
    #[arg(long)]
    release: bool,

    /// Cargo features to build with, separated by commas
    #[arg(long, value_name = "FEATURES")]
    features: Option<String>,

    /// Print lines instead of drawing a screen
    #[arg(long)]
    plain: bool,

    /// Write every request, commit, event of a watch and reconcile into this file, Secrets too; `kubewright log` reads
    /// it, also while it grows
    #[arg(long, value_name = "FILE", conflicts_with = "context")]
    log: Option<PathBuf>,

    /// Arguments for the operator, after `--`
    #[arg(last = true, value_name = "ARGUMENTS")]
    operator: Vec<String>,
}

/// Where the cluster comes from.
enum ClusterSource {
    Embedded(Running),
    Existing(Box<Target>),
}

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let project = Project::here()?;
        let private = project.private_folder()?;
        let _lock = Lock::take(&private)?;
        // Not in the project: the path of a socket may have a hundred letters at most.
        let scratch = temporary_folder()?;
        let stop = stop_signal()?;
        let (updates, received) = renderer::channel();
        let observer = BuiltinObserver::new(updates.clone());

        let log = self.log.as_deref().map(open_run_log).transpose()?;
        let source = self.cluster(&private, observer.clone(), log.clone()).await?;
        let (client, kubeconfig, event) = match &source {
            ClusterSource::Embedded(running) => (
                running.cluster.client(),
                running.kubeconfig.path().to_path_buf(),
                Event::Cluster {
                    description: running.address(),
                    address: running.address(),
                    kubeconfig: running.kubeconfig.path().display().to_string(),
                    milliseconds: Some(started.elapsed().as_secs_f64() * 1000.0),
                },
            ),
            ClusterSource::Existing(target) => (
                target.client().await?,
                target.write(&scratch.path().join("kubeconfig"))?,
                Event::Cluster {
                    description: target.describe(),
                    address: target.server.clone(),
                    kubeconfig: target.source.clone(),
                    milliseconds: None,
                },
            ),
        };
        let name = project.root.file_name().map(|name| name.to_string_lossy().into_owned());
        let state = State::new(started, name.unwrap_or_default());
        let terminal = match output {
            Format::Text if !self.plain => Terminal::take(),
            _ => None,
        };
        let options = Options {
            build: BuildOptions {
                root: project.root.clone(),
                release: self.release,
                features: self.features,
                ..BuildOptions::default()
            },
            client,
            kubeconfig: OsString::from(absolute(kubeconfig)?),
            scratch: scratch.path().to_path_buf(),
            arguments: self.operator,
            // `dev` creates no roles in a cluster that it did not start.
            account: (matches!(source, ClusterSource::Embedded(_)) && !self.as_admin)
                .then(|| Account::of(&project.root)),
            embedded: matches!(source, ClusterSource::Embedded(_)),
            samples: self.samples,
            log: log.clone(),
            updates: updates.clone(),
        };
        let session = Session::new(options)?;
        if let Some(terminal) = &terminal {
            terminal.keys(session.keys());
        }
        let rendering = match terminal {
            Some(terminal) => tokio::spawn(renderer::draw(state, received, terminal)),
            None => tokio::spawn(renderer::print(state, received, output)),
        };
        // The renderer may be gone; then no output is needed.
        let _ = updates.send(Update::Event(event)).await;
        observer.enable(true);
        let outcome = session.run(stop).await;
        observer.enable(false);
        if let ClusterSource::Embedded(running) = source {
            running.stop().await;
        }
        let written = log
            .zip(self.log.as_deref())
            .map_or(Ok(()), |(log, path)| finish(&log, path));
        drop((updates, observer));
        // The last updates are shown and the terminal is restored, unless the terminal is blocked.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(300), rendering).await;
        screen::restore();
        outcome.and(written)
    }

    /// Starts the embedded cluster, or finds the one that was named.
    async fn cluster(
        &self,
        private: &std::path::Path,
        observer: std::sync::Arc<BuiltinObserver>,
        log: Option<std::sync::Arc<RunLog>>,
    ) -> Result<ClusterSource, Failure> {
        if let Some(context) = &self.context {
            let target = Target::read(self.kubeconfig.as_deref(), Some(context))?;
            target.allow(&Request {
                command: "`dev`",
                confirmed: self.allow_context.as_deref(),
                harm: "dev replaces definitions, applies samples and runs unfinished code there",
                alternative: "without --context dev brings a cluster of its own; ",
                flag: "--allow-context",
            })?;
            return Ok(ClusterSource::Existing(Box::new(target)));
        }
        let file = self.kubeconfig.clone().unwrap_or_else(|| private.join("kubeconfig"));
        let data = self.data_dir.clone();
        let running = Running::start(self.listen, Some(file), |builder| {
            let builder = builder.observe(observer);
            let builder = match log {
                Some(log) => builder.record(log),
                None => builder,
            };
            match data {
                Some(folder) => builder.data_dir(folder),
                None => builder,
            }
        })
        .await?;
        Ok(ClusterSource::Embedded(running))
    }
}

fn absolute(path: PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(&path).map_err(|why| Failure::new(format!("cannot find {}", path.display())).because(why))
}

/// One `dev` for a project: two would write the same kubeconfig.
struct Lock(#[expect(dead_code, reason = "held, and given back when it is closed")] std::fs::File);

impl Lock {
    fn take(private: &std::path::Path) -> Result<Lock, Diagnostic> {
        let path = private.join("lock");
        let cannot = |why: String| {
            Diagnostic::new(codes::files::IO, "cannot start dev")
                .at(Place::file(path.display().to_string()))
                .because(why)
        };
        let file = std::fs::File::create(&path).map_err(|why| cannot(why.to_string()))?;
        match file.try_lock() {
            Ok(()) => Ok(Lock(file)),
            Err(std::fs::TryLockError::WouldBlock) => Err(cannot(
                "another `kubewright dev` runs in this project, in another terminal perhaps".to_owned(),
            )
            .fix("use that one, or end it with Ctrl-C")),
            Err(std::fs::TryLockError::Error(why)) => Err(cannot(why.to_string())),
        }
    }
}
