//! `kubewright create api` and `create webhook`: kinds, controllers and webhooks.

use clap::{Args, Subcommand};
use kubewright_codegen::project::Project;
use kubewright_codegen::scaffold::{self, CreateApi, CreateWebhook};

use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::scaffolding::{Creating, ask, recover};

/// Add a kind, a controller or a webhook to the project
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

/// Add a kind of your own, a controller for any kind, or both
#[derive(Debug, Args)]
struct Api {
    #[command(flatten)]
    creating: Creating,

    /// Whether the project gets the type; =false for a kind of Kubernetes or of another project [asked on a terminal]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    resource: Option<bool>,

    /// Whether the project gets a controller for the kind [asked on a terminal]
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    controller: Option<bool>,

    /// Name of the controller, when the kind has one already
    #[arg(long, value_name = "NAME")]
    controller_name: Option<String>,

    /// Whether objects live in namespaces
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_name = "BOOL")]
    namespaced: bool,

    /// Plural of the kind, when it is irregular
    #[arg(long, value_name = "PLURAL")]
    plural: Option<String>,

    /// Types for server-side apply; every kind has them here, so nothing more is written
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    ssa: bool,
}

/// Add webhooks to a kind: defaults, validation, conversion between versions
#[derive(Debug, Args)]
struct Webhook {
    #[command(flatten)]
    creating: Creating,

    /// Fill in what objects leave open (a mutating webhook)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    defaulting: bool,

    /// Refuse objects that make no sense (a validating webhook)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    programmatic_validation: bool,

    /// Convert between versions; this version is the hub, and the stored one
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    conversion: bool,

    /// Versions that are converted to and from the hub
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS")]
    spoke: Vec<String>,

    /// Path of the defaulting webhook, when it is not the usual one
    #[arg(long, value_name = "PATH")]
    defaulting_path: Option<String>,

    /// Path of the validating webhook, when it is not the usual one
    #[arg(long, value_name = "PATH")]
    validation_path: Option<String>,

    /// Plural of the kind, which the project knows
    #[arg(long, value_name = "PLURAL", hide = true)]
    plural: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        recover(&disk, output)?;
        match self.what {
            What::Api(api) => api.run(&disk, output),
            What::Webhook(webhook) => webhook.run(&disk, output),
        }
    }
}

impl Api {
    fn run(self, disk: &Disk, output: Format) -> Result<(), Failure> {
        // A question in a folder without a project would be answered in vain.
        Project::load(disk)?;
        let subject = self.creating.kind.subject();
        let attempted = "cannot create the API";
        let external = self.creating.external.external();
        let known = external.is_given().then_some(false);
        let asked = CreateApi {
            resource: ask(self.resource.or(known), "Create Resource", "resource", attempted)?,
            controller: ask(self.controller, "Create Controller", "controller", attempted)?,
            subject,
            plural: self.plural,
            namespaced: self.namespaced,
            controller_name: self.controller_name.filter(|name| !name.is_empty()),
            external,
            ssa: self.ssa,
            force: self.creating.force,
        };
        let plan = scaffold::create_api(disk, &asked)?;
        self.creating.writing.finish(disk, &plan, output)
    }
}

impl Webhook {
    fn run(self, disk: &Disk, output: Format) -> Result<(), Failure> {
        let asked = CreateWebhook {
            subject: self.creating.kind.subject(),
            defaulting: self.defaulting,
            validation: self.programmatic_validation,
            conversion: self.conversion,
            spoke: self.spoke,
            defaulting_path: self.defaulting_path,
            validation_path: self.validation_path,
            external: self.creating.external.external(),
            force: self.creating.force,
        };
        let plan = scaffold::create_webhook(disk, &asked)?;
        self.creating.writing.finish(disk, &plan, output)
    }
}
