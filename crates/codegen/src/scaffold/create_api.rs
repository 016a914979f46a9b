//! `create api`: a kind of the project's own, a controller for any kind, or both.

use std::collections::BTreeMap;

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::names::{self, rust};
use crate::plan::{Files, Plan};
use crate::project::{Controller, DeployedImage, Resource};

use super::contents::ControllerFile;
use super::deploy;
use super::meet::{groups_meet, irregular, names_meet, types_meet};
use super::subject::{self, External, Subject, has_stub};
use super::{Change, bad_name};

/// The options of `create api`.
#[derive(Clone, Debug, Default)]
pub struct CreateApi {
    /// The kind.
    pub subject: Subject,
    /// The plural, when it does not follow from the kind.
    pub plural: Option<String>,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether the project gets the type.
    pub resource: bool,
    /// Whether the project gets a controller.
    pub controller: bool,
    /// The name of the controller, when it is not named after the kind.
    pub controller_name: Option<String>,
    /// Where the type of another project comes from.
    pub external: External,
    /// Whether the kind is to be applied (`--ssa`), which every kind here can be.
    pub ssa: bool,
    /// The plugins that were asked for (`--plugins`).
    pub plugins: Vec<String>,
    /// The options of the plugin deploy-image.
    pub image: DeployedImage,
    /// Whether to write over existing files.
    pub force: bool,
}

/// Plans a kind, a controller, or both.
///
/// # Errors
/// When a name cannot be used, the request contradicts itself or the project, or a file is in the way.
pub fn create_api<'a>(files: &'a dyn Files, options: &CreateApi) -> Result<Plan<'a>, Diagnostic> {
    let mut change = Change::of(files, options.force)?;
    let attempted = format!("cannot create the API {}", options.subject.title());
    subject::check(&options.subject, &attempted)?;
    let image = deploy::options(options, &attempted)?;
    flags(options, &attempted)?;
    let mut resource = if options.resource {
        own(&change, options, &attempted)?
    } else {
        other(&change, options, &attempted)?
    };
    change.modules_stand(&resource, &attempted)?;
    let is_new_type = options.resource || (has_stub(&change.project, &resource) && !is_listed(&change, &resource));
    let controller = if options.controller {
        Some(name_controller(&mut change, &mut resource, options, &attempted)?)
    } else {
        None
    };
    let storage = !change
        .project
        .apis()
        .any(|other| other.same_kind(&resource) && other.version != resource.version);
    put(&mut change, &resource);
    if let Some(image) = &image {
        deploy::variable_is_free(&change.project, &resource, &attempted)?;
        change.project.remember_image(&resource, image);
    }
    if let Some(module) = resource.module.clone().filter(|_| resource.external) {
        add_dependency(&mut change, &module, &attempted)?;
    }
    if is_new_type {
        change.write_types(&resource, storage)?;
    }
    if let Some(controller) = &controller {
        change.write_controller(&resource, controller)?;
    }
    change.plan.notes.extend(options.external.of_go());
    let mut plan = change.finish()?;
    if options.ssa {
        plan.notes.push(
            "server-side apply needs nothing generated: `ctx.apply` takes every kind, and sends the fields that are set".to_owned(),
        );
    }
    if options.resource {
        plan.next.push("kubewright manifests".to_owned());
        if options.controller {
            plan.next.push("kubewright dev".to_owned());
        }
    }
    Ok(plan)
}

fn flags(options: &CreateApi, attempted: &str) -> Result<(), Diagnostic> {
    let wrong = |why: &str, fix: &str| Err(Diagnostic::new(codes::project::FLAGS, attempted).because(why).fix(fix));
    if options.ssa && !options.resource {
        return wrong(
            "--ssa is about the types of a kind of this project",
            "pass --resource, or omit --ssa",
        );
    }
    if options.resource && options.external.is_given() {
        return wrong(
            "--external-api-path, --external-api-domain and --external-api-module describe a type of another project, which --resource would make one of this project",
            "pass --resource=false, or omit the --external-api flags",
        );
    }
    if !options.resource && !options.controller {
        return wrong(
            "with --resource=false and --controller=false there is nothing to create",
            "pass --resource, --controller or both",
        );
    }
    if !options.controller && options.controller_name.is_some() {
        return wrong(
            "--controller-name names a controller, and none is created",
            "add --controller",
        );
    }
    if !options.resource && options.plural.is_some() && !options.external.is_given() {
        return wrong(
            "--plural is the plural of a new type, and none is created",
            "leave --plural out",
        );
    }
    Ok(())
}

