//! `kubewright helm-operator run`: the operator of a `watches.yaml` whose kinds are Helm charts.
//!
//! The flags are those of operator-sdk's `helm-operator run`; those of the runtime are handed on to it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use kubewright::LeaderElection;
use kubewright_operators::helm::{self, Helm, PROGRAM};

use super::operator_flags::{ATTEMPTED, Logging, Serving, read};
use crate::output::Failure;

/// Run operators that are Helm charts
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Run(Box<Run>),
}

/// Turn objects of the kinds of watches.yaml into releases of their charts, until SIGTERM or Ctrl-C. Helm 3 or 4 is
/// the program that KUBEWRIGHT_HELM names, or helm on the PATH
#[derive(Debug, Args)]
struct Run {
    /// The file that says which kind belongs to which chart
    #[arg(long, value_name = "FILE", default_value = "./watches.yaml")]
    watches_file: PathBuf,

    /// How long after a reconcile the next one is due at the latest, such as 1m30s; 0 for never
    #[arg(long, value_name = "DURATION", default_value = "1m")]
    reconcile_period: String,

    /// How many objects of a kind are reconciled at the same time [default: the number of processors]
    #[arg(long, value_name = "N")]
    max_concurrent_reconciles: Option<usize>,

    /// Do not say in events which values the operator overrides
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    suppress_override_values: bool,

    /// How to reach the cluster [default: KUBECONFIG, the pod's own, or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Where /metrics is served; 0 for nowhere
    #[arg(long, alias = "metrics-addr", value_name = "ADDRESS", default_value = ":8080")]
    metrics_bind_address: String,

    /// Serve metrics over HTTPS
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    metrics_secure: bool,

    /// Serve metrics only to users who may get them, which secure metrics are in any case
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    metrics_require_rbac: bool,

    /// Where /healthz and /readyz are served; 0 for nowhere
    #[arg(long, value_name = "ADDRESS", default_value = ":8081")]
    health_probe_bind_address: String,

    /// Let one of several replicas act
    #[arg(long, alias = "enable-leader-election", num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    leader_elect: bool,

    /// The name of the Lease by which one replica leads [default: OPERATOR_NAME, or helm-operator]
    #[arg(long, value_name = "NAME")]
    leader_election_id: Option<String>,

    /// The namespace of that Lease [default: the pod's own]
    #[arg(long, value_name = "NAMESPACE")]
    leader_election_namespace: Option<String>,

    #[command(flatten)]
    logging: Logging,
}

impl Arguments {
    /// Runs until a signal; the exit status is the operator's.
    pub(crate) async fn run(self) -> Result<ExitCode, Failure> {
        match self.what {
            What::Run(run) => run.run().await,
        }
    }
}

impl Run {
    async fn run(self) -> Result<ExitCode, Failure> {
        let variable = |name: &str| std::env::var(name).ok();
        let serving = Serving {
            metrics: &self.metrics_bind_address,
            metrics_secure: self.metrics_secure,
            metrics_require_rbac: self.metrics_require_rbac,
            health: &self.health_probe_bind_address,
        };
        let mut flags = self.logging.of_the_runtime(&serving, self.kubeconfig.as_deref())?;
        flags.push(format!("--leader-elect={}", self.leader_elect));
        let period = read("reconcile-period", &self.reconcile_period)?;
        let helm = Helm::find(self.kubeconfig_of_helm()).await.map_err(|why| {
            Failure::new(ATTEMPTED)
                .because(why)
                .fix(format!("install Helm 3 or 4, or name its program in {PROGRAM}"))
        })?;
        let name = self.leader_election_id.clone().or_else(|| variable("OPERATOR_NAME"));
        let name = name.filter(|name| !name.is_empty());
        let options = helm::Options {
            name: name.clone().unwrap_or_else(|| helm::Options::default().name),
            reconcile_period: period,
            suppress_override_values: self.suppress_override_values,
            namespaces: namespaces(&variable("WATCH_NAMESPACE").unwrap_or_default()),
            concurrency: match self.max_concurrent_reconciles {
                Some(number) => number.max(1),
                None => helm::Options::default().concurrency,
            },
        };
        let lease = options.name.clone();
        let operator = helm::operator(&self.watches_file, Arc::new(helm), options, variable).await;
        let mut operator = operator.map_err(|why| Failure::new(ATTEMPTED).because(why))?;
        if self.leader_elect {
            let mut election = LeaderElection::new(lease);
            if let Some(namespace) = &self.leader_election_namespace {
                election = election.namespace(namespace);
            }
            operator = operator.leader_election(election);
        }
        Ok(kubewright::run_with(operator, flags).await)
    }

    /// The file that Helm reads: what the operator itself would read, made explicit, because Helm's home is another. A
    /// pod needs none.
    fn kubeconfig_of_helm(&self) -> Option<PathBuf> {
        let environment = || {
            std::env::var_os("KUBECONFIG")
                .filter(|path| !path.is_empty())
                .map(PathBuf::from)
        };
        if let Some(path) = self.kubeconfig.clone().or_else(environment) {
            return Some(path);
        }
        if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
            return None;
        }
        let home = PathBuf::from(std::env::var_os("HOME")?);
        Some(home.join(".kube/config"))
    }
}

/// The namespaces of WATCH_NAMESPACE.
fn namespaces(text: &str) -> Vec<String> {
    let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
    names.map(str::to_owned).collect()
}
