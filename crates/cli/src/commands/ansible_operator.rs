//! `kubewright ansible-operator run`: the operator of a `watches.yaml` whose kinds are Ansible roles and playbooks.
//!
//! The flags are those of operator-sdk's `ansible-operator run`; those of the runtime are handed on to it.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand, ValueEnum};
use kubewright::LeaderElection;
use kubewright_operators::ansible::events::LogEvents;
use kubewright_operators::ansible::{self, Options};

use super::ansible_environment::{self, Install};
use super::operator_flags::{ATTEMPTED, Logging, Serving, read};
use crate::output::{Failure, Format};

/// Run operators that are Ansible roles and playbooks
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(Box<Run>),
    Install(Install),
}

/// Run the roles and playbooks of watches.yaml for the objects of their kinds, until SIGTERM or Ctrl-C. They are run by
/// ansible-runner, of VIRTUAL_ENV, of what ansible-operator install has made, or on the PATH
#[derive(Debug, Args)]
struct Run {
    /// The file that says which kind belongs to which role or playbook
    #[arg(long, value_name = "FILE", default_value = "./watches.yaml")]
    watches_file: PathBuf,

    /// Where roles are, with colons between [default: ANSIBLE_ROLES_PATH, and ./roles]
    #[arg(long, value_name = "PATH")]
    ansible_roles_path: Option<String>,

    /// Where collections are: in PATH/ansible_collections [default: ANSIBLE_COLLECTIONS_PATH, ~/.ansible/collections,
    /// /usr/share/ansible/collections]
    #[arg(long, value_name = "PATH")]
    ansible_collections_path: Option<String>,

    /// More arguments for ansible-playbook
    #[arg(
        long,
        value_name = "ARGUMENTS",
        allow_hyphen_values = true,
        default_value = "",
        hide_default_value = true
    )]
    ansible_args: String,

    /// How many -v Ansible gets, for kinds of which ANSIBLE_VERBOSITY_KIND_GROUP says nothing
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(0..=7))]
    ansible_verbosity: u8,

    /// What is logged of a run
    #[arg(long, value_name = "EVENTS", value_enum, ignore_case = true, default_value_t = Logged::Tasks)]
    ansible_log_events: Logged,

    /// Make the object of a run the owner of what the run creates, and watch that
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_name = "BOOL")]
    inject_owner_ref: bool,

    /// The port on this machine through which roles reach the cluster; 0 for any
    #[arg(long, value_name = "PORT", default_value_t = 8888)]
    proxy_port: u16,

    /// How long after a run the next one is due, where watches.yaml says nothing
    #[arg(long, value_name = "DURATION", default_value = "10h")]
    reconcile_period: String,

    /// How many objects of a kind run at the same time [default: the number of processors]
    #[arg(long, value_name = "N")]
    max_concurrent_reconciles: Option<usize>,

    /// How to reach the cluster [default: KUBECONFIG, the pod's own, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Where /metrics is served; 0 for nowhere
    #[arg(long, alias = "metrics-addr", value_name = "ADDRESS", default_value = ":8443")]
    metrics_bind_address: String,

    /// Serve metrics over HTTPS, to users who may get them
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    metrics_secure: bool,

    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false")]
    metrics_require_rbac: bool,

    /// Where /healthz and /readyz are served; 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":6789")]
    health_probe_bind_address: String,

    /// Let one of several replicas act
    #[arg(long, alias = "enable-leader-election", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    leader_elect: bool,

    /// The name of the Lease by which one replica leads [default: OPERATOR_NAME, or ansible-operator]
    #[arg(long, value_name = "NAME")]
    leader_election_id: Option<String>,

    /// The namespace of that Lease [default: the pod's own]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,

    /// How long a leader that says nothing is still the leader
    #[arg(long, value_name = "DURATION", default_value = "15s")]
    leader_elect_lease_duration: String,

    /// How long a leader tries to stay it
    #[arg(long, value_name = "DURATION", default_value = "10s")]
    leader_elect_renew_deadline: String,

    #[arg(long, hide = true, value_name = "KIND")]
    leader_elect_resource_lock: Option<String>,

    /// How long runs may take to end at a stop
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    graceful_shutdown_timeout: String,

    #[command(flatten)]
    logging: Logging,
}

/// What is logged of a run.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Logged {
    /// Nothing
    Nothing,
    /// The beginning of tasks, messages of debug, failures
    Tasks,
    /// Every event; the data of Secrets are hidden
    Everything,
}

impl Arguments {
    /// Runs until a signal; the exit status is the operator's.
    pub(crate) async fn run(self, output: Format) -> Result<ExitCode, Failure> {
        match self.what {
            What::Run(run) => run.run().await,
            What::Install(install) => install.run(output).await.map(|()| ExitCode::SUCCESS),
        }
    }
}

impl Run {
    async fn run(self) -> Result<ExitCode, Failure> {
        let serving = Serving {
            metrics: &self.metrics_bind_address,
            metrics_secure: self.metrics_secure,
            metrics_require_rbac: self.metrics_require_rbac,
            health: &self.health_probe_bind_address,
        };
        let flags = self.logging.of_the_runtime(&serving, self.kubeconfig.as_deref())?;
        let folder = std::env::current_dir()
            .map_err(|why| Failure::new(ATTEMPTED).because(format!("the current folder cannot be read: {why}")))?;
        let variables = ansible_environment::named(&folder, std::env::vars());
        let options = Options::new(folder, variables);
        let named = self
            .leader_election_id
            .clone()
            .or_else(|| options.environment.get("OPERATOR_NAME").cloned());
        let options = Options {
            name: named
                .filter(|name| !name.is_empty())
                .unwrap_or_else(|| options.name.clone()),
            watches: self.watches_file.clone(),
            roles_path: self.ansible_roles_path.clone(),
            collections_path: self.ansible_collections_path.clone(),
            arguments: self.ansible_args.clone(),
            log_events: match self.ansible_log_events {
                Logged::Nothing => LogEvents::Nothing,
                Logged::Tasks => LogEvents::Tasks,
                Logged::Everything => LogEvents::Everything,
            },
            verbosity: self.ansible_verbosity,
            max_concurrent_reconciles: self
                .max_concurrent_reconciles
                .unwrap_or(options.max_concurrent_reconciles),
            reconcile_period: read("reconcile-period", &self.reconcile_period)?,
            inject_owner_ref: self.inject_owner_ref,
            proxy_port: self.proxy_port,
            ..options
        };
        let mut election = LeaderElection::new(&options.name)
            .lease_duration(read("leader-elect-lease-duration", &self.leader_elect_lease_duration)?)
            .renew_deadline(read("leader-elect-renew-deadline", &self.leader_elect_renew_deadline)?);
        if let Some(namespace) = &self.leader_election_namespace {
            election = election.namespace(namespace);
        }
        let grace = read("graceful-shutdown-timeout", &self.graceful_shutdown_timeout)?;
        let operator = ansible::operator(options).await;
        let mut operator = operator
            .map_err(|why| Failure::new(ATTEMPTED).because(why))?
            .graceful_shutdown(grace);
        if self.leader_elect {
            operator = operator.leader_election(election);
        }
        Ok(kubewright::run_with(operator, flags).await)
    }
}
