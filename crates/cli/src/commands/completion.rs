//! `kubewright completion`: scripts that let a shell complete commands, flags and values.
//!
//! The scripts ask this program at each Tab, so what they complete is never older than the program, and values such as
//! contexts and kinds are those of the moment.

use clap::Args;
use clap_complete::Shell;
use clap_complete::env::Shells;
use serde_json::json;

use crate::output::{Failure, Format};

/// Print a script that completes commands, flags, kinds, contexts and error codes in a shell
#[derive(Debug, Args)]
#[command(after_help = "\
In this shell:               source <(kubewright completion bash)
bash, for good:              kubewright completion bash > ~/.local/share/bash-completion/completions/kubewright
zsh, in a folder of $fpath:  kubewright completion zsh > \"${fpath[1]}/_kubewright\"
fish:                        kubewright completion fish > ~/.config/fish/completions/kubewright.fish
powershell:                  kubewright completion powershell >> $PROFILE")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

impl Arguments {
    pub(crate) fn run(self, output: Format) -> Result<(), Failure> {
        let cannot = || Failure::new("cannot make the completion script");
        let name = self.shell.to_string();
        let shells = Shells::builtins();
        let shell = shells.completer(&name).ok_or_else(cannot)?;
        let mut script = Vec::new();
        shell
            .write_registration("COMPLETE", "kubewright", "kubewright", "kubewright", &mut script)
            .map_err(|why| cannot().because(why))?;
        let script = String::from_utf8(script).map_err(|why| cannot().because(why))?;
        output.say(
            script.trim(),
            &json!({"event": "completion", "shell": name, "script": script}),
        );
        Ok(())
    }
}
