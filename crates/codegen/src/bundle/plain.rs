//! A bundle of manifests that somebody else rendered: what kustomize or a folder has, for projects in any language
//! (`operator-sdk generate bundle`).
//!
//! The manifests hold everything: Deployments, roles, definitions, their examples, perhaps the base and scorecard's
//! configuration. Not here: where they come from (standard input or a folder), which is the command's.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::kustomize;
use crate::plan::{Files, Plan};
use crate::project::Project;
use crate::yaml;

use super::{Options, Sources, check, csv, webhooks};

/// The manifests, and what is said beside them.
#[derive(Clone, Debug, Default)]
pub struct Input {
    /// Names of files (for errors), and their texts.
    pub manifests: Vec<(String, String)>,
    /// The folder of the project's kustomization for bundles, with the base in `bases`.
    pub kustomize_folder: String,
}

/// Plans the bundle of rendered manifests. The project may be of any language, or none.
///
/// # Errors
/// When a manifest cannot be read, the package or the version is not known, or OLM would refuse the result.
pub fn generate<'a>(files: &'a dyn Files, options: &Options, input: &Input) -> Result<Plan<'a>, Diagnostic> {
    let wrong = |why: &str| Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle").because(why);
    let mut plan = Plan::new(files);
    let mut options = options.clone();
    let project = project(&plan, options.package.as_deref())?;
    let package = package(&project, &options)?;
    let mut objects = objects(&input.manifests)?;
    let base = base(&mut objects, &project, &package, &options, input, &mut plan)?;
    if options.version.is_empty() {
        let said = base["spec"]["version"].as_str().filter(|version| *version != "0.0.0");
        options.version = said
            .ok_or_else(|| wrong("nothing says the version of the operator").fix("pass --version 0.1.0"))?
            .to_owned();
    }
    check::words(&options, &package)?;
    let owned: BTreeSet<(String, String)> = objects.iter().flat_map(defined).collect();
    let (mut samples, mut scorecard) = (Vec::new(), None);
    objects.retain(|object| {
        let version = text(object, "apiVersion");
        if text(object, "kind") == "Configuration" && version.starts_with("scorecard.operatorframework.io/") {
            scorecard = Some(object.clone());
            return false;
        }
        let is_sample = owned.contains(&(version.to_owned(), text(object, "kind").to_owned()));
        if is_sample {
            samples.push(object.clone());
        }
        !is_sample
    });
    let hooked = objects
        .iter()
        .any(|object| text(object, "kind").ends_with("WebhookConfiguration"));
    for deployment in objects
        .iter_mut()
        .filter(|object| object["kind"] == "Deployment" && hooked)
    {
        webhooks::leave_certificates_out(deployment);
    }
    let sources = Sources {
        project,
        package,
        base,
        objects,
        samples,
        scorecard,
    };
    sources.write(&options, plan)
}

/// Plans the base of the bundle, when there is none yet. The project may be of any language.
///
/// # Errors
/// When the package is not known, or the base that is there cannot be one.
pub fn new_base<'a>(files: &'a dyn Files, options: &Options, folder: &str) -> Result<Plan<'a>, Diagnostic> {
    let mut plan = Plan::new(files);
    let project = project(&plan, options.package.as_deref())?;
    super::base_in(folder, &project, &package(&project, options)?, options, &mut plan)?;
    Ok(plan)
}

fn package(project: &Project, options: &Options) -> Result<String, Diagnostic> {
    let package = options.package.clone().unwrap_or_else(|| project.name.clone());
    if package.is_empty() {
        return Err(Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
            .because("nothing says the name of the package: there is no PROJECT here")
            .fix("pass --package NAME"));
    }
    Ok(package)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

/// What PROJECT says about the name and the plug-ins, whatever language the project is in.
fn project(files: &dyn Files, package: Option<&str>) -> Result<Project, Diagnostic> {
    let said = match files.read("PROJECT")? {
        Some(text) => yaml::parse(&text).map_err(|why| {
            Diagnostic::new(codes::project::BROKEN, "cannot read the project")
                .at(Place::file("PROJECT"))
                .because(why)
        })?,
        None => Value::Null,
    };
    let name = said["projectName"].as_str().or(package).unwrap_or_default();
    let mut project = Project::new(name, "");
    project.layout = match &said["layout"] {
        Value::String(layout) => vec![layout.clone()],
        Value::Array(all) => all.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => vec!["unknown".to_owned()],
    };
    Ok(project)
}

/// All objects, each once.
fn objects(manifests: &[(String, String)]) -> Result<Vec<Value>, Diagnostic> {
    let mut all: Vec<Value> = Vec::new();
    for (file, content) in manifests {
        let found = kustomize::documents(file, content)?;
        for object in found.into_iter().filter(Value::is_object) {
            if text(&object, "kind").is_empty() || text(&object, "apiVersion").is_empty() {
                continue;
            }
            if !all.contains(&object) {
                all.push(object);
            }
        }
    }
    if all.is_empty() {
        return Err(Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
            .because("the input has no manifests")
            .fix("kustomize build config/manifests | kubewright bundle generate --version 0.1.0"));
    }
    Ok(all)
}

/// The base: a ClusterServiceVersion among the manifests, else the file of the project, else an empty one.
fn base(
    objects: &mut Vec<Value>,
    project: &Project,
    package: &str,
    options: &Options,
    input: &Input,
    plan: &mut Plan<'_>,
) -> Result<Value, Diagnostic> {
    let (bases, others): (Vec<Value>, Vec<Value>) = std::mem::take(objects)
        .into_iter()
        .partition(|object| object["kind"] == "ClusterServiceVersion");
    *objects = others;
    let prefix = format!("{package}.");
    let mut fitting = bases
        .into_iter()
        .filter(|base| text(&base["metadata"], "name").starts_with(&prefix));
    if let Some(base) = fitting.next() {
        return super::whole(base, "the input");
    }
    let path = format!("{}/bases/{package}.clusterserviceversion.yaml", input.kustomize_folder);
    if let Some(base) = super::written_base(&path, plan)? {
        return Ok(base);
    }
    plan.notes
        .push(format!("there is no {path}: the bundle has no description"));
    Ok(csv::new_base(project, package, options))
}

/// The versions and kinds of a definition.
fn defined(object: &Value) -> Vec<(String, String)> {
    if object["kind"] != "CustomResourceDefinition" {
        return Vec::new();
    }
    let spec = &object["spec"];
    let versions = spec["versions"].as_array().into_iter().flatten();
    versions
        .map(|version| {
            let version = format!("{}/{}", text(spec, "group"), text(version, "name"));
            (version, text(&spec["names"], "kind").to_owned())
        })
        .collect()
}
