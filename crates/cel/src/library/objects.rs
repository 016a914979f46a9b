//! Objects that expressions of mutating policies construct.

use std::collections::BTreeMap;

use crate::error::Error;
use crate::value::{Object, Text, Value};

/// The object of a declared type: `Object` and the types below it take any field, `JSONPatch` its own.
pub(crate) fn construct<'a>(type_name: &'a str, fields: BTreeMap<Text<'a>, Value<'a>>) -> Result<Object<'a>, Error> {
    if type_name == "JSONPatch" {
        for (name, value) in &fields {
            match (&**name, value) {
                ("op" | "path" | "from", Value::String(_)) | ("value", _) => {}
                ("op" | "path" | "from", other) => {
                    return Err(Error::new(format!(
                        "unexpected type {} for JSONPatchType '{}' field",
                        go_type(other),
                        &**name
                    )));
                }
                (other, _) => return Err(Error::new(format!("unexpected JSONPatchType field: {other}"))),
            }
        }
    } else if type_name != "Object" && !type_name.starts_with("Object.") {
        return Err(Error::new(format!("unknown type: {type_name}")));
    }
    Ok(Object::new(Text::Borrowed(type_name), fields))
}

/// The Go type behind a value.
fn go_type(value: &Value<'_>) -> &'static str {
    match value {
        Value::Null => "structpb.NullValue",
        Value::Bool(_) => "bool",
        Value::Int(_) => "int64",
        Value::Uint(_) => "uint64",
        Value::Double(_) => "float64",
        Value::String(_) | Value::Type(_) => "string",
        Value::Bytes(_) => "[]uint8",
        Value::Duration(_) => "time.Duration",
        Value::Timestamp(_) => "time.Time",
        Value::List(_) => "[]ref.Val",
        Value::Map(_) | Value::Object(_) => "map[string]interface {}",
        Value::Optional(_) | Value::Opaque(_) => "*types.Err",
    }
}
