//! One representation of types and their constraints, for built-in kinds and custom resources alike.
//!
//! A [`Schema`] holds the keywords of an OpenAPI v3 schema that Kubernetes gives a meaning to, with the
//! `x-kubernetes-*` extensions. A [`SchemaRef`] points at one. It is an `Arc` or a name in the
//! [catalog] that is looked up on first use, which keeps recursive definitions such as
//! `JSONSchemaProps` finite and a server that never touches a kind from paying for it.
//!
//! Invariants: a `Schema` never changes once it is behind a `SchemaRef`; a `$ref` that carries words of its own
//! (`allOf: [{$ref}]` with a default or a description, as kube-apiserver publishes it) resolves to the target
//! with those words on top, so that readers never meet that `allOf`.
//!
//! Not here: the effect of the keywords. [`structural`](crate::structural) prunes, defaults and validates by them.

pub mod catalog;
pub(crate) mod go;
mod inner_defaults;
mod parse;
mod pattern;
pub(crate) mod special;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::{Arc, LazyLock, OnceLock};

use kubewright_values::Minor;
use serde_json::Value;

use crate::budget;
use crate::error::FieldError;
use crate::path::FieldPath;
use go::GoStruct;
use special::Special;

pub use kubewright_values::ListType;
pub use pattern::Pattern;

/// The type keyword of a schema, as OpenAPI v3 knows it. An absent type allows every value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Type {
    /// A JSON object: a Go struct or map.
    Object,
    /// A JSON array: a Go slice.
    Array,
    /// A JSON string.
    String,
    /// A JSON number without a fraction.
    Integer,
    /// Any JSON number.
    Number,
    /// `true` or `false`.
    Boolean,
}

impl Type {
    /// The word in the document: `object`, `array`, `string`, `integer`, `number`, `boolean`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    /// The type of that name, or none.
    pub fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "object" => Self::Object,
            "array" => Self::Array,
            "string" => Self::String,
            "integer" => Self::Integer,
            "number" => Self::Number,
            "boolean" => Self::Boolean,
            _ => return None,
        })
    }
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// `x-kubernetes-map-type`: whether the fields of an object have owners of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapType {
    /// The object is one value.
    Atomic,
    /// Each field is a value of its own (the default).
    Granular,
}

/// Group, version and kind of a definition (`x-kubernetes-group-version-kind`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupVersionKind {
    /// API group; empty for the core group.
    pub group: String,
    /// API version within the group, such as `v1`.
    pub version: String,
    /// Kind, such as `Deployment`.
    pub kind: String,
}

/// The constraints on a value: the keywords of an OpenAPI v3 schema that Kubernetes gives a meaning to.
///
/// Absent keywords are `None`, `false` or empty. Built-in kinds come from the [catalog], custom ones
/// from [`SchemaRef::from_crd`].
#[derive(Clone, Debug, Default)]
pub struct Schema {
    /// Name of the definition (`io.k8s.api.apps.v1.Deployment`), for built-in types only.
    pub name: Option<&'static str>,
    /// Whether Kubernetes reads and writes the type with code of its own. Follows from the name, and is asked for every
    /// value.
    pub(crate) special: Option<Special>,
    /// The fields of the type as Go reads and writes them, made at first use.
    pub(crate) go: OnceLock<Arc<GoStruct>>,
    /// Where the texts of `enum` are, in their order; made at first use.
    pub(crate) enum_texts: OnceLock<Arc<[u32]>>,
    /// `type`; none allows every type.
    pub type_: Option<Type>,
    /// `properties`: the known fields of an object.
    pub properties: BTreeMap<String, SchemaRef>,
    /// `additionalProperties` as a schema: the values of a map.
    pub additional_properties: Option<SchemaRef>,
    /// `additionalProperties` as a boolean; none when it is a schema or absent.
    pub additional_properties_allowed: Option<bool>,
    /// `items`: the schema of each item of a list.
    pub items: Option<SchemaRef>,
    /// `required`: fields that must be present, in the order of the document.
    pub required: Vec<String>,
    /// `nullable`: `null` is allowed beside the type.
    pub nullable: bool,
    /// `format`, such as `int32` or `date-time`. Unknown formats mean nothing.
    pub format: Option<Arc<str>>,
    /// `enum`: the allowed values; empty means that all are.
    pub enum_: Vec<Value>,
    /// `minimum`, inclusive unless [`exclusive_minimum`](Self::exclusive_minimum).
    pub minimum: Option<f64>,
    /// `exclusiveMinimum` (a boolean in OpenAPI v3.0).
    pub exclusive_minimum: bool,
    /// `maximum`, inclusive unless [`exclusive_maximum`](Self::exclusive_maximum).
    pub maximum: Option<f64>,
    /// `exclusiveMaximum` (a boolean in OpenAPI v3.0).
    pub exclusive_maximum: bool,
    /// `multipleOf`.
    pub multiple_of: Option<f64>,
    /// `minLength` of a string, in characters.
    pub min_length: Option<i64>,
    /// `maxLength` of a string, in characters.
    pub max_length: Option<i64>,
    /// `pattern`: a regular expression (RE2) that must match somewhere in the string.
    pub pattern: Option<Pattern>,
    /// `minItems` of a list.
    pub min_items: Option<i64>,
    /// `maxItems` of a list.
    pub max_items: Option<i64>,
    /// `uniqueItems`; CRDs may not set it.
    pub unique_items: bool,
    /// `minProperties` of an object.
    pub min_properties: Option<i64>,
    /// `maxProperties` of an object.
    pub max_properties: Option<i64>,
    /// `default`: the value in place of an absent one.
    pub default: Option<Value>,
    /// `description`, for `kubectl explain`.
    pub description: Option<Arc<str>>,
    /// `title`.
    pub title: Option<Arc<str>>,
    /// `allOf`: value validations that all hold.
    pub all_of: Vec<SchemaRef>,
    /// `anyOf`: value validations of which one at least holds.
    pub any_of: Vec<SchemaRef>,
    /// `oneOf`: value validations of which exactly one holds.
    pub one_of: Vec<SchemaRef>,
    /// `not`: a value validation that must not hold.
    pub not: Option<SchemaRef>,
    /// `x-kubernetes-int-or-string`, or the format `int-or-string` of built-in types.
    pub int_or_string: bool,
    /// `x-kubernetes-preserve-unknown-fields`: unknown fields below are kept, not pruned.
    pub preserve_unknown_fields: bool,
    /// `x-kubernetes-embedded-resource`: the value is an object with apiVersion, kind and metadata.
    pub embedded_resource: bool,
    /// `x-kubernetes-list-type`.
    pub list_type: Option<ListType>,
    /// `x-kubernetes-list-map-keys`.
    pub list_map_keys: Vec<String>,
    /// `x-kubernetes-map-type`.
    pub map_type: Option<MapType>,
    /// `x-kubernetes-validations`: the CEL rules as they are written.
    pub validations: Vec<Value>,
    /// `x-kubernetes-patch-merge-key`: the field by which a strategic merge patch matches the items of a list.
    pub patch_merge_key: Option<String>,
    /// `x-kubernetes-patch-strategy`: `merge`, `replace`, `retainKeys`, in the order of the document.
    pub patch_strategy: Vec<String>,
    /// `x-kubernetes-group-version-kind` of a definition.
    pub gvks: Vec<GroupVersionKind>,
}

