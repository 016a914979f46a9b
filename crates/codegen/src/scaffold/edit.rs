//! `edit`: the settings of the whole project. Several groups move files; namespaces change `config/`; license and owner
//! stand in the manifests.

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, Plan};
use crate::project::{Project, Resource};
use crate::source::Source;

use super::contents::{Contents, controllers};
use super::init::{License, boilerplate};
use super::subject::module_of;
use super::tree::{API_LIB, LIB, earlier_test, test_at};
use super::{BOILERPLATE, Change, plugins};

/// The options of `edit`; absent ones keep their value.
#[derive(Clone, Debug, Default)]
pub struct Edit {
    /// Whether there are several groups.
    pub multigroup: Option<bool>,
    /// Whether the operator watches only its own namespaces.
    pub namespaced: Option<bool>,
    /// The license in the manifests.
    pub license: Option<License>,
    /// The owner, who is the author in the manifests; none when empty.
    pub owner: Option<String>,
    /// The comment that begins every Rust file that will be created (`--license-file`).
    pub boilerplate: Option<String>,
    /// The plugins that were asked for (`--plugins`).
    pub plugins: Vec<String>,
    /// The folder that the chart of the plugin helm stands in (`--output-dir`).
    pub output: Option<String>,
    /// Whether to write over edited files.
    pub force: bool,
}

/// Plans changes of the whole project.
///
/// # Errors
/// When several groups should become one, a file is in the way of one that moves, or a Cargo.toml cannot be read.
pub fn edit<'a>(files: &'a dyn Files, options: &Edit) -> Result<Plan<'a>, Diagnostic> {
    const ATTEMPTED: &str = "cannot edit the project";
    let mut change = Change::of(files, options.force)?;
    let optional = plugins::requested(&options.plugins, "edit", ATTEMPTED)?;
    output_folder(options, &optional, ATTEMPTED)?;
    if let Some(namespaced) = options.namespaced {
        change.project.namespaced = namespaced;
    }
    match options.multigroup {
        Some(multigroup) if multigroup != change.project.multigroup => regroup(&mut change, multigroup, ATTEMPTED)?,
        _ => {}
    }
    if let Some(license) = options.license {
        let license = (license == License::Apache2).then_some("Apache-2.0");
        package_field(&mut change, "license", license.map(toml_edit::value))?;
    }
    if let Some(owner) = &options.owner {
        let authors = (!owner.is_empty()).then(|| toml_edit::value(toml_edit::Array::from_iter([owner])));
        package_field(&mut change, "authors", authors)?;
    }
    if let Some(text) = &options.boilerplate {
        change.plan.write(BOILERPLATE, boilerplate(text, ATTEMPTED)?)?;
        change
            .plan
            .notes
            .push("files that are there keep their first lines; new ones begin with the comment".to_owned());
    }
    let moved_roles = change
        .before
        .as_ref()
        .is_some_and(|before| before.namespaced != change.project.namespaced);
    for plugin in &optional {
        plugins::remember(*plugin, options.output.as_deref(), &mut change.project);
    }
    let project = change.project.clone();
    let mut plan = change.finish()?;
    for plugin in optional {
        plugins::write(plugin, &project, options.force, &mut plan)?;
    }
    if moved_roles {
        plan.next.push("kubewright manifests".to_owned());
    }
    Ok(plan)
}

/// A chart stands inside the project, and only a chart has a folder to choose.
fn output_folder(options: &Edit, optional: &[plugins::Optional], attempted: &str) -> Result<(), Diagnostic> {
    let Some(output) = &options.output else { return Ok(()) };
    let wrong = |why: String, fix: &str| Err(Diagnostic::new(codes::project::FLAGS, attempted).because(why).fix(fix));
    if !optional.contains(&plugins::Optional::Helm) {
        return wrong(
            "--output-dir is about the chart of the plugin helm/v2-alpha".to_owned(),
            "add --plugins helm/v2-alpha, or leave --output-dir out",
        );
    }
    let is_inside = output
        .split('/')
        .all(|part| !part.is_empty() && part != "." && part != "..");
    if !is_inside || output.contains('\\') {
        return wrong(
            format!("--output-dir {output:?} is not a folder of the project"),
            "write it relative to the project, such as dist or deploy/helm",
        );
    }
    let first = output.split('/').next().unwrap_or_default();
    if RESERVED.contains(&first) {
        return wrong(
            format!("--output-dir {output:?}: {first} is for something else"),
            "name a folder that is the chart's alone, such as dist or deploy/helm",
        );
    }
    Ok(())
}

/// Folders of the project that cargo, git, kustomize or the command itself reads, where a chart would be in the way.
const RESERVED: [&str; 7] = [".git", ".kubewright", "api", "config", "src", "target", "tests"];

