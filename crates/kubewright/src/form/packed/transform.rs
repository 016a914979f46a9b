//! A change of objects before they are kept, or before they are read.
//!
//! Invariant: the object stays the same one; see `cache/transform.rs`, which has the transforms of a manager.

use std::sync::Arc;

use super::Head;
use crate::form::cut;

/// From the text of an object to the text that is kept; or why there is none.
pub(crate) type Transform = Arc<dyn Fn(&str) -> Result<String, String> + Send + Sync>;

/// The text of an object after its transform, and where its id stands in that.
///
/// # Errors
/// Why there is none.
pub(crate) fn transformed(transform: &Transform, text: &str, head: &Head) -> Result<(String, Head), String> {
    let changed = transform(text)?;
    let mut lean = Vec::with_capacity(changed.len());
    let after = cut::lean(changed.as_bytes(), None, &mut lean).ok_or("its transform left no object")?;
    let lean = String::from_utf8(lean).map_err(|error| error.to_string())?;
    if head.object_id(text) != after.object_id(&lean) {
        return Err("its transform changed which object it is (name, namespace, uid or resourceVersion)".to_owned());
    }
    Ok((lean, after))
}
