//! `patches`: strategic merge patches and JSON patches, for one object by name or for all that a target selects.

use kubewright_schema::catalog;
use kubewright_schema::labels;
use kubewright_schema::patch::json;
use regex::Regex;
use serde_json::Value;

use super::kustomization::{Entry, Patch, Selector, broken, unsupported};
use super::load::{Loader, documents};
use super::merge;
use super::object::{Id, Object};
use crate::codes;
use crate::diagnostic::{Diagnostic, Place};

/// Applies one item of the list.
pub(super) fn apply(entry: &Entry<Patch>, loader: &Loader<'_>, objects: &mut Vec<Object>) -> Result<(), Diagnostic> {
    let (file, text) = match (&entry.value.path, &entry.value.patch) {
        (Some(path), None) => loader.text(path, &entry.place)?,
        (None, Some(text)) => (entry.place.file.clone(), text.clone()),
        _ => return Err(broken(entry.place.clone(), "a patch has either `path` or `patch`")),
    };
    let patches = documents(&file, &text)?;
    let source = Source {
        place: match &entry.value.path {
            Some(_) => Place::file(&file),
            None => entry.place.clone(),
        },
    };
    match (&entry.value.target, patches.as_slice()) {
        (_, []) => Err(broken(source.place, "the patch is empty")),
        (Some(target), [(operations @ Value::Array(_), _)]) => {
            source.json(operations, &Matcher::new(target, &entry.place)?, objects)
        }
        (None, [(Value::Array(_), _)]) => Err(broken(entry.place.clone(), "a JSON patch needs a target")),
        (Some(target), [(patch, _)]) => source.targeted(patch, &Matcher::new(target, &entry.place)?, objects),
        (Some(_), _) => Err(broken(
            entry.place.clone(),
            "a patch with a target is a single document",
        )),
        (None, patches) => patches.iter().try_for_each(|(patch, _)| source.named(patch, objects)),
    }
}

/// Where a patch is, for messages.
struct Source {
    place: Place,
}

impl Source {
    fn fails(&self, what: &Id, why: impl std::fmt::Display) -> Diagnostic {
        Diagnostic::new(codes::config::PATCH, format!("cannot patch {}", what.title()))
            .at(self.place.clone())
            .because(why)
    }

    fn json(&self, operations: &Value, target: &Matcher, objects: &mut [Object]) -> Result<(), Diagnostic> {
        for object in objects.iter_mut().filter(|object| target.fits(object)) {
            let patched = json::apply(&object.value, operations).map_err(|why| self.fails(&object.id(), why))?;
            object.remember();
            object.value = patched;
        }
        Ok(())
    }

    fn targeted(&self, patch: &Value, target: &Matcher, objects: &mut Vec<Object>) -> Result<(), Diagnostic> {
        let mut kept = Vec::with_capacity(objects.len());
        for mut object in objects.drain(..) {
            if !target.fits(&object) || self.merge(patch, &mut object)? {
                kept.push(object);
            }
        }
        *objects = kept;
        Ok(())
    }

    /// A patch that names its object itself.
    fn named(&self, patch: &Value, objects: &mut Vec<Object>) -> Result<(), Diagnostic> {
        let id = Id::of(patch);
        let found: Vec<usize> = objects
            .iter()
            .enumerate()
            .filter(|(_, object)| object.ids().iter().any(|other| other.is_same(&id)))
            .map(|(at, _)| at)
            .collect();
        match found.as_slice() {
            [at] => {
                if !self.merge(patch, &mut objects[*at])? {
                    objects.remove(*at);
                }
                Ok(())
            }
            [] => Err(self
                .fails(&id, "no object before it has this kind, name and namespace")
                .fix("say them as they stand in the object's own file, before the namePrefix")),
            _ => Err(self.fails(&id, "several objects were called so")),
        }
    }

    /// Merges; `false` when the object is deleted. The identity of the object stays.
    fn merge(&self, patch: &Value, object: &mut Object) -> Result<bool, Diagnostic> {
        let id = object.id();
        let mut patch = patch.clone();
        if let Some(fields) = patch.as_object_mut() {
            fields.remove("apiVersion");
            fields.remove("kind");
            if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
                metadata.remove("name");
                metadata.remove("namespace");
            }
        }
        let schema = catalog::for_kind(&id.group, &id.version, &id.kind);
        merge::apply(&mut object.value, &patch, schema.as_ref()).map_err(|why| {
            unsupported(
                self.place.clone(),
                format!("{why}, which the built-in renderer does not know"),
            )
        })
    }
}

/// A target, ready to be asked.
pub(super) struct Matcher {
    group: Regex,
    version: Regex,
    kind: Regex,
    name: Regex,
    namespace: Regex,
    labels: labels::Selector,
    annotations: labels::Selector,
}

impl Matcher {
    pub(super) fn new(selector: &Selector, place: &Place) -> Result<Matcher, Diagnostic> {
        let whole = |pattern: &str| {
            let pattern = if pattern.is_empty() { ".*" } else { pattern };
            Regex::new(&format!("^(?:{pattern})$")).map_err(|why| broken(place.clone(), why))
        };
        let of_labels = |text: &str| labels::Selector::parse(text).map_err(|why| broken(place.clone(), why));
        Ok(Matcher {
            group: whole(&selector.group)?,
            version: whole(&selector.version)?,
            kind: whole(&selector.kind)?,
            name: whole(&selector.name)?,
            namespace: whole(&selector.namespace)?,
            labels: of_labels(&selector.label_selector)?,
            annotations: of_labels(&selector.annotation_selector)?,
        })
    }

    /// Whether the object, by its first or its present name, is meant.
    fn fits(&self, object: &Object) -> bool {
        let (first, now) = (object.original(), object.id());
        let either = |test: &dyn Fn(&Id) -> bool| test(&first) || test(&now);
        either(&|id| self.name.is_match(&id.name))
            && either(&|id| self.namespace.is_match(id.effective_namespace()))
            && self.fits_kind(&now)
            && self.fits_words(&object.value)
    }

    fn fits_kind(&self, id: &Id) -> bool {
        self.group.is_match(&id.group) && self.version.is_match(&id.version) && self.kind.is_match(&id.kind)
    }

    /// Whether labels and annotations are those asked for.
    pub(super) fn fits_words(&self, value: &Value) -> bool {
        let metadata = &value["metadata"];
        self.labels.matches(&metadata["labels"]) && self.annotations.matches(&metadata["annotations"])
    }

    /// Whether one name of an object is meant.
    pub(super) fn fits_id(&self, id: &Id) -> bool {
        self.fits_kind(id) && self.name.is_match(&id.name) && self.namespace.is_match(&id.namespace)
    }
}
