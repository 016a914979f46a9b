//! Messages that Go reads and writes with code of their own: in JSON they are a string, a number, or any value.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};

use super::object::Decoder;
use super::wire::{Reader, Wire};
use super::{ProtobufError, table};
use crate::quantity::Quantity;
use crate::{decode, times};

const API_EXTENSIONS: &str = "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Special {
    /// RFC 3339; protobuf has nanoseconds that Go does not read.
    Time,
    /// RFC 3339 with six digits of a second.
    MicroTime,
    /// As Go prints it: `1h30m0s`.
    Duration,
    Quantity,
    IntOrString,
    /// JSON text: `RawExtension`, `FieldsV1`, `JSON`.
    Json,
    SchemaOrArray,
    SchemaOrBool,
    SchemaOrStrings,
}

impl Special {
    pub(super) fn named(prefix: &str, name: &str) -> Option<Special> {
        Some(match (prefix, name) {
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "Time") => Special::Time,
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "MicroTime") => Special::MicroTime,
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "Duration") => Special::Duration,
            ("io.k8s.apimachinery.pkg.apis.meta.v1", "FieldsV1") => Special::Json,
            ("io.k8s.apimachinery.pkg.runtime", "RawExtension") => Special::Json,
            ("io.k8s.apimachinery.pkg.api.resource", "Quantity" | "QuantityValue") => Special::Quantity,
            ("io.k8s.apimachinery.pkg.util.intstr", "IntOrString") => Special::IntOrString,
            (API_EXTENSIONS, "JSON") => Special::Json,
            (API_EXTENSIONS, "JSONSchemaPropsOrArray") => Special::SchemaOrArray,
            (API_EXTENSIONS, "JSONSchemaPropsOrBool") => Special::SchemaOrBool,
            (API_EXTENSIONS, "JSONSchemaPropsOrStringArray") => Special::SchemaOrStrings,
            _ => return None,
        })
    }

    /// Reads the bytes of the message. Null stands for a value that is not set.
    pub(super) fn decode(
        self,
        decoder: &mut Decoder,
        field: &'static str,
        data: &[u8],
        depth: usize,
    ) -> Result<Value, ProtobufError> {
        match self {
            Special::Time => time(data, false),
            Special::MicroTime => time(data, true),
            Special::Duration => duration(data),
            Special::Quantity => quantity(data),
            Special::IntOrString => int_or_string(data),
            Special::Json => json_text(field, data),
            Special::SchemaOrArray | Special::SchemaOrBool | Special::SchemaOrStrings => {
                self.schema_or(decoder, data, depth + 1)
            }
        }
    }

    fn schema_or(self, decoder: &mut Decoder, data: &[u8], depth: usize) -> Result<Value, ProtobufError> {
        let (mut schema, mut allows, mut list) = (None, false, Vec::new());
        let mut reader = Reader::new(data, "JSONSchemaProps");
        while let Some((tag, wire)) = reader.field()? {
            decoder.count()?;
            match (self, tag) {
                (Special::SchemaOrBool, 1) => allows = wire.varint("allows")? != 0,
                (Special::SchemaOrBool, 2) | (_, 1) => schema = Some(json_schema(decoder, wire, depth)?),
                (Special::SchemaOrArray, 2) => list.push(json_schema(decoder, wire, depth)?),
                (_, 2) => list.push(Value::String(wire.text("property")?)),
                _ => {}
            }
        }
        Ok(match (self, schema) {
            (Special::SchemaOrBool, None) => json!(allows),
            (_, _) if !list.is_empty() => Value::Array(list),
            (_, schema) => schema.unwrap_or(Value::Null),
        })
    }
}

/// The message of a schema in a CustomResourceDefinition.
pub(super) fn schema_message() -> &'static table::Message {
    table::message(API_EXTENSIONS, "JSONSchemaProps").expect("the table has the kinds of apiextensions")
}

fn json_schema(decoder: &mut Decoder, wire: Wire<'_>, depth: usize) -> Result<Value, ProtobufError> {
    let mut schema = Map::new();
    decoder.message(schema_message(), wire.bytes("schema")?, depth, &mut schema)?;
    Ok(Value::Object(schema))
}

