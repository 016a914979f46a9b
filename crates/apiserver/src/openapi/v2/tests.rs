//! The whole document: closed, complete, and the same in both forms; and a small one, byte by byte as gnostic writes
//! it.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use super::*;
use crate::registry::Registry;

/// Definitions of many shapes, and kube-apiserver's document of them.
static RECORDED: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../../testdata/openapi-v2-custom.json")).expect("JSON"));

/// The document of this server with those definitions.
static DOCUMENT: LazyLock<Value> = LazyLock::new(|| {
    let registry = Registry::new();
    registry.apply_crds(RECORDED["crds"].as_array().expect("a list"));
    parsed(&registry.snapshot())
});

fn parsed(snapshot: &Snapshot) -> Value {
    serde_json::from_slice(&document(snapshot, Form::Json)).expect("JSON")
}

/// Every string of a value behind `$ref`.
fn references<'a>(value: &'a Value, found: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(map) => {
            found.extend(map.get("$ref").and_then(Value::as_str));
            map.values().for_each(|value| references(value, found));
        }
        Value::Array(items) => items.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

#[test]
fn the_document_is_closed_over_its_references() {
    let document = &*DOCUMENT;
    let mut found = BTreeSet::new();
    references(document, &mut found);
    assert!(found.len() > 500, "{}", found.len());
    for reference in found {
        let path = reference.strip_prefix('#').expect("in this document");
        assert!(document.pointer(path).is_some(), "{reference}");
    }
}

/// The keywords that a reader of version 2 may meet in a schema; gnostic refuses a document with any other.
#[test]
fn schemas_have_no_words_of_version_3() {
    const KEYWORDS: [&str; 25] = [
        "$ref",
        "format",
        "title",
        "description",
        "multipleOf",
        "maximum",
        "exclusiveMaximum",
        "minimum",
        "exclusiveMinimum",
        "maxLength",
        "minLength",
        "pattern",
        "maxItems",
        "minItems",
        "uniqueItems",
        "maxProperties",
        "minProperties",
        "required",
        "enum",
        "additionalProperties",
        "type",
        "items",
        "properties",
        "externalDocs",
        "example",
    ];
    fn check(path: &str, schema: &Value) {
        for (keyword, value) in schema.as_object().into_iter().flatten() {
            assert!(
                KEYWORDS.contains(&keyword.as_str()) || keyword.starts_with("x-"),
                "{path}: {keyword}"
            );
            match (keyword.as_str(), value) {
                ("properties", Value::Object(properties)) => {
                    properties
                        .iter()
                        .for_each(|(name, property)| check(&format!("{path}.{name}"), property));
                }
                ("items" | "additionalProperties", inner) => check(path, inner),
                _ => {}
            }
        }
    }
    for (name, schema) in DOCUMENT["definitions"].as_object().expect("an object") {
        check(name, schema);
    }
}

fn definition() -> Value {
    json!({
        "metadata": {"name": "foos.ex.io"},
        "spec": {"group": "ex.io", "scope": "Namespaced", "names": {"plural": "foos", "kind": "Foo"}, "versions": [
            {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}},
        ]},
        "status": {"conditions": [{"type": "Established", "status": "True"}],
            "acceptedNames": {"plural": "foos", "kind": "Foo", "singular": "foo", "listKind": "FooList"}}
    })
}

#[test]
fn custom_kinds_come_and_go() {
    let registry = Registry::new();
    let before = etag(&registry.snapshot());
    registry.apply_crds([&definition()]);
    assert_ne!(etag(&registry.snapshot()), before);
    registry.apply_crds([]);
    assert_eq!(etag(&registry.snapshot()), before);
}

#[test]
fn custom_kinds_are_described_as_recorded() {
    for section in ["definitions", "paths"] {
        for (name, want) in RECORDED[section].as_object().expect("an object") {
            assert_eq!(&DOCUMENT[section][name], want, "{name}");
        }
    }
}

#[test]
fn a_definition_may_be_as_deep_as_a_body() {
    let mut deep = json!({"type": "object", "x-kubernetes-embedded-resource": true});
    // A body has six levels around the schema, and each step is two.
    for _ in 0..(decode::MAX_DEPTH - 7) / 2 {
        deep = json!({"type": "object", "properties": {"p": deep}});
    }
    let mut definition = definition();
    definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"] = deep;
    let registry = Registry::new();
    registry.apply_crds([&definition]);
    let text = document(&registry.snapshot(), Form::Json);
    assert!(text.windows(12).any(|window| window == b"io.ex.v1.Foo"));
    assert!(!document(&registry.snapshot(), Form::Protobuf).is_empty());
}

/// The parameters that `kubectl` before 1.27 looks for stand in the operation, those that all operations share do not.
#[test]
fn an_operation() {
    let mut patch = DOCUMENT["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"].clone();
    for parameter in patch["parameters"]
        .as_array_mut()
        .into_iter()
        .flatten()
        .filter_map(Value::as_object_mut)
    {
        parameter.remove("description");
    }
    let object = json!({"$ref": "#/definitions/io.k8s.api.apps.v1.Deployment"});
    assert_eq!(
        patch,
        json!({
            "consumes": ["application/json-patch+json", "application/merge-patch+json", "application/strategic-merge-patch+json",
                "application/apply-patch+yaml"],
            "description": "partially update the specified Deployment",
            "operationId": "patchAppsV1NamespacedDeployment",
            "parameters": [
                {"$ref": "#/parameters/body-78PwaGsr"},
                {"in": "query", "name": "dryRun", "type": "string", "uniqueItems": true},
                {"$ref": "#/parameters/fieldManager-7c6nTn1T"},
                {"in": "query", "name": "fieldValidation", "type": "string", "uniqueItems": true},
                {"$ref": "#/parameters/force-tOGGb0Yi"},
            ],
            "produces": ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"],
            "responses": {
                "200": {"description": "OK", "schema": object},
                "201": {"description": "Created", "schema": object},
                "401": {"description": "Unauthorized"},
            },
            "schemes": ["https"],
            "tags": ["apps_v1"],
            "x-kubernetes-action": "patch",
            "x-kubernetes-group-version-kind": {"group": "apps", "kind": "Deployment", "version": "v1"},
        })
    );
}

/// The bytes are those of `proto.Marshal(openapi_v2.ParseDocument(text))`, recorded.
#[test]
fn a_message() {
    let recorded = include_bytes!("../../../testdata/openapi-v2.pb");
    let text: Value = serde_json::from_str(include_str!("../../../testdata/openapi-v2.json")).expect("JSON");
    let mut message = gnostic::write(&text, &messages::DOCUMENT);
    // A section stands between the sections with lower and with higher tags.
    let end = message.split_off(
        gnostic::write(
            &json!({"swagger": text["swagger"], "info": text["info"]}),
            &messages::DOCUMENT,
        )
        .len(),
    );
    for (name, section, content) in [
        ("paths", messages::PATHS, &messages::PATH_ITEM),
        ("definitions", messages::DEFINITIONS, &messages::SCHEMA),
        ("parameters", messages::PARAMETERS, &messages::PARAMETER),
    ] {
        let entries = text[name].as_object().into_iter().flatten();
        let entries = entries.map(|(name, value)| (name.clone(), gnostic::write(value, content)));
        gnostic::section(section, entries, &mut message);
    }
    message.extend(end);
    assert!(message == recorded, "{}", String::from_utf8_lossy(&message));
}
