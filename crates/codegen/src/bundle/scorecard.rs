//! The configuration of OLM's scorecard: which tests judge a bundle on a cluster (`operator-sdk scorecard`).
//!
//! It is written when it is asked for: by a flag, by PROJECT, or by a `config/scorecard`, whose Configuration is taken
//! as it is.

use serde_json::{Value, json};

use super::Options;
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::kustomize;
use crate::plan::{Files, Plan};
use crate::project::Project;

/// The plugin of operator-sdk that projects list.
const KEY: &str = "scorecard.sdk.operatorframework.io/v2";
const FOLDER: &str = "config/scorecard";
const IMAGE: &str = "quay.io/operator-framework/scorecard-test:v1.42.0";

/// The tests that the image has, and the suite of each.
const TESTS: [(&str, &str); 6] = [
    ("basic", "basic-check-spec"),
    ("olm", "olm-bundle-validation"),
    ("olm", "olm-crds-have-validation"),
    ("olm", "olm-crds-have-resources"),
    ("olm", "olm-spec-descriptors"),
    ("olm", "olm-status-descriptors"),
];

/// Where it stands in a bundle.
pub(super) const FILE: &str = "tests/scorecard/config.yaml";

/// The configuration, when the bundle is to have one.
pub(super) fn of(project: &Project, options: &Options, plan: &Plan<'_>) -> Result<Option<Value>, Diagnostic> {
    let path = format!("{FOLDER}/kustomization.yaml");
    if plan.read(&path)?.is_some() {
        let objects = kustomize::build(FOLDER, plan)?;
        let found = objects.into_iter().find(|object| {
            let version = object["apiVersion"].as_str().unwrap_or_default();
            object["kind"] == "Configuration" && version.starts_with("scorecard.operatorframework.io/")
        });
        return match found {
            Some(found) if found["stages"].is_array() => Ok(Some(found)),
            _ => Err(Diagnostic::new(codes::config::BUNDLE, "cannot make the bundle")
                .at(Place::file(path))
                .because("it renders no Configuration of scorecard.operatorframework.io with stages")
                .fix("correct it, or remove config/scorecard: bundle --scorecard then writes the usual tests")),
        };
    }
    Ok((options.scorecard || project.plugins.contains_key(KEY)).then(usual))
}

/// The file that operator-sdk writes for every project.
fn usual() -> Value {
    let test = |(suite, name): &(&str, &str)| {
        json!({
            "entrypoint": ["scorecard-test", name],
            "image": IMAGE,
            "labels": {"suite": suite, "test": format!("{name}-test")},
        })
    };
    json!({
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": {"name": "config"},
        "stages": [{"parallel": true, "tests": TESTS.iter().map(test).collect::<Vec<_>>()}],
    })
}
