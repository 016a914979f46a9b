//! The `config/` folder: the objects that a project brings to a cluster, as kustomize reads it.
//!
//! [`sync`] brings the folder from the project's old state to its new one; every command that changes PROJECT calls it.
//! Optional parts (metrics, webhooks, certificates, Prometheus, network policies) are kustomize components: one line of
//! `config/default` switches each.
//!
//! Invariants: a file that the user edited is never overwritten; a list in a kustomization keeps the user's comments,
//! order and additions; a command that changes nothing in PROJECT changes nothing here. Inside: `tree` has the parts of
//! a project, `lists` edits lists, `templates` has the texts. Not here: the three kinds of file that are written from
//! the code (`manifests`), and rendering ([`crate::kustomize`]).

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};
use crate::project::{Project, Resource};

mod image;
mod lists;
mod templates;
mod tree;

#[cfg(test)]
mod tests;

pub use image::set_image;
pub(crate) use image::{is_reference, split_image};
use lists::Item;
pub(crate) use tree::DEFAULT;
use tree::Tree;

/// Brings `config/` from the project's old state (`None`: there was none) to its new one.
///
/// Files that the project gains are created, those that it loses removed; kustomizations gain and lose single lines. A
/// change that would lose an edit of the user is an error, and an edited file that goes all the same (the example of a
/// kind that is deleted) is noted.
///
/// ```
/// use kubewright_codegen::project::{Project, Resource};
/// use kubewright_codegen::{Files, MemoryFiles, Plan, config};
///
/// let files = MemoryFiles::default();
/// let mut plan = Plan::new(&files);
/// let mut project = Project::new("guestbook", "my.domain");
/// config::sync(None, &project, &mut plan).unwrap();
/// let before = project.clone();
/// project.resources.push(Resource::own("webapp", "my.domain", "v1", "Guestbook", true));
/// config::sync(Some(&before), &project, &mut plan).unwrap();
/// let samples = plan.read("config/samples/kustomization.yaml").unwrap().unwrap();
/// assert!(samples.ends_with("resources:\n- webapp_v1_guestbook.yaml\n"));
/// ```
///
/// # Errors
/// When a file that is to be created is there with other contents, one that is to be changed was edited, or a list
/// cannot be edited; the plan then holds part of the changes and is not to be carried out.
pub fn sync(before: Option<&Project>, after: &Project, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    let grouped = grouped_kinds(before, after, plan)?;
    let is_grouped = |api: &Resource| grouped.iter().any(|other| other.same_kind(api));
    let old = before.map(|project| Tree::of(project, &is_grouped)).unwrap_or_default();
    let new = Tree::of(after, &is_grouped);
    for item in old.items.iter().filter(|item| !new.items.contains(item)) {
        take_out(item, plan)?;
    }
    for (path, text) in &old.files {
        match new.files.get(path) {
            Some(new) if new == text => {}
            Some(new) => replace(path, text, new, plan)?,
            None => drop_file(path, text, old.of_kinds.contains(path), plan)?,
        }
    }
    for (path, text) in &old.kustomizations {
        if !new.kustomizations.contains_key(path) {
            drop_file(path, text, false, plan)?;
        }
    }
    let created = |(path, _): &(&String, &String)| !old.files.contains_key(*path);
    for (path, text) in new.files.iter().filter(created) {
        create(path, text, new.of_kinds.contains(path), plan)?;
    }
    for (path, text) in &new.kustomizations {
        if !old.kustomizations.contains_key(path) && plan.read(path)?.is_none() {
            plan.write(path, text)?;
        }
    }
    for item in new.items.iter().filter(|item| !old.items.contains(item)) {
        put_in(item, &new, plan)?;
    }
    keeps_what_is_used(&old, &new, plan)
}

/// Components that the user switched on must not lose their folders.
fn keeps_what_is_used(old: &Tree, new: &Tree, plan: &Plan<'_>) -> Result<(), Diagnostic> {
    for part in ["metrics-certs", "certmanager"] {
        let folder = format!("config/{part}/kustomization.yaml");
        if !old.kustomizations.contains_key(&folder) || new.kustomizations.contains_key(&folder) {
            continue;
        }
        let item = Item::new(tree::DEFAULT, "components", format!("../{part}"));
        if let Some(text) = plan.read(tree::DEFAULT)?
            && lists::contains(&text, &item)?
        {
            return Err(Diagnostic::new(codes::files::EDITED, "cannot remove the last webhook")
                .at(Place::file(tree::DEFAULT).field("components"))
                .because(format!(
                    "../{part} is switched on, and the certificates go with the last webhook"
                ))
                .fix(format!(
                    "put a # before the line `- ../{part}`, and run the command again"
                )));
        }
    }
    Ok(())
}

