//! `kubewright dev`: a cluster, the definitions, the operator; built again and restarted on every save.
//!
//! The parts: `machine` decides the next steps, and knows nothing but events; `session` does them; `operator`, `watch`,
//! `objects`, `observations` and `program` (which other commands use, too) are its hands and ears; `story` is the known
//! state, `teller` and `screen` show it.
//!
//! A person may rely on this: the cluster and its objects stay while the operator is replaced; the last good build runs
//! until a better one is there; no cluster outside of this machine is touched unless it was named.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::Args;
use kubewright_codegen::{Diagnostic, Place, codes};

use crate::commands::cluster::Running;
use crate::output::{Failure, Format};
use crate::program::How;
use crate::project::Project;
use crate::signals::stop_signal;
use crate::target::Target;

pub(crate) mod account;
mod advice;
mod kept;
mod machine;
pub(crate) mod objects;
mod observations;
pub(crate) mod operator;
pub(crate) mod screen;
mod session;
mod story;
mod teller;
mod wanted;
mod watch;
mod webhooks;

use account::Account;
use screen::Terminal;
use session::{Equipment, Session};
use story::{Fact, News, Story};
use teller::Scenery;

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

    /// Where to write the kubeconfig of the embedded cluster [default: .kubewright/kubeconfig]; with --context, where
    /// to read it
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Use this context of the kubeconfig instead of an embedded cluster
    #[arg(long, value_name = "NAME")]
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

    /// Build with optimisations, as `cargo build --release`
    #[arg(long)]
    release: bool,

    /// Cargo features to build with, separated by commas
    #[arg(long, value_name = "FEATURES")]
    features: Option<String>,

    /// Print lines instead of drawing a screen
    #[arg(long)]
    plain: bool,

    /// Arguments for the operator, after `--`
    #[arg(last = true, value_name = "ARGUMENTS")]
    operator: Vec<String>,
}

/// The cluster that is worked with.
enum Ground {
    Embedded(Running),
    Other(Box<Target>),
}

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let project = Project::here()?;
        let private = project.private_folder()?;
        let _lock = Lock::take(&private)?;
        let scratch = Scratch::make()?;
        let stop = stop_signal()?;
        let (news, told) = teller::channel();
        let scenery = Scenery::new(news.clone());

        let ground = self.ground(&private, scenery.clone()).await?;
        let (client, kubeconfig, fact) = match &ground {
            Ground::Embedded(running) => (
                running.cluster.client(),
                running.kubeconfig.path().to_path_buf(),
                Fact::Cluster {
                    description: running.address(),
                    address: running.address(),
                    kubeconfig: running.kubeconfig.path().display().to_string(),
                    milliseconds: Some(started.elapsed().as_secs_f64() * 1000.0),
                },
            ),
            Ground::Other(target) => (
                target.client().await?,
                target.write(&scratch.0.join("kubeconfig"))?,
                Fact::Cluster {
                    description: target.describe(),
                    address: target.server.clone(),
                    kubeconfig: target.source.clone(),
                    milliseconds: None,
                },
            ),
        };
        let name = project.root.file_name().map(|name| name.to_string_lossy().into_owned());
        let story = Story::new(started, name.unwrap_or_default());
        let terminal = match output {
            Format::Text if !self.plain => Terminal::take(),
            _ => None,
        };
        let equipment = Equipment {
            how: How {
                root: project.root.clone(),
                release: self.release,
                features: self.features,
                ..How::default()
            },
            client,
            kubeconfig: OsString::from(absolute(kubeconfig)?),
            scratch: scratch.0.clone(),
            arguments: self.operator,
            // A cluster that `dev` did not start gets no roles from here.
            account: (matches!(ground, Ground::Embedded(_)) && !self.as_admin).then(|| Account::of(&project.root)),
            embedded: matches!(ground, Ground::Embedded(_)),
            samples: self.samples,
            news: news.clone(),
        };
        let session = Session::new(equipment)?;
        if let Some(terminal) = &terminal {
            terminal.keys(session.keys());
        }
        let telling = match terminal {
            Some(terminal) => tokio::spawn(teller::draw(story, told, terminal)),
            None => tokio::spawn(teller::print(story, told, output)),
        };
        // The teller may be gone; then no output is needed.
        let _ = news.send(News::Fact(fact)).await;
        scenery.switch(true);
        let outcome = session.run(stop).await;
        scenery.switch(false);
        if let Ground::Embedded(running) = ground {
            running.stop().await;
        }
        drop((news, scenery));
        // The remaining news are told, the terminal is given back; a terminal that takes nothing is not waited for.
        let _ = tokio::time::timeout(std::time::Duration::from_millis(300), telling).await;
        screen::restore();
        outcome
    }

    /// Starts the embedded cluster, or finds the one that was named.
    async fn ground(&self, private: &std::path::Path, scenery: std::sync::Arc<Scenery>) -> Result<Ground, Failure> {
        if let Some(context) = &self.context {
            let target = Target::read(self.kubeconfig.as_deref(), Some(context))?;
            target.allow(
                self.allow_context.as_deref(),
                "`dev`",
                "dev replaces definitions, applies samples and runs unfinished code there",
                "without --context dev brings a cluster of its own; ",
            )?;
            return Ok(Ground::Other(Box::new(target)));
        }
        let file = self.kubeconfig.clone().unwrap_or_else(|| private.join("kubeconfig"));
        let data = self.data_dir.clone();
        let running = Running::start(self.listen, Some(file), |builder| {
            let builder = builder.observe(scenery);
            match data {
                Some(folder) => builder.data_dir(folder),
                None => builder,
            }
        })
        .await?;
        Ok(Ground::Embedded(running))
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

/// A private folder for sockets and keys, gone at the end. Not in the project: the path of a socket may have a hundred
/// letters at most.
struct Scratch(PathBuf);

impl Scratch {
    fn make() -> Result<Scratch, Failure> {
        use std::os::unix::fs::DirBuilderExt;
        let folder = std::env::temp_dir().join(format!("kubewright-dev-{}", std::process::id()));
        // Left by a process that was killed and had our number.
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(&folder)
            .map_err(|why| Failure::new(format!("cannot make the folder {}", folder.display())).because(why))?;
        Ok(Scratch(folder))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Another program may have emptied the folder; that is no failure.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
