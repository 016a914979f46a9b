//! `components.schemas`: the schemas that are referred to, and those that they refer to in turn.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::catalog;
use serde_json::{Map, Value, json};

use super::META;
use super::v2::definitions;
use crate::model::{Custom, Minor, Resource, Verbs};

/// Where the schemas of a document are; the path of version 2 is put in when a schema is converted.
pub(super) const PREFIX: &str = "#/components/schemas/";

/// Kinds that every group has.
const EVERYWHERE: [&str; 2] = [
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.WatchEvent",
];

/// Groups that clients of custom kinds do not know: their types are not in the library that the extensions server is
/// made with.
const UNKNOWN_TO_EXTENSIONS: [&str; 4] = [
    "admission.k8s.io",
    "apiextensions.k8s.io",
    "apiregistration.k8s.io",
    "imagepolicy.k8s.io",
];

/// For which version of OpenAPI the schemas of custom kinds are.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Dialect {
    #[default]
    V3,
    V2,
}

/// The schemas of one document: texts of the catalog and those of custom kinds.
#[derive(Default)]
pub(super) struct Schemas {
    minor: Minor,
    dialect: Dialect,
    referred: BTreeSet<String>,
    /// Texts, which are a tenth of the size of the values.
    own: BTreeMap<String, String>,
    /// Group and version of the built-in kinds of the document.
    version: Option<(String, String)>,
}

impl Schemas {
    /// Schemas for a document of version 3.
    pub(super) fn of_v3(minor: Minor) -> Self {
        Self {
            minor,
            ..Self::default()
        }
    }

    /// Schemas for a document of version 2, which has those of all groups.
    pub(super) fn of_v2(minor: Minor) -> Self {
        Self {
            minor,
            dialect: Dialect::V2,
            ..Self::default()
        }
    }

    /// Says of which group and version the kinds are: of the kinds that every group has, the others' are left out.
    pub(super) fn of_version(&mut self, group: &str, version: &str) {
        self.version = Some((group.to_owned(), version.to_owned()));
    }

    /// The text of `DeleteOptions` or `WatchEvent` with its kinds of the core group and of this version alone, or, in a
    /// document of custom kinds, of all groups that the extensions server knows.
    fn own_kinds(&self, raw: &str) -> Option<String> {
        const KINDS: &str = "x-kubernetes-group-version-kind";
        let mut schema: Value = serde_json::from_str(raw).ok()?;
        let kinds = schema.get_mut(KINDS)?.as_array_mut()?;
        kinds.retain(|kind| match &self.version {
            Some((group, version)) => {
                (kind["group"] == "" && kind["version"] == "v1")
                    || (kind["group"] == group.as_str() && kind["version"] == version.as_str())
            }
            None => !UNKNOWN_TO_EXTENSIONS.iter().any(|group| kind["group"] == *group),
        });
        Some(schema.to_string())
    }

    /// A reference to a schema, which the document will then have.
    pub(super) fn reference(&mut self, name: &str) -> Value {
        self.referred.insert(name.to_owned());
        json!({"$ref": format!("{PREFIX}{name}")})
    }

    /// A reference to the answer of `/version`, which is no object of the API and not in the catalog.
    pub(super) fn version(&mut self) -> Value {
        const NAME: &str = "io.k8s.apimachinery.pkg.version.Info";
        let described = [
            (
                "emulationMajor",
                "EmulationMajor is the major version of the emulation version",
            ),
            (
                "emulationMinor",
                "EmulationMinor is the minor version of the emulation version",
            ),
            ("major", "Major is the major version of the binary version"),
            (
                "minCompatibilityMajor",
                "MinCompatibilityMajor is the major version of the minimum compatibility version",
            ),
            (
                "minCompatibilityMinor",
                "MinCompatibilityMinor is the minor version of the minimum compatibility version",
            ),
            ("minor", "Minor is the minor version of the binary version"),
        ];
        let required = [
            "major",
            "minor",
            "gitVersion",
            "gitCommit",
            "gitTreeState",
            "buildDate",
            "goVersion",
            "compiler",
            "platform",
        ];
        let mut properties = Map::new();
        for name in required {
            properties.insert(name.to_owned(), json!({"type": "string", "default": ""}));
        }
        for (name, description) in described {
            let property = properties.entry(name).or_insert_with(|| json!({"type": "string"}));
            property["description"] = description.into();
        }
        let description = "Info contains versioning information. how we'll want to distribute that information.";
        self.own.insert(
            NAME.to_owned(),
            json!({"description": description, "type": "object", "required": required, "properties": properties})
                .to_string(),
        );
        self.reference(NAME)
    }