impl Schema {
    /// The fields of this type as a Go program reads and writes them.
    pub(crate) fn go(&self) -> &GoStruct {
        // Worked out once for all requests: no single one pays for it.
        self.go
            .get_or_init(|| budget::unlimited(|| Arc::new(GoStruct::of(self))))
    }

    /// Whether a value is one of `enum`. `same` compares values other than texts. Of many texts one is looked up: a
    /// list may have as many items as the enum has texts.
    pub(crate) fn enumerates(&self, value: &Value, same: impl Fn(&Value, &Value) -> bool) -> bool {
        const FEW: usize = 16;
        match value {
            Value::String(text) if self.enum_.len() > FEW => {
                budget::spend_on_text(text.len());
                let texts = self
                    .enum_texts
                    .get_or_init(|| budget::unlimited(|| self.sorted_texts()));
                texts.binary_search_by(|at| self.enum_text(*at).cmp(text)).is_ok()
            }
            _ => self.enum_.iter().any(|allowed| same(allowed, value)),
        }
    }

    fn enum_text(&self, at: u32) -> &str {
        self.enum_.get(at as usize).and_then(Value::as_str).unwrap_or_default()
    }

    fn sorted_texts(&self) -> Arc<[u32]> {
        let texts = (0..).zip(&self.enum_).filter(|(_, allowed)| allowed.is_string());
        let mut places: Vec<u32> = texts.map(|(at, _)| at).collect();
        places.sort_by_key(|at| self.enum_text(*at));
        places.into()
    }

    /// The schema of the values of `key`, for a struct field or a map entry; none when `key` is unknown.
    pub fn field(&self, key: &str) -> Option<&SchemaRef> {
        self.properties.get(key).or(self.additional_properties.as_ref())
    }

    /// True when nothing is said about the fields of an object: free-form, as `RawExtension` is.
    pub fn is_free_form(&self) -> bool {
        self.properties.is_empty()
            && self.additional_properties.is_none()
            && (self.type_.is_none() || self.type_ == Some(Type::Object))
    }

    /// The last part of the definition's name: `Deployment` for `io.k8s.api.apps.v1.Deployment`.
    pub fn type_name(&self) -> Option<&'static str> {
        self.name.and_then(|name| name.rsplit('.').next())
    }
}

/// A pointer to a [`Schema`]: cheap to clone, resolved on first use.
///
/// ```
/// use kubewright_schema::{SchemaRef, schema::Type};
/// use serde_json::json;
///
/// let schema = SchemaRef::from_crd(&json!({
///     "type": "object",
///     "properties": {"size": {"type": "integer", "minimum": 1}},
/// })).expect("a valid schema");
/// assert_eq!(schema.properties["size"].type_, Some(Type::Integer));
/// ```
#[derive(Clone)]
pub struct SchemaRef(Target);

