//! Formats of names: `format.dns1123Label().validate(x)` gives the errors, or none.

use super::Opaque;
use super::{Called, url};
use crate::value::Value;
use kubewright_values::formats::is_valid as has_format;
use kubewright_values::names;

/// A format that strings may be checked against.
#[derive(Debug)]
pub struct Format {
    name: &'static str,
    check: fn(&str) -> Vec<String>,
    /// Length of the regular expression behind it, which the cost of a check grows with.
    pub(crate) regex_size: u64,
}

macro_rules! format {
    ($name:literal, $size:literal, $check:expr) => {
        Format {
            name: $name,
            check: $check,
            regex_size: $size,
        }
    };
}

static FORMATS: [Format; 13] = [
    format!("dns1123Label", 30, names::dns1123_label),
    format!("dns1123Subdomain", 60, names::dns1123_subdomain),
    format!("dns1035Label", 30, names::dns1035_label),
    format!("qualifiedName", 60, names::qualified_name),
    format!("dns1123LabelPrefix", 30, |text| names::dns1123_label(&masked(text))),
    format!("dns1123SubdomainPrefix", 60, |text| names::dns1123_subdomain(&masked(
        text
    ))),
    format!("dns1035LabelPrefix", 30, |text| names::dns1035_label(&masked(text))),
    format!("labelValue", 40, names::label_value),
    format!("uri", 1103, |text| url::check_request_uri(text)
        .err()
        .into_iter()
        .collect()),
    format!("uuid", 88, |text| wrong(
        has_format("uuid", text),
        "does not match the UUID format"
    )),
    format!("byte", 84, |text| wrong(has_format("byte", text), "invalid base64")),
    format!("date", 84, |text| wrong(has_format("date", text), "invalid date")),
    format!("datetime", 84, |text| wrong(
        has_format("date-time", text),
        "invalid datetime"
    )),
];

fn wrong(is_right: bool, message: &str) -> Vec<String> {
    if is_right { Vec::new() } else { vec![message.to_owned()] }
}

/// A prefix of a name may end in a dash.
fn masked(text: &str) -> String {
    match text.strip_suffix('-') {
        // Kubernetes drops the character before the dash, too.
        Some(rest) if text.len() > 1 => {
            let mut end = rest.len() - 1;
            while !rest.is_char_boundary(end) {
                end -= 1;
            }
            rest[..end].to_owned() + "a"
        }
        _ => text.to_owned(),
    }
}

fn named(name: &str) -> Option<&'static Format> {
    FORMATS.iter().find(|format| format.name == name)
}

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    let value = |format| Value::Opaque(Opaque::Format(format));
    Some(Ok(match (overload, args) {
        ("format-named", [Value::String(name)]) => match named(name) {
            Some(format) => Value::some(value(format)),
            None => Value::Optional(None),
        },
        ("format-validate", [Value::Opaque(Opaque::Format(format)), Value::String(text)]) => {
            match (format.check)(text) {
                messages if messages.is_empty() => Value::Optional(None),
                messages => Value::some(Value::strings(messages)),
            }
        }
        (_, []) => value(named(overload.strip_prefix("format.")?)?),
        _ => return None,
    }))
}
