//! Writes the catalog of built-in schemas, `crates/schema/data/kubernetes.*`, of all versions that are served.
//!
//! One run replaces the definitions of one version and keeps those of the others. A definition that is the same in
//! several versions stands once; the index says which line is whose ([`Catalog`]).
//!
//! Input is the `_definitions.json` of a package that publishes Kubernetes' OpenAPI as JSON Schema. That form has lost
//! a few words of the original: defaults, enumerations of string types and their texts, one format. They are kept in
//! the committed supplement of the version, one line a definition, which `--documents` renews out of the OpenAPI v3
//! documents that Kubernetes publishes (`api/openapi-spec/v3` of the Go module `k8s.io/kubernetes`), and `--enums` out
//! of the enumerations that only its `zz_generated.openapi.go` has. Out of both comes the text that the schema crate includes: the
//! definitions as kube-apiserver publishes them, sorted, one a line. Those of metrics.k8s.io, which another server
//! publishes, are committed beside the supplement and join them.
//!
//! The output depends on the inputs alone, so running it twice changes nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

mod catalog;
mod enums;

use catalog::Catalog;

const DATA: &str = "crates/schema/data";
const CATALOG: &str = "kubernetes.jsonl";
const INDEX: &str = "kubernetes.index";
const KINDS: &str = "kubernetes.kinds";
/// Definitions of an API that is not kube-apiserver's own.
const METRICS: &str = "metrics-v1beta1.jsonl";
const REFERENCE: &str = "#/components/schemas/";

/// In the supplement: text that follows the description of the input.
const MORE: &str = "description+";

type Definitions = BTreeMap<String, Value>;

/// Runs `cargo xtask generate --minor 37 --definitions FILE [--documents DIR [--enums FILE]] [--check]`.
///
/// `--documents DIR` first renews the supplement from the `*.json` files of DIR, OpenAPI v3 documents.
/// `--check` writes nothing and fails when a committed file is not what would be written.
///
/// # Errors
/// The file that could not be read, understood or written; with `--check`, the file that is not current.
pub(crate) fn run(args: &[String]) -> Result<(), String> {
    let options = Options::parse(args)?;
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .ok_or("xtask has no workspace above it")?;
    let data = root.join(DATA);
    let definitions = definitions(&options.definitions)?;
    let supplement_file = data.join(format!("kubernetes-1.{}.supplement", options.minor));
    let supplement = match &options.documents {
        Some(directory) => {
            let mut documents = documents(directory)?;
            if let Some(file) = &options.enums {
                enums::add(&mut documents, &read(file)?);
            }
            let supplement = difference(&definitions, &documents);
            put(&supplement_file, &lines(&supplement), options.check)?;
            supplement
        }
        None => read_lines(&supplement_file)?,
    };
    let mut catalog = complete(definitions, &supplement);
    let metrics = read_lines(&data.join(METRICS))?;
    let metrics = metrics.into_iter();
    catalog.extend(metrics.map(|(name, value)| (name, catalog::of_version(unfold(value), options.minor))));
    let mut all = Catalog::read(&read(&data.join(CATALOG))?, &read(&data.join(INDEX))?)?;
    all.0.insert(options.minor, catalog);
    let (text, index) = all.write();
    put(&data.join(CATALOG), &text, options.check)?;
    put(&data.join(INDEX), &index, options.check)?;
    put(&data.join(KINDS), &all.kinds(), options.check)
}

struct Options {
    minor: u32,
    definitions: PathBuf,
    documents: Option<PathBuf>,
    enums: Option<PathBuf>,
    check: bool,
}

impl Options {
    fn parse(args: &[String]) -> Result<Self, String> {
        let usage =
            "usage: cargo xtask generate --minor 37 --definitions FILE [--documents DIR [--enums FILE]] [--check]";
        let (mut minor, mut definitions, mut documents, mut enums, mut check) = (None, None, None, None, false);
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--minor" => minor = args.next().and_then(|text| text.parse().ok()),
                "--enums" => enums = args.next().map(PathBuf::from),
                "--definitions" => definitions = args.next().map(PathBuf::from),
                "--documents" => documents = args.next().map(PathBuf::from),
                "--check" => check = true,
                other => return Err(format!("generate: unknown argument {other:?}\n{usage}")),
            }
        }
        let minor = minor.ok_or(format!("generate: --minor is missing\n{usage}"))?;
        let definitions = definitions.ok_or(format!("generate: --definitions is missing\n{usage}"))?;
        Ok(Self {
            minor,
            definitions,
            documents,
            enums,
            check,
        })
    }
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("generate: reading {}: {error}", file.display()))
}

fn parse(file: &Path, text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("generate: {} is no JSON: {error}", file.display()))
}

