//! `kubewright create api` and `create webhook`: kinds, controllers and webhooks.

use clap::{Args, Subcommand};
use kubewright_codegen::project::{DeployedImage, Project};
use kubewright_codegen::scaffold::{self, CreateApi, CreateWebhook};
use kubewright_codegen::{Diagnostic, Plan, ansible, codes};

use super::charts::{self, Chart};
use crate::external::{Chain, or_where};
use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::scaffolding::{Creating, ask};

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

    /// Name of the controller, if the kind already has one
    #[arg(long, value_name = "NAME")]
    controller_name: Option<String>,

    /// Whether the kind is namespaced
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_name = "BOOL")]
    namespaced: bool,

    /// Plural of the kind, if it is irregular
    #[arg(long, value_name = "PLURAL")]
    plural: Option<String>,

    /// Accepted for compatibility: every kind has types for server-side apply
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    ssa: bool,

    /// Plugins to run: deploy-image/v1-alpha (a kind whose controller runs an image), external ones by NAME/VERSION
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    plugins: Vec<String>,

    #[command(flatten)]
    image: Image,

    #[command(flatten)]
    chart: Chart,

    /// In a project of Ansible: make a role for the kind
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    generate_role: bool,

    /// In a project of Ansible: make a playbook for the kind
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    generate_playbook: bool,
}

/// The options of the plugin deploy-image.
#[derive(Debug, Args)]
struct Image {
    /// For the plugin deploy-image: the image that the controller runs
    #[arg(long, value_name = "IMAGE", default_value = "", hide_default_value = true)]
    image: String,

    /// For the plugin deploy-image: what the container runs instead of the image's own command, such as
    /// memcached,--memory-limit=64
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    image_container_command: Option<String>,

    /// For the plugin deploy-image: the port that the container listens on, which becomes a field of the kind
    #[arg(long, value_name = "PORT")]
    image_container_port: Option<String>,

    /// For the plugin deploy-image: the user that the container runs as, by its number
    #[arg(long, value_name = "UID")]
    run_as_user: Option<String>,
}

/// Add webhooks to a kind: defaults, validation, conversion between versions
#[derive(Debug, Args)]
struct Webhook {
    #[command(flatten)]
    creating: Creating,

    /// Set defaults (a mutating webhook)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    defaulting: bool,

    /// Refuse invalid objects (a validating webhook)
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    programmatic_validation: bool,

    /// Convert between versions; this version is the hub and the storage version
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    conversion: bool,

    /// Versions that are converted to and from the hub
    #[arg(long, value_delimiter = ',', value_name = "VERSIONS")]
    spoke: Vec<String>,

    /// Path of the defaulting webhook, if it is not the default one
    #[arg(long, value_name = "PATH")]
    defaulting_path: Option<String>,

    /// Path of the validating webhook, if it is not the default one
    #[arg(long, value_name = "PATH")]
    validation_path: Option<String>,

    /// External plug-ins to run, by NAME/VERSION
    #[arg(long, value_delimiter = ',', value_name = "KEYS")]
    plugins: Vec<String>,

    /// Plural of the kind, which the project knows
    #[arg(long, value_name = "PLURAL", hide = true)]
    plural: Option<String>,
}

impl Arguments {
    pub(crate) fn run(self, output: Format, plugins: &Chain) -> Result<(), Failure> {
        let disk = Disk::here()?;
        match self.what {
            What::Api(api) => api.run(&disk, output, plugins),
            What::Webhook(webhook) => webhook.run(&disk, output, plugins),
        }
    }
}

impl Api {
    fn run(self, disk: &Disk, output: Format, plugins: &Chain) -> Result<(), Failure> {
        // A question in a folder without a project would be answered in vain.
        let project = Project::load(disk)?;
        if ansible::is_of_ansible(&project) {
            return self.of_ansible(&project, disk, output);
        }
        if !plugins.runs_own() {
            return alone(disk, &self.creating, output, plugins);
        }
        let subject = self.creating.kind.subject(&project);
        if charts::is_of_charts(disk) {
            let subject = charts::Subject {
                group: subject.group,
                version: subject.version,
                kind: subject.kind,
                plural: self.plural,
                force: self.creating.force,
            };
            return charts::create_api(disk, &self.chart, subject, &self.creating.writing, output);
        }
        if self.chart.is_given() {
            return Err(Diagnostic::new(codes::project::FLAGS, "cannot create the API")
                .because("the kinds of this project are of code, and --helm-chart makes one of a chart")
                .fix("begin a project of charts: kubewright init --plugins helm")
                .into());
        }
        let attempted = "cannot create the API";
        let external = self.creating.external.external();
        // The plugin makes both; elsewhere a type of another project is not made here.
        let both = scaffold::makes_type_and_controller(&self.plugins).then_some(true);
        let known = both.or(external.is_given().then_some(false));
        let said = |text: Option<String>| text.filter(|text| !text.is_empty());
        let asked = CreateApi {
            resource: ask(self.resource.or(known), "Create Resource", "resource", attempted)?,
            controller: ask(self.controller.or(both), "Create Controller", "controller", attempted)?,
            subject,
            plural: self.plural,
            namespaced: self.namespaced,
            controller_name: self.controller_name.filter(|name| !name.is_empty()),
            external,
            ssa: self.ssa,
            plugins: plugins.own_keys(self.plugins),
            image: DeployedImage {
                image: self.image.image,
                container_command: said(self.image.image_container_command),
                container_port: said(self.image.image_container_port),
                run_as_user: said(self.image.run_as_user),
            },
            force: self.creating.force,
        };
        let mut plan = scaffold::create_api(disk, &asked).map_err(|wrong| or_where(wrong, &asked.plugins))?;
        plugins.run(disk.root(), &mut plan)?;
        self.creating.writing.finish(disk, &plan, output)
    }

    fn of_ansible(self, project: &Project, disk: &Disk, output: Format) -> Result<(), Failure> {
        let subject = self.creating.kind.subject(project);
        let asked = ansible::CreateApi {
            group: subject.group,
            version: subject.version,
            kind: subject.kind,
            plural: self.plural,
            role: self.generate_role,
            playbook: self.generate_playbook,
            force: self.creating.force,
        };
        let plan = ansible::create_api(disk, &asked)?;
        self.creating.writing.finish(disk, &plan, output)
    }
}

impl Webhook {
    fn run(self, disk: &Disk, output: Format, plugins: &Chain) -> Result<(), Failure> {
        let project = Project::load(disk)?;
        if !plugins.runs_own() {
            return alone(disk, &self.creating, output, plugins);
        }
        let unknown = plugins.own_keys(self.plugins);
        scaffold::no_plugins(&unknown, "create webhook").map_err(|wrong| or_where(wrong, &unknown))?;
        let asked = CreateWebhook {
            subject: self.creating.kind.subject(&project),
            defaulting: self.defaulting,
            validation: self.programmatic_validation,
            conversion: self.conversion,
            spoke: self.spoke,
            defaulting_path: self.defaulting_path,
            validation_path: self.validation_path,
            external: self.creating.external.external(),
            force: self.creating.force,
        };
        let mut plan = scaffold::create_webhook(disk, &asked)?;
        plugins.run(disk.root(), &mut plan)?;
        self.creating.writing.finish(disk, &plan, output)
    }
}

/// Runs the external plug-ins that were named without the layout.
fn alone(disk: &Disk, creating: &Creating, output: Format, plugins: &Chain) -> Result<(), Failure> {
    let mut plan = Plan::new(disk);
    plugins.run(disk.root(), &mut plan)?;
    creating.writing.finish(disk, &plan, output)
}
