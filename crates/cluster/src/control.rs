//! Runs the built-in controllers: which of them, from when, until when.
//!
//! They start in the background, after the server answers, on the in-process client; they share one manager and so one
//! cache. [`ControllerManager`] runs the same against a foreign API server.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use kubewright::{LeaderElection, Observer, Operator, Stop, kube};
use tokio::task::JoinHandle;

use crate::controllers::{self, Settings};
use crate::error::{Error, Result};

/// How long to wait before controllers that ended with an error start again.
const RESTART: Duration = Duration::from_secs(1);
/// How long the controllers may take to end when the cluster stops; half of it is for reconciles to finish.
const GRACE: Duration = Duration::from_millis(800);

/// Which of the built-in controllers run; their names are [`controllers::NAMES`](crate::controllers::NAMES).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Controllers {
    /// All of them: a Deployment gets its pods, and they become Ready.
    #[default]
    All,
    /// None, as with envtest: objects are stored and nothing happens to them. Namespaces that are deleted stay
    /// `Terminating`.
    None,
    /// Those named.
    Only(Vec<String>),
}

impl Controllers {
    /// The names of the controllers that run, each once, in the order of [`controllers::NAMES`].
    ///
    /// # Errors
    /// [`Error::UnknownController`].
    pub fn names(&self) -> Result<Vec<&'static str>> {
        let wanted = match self {
            Controllers::All => return Ok(controllers::NAMES.to_vec()),
            Controllers::None => return Ok(Vec::new()),
            Controllers::Only(wanted) => wanted,
        };
        if let Some(unknown) = wanted.iter().find(|name| !controllers::NAMES.contains(&name.as_str())) {
            return Err(Error::UnknownController {
                name: unknown.clone(),
                known: controllers::NAMES.join(", "),
            });
        }
        Ok(controllers::NAMES
            .iter()
            .copied()
            .filter(|name| wanted.iter().any(|wanted| wanted == name))
            .collect())
    }
}

/// `all`, `none`, or names with commas, as the command line takes them.
///
/// ```
/// use kubewright_cluster::Controllers;
/// assert_eq!("all".parse::<Controllers>()?, Controllers::All);
/// assert_eq!("deployment,replicaset".parse::<Controllers>()?.names()?.len(), 2);
/// assert!("deplyoment".parse::<Controllers>().is_err());
/// # Ok::<(), kubewright_cluster::Error>(())
/// ```
impl FromStr for Controllers {
    type Err = Error;

    fn from_str(text: &str) -> Result<Controllers> {
        let controllers = match text.trim() {
            "all" => Controllers::All,
            "none" => Controllers::None,
            names => Controllers::Only(names.split(',').map(|name| name.trim().to_owned()).collect()),
        };
        controllers.names()?;
        Ok(controllers)
    }
}

/// The controllers to run.
pub(crate) struct Plan {
    pub(crate) names: Vec<&'static str>,
    pub(crate) settings: Settings,
    pub(crate) observer: Option<Arc<dyn Observer>>,
    /// If several processes run these controllers against one API server, only the elected one acts.
    pub(crate) election: Option<LeaderElection>,
}

/// Starts the controllers of a plan in the background; the task ends when the cluster stops.
pub(crate) fn start(plan: Plan, client: &kube::Client, stop: &Stop) -> Option<JoinHandle<()>> {
    if plan.names.is_empty() {
        return None;
    }
    let (client, stop) = (client.clone(), stop.clone());
    Some(tokio::spawn(async move {
        while !stop.is_requested() {
            if let Err(error) = run(&plan, client.clone(), &stop).await {
                if stop.is_requested() {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "the built-in controllers ended"
                    );
                    return;
                }
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "the built-in controllers ended; starting them again"
                );
                tokio::select! {
                    biased;
                    () = tokio::time::sleep(RESTART) => {}
                    () = stop.requested() => {}
                }
            }
        }
    }))
}

