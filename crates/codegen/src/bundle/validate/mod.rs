//! `bundle validate`: whether OLM and its catalogs take a bundle that somebody else wrote, too.
//!
//! [`validate`] reads a folder as OLM's tools do, and reports everything that is wrong with it, in the form that
//! operator-sdk's reports have, so that scripts which read those read these. The rules are those of
//! operator-framework/api (`pkg/validation`) and operator-registry (`pkg/lib/bundle`). Invariants: a bundle that cannot
//! be read is an error with its file; one that can be read is never refused before all of its findings are known, each
//! once.
//! Inside: `read` is the folder, `types` the fields of a ClusterServiceVersion, `format` the layout and annotations,
//! `csv` and `content` what every bundle must keep, `hub`, `practices` and `removed` what is asked for by label. Not
//! here: the rules for definitions, which an API server has ([`Report::definitions`]); images, which are not pulled.

use std::collections::BTreeMap;
use std::fmt;

use kubewright_schema::labels::Selector;
use serde::Serialize;
use serde_json::Value;

use crate::codes;
use crate::diagnostic::Diagnostic;
use crate::plan::Files;

mod content;
mod csv;
mod format;
mod hub;
mod practices;
mod read;
mod removed;
mod types;

#[cfg(test)]
mod tests;

use read::Bundle;

/// What the command attempts.
const ATTEMPTED: &str = "cannot validate the bundle";

/// A validator that is asked for by its labels.
struct Optional {
    name: &'static str,
    /// Whether it belongs to the suite `operatorframework`.
    in_suite: bool,
    description: &'static str,
    /// Why it cannot run here; otherwise what it does.
    run: Result<fn(&Bundle, &Options, &mut Findings), &'static str>,
}

/// The optional validators, in the order in which they run.
const OPTIONAL: [Optional; 8] = [
    Optional {
        name: "operatorhubv2",
        in_suite: true,
        description: "What OperatorHub.io requires of the description, and APIs that Kubernetes removed",
        run: Ok(hub::listed),
    },
    Optional {
        name: "capabilities",
        in_suite: true,
        description: "The annotation capabilities is a level that OperatorHub.io knows",
        run: Ok(hub::capabilities),
    },
    Optional {
        name: "categories",
        in_suite: true,
        description: "The annotation categories has those that OperatorHub.io knows",
        run: Ok(hub::categories),
    },
    Optional {
        name: "operatorhub",
        in_suite: false,
        description: "Deprecated: operatorhubv2, capabilities and categories in one",
        run: Ok(hub::all),
    },
    Optional {
        name: "community",
        in_suite: false,
        description: "Deprecated, and not part of this program: labels of OpenShift before 4.9",
        run: Err("it was only about OpenShift before 4.9; use the external validator ocp-olm-catalog-validator"),
    },
    Optional {
        name: "alpha-deprecated-apis",
        in_suite: true,
        description: "No API that Kubernetes removed; with --optional-values k8s-version=1.25 in that version",
        run: Ok(removed::apis),
    },
    Optional {
        name: "good-practices",
        in_suite: true,
        description: "Requests for CPU and memory, names of channels and of the version, descriptions, no rights to make \
                      CRDs",
        run: Ok(practices::good),
    },
    Optional {
        name: "multiarch",
        in_suite: false,
        description: "Not part of this program: it pulls the images with docker or podman",
        run: Err("it pulls the operator's images, which this program does not do; operator-sdk does"),
    },
];

/// What is asked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The labels of optional validators, such as `suite=operatorframework`; empty for none.
    pub select_optional: String,
    /// Values for them, such as `k8s-version` to `1.25`.
    pub optional_values: BTreeMap<String, String>,
    /// The categories that a catalog has, when they are not OperatorHub.io's.
    pub categories: Option<Vec<String>>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// OLM or a catalog refuses the bundle.
    Error,
    /// The bundle works, and could be better.
    Warning,
}

/// One thing that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How bad it is.
    #[serde(rename = "type")]
    pub level: Level,
    /// What it is, with its place: `Error: Field spec.icon: …`.
    pub message: String,
}

/// Everything that was found, as operator-sdk reports it in JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Whether there is no error.
    pub passed: bool,
    /// The findings.
    pub outputs: Vec<Finding>,
    /// The definitions of the bundle, which an API server has to judge.
    #[serde(skip)]
    pub definitions: Vec<Value>,
    /// The ClusterServiceVersion and its package; none in a chart.
    #[serde(skip)]
    operator: Option<(Value, String)>,
}

