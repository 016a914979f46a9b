//! `migrate`: a kubebuilder project in Go, said in Rust.
//!
//! [`migrate`] reads PROJECT and the Go files (declarations, by a parser of the language's grammar), scaffolds a
//! project with the same names, and writes the types with every marker said in Rust; controllers and webhooks are
//! skeletons with the Go text beside them in comments. Invariants: the Go project is only read; a part that cannot be
//! expressed is noted with its place and left to a person; the result compiles as far as the notes say. Inside: `go`
//! parses, `origin`, `declared`, `copies`, `gomod`, `constraints` and `modules` read the project and its required
//! modules, `checks` refuses packages that do not build, `markers` and `arguments` read markers; `types`, `fields`,
//! `keywords`, `named`, `circles`, `embedded`, `shared`, `kinds`, `bodies` and `words` write Rust, which `outcome`
//! checks. `config` carries over added manifests, `record` writes MIGRATION.md, and `kubernetes` knows the types that
//! Rust has. Not here: the bodies of Go's functions, conversions between versions.

use std::collections::{BTreeMap, BTreeSet};

use crate::diagnostic::Diagnostic;
use crate::manifests;
use crate::names;
use crate::plan::{Files, MemoryFiles};
use crate::project::{Project, Resource};
use crate::scaffold::{
    CreateApi, CreateWebhook, Dependency, External, Init, License, Subject, TESTS, create_api, create_webhook, init,
    step, test_module,
};
use crate::source::Source as Edited;

mod arguments;
mod bodies;
mod checks;
mod circles;
mod config;
mod constraints;
mod copies;
mod declared;
mod embedded;
mod fields;
mod go;
mod gomod;
mod grants;
mod keywords;
mod kinds;
mod kubernetes;
mod markers;
mod modules;
mod named;
mod origin;
mod outcome;
mod record;
mod shared;
mod types;
mod watched;
mod words;

#[cfg(test)]
mod tests;

use modules::Modules;
use origin::{Origin, Source};
use types::{Attributes, Package, Types};

pub use modules::ModuleCache;

/// The result of a migration.
#[derive(Debug)]
pub struct Migrated {
    /// The Rust project.
    pub files: MemoryFiles,
    /// The tasks that were left to a person, in words.
    pub notes: Vec<String>,
    /// How many kinds were carried over.
    pub kinds: usize,
}

/// Reads a project in Go and says it in Rust, under another name if one is given. Types of other modules are read from
/// `vendor/` and the module cache.
///
/// # Errors
/// When there is no PROJECT of version 2 or 3, a Go file is no Go, or a name cannot be used here.
pub fn migrate(
    files: &dyn Files,
    cache: Option<ModuleCache<'_>>,
    name: Option<&str>,
    dependency: &Dependency,
    cli_version: &str,
) -> Result<Migrated, Diagnostic> {
    let Origin {
        mut project,
        module,
        required,
        sources,
        notes,
    } = Origin::read(files, name)?;
    for resource in project.resources.iter_mut().filter(|resource| resource.api.is_some()) {
        let generated = names::generated_plural(&resource.kind);
        if generated != resource.plural() {
            resource.plural.get_or_insert(generated);
        }
    }
    let modules = Modules::new(files, cache, required);
    let mut made = MemoryFiles::default();
    let options = Init {
        name: project.name.clone(),
        domain: project.domain.clone(),
        repo: project.repo.clone(),
        owner: String::new(),
        license: License::Apache2,
        boilerplate: None,
        multigroup: project.multigroup,
        namespaced: project.namespaced,
        plugins: Vec::new(),
        external: Vec::new(),
        dependency: dependency.clone(),
        cli_version: cli_version.to_owned(),
    };
    let mut migration = Migration {
        project: &project,
        module: &module,
        notes,
        kinds: 0,
        told: BTreeSet::new(),
        hooks: BTreeSet::new(),
    };
    step(&mut made, |files| init(files, &options))?;
    migration.scaffold(&mut made)?;
    migration.types(&sources, &modules, &mut made)?;
    migration.bodies(&sources, &mut made)?;
    migration.notes.extend(decide(files, &mut made)?);
    migration.notes.extend(grants::by_hand(files, &sources)?);
    for path in files.list("config/samples")? {
        // An example that a person wrote says more than ours.
        if made.0.contains_key(&path)
            && !path.ends_with("kustomization.yaml")
            && let Some(text) = files.read(&path)?
        {
            made.0.insert(path, text);
        }
    }
    migration.told.append(&mut migration.hooks);
    let config = config::carry(files, &mut made)?;
    let record = record::written(files, &sources, &migration.told, &migration.notes, &config)?;
    made.0.insert(record::RECORD.to_owned(), record);
    Ok(Migrated {
        files: made,
        notes: migration.notes,
        kinds: migration.kinds,
    })
}

