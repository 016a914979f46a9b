//! `config/crd/bases/GROUP_PLURAL.yaml`: the versions of a kind as one CustomResourceDefinition, as controller-gen
//! writes it.
//!
//! Versions are put together (in the order of their names), one is chosen to be stored, a kind with a conversion hub
//! gets its webhook, and what controller-gen adds is added: list kind, `apiVersion`, `kind` and `metadata` with their
//! words. Then `schema.rs` finishes each schema and `check.rs` finds the errors of an API server.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::check;
use super::declaration::{Crd, Declaration};
use super::paths;
use super::place::Sources;
use super::schema;
use super::{Findings, Options};
use crate::codes::crds as codes;
use crate::diagnostic::{Diagnostic, Place};

const API_VERSION: &str = "APIVersion defines the versioned schema of this representation of an object.\nServers should convert recognized schemas to the latest internal value, and\nmay reject unrecognized values.\nMore info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#resources";
const KIND: &str = "Kind is a string value representing the REST resource this object represents.\nServers may infer this from the endpoint the client submits requests to.\nCannot be updated.\nIn CamelCase.\nMore info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The description that kube-derive gives a root without one.
const NO_WORDS: &str = "Auto-generated derived type for";

/// The size from which `kubectl apply` without `--server-side` fails: the annotation with the last applied text holds
/// no more.
pub(super) const APPLY_LIMIT: usize = 262_144;

/// The size from which the API server refuses it.
const REQUEST_LIMIT: usize = 1_500_000;

/// One version of a kind with its Rust type.
pub(super) struct Version<'a> {
    pub(super) name: &'a str,
    pub(super) rust: &'a str,
}

/// The definitions, by file name.
pub(super) fn definitions(
    declaration: &Declaration,
    options: &Options,
    sources: &Sources<'_>,
    found: &mut Findings,
) -> BTreeMap<String, Value> {
    let mut kinds: BTreeMap<&str, Vec<&Crd>> = BTreeMap::new();
    for declared in &declaration.crds {
        let name = declared.crd["metadata"]["name"].as_str().unwrap_or_default();
        kinds.entry(name).or_default().push(declared);
    }
    let mut made = BTreeMap::new();
    for (name, mut versions) in kinds {
        versions.sort_by_key(|declared| version_name(declared));
        let before = found.errors.len();
        for declared in &versions {
            problems(declared, sources, found);
        }
        let Some(crd) = merged(name, &versions, declaration, sources, found) else {
            continue;
        };
        let crd = finished(crd, &versions, options, sources, found);
        if found.errors.len() == before {
            check::definition(&crd, &roots(&versions), sources, found);
            paths::check(&crd, &roots(&versions), sources, found);
            served(&crd, &roots(&versions), sources, found);
        }
        let group = crd["spec"]["group"].as_str().unwrap_or_default();
        let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default();
        made.insert(format!("{group}_{plural}.yaml"), crd);
    }
    made
}

/// A definition without a served version is taken, and its kind can neither be read nor written.
fn served(crd: &Value, versions: &[Version<'_>], sources: &Sources<'_>, found: &mut Findings) {
    let mut listed = crd["spec"]["versions"].as_array().into_iter().flatten();
    if listed.any(|version| version["served"] == true) {
        return;
    }
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    let mut told = Diagnostic::new(codes::VERSIONS, format!("no version of {name} is served"));
    for version in versions {
        told = told.at(sources.find(version.rust, ""));
    }
    found.errors.push(
        told.because("an API server takes the definition, and nobody can read or write the kind")
            .fix("take `served = false` out of the #[kube(…)] of one version"),
    );
}

fn version_name(declared: &Crd) -> &str {
    declared.crd["spec"]["versions"][0]["name"].as_str().unwrap_or_default()
}

fn roots<'a>(versions: &[&'a Crd]) -> Vec<Version<'a>> {
    let version = |declared: &&'a Crd| Version {
        name: version_name(declared),
        rust: &declared.rust,
    };
    versions.iter().map(version).collect()
}

/// The operator's problems with a type, each with its code and its place.
fn problems(declared: &Crd, sources: &Sources<'_>, found: &mut Findings) {
    for problem in &declared.problems {
        let (code, fix) = codes::of_problem(&problem.what);
        let kind = declared.crd["spec"]["names"]["kind"].as_str().unwrap_or("a kind");
        let attempted = if problem.warning {
            format!("the schema of {kind} may not be what is meant")
        } else {
            format!("cannot make the schema of {kind}")
        };
        let told = Diagnostic::new(code, attempted)
            .at(sources.find(&declared.rust, &problem.at))
            .because(&problem.why)
            .fix(fix);
        if problem.warning {
            found.warnings.push(told);
        } else {
            found.errors.push(told);
        }
    }
}

