//! A project scaffolded again out of its PROJECT file: `alpha generate`, and the base of [`crate::upgrade`].
//!
//! The commands that made the project are given once more, to an empty folder; [`whole`] runs the optional plugins of
//! PROJECT, too. Invariant: for a project whose files are the scaffold's, the answer is those files (a test compares
//! the golden projects). Not here: the files that `manifests` writes out of the code.

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::{Files, MemoryFiles, Plan};
use crate::project::{self, DEPLOY_IMAGE, Project, Resource};

use super::contents::{ControllerFile, controllers};
use super::subject::has_stub;
use super::{
    BOILERPLATE, CreateApi, CreateWebhook, Dependency, External, Init, License, Subject, create_api, create_webhook,
    init, plugins,
};

/// The files that this version of the command writes for a project.
///
/// # Errors
/// When PROJECT or Cargo.toml cannot be read, or PROJECT says something that the commands would refuse.
pub fn again(files: &dyn Files, cli_version: &str) -> Result<MemoryFiles, Diagnostic> {
    let project = Project::load(files)?;
    let options = first(files, &project, cli_version)?;
    let mut made = MemoryFiles::default();
    step(&mut made, |files| init(files, &options))?;
    // Roles that were named before there were several groups keep their names, and are found by their files.
    for resource in project.apis().filter(|_| project.multigroup) {
        for role in ["admin", "editor", "viewer"] {
            let path = format!("config/rbac/{}_{role}_role.yaml", resource.kind.to_lowercase());
            if let Some(text) = files.read(&path)? {
                made.0.insert(path, text);
            }
        }
    }
    for resource in &project.resources {
        types_and_controllers(&mut made, &project, resource)?;
    }
    for resource in &project.resources {
        webhooks(&mut made, &project, resource)?;
    }
    let mut said = project;
    said.cli_version = Some(cli_version.to_owned());
    made.0.insert(project::FILE.to_owned(), said.to_text());
    Ok(made)
}

/// The project scaffolded again, with notes about it.
#[derive(Debug, Default)]
pub struct Whole {
    /// The files.
    pub files: MemoryFiles,
    /// Notes for a person; one line each.
    pub notes: Vec<String>,
    /// The files of `files` that plugins wrote: a chart, dashboards, a workflow.
    pub of_plugins: Vec<String>,
}

/// The same with the files of the optional plugins that PROJECT lists. A chart is made out of `config/` as the command
/// writes it, with the project's files of `manifests`.
///
/// # Errors
/// See [`again`].
pub fn whole(files: &dyn Files, cli_version: &str) -> Result<Whole, Diagnostic> {
    let made = again(files, cli_version)?;
    let project = Project::load(&made)?;
    let mut with_code = made.clone();
    for place in ["config/crd/bases", "config/rbac", "config/webhook"] {
        for path in files.list(place)? {
            let is_generated = path.starts_with("config/crd/bases/") || GENERATED.contains(&path.as_str());
            if let Some(text) = files.read(&path)?.filter(|_| is_generated) {
                with_code.0.insert(path, text);
            }
        }
    }
    let mut whole = Whole {
        files: made,
        ..Whole::default()
    };
    for plugin in plugins::listed(&project) {
        let mut plan = Plan::new(&with_code);
        if let Err(wrong) = plugins::write(plugin, &project, true, &mut plan) {
            let wrong = wrong.to_string();
            let wrong: Vec<&str> = wrong.lines().map(str::trim).collect();
            let wrong = wrong.join("; ");
            whole.notes.push(format!(
                "left out what the plugin {} writes ({wrong}): kubewright manifests, then kubewright edit --plugins {}",
                plugin.key(),
                plugin.key()
            ));
            continue;
        }
        for (path, change) in plan.changes() {
            if let Some(text) = &change.after {
                whole.files.0.insert(path.to_owned(), text.clone());
                whole.of_plugins.push(path.to_owned());
            }
        }
        whole.notes.extend(plan.notes);
    }
    Ok(whole)
}

/// The files of `manifests` beside definitions.
const GENERATED: [&str; 2] = ["config/rbac/role.yaml", "config/webhook/manifests.yaml"];

/// Carries out the plan of one command for these files.
pub(crate) fn step(
    made: &mut MemoryFiles,
    command: impl for<'a> FnOnce(&'a dyn Files) -> Result<Plan<'a>, Diagnostic>,
) -> Result<(), Diagnostic> {
    let before = made.clone();
    let plan = command(&before)?;
    made.apply(&plan);
    Ok(())
}

