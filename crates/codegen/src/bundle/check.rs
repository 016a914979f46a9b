//! Errors that OLM and its catalogs would report, found before: the rules of operator-framework/api (`pkg/validation`)
//! and of the schema of ClusterServiceVersion, as far as a bundle made here can break them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::names;

use super::Options;
use super::rights::account;

/// A bundle is carried in a ConfigMap, compressed; beyond this it does not fit for certain.
const SIZE: usize = 4 << 20;

/// The value of a label is at most so long.
const LABEL: usize = 63;

/// The kinds that a bundle may hold (operator-registry's `IsSupported`).
pub(super) const KINDS: [&str; 20] = [
    "ClusterRole",
    "ClusterRoleBinding",
    "ConfigMap",
    "ConsoleCLIDownload",
    "ConsoleLink",
    "ConsolePlugin",
    "ConsoleQuickStart",
    "ConsoleYAMLSample",
    "CustomResourceDefinition",
    "NetworkPolicy",
    "PodDisruptionBudget",
    "PriorityClass",
    "PrometheusRule",
    "Role",
    "RoleBinding",
    "Secret",
    "Service",
    "ServiceAccount",
    "ServiceMonitor",
    "VerticalPodAutoscaler",
];

/// The fields that the schema of ClusterServiceVersion requires, list by list (`*` is every item).
pub(super) const REQUIRED: [(&str, &[&str]); 12] = [
    ("spec", &["displayName", "install", "version", "installModes"]),
    ("spec.install", &["strategy", "spec"]),
    ("spec.install.spec", &["deployments"]),
    ("spec.install.spec.deployments.*", &["name", "spec"]),
    ("spec.install.spec.permissions.*", &["serviceAccountName", "rules"]),
    (
        "spec.install.spec.clusterPermissions.*",
        &["serviceAccountName", "rules"],
    ),
    ("spec.installModes.*", &["type", "supported"]),
    ("spec.customresourcedefinitions.owned.*", &["name", "version", "kind"]),
    ("spec.customresourcedefinitions.owned.*.specDescriptors.*", &["path"]),
    (
        "spec.customresourcedefinitions.required.*",
        &["name", "version", "kind"],
    ),
    ("spec.icon.*", &["base64data", "mediatype"]),
    (
        "spec.webhookdefinitions.*",
        &["admissionReviewVersions", "generateName", "sideEffects", "type"],
    ),
];

pub(super) const MODES: [&str; 4] = ["OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces"];

fn wrong(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle").because(why.into())
}

/// Whether the words of the request can be those of a bundle.
///
/// # Errors
/// When the version is none, or a name cannot be used.
pub(super) fn words(options: &Options, package: &str) -> Result<(), Diagnostic> {
    if !is_version(&options.version) {
        return Err(wrong(format!("{:?} is not a version", options.version))
            .fix("pass --version 0.1.0: three numbers, and perhaps -alpha.1; names cannot have a part after +"));
    }
    if let Err(why) = names::plural_name(&package.replace('.', "-")) {
        return Err(
            wrong(format!("{package:?} cannot be the name of a package: {}", why.why)).fix("pass --package NAME"),
        );
    }
    let fits = |channel: &String| {
        let letters = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        !channel.is_empty() && channel.chars().all(letters)
    };
    if options.channels.is_empty() || !options.channels.iter().all(fits) {
        return Err(
            wrong(format!("the channels {:?} cannot be", options.channels.join(",")))
                .fix("pass --channels stable,candidate: letters, digits, dots and hyphens"),
        );
    }
    match &options.default_channel {
        Some(channel) if !options.channels.contains(channel) => Err(wrong(format!(
            "the default channel {channel} is none of {}",
            options.channels.join(", ")
        ))
        .fix("name one of the channels")),
        _ => Ok(()),
    }
}

/// Semantic versioning, without the part after `+`.
fn is_version(version: &str) -> bool {
    semver::Version::parse(version).is_ok_and(|version| version.build.is_empty())
}