async fn run(plan: &Plan, client: kube::Client, stop: &Stop) -> kubewright::Result<()> {
    let mut operator = Operator::new("kube-controller-manager")
        .clock(plan.settings.clock.clone())
        .entropy(plan.settings.entropy.clone())
        .graceful_shutdown(GRACE / 2);
    if let Some(observer) = plan.observer.clone() {
        operator = operator.observe(observer);
    }
    if let Some(election) = plan.election.clone() {
        operator = operator.leader_election(election);
    }
    for name in &plan.names {
        operator = controllers::add(operator, name, &plan.settings);
    }
    let manager = operator.manager(client).build()?;
    let overdue = async {
        stop.requested().await;
        tokio::time::sleep(GRACE).await;
    };
    tokio::select! {
        biased;
        ended = manager.run(stop.requested()) => ended,
        () = overdue => {
            tracing::warn!("the built-in controllers did not finish in time; what they were at is lost with the cluster");
            Ok(())
        }
    }
}

/// The built-in controllers, the scheduler and the simulated nodes against any API server: in the place of
/// kube-controller-manager, kube-scheduler and kubelets.
///
/// ```no_run
/// # async fn example(client: kubewright::kube::Client) -> kubewright_cluster::Result<()> {
/// use kubewright_cluster::{ControllerManager, Controllers};
///
/// let only: Controllers = "deployment,replicaset".parse()?;
/// ControllerManager::new(client).controllers(only).run(std::future::pending()).await
/// # }
/// ```
#[must_use]
pub struct ControllerManager {
    client: kube::Client,
    controllers: Controllers,
    settings: Settings,
    election: Option<LeaderElection>,
}

impl ControllerManager {
    /// All of them, with the rights of this client. `kubewright controllers --role` prints the rights that they need.
    pub fn new(client: kube::Client) -> ControllerManager {
        ControllerManager {
            client,
            controllers: Controllers::All,
            settings: Settings::default(),
            election: None,
        }
    }

    /// Which of them run.
    pub fn controllers(mut self, controllers: Controllers) -> ControllerManager {
        self.controllers = controllers;
        self
    }

    /// Their settings: nodes, names of the scheduler, the certificate and the tokens that they give out.
    pub fn settings(mut self, settings: Settings) -> ControllerManager {
        self.settings = settings;
        self
    }

    /// Takes part in the election by the Lease `kube-controller-manager` in `kube-system`, as kube-controller-manager
    /// does: where that one runs, these wait until it ends.
    pub fn leader_election(mut self) -> ControllerManager {
        self.election = Some(LeaderElection::new("kube-controller-manager").namespace("kube-system"));
        self
    }

    /// Runs them until `stop`, and again when they end before.
    ///
    /// # Errors
    /// [`Error::UnknownController`], and [`Error::Nodes`] when nodes cannot be so.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        let names = self.controllers.names()?;
        if let Some(why) = self.settings.nodes.wrong() {
            return Err(Error::Nodes(why));
        }
        let plan = Plan {
            names,
            settings: self.settings,
            observer: None,
            election: self.election,
        };
        let (source, stopped) = Stop::pair();
        let running = start(plan, &self.client, &stopped);
        stop.await;
        source.stop();
        if let Some(running) = running {
            // A panic in it was told where it happened.
            let _ = running.await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_chosen_by_name() {
        let check = |text: &str, expected: std::result::Result<&[&str], &str>| {
            let names = text.parse::<Controllers>().and_then(|controllers| controllers.names());
            match (names, expected) {
                (Ok(names), Ok(expected)) => assert_eq!(names, expected, "{text:?}"),
                (Err(error), Err(expected)) => assert!(error.to_string().starts_with(expected), "{text:?}: {error}"),
                (names, _) => panic!("{text:?}: {names:?}"),
            }
        };
        check("all", Ok(controllers::NAMES));
        check("none", Ok(&[]));
        check("deployment, namespace", Ok(&["namespace", "deployment"]));
        check("deployment,deployment", Ok(&["deployment"]));
        check(
            "deployments",
            Err("there is no controller \"deployments\"; controllers are namespace, "),
        );
        check("", Err("there is no controller \"\""));
        check("all,deployment", Err("there is no controller \"all\""));
    }
}
