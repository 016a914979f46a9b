//! Types of Go, said in Rust: structs, fields, markers as attributes.
//!
//! [`Types::print`] writes one declaration with its comment. Everything that a marker says about a schema becomes a
//! keyword in `#[schemars(extend(…))]`, which says it exactly; a closed set of texts becomes an enum. Invariants:
//! nothing of Go is left out without a note; a type that is not known is any value, and noted. Not here: kinds, whose
//! attributes are in [`super::kinds`].

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::embedded::is_of_every_kind;
use super::go::{Decl, Field, File, Type};
use super::kubernetes;
use super::markers::{Marker, keyword};
use super::origin::Source;
use super::words::{camel_case, docs, extend, is_byte, is_silent, least, number, optional, snake, type_name, variants};
use crate::names::rust;

/// A package of the project: its types, and where they stand in Rust.
pub(super) struct Package<'p> {
    /// The module in Rust: `crate::v1`.
    pub(super) module: String,
    /// The types, each with the file that declares it.
    pub(super) types: BTreeMap<String, (&'p Decl, &'p File)>,
    /// The types that write themselves, and whether as a text.
    pub(super) marshallers: BTreeMap<String, bool>,
    /// The texts that are constants of a type.
    pub(super) constants: BTreeMap<String, BTreeSet<String>>,
}

impl<'p> Package<'p> {
    pub(super) fn new(module: String) -> Package<'p> {
        Package {
            module,
            types: BTreeMap::new(),
            marshallers: BTreeMap::new(),
            constants: BTreeMap::new(),
        }
    }

    /// Adds the declarations of a file.
    pub(super) fn add(&mut self, source: &'p Source) {
        let types = source.file.types.iter();
        self.types
            .extend(types.map(|decl| (decl.name.clone(), (decl, &source.file))));
        self.add_values(source);
    }

    /// Which types have methods that write them, or constants.
    pub(super) fn add_values(&mut self, source: &Source) {
        for constant in &source.file.constants {
            if let Some(of) = &constant.of {
                let texts = self.constants.entry(of.clone()).or_default();
                texts.insert(constant.text.clone());
            }
        }
        for function in &source.file.functions {
            let Some(receiver) = &function.receiver else { continue };
            match function.name.as_str() {
                "MarshalJSON" => self.marshallers.insert(receiver.clone(), false),
                "MarshalText" => Some(*self.marshallers.entry(receiver.clone()).or_insert(true)),
                _ => None,
            };
        }
    }
}

/// The attributes before the type of a kind.
#[derive(Default)]
pub(super) struct Attributes {
    /// The type's name, when it is the kind itself: it has no `spec`, or more than that.
    pub(super) name: Option<String>,
    pub(super) derives: &'static str,
    pub(super) lines: String,
    /// The keywords of the kind's field of this type beside those of the type itself.
    pub(super) keywords: Vec<(String, Value)>,
}

/// All packages of a project, and the notes.
pub(super) struct Types<'p> {
    /// By the path that imports name.
    pub(super) packages: BTreeMap<String, Package<'p>>,
    pub(super) notes: BTreeSet<String>,
}

/// A type in Rust.
pub(super) struct Said {
    pub(super) text: String,
    /// Attributes that the field needs beside those of its markers.
    pub(super) schemars: Vec<String>,
    pub(super) has_default: bool,
}

