//! `kubewright bundle generate`: a bundle of manifests that are rendered already, as operator-sdk's `generate bundle`
//! makes it; so a Makefile that calls that one can call this.

use std::io::{IsTerminal as _, Read as _};
use std::path::PathBuf;

use clap::Args;
use kubewright_codegen::bundle::{self, Input, Options};
use kubewright_codegen::{Diagnostic, Files as _, codes};

use crate::files::Disk;
use crate::output::{Failure, Format};
use crate::scaffolding::Writing;

/// The most bytes of manifests on standard input.
const MAX_INPUT: u64 = 64 << 20;

/// Write a bundle of manifests that are rendered already: of standard input, or of a folder
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Folder with the manifests, definitions among them [default: they come on standard input]
    #[arg(long, alias = "deploy-dir", value_name = "FOLDER")]
    input_dir: Option<PathBuf>,

    /// Further folder with definitions
    #[arg(long, value_name = "FOLDER", requires = "input_dir")]
    crds_dir: Option<PathBuf>,

    /// Folder with the base, in bases/PACKAGE.clusterserviceversion.yaml, when no manifest is one
    #[arg(long, value_name = "FOLDER", default_value = "config/manifests")]
    kustomize_dir: String,

    /// Folder of the bundle
    #[arg(long, value_name = "FOLDER", default_value = "bundle")]
    output_dir: String,

    /// Version of the operator [default: the one of the base]
    #[arg(long, value_name = "VERSION")]
    version: Option<String>,

    /// Channels that the bundle belongs to
    #[arg(long, value_delimiter = ',', value_name = "CHANNELS", default_value = "alpha")]
    channels: Vec<String>,

    /// Channel of subscriptions that name none
    #[arg(long, value_name = "CHANNEL", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    default_channel: Option<String>,

    /// Name of the package [default: the one in PROJECT]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,

    /// Overwrite files that this command did not write
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "true", value_name = "BOOL", hide_default_value = true)]
    overwrite: bool,

    #[command(flatten)]
    writing: Writing,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        let mut manifests = Vec::new();
        match &self.input_dir {
            Some(folder) => {
                for folder in [Some(folder), self.crds_dir.as_ref()].into_iter().flatten() {
                    read_folder(folder, &mut manifests)?;
                }
            }
            None => manifests.push(("standard input".to_owned(), standard_input()?)),
        }
        let options = Options {
            version: self.version.unwrap_or_default(),
            package: self.package,
            channels: self.channels,
            default_channel: self.default_channel,
            output: self.output_dir,
            cli_version: env!("CARGO_PKG_VERSION").to_owned(),
            force: self.overwrite,
            ..Options::default()
        };
        let input = Input {
            manifests,
            kustomize_folder: self.kustomize_dir,
        };
        let plan = bundle::generate(&disk, &options, &input)?;
        self.writing.finish(&disk, &plan, output)
    }
}

/// Write the base of the bundle, where there is none: what only people can say of the operator
#[derive(Debug, Args)]
pub(crate) struct Base {
    /// Name of the package [default: the one in PROJECT]
    #[arg(long, value_name = "NAME")]
    package: Option<String>,

    /// Folder that gets the base, in bases
    #[arg(long, alias = "input-dir", value_name = "FOLDER", default_value = "config/manifests")]
    output_dir: String,

    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    interactive: Option<bool>,

    #[arg(long, hide = true, value_name = "FOLDER")]
    apis_dir: Option<String>,

    #[command(flatten)]
    writing: Writing,
}

impl Base {
    pub(super) fn run(self, output: Format) -> Result<(), Failure> {
        let disk = Disk::here()?;
        let options = Options {
            package: self.package,
            cli_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..Options::default()
        };
        let plan = bundle::new_base(&disk, &options, &self.output_dir)?;
        self.writing.finish(&disk, &plan, output)
    }
}

fn refused(why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(codes::config::BUNDLE, super::ATTEMPTED)
        .because(why)
        .fix("kustomize build config/manifests | kubewright bundle generate, or name a folder with --input-dir")
}

/// The manifests of a folder, in the order of their names.
fn read_folder(folder: &PathBuf, manifests: &mut Vec<(String, String)>) -> Result<(), Diagnostic> {
    if !folder.is_dir() {
        return Err(refused(format!("{} is no folder", folder.display())));
    }
    let disk = Disk::new(folder);
    let is_manifest = |path: &String| [".yaml", ".yml", ".json"].iter().any(|end| path.ends_with(end));
    for path in disk.list("")?.into_iter().filter(is_manifest) {
        let text = disk.read(&path)?.unwrap_or_default();
        manifests.push((folder.join(&path).display().to_string(), text));
    }
    Ok(())
}

fn standard_input() -> Result<String, Diagnostic> {
    let input = std::io::stdin();
    if input.is_terminal() {
        return Err(refused("no manifests come on standard input"));
    }
    let mut text = String::new();
    input
        .lock()
        .take(MAX_INPUT + 1)
        .read_to_string(&mut text)
        .map_err(refused)?;
    if text.len() as u64 > MAX_INPUT {
        return Err(refused(format!("standard input has more than {} MiB", MAX_INPUT >> 20)));
    }
    Ok(text)
}
