//! The plugin ResourceQuota: what would exceed a quota of its namespace is refused, and what is let through is entered in its status.
//!
//! It is the last plugin, so that nothing is charged for what another one refuses. Every write is first held against all quotas and then
//! charged to each of them by compare-and-swap: who is second in a race is held against what the first has left.
//!
//! What is charged and then not stored after all (the name is taken) stays charged until the controller counts again, as upstream.
//! Not here: the counting itself (see [`crate::quota`]).

use serde_json::Value;

use super::{Admission, Admitted, Attributes, Session};
use crate::model::object;
use crate::model::status::Status;
use crate::quota::{self, Evaluator, Write};
use crate::storage::ListRequest;

/// Holds writes against the ResourceQuotas of their namespace.
#[derive(Debug, Default)]
pub struct ResourceQuotas;

impl ResourceQuotas {
    async fn check(
        evaluator: Evaluator,
        session: &Session<'_>,
        attributes: &Attributes,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), Status> {
        let (resource, namespace) = (&attributes.resource, &attributes.namespace);
        let write = Write {
            evaluator: &evaluator,
            operation: attributes.operation,
            subresource: &attributes.subresource,
            object,
            old,
            now: session.env().now(),
        };
        let refused = |why: String| Status::forbidden(resource, &attributes.name, &why);
        let charged = fits(session, namespace, &write)?.map_err(&refused)?;
        if attributes.dry_run {
            return Ok(());
        }
        for name in charged {
            let charge = |present: &Value| {
                if !write.concerns(present).map_err(&refused)? {
                    return Ok(present.clone());
                }
                let used = write.charge(present).map_err(&refused)?;
                let mut next = present.clone();
                if let (Some(used), Some(status)) = (used, next.get_mut("status").and_then(Value::as_object_mut)) {
                    status.insert("used".to_owned(), quota::to_value(&used));
                }
                Ok(next)
            };
            session.update_quota(namespace, &name, charge).await?;
        }
        Ok(())
    }
}

/// The names of the quotas that a write is to be charged to, or why it does not fit.
fn fits(session: &Session<'_>, namespace: &str, write: &Write<'_>) -> Result<Result<Vec<String>, String>, Status> {
    let request = ListRequest {
        prefix: format!("{namespace}/"),
        ..ListRequest::default()
    };
    let listed = session.storage().list("resourcequotas", &request);
    let listed = listed.map_err(|error| Status::untyped(error.to_string()))?;
    let quotas = || listed.items.iter().map(|(_, quota)| quota.value());
    let fits = || {
        // What an object lacks is said before what it exceeds, whichever quota comes first.
        let mut concerned = Vec::new();
        for quota in quotas() {
            if write.concerns(quota)? {
                concerned.push(quota);
            }
        }
        let mut charged = Vec::new();
        for quota in concerned {
            if write.charge(quota)?.is_some() {
                charged.push(object::name(quota).to_owned());
            }
        }
        Ok(charged)
    };
    Ok(fits())
}

impl Admission for ResourceQuotas {
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let resource = &attributes.resource;
        if !resource.namespaced || attributes.namespace.is_empty() {
            return Admitted::YES;
        }
        match Evaluator::of(&resource.group, &resource.plural) {
            Some(evaluator) if evaluator.handles(attributes.operation, &attributes.subresource) => {
                Admitted::later(ResourceQuotas::check(evaluator, session, attributes, object, old))
            }
            _ => Admitted::YES,
        }
    }
}