impl Said {
    pub(super) fn of(text: impl Into<String>) -> Said {
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
    pub(super) fn note(&mut self, note: String) {
        self.notes.insert(note);
    }

    /// A declaration as Rust. `kind` has the attributes of a kind before the item, and its name when it is the kind
    /// itself, without the fields that every kind has.
    pub(super) fn print(&mut self, path: &str, decl: &'p Decl, file: &'p File, kind: &Attributes) -> String {
        let name = kind.name.clone().unwrap_or_else(|| type_name(&decl.name));
        let mut out = docs(&decl.doc, "");
        if decl.is_generic {
            self.note(format!(
                "{}: generic types are no part of an API; write it by hand",
                decl.name
            ));
            return format!("// The generic type {} of Go was not carried over.\n\n", decl.name);
        }
        let mut keywords = self.of_declaration(decl);
        if decl
            .doc
            .markers
            .iter()
            .any(|marker| Marker::of(marker).name == "k8s:enum")
            && let Some(texts) = self
                .packages
                .get(path)
                .and_then(|package| package.constants.get(&decl.name))
        {
            keywords.push(("enum".to_owned(), texts.iter().cloned().collect::<Vec<_>>().into()));
        }
        let mut keywords = self.with_inherited(path, keywords, &decl.of, file);
        add(&mut keywords, kind.keywords.clone());
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
        let derives = ["Clone", "Debug", "PartialEq", "Deserialize", "Serialize", "JsonSchema"];
        let default = if self.has_default(path, &decl.of, file, 0) {
            "Default, "
        } else {
            ""
        };
        out.push_str(kind.derives);
        out.push_str(&format!("#[derive({default}{})]\n", derives.join(", ")));
        out.push_str(&kind.lines);
        if let Some(of) = self.marshalled(path, &decl.name, &keywords) {
            out.truncate(out.trim_end_matches('\n').len());
            let attribute = if keywords.is_empty() {
                String::new()
            } else {
                format!("#[schemars({})] ", extend(&keywords))
            };
            return out + &format!("\npub struct {name}({attribute}pub {of});\n\n");
        }
        match &decl.of {
            Type::Struct(fields) => {
                out.push_str("#[serde(rename_all = \"camelCase\")]\n");
                if !keywords.is_empty() {
                    out.push_str(&format!("#[schemars({})]\n", extend(&keywords)));
                }
                let mut nested = String::new();
                out.push_str(&format!("pub struct {name} {{\n"));
                for field in fields
                    .iter()
                    .filter(|field| kind.name.is_none() || !is_of_every_kind(field))
                {
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
        if field.json.is_none() {
            self.note(format!("{whole}: it has no JSON tag, which controller-gen refuses"));
        }
        let json = match json {
            "" => field.name.clone().unwrap_or_default(),
            json => json.to_owned(),
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
        self.of_type_alone(path, of, file, &mut keywords);
        let mut schemars = std::mem::take(&mut said.schemars);
        if field
            .doc
            .markers
            .iter()
            .any(|marker| marker.contains("validation:Schemaless"))
        {
            // The schema is empty, for any type.
            schemars = vec!["with = \"serde_json::Value\"".to_owned()];
        }
        if keywords.iter().any(|(key, value)| key == "type" && value == "string") && said.text != "String" {
            schemars.push("with = \"String\"".to_owned());
            keywords.retain(|(key, _)| key != "type");
        }
        let mut out = docs(&field.doc, "    ");
        let mut ty = said.text;
        if is_optional || is_pointer {
            let inner = ty;
            ty = format!("Option<{inner}>");
            if !is_optional && !schemars.iter().any(|with| with.starts_with("with = ")) {
                // `required` would put the type in place of its name, by which more is known of it.
                schemars.push(format!("with = {inner:?}"));
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

    /// The keywords of a type: markers that controller-gen knows on fields alone have no effect there.
    pub(super) fn of_declaration(&mut self, decl: &Decl) -> Vec<(String, Value)> {
        let mut keywords = self.keywords(&decl.doc.markers, &decl.of, &decl.name);
        keywords.retain(|(key, _)| !["default", "nullable", "example"].contains(&key.as_str()));
        keywords
    }

    /// The keywords that markers say. Markers without an effect on a schema are left out; unknown ones are noted.
    pub(super) fn keywords(&mut self, markers: &[String], of: &Type, whole: &str) -> Vec<(String, Value)> {
        let mut keywords: Vec<(String, Value)> = Vec::new();
        let mut keys: Vec<Value> = Vec::new();
        let (mut rules, mut item_rules): (Vec<Value>, Vec<Value>) = Default::default();
        for marker in markers {
            let Marker { name, value: said } = Marker::of(marker);
            if let Some(rule) = Marker::arguments(marker, "kubebuilder:validation:XValidation") {
                rules.push(Value::Object(rule));
            } else if let Some(rule) = Marker::arguments(marker, "kubebuilder:validation:items:XValidation") {
                item_rules.push(Value::Object(rule));
            } else if let Some(docs) = Marker::arguments(marker, "kubebuilder:externalDocs") {
                keywords.push(("externalDocs".to_owned(), Value::Object(docs)));
            } else if name == "listMapKey" || name == "k8s:listMapKey" {
                keys.push(super::markers::text(said).into());
            } else if name == "default" && markers.iter().any(|other| other.starts_with("kubebuilder:default=")) {
                // kubebuilder's marker stands above Kubernetes'.
            } else if let Some((key, mut value)) = keyword(name, said) {
                if key.ends_with("OneOf") {
                    one_of(&mut keywords, key, value);
                    continue;
                }
                let is_text = matches!(of, Type::Named { package: None, name } if name == "string");
                match (key.as_str(), &mut value) {
                    // A keyword with the value false is left out.
                    ("exclusiveMinimum" | "exclusiveMaximum", Value::Bool(false)) => continue,
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
                self.note(if name.starts_with("kubebuilder:validation:") {
                    format!("{whole}: controller-gen does not know the marker +{marker}, so nothing was made of it")
                } else {
                    format!("{whole}: the marker +{marker} has no counterpart in Rust; write it by hand")
                });
            }
        }
        if markers.iter().any(|marker| Marker::of(marker).name == "k8s:required") {
            let key = least(of);
            if !keywords.iter().any(|(there, _)| there == key) {
                keywords.push((key.to_owned(), 1.into()));
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
        for (key, rules) in [
            ("x-kubernetes-validations", rules),
            ("items:x-kubernetes-validations", item_rules),
        ] {
            if !rules.is_empty() {
                keywords.push((key.to_owned(), rules.into()));
            }
        }
        keywords
    }

    pub(super) fn said(&mut self, path: &str, of: &Type, file: &File, whole: &str) -> Said {
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
            // Of a package of Kubernetes, only types that its published API does not have are carried over.
            if let Some(said) = kubernetes::known(path, name) {
                return said;
            }
            return self.any(whole, &format!("{name}, which is not declared in its package"));
        }
        Said::of(builtin)
    }

    fn foreign(&mut self, import: &str, name: &str, whole: &str) -> Said {
        let known = kubernetes::known(import, name);
        if let Some(said) = known.filter(|_| !kubernetes::is_unpublished(import, name)) {
            return said;
        }
        if let Some(said) = self.carried(import, name) {
            return said;
        }
        if let Some(said) = kubernetes::known(import, name) {
            return said;
        }
        if !import.starts_with("k8s.io/") {
            return self.any(whole, &format!("{name} of {import}, which is no part of the project,"));
        }
        self.any(whole, &format!("{name} of {import}"))
    }

    /// A type of another package that was carried over.
    pub(super) fn carried(&self, import: &str, name: &str) -> Option<Said> {
        let package = self.packages.get(import)?;
        let is_there = package.types.contains_key(name);
        is_there.then(|| Said::of(format!("{}::{}", package.module, type_name(name))))
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
                    None => kubernetes::known(&import, name).is_none_or(|said| said.has_default),
                }
            }
        }
    }
}

/// Words of a field with those of its type: the field's win, rules add up.
pub(super) fn add(keywords: &mut Vec<(String, Value)>, of_field: Vec<(String, Value)>) {
    for (key, value) in of_field {
        match keywords.iter_mut().find(|(there, _)| *there == key) {
            Some((_, Value::Array(there))) if key == "x-kubernetes-validations" => {
                there.extend(value.as_array().cloned().unwrap_or_default());
            }
            Some((_, there)) => *there = value,
            None => keywords.push((key, value)),
        }
    }
}

/// Each marker of this kind is a rule of its own.
pub(super) fn one_of(keywords: &mut Vec<(String, Value)>, key: String, value: Value) {
    match keywords.iter_mut().find(|(there, _)| *there == key) {
        None => keywords.push((key, value)),
        Some((_, Value::Array(groups))) => {
            if !groups.iter().all(Value::is_array) {
                *groups = vec![std::mem::take(groups).into()];
            }
            groups.push(value);
        }
        Some(_) => {}
    }
}