/// All versions in one definition.
fn merged(
    name: &str,
    versions: &[&Crd],
    declaration: &Declaration,
    sources: &Sources<'_>,
    found: &mut Findings,
) -> Option<Value> {
    let first = versions.first()?;
    let wrong = || {
        Diagnostic::new(
            codes::VERSIONS,
            format!("cannot put the versions of {name} into one definition"),
        )
    };
    let mut seen: BTreeMap<&str, &str> = BTreeMap::new();
    for declared in versions {
        if let Some(other) = seen.insert(version_name(declared), &declared.rust) {
            found.errors.push(
                wrong()
                    .at(sources.find(other, ""))
                    .at(sources.find(&declared.rust, ""))
                    .because(format!("two types are version {}", version_name(declared)))
                    .fix("give one of them another version in #[kube(version = \"…\")], or register only one with Operator::crd"),
            );
            return None;
        }
        for field in ["/spec/scope", "/spec/names/kind", "/spec/names/singular"] {
            if declared.crd.pointer(field) != first.crd.pointer(field) {
                let shown = |declared: &Crd| declared.crd.pointer(field).cloned().unwrap_or_default();
                found.errors.push(
                    wrong()
                        .at(sources.find(&first.rust, ""))
                        .at(sources.find(&declared.rust, ""))
                        .because(format!(
                            "{} is {} in {} and {} in {}",
                            field.trim_start_matches('/').replace('/', "."),
                            shown(first),
                            version_name(first),
                            shown(declared),
                            version_name(declared)
                        ))
                        .fix("say the same in the #[kube(…)] of each version"),
                );
                return None;
            }
        }
    }
    let stored = stored(name, versions, declaration, sources, found)?;
    // The stored version speaks for all: names, annotations, labels.
    let mut crd = versions
        .iter()
        .find(|declared| version_name(declared) == stored)?
        .crd
        .clone();
    for list in ["shortNames", "categories"] {
        let mut all: Vec<Value> = Vec::new();
        for declared in versions {
            for value in declared.crd["spec"]["names"][list].as_array().into_iter().flatten() {
                if !all.contains(value) {
                    all.push(value.clone());
                }
            }
        }
        crd["spec"]["names"][list] = json!(all);
    }
    let each = versions.iter().map(|declared| {
        let mut version = declared.crd["spec"]["versions"][0].clone();
        version["storage"] = json!(version_name(declared) == stored);
        version
    });
    crd["spec"]["versions"] = Value::Array(each.collect());
    if let Some(conversion) = declaration.conversions.iter().find(|conversion| {
        crd["spec"]["group"] == conversion.hub.group.as_str()
            && crd["spec"]["names"]["kind"] == conversion.hub.kind.as_str()
    }) {
        for kind in conversion.spokes.iter().chain([&conversion.hub]) {
            if !versions.iter().any(|declared| version_name(declared) == kind.version) {
                found.errors.push(
                    wrong()
                        .because(format!(
                            "the conversion names version {}, of which there is no type",
                            kind.version
                        ))
                        .fix("register the type: Operator::crd::<…>()"),
                );
            }
        }
        crd["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {
                "clientConfig": {"service": {"name": "webhook-service", "namespace": "system", "path": "/convert"}},
                "conversionReviewVersions": ["v1"],
            },
        });
    }
    Some(crd)
}

/// The version that is stored.
fn stored<'a>(
    name: &str,
    versions: &[&'a Crd],
    declaration: &'a Declaration,
    sources: &Sources<'_>,
    found: &mut Findings,
) -> Option<&'a str> {
    let claims: Vec<&&Crd> = versions
        .iter()
        .filter(|declared| declared.crd["spec"]["versions"][0]["storage"] == true)
        .collect();
    let kind = versions[0].crd["spec"]["names"]["kind"].as_str().unwrap_or_default();
    let group = versions[0].crd["spec"]["group"].as_str().unwrap_or_default();
    let hub = declaration
        .conversions
        .iter()
        .find(|conversion| conversion.hub.group == group && conversion.hub.kind == kind);
    match (claims.as_slice(), hub) {
        ([only], _) => Some(version_name(only)),
        // #[derive(CustomResource)] says `storage = true` of every version unless told otherwise: the hub decides.
        (_, Some(conversion)) => Some(&conversion.hub.version),
        (several, None) => {
            let mut told = Diagnostic::new(codes::STORAGE, format!("cannot say which version of {name} is stored"));
            for declared in versions {
                told = told.at(sources.find(&declared.rust, ""));
            }
            let names: Vec<&str> = several.iter().map(|declared| version_name(declared)).collect();
            found.errors.push(
                told.because(if names.is_empty() {
                    "no version says storage = true".to_owned()
                } else {
                    format!("{} all claim it (kube's default is `storage = true`), and there is no conversion hub", names.join(", "))
                })
                .fix("say `storage = false` in the #[kube(…)] of all versions but one, or declare Operator::conversion with a hub"),
            );
            None
        }
    }
}

