//! `kubewright controllers`: the built-in controllers, the scheduler and the simulated nodes, beside a foreign API
//! server.
//!
//! One line on standard output when they run; then silence until a signal. Invariant: nothing is started against a
//! cluster that is not of this machine, unless a person has named its context.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::Args;
use kubewright_cluster::controllers::{ROLE, Settings};
use kubewright_cluster::{ControllerManager, Controllers, legacy_tokens};
use serde_json::json;

use super::cluster::Simulation;
use crate::errors::chain;
use crate::output::{DIM, Failure, Format, STRONG, paint};
use crate::signals::stop_signal;
use crate::target::{Request, Target};

/// Run the built-in controllers, scheduler and simulated nodes against another API server, until Ctrl-C
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Kubeconfig to read [default: $KUBECONFIG, else ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "NAME", add = clap_complete::ArgValueCandidates::new(crate::complete::contexts))]
    context: Option<String>,

    /// The name of the context once more, to confirm a cluster that is not on this machine: the controllers change its
    /// workloads
    #[arg(long, value_name = "NAME")]
    allow_context: Option<String>,

    /// Built-in controllers to run: `all`, or names with commas
    #[arg(long, value_name = "all|NAME,…", default_value = "all", add = clap_complete::ArgValueCompleter::new(crate::complete::controllers))]
    controllers: Controllers,

    #[command(flatten)]
    simulation: Simulation,

    /// The CA certificate for the ConfigMap `kube-root-ca.crt`, which pods trust [default: that of the kubeconfig]
    #[arg(long, value_name = "FILE")]
    root_ca_file: Option<PathBuf>,

    /// The key to sign tokens with for Secrets of type service-account-token, which the API server must trust; without
    /// it these Secrets get no token
    #[arg(long, value_name = "FILE")]
    service_account_private_key_file: Option<PathBuf>,

    /// Run only while holding the Lease `kube-controller-manager`, as kube-controller-manager does
    #[arg(long)]
    leader_elect: bool,

    /// Print the ClusterRole that the controllers need, and exit
    #[arg(long)]
    role: bool,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        if self.role {
            output.say(ROLE.trim_end(), &json!({ "event": "role", "role": ROLE }));
            return Ok(());
        }
        let target = Target::read(self.kubeconfig.as_deref(), self.context.as_deref())?;
        target.allow(&Request {
            command: "controllers",
            confirmed: self.allow_context.as_deref(),
            harm: "simulated nodes and a second set of controllers harm a cluster that has its own",
            alternative: "",
            flag: "--allow-context",
        })?;
        let trusted = match &self.root_ca_file {
            Some(path) => Some(read(path, "the root certificate")?),
            None => target.authority(),
        };
        let settings = Settings {
            root_ca: Arc::new(move || trusted.clone()),
            ..self.simulation.settings()?
        };
        let settings = match &self.service_account_private_key_file {
            Some(path) => Settings {
                service_account_token: tokens(path)?,
                ..settings
            },
            None => settings,
        };
        let client = target.client().await?;
        client.apiserver_version().await.map_err(|why| {
            Failure::new(format!("cannot run controllers against {}", target.describe()))
                .because(chain(&why))
                .fix("nothing has been started")
        })?;
        let manager = ControllerManager::new(client)
            .controllers(self.controllers)
            .settings(settings);
        let manager = match self.leader_elect {
            true => manager.leader_election(),
            false => manager,
        };
        let stop = stop_signal()?;
        output.say(
            &format!("{} run  {}", paint(STRONG, "kubewright controllers"), target.describe()),
            &json!({ "event": "ready", "context": target.context, "server": target.server }),
        );
        let cannot = |why| Failure::new("cannot run the controllers").because(why);
        manager.run(stop).await.map_err(cannot)?;
        output.say(&paint(DIM, "stopped"), &json!({"event": "stopped"}));
        Ok(())
    }
}

fn read(path: &Path, what: &str) -> Result<String, Failure> {
    crate::regular::text(path).map_err(|why| {
        Failure::new(format!("cannot read {what} {}", path.display()))
            .because(why)
            .fix("nothing has been started")
    })
}

fn tokens(path: &Path) -> Result<kubewright_cluster::controllers::TokenSource, Failure> {
    let key = read(path, "the key of service accounts")?;
    legacy_tokens(&key).map_err(|why| {
        Failure::new(format!("cannot sign tokens with {}", path.display()))
            .because(why)
            .fix("nothing has been started")
    })
}