fn time(data: &[u8], micro: bool) -> Result<Value, ProtobufError> {
    let (mut seconds, mut nanos) = (0, 0);
    let mut reader = Reader::new(data, "Timestamp");
    while let Some((tag, wire)) = reader.field()? {
        match tag {
            1 => seconds = wire.varint("seconds")? as i64,
            2 => nanos = wire.varint("nanos")? as i32,
            _ => {}
        }
    }
    let micros = if micro { i64::from(nanos / 1000) } else { 0 };
    if data.is_empty() || (seconds == times::ZERO && micros == 0) {
        return Ok(Value::Null);
    }
    times::written(seconds, micros, micro)
        .map(Value::String)
        .ok_or(ProtobufError::Time)
}

fn duration(data: &[u8]) -> Result<Value, ProtobufError> {
    let mut nanos = 0;
    let mut reader = Reader::new(data, "Duration");
    while let Some((tag, wire)) = reader.field()? {
        if tag == 1 {
            nanos = wire.varint("duration")? as i64;
        }
    }
    Ok(Value::String(go_duration(nanos)))
}

/// The nanoseconds of a duration as Go reads it: `1h30m`, `1.5s`, `-2ms`. The empty text is no time.
pub(super) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if matches!(rest, "" | "0") {
        return Some(0);
    }
    let mut nanos = 0_i128;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, after) = rest.split_at(end);
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let size: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let number = |digits: &str| {
            if digits.is_empty() {
                Some(0)
            } else {
                digits.parse::<i128>().ok()
            }
        };
        let fraction = fraction.get(..fraction.len().min(18))?;
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        nanos += number(whole)?.checked_mul(size)? + number(fraction)? * size / scale;
        rest = after;
    }
    i64::try_from(if negative { -nanos } else { nanos }).ok()
}

/// A duration of so many nanoseconds as Go prints it: `1m30s`, `1.5s`.
pub fn go_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let all = nanos.unsigned_abs();
    let (unit, size) = match all {
        0 => return "0s".to_owned(),
        1..1_000 => ("ns", 1),
        1_000..1_000_000 => ("µs", 1_000),
        1_000_000..1_000_000_000 => ("ms", 1_000_000),
        _ => ("s", 1_000_000_000),
    };
    let mut text = sign.to_owned();
    let (mut whole, rest) = (all / size, all % size);
    if unit == "s" {
        let (hours, minutes) = (whole / 3600, whole / 60 % 60);
        if hours > 0 {
            let _ = write!(text, "{hours}h");
        }
        if whole >= 60 {
            let _ = write!(text, "{minutes}m");
        }
        whole %= 60;
    }
    let _ = write!(text, "{whole}");
    if rest > 0 {
        let digits = size.ilog10() as usize;
        let fraction = format!("{rest:0digits$}");
        let _ = write!(text, ".{}", fraction.trim_end_matches('0'));
    }
    text + unit
}

fn quantity(data: &[u8]) -> Result<Value, ProtobufError> {
    let mut text = "0".to_owned();
    let mut reader = Reader::new(data, "Quantity");
    while let Some((tag, wire)) = reader.field()? {
        if tag == 1 {
            text = wire.text("string")?.parse::<Quantity>()?.to_string();
        }
    }
    Ok(Value::String(text))
}

fn int_or_string(data: &[u8]) -> Result<Value, ProtobufError> {
    let (mut type_, mut number, mut text) = (0, 0, String::new());
    let mut reader = Reader::new(data, "IntOrString");
    while let Some((tag, wire)) = reader.field()? {
        match tag {
            1 => type_ = wire.varint("type")?,
            2 => number = wire.varint("intVal")? as i32,
            3 => text = wire.text("strVal")?,
            _ => {}
        }
    }
    match type_ {
        0 => Ok(json!(number)),
        1 => Ok(Value::String(text)),
        _ => Err(ProtobufError::IntOrString),
    }
}

