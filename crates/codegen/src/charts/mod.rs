//! Projects without code whose kinds are Helm charts: `init --plugins helm`, `create api --helm-chart`.
//!
//! The layout is operator-sdk's: `watches.yaml`, `helm-charts/`, `config/`, a Dockerfile. [`init`] and [`create_api`]
//! plan the texts; the chart itself, which may hold archives, is put in place by the command. `config/` follows PROJECT
//! as in every project ([`crate::config`]); the definition of a kind and the role are written here, because there is no
//! code that would say them.

mod role;
mod schema;

use serde_json::{Value, json};

use crate::diagnostic::Diagnostic;
use crate::names;
use crate::plan::{Files, Plan};
use crate::project::{self, CHARTS_LAYOUT as LAYOUT, Project, Resource};
pub use crate::without_code::Init;
use crate::without_code::{self, ROLE, WATCHES, wrong};

use role::Rules;
pub use schema::of_values;

/// Where the charts of a project are.
pub const FOLDER: &str = "helm-charts";
/// The group and version of a kind that is made from a chart, where nothing else is said.
pub const GROUP: &str = "charts";
/// See [`GROUP`].
pub const VERSION: &str = "v1alpha1";

/// Whether a key of `--plugins` is this layout.
#[must_use]
pub fn is_layout(key: &str) -> bool {
    [LAYOUT, "helm.sdk.operatorframework.io", "helm/v1", "helm"].contains(&key)
}

/// Whether a project has this layout.
#[must_use]
pub fn is_of_charts(project: &Project) -> bool {
    project.layout.iter().any(|key| key == LAYOUT)
}

/// Plans a new project.
///
/// # Errors
/// When a name cannot be used, or something is in the way.
pub fn init<'a>(files: &'a dyn Files, options: &Init) -> Result<Plan<'a>, Diagnostic> {
    let project = options.project(files, LAYOUT, &[])?;
    let mut plan = Plan::new(files);
    crate::config::sync(None, &project, &mut plan)?;
    runs_charts(&mut plan)?;
    plan.write(project::FILE, project.to_text())?;
    plan.write(WATCHES, without_code::no_watches("chart"))?;
    plan.write(
        "Dockerfile",
        DOCKERFILE.replace("REPOSITORY", env!("CARGO_PKG_REPOSITORY")),
    )?;
    plan.write("Makefile", without_code::makefile("$(KUBEWRIGHT) helm-operator run"))?;
    if plan.read(".gitignore")?.is_none() {
        plan.write(".gitignore", "/bin/\n*.swp\n*~\n")?;
    }
    plan.write(ROLE, role::file(&project, &Rules::base()))?;
    Ok(plan)
}

/// The manager of `config/` is the operator of charts: its image runs it.
fn runs_charts(plan: &mut Plan<'_>) -> Result<(), Diagnostic> {
    const MANAGER: &str = "config/manager/manager.yaml";
    const METRICS: &str = "config/metrics/manager_metrics_patch.yaml";
    let edit = |plan: &mut Plan<'_>, path: &str, edits: &[(&str, &str)]| -> Result<(), Diagnostic> {
        let mut text = plan.read(path)?.unwrap_or_default();
        for (from, to) in edits {
            debug_assert!(text.contains(from), "{path} has {from}");
            text = text.replacen(from, to, 1);
        }
        plan.write(path, text)
    };
    edit(
        plan,
        MANAGER,
        &[
            ("        command:\n        - /manager\n", ""),
            // Helm's folders and values are in the temporary directory.
            (
                "        volumeMounts: []\n      volumes: []\n",
                "        volumeMounts:\n        - name: tmp\n          mountPath: /tmp\n      volumes:\n      - name: tmp\n        emptyDir: {}\n",
            ),
            // A run of Helm needs as much for itself.
            ("memory: 128Mi", "memory: 512Mi"),
        ],
    )?;
    edit(
        plan,
        METRICS,
        &[(
            "  value: --metrics-bind-address=:8443\n",
            "  value: --metrics-bind-address=:8443\n- op: add\n  path: /spec/template/spec/containers/0/args/0\n  value: --metrics-secure\n\
             - op: add\n  path: /spec/template/spec/containers/0/args/0\n  value: --metrics-require-rbac\n",
        )],
    )
}

const DOCKERFILE: &str = r#"# The operator: kubewright, Helm and the charts. Where kubewright comes from, and which Helm it is, can be said.
ARG BUILD_IMAGE=rust:1.97.0-slim-bookworm
ARG HELM_IMAGE=docker.io/alpine/helm:3.19.0
ARG RUN_IMAGE=gcr.io/distroless/cc-debian12:nonroot

FROM ${BUILD_IMAGE} AS kubewright
ARG KUBEWRIGHT=REPOSITORY
RUN apt-get update && apt-get install --yes --no-install-recommends git && \
    cargo install kubewright-cli --locked --root /out --git "${KUBEWRIGHT}"

FROM ${HELM_IMAGE} AS helm

