//! `kubewright deploy`: the operator, with its definitions, rights and webhooks, into a cluster.

use clap::Args;
use serde_json::{Value, json};

use crate::output::{DIM, Failure, Format, GOOD, count, paint};
use crate::project::Project;
use crate::rollout::{Applying, ClusterArguments, Mode, apply_all, image_or_variable, render};

/// Apply `config/default` to a cluster, and wait until the operator is available
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The operator's image [default: $IMG, else the one of config/manager]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    #[command(flatten)]
    cluster: ClusterArguments,

    /// Take over fields that another manager owns
    #[arg(long)]
    force_conflicts: bool,

    /// Return when everything is applied
    #[arg(long)]
    no_wait: bool,
}

/// All that is deployed.
pub(super) const FOLDER: &str = "config/default";

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here_any()?;
        let image = image_or_variable(self.image);
        let rendered = render(&project.root, FOLDER, image.as_deref())?.with_operator(FOLDER)?;
        let cluster = self.cluster.connect(&project, "deploy", output).await?;
        for image in images(&rendered.objects) {
            output.say(
                &paint(DIM, format!("image {image}")),
                &json!({"event": "image", "image": image}),
            );
        }
        let how = Applying {
            force: self.force_conflicts,
            wait: !self.no_wait,
            timeout: self.cluster.timeout,
            mode: self.cluster.mode(),
        };
        let tally = apply_all(&cluster, &rendered.objects, how, output).await?;
        if how.mode != Mode::Real {
            tally.tell(output);
            return Ok(());
        }
        let number = rendered.objects.len();
        let simulated = !self.no_wait && cluster.is_simulated(namespace(&rendered.objects)).await;
        let state = match (self.no_wait, simulated) {
            (true, _) => "it was not waited for",
            (false, true) => "the pods are ready, but nothing runs in them: this cluster simulates its nodes",
            (false, false) => "the operator is available",
        };
        output.say(
            &paint(GOOD, format!("deployed: {}; {state}", count(number, "object"))),
            &json!({
                "event": "deployed", "objects": number, "available": !self.no_wait && !simulated, "simulated": simulated,
            }),
        );
        if simulated {
            output.say(
                &paint(
                    DIM,
                    "kubewright run, or kubewright dev, runs the operator on this machine against such a cluster",
                ),
                &json!({"event": "hint", "commands": ["kubewright run", "kubewright dev"]}),
            );
        }
        Ok(())
    }
}

fn deployments(objects: &[Value]) -> impl Iterator<Item = &Value> {
    objects.iter().filter(|object| object["kind"] == "Deployment")
}

/// Where the operator's pods are.
fn namespace(objects: &[Value]) -> &str {
    let mut deployments = deployments(objects);
    let namespace = deployments.find_map(|object| object["metadata"]["namespace"].as_str());
    namespace.unwrap_or("default")
}

/// The images of the deployments.
fn images(objects: &[Value]) -> Vec<&str> {
    let containers =
        deployments(objects).filter_map(|object| object.pointer("/spec/template/spec/containers")?.as_array());
    containers
        .flatten()
        .filter_map(|container| container["image"].as_str())
        .collect()
}