fn json_text(field: &'static str, data: &[u8]) -> Result<Value, ProtobufError> {
    let mut raw: &[u8] = b"null";
    let mut reader = Reader::new(data, "RawExtension");
    while let Some((tag, wire)) = reader.field()? {
        if tag == 1 {
            raw = Some(wire.bytes("raw")?)
                .filter(|raw| !raw.is_empty())
                .unwrap_or(b"null");
        }
    }
    let decoded = decode::json(raw).map_err(|error| ProtobufError::Json {
        field: field.to_owned(),
        why: error.to_string(),
    })?;
    Ok(decoded.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (nanos, want) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (2_000_000, "2ms"),
            (1_050_000_000, "1.05s"),
            (60_000_000_000, "1m0s"),
            (3_600_000_000_000, "1h0m0s"),
            (5_400_000_000_001, "1h30m0.000000001s"),
            (-1_000_000_000, "-1s"),
            (i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(go_duration(nanos), want);
            assert_eq!(parse_duration(want), Some(nanos), "{want}");
        }
    }

    #[test]
    fn values() {
        let check = |special: Special, data: &[u8], want: Result<Value, ProtobufError>| {
            assert_eq!(
                special.decode(&mut Decoder::default(), "f", data, 0),
                want,
                "{special:?} {data:02x?}"
            );
        };
        check(Special::Time, b"", Ok(Value::Null));
        check(Special::Time, b"\x08\x00\x10\x00", Ok(json!("1970-01-01T00:00:00Z")));
        check(
            Special::Time,
            b"\x08\xa5\xeb\xdc\xca\x06\x10\x05",
            Ok(json!("2026-01-02T03:04:05Z")),
        );
        check(
            Special::MicroTime,
            b"\x08\xa5\xeb\xdc\xca\x06\x10\xf0\x2e",
            Ok(json!("2026-01-02T03:04:05.000006Z")),
        );
        check(
            Special::Time,
            b"\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
            Err(ProtobufError::Time),
        );
        check(Special::Duration, b"\x08\x80\xa8\xd6\xb9\x07", Ok(json!("2s")));
        check(Special::Quantity, b"", Ok(json!("0")));
        check(Special::Quantity, b"\x0a\x051000m", Ok(json!("1")));
        check(
            Special::Quantity,
            b"\x0a\x01x",
            Err("x".parse::<Quantity>().expect_err("no quantity").into()),
        );
        check(Special::IntOrString, b"", Ok(json!(0)));
        check(Special::IntOrString, b"\x08\x00\x10\x50\x1a\x00", Ok(json!(80)));
        check(Special::IntOrString, b"\x08\x01\x10\x00\x1a\x0325%", Ok(json!("25%")));
        check(Special::IntOrString, b"\x08\x02", Err(ProtobufError::IntOrString));
        check(Special::Json, b"", Ok(Value::Null));
        check(Special::Json, b"\x0a\x07{\"a\":1}", Ok(json!({"a": 1})));
        let why = "invalid character 'n' in literal null (expecting 'u')".to_owned();
        check(
            Special::Json,
            b"\x0a\x02nn",
            Err(ProtobufError::Json {
                field: "f".to_owned(),
                why,
            }),
        );
        check(Special::SchemaOrBool, b"", Ok(json!(false)));
        check(Special::SchemaOrBool, b"\x08\x01", Ok(json!(true)));
        check(
            Special::SchemaOrBool,
            b"\x08\x01\x12\x03\x2a\x01s",
            Ok(json!({"type": "s"})),
        );
        check(Special::SchemaOrArray, b"\x0a\x00", Ok(json!({})));
        check(
            Special::SchemaOrArray,
            b"\x12\x00\x12\x03\x2a\x01s",
            Ok(json!([{}, {"type": "s"}])),
        );
        check(Special::SchemaOrStrings, b"\x12\x01a\x12\x01b", Ok(json!(["a", "b"])));
        check(Special::SchemaOrStrings, b"\x0a\x00", Ok(json!({})));
    }
}