/// Sets a field of the workspace's packages, which take it from there, or removes it everywhere.
fn package_field(change: &mut Change<'_>, field: &str, value: Option<toml_edit::Item>) -> Result<(), Diagnostic> {
    for path in ["Cargo.toml", "api/Cargo.toml"] {
        let cannot = |why: String| {
            Diagnostic::new(codes::files::EDITED, format!("cannot change {field}"))
                .at(Place::file(path))
                .because(why)
                .fix(format!("fix {path} and run the command again"))
        };
        let text = change
            .plan
            .read(path)?
            .ok_or_else(|| cannot("there is no such file".to_owned()))?;
        let mut manifest: toml_edit::DocumentMut = text
            .parse()
            .map_err(|why: toml_edit::TomlError| cannot(why.message().to_owned()))?;
        if path == "Cargo.toml" {
            let shared = manifest
                .get_mut("workspace")
                .and_then(|workspace| workspace.get_mut("package"));
            let shared = shared.and_then(toml_edit::Item::as_table_like_mut);
            set(
                shared.ok_or_else(|| cannot("it has no [workspace.package]".to_owned()))?,
                field,
                value.clone(),
            );
        }
        let package = manifest.get_mut("package").and_then(toml_edit::Item::as_table_like_mut);
        let inherited = value.is_some().then(|| {
            let mut table = toml_edit::Table::from_iter([("workspace", toml_edit::value(true))]);
            table.set_dotted(true);
            toml_edit::Item::Table(table)
        });
        set(
            package.ok_or_else(|| cannot("it has no [package]".to_owned()))?,
            field,
            inherited,
        );
        change.plan.write(path, manifest.to_string())?;
    }
    Ok(())
}

fn set(table: &mut dyn toml_edit::TableLike, field: &str, value: Option<toml_edit::Item>) {
    match value {
        Some(value) => drop(table.insert(field, value)),
        None => drop(table.remove(field)),
    }
}

/// A file or folder that moves, with the module that it is: from, to; below which file it is declared.
struct Move {
    root: &'static str,
    from: Vec<String>,
    to: Vec<String>,
    /// The module itself, which is the last part of both.
    module: String,
}

fn regroup(change: &mut Change<'_>, multigroup: bool, attempted: &str) -> Result<(), Diagnostic> {
    let old = change.project.clone();
    let groups: std::collections::BTreeSet<String> = old.apis().map(Resource::full_group).collect();
    if groups.len() > 1 && !multigroup {
        let groups: Vec<String> = groups.into_iter().collect();
        return Err(Diagnostic::new(codes::project::MULTIGROUP, attempted)
            .because(format!("the project has several groups: {}", groups.join(", ")))
            .fix("delete the APIs of all groups but one first"));
    }
    let mut new = old.clone();
    new.multigroup = multigroup;
    for resource in &mut new.resources {
        if resource.api.is_some() {
            resource.path = None;
        }
    }
    for at in 0..new.resources.len() {
        if new.resources[at].api.is_some() {
            new.resources[at].path = Some(module_of(&new, &new.resources[at]));
        }
    }
    let moves = moves(&old, &new);
    let tests = tests(&old, &new);
    change.project = new.clone();
    for moved in &moves {
        carry(change, moved)?;
    }
    for (from, to) in tests.into_iter().filter(|(from, to)| from != to) {
        let there = test_at(&change.plan, &from)?;
        if let Some(text) = change.plan.read(&there)? {
            change.plan.remove(&there)?;
            change.undeclare_test(&there)?;
            let to = if there == from { to } else { earlier_test(&to) };
            change.create_test(&to, text)?;
        }
    }
    rename(change, &old, &new)?;
    change.plan.notes.push(if multigroup {
        "types are in api/src/<group>/<version> now, controllers and webhooks in folders of their groups".to_owned()
    } else {
        "types are in api/src/<version> now".to_owned()
    });
    Ok(())
}

/// Every module that moves.
fn moves(old: &Project, new: &Project) -> Vec<Move> {
    let mut moves: Vec<Move> = Vec::new();
    let mut add = |root, from: &[String], to: &[String], module: String| {
        let known = moves
            .iter()
            .any(|known: &Move| known.root == root && known.from == from && known.module == module);
        if from != to && !known {
            moves.push(Move {
                root,
                from: from.to_vec(),
                to: to.to_vec(),
                module,
            });
        }
    };
    for (before, after) in old.resources.iter().zip(&new.resources) {
        let (from, to) = (old.layout(before), new.layout(after));
        if before.api.is_some()
            && let (Some((version, from)), Some((_, to))) = (from.api_modules.split_last(), to.api_modules.split_last())
        {
            // A version's folder moves whole, with a person's own files in it.
            add(API_LIB, from, to, version.clone());
        }
        let below = |first: &str, modules: &[String]| -> Vec<String> {
            std::iter::once(first.to_owned())
                .chain(modules.iter().cloned())
                .collect()
        };
        for controller in controllers(old, before) {
            // The file keeps its name: a controller that is named as its kind is one after the move, too.
            let module = from.controller_module(controller.file_name.as_deref());
            let (from, to) = (
                below("controller", &from.controller_modules),
                below("controller", &to.controller_modules),
            );
            add(LIB, &from, &to, module);
        }
        if before.webhooks.as_ref().is_some_and(crate::project::Webhooks::any) {
            let (from_folder, to_folder) = (
                below("webhook", &from.webhook_modules),
                below("webhook", &to.webhook_modules),
            );
            add(LIB, &from_folder, &to_folder, from.webhook_module());
        }
    }
    moves
}

