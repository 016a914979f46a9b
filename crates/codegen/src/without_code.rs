//! What projects without code have in common, whatever runs their kinds: PROJECT, `watches.yaml`, the definition of a kind
//! and the Makefile.
//!
//! `config/` follows PROJECT as in every project ([`crate::config`]). Not here: what is run for a kind
//! ([`crate::ansible`], [`crate::charts`]), and the role of the operator, which depends on that.

use std::ops::Range;

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

/// Adds a kind to `watches.yaml`. `runs` are the lines that say what is run. Where the kind is listed, they replace what
/// was run for it, and the rest of its entry stays: it is the user's.
pub(crate) fn watch(plan: &mut Plan<'_>, resource: &Resource, runs: &str) -> Result<(), Diagnostic> {
    let Some(text) = plan.read(WATCHES)? else {
        return Err(Diagnostic::new(codes::files::EDITED, attempted(resource))
            .at(Place::file(WATCHES))
            .because("the file is not there, and the project's kinds are listed in it")
            .fix("restore it (git checkout)"));
    };
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    if let Some(entry) = entry_of(&lines, resource) {
        let says_nothing = runs.lines().all(|line| line.trim_start().starts_with('#'));
        if says_nothing
            || runs
                .lines()
                .all(|run| lines[entry.clone()].iter().any(|line| line.trim_end() == run))
        {
            return Ok(());
        }
        let is_run = |line: &str| {
            let key = line
                .strip_prefix("- ")
                .or_else(|| line.strip_prefix("  "))
                .unwrap_or_default();
            WHAT_IS_RUN.iter().any(|what| key.starts_with(what))
        };
        let (old, rest): (Vec<&str>, Vec<&str>) = lines[entry.clone()].iter().partition(|line| is_run(line));
        // An entry that begins with what is run cannot lose its first line.
        if old.iter().any(|line| line.starts_with('-')) {
            return Err(Diagnostic::new(codes::files::EDITED, attempted(resource))
                .at(Place::file(WATCHES).line(entry.start + 1))
                .because("the entry of the kind begins with what is run for it")
                .fix(format!(
                    "begin it with its group, or write there yourself:\n{}",
                    runs.trim_end()
                )));
        }
        let end = rest
            .iter()
            .rposition(|line| !line.trim().is_empty())
            .map_or(0, |last| last + 1);
        let (above, below) = (lines[..entry.start].concat(), lines[entry.end..].concat());
        let newline = if rest[..end].concat().ends_with('\n') { "" } else { "\n" };
        let entry = [&rest[..end].concat(), newline, runs, &rest[end..].concat()].concat();
        return plan.write(WATCHES, format!("{above}{entry}{below}"));
    }
    let (group, version, kind) = (resource.full_group(), &resource.version, &resource.kind);
    let entry = format!("- group: {group}\n  version: {version}\n  kind: {kind}\n{runs}");
    let is_marker = |line: &str| line.replace(' ', "").trim_end() == MARKER.replace(' ', "");
    let marker = lines.iter().position(|line| is_marker(line)).unwrap_or(lines.len());
    let (above, below) = (lines[..marker].concat(), lines[marker..].concat());
    let newline = if above.is_empty() || above.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    plan.write(WATCHES, format!("{above}{newline}{entry}{below}"))
}

/// The keys of `watches.yaml` that say what is run.
const WHAT_IS_RUN: [&str; 3] = ["role:", "playbook:", "chart:"];

/// The lines of the entry of a kind, without comments that follow it.
fn entry_of(lines: &[&str], resource: &Resource) -> Option<Range<usize>> {
    let starts = |line: &&str| line.starts_with("- ");
    let mut from = lines.iter().position(&starts)?;
    loop {
        let length = lines[from + 1..]
            .iter()
            .position(|line| !line.starts_with(' ') && !line.trim().is_empty());
        let end = length.map_or(lines.len(), |length| from + 1 + length);
        let entry = yaml::parse(&lines[from..end].concat()).unwrap_or_default();
        let is = |field: &str, value: &str| entry[0][field].as_str().unwrap_or_default() == value;
        if is("group", &resource.full_group()) && is("version", &resource.version) && is("kind", &resource.kind) {
            return Some(from..end);
        }
        from = end + lines[end..].iter().position(&starts)?;
    }
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
