//! Types of Go, said in Rust: structs, fields, markers as attributes.
//!
//! [`Types::print`] writes one declaration with its comment. Everything that a marker says about a schema becomes a
//! keyword in `#[schemars(extend(…))]`, which says it exactly; a closed set of texts becomes an enum. Invariants:
//! nothing of Go is left out without a note; a type that is not known is any value, and noted. Not here: kinds, whose
//! attributes are in [`super::kinds`].

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::catalog;
use serde_json::{Map, Value};

use super::go::{Decl, Field, File, Type};
use super::markers::{Marker, keyword};
use super::words::{camel_case, docs, extend, is_silent, lower_first, optional, snake, type_name, variants};
use crate::names::rust;

/// A package of the project: its types, and where they stand in Rust.
pub(super) struct Package<'p> {
    /// The module in Rust: `crate::v1`.
    pub(super) module: String,
    /// The types, each with the file that declares it.
    pub(super) types: BTreeMap<String, (&'p Decl, &'p File)>,
}

/// All packages of a project, and what was noted.
pub(super) struct Types<'p> {
    /// By the path that imports name.
    pub(super) packages: BTreeMap<String, Package<'p>>,
    pub(super) notes: BTreeSet<String>,
}

/// A type in Rust.
struct Said {
    text: String,
    /// Attributes that the field needs beside those of its markers.
    schemars: Vec<String>,
    has_default: bool,
}

impl Said {
    fn of(text: impl Into<String>) -> Said {
        Said {
            text: text.into(),
            schemars: Vec::new(),
            has_default: true,
        }
    }
}

/// How deep the search for a default follows types.
const DEPTH: usize = 12;

impl<'p> Types<'p> {
    fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// A declaration as Rust, without kinds. `extra` are attributes before the item.
    pub(super) fn print(&mut self, path: &str, decl: &'p Decl, file: &'p File, extra: &[String]) -> String {
        let name = type_name(&decl.name);
        let mut out = docs(&decl.doc, "");
        if decl.is_generic {
            self.note(format!(
                "{}: generic types are no part of an API; write it by hand",
                decl.name
            ));
            return format!("// The generic type {} of Go was not carried over.\n\n", decl.name);
        }
        let keywords = self.keywords(&decl.doc.markers, &decl.of, &decl.name);
        if let (
            Type::Named {
                package: None,
                name: base,
            },
            [(key, Value::Array(values))],
        ) = (&decl.of, keywords.as_slice())
            && base == "string"
            && key == "enum"
            && let Some(variants) = variants(values)
        {
            let derives = "#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize, JsonSchema)]";
            out.push_str(&format!("{derives}\npub enum {name} {{\n"));
            for (at, (variant, text)) in variants.iter().enumerate() {
                let default = if at == 0 { "    #[default]\n" } else { "" };
                let rename = if variant == text {
                    String::new()
                } else {
                    format!("    #[serde(rename = {text:?})]\n")
                };
                out.push_str(&format!("{default}{rename}    {variant},\n"));
            }
            return out + "}\n\n";
        }
        let derives: Vec<&str> = ["Clone", "Debug", "PartialEq", "Deserialize", "Serialize", "JsonSchema"].into();
        let default = if self.has_default(path, &decl.of, file, 0) {
            "Default, "
        } else {
            ""
        };
        out.push_str(
            &extra
                .iter()
                .filter(|line| line.starts_with("#[derive"))
                .cloned()
                .collect::<String>(),
        );
        out.push_str(&format!("#[derive({default}{})]\n", derives.join(", ")));
        out.push_str(
            &extra
                .iter()
                .filter(|line| !line.starts_with("#[derive"))
                .cloned()
                .collect::<String>(),
        );
        match &decl.of {
            Type::Struct(fields) => {
                out.push_str("#[serde(rename_all = \"camelCase\")]\n");
                if !keywords.is_empty() {
                    out.push_str(&format!("#[schemars({})]\n", extend(&keywords)));
                }
                let mut nested = String::new();
                out.push_str(&format!("pub struct {name} {{\n"));
                for field in fields {
                    out.push_str(&self.field(path, &name, field, file, &mut nested));
                }
                out + "}\n\n" + &nested
            }
            of => {
                let said = self.said(path, of, file, &decl.name);
                let mut attributes = said.schemars;
                if !keywords.is_empty() {
                    attributes.push(extend(&keywords));
                }
                let attribute = if attributes.is_empty() {
                    String::new()
                } else {
                    format!("#[schemars({})] ", attributes.join(", "))
                };
                out + &format!("pub struct {name}({attribute}pub {});\n\n", said.text)
            }
        }
    }

