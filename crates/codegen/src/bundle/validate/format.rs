//! The layout of a bundle: two folders, annotations that say what the manifests are, dependencies
//! (operator-registry's `ValidateBundleFormat`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::read::Layout;
use super::{Findings, Level, text};

const PREFIX: &str = "operators.operatorframework.io.bundle.";

/// Checks the layout.
pub(super) fn layout(layout: &Layout, findings: &mut Findings) {
    let mut wrong = |message: String| findings.add(Level::Error, message);
    for (name, there) in ["manifests", "metadata"].into_iter().zip(layout.folders) {
        if !there {
            wrong(format!(
                "there is no folder {name}: OLM reads a bundle from manifests and metadata"
            ));
        }
    }
    if !layout.folders.iter().all(|there| *there) {
        return;
    }
    match &layout.annotations {
        Some(annotations) => self::annotations(annotations, layout.media_type, &mut wrong),
        None => wrong("no file in metadata has annotations: write metadata/annotations.yaml".to_owned()),
    }
    for dependency in &layout.dependencies {
        if let Err(why) = self::dependency(dependency) {
            wrong(format!("the dependency {dependency} {why}"));
        }
    }
}

fn annotations(annotations: &BTreeMap<String, Value>, media_type: &str, wrong: &mut impl FnMut(String)) {
    let said = |key: &str| annotations.get(&format!("{PREFIX}{key}")).and_then(Value::as_str);
    let expected = |key: &str, value: &str| format!("the annotation {PREFIX}{key} must be {value:?}");
    match said("mediatype.v1") {
        Some(found) if found == media_type => {}
        found => wrong(format!(
            "{}, as the manifests are, and is {:?}",
            expected("mediatype.v1", media_type),
            found.unwrap_or_default()
        )),
    }
    for key in ["manifests.v1", "metadata.v1", "package.v1", "channels.v1"] {
        if said(key).is_none() {
            wrong(format!("the annotation {PREFIX}{key} is missing"));
        }
    }
    let channels = said("channels.v1");
    if channels.is_some_and(str::is_empty) {
        wrong(format!("the annotation {PREFIX}channels.v1 names no channel"));
    }
    match (said("channel.default.v1"), channels) {
        (Some(""), _) => wrong(format!(
            "the annotation {PREFIX}channel.default.v1 is empty: name a channel, or leave it out"
        )),
        (Some(default), Some(channels)) if !channels.split(',').any(|channel| channel.trim() == default) => wrong(
            format!("the default channel {default} is none of the channels {channels}"),
        ),
        _ => {}
    }
}

/// What is wrong with a line of `dependencies.yaml`.
fn dependency(dependency: &Value) -> Result<(), String> {
    let has = |field: &str| match text(dependency, &format!("value.{field}")) {
        "" => Err(format!("has no {field}")),
        _ => Ok(()),
    };
    match text(dependency, "type") {
        "olm.gvk" => ["group", "version", "kind"].into_iter().try_for_each(has),
        "olm.package" => ["packageName", "version"].into_iter().try_for_each(has),
        "olm.label" => has("label"),
        "olm.constraint" if dependency["value"].is_object() => Ok(()),
        "olm.constraint" => Err("has no value".to_owned()),
        other => Err(format!(
            "is of the unknown type {other:?}: there are olm.gvk, olm.package, olm.label and olm.constraint"
        )),
    }
}
