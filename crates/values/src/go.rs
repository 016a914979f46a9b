//! Values as Go prints them: clients compare messages, and many of Kubernetes' messages show a value in Go's words.
//!
//! Not here: kube-apiserver's own structs and its decoder's errors about types, which belong to the schemas.

use std::fmt;

use serde_json::Value;

use crate::measure;

/// A value as `%v` prints it out of a tree of plain values: `map[a:1 b:[x y]]`.
///
/// ```
/// use kubewright_values::go;
/// assert_eq!(go::text(&serde_json::json!({"b": [1, "x", null], "a": true})), "map[a:true b:[1 x <nil>]]");
/// ```
pub fn text(value: &Value) -> String {
    measure::shown(&Printed(value))
}

struct Printed<'a>(&'a Value);

impl fmt::Display for Printed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("<nil>"),
            Value::String(text) => f.write_str(text),
            Value::Array(list) => {
                f.write_str("[")?;
                for (index, item) in list.iter().enumerate() {
                    let space = if index == 0 { "" } else { " " };
                    write!(f, "{space}{}", Printed(item))?;
                }
                f.write_str("]")
            }
            Value::Object(map) => {
                f.write_str("map[")?;
                for (index, (key, value)) in map.iter().enumerate() {
                    let space = if index == 0 { "" } else { " " };
                    write!(f, "{space}{key}:{}", Printed(value))?;
                }
                f.write_str("]")
            }
            other => other.fmt(f),
        }
    }
}

/// A float as `%v` prints it.
///
/// ```
/// use kubewright_values::go;
/// assert_eq!(go::float(2.5), "2.5");
/// assert_eq!(go::float(100_000_000.0), "1e+08");
/// ```
pub fn float(number: f64) -> String {
    if number == 0.0 || (1e-4..1e6).contains(&number.abs()) {
        return number.to_string();
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let (sign, digits) = exponent
        .strip_prefix('-')
        .map_or(('+', exponent), |digits| ('-', digits));
    format!("{mantissa}e{sign}{digits:0>2}")
}

/// The type of a value in a tree of plain values, as `%T` prints it. Numbers that no `int64` holds are floats.
///
/// ```
/// use kubewright_values::go;
/// assert_eq!(go::type_name(&serde_json::json!({})), "map[string]interface {}");
/// ```
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// The type of a JSON value, as Go's decoder names it: `cannot unmarshal array into …`.
///
/// ```
/// use kubewright_values::go;
/// assert_eq!(go::json_type(&serde_json::json!(1.5)), "number");
/// ```
pub fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

/// A value that Go's decoder cannot read into a type (`json.UnmarshalTypeError`).
///
/// ```
/// use kubewright_values::go::TypeMismatch;
/// use serde_json::json;
/// let mismatch = TypeMismatch::new(&json!([]), "string");
/// assert_eq!(mismatch.to_string(), "json: cannot unmarshal array into Go value of type string");
/// let text = mismatch.in_field("ObjectMeta", "metadata.name").to_string();
/// assert_eq!(text, "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.name of type string");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeMismatch {
    /// The type of the value; a number of the right type that does not fit has its digits after it.
    pub value: String,
    /// Where the value is a field: its struct, and the path of fields that leads to it.
    pub field: Option<(String, String)>,
    /// The Go type.
    pub type_: String,
}

impl TypeMismatch {
    /// A value that is no field.
    pub fn new(value: &Value, type_: impl Into<String>) -> Self {
        TypeMismatch {
            value: json_type(value).to_owned(),
            field: None,
            type_: type_.into(),
        }
    }

    /// The same at this path in a struct.
    #[must_use]
    pub fn in_field(mut self, of: &str, path: &str) -> Self {
        self.field = Some((of.to_owned(), path.to_owned()));
        self
    }
}

impl fmt::Display for TypeMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TypeMismatch { value, field, type_ } = self;
        match field {
            Some((of, path)) => write!(
                f,
                "json: cannot unmarshal {value} into Go struct field {of}.{path} of type {type_}"
            ),
            None => write!(f, "json: cannot unmarshal {value} into Go value of type {type_}"),
        }
    }
}

/// JSON with the characters escaped that Go's encoder escapes, so that it may stand in HTML.
///
/// ```
/// use kubewright_values::go;
/// assert_eq!(go::html_safe("\"a<b\""), "\"a\\u003cb\"");
/// ```
pub fn html_safe(json: &str) -> String {
    let mut safe = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => safe.push_str(&format!("\\u{:04x}", character as u32)),
            character => safe.push(character),
        }
    }
    safe
}
