//! Recorded errors, the words that no recording has, and properties over any value and any schema.

use super::*;
use proptest::prelude::*;

/// The schema of the recorded sequence `crd-schema-values`.
fn vals() -> SchemaRef {
    SchemaRef::from_crd(&json!({"type": "object", "required": ["spec"], "properties": {"spec": {
        "type": "object", "required": ["name"], "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 6, "pattern": "^[a-z]+$"},
        "num": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 100, "multipleOf": 5},
        "frac": {"type": "number", "exclusiveMinimum": true, "minimum": 0},
        "when": {"type": "string", "format": "date-time"}, "dur": {"type": "string", "format": "duration"},
        "ip": {"type": "string", "format": "ipv4"}, "b64": {"type": "string", "format": "byte"},
        "uuid": {"type": "string", "format": "uuid"},
        "mode": {"type": "string", "enum": ["on", "off"], "default": "on"},
        "nul": {"type": "string", "nullable": true, "default": "d"},
        "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
                 "maximum": 65535, "pattern": "^[a-z]+$"},
        "set": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 3, "minItems": 1},
        "rules": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["id", "kind"],
                  "items": {"type": "object", "required": ["id"], "properties": {
                      "id": {"type": "integer"}, "kind": {"type": "string", "default": "k"}, "v": {"type": "string"}}}},
        "tpl": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
        "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"known": {"type": "integer"}}},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}, "maxProperties": 2},
        "one": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}]},
        "nested": {"type": "object", "default": {}, "properties": {"deep": {"type": "object", "default": {"x": 1},
                   "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 2}}}}},
    }}}}))
    .expect("a valid schema")
}

fn check(spec: Value, expected: &[&str]) {
    let schema = vals();
    let mut value = json!({"spec": {"name": "ab"}});
    let fields = spec.as_object().expect("an object").clone();
    value["spec"].as_object_mut().expect("an object").extend(fields);
    crate::structural::default(&mut value, &schema);
    let mut errors: Vec<_> = validate(&value, &schema, &FieldPath::root())
        .iter()
        .map(ToString::to_string)
        .collect();
    let mut expected = expected.to_vec();
    errors.sort();
    expected.sort_unstable();
    assert_eq!(errors, expected, "{value}");
}

