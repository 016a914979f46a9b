//! Which objects a list or watch shows: label and field selectors.

use std::sync::Arc;

use kubewright_schema::fields::{FieldSelector, Operator};
use kubewright_schema::labels::Selector;
use serde_json::Value;

use crate::model::form::full;
use crate::model::object;
use crate::model::status::Status;
use crate::model::{Resource, UnknownField};
use crate::server::weight::LIGHT_TEXT;
use crate::storage::StoredObject;

/// The longest selector that is read, in bytes.
pub(crate) const MAX_SELECTOR: usize = 32 * 1024;

/// A watch with more requirements, or with more initial objects to make first, is heavy: it starts on a thread where no
/// other request waits.
const LIGHT_SELECTOR: usize = 100;

/// The fields that every kind can be selected by.
const METADATA_FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Which objects a list or watch shows.
pub(crate) struct Selection {
    labels: Option<Selector>,
    fields: Option<FieldSelector>,
    resource: Arc<Resource>,
    /// The only name, when the selector asks for one.
    name: Option<String>,
}

impl Selection {
    /// Reads both selectors; `name` comes from the path of an old-style watch of one object.
    pub(crate) fn parse(
        resource: &Arc<Resource>,
        labels: &str,
        fields: &str,
        name: Option<&str>,
    ) -> Result<Selection, Status> {
        let (labels, fields) = Selection::read(labels, fields)?;
        let mut selection = Selection {
            labels: labels.filter(|selector| !selector.is_empty()),
            fields: fields.filter(|selector| !selector.is_empty()),
            resource: resource.clone(),
            name: name.map(str::to_owned),
        };
        selection.check_fields()?;
        let asked = selection.fields.as_ref().map(|fields| fields.exact("metadata.name"));
        if asked.is_some_and(|asked| name.is_some() && asked != name) {
            return Err(Status::bad_request(
                "fieldSelector metadata.name doesn't match requested name",
            ));
        }
        Ok(selection)
    }

    /// Reads both selectors, whatever their fields are.
    pub(crate) fn read(labels: &str, fields: &str) -> Result<(Option<Selector>, Option<FieldSelector>), Status> {
        for text in [labels, fields] {
            if text.len() > MAX_SELECTOR {
                return Err(Status::bad_request(format!(
                    "the selector is {} bytes long, the limit is {MAX_SELECTOR}",
                    text.len()
                )));
            }
        }
        let labels = match labels {
            "" => None,
            text => Some(Selector::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        let fields = match fields {
            "" => None,
            text => Some(FieldSelector::parse(text).map_err(|error| Status::bad_request(error.to_string()))?),
        };
        Ok((labels, fields))
    }

    /// Unknown fields are refused; a required name is remembered.
    pub(super) fn check_fields(&mut self) -> Result<(), Status> {
        let Some(fields) = &self.fields else { return Ok(()) };
        for requirement in fields.requirements() {
            let field = requirement.field.as_str();
            // Only namespaced kinds and those without labels of their own know a namespace.
            let resource = &self.resource;
            let has_namespace =
                resource.namespaced || (resource.selectable_fields.is_empty() && resource.custom.is_none());
            let known = (METADATA_FIELDS.contains(&field) && (has_namespace || field != "metadata.namespace"))
                || self
                    .resource
                    .selectable_fields
                    .iter()
                    .any(|selectable| selectable.label == field);
            if !known {
                return Err(Status::bad_request(unknown_field(&self.resource, field)));
            }
            if field == "metadata.name" && requirement.operator == Operator::Equals && self.name.is_none() {
                self.name = Some(requirement.value.clone());
            }
        }
        Ok(())
    }

    /// Whether nothing is left out.
    pub(crate) fn is_everything(&self) -> bool {
        self.labels.is_none() && self.fields.is_none() && self.name.is_none()
    }

    /// Whether an object of so many bytes may take long to hold against the selectors.
    pub(super) fn is_heavy(&self, bytes: usize) -> bool {
        if self.is_everything() {
            return false;
        }
        let labels = self.labels.as_ref().map_or(0, Selector::len);
        let fields = self.fields.as_ref().map_or(0, |fields| fields.requirements().len());
        bytes > LIGHT_TEXT || labels.saturating_add(fields) > LIGHT_SELECTOR
    }

    /// Whether a stored object is shown. Reads no more of it than the selectors ask for.
    pub(crate) fn shows(&self, object: &StoredObject) -> bool {
        if self.is_everything() {
            return true;
        }
        let metadata_only = self.fields.as_ref().is_none_or(|fields| {
            let requirements = fields.requirements();
            self.resource.conversion.is_none()
                && requirements
                    .iter()
                    .all(|asked| METADATA_FIELDS.contains(&&*asked.field))
        });
        self.matches(if metadata_only { object.head() } else { object.value() })
    }

    /// Whether an object (in its stored form) is shown.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        if self.name.as_deref().is_some_and(|name| name != object::name(object)) {
            return false;
        }
        if self
            .labels
            .as_ref()
            .is_some_and(|selector| !selector.matches(object::labels(object)))
        {
            return false;
        }
        let Some(fields) = &self.fields else { return true };
        if self.resource.conversion.is_some() {
            let shown = full(&self.resource, object);
            return fields.matches(|field| self.field(&shown, field));
        }
        fields.matches(|field| self.field(object, field))
    }

    pub(super) fn field(&self, object: &Value, field: &str) -> Option<String> {
        match field {
            "metadata.name" => return Some(object::name(object).to_owned()),
            "metadata.namespace" => return Some(object::namespace(object).to_owned()),
            _ => {}
        }
        let selectable = self
            .resource
            .selectable_fields
            .iter()
            .find(|selectable| selectable.label == field)?;
        let value = selectable.pointers.iter().find_map(|pointer| object.pointer(pointer));
        Some(match value {
            None | Some(Value::Null) => selectable.absent.to_string(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        })
    }

    /// The keys that can match: narrower than the path's when only one object is wanted.
    pub(crate) fn key_prefix(&self, path: &str, namespaced: bool) -> String {
        match &self.name {
            Some(name) if !namespaced || !path.is_empty() => format!("{path}{name}"),
            _ => path.to_owned(),
        }
    }
}

/// Kinds without fields of their own name those that every kind has; others only say that they do not know.
fn unknown_field(resource: &Resource, field: &str) -> String {
    if resource.selectable_fields.is_empty() && resource.custom.is_none() {
        format!("{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        let kind = &resource.kind;
        match resource.strategy.unknown_field {
            UnknownField::LabelOfKind => format!("field label {field:?} not supported for {kind}"),
            UnknownField::LabelOfVersion => {
                let version = resource.api_version();
                format!("field label not supported for {version}, Kind={kind}: {field}")
            }
            UnknownField::Label => format!("field label not supported: {field}"),
        }
    }
}
