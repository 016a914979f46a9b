//! The rule by which the published definitions of Kubernetes 1.37 differ from those of 1.36 in hundreds of places: the
//! items of lists and the values of maps have no `default` of their own any more.
//!
//! The catalog and its generator, which includes this file, both follow it, so that such definitions stand in the
//! catalog once.

use serde_json::{Map, Value};

/// A definition whose items of lists and values of maps have no default.
pub(crate) fn without_inner_defaults(value: Value) -> Value {
    let Value::Object(map) = value else { return value };
    let each = |(key, value): (String, Value)| {
        let value = match (key.as_str(), value) {
            ("properties", Value::Object(fields)) => {
                let fields = fields.into_iter();
                fields
                    .map(|(name, field)| (name, without_inner_defaults(field)))
                    .collect()
            }
            ("items" | "additionalProperties", Value::Object(mut inner)) => {
                inner.remove("default");
                without_inner_defaults(refolded(inner))
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(list)) => list.into_iter().map(without_inner_defaults).collect(),
            (_, value) => value,
        };
        (key, value)
    };
    Value::Object(map.into_iter().map(each).collect())
}

/// A reference stands in `allOf` only beside other words.
fn refolded(map: Map<String, Value>) -> Value {
    match (map.len(), map.get("allOf").and_then(Value::as_array).map(Vec::as_slice)) {
        (1, Some([only])) => only.clone(),
        _ => Value::Object(map),
    }
}
