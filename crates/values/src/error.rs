//! Errors in fields, with Kubernetes' own words (`field.Error` of apimachinery).
//!
//! A [`FieldError`] has the field, the error and the value; its texts are compared with recordings of the real server.
//! Not here: `Status` answers, which the API server builds from these.
//!
//! An error holds a copy of the value that it is about, which may be all that was sent, and there may be as many errors
//! as values: each says how much it holds when it is made and when it is copied (see [`budget::produce`]).

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

use crate::{budget, go, measure};

/// The type of an error in a field (`field.ErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A value is missing.
    Required,
    /// The value is malformed or out of bounds.
    Invalid,
    /// The value has the wrong type.
    TypeInvalid,
    /// The object that the value names does not exist.
    NotFound,
    /// The value stands more than once where it must be unique.
    Duplicate,
    /// The value is not one of those that are known.
    NotSupported,
    /// The field may not be set, or not be changed.
    Forbidden,
    /// A text has too many bytes.
    TooLong,
    /// A list has too many items.
    TooMany,
    /// The server failed, not the client.
    Internal,
}

impl Reason {
    fn title(self) -> &'static str {
        match self {
            Reason::Required => "Required value",
            Reason::Invalid | Reason::TypeInvalid => "Invalid value",
            Reason::NotFound => "Not found",
            Reason::Duplicate => "Duplicate value",
            Reason::NotSupported => "Unsupported value",
            Reason::Forbidden => "Forbidden",
            Reason::TooLong => "Too long",
            Reason::TooMany => "Too many",
            Reason::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Reason::Required | Reason::Forbidden | Reason::TooLong | Reason::Internal
        )
    }
}

/// One error about one field.
#[derive(Debug, PartialEq)]
pub struct FieldError {
    /// The type of the error.
    pub reason: Reason,
    /// The field, such as `spec.containers[0].name`.
    pub field: String,
    /// The value that it had, where the text shows one; none when it is left out.
    pub bad_value: Option<Value>,
    /// Further words; empty when there are none.
    pub detail: String,
}

impl FieldError {
    fn new(reason: Reason, field: String, bad_value: Option<Value>, detail: String) -> FieldError {
        FieldError {
            reason,
            field,
            bad_value,
            detail,
        }
        .counted()
    }

    /// Charges the memory of the error: there may be one for each value of a client, each with a path and a value of
    /// its own.
    pub fn counted(self) -> FieldError {
        let shown = self.bad_value.as_ref().map_or(0, measure::held);
        budget::produce(size_of::<FieldError>() + self.field.len() + self.detail.len() + shown);
        self
    }

