//! What every ClusterServiceVersion must keep (operator-framework/api's `CSVValidator`), and the fields that its own
//! definition in the cluster requires.

use std::collections::BTreeSet;

use kubewright_schema::names::{dns1123_subdomain, label_value};
use serde_json::Value;

use super::super::check::{MODES, REQUIRED};
use super::read::Bundle;
use super::{Findings, Place, text, values};

/// Annotations of OLM, which distinguish small and capital letters.
const OF_OLM: [&str; 5] = [
    "olm.operatorGroup",
    "olm.operatorNamespace",
    "olm.targetNamespaces",
    "olm.providedAPIs",
    "olm.skipRange",
];

/// Fields that are wrong when they are empty, too.
const FILLED: [(&str, &str); 3] = [
    ("spec", "displayName"),
    ("spec.install", "strategy"),
    ("spec.install.spec", "deployments"),
];

/// Checks all of it.
pub(super) fn all(bundle: &Bundle, findings: &mut Findings) {
    let csv = &bundle.csv;
    let name = bundle.name();
    for (field, name) in [("metadata.name", name), ("spec.replaces", text(csv, "spec.replaces"))] {
        if field == "spec.replaces" && name.is_empty() {
            continue;
        }
        let why: Vec<String> = dns1123_subdomain(name).into_iter().chain(label_value(name)).collect();
        if !why.is_empty() {
            findings.error(Place::Field(field), format!("{name:?} is invalid: {}", why.join(", ")));
        }
    }
    examples(csv, name, findings);
    modes(csv, name, findings);
    min_kube_version(csv, name, findings);
    required(csv, findings);
    for key in csv["metadata"]["annotations"]
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::keys)
    {
        if let Some(right) = OF_OLM
            .iter()
            .find(|known| known.eq_ignore_ascii_case(key) && *known != key)
        {
            findings.error(
                Place::Value(name),
                format!("the annotation {key} must be written {right}"),
            );
        }
        if key == "olm.properties" {
            findings.warning(
                Place::Value(name),
                "the annotation olm.properties is old: write the properties to metadata/properties.yaml",
            );
        }
    }
    if !text(csv, "apiVersion").starts_with("operators.coreos.com/") {
        findings.error(Place::Field("apiVersion"), "write operators.coreos.com/v1alpha1");
    }
}

/// Examples and kinds belong together.
fn examples(csv: &Value, name: &str, findings: &mut Findings) {
    let annotations = &csv["metadata"]["annotations"];
    let found = ["alm-examples", "olm.examples"].map(|key| annotations[key].as_str());
    let examples = match found {
        [None, None] => {
            return findings.warning(
                Place::Value(name),
                "the annotation alm-examples is missing: it shows an object of each kind",
            );
        }
        [Some(first), second] => {
            if second.is_some() {
                findings.warning(
                    Place::Value(name),
                    "alm-examples is read, so that olm.examples says nothing",
                );
            }
            first
        }
        [None, Some(second)] => second,
    };
    let read: Result<Vec<Value>, _> = serde_json::from_str(if examples.trim().is_empty() { "[]" } else { examples });
    let examples = match read {
        Ok(examples) => examples,
        Err(why) => {
            return findings.error(
                Place::Field("metadata.annotations.alm-examples"),
                format!("it is no JSON list of objects: {why}"),
            );
        }
    };
    let shown: BTreeSet<String> = examples
        .iter()
        .map(|object| gvk(text(object, "apiVersion"), text(object, "kind")))
        .collect();
    let mut owned = BTreeSet::new();
    for entry in values(csv, "spec.customresourcedefinitions.owned.*") {
        match text(entry, "name").split_once('.') {
            Some((_, group)) => {
                owned.insert(gvk(&format!("{group}/{}", text(entry, "version")), text(entry, "kind")));
            }
            None => findings.error(
                Place::Field("spec.customresourcedefinitions.owned"),
                format!(
                    "{:?} must be the name of a definition: plural.group",
                    text(entry, "name")
                ),
            ),
        }
    }
    for entry in values(csv, "spec.apiservicedefinitions.owned.*") {
        owned.insert(gvk(
            &format!("{}/{}", text(entry, "group"), text(entry, "version")),
            text(entry, "kind"),
        ));
    }
    for kind in shown.difference(&owned) {
        findings.error(
            Place::Value(kind),
            "there is an example of it, and the operator does not own the kind",
        );
    }
    for kind in owned.difference(&shown) {
        findings.warning(
            Place::Value(kind),
            "the operator owns it, and there is no example of it in alm-examples",
        );
    }
}

