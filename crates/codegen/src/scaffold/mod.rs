//! The changes that `init`, `edit`, `create` and `delete` make to a project, as a plan.
//!
//! One file for each command. All of them follow one way: read PROJECT and check the request; change the [`Project`];
//! write or edit files through the [`Plan`]; let [`crate::config`] bring `config/` after; write PROJECT. Invariants: a
//! request is refused before anything is planned, or planned whole; a file that exists with other content is never
//! written over without `force`; running twice changes nothing the second time. Inside: `subject` (which kind is
//! meant), `standing` (whether the code that is built on is there), `render` (templates), `tree` (modules and
//! registrations of a resource). Not here: questions to a person and the disk (the command), the contents of `config/`.

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};
use crate::project::{self, Project};

mod again;
mod contents;
mod create_api;
mod create_webhook;
mod delete;
mod deploy;
mod edit;
mod init;
mod meet;
mod plugins;
mod render;
mod standing;
mod subject;
mod tree;
mod webhook_contents;

#[cfg(test)]
mod tests;

pub(crate) use again::step;
pub use again::{Whole, again, whole};
pub use create_api::{CreateApi, create_api};
pub use create_webhook::{CreateWebhook, create_webhook};
pub use delete::{Delete, delete_api, delete_webhook};
pub use edit::{Edit, edit};
pub use init::{Dependency, Init, License, REPOSITORY, init};
pub use plugins::{is_layout, is_own_plugin, makes_type_and_controller, no_plugins};
pub use subject::{External, Subject};
pub(crate) use tree::{TESTS, earlier_test, test_module};

/// Where the text that begins every new Rust file is kept, if a project wants one.
const BOILERPLATE: &str = "hack/boilerplate.rs.txt";

/// A project in the middle of a change: its old state, its new one, and the files.
struct Change<'a> {
    before: Option<Project>,
    project: Project,
    plan: Plan<'a>,
    /// Whether scaffolded files are written over ones that are there.
    force: bool,
    /// The text that begins every new Rust file.
    header: String,
}

impl<'a> Change<'a> {
    /// The change of a project that is there.
    fn of(files: &'a dyn Files, force: bool) -> Result<Change<'a>, Diagnostic> {
        let plan = Plan::new(files);
        let project = Project::load(&plan)?;
        let header = match plan.read(BOILERPLATE)? {
            Some(text) if !text.trim().is_empty() => format!("{}\n\n", text.trim_end()),
            _ => String::new(),
        };
        Ok(Change {
            before: Some(project.clone()),
            project,
            plan,
            force,
            header,
        })
    }

    /// Writes a new file. An existing file with other content stays, and is an error, unless `force` is set.
    fn create(&mut self, path: &str, text: String) -> Result<(), Diagnostic> {
        match self.plan.read(path)? {
            Some(there) if there != text && !self.force => {
                Err(Diagnostic::new(codes::files::EXISTS, format!("cannot create {path}"))
                    .at(Place::file(path))
                    .because("a file is there already, with other content")
                    .fix("move it away, or pass --force to overwrite it (--diff shows what would be lost)"))
            }
            _ => self.plan.write(path, text),
        }
    }

    /// Writes a file unless there is one.
    fn create_if_missing(&mut self, path: &str, text: String) -> Result<(), Diagnostic> {
        match self.plan.read(path)? {
            Some(_) => Ok(()),
            None => self.plan.write(path, text),
        }
    }

    /// The plan, when all of the project's own files are planned: PROJECT and `config/` follow.
    fn finish(mut self) -> Result<Plan<'a>, Diagnostic> {
        if let Some(wrong) = self.project.check().into_iter().next() {
            return Err(wrong);
        }
        crate::config::sync(self.before.as_ref(), &self.project, &mut self.plan)?;
        if self.before.as_ref() != Some(&self.project) {
            self.plan.write(project::FILE, self.project.to_text())?;
        }
        Ok(self.plan)
    }
}

/// An error in the request: a flag with an impossible value.
fn bad_name(attempted: &str, flag: &str, value: &str, wrong: &crate::names::BadName) -> Diagnostic {
    Diagnostic::new(
        codes::project::NAME,
        format!("{attempted}: {flag} {value:?} cannot be used"),
    )
    .because(&wrong.why)
    .fix(&wrong.fix)
}