    fn field(&mut self, path: &str, parent: &str, field: &'p Field, file: &'p File, nested: &mut String) -> String {
        if field
            .name
            .as_deref()
            .is_some_and(|name| !name.starts_with(char::is_uppercase))
        {
            // JSON does not see it.
            return String::new();
        }
        let tag = field.json.as_deref().unwrap_or("");
        let mut parts = tag.split(',');
        let json = parts.next().unwrap_or_default();
        let options: Vec<&str> = parts.collect();
        if json == "-" && options.is_empty() {
            return String::new();
        }
        let whole = format!("{parent}.{}", field.name.as_deref().unwrap_or("(embedded)"));
        if field.name.is_none() && json.is_empty() || options.contains(&"inline") {
            return self.embedded(path, field, file, &whole);
        }
        let json = match (json, &field.name) {
            ("", Some(name)) => name.clone(),
            ("", None) => return String::new(),
            (json, _) => json.to_owned(),
        };
        let omit = options.contains(&"omitempty") || options.contains(&"omitzero");
        let is_optional = optional(&field.doc.markers, &file.doc.markers, omit);
        let mut of = &field.of;
        let mut is_pointer = false;
        while let Type::Pointer(inner) = of {
            (of, is_pointer) = (inner, true);
        }
        let mut said = if let Type::Struct(inner) = of {
            let name = format!("{parent}{}", rust::camel(&json));
            nested.push_str(&format!("/// What `{json}` of {parent} holds.\n"));
            let default = if self.has_default(path, of, file, 0) {
                "Default, "
            } else {
                ""
            };
            nested.push_str(&format!(
                "#[derive({default}Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]\n#[serde(rename_all = \"camelCase\")]\npub struct {name} {{\n"
            ));
            let mut deeper = String::new();
            let fields: String = inner
                .iter()
                .map(|field| self.field(path, &name, field, file, &mut deeper))
                .collect();
            nested.push_str(&format!("{fields}}}\n\n{deeper}"));
            Said::of(name)
        } else {
            self.said(path, of, file, &whole)
        };
        let mut keywords = self.keywords(&field.doc.markers, of, &whole);
        let mut schemars = std::mem::take(&mut said.schemars);
        if field
            .doc
            .markers
            .iter()
            .any(|marker| marker.contains("validation:Schemaless"))
        {
            // Whatever its type, the schema says nothing.
            schemars = vec!["with = \"serde_json::Value\"".to_owned()];
        }
        if keywords.iter().any(|(key, value)| key == "type" && value == "string") && said.text != "String" {
            schemars.push("with = \"String\"".to_owned());
            keywords.retain(|(key, _)| key != "type");
        }
        let mut out = docs(&field.doc, "    ");
        let mut ty = said.text;
        if is_optional || is_pointer {
            ty = format!("Option<{ty}>");
            if !is_optional {
                schemars.push("required".to_owned());
            }
            for with in schemars
                .iter_mut()
                .filter(|with| is_optional && with.starts_with("with = \""))
            {
                *with = with
                    .replacen("with = \"", "with = \"Option<", 1)
                    .trim_end_matches('"')
                    .to_owned()
                    + ">\"";
            }
        }
        let name = snake(&json);
        let mut serde = Vec::new();
        if camel_case(&name) != json {
            serde.push(format!("rename = {json:?}"));
        }
        if is_optional {
            serde.push("default, skip_serializing_if = \"Option::is_none\"".to_owned());
        }
        if !serde.is_empty() {
            out.push_str(&format!("    #[serde({})]\n", serde.join(", ")));
        }
        if !keywords.is_empty() {
            schemars.push(extend(&keywords));
        }
        if !schemars.is_empty() {
            out.push_str(&format!("    #[schemars({})]\n", schemars.join(", ")));
        }
        out + &format!("    pub {}: {ty},\n", rust::module(&name))
    }

