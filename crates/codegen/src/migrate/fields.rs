//! Fields of Go's structs, said in Rust: their names, tags and markers.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::arguments;
use super::go::{Doc, Field, File, Type};
use super::types::{RustType, Types};
use super::words::{camel_case, docs, extend, optional, snake, type_name};
use crate::names::rust;

/// The struct around a field.
pub(super) struct Around {
    /// The names in Rust that its fields have.
    pub(super) taken: BTreeSet<String>,
    /// The keywords of the fields of embedded types, by their names in JSON. A field of the struct with such a name
    /// hides the embedded one in Go; controller-gen's schema has the keywords of both (`flattenAllOfInto`).
    pub(super) hidden: BTreeMap<String, Vec<(String, Value)>>,
}

impl<'p> Types<'p> {
    /// The struct around fields, before any of them is written.
    pub(super) fn around(&mut self, path: &str, of: &'p Type, file: &'p File) -> Around {
        Around {
            taken: BTreeSet::new(),
            hidden: self.hidden(path, of, file),
        }
    }

    pub(super) fn field(
        &mut self,
        path: &str,
        parent: &str,
        field: &'p Field,
        file: &'p File,
        nested: &mut String,
        around: &mut Around,
    ) -> String {
        if !is_in_json(field) {
            return String::new();
        }
        let tag = field.json.as_deref().unwrap_or("");
        let mut parts = tag.split(',');
        let json = parts.next().unwrap_or_default();
        let options: Vec<&str> = parts.collect();
        let name = field.name.as_deref().unwrap_or("(embedded)");
        let whole = format!("{parent}.{name} ({}:{})", file.path, field.line);
        self.check(&field.doc, Some(&field.of), file, field.line);
        if field.name.is_none() && json.is_empty() || options.contains(&"inline") {
            return self.embedded(path, field, file, &whole, &mut around.taken);
        }
        if field.json.is_none() {
            self.note(format!("{whole}: it has no JSON tag, which controller-gen refuses"));
        } else if json.is_empty() {
            self.note(format!(
                "{whole}: its JSON tag has no name, so Go calls it {name}, as does the schema here; controller-gen \
                 takes its fields for those of the struct"
            ));
        }
        if let Some(key) = self.key_that_is_no_text(path, &field.of, file) {
            self.note(format!(
                "{whole}: its keys are of the type {key}, which controller-gen refuses; Go writes them as texts, and \
                 so does the map in Rust"
            ));
        }
        let json = match json {
            "" => field.name.clone().unwrap_or_default(),
            json => json.to_owned(),
        };
        let omit = options.contains(&"omitempty") || options.contains(&"omitzero");
        let is_optional = optional(&field.doc.markers, &file.doc.markers, omit);
        let of = field.of.pointee();
        let is_pointer = matches!(field.of, Type::Pointer(_));
        let mut said = if let Type::Struct(inner) = of {
            let name = self.type_beside(path, &format!("{parent}{}", rust::camel(&json)));
            nested.push_str(&format!("/// What `{json}` of {parent} holds.\n"));
            let default = if self.has_default(path, of, file, 0) {
                "Default, "
            } else {
                ""
            };
            nested.push_str(&format!(
                "#[derive({default}Clone, Debug, PartialEq, Deserialize, Serialize, JsonSchema)]\n\
                 #[serde(rename_all = \"camelCase\")]\npub struct {name} {{\n"
            ));
            let mut deeper = String::new();
            let mut around = self.around(path, of, file);
            let fields: String = inner
                .iter()
                .map(|field| self.field(path, &name, field, file, &mut deeper, &mut around))
                .collect();
            nested.push_str(&format!("{fields}}}\n\n{deeper}"));
            RustType::of(name)
        } else {
            self.rust_type(path, of, file, &whole)
        };
        let mut keywords = self.keywords(&field.doc.markers, of, &whole);
        self.of_type_alone(path, of, file, &mut keywords);
        for (key, value) in around.hidden.remove(&json).unwrap_or_default() {
            if !keywords.iter().any(|(there, _)| *there == key) {
                keywords.push((key, value));
            }
        }
        let mut schemars = std::mem::take(&mut said.schemars);
        if field.doc.is_schemaless() || self.closes(file, field.line, &whole) {
            // The schema takes any value, whatever the type is.
            schemars = vec!["with = \"serde_json::Value\"".to_owned()];
        }
        if keywords.iter().any(|(key, value)| key == "type" && value == "string") && said.text != "String" {
            schemars.push("with = \"String\"".to_owned());
            keywords.retain(|(key, _)| key != "type");
        }
        let mut out = docs(&field.doc, "    ");
        let mut ty = said.text;
        let is_boxed = self.circles.boxed.contains(&(file.path.clone(), field.line));
        if is_boxed && matches!(of, Type::Named { .. } | Type::Struct(_)) {
            ty = format!("Box<{ty}>");
        }
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
        let name = unique(rust::module(&snake(&json)), &mut around.taken);
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
        out + &format!("    pub {name}: {ty},\n")
    }

    /// Records the markers with invalid values, which controller-gen or an API server would refuse.
    /// `of` is the type of a field, and `None` for a declaration.
    pub(super) fn check(&mut self, doc: &Doc, of: Option<&Type>, file: &File, line: usize) {
        let markers = &doc.markers;
        let wrong = markers
            .iter()
            .filter_map(|marker| arguments::wrong(marker, markers, of));
        self.wrong.extend(wrong.map(|why| (file.path.clone(), line, why)));
    }

    /// Whether a field or declaration leads back to a type around it, which no schema can express. It is noted.
    pub(super) fn closes(&mut self, file: &File, line: usize, whole: &str) -> bool {
        let closes = self.circles.closed.contains(&(file.path.clone(), line));
        if closes {
            self.note(format!(
                "{whole}: it leads back to a type that contains it, which no schema of Kubernetes can say; the schema \
                 takes any value here (controller-gen leaves it empty, and an API server refuses that)"
            ));
        }
        closes
    }

    /// A name for a type that neither the package nor an earlier call uses.
    fn type_beside(&mut self, path: &str, name: &str) -> String {
        let mut name = name.to_owned();
        let package = self.packages.get(path);
        let is_declared =
            |name: &str| package.is_some_and(|package| package.types.keys().any(|other| type_name(other) == name));
        while is_declared(&name) || !self.made.insert((path.to_owned(), name.clone())) {
            name.push('_');
        }
        name
    }
}

/// Whether Go writes a field as JSON.
pub(super) fn is_in_json(field: &Field) -> bool {
    let is_exported = |name: &str| name.starts_with(char::is_uppercase);
    field.name.as_deref().is_none_or(is_exported) && field.json.as_deref() != Some("-")
}

/// A field's name that no other field of the struct has: `foo_bar` and `fooBar` are one name in Rust.
pub(super) fn unique(name: String, taken: &mut BTreeSet<String>) -> String {
    let mut made = name.clone();
    let mut number = 2;
    while !taken.insert(made.clone()) {
        made = format!("{}_{number}", name.trim_end_matches('_'));
        number += 1;
    }
    made
}