/// The additions and omissions of controller-gen.
fn finished(
    mut crd: Value,
    versions: &[&Crd],
    options: &Options,
    sources: &Sources<'_>,
    found: &mut Findings,
) -> Value {
    crd["apiVersion"] = json!("apiextensions.k8s.io/v1");
    crd["kind"] = json!("CustomResourceDefinition");
    if let Some(crd) = crd.as_object_mut() {
        crd.remove("status");
    }
    let kind = crd["spec"]["names"]["kind"].as_str().unwrap_or_default().to_owned();
    let plural = crd["spec"]["names"]["plural"].as_str().unwrap_or_default().to_owned();
    let names = &mut crd["spec"]["names"];
    if names["listKind"].as_str().is_none_or(str::is_empty) {
        names["listKind"] = json!(format!("{kind}List"));
    }
    if names["singular"].as_str().is_none_or(str::is_empty) {
        names["singular"] = json!(kind.to_lowercase());
    }
    let list = crd["spec"]["versions"].as_array_mut();
    for (version, declared) in list.into_iter().flatten().zip(versions) {
        for column in version["additionalPrinterColumns"].as_array_mut().into_iter().flatten() {
            if let Some(column) = column.as_object_mut()
                && column.get("priority") == Some(&json!(0))
            {
                column.remove("priority");
            }
        }
        let behind = schema::Behind {
            rust: &declared.rust,
            sources,
        };
        let schema = &mut version["schema"]["openAPIV3Schema"];
        root(schema, &kind, &plural);
        schema::finish(schema, options, &behind, found);
    }
    tidy(&mut crd);
    sized(&mut crd, versions, sources, found);
    schema::strip(&mut crd);
    crd
}

/// The fields that every object has.
fn root(schema: &mut Value, kind: &str, plural: &str) {
    let words = schema["description"].as_str().unwrap_or_default();
    if words.starts_with(NO_WORDS) || words.is_empty() {
        schema["description"] = json!(format!("{kind} is the Schema for the {plural} API"));
    }
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    let properties = &mut schema["properties"];
    properties["apiVersion"] = json!({"type": "string", "description": API_VERSION});
    properties["kind"] = json!({"type": "string", "description": KIND});
    properties["metadata"] = json!({"type": "object"});
    schema["type"] = json!("object");
}

/// Removes null and empty values outside the schemas.
fn tidy(crd: &mut Value) {
    fn clean(map: &mut Map<String, Value>) {
        map.retain(|key, value| {
            if key == "openAPIV3Schema" {
                return true;
            }
            match value {
                Value::Object(below) => clean(below),
                Value::Array(list) => list.iter_mut().filter_map(Value::as_object_mut).for_each(clean),
                _ => {}
            }
            let empty = match value {
                Value::Array(list) => list.is_empty(),
                Value::Object(below) => below.is_empty() && !matches!(key.as_str(), "status" | "schema"),
                Value::Null => true,
                _ => false,
            };
            !empty
        });
    }
    if let Some(crd) = crd.as_object_mut() {
        clean(crd);
    }
}

/// Leaves descriptions out of a definition that is too large with them: first those of Kubernetes' own types, then all.
fn sized(crd: &mut Value, versions: &[&Crd], sources: &Sources<'_>, found: &mut Findings) {
    let size = |crd: &Value| crd.to_string().len();
    let name = crd["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let place = || {
        versions
            .first()
            .map_or_else(Place::default, |declared| sources.find(&declared.rust, ""))
    };
    let whole = size(crd);
    if whole <= APPLY_LIMIT {
        return;
    }
    for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
        schema::drop_descriptions(&mut version["schema"]["openAPIV3Schema"], true);
    }
    let mut left_out = "the descriptions of Kubernetes' own types";
    if size(crd) > APPLY_LIMIT {
        for version in crd["spec"]["versions"].as_array_mut().into_iter().flatten() {
            schema::drop_descriptions(&mut version["schema"]["openAPIV3Schema"], false);
        }
        left_out = "all descriptions";
    }
    let told = |attempted: String| Diagnostic::new(codes::SIZE, attempted).at(place());
    let now = size(crd);
    if now > REQUEST_LIMIT {
        found.errors.push(
            told(format!("cannot write {name}: no API server takes it"))
                .because(format!(
                    "it has {now} bytes without any description; a request may have about {REQUEST_LIMIT}"
                ))
                .fix("embed less: a list of strings or a serde_json::Value instead of a whole Kubernetes type"),
        );
    } else {
        let mut warning = told(format!("{left_out} are left out of {name}")).because(format!(
            "it has {whole} bytes with them; `kubectl apply` without --server-side takes {APPLY_LIMIT}"
        ));
        if now > APPLY_LIMIT {
            warning = warning.because(format!(
                "it still has {now} bytes: apply it with `--server-side`, as `kubewright install` does"
            ));
        }
        found
            .warnings
            .push(warning.fix("pass --max-desc-len 0 to leave descriptions out on purpose"));
    }
}
