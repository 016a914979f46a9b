//! `kubewright install`: the project's definitions into a cluster.

use clap::Args;
use serde_json::json;

use crate::output::{Failure, Format, GOOD, count, paint};
use crate::project::Project;
use crate::rollout::{Applying, ClusterArguments, Mode, apply_all, render};

/// Apply the project's CRDs to a cluster, and wait until they are established
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    cluster: ClusterArguments,

    /// Take over fields that another manager owns
    #[arg(long)]
    force_conflicts: bool,
}

/// Where the definitions are.
pub(super) const FOLDER: &str = "config/crd";

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here_any()?;
        if !has_definitions(&project) {
            output.say(
                "the project has no CRDs: there is nothing to install",
                &json!({"event": "installed", "objects": 0}),
            );
            return Ok(());
        }
        let rendered = render(&project.root, FOLDER, None)?;
        let cluster = self.cluster.connect(&project, "install", output).await?;
        let how = Applying {
            force: self.force_conflicts,
            wait: true,
            timeout: self.cluster.timeout,
            mode: self.cluster.mode(),
        };
        let tally = apply_all(&cluster, &rendered.objects, how, output).await?;
        if how.mode != Mode::Real {
            tally.tell(output);
            return Ok(());
        }
        let number = rendered.objects.len();
        let are = if number == 1 { "is" } else { "are" };
        output.say(
            &paint(GOOD, format!("installed: {} {are} established", count(number, "CRD"))),
            &json!({"event": "installed", "objects": number}),
        );
        Ok(())
    }
}

/// Whether the project brings kinds of its own.
pub(super) fn has_definitions(project: &Project) -> bool {
    project.root.join(FOLDER).join("kustomization.yaml").is_file()
}