/// The options of `init`: PROJECT has most of them, Cargo.toml the rest.
fn first(files: &dyn Files, project: &Project, cli_version: &str) -> Result<Init, Diagnostic> {
    let path = "Cargo.toml";
    let cannot = |why: String| {
        Diagnostic::new(codes::files::EDITED, "cannot scaffold the project again")
            .at(Place::file(path))
            .because(why)
            .fix("correct Cargo.toml: [workspace.dependencies] says where kubewright comes from")
    };
    let text = files
        .read(path)?
        .ok_or_else(|| cannot("the file is not there".to_owned()))?;
    let manifest: toml_edit::DocumentMut = text
        .parse()
        .map_err(|why: toml_edit::TomlError| cannot(why.message().to_owned()))?;
    let find = |path: &[&str]| {
        let mut item = manifest.as_item();
        for part in path {
            item = item.get(part)?;
        }
        Some(item)
    };
    let dependency =
        dependency(&manifest).ok_or_else(|| cannot("it does not say where kubewright comes from".to_owned()))?;
    let package = |field: &str| find(&["workspace", "package", field]);
    let owner = package("authors").and_then(|authors| authors.get(0)?.as_str().map(str::to_owned));
    let license = match package("license") {
        Some(_) => License::Apache2,
        None => License::None,
    };
    Ok(Init {
        name: project.name.clone(),
        domain: project.domain.clone(),
        repo: project.repo.clone(),
        owner: owner.unwrap_or_default(),
        license,
        boilerplate: files.read(BOILERPLATE)?.filter(|text| !text.trim().is_empty()),
        multigroup: project.multigroup,
        namespaced: project.namespaced,
        plugins: Vec::new(),
        external: Vec::new(),
        dependency,
        cli_version: cli_version.to_owned(),
    })
}

/// Where a Cargo.toml takes kubewright from; none when it does not say.
pub(super) fn dependency(manifest: &toml_edit::DocumentMut) -> Option<Dependency> {
    let shared = || manifest.get("workspace")?.get("dependencies")?.get("kubewright");
    let own = || manifest.get("dependencies")?.get("kubewright");
    let kubewright = shared().or_else(own)?;
    let said = |field: &str| kubewright.get(field).and_then(toml_edit::Item::as_str);
    if let Some(url) = said("git") {
        let rev = ["rev", "tag", "branch"].into_iter().find_map(said);
        return Some(Dependency::Git {
            url: url.to_owned(),
            rev: rev.map(str::to_owned),
        });
    }
    match (said("path"), kubewright.as_str().or_else(|| said("version"))) {
        (Some(path), _) => Some(Dependency::Path(path.trim_end_matches("/crates/kubewright").to_owned())),
        (None, Some(version)) => Some(Dependency::Version(version.to_owned())),
        (None, None) => None,
    }
}

fn external(project: &Project, resource: &Resource) -> External {
    if !resource.external {
        return External::default();
    }
    External {
        path: resource.path.clone().filter(|_| !has_stub(project, resource)),
        domain: Some(resource.domain.clone()),
        module: resource.module.clone(),
    }
}

fn types_and_controllers(made: &mut MemoryFiles, project: &Project, resource: &Resource) -> Result<(), Diagnostic> {
    let default = project.default_controller_name(resource);
    let image = project.made_with_image(resource);
    if let Some(api) = &resource.api {
        let options = CreateApi {
            // The plugin makes the controller with the type.
            controller: image.is_some(),
            plugins: image.iter().map(|_| DEPLOY_IMAGE.to_owned()).collect(),
            image: image.clone().unwrap_or_default(),
            subject: Subject::of(resource),
            plural: resource.plural.clone(),
            namespaced: api.namespaced,
            resource: true,
            ..CreateApi::default()
        };
        step(made, |files| create_api(files, &options))?;
    }
    let is_made = |controller: &ControllerFile| image.is_some() && controller.file_name.is_none();
    let left = controllers(project, resource).into_iter();
    for controller in left.filter(|controller| !is_made(controller)) {
        let options = CreateApi {
            subject: Subject::of(resource),
            plural: resource.plural.clone().filter(|_| resource.external),
            controller: true,
            controller_name: (controller.name != default).then_some(controller.name),
            external: external(project, resource),
            ..CreateApi::default()
        };
        step(made, |files| create_api(files, &options))?;
    }
    Ok(())
}

fn webhooks(made: &mut MemoryFiles, project: &Project, resource: &Resource) -> Result<(), Diagnostic> {
    let Some(webhooks) = resource.webhooks.as_ref().filter(|webhooks| webhooks.any()) else {
        return Ok(());
    };
    let options = CreateWebhook {
        subject: Subject::of(resource),
        defaulting: webhooks.defaulting,
        validation: webhooks.validation,
        conversion: webhooks.conversion,
        spoke: webhooks.spoke.clone(),
        defaulting_path: webhooks.defaulting_path.clone(),
        validation_path: webhooks.validation_path.clone(),
        external: external(project, resource),
        force: false,
    };
    step(made, |files| create_webhook(files, &options))
}
