//! What the markers of a type or a field say about its schema.

use serde_json::{Map, Value};

use super::arguments;
use super::go::{Decl, Type};
use super::markers::{Marker, keyword};
use super::types::Types;
use super::words::{is_silent, least, number};

impl<'p> Types<'p> {
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
                // kubebuilder's marker takes precedence over Kubernetes'.
            } else if arguments::is_reference(name, said) {
                self.note(format!(
                    "{whole}: the schema has no default for +{marker}, since controller-gen does not read values of \
                     constants"
                ));
            } else if arguments::wrong(marker, markers, Some(of)).is_some() {
                // `Types::check` reports it.
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