/// The kinds whose role files are named after their group: those that came to a project of several groups. A kind that
/// came before the project had several keeps its names, for people may be bound to its roles.
fn grouped_kinds(before: Option<&Project>, after: &Project, plan: &Plan<'_>) -> Result<Vec<Resource>, Diagnostic> {
    let mut grouped = Vec::new();
    let projects = [before, Some(after)];
    for project in projects.into_iter().flatten().filter(|project| project.multigroup) {
        for api in project.apis() {
            let plain = format!("config/rbac/{}_admin_role.yaml", api.kind.to_lowercase());
            let text = plan.read(&plain)?.unwrap_or_default();
            let group = format!("- {}", api.full_group());
            if !text.lines().any(|line| line.trim() == group) {
                grouped.push(api.clone());
            }
        }
    }
    Ok(grouped)
}

/// A kustomization with one more resource in its list; the same text when it is there.
///
/// # Errors
/// When the list cannot be edited safely.
pub(crate) fn list_resource(text: &str, file: &str, entry: &str) -> Result<String, Diagnostic> {
    lists::add(text, &Item::new(file, "resources", entry))
}

/// Puts an entry into a list of a kustomization, or takes it out. A kustomization that is not there is left so.
///
/// # Errors
/// When the list cannot be edited.
pub(crate) fn set_entry(
    file: &str,
    list: &'static str,
    entry: &str,
    present: bool,
    plan: &mut Plan<'_>,
) -> Result<(), Diagnostic> {
    let Some(text) = plan.read(file)? else {
        return Ok(());
    };
    let item = Item::new(file, list, entry);
    let edited = match present {
        true => lists::add(&text, &item)?,
        false => lists::remove(&text, &item)?,
    };
    plan.write(file, edited)
}

/// Switches an optional part of `config/default` on, as a person does who takes the `#` away: `prometheus`,
/// `network-policy`.
///
/// # Errors
/// When the list of components cannot be edited.
pub(crate) fn switch_on(part: &str, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    let item = Item::new(tree::DEFAULT, "components", format!("../{part}"));
    if let Some(text) = plan.read(&item.file)? {
        let edited = lists::add(&text, &item)?;
        plan.write(&item.file, edited)?;
    }
    Ok(())
}

/// Switches an optional part of `config/default` off, in a plan that is rendered and not written.
///
/// # Errors
/// When the list of components cannot be edited.
pub(crate) fn switch_off(part: &str, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    take_out(&Item::new(tree::DEFAULT, "components", format!("../{part}")), plan)
}

/// Creates a file. An existing file of a kind stays: it was made before, and belongs to the user.
fn create(path: &str, text: &str, of_kind: bool, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    match plan.read(path)? {
        None => plan.write(path, text),
        Some(present) if present == text => Ok(()),
        Some(_) if of_kind => {
            plan.notes.push(format!("{path} is there already and stays as it is"));
            Ok(())
        }
        Some(_) => Err(Diagnostic::new(codes::files::EXISTS, format!("cannot create {path}"))
            .at(Place::file(path))
            .because("there is another file of this name")
            .fix("move it away, and run the command again")),
    }
}

/// Replaces a file whose contents follow from the project, unless it was edited.
fn replace(path: &str, old: &str, new: &str, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    match plan.read(path)? {
        Some(present) if present == new => Ok(()),
        None => plan.write(path, new),
        Some(present) if present == old => plan.write(path, new),
        Some(_) => Err(Diagnostic::new(codes::files::EDITED, format!("cannot change {path}"))
            .at(Place::file(path))
            .because("it was edited, and the project as it is to be needs other contents")
            .fix(format!(
                "remove it and run the command again, then make your edits in the new file:\n{new}"
            ))),
    }
}

/// Removes a file. An edited file stays, with a note, unless it is the file of a kind that goes.
fn drop_file(path: &str, old: &str, of_kind: bool, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    match plan.read(path)? {
        None => Ok(()),
        Some(present) if present == old => plan.remove(path),
        Some(_) if of_kind => {
            plan.notes.push(format!("{path} was edited, and goes with its kind"));
            plan.remove(path)
        }
        Some(_) => {
            plan.notes.push(format!(
                "{path} was edited and stays, although nothing uses it any more"
            ));
            Ok(())
        }
    }
}

/// Puts an item into its list.
fn put_in(item: &Item, tree: &Tree, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    let text = match plan.read(&item.file)? {
        Some(text) => text,
        // The user has lost the file: its items of other kinds belong in it, too.
        None => {
            let first = tree.kustomizations.get(&item.file).cloned().unwrap_or_default();
            let mut others = tree.items.iter().filter(|other| other.file == item.file);
            others.try_fold(first, |text, other| lists::add(&text, other))?
        }
    };
    let edited = lists::add(&text, item)?;
    plan.write(&item.file, edited)
}

/// Takes an item out of its list; a file that is not there has none.
fn take_out(item: &Item, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    match plan.read(&item.file)? {
        Some(text) => {
            let edited = lists::remove(&text, item)?;
            plan.write(&item.file, edited)
        }
        None => Ok(()),
    }
}
