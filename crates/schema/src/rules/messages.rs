//! Where the error of a rule stands, and how it reads.

use serde_json::Value;

use super::Rule;
use crate::error::{FieldError, Reason};
use crate::path::FieldPath;
use crate::schema::Schema;

/// The field that `fieldPath` names, from the place of the rule, or none when it names none of the schema's.
///
/// The path is made of `.name` and `['name']`.
pub(crate) fn follow(path: &str, schema: &Schema) -> Option<FieldPath> {
    let (mut rest, mut at, mut schema) = (path, FieldPath::root(), schema);
    while !rest.is_empty() {
        let name;
        (name, rest) = step(rest)?;
        let next = if schema.properties.is_empty() {
            at = at.map_key(&name);
            schema.additional_properties.as_ref()?
        } else {
            at = at.key(&name);
            schema.properties.get(&name)?
        };
        schema = next.get();
    }
    Some(at)
}

/// The first name of a path, and the rest.
fn step(path: &str) -> Option<(String, &str)> {
    if let Some(rest) = path.strip_prefix('.') {
        let end = rest.find(['.', '[', ']']).unwrap_or(rest.len());
        return (end > 0).then(|| (rest[..end].to_owned(), &rest[end..]));
    }
    let quoted = path.strip_prefix("['")?;
    let mut name = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => return Some((name, quoted[at + 1..].strip_prefix(']')?)),
            '\\' => name.push(match chars.next()?.1 {
                'a' => '\u{7}',
                'b' => '\u{8}',
                'f' => '\u{c}',
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                'v' => '\u{b}',
                c @ ('\'' | '\\') => c,
                _ => return None,
            }),
            c => name.push(c),
        }
    }
    None
}

/// The error of a rule that does not hold. Objects and lists are not shown.
pub(super) fn violation(at: &FieldPath, value: &Value, rule: &Rule, detail: String) -> FieldError {
    let shown = (!value.is_object() && !value.is_array()).then(|| value.clone());
    let reason = match rule.reason.as_deref() {
        Some("FieldValueForbidden") => return FieldError::forbidden(at, detail),
        Some("FieldValueRequired") => return FieldError::required(at, detail),
        Some("FieldValueDuplicate") => Reason::Duplicate,
        _ => Reason::Invalid,
    };
    FieldError {
        reason,
        field: at.to_string(),
        bad_value: shown,
        detail: if reason == Reason::Duplicate {
            String::new()
        } else {
            detail
        },
    }
}
