//! From one version of a kind to another.
//!
//! Built-in kinds move through their stored form; versions of a custom kind have the same fields, so that only `apiVersion` changes.

use serde_json::Value;

use super::options::FieldValidation;
use super::{Inner, decode};
use crate::registry::{Resource, Snapshot};
use crate::server::respond::with_kind;
use crate::status::Status;

impl Inner {
    /// The object in another version of its kind.
    pub(crate) async fn convert(&self, object: Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
        if from.version == to.version && from.group == to.group {
            return Ok(object);
        }
        let stored = match from.conversion {
            Some(conversion) => (conversion.to_stored)(object),
            None => object,
        };
        let shown = match to.conversion {
            Some(conversion) => (conversion.from_stored)(stored),
            None => stored,
        };
        Ok(with_kind(to, shown))
    }
}

/// Makes an object of its kind out of what a patch left.
///
/// # Errors
/// What Go's decoder says about an object that does not fit.
pub(crate) fn decode_patched(object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), String> {
    decode::check_kind(object, resource, kinds).map_err(|status| status.message)?;
    // Unknown fields are dropped without a word, as Go's decoder does.
    decode::fit(object, resource, Vec::new(), None)?;
    Ok(())
}

/// Makes an object of its kind out of what a patch left, with defaults; unknown fields are errors, but those of custom resources are dropped.
///
/// # Errors
/// What Go's strict decoder says about an object that does not fit.
pub(crate) fn complete_strictly(object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), String> {
    decode::check_kind(object, resource, kinds).map_err(|status| status.message)?;
    let findings = decode::fit(object, resource, Vec::new(), None)?;
    if resource.custom.is_none() {
        findings.apply(FieldValidation::Strict, &mut Vec::new())?;
    }
    super::write::default(object, resource);
    Ok(())
}
