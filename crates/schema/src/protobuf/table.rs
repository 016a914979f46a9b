//! Which tag of which message is which field: the committed table, read line by line as messages occur.

use std::collections::BTreeMap;
use std::sync::{LazyLock, OnceLock};

use serde_json::{Map, Value};

use super::order::{self, Place};
use super::special::Special;
use crate::budget;

static TEXT: &str = include_str!("../../data/kubernetes.protobuf");

/// Types of `meta/v1` that protobuf never carries: they stand here for the order of their fields.
static JSON_ONLY: &str = "[io.k8s.apimachinery.pkg.apis.meta.v1.json -]
Table 1:metadata:io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta 2:columnDefinitions:[]TableColumnDefinition 3:rows:[]TableRow
TableColumnDefinition 1:name:string 2:type:string 3:format:string 4:description:string 5:priority:int32
TableRow 1:cells:[]io.k8s.apimachinery.pkg.runtime.RawExtension 2:conditions:[]TableRowCondition \
3:object:io.k8s.apimachinery.pkg.runtime.RawExtension
TableRowCondition 1:type:string 2:status:string 3:reason:string 4:message:string
";
const JSON_ONLY_PREFIX: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.json";

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1";

/// Kinds of `meta/v1` that every group has.
const OPTIONS: &[&str] = &[
    "ListOptions",
    "GetOptions",
    "DeleteOptions",
    "CreateOptions",
    "UpdateOptions",
    "PatchOptions",
];

/// Kinds of `meta/v1` that stand under `v1` alone.
const UNVERSIONED: &[&str] = &["Status", "APIVersions", "APIGroupList", "APIGroup", "APIResourceList"];