struct Migration<'p> {
    project: &'p Project,
    /// The prefix of imports of its packages.
    module: &'p str,
    notes: Vec<String>,
    kinds: usize,
    /// The Go files whose text stands below controllers, which say their rules, too.
    told: BTreeSet<String>,
    /// … and below webhooks.
    hooks: BTreeSet<String>,
}

impl Migration<'_> {
    fn scaffold(&mut self, made: &mut MemoryFiles) -> Result<(), Diagnostic> {
        for resource in &self.project.resources {
            if !self.is_known(resource) {
                self.notes.push(format!(
                    "{}: PROJECT calls it neither a kind of the project's nor an external one; its controller was left out",
                    resource.title()
                ));
                continue;
            }
            let subject = Subject::of(resource);
            let default = self.project.default_controller_name(resource);
            if let Some(api) = &resource.api {
                let options = CreateApi {
                    subject: subject.clone(),
                    plural: resource.plural.clone(),
                    namespaced: api.namespaced,
                    resource: true,
                    ..CreateApi::default()
                };
                step(made, |files| create_api(files, &options))?;
            }
            for name in self.project.controller_names(resource) {
                let options = CreateApi {
                    subject: subject.clone(),
                    controller: true,
                    controller_name: (name != default).then_some(name),
                    external: external(resource),
                    ..CreateApi::default()
                };
                step(made, |files| create_api(files, &options))?;
            }
        }
        for resource in &self.project.resources {
            let Some(webhooks) = &resource.webhooks else { continue };
            if webhooks.conversion {
                self.notes.push(format!(
                    "{}: conversions are not carried over; when the types are right, kubewright create webhook --conversion --spoke …",
                    resource.kind
                ));
            }
            if !webhooks.defaulting && !webhooks.validation {
                continue;
            }
            let options = CreateWebhook {
                subject: Subject::of(resource),
                defaulting: webhooks.defaulting,
                validation: webhooks.validation,
                defaulting_path: webhooks.defaulting_path.clone(),
                validation_path: webhooks.validation_path.clone(),
                external: external(resource),
                ..CreateWebhook::default()
            };
            step(made, |files| create_webhook(files, &options))?;
        }
        Ok(())
    }

    /// Whether it can be said whose kind this is.
    fn is_known(&self, resource: &Resource) -> bool {
        let has_api = resource.api.is_some() || self.project.apis().any(|api| api.same_kind(resource));
        has_api || resource.external || resource.core
    }

    /// The types, in the place of the scaffold's.
    fn types(&mut self, sources: &[Source], modules: &Modules<'_>, made: &mut MemoryFiles) -> Result<(), Diagnostic> {
        let project = Project::load(made)?;
        let mut packages: BTreeMap<String, Package<'_>> = BTreeMap::new();
        let mut places: BTreeMap<String, Vec<&Resource>> = BTreeMap::new();
        for resource in project.apis() {
            match package_of(resource, sources) {
                Some(folder) => places.entry(folder.to_owned()).or_default().push(resource),
                None => self.notes.push(format!(
                    "{}: no Go file declares it; its type is the scaffold's",
                    resource.title()
                )),
            }
        }
        for source in sources {
            let folder = folder(&source.path);
            let Some(resources) = places.get(folder) else { continue };
            let module = format!("crate::{}", project.layout(resources[0]).api_modules.join("::"));
            let package = packages
                .entry(source.import.clone())
                .or_insert_with(|| Package::new(module));
            package.add(source);
        }
        let foreign = shared::foreign(&packages, sources, modules, &mut self.notes);
        let shared = shared::packages(&packages, sources.iter().chain(&foreign));
        let folders: Vec<(String, String)> = shared
            .iter()
            .map(|(import, package)| (import.clone(), package.module.clone()))
            .collect();
        packages.extend(shared);
        let mut types = Types::new(packages);
        shared::write(&folders, &mut types, made);
        for (folder, resources) in &places {
            self.package(folder, resources, &project, sources, &mut types, made);
        }
        checks::refused(types.wrong)?;
        self.notes.extend(types.notes);
        outcome::compiles(made)
    }

    /// One version of a group: the types of each kind's file in its file, all others in `types.rs`.
    fn package<'p>(
        &mut self,
        folder: &str,
        resources: &[&Resource],
        project: &Project,
        sources: &'p [Source],
        types: &mut Types<'p>,
        made: &mut MemoryFiles,
    ) {
        let import = origin::import(self.module, folder);
        let mut roots = BTreeMap::new();
        let declared = types
            .packages
            .get(&import)
            .map(|package| package.types.clone())
            .unwrap_or_default();
        for resource in resources {
            let Some((decl, file)) = declared.get(&resource.kind) else {
                continue;
            };
            match kinds::root(decl, file) {
                Ok(mut root) => {
                    // Of two kinds with the same spec, the second one is said whole.
                    root.spec = root.spec.filter(|spec| !roots.contains_key(spec));
                    if root.has_plain_status() {
                        self.notes.push(format!(
                            "{}: its status has no subresource in Go; kube has none without, so it was left out",
                            resource.kind
                        ));
                    }
                    roots.insert(root.spec.unwrap_or(&resource.kind), (root, *resource));
                    self.kinds += 1;
                }
                Err(why) => self.notes.push(format!("{why}; its type is the scaffold's")),
            }
        }
        let mut files: BTreeMap<String, String> = BTreeMap::new();
        let used = shared::used(&import, &declared);
        for source in sources.iter().filter(|source| self::folder(&source.path) == folder) {
            let home = roots
                .values()
                .find(|(root, _)| source.file.types.contains(root.decl))
                .map(|(_, resource)| project.layout(resource).types_file());
            for decl in &source.file.types {
                let is_root = resources.iter().any(|resource| resource.kind == decl.name);
                let is_list = embedded::embeds(&decl.of, "ListMeta")
                    && decl
                        .name
                        .strip_suffix("List")
                        .is_some_and(|kind| resources.iter().any(|resource| resource.kind == kind));
                let is_webhook = decl.name.ends_with("Defaulter") || decl.name.ends_with("Validator");
                let is_code = matches!(decl.of, go::Type::Other(_)) || is_webhook && !used.contains(&decl.name);
                let root = roots.get(decl.name.as_str());
                if is_root && root.is_none() || is_list || is_code {
                    continue;
                }
                let mut attributes = root.map_or_else(Attributes::default, |(root, resource)| {
                    root.attributes(resource, self.is_stored(root, resource, types))
                });
                let mut fields = roots.values().flat_map(|(root, _)| {
                    let names = [root.spec, root.status];
                    names.into_iter().zip(root.fields)
                });
                if let Some((_, Some(field))) = fields.find(|(name, _)| *name == Some(decl.name.as_str())) {
                    attributes.keywords = types.of_field(field, &decl.name);
                }
                let file = match root {
                    Some((_, resource)) => project.layout(resource).types_file(),
                    None => home
                        .clone()
                        .unwrap_or_else(|| format!("{}/types.rs", project.layout(resources[0]).api_folder())),
                };
                let text = types.print(&import, decl, &source.file, &attributes);
                let constants = source
                    .file
                    .counted
                    .get(&decl.name)
                    .filter(|_| !text.contains("pub enum "));
                if let Some(count) = constants {
                    let word = if *count == 1 { "constant was" } else { "constants were" };
                    let place = format!("{} ({}:{})", decl.name, source.path, decl.line);
                    types.note(format!("{place}: its {count} {word} not carried over"));
                }
                files.entry(file).or_default().push_str(&text);
            }
        }
        let layout = project.layout(resources[0]);
        let module = format!("{}/mod.rs", layout.api_folder());
        let mut lines: Vec<String> = Vec::new();
        let mut is_list = false;
        for line in made.0.get(&module).map(String::as_str).unwrap_or_default().lines() {
            if is_list {
                is_list = !line.ends_with(';');
                continue;
            }
            // The declarations of a file are not known any more: all of them are re-exported.
            let reexport = line.strip_prefix("pub use ").and_then(|rest| rest.split_once("::"));
            is_list = reexport.is_some() && !line.ends_with(';');
            lines.push(match reexport {
                Some((file, _)) => format!("pub use {file}::*;"),
                None => line.to_owned(),
            });
        }
        if files.contains_key(&format!("{}/types.rs", layout.api_folder())) {
            lines.push("\nmod types;\n\npub use types::*;".to_owned());
        }
        made.0.insert(module, lines.join("\n") + "\n");
        for (file, text) in files {
            let about = format!("//! Types of `{}`", layout.api_modules.join("::"));
            let text = types_file(&about, folder, &text, "#[allow(unused_imports)]\nuse super::*;\n");
            made.0.insert(file, text);
        }
    }

    /// The version with the marker is stored; without one, the only one is, or the first.
    fn is_stored(&self, root: &kinds::Root<'_>, resource: &Resource, types: &Types<'_>) -> bool {
        let mut others = self
            .project
            .apis()
            .filter(|other| other.same_kind(resource) && other.version != resource.version)
            .peekable();
        if others.peek().is_none() || root.has_marker("storageversion") {
            return true;
        }
        let marked = types
            .packages
            .values()
            .filter_map(|package| package.types.get(&resource.kind));
        let is_marked = marked.into_iter().any(|(decl, _)| {
            decl.doc
                .markers
                .iter()
                .any(|marker| marker == "kubebuilder:storageversion")
        });
        !is_marked
            && self
                .project
                .apis()
                .find(|other| other.same_kind(resource))
                .is_some_and(|first| first.version == resource.version)
    }

    /// Controllers and webhooks: the Go text beside the skeletons, roles in words of Rust.
    fn bodies(&mut self, sources: &[Source], made: &mut MemoryFiles) -> Result<(), Diagnostic> {
        let project = Project::load(made)?;
        self.notes.extend(sources.iter().flat_map(bodies::wrong_rules));
        for resource in &project.resources {
            let layout = project.layout(resource);
            let default = project.default_controller_name(resource);
            for name in project.controller_names(resource) {
                let file = layout.controller_file((name != default).then_some(name.as_str()));
                let source = bodies::controller_of(&resource.kind, sources);
                if source.is_none() {
                    self.notes
                        .push(format!("{file}: no Go controller of {} was found", resource.kind));
                }
                let text = made.0.remove(&file).unwrap_or_default();
                let mut text = bodies::controller(&text, source);
                if let Some(source) = source {
                    let watched = watched::of(source, sources, &project, &name);
                    text = watched::declared(&file, text, &watched.calls)?;
                    self.notes.extend(watched.notes);
                }
                made.0.insert(file, text);
                self.told.extend(source.map(|source| source.path.clone()));
                if resource.api.is_some() {
                    // Ours waits for a condition that the status may not have.
                    let named = layout.controller_file((name != default).then_some(name.as_str()));
                    let stem = file_stem(&named);
                    remove_tests(made, stem)?;
                }
            }
            if resource.webhooks.is_some() {
                let file = layout.webhook_file();
                let made_of = format!("{}{{}}", resource.kind);
                let is_of = |source: &&Source| {
                    source.path.ends_with("_webhook.go")
                        && source.text.contains(&made_of)
                        && folder(&source.path).ends_with(&resource.version)
                };
                if let (Some(source), Some(text)) = (sources.iter().find(is_of), made.0.get_mut(&file)) {
                    text.push_str(&bodies::beside(source));
                    self.hooks.insert(source.path.clone());
                }
            }
        }
        if let Some(manifest) = made.0.get_mut("api/Cargo.toml") {
            let lib = "[lib]\ndoctest = false # comments in Go have indented lines, which are no Rust\n\n[lints]\n";
            *manifest = manifest.replacen("[lints]\n", lib, 1);
        }
        if let Some(library) = made.0.get_mut("src/lib.rs") {
            *library = bodies::of_operator(library, sources, &self.told);
        }
        Ok(())
    }
}

