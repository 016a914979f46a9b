//! Finding the parameters of a policy: objects of the kind that it names, chosen by a binding.
//!
//! Invariant: a policy sees what a client of that version sees, with the defaults of today and converted.

use std::sync::Arc;

use kubewright_schema::error::aggregate;
use kubewright_schema::labels::Selector;
use kubewright_schema::path::FieldPath;
use serde_json::Value;

use super::super::Session;
use super::compiled::{Binding, Policy};
use crate::model::Resource;
use crate::model::form::full;
use crate::model::object;
use crate::storage::{ListRequest, StoredObject};
use crate::values::get;

/// The row of the kind that a policy takes its parameters from; none when it takes none.
///
/// # Errors
/// The kind is not served.
pub(super) fn kind(session: &Session<'_>, policy: &Policy) -> Result<Option<Arc<Resource>>, String> {
    let Some(kind) = &policy.param_kind else {
        return Ok(None);
    };
    let row = session.kinds().by_kind(&kind.group, &kind.version, &kind.kind);
    row.map(Some)
        .ok_or_else(|| format!("failed to find resource referenced by paramKind: '{kind}'"))
}

/// The parameters for a request in a namespace: null where the policy is to be evaluated without any; nothing where it
/// is not to be evaluated.
///
/// # Errors
/// Why they cannot be found.
pub(super) async fn collect(
    session: &Session<'_>,
    row: Option<&Resource>,
    binding: &Binding,
    namespace: &str,
) -> Result<Vec<Value>, String> {
    let reference = &binding.param_ref;
    let Some(row) = row.filter(|_| !reference.is_null()) else {
        return Ok(vec![Value::Null]);
    };
    let text = |field: &str| get(reference, &[field]).as_str().unwrap_or("");
    let given = text("namespace");
    let within = match (row.namespaced, given.is_empty()) {
        (true, false) => given,
        (true, true) if namespace.is_empty() => {
            let why = "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources";
            return Err(why.to_owned());
        }
        (true, true) => namespace,
        (false, false) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
        (false, true) => "",
    };
    let found = match text("name") {
        "" => select(session, row, within, get(reference, &["selector"]))?,
        name => {
            let key = if within.is_empty() {
                name.to_owned()
            } else {
                format!("{within}/{name}")
            };
            session.storage().get(&row.store, &key).into_iter().collect()
        }
    };
    let found = session.show(row, found).await.map_err(|status| status.message)?;
    let found: Vec<Value> = found.iter().map(|shown| full(row, shown.value())).collect();
    if found.is_empty() && text("parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

fn select(
    session: &Session<'_>,
    row: &Resource,
    within: &str,
    selector: &Value,
) -> Result<Vec<Arc<StoredObject>>, String> {
    let selector = Selector::from_label_selector(selector, &FieldPath::root()).map_err(|errors| aggregate(&errors))?;
    let prefix = if within.is_empty() {
        String::new()
    } else {
        format!("{within}/")
    };
    let request = ListRequest {
        prefix,
        ..ListRequest::default()
    };
    let listed = session
        .storage()
        .list(&row.store, &request)
        .map_err(|error| error.to_string())?;
    let items = listed.items.into_iter().map(|(_, stored)| stored);
    Ok(items
        .filter(|stored| selector.matches(object::labels(stored.value())))
        .collect())
}