/// Every test file that moves.
fn tests(old: &Project, new: &Project) -> Vec<(String, String)> {
    let mut tests = Vec::new();
    for (before, after) in old.resources.iter().zip(&new.resources) {
        let (from, to) = (Contents::of(old, before, ""), Contents::of(new, after, ""));
        let mut stems: Vec<String> = controllers(old, before)
            .iter()
            .map(|controller| old.layout(before).controller_module(controller.file_name.as_deref()))
            .collect();
        stems.push(old.layout(before).webhook_module());
        stems.push(Contents::versioned_webhook(old, before));
        let spokes = before.webhooks.iter().flat_map(|webhooks| &webhooks.spoke);
        stems.extend(spokes.map(|spoke| Contents::conversion_stem(&old.layout(before).stem, spoke)));
        tests.extend(stems.iter().map(|stem| (from.test_file(stem), to.test_file(stem))));
    }
    tests
}

/// Moves a module's file or folder and its declaration.
fn carry(change: &mut Change<'_>, moved: &Move) -> Result<(), Diagnostic> {
    let base = moved.root.rsplit_once('/').map_or("", |(folder, _)| folder);
    let place = |modules: &[String]| {
        modules
            .iter()
            .fold(base.to_owned(), |folder, module| folder + "/" + module)
    };
    let (from, to) = (place(&moved.from), place(&moved.to));
    let file = format!("{from}/{}.rs", moved.module);
    let is_file = change.plan.read(&file)?.is_some();
    let paths = if is_file {
        vec![file]
    } else {
        change.plan.list(&format!("{from}/{}", moved.module))?
    };
    let levels = if moved.to.len() > moved.from.len() { 1 } else { -1 };
    for path in paths {
        let Some(text) = change.plan.read(&path)? else { continue };
        let target = format!("{to}{}", &path[from.len()..]);
        let text = if is_file {
            let mut source = Source::parse(&path, &text)?;
            source.shift_super(levels);
            source.into_text()
        } else {
            text
        };
        change.plan.remove(&path)?;
        change.create(&target, text)?;
    }
    change.undeclare(moved.root, &moved.from, &moved.module)?;
    change.declare_words(moved.root, &moved.to, &moved.module)
}

/// Mends the paths to moved items, in all Rust files.
fn rename(change: &mut Change<'_>, old: &Project, new: &Project) -> Result<(), Diagnostic> {
    let mut renames: Vec<(&str, Vec<String>, Vec<String>)> = Vec::new();
    for moved in moves(old, new) {
        let path = |first: Option<String>, modules: &[String]| -> Vec<String> {
            let last = std::iter::once(moved.module.clone());
            first.into_iter().chain(modules.iter().cloned()).chain(last).collect()
        };
        if moved.root == API_LIB {
            let outside = Some(old.api_crate());
            renames.push(("", path(outside.clone(), &moved.from), path(outside, &moved.to)));
            let inside = Some("crate".to_owned());
            renames.push(("api/", path(inside.clone(), &moved.from), path(inside, &moved.to)));
        } else {
            let outside = Some(old.crate_name());
            renames.push(("", path(outside.clone(), &moved.from), path(outside, &moved.to)));
            renames.push(("src/", path(None, &moved.from), path(None, &moved.to)));
            let inside = Some("crate".to_owned());
            renames.push(("src/", path(inside.clone(), &moved.from), path(inside, &moved.to)));
        }
    }
    let mut paths = change.plan.list("src")?;
    paths.extend(change.plan.list("api")?);
    paths.extend(change.plan.list("tests")?);
    for path in paths.iter().filter(|path| path.ends_with(".rs")) {
        let mut source = change.source(path)?;
        for (below, from, to) in &renames {
            if path.starts_with(below) {
                let from: Vec<&str> = from.iter().map(String::as_str).collect();
                let to: Vec<&str> = to.iter().map(String::as_str).collect();
                // All versions move, so a list of them does; controllers move one by one.
                let versions = from.first().is_some_and(|first| *first == old.api_crate()) || *below == "api/";
                source.rename_paths(&from, &to, versions);
            }
        }
        change.plan.write(path, source.into_text())?;
    }
    Ok(())
}
