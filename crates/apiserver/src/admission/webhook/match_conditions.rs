//! `matchConditions`: CEL expressions that all must hold before a webhook is asked.

use serde_json::Value;

use super::config::Webhook;
use crate::admission::matching::Matched;
use crate::admission::{Attributes, Session};
use crate::model::status::Status;

/// Whether all conditions of a webhook hold for a request; objects in the version that the webhook sees.
///
/// # Errors
/// 403 when one cannot be evaluated, none is false, and the webhook's `failurePolicy` is `Fail`.
pub(super) async fn evaluate(
    hook: &Webhook,
    session: &Session<'_>,
    attributes: &Attributes,
    seen: &Matched,
    object: &Value,
    old: &Value,
) -> Result<bool, Status> {
    let (conditions, fails) = (&hook.conditions, !hook.ignores_failure);
    session
        .settled(|| conditions.evaluate(fails, session, attributes, seen, object, old))
        .await
        .map_err(|why| Status::forbidden(&attributes.resource, &attributes.name, &why))
}
