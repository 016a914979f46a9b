//! `kubewright uninstall`: the project's definitions, and all objects of their kinds, out of a cluster.

use clap::Args;
use serde_json::json;

use super::install::{FOLDER, has_definitions};
use crate::output::{Failure, Format, GOOD, count, paint};
use crate::project::Project;
use crate::rollout::RemovalArguments;

/// Delete the project's custom resources and CRDs from a cluster
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    removal: RemovalArguments,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here_any()?;
        if !has_definitions(&project) {
            output.say(
                "the project has no CRDs: there is nothing to uninstall",
                &json!({"event": "uninstalled", "objects": 0}),
            );
            return Ok(());
        }
        let Some(number) = self.removal.remove(&project, FOLDER, "uninstall", output).await? else {
            return Ok(());
        };
        let are = if number == 1 { "is" } else { "are" };
        output.say(
            &paint(GOOD, format!("uninstalled: {} {are} gone", count(number, "CRD"))),
            &json!({"event": "uninstalled", "objects": number}),
        );
        Ok(())
    }
}
