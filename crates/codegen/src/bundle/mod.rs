//! `bundle/`: the operator as the Operator Lifecycle Manager takes it: manifests, metadata, and the Dockerfile of the
//! bundle's image.
//!
//! [`bundle`] renders `config/default`, without certificates, which OLM makes itself, and says it as a
//! ClusterServiceVersion: Deployments, the rules of the roles that the operator's account is bound to, webhooks,
//! definitions with the examples of `config/samples`. Texts that only people can write (a description, its maintainers,
//! an icon) stand in `config/manifests/bases`, which is written once and is theirs. Invariants: a written bundle has
//! passed `check`; files that this command did not write are left alone. Inside: [`catalog`] is what installs one, `csv`
//! makes the ClusterServiceVersion, `plain` takes manifests that somebody else rendered, `rights` takes roles apart,
//! `webhooks` the configurations, `check` are the rules of operator-framework/api, [`scorecard`] the tests; [`validate`]
//! judges bundles of others, too. Not here: building images and catalogs (docker, opm).

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::codes;
use crate::config;
use crate::diagnostic::{Diagnostic, Place};
use crate::kustomize;
use crate::plan::{Files, Plan};
use crate::project::Project;
use crate::yaml;

pub use plain::{Input, generate, new_base};

pub mod catalog;
mod check;
mod csv;
mod plain;
mod rights;
pub mod scorecard;
pub mod validate;
mod webhooks;

#[cfg(test)]
mod plain_tests;
#[cfg(test)]
mod tests;

/// The first line of every file that is written here.
const HEADER: &str = "# Written by kubewright bundle; edit config/ instead.\n";

/// Kinds whose objects become part of the ClusterServiceVersion, or are OLM's own matter.
const TAKEN_IN: [&str; 8] = [
    "Deployment",
    "MutatingWebhookConfiguration",
    "ValidatingWebhookConfiguration",
    "Namespace",
    "ServiceAccount",
    "Certificate",
    "Issuer",
    "CustomResourceDefinition",
];

/// The options of the command.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The version of the operator, as semantic versioning has it.
    pub version: String,
    /// The name of the package; the project's when not said.
    pub package: Option<String>,
    /// The channels that the bundle belongs to.
    pub channels: Vec<String>,
    /// The channel of subscriptions without one.
    pub default_channel: Option<String>,
    /// The image of the operator, when it is not the one of `config/manager`.
    pub image: Option<String>,
    /// The folder of the bundle.
    pub output: String,
    /// Who is named as maintainer in a new base, as Cargo.toml has it: `Ann <ann@example.com>`.
    pub authors: Vec<String>,
    /// Where the source lives, for a new base.
    pub repository: Option<String>,
    /// The version of this program.
    pub cli_version: String,
    /// Whether scorecard's tests are configured, though PROJECT does not list its plugin.
    pub scorecard: bool,
    /// Whether to write over files that this command did not make.
    pub force: bool,
}

/// Plans the bundle of a project.
///
/// # Errors
/// When `config/` cannot be rendered, the base is no ClusterServiceVersion, or OLM would refuse the result.
pub fn bundle<'a>(files: &'a dyn Files, options: &Options) -> Result<Plan<'a>, Diagnostic> {
    let project = Project::load(files)?;
    let package = options.package.clone().unwrap_or_else(|| project.name.clone());
    check::words(options, &package)?;
    let mut plan = Plan::new(files);
    let sources = Sources {
        base: base(&project, &package, options, &mut plan)?,
        objects: rendered(&project, options, &plan)?,
        samples: samples(&plan)?,
        scorecard: scorecard::of(&project, options, &plan)?,
        project,
        package,
    };
    sources.write(options, plan)
}

/// What a bundle is made of.
struct Sources {
    project: Project,
    package: String,
    base: Value,
    objects: Vec<Value>,
    samples: Vec<Value>,
    scorecard: Option<Value>,
}