/// Whether OLM would take the bundle. A part that OLM does not require, but users miss, becomes a warning.
///
/// # Errors
/// The first error of OLM.
pub(super) fn bundle<'a>(
    csv: &Value,
    manifests: impl Iterator<Item = &'a Value> + Clone,
    file: &str,
    warnings: &mut Vec<Diagnostic>,
) -> Result<(), Diagnostic> {
    let at = |wrong: Diagnostic| wrong.at(Place::file(format!("manifests/{file}")));
    name(csv).map_err(at)?;
    fields(csv).map_err(at)?;
    modes(csv).map_err(at)?;
    deployments(csv).map_err(at)?;
    examples(csv, warnings).map_err(at)?;
    kinds(csv, manifests.clone())?;
    let size: usize = manifests.map(|object| object.to_string().len()).sum();
    if size + csv.to_string().len() > SIZE {
        return Err(wrong(format!("it is larger than {} MiB", SIZE >> 20))
            .fix("descriptions are the most of a definition: make them shorter"));
    }
    said(csv, warnings);
    Ok(())
}

/// The name is that of an object, and the value of labels, too.
fn name(csv: &Value) -> Result<(), Diagnostic> {
    let name = csv["metadata"]["name"].as_str().unwrap_or_default();
    if name.len() > LABEL || name.chars().any(|letter| letter.is_ascii_uppercase()) {
        return Err(wrong(format!(
            "{name:?} cannot be its name: labels have at most {LABEL} letters, and names only small ones"
        ))
        .fix("pass a shorter --package, or a --version in lower case"));
    }
    match csv["spec"].get("minKubeVersion") {
        Some(version) if !version.as_str().is_some_and(is_version) => {
            Err(wrong(format!("minKubeVersion {version} is not a version")).fix("write it in full: \"1.30.0\""))
        }
        _ => Ok(()),
    }
}

/// All values at a path with `*`.
pub(super) fn values<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    path.split('.').fold(vec![value], |found, part| {
        let next = |value: &'v Value| match (part, value) {
            ("*", Value::Array(items)) => items.iter().collect(),
            ("*", _) => Vec::new(),
            (part, value) => value.get(part).into_iter().collect::<Vec<_>>(),
        };
        found.into_iter().flat_map(next).collect()
    })
}

fn fields(csv: &Value) -> Result<(), Diagnostic> {
    for (path, required) in REQUIRED {
        for value in values(csv, path) {
            for field in required {
                let there = value.get(*field).filter(|there| !there.is_null() && *there != "");
                if there.is_none() {
                    return Err(wrong(format!("{path} has no {field}"))
                        .at(Place::default().field(format!("{path}.{field}")))
                        .fix("it is required: write it to config/manifests/bases"));
                }
            }
        }
    }
    Ok(())
}

fn modes(csv: &Value) -> Result<(), Diagnostic> {
    let base = "config/manifests/bases has other ones: correct them, or take installModes out there";
    let listed = values(csv, "spec.installModes.*");
    let mut seen = BTreeSet::new();
    for mode in &listed {
        let kind = mode["type"].as_str().unwrap_or_default();
        if !MODES.contains(&kind) || !seen.insert(kind) {
            return Err(wrong(format!("the install mode {kind:?} is listed twice, or there is none")).fix(base));
        }
    }
    let supported = |kind: &str| {
        listed
            .iter()
            .any(|mode| mode["type"] == kind && mode["supported"] == true)
    };
    if !MODES.iter().any(|kind| supported(kind)) {
        return Err(wrong("no install mode is supported, so that nobody could install the operator").fix(base));
    }
    let converts = values(csv, "spec.webhookdefinitions.*")
        .iter()
        .any(|webhook| webhook["type"] == "ConversionWebhook");
    let only_all = supported("AllNamespaces") && !MODES[..3].iter().any(|kind| supported(kind));
    if converts && !only_all {
        return Err(wrong(
            "versions of a CRD are converted for the whole cluster, so OLM allows AllNamespaces as the only mode",
        )
        .fix("kubewright edit --namespaced=false, or no conversion"));
    }
    Ok(())
}

fn deployments(csv: &Value) -> Result<(), Diagnostic> {
    let listed = values(csv, "spec.install.spec.deployments.*");
    if listed.is_empty() {
        return Err(
            wrong("config/default has no Deployment").fix("config/manager belongs to the resources of config/default")
        );
    }
    let accounts: BTreeSet<&str> = listed.iter().map(|deployment| account(deployment)).collect();
    let has_name = |name: &Value| listed.iter().any(|deployment| deployment["name"] == *name);
    for part in ["permissions", "clusterPermissions"] {
        for right in values(csv, &format!("spec.install.spec.{part}.*")) {
            let account = right["serviceAccountName"].as_str().unwrap_or_default();
            if !accounts.contains(account) {
                return Err(wrong(format!(
                    "{part} are those of {account}, under which no Deployment runs"
                )));
            }
        }
    }
    match values(csv, "spec.webhookdefinitions.*")
        .into_iter()
        .find(|webhook| !has_name(&webhook["deploymentName"]))
    {
        Some(webhook) => Err(wrong(format!(
            "the webhook {} is served by no Deployment of the bundle",
            webhook["generateName"]
        ))),
        None => Ok(()),
    }
}

