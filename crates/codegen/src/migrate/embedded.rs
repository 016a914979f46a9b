//! Structs within structs: Go's embedded types, whose fields and rules belong to the struct around them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::fields::unique;
use super::go::{Decl, Field, File, Type};
use super::keywords::{add, one_of};
use super::types::Types;
use super::words::{docs, lower_first, snake};
use crate::names::rust;

/// Keywords of a schema, with their values.
type Keywords = Vec<(String, Value)>;

/// How deep embedded types are followed; far more than any API has.
const DEPTH: usize = 12;

/// Whether it is the struct of a kind, with the metadata of types and of objects.
pub(super) fn is_of_kinds(of: &Type) -> bool {
    embeds(of, "TypeMeta") && embeds(of, "ObjectMeta")
}

/// Whether a struct embeds a type of another package with this name.
pub(super) fn embeds(of: &Type, wanted: &str) -> bool {
    let Type::Struct(fields) = of else { return false };
    let mut fields = fields.iter().filter(|field| field.name.is_none());
    fields.any(|field| matches!(&field.of, Type::Named { package: Some(_), name } if name == wanted))
}

/// Whether every kind has this field.
pub(super) fn is_of_every_kind(field: &Field) -> bool {
    let name = match &field.of {
        Type::Named { package: Some(_), name } => name.as_str(),
        _ => "",
    };
    ["TypeMeta", "ObjectMeta"].contains(&name) && field.name.is_none() || field.json_name() == Some("status")
}

