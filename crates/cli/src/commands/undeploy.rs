//! `kubewright undeploy`: the operator out of a cluster, after its custom resources.

use clap::Args;
use serde_json::json;

use super::deploy::FOLDER;
use crate::output::{Failure, Format, GOOD, count, paint};
use crate::project::Project;
use crate::rollout::RemovalArguments;

/// Delete the project's custom resources from a cluster, and then everything that `deploy` applied
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    removal: RemovalArguments,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let Some(number) = self
            .removal
            .remove(&Project::here_any()?, FOLDER, "undeploy", output)
            .await?
        else {
            return Ok(());
        };
        output.say(
            &paint(GOOD, format!("undeployed: {} are gone", count(number, "object"))),
            &json!({"event": "undeployed", "objects": number}),
        );
        Ok(())
    }
}