fn is_listed(change: &Change<'_>, resource: &Resource) -> bool {
    change
        .project
        .find(&resource.full_group(), &resource.version, &resource.kind)
        .is_some()
}

/// A type of the project's own, checked against the others of the project.
fn own(change: &Change<'_>, options: &CreateApi, attempted: &str) -> Result<Resource, Diagnostic> {
    let project = &change.project;
    let Subject { group, version, kind } = &options.subject;
    names::group(group, &project.domain)
        .and_then(|()| names::own_group(group, &project.domain))
        .map_err(|wrong| bad_name(attempted, "--group", group, &wrong))?;
    let mut resource = Resource::own(group, &project.domain, version, kind, options.namespaced);
    let full_group = resource.full_group();
    if let Some(there) = project.find(&full_group, version, kind) {
        if there.api.is_some() && !options.force {
            return Err(Diagnostic::new(codes::project::TAKEN, attempted)
                .because(format!("the project has the API {} already", there.title()))
                .fix(format!(
                    "edit {}; a controller for it is added with --resource=false --controller; --force writes the scaffold over it",
                    project.layout(there).types_file()
                )));
        }
        resource = Resource {
            api: resource.api,
            ..there.clone()
        };
    }
    if let Some(other) = project.apis().find(|other| other.full_group() != full_group)
        && !project.multigroup
    {
        return Err(Diagnostic::new(codes::project::MULTIGROUP, attempted)
            .because(format!(
                "the project has the group {}, and its files are laid out for one group",
                other.full_group()
            ))
            .fix("kubewright edit --multigroup, which moves the files; then run this command again"));
    }
    let sibling = project.apis().find(|other| other.same_kind(&resource));
    resource.plural = match (&options.plural, sibling) {
        (Some(plural), _) => {
            names::plural_name(plural).map_err(|wrong| bad_name(attempted, "--plural", plural, &wrong))?;
            irregular(kind, plural)
        }
        (None, Some(sibling)) => sibling.plural.clone(),
        (None, None) => resource.plural,
    };
    resource.path = Some(subject::module_of(
        project,
        &Resource {
            path: None,
            ..resource.clone()
        },
    ));
    agrees(change, &resource, sibling, attempted)?;
    Ok(resource)
}

/// The facts that all versions of a kind share, and those that no two kinds may share.
fn agrees(
    change: &Change<'_>,
    resource: &Resource,
    sibling: Option<&Resource>,
    attempted: &str,
) -> Result<(), Diagnostic> {
    let project = &change.project;
    if let Some(sibling) = sibling.filter(|sibling| sibling.version != resource.version) {
        let scope = |resource: &Resource| {
            if resource.is_namespaced() {
                "namespaced"
            } else {
                "cluster-scoped"
            }
        };
        let mut differs = Vec::new();
        if sibling.plural() != resource.plural() {
            differs.push(format!("plural {} (not {})", sibling.plural(), resource.plural()));
        }
        if scope(sibling) != scope(resource) {
            differs.push(format!("scope {} (not {})", scope(sibling), scope(resource)));
        }
        if !differs.is_empty() {
            return Err(Diagnostic::new(codes::project::FLAGS, attempted)
                .because(format!(
                    "all versions of a kind share one CRD, and {} has {}",
                    sibling.title(),
                    differs.join(" and ")
                ))
                .fix(format!(
                    "pass --plural={} --namespaced={}",
                    sibling.plural(),
                    sibling.is_namespaced()
                )));
        }
    }
    let taken = |why: String, fix: &str| Err(Diagnostic::new(codes::project::TAKEN, attempted).because(why).fix(fix));
    if let Some((_, why)) = names_meet(project, resource) {
        return taken(why, "give another one with --plural, or choose another kind");
    }
    if let Some(other) = types_meet(project, resource) {
        return taken(
            format!(
                "its Rust types or files would be called as those of {} ({kind}, {kind}Spec, {kind}Status)",
                other.title(),
                kind = rust::kind(&other.kind)
            ),
            "choose another kind, or another version for it",
        );
    }
    if let Some(other) = groups_meet(project, resource) {
        return taken(
            format!(
                "the groups {} and {} would be the same Rust module",
                other.full_group(),
                resource.full_group()
            ),
            "choose another group",
        );
    }
    Ok(())
}