#[derive(Clone)]
enum Target {
    Inline(Arc<Schema>),
    Named(Arc<Named>),
    Lazy(Arc<Lazy>),
}

/// A schema that is read when it is first asked for.
struct Lazy {
    read: Box<dyn Fn() -> SchemaRef + Send + Sync>,
    found: OnceLock<SchemaRef>,
}

// A panic of `read` leaves nothing behind: the next who asks reads again.
impl UnwindSafe for Lazy {}
impl RefUnwindSafe for Lazy {}

/// A name in the catalog, the keywords of the place that refers to it, and the schema once it was looked up.
struct Named {
    name: &'static str,
    minor: Minor,
    overlay: Option<Box<Schema>>,
    resolved: OnceLock<Arc<Schema>>,
}

impl SchemaRef {
    /// A reference to this schema.
    pub fn new(schema: Schema) -> Self {
        Self(Target::Inline(Arc::new(schema)))
    }

    /// A schema that allows everything and keeps everything.
    pub fn any() -> Self {
        static ANY: LazyLock<SchemaRef> = LazyLock::new(|| {
            budget::unlimited(|| {
                SchemaRef::new(Schema {
                    preserve_unknown_fields: true,
                    ..Schema::default()
                })
            })
        });
        ANY.clone()
    }

    /// Reads the `openAPIV3Schema` of a CustomResourceDefinition.
    ///
    /// # Errors
    /// Values of the wrong type, one error each, with paths below the schema (`properties[size].minimum`). Whether the
    /// schema is structural is asked of [`check_crd_schema`](crate::structural::check_crd_schema).
    pub fn from_crd(schema: &Value) -> Result<Self, Vec<FieldError>> {
        parse::crd(schema, &FieldPath::root()).map(Self::new)
    }

    /// A schema that is read when it is first asked for: until then, only the data of `read` is kept.
    pub fn lazy(read: impl Fn() -> SchemaRef + Send + Sync + 'static) -> Self {
        Self(Target::Lazy(Arc::new(Lazy {
            read: Box::new(read),
            found: OnceLock::new(),
        })))
    }

    /// A reference into the catalog with the words of the referring place on top.
    pub(crate) fn named(name: &'static str, minor: Minor, overlay: Option<Box<Schema>>) -> Self {
        Self(Target::Named(Arc::new(Named {
            name,
            minor,
            overlay,
            resolved: OnceLock::new(),
        })))
    }

    /// The schema.
    pub fn get(&self) -> &Schema {
        match &self.0 {
            Target::Inline(schema) => schema,
            Target::Named(named) => named.resolved.get_or_init(|| budget::unlimited(|| named.resolve())),
            Target::Lazy(lazy) => lazy.found.get_or_init(|| budget::unlimited(|| (lazy.read)())).get(),
        }
    }

    /// The default, without resolving a name: a type by itself has none, the place that refers to it may.
    pub(crate) fn own_default(&self) -> Option<&Value> {
        match &self.0 {
            Target::Inline(schema) => schema.default.as_ref(),
            Target::Named(named) => named.overlay.as_ref()?.default.as_ref(),
            Target::Lazy(_) => self.get().default.as_ref(),
        }
    }

    /// True when both point at the very same schema.
    pub fn same(&self, other: &Self) -> bool {
        std::ptr::eq(self.get(), other.get())
    }
}

impl Named {
    fn resolve(&self) -> Arc<Schema> {
        let target =
            catalog::schema(self.name, self.minor).expect("the catalog is closed: its test follows every reference");
        let Some(overlay) = &self.overlay else { return target };
        let mut schema = Schema::clone(&target);
        schema.overlay(overlay);
        Arc::new(schema)
    }
}

impl Schema {
    /// Puts the words of a referring place over those of the type that it refers to.
    fn overlay(&mut self, over: &Schema) {
        fn put<T: Clone>(slot: &mut Option<T>, over: &Option<T>) {
            if over.is_some() {
                slot.clone_from(over);
            }
        }
        put(&mut self.default, &over.default);
        put(&mut self.description, &over.description);
        put(&mut self.title, &over.title);
        put(&mut self.patch_merge_key, &over.patch_merge_key);
        put(&mut self.list_type, &over.list_type);
        put(&mut self.map_type, &over.map_type);
        if !over.patch_strategy.is_empty() {
            self.patch_strategy.clone_from(&over.patch_strategy);
        }
        self.nullable |= over.nullable;
    }
}

impl Deref for SchemaRef {
    type Target = Schema;
    fn deref(&self) -> &Schema {
        self.get()
    }
}

impl fmt::Debug for SchemaRef {
    /// A name prints as the name: printing its schema would not end for recursive types.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Target::Inline(schema) => schema.fmt(f),
            Target::Named(named) => write!(f, "$ref {}", named.name),
            Target::Lazy(lazy) => match lazy.found.get() {
                Some(found) => found.fmt(f),
                None => f.write_str("(not read yet)"),
            },
        }
    }
}
