//! The errors in a PROJECT file.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{FILE, LAYOUT, Project, Resource};
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names::{self, BadName, rust};

/// Whether the file is of version 3 and of this tool, before its fields are looked at.
pub(super) fn is_ours(fields: &Map<String, Value>) -> Result<(), Diagnostic> {
    let foreign = |field: &str, why: String, fix: &str| {
        Err(Diagnostic::new(codes::project::FOREIGN, "cannot work on this project")
            .at(Place::file(FILE).field(field))
            .because(why)
            .fix(fix))
    };
    match fields.get("version") {
        Some(Value::String(version)) if version == "3" => {}
        Some(Value::Number(version)) if version.as_u64() == Some(3) => {}
        Some(other) => {
            return foreign(
                "version",
                format!("the file has version {other}; kubewright reads version \"3\""),
                "start a new project with kubewright init and the same names",
            );
        }
        None => {
            return foreign(
                "version",
                "the file has no version".to_owned(),
                "add the line: version: \"3\"",
            );
        }
    }
    let listed = match fields.get("layout") {
        Some(Value::String(keys)) => keys.clone(),
        Some(Value::Array(keys)) => keys.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(", "),
        _ => String::new(),
    };
    let known = ["rust.kubewright.dev/", super::CHARTS_LAYOUT, super::ANSIBLE_LAYOUT];
    if known.iter().any(|key| listed.contains(key)) {
        return Ok(());
    }
    let why = if listed.is_empty() {
        "the file has no layout".to_owned()
    } else {
        format!("the project was made by {listed}, not by kubewright")
    };
    let fix = if listed.contains("go.kubebuilder.io/") {
        "carry it over: kubewright migrate FROM DIR writes a project in Rust beside it".to_owned()
    } else {
        format!("start a new project with kubewright init; its layout is {LAYOUT}")
    };
    foreign("layout", why, &fix)
}

