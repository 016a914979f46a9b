//! When `metadata.generation` grows.

use serde_json::Value;

use crate::model::{GenerationRule, Resource, object};
use crate::values::get;

/// Whether two objects are the same but for some of their fields.
fn same_beside(new: &Value, old: &Value, fields: &[&str]) -> bool {
    match (new, old) {
        (Value::Object(new), Value::Object(old)) => {
            let kept = |(field, _): &(&String, &Value)| !fields.contains(&field.as_str());
            new.iter().filter(kept).eq(old.iter().filter(kept))
        }
        (new, old) => new.is_object() == old.is_object(),
    }
}

/// Raises `metadata.generation` when the kind's rule says so, or when an absent list is empty now and the kind takes
/// that for a change.
pub(super) fn count_generation(resource: &Resource, new: &mut Value, old: &Value, emptied: bool) {
    let spec = || new.get("spec") != old.get("spec");
    let metadata = |field: &str| get(new, &["metadata", field]) != get(old, &["metadata", field]);
    let beside = |fields: &[&str]| !same_beside(new, old, fields);
    let counts = match resource.strategy.generation {
        GenerationRule::Never => false,
        GenerationRule::Spec => spec(),
        GenerationRule::SpecOrAnnotations => spec() || metadata("annotations"),
        GenerationRule::AllButMetadataAndStatus => beside(&["metadata", "status"]),
        GenerationRule::AllButMetadataOrLabels => beside(&["metadata"]) || metadata("labels"),
        GenerationRule::AllButMetadata => beside(&["metadata"]),
    };
    if counts || emptied {
        let generation = object::generation(old) + 1;
        object::metadata_mut(new).insert("generation".to_owned(), Value::from(generation));
    }
}
