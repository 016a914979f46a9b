//! What the objects of a bundle must keep together (operator-framework/api's `BundleValidator`, and operator-sdk's
//! `ValidateBundleContent`).

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::names;
use kubewright_schema::path::FieldPath;
use serde_json::Value;

use super::super::check::KINDS;
use super::csv::gvk;
use super::read::Bundle;
use super::{Findings, Place, text, values};
use crate::config;

/// The most bytes of a ConfigMap, in which OLM carries a bundle.
const MAX_SIZE: usize = 1 << 20;

/// Checks all of it.
pub(super) fn all(bundle: &Bundle, findings: &mut Findings) {
    for twice in &bundle.doubled {
        findings.warning(
            Place::Value(twice),
            "the key stands twice in one map, of which the last counts",
        );
    }
    for file in &bundle.longer {
        findings.warning(
            Place::Value(file),
            "it has several objects, of which OLM reads the first: make a file of each",
        );
    }
    objects(bundle, findings);
    definitions(bundle, findings);
    accounts(bundle, findings);
    size(bundle, findings);
    let release = text(&bundle.csv, "spec.release");
    let version = text(&bundle.csv, "spec.version");
    let expected = format!("{}-v{version}-{release}", bundle.package);
    if !release.is_empty() && bundle.name() != expected {
        findings.error(
            Place::Value(bundle.name()),
            format!("with a release, the name must be {expected}"),
        );
    }
    for (at, image) in values(&bundle.csv, "spec.relatedImages.*").into_iter().enumerate() {
        let image = text(image, "image");
        if !config::is_reference(image) {
            let field = format!("spec.relatedImages[{at}].image");
            findings.error(Place::Value(&field), format!("{image:?} is no reference to an image"));
        }
    }
}

/// Kinds that OLM takes, with metadata that an API server takes.
fn objects(bundle: &Bundle, findings: &mut Findings) {
    for (_, object) in &bundle.objects {
        let kind = text(object, "kind");
        if ["ClusterServiceVersion", "CustomResourceDefinition"].contains(&kind) {
            continue;
        }
        if !KINDS.contains(&kind) {
            let kind = gvk(text(object, "apiVersion"), kind);
            findings.error(
                Place::Value(&kind),
                "OLM takes no objects of this kind in a bundle: let the operator make it",
            );
            continue;
        }
        let metadata = &object["metadata"];
        let name = text(metadata, "name");
        let at = FieldPath::root().key("metadata");
        let mut wrong: Vec<String> = Vec::new();
        if name.is_empty() && text(metadata, "generateName").is_empty() {
            wrong.push("metadata.name: Required value: name or generateName is required".to_owned());
        }
        if !text(metadata, "namespace").is_empty() {
            wrong.push("metadata.namespace: Forbidden: OLM puts objects in the namespace of the operator".to_owned());
        }
        let maps = names::labels(&metadata["labels"], &at.key("labels"));
        let maps = maps
            .into_iter()
            .chain(names::annotations(&metadata["annotations"], &at.key("annotations")));
        wrong.extend(maps.map(|error| error.to_string()));
        for finalizer in metadata["finalizers"].as_array().into_iter().flatten() {
            let errors = names::finalizer_name(finalizer.as_str().unwrap_or_default(), &at.key("finalizers"));
            wrong.extend(errors.into_iter().map(|error| error.to_string()));
        }
        for why in wrong {
            findings.error(Place::Value(name), format!("{kind}: {why}"));
        }
    }
}

/// Versions of kinds that are in the bundle, as the ClusterServiceVersion would name them.
fn definitions(bundle: &Bundle, findings: &mut Findings) {
    let name = bundle.name();
    // By version and kind: the group and the kind without the version.
    let mut there: BTreeMap<String, (String, String)> = BTreeMap::new();
    for version in ["v1", "v1beta1"] {
        for crd in bundle.definitions(version) {
            let (group, kind) = (text(crd, "spec.group"), text(crd, "spec.names.kind"));
            let mut versions: Vec<&str> = values(crd, "spec.versions.*.name")
                .into_iter()
                .filter_map(Value::as_str)
                .collect();
            if versions.is_empty() && version == "v1beta1" {
                versions.push(text(crd, "spec.version"));
            }
            for version in versions {
                let key = gvk(&format!("{group}/{version}"), kind);
                if there.insert(key.clone(), (group.to_owned(), kind.to_owned())).is_some() {
                    findings.error(Place::Value(&key), format!("the bundle {name} defines it twice"));
                }
            }
            if version == "v1beta1" {
                let why =
                    "Kubernetes 1.22 removed CustomResourceDefinitions of v1beta1, so that its schema is not checked";
                findings.warning(Place::Value(text(crd, "metadata.name")), why);
                if crd["spec"]["preserveUnknownFields"] != false {
                    let why = "API servers take only false: write apiVersion apiextensions.k8s.io/v1";
                    findings.error(Place::Field("spec.preserveUnknownFields"), why);
                }
            }
        }
    }
    let mut owned = BTreeSet::new();
    for entry in values(&bundle.csv, "spec.customresourcedefinitions.owned.*") {
        let full = text(entry, "name");
        let group = full.split_once('.').map_or(full, |(_, group)| group);
        let kind = text(entry, "kind");
        let key = gvk(&format!("{group}/{}", text(entry, "version")), kind);
        if !there.contains_key(&key) {
            findings.error(
                Place::Value(&key),
                format!("it is owned, and the bundle {name} has no definition of it"),
            );
        }
        owned.insert((group.to_owned(), kind.to_owned()));
    }
    for (key, kind) in there {
        if !owned.contains(&kind) {
            let why = format!(
                "the bundle {name} has a definition of it, and spec.customresourcedefinitions.owned does not name it"
            );
            findings.error(Place::Value(&key), why);
        }
    }
}

/// OLM makes the accounts under which Deployments run.
fn accounts(bundle: &Bundle, findings: &mut Findings) {
    let deployments = values(&bundle.csv, "spec.install.spec.deployments.*.spec.template.spec");
    let used: BTreeSet<&str> = deployments
        .into_iter()
        .map(|pod| text(pod, "serviceAccountName"))
        .collect();
    for (_, object) in &bundle.objects {
        let name = text(object, "metadata.name");
        if object["kind"] == "ServiceAccount" && object["apiVersion"] == "v1" && used.contains(name) {
            findings.error(
                Place::Value(name),
                "OLM makes the ServiceAccount of a Deployment itself: remove this one, or give it another name",
            );
        }
    }
}

fn size(bundle: &Bundle, findings: &mut Findings) {
    let megabytes = |bytes: usize| format!("{:.1} MB", bytes as f64 / 1e6);
    let (compressed, all, max) = (
        megabytes(bundle.compressed),
        megabytes(bundle.size),
        megabytes(MAX_SIZE),
    );
    let place = Place::Value(bundle.name());
    if bundle.compressed > MAX_SIZE {
        findings.error(
            place,
            format!("it has {all}, compressed {compressed}, and OLM carries at most {max}: shorten descriptions"),
        );
    } else if bundle.compressed > MAX_SIZE / 100 * 85 {
        findings.warning(
            place,
            format!("it has {all}, compressed {compressed}, and OLM carries at most {max}"),
        );
    }
}