impl Project {
    /// The errors and contradictions in this project; empty when all is well.
    #[must_use]
    pub fn check(&self) -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        let mut name = |field: String, name: &str, checked: names::Checked| {
            if let Err(BadName { why, fix }) = checked {
                wrong.push(
                    Diagnostic::new(codes::project::NAME, format!("cannot use {name:?} as {field}"))
                        .at(Place::file(FILE).field(field))
                        .because(why)
                        .fix(fix),
                );
            }
        };
        name("projectName".to_owned(), &self.name, names::project(&self.name));
        if !self.domain.is_empty() {
            name("domain".to_owned(), &self.domain, names::domain(&self.domain));
        }
        for (at, resource) in self.resources.iter().enumerate() {
            let field = |field: &str| format!("resources[{at}].{field}");
            if !resource.core {
                name(
                    field("group"),
                    &resource.group,
                    names::group(&resource.group, &resource.domain),
                );
            }
            name(field("version"), &resource.version, names::version(&resource.version));
            name(field("kind"), &resource.kind, names::kind(&resource.kind));
            name(
                field("plural"),
                &resource.plural(),
                names::plural_name(&resource.plural()),
            );
            for controller in &resource.controllers {
                name(
                    field("controllers"),
                    &controller.name,
                    names::controller(&controller.name),
                );
            }
        }
        wrong.extend(self.slips());
        wrong.extend(self.contradictions());
        wrong.extend(self.unreadable_images().into_iter().map(|(at, why)| {
            Diagnostic::new(codes::project::BROKEN, "cannot work on this project")
                .at(Place::file(FILE).field(format!("plugins.{}.resources[{at}]", super::DEPLOY_IMAGE)))
                .because(why)
                .fix("correct PROJECT, or restore it from version control")
        }));
        wrong
    }

    /// Unknown fields are another version's, and kept; but not those that are a known one misspelt.
    fn slips(&self) -> Vec<Diagnostic> {
        const OF_RESOURCE: [&str; 11] = [
            "api",
            "controller",
            "controllers",
            "domain",
            "external",
            "group",
            "kind",
            "module",
            "path",
            "plural",
            "webhooks",
        ];
        const OF_WEBHOOKS: [&str; 7] = [
            "conversion",
            "defaulting",
            "defaultingPath",
            "spoke",
            "validation",
            "validationPath",
            "webhookVersion",
        ];
        const OF_API: [&str; 2] = ["crdVersion", "namespaced"];
        const OF_PROJECT: [&str; 8] = [
            "cliVersion",
            "domain",
            "layout",
            "multigroup",
            "namespaced",
            "plugins",
            "projectName",
            "resources",
        ];
        let mut found: Vec<(String, &str)> = Vec::new();
        let mut look = |place: String, unknown: &BTreeMap<String, Value>, known: &[&'static str]| {
            for word in unknown.keys() {
                found.extend(names::near(word, known).map(|meant| (format!("{place}{word}"), meant)));
            }
        };
        look(String::new(), &self.unknown, &OF_PROJECT);
        for (at, resource) in self.resources.iter().enumerate() {
            look(format!("resources[{at}]."), &resource.unknown, &OF_RESOURCE);
            if let Some(api) = &resource.api {
                look(format!("resources[{at}].api."), &api.unknown, &OF_API);
            }
            if let Some(webhooks) = &resource.webhooks {
                look(format!("resources[{at}].webhooks."), &webhooks.unknown, &OF_WEBHOOKS);
            }
        }
        let told = found.into_iter().map(|(field, meant)| {
            let word = field.rsplit('.').next().unwrap_or_default().to_owned();
            Diagnostic::new(codes::project::BROKEN, "cannot work on this project")
                .at(Place::file(FILE).field(field))
                .because(format!("there is no field {word}"))
                .fix(format!("did you mean {meant}?"))
        });
        told.collect()
    }

    fn contradictions(&self) -> Vec<Diagnostic> {
        let mut wrong = Vec::new();
        let mut kinds = BTreeSet::new();
        let mut controllers = BTreeSet::new();
        for (at, resource) in self.resources.iter().enumerate() {
            if !kinds.insert((resource.full_group(), &resource.version, &resource.kind)) {
                wrong.push(broken(at, "", format!("{} is listed twice", resource.title())));
            }
            for name in self.controller_names(resource) {
                if !controllers.insert(rust::module(&name)) {
                    let why = format!("there are two controllers named {name}");
                    wrong.push(broken(at, ".controllers", why));
                }
            }
            let spokes = resource.webhooks.iter().flat_map(|webhooks| &webhooks.spoke);
            for spoke in spokes {
                if !self
                    .apis()
                    .any(|other| other.same_kind(resource) && other.version == *spoke)
                {
                    let why = format!(
                        "{} is a spoke, but the project has no such version of {}",
                        spoke, resource.kind
                    );
                    wrong.push(broken(at, ".webhooks.spoke", why));
                }
            }
            wrong.extend(old_version(at, resource));
            wrong.extend(self.disagrees(at, resource));
        }
        wrong
    }

    /// The disagreements of an own kind with one that stands above it.
    fn disagrees(&self, at: usize, resource: &Resource) -> Option<Diagnostic> {
        resource.api.as_ref()?;
        let mut above = self.resources[..at].iter().filter(|other| other.api.is_some());
        above.find_map(|other| {
            if other.same_kind(resource) && other.is_namespaced() != resource.is_namespaced() {
                let why = format!("all versions of {} have one scope", resource.kind);
                return Some(broken(at, ".api.namespaced", why));
            }
            Some(broken(at, ".plural", other.shares_a_name_with(resource)?))
        })
    }

    /// Resources that have a controller or webhooks and whose kind is unknown: code for them cannot be written.
    pub(super) fn homeless(&self) -> Option<Diagnostic> {
        let each = self.resources.iter().enumerate();
        let mut lost = each.filter(|(_, resource)| {
            let is_own = resource.api.is_some() || self.apis().any(|other| other.same_kind(resource));
            let is_used = resource.has_controller() || resource.webhooks.is_some();
            is_used && !is_own && !resource.core && !resource.external
        });
        let (at, resource) = lost.next()?;
        let why = format!(
            "{} is neither a kind of this project (`api`), nor Kubernetes' own (`core`), nor somebody else's (`external`)",
            resource.title()
        );
        Some(broken(at, "", why))
    }
}

fn broken(at: usize, field: &str, why: String) -> Diagnostic {
    Diagnostic::new(codes::project::BROKEN, "cannot work on this project")
        .at(Place::file(FILE).field(format!("resources[{at}]{field}")))
        .because(why)
        .fix("correct PROJECT, or restore it from version control")
}

/// Definitions and webhook configurations of another version than v1 are served by no Kubernetes of today.
fn old_version(at: usize, resource: &Resource) -> Option<Diagnostic> {
    let of_api = resource.api.iter().map(|api| (".api.crdVersion", &api.crd_version));
    let of_webhooks = resource.webhooks.iter();
    let of_webhooks = of_webhooks.map(|webhooks| (".webhooks.webhookVersion", &webhooks.webhook_version));
    let (field, version) = of_api.chain(of_webhooks).find(|(_, version)| *version != "v1")?;
    Some(broken(at, field, format!("it is {version:?}, and there is only v1")))
}

/// The file is one document: another one would not be read, and it would be lost with the next change.
pub(super) fn is_one_document(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_end);
    let is_content = |line: &str| !line.is_empty() && !line.starts_with('#') && line != "---" && !line.starts_with('%');
    lines.by_ref().any(is_content);
    !lines.any(|line| line == "---" || line.starts_with("--- "))
}
