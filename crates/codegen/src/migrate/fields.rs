//! Fields of Go's structs, said in Rust: their names, tags and markers.

use super::go::{Field, File, Type};
use super::types::{Said, Types};
use super::words::{camel_case, docs, extend, optional, snake};
use crate::names::rust;

impl<'p> Types<'p> {
    pub(super) fn field(
        &mut self,
        path: &str,
        parent: &str,
        field: &'p Field,
        file: &'p File,
        nested: &mut String,
    ) -> String {
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
}
