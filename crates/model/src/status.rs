//! The `Status` object: how the API says that something went wrong, or that it went well without an object to show.
//!
//! Every error is one of these, with the code, reason and message that kube-apiserver uses for it: clients branch on
//! them. Not here: turning a Status into a response (see `server::respond`).

use std::borrow::Cow;

use kubewright_schema::budget::{self, Exhausted};
use kubewright_schema::error::{FieldError, aggregate_texts, distinct};
use kubewright_schema::{Minor, internal};
use serde_json::{Map, Value, json};

use crate::Resource;

/// How many errors in fields one answer tells; it says how many more there are. kube-apiserver tells all.
const MAX_SHOWN: usize = 1000;

/// A `metav1.Status`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable reason such as `NotFound`; empty when upstream gives none. A webhook may set any.
    pub reason: Cow<'static, str>,
    /// Text for people.
    pub message: String,
    /// The object that the status is about.
    pub details: Option<Box<Details>>,
    /// `metadata` (a `ListMeta`): the `continue` with which an expired list may go on, and the metadata of a webhook's
    /// status.
    pub metadata: Map<String, Value>,
    /// Whether it reports success (`status: Success`).
    pub success: bool,
    /// `Warning` texts that were collected before the failure, for the response's headers; no part of the object.
    pub warnings: Vec<String>,
}

/// `metav1.StatusDetails`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// Group of the kind.
    pub group: String,
    /// Kind, or the plural resource name where upstream uses that.
    pub kind: String,
    /// Uid of the object.
    pub uid: String,
    /// Single causes, such as fields.
    pub causes: Vec<Cause>,
    /// Seconds after which a client may try again; 0 is absent.
    pub retry_after_seconds: u32,
}

/// `metav1.StatusCause`.
#[derive(Clone, Debug, PartialEq)]
pub struct Cause {
    /// Machine-readable reason such as `FieldValueInvalid`.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// Path of the field, or empty.
    pub field: String,
}

impl From<&FieldError> for Cause {
    fn from(error: &FieldError) -> Cause {
        Cause {
            reason: error.cause_reason().to_owned(),
            message: error.body(),
            field: error.field.clone(),
        }
    }
}

/// The error about a field of this kind, its value shown as kube-apiserver shows it.
pub fn body(group: &str, kind: &str, error: &FieldError) -> String {
    let shown = error
        .bad_value
        .as_ref()
        .and_then(|value| internal::show(Minor::OLDEST, group, kind, &error.field, value));
    error.body_showing(shown.as_deref())
}

