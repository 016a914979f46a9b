//! The kind of a request: the project's own, one of Kubernetes, or a foreign one.

use kubewright_schema::catalog;

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::names::{self, rust};
use crate::project::{Layout, Project, Resource};

use super::bad_name;

/// The kind that a request names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subject {
    /// The group without the project's domain; `core` for Kubernetes' core group.
    pub group: String,
    /// The version.
    pub version: String,
    /// The kind.
    pub kind: String,
}

impl Subject {
    /// The kind of a resource of PROJECT, as a command names it.
    pub(crate) fn of(resource: &Resource) -> Subject {
        Subject {
            group: if resource.core && resource.domain == "k8s.io" {
                resource.full_group()
            } else {
                resource.group.clone()
            },
            version: resource.version.clone(),
            kind: resource.kind.clone(),
        }
    }

    /// The same with the kind as it is written, where it was typed as kubectl takes it: `guestbooks` or `guestbook`.
    #[must_use]
    pub fn resolved(mut self, project: &Project) -> Subject {
        let typed = self.kind.clone();
        // No kind begins with a small letter.
        if !typed.starts_with(|first: char| first.is_ascii_lowercase()) {
            return self;
        }
        let is_called = |kind: &str, plural: &str| kind.to_lowercase() == typed || plural == typed;
        let in_group = |resource: &&Resource| {
            self.group.is_empty() || resource.group == self.group || resource.full_group() == self.group
        };
        let mut own = project.resources.iter().filter(in_group);
        if let Some(found) = own.find(|resource| is_called(&resource.kind, &resource.plural())) {
            self.kind.clone_from(&found.kind);
            return self;
        }
        let of_kubernetes = match self.group.strip_suffix(".k8s.io").unwrap_or(&self.group) {
            "" => return self,
            group => format!(
                "io.k8s.api.{}.{}.",
                group.split('.').next().unwrap_or(group),
                self.version
            ),
        };
        let mut kinds = catalog::names().filter_map(|name| name.strip_prefix(&of_kubernetes));
        if let Some(kind) = kinds.find(|kind| is_called(kind, &names::plural(kind))) {
            self.kind = kind.to_owned();
        }
        self
    }

    /// Its name in messages, as far as it was given: `webapp/v1 Guestbook`.
    pub(super) fn title(&self) -> String {
        let parts = [self.group.as_str(), self.version.as_str()];
        let version: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        format!("{} {}", version.join("/"), self.kind).trim().to_owned()
    }
}

/// The options for a type of another project (`--external-api-…`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct External {
    /// The Rust path of the module with the type: `cert_manager_api::v1`.
    pub path: Option<String>,
    /// The domain of its group: `io` for `cert-manager.io`.
    pub domain: Option<String>,
    /// The crate that it comes from, as cargo is told: `cert-manager-api@0.1`.
    pub module: Option<String>,
}

impl External {
    /// Whether anything is said.
    #[must_use]
    pub fn is_given(&self) -> bool {
        self.path.is_some() || self.domain.is_some() || self.module.is_some()
    }

    /// The module, when it is a crate; a module of Go (`github.com/cert-manager/cert-manager@v1.18.2`) is none.
    fn crate_name(&self) -> Option<&str> {
        let name = |module: &str| module.split('@').next().unwrap_or_default().to_owned();
        self.module
            .as_deref()
            .filter(|module| !name(module).contains(['/', '.']))
    }

    /// The group in a path and a module of Go, of which only the group matters here.
    pub(super) fn of_go(&self) -> Option<String> {
        let module = self.module.as_deref().filter(|_| self.crate_name().is_none());
        let path = self.path.as_deref().filter(|path| !is_rust_path(path));
        let told: Vec<&str> = path.into_iter().chain(module).collect();
        (!told.is_empty()).then(|| {
            format!(
                "{} is a path of Go: only its group is used, and the type is in api/src/external (or name a crate: --external-api-module)",
                told.join(" ")
            )
        })
    }
}