/// Takes the tests of a controller away, with their declarations.
fn remove_tests(made: &mut MemoryFiles, stem: &str) -> Result<(), Diagnostic> {
    let program = made.0.get(TESTS).map_or("", String::as_str);
    let mut program = Edited::parse(TESTS, program)?;
    made.0.retain(|path, _| {
        let gone = test_module(path).filter(|module| module.ends_with(stem));
        gone.map(|module| program.remove_module(module)).is_none()
    });
    made.0.insert(TESTS.to_owned(), program.into_text());
    Ok(())
}

/// A file of types, with its imports.
fn types_file(about: &str, folder: &str, text: &str, siblings: &str) -> String {
    let uses = [
        ("CustomResource", "use kube::CustomResource;\n"),
        (
            "JsonSchema",
            "use schemars::JsonSchema;\nuse serde::{Deserialize, Serialize};\n",
        ),
    ];
    let uses = uses.iter().filter(|(word, _)| text.contains(word));
    let uses: String = uses.map(|(_, line)| *line).collect();
    format!(
        "{about}, carried over from {folder} of the project in Go.\n\n{uses}\n{siblings}\n{}\n",
        text.trim_end()
    )
}

/// Takes the flags of controller-gen in Go's Makefile over as settings of the project: whether the metadata of
/// templates is kept, and how long descriptions are.
fn decide(files: &dyn Files, made: &mut MemoryFiles) -> Result<Option<String>, Diagnostic> {
    let makefile = files.read("Makefile")?.unwrap_or_default();
    let is_dropped = makefile.contains("crd") && !makefile.contains("generateEmbeddedObjectMeta=true");
    let mut types = made.0.iter().filter(|(path, _)| path.starts_with("api/src/"));
    let has_templates = types.any(|(_, text)| TEMPLATES.iter().any(|word| text.contains(word)));
    let longest = makefile
        .split_once("maxDescLen=")
        .map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).collect::<String>());
    let longest = longest.and_then(|digits| digits.parse().ok());
    let Some(settings) = manifests::settings_text(!(is_dropped && has_templates), longest) else {
        return Ok(None);
    };
    let text = format!("# As the Makefile of the project in Go tells controller-gen.\n{settings}");
    made.0.insert(manifests::SETTINGS.to_owned(), text);
    Ok((is_dropped && has_templates).then(|| {
        "the definitions drop name, labels and annotations of templates, as those of this project in Go do; \
         without generate-embedded-object-meta = false in kubewright.toml they are kept"
            .to_owned()
    }))
}

