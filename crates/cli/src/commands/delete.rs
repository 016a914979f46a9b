//! `kubewright delete api` and `delete webhook`: what `create` added, away again.

use clap::{Args, Subcommand};
use kubewright_codegen::scaffold::{self, Delete};

use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::scaffolding::{Kind, Writing};

/// Take a kind, a controller or a webhook out of the project again
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
    kind: Kind,

    /// Only the controller of this name
    #[arg(long, value_name = "NAME")]
    controller_name: Option<String>,

    /// Delete also files that were edited
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    writing: Writing,
}

/// Delete the webhooks of a kind, or those that are named
#[derive(Debug, Args)]
struct Webhook {
    #[command(flatten)]
    kind: Kind,

    /// Only the defaulting one
    #[arg(long)]
    defaulting: bool,

    /// Only the validating one
    #[arg(long)]
    programmatic_validation: bool,

    /// Only the conversion
    #[arg(long)]
    conversion: bool,

    /// Delete also files that were edited
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    writing: Writing,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        disk.recover()?;
        let (plan, writing) = match self.what {
            What::Api(api) => {
                let asked = Delete {
                    subject: api.kind.subject(),
                    controller_name: api.controller_name,
                    force: api.force,
                    ..Delete::default()
                };
                (scaffold::delete_api(&disk, &asked)?, api.writing)
            }
            What::Webhook(webhook) => {
                let asked = Delete {
                    subject: webhook.kind.subject(),
                    defaulting: webhook.defaulting,
                    validation: webhook.programmatic_validation,
                    conversion: webhook.conversion,
                    force: webhook.force,
                    ..Delete::default()
                };
                (scaffold::delete_webhook(&disk, &asked)?, webhook.writing)
            }
        };
        writing.finish(&disk, &plan, output)
    }
}
