//! `kubewright manifests`: CustomResourceDefinitions, roles and webhook configurations out of the code
//! (controller-gen's task).
//!
//! The operator's program is built and asked for its declaration; `kubewright-codegen` makes the manifests of it.

mod earlier;

use clap::{ArgAction, Args};
use kubewright_codegen::codes::crds;
use kubewright_codegen::manifests::{self, Effect, Options};
use kubewright_codegen::{Diagnostic, Place};
use serde_json::{Value, json};

use crate::files::Disk;
use crate::output::{BAD, CHANGE, DIM, Failure, Format, GOOD, WARN, count, paint};
use crate::program::{self, BuildOptions, Verbosity, declaration, validation};
use crate::project::Project;

/// Generate CRDs, RBAC roles and webhook configurations from the code
///
/// To set a flag permanently, write it to the table `[manifests]` of the project's kubewright.toml:
/// `generate-embedded-object-meta`, `max-desc-len`, `allow-dangerous-types`. A flag overrides the file.
#[derive(Debug, Default, Args)]
pub(crate) struct Arguments {
    /// Change nothing; exit with status 3 if a file is out of date (for CI)
    #[arg(long, conflicts_with_all = ["diff", "dry_run"])]
    check: bool,

    /// Print what would change, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Show what would change as a diff, and change nothing
    #[arg(long, conflicts_with = "dry_run")]
    diff: bool,

    /// Change nothing, and say what the CRDs would break for existing objects and clients, compared with those of a git
    /// revision, or of a file or folder
    #[arg(long, value_name = "REV|PATH", conflicts_with_all = ["check", "diff", "dry_run"])]
    compare: Option<String>,

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
        let build = BuildOptions {
            root: root.clone(),
            verbosity: Verbosity::shown(),
            ..BuildOptions::default()
        };
        let (program, _) = program::built(&build).await?;
        let declaration = declaration::ask(&program, &root).await?;
        let objects = manifests::objects(&declaration, &disk, &options).map_err(|wrong| all(wrong, output))?;
        validation::webhooks(&objects.webhooks)
            .await
            .map_err(|wrong| all(wrong, output))?;
        if let Some(earlier) = &self.compare {
            let after: Vec<Value> = objects.crds.into_iter().map(|(_, crd)| crd).collect();
            return compared(&earlier::definitions(&root, earlier)?, &after, earlier, output);
        }
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
                        .because("a list names a file that the code does not generate (see the warning)")
                        .fix("correct it as the warning describes, and commit what `kubewright manifests` writes"),
                ));
            }
            output.say(&paint(GOOD, "the manifests are current"), &json!({"event": "current"}));
        } else {
            if !self.dry_run {
                disk.write(&plan)?;
            }
            let would = if self.dry_run { "would " } else { "" };
            for (path, change) in plan.changes() {
                let verb = change.verb();
                output.say(
                    &format!("{would}{} {path}", paint(CHANGE, format!("{verb:>6}"))),
                    &json!({"event": "file", "verb": verb, "path": path, "written": !self.dry_run}),
                );
            }
            if stale.is_empty() {
                output.say(&paint(DIM, "the manifests are current"), &json!({"event": "current"}));
            }
        }
        Ok(())
    }
}

/// Says what the change of the definitions would break.
fn compared(before: &[Value], after: &[Value], earlier: &str, output: Format) -> Result<(), Failure> {
    let found = manifests::compare(before, after);
    let mut breaking = 0;
    for difference in &found {
        let breaks = difference.effect == Effect::Breaks;
        breaking += usize::from(breaks);
        let word = match breaks {
            true => paint(BAD, " breaks"),
            false => paint(WARN, "tightens"),
        };
        let place = [difference.definition.as_str(), difference.place.as_str()].join(" ");
        output.say(
            &format!("{word:>8} {}: {}", place.trim_end(), difference.what),
            &json!({
                "event": "difference", "breaks": breaks, "definition": difference.definition, "place": difference.place,
                "what": difference.what,
            }),
        );
    }
    if breaking == 0 {
        let text = format!("nothing breaks what {earlier} had");
        output.say(
            &paint(GOOD, text),
            &json!({"event": "compared", "breaking": 0, "tightening": found.len()}),
        );
        return Ok(());
    }
    let attempted = format!(
        "{} since {earlier} would break existing objects or clients",
        count(breaking, "change")
    );
    Err(Failure::from(Diagnostic::new(crds::BREAKING, attempted).fix(
        "keep what is gone, make new required fields optional or give them a default, or add a version of the kind",
    )))
}

/// Prints all errors but the last, with which the command fails.
fn all(mut wrong: Vec<Diagnostic>, output: Format) -> Failure {
    let last = wrong.pop();
    for error in wrong {
        output.failure(&Failure::from(error));
    }
    last.map_or_else(|| Failure::new(paint(BAD, "nothing was written")), Failure::from)
}
