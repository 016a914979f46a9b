//! `kubewright delete api` and `delete webhook`: remove the files that `create` added.

use clap::{Args, Subcommand};
use kubewright_codegen::project::Project;
use kubewright_codegen::scaffold::{self, Delete};

use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::scaffolding::Deleting;

/// Remove a kind, a controller or a webhook from the project
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Api(Api),
    Webhook(Webhook),
}

/// Delete a kind with its controllers, or one controller
#[derive(Debug, Args)]
struct Api {
    #[command(flatten)]
    deleting: Deleting,

    /// Only the controller of this name
    #[arg(long, value_name = "NAME")]
    controller_name: Option<String>,
}

/// Delete the webhooks of a kind: all of them, or those that the flags name
#[derive(Debug, Args)]
struct Webhook {
    #[command(flatten)]
    deleting: Deleting,

    /// Only the defaulting one
    #[arg(long)]
    defaulting: bool,

    /// Only the validating one
    #[arg(long)]
    programmatic_validation: bool,

    /// Only the conversion
    #[arg(long)]
    conversion: bool,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        let project = Project::load(&disk)?;
        let (plan, writing) = match self.what {
            What::Api(api) => {
                let asked = Delete {
                    controller_name: api.controller_name,
                    ..api.deleting.all(&project)
                };
                (scaffold::delete_api(&disk, &asked)?, api.deleting.writing)
            }
            What::Webhook(webhook) => {
                let asked = Delete {
                    defaulting: webhook.defaulting,
                    validation: webhook.programmatic_validation,
                    conversion: webhook.conversion,
                    ..webhook.deleting.all(&project)
                };
                (scaffold::delete_webhook(&disk, &asked)?, webhook.deleting.writing)
            }
        };
        writing.finish(&disk, &plan, output)
    }
}
