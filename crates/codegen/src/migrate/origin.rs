//! The project in Go: PROJECT, go.mod and the Go files.
//!
//! Invariants: PROJECT of version 2 is read as the version 3 that it would be; a project with several groups in one
//! layout gets a folder for each group, which is the only layout that the Rust project has for them.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::checks;
use super::constraints;
use super::copies;
use super::declared;
use super::go::{self, File};
use super::gomod::{self, GoMod, Row};
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Files;
use crate::project::{self, LAYOUT, Project};
use crate::yaml;

pub(super) const ATTEMPTED: &str = "cannot carry the project over";

/// The project to carry over.
pub(super) struct Origin {
    pub(super) project: Project,
    /// The prefix of imports of the project's own packages.
    pub(super) module: String,
    /// The modules of go.mod.
    pub(super) required: Vec<Row>,
    pub(super) sources: Vec<Source>,
    /// Changes of PROJECT that its author should know.
    pub(super) notes: Vec<String>,
}

/// A Go file that was read.
pub(super) struct Source {
    pub(super) path: String,
    /// The import path of its package.
    pub(super) import: String,
    pub(super) text: String,
    pub(super) file: File,
}

impl Origin {
    pub(super) fn read(files: &dyn Files, name: Option<&str>) -> Result<Origin, Diagnostic> {
        let declared = declared(files)?;
        let mut notes = Vec::new();
        let mut sources = sources(files, &mut notes)?;
        let project = project(files, name, &mut sources, &mut notes)?;
        let module = declared.module.unwrap_or_else(|| project.repo.clone());
        for source in &mut sources {
            source.import = import(&module, super::folder(&source.path));
        }
        share_markers(&mut sources);
        checks::packages(&sources)?;
        Ok(Origin {
            module,
            required: declared.rows,
            project,
            sources,
            notes,
        })
    }
}

/// go.mod, if there is one: a project in GOPATH has none, and PROJECT names its repository.
fn declared(files: &dyn Files) -> Result<GoMod, Diagnostic> {
    let Some(text) = files.read("go.mod")? else {
        return Ok(GoMod::default());
    };
    gomod::read(&text).map_err(|(line, why)| {
        Diagnostic::new(codes::source::SYNTAX, ATTEMPTED)
            .at(Place::file("go.mod").line(line))
            .because(why)
            .fix("run Go's own check of the file: go mod edit -json")
    })
}

/// A marker before `package` in one file holds for all files of the package.
pub(super) fn share_markers(sources: &mut [Source]) {
    let mut markers: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for source in sources.iter() {
        let of_package = markers.entry(source.import.clone()).or_default();
        of_package.extend(source.file.doc.markers.iter().cloned());
    }
    for source in sources {
        source.file.doc.markers = markers.get(&source.import).cloned().unwrap_or_default();
    }
}

/// The import path of the package in a folder of this module.
pub(super) fn import(module: &str, folder: &str) -> String {
    if folder.is_empty() {
        module.to_owned()
    } else {
        format!("{module}/{folder}")
    }
}

