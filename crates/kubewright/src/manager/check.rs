//! Whether the parts of an operator fit together.
//!
//! Invariant: what is refused here needs no cluster to be found, so that `kubewright manifests`, a test and the program
//! refuse it alike, before anything runs. Not here: what only the manager knows (`builder.rs`), and what depends on the
//! cluster.

use std::collections::BTreeSet;

use super::options::Options;
use crate::controller::Controller;
use crate::error::{Error, Result};

impl Options {
    /// # Errors
    /// [`Error::Configuration`] with the first part that does not fit.
    pub(crate) fn check(&self) -> Result<()> {
        self.webhooks.check()?;
        if let Some(election) = &self.leader_election {
            election.check()?;
        }
        self.check_checks()?;
        self.check_names()?;
        let mut indexes = BTreeSet::new();
        for controller in &self.controllers {
            controller.check()?;
            for (type_of, kind, name) in controller.indexes.iter().filter_map(|index| index.named()) {
                if !indexes.insert((controller.own_cluster().to_owned(), type_of, name.to_owned())) {
                    return Err(Error::Configuration(format!(
                        "controller {}: {kind} has an index {name:?} already; an index is declared once, and every controller reads it",
                        controller.name()
                    )));
                }
            }
        }
        Ok(())
    }

    /// The names of checks tell them apart at the end of an endpoint's path.
    fn check_checks(&self) -> Result<()> {
        let controllers = self.controllers.iter().map(|controller| ("readyz", controller.name()));
        let ours = [("readyz", "webhook server"), ("healthz", "watchdog")];
        let ours = ours.map(|(endpoint, name)| (endpoint, name.to_owned()));
        let mut taken: BTreeSet<(&str, String)> = controllers.chain(ours).collect();
        for (endpoint, name, _) in &self.checks {
            if name.is_empty() || name.contains('/') || !taken.insert((endpoint, name.clone())) {
                return Err(Error::Configuration(format!(
                    "{}: a check of /{endpoint} is named {name:?}; it needs a name that is not empty, has no slash, and that no other check and no controller has",
                    self.name
                )));
            }
        }
        Ok(())
    }

    fn check_names(&self) -> Result<()> {
        let mut names = BTreeSet::new();
        let runnables = self
            .runnables
            .iter()
            .chain(&self.everywhere)
            .map(|(name, _)| name.clone());
        for name in self.controllers.iter().map(Controller::name).chain(runnables) {
            if name.is_empty() {
                return Err(Error::Configuration(format!(
                    "{}: a controller or runnable has an empty name",
                    self.name
                )));
            }
            if !names.insert(name.clone()) {
                return Err(Error::Configuration(format!(
                    "{}: two controllers or runnables are named {name:?}; names tell them apart in logs and metrics, so give one of them \
                     another with Controller::named",
                    self.name
                )));
            }
        }
        Ok(())
    }
}
