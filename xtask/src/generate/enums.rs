//! The enumerations in `zz_generated.openapi.go` of `k8s.io/kubernetes`: the published documents leave them out, and the
//! sentences about their values. A running server has both.
//!
//! The file is generated, so that its form is fixed: a function for each type, a field at its indent.

use serde_json::{Value, json};

use super::Definitions;

/// Puts the enumerations of fields, and the descriptions that tell of them, into the documents.
pub(super) fn add(documents: &mut Definitions, go: &str) {
    let names: Vec<(String, String)> = documents.keys().map(|name| (function(name), name.clone())).collect();
    let mut definition: Option<&String> = None;
    let (mut field, mut description) = (String::new(), None);
    for line in go.lines() {
        if let Some(rest) = line.strip_prefix("func schema_") {
            let function = rest.split('(').next().unwrap_or_default();
            definition = names.iter().find(|(of, _)| of == function).map(|(_, name)| name);
            continue;
        }
        let Some(name) = definition else { continue };
        let depth = line.chars().take_while(|c| *c == '\t').count();
        let words = line.trim();
        if depth == FIELD {
            if let Some(key) = words.strip_suffix(": {").and_then(text) {
                (field, description) = (key, None);
            }
        } else if let Some(found) = words.strip_prefix("Description:") {
            if depth == FIELD + 2 {
                description = text(found.trim().trim_end_matches(','));
            }
        } else if let Some(values) = words.strip_prefix("Enum:") {
            let values = values
                .trim()
                .trim_start_matches("[]interface{}{")
                .trim_end_matches("},");
            let values: Result<Value, _> = serde_json::from_str(&format!("[{values}]"));
            let place = documents
                .get_mut(name)
                .and_then(|one| one.pointer_mut(&format!("/properties/{field}")));
            if let (Ok(values), Some(Value::Object(place))) = (values, place) {
                if let Some(description) = &description {
                    place.insert("description".into(), json!(description));
                }
                let inner = if place.contains_key("items") {
                    "items"
                } else {
                    "additionalProperties"
                };
                match place.get_mut(inner) {
                    Some(Value::Object(inner)) => inner.insert("enum".into(), values),
                    _ => place.insert("enum".into(), values),
                };
            }
        }
    }
}

/// The indent of a field of a type.
const FIELD: usize = 5;

/// The Go function of a definition, without `schema_`: `k8sio_api_core_v1_Pod` of `io.k8s.api.core.v1.Pod`.
fn function(definition: &str) -> String {
    let path = match definition.strip_prefix("io.k8s.api.") {
        Some(rest) => format!("k8sio_api_{rest}"),
        // The other packages go by their last parts.
        None => definition
            .split_once(".pkg.")
            .map_or(definition.to_owned(), |(_, rest)| format!("pkg_{rest}")),
    };
    path.replace(['.', '-'], "_")
}

/// A Go text in quotation marks, which is a JSON text but for rare escapes.
fn text(quoted: &str) -> Option<String> {
    serde_json::from_str(quoted.trim()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enumerations_of_fields_are_found() {
        let go = "func schema_k8sio_api_core_v1_Get(ref x) y {\n\t\t\t\t\t\"scheme\": {\n\t\t\t\t\t\tSchemaProps: z{\n\
            \t\t\t\t\t\t\tDescription: \"Which.\\n\\nPossible\",\n\t\t\t\t\t\t\tEnum:        []interface{}{\"A\", \"B\"},\n";
        let field = json!({"properties": {"scheme": {"type": "string", "description": "Which."}}});
        let mut documents = Definitions::from([("io.k8s.api.core.v1.Get".to_owned(), field)]);
        add(&mut documents, go);
        let expected = json!({"type": "string", "description": "Which.\n\nPossible", "enum": ["A", "B"]});
        assert_eq!(documents["io.k8s.api.core.v1.Get"]["properties"]["scheme"], expected);
    }
}
