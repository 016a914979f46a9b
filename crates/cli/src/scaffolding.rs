//! The shared parts of the commands that scaffold: flags, questions, and their closing words.

use std::path::PathBuf;

use clap::Args;
use kubewright_codegen::project::Project;
use kubewright_codegen::scaffold::{Delete, External, License, Subject};
use kubewright_codegen::{Diagnostic, Place, Plan, codes};
use serde_json::json;

use crate::confirm::{Answer, yes_or_no};
use crate::files::Disk;
use crate::output::{CHANGE, DIM, Failure, Format, STRONG, count, paint};

/// More changes than this below `config/` are printed as one line.
const MAX_LISTED: usize = 5;

/// How a plan is carried out.
#[derive(Debug, Args)]
pub(crate) struct Writing {
    /// Print what would change, and change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Show what would change as a diff, and change nothing
    #[arg(long, conflicts_with = "dry_run")]
    pub(crate) diff: bool,
}

/// Which kind a command is about.
#[derive(Debug, Args)]
pub(crate) struct Kind {
    /// Group of the kind, without the project's domain; `core` is Kubernetes' core group
    #[arg(long, value_name = "GROUP", default_value = "", hide_default_value = true, add = clap_complete::ArgValueCandidates::new(crate::complete::groups))]
    group: String,

    /// Version, such as v1 or v1beta1
    #[arg(long, value_name = "VERSION", default_value = "", hide_default_value = true, add = clap_complete::ArgValueCandidates::new(crate::complete::versions))]
    version: String,

    /// Kind, such as Guestbook; for a kind that exists also its plural
    #[arg(long, value_name = "KIND", default_value = "", hide_default_value = true, add = clap_complete::ArgValueCandidates::new(crate::complete::kinds))]
    kind: String,
}

impl Kind {
    /// The kind, whether it was typed as Guestbook, guestbook or guestbooks.
    pub(crate) fn subject(&self, project: &Project) -> Subject {
        let typed = Subject {
            group: self.group.clone(),
            version: self.version.clone(),
            kind: self.kind.clone(),
        };
        typed.resolved(project)
    }
}

/// The license and the owner of the project.
#[derive(Debug, Args)]
pub(crate) struct Terms {
    /// Copyright owner; written to Cargo.toml as the author
    #[arg(long)]
    owner: Option<String>,

    /// License: apache2 (the default of a new project) or none
    #[arg(long)]
    license: Option<String>,

    /// File with a comment to put at the top of every Rust file; instead of --license
    #[arg(long, value_name = "FILE", conflicts_with = "license")]
    license_file: Option<PathBuf>,
}

impl Terms {
    pub(crate) fn owner(&self) -> Option<String> {
        self.owner.clone()
    }

    /// The license, if something was said about it.
    ///
    /// # Errors
    /// When it is not known.
    pub(crate) fn license(&self, attempted: &str) -> Result<Option<License>, Diagnostic> {
        match &self.license {
            _ if self.license_file.is_some() => Ok(Some(License::None)),
            None => Ok(None),
            Some(name) => License::named(name).map(Some).ok_or_else(|| {
                Diagnostic::new(codes::project::FLAGS, attempted)
                    .because(format!("{name:?} is not a license that this command knows"))
                    .fix("pass apache2 or none, or the text of a header with --license-file")
            }),
        }
    }

    /// The comment, if there is one.
    ///
    /// # Errors
    /// When its file cannot be read.
    pub(crate) fn boilerplate(&self, attempted: &str) -> Result<Option<String>, Diagnostic> {
        let Some(file) = &self.license_file else {
            return Ok(None);
        };
        crate::regular::text(file).map(Some).map_err(|why| {
            Diagnostic::new(codes::files::IO, attempted)
                .at(Place::file(file.display().to_string()))
                .because(why)
                .fix("name a readable file with --license-file")
        })
    }
}

/// The further options of `create api` and `create webhook`.
#[derive(Debug, Args)]
pub(crate) struct Creating {
    #[command(flatten)]
    pub(crate) kind: Kind,

    #[command(flatten)]
    pub(crate) external: ExternalType,

    /// Overwrite files that exist
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", default_value = "false", value_name = "BOOL", hide_default_value = true)]
    pub(crate) force: bool,

    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    make: Option<bool>,

    #[command(flatten)]
    pub(crate) writing: Writing,
}

