//! The errors that an API server would report about a definition, found here: the same code, and the place in the Rust
//! source.
//!
//! The server's words are kept, since they are what people search for; a fix is added where the mistake has a usual
//! cause (`advice.rs`).

use kubewright_schema::definition;
use serde_json::{Value, json};

use super::Findings;
use super::advice;
use super::crd::Version;
use super::place::Sources;
use crate::diagnostic::Diagnostic;

/// `versions` in the order of the definition's.
pub(super) fn definition(crd: &Value, versions: &[Version<'_>], sources: &Sources<'_>, found: &mut Findings) {
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    for error in definition::check(&as_stored(crd), None) {
        let (version, schema) = of_version(&error.field, versions);
        let rust = version.map_or("", |version| version.rust);
        let field = schema.as_deref().map(field_of);
        let place = sources.find(rust, field.as_deref().unwrap_or_default());
        let place = match (&field, rust.is_empty()) {
            // An error outside of the type's fields (a column, a name) has a place in #[kube(…)] and a path of its own.
            (None, _) => place.field(error.field.clone()),
            _ => place,
        };
        let said = error.body();
        let (code, fix) = advice::cause(&error.field, &said);
        let mut attempted = format!("an API server refuses {name}");
        if let Some(version) = version.filter(|_| versions.len() > 1) {
            attempted = format!("{attempted} (version {})", version.name);
        }
        let mut told = Diagnostic::new(code, attempted).at(place).because(said);
        if field.is_some() {
            told = told.because(format!("in the definition: {}", error.field));
        }
        found.errors.push(match fix {
            Some(fix) => told.fix(fix),
            None => told,
        });
    }
}

/// The definition with the defaults that the server fills in before it validates.
fn as_stored(crd: &Value) -> Value {
    let mut crd = crd.clone();
    let stored: Vec<Value> = crd["spec"]["versions"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|version| version["storage"] == true)
        .map(|version| version["name"].clone())
        .collect();
    if crd["spec"]["conversion"].is_null() {
        crd["spec"]["conversion"] = json!({"strategy": "None"});
    }
    crd["status"] = json!({"storedVersions": stored});
    crd
}

/// The version that an error is about, and the part of its path below the schema.
///
/// When all versions have the same schema, the server reports it once, at the top.
fn of_version<'a>(field: &str, versions: &'a [Version<'a>]) -> (Option<&'a Version<'a>>, Option<String>) {
    if let Some(rest) = field.strip_prefix("spec.validation.openAPIV3Schema") {
        return (versions.first(), Some(rest.to_owned()));
    }
    let Some(rest) = field.strip_prefix("spec.versions[") else {
        return (versions.first(), None);
    };
    let Some((index, rest)) = rest.split_once(']') else {
        return (None, None);
    };
    let version = index.parse::<usize>().ok().and_then(|index| versions.get(index));
    (version, rest.strip_prefix(".schema.openAPIV3Schema").map(str::to_owned))
}

/// `.properties[spec].properties[rules].items.properties[port].default` as a field: `spec.rules[].port`.
fn field_of(path: &str) -> String {
    let mut field = String::new();
    let mut rest = path;
    loop {
        if let Some(tail) = rest.strip_prefix(".properties[") {
            // Names of fields hold no bracket in Rust.
            let Some((name, tail)) = tail.split_once(']') else {
                return field;
            };
            if !field.is_empty() {
                field.push('.');
            }
            field.push_str(name);
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix(".items") {
            field.push_str("[]");
            rest = tail;
        } else if let Some(tail) = rest.strip_prefix(".additionalProperties") {
            field.push_str(".*");
            rest = tail;
        } else {
            return field;
        }
    }
}
