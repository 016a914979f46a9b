//! PROJECT against the code: the created kinds and those that `operator()` registers. Pure: both sides are data.
//!
//! A part of PROJECT that the code lacks is an error: a controller that is not registered never runs, and no message
//! says so. A part of the code that PROJECT lacks works, and is remarked, because commands that read PROJECT do not see
//! it.

use std::collections::BTreeSet;

use kubewright_codegen::codes;
use kubewright_codegen::manifests::{self, Declaration};
use kubewright_codegen::project::{Project, Resource};
use serde_json::Value;

use super::Check;

/// A kind by group, version and name.
type Kind = (String, String, String);

/// The differences; one good check when there are none.
pub(super) fn drift(project: &Project, declaration: &Declaration) -> Vec<Check> {
    let mut checks = Vec::new();
    let code = Code::of(declaration);
    for resource in &project.resources {
        let kind = kind(resource);
        let name = format!("{}/{} {}", kind.0, kind.1, kind.2);
        let missing =
            |what: &str, found: String, fix: String| Check::bad(what, found).code(codes::machine::DRIFT).fix(fix);
        if resource.api.is_some() && !code.crds.contains(&kind) {
            checks.push(missing(
                "api",
                format!("PROJECT has the API {name}, but operator() does not register its CRD"),
                format!("add .crd::<{}::{}>() to operator() in src/lib.rs", kind.1, kind.2),
            ));
        }
        let has_controller = resource.controller || !resource.controllers.is_empty();
        if has_controller && !code.controllers.iter().any(|(known, _)| *known == kind) {
            checks.push(missing(
                "controller",
                format!("PROJECT has a controller of {name}, but operator() does not register it: it never runs"),
                "add .controller(controller::…::controller()) to operator() in src/lib.rs".to_owned(),
            ));
        }
        for wanted in &resource.controllers {
            let of_kind = code.controllers.iter().any(|(known, _)| *known == kind);
            let named = code.controllers.iter().any(|(_, name)| *name == wanted.name);
            if of_kind && !named {
                checks.push(missing(
                    "controller",
                    format!(
                        "PROJECT has a controller {} of {name}, but operator() does not register one of this name",
                        wanted.name
                    ),
                    format!(
                        "give it this name with Controller::named({:?}), and add it to operator()",
                        wanted.name
                    ),
                ));
            }
        }
        let Some(webhooks) = &resource.webhooks else { continue };
        let wanted = [
            (webhooks.defaulting, "defaulting", code.mutating.contains(&kind)),
            (webhooks.validation, "validating", code.validating.contains(&kind)),
        ];
        for (wanted, which, there) in wanted {
            if wanted && !there {
                checks.push(missing(
                    "webhook",
                    format!("PROJECT has a {which} webhook of {name}, but operator() does not register it: it is never asked"),
                    "add .webhook(webhook::…::webhook()) to operator() in src/lib.rs".to_owned(),
                ));
            }
        }
        if webhooks.conversion && !code.hubs.contains(&kind) {
            checks.push(missing(
                "conversion",
                format!("PROJECT has conversions of {name}, but operator() does not register them"),
                format!(
                    "add .conversion(Conversion::hub::<{}::{}>()…) to operator() in src/lib.rs",
                    kind.1, kind.2
                ),
            ));
        }
    }
    checks.extend(unknown_to(project, &code));
    if checks.is_empty() {
        checks.push(Check::good("registered", "everything in PROJECT is part of operator()"));
    }
    checks
}

/// The parts of the code that PROJECT lacks.
fn unknown_to(project: &Project, code: &Code) -> Vec<Check> {
    let with = |has: &dyn Fn(&Resource) -> bool| -> BTreeSet<Kind> {
        project
            .resources
            .iter()
            .filter(|resource| has(resource))
            .map(kind)
            .collect()
    };
    let controllers: BTreeSet<Kind> = code.controllers.iter().map(|(kind, _)| kind.clone()).collect();
    let with_hooks: BTreeSet<Kind> = code.mutating.union(&code.validating).cloned().collect();
    let sides = [
        ("api", &code.crds, with(&|resource| resource.api.is_some())),
        (
            "controller",
            &controllers,
            with(&|resource| resource.controller || !resource.controllers.is_empty()),
        ),
        ("webhook", &with_hooks, with(&|resource| resource.webhooks.is_some())),
    ];
    let mut checks = Vec::new();
    for (what, in_code, in_project) in sides {
        for (group, version, kind) in in_code.difference(&in_project) {
            checks.push(
                Check::remark(
                    what,
                    format!("operator() has it for {group}/{version} {kind}, and PROJECT does not"),
                )
                .code(codes::machine::DRIFT)
                .fix("kubewright create api or create webhook records it (--force where files are there already)"),
            );
        }
    }
    checks
}

/// The library's version and the command's.
pub(super) fn version(library: &str, command: &str) -> Check {
    let line = |version: &str| {
        let mut parts = version.split('.');
        (parts.next().map(str::to_owned), parts.next().map(str::to_owned))
    };
    if line(library) == line(command) {
        Check::good("kubewright", format!("library {library}, command {command}"))
    } else {
        Check::bad(
            "kubewright",
            format!("the operator is built with {library}, and this command is {command}"),
        )
        .code(codes::machine::VERSION)
        .fix("cargo update -p kubewright, or install the command of the same version")
    }
}

