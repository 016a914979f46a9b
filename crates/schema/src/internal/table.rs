//! The committed table of structs, read line by line as they are asked for.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::Value;

use crate::{Minor, PerMinor, budget};

/// The table of the oldest version, and what differs from it later.
static TEXTS: [(Minor, &str); 2] = [
    (Minor::V36, include_str!("../../data/kubernetes-1.36.internal")),
    (Minor::V37, include_str!("../../data/kubernetes-1.37.internal")),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    One,
    List,
    Map,
}

/// The type of a field.
#[derive(Clone, Copy, Debug)]
pub(super) struct Type {
    pub(super) shape: Shape,
    /// Whether nothing is `null`.
    pub(super) pointer: bool,
    /// The type's name, behind the prefixes that are read.
    name: &'static str,
    package: &'static str,
    minor: Minor,
}

#[derive(Debug)]
pub(super) struct Field {
    /// As it is shown; empty for an embedded struct.
    pub(super) name: &'static str,
    /// Whether an empty value is not shown.
    pub(super) omitted: bool,
    pub(super) type_: Type,
}

#[derive(Debug)]
pub(super) struct Struct {
    name: &'static str,
    package: &'static str,
    minor: Minor,
    line: &'static str,
    fields: OnceLock<Vec<Field>>,
}

#[derive(Default)]
struct Table {
    /// From the API group to the package.
    groups: BTreeMap<&'static str, &'static str>,
    /// By package and name.
    structs: BTreeMap<&'static str, BTreeMap<&'static str, Struct>>,
}

fn table(minor: Minor) -> &'static Table {
    static TABLES: PerMinor<Table> = PerMinor::new();
    TABLES.get_or_init(minor, || read(minor))
}

fn read(minor: Minor) -> Table {
    budget::unlimited(|| {
        let mut table = Table::default();
        let mut package = "";
        let texts = TEXTS.iter().filter(|(since, _)| *since <= minor);
        let lines = texts.flat_map(|(_, text)| text.lines());
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                let (name, group) = section.split_once(' ').unwrap_or((section, "-"));
                package = name;
                table.groups.insert(group, package);
                continue;
            }
            let (name, line) = line.split_once(' ').unwrap_or((line, ""));
            let found = Struct {
                name,
                package,
                minor,
                line,
                fields: OnceLock::new(),
            };
            table.structs.entry(package).or_default().insert(name, found);
        }
        table
    })
}

fn find(minor: Minor, package: &str, name: &str) -> Option<&'static Struct> {
    table(minor).structs.get(package)?.get(name)
}

/// The struct of a kind.
pub(super) fn kind(minor: Minor, group: &str, kind: &str) -> Option<&'static Struct> {
    find(minor, table(minor).groups.get(group)?, kind)
}

/// The struct of `metadata`.
pub(super) fn object_meta(minor: Minor) -> Option<&'static Struct> {
    find(minor, "meta", "ObjectMeta")
}

/// Whether a field of the API and a field of a struct are the same: Go's names have other capitals, the extensions of
/// schemas lack a part of their prefix, and the fields of a union of values end with `Value` or `Values`.
pub(super) fn same_name(json: &str, go: &str) -> bool {
    let of_union = |end: &str, json: &str| go.strip_suffix(end).is_some_and(|go| go.eq_ignore_ascii_case(json));
    json.eq_ignore_ascii_case(go)
        || (go == "DeprecatedServiceAccount" && json == "serviceAccount")
        || of_union("Value", json)
        || json.strip_suffix('s').is_some_and(|one| of_union("Values", one))
        || json.strip_prefix("x-kubernetes-").is_some_and(|rest| {
            go.strip_prefix('X')
                .is_some_and(|go| rest.replace('-', "").eq_ignore_ascii_case(go))
        })
}

impl Type {
    pub(super) fn one(found: &'static Struct) -> Type {
        Type {
            shape: Shape::One,
            pointer: false,
            name: found.name,
            package: found.package,
            minor: found.minor,
        }
    }