    /// `Required value: detail`.
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Required, field.into(), None, detail.into())
    }

    /// `Invalid value: "x": detail`.
    pub fn invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Invalid, field.into(), Some(value.into()), detail.into())
    }

    /// `Invalid value: "x": detail`, for a value of the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: impl Into<Value>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::TypeInvalid, field.into(), Some(value.into()), detail.into())
    }

    /// `Not found: "x"`.
    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(Reason::NotFound, field.into(), Some(value.into()), String::new())
    }

    /// `Duplicate value: "x"`.
    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> FieldError {
        FieldError::new(Reason::Duplicate, field.into(), Some(value.into()), String::new())
    }

    /// `Unsupported value: "x": supported values: "b", "a"`, in the order given: Kubernetes sorts some lists and not
    /// others.
    pub fn not_supported<S: AsRef<str>>(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: &[S],
    ) -> FieldError {
        let supported: Vec<String> = supported.iter().map(|value| quote(value.as_ref())).collect();
        let detail = if supported.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", supported.join(", "))
        };
        FieldError::new(Reason::NotSupported, field.into(), Some(value.into()), detail)
    }

    /// `Forbidden: detail`.
    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Forbidden, field.into(), None, detail.into())
    }

    /// `Too long: may not be more than N bytes`.
    pub fn too_long(field: impl Into<String>, max_bytes: usize) -> FieldError {
        let bytes = if max_bytes == 1 { "byte" } else { "bytes" };
        FieldError::new(
            Reason::TooLong,
            field.into(),
            None,
            format!("may not be more than {max_bytes} {bytes}"),
        )
    }

    /// `Too many: 5: must have at most 3 items`.
    pub fn too_many(field: impl Into<String>, actual: usize, max: usize) -> FieldError {
        let items = if max == 1 { "item" } else { "items" };
        FieldError::new(
            Reason::TooMany,
            field.into(),
            Some(actual.into()),
            format!("must have at most {max} {items}"),
        )
    }

    /// `Internal error: detail`.
    pub fn internal(field: impl Into<String>, detail: impl Into<String>) -> FieldError {
        FieldError::new(Reason::Internal, field.into(), None, detail.into())
    }

    /// The text without the field (`ErrorBody`): the message of a cause.
    pub fn body(&self) -> String {
        self.body_showing(None)
    }

    /// The same with the value of the field shown as this text, such as `kubewright_schema::internal::show` makes it.
    pub fn body_showing(&self, shown: Option<&str>) -> String {
        let mut body = self.reason.title().to_string();
        if let (true, Some(value)) = (self.reason.shows_value(), &self.bad_value) {
            body.push_str(": ");
            body.push_str(&match (shown, value) {
                (Some(shown), _) => shown.to_owned(),
                (None, Value::String(text)) => quote(text),
                (None, Value::Number(number)) if number.is_f64() => number.as_f64().map_or_else(String::new, go::float),
                (None, value) => go_json(value),
            });
            budget::produce(body.len());
        }
        if !self.detail.is_empty() {
            body.push_str(": ");
            body.push_str(&self.detail);
            budget::produce(self.detail.len());
        }
        body
    }

    /// The reason of a cause in a `Status`, such as `FieldValueInvalid`.
    pub fn cause_reason(&self) -> &'static str {
        match self.reason {
            Reason::Required => "FieldValueRequired",
            Reason::Invalid => "FieldValueInvalid",
            Reason::TypeInvalid => "FieldValueTypeInvalid",
            Reason::NotFound => "FieldValueNotFound",
            Reason::Duplicate => "FieldValueDuplicate",
            Reason::NotSupported => "FieldValueNotSupported",
            Reason::Forbidden => "FieldValueForbidden",
            Reason::TooLong => "FieldValueTooLong",
            Reason::TooMany => "FieldValueTooMany",
            Reason::Internal => "InternalError",
        }
    }
}

impl Clone for FieldError {
    fn clone(&self) -> FieldError {
        FieldError::new(
            self.reason,
            self.field.clone(),
            self.bad_value.clone(),
            self.detail.clone(),
        )
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

impl std::error::Error for FieldError {}

/// JSON as Go writes it into texts: safe to stand within HTML, and the fields of a struct without JSON names in the
/// order of their declaration. The only such struct that errors show is the internal form of a validation rule.
fn go_json(value: &Value) -> String {
    const RULE: [&str; 6] = [
        "Rule",
        "Message",
        "MessageExpression",
        "Reason",
        "FieldPath",
        "OptionalOldSelf",
    ];
    let json = match value {
        Value::Object(rule) if rule.len() == RULE.len() && RULE.iter().all(|key| rule.contains_key(*key)) => {
            let fields = RULE.map(|key| format!("\"{key}\":{}", rule[key]));
            format!("{{{}}}", fields.join(","))
        }
        value => value.to_string(),
    };
    go::html_safe(&json)
}

/// Several errors in one text (`ErrorList.ToAggregate`): one stands alone, more stand in brackets, equal ones once.
pub fn aggregate(errors: &[FieldError]) -> String {
    aggregate_texts(errors.iter().map(ToString::to_string))
}

/// The same of texts.
pub fn aggregate_texts(errors: impl IntoIterator<Item = String>) -> String {
    match distinct(errors).as_slice() {
        [one] => one.clone(),
        more => format!("[{}]", more.join(", ")),
    }
}

/// The texts in their order, each once.
pub fn distinct(texts: impl IntoIterator<Item = String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let mut once = Vec::new();
    for text in texts {
        // Texts that are the same but for their ends are compared from the beginning.
        budget::spend_on_text(text.len());
        budget::produce(2 * measure::text_held(text.len()));
        if seen.insert(text.clone()) {
            once.push(text);
        }
    }
    once
}

/// A text in double quotes as Go's `%q` writes it.
pub fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quote_into(text, &mut quoted);
    quoted
}

/// [`quote`] at the end of a text.
pub fn quote_into(text: &str, quoted: &mut String) {
    budget::spend_on_text(text.len());
    quoted.push('"');
    // Most texts stand as they are.
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if text.bytes().all(is_plain) {
        quoted.push_str(text);
        quoted.push('"');
        return;
    }
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\u{b}' => quoted.push_str("\\v"),
            control if (control as u32) < 0x20 || control as u32 == 0x7f => {
                quoted.push_str(&format!("\\x{:02x}", control as u32));
            }
            other if is_printable(other) => quoted.push(other),
            other if (other as u32) < 0x10000 => quoted.push_str(&format!("\\u{:04x}", other as u32)),
            other => quoted.push_str(&format!("\\U{:08x}", other as u32)),
        }
    }
    quoted.push('"');
}

