//! `kubewright alpha`: kubebuilder's names for `generate` and `update`.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use kubewright_codegen::{Diagnostic, Files, Place, Plan, codes, scaffold};

use super::upgrade;
use crate::files::{Disk, check_folder};
use crate::output::{Failure, Format};
use crate::scaffolding::Writing;

/// Scaffold a project again, or update it to a newer scaffold
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Generate(Generate),
    /// The same as `kubewright upgrade`
    Update(upgrade::Arguments),
}

/// Scaffold the project again from PROJECT, without your own code
#[derive(Debug, Args)]
struct Generate {
    /// Folder of the project
    #[arg(long, value_name = "DIR", default_value = ".")]
    input_dir: PathBuf,

    /// Folder to write to [default: the project's own]
    #[arg(long, value_name = "DIR")]
    output_dir: Option<PathBuf>,

    /// Overwrite files with other content
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    writing: Writing,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        match self.what {
            What::Generate(generate) => generate.run(output),
            What::Update(update) => update.run(output),
        }
    }
}

const ATTEMPTED: &str = "cannot scaffold the project again";

impl Generate {
    fn run(self, output: Format) -> Result<(), Failure> {
        let made = scaffold::whole(&Disk::new(&self.input_dir), env!("CARGO_PKG_VERSION"))?;
        let folder = self.output_dir.as_ref().unwrap_or(&self.input_dir);
        check_folder(folder, ATTEMPTED)?;
        let disk = Disk::new(folder);
        let mut plan = Plan::new(&disk);
        let mut in_the_way = Vec::new();
        plan.notes.extend(made.notes);
        for (path, text) in &made.files.0 {
            if disk.read(path)?.is_some_and(|there| there != *text) {
                in_the_way.push(path.as_str());
            }
            plan.write(path, text.clone())?;
        }
        if let Some(first) = in_the_way.first()
            && !self.force
        {
            return Err(Diagnostic::new(codes::files::EXISTS, ATTEMPTED)
                .at(Place::file(*first))
                .because(format!(
                    "what is in {} would be lost: {}",
                    crate::output::count(in_the_way.len(), "file"),
                    in_the_way.join(", ")
                ))
                .fix("write to an empty folder with --output-dir; to keep what you wrote, kubewright upgrade; --force writes over it")
                .into());
        }
        if !self.writing.dry_run && !self.writing.diff {
            std::fs::create_dir_all(folder).map_err(|why| {
                Diagnostic::new(codes::files::IO, ATTEMPTED)
                    .at(Place::file(folder.display().to_string()))
                    .because(why)
                    .fix("name a folder that can be made: --output-dir DIR")
            })?;
        }
        self.writing.finish(&disk, &plan, output)
    }
}
