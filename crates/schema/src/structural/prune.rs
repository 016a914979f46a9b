//! Unknown fields: found, reported, dropped.
//!
//! Custom resources follow apiextensions' pruning: fields that the schema does not name go, except below
//! `x-kubernetes-preserve-unknown-fields`; `apiVersion`, `kind` and `metadata` of the resource and of embedded ones are
//! known without being named. Built-in kinds follow Go's decoder: fields that a struct lacks are ignored, free-form
//! types keep everything.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Path;
use crate::budget;
use crate::schema::catalog;
use crate::schema::catalog::json_schema_props;
use crate::schema::special::{Special, special};
use crate::schema::{Schema, SchemaRef};

/// The rules that decide which fields are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PruneOptions {
    built_in: bool,
    resource_root: bool,
}

impl PruneOptions {
    /// A whole built-in object.
    pub const BUILT_IN: Self = Self {
        built_in: true,
        resource_root: true,
    };
    /// A whole custom resource: `apiVersion`, `kind` and `metadata` are known.
    pub const CUSTOM_RESOURCE: Self = Self {
        built_in: false,
        resource_root: true,
    };
    /// A part of a custom resource, such as a default in its schema.
    pub const CUSTOM_VALUE: Self = Self {
        built_in: false,
        resource_root: false,
    };
}

/// Drops the fields that `schema` does not know and returns their paths (`spec.list[0].zz`).
///
/// Only the topmost unknown field of a subtree is reported. For custom resources the paths are sorted, as upstream
/// sorts them; for built-in kinds they come in the order of the value's keys: see [`unknown_fields_as_written`] for the
/// order of Go's decoder.
///
/// ```
/// use kubewright_schema::{SchemaRef, structural::{PruneOptions, prune}};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({"type": "object", "properties": {"size": {"type": "integer"}}})).unwrap();
/// let mut value = json!({"apiVersion": "x.io/v1", "kind": "X", "metadata": {"name": "a"}, "size": 1, "sise": 2});
/// assert_eq!(prune(&mut value, &schema, PruneOptions::CUSTOM_RESOURCE), ["sise"]);
/// assert_eq!(value["size"], 1);
/// assert!(value.get("sise").is_none());
/// ```
pub fn prune(value: &mut Value, schema: &SchemaRef, options: PruneOptions) -> Vec<String> {
    let mut pruner = Pruner {
        path: Path::default(),
        unknown: Vec::new(),
        within: Vec::new(),
    };
    if options.built_in {
        pruner.built_in(value, schema);
    } else {
        pruner.custom(value, Some(schema), options.resource_root);
        pruner.unknown.sort();
        pruner.unknown.append(&mut pruner.within);
    }
    pruner.unknown
}

/// How many unknown fields of a built-in kind are reported.
const MAX_SHOWN: usize = 100;

struct Pruner {
    path: Path,
    unknown: Vec<String>,
    /// Those in the metadata of objects within the object, which are reported last.
    within: Vec<String>,
}

impl Pruner {
    /// Calls `keep` for each field with the path at it, and drops those for which it says no.
    fn retain(&mut self, map: &mut Map<String, Value>, mut keep: impl FnMut(&mut Self, &str, &mut Value) -> bool) {
        let mut gone = Vec::new();
        for (key, value) in map.iter_mut() {
            let before = self.path.enter(key);
            budget::spend(1);
            if !keep(self, key, value) {
                self.unknown.push(self.path.to_message());
                gone.push(key.clone());
            }
            self.path.leave(before);
        }
        for key in &gone {
            map.remove(key);
        }
    }

    fn items(&mut self, list: &mut [Value], mut visit: impl FnMut(&mut Self, &mut Value)) {
        for (i, item) in list.iter_mut().enumerate() {
            let before = self.path.enter_item(i);
            visit(self, item);
            self.path.leave(before);
        }
    }

    fn custom(&mut self, value: &mut Value, schema: Option<&SchemaRef>, root: bool) {
        let embedded = !root && schema.is_some_and(|schema| schema.embedded_resource);
        let root = root || embedded;
        let preserve = schema.is_some_and(|schema| schema.preserve_unknown_fields);
        match value {
            Value::Object(map) => self.retain(map, |this, key, value| {
                if root && matches!(key, "apiVersion" | "kind" | "metadata") {
                    if key == "metadata" {
                        let before = this.unknown.len();
                        this.metadata(value);
                        if embedded {
                            let found = this.unknown.split_off(before);
                            this.within.extend(found);
                        }
                    }
                    return true;
                }
                let Some(schema) = schema else { return false };
                if let Some(known) = schema.field(key) {
                    this.custom(value, Some(known), false);
                    return true;
                }
                if !preserve && schema.additional_properties_allowed == Some(true) {
                    this.custom(value, None, false);
                    return true;
                }
                preserve
            }),
            Value::Array(list) => {
                let below = schema.and_then(|schema| schema.items.as_ref());
                if below.is_some() || !preserve {
                    self.items(list, |this, item| this.custom(item, below, false));
                }
            }
            _ => {}
        }
    }

