//! The code that new files build on still exists: modules are declared, and a named type is there.
//!
//! People delete and rename files. A file that is scaffolded beside them then would not compile, with an error about
//! something else. Invariant: this only looks.

use crate::codes::files;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Files as _;
use crate::project::Resource;

use super::Change;
use super::tree::TESTS;

impl Change<'_> {
    /// No folder of a kind's files has Rust files that are not declared: a new `mod.rs` would declare the new ones
    /// alone.
    pub(super) fn modules_stand(&self, resource: &Resource, attempted: &str) -> Result<(), Diagnostic> {
        let layout = self.project.layout(resource);
        let folders = [layout.api_folder(), layout.controller_folder(), layout.webhook_folder()];
        let modules = folders.map(|folder| format!("{folder}/mod.rs"));
        for module in modules.into_iter().chain([TESTS.to_owned()]) {
            let folder = module.rsplit_once('/').map_or("", |(folder, _)| folder);
            let files = self.plan.list(folder)?;
            let mut files = files.iter().filter_map(|path| path.strip_prefix(&format!("{folder}/")));
            let Some(lost) = files.find(|name| name.ends_with(".rs") && !name.contains('/')) else {
                continue;
            };
            if self.plan.read(&module)?.is_none() {
                return Err(Diagnostic::new(files::EDITED, attempted)
                    .at(Place::file(&module))
                    .because(format!(
                        "the file is not there, and declares {lost} and what else is in its folder"
                    ))
                    .fix("restore it (git checkout), or put what it held back; nothing was written"));
            }
        }
        Ok(())
    }

    /// The type of a kind of this project is where its modules are, in any file.
    pub(super) fn type_stands(&self, resource: &Resource, attempted: &str) -> Result<(), Diagnostic> {
        if resource.api.is_none() {
            return Ok(());
        }
        let layout = self.project.layout(resource);
        let folder = layout.api_folder();
        let said = format!("kind = \"{}\"", resource.kind);
        for path in self.plan.list(&folder)? {
            if path.ends_with(".rs") && self.plan.read(&path)?.is_some_and(|text| text.contains(&said)) {
                return Ok(());
            }
        }
        Err(Diagnostic::new(files::EDITED, attempted)
            .at(Place::file(layout.types_file()))
            .because(format!(
                "PROJECT lists {}, and no file in {folder} declares it (`#[kube({said})]`)",
                resource.title()
            ))
            .fix(
                "restore its file (git checkout), or correct PROJECT: a renamed kind is a new one; nothing was written",
            ))
    }
}