    fn embedded(&mut self, path: &str, field: &'p Field, file: &'p File, whole: &str) -> String {
        let mut of = &field.of;
        let is_pointer = matches!(of, Type::Pointer(_));
        while let Type::Pointer(inner) = of {
            of = inner;
        }
        let Type::Named { package, name } = of else {
            self.note(format!(
                "{whole}: what is embedded has no name, and was not carried over"
            ));
            return String::new();
        };
        if name == "TypeMeta" && package.is_some() {
            let one = |field: &str| {
                format!(
                    "    #[serde(default, skip_serializing_if = \"Option::is_none\")]\n    pub {field}: Option<String>,\n"
                )
            };
            return one("api_version") + &one("kind");
        }
        let said = self.said(path, of, file, whole);
        let ty = if is_pointer {
            format!("Option<{}>", said.text)
        } else {
            said.text
        };
        let mut out = docs(&field.doc, "    ");
        out.push_str(&format!(
            "    #[serde(flatten)]\n    pub {}: {ty},\n",
            rust::module(&snake(&lower_first(name)))
        ));
        out
    }

    /// The keywords that markers say. Those that say nothing in a schema are left out; those that are not known are
    /// noted.
    fn keywords(&mut self, markers: &[String], of: &Type, whole: &str) -> Vec<(String, Value)> {
        let mut keywords: Vec<(String, Value)> = Vec::new();
        let mut keys: Vec<Value> = Vec::new();
        let mut rules: Vec<Value> = Vec::new();
        for marker in markers {
            let Marker { name, value: said } = Marker::of(marker);
            if let Some(rule) = Marker::arguments(marker, "kubebuilder:validation:XValidation") {
                rules.push(Value::Object(rule));
            } else if name == "listMapKey" || name == "k8s:listMapKey" {
                keys.push(super::markers::text(said).into());
            } else if let Some((key, mut value)) = keyword(name, said) {
                let is_text = matches!(of, Type::Named { package: None, name } if name == "string");
                match (key.as_str(), &mut value) {
                    ("enum", Value::Array(values)) if is_text => {
                        for value in values.iter_mut().filter(|value| !value.is_string()) {
                            *value = value.to_string().into();
                        }
                    }
                    ("default", value) if *value == Value::Array(Vec::new()) && !matches!(of, Type::List(_)) => {
                        *value = Map::new().into();
                    }
                    _ => {}
                }
                keywords.retain(|(there, _)| *there != key);
                keywords.push((key, value));
            } else if !is_silent(name) {
                self.note(format!(
                    "{whole}: the marker +{marker} has no words in Rust here; say it by hand"
                ));
            }
        }
        for (key, value) in number(of) {
            if !keywords.iter().any(|(there, _)| there == key) {
                keywords.push(((*key).to_owned(), Value::from(*value)));
            }
        }
        if !keys.is_empty() {
            keywords.push(("x-kubernetes-list-map-keys".to_owned(), keys.into()));
        }
        if !rules.is_empty() {
            keywords.push(("x-kubernetes-validations".to_owned(), rules.into()));
        }
        keywords
    }