    /// References to an object of the kind and to its list.
    pub(super) fn kind(&mut self, row: &Resource) -> (Value, Value) {
        let list = match row.schema_name.rsplit_once('.') {
            Some((prefix, _)) => format!("{prefix}.{}", row.list_kind),
            None => row.list_kind.to_string(),
        };
        if let Some(custom) = &row.custom {
            let object = published(row, custom, self.dialect).to_string();
            self.own.insert(row.schema_name.to_string(), object);
            self.own.insert(list.clone(), self::list(row).to_string());
        }
        let object = self.reference(&row.schema_name);
        // A kind that is never listed has no list.
        let list = match row.verbs {
            Verbs::CreateOnly => Value::Null,
            _ => self.reference(&list),
        };
        (object, list)
    }

    /// The texts by name. Those of the catalog are taken as they are; the schemas that they refer to come along.
    pub(super) fn into_texts(mut self) -> BTreeMap<String, Cow<'static, str>> {
        let mut open: Vec<String> = std::mem::take(&mut self.referred).into_iter().collect();
        let mut texts = BTreeMap::new();
        while let Some(name) = open.pop() {
            if texts.contains_key(&name) {
                continue;
            }
            let everywhere = self.dialect == Dialect::V3 && EVERYWHERE.contains(&name.as_str());
            let text = match (self.own.remove(&name), catalog::of(self.minor).raw(&name)) {
                (Some(own), _) => Cow::Owned(own),
                (None, Some(raw)) if everywhere => self.own_kinds(&raw).map_or(raw, Cow::Owned),
                (None, Some(raw)) => raw,
                // No schema refers to a missing one (a test follows every reference); the document must be closed all
                // the same.
                (None, None) => Cow::Owned(json!({"type": "object"}).to_string()),
            };
            open.extend(references(&text).map(str::to_owned));
            texts.insert(name, text);
        }
        texts
    }

    /// The JSON text of the object that holds them.
    pub(super) fn into_json(self) -> String {
        let mut json = String::from("{");
        for (name, text) in &self.into_texts() {
            if json.len() > 1 {
                json.push(',');
            }
            json.push_str(&Value::from(name.as_str()).to_string());
            json.push(':');
            json.push_str(text);
        }
        json.push('}');
        json
    }
}

fn references(text: &str) -> impl Iterator<Item = &str> {
    text.split(PREFIX).skip(1).filter_map(|rest| rest.split('"').next())
}

fn gvk(row: &Resource, kind: &str) -> Value {
    json!([{"group": row.group, "kind": kind, "version": row.version}])
}

fn meta_field(name: &str) -> Value {
    // The descriptions that every kind has for these two fields; a kind that every list has serves as the source.
    let source = catalog::raw(&format!("{META}.Status")).and_then(|raw| serde_json::from_str::<Value>(&raw).ok());
    source
        .and_then(|status| status.pointer(&format!("/properties/{name}")).cloned())
        .unwrap_or_else(|| json!({"type": "string"}))
}

fn metadata(kind: &str, description: &str) -> Value {
    json!({"description": description, "allOf": [{"$ref": format!("{PREFIX}{META}.{kind}")}]})
}

const OBJECT_METADATA: &str = "Standard object's metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";
const LIST_METADATA: &str = "Standard list metadata. More info: \
    https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#types-kinds";

