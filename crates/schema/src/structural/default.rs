//! Defaults of custom resources.
//!
//! As apiextensions does it: first go the nulls that the schema does not allow (so that they count as absent), then each
//! absent property with a default gets it, and the defaults inside of what is there, or was just filled in, follow.

use serde_json::{Number, Value};

use crate::schema::{Schema, SchemaRef};

/// Fills in the defaults of a custom resource, and drops nulls where the schema does not allow them.
///
/// Numbers come into the form in which Go writes them: `5.0` is `5`.
///
/// ```
/// use kubewright_schema::{SchemaRef, structural::default};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {
///     "mode": {"type": "string", "default": "a"},
///     "note": {"type": "string", "nullable": true, "default": "x"},
/// }})).unwrap();
/// let mut value = json!({"mode": null, "note": null});
/// default(&mut value, &schema);
/// assert_eq!(value, json!({"mode": "a", "note": null}));
/// ```
pub fn default(value: &mut Value, schema: &SchemaRef) {
    drop_nulls(value, schema);
    fill(value, schema);
    // Last, because a default may have such a form itself.
    whole_numbers(value);
}

fn is_forbidden_null(value: &Value, schema: &Schema) -> bool {
    value.is_null() && !schema.nullable
}

fn drop_nulls(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => map.retain(|key, value| {
            let is_property = schema.properties.contains_key(key);
            let Some(schema) = schema.field(key) else { return true };
            // In a list a null stays for validation to refuse: dropping it would move the others.
            if is_forbidden_null(value, schema) {
                // An absent property gets its default later; a key of a map would be gone.
                let Some(default) = schema.default.as_ref().filter(|_| !is_property) else {
                    return false;
                };
                value.clone_from(default);
            }
            drop_nulls(value, schema);
            true
        }),
        Value::Array(list) => {
            if let Some(schema) = &schema.items {
                list.iter_mut().for_each(|item| drop_nulls(item, schema));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, schema: &Schema) {
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                if let Some(default) = &property.default
                    && !map.contains_key(name)
                {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (key, value) in map {
                if let Some(schema) = schema.field(key) {
                    fill(value, schema);
                }
            }
        }
        Value::Array(list) => {
            let Some(schema) = &schema.items else { return };
            for item in list {
                if is_forbidden_null(item, schema)
                    && let Some(default) = &schema.default
                {
                    item.clone_from(default);
                }
                fill(item, schema);
            }
        }
        _ => {}
    }
}

/// Go prints a float without a fraction as an integer, up to 1e21; JSON keeps no difference between them.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(number) => {
            if let Some(float) = number.as_f64().filter(|_| number.is_f64())
                && float.fract() == 0.0
                // Beyond 2^53 the digits of the integer would be more than the float knows.
                && float.abs() <= 9_007_199_254_740_992.0
            {
                *number = Number::from(float as i64);
            }
        }
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        Value::Array(list) => list.iter_mut().for_each(whole_numbers),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(schema: &Value, value: Value, expected: &Value) {
        let schema = SchemaRef::from_crd(schema).expect("a valid schema");
        let mut defaulted = value.clone();
        default(&mut defaulted, &schema);
        assert_eq!(&defaulted, expected, "{value}");
        default(&mut defaulted, &schema);
        assert_eq!(&defaulted, expected, "not idempotent: {value}");
    }

    #[test]
    fn defaults_come_in_the_form_of_go_too() {
        let schema = json!({"type": "object", "properties": {"a": {"type": "number", "default": 0.0}}});
        check(&schema, json!({}), &json!({"a": 0}));
    }

    #[test]
    fn values() {
        let nested = json!({"type": "object", "properties": {
            "nested": {"type": "object", "default": {}, "properties": {
                "deep": {"type": "object", "default": {"x": 1}, "properties": {
                    "x": {"type": "integer"}, "y": {"type": "integer", "default": 2}}}}},
            "rules": {"type": "array", "items": {"type": "object", "properties": {"kind": {"type": "string", "default": "k"}}}},
            "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {"default": 7}}}},
            "list": {"type": "array", "items": {"type": "string", "default": "z"}},
            "bare": {"type": "array", "items": {"type": "string"}},
            "plain": {"type": "string"},
            "num": {"type": "number"},
        }});
        let deep = json!({"deep": {"x": 1, "y": 2}});
        check(&nested, json!({}), &json!({"nested": deep}));
        check(
            &nested,
            json!({"nested": null, "plain": null}),
            &json!({"nested": deep}),
        );
        check(
            &nested,
            json!({"nested": {"deep": {}}}),
            &json!({"nested": {"deep": {"y": 2}}}),
        );
        check(&nested, json!({"nested": "x"}), &json!({"nested": "x"}));
        check(
            &nested,
            json!({"rules": [{}, {"kind": "o"}], "map": {"a": {}}, "list": [null, "a"], "bare": [null]}),
            &json!({"nested": deep, "rules": [{"kind": "k"}, {"kind": "o"}], "map": {"a": {"v": 7}}, "list": ["z", "a"], "bare": [null]}),
        );
        check(
            &nested,
            json!({"num": 5.0, "unknown": 1.5}),
            &json!({"nested": deep, "num": 5, "unknown": 1.5}),
        );
    }
}