/// A type that the project uses: its own, one of Kubernetes, or a foreign one.
fn other(change: &Change<'_>, options: &CreateApi, attempted: &str) -> Result<Resource, Diagnostic> {
    let project = &change.project;
    if let Some(there) = subject::find(project, &options.subject) {
        return Ok(there.clone());
    }
    if options.external.is_given() {
        let mut resource = subject::external(project, &options.subject, &options.external, attempted)?;
        if let Some(plural) = &options.plural {
            names::plural_name(plural).map_err(|wrong| bad_name(attempted, "--plural", plural, &wrong))?;
            resource.plural = irregular(&resource.kind, plural);
        }
        if let Some(there) = project.find(&resource.full_group(), &resource.version, &resource.kind) {
            return Ok(there.clone());
        }
        return match groups_meet(project, &resource) {
            Some(other) => Err(Diagnostic::new(codes::project::TAKEN, attempted).because(format!(
                "the groups {} and {} would be the same Rust module",
                other.full_group(),
                resource.full_group()
            ))),
            None => Ok(resource),
        };
    }
    if let Some(core) = subject::core(&options.subject, attempted)? {
        return Ok(core);
    }
    Err(unknown(change, &options.subject, attempted))
}

/// The error for a kind that neither the project nor Kubernetes has.
pub(super) fn unknown(change: &Change<'_>, subject: &Subject, attempted: &str) -> Diagnostic {
    let (project, title) = (&change.project, subject.title());
    Diagnostic::new(codes::project::UNKNOWN, attempted)
        .because(format!("neither the project nor Kubernetes has an API {title}"))
        .because(format!("the project has: {}", subject::list(project)))
        .fix(format!(
            "a kind of your own: kubewright create api --group {} --version {} --kind {} --resource; somebody else's: --external-api-domain DOMAIN",
            subject.group, subject.version, subject.kind
        ))
}

/// Enters a controller into the resource, and says which file it gets.
fn name_controller(
    change: &mut Change<'_>,
    resource: &mut Resource,
    options: &CreateApi,
    attempted: &str,
) -> Result<ControllerFile, Diagnostic> {
    let default = change.project.default_controller_name(resource);
    let taken = |why: String, fix: &str| Err(Diagnostic::new(codes::project::TAKEN, attempted).because(why).fix(fix));
    let name = options.controller_name.clone().unwrap_or_else(|| default.clone());
    if let Some(typed) = &options.controller_name {
        names::controller(typed).map_err(|wrong| bad_name(attempted, "--controller-name", typed, &wrong))?;
    }
    let is_default = name == default;
    let mine = change.project.controller_names(resource);
    let again = options.force && mine.contains(&name);
    if !again {
        if options.controller_name.is_none() && !mine.is_empty() {
            return taken(
                format!("{} has the controller {} already", resource.title(), mine.join(", ")),
                "name the second one: --controller-name NAME",
            );
        }
        for other in &change.project.resources {
            let names = change.project.controller_names(other);
            // foo-bar and foo_bar would be one file.
            if let Some(there) = names.iter().find(|there| rust::module(there) == rust::module(&name)) {
                return taken(
                    format!("{} has a controller named {there} already", other.title()),
                    "pass another --controller-name, or --controller=false",
                );
            }
            let layout = change.project.layout(other);
            let same_folder = layout.controller_folder() == change.project.layout(resource).controller_folder();
            let stems = names
                .iter()
                .any(|there| *there == change.project.default_controller_name(other))
                && same_folder
                && !other.is(&resource.full_group(), &resource.version, &resource.kind)
                && layout.stem == rust::part(options.controller_name.as_deref().unwrap_or(&resource.kind));
            if stems {
                return taken(
                    format!(
                        "{} has a controller in {} already",
                        other.title(),
                        layout.controller_file(None)
                    ),
                    "name this one: --controller-name NAME",
                );
            }
        }
        enter(resource, &name, &default, is_default);
    }
    Ok(ControllerFile {
        file_name: (!is_default).then(|| name.clone()),
        name,
    })
}