impl Report {
    /// The ClusterServiceVersion of the bundle, and its package.
    ///
    /// # Errors
    /// When the bundle is a chart.
    pub(super) fn operator(&self) -> Result<(&Value, &str), Diagnostic> {
        let operator = self.operator.as_ref().map(|(csv, package)| (csv, package.as_str()));
        operator.ok_or_else(|| {
            Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
                .because("it is a Helm chart, and has no ClusterServiceVersion")
        })
    }

    /// Adds what an API server has against a definition. As in operator-sdk, what it says about a schema is no error of
    /// the bundle; it becomes a warning.
    pub fn refused(&mut self, name: &str, field: &str, message: &str) {
        let mut findings = Findings::default();
        let place = Place::Field(if field.is_empty() { "spec" } else { field });
        let detail = format!("the definition {name} is refused by API servers: {message}");
        if field.contains("openAPIV3Schema") || field.contains("status") {
            findings.warning(place, detail);
        } else {
            findings.error(place, detail);
        }
        self.passed &= !findings.has_errors();
        self.outputs.extend(findings.0);
    }
}

/// What a finding is about.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// A field.
    Field(&'a str),
    /// An object, a kind or a value.
    Value(&'a str),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Field(field) => write!(f, "Field {field}"),
            Place::Value(value) => write!(f, "Value {value}"),
        }
    }
}

#[derive(Debug, Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn error(&mut self, place: Place<'_>, detail: impl fmt::Display) {
        self.add(Level::Error, format!("Error: {place}: {detail}"));
    }

    fn warning(&mut self, place: Place<'_>, detail: impl fmt::Display) {
        self.add(Level::Warning, format!("Warning: {place}: {detail}"));
    }

    /// Several validators have the same rule; it is told once.
    fn add(&mut self, level: Level, message: String) {
        let finding = Finding { level, message };
        if !self.0.contains(&finding) {
            self.0.push(finding);
        }
    }

    fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.level == Level::Error)
    }
}

/// The optional validators: name, labels, description.
#[must_use]
pub fn optional() -> Vec<(&'static str, Vec<String>, &'static str)> {
    let labels = |validator: &Optional| {
        let suite = validator.in_suite.then(|| "suite=operatorframework".to_owned());
        std::iter::once(format!("name={}", validator.name))
            .chain(suite)
            .collect()
    };
    let row = |validator: &Optional| (validator.name, labels(validator), validator.description);
    OPTIONAL.iter().map(row).collect()
}

/// Validates the bundle in a folder.
///
/// # Errors
/// When the folder holds no bundle that could be read, or a validator that is asked for is not known or cannot run.
pub fn validate(files: &dyn Files, options: &Options) -> Result<Report, Diagnostic> {
    let selected = selected(&options.select_optional)?;
    let mut findings = Findings::default();
    let (bundle, layout) = read::bundle(files)?;
    format::layout(&layout, &mut findings);
    // A chart is Helm's own matter.
    if let Some(bundle) = &bundle {
        content::all(bundle, &mut findings);
        csv::all(bundle, &mut findings);
        for run in selected {
            run(bundle, options, &mut findings);
        }
    }
    let definitions = bundle.iter().flat_map(|bundle| bundle.definitions("v1")).cloned();
    Ok(Report {
        passed: !findings.has_errors(),
        outputs: findings.0,
        definitions: definitions.collect(),
        operator: bundle.map(|bundle| (bundle.csv, bundle.package)),
    })
}

type Run = fn(&Bundle, &Options, &mut Findings);

/// The validators of a selector.
fn selected(selector: &str) -> Result<Vec<Run>, Diagnostic> {
    if selector.trim().is_empty() {
        return Ok(Vec::new());
    }
    let refused = |why: String| {
        Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
            .because(why)
            .fix("--list-optional lists the validators and their labels")
    };
    let parsed = Selector::parse(selector)
        .map_err(|why| refused(format!("--select-optional {selector:?} is no label selector: {why}")))?;
    let mut found = Vec::new();
    for validator in &OPTIONAL {
        let label = |key: &str| match key {
            "name" => Some(validator.name),
            "suite" if validator.in_suite => Some("operatorframework"),
            _ => None,
        };
        if parsed.matches_with(label) {
            found.push(
                validator
                    .run
                    .map_err(|why| refused(format!("the validator {} does not run here: {why}", validator.name)))?,
            );
        }
    }
    if found.is_empty() {
        return Err(refused(format!("no validator has the labels {selector:?}")));
    }
    Ok(found)
}

/// All values at a path with `*` for every item.
fn values<'v>(value: &'v Value, path: &str) -> Vec<&'v Value> {
    super::check::values(value, path)
}

/// The text at a path; none of what is not there.
fn text<'v>(value: &'v Value, path: &str) -> &'v str {
    let found = path.split('.').try_fold(value, |value, part| value.get(part));
    found.and_then(Value::as_str).unwrap_or_default()
}