/// Version and kind are needed and checked first, because everything else is about them.
pub(super) fn check(subject: &Subject, attempted: &str) -> Result<(), Diagnostic> {
    let missing = |flag: &str, example: &str| {
        Diagnostic::new(codes::project::MISSING, attempted)
            .because(format!("{flag} is needed"))
            .fix(format!("add {flag} {example}"))
    };
    if subject.version.is_empty() {
        return Err(missing("--version", "v1"));
    }
    if subject.kind.is_empty() {
        return Err(missing("--kind", "Guestbook"));
    }
    names::version(&subject.version).map_err(|wrong| bad_name(attempted, "--version", &subject.version, &wrong))?;
    names::kind(&subject.kind).map_err(|wrong| bad_name(attempted, "--kind", &subject.kind, &wrong))
}

/// The resource as it stands in the project, if it does. The group may be written with or without its domain.
pub(super) fn find<'p>(project: &'p Project, subject: &Subject) -> Option<&'p Resource> {
    project.resources.iter().find(|resource| {
        let group = resource.group == subject.group || resource.full_group() == subject.group;
        group && resource.version == subject.version && resource.kind == subject.kind
    })
}

/// A kind of Kubernetes' own; `None` when there is no such group.
pub(super) fn core(subject: &Subject, attempted: &str) -> Result<Option<Resource>, Diagnostic> {
    let Subject { group, version, kind } = subject;
    let (short, domain) = match group.strip_suffix(".k8s.io") {
        Some(short) => (short, "k8s.io"),
        None => (group.as_str(), ""),
    };
    let candidates = [domain, "k8s.io"];
    let served = |domain: &str| match (short, domain) {
        ("core", "") => String::new(),
        (short, domain) => names::full_group(short, domain),
    };
    for domain in candidates {
        if let Some(name) = catalog::name_for_kind(&served(domain), version, kind) {
            return Ok(Some(Resource {
                group: short.to_owned(),
                domain: domain.to_owned(),
                version: version.clone(),
                kind: kind.clone(),
                path: rust_module(name),
                core: true,
                ..Resource::default()
            }));
        }
    }
    // A group of Kubernetes without this kind is a slip, not a foreign group.
    let first = short.split('.').next().unwrap_or(short);
    let prefix = format!("io.k8s.api.{first}.");
    if first.is_empty() || !catalog::names().any(|name| name.starts_with(&prefix)) {
        return Ok(None);
    }
    let in_version = format!("{prefix}{version}.");
    let near = catalog::names()
        .filter_map(|name| name.strip_prefix(&in_version))
        .find(|known| known.eq_ignore_ascii_case(kind));
    let mut wrong = Diagnostic::new(codes::project::UNKNOWN, attempted).because(format!(
        "Kubernetes has a group {group}, but no kind {kind} in its version {version}"
    ));
    wrong = match near {
        Some(near) => wrong.fix(format!("write --kind {near}")),
        None => wrong.fix("look the kind up: kubectl api-resources; a kind of your own needs --resource"),
    };
    Err(wrong)
}

/// The Rust module of a definition: `io.k8s.api.apps.v1.Deployment` is in `kubewright::k8s_openapi::api::apps::v1`.
fn rust_module(definition: &str) -> Option<String> {
    let path = definition.strip_prefix("io.k8s.")?.replace('-', "_");
    let (module, _) = path.rsplit_once('.')?;
    Some(format!("k8s_openapi::{}", module.replace('.', "::")))
}

/// A kind of another project.
pub(super) fn external(
    project: &Project,
    subject: &Subject,
    external: &External,
    attempted: &str,
) -> Result<Resource, Diagnostic> {
    let domain = external.domain.clone().unwrap_or_default();
    names::group(&subject.group, &domain).map_err(|wrong| {
        bad_name(
            attempted,
            "--group",
            &names::full_group(&subject.group, &domain),
            &wrong,
        )
    })?;
    let mut resource = Resource {
        group: subject.group.clone(),
        domain,
        version: subject.version.clone(),
        kind: subject.kind.clone(),
        external: true,
        module: external.crate_name().map(str::to_owned),
        ..Resource::default()
    };
    let layout = project.layout(&resource);
    resource.path = match &external.path {
        Some(path) if is_rust_path(path) => Some(path.clone()),
        // The path of another language says nothing in Rust: the project gets a type of its own for the kind.
        _ if external.crate_name().is_none() => Some(own_path(project, &layout)),
        path => {
            return Err(Diagnostic::new(codes::project::FLAGS, attempted)
                .because(match path {
                    Some(path) => format!("--external-api-path {path:?} is not a path of a Rust module"),
                    None => "--external-api-module names a crate, but not the module in it".to_owned(),
                })
                .fix("write it as --external-api-path their_crate::v1; without a crate leave out both, and the project gets a type for the kind"));
        }
    };
    Ok(resource)
}

