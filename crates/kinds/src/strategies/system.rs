//! APIService, and the parts that other kinds share with it.
//!
//! Not here: the APIServices of the server's own versions, which come and go with them.

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::check::{At, Errors, child, ensure, fill, get, keep};
use super::core::decoded_len;
use kubewright_model::facts::locally_available;
use kubewright_model::{MetadataChecks, NameRule, PLAIN, StatusMetadata, Strategy};

pub(super) fn ensure_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        ensure(object, "spec");
        ensure(object, "status");
    }
}

/// A new object has no status yet, even when the client sent one.
pub(super) fn empty_status(object: &mut Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert("status".to_owned(), json!({}));
    }
}

/// How APIServices are written.
pub(crate) const API_SERVICE: Strategy = Strategy {
    status_metadata: StatusMetadata::WrittenBut(&["labels", "annotations", "finalizers", "ownerReferences"]),
    names: NameRule::PathSegment,
    unconditional_update: false,
    any_finalizer: true,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: |object| {
        ensure_status(object);
        if let Some(service) = object
            .as_object_mut()
            .and_then(|object| child(object, "spec"))
            .and_then(|spec| child(spec, "service"))
        {
            fill(service, "port", 443);
        }
    },
    prepare_create: |object, context| {
        empty_status(object);
        if get(object, &["spec", "service"]).is_null() && object.is_object() {
            object["status"]["conditions"] =
                json!([locally_available(&kubewright_model::env::rfc3339(context.env.now()))]);
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: api_service,
    validate_update: |new, _| api_service(new),
    validate_status: |new, _| {
        let mut errors = Errors::default();
        for condition in At::root(new).keys(&["status", "conditions"]).items() {
            // `ValidateAPIServiceStatus`
            errors.one_of_all(&condition.key("status"), &["True", "False", "Unknown"]);
        }
        errors.into_vec()
    },
    ..PLAIN
};

/// `ValidateAPIService`.
fn api_service(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let spec = at.key("spec");
    let (group, version) = (spec.key("group").text(), spec.key("version").text());
    let wanted = format!("{version}.{group}");
    let name = at.keys(&["metadata", "name"]);
    let is_segment = names::path_segment_name(name.text()).is_empty();
    if !name.text().is_empty() && is_segment && name.text() != wanted {
        errors.invalid(&name, format!("must be `spec.version+\".\"+spec.group`: {wanted:?}"));
    }
    if !group.is_empty() {
        errors.messages(&spec.key("group"), names::dns1123_subdomain(group));
    } else if version != "v1" {
        errors.required(
            &spec.key("group"),
            "only v1 may have an empty group and it better be legacy kube",
        );
    }
    errors.messages(&spec.key("version"), names::dns1035_label(version));
    for (field, limit) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        let number = spec.key(field);
        let value = number.int().unwrap_or(0);
        if value <= 0 || value > limit {
            errors.invalid_value(&number, value, format!("must be positive and less than {limit}"));
        }
    }
    let (service, insecure, bundle) = (
        spec.key("service"),
        spec.key("insecureSkipTLSVerify"),
        spec.key("caBundle"),
    );
    if service.present() {
        for field in ["namespace", "name"] {
            if service.key(field).text().is_empty() {
                errors.required(&service.key(field), "");
            }
        }
        let port = service.key("port");
        if port.int().is_some_and(|port| !(1..=65535).contains(&port)) {
            errors.invalid(&port, "port is not valid: must be between 1 and 65535, inclusive");
        }
        if insecure.is_true() && !bundle.text().is_empty() {
            errors.invalid(&insecure, "may not be true if caBundle is present");
        }
    } else {
        if !bundle.text().is_empty() {
            let shown = format!("{} bytes", decoded_len(bundle.text()));
            errors.invalid_value(&bundle, shown, "local APIServices may not have a caBundle");
        }
        if insecure.is_true() {
            errors.invalid(&insecure, "local APIServices may not have insecureSkipTLSVerify");
        }
    }
    errors.into_vec()
}