impl Sources {
    /// The files of the bundle.
    fn write<'a>(mut self, options: &Options, mut plan: Plan<'a>) -> Result<Plan<'a>, Diagnostic> {
        let rights = rights::of(&mut self.objects, &mut plan)?;
        let hooks = webhooks::of(&self.objects, &mut plan)?;
        let services = webhooks::services(&self.objects);
        let package = &self.package;
        let csv = csv::Parts {
            project: &self.project,
            options,
            package,
            base: self.base,
            objects: &self.objects,
            samples: &self.samples,
            rights,
            hooks,
        }
        .object();
        let mut manifests = BTreeMap::new();
        for object in self.objects {
            let kind = object["kind"].as_str().unwrap_or_default();
            // OLM makes the Service of the webhooks itself.
            let is_service = kind == "Service" && services.iter().any(|name| object["metadata"]["name"] == **name);
            if (TAKEN_IN.contains(&kind) && kind != "CustomResourceDefinition") || is_service {
                continue;
            }
            manifests.insert(file_name(&object), without_namespace(object));
        }
        let csv_file = format!("{package}.clusterserviceversion.yaml");
        check::bundle(&csv, manifests.values(), &csv_file, &mut plan.warnings)?;
        manifests.insert(csv_file, csv);
        let labels = labels(&self.project, package, options, self.scorecard.is_some());
        write(&manifests, self.scorecard.as_ref(), &labels, options, &mut plan)?;
        plan.next.push(format!(
            "docker build -f bundle.Dockerfile -t REGISTRY/{package}-bundle:v{} .",
            options.version
        ));
        Ok(plan)
    }
}

/// `config/default` as OLM needs it: with webhooks, but with no certificates of its own.
fn rendered(project: &Project, options: &Options, plan: &Plan<'_>) -> Result<Vec<Value>, Diagnostic> {
    let mut all = Plan::new(plan);
    for part in ["metrics-certs", "certmanager", "certificates"] {
        config::switch_off(part, &mut all)?;
    }
    if let Some(image) = &options.image {
        config::set_image(image, &mut all)?;
    }
    let mut objects = kustomize::build("config/default", &all)?;
    for object in &mut objects {
        if project.has_webhooks() && object["kind"] == "Deployment" {
            webhooks::leave_certificates_out(object);
        }
    }
    Ok(objects)
}

/// The examples, when there are any.
fn samples(plan: &Plan<'_>) -> Result<Vec<Value>, Diagnostic> {
    match plan.read("config/samples/kustomization.yaml")? {
        Some(_) => kustomize::build("config/samples", plan),
        None => Ok(Vec::new()),
    }
}

/// The people's part of the description; written when it is not there.
fn base(project: &Project, package: &str, options: &Options, plan: &mut Plan<'_>) -> Result<Value, Diagnostic> {
    base_in("config/manifests", project, package, options, plan)
}

/// The same in another folder than the usual one.
fn base_in(
    folder: &str,
    project: &Project,
    package: &str,
    options: &Options,
    plan: &mut Plan<'_>,
) -> Result<Value, Diagnostic> {
    let path = format!("{folder}/bases/{package}.clusterserviceversion.yaml");
    if let Some(base) = written_base(&path, plan)? {
        return Ok(base);
    }
    let base = csv::new_base(project, package, options);
    let text = format!(
        "# What people read of the operator; `kubewright bundle` fills in the rest. This file is yours: add an icon, keywords,\n# minKubeVersion, replaces.\n{}",
        yaml::to_string(&base)
    );
    plan.write(&path, text)?;
    plan.notes.push(format!(
        "describe the operator in {path}; the command does not change it again"
    ));
    Ok(base)
}

/// The base in a file, if there is one.
fn written_base(path: &str, plan: &Plan<'_>) -> Result<Option<Value>, Diagnostic> {
    let Some(text) = plan.read(path)? else {
        return Ok(None);
    };
    let wrong = |why| {
        Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
            .at(Place::file(path))
            .because(why)
            .fix("correct it, or remove it: a new one is written then")
    };
    whole(yaml::parse(&text).map_err(wrong)?, path).map(Some)
}

/// A base that can be filled in.
fn whole(base: Value, path: &str) -> Result<Value, Diagnostic> {
    let is_whole = base["kind"] == "ClusterServiceVersion" && base["spec"].is_object() && base["metadata"].is_object();
    let annotations = &base["metadata"]["annotations"];
    if is_whole && (annotations.is_object() || annotations.is_null()) {
        return Ok(base);
    }
    Err(Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
        .at(Place::file(path))
        .because("it is not a ClusterServiceVersion with metadata and a spec")
        .fix("correct it, or remove it: a new one is written then"))
}

