//! A demo as a program of its own: its arguments, its cluster, its output.

#![allow(clippy::print_stderr, reason = "it is a main function")]

use std::error::Error as _;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Parser};
use kubewright_cluster::Cluster;
use tokio::signal::unix::{SignalKind, signal};

use crate::{Demo, Error, Session};

/// How a demo is played.
#[derive(Clone, Copy, Debug, Default, Args)]
pub struct Options {
    /// Exit when the created objects are Ready; fail if they are not within 30 s
    #[arg(long)]
    pub once: bool,

    /// Run the operator as the cluster's administrator instead of with its own role
    #[arg(long)]
    pub as_admin: bool,
}

/// Run a cluster with an operator, and show what happens and why
#[derive(Debug, Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0")]
    listen: SocketAddr,

    /// Where to write the kubeconfig, a new file [default: a private folder, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// How to print: `text` for people, `json` (one object a line) for machines
    #[arg(long, value_name = "text|json", default_value = "text", value_parser = ["text", "json"])]
    output: String,
}

/// The main function of a program that shows `demo`: a cluster starts in this process, and the program ends with Ctrl-C.
pub fn main(demo: fn() -> Result<Demo, Error>) -> ExitCode {
    let started = Instant::now();
    // The cluster starts this program again, as the shim of each process that runs for a pod.
    if let Some(code) = kubewright_cluster::processes::called() {
        return ExitCode::from(code);
    }
    let arguments = Arguments::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|why| Error::new("cannot start the asynchronous runtime").because(why));
    let Err(error) = runtime.and_then(|runtime| runtime.block_on(arguments.run(demo, started))) else {
        return ExitCode::SUCCESS;
    };
    eprintln!("error: {error}");
    let mut source = error.source();
    while let Some(why) = source {
        eprintln!("  because: {why}");
        source = why.source();
    }
    ExitCode::FAILURE
}

impl Arguments {
    async fn run(self, demo: fn() -> Result<Demo, Error>, started: Instant) -> Result<(), Error> {
        let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
        let [Ok(mut interrupt), Ok(mut terminate)] = signals else {
            return Err(Error::new("cannot listen for SIGINT and SIGTERM"));
        };
        let cannot = |why: std::io::Error| Error::new("cannot write the kubeconfig").because(why);
        let folder = tempfile::tempdir().map_err(cannot)?;
        let kubeconfig = match self.kubeconfig {
            Some(path) if path.exists() => {
                return Err(Error::new(format!("{} is there already", path.display())).because("name a new file"));
            }
            Some(path) => path,
            None => folder.path().join("kubeconfig"),
        };
        let for_machines = self.output == "json";
        let mut session = Session::new(
            demo()?,
            started,
            Box::new(move |text, event| {
                let mut out = anstream::stdout().lock();
                let written = match for_machines {
                    true => writeln!(out, "{event}"),
                    false => writeln!(out, "{text}"),
                };
                if written.and_then(|()| out.flush()).is_err() {
                    std::process::exit(141); // the reader is gone, as of `| head`
                }
            }),
        );
        let not_started = |why| Error::new("cannot start the cluster").because(why);
        let cluster = session
            .configure(Cluster::builder())
            .start()
            .await
            .map_err(not_started)?;
        let listening = cluster.listen(self.listen).await.map_err(not_started)?;
        kubewright_cluster::kubeconfig::write(&kubeconfig, &listening.kubeconfig).map_err(cannot)?;
        let stop = async {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        };
        let address = format!("https://{}", listening.address);
        session.run(&cluster, &address, &kubeconfig, self.options, stop).await
    }
}