/// One controller named after the kind is a word in PROJECT; as soon as there is another, all are listed.
fn enter(resource: &mut Resource, name: &str, default: &str, is_default: bool) {
    let entry = |name: &str| Controller {
        name: name.to_owned(),
        unknown: BTreeMap::new(),
    };
    if is_default && resource.controllers.is_empty() {
        resource.controller = true;
        return;
    }
    if resource.controller {
        resource.controller = false;
        resource.controllers.insert(0, entry(default));
    }
    resource.controllers.push(entry(name));
}

/// Enters or replaces the resource in the project.
pub(super) fn put(change: &mut Change<'_>, resource: &Resource) {
    let (group, version, kind) = (resource.full_group(), resource.version.clone(), resource.kind.clone());
    match change.project.find_mut(&group, &version, &kind) {
        Some(there) => there.clone_from(resource),
        None => change.project.resources.push(resource.clone()),
    }
}

/// Adds the crate of an external type to the dependencies: `name`, `name@version`.
pub(super) fn add_dependency(change: &mut Change<'_>, module: &str, attempted: &str) -> Result<(), Diagnostic> {
    let (name, version) = module.split_once('@').unwrap_or((module, "*"));
    let is_name = !name.is_empty()
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
        && !name.starts_with(|c: char| c.is_ascii_digit());
    // Cargo says the rest; what is no requirement at all would leave a manifest that it cannot read.
    let letters = |c: char| c.is_ascii_alphanumeric() || ".*+-^~=<>, ".contains(c);
    let is_version =
        version.starts_with(|c: char| c.is_ascii_digit() || "*^~=<>".contains(c)) && version.chars().all(letters);
    if !is_name || !is_version {
        return Err(Diagnostic::new(codes::project::FLAGS, attempted)
            .because(format!("--external-api-module {module:?} is not a crate with a version"))
            .fix("write it as CRATE@VERSION, such as cert-manager-api@0.1; without a crate leave it out, and the project gets a type for the kind"));
    }
    let path = "Cargo.toml";
    let Some(text) = change.plan.read(path)? else {
        return Err(Diagnostic::new(codes::files::EDITED, attempted).because("there is no Cargo.toml"));
    };
    let mut manifest: toml_edit::DocumentMut = text.parse().map_err(|why: toml_edit::TomlError| {
        Diagnostic::new(codes::files::EDITED, attempted)
            .at(crate::Place::file(path))
            .because(why.message())
            .fix("correct Cargo.toml and run the command again")
    })?;
    let table = manifest
        .entry("dependencies")
        .or_insert_with(toml_edit::table)
        .as_table_like_mut()
        .ok_or_else(|| {
            Diagnostic::new(codes::files::EDITED, attempted)
                .at(crate::Place::file(path).field("dependencies"))
                .because("`dependencies` is not a table")
                .fix(format!("add the dependency {module} by hand"))
        })?;
    if !table.contains_key(name) {
        table.insert(name, toml_edit::value(version));
        table.sort_values();
    }
    change.plan.write(path, manifest.to_string())
}