    fn parse(text: &'static str, package: &'static str, minor: Minor) -> Type {
        let (pointer, text) = match text.strip_prefix('*') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (shape, name) = if let Some(rest) = text.strip_prefix("[]") {
            (Shape::List, rest)
        } else if let Some(rest) = text.strip_prefix("{}") {
            (Shape::Map, rest)
        } else {
            (Shape::One, text)
        };
        Type {
            shape,
            pointer,
            name,
            package,
            minor,
        }
    }

    /// The type of an item of a list or of a value of a map.
    pub(super) fn item(self) -> Type {
        Type::parse(self.name, self.package, self.minor)
    }

    /// The struct, unless it is a scalar.
    pub(super) fn known(self) -> Option<&'static Struct> {
        match self.name.split_once('.') {
            Some((package, name)) => find(self.minor, package, name),
            None => find(self.minor, self.package, self.name),
        }
    }

    /// Whether it may be any value.
    pub(super) fn is_any(self) -> bool {
        self.name == "any"
    }

    /// The text for a scalar that is absent.
    pub(super) fn zero(self) -> Value {
        match self.name {
            "string" => Value::from(""),
            "bool" => Value::from(false),
            "int" | "intstr" => Value::from(0),
            "quantity" => Value::from("0"),
            "duration" => Value::from("0s"),
            _ => Value::Null,
        }
    }
}

impl Struct {
    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    pub(super) fn is_object_meta(&self) -> bool {
        self.package == "meta" && self.name == "ObjectMeta"
    }

    pub(super) fn is_type_meta(&self) -> bool {
        self.package == "meta" && self.name == "TypeMeta"
    }

    pub(super) fn fields(&'static self) -> &'static [Field] {
        self.fields.get_or_init(|| {
            let fields = self.line.split_whitespace().filter_map(|text| {
                let (name, type_) = text.split_once(':')?;
                Some(Field {
                    name: name.trim_end_matches('?'),
                    omitted: name.ends_with('?'),
                    type_: Type::parse(type_, self.package, self.minor),
                })
            });
            fields.collect()
        })
    }

    pub(super) fn has(&'static self, name: &str) -> bool {
        self.fields().iter().any(|field| field.name == name)
    }

    /// The type of a field by its name in the API; embedded structs go by their own name, too.
    pub(super) fn field_type(&'static self, step: &str) -> Option<Type> {
        for field in self.fields() {
            if !field.name.is_empty() {
                if same_name(step, field.name) {
                    return Some(field.type_);
                }
                continue;
            }
            let Some(embedded) = field.type_.known() else { continue };
            if step.eq_ignore_ascii_case(embedded.name) || (embedded.is_object_meta() && step == "metadata") {
                return Some(field.type_);
            }
            if !embedded.is_object_meta()
                && let Some(found) = embedded.field_type(step)
            {
                return Some(found);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCALARS: &[&str] = &[
        "string", "bool", "int", "intstr", "quantity", "duration", "time", "bytes", "any",
    ];

    #[test]
    fn every_type_is_known() {
        let mut count = 0;
        let tables = Minor::ALL.map(table);
        let structs = tables.iter().flat_map(|table| table.structs.values());
        for found in structs.flat_map(BTreeMap::values) {
            let fields = found.fields();
            assert_eq!(fields.len(), found.line.split_whitespace().count(), "{}", found.name);
            for field in fields {
                let mut type_ = field.type_;
                while type_.shape != Shape::One {
                    type_ = type_.item();
                }
                let known = type_.known().is_some() || SCALARS.contains(&type_.name);
                assert!(known, "{}.{}: {type_:?}", found.name, field.name);
            }
            count += 1;
        }
        assert!(count > 400, "{count} structs");
    }

    #[test]
    fn names_differ_in_capitals() {
        for (json, go, same) in [
            ("dnsPolicy", "DNSPolicy", true),
            ("x-kubernetes-validations", "XValidations", true),
            ("x-kubernetes-list-map-keys", "XListMapKeys", true),
            ("port", "Ports", false),
        ] {
            assert_eq!(same_name(json, go), same, "{json}");
        }
    }
}