FROM ${RUN_IMAGE}
COPY --from=kubewright /out/bin/kubewright /usr/local/bin/kubewright
COPY --from=helm /usr/bin/helm /usr/local/bin/helm
ENV HOME=/opt/helm
COPY watches.yaml ${HOME}/watches.yaml
COPY helm-charts ${HOME}/helm-charts
WORKDIR ${HOME}
USER 65532:65532
ENTRYPOINT ["kubewright", "helm-operator", "run", "--watches-file=./watches.yaml"]
"#;

/// A chart, as far as a project needs to know it.
#[derive(Debug, Clone)]
pub struct Chart {
    /// Its name.
    pub name: String,
    /// The text of its `values.yaml`.
    pub values: String,
    /// Its `values.schema.json`, if it has one.
    pub schema: Option<Value>,
    /// The objects that it renders with its own values.
    pub rendered: Vec<Value>,
}

/// The options of `create api`.
#[derive(Debug, Clone)]
pub struct CreateApi {
    /// The group without the domain; [`GROUP`] where it is empty.
    pub group: String,
    /// The version; [`VERSION`] where it is empty.
    pub version: String,
    /// The kind; made from the chart's name where it is empty.
    pub kind: String,
    /// The plural, when it does not follow from the kind.
    pub plural: Option<String>,
    /// The chart.
    pub chart: Chart,
    /// Whether to write over existing files.
    pub force: bool,
}

/// Plans a kind that is a chart. The chart's own files are not part of the plan.
///
/// # Errors
/// When a name cannot be used, the kind is there, or a file is in the way.
pub fn create_api<'a>(files: &'a dyn Files, options: &CreateApi) -> Result<Plan<'a>, Diagnostic> {
    let mut plan = Plan::new(files);
    let resource = resource(&Project::load(&plan)?, options)?;
    let project = without_code::add(&mut plan, &resource, options.force)?;
    let runs = format!("  chart: {FOLDER}/{}\n", options.chart.name);
    without_code::watch(&mut plan, &resource, &runs)?;
    let crd = format!("config/crd/bases/{}_{}.yaml", resource.full_group(), resource.plural());
    plan.write(&crd, definition(&resource, options.chart.schema.as_ref()))?;
    sample(&mut plan, &resource, &options.chart)?;
    let mut rules = role::read(&mut plan)?;
    rules.add_kind(&resource);
    rules.add_chart(&options.chart.rendered, &mut plan.notes);
    plan.write(ROLE, role::file(&project, &rules))?;
    plan.notes.push(format!(
        "{ROLE} has what the chart renders with its own values; add what other values need"
    ));
    plan.next.push("kubewright install".to_owned());
    plan.next.push("kubewright helm-operator run".to_owned());
    Ok(plan)
}

fn resource(project: &Project, options: &CreateApi) -> Result<Resource, Diagnostic> {
    let or = |given: &str, default: &str| {
        if given.is_empty() {
            default.to_owned()
        } else {
            given.to_owned()
        }
    };
    let kind = or(&options.kind, &names::rust::camel(&options.chart.name));
    let version = or(&options.version, VERSION);
    let group = or(&options.group, GROUP);
    const ATTEMPTED: &str = "cannot create the API";
    names::kind(&kind).map_err(|bad| wrong(ATTEMPTED, "--kind", &kind, &bad))?;
    names::version(&version).map_err(|bad| wrong(ATTEMPTED, "--version", &version, &bad))?;
    let mut resource = Resource::own(&group, &project.domain, &version, &kind, true);
    resource.plural.clone_from(&options.plural);
    Ok(resource)
}

fn definition(resource: &Resource, schema: Option<&Value>) -> String {
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut spec = schema.map_or_else(|| any.clone(), of_values);
    spec["description"] = json!(format!("The values of the chart of a {}.", resource.kind));
    let mut status = any;
    status["description"] = json!("The release and its conditions.");
    let columns = json!([
        {"name": "Deployed", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Deployed\")].status"},
        {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
    ]);
    let about = format!("A {}: the release of a chart.", resource.kind);
    without_code::definition(resource, &about, Some(columns), spec, status)
}

/// The example of a kind has the chart's values.
fn sample(plan: &mut Plan<'_>, resource: &Resource, chart: &Chart) -> Result<(), Diagnostic> {
    let stem = format!(
        "{}_{}_{}",
        resource.group,
        resource.version,
        resource.kind.to_lowercase()
    );
    let path = format!("config/samples/{stem}.yaml");
    let mut text = format!(
        "apiVersion: {}\nkind: {}\nmetadata:\n  name: {}-sample\nspec:\n  # The values of {FOLDER}/{}/values.yaml; leave out what stays as it is there.\n",
        resource.api_version(),
        resource.kind,
        resource.kind.to_lowercase(),
        chart.name
    );
    let mut said = false;
    for line in chart.values.lines() {
        said |= !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let line = line.trim_end();
        text.push_str(&if line.is_empty() {
            "\n".to_owned()
        } else {
            format!("  {line}\n")
        });
    }
    if !said {
        text = text.replacen("spec:\n", "spec: {}\n", 1);
    }
    plan.write(&path, text)
}

#[cfg(test)]
mod tests;