/// Whether Go prints the character as it is. Combining marks are printable there; Rust escapes them only at the start
/// of a text.
fn is_printable(character: char) -> bool {
    if character.is_ascii() || character.escape_debug().len() == 1 {
        return true;
    }
    let mut bytes = [b'a', 0, 0, 0, 0];
    let length = 1 + character.encode_utf8(&mut bytes[1..]).len();
    str::from_utf8(&bytes[..length]).is_ok_and(|text| text.escape_debug().nth(1) == Some(character))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn texts_are_those_of_kubernetes() {
        let check = |error: FieldError, text: &str| assert_eq!(error.to_string(), text);
        check(
            FieldError::required("metadata.name", "name or generateName is required"),
            "metadata.name: Required value: name or generateName is required",
        );
        check(
            FieldError::invalid("spec.replicas", -1, "too small"),
            "spec.replicas: Invalid value: -1: too small",
        );
        check(
            FieldError::invalid("a", "x\"y", "no"),
            "a: Invalid value: \"x\\\"y\": no",
        );
        check(
            FieldError::invalid(
                "spec.selector",
                json!({"matchLabels": {"a": "c"}}),
                "field is immutable",
            ),
            "spec.selector: Invalid value: {\"matchLabels\":{\"a\":\"c\"}}: field is immutable",
        );
        check(
            FieldError::not_supported("dryRun", json!(["Foo"]), &["All"]),
            "dryRun: Unsupported value: [\"Foo\"]: supported values: \"All\"",
        );
        check(
            FieldError::not_supported("p", "x", &["File", "Fallback"]),
            "p: Unsupported value: \"x\": supported values: \"File\", \"Fallback\"",
        );
        check(
            FieldError::invalid("a", "e\u{301}\u{200b}\t", ""),
            "a: Invalid value: \"e\u{301}\\u200b\\t\"",
        );
        check(
            FieldError::too_long("spec.a", 5),
            "spec.a: Too long: may not be more than 5 bytes",
        );
        check(
            FieldError::too_long("spec.a", 1),
            "spec.a: Too long: may not be more than 1 byte",
        );
        check(
            FieldError::too_many("x", 4, 3),
            "x: Too many: 4: must have at most 3 items",
        );
        check(FieldError::duplicate("l[1]", "b"), "l[1]: Duplicate value: \"b\"");
    }

    #[test]
    fn several_errors_stand_in_brackets_and_equal_ones_once() {
        let error = |field: &str| FieldError::required(field, "");
        assert_eq!(aggregate(&[error("a")]), "a: Required value");
        assert_eq!(
            aggregate(&[error("a"), error("b"), error("a")]),
            "[a: Required value, b: Required value]"
        );
    }
}
