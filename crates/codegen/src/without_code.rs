//! What projects without code have in common, whatever runs their kinds: PROJECT, `watches.yaml`, the definition of a kind
//! and the Makefile.
//!
//! `config/` follows PROJECT as in every project ([`crate::config`]). Not here: what is run for a kind
//! ([`crate::ansible`], [`crate::charts`]), and the role of the operator, which depends on that.

use serde_json::{Value, json};

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names::{self, BadName};
use crate::plan::{Files, Plan};
use crate::project::{self, Project, Resource};
use crate::yaml;

/// The file that says what is run for which kind.
pub(crate) const WATCHES: &str = "watches.yaml";
/// The role of the operator.
pub(crate) const ROLE: &str = "config/rbac/role.yaml";
/// Above this line of `watches.yaml`, kinds are added.
const MARKER: &str = "# +kubebuilder:scaffold:watch";

/// The options of a new project.
#[derive(Debug, Clone)]
pub struct Init {
    /// Its name.
    pub name: String,
    /// The domain of its groups.
    pub domain: String,
    /// Whether the operator watches only its own namespaces.
    pub namespaced: bool,
    /// Whether there will be several groups.
    pub multigroup: bool,
    /// The version of this program.
    pub cli_version: String,
}

impl Init {
    /// The project of a layout, in a folder that has none of a project's files, `also` among them.
    pub(crate) fn project(&self, files: &dyn Files, layout: &str, also: &[&str]) -> Result<Project, Diagnostic> {
        const ATTEMPTED: &str = "cannot create the project";
        names::project(&self.name).map_err(|bad| wrong(ATTEMPTED, "--project-name", &self.name, &bad))?;
        if !self.domain.is_empty() {
            names::domain(&self.domain).map_err(|bad| wrong(ATTEMPTED, "--domain", &self.domain, &bad))?;
        }
        let usual = [project::FILE, WATCHES, "Dockerfile", "Makefile", "Cargo.toml"];
        for path in usual.iter().chain(also) {
            if files.read(path)?.is_some() {
                return Err(Diagnostic::new(codes::files::EXISTS, ATTEMPTED)
                    .at(Place::file(*path))
                    .because("this folder has a project already")
                    .fix("begin in an empty folder, or move the file away"));
            }
        }
        let mut project = Project::new(&self.name, &self.domain);
        project.cli_version = Some(self.cli_version.clone());
        project.layout = vec![layout.to_owned()];
        project.namespaced = self.namespaced;
        project.multigroup = self.multigroup;
        Ok(project)
    }
}

/// A value of a flag that cannot be used.
pub(crate) fn wrong(attempted: &str, flag: &str, value: &str, bad: &BadName) -> Diagnostic {
    Diagnostic::new(
        codes::project::NAME,
        format!("{attempted}: {flag} {value:?} cannot be used"),
    )
    .because(&bad.why)
    .fix(&bad.fix)
}

/// An empty `watches.yaml`. `what` is what is run.
pub(crate) fn no_watches(what: &str) -> String {
    format!("# Which kind is which {what}; kubewright create api adds to it.\n{MARKER}\n")
}

/// Adds a kind to PROJECT, and writes what follows from it; `force` replaces one that is there.
pub(crate) fn add(plan: &mut Plan<'_>, resource: &Resource, force: bool) -> Result<Project, Diagnostic> {
    let before = Project::load(plan)?;
    let same = |other: &Resource| {
        (other.full_group(), &other.version, &other.kind) == (resource.full_group(), &resource.version, &resource.kind)
    };
    if before.resources.iter().any(same) && !force {
        return Err(Diagnostic::new(codes::project::TAKEN, attempted(resource))
            .at(Place::file(project::FILE).field("resources"))
            .because(format!(
                "the project has the kind {} {} already",
                resource.api_version(),
                resource.kind
            ))
            .fix("name another kind, or say --force to write its files anew"));
    }
    let mut project = before.clone();
    project.resources.retain(|other| !same(other));
    project.resources.push(resource.clone());
    if let Some(wrong) = project.check().into_iter().next() {
        return Err(wrong);
    }
    crate::config::sync(Some(&before), &project, plan)?;
    plan.write(project::FILE, project.to_text())?;
    Ok(project)
}

