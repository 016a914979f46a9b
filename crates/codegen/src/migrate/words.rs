//! Words of both languages: names, comments, values, and the keywords of markers.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::go::{Doc, Type};
use super::markers::value;
use crate::names::rust;

/// Names of Rust's prelude, which a type of Go must not hide.
const PRELUDE: [&str; 8] = ["Option", "String", "Vec", "Box", "Result", "Some", "None", "Default"];

/// A type's name in Rust.
pub(super) fn type_name(name: &str) -> String {
    let name = rust::kind(name);
    if PRELUDE.contains(&name.as_str()) {
        format!("{name}_")
    } else {
        name
    }
}

/// Markers that say nothing in a schema, or that other parts read.
pub(super) fn is_silent(name: &str) -> bool {
    let bare = name
        .trim_start_matches("kubebuilder:")
        .trim_start_matches("validation:");
    let first = name.split(':').next().unwrap_or(name);
    matches!(
        bare.split(':').next().unwrap_or(bare),
        "Optional"
            | "Required"
            | "optional"
            | "required"
            | "object"
            | "subresource"
            | "resource"
            | "printcolumn"
            | "storageversion"
            | "unservedversion"
            | "deprecatedversion"
            | "selectablefield"
            | "metadata"
            | "skip"
            | "skipversion"
            | "scaffold"
            | "rbac"
            | "webhook"
            | "Schemaless"
            | "ac"
    ) || matches!(
        first,
        "genclient"
            | "k8s"
            | "groupName"
            | "versionName"
            | "patchMergeKey"
            | "patchStrategy"
            | "union"
            | "enum"
            | "featureGate"
            | "unionDiscriminator"
            | "operator-sdk"
    )
}

/// controller-gen's rule: the field's marker, then the package's, then the tag.
pub(super) fn optional(markers: &[String], package: &[String], omit: bool) -> bool {
    let has = |markers: &[String], words: &[&str]| {
        markers
            .iter()
            .any(|marker| words.contains(&marker.split('=').next().unwrap_or(marker)))
    };
    let optional = [
        "optional",
        "k8s:optional",
        "kubebuilder:validation:Optional",
        "kubebuilder:validation:optional",
    ];
    let required = [
        "required",
        "k8s:required",
        "kubebuilder:validation:Required",
        "kubebuilder:validation:required",
    ];
    if has(markers, &optional) {
        return true;
    }
    if has(markers, &required) {
        return false;
    }
    if has(package, &optional) {
        return true;
    }
    !has(package, &required) && omit
}

/// The variants of an enum, when each text gives a name of its own.
pub(super) fn variants(values: &[Value]) -> Option<Vec<(String, String)>> {
    let mut names = BTreeSet::new();
    let mut variants = Vec::new();
    for value in values {
        let text = value.as_str()?;
        let name: String = text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty())
            .map(|word| word[..1].to_ascii_uppercase() + &word[1..])
            .collect();
        let is_name = name.starts_with(|c: char| c.is_ascii_uppercase()) && name != "Self";
        if !is_name || !names.insert(name.clone()) {
            return None;
        }
        variants.push((name, text.to_owned()));
    }
    (!variants.is_empty()).then_some(variants)
}

/// Keywords as `extend("key" = value, …)`.
pub(super) fn extend(keywords: &[(String, Value)]) -> String {
    let pairs: Vec<String> = keywords
        .iter()
        .map(|(key, value)| format!("{key:?} = {}", literal(value)))
        .collect();
    format!("extend({})", pairs.join(", "))
}

/// A value as Rust's `json!` takes it; texts have Rust's escapes.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("{text:?}"),
        Value::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(key, value)| format!("{key:?}: {}", literal(value)))
                .collect();
            format!("{{{}}}", fields.join(", "))
        }
        // Rust takes a number for an i32 unless it says more.
        Value::Number(number) if number.as_i64().is_some_and(|number| i32::try_from(number).is_err()) => {
            format!("{number}_i64")
        }
        Value::Number(number) if number.is_u64() && number.as_i64().is_none() => format!("{number}_u64"),
        other => other.to_string(),
    }
}