fn put(file: &Path, text: &str, check: bool) -> Result<(), String> {
    if fs::read_to_string(file).is_ok_and(|old| old == text) {
        return Ok(());
    }
    if check {
        return Err(format!(
            "generate: {} is not current: run it without --check",
            file.display()
        ));
    }
    fs::write(file, text).map_err(|error| format!("generate: writing {}: {error}", file.display()))
}

fn lines(definitions: &Definitions) -> String {
    definitions
        .iter()
        .map(|(name, value)| format!("{name}\t{value}\n"))
        .collect()
}

fn read_lines(file: &Path) -> Result<Definitions, String> {
    let mut definitions = Definitions::new();
    for line in read(file)?.lines() {
        let (name, text) = line
            .split_once('\t')
            .ok_or(format!("generate: {}: no tab: {line}", file.display()))?;
        definitions.insert(name.to_owned(), parse(file, text)?);
    }
    Ok(definitions)
}

/// The definitions of the input that a server offers by default, back in the words of OpenAPI v3.
fn definitions(file: &Path) -> Result<Definitions, String> {
    let document = parse(file, &read(file)?)?;
    let all = document
        .get("$defs")
        .or_else(|| document.get("definitions"))
        .and_then(Value::as_object)
        .ok_or(format!(
            "generate: {} has neither $defs nor definitions",
            file.display()
        ))?;
    let mut found = Definitions::new();
    let mut open: Vec<&String> = all.keys().filter(|name| is_stable(name)).collect();
    while let Some(name) = open.pop() {
        let Some((name, value)) = all.get_key_value(name).filter(|_| !found.contains_key(name)) else {
            continue;
        };
        let value = open_api(value);
        // A field behind a gate may have a type of an alpha version.
        open.extend(
            all.keys()
                .filter(|other| catalog::refers(&value, &|target| target == *other)),
        );
        found.insert(name.clone(), value);
    }
    Ok(found)
}

/// Alpha and beta versions are not served unless asked for.
fn is_stable(name: &str) -> bool {
    let version = name.rsplit('.').nth(1).unwrap_or_default();
    !(version.starts_with('v') && (version.contains("alpha") || version.contains("beta")))
}

/// From JSON Schema to OpenAPI v3: `["string", "null"]` is a string again, references point into components, and the
/// enumerations of `kind` and `apiVersion`, which are additions of the input, go.
fn open_api(value: &Value) -> Value {
    let Value::Object(from) = value else {
        return value.clone();
    };
    let mut to = Map::new();
    for (key, value) in from {
        let value = match (key.as_str(), value) {
            ("type", Value::Array(types)) => types.iter().find(|t| *t != "null").cloned().unwrap_or_default(),
            ("$ref", Value::String(target)) => {
                json!(format!("{REFERENCE}{}", target.rsplit('/').next().unwrap_or_default()))
            }
            ("properties", Value::Object(fields)) => fields
                .iter()
                .map(|(name, field)| (name.clone(), property(name, field)))
                .collect(),
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.iter().map(open_api).collect(),
            ("items" | "additionalProperties" | "not", value) => open_api(value),
            _ => value.clone(),
        };
        to.insert(key.clone(), value);
    }
    Value::Object(to)
}

fn property(name: &str, field: &Value) -> Value {
    let mut field = open_api(field);
    if matches!(name, "kind" | "apiVersion")
        && let Value::Object(map) = &mut field
    {
        map.remove("enum");
    }
    field
}

/// All `components.schemas` of the documents in a directory, `allOf: [{$ref}]` folded into `$ref`.
fn documents(directory: &Path) -> Result<Definitions, String> {
    let entries =
        fs::read_dir(directory).map_err(|error| format!("generate: reading {}: {error}", directory.display()))?;
    let mut definitions = Definitions::new();
    for entry in entries {
        let file = entry
            .map_err(|error| format!("generate: reading {}: {error}", directory.display()))?
            .path();
        if file.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let document = parse(&file, &read(&file)?)?;
        let schemas = document.pointer("/components/schemas").and_then(Value::as_object);
        for (name, schema) in schemas.into_iter().flatten() {
            definitions.insert(name.clone(), fold(schema.clone()));
        }
    }
    if definitions.is_empty() {
        return Err(format!("generate: no schema in the *.json of {}", directory.display()));
    }
    Ok(definitions)
}

fn each(value: Value, change: fn(Value) -> Value) -> Value {
    match value {
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, change(value))).collect(),
        Value::Array(list) => list.into_iter().map(change).collect(),
        other => other,
    }
}

/// `{allOf: [{$ref}], …}` to `{$ref, …}`.
fn fold(value: Value) -> Value {
    let mut value = each(value, fold);
    if let Value::Object(map) = &mut value
        && let Some(target) = map.get("allOf").and_then(|all| all.pointer("/0/$ref")).cloned()
        && map["allOf"].as_array().is_some_and(|all| all.len() == 1)
    {
        map.remove("allOf");
        map.insert("$ref".into(), target);
    }
    value
}

