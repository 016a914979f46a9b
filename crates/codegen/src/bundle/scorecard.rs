//! OLM's scorecard: which tests judge a bundle (`operator-sdk scorecard`), and the usual tests.
//!
//! The configuration is written when it is asked for: by a flag, by PROJECT, or by a `config/scorecard`, whose
//! Configuration is taken as it is. The usual tests (the suites basic and olm) only read the bundle, so [`run`] runs them
//! without a cluster. Not here: tests of one's own, which are images that run in pods; they are named as not run.

use kubewright_schema::labels::Selector;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::Options;
use super::validate::{self, Level, Report};
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::kustomize;
use crate::plan::{Files, Plan};
use crate::project::Project;
use crate::yaml;

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

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The bundle is as it should be.
    Pass,
    /// It is not.
    Fail,
    /// The test did not run.
    Error,
}

/// One test, and its result.
#[derive(Clone, Debug, PartialEq)]
pub struct Test {
    /// The test as the configuration has it.
    pub spec: Value,
    /// The name of the test.
    pub name: String,
    /// How it ended.
    pub state: State,
    /// Why it failed.
    pub errors: Vec<String>,
    /// What would be better.
    pub suggestions: Vec<String>,
}

impl Test {
    /// The test as operator-sdk prints it in a list of results.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut result = json!({"name": self.name, "state": self.state});
        for (field, lines) in [("errors", &self.errors), ("suggestions", &self.suggestions)] {
            if !lines.is_empty() {
                result[field] = json!(lines);
            }
        }
        json!({
            "apiVersion": "scorecard.operatorframework.io/v1alpha3",
            "kind": "Test",
            "spec": self.spec,
            "status": {"results": [result]},
        })
    }
}

/// Runs the tests of the bundle in a folder: those of its configuration whose labels the selector names, or the usual
/// ones.
///
/// # Errors
/// When the bundle cannot be read, or the configuration or the selector cannot be meant.
pub fn run(files: &dyn Files, selector: &str) -> Result<Vec<Test>, Diagnostic> {
    let refused =
        |why: String| Diagnostic::new(codes::config::INVALID_BUNDLE, "cannot run scorecard's tests").because(why);
    let selector =
        Selector::parse(selector).map_err(|why| refused(format!("{selector:?} is no label selector: {why}")))?;
    let configuration = match files.read(FILE)? {
        Some(text) => yaml::parse(&text).map_err(|why| refused(why).at(Place::file(FILE)))?,
        None => usual(),
    };
    let report = validate::validate(files, &validate::Options::default())?;
    let (csv, _) = report.operator()?;
    let stages = configuration["stages"].as_array();
    let tests = stages
        .into_iter()
        .flatten()
        .flat_map(|stage| stage["tests"].as_array())
        .flatten();
    let tests = tests.filter(|test| selector.matches(&test["labels"]));
    Ok(tests.map(|spec| one(spec, csv, &report)).collect())
}