/// Whether a kind stands under `v1` alone: such objects may leave their apiVersion out.
pub(super) fn is_unversioned(kind: &str) -> bool {
    UNVERSIONED.contains(&kind)
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Special(Special),
    Message(&'static Message),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) tag: u32,
    /// The JSON name: empty when the fields of the message are inlined, `.` when the field is the whole value.
    pub(super) json: &'static str,
    /// Whether a zero is a value.
    pub(super) pointer: bool,
    pub(super) shape: Shape,
    pub(super) type_: Type,
}

impl Field {
    pub(super) fn is_inline(&self) -> bool {
        self.json.is_empty()
    }
}

#[derive(Debug)]
pub(super) struct Message {
    pub(super) name: &'static str,
    prefix: &'static str,
    /// The fields as text, and read: by their tags.
    line: &'static str,
    fields: OnceLock<Vec<Field>>,
    /// Where each of them is, by its JSON name.
    by_name: OnceLock<Vec<(&'static str, usize)>>,
    /// Where each stands in JSON.
    places: OnceLock<Vec<Place>>,
}

impl Message {
    pub(super) fn fields(&self) -> &[Field] {
        self.fields.get_or_init(|| {
            let mut fields: Vec<Field> = self.written().collect();
            fields.sort_by_key(|field| field.tag);
            fields
        })
    }

    /// The keys of an object, each with the index of its field: the sorted keys are read beside the sorted names.
    fn found<'v>(&self, entries: &'v Map<String, Value>) -> impl Iterator<Item = (&'v str, Option<usize>)> {
        let names = self.by_name.get_or_init(|| {
            let fields = self.fields().iter().enumerate();
            let mut names: Vec<(&str, usize)> = fields.map(|(at, field)| (field.json, at)).collect();
            names.sort_unstable();
            names
        });
        let mut names = names.iter().peekable();
        entries.keys().map(move |key| {
            while names.next_if(|(name, _)| *name < key.as_str()).is_some() {}
            let found = names.next_if(|(name, _)| *name == key.as_str());
            (key.as_str(), found.map(|(_, at)| *at))
        })
    }

    /// The fields as the line has them: in the order of Go's struct.
    pub(super) fn written(&self) -> impl Iterator<Item = Field> {
        let fields = self.line.split_whitespace().map(|text| field(text, self.prefix));
        fields.map(|field| field.expect("the table's test reads every line"))
    }

    /// Where each field stands in JSON, by name.
    pub(super) fn places(&'static self) -> &'static [Place] {
        self.places.get_or_init(|| budget::unlimited(|| order::places(self)))
    }

    pub(super) fn field(&self, tag: u32) -> Option<&Field> {
        let fields = self.fields();
        fields
            .binary_search_by_key(&tag, |field| field.tag)
            .ok()
            .map(|index| &fields[index])
    }

    /// The field that is the whole value, of messages that exist because protobuf cannot nest lists in maps.
    pub(super) fn whole(&self) -> Option<&Field> {
        self.fields().first().filter(|field| field.json == ".")
    }
}

/// Whether an object has exactly these keys.
pub(super) fn has_keys<T>(entries: &Map<String, Value>, known: &[(&str, T)]) -> bool {
    entries.len() == known.len() && entries.keys().zip(known).all(|(key, (known, _))| key == known)
}

/// Finds the fields of objects of one message, one object after the other. The items of a list mostly have the same
/// keys, which are looked up once.
#[derive(Default)]
pub(super) struct Finder<'v> {
    /// The keys of the last object, each with the index of its field.
    keys: Vec<(&'v str, Option<usize>)>,
    values: Vec<&'v Value>,
}

impl<'v> Finder<'v> {
    /// The values of the fields, of which most are absent.
    pub(super) fn values(&mut self, message: &Message, entries: &'v Map<String, Value>) -> &[&'v Value] {
        if !has_keys(entries, &self.keys) {
            self.keys.clear();
            self.keys.extend(message.found(entries));
        }
        self.values.clear();
        self.values.resize(message.fields().len(), &Value::Null);
        for (value, (_, at)) in entries.values().zip(&self.keys) {
            if let Some(at) = at {
                self.values[*at] = value;
            }
        }
        &self.values
    }
}

#[derive(Default)]
struct Table {
    /// From `apps/v1` to `io.k8s.api.apps.v1`.
    prefixes: BTreeMap<&'static str, &'static str>,
    /// By prefix and name.
    messages: BTreeMap<&'static str, BTreeMap<&'static str, Message>>,
}

static TABLE: LazyLock<Table> = LazyLock::new(|| budget::unlimited(table));

fn table() -> Table {
    let mut table = Table::default();
    let mut prefix = "";
    let lines = TEXT.lines().chain(JSON_ONLY.lines());
    for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let (package, api_version) = section.split_once(' ').unwrap_or((section, "-"));
            prefix = package;
            table.prefixes.insert(api_version, prefix);
            continue;
        }
        let (name, line) = line.split_once(' ').unwrap_or((line, ""));
        let message = Message {
            name,
            prefix,
            line,
            fields: OnceLock::new(),
            by_name: OnceLock::new(),
            places: OnceLock::new(),
        };
        table.messages.entry(prefix).or_default().insert(name, message);
    }
    table
}

/// The message `prefix.name`.
pub(super) fn message(prefix: &str, name: &str) -> Option<&'static Message> {
    TABLE.messages.get(prefix)?.get(name)
}

/// The type of `meta/v1` of this name.
pub(super) fn of_meta(name: &str) -> Option<&'static Message> {
    message(META, name).or_else(|| message(JSON_ONLY_PREFIX, name))
}

/// The message of a schema in a definition.
pub(super) fn schema() -> Option<&'static Message> {
    message(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1",
        "JSONSchemaProps",
    )
}

/// The message of a kind.
pub(super) fn kind(api_version: &str, kind: &str) -> Option<&'static Message> {
    let everywhere = OPTIONS.contains(&kind) || (api_version == "v1" && UNVERSIONED.contains(&kind));
    if everywhere {
        return message(META, kind);
    }
    // Objects and lists have metadata; a message without it is a part of one.
    message(TABLE.prefixes.get(api_version)?, kind)
        .filter(|message| message.fields().first().is_some_and(|field| field.json == "metadata"))
}