/// Names of Kubernetes' types that have metadata inside.
const TEMPLATES: [&str; 8] = [
    "::ObjectMeta",
    "::PodSpec",
    "::PodTemplateSpec",
    "::PersistentVolumeClaim",
    "::Volume",
    "::JobTemplateSpec",
    "::api::apps::",
    "::api::batch::",
];

fn external(resource: &Resource) -> External {
    External {
        domain: resource.external.then(|| resource.domain.clone()),
        ..External::default()
    }
}

fn folder(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn file_stem(path: &str) -> &str {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.strip_suffix(".rs").unwrap_or(name)
}

/// The folder of the package that declares a kind: of its version, and of its group where several have it.
fn package_of<'s>(resource: &Resource, sources: &'s [Source]) -> Option<&'s str> {
    let declares = |source: &&Source| {
        source.file.package == resource.version.replace('-', "")
            || source.path.split('/').any(|part| part == resource.version)
    };
    let mut found: Vec<&str> = sources
        .iter()
        .filter(declares)
        .filter(|source| {
            source
                .file
                .types
                .iter()
                .any(|decl| decl.name == resource.kind && matches!(decl.of, go::Type::Struct(_)))
        })
        .map(|source| folder(&source.path))
        .collect();
    found.sort_by_key(|folder| !folder.split('/').any(|part| part == resource.group));
    found.first().copied()
}
