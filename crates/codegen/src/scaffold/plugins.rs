//! The optional plugins: how they are named, and the work of `edit` for each.
//!
//! The keys are kubebuilder's, long (`helm.kubebuilder.io/v2-alpha`) or short (`helm/v2-alpha`, `helm`), so that
//! PROJECT means the same to both.

use serde_json::json;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names::near;
use crate::plan::{Files, Plan};
use crate::project::{DEPLOY_IMAGE, FILE, LAYOUT, Project};
use crate::{charts, grafana, helm};

use super::again::dependency;
use super::init::{Dependency, REPOSITORY};
use super::render::render;

/// A plugin that a project may have beside its layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Optional {
    /// A chart out of `config/`.
    Helm,
    /// Dashboards.
    Grafana,
    /// A kind whose controller runs an image.
    DeployImage,
    /// A workflow that upgrades the project.
    Autoupdate,
}

impl Optional {
    const ALL: [Optional; 4] = [
        Optional::Helm,
        Optional::Grafana,
        Optional::DeployImage,
        Optional::Autoupdate,
    ];

    /// The key in PROJECT.
    pub(super) fn key(self) -> &'static str {
        match self {
            Optional::Helm => helm::KEY,
            Optional::Grafana => grafana::KEY,
            Optional::DeployImage => DEPLOY_IMAGE,
            Optional::Autoupdate => "autoupdate.kubebuilder.io/v1-alpha",
        }
    }

    /// The command that takes it.
    fn command(self) -> &'static str {
        match self {
            Optional::Helm | Optional::Grafana | Optional::Autoupdate => "edit",
            Optional::DeployImage => "create api",
        }
    }

    /// `helm/v2-alpha`.
    fn short(self) -> String {
        let (name, version) = self.key().split_once('/').unwrap_or((self.key(), ""));
        format!("{}/{version}", name.split('.').next().unwrap_or_default())
    }

    fn is(self, typed: &str) -> bool {
        let short = self.short();
        typed == self.key() || typed == short || short.split('/').next() == Some(typed)
    }
}

/// Whether one of these plugins makes a type and its controller, so that the user need not be asked.
#[must_use]
pub fn makes_type_and_controller(keys: &[String]) -> bool {
    keys.iter().any(|key| Optional::DeployImage.is(key))
}

/// Whether a key is one of kubewright's own: its layout, or an optional plugin.
#[must_use]
pub fn is_own_plugin(key: &str) -> bool {
    is_layout(key) || charts::is_layout(key) || Optional::ALL.iter().any(|plugin| plugin.is(key))
}

/// Whether a key is that of the layout, long or short.
#[must_use]
pub fn is_layout(key: &str) -> bool {
    key == LAYOUT || key == LAYOUT.replace(".kubewright.dev", "")
}

/// For a command that has no optional plugins.
///
/// # Errors
/// When one is named all the same.
pub fn no_plugins(keys: &[String], command: &str) -> Result<(), Diagnostic> {
    requested(keys, command, &format!("cannot {command}")).map(drop)
}

/// The plugins that were asked for, beside the layout, which every project has.
///
/// # Errors
/// When one is not known, or is another command's.
pub(super) fn requested(keys: &[String], command: &str, attempted: &str) -> Result<Vec<Optional>, Diagnostic> {
    let mut found = Vec::new();
    for key in keys.iter().filter(|key| !is_layout(key)) {
        let refused =
            |why: String, fix: String| Diagnostic::new(codes::project::PLUGIN, attempted).because(why).fix(fix);
        let listed: Vec<String> = Optional::ALL
            .iter()
            .filter(|plugin| plugin.command() == command)
            .map(|plugin| plugin.short())
            .collect();
        let there = if listed.is_empty() {
            format!("the layout is {LAYOUT}, and this command has no others")
        } else {
            format!("the layout is {LAYOUT}, and this command has {}", listed.join(", "))
        };
        match Optional::ALL.into_iter().find(|plugin| plugin.is(key)) {
            Some(plugin) if plugin.command() == command => found.push(plugin),
            Some(plugin) => {
                return Err(refused(
                    format!("{key} is a plugin of another command"),
                    format!("kubewright {} --plugins {}", plugin.command(), plugin.short()),
                ));
            }
            None => {
                let fix = match meant(key, command) {
                    Some(short) => format!("kubewright {command} --plugins {short}"),
                    None => "leave --plugins out".to_owned(),
                };
                return Err(refused(format!("there is no plugin {key:?}; {there}"), fix));
            }
        }
    }
    Ok(found)
}

