//! Paths that a definition names beside its schema: columns of `kubectl get`, and the fields behind `scale`.
//!
//! An API server takes a path to a field that is not there; the column is then empty for ever, and `kubectl scale`
//! fails. Paths are followed through the schema as far as it has fields: unknown fields that are kept, items of maps,
//! and JSONPath's recursive descent end the walk. Selectable fields are not here: the server checks them itself.

use kubewright_schema::catalog;
use serde_json::Value;

use super::Findings;
use super::crd::Version;
use super::place::Sources;
use crate::codes::crds as codes;
use crate::diagnostic::Diagnostic;
use crate::names::near;

/// One step of a path.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A field, by its name.
    Field(String),
    /// Items of a list or values of a map: an index, a filter, a star.
    Items,
}

/// `versions` in the order of the definition's.
pub(super) fn check(crd: &Value, versions: &[Version<'_>], sources: &Sources<'_>, found: &mut Findings) {
    let name = crd["metadata"]["name"].as_str().unwrap_or_default();
    let listed = crd["spec"]["versions"].as_array();
    for (version, known) in listed.into_iter().flatten().zip(versions) {
        let schema = &version["schema"]["openAPIV3Schema"];
        let columns = version["additionalPrinterColumns"].as_array();
        for column in columns.into_iter().flatten() {
            let path = column["jsonPath"].as_str().unwrap_or_default();
            let Err(why) = follow(path, schema) else { continue };
            let title = column["name"].as_str().unwrap_or_default();
            found.errors.push(
                Diagnostic::new(
                    codes::COLUMN,
                    format!("the column {title:?} of {name} would always be empty"),
                )
                .at(sources.find(known.rust, "").field(path))
                .because(why)
                .fix("correct `json_path` of the printcolumn in #[kube(…)]; names are those in JSON"),
            );
        }
        let scale = &version["subresources"]["scale"];
        for (field, kind) in [
            ("specReplicasPath", "integer"),
            ("statusReplicasPath", "integer"),
            ("labelSelectorPath", "string"),
        ] {
            let Some(path) = scale[field].as_str().filter(|path| !path.is_empty()) else {
                continue;
            };
            let why = match follow(path, schema) {
                Err(why) => why,
                Ok(Some(leaf)) if leaf["type"] != kind && leaf.get("type").is_some() => {
                    format!("the field is of type {}, and has to be of type {kind}", leaf["type"])
                }
                Ok(_) => continue,
            };
            found.errors.push(
                Diagnostic::new(codes::SCALE, format!("{name} cannot be scaled: {field} leads nowhere"))
                    .at(sources.find(known.rust, "").field(path))
                    .because(why)
                    .fix("correct `scale` in #[kube(…)]; replicas are integers, the selector is a text"),
            );
        }
    }
}

/// Follows a path from the root of a schema: the schema at its end, `None` when there is none.
fn follow<'s>(path: &str, schema: &'s Value) -> Result<Option<&'s Value>, String> {
    let Some(steps) = steps(path) else { return Ok(None) };
    let mut at = schema;
    let mut walked = String::new();
    for (index, step) in steps.iter().enumerate() {
        let next = match step {
            Step::Items => at.get("items").or_else(|| at.get("additionalProperties")),
            Step::Field(name) if index == 1 && walked == ".metadata" => return of_metadata(name).map(|()| None),
            Step::Field(name) => {
                walked.push('.');
                walked.push_str(name);
                match at["properties"].get(name) {
                    Some(next) => Some(next),
                    None if is_open(at) => at.get("additionalProperties"),
                    None => return Err(absent(name, &walked, at)),
                }
            }
        };
        match next.filter(|next| next.is_object()) {
            Some(next) => at = next,
            None => return Ok(None),
        }
    }
    Ok(Some(at))
}

/// Whether there may be fields that the schema does not name.
fn is_open(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
        || schema["x-kubernetes-embedded-resource"] == true
        || schema.get("additionalProperties").is_some()
        || schema.get("type").is_none()
}