/// PROJECT, with our layout in the place of Go's.
fn project(
    files: &dyn Files,
    name: Option<&str>,
    sources: &mut [Source],
    notes: &mut Vec<String>,
) -> Result<Project, Diagnostic> {
    let wrong = |why: String| {
        Diagnostic::new(codes::project::FOREIGN, ATTEMPTED)
            .at(Place::file(project::FILE))
            .because(why)
            .fix("name the folder of a kubebuilder project, in which PROJECT is")
    };
    let text = files
        .read(project::FILE)?
        .ok_or_else(|| wrong("the folder has no file named PROJECT".to_owned()))?;
    let mut fields = yaml::parse(&text).map_err(&wrong)?;
    if !fields.is_object() {
        return Err(wrong("it is not a YAML mapping".to_owned()));
    }
    if fields["layout"].to_string().contains("rust.kubewright.dev/") || sources.is_empty() {
        return Err(wrong(
            "the folder has no Go project: there is no Go file, or PROJECT is of kubewright's layout already"
                .to_owned(),
        ));
    }
    if fields["version"] == "2" {
        renew(&mut fields, sources);
        notes.push("PROJECT has version 2, which does not list what is scaffolded: kinds are taken as namespaced, with a controller where a Reconcile names them".to_owned());
    }
    fields["layout"] = json!([LAYOUT]);
    if let Some(name) = name {
        fields["projectName"] = name.into();
    }
    copies::choose(&fields, sources, notes)?;
    declared::complete(&mut fields, sources, notes);
    name_builtin(&mut fields, sources);
    if is_mixed(&fields) && fields["multigroup"] != true {
        fields["multigroup"] = true.into();
        notes.push("the kinds are of several groups: each has a folder in Rust (multigroup: true)".to_owned());
    }
    // What operator-sdk adds for bundles means the same here.
    let kept = fields["plugins"].as_object().cloned().unwrap_or_default();
    let kept: serde_json::Map<String, serde_json::Value> = kept
        .into_iter()
        .filter(|(key, _)| key.starts_with("scorecard.sdk.operatorframework.io/"))
        .collect();
    if let Some(map) = fields.as_object_mut() {
        map.retain(|key, _| !["plugins", "cliVersion", "componentConfig"].contains(&key.as_str()));
        if !kept.is_empty() {
            map.insert("plugins".to_owned(), kept.into());
        }
    }
    for resource in resources(&mut fields) {
        let is_own = declared::is_own(resource);
        if let Some(resource) = resource.as_object_mut().filter(|_| is_own) {
            resource.remove("path");
        }
        // Old projects have v1beta1, which no Kubernetes serves any more.
        for (part, field) in [("api", "crdVersion"), ("webhooks", "webhookVersion")] {
            if resource[part].is_object() {
                resource[part][field] = "v1".into();
            }
        }
    }
    // A name that was fit for Go may be too long here.
    let parsed = Project::parse(&yaml::to_string(&fields));
    parsed.map_err(
        |wrong| match name.is_none() && wrong.to_string().contains("as projectName") {
            true => wrong.fix("give the project in Rust a shorter name: --project-name NAME"),
            false => wrong,
        },
    )
}

/// The resources that PROJECT lists.
pub(super) fn resources(fields: &mut Value) -> impl Iterator<Item = &mut Value> {
    fields
        .get_mut("resources")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
}

/// Says of kinds that Kubernetes has itself that it does: older files and hand-written ones do not, but name the
/// package, or their controller does.
fn name_builtin(fields: &mut Value, sources: &[Source]) {
    const PACKAGES: &str = "k8s.io/api/";
    let own: Vec<Value> = resources(fields)
        .filter(|resource| !resource["api"].is_null())
        .map(|api| (*api).clone())
        .collect();
    for resource in resources(fields) {
        let is_known = !declared::is_own(resource) || !resource["api"].is_null();
        let is_own = own
            .iter()
            .any(|api| api["kind"] == resource["kind"] && api["group"] == resource["group"]);
        if is_known || is_own {
            continue;
        }
        let kind = resource["kind"].as_str().unwrap_or_default();
        let path = resource["path"]
            .as_str()
            .filter(|path| path.starts_with(PACKAGES))
            .map(str::to_owned);
        let package = path.or_else(|| sources.iter().find_map(|source| source.builtin(kind)));
        let package = package
            .as_deref()
            .and_then(|path| path.strip_prefix(PACKAGES)?.split_once('/'));
        let Some((group, version)) = package else { continue };
        let (group, domain) = match group {
            "core" | "apps" | "batch" | "autoscaling" | "policy" => (group, ""),
            "rbac" => ("rbac.authorization", "k8s.io"),
            other => (other, "k8s.io"),
        };
        for (field, value) in [("group", group), ("domain", domain), ("version", version)] {
            resource[field] = value.into();
        }
        resource["core"] = true.into();
        if let Some(resource) = resource.as_object_mut() {
            resource.retain(|key, value| key != "path" && !(key == "domain" && *value == ""));
        }
    }
}