/// The further options of `delete api` and `delete webhook`.
#[derive(Debug, Args)]
pub(crate) struct Deleting {
    #[command(flatten)]
    kind: Kind,

    /// Delete files even if they were edited
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    pub(crate) writing: Writing,
}

impl Deleting {
    /// Everything of the kind.
    pub(crate) fn all(&self, project: &Project) -> Delete {
        Delete {
            subject: self.kind.subject(project),
            force: self.force,
            ..Delete::default()
        }
    }
}

/// Where the type of another project comes from.
#[derive(Debug, Args)]
pub(crate) struct ExternalType {
    /// Rust path of the module with another project's type, such as cert_manager_api::v1; without one, the project gets
    /// a type for the kind
    #[arg(long, value_name = "PATH")]
    external_api_path: Option<String>,

    /// Domain of another project's group, such as io for cert-manager.io
    #[arg(long, value_name = "DOMAIN")]
    external_api_domain: Option<String>,

    /// Crate with another project's type, such as cert-manager-api@0.1
    #[arg(long, value_name = "CRATE[@VERSION]")]
    external_api_module: Option<String>,
}

impl ExternalType {
    pub(crate) fn external(&self) -> External {
        let given = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        External {
            path: given(&self.external_api_path),
            domain: given(&self.external_api_domain),
            module: given(&self.external_api_module),
        }
    }
}

/// The answer to a question that is asked on a terminal; elsewhere, the flag has to say it.
///
/// # Errors
/// When there is no terminal to ask at, or no answer.
pub(crate) fn ask(given: Option<bool>, question: &str, flag: &str, attempted: &str) -> Result<bool, Diagnostic> {
    if let Some(answer) = given {
        return Ok(answer);
    }
    match yes_or_no(&format!("{question}?")) {
        Answer::Yes => Ok(true),
        Answer::No => Ok(false),
        Answer::Unasked(why) => Err(Diagnostic::new(codes::project::MISSING, attempted)
            .because(format!("{question}? {why}"))
            .fix(format!("pass --{flag} or --{flag}=false"))),
    }
}

impl Writing {
    /// Whether nothing is to be written.
    pub(crate) fn only_tells(&self) -> bool {
        self.dry_run || self.diff
    }

    /// Carries a plan out, or shows it, and reports the result.
    pub(crate) fn finish(&self, disk: &Disk, plan: &Plan<'_>, output: Format) -> Result<(), Failure> {
        for warning in &plan.warnings {
            output.warning(&warning.to_string(), &json!({"event": "warning", "warning": warning}));
        }
        if self.diff {
            let diff = plan.diff();
            output.say(diff.trim_end(), &json!({"event": "diff", "diff": diff}));
            return Ok(());
        }
        if !self.dry_run {
            disk.write(plan)?;
        }
        self.tell(plan, output);
        Ok(())
    }

    fn tell(&self, plan: &Plan<'_>, output: Format) {
        let would = if self.dry_run { "would " } else { "" };
        let mut config: Vec<(&str, usize)> = Vec::new();
        let many = plan.changes().filter(|(path, _)| path.starts_with("config/")).count() > MAX_LISTED;
        for (path, change) in plan.changes() {
            let verb = change.verb();
            if output == Format::Text && many && path.starts_with("config/") {
                match config.iter_mut().find(|(known, _)| *known == verb) {
                    Some((_, count)) => *count += 1,
                    None => config.push((verb, 1)),
                }
                continue;
            }
            output.say(
                &format!("  {would}{} {path}", paint(CHANGE, verb)),
                &json!({"event": "file", "verb": verb, "path": path, "written": !self.dry_run}),
            );
        }
        for (verb, number) in config {
            let line = format!(
                "  {would}{} {} below config/",
                paint(CHANGE, verb),
                count(number, "file")
            );
            output.say(&line, &json!(null));
        }
        if plan.is_empty() {
            output.say(&paint(DIM, "nothing to change"), &json!({"event": "unchanged"}));
        }
        for note in &plan.notes {
            output.say(&format!("  note: {note}"), &json!({"event": "note", "note": note}));
        }
        if self.dry_run {
            return;
        }
        for (at, next) in plan.next.iter().enumerate() {
            let head = if at == 0 { "next:" } else { "     " };
            output.say(
                &format!("{head} {}", paint(STRONG, next)),
                &json!({"event": "next", "command": next}),
            );
        }
    }
}
