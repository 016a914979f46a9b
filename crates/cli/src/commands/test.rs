//! `kubewright test`: the samples, reconciled by the operator under its own role; then the project's tests.
//!
//! The generated files come first, because the role that tests grant is the one in `config/rbac`. Not here: how the
//! samples are tried (`dev/trial.rs`).

use std::process::Stdio;
use std::time::Instant;

use clap::Args;
use serde_json::json;
use tokio::process::Command;

use crate::commands::dev::trial;
use crate::commands::manifests;
use crate::output::{DIM, Failure, Format, GOOD, STRONG, count, paint};
use crate::program::{BuildOptions, no_cargo};
use crate::project::Project;

/// Where the samples are.
const SAMPLES: &str = "config/samples";

/// Reconcile the samples with the operator's own role, then run the project's tests
///
/// Generates the manifests, because tests run the operator with the role in config/rbac. Then the operator reconciles
/// config/samples in an embedded cluster, as it would in `kubewright dev`: a sample that is refused, a missing
/// permission or a reconcile that fails is an error. Last, the tests run: with cargo-nextest if it is installed, else
/// with cargo test.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Run only tests whose name contains this
    #[arg(value_name = "NAME")]
    name: Option<String>,

    /// Do not try the samples
    #[arg(long)]
    no_samples: bool,

    /// Build with optimizations, as `cargo build --release`
    #[arg(long)]
    release: bool,

    /// Cargo features to build with, separated by commas
    #[arg(long, value_name = "FEATURES")]
    features: Option<String>,

    /// Arguments for the test programs, after `--`
    #[arg(last = true, value_name = "ARGUMENTS")]
    tests: Vec<String>,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format, started: Instant) -> Result<(), Failure> {
        let project = Project::here()?;
        if project.scaffolded {
            manifests::Arguments::default().run(output).await?;
            if !self.no_samples && project.root.join(SAMPLES).is_dir() {
                self.samples(&project, output, started).await?;
            }
        }
        for mut command in self.commands(&project, has_nextest(&project).await) {
            let words: Vec<String> = std::iter::once(command.as_std().get_program())
                .chain(command.as_std().get_args())
                .map(|word| crate::output::shell_word(&word.to_string_lossy()))
                .collect();
            let line = words.join(" ");
            output.say(
                &paint(STRONG, format!("$ {line}")),
                &json!({"event": "tests", "command": line}),
            );
            // What tests print is theirs; with JSON, standard output is the command's own.
            if output == Format::Json {
                command.stdout(std::io::stderr());
            }
            let status = command.status().await.map_err(no_cargo)?;
            if !status.success() {
                return Err(Failure::new("the tests failed").because(format!("{line}: {status}")));
            }
        }
        output.say(&paint(GOOD, "all tests passed"), &json!({"event": "tested"}));
        Ok(())
    }

    async fn samples(&self, project: &Project, output: Format, started: Instant) -> Result<(), Failure> {
        let build = BuildOptions {
            root: project.root.clone(),
            release: self.release,
            features: self.features.clone(),
            ..BuildOptions::default()
        };
        let mut tried = trial::samples(project, build, started).await?;
        let Some(last) = tried.wrong.pop() else {
            let user = tried.user.as_deref().unwrap_or("the administrator");
            let samples = count(tried.samples.len(), "sample");
            let text = format!("{samples} reconciled as {user}");
            output.say(
                &paint(GOOD, text),
                &json!({"event": "samples", "samples": tried.samples, "reconciles": tried.reconciles, "user": user}),
            );
            return Ok(());
        };
        for line in &tried.lines {
            output.say(&paint(DIM, format!("│ {line}")), &json!({"event": "log", "line": line}));
        }
        for why in tried.wrong {
            output.failure(&Failure::from(why));
        }
        Err(last.into())
    }

    /// The command lines that run the tests.
    fn commands(&self, project: &Project, nextest: bool) -> Vec<Command> {
        let cargo = |words: &[&str]| {
            let mut command = Command::new("cargo");
            command.args(words).arg("--workspace");
            command
                .current_dir(&project.root)
                .stdin(Stdio::null())
                .kill_on_drop(true);
            if self.release {
                command.arg("--release");
            }
            if let Some(features) = &self.features {
                command.args(["--features", features]);
            }
            command.args(&self.name);
            if !self.tests.is_empty() {
                command.arg("--").args(&self.tests);
            }
            command
        };
        match nextest {
            false => vec![cargo(&["test"])],
            // nextest leaves out the examples in comments.
            true if project.root.join("src/lib.rs").is_file() && self.name.is_none() && self.tests.is_empty() => {
                vec![cargo(&["nextest", "run"]), cargo(&["test", "--doc"])]
            }
            true => vec![cargo(&["nextest", "run"])],
        }
    }
}

/// Whether cargo-nextest is installed.
async fn has_nextest(project: &Project) -> bool {
    let mut command = Command::new("cargo");
    command
        .args(["nextest", "--version"])
        .current_dir(&project.root)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nextest_is_used_where_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let check = |name: Option<&str>, nextest: bool, expected: &[&str]| {
            let arguments = Arguments {
                name: name.map(str::to_owned),
                no_samples: false,
                release: false,
                features: None,
                tests: Vec::new(),
            };
            let project = Project {
                root: folder.path().to_path_buf(),
                scaffolded: true,
            };
            let lines: Vec<String> = arguments
                .commands(&project, nextest)
                .iter()
                .map(|command| {
                    let words: Vec<_> = command.as_std().get_args().map(|word| word.to_string_lossy()).collect();
                    words.join(" ")
                })
                .collect();
            assert_eq!(lines, expected);
        };
        check(None, false, &["test --workspace"]);
        check(Some("guestbook"), false, &["test --workspace guestbook"]);
        check(None, true, &["nextest run --workspace"]);
        std::fs::create_dir(folder.path().join("src")).unwrap();
        std::fs::write(folder.path().join("src/lib.rs"), "").unwrap();
        check(None, true, &["nextest run --workspace", "test --doc --workspace"]);
        check(Some("guestbook"), true, &["nextest run --workspace guestbook"]);
    }
}