/// A kind as Go's tools write it.
pub(super) fn gvk(version: &str, kind: &str) -> String {
    format!("{version}, Kind={kind}")
}

fn modes(csv: &Value, name: &str, findings: &mut Findings) {
    let listed = values(csv, "spec.installModes.*");
    if listed.is_empty() {
        return findings.error(
            Place::Value(name),
            "spec.installModes is missing: no namespace could be served",
        );
    }
    let mut seen = BTreeSet::new();
    for mode in &listed {
        let kind = text(mode, "type");
        if !seen.insert(kind) {
            findings.error(Place::Value(name), format!("the install mode {kind} is listed twice"));
        }
        if !MODES.contains(&kind) {
            findings.error(
                Place::Value(name),
                format!("{kind:?} is no install mode: there are {}", MODES.join(", ")),
            );
        }
    }
    let supported = |kind: &str| {
        listed
            .iter()
            .any(|mode| mode["type"] == kind && mode["supported"] == true)
    };
    let converts = !values(csv, "spec.webhookdefinitions.*.conversionCRDs.*").is_empty();
    if converts && (!supported(MODES[3]) || MODES[..3].iter().any(|kind| supported(kind))) {
        findings.error(
            Place::Value(name),
            "with conversionCRDs, AllNamespaces must be the only install mode: versions are converted for the whole \
             cluster",
        );
    }
    if !MODES.iter().any(|kind| supported(kind)) {
        findings.error(
            Place::Value(name),
            "no install mode is supported: set supported of one to true",
        );
    }
}

/// The check that the hub makes, too.
pub(super) fn min_kube_version(csv: &Value, name: &str, findings: &mut Findings) {
    match text(csv, "spec.minKubeVersion") {
        version if version.trim().is_empty() => findings.warning(
            Place::Value(name),
            "spec.minKubeVersion is missing: without it, OLM installs the operator in clusters of any version",
        ),
        version if semver::Version::parse(version).is_err() => findings.error(
            Place::Value(name),
            format!("spec.minKubeVersion {version:?} is no version: write it in full, as in 1.30.0"),
        ),
        _ => {}
    }
}

fn required(csv: &Value, findings: &mut Findings) {
    let mut missing = BTreeSet::new();
    for (path, fields) in REQUIRED {
        for value in values(csv, path) {
            let lacks = |field: &&&str| value.get(**field).is_none_or(Value::is_null);
            missing.extend(fields.iter().filter(lacks).map(|field| (path, *field)));
        }
    }
    for (path, field) in FILLED {
        for value in values(csv, path) {
            let is_empty = match &value[field] {
                Value::String(text) => text.is_empty(),
                Value::Array(items) => items.is_empty(),
                other => other.is_null(),
            };
            if is_empty {
                missing.insert((path, field));
            }
        }
    }
    // Two rules above say it in better words; a version is only required by catalogs.
    for (path, field) in missing {
        if (path, field) != ("spec", "installModes") && (path, field) != ("spec", "version") {
            findings.error(Place::Field(&format!("{path}.{field}")), "it is required, and missing");
        }
    }
    if csv.get("spec").is_none() {
        findings.error(Place::Field("spec"), "it is required, and missing");
    }
}
