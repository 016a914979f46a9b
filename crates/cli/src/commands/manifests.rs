//! `kubewright manifests`: CustomResourceDefinitions, roles and webhook configurations out of the code
//! (controller-gen's task).
//!
//! The operator's program is built and asked for its declaration; `kubewright-codegen` makes the manifests of it.

use clap::{ArgAction, Args};
use kubewright_codegen::codes::crds;
use kubewright_codegen::manifests::{self, Options};
use kubewright_codegen::{Diagnostic, Place};
use serde_json::json;

use crate::files::Disk;
use crate::output::{BAD, CHANGE, DIM, Failure, Format, GOOD, paint};
use crate::program::{self, BuildOptions, Verbosity, declaration, validation};
use crate::project::Project;

/// Generate CRDs, RBAC roles and webhook configurations from the code
///
/// To set a flag permanently, write it to the table `[manifests]` of the project's kubewright.toml:
/// `generate-embedded-object-meta`, `max-desc-len`, `allow-dangerous-types`. A flag overrides the file.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Write nothing; exit with status 3 if a file is out of date (for CI)
    #[arg(long)]
    check: bool,

    /// Show what would change as a diff, and write nothing
    #[arg(long)]
    diff: bool,

    /// Greatest length of a description in bytes; 0 leaves descriptions out
    #[arg(long, value_name = "BYTES")]
    max_desc_len: Option<usize>,

    /// Keep name, labels and annotations in the metadata of templates; `false` drops them, as controller-gen does
    /// by default [default: true]
    #[arg(long, value_name = "BOOL", action = ArgAction::Set)]
    generate_embedded_object_meta: Option<bool>,

    /// Do not warn about floating point numbers
    #[arg(long)]
    allow_dangerous_types: bool,
}

impl Arguments {
    pub(crate) async fn run(self, output: Format) -> Result<(), Failure> {
        let root = Project::here()?.root;
        let disk = Disk::new(&root);
        let decided = Options::of_project(&disk)?;
        let options = Options {
            max_description: self.max_desc_len.or(decided.max_description),
            embedded_object_meta: self
                .generate_embedded_object_meta
                .unwrap_or(decided.embedded_object_meta),
            allow_dangerous_types: self.allow_dangerous_types || decided.allow_dangerous_types,
            ..decided
        };
        // A first build takes a minute: a person sees its progress, a script sees its errors.
        let watched = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let build = BuildOptions {
            root: root.clone(),
            verbosity: if watched { Verbosity::Cargo } else { Verbosity::Errors },
            ..BuildOptions::default()
        };
        let (program, _) = program::built(&build).await?;
        let declaration = declaration::ask(&program, &root).await?;
        let objects = manifests::objects(&declaration, &disk, &options).map_err(|wrong| all(wrong, output))?;
        validation::webhooks(&objects.webhooks)
            .await
            .map_err(|wrong| all(wrong, output))?;
        let plan = manifests::plan_of(objects, &disk)?;
        for warning in &plan.warnings {
            output.warning(&warning.to_string(), &json!({"event": "warning", "warning": warning}));
        }
        let stale: Vec<String> = plan.changes().map(|(path, _)| path.to_owned()).collect();
        for note in &plan.notes {
            output.say(&paint(DIM, note), &json!({"event": "note", "note": note}));
        }
        let dangling = plan.warnings.iter().any(|warning| warning.code == crds::DANGLING);
        if self.diff {
            output.say(plan.diff().trim_end(), &json!({"event": "diff", "diff": plan.diff()}));
        } else if self.check {
            if !stale.is_empty() {
                let error = Diagnostic::new(crds::STALE, "the manifests are not current");
                let error = stale.iter().fold(error, |error, path| error.at(Place::file(path)));
                return Err(Failure::from(
                    error.fix("run `kubewright manifests` and commit what it writes"),
                ));
            }
            if dangling {
                return Err(Failure::from(
                    Diagnostic::new(crds::DANGLING, "config/ cannot be rendered")
                        .because("a list names a file that the code does not make, as the warning says")
                        .fix("correct it as the warning says, and commit what `kubewright manifests` writes"),
                ));
            }
            output.say(&paint(GOOD, "the manifests are current"), &json!({"event": "current"}));
        } else {
            disk.write(&plan)?;
            for (path, change) in plan.changes() {
                let verb = change.verb();
                output.say(
                    &format!("{} {path}", paint(CHANGE, format!("{verb:>6}"))),
                    &json!({"event": "file", "verb": verb, "path": path}),
                );
            }
            if stale.is_empty() {
                output.say(&paint(DIM, "the manifests are current"), &json!({"event": "current"}));
            }
        }
        Ok(())
    }
}

/// Prints all errors but the last, with which the command fails.
fn all(mut wrong: Vec<Diagnostic>, output: Format) -> Failure {
    let last = wrong.pop();
    for error in wrong {
        output.failure(&Failure::from(error));
    }
    last.map_or_else(|| Failure::new(paint(BAD, "nothing was written")), Failure::from)
}
