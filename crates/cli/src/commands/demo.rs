//! `kubewright demo`: the whole walk in one command, with the guestbook's operator, which is compiled in.
//!
//! How a demo is played is in the crate `kubewright-demo`. The demos of the other examples are programs of their own
//! packages, because of what they bring along: drivers of databases.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Instant;

use clap::{Args, ValueEnum};
use kubewright_demo::{Demo, Error, Options, Session};

use crate::commands::cluster::{Running, listen_address};
use crate::output::{Failure, Format};
use crate::signals::stop_signal;

/// Run a cluster with an operator, and show what happens and why
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The operator
    #[arg(value_enum, default_value_t)]
    operator: Example,

    #[command(flatten)]
    options: Options,

    /// Address and port of the HTTPS listener; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:0", value_parser = listen_address)]
    listen: SocketAddr,

    /// Where to write the kubeconfig [default: a private folder, removed at the end]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

/// The examples of the repository.
#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Example {
    /// A Guestbook with its Deployment and Service
    #[default]
    Guestbook,
    /// Sidecars that are injected into pods; in the repository: cargo run -p sidecarset --example sidecarset-demo
    Sidecarset,
    /// A PostgreSQL that is set up; in the repository: cargo run -p database --example database-demo
    Database,
    /// A Deployment that is restarted when a value in that PostgreSQL changes; in the repository: cargo run -p
    /// autorebooter --example autorebooter-demo
    Autorebooter,
}

impl Example {
    fn demo(self) -> Result<Demo, Failure> {
        let name = match self {
            Example::Guestbook => return Ok(guestbook()?),
            Example::Sidecarset => "sidecarset",
            Example::Database => "database",
            Example::Autorebooter => "autorebooter",
        };
        let hint = format!("in a clone of kubewright's repository: cargo run -p {name} --example {name}-demo");
        Err(Failure::new(format!("the operator {name} is not in this program")).hint(hint))
    }
}

fn guestbook() -> Result<Demo, Error> {
    let demo = Demo::new("Guestbook", "Ready", kubewright_demo::is_ready).commands(
        "kubectl get guestbooks -w\nkubectl scale guestbook hello --replicas=3\nkubectl edit guestbook hello\n\
         kubectl delete guestbook hello",
    );
    demo.operator(guestbook::operator(), guestbook::ROLE)?
        .sample(guestbook::SAMPLE)
}

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let stop = stop_signal()?;
        let demo = self.operator.demo()?;
        let say = Box::new(move |text: &str, event: &serde_json::Value| output.say(text, event));
        let mut session = Session::new(demo, started, say);
        let running = Running::start(self.listen, self.kubeconfig, |builder| session.configure(builder)).await?;
        let (address, kubeconfig) = (running.address(), running.kubeconfig.path());
        let played = session.run(&running.cluster, &address, kubeconfig, self.options, stop);
        Ok(played.await?)
    }
}