/// The plugin of this command with a similar name; the version is ignored, because people do not misspell it.
fn meant(typed: &str, command: &str) -> Option<&'static str> {
    let name = typed.split(['/', '.']).next().unwrap_or_default();
    let of_command = Optional::ALL.into_iter().filter(|plugin| plugin.command() == command);
    let names: Vec<&str> = of_command.filter_map(|plugin| plugin.key().split('.').next()).collect();
    near(name, &names)
}

/// Remembers a plugin in PROJECT.
pub(super) fn remember(plugin: Optional, output: Option<&str>, project: &mut Project) {
    let there = project.plugins.remove(plugin.key());
    let value = match plugin {
        Optional::Helm => {
            let before = there.as_ref().and_then(|there| there["output"].as_str());
            json!({"manifests": "config/default", "output": output.or(before).unwrap_or("dist")})
        }
        Optional::Grafana | Optional::DeployImage | Optional::Autoupdate => there.unwrap_or_else(|| json!({})),
    };
    project.plugins.insert(plugin.key().to_owned(), value);
}

/// The plugins of PROJECT that `edit` runs.
pub(super) fn listed(project: &Project) -> Vec<Optional> {
    let of_edit = Optional::ALL.into_iter().filter(|plugin| plugin.command() == "edit");
    of_edit
        .filter(|plugin| project.plugins.contains_key(plugin.key()))
        .collect()
}

/// Writes the files of a plugin for `edit`.
///
/// # Errors
/// See [`helm::chart`] and [`grafana::dashboards`].
pub(super) fn write(plugin: Optional, project: &Project, force: bool, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    match plugin {
        Optional::Helm => {
            let output = project.plugins[helm::KEY]["output"].as_str().unwrap_or("dist");
            helm::chart(project, output, force, plan)?;
            plan.next.push(format!(
                "helm install {0} {output}/chart --namespace {0}-system --create-namespace",
                project.name
            ));
            Ok(())
        }
        Optional::Grafana => grafana::dashboards(&project.name, plan),
        Optional::DeployImage => Ok(()),
        Optional::Autoupdate => workflow(project, force, plan),
    }
}

/// The workflow of the plugin autoupdate; one that a person changed stays without `force`.
fn workflow(project: &Project, force: bool, plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    const PATH: &str = ".github/workflows/auto_update.yml";
    if project.cli_version.is_none() {
        return Err(Diagnostic::new(
            codes::project::MISSING,
            "cannot write the workflow of the plugin autoupdate",
        )
        .at(Place::file(FILE).field("cliVersion"))
        .because("PROJECT does not say which version made the project, so that nothing could be compared with it")
        .fix("add the line cliVersion: VERSION, as `kubewright version` says it"));
    }
    let text = render(
        "project/github/auto_update.yml",
        minijinja::context! { repository => REPOSITORY },
    );
    if plan.read(PATH)?.is_some_and(|there| there != text) && !force {
        plan.notes
            .push(format!("kept {PATH} as it is (--force writes it anew)"));
        return Ok(());
    }
    plan.write(PATH, text)?;
    let manifest = plan.read("Cargo.toml")?.and_then(|text| text.parse().ok());
    if let Some(Dependency::Path(path)) = manifest.as_ref().and_then(dependency) {
        plan.notes.push(format!(
            "{PATH} installs published versions of kubewright, and this project depends on a checkout ({path})"
        ));
    }
    plan.notes.push(
        "the repository must let workflows open pull requests: Settings, Actions, General, Workflow permissions"
            .to_owned(),
    );
    Ok(())
}
