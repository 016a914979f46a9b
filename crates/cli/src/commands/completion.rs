//! `kubewright completion`: scripts that let a shell complete commands and flags, made from the commands as they are.

use clap::{Args, CommandFactory};
use clap_complete::{Shell, generate};
use serde_json::json;

use crate::output::{Failure, Format};

/// Print a completion script: kubewright completion bash > /etc/bash_completion.d/kubewright
#[derive(Debug, Args)]
#[command(after_help = "\
Load it in this shell:       source <(kubewright completion bash)
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
        let mut script = Vec::new();
        generate(self.shell, &mut crate::Arguments::command(), "kubewright", &mut script);
        let script =
            String::from_utf8(script).map_err(|why| Failure::new("cannot make the completion script").because(why))?;
        output.say(
            script.trim_end(),
            &json!({"event": "completion", "shell": self.shell.to_string(), "script": script}),
        );
        Ok(())
    }
}