/// Texts as recorded from kube-apiserver 1.36.
#[test]
fn recorded_errors() {
    check(json!({}), &[]);
    check(
        json!({"name": "abcdef", "num": 5, "frac": 0.5, "when": "2026-01-02T03:04:05.6Z", "dur": "1h30m", "ip": "1.2.3.4",
            "b64": "YQ==", "uuid": "11111111-2222-3333-4444-555555555555", "mode": "off", "nul": null, "port": "http",
            "set": ["a", "b"], "rules": [{"id": 1}, {"id": 1, "kind": "o"}], "one": {"a": "x"}, "labels": {"a": "b"},
            "tpl": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "Bad Name"}, "more": 1}}),
        &[],
    );
    check(
        json!({"name": "A"}),
        &[r#"spec.name: Invalid value: "A": spec.name in body should be at least 2 chars long"#],
    );
    check(
        json!({"name": "abcdefg"}),
        &["spec.name: Too long: may not be more than 6 bytes"],
    );
    check(
        json!({"num": 103, "frac": 0}),
        &[
            "spec.frac: Invalid value: 0: spec.frac in body should be greater than 0",
            "spec.num: Invalid value: 103: spec.num in body should be a multiple of 5",
            "spec.num: Invalid value: 103: spec.num in body should be less than or equal to 100",
        ],
    );
    check(
        json!({"num": "5", "frac": true}),
        &[
            r#"spec.frac: Invalid value: "boolean": spec.frac in body must be of type number: "boolean""#,
            r#"spec.num: Invalid value: "string": spec.num in body must be of type integer: "string""#,
        ],
    );
    check(
        json!({"num": 5.5}),
        &[
            r#"spec.num: Invalid value: "float64": spec.num in body must be of type int32: "float64""#,
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.num"#,
            "spec.num: Invalid value: 5.5: spec.num in body should be a multiple of 5",
        ],
    );
    check(json!({"num": 5.0}), &[]);
    check(
        json!({"num": 4_294_967_295_i64}),
        &[
            r#"<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.num"#,
            "spec.num: Invalid value: 4294967295: spec.num in body should be less than or equal to 100",
        ],
    );
    check(
        json!({"when": "yesterday", "dur": "1 fortnight", "ip": "1.2.3", "b64": "*", "uuid": "x"}),
        &[
            r#"spec.uuid: Invalid value: "x": spec.uuid in body must be of type uuid: "x""#,
            r#"spec.ip: Invalid value: "1.2.3": spec.ip in body must be of type ipv4: "1.2.3""#,
            r#"spec.dur: Invalid value: "1 fortnight": spec.dur in body must be of type duration: "1 fortnight""#,
            r#"spec.b64: Invalid value: "*": spec.b64 in body must be of type byte: "*""#,
            r#"spec.when: Invalid value: "yesterday": spec.when in body must be of type date-time: "yesterday""#,
        ],
    );
    check(
        json!({"mode": "dim"}),
        &[r#"spec.mode: Unsupported value: "dim": supported values: "on", "off""#],
    );
    check(
        json!({"port": true}),
        &[
            r#"spec.port: Invalid value: "boolean": spec.port in body must be of type integer,string: "boolean""#,
            r#"<nil>: Invalid value: "": "spec.port" must validate at least one schema (anyOf)"#,
            r#"spec.port: Invalid value: "boolean": spec.port in body must be of type integer: "boolean""#,
        ],
    );
    check(
        json!({"port": "HTTP"}),
        &[r#"spec.port: Invalid value: "HTTP": spec.port in body should match '^[a-z]+$'"#],
    );
    check(
        json!({"set": ["a", "b", "a", "a"]}),
        &[
            "spec.set: Too many: 4: must have at most 3 items",
            r#"spec.set[2]: Duplicate value: "a""#,
        ],
    );
    check(
        json!({"set": []}),
        &["spec.set: Invalid value: 0: spec.set in body should have at least 1 items"],
    );
    check(
        json!({"rules": [{"id": 1}, {"id": 1, "kind": "k"}]}),
        &[r#"spec.rules[1]: Duplicate value: {"id":1,"kind":"k"}"#],
    );
    check(json!({"rules": [{"v": "x"}]}), &["spec.rules[0].id: Required value"]);
    check(
        json!({"tpl": {"metadata": {"name": "n"}}}),
        &["spec.tpl.apiVersion: Required value", "spec.tpl.kind: Required value"],
    );
    check(
        json!({"raw": {"known": "x"}}),
        &[r#"spec.raw.known: Invalid value: "string": spec.raw.known in body must be of type integer: "string""#],
    );
    check(
        json!({"labels": {"a": "long one", "b": "b", "c": "c"}}),
        &[
            "spec.labels: Too many: 3: must have at most 2 items",
            "spec.labels.a: Too long: may not be more than 3 bytes",
        ],
    );
    check(
        json!({"one": {"a": "x", "b": "y"}}),
        &[
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found 2 valid alternatives"#,
        ],
    );
    check(
        json!({"one": {}}),
        &[
            r#"<nil>: Invalid value: "": "spec.one" must validate one and only one schema (oneOf). Found none valid"#,
            "spec.one.a: Required value",
        ],
    );
    check(
        json!({"set": [null]}),
        &[r#"spec.set[0]: Invalid value: "null": spec.set[0] in body must be of type string: "null""#],
    );
    check(
        json!({"nested": "x"}),
        &[r#"spec.nested: Invalid value: "string": spec.nested in body must be of type object: "string""#],
    );
    let errors = validate(&json!({}), &vals(), &FieldPath::root());
    assert_eq!(crate::error::aggregate(&errors), "spec: Required value");
}

/// As kube-apiserver 1.37 answers: a type has formats of its own, and a schema without a type may have one of texts.
#[test]
fn formats_belong_to_types() {
    let check = |schema: Value, value: Value, expected: &[&str]| {
        let schema = SchemaRef::from_crd(&schema).expect("a schema");
        let errors: Vec<String> = validate(&value, &schema, &FieldPath::new("a"))
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(errors, expected, "{value}");
    };
    check(json!({"type": "string", "format": "date-time"}), json!([]), &[]);
    check(
        json!({"type": "string", "format": "nope"}),
        json!([]),
        &[r#"a: Invalid value: "array":  in body must be of type string: "array""#],
    );
    check(
        json!({"format": "date"}),
        json!({"b": 1}),
        &[r#"a: Invalid value: "":  in body must be of type date: """#],
    );
    check(json!({"format": "date"}), json!([1]), &[]);
    check(json!({"format": "date"}), Value::Null, &[]);
    let bound = "Maximum boundary value must be of type integer (default format) in ";
    check(
        json!({"type": "integer", "format": "nope", "maximum": 1.5}),
        json!(1),
        &[&format!("a: Invalid value: \"\": {bound}")],
    );
}

/// As kube-apiserver 1.37 answers: a bound beside a float is one, and shown as Go shows it.
#[test]
fn bounds_are_shown_as_the_number_is() {
    let schema = SchemaRef::from_crd(&json!({"type": "number", "maximum": 100_000_000})).expect("a schema");
    for (value, shown, bound) in [
        (json!(200_000_000), "200000000", "100000000"),
        (json!(200_000_000.5), "2.000000005e+08", "1e+08"),
    ] {
        let errors = validate(&value, &schema, &FieldPath::new("a"));
        let expected = format!("a: Invalid value: {shown}:  in body should be less than or equal to {bound}");
        assert_eq!(errors[0].to_string(), expected);
    }
}

#[test]
fn other_words_of_the_vocabulary() {
    let schema = SchemaRef::from_crd(&json!({
        "allOf": [{"required": ["x"]}], "not": {"required": ["y"]}, "minProperties": 1,
        "properties": {"x": {"maximum": 5, "exclusiveMaximum": true}, "e": {"enum": [1, "a"]}}}))
    .expect("a valid schema");
    let texts = |value: Value| -> Vec<String> {
        validate(&value, &schema, &FieldPath::root().key("at"))
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        texts(json!({"y": 1})),
        [
            r#"at: Invalid value: "": "" must validate all the schemas (allOf). None validated"#,
            "at.x: Required value",
            r#"at: Invalid value: "": "" must not validate the schema (not)"#,
        ]
    );
    assert_eq!(
        texts(json!({"x": 5})),
        ["at.x: Invalid value: 5: x in body should be less than 5"]
    );
    assert_eq!(
        texts(json!({"x": 1, "e": 2})),
        [r#"at.e: Unsupported value: 2: supported values: "1", "a""#]
    );
    assert!(texts(json!({"x": 1, "e": 1.0})).is_empty());
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-10_i64..120).prop_map(Value::from),
        any::<f64>().prop_map(|number| json!(number)),
        "[a-z0-9:.-]{0,12}".prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "spec", "name", "num", "frac", "when", "dur", "ip", "b64", "uuid", "mode", "nul", "port", "set", "rules", "id",
        "kind", "v", "tpl", "raw", "known", "labels", "one", "a", "b", "nested", "deep", "x", "y", "metadata", "zz",
    ]);
    leaf.prop_recursive(5, 60, 8, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::btree_map(names.clone().prop_map(str::to_owned), inner, 0..6)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// An error that is not shown has no text: a schema may have as many alternatives as a list has items.
#[test]
fn alternatives_that_do_not_fit_cost_little() {
    use crate::budget::{Limits, within};
    let words: Vec<String> = (0..50).map(|index| format!("word-{index}")).collect();
    let alternatives = json!(vec![json!({"enum": words, "minLength": 9}); 50]);
    let limits = Limits {
        steps: 100 * (50 * (50 + 20) + 3_000),
        bytes: 1_000_000,
    };
    for (schema, errors) in [
        (json!({"not": {"anyOf": alternatives}}), 0),
        (json!({"not": {"oneOf": alternatives}}), 0),
        (json!({"not": {"allOf": alternatives}}), 0),
        // The best of them is reported: the alternatives, and its two mistakes.
        (json!({"anyOf": alternatives}), 3),
        (json!({"oneOf": alternatives}), 3),
    ] {
        let schema = SchemaRef::from_crd(&json!({"type": "array", "items": schema})).expect("a schema");
        let value = json!(vec!["x"; 100]);
        let found = within(limits, || validate(&value, &schema, &FieldPath::root()));
        assert_eq!(found.map(|found| found.len()), Ok(100 * errors));
    }
}

proptest! {
    #[test]
    fn pruning_and_defaulting_are_idempotent_and_nothing_panics(mut value in any_json()) {
        use crate::structural::{PruneOptions, default, prune};
        let schema = vals();
        prune(&mut value, &schema, PruneOptions::CUSTOM_RESOURCE);
        default(&mut value, &schema);
        let mut again = value.clone();
        prop_assert!(prune(&mut again, &schema, PruneOptions::CUSTOM_RESOURCE).is_empty());
        default(&mut again, &schema);
        prop_assert_eq!(&again, &value);
        for error in validate(&value, &schema, &FieldPath::root()) {
            prop_assert!(!error.to_string().is_empty());
        }
    }

    #[test]
    fn any_schema_is_survived(schema in any_json(), mut value in any_json()) {
        use crate::structural::{PruneOptions, check_crd_schema, default, prune};
        let _errors = check_crd_schema(&schema, &FieldPath::root());
        if let Ok(schema) = SchemaRef::from_crd(&schema) {
            default(&mut value, &schema);
            prune(&mut value, &schema, PruneOptions::CUSTOM_VALUE);
            let _errors = validate(&value, &schema, &FieldPath::root());
        }
    }
}

/// Of a long enum texts are looked up; the verdicts and the words are those of a short one.
#[test]
fn a_long_enum_is_as_a_short_one() {
    let errors = |words: &[Value], value: &Value| -> Vec<String> {
        let schema = SchemaRef::from_crd(&json!({"enum": words, "nullable": true})).expect("a schema");
        let errors = validate(value, &schema, &FieldPath::root());
        errors.iter().map(ToString::to_string).collect()
    };
    let mut long: Vec<Value> = (0..40).rev().map(|at| json!(format!("v{at}"))).collect();
    long.extend([json!(1), json!("\"é\n"), json!(null), json!("v7")]);
    for value in [json!("v0"), json!("v39"), json!("\"é\n"), json!(1.0), json!(null)] {
        assert_eq!(errors(&long, &value), [""; 0], "{value}");
    }
    for value in [json!("v40"), json!(""), json!("w"), json!(2)] {
        let quoted = long.iter().map(|word| match word {
            Value::String(text) => quote(text),
            other => quote(&other.to_string()),
        });
        let words = quoted.collect::<Vec<_>>().join(", ");
        assert_eq!(
            errors(&long, &value),
            [format!(": Unsupported value: {value}: supported values: {words}")],
        );
    }
}

#[test]
fn items_that_look_alike_are_not_the_same() {
    let check = |schema: Value, list: Value, wanted: &[&str]| {
        let schema = SchemaRef::from_crd(&schema).expect("a schema");
        let errors = validate(&list, &schema, &FieldPath::new("l"));
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, wanted, "{list}");
    };
    let set = json!({"type": "array", "x-kubernetes-list-type": "set", "items": {"x-kubernetes-preserve-unknown-fields": true}});
    check(set.clone(), json!(["1", 1, "null", "\"1\"", true, "true"]), &[]);
    check(set, json!([1, "1", null, "1", null, 1, true]), &["l[3]", "l[5]"]);
    let map = json!({"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a", "b"],
        "items": {"x-kubernetes-preserve-unknown-fields": true}});
    check(
        map.clone(),
        json!([{"a": "1", "b": 1}, {"a": 1, "b": "1"}, {"a": "1"}, {"b": 1}, {"a": "1,1\"1", "b": ""}, {"a": "1", "b": "1\"1,"}, {}]),
        &[],
    );
    check(
        map,
        json!([{"a": "x", "b": 1}, {"b": 1, "a": "x", "c": 1}, {"b": 2}, {"b": 2}]),
        &["l[1]", "l[3]"],
    );
}
