//! JSON as the schema of its resource declares it.

use std::rc::Rc;

use serde_json::Value as Json;

use super::time;
use super::{Duration, List, Map, Text, Timestamp, Value};
use crate::error::Error;
use crate::types::{Decl, Type};

/// The value of `json`.
pub(super) fn convert<'a>(json: &'a Json, decl: &'a Decl) -> Result<Value<'a>, Error> {
    if json.is_null() {
        return match decl.ty {
            _ if decl.nullable => Ok(Value::Null),
            Type::Dyn if !decl.int_or_string => Ok(Value::Null),
            _ => Err(Error::new("invalid data, got null for schema with nullable=false")),
        };
    }
    if decl.int_or_string {
        return match json {
            Json::String(text) => Ok(Value::String(Text::Borrowed(text))),
            Json::Number(number) if number.is_i64() => Ok(Value::from_json(json)),
            _ => Err(Error::new(
                "invalid data, expected XIntOrString value to be either a string or integer",
            )),
        };
    }
    match (&decl.ty, json) {
        (Type::Object(_) | Type::Map(..), Json::Object(object)) => Ok(Value::Map(Map::json(object, Some(decl)))),
        (Type::Object(_) | Type::Map(..), _) => Err(Error::new(
            "invalid data, expected a map for the provided schema with type=object",
        )),
        (Type::List(_), Json::Array(items)) => Ok(Value::List(List::json(items, Some(decl)))),
        (Type::List(_), _) => Err(Error::new(
            "invalid data, expected an array for the provided schema with type=array",
        )),
        (Type::String, Json::String(text)) => Ok(Value::String(Text::Borrowed(text))),
        (Type::Bytes, Json::String(text)) => bytes(text),
        (Type::Duration, Json::String(text)) => Duration::parse_words(text).map(Value::Duration).ok_or_else(|| {
            Error::new(format!(
                "Invalid duration {text}: unable to parse {} as duration",
                kubewright_values::error::quote(text)
            ))
        }),
        (Type::Timestamp, Json::String(text)) => timestamp(text, decl.date),
        (Type::Int, Json::Number(number)) if number.is_i64() => Ok(Value::from_json(json)),
        (Type::Double, Json::Number(number)) => Ok(Value::Double(number.as_f64().unwrap_or(f64::NAN))),
        (Type::Bool, Json::Bool(value)) => Ok(Value::Bool(*value)),
        (Type::String | Type::Bytes | Type::Duration | Type::Timestamp, _) => Err(expected("string", json)),
        (Type::Int, _) => Err(expected("int", json)),
        (Type::Double, _) => Err(expected("float", json)),
        (Type::Bool, _) => Err(expected("bool", json)),
        _ => Ok(Value::from_json(json)),
    }
}

fn expected(what: &str, json: &Json) -> Error {
    let got = match json {
        Json::Null => "<nil>",
        Json::Bool(_) => "bool",
        Json::Number(number) if number.is_i64() => "int64",
        Json::Number(_) => "float64",
        Json::String(_) => "string",
        Json::Array(_) => "[]interface {}",
        Json::Object(_) => "map[string]interface {}",
    };
    Error::new(format!("invalid data, expected {what}, got {got}"))
}

fn bytes(text: &str) -> Result<Value<'_>, Error> {
    kubewright_values::base64::decode(text)
        .map(|bytes| Value::Bytes(Rc::from(bytes)))
        .map_err(|_| Error::new(format!("Invalid byte formatted string {text}: illegal base64 data")))
}

fn timestamp(text: &str, date: bool) -> Result<Value<'_>, Error> {
    let parsed = if date {
        Timestamp::parse(&format!("{text}T00:00:00Z"))
    } else {
        // The schema's format also allows lower case letters.
        Timestamp::parse(&text.to_ascii_uppercase())
    };
    let what = if date { "date" } else { "date-time" };
    match parsed {
        Ok(time) => Ok(Value::Timestamp(time)),
        Err(time::ParseError) => Err(Error::new(format!("Invalid {what} formatted string {text}"))),
    }
}
