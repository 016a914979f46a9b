//! `upgrade` (kubebuilder's `alpha update`): brings a project to the files that this version of the command would
//! write, with the changes of its people.
//!
//! A three-way merge of whole projects: the **base** is the scaffold of the version that made the project, **theirs**
//! the scaffold of this version, and the project itself has the people's changes of the base. [`upgrade`] goes through
//! the files that the scaffold has in either version. Invariants: a change of people alone stays, a change of the
//! scaffold alone follows; where both changed the same lines, both stand in the file between marks, and only with
//! `force`; no text of the project is lost otherwise, and a file that people deleted stays deleted; tests that moved into
//! one program take their changes along. Inside: `merge` merges one text. Not here: the files that `manifests` writes out of the code.

use std::collections::BTreeSet;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, MemoryFiles, Plan};
use crate::project::{self, Project};
use crate::scaffold::{TESTS, earlier_test, test_module};
use crate::source::Source;

mod merge;

#[cfg(test)]
mod tests;

pub use merge::{Merged, merge};

/// Plans the upgrade of a project. `to` is the version whose scaffold `theirs` is.
///
/// # Errors
/// When the same lines were changed on both sides and `force` is not set, or a file cannot be read.
pub fn upgrade<'a>(
    files: &'a dyn Files,
    base: &MemoryFiles,
    theirs: &MemoryFiles,
    to: &str,
    force: bool,
) -> Result<Plan<'a>, Diagnostic> {
    let mut project = Project::load(files)?;
    let mut plan = Plan::new(files);
    let mut conflicts: Vec<Place> = Vec::new();
    let (base, theirs) = &move_tests(base, theirs, &mut plan)?;
    let paths: BTreeSet<&String> = base.0.keys().chain(theirs.0.keys()).collect();
    for path in paths
        .into_iter()
        .filter(|path| !is_made_of_code(path) && *path != project::FILE)
    {
        let ours = plan.read(path)?;
        let (base, theirs) = (base.0.get(path.as_str()), theirs.0.get(path.as_str()));
        one(path, base, ours.as_ref(), theirs, to, &mut plan, &mut conflicts)?;
    }
    if project.cli_version.as_deref() != Some(to) {
        project.cli_version = Some(to.to_owned());
        plan.write(project::FILE, project.to_text())?;
    }
    if conflicts.is_empty() {
        return Ok(plan);
    }
    let marked = |place: &Place| format!("{place}: the scaffold and you changed the same lines");
    if force {
        plan.notes.extend(conflicts.iter().map(marked));
        plan.notes
            .push("both are in the file, between <<<<<<< and >>>>>>>; choose, and remove the marks".to_owned());
        return Ok(plan);
    }
    let mut refused = Diagnostic::new(
        codes::project::CONFLICT,
        "cannot upgrade the project without a decision of yours",
    );
    for place in &conflicts {
        refused = refused.because(marked(place));
    }
    Err(refused.fix("pass --force, which writes both into the file between <<<<<<< and >>>>>>>, and choose there; --force --diff shows it first"))
}

/// Moves the tests of a scaffold in which each was a program of its own to where the new scaffold has them, in the
/// project and in the base. A test that people deleted is in neither scaffold afterwards.
fn move_tests(
    base: &MemoryFiles,
    theirs: &MemoryFiles,
    plan: &mut Plan<'_>,
) -> Result<(MemoryFiles, MemoryFiles), Diagnostic> {
    let (mut base, mut theirs) = (base.clone(), theirs.clone());
    let moved: Vec<(String, String)> = theirs
        .0
        .keys()
        .filter(|path| test_module(path).is_some() && !base.0.contains_key(*path))
        .map(|path| (earlier_test(path), path.clone()))
        .filter(|(from, _)| base.0.contains_key(from) && !theirs.0.contains_key(from))
        .collect();
    for (from, to) in moved {
        let text = base.0.remove(&from).unwrap_or_default();
        if let Some(ours) = plan.read(&from)? {
            plan.remove(&from)?;
            plan.write(&to, ours)?;
            base.0.insert(to, text);
            continue;
        }
        plan.notes
            .push(format!("{from} stays deleted; others are in tests/it now"));
        theirs.0.remove(&to);
        if let (Some(program), Some(module)) = (theirs.0.get_mut(TESTS), test_module(&to)) {
            let mut source = Source::parse(TESTS, program)?;
            source.remove_module(module);
            *program = source.into_text();
        }
    }
    Ok((base, theirs))
}

/// The files of `manifests` follow from the code, and are made anew after an upgrade.
fn is_made_of_code(path: &str) -> bool {
    path.starts_with("config/crd/bases/")
        || ["config/rbac/role.yaml", "config/webhook/manifests.yaml", "Cargo.lock"].contains(&path)
}

fn one(
    path: &str,
    base: Option<&String>,
    ours: Option<&String>,
    theirs: Option<&String>,
    to: &str,
    plan: &mut Plan<'_>,
    conflicts: &mut Vec<Place>,
) -> Result<(), Diagnostic> {
    if base == theirs || ours == theirs {
        return Ok(());
    }
    match (base, ours, theirs) {
        (base, ours, None) if base == ours => plan.remove(path),
        (base, ours, Some(theirs)) if base == ours => plan.write(path, theirs.clone()),
        (_, Some(_), None) => {
            plan.notes.push(format!(
                "{path} is no part of the scaffold any more; it stays, because you edited it"
            ));
            Ok(())
        }
        (_, None, _) => {
            plan.notes
                .push(format!("{path} stays deleted, although the scaffold of it changed"));
            Ok(())
        }
        (base, Some(ours), Some(theirs)) => {
            let base = base.map_or("", String::as_str);
            let merged = merge(base, ours, theirs, "yours", &format!("kubewright {to}"));
            conflicts.extend(merged.conflicts.iter().map(|line| Place::file(path).line(*line)));
            plan.write(path, merged.text)
        }
    }
}
