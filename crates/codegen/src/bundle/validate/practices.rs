//! Good practices (operator-framework/api's `GoodPracticesValidator`): the bundle works without them, and its users
//! miss them.

use std::collections::BTreeSet;

use regex::Regex;
use serde_json::Value;

use super::read::Bundle;
use super::{Findings, Options, Place, text, values};

/// Channels begin with one of these.
const CHANNELS: [&str; 3] = ["candidate", "fast", "stable"];

/// Checks all of them.
pub(super) fn good(bundle: &Bundle, _: &Options, findings: &mut Findings) {
    let name = Place::Value(bundle.name());
    requests(bundle, findings);
    for relation in ["owned", "required"] {
        for entry in values(&bundle.csv, &format!("spec.customresourcedefinitions.{relation}.*")) {
            if text(entry, "description").is_empty() {
                findings.warning(
                    name,
                    format!("the {relation} kind {} has no description", text(entry, "name")),
                );
            }
        }
    }
    let channels = bundle.channels.iter().chain([&bundle.default_channel]);
    let odd: BTreeSet<&str> = channels
        .map(|channel| channel.trim())
        .filter(|channel| !channel.is_empty() && !CHANNELS.iter().any(|known| channel.starts_with(known)))
        .collect();
    if !odd.is_empty() {
        let odd = odd.into_iter().collect::<Vec<_>>().join(", ");
        findings.warning(
            name,
            format!("the channels {odd} do not begin with candidate, fast or stable, as users expect"),
        );
    }
    if makes_definitions(bundle) {
        findings.warning(
            name,
            "the operator may create CustomResourceDefinitions: OLM cannot upgrade those; let another bundle own them",
        );
    }
    self::name(bundle.name(), findings);
}

fn requests(bundle: &Bundle, findings: &mut Findings) {
    let name = Place::Value(bundle.name());
    if bundle.csv["spec"]["install"]["spec"]["deployments"].is_null() {
        return findings.error(name, "there is no Deployment to install");
    }
    for container in values(
        &bundle.csv,
        "spec.install.spec.deployments.*.spec.template.spec.containers.*",
    ) {
        let requests = &container["resources"]["requests"];
        if requests.as_object().is_none_or(serde_json::Map::is_empty) {
            let container = text(container, "name");
            findings.warning(
                name,
                format!("the container {container} requests no CPU and memory: a quota may refuse its pods"),
            );
        }
    }
}

/// Whether a role lets the operator create definitions.
fn makes_definitions(bundle: &Bundle) -> bool {
    let has = |list: &Value, words: &[&str]| {
        let mut items = list.as_array().into_iter().flatten().filter_map(Value::as_str);
        items.any(|item| words.contains(&item))
    };
    ["permissions", "clusterPermissions"].into_iter().any(|part| {
        values(&bundle.csv, &format!("spec.install.spec.{part}.*.rules.*"))
            .into_iter()
            .any(|rule| {
                has(&rule["apiGroups"], &["apiextensions.k8s.io"])
                    && has(&rule["resources"], &["customresourcedefinitions", "*"])
                    && has(&rule["verbs"], &["create", "patch", "*"])
            })
    })
}

/// `memcached-operator.v0.0.1`.
fn name(name: &str, findings: &mut Findings) {
    let place = Place::Value(name);
    let version = Regex::new(r"([0-9]+)\.([0-9]+)\.([0-9]+)(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+)?$");
    let version = version.expect("a fixed expression");
    if version
        .find(name)
        .is_none_or(|found| semver::Version::parse(found.as_str()).is_err())
    {
        findings.warning(
            place,
            "metadata.name does not end with a version, as in memcached-operator.v0.0.1",
        );
    }
    if name.split(".v").count() != 2 {
        findings.warning(
            place,
            "metadata.name is not NAME.vVERSION, as in memcached-operator.v0.0.1",
        );
    }
}