    /// `metadata` of a custom resource is the built-in ObjectMeta, whatever schema the CRD has for it.
    fn metadata(&mut self, value: &mut Value) {
        self.built_in(value, catalog::object_meta());
    }

    fn built_in(&mut self, value: &mut Value, schema: &SchemaRef) {
        match special(schema) {
            Some(Special::SchemaOr(_)) => return schema_or(value),
            Some(_) => return,
            None => {}
        }
        match value {
            Value::Object(map) if !is_open(schema) => {
                self.retain(map, |this, key, value| {
                    let known = schema.field(key);
                    if let Some(known) = known {
                        this.built_in(value, known);
                    }
                    known.is_some()
                });
            }
            Value::Array(list) => {
                if let Some(schema) = &schema.items {
                    self.items(list, |this, item| this.built_in(item, schema));
                }
            }
            _ => {}
        }
    }
}

/// A built-in type without a list of fields. `CustomResourceSubresourceStatus` is a struct without any.
fn is_open(schema: &Schema) -> bool {
    schema.is_free_form() && schema.type_name() != Some("CustomResourceSubresourceStatus")
}

/// Schemas inside a schema are read by code of their own, which drops unknown keywords silently.
fn schema_or(value: &mut Value) {
    let mut silent = Pruner {
        path: Path::default(),
        unknown: Vec::new(),
        within: Vec::new(),
    };
    match value {
        Value::Object(_) => silent.built_in(value, &json_schema_props()),
        Value::Array(list) => list.iter_mut().for_each(schema_or),
        _ => {}
    }
}

/// The paths of unknown fields in the order in which a JSON body has them, for a built-in kind.
///
/// Go's decoder reports them so, and no more than the first 100 (`saveStrictError`). A body that is not JSON gives the
/// findings up to the place where it breaks.
///
/// ```
/// use kubewright_schema::{catalog, structural::unknown_fields_as_written};
///
/// let schema = catalog::for_kind("", "v1", "ConfigMap").unwrap();
/// let body = br#"{"zoo": 1, "metadata": {"nam": "x"}, "Data": {"a": "b"}}"#;
/// assert_eq!(unknown_fields_as_written(body, &schema), ["zoo", "metadata.nam", "Data"]);
/// ```
pub fn unknown_fields_as_written(body: &[u8], schema: &SchemaRef) -> Vec<String> {
    let (mut path, mut found, mut seen) = (Path::default(), Vec::new(), BTreeSet::new());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    // An error is the decoder's to report; the caller has decoded the body before.
    let _broken = Written {
        schema,
        path: &mut path,
        found: &mut found,
        seen: &mut seen,
    }
    .deserialize(&mut deserializer);
    found
}

/// Walks a document without building it.
struct Written<'a> {
    schema: &'a SchemaRef,
    path: &'a mut Path,
    found: &'a mut Vec<String>,
    /// The same, to be looked up: a field may stand twice.
    seen: &'a mut BTreeSet<String>,
}

