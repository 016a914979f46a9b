//! `kubewright uninstall`: the project's definitions, and all objects of their kinds, out of a cluster.

use clap::Args;
use serde_json::json;

use super::install::{FOLDER, has_definitions};
use crate::output::{Failure, Format, GOOD, paint};
use crate::project::Project;
use crate::rollout::{ClusterArguments, Removing, remove_all, render};

/// Delete the project's custom resources and CRDs from a cluster
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    /// Succeed when something is not there
    #[arg(long, num_args = 0..=1, require_equals = true, default_value_t = false, default_missing_value = "true", action = clap::ArgAction::Set)]
    ignore_not_found: bool,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here()?;
        if !has_definitions(&project) {
            output.say(
                "the project has no CRDs: there is nothing to uninstall",
                &json!({"event": "uninstalled", "objects": 0}),
            );
            return Ok(());
        }
        let rendered = render(&project.root, FOLDER, None)?;
        let cluster = self.cluster.connect().await?;
        output.say(&cluster.title, &json!({"event": "cluster", "cluster": cluster.title}));
        let how = Removing {
            ignore_not_found: self.ignore_not_found,
            timeout: self.cluster.timeout,
        };
        remove_all(&cluster, &rendered.objects, how, output).await?;
        let count = rendered.objects.len();
        output.say(
            &paint(GOOD, format!("uninstalled: {count} CRDs are gone")),
            &json!({"event": "uninstalled", "objects": count}),
        );
        Ok(())
    }
}