/// The other way: a reference with words of its own is published as `allOf`.
fn unfold(value: Value) -> Value {
    let mut value = each(value, unfold);
    if let Value::Object(map) = &mut value
        && map.len() > 1
        && map.get("$ref").is_some_and(Value::is_string)
        && let Some(target) = map.remove("$ref")
    {
        map.insert("allOf".into(), json!([{ "$ref": target }]));
    }
    value
}

/// The additions of a server's documents to the definitions, a patch for each definition.
fn difference(definitions: &Definitions, documents: &Definitions) -> Definitions {
    let difference = |(name, ours): (&String, &Value)| {
        let patch = beyond(ours, documents.get(name)?);
        // Each document lists only the kinds of its own group under the types that all groups share.
        let patch = patch.map(|mut patch| {
            patch
                .as_object_mut()
                .map(|map| map.remove("x-kubernetes-group-version-kind"));
            patch
        });
        patch
            .filter(|patch| patch.as_object().is_some_and(|map| !map.is_empty()))
            .map(|patch| (name.clone(), patch))
    };
    definitions.iter().filter_map(difference).collect()
}

fn beyond(ours: &Value, theirs: &Value) -> Option<Value> {
    let (Value::Object(ours), Value::Object(theirs)) = (ours, theirs) else {
        return (ours != theirs).then(|| theirs.clone());
    };
    let mut patch = Map::new();
    for (key, theirs) in theirs {
        let Some(ours) = ours.get(key) else {
            patch.insert(key.clone(), theirs.clone());
            continue;
        };
        let more = match (key.as_str(), ours, theirs) {
            ("description", Value::String(ours), Value::String(theirs)) => theirs.strip_prefix(ours.as_str()),
            _ => None,
        };
        match more {
            Some("") => {}
            Some(more) => {
                patch.insert(MORE.into(), json!(more));
            }
            None => {
                if let Some(below) = beyond(ours, theirs) {
                    patch.insert(key.clone(), below);
                }
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// The definitions with the supplement, in their published form.
fn complete(mut definitions: Definitions, supplement: &Definitions) -> Definitions {
    for (name, patch) in supplement {
        if let Some(definition) = definitions.get_mut(name) {
            merge(definition, patch);
        }
    }
    definitions
        .into_iter()
        .map(|(name, value)| (name, unfold(value)))
        .collect()
}

fn merge(value: &mut Value, patch: &Value) {
    let (Value::Object(map), Value::Object(patch)) = (&mut *value, patch) else {
        value.clone_from(patch);
        return;
    };
    for (key, patch) in patch {
        match map.get_mut(if key == MORE { "description" } else { key }) {
            Some(Value::String(text)) if key == MORE => text.push_str(patch.as_str().unwrap_or_default()),
            Some(value) => merge(value, patch),
            None => {
                map.insert(key.clone(), patch.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_form_of_json_schema_goes() {
        let from = json!({"type": ["object", "null"], "properties": {
            "kind": {"type": ["string", "null"], "enum": ["Pod"]},
            "spec": {"$ref": "#/$defs/io.Spec", "description": "x"},
            "list": {"type": "array", "items": {"$ref": "#/$defs/io.Item"}},
        }});
        let supplement = json!({"properties": {"spec": {"default": {}, "description+": " y"}}});
        let mut value = open_api(&from);
        merge(&mut value, &supplement);
        assert_eq!(
            unfold(value),
            json!({"type": "object", "properties": {
                "kind": {"type": "string"},
                "spec": {"allOf": [{"$ref": "#/components/schemas/io.Spec"}], "default": {}, "description": "x y"},
                "list": {"type": "array", "items": {"$ref": "#/components/schemas/io.Item"}},
            }})
        );
    }

    #[test]
    fn merging_the_difference_gives_the_document() {
        let ours = json!({"a": {"description": "x", "type": "string"}, "b": {"$ref": "r"}});
        let theirs =
            json!({"a": {"description": "x, y", "type": "string", "enum": ["1"]}, "b": {"$ref": "r", "default": {}}});
        let patch = beyond(&ours, &theirs).expect("they differ");
        let mut merged = ours.clone();
        merge(&mut merged, &patch);
        assert_eq!(merged, theirs);
        assert_eq!(beyond(&theirs, &theirs), None);
    }

    #[test]
    fn alpha_and_beta_versions_are_left_out() {
        assert!(is_stable("io.k8s.api.apps.v1.Deployment"));
        assert!(is_stable("io.k8s.apimachinery.pkg.util.intstr.IntOrString"));
        assert!(!is_stable("io.k8s.api.resource.v1alpha3.PoolStatus"));
        assert!(!is_stable("io.k8s.api.storage.v1beta1.VolumeAttributesClass"));
    }
}
