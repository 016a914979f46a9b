//! Defaults of custom resources.
//!
//! As apiextensions does it: first go the nulls that the schema does not allow (so that they count as absent), then
//! each absent property with a default gets it, and the defaults inside of present values, or of new ones, follow.

use serde_json::{Number, Value};

use crate::schema::{Schema, SchemaRef};
use crate::{budget, measure};

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
    settle(value, Some(schema), true);
}

/// One walk for all: the parts below a value are settled before those beside it. Only `given` values can hold nulls
/// that count as absent, defaults cannot.
fn settle(value: &mut Value, schema: Option<&Schema>, given: bool) {
    match value {
        Value::Object(map) => {
            map.retain(|key, value| settle_entry(key, value, schema, given));
            let Some(schema) = schema else { return };
            // Each item of a list is asked for each property.
            budget::spend(schema.properties.len());
            for (name, property) in &schema.properties {
                if let Some(default) = &property.default
                    && !map.contains_key(name)
                {
                    // Defaults that nest make much out of little.
                    let node = if map.is_empty() { measure::map_held(1) } else { 0 };
                    budget::produce(node + measure::text_held(name.len()));
                    let mut value = measure::copy(default);
                    settle(&mut value, Some(property), false);
                    map.insert(name.clone(), value);
                }
            }
        }
        Value::Array(list) => {
            let items = schema.and_then(|schema| schema.items.as_deref());
            for item in list {
                // In a list a null without a default stays for validation to refuse: dropping it would move the others.
                let default = items.filter(|schema| is_forbidden_null(item, schema));
                match default.and_then(|schema| schema.default.as_ref()) {
                    Some(default) => {
                        *item = measure::copy(default);
                        settle(item, items, false);
                    }
                    None => settle(item, items, given),
                }
            }
        }
        Value::Number(number) => whole_number(number),
        _ => {}
    }
}

/// Settles the value under a key; false when that counts as absent.
fn settle_entry(key: &str, value: &mut Value, schema: Option<&Schema>, given: bool) -> bool {
    let field: Option<&Schema> = schema.and_then(|schema| schema.field(key)).map(|field| &**field);
    if let (Some(outer), Some(schema)) = (schema, field)
        && given
        && is_forbidden_null(value, schema)
    {
        // An absent property gets its default later; a key of a map would be gone.
        let is_property = outer.properties.contains_key(key);
        let Some(default) = schema.default.as_ref().filter(|_| !is_property) else {
            return false;
        };
        *value = measure::copy(default);
    }
    settle(value, field, given);
    true
}

fn is_forbidden_null(value: &Value, schema: &Schema) -> bool {
    value.is_null() && !schema.nullable
}

/// Go prints a float without a fraction as an integer, up to 1e21; JSON keeps no difference between them.
fn whole_number(number: &mut Number) {
    if let Some(float) = number.as_f64().filter(|_| number.is_f64())
        && float.fract() == 0.0
        // Beyond 2^53 the digits of the integer would be more than the float knows.
        && float.abs() <= 9_007_199_254_740_992.0
    {
        *number = Number::from(float as i64);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

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

    /// The same as upstream, walk by walk: nulls go, defaults come, numbers get their form.
    fn in_three_walks(value: &mut Value, schema: &Schema) {
        fn drop_nulls(value: &mut Value, schema: &Schema) {
            match value {
                Value::Object(map) => map.retain(|key, value| {
                    let Some(field) = schema.field(key) else { return true };
                    if is_forbidden_null(value, field) {
                        let is_property = schema.properties.contains_key(key);
                        let Some(default) = field.default.as_ref().filter(|_| !is_property) else {
                            return false;
                        };
                        value.clone_from(default);
                    }
                    drop_nulls(value, field);
                    true
                }),
                Value::Array(list) => {
                    if let Some(items) = &schema.items {
                        list.iter_mut().for_each(|item| drop_nulls(item, items));
                    }
                }
                _ => {}
            }
        }
        fn fill(value: &mut Value, schema: &Schema) {
            match value {
                Value::Object(map) => {
                    for (name, property) in &schema.properties {
                        if let (Some(default), false) = (&property.default, map.contains_key(name)) {
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
                        if let (true, Some(default)) = (is_forbidden_null(item, schema), &schema.default) {
                            item.clone_from(default);
                        }
                        fill(item, schema);
                    }
                }
                _ => {}
            }
        }
        fn whole_numbers(value: &mut Value) {
            match value {
                Value::Number(number) => whole_number(number),
                Value::Object(map) => map.values_mut().for_each(whole_numbers),
                Value::Array(list) => list.iter_mut().for_each(whole_numbers),
                _ => {}
            }
        }
        drop_nulls(value, schema);
        fill(value, schema);
        whole_numbers(value);
    }

    /// Few keys, so that values and schemas meet.
    fn some_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(json!(null)), Just(json!(1)), Just(json!(2.0)), Just(json!("x"))];
        leaf.prop_recursive(4, 20, 3, |inner| {
            prop_oneof![
                prop::collection::btree_map("[abc]", inner.clone(), 0..3)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                prop::collection::vec(inner, 0..3).prop_map(Value::Array),
            ]
        })
    }

    fn some_schema() -> impl Strategy<Value = Value> {
        let said = || (prop::option::of(some_value()), any::<bool>());
        let leaf = said().prop_map(|(default, nullable)| schema_of("string", &json!({}), default, nullable));
        leaf.prop_recursive(4, 20, 3, move |inner| {
            let properties = prop::collection::btree_map("[abc]", inner.clone(), 0..3);
            prop_oneof![
                (properties, said()).prop_map(|(map, (default, nullable))| {
                    schema_of("object", &json!({ "properties": map }), default, nullable)
                }),
                (inner.clone(), said()).prop_map(|(values, (default, nullable))| {
                    schema_of("object", &json!({ "additionalProperties": values }), default, nullable)
                }),
                (inner, said()).prop_map(|(items, (default, nullable))| schema_of(
                    "array",
                    &json!({ "items": items }),
                    default,
                    nullable
                )),
            ]
        })
    }

    fn schema_of(type_: &str, below: &Value, default: Option<Value>, nullable: bool) -> Value {
        let mut schema = json!({"type": type_, "nullable": nullable});
        let said = schema.as_object_mut().expect("an object");
        said.extend(below.as_object().expect("an object").clone());
        said.extend(default.map(|default| ("default".to_owned(), default)));
        schema
    }

    proptest! {
        #[test]
        fn one_walk_does_what_three_do(schema in some_schema(), value in some_value()) {
            let schema = SchemaRef::from_crd(&schema).expect("a valid schema");
            let (mut one, mut three) = (value.clone(), value);
            default(&mut one, &schema);
            in_three_walks(&mut three, &schema);
            prop_assert_eq!(one, three);
        }
    }
}
