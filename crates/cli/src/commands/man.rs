//! `kubewright man`: the man pages, made from the commands as they are. Packagers call it, so the help does not list it.

use std::path::PathBuf;

use clap::{Args, CommandFactory};
use serde_json::json;

use crate::output::{Failure, Format};

/// Write the man pages into a folder
#[derive(Debug, Args)]
#[command(hide = true)]
pub(crate) struct Arguments {
    /// An existing folder
    folder: PathBuf,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let command = crate::Arguments::command().disable_help_subcommand(true);
        clap_mangen::generate_to(command, &self.folder).map_err(|why| {
            Failure::new(format!("cannot write the man pages into {}", self.folder.display()))
                .because(why)
                .fix("name a folder that exists and that you may write to")
        })?;
        let folder = self.folder.display().to_string();
        output.say(
            &format!("the man pages are in {folder}"),
            &json!({"event": "man", "folder": folder}),
        );
        Ok(())
    }
}