/// Examples are of kinds that the operator has, and every kind has one.
fn examples(csv: &Value, warnings: &mut Vec<Diagnostic>) -> Result<(), Diagnostic> {
    let text = csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap_or("[]");
    let examples: Vec<Value> = serde_json::from_str(text)
        .map_err(|why| wrong(format!("alm-examples is not a list of objects: {why}")).fix("correct config/samples"))?;
    let owned: BTreeSet<(String, String)> = values(csv, "spec.customresourcedefinitions.owned.*")
        .into_iter()
        .map(|entry| {
            let text = |field: &str| entry[field].as_str().unwrap_or_default().to_owned();
            let name = text("name");
            let group = name.split_once('.').map_or("", |(_, group)| group);
            (format!("{group}/{}", text("version")), text("kind"))
        })
        .collect();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let shown: BTreeSet<(String, String)> = examples
        .iter()
        .map(|example| (text(&example["apiVersion"]), text(&example["kind"])))
        .collect();
    if let Some((version, kind)) = shown.difference(&owned).next() {
        return Err(wrong(format!(
            "there is an example of {version} {kind}, which the operator does not have"
        ))
        .fix("kubewright manifests writes the definitions; otherwise correct config/samples"));
    }
    for (version, kind) in owned.difference(&shown) {
        warnings.push(
            Diagnostic::new(
                codes::config::BUNDLE,
                format!("there is no example of {version} {kind}"),
            )
            .because("catalogs show one for every kind")
            .fix("add one to config/samples and its kustomization.yaml"),
        );
    }
    Ok(())
}

/// The definitions are those that are owned, and everything is of a kind that OLM takes.
fn kinds<'a>(csv: &Value, manifests: impl Iterator<Item = &'a Value> + Clone) -> Result<(), Diagnostic> {
    let name = |object: &Value| object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if let Some(object) = manifests
        .clone()
        .find(|object| !KINDS.iter().any(|kind| object["kind"] == *kind))
    {
        return Err(wrong(format!(
            "OLM takes no {} in a bundle",
            object["kind"].as_str().unwrap_or("object without a kind")
        ))
        .at(Place::default().field(name(object)))
        .fix("take it out of config/default, or let the operator make it"));
    }
    let there: BTreeSet<String> = manifests
        .filter(|object| object["kind"] == "CustomResourceDefinition")
        .map(name)
        .collect();
    let owned: BTreeSet<String> = values(csv, "spec.customresourcedefinitions.owned.*")
        .into_iter()
        .filter_map(|entry| entry["name"].as_str().map(str::to_owned))
        .collect();
    match there.symmetric_difference(&owned).next() {
        Some(name) => Err(wrong(format!(
            "the definition {name} is either in the bundle or owned, not both"
        ))
        .fix("kubewright manifests; what the base lists as owned must be the operator's")),
        None => Ok(()),
    }
}

/// The parts that users look for in a catalog.
fn said(csv: &Value, warnings: &mut Vec<Diagnostic>) {
    let images = values(
        csv,
        "spec.install.spec.deployments.*.spec.template.spec.containers.*.image",
    );
    if images.into_iter().any(|image| image == "controller:latest") {
        warnings.push(
            Diagnostic::new(codes::config::BUNDLE, "no image is set for the operator")
                .because("controller:latest is the placeholder in config/manager")
                .fix("pass --image REGISTRY/NAME:TAG, or set IMG"),
        );
    }
    let is_empty = |value: &Value| match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    };
    let missing: Vec<&str> = [
        "description",
        "icon",
        "keywords",
        "links",
        "maintainers",
        "minKubeVersion",
        "provider",
    ]
    .into_iter()
    .filter(|field| is_empty(&csv["spec"][*field]))
    .collect();
    if !missing.is_empty() {
        warnings.push(
            Diagnostic::new(codes::config::BUNDLE, "the bundle is valid, but lacks descriptions")
                .because(format!(
                    "catalogs show, and OperatorHub.io requires: {}",
                    missing.join(", ")
                ))
                .fix("write them to config/manifests/bases, below spec"),
        );
    }
}