/// A text of an answer, which stands in it several times before it is sent.
fn produced(text: String) -> String {
    const COPIES: usize = 2;
    budget::produce(COPIES * text.len());
    text
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for Status {}

fn about(resource: &Resource, name: &str) -> Details {
    Details {
        name: name.to_owned(),
        group: resource.group.to_string(),
        kind: resource.plural.to_string(),
        ..Details::default()
    }
}

/// The messages of answers that say no more than their code (`NewGenericServerResponse`).
pub(crate) const NO_SUCH_PATH: &str = "the server could not find the requested resource";
pub(crate) const METHOD_NOT_ALLOWED: &str = "the server does not allow this method on the requested resource";
pub(crate) const INVALID: &str = "the server rejected our request due to an error in our request";

impl Status {
    /// A failure with a code, a reason and a message.
    pub fn failure(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Status {
        Status {
            code,
            reason: reason.into(),
            message: message.into(),
            ..Status::default()
        }
    }

    /// The same with empty `details: {}`, where upstream sends them so.
    pub fn with_empty_details(mut self) -> Status {
        self.details = Some(Box::default());
        self
    }

    /// The same with details.
    pub fn with_details(mut self, details: Details) -> Status {
        self.details = Some(Box::new(details));
        self
    }

    /// 400 BadRequest.
    pub fn bad_request(message: impl Into<String>) -> Status {
        Status::failure(400, "BadRequest", message)
    }

    /// 500 InternalError (`NewInternalError`), with the error as its cause.
    pub fn internal(why: &str) -> Status {
        let cause = Cause {
            reason: String::new(),
            message: why.to_owned(),
            field: String::new(),
        };
        Status::failure(500, "InternalError", format!("Internal error occurred: {why}")).with_details(Details {
            causes: vec![cause],
            ..Details::default()
        })
    }

    /// 404 for an object.
    pub fn not_found(resource: &Resource, name: &str) -> Status {
        let message = format!("{} \"{name}\" not found", resource.group_resource());
        Status::failure(404, "NotFound", message).with_details(about(resource, name))
    }

    /// 404 for a namespace.
    pub fn namespace_not_found(name: &str) -> Status {
        let details = Details {
            name: name.to_owned(),
            kind: "namespaces".to_owned(),
            ..Details::default()
        };
        Status::failure(404, "NotFound", format!("namespaces \"{name}\" not found")).with_details(details)
    }

    /// 404 for a path that names nothing.
    pub fn no_such_path() -> Status {
        Status::failure(404, "NotFound", NO_SUCH_PATH).with_empty_details()
    }

    /// 405.
    pub fn method_not_allowed() -> Status {
        Status::failure(405, "MethodNotAllowed", METHOD_NOT_ALLOWED).with_empty_details()
    }

    /// 422 without causes, as upstream answers a patch that cannot be applied.
    pub fn inapplicable() -> Status {
        Status::failure(422, "Invalid", INVALID).with_empty_details()
    }

    /// 405 of a path that is there, but not for this verb.
    pub fn not_supported(resource: &Resource, verb: &str) -> Status {
        let message = format!(
            "{verb} is not supported on resources of kind {:?}",
            resource.group_resource()
        );
        Status::failure(405, "MethodNotAllowed", message).with_details(about(resource, ""))
    }

    /// 409 for a name that is taken. A terminating holder of the name is said to be one.
    pub fn already_exists(resource: &Resource, name: &str, terminating: bool) -> Status {
        let prefix = if terminating { "object is being deleted: " } else { "" };
        let message = format!("{prefix}{} \"{name}\" already exists", resource.group_resource());
        Status::failure(409, "AlreadyExists", message).with_details(about(resource, name))
    }

    /// The same of an object that says how its name is to begin (`NewGenerateNameConflict`).
    pub fn no_unique_name(resource: &Resource, name: &str, terminating: bool) -> Status {
        let mut status = Status::already_exists(resource, name, terminating);
        status.message += ", the server was not able to generate a unique name for the object";
        if let Some(details) = &mut status.details {
            details.retry_after_seconds = 1;
        }
        status
    }

    /// 409 Conflict: `Operation cannot be fulfilled on …`.
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Status {
        let message = format!(
            "Operation cannot be fulfilled on {} \"{name}\": {why}",
            resource.group_resource()
        );
        Status::failure(409, "Conflict", message).with_details(about(resource, name))
    }

    /// 409 for a write that names a version that is not the present one.
    pub fn modified(resource: &Resource, name: &str) -> Status {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Status::conflict(resource, name, why)
    }

    /// 403 for an object.
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Status {
        let what = if name.is_empty() {
            resource.group_resource()
        } else {
            format!("{} \"{name}\"", resource.group_resource())
        };
        Status::failure(403, "Forbidden", format!("{what} is forbidden: {why}")).with_details(about(resource, name))
    }

    /// 422 Invalid, with a cause for each field. `group` and `kind` are those of the object or of the options.
    pub fn invalid(group: &str, kind: &str, name: &str, errors: &[FieldError]) -> Status {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        let (shown, omitted) = errors.split_at(errors.len().min(MAX_SHOWN));
        let causes: Vec<Cause> = shown
            .iter()
            .map(|error| Cause {
                message: produced(body(group, kind, error)),
                reason: error.cause_reason().to_owned(),
                field: error.field.clone(),
            })
            .collect();
        let mut texts = distinct(
            causes
                .iter()
                .map(|cause| produced(format!("{}: {}", cause.field, cause.message))),
        );
        if !omitted.is_empty() {
            texts.push(format!("and {} more errors", omitted.len()));
        }
        let message = format!("{qualified} \"{name}\" is invalid: {}", aggregate_texts(texts));
        Status::failure(422, "Invalid", message).with_details(Details {
            name: name.to_owned(),
            group: group.to_owned(),
            kind: kind.to_owned(),
            causes,
            ..Details::default()
        })
    }

    /// 422 Invalid for query or body options such as `CreateOptions`.
    pub fn invalid_options(kind: &str, errors: &[FieldError]) -> Status {
        Status::invalid("meta.k8s.io", kind, "", errors)
    }

    /// 500 without a reason, as upstream answers errors that it has not typed.
    pub fn untyped(message: impl Into<String>) -> Status {
        Status::failure(500, "", message)
    }

    /// 410: the version that was asked for is no longer known; the client must list again.
    pub fn expired(message: impl Into<String>) -> Status {
        Status::failure(410, "Expired", message)
    }

    /// 501: a part of the API that this server does not have, in words.
    pub fn not_implemented(message: impl Into<String>) -> Status {
        Status::failure(501, "NotImplemented", message)
    }

    /// 415 naming the accepted types.
    pub fn unsupported_media_type(accepted: &str) -> Status {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        Status::failure(415, "UnsupportedMediaType", message)
    }

    /// 413 for a body over the limit.
    pub fn body_too_large(limit: usize) -> Status {
        Status::failure(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 413 for a request that was cancelled because it costs more than any may.
    pub fn too_costly(why: Exhausted) -> Status {
        let message = format!("Request entity too large: {why}; send less at once");
        Status::failure(413, "RequestEntityTooLarge", message)
    }

    /// 504 for a request whose time is up (`NewTimeoutError`).
    pub fn timed_out(why: &str) -> Status {
        Status::failure(504, "Timeout", format!("Timeout: {why}")).with_empty_details()
    }

    /// 504 for a version that this server has not reached.
    pub fn too_large_version(asked: u64, current: u64) -> Status {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        Status::failure(504, "Timeout", message).with_details(Details {
            causes: vec![Cause {
                reason: "ResourceVersionTooLarge".to_owned(),
                message: "Too large resource version".to_owned(),
                field: String::new(),
            }],
            retry_after_seconds: 1,
            ..Details::default()
        })
    }

    /// Success of a delete: the deleted object, no code.
    pub fn deleted(resource: &Resource, name: &str, uid: &str) -> Status {
        let details = Details {
            uid: uid.to_owned(),
            ..about(resource, name)
        };
        Status {
            success: true,
            details: Some(Box::new(details)),
            ..Status::default()
        }
    }

    /// Success of a subresource that has no object to show (201).
    pub fn created() -> Status {
        Status {
            success: true,
            code: 201,
            ..Status::default()
        }
    }

    /// The HTTP code of the response; a success without a code is 200.
    pub fn http_code(&self) -> u16 {
        if self.code == 0 { 200 } else { self.code }
    }

    /// The object as it goes over the wire.
    pub fn to_value(&self) -> Value {
        let mut object = Map::new();
        object.insert("kind".to_owned(), json!("Status"));
        object.insert("apiVersion".to_owned(), json!("v1"));
        object.insert("metadata".to_owned(), Value::Object(self.metadata.clone()));
        object.insert(
            "status".to_owned(),
            json!(if self.success { "Success" } else { "Failure" }),
        );
        let mut put = |key: &str, text: &str| {
            if !text.is_empty() {
                object.insert(key.to_owned(), json!(text));
            }
        };
        put("message", &self.message);
        put("reason", &self.reason);
        if let Some(details) = &self.details {
            object.insert("details".to_owned(), details.to_value());
        }
        if self.code != 0 {
            object.insert("code".to_owned(), json!(self.code));
        }
        Value::Object(object)
    }
}

impl Details {
    fn to_value(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ] {
            if !text.is_empty() {
                object.insert(key.to_owned(), json!(text));
            }
        }
        if !self.causes.is_empty() {
            object.insert("causes".to_owned(), self.causes.iter().map(Cause::to_value).collect());
        }
        if self.retry_after_seconds > 0 {
            object.insert("retryAfterSeconds".to_owned(), json!(self.retry_after_seconds));
        }
        Value::Object(object)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut object = Map::new();
        for (key, text) in [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ] {
            if !text.is_empty() {
                object.insert(key.to_owned(), json!(text));
            }
        }
        Value::Object(object)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wire_form_leaves_out_what_is_empty() {
        let status = Status::untyped("resourceVersion should not be set on objects to be created").to_value();
        assert_eq!(
            status,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500,
                   "message": "resourceVersion should not be set on objects to be created"})
        );
        let path = Status::no_such_path().to_value();
        assert_eq!(path["details"], json!({}));
        assert_eq!(
            Status::created().to_value(),
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201})
        );
    }

    #[test]
    fn a_future_version_says_when_to_come_back() {
        let status = Status::too_large_version(9, 4).to_value();
        assert_eq!(status["message"], "Timeout: Too large resource version: 9, current: 4");
        assert_eq!(status["details"]["retryAfterSeconds"], 1);
    }
}