fn attempted(resource: &Resource) -> String {
    format!("cannot create the API {}", resource.kind)
}

/// Adds a kind to `watches.yaml`, unless it is there. `runs` are the lines that say what is run, and `known` says whether
/// they count when the kind is looked for.
pub(crate) fn watch(plan: &mut Plan<'_>, resource: &Resource, runs: &str, known: Known) -> Result<(), Diagnostic> {
    let Some(text) = plan.read(WATCHES)? else {
        return Err(Diagnostic::new(codes::files::EDITED, attempted(resource))
            .at(Place::file(WATCHES))
            .because("the file is not there, and the project's kinds are listed in it")
            .fix("restore it (git checkout)"));
    };
    let (group, version, kind) = (resource.full_group(), &resource.version, &resource.kind);
    let head = format!("- group: {group}\n  version: {version}\n  kind: {kind}\n");
    let entry = format!("{head}{runs}");
    let listed = match known {
        Known::ByKind => text.contains(&head),
        Known::ByEntry => text.contains(&entry),
    };
    if listed {
        return Ok(());
    }
    let is_marker = |line: &str| line.replace(' ', "").trim_end() == MARKER.replace(' ', "");
    let marker: usize = text
        .split_inclusive('\n')
        .take_while(|line| !is_marker(line))
        .map(str::len)
        .sum();
    let (above, below) = text.split_at(marker);
    let newline = if above.is_empty() || above.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    plan.write(WATCHES, format!("{above}{newline}{entry}{below}"))
}

/// By what a kind is known in `watches.yaml`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Known {
    /// By its group, version and kind: what is run may have been changed.
    ByKind,
    /// By these and what is run.
    ByEntry,
}

/// The definition of a kind: `about` describes it, `spec` and `status` are the schemas of its fields.
pub(crate) fn definition(
    resource: &Resource,
    about: &str,
    columns: Option<Value>,
    spec: Value,
    status: Value,
) -> String {
    let mut version = json!({
        "name": resource.version,
        "served": true,
        "storage": true,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "description": about,
            "properties": {
                "apiVersion": {"type": "string"},
                "kind": {"type": "string"},
                "metadata": {"type": "object"},
                "spec": spec,
                "status": status,
            },
        }},
    });
    if let Some(columns) = columns {
        version["additionalPrinterColumns"] = columns;
    }
    yaml::to_string(&json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", resource.plural(), resource.full_group())},
        "spec": {
            "group": resource.full_group(),
            "names": {
                "kind": resource.kind,
                "listKind": format!("{}List", resource.kind),
                "plural": resource.plural(),
                "singular": resource.kind.to_lowercase(),
            },
            "scope": "Namespaced",
            "versions": [version],
        },
    }))
}

/// The Makefile; `run` is the command that runs the operator here.
pub(crate) fn makefile(run: &str) -> String {
    MAKEFILE.replace("RUN_HERE", run)
}

const MAKEFILE: &str = "# operator-sdk's targets; each is one command, which works without make as well.

# The image of the operator.
IMG ?= controller:latest
# What builds images: docker, podman, nerdctl.
CONTAINER_TOOL ?= docker
KUBEWRIGHT ?= kubewright

.PHONY: all
all: docker-build

.PHONY: help
help: ## Show the targets.
	@awk 'BEGIN {FS = \":.*##\"; print \"Usage: make <target>\"} /^[a-zA-Z_0-9-]+:.*?##/ { printf \"  %-18s %s\\n\", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## Run the operator on this host, against the cluster of the kubeconfig.
	RUN_HERE

.PHONY: docker-build
docker-build: ## Build the image.
	$(CONTAINER_TOOL) build -t \"$(IMG)\" .

.PHONY: docker-push
docker-push: ## Push the image.
	$(CONTAINER_TOOL) push \"$(IMG)\"

.PHONY: install
install: ## Install the CRDs.
	$(KUBEWRIGHT) install

.PHONY: uninstall
uninstall: ## Remove the CRDs, and all objects of their kinds.
	$(KUBEWRIGHT) uninstall

.PHONY: deploy
deploy: ## Deploy the operator.
	$(KUBEWRIGHT) deploy --image \"$(IMG)\"

.PHONY: undeploy
undeploy: ## Remove the operator.
	$(KUBEWRIGHT) undeploy
";