impl<'p> Types<'p> {
    pub(super) fn embedded(
        &mut self,
        path: &str,
        field: &'p Field,
        file: &'p File,
        whole: &str,
        taken: &mut BTreeSet<String>,
    ) -> String {
        let of = field.of.pointee();
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
            taken.extend(["api_version", "kind"].map(str::to_owned));
            return one("api_version") + &one("kind");
        }
        if let Some((_, decl, _)) = self.declared(path, of, file)
            && let Type::Other(what) = decl.of
        {
            self.note(format!(
                "{whole}: {name} is embedded and has no fields ({what}); controller-gen refuses it, and it was left out"
            ));
            return String::new();
        }
        if self.circles.closed.contains(&(file.path.clone(), field.line)) {
            // Go takes the fields of a struct that embeds itself once.
            self.note(format!(
                "{whole}: {name} embeds itself, so nothing was made of this field"
            ));
            return String::new();
        }
        let mut said = self.rust_type(path, of, file, whole);
        let import = package.as_ref().and_then(|package| file.imports.get(package));
        if let Some(carried) = import.and_then(|import| self.carried(import, name)) {
            said = carried;
        }
        if said.text == "String" {
            // A text cannot be embedded: it is a struct whose source is not in reach.
            self.note(format!(
                "{whole}: the fields of {name} are not known, and were not carried over: bring its module (go mod download), then migrate again"
            ));
            return String::new();
        }
        if said.text.starts_with("k8s_openapi::") && name != "RawExtension" {
            // serde takes the fields one by one, and Kubernetes' descriptions of them beside their types are lost.
            self.note(format!(
                "{whole}: defaults and list types of the fields of {name} are not known: bring its module (go mod download k8s.io/api), then migrate again"
            ));
        }
        let mut out = docs(&field.doc, "    ");
        let has = |word: &str| field.doc.markers.iter().any(|marker| marker.ends_with(word));
        // Nothing is known of its fields then, and all of them are kept.
        let schema = if has(":Schemaless") && has(":PreserveUnknownFields") {
            "    #[schemars(with = \"std::collections::BTreeMap<String, serde_json::Value>\")]\n"
        } else {
            ""
        };
        // Behind a pointer or not, its fields are those of the struct, and as necessary.
        out.push_str(&format!(
            "    #[serde(flatten)]\n{schema}    pub {}: {},\n",
            unique(rust::module(&snake(&lower_first(name))), taken),
            said.text
        ));
        out
    }

    /// The keywords of the fields of the types that a struct embeds, by the fields' names in JSON.
    pub(super) fn hidden(&mut self, path: &str, of: &'p Type, file: &'p File) -> BTreeMap<String, Keywords> {
        let mut found = BTreeMap::new();
        // Each type gets its notes when it is printed itself.
        let notes = std::mem::take(&mut self.notes);
        self.promoted(path, of, file, 0, &mut found);
        self.notes = notes;
        found
    }

    fn promoted(
        &mut self,
        path: &str,
        of: &'p Type,
        file: &'p File,
        depth: usize,
        into: &mut BTreeMap<String, Keywords>,
    ) {
        let Type::Struct(fields) = of else { return };
        for field in fields.iter().filter(|field| is_inline(field) && depth < DEPTH) {
            let Some((path, decl, file)) = self.declared(path, &field.of, file) else {
                continue;
            };
            let Type::Struct(inner) = &decl.of else { continue };
            for field in inner.iter().filter(|field| !is_inline(field)) {
                let mut keywords = self.keywords(&field.doc.markers, field.of.pointee(), "");
                keywords.retain(|(key, _)| !["title", "example", "externalDocs"].contains(&key.as_str()));
                if let Some(name) = field.json_name().filter(|_| !keywords.is_empty()) {
                    into.entry(name.to_owned()).or_insert(keywords);
                }
            }
            self.promoted(&path, &decl.of, file, depth + 1, into);
        }
    }

    /// The keywords of a struct with those of the types that it embeds.
    pub(super) fn with_inherited(
        &mut self,
        path: &str,
        own: Vec<(String, Value)>,
        of: &'p Type,
        file: &'p File,
    ) -> Vec<(String, Value)> {
        let more = self.inherited(path, of, file, 0);
        let mut all = own;
        // A marker on an embedded field is about the whole, and must be carried over.
        if let Type::Struct(fields) = of {
            for field in fields.iter().filter(|field| is_inline(field)) {
                let said = self.keywords(&field.doc.markers, &Type::Struct(Vec::new()), "(embedded)");
                add(&mut all, said);
            }
        }
        for (key, value) in &more {
            let several = more.iter().filter(|(other, _)| other == key).count() > 1;
            match all.iter_mut().find(|(there, _)| there == key) {
                Some((_, Value::Array(there))) if key == "x-kubernetes-validations" => {
                    there.extend(value.as_array().cloned().unwrap_or_default());
                }
                Some(_) if key.ends_with("OneOf") => one_of(&mut all, key.clone(), value.clone()),
                None if several => all.push((key.clone(), value.clone())),
                // The struct has words of its own, or `flatten` has these.
                _ => {}
            }
        }
        all
    }

    /// The markers of a struct's embedded types about the whole.
    fn inherited(&mut self, path: &str, of: &'p Type, file: &'p File, depth: usize) -> Vec<(String, Value)> {
        let Type::Struct(fields) = of else { return Vec::new() };
        let mut found = Vec::new();
        for field in fields.iter().filter(|field| is_inline(field) && depth < DEPTH) {
            if let Some((path, decl, file)) = self.declared(path, &field.of, file) {
                found.extend(self.of_declaration(decl));
                found.extend(self.inherited(&path, &decl.of, file, depth + 1));
            }
        }
        found
    }

    /// The declaration of a type that the project has, with the import path of its package and its file.
    pub(super) fn declared(&self, path: &str, of: &Type, file: &File) -> Option<(String, &'p Decl, &'p File)> {
        let (path, name) = match of {
            Type::Pointer(inner) => return self.declared(path, inner, file),
            Type::Named { package: None, name } => (path, name),
            Type::Named {
                package: Some(package),
                name,
            } => (file.imports.get(package)?.as_str(), name),
            _ => return None,
        };
        let (decl, file) = self.packages.get(path)?.types.get(name)?;
        Some((path.to_owned(), decl, file))
    }

    /// The markers of the field `spec` or `status` of a kind: no field in Rust can carry them, so the type does.
    pub(super) fn of_field(&mut self, field: &Field, name: &str) -> Vec<(String, Value)> {
        let mut keywords = self.keywords(&field.doc.markers, &Type::Struct(Vec::new()), name);
        if !field.doc.text.is_empty() {
            keywords.push(("description".to_owned(), field.doc.text.join("\n").trim().into()));
        }
        keywords
    }

    /// Where a type lists its values, controller-gen ignores the keyword of a field of it.
    pub(super) fn of_type_alone(
        &mut self,
        path: &str,
        of: &'p Type,
        file: &'p File,
        keywords: &mut Vec<(String, Value)>,
    ) {
        let is_enum = |(key, _): &(String, Value)| key == "enum";
        if !keywords.iter().any(is_enum) {
            return;
        }
        let Some((_, decl, _)) = self.declared(path, of, file) else {
            return;
        };
        if self
            .keywords(&decl.doc.markers, &decl.of, &decl.name)
            .iter()
            .any(is_enum)
        {
            keywords.retain(|keyword| !is_enum(keyword));
        }
    }

    /// The type in Rust of one that writes itself: as a text, or as a marker says.
    pub(super) fn marshalled(&self, path: &str, name: &str, keywords: &[(String, Value)]) -> Option<&'static str> {
        let is_text = self.packages.get(path)?.marshallers.get(name)?;
        let said = keywords.iter().find(|(key, _)| key == "type");
        match said.and_then(|(_, value)| value.as_str()) {
            Some("string") => Some("String"),
            Some("integer") => Some("i64"),
            Some("number") => Some("f64"),
            Some("boolean") => Some("bool"),
            Some(_) if !is_text => Some("serde_json::Value"),
            _ => is_text.then_some("String"),
        }
    }
}

/// Whether the fields of a field's type belong to the struct around it.
pub(super) fn is_inline(field: &Field) -> bool {
    let has_no_name = field.json_name().unwrap_or_default().is_empty();
    let is_marked = field.json.as_deref().is_some_and(|tag| tag.contains(",inline"));
    (field.name.is_none() && has_no_name) || is_marked
}