fn is_rust_path(path: &str) -> bool {
    !path.is_empty() && !path.contains(['/', '.', '-']) && syn::parse_str::<syn::Path>(path).is_ok()
}

fn own_path(project: &Project, layout: &Layout) -> String {
    format!("{}::{}", project.api_crate(), layout.api_modules.join("::"))
}

/// How the type of a resource is written in a Rust file of the operator.
#[derive(Clone, Debug)]
pub(super) struct TypePath {
    /// The import; none when the path is complete without.
    pub(super) import: Option<String>,
    /// The type as it is written then: `v1::Guestbook`.
    pub(super) path: String,
    /// The type with its whole path, for where nothing is imported.
    pub(super) whole: String,
}

/// The module that holds the type of a resource.
pub(super) fn module_of(project: &Project, resource: &Resource) -> String {
    match &resource.path {
        Some(path) if resource.core => format!("kubewright::{path}"),
        Some(path) if resource.external => path.clone(),
        _ => own_path(project, &project.layout(resource)),
    }
}

pub(super) fn type_path(project: &Project, resource: &Resource) -> TypePath {
    let module = module_of(project, resource);
    // A type of a foreign crate is called as its crate calls it.
    let name = if resource.api.is_some() || has_stub(project, resource) {
        rust::kind(&resource.kind)
    } else {
        resource.kind.clone()
    };
    match module.rsplit_once("::") {
        Some((_, last)) => TypePath {
            path: format!("{last}::{name}"),
            whole: format!("{module}::{name}"),
            import: Some(module.clone()),
        },
        None => TypePath {
            path: format!("{module}::{name}"),
            whole: format!("{module}::{name}"),
            import: None,
        },
    }
}

/// Whether the project has a type of its own for a kind of another project.
pub(super) fn has_stub(project: &Project, resource: &Resource) -> bool {
    resource.external
        && resource
            .path
            .as_deref()
            .is_some_and(|path| path.starts_with(&format!("{}::", project.api_crate())))
}

/// The kinds of a project, for errors: `webapp.my.domain/v1 Guestbook, …`.
pub(super) fn list(project: &Project) -> String {
    let titles: Vec<String> = project.resources.iter().map(Resource::title).collect();
    if titles.is_empty() {
        "none yet".to_owned()
    } else {
        titles.join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_may_be_typed_as_kubectl_takes_it() {
        let mut project = Project::new("guestbook", "my.domain");
        let mut mouse = Resource::own("zoo", "my.domain", "v1", "Mouse", true);
        mouse.plural = Some("mice".to_owned());
        project.resources.push(mouse);
        let check = |group: &str, kind: &str, expected: &str| {
            let subject = Subject {
                group: group.to_owned(),
                version: "v1".to_owned(),
                kind: kind.to_owned(),
            };
            assert_eq!(subject.resolved(&project).kind, expected, "{group} {kind}");
        };
        for kind in ["Mouse", "mouse", "mice"] {
            check("zoo", kind, "Mouse");
        }
        check("zoo.my.domain", "mice", "Mouse");
        check("", "mice", "Mouse");
        check("zoo", "mouses", "mouses");
        check("core", "pods", "Pod");
        check("core", "endpoints", "Endpoints");
        check("apps", "deployments", "Deployment");
        check("networking.k8s.io", "networkpolicies", "NetworkPolicy");
        check("other", "pods", "pods");
        // A new kind has no plural yet.
        check("zoo", "Cats", "Cats");
    }
}
