//! `kubewright bundle`: the operator as the Operator Lifecycle Manager takes it; and what is done with bundles.

use clap::{Args, Subcommand};
use kubewright_codegen::{Diagnostic, Files, Place, bundle, codes};

use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::project::Project;
use crate::rollout::image_or_variable;
use crate::scaffolding::Writing;

pub(crate) mod cleanup;
pub(crate) mod generate;
mod olm;
mod run;
pub(crate) mod scorecard;
mod validate;

/// Write a bundle for the Operator Lifecycle Manager: a ClusterServiceVersion from config/, metadata, a Dockerfile
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: Option<What>,

    /// Version of the operator [default: the one in Cargo.toml]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// Channels that the bundle belongs to
    #[arg(long, value_delimiter = ',', value_name = "CHANNELS", default_value = "alpha")]
    channels: Vec<String>,

    /// Channel of subscriptions that name none
    #[arg(long, value_name = "CHANNEL")]
    default_channel: Option<String>,

    /// Name of the package [default: the project's]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,

    /// The operator's image [default: $IMG, else the one of config/manager]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,

    /// Configure the tests of OLM's scorecard, as for a PROJECT that lists its plugin
    #[arg(long)]
    scorecard: bool,

    /// Overwrite files that are in the way
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    writing: Writing,
}

#[derive(Debug, Subcommand)]
enum What {
    Validate(validate::Arguments),
    Generate(generate::Arguments),
    Scorecard(scorecard::Arguments),
    Run(run::Arguments),
    Cleanup(cleanup::Arguments),
}

/// `generate bundle` and `generate kustomize manifests`, as Makefiles of operator-sdk have them.
#[derive(Debug, Subcommand)]
pub(crate) enum Generate {
    Bundle(generate::Arguments),
    /// Write the base of the bundle
    #[command(subcommand)]
    Kustomize(Kustomize),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kustomize {
    Manifests(generate::Base),
}

impl Generate {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        match self {
            Generate::Bundle(generate) => generate.run(output),
            Generate::Kustomize(Kustomize::Manifests(base)) => base.run(output),
        }
    }
}

const ATTEMPTED: &str = "cannot make the bundle";

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        match self.what {
            Some(What::Validate(validate)) => validate.run(output).await,
            Some(What::Generate(generate)) => generate.run(output),
            Some(What::Scorecard(scorecard)) => scorecard.run(output),
            Some(What::Run(run)) => run.run(output).await,
            Some(What::Cleanup(cleanup)) => cleanup.run(output).await,
            None => self.write(output),
        }
    }

    fn write(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        Project::find(disk.root())?;
        let package = package(&disk)?;
        let Some(version) = self.version.or(package.version) else {
            return Err(Diagnostic::new(codes::project::MISSING, ATTEMPTED)
                .because("Cargo.toml has no version")
                .fix("pass --version 0.1.0")
                .into());
        };
        let asked = bundle::Options {
            version,
            package: self.package,
            channels: self.channels,
            default_channel: self.default_channel,
            image: image_or_variable(self.image),
            output: "bundle".to_owned(),
            authors: package.authors,
            repository: package.repository,
            cli_version: env!("CARGO_PKG_VERSION").to_owned(),
            scorecard: self.scorecard,
            force: self.force,
        };
        let plan = bundle::bundle(&disk, &asked)?;
        self.writing.finish(&disk, &plan, output)
    }
}

/// The operator's package in Cargo.toml.
#[derive(Default)]
struct Package {
    version: Option<String>,
    authors: Vec<String>,
    repository: Option<String>,
}

/// The fields of the package, from the workspace where they stand there.
fn package(disk: &Disk) -> Result<Package, Diagnostic> {
    let Some(text) = disk.read("Cargo.toml")? else {
        return Ok(Package::default());
    };
    let manifest: toml_edit::DocumentMut = text.parse().map_err(|why: toml_edit::TomlError| {
        Diagnostic::new(codes::files::EDITED, ATTEMPTED)
            .at(Place::file("Cargo.toml"))
            .because(why.message())
            .fix("correct Cargo.toml and run the command again")
    })?;
    let item = |field: &str| {
        let own = manifest.get("package").and_then(|package| package.get(field));
        let own = own.filter(|item| item.is_str() || item.is_array());
        let shared = || manifest.get("workspace")?.get("package")?.get(field);
        own.or_else(shared)
    };
    let text = |field: &str| item(field).and_then(|item| item.as_str()).map(str::to_owned);
    let authors = item("authors").and_then(|item| item.as_array());
    let authors = authors.into_iter().flatten().filter_map(|author| author.as_str());
    Ok(Package {
        version: text("version"),
        repository: text("repository"),
        authors: authors.map(str::to_owned).collect(),
    })
}