fn of_metadata(name: &str) -> Result<(), String> {
    let raw = catalog::raw("io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta");
    let known: Value = raw
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    if known["properties"].get(name).is_some() {
        return Ok(());
    }
    Err(absent(name, &format!(".metadata.{name}"), &known))
}

fn absent(name: &str, walked: &str, at: &Value) -> String {
    let fields: Vec<&str> = at["properties"]
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys().map(String::as_str))
        .collect();
    let meant = near(name, &fields).map_or(String::new(), |other| format!("; did you mean `{other}`?"));
    format!("there is no field {walked}{meant}")
}

/// The steps of a path; `None` for one that is not understood, or that looks everywhere (`..`).
fn steps(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('[') {
            let (step, left) = bracket(inside)?;
            steps.push(step);
            rest = left;
            continue;
        }
        rest = rest.strip_prefix('.')?;
        let mut name = String::new();
        let mut letters = rest.char_indices();
        let mut end = rest.len();
        while let Some((at, letter)) = letters.next() {
            match letter {
                // A dot that belongs to the name.
                '\\' => name.extend(letters.next().map(|(_, letter)| letter)),
                '.' | '[' => {
                    end = at;
                    break;
                }
                letter => name.push(letter),
            }
        }
        rest = &rest[end..];
        match name.as_str() {
            "" if rest.starts_with('[') => {}
            "" => return None,
            "*" => steps.push(Step::Items),
            _ => steps.push(Step::Field(name)),
        }
    }
    Some(steps)
}

/// The text between brackets, and the text behind them.
fn bracket(inside: &str) -> Option<(Step, &str)> {
    for quote in ['\'', '"'] {
        if let Some(quoted) = inside.strip_prefix(quote) {
            let (name, left) = quoted.split_once(quote)?;
            return Some((Step::Field(name.to_owned()), left.strip_prefix(']')?));
        }
    }
    // A filter may hold brackets and texts of its own.
    let mut depth = 1_u32;
    let mut quote = None;
    for (at, letter) in inside.char_indices() {
        match (letter, quote) {
            (letter, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => {}
            ('\'' | '"', None) => quote = Some(letter),
            ('[', None) => depth = depth.saturating_add(1),
            (']', None) if depth == 1 => return Some((Step::Items, &inside[at + 1..])),
            (']', None) => depth -= 1,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_lead_to_fields_or_are_told() {
        let schema = json!({"type": "object", "properties": {
            "metadata": {"type": "object"},
            "spec": {"type": "object", "properties": {
                "size": {"type": "integer"},
                "a.b": {"type": "string"},
                "ports": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}},
                "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
            }},
        }});
        let check = |path: &str, expected: Result<bool, &str>| {
            let followed = follow(path, &schema).map(|leaf| leaf.is_some());
            assert_eq!(
                followed.as_ref().map(|leaf| *leaf).map_err(String::as_str),
                expected,
                "{path}"
            );
        };
        check(".spec.size", Ok(true));
        check(".spec['size']", Ok(true));
        check(".spec.a\\.b", Ok(true));
        check(".spec[\"a.b\"]", Ok(true));
        check(".spec.ports[*].name", Ok(true));
        check(".spec.ports[?(@.name==\"x]\")].name", Ok(true));
        check(
            ".spec.ports[0].nome",
            Err("there is no field .spec.ports.nome; did you mean `name`?"),
        );
        check(".spec.labels.anything", Ok(true));
        check(".spec.any.thing.below", Ok(false));
        check("..name", Ok(false));
        check(".metadata.creationTimestamp", Ok(false));
        check(".metadata.labels['a']", Ok(false));
        check(
            ".metadata.nam",
            Err("there is no field .metadata.nam; did you mean `name`?"),
        );
        check(".spec.sise", Err("there is no field .spec.sise; did you mean `size`?"));
        check(".spec.size.more", Err("there is no field .spec.size.more"));
        check(".status.phase", Err("there is no field .status"));
    }
}
