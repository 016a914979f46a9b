//! `matchConditions`: CEL expressions that all must hold before a webhook is asked.

use serde_json::Value;

use super::config::Webhook;
use crate::admission::matching::Matched;
use crate::admission::{Attributes, Session};
use crate::status::Status;

/// Whether all conditions of a webhook hold for a request.
///
/// # Errors
/// 403 when one cannot be evaluated, none is false, and the webhook's `failurePolicy` is `Fail`.
pub(super) fn evaluate(
    hook: &Webhook,
    _session: &Session<'_>,
    attributes: &Attributes,
    _seen: &Matched,
    _object: &Value,
    _old: &Value,
) -> Result<bool, Status> {
    if hook.conditions.is_empty() {
        return Ok(true);
    }
    if hook.ignores_failure {
        return Ok(false);
    }
    let why = format!(
        "expression '{}' resulted in error: this server does not evaluate match conditions",
        hook.conditions.first().map_or("", |condition| &condition.expression)
    );
    Err(Status::forbidden(&attributes.resource, &attributes.name, &why))
}
