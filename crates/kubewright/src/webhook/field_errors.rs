//! Errors in single fields, in the words of Kubernetes' own validation (`field.ErrorList`).
//!
//! Invariant: texts and reasons are those of `k8s.io/apimachinery`'s `field.Error`, so that clients treat our refusals
//! as they treat the API server's own.

use std::fmt;

use kube::core::response::StatusCause;
use serde::Serialize;
use serde_json::Value;

use super::denied::Denied;

/// A list of errors about fields; empty means valid (`field.ErrorList`).
///
/// Paths are written as users know them: `spec.containers[0].image`, `metadata.labels[app]`. [`field_path`] puts them
/// together.
///
/// ```
/// use kubewright::FieldErrors;
///
/// let mut errors = FieldErrors::new();
/// errors.required("spec.title", "every guestbook has one");
/// errors.invalid("spec.size", 101, "must be at most 100");
/// errors.not_supported("spec.mode", "Loud", ["Quiet", "Silent"]);
/// assert_eq!(
///     errors.to_string(),
///     r#"[spec.title: Required value: every guestbook has one, spec.size: Invalid value: 101: must be at most 100, spec.mode: Unsupported value: "Loud": supported values: "Quiet", "Silent"]"#
/// );
/// assert!(errors.into_result().is_err());
/// assert!(FieldErrors::new().into_result().is_ok());
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct FieldErrors(Vec<FieldError>);

#[derive(Debug, Clone, PartialEq)]
struct FieldError {
    field: String,
    /// The reason of the cause, such as `FieldValueInvalid`.
    reason: &'static str,
    /// The text behind the path, such as `Invalid value: 101: must be at most 100`.
    body: String,
}

/// Puts a path together: names are joined by dots, indices and keys stand in brackets.
///
/// ```
/// use kubewright::webhook::field_path;
/// assert_eq!(field_path("spec.containers", 0), "spec.containers[0]");
/// assert_eq!(field_path("metadata.labels", "app"), "metadata.labels[app]");
/// ```
pub fn field_path(parent: impl fmt::Display, index_or_key: impl fmt::Display) -> String {
    format!("{parent}[{index_or_key}]")
}

/// A value as Kubernetes prints it in an error: strings quoted, composite values as JSON.
fn shown(value: &impl Serialize) -> String {
    serde_json::to_value(value)
        .unwrap_or(Value::Null) // a value that is no JSON, such as a map with composite keys: its path says where to look
        .to_string()
}

fn body(kind: &str, value: Option<String>, detail: &str) -> String {
    let mut body = kind.to_owned();
    for part in value.iter().map(String::as_str).chain(Some(detail)) {
        if !part.is_empty() {
            body.push_str(": ");
            body.push_str(part);
        }
    }
    body
}

impl FieldErrors {
    /// No errors yet.
    pub fn new() -> FieldErrors {
        FieldErrors::default()
    }

    fn push(&mut self, field: impl Into<String>, reason: &'static str, body: String) {
        let field = field.into();
        self.0.push(FieldError { field, reason, body });
    }

    /// The value is not allowed (`field.Invalid`): `spec.size: Invalid value: 101: must be at most 100`.
    pub fn invalid(&mut self, field: impl Into<String>, value: impl Serialize, detail: impl AsRef<str>) {
        let body = body("Invalid value", Some(shown(&value)), detail.as_ref());
        self.push(field, "FieldValueInvalid", body);
    }

    /// The field must be set (`field.Required`): `spec.title: Required value: every guestbook has one`.
    pub fn required(&mut self, field: impl Into<String>, detail: impl AsRef<str>) {
        let body = body("Required value", None, detail.as_ref());
        self.push(field, "FieldValueRequired", body);
    }

    /// The field must not be set or changed (`field.Forbidden`): `spec.type: Forbidden: is immutable`.
    pub fn forbidden(&mut self, field: impl Into<String>, detail: impl AsRef<str>) {
        let body = body("Forbidden", None, detail.as_ref());
        self.push(field, "FieldValueForbidden", body);
    }

    /// The value occurs twice (`field.Duplicate`): `spec.names[1]: Duplicate value: "a"`.
    pub fn duplicate(&mut self, field: impl Into<String>, value: impl Serialize) {
        let body = body("Duplicate value", Some(shown(&value)), "");
        self.push(field, "FieldValueDuplicate", body);
    }

    /// The value names an object that does not exist (`field.NotFound`): `spec.secretName: Not found: "password"`.
    pub fn not_found(&mut self, field: impl Into<String>, value: impl Serialize) {
        let body = body("Not found", Some(shown(&value)), "");
        self.push(field, "FieldValueNotFound", body);
    }

    /// The value is none of a list (`field.NotSupported`): `spec.mode: Unsupported value: "Loud": supported values:
    /// "Quiet", "Silent"`.
    pub fn not_supported<T: AsRef<str>>(
        &mut self,
        field: impl Into<String>,
        value: impl Serialize,
        supported: impl IntoIterator<Item = T>,
    ) {
        let quoted: Vec<String> = supported.into_iter().map(|value| shown(&value.as_ref())).collect();
        let detail = match quoted.is_empty() {
            true => String::new(),
            false => format!("supported values: {}", quoted.join(", ")),
        };
        let body = body("Unsupported value", Some(shown(&value)), &detail);
        self.push(field, "FieldValueNotSupported", body);
    }

    /// The text has more than `max` bytes (`field.TooLong`): `spec.title: Too long: may not be more than 63 bytes`.
    pub fn too_long(&mut self, field: impl Into<String>, max: usize) {
        let body = format!(
            "Too long: may not be more than {max} byte{}",
            if max == 1 { "" } else { "s" }
        );
        self.push(field, "FieldValueTooLong", body);
    }

    /// The list has more than `max` items (`field.TooMany`): `spec.names: Too many: 3: must have at most 2 items`.
    pub fn too_many(&mut self, field: impl Into<String>, actual: usize, max: usize) {
        let body = format!(
            "Too many: {actual}: must have at most {max} item{}",
            if max == 1 { "" } else { "s" }
        );
        self.push(field, "FieldValueTooMany", body);
    }

    /// Adds the errors of another list.
    pub fn extend(&mut self, others: FieldErrors) {
        self.0.extend(others.0);
    }

    /// Whether there is no error.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many errors there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// `Ok` without errors, else a refusal with 422 Invalid and one cause for each error.
    ///
    /// # Errors
    /// [`Denied`] with these errors.
    pub fn into_result(self) -> Result<(), Denied> {
        if self.is_empty() { Ok(()) } else { Err(self.into()) }
    }

    /// The entries of `Status.details.causes`.
    pub(super) fn causes(&self) -> Vec<StatusCause> {
        let cause = |error: &FieldError| StatusCause {
            reason: error.reason.to_owned(),
            message: error.body.clone(),
            field: error.field.clone(),
        };
        self.0.iter().map(cause).collect()
    }
}

impl fmt::Display for FieldErrors {
    /// One error as it is, several in brackets, none twice, as Go's aggregate prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut texts: Vec<String> = Vec::new();
        for error in &self.0 {
            let text = body(&error.field, None, &error.body);
            if !texts.contains(&text) {
                texts.push(text);
            }
        }
        match texts.as_slice() {
            [one] => f.write_str(one),
            several => write!(f, "[{}]", several.join(", ")),
        }
    }
}