    fn said(&mut self, path: &str, of: &Type, file: &File, whole: &str) -> Said {
        match of {
            Type::Pointer(inner) => self.said(path, inner, file, whole),
            Type::List(inner) if is_byte(inner) => Said {
                schemars: vec![
                    "with = \"String\"".to_owned(),
                    "extend(\"format\" = \"byte\")".to_owned(),
                ],
                ..Said::of("k8s_openapi::ByteString")
            },
            Type::List(inner) => {
                let bytes = matches!(&**inner, Type::List(inner) if is_byte(inner));
                let inner = self.said(path, inner, file, whole);
                let ty = if bytes { "String" } else { &inner.text };
                Said {
                    schemars: if bytes {
                        vec!["extend(\"items:format\" = \"byte\")".to_owned()]
                    } else {
                        Vec::new()
                    },
                    ..Said::of(format!("Vec<{ty}>"))
                }
            }
            Type::Map(_, inner) => {
                let bytes = matches!(&**inner, Type::List(inner) if is_byte(inner));
                let inner = self.said(path, inner, file, whole);
                let map = |ty: &str| format!("std::collections::BTreeMap<String, {ty}>");
                if !bytes {
                    return Said::of(map(&inner.text));
                }
                // Bytes have no schema of their own; this one says base64 in each value.
                let schema = "{\"type\": \"string\", \"format\": \"byte\"}";
                Said {
                    schemars: vec![
                        format!("with = \"{}\"", map("String")),
                        format!("extend(\"additionalProperties\" = {schema})"),
                    ],
                    ..Said::of(map(&inner.text))
                }
            }
            Type::Named { package: None, name } => self.local(path, name, whole),
            Type::Named {
                package: Some(package),
                name,
            } => match file.imports.get(package).cloned() {
                Some(import) => self.foreign(&import, name, whole),
                None => self.any(
                    whole,
                    &format!("{package}.{name}, whose package is not imported under its own name"),
                ),
            },
            Type::Struct(_) => self.any(whole, "a struct without a name in a list or map"),
            Type::Other(what) => self.any(whole, what),
        }
    }

    fn any(&mut self, whole: &str, what: &str) -> Said {
        self.note(format!("{whole}: {what} is any value in Rust; give it a type"));
        Said::of("serde_json::Value")
    }

    fn local(&mut self, path: &str, name: &str, whole: &str) -> Said {
        let builtin = match name {
            "string" => "String",
            "bool" => "bool",
            "int" => "isize",
            "int8" => "i8",
            "int16" => "i16",
            "int32" | "rune" => "i32",
            "int64" => "i64",
            "uint" => "usize",
            "uint8" | "byte" => "u8",
            "uint16" => "u16",
            "uint32" => "u32",
            "uint64" => "u64",
            "float32" => "f32",
            "float64" => "f64",
            "any" => "serde_json::Value",
            _ => "",
        };
        let is_declared = self
            .packages
            .get(path)
            .is_some_and(|package| package.types.contains_key(name));
        if is_declared {
            return Said::of(type_name(name));
        }
        if builtin.is_empty() {
            return self.any(whole, &format!("{name}, which is not declared in its package"));
        }
        Said::of(builtin)
    }