/// Writes the files, and removes those of an earlier bundle.
fn write(
    manifests: &BTreeMap<String, Value>,
    scorecard: Option<&Value>,
    labels: &[(String, String)],
    options: &Options,
    plan: &mut Plan<'_>,
) -> Result<(), Diagnostic> {
    let folder = format!("{}/manifests", options.output);
    let mut texts: BTreeMap<String, String> = manifests
        .iter()
        .map(|(file, object)| (format!("{folder}/{file}"), yaml::to_string(object)))
        .collect();
    let tests = format!("{}/{}", options.output, scorecard::FILE);
    texts.extend(scorecard.map(|object| (tests.clone(), yaml::to_string(object))));
    for path in plan.list(&folder)?.into_iter().chain([tests]) {
        let is_ours = plan.read(&path)?.is_some_and(|text| text.starts_with(HEADER));
        if is_ours && !texts.contains_key(&path) {
            plan.remove(&path)?;
        }
    }
    let annotations: Map<String, Value> = labels.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    texts.insert(
        format!("{}/metadata/annotations.yaml", options.output),
        yaml::to_string(&json!({ "annotations": annotations })),
    );
    texts.insert(
        "bundle.Dockerfile".to_owned(),
        dockerfile(labels, &options.output, scorecard.is_some()),
    );
    for (path, text) in texts {
        plan.write_marked(&path, HEADER, &text, options.force)?;
    }
    Ok(())
}

/// The labels of a bundle for catalogs (operator-registry's `bundle.mediatype.v1` and its neighbours).
fn labels(project: &Project, package: &str, options: &Options, has_scorecard: bool) -> Vec<(String, String)> {
    let mut labels = vec![
        ("bundle.mediatype.v1", "registry+v1".to_owned()),
        ("bundle.manifests.v1", "manifests/".to_owned()),
        ("bundle.metadata.v1", "metadata/".to_owned()),
        ("bundle.package.v1", package.to_owned()),
        ("bundle.channels.v1", options.channels.join(",")),
    ];
    if let Some(channel) = &options.default_channel {
        labels.push(("bundle.channel.default.v1", channel.clone()));
    }
    labels.push(("metrics.builder", format!("kubewright-{}", options.cli_version)));
    labels.push(("metrics.mediatype.v1", "metrics+v1".to_owned()));
    labels.push(("metrics.project_layout", project.layout.join(",")));
    if has_scorecard {
        labels.push(("test.config.v1", "tests/scorecard/".to_owned()));
        labels.push(("test.mediatype.v1", "scorecard+v1".to_owned()));
    }
    let long = |(key, value): (&str, String)| (format!("operators.operatorframework.io.{key}"), value);
    labels.into_iter().map(long).collect()
}

fn dockerfile(labels: &[(String, String)], output: &str, has_scorecard: bool) -> String {
    let mut text = "FROM scratch\n\n".to_owned();
    for (key, value) in labels {
        text += &format!("LABEL {key}={value}\n");
    }
    text += &format!("\nCOPY {output}/manifests /manifests/\nCOPY {output}/metadata /metadata/\n");
    if has_scorecard {
        text += &format!("COPY {output}/tests/scorecard /tests/scorecard/\n");
    }
    text
}

/// operator-sdk's name for the file of an object.
fn file_name(object: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if object["kind"] == "CustomResourceDefinition" {
        let (group, plural) = (text(&object["spec"]["group"]), text(&object["spec"]["names"]["plural"]));
        return format!("{group}_{plural}.yaml");
    }
    let version = text(&object["apiVersion"]).replace('/', "_");
    let kind = text(&object["kind"]).to_lowercase();
    // A colon, which names of roles may have, has no place in every file system.
    let name = text(&object["metadata"]["name"]).replace(':', "-");
    format!("{name}_{version}_{kind}.yaml")
}

/// OLM chooses the namespace.
fn without_namespace(mut object: Value) -> Value {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("namespace");
    }
    object
}

/// The words of a name in camel case: `containerPort` is `Container Port`, `HTTPRoute` is `HTTP Route`.
fn title(name: &str) -> String {
    let letters: Vec<char> = name.chars().collect();
    let mut text = String::new();
    for (at, letter) in letters.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| letters[before]);
        let after = letters.get(at + 1);
        let begins = letter.is_uppercase()
            && before.is_some_and(|before| {
                before.is_lowercase() || before.is_numeric() || after.is_some_and(|after| after.is_lowercase())
            });
        if begins && !text.ends_with(' ') {
            text.push(' ');
        }
        match letter {
            '-' | '_' | '.' => text.push(' '),
            _ if at == 0 || text.ends_with(' ') => text.extend(letter.to_uppercase()),
            letter => text.push(*letter),
        }
    }
    text
}
