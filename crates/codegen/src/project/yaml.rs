//! PROJECT as YAML: keys in order, lists not indented, as kubebuilder writes it.

use std::fmt::Write;

use serde_json::Value;

/// The text of a document.
pub(super) fn print(value: &Value) -> String {
    let mut text = String::new();
    block(value, 0, &mut text);
    text
}

/// Writes the entries of a mapping or list, each beginning at `indent` columns.
fn block(value: &Value, indent: usize, text: &mut String) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                let _ = write!(text, "{:indent$}{}:", "", plain(key));
                entry(value, if value.is_array() { indent } else { indent + 2 }, text);
            }
        }
        Value::Array(items) => {
            for item in items {
                let mut inner = String::new();
                if is_block(item) {
                    block(item, indent + 2, &mut inner);
                } else {
                    inner = format!("{:indent$}  {}\n", "", scalar(item));
                }
                inner.replace_range(indent..=indent, "-");
                text.push_str(&inner);
            }
        }
        other => {
            let _ = writeln!(text, "{:indent$}{}", "", scalar(other));
        }
    }
}

fn entry(value: &Value, indent: usize, text: &mut String) {
    if is_block(value) {
        text.push('\n');
        block(value, indent, text);
    } else {
        let _ = writeln!(text, " {}", scalar(value));
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Object(fields) => !fields.is_empty(),
        Value::Array(items) => !items.is_empty(),
        _ => false,
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        other => other.to_string(),
    }
}

/// A text without quotes where it is read back as the same text; with JSON's otherwise, which are YAML's, too.
fn plain(text: &str) -> String {
    let harmless = |c: char| c.is_ascii_alphanumeric() || "-_./@:".contains(c);
    let begins = text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '/');
    let read_back =
        || kubewright_schema::decode::yaml(text.as_bytes()).is_ok_and(|decoded| decoded.value.as_str() == Some(text));
    if begins && text.chars().all(harmless) && read_back() {
        text.to_owned()
    } else {
        Value::from(text).to_string()
    }
}