fn one(spec: &Value, csv: &Value, report: &Report) -> Test {
    let words: Vec<&str> = spec["entrypoint"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let name = words.last().copied().unwrap_or_default();
    let mut test = Test {
        spec: spec.clone(),
        name: name.to_owned(),
        state: State::Pass,
        errors: Vec::new(),
        suggestions: Vec::new(),
    };
    match (words.first(), name) {
        (Some(&"scorecard-test"), "basic-check-spec") => {
            let without = examples(csv).into_iter().filter(|object| object["spec"].is_null());
            test.suggestions = without
                .map(|object| format!("{} has no spec", object["metadata"]["name"]))
                .collect();
        }
        (Some(&"scorecard-test"), "olm-bundle-validation") => {
            for finding in &report.outputs {
                match finding.level {
                    Level::Error => test.errors.push(finding.message.clone()),
                    Level::Warning => test.suggestions.push(finding.message.clone()),
                }
            }
        }
        (Some(&"scorecard-test"), "olm-crds-have-validation") => has_validation(report, csv, &mut test),
        (Some(&"scorecard-test"), "olm-crds-have-resources") => {
            let lacks = |entry: &&Value| entry["resources"].as_array().is_none_or(Vec::is_empty);
            let without = owned(csv).into_iter().filter(lacks);
            test.errors = without
                .map(|entry| format!("{} lists no resources", entry["name"]))
                .collect();
        }
        (Some(&"scorecard-test"), "olm-spec-descriptors") => described(csv, "spec", "specDescriptors", &mut test),
        (Some(&"scorecard-test"), "olm-status-descriptors") => described(csv, "status", "statusDescriptors", &mut test),
        _ => {
            test.state = State::Error;
            let image = spec["image"].as_str().unwrap_or_default();
            test.errors.push(format!(
                "it is a program in the image {image}, which runs in a pod: operator-sdk scorecard runs it"
            ));
            return test;
        }
    }
    if !test.errors.is_empty() {
        test.state = State::Fail;
    }
    test
}

/// The objects of `alm-examples`.
fn examples(csv: &Value) -> Vec<Value> {
    let text = csv["metadata"]["annotations"]["alm-examples"].as_str().unwrap_or("[]");
    // What is no list is an error of the validation.
    serde_json::from_str(text).unwrap_or_default()
}

fn owned(csv: &Value) -> Vec<&Value> {
    let owned = csv["spec"]["customresourcedefinitions"]["owned"].as_array();
    owned.into_iter().flatten().collect()
}

/// The entry of the kind of an example.
fn entry<'c>(csv: &'c Value, example: &Value) -> Option<&'c Value> {
    let version = example["apiVersion"].as_str().unwrap_or_default();
    let version = version.rsplit('/').next().unwrap_or_default();
    owned(csv)
        .into_iter()
        .find(|entry| entry["kind"] == example["kind"] && entry["version"] == *version)
}

/// Each field at the top of an example's part has a line in the forms of the console.
fn described(csv: &Value, part: &str, field: &str, test: &mut Test) {
    for example in examples(csv) {
        let Some(entry) = entry(csv, &example) else {
            test.errors.push(format!(
                "the example {} is of no kind that is owned",
                example["metadata"]["name"]
            ));
            continue;
        };
        let lines: Vec<&str> = entry[field]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|line| line["path"].as_str())
            .collect();
        let fields = example[part].as_object();
        if part == "status" {
            match fields.is_some_and(|fields| !fields.is_empty()) {
                true if lines.is_empty() => test
                    .errors
                    .push(format!("{} describes no field of its status", entry["name"])),
                true => {}
                false => test
                    .suggestions
                    .push(format!("the example of {} shows no status", entry["name"])),
            }
            continue;
        }
        let Some(fields) = fields else {
            test.errors
                .push(format!("the example {} has no spec", example["metadata"]["name"]));
            continue;
        };
        for field in fields.keys().filter(|field| !lines.contains(&field.as_str())) {
            test.errors
                .push(format!("{field} of {} has no spec descriptor", entry["kind"]));
        }
    }
}

/// Each field of an example is one that the schema of its kind knows.
fn has_validation(report: &Report, csv: &Value, test: &mut Test) {
    for example in examples(csv) {
        let kind = &example["kind"];
        let version = example["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        let mut crds = report.definitions.iter();
        let crd = crds.find(|crd| crd["spec"]["group"] == *group && crd["spec"]["names"]["kind"] == *kind);
        let versions = crd.and_then(|crd| crd["spec"]["versions"].as_array());
        let Some(served) = versions.into_iter().flatten().find(|served| served["name"] == *version) else {
            continue;
        };
        let properties = &served["schema"]["openAPIV3Schema"]["properties"];
        for part in ["spec", "status"] {
            let keeps = properties[part]["x-kubernetes-preserve-unknown-fields"] == true;
            let known = properties[part]["properties"].as_object();
            for field in example[part].as_object().into_iter().flat_map(Map::keys) {
                if !keeps && known.is_none_or(|known| !known.contains_key(field)) {
                    test.errors.push(format!("{part}.{field} of {kind} has no schema"));
                }
            }
        }
    }
}
