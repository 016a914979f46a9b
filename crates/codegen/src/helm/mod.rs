//! A Helm chart out of `config/`: the plugin `helm/v2-alpha`, as kubebuilder names it.
//!
//! [`chart`] renders `config/default` with every optional part switched on, and turns each object into a template:
//! names and the namespace come from the release, optional parts ask a value, and the settings that people change
//! (image, replicas, resources, …) are in `values.yaml`. Invariants: rendered with its defaults, the chart is
//! `config/default` (a test with helm compares them); a template says where it came from, and only such files are written over or
//! removed; `Chart.yaml` is written once; `values.yaml`, `NOTES.txt`, `_helpers.tpl` and `.helmignore` stay as they are
//! without `force`. Inside: `object` decides which fields of an object are values, `text` writes templates, `values`
//! writes values.yaml. Not here: the Namespace, which `helm install --create-namespace` makes.

use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::Value;

use crate::config;
use crate::diagnostic::Diagnostic;
use crate::kustomize;
use crate::plan::{Files, Plan};
use crate::project::Project;

mod object;
mod text;
mod values;

#[cfg(test)]
mod tests;

/// The key under which PROJECT remembers the plugin; the same as kubebuilder's.
pub const KEY: &str = "helm.kubebuilder.io/v2-alpha";

/// The first line of every generated template.
const HEADER: &str = "{{- /* Written by kubewright edit --plugins helm/v2-alpha; edit config/ instead. */ -}}\n";

/// Plans the chart below `output` (kubebuilder's default is `dist`, so the chart is `dist/chart`).
///
/// # Errors
/// When `config/default` cannot be rendered, or a file below `templates/` that is to be written was not made by this
/// command.
pub fn chart(project: &Project, output: &str, force: bool, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    let objects = rendered(plan)?;
    let place = format!("{output}/chart");
    let made = object::templates(project, &objects)?;
    let words = context! { name => project.name, has_webhooks => made.defaults.has_webhooks };
    let fixed = |template: &str| template_text(template, &words);
    keep(&format!("{place}/Chart.yaml"), &fixed("Chart.yaml"), false, plan)?;
    keep(
        &format!("{place}/values.yaml"),
        &values::text(&made.defaults),
        force,
        plan,
    )?;
    keep(&format!("{place}/.helmignore"), &fixed("helmignore"), force, plan)?;
    keep(
        &format!("{place}/templates/_helpers.tpl"),
        &fixed("helpers.tpl"),
        force,
        plan,
    )?;
    keep(
        &format!("{place}/templates/NOTES.txt"),
        &fixed("NOTES.txt"),
        force,
        plan,
    )?;
    let folder = format!("{place}/templates");
    for path in plan.list(&folder)? {
        let is_ours = plan.read(&path)?.is_some_and(|text| text.starts_with(HEADER));
        let is_stale = !made.files.keys().any(|file| path == format!("{folder}/{file}"));
        if is_ours && is_stale {
            plan.remove(&path)?;
        }
    }
    for (file, text) in &made.files {
        let path = format!("{folder}/{file}");
        plan.write_marked(&path, HEADER, text, force)?;
    }
    Ok(())
}

/// `config/default` with the parts that the chart switches by a value.
fn rendered(plan: &Plan<'_>) -> Result<Vec<Value>, Diagnostic> {
    let mut all = Plan::new(plan);
    for part in ["prometheus", "network-policy"] {
        if plan.read(&format!("config/{part}/kustomization.yaml"))?.is_some() {
            config::switch_on(part, &mut all)?;
        }
    }
    kustomize::build("config/default", &all)
}

/// Writes a file that people edit: only when it is not there, or when told to.
fn keep(path: &str, text: &str, force: bool, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    match plan.read(path)? {
        Some(there) if there != text && !force => {
            plan.notes.push(format!(
                "kept {path} as it is (--force writes it anew, where it may be)"
            ));
            Ok(())
        }
        _ => plan.write(path, text),
    }
}

/// A text of `templates/helm`. Texts that are Go templates themselves only get the project's name.
fn template_text(name: &str, words: &minijinja::Value) -> String {
    let (template, is_of_go) = match name {
        "Chart.yaml" => (include_str!("../../templates/helm/Chart.yaml.jinja"), false),
        "values.yaml" => (include_str!("../../templates/helm/values.yaml.jinja"), false),
        "helmignore" => (include_str!("../../templates/helm/helmignore"), true),
        "helpers.tpl" => (include_str!("../../templates/helm/helpers.tpl"), true),
        _ => (include_str!("../../templates/helm/NOTES.txt"), true),
    };
    if is_of_go {
        let name = words
            .get_attr("name")
            .ok()
            .and_then(|name| name.as_str().map(str::to_owned));
        return template.replace("PROJECT", &name.unwrap_or_default());
    }
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment
        .render_str(template, words)
        .unwrap_or_else(|wrong| panic!("the template {name} fits what it is given: {wrong}"))
}