/// The schema of a custom kind as clients see it: with the fields that every object has.
fn published(row: &Resource, custom: &Custom, dialect: Dialect) -> Value {
    let mut schema = custom.source.document();
    if dialect == Dialect::V2 {
        definitions::reduce(&mut schema);
    }
    spell_out(&mut schema, dialect);
    let Some(object) = schema.as_object_mut() else {
        return json!({"type": "object"});
    };
    if dialect == Dialect::V2 && custom.preserve_unknown {
        // With fields that it knows, kubectl would refuse all others.
        *object = Map::from_iter([("type".to_owned(), "object".into())]);
    } else if let Some(properties) = object.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
        properties.insert("apiVersion".to_owned(), meta_field("apiVersion"));
        properties.insert("kind".to_owned(), meta_field("kind"));
        properties.insert("metadata".to_owned(), metadata("ObjectMeta", OBJECT_METADATA));
    }
    object.insert("x-kubernetes-group-version-kind".to_owned(), gvk(row, &row.kind));
    selectable(row, object);
    schema
}

/// Says which fields of the kind a field selector may name.
fn selectable(row: &Resource, schema: &mut Map<String, Value>) {
    if row.selectable_fields.is_empty() {
        return;
    }
    let fields: Vec<Value> = row
        .selectable_fields
        .iter()
        .map(|field| json!({"fieldPath": field.label}))
        .collect();
    schema.insert("x-kubernetes-selectable-fields".to_owned(), fields.into());
}

/// `x-kubernetes-int-or-string` without a type says so in words that every OpenAPI reader knows.
fn spell_out(schema: &mut Value, dialect: Dialect) {
    let Some(object) = schema.as_object_mut() else { return };
    let bare = object.get("x-kubernetes-int-or-string") == Some(&Value::Bool(true))
        && !["type", "anyOf", "allOf"]
            .iter()
            .any(|keyword| object.contains_key(*keyword));
    if bare {
        object.insert("anyOf".to_owned(), json!([{"type": "integer"}, {"type": "string"}]));
    }
    // In version 2, an object that keeps unknown fields has no fields that kubectl could know.
    let open = dialect == Dialect::V2 && object.get("x-kubernetes-preserve-unknown-fields") == Some(&Value::Bool(true));
    if object.get("x-kubernetes-embedded-resource") == Some(&Value::Bool(true)) && !open {
        embed(object);
    }
    if let Some(properties) = object.get_mut("properties").and_then(Value::as_object_mut) {
        properties
            .values_mut()
            .for_each(|property| spell_out(property, dialect));
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(keyword) {
            spell_out(inner, dialect);
        }
    }
}

/// An embedded object has the fields that every object has.
fn embed(object: &mut Map<String, Value>) {
    const CONVENTIONS: &str =
        "More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md";
    let texts = [
        (
            "apiVersion",
            "apiVersion defines the versioned schema of this representation of an object.",
            "resources",
        ),
        (
            "kind",
            "kind is a string value representing the type of this object. In CamelCase.",
            "types-kinds",
        ),
    ];
    if let Some(properties) = object.entry("properties").or_insert_with(|| json!({})).as_object_mut() {
        for (field, text, anchor) in texts {
            let description = format!("{text} {CONVENTIONS}#{anchor}");
            properties.insert(field.to_owned(), json!({"description": description, "type": "string"}));
        }
        properties.insert("metadata".to_owned(), metadata("ObjectMeta", OBJECT_METADATA));
    }
    if let Some(required) = object.entry("required").or_insert_with(|| json!([])).as_array_mut() {
        for field in ["kind", "apiVersion"] {
            if !required.iter().any(|known| known == field) {
                required.push(field.into());
            }
        }
    }
}

fn list(row: &Resource) -> Value {
    let mut properties = Map::new();
    properties.insert("apiVersion".to_owned(), meta_field("apiVersion"));
    properties.insert("kind".to_owned(), meta_field("kind"));
    properties.insert("metadata".to_owned(), metadata("ListMeta", LIST_METADATA));
    properties.insert(
        "items".to_owned(),
        json!({
            "description": format!(
                "List of {}. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md",
                row.plural
            ),
            "type": "array",
            "items": {"$ref": format!("{PREFIX}{}", row.schema_name)},
        }),
    );
    let mut list = json!({
        "description": format!("{} is a list of {}", row.list_kind, row.kind),
        "type": "object",
        "required": ["items"],
        "properties": properties,
        "x-kubernetes-group-version-kind": gvk(row, &row.list_kind),
    });
    if let Some(list) = list.as_object_mut() {
        selectable(row, list);
    }
    list
}