/// Whether own kinds are of several groups.
fn is_mixed(fields: &Value) -> bool {
    let own = fields["resources"].as_array().into_iter().flatten();
    let own = own.filter(|resource| declared::is_own(resource));
    let groups: std::collections::BTreeSet<[&str; 2]> = own
        .map(|resource| ["group", "domain"].map(|key| resource[key].as_str().unwrap_or_default()))
        .collect();
    groups.len() > 1
}

/// Makes version 3 of PROJECT out of version 2.
fn renew(fields: &mut Value, sources: &[Source]) {
    fields["version"] = "3".into();
    if fields["projectName"].is_null() {
        let repo = fields["repo"].as_str().unwrap_or_default().trim_end_matches('/');
        let mut parts = repo.rsplit('/');
        let last = parts.next().unwrap_or_default();
        // `…/operator/v2` is called operator.
        let is_version = last.strip_prefix('v').is_some_and(|rest| rest.parse::<u32>().is_ok());
        let name = if is_version { parts.next().unwrap_or(last) } else { last };
        fields["projectName"] = name.to_ascii_lowercase().into();
    }
    let domain = fields["domain"].clone();
    for resource in resources(fields) {
        let kind = resource["kind"].as_str().unwrap_or_default();
        let is_reconciled = sources.iter().any(|source| source.reconciles(kind));
        resource["api"] = json!({ "crdVersion": "v1", "namespaced": true });
        resource["controller"] = is_reconciled.into();
        resource["domain"] = domain.clone();
    }
}

impl Source {
    /// Whether a controller of this kind stands in the file.
    pub(super) fn reconciles(&self, kind: &str) -> bool {
        let mut functions = self.file.functions.iter();
        self.text.contains(&format!("{kind}{{}}"))
            && functions.any(|function| function.name == "Reconcile" && function.receiver.is_some())
    }
}

impl Source {
    /// Whether a controller in this file says that it is about this kind.
    pub(super) fn is_for(&self, kind: &str) -> bool {
        let said = self.text.split("For(&").skip(1);
        let mut names = said.filter_map(|rest| rest.split_once("{}"));
        names.any(|(name, _)| name.rsplit('.').next() == Some(kind))
    }

    /// The package of Kubernetes whose kind a controller in this file is about.
    fn builtin(&self, kind: &str) -> Option<String> {
        if !self.reconciles(kind) {
            return None;
        }
        let mut imports = self.file.imports.iter();
        let (_, path) = imports.find(|(alias, path)| {
            path.starts_with("k8s.io/api/") && self.text.contains(&format!("For(&{alias}.{kind}{{}}"))
        })?;
        Some(path.clone())
    }
}

/// All Go files but tests, generated ones and other people's.
fn sources(files: &dyn Files, notes: &mut Vec<String>) -> Result<Vec<Source>, Diagnostic> {
    let mut sources = Vec::new();
    let mut excluded: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for path in files.list("")? {
        let name = path.rsplit('/').next().unwrap_or_default();
        let is_foreign = path
            .split('/')
            .any(|part| matches!(part, "vendor" | "test" | "testdata" | "hack") || constraints::is_ignored(part));
        if is_foreign || !constraints::is_source(name) {
            continue;
        }
        let text = files.read(&path)?.unwrap_or_default();
        if let Some(why) = constraints::excluded(&path, &text) {
            excluded.entry(why).or_default().push(path);
            continue;
        }
        let wrong = |(line, why): (usize, String)| {
            Diagnostic::new(codes::source::SYNTAX, ATTEMPTED)
                .at(Place::file(&path).line(line))
                .because(why)
                .fix("see that the project builds: go vet ./...")
        };
        let mut file = go::parse(&text).map_err(wrong)?;
        file.path.clone_from(&path);
        if let Some(tag) = file.wrong_tags.first() {
            return Err(wrong(tag.clone()));
        }
        sources.push(Source {
            path,
            import: String::new(),
            text,
            file,
        });
    }
    notes.extend(excluded.into_iter().map(|(why, paths)| {
        let paths = paths.join(", ");
        format!("Go leaves files out of a build for Linux ({why}), so nothing was made of them: {paths}")
    }));
    Ok(sources)
}