fn kind(resource: &Resource) -> Kind {
    let group = match (resource.group.as_str(), resource.domain.as_str()) {
        // Kubernetes' own kinds have their group whole; the core group is written `core` and is none.
        ("core", _) if resource.core => String::new(),
        (group, "") => group.to_owned(),
        ("", domain) => domain.to_owned(),
        (group, domain) => format!("{group}.{domain}"),
    };
    (group, resource.version.clone(), resource.kind.clone())
}

/// The registrations in the code.
#[derive(Default)]
struct Code {
    crds: BTreeSet<Kind>,
    controllers: BTreeSet<(Kind, String)>,
    mutating: BTreeSet<Kind>,
    validating: BTreeSet<Kind>,
    hubs: BTreeSet<Kind>,
}

impl Code {
    fn of(declaration: &Declaration) -> Code {
        let kind = |kind: &manifests::Kind| (kind.group.clone(), kind.version.clone(), kind.kind.clone());
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let mut code = Code::default();
        for declared in &declaration.crds {
            let spec = &declared.crd["spec"];
            for version in spec["versions"].as_array().into_iter().flatten() {
                let known = (
                    text(&spec["group"]),
                    text(&version["name"]),
                    text(&spec["names"]["kind"]),
                );
                code.crds.insert(known);
            }
        }
        for controller in &declaration.controllers {
            code.controllers
                .insert((kind(&controller.reconciles), controller.name.clone()));
        }
        for webhook in &declaration.webhooks {
            let hooks = if webhook.mutating {
                &mut code.mutating
            } else {
                &mut code.validating
            };
            hooks.insert(kind(&webhook.kind));
        }
        code.hubs = declaration
            .conversions
            .iter()
            .map(|conversion| kind(&conversion.hub))
            .collect();
        code
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::Status;
    use serde_json::json;

    const PROJECT: &str = "\
domain: my.domain
layout:
- rust.kubewright.dev/v1-alpha
projectName: guestbook
resources:
- api:
    crdVersion: v1
    namespaced: true
  controller: true
  domain: my.domain
  group: webapp
  kind: Guestbook
  path: guestbook_api::v1
  version: v1
  webhooks:
    defaulting: true
    validation: true
    webhookVersion: v1
- controller: true
  core: true
  group: core
  kind: Pod
  path: k8s_openapi::api::core::v1
  version: v1
version: \"3\"
";

    fn found(declaration: Value) -> Vec<String> {
        let project = Project::parse(PROJECT).unwrap();
        drift(&project, &serde_json::from_value(declaration).unwrap())
            .iter()
            .map(|check| {
                let state = match check.state {
                    Status::Good => "good",
                    Status::Remark => "remark",
                    Status::Bad => "bad",
                };
                format!("{state} {}: {}", check.what, check.found)
            })
            .collect()
    }

    fn kind(group: &str, kind: &str) -> Value {
        json!({"group": group, "version": "v1", "kind": kind})
    }

    fn whole() -> Value {
        let guestbook = kind("webapp.my.domain", "Guestbook");
        let crd = json!({"spec": {"group": "webapp.my.domain", "names": {"kind": "Guestbook"}, "versions": [{"name": "v1"}]}});
        json!({
            "declaration": 1,
            "crds": [{"crd": crd}],
            "controllers": [{"name": "guestbook", "for": guestbook}, {"name": "pod", "for": kind("", "Pod")}],
            "webhooks": [{"for": guestbook, "mutating": true}, {"for": guestbook, "mutating": false}],
        })
    }

    #[test]
    fn what_agrees_is_good() {
        assert_eq!(
            found(whole()),
            ["good registered: everything in PROJECT is part of operator()"]
        );
    }

    #[test]
    fn what_was_never_registered_is_wrong() {
        insta::assert_snapshot!(found(json!({"declaration": 1})).join("\n"), @r"
        bad api: PROJECT has the API webapp.my.domain/v1 Guestbook, but operator() does not register its CRD
        bad controller: PROJECT has a controller of webapp.my.domain/v1 Guestbook, but operator() does not register it: it never runs
        bad webhook: PROJECT has a defaulting webhook of webapp.my.domain/v1 Guestbook, but operator() does not register it: it is never asked
        bad webhook: PROJECT has a validating webhook of webapp.my.domain/v1 Guestbook, but operator() does not register it: it is never asked
        bad controller: PROJECT has a controller of /v1 Pod, but operator() does not register it: it never runs
        ");
    }

    #[test]
    fn what_project_does_not_know_is_remarked() {
        let mut declaration = whole();
        let more = json!({"name": "more", "for": kind("apps", "Deployment")});
        declaration["controllers"].as_array_mut().unwrap().push(more);
        assert_eq!(
            found(declaration),
            ["remark controller: operator() has it for apps/v1 Deployment, and PROJECT does not"]
        );
    }

    #[test]
    fn versions_of_one_line_get_along() {
        let check = |library, state| assert_eq!(version(library, "0.1.3").state, state, "{library}");
        check("0.1.0", Status::Good);
        check("0.2.0", Status::Bad);
        check("1.1.3", Status::Bad);
    }
}