/// Reads `2:volumes:[]Volume`.
fn field(text: &'static str, prefix: &'static str) -> Option<Field> {
    let mut parts = text.splitn(3, ':');
    let tag = parts.next()?.parse().ok()?;
    let json = parts.next()?;
    let type_ = parts.next()?;
    let (pointer, type_) = match type_.strip_prefix('*') {
        Some(rest) => (true, rest),
        None => (false, type_),
    };
    let (shape, type_) = if let Some(rest) = type_.strip_prefix("[]") {
        (Shape::List, rest)
    } else if let Some(rest) = type_.strip_prefix("{}") {
        (Shape::Map, rest)
    } else {
        (Shape::One, type_)
    };
    let type_ = match type_ {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        name => {
            let (prefix, name) = name.rsplit_once('.').unwrap_or((prefix, name));
            match Special::named(prefix, name) {
                Some(special) => Type::Special(special),
                None => Type::Message(message(prefix, name)?),
            }
        }
    };
    Some(Field {
        tag,
        json,
        pointer,
        shape,
        type_,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all() -> impl Iterator<Item = &'static Message> {
        TABLE.messages.values().flat_map(BTreeMap::values)
    }

    #[test]
    fn every_line_is_read() {
        assert!(all().count() > 600, "{} messages", all().count());
        for message in all() {
            let Message { prefix, name, .. } = message;
            for text in message.line.split_whitespace() {
                let field = field(text, prefix).unwrap_or_else(|| panic!("{prefix}.{name}: {text}"));
                let fits = match field.json {
                    "" => field.shape == Shape::One && matches!(field.type_, Type::Message(_)),
                    "." => field.tag == 1 && field.shape == Shape::List && message.line == text,
                    _ => true,
                };
                assert!(fits, "{prefix}.{name}: {text}");
            }
            assert!(
                message.fields().is_sorted_by(|a, b| a.tag < b.tag),
                "{prefix}.{name} is not sorted"
            );
        }
    }

    /// The table and the catalog come from two sources; a field that one lacks is a mistake in either.
    #[test]
    fn the_fields_are_those_of_the_catalog() {
        let mut compared = 0;
        for message in all() {
            let Message { prefix, name, .. } = message;
            let of = |minor| crate::schema::catalog::of(minor).definition(&format!("{prefix}.{name}"));
            let schemas: Vec<_> = crate::Minor::ALL.into_iter().filter_map(of).collect();
            if schemas.is_empty() {
                continue;
            }
            let mut names = Vec::new();
            collect(message, &mut names);
            // The table is that of all versions.
            let known: BTreeSet<&str> = schemas
                .iter()
                .flat_map(|schema| schema.properties.keys())
                .map(String::as_str)
                .collect();
            let known: Vec<&str> = known
                .into_iter()
                .filter(|name| !["apiVersion", "kind"].contains(name))
                .collect();
            names.retain(|name| !["apiVersion", "kind", "."].contains(name));
            names.sort_unstable();
            assert_eq!(names, known, "{prefix}.{name}");
            compared += 1;
        }
        assert!(compared > 400, "{compared} compared");
    }

    fn collect(message: &Message, names: &mut Vec<&'static str>) {
        for field in message.fields() {
            match field.type_ {
                Type::Message(inner) if field.is_inline() => collect(inner, names),
                _ => names.push(field.json),
            }
        }
    }

    #[test]
    fn kinds() {
        let check = |api_version: &str, name: &str, want: bool| {
            assert_eq!(kind(api_version, name).is_some(), want, "{api_version} {name}");
        };
        check("v1", "Pod", true);
        check("apps/v1", "DeploymentList", true);
        check("autoscaling/v1", "Scale", true);
        check("apiextensions.k8s.io/v1", "CustomResourceDefinition", true);
        check("policy/v1", "Eviction", true);
        check("authorization.k8s.io/v1", "SelfSubjectRulesReview", true);
        check("apps/v1", "DeleteOptions", true);
        check("example.org/v1", "DeleteOptions", true);
        check("v1", "Status", true);
        check("apps/v1", "Status", false);
        check("meta.k8s.io/v1", "PartialObjectMetadata", true);
        check("v1", "PodSpec", false);
        check("v1", "Deployment", false);
        check("-", "TypeMeta", false);
        check("example.org/v1", "Widget", false);
    }
}
