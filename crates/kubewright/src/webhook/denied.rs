//! A refusal, and the `Status` that it becomes.
//!
//! Invariant: codes, reasons and messages are controller-runtime's, so that the output of `kubectl` does not depend on
//! the webhook's language.

use std::fmt;

use kube::core::Status;
use kube::core::response::StatusDetails;

use super::field_errors::FieldErrors;
use super::request::AdmissionRequest;
use crate::error::Error;

/// Why a write is refused. The API server shows it as `admission webhook "…" denied the request: …`.
///
/// ```
/// use kubewright::{Denied, FieldErrors};
///
/// fn check(size: i32, locked: bool) -> Result<(), Denied> {
///     if locked {
///         return Err(Denied::new("the guestbook is locked")); // 403 Forbidden
///     }
///     let mut errors = FieldErrors::new();
///     if size > 100 {
///         errors.invalid("spec.size", size, "must be at most 100");
///     }
///     errors.into_result() // 422 Invalid, with the fields
/// }
/// assert_eq!(check(1, true).unwrap_err().to_string(), "the guestbook is locked");
/// ```
///
/// `?` works on [`kubewright::Error`](crate::Error): a refusal of the API server keeps its status, everything else is
/// an internal error (500) of the webhook, which is not held against the object.
#[derive(Debug)]
pub struct Denied(Why);

#[derive(Debug)]
enum Why {
    /// The fields; kind and name are filled in from the request.
    Fields(FieldErrors),
    Status(Box<Status>),
}

impl Denied {
    /// Refuses with 403 Forbidden and these words (controller-runtime's `admission.Denied`).
    pub fn new(message: impl Into<String>) -> Denied {
        Denied::with_code(403, "Forbidden", message)
    }

    /// Refuses with another code and reason, such as 409 `Conflict` (controller-runtime's `admission.Errored`).
    pub fn with_code(code: u16, reason: &str, message: impl Into<String>) -> Denied {
        Denied::status(Status::failure(&message.into(), reason).with_code(code))
    }

    /// Refuses with a whole status.
    pub fn status(status: Status) -> Denied {
        Denied(Why::Status(Box::new(status)))
    }

    /// The status for the API server.
    pub(super) fn into_status(self, request: &AdmissionRequest) -> Status {
        let errors = match self.0 {
            Why::Status(status) => return *status,
            Why::Fields(errors) => errors,
        };
        let (group, kind) = (request.kind.group.clone(), request.kind.kind.clone());
        let qualified = match group.is_empty() {
            true => kind.clone(),
            false => format!("{kind}.{group}"),
        };
        let message = match errors.is_empty() {
            true => format!("{qualified} {:?} is invalid", request.name),
            false => format!("{qualified} {:?} is invalid: {errors}", request.name),
        };
        let mut status = Status::failure(&message, "Invalid").with_code(422);
        status.details = Some(StatusDetails {
            name: request.name.clone(),
            group,
            kind,
            causes: errors.causes(),
            uid: String::new(),
            retry_after_seconds: 0,
        });
        status
    }
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Why::Fields(errors) => errors.fmt(f),
            Why::Status(status) => f.write_str(&status.message),
        }
    }
}

impl std::error::Error for Denied {}

impl From<FieldErrors> for Denied {
    fn from(errors: FieldErrors) -> Denied {
        Denied(Why::Fields(errors))
    }
}

impl From<&str> for Denied {
    fn from(message: &str) -> Denied {
        Denied::new(message)
    }
}

impl From<String> for Denied {
    fn from(message: String) -> Denied {
        Denied::new(message)
    }
}

impl From<Error> for Denied {
    fn from(error: Error) -> Denied {
        match error.status() {
            Some(status) => Denied::status(status.clone()),
            None => Denied::with_code(500, "InternalError", error.to_string()),
        }
    }
}

impl From<kube::Error> for Denied {
    fn from(error: kube::Error) -> Denied {
        Error::from(error).into()
    }
}

impl From<serde_json::Error> for Denied {
    fn from(error: serde_json::Error) -> Denied {
        Error::from(error).into()
    }
}
