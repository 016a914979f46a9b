//! What a client may insist on when it deletes an object.

use serde_json::Value;

use crate::model::status::{Details, Status};
use crate::model::{Minor, Resource, object};
use crate::server::options::DeleteOptions;

/// uid and resourceVersion that the client insists on.
pub(super) fn check_preconditions(
    resource: &Resource,
    name: &str,
    old: &Value,
    options: &DeleteOptions,
    minor: Minor,
) -> Result<(), Status> {
    let (uid, version) = (object::uid(old), object::text(old, "resourceVersion"));
    // Kinds that end in steps have a storage of their own upstream, with its own messages.
    let names_the_resource = resource.strategy.ending.is_some();
    let failed = match minor >= Minor::V37 && resource.group == "apiextensions.k8s.io" {
        true => "precondition failed",
        false => "Precondition failed",
    };
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        if names_the_resource {
            let why = format!("{failed}: UID in precondition: {wanted}, UID in object meta: {uid}");
            return Err(Status::conflict(resource, name, &why));
        }
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have been deleted and then \
             recreated"
        );
        return Err(conflict_of_kind(resource, name, &why));
    }
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != version) {
        if names_the_resource {
            let why = format!(
                "{failed}: ResourceVersion in precondition: {wanted}, ResourceVersion in object meta: {version}"
            );
            return Err(Status::conflict(resource, name, &why));
        }
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({version}). The object might \
             have been modified"
        );
        return Err(conflict_of_kind(resource, name, &why));
    }
    Ok(())
}

/// A conflict that names the kind where others name the resource.
fn conflict_of_kind(resource: &Resource, name: &str, why: &str) -> Status {
    let kind = &resource.kind;
    let group = resource.stored_group();
    let qualified = if group.is_empty() {
        kind.to_string()
    } else {
        format!("{kind}.{group}")
    };
    let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
    Status::failure(409, "Conflict", message).with_details(Details {
        name: name.to_owned(),
        group: group.to_owned(),
        kind: kind.to_string(),
        ..Details::default()
    })
}
