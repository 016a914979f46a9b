//! `kubewright build-installer`: everything that a cluster needs, in one file that `kubectl apply -f` takes.

use clap::Args;
use kubewright_codegen::{Plan, yaml};
use serde_json::json;

use super::deploy::FOLDER;
use crate::files::Disk;
use crate::output::{Failure, Format, count};
use crate::project::Project;
use crate::rollout::{image_or_variable, render};
use crate::scaffolding::Writing;

/// Render `config/default` into one file for `kubectl apply -f`
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The operator's image [default: $IMG, else the one of config/manager]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// File to write, relative to the project; `-` is standard output
    #[arg(long, value_name = "FILE", default_value = "dist/install.yaml")]
    to: String,

    #[command(flatten)]
    writing: Writing,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let project = Project::here_any()?;
        let image = image_or_variable(self.image);
        let rendered = render(&project.root, FOLDER, image.as_deref())?.with_operator(FOLDER)?;
        let text = yaml::documents_to_string(&rendered.objects);
        if self.to == "-" {
            output.say(
                text.trim_end(),
                &json!({"event": "rendered", "objects": rendered.objects}),
            );
            return Ok(());
        }
        let disk = Disk::new(&project.root);
        let mut plan = Plan::new(&disk);
        plan.write(&self.to, text)?;
        if let Some(program) = rendered.by {
            plan.notes.push(format!("rendered by {program}"));
        }
        plan.notes.push(count(rendered.objects.len(), "object"));
        self.writing.finish(&disk, &plan, output)
    }
}