/// A comment of Go as one of Rust.
pub(super) fn docs(doc: &Doc, indent: &str) -> String {
    let lines = doc.text.iter().map(|line| {
        let space = if line.is_empty() { "" } else { " " };
        format!("{indent}///{space}{line}\n")
    });
    lines.collect()
}

pub(super) fn lower_first(name: &str) -> String {
    let mut letters = name.chars();
    letters
        .next()
        .map(|first| first.to_ascii_lowercase())
        .into_iter()
        .chain(letters)
        .collect()
}

/// `podIPs` is `pod_ips`, `clusterCIDR` is `cluster_cidr`.
pub(super) fn snake(json: &str) -> String {
    let letters: Vec<char> = json.chars().collect();
    let mut name = String::new();
    for (at, letter) in letters.iter().enumerate() {
        if !letter.is_ascii_alphanumeric() {
            // Two of them in a row are a warning of the compiler.
            if !name.ends_with('_') {
                name.push('_');
            }
            continue;
        }
        let before = at.checked_sub(1).map(|at| letters[at]);
        let next = letters.get(at + 1);
        let begins = letter.is_ascii_uppercase()
            && before.is_some_and(|before| {
                before.is_ascii_lowercase()
                    || before.is_ascii_digit()
                    // `IPs` is one word.
                    || next.is_some_and(|next| next.is_ascii_lowercase() && before.is_ascii_uppercase())
                        && (next != Some(&'s') || letters.get(at + 2).is_some_and(char::is_ascii_lowercase))
            });
        if begins && !name.ends_with('_') {
            name.push('_');
        }
        name.push(letter.to_ascii_lowercase());
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        format!("_{name}")
    } else {
        name
    }
}

/// A field's name in serde's `camelCase`.
pub(super) fn camel_case(name: &str) -> String {
    let mut out = String::new();
    let mut upper = false;
    for letter in name.chars() {
        if letter == '_' {
            upper = !out.is_empty();
        } else if upper {
            out.push(letter.to_ascii_uppercase());
            upper = false;
        } else {
            out.push(letter);
        }
    }
    out
}

/// The argument of a marker as one text.
pub(super) fn word(arguments: &Map<String, Value>, key: &str) -> Option<String> {
    arguments
        .get(key)
        .map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
}

/// The argument of a marker as texts.
pub(super) fn words(arguments: &Map<String, Value>, key: &str) -> Vec<String> {
    match arguments.get(key) {
        None => Vec::new(),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map_or_else(|| item.to_string(), str::to_owned))
            .collect(),
        Some(_) => word(arguments, key).into_iter().collect(),
    }
}

/// The value of a marker without arguments, such as `kubebuilder:deprecatedversion:warning=…`.
pub(super) fn said(text: &str) -> Value {
    value(text)
}

/// The keyword by which something required has something in it.
pub(super) fn least(of: &Type) -> &'static str {
    match of {
        Type::Pointer(inner) => least(inner),
        Type::List(_) | Type::Array(_) => "minItems",
        Type::Named { package: None, name } if name == "string" => "minLength",
        _ => "minProperties",
    }
}

/// The keywords of controller-gen for Go's numbers, where a Rust type has more: null removes one.
pub(super) fn number(of: &Type) -> &'static [(&'static str, Option<&'static str>)] {
    let Type::Named { package: None, name } = of else {
        return &[];
    };
    match name.as_str() {
        "int" => &[("format", None)],
        "uint" => &[("format", None), ("minimum", None)],
        "int8" | "int16" | "uint8" | "byte" | "uint16" => &[("format", None), ("minimum", None), ("maximum", None)],
        "uint32" => &[("format", Some("int32")), ("minimum", None)],
        "uint64" => &[("minimum", None)],
        // controller-gen says no more of them than that they are numbers (`builtinToType`).
        "float32" | "float64" => &[("format", None)],
        _ => &[],
    }
}

pub(super) fn is_byte(of: &Type) -> bool {
    matches!(of, Type::Named { package: None, name } if name == "byte" || name == "uint8")
}