impl<'de> DeserializeSeed<'de> for Written<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        if special(self.schema).is_some() || (is_open(self.schema) && self.schema.items.is_none()) {
            return deserializer.deserialize_ignored_any(IgnoredAny).map(drop);
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Written<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            let (found, seen) = (&mut *self.found, &mut *self.seen);
            self.path.field(&key, |path| match self.schema.field(&key) {
                Some(schema) => map.next_value_seed(Written {
                    schema,
                    path,
                    found,
                    seen,
                }),
                None => {
                    if found.len() < MAX_SHOWN && !seen.contains(&path.0) {
                        seen.insert(path.to_message());
                        found.push(path.to_message());
                    }
                    map.next_value::<IgnoredAny>().map(drop)
                }
            })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        let Some(schema) = &self.schema.items else {
            while list.next_element::<IgnoredAny>()?.is_some() {}
            return Ok(());
        };
        for i in 0.. {
            let (found, seen) = (&mut *self.found, &mut *self.seen);
            let more = self.path.index(i, |path| {
                list.next_element_seed(Written {
                    schema,
                    path,
                    found,
                    seen,
                })
            })?;
            if more.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd() -> SchemaRef {
        SchemaRef::from_crd(&json!({"type": "object", "properties": {
            "spec": {"type": "object", "properties": {
                "l": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "integer"}}}},
                "m": {"type": "object", "additionalProperties": {"type": "object", "properties": {"v": {"type": "integer"}}}},
                "keep": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "tpl": {"type": "object", "x-kubernetes-embedded-resource": true,
                        "x-kubernetes-preserve-unknown-fields": true},
                "any": {"type": "object", "additionalProperties": true},
            }},
        }}))
        .expect("a valid schema")
    }

    fn check(schema: &SchemaRef, options: PruneOptions, value: Value, unknown: &[&str], left: &Value) {
        let mut pruned = value.clone();
        assert_eq!(prune(&mut pruned, schema, options), unknown, "{value}");
        assert_eq!(&pruned, left, "{value}");
        assert!(
            prune(&mut pruned, schema, options).is_empty(),
            "not idempotent: {value}"
        );
    }

    #[test]
    fn custom_resources() {
        let root = PruneOptions::CUSTOM_RESOURCE;
        let meta = json!({"apiVersion": "x/v1", "kind": "X", "metadata": {"name": "a"}, "spec": {}});
        check(&crd(), root, meta.clone(), &[], &meta);
        check(
            &crd(),
            root,
            json!({"metadata": {"labelz": {}}, "spec": {"b": 1, "l": [{"n": 1, "o": 2}, {"p": 3}], "m": {"k": {"v": 1, "w": 2}}},
                "status": {"s": 1}, "top": 1}),
            &[
                "metadata.labelz",
                "spec.b",
                "spec.l[0].o",
                "spec.l[1].p",
                "spec.m.k.w",
                "status",
                "top",
            ],
            &json!({"metadata": {}, "spec": {"l": [{"n": 1}, {}], "m": {"k": {"v": 1}}}}),
        );
        check(
            &crd(),
            root,
            json!({"spec": {"keep": {"z": {"y": 1}, "known": {"a": "", "b": ""}}, "tpl": {"metadata": {"name": "n", "zz": 1}, "more": 1}}}),
            &["spec.keep.known.b", "spec.tpl.metadata.zz"],
            &json!({"spec": {"keep": {"z": {"y": 1}, "known": {"a": ""}}, "tpl": {"metadata": {"name": "n"}, "more": 1}}}),
        );
        check(
            &crd(),
            PruneOptions::CUSTOM_VALUE,
            json!({"metadata": {}, "kind": "X", "spec": {"any": {"a": 1, "b": {"c": 1}}}}),
            &["kind", "metadata", "spec.any.b.c"],
            &json!({"spec": {"any": {"a": 1, "b": {}}}}),
        );
    }

    #[test]
    fn built_in_kinds() {
        let deployment = catalog::for_kind("apps", "v1", "Deployment").expect("built in");
        check(
            &deployment,
            PruneOptions::BUILT_IN,
            json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "imagee": "x"}]}, "specc": {}}, "replica": 1},
                "metadata": {"managedFields": [{"fieldsV1": {"f:x": {}}}]}}),
            &[
                "spec.replica",
                "spec.template.spec.containers[0].imagee",
                "spec.template.specc",
            ],
            &json!({"spec": {"template": {"spec": {"containers": [{"name": "c"}]}}},
                "metadata": {"managedFields": [{"fieldsV1": {"f:x": {}}}]}}),
        );
        let crd = catalog::for_kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition").expect("built in");
        let schema = |schema: Value| json!({"spec": {"versions": [{"schema": {"openAPIV3Schema": schema}}]}});
        check(
            &crd,
            PruneOptions::BUILT_IN,
            schema(
                json!({"properties": {"a": {"odd": 1, "default": {"free": 1}, "items": {"odd": 1, "type": "string"}}}}),
            ),
            &["spec.versions[0].schema.openAPIV3Schema.properties.a.odd"],
            &schema(json!({"properties": {"a": {"default": {"free": 1}, "items": {"type": "string"}}}})),
        );
    }

    #[test]
    fn order_of_the_body() {
        let deployment = catalog::for_kind("apps", "v1", "Deployment").expect("built in");
        let body =
            br#"{"spec": {"template": {"spec": {"containers": [{"name": "c"}, {"imagee": "x"}]}, "specc": {"a": 1}},
            "replica": 1, "replica": 2}, "apiVersion": 3}"#;
        assert_eq!(
            unknown_fields_as_written(body, &deployment),
            [
                "spec.template.spec.containers[1].imagee",
                "spec.template.specc",
                "spec.replica"
            ]
        );
        assert_eq!(unknown_fields_as_written(b"{\"a\": 1, ", &deployment), ["a"]);
    }
}