    fn foreign(&mut self, import: &str, name: &str, whole: &str) -> Said {
        if let Some(package) = self
            .packages
            .get(import)
            .filter(|package| package.types.contains_key(name))
        {
            return Said::of(format!("{}::{}", package.module, type_name(name)));
        }
        let known = match (import.trim_start_matches("k8s.io/"), name) {
            ("apimachinery/pkg/apis/meta/v1", "Duration") => "kube::core::Duration",
            ("apimachinery/pkg/runtime", "RawExtension") => "k8s_openapi::apimachinery::pkg::runtime::RawExtension",
            ("apimachinery/pkg/util/intstr", "IntOrString") => {
                "k8s_openapi::apimachinery::pkg::util::intstr::IntOrString"
            }
            ("apimachinery/pkg/api/resource", "Quantity") => "k8s_openapi::apimachinery::pkg::api::resource::Quantity",
            ("apiextensions-apiserver/pkg/apis/apiextensions/v1", "JSON") => "serde_json::Value",
            ("apimachinery/pkg/types", "UID" | "NodeName") | ("apimachinery/pkg/apis/meta/v1", "ConditionStatus") => {
                "String"
            }
            ("api/core/v1", "ResourceList") => {
                "std::collections::BTreeMap<String, k8s_openapi::apimachinery::pkg::api::resource::Quantity>"
            }
            _ => "",
        };
        if !known.is_empty() {
            return Said::of(known);
        }
        let Some(rest) = import.strip_prefix("k8s.io/") else {
            return self.any(whole, &format!("{name} of {import}, which is no part of the project,"));
        };
        // `k8s.io/api/apps/v1` is `io.k8s.api.apps.v1`.
        let definition = format!("io.k8s.{}.{name}", rest.replace('/', "."));
        if catalog::names().any(|known| known == definition) {
            let module = rest.replace('/', "::").replace('-', "_");
            let needs_time = ["Time", "MicroTime", "Condition", "LeaseSpec"].contains(&name);
            return Said {
                has_default: !needs_time,
                ..Said::of(format!("k8s_openapi::{module}::{name}"))
            };
        }
        if rest.starts_with("api/") {
            // Types of Kubernetes that its published API has not are texts, such as `Protocol`.
            return Said::of("String");
        }
        self.any(whole, &format!("{name} of {import}"))
    }

    /// Whether the type that the field gets has a default.
    fn has_default(&mut self, path: &str, of: &Type, file: &File, depth: usize) -> bool {
        if depth > DEPTH {
            return false;
        }
        match of {
            Type::Pointer(_) | Type::List(_) | Type::Map(..) | Type::Other(_) => true,
            Type::Struct(fields) => fields.iter().all(|field| {
                let tag = field.json.as_deref().unwrap_or("");
                let omit = tag.contains(",omitempty") || tag.contains(",omitzero");
                let is_part = field.name.is_none() || tag.contains(",inline");
                tag == "-"
                    || (!is_part && optional(&field.doc.markers, &file.doc.markers, omit))
                    || self.has_default(path, &field.of, file, depth + 1)
            }),
            Type::Named { package: None, name } => {
                let found = self
                    .packages
                    .get(path)
                    .and_then(|package| package.types.get(name))
                    .copied();
                match found {
                    Some((decl, file)) => self.has_default(path, &decl.of, file, depth + 1),
                    None => true,
                }
            }
            Type::Named {
                package: Some(package),
                name,
            } => {
                let Some(import) = file.imports.get(package).cloned() else {
                    return true;
                };
                let found = self
                    .packages
                    .get(&import)
                    .and_then(|package| package.types.get(name))
                    .copied();
                match found {
                    Some((decl, file)) => self.has_default(&import, &decl.of, file, depth + 1),
                    // A length of time has none in kube.
                    None if name == "Duration" => false,
                    None => {
                        let notes = self.notes.clone();
                        let said = self.foreign(&import, name, "");
                        self.notes = notes;
                        said.has_default
                    }
                }
            }
        }
    }
}

/// What controller-gen says of Go's numbers, where a Rust type says more: null takes that away.
fn number(of: &Type) -> &'static [(&'static str, Option<&'static str>)] {
    let Type::Named { package: None, name } = of else {
        return &[];
    };
    match name.as_str() {
        "int" => &[("format", None)],
        "uint" => &[("format", None), ("minimum", None)],
        "int8" | "int16" | "uint8" | "byte" | "uint16" => &[("format", None), ("minimum", None), ("maximum", None)],
        "uint32" => &[("format", Some("int32")), ("minimum", None)],
        "uint64" => &[("minimum", None)],
        _ => &[],
    }
}

fn is_byte(of: &Type) -> bool {
    matches!(of, Type::Named { package: None, name } if name == "byte" || name == "uint8")
}
