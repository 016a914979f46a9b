//! Conversions between types: `int('1')`, `string(1.5)`, `timestamp('2026-01-01T00:00:00Z')`.

use std::rc::Rc;

use crate::error::Error;
use crate::value::number::{not_finite, print};
use crate::value::{Duration, Text, Timestamp, Value};

/// Converts to the type that the function names; none when `function` is no conversion.
pub(crate) fn apply<'a>(function: &str, value: &Value<'a>) -> Option<Result<Value<'a>, Error>> {
    let converted = match function {
        "dyn" => return Some(Ok(value.clone())),
        "type" => return Some(Ok(Value::Type(Text::from(value.type_name().to_owned())))),
        "bool" => to_bool(value),
        "bytes" => to_bytes(value),
        "double" => to_double(value),
        "duration" => to_duration(value),
        "int" => to_int(value),
        "string" => to_string(value),
        "timestamp" => to_timestamp(value),
        "uint" => to_uint(value),
        _ => return None,
    };
    let target = match function {
        "duration" => "google.protobuf.Duration",
        "timestamp" => "google.protobuf.Timestamp",
        other => other,
    };
    Some(converted.unwrap_or_else(|| {
        Err(Error::new(format!(
            "type conversion error from '{}' to '{target}'",
            value.type_name()
        )))
    }))
}

type Converted<'a> = Option<Result<Value<'a>, Error>>;

fn to_bool<'a>(value: &Value<'a>) -> Converted<'a> {
    match value {
        Value::Bool(_) => Some(Ok(value.clone())),
        Value::String(text) => match &**text {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(Ok(Value::Bool(true))),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(Ok(Value::Bool(false))),
            _ => None,
        },
        _ => None,
    }
}

fn to_bytes<'a>(value: &Value<'a>) -> Converted<'a> {
    match value {
        Value::Bytes(_) => Some(Ok(value.clone())),
        Value::String(text) => Some(Ok(Value::Bytes(Rc::from(text.as_bytes())))),
        _ => None,
    }
}

#[allow(clippy::cast_precision_loss, reason = "as the language defines it")]
fn to_double<'a>(value: &Value<'a>) -> Converted<'a> {
    Some(Ok(Value::Double(match value {
        Value::Double(value) => *value,
        Value::Int(value) => *value as f64,
        Value::Uint(value) => *value as f64,
        Value::String(text) => parse_double(text)?,
        _ => return None,
    })))
}

/// `strconv.ParseFloat`: a number that is too large is none.
fn parse_double(text: &str) -> Option<f64> {
    let (negative, plain) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let number = match plain.to_ascii_lowercase().as_str() {
        "nan" if plain.len() == text.len() => return Some(f64::NAN),
        "inf" | "infinity" => f64::INFINITY,
        lower => {
            let digits = without_separators(lower)?;
            let number = match digits.strip_prefix("0x") {
                Some(digits) => hexadecimal(digits)?,
                None if digits.starts_with(|c: char| c.is_ascii_digit() || c == '.') => digits.parse().ok()?,
                None => return None,
            };
            Some(number).filter(|number: &f64| number.is_finite())?
        }
    };
    Some(if negative { -number } else { number })
}

/// Underscores may stand between digits.
fn without_separators(text: &str) -> Option<String> {
    let is_digit = |at: Option<usize>| {
        at.and_then(|at| text.as_bytes().get(at))
            .is_some_and(u8::is_ascii_hexdigit)
    };
    text.match_indices('_')
        .all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)))
        .then(|| text.replace('_', ""))
}

/// `1.8p3` behind `0x`; the exponent is needed.
fn hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut number = 0.0;
    let mut power: i32 = exponent.parse().ok()?;
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    for digit in whole.chars() {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
    }
    for digit in fraction.chars() {
        number = number * 16.0 + f64::from(digit.to_digit(16)?);
        power = power.checked_sub(4)?;
    }
    Some(number * 2_f64.powi(power))
}

fn to_duration<'a>(value: &Value<'a>) -> Converted<'a> {
    match value {
        Value::Duration(_) => Some(Ok(value.clone())),
        Value::String(text) => Duration::parse(text).map(|duration| Ok(Value::Duration(duration))),
        _ => None,
    }
}

fn to_int<'a>(value: &Value<'a>) -> Converted<'a> {
    Some(match value {
        Value::Int(_) => Ok(value.clone()),
        Value::Uint(value) => i64::try_from(*value).map(Value::Int).map_err(|_| Error::overflow()),
        Value::Double(value) => double_to_int(*value).map(Value::Int).ok_or_else(Error::overflow),
        Value::Duration(value) => Ok(Value::Int(value.0)),
        Value::Timestamp(time) => Ok(Value::Int(time.seconds())),
        Value::String(text) => Ok(Value::Int(text.parse().ok()?)),
        _ => return None,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    reason = "within the bounds"
)]
fn double_to_int(value: f64) -> Option<i64> {
    (value > i64::MIN as f64 && value < i64::MAX as f64).then_some(value as i64)
}

/// The integer that a double is, if it is one.
#[allow(clippy::cast_precision_loss, clippy::float_cmp, reason = "exactness is the question")]
pub(crate) fn lossless_int(value: f64) -> Option<i64> {
    double_to_int(value).filter(|int| *int as f64 == value)
}

fn to_uint<'a>(value: &Value<'a>) -> Converted<'a> {
    let overflow = || Error::new("unsigned integer overflow");
    Some(match value {
        Value::Uint(_) => Ok(value.clone()),
        Value::Int(value) => u64::try_from(*value).map(Value::Uint).map_err(|_| overflow()),
        Value::Double(value) => double_to_uint(*value).map(Value::Uint).ok_or_else(overflow),
        Value::String(text) => {
            // Go reads no sign here.
            let digits = Some(&**text).filter(|text| text.bytes().all(|b| b.is_ascii_digit()))?;
            Ok(Value::Uint(digits.parse().ok()?))
        }
        _ => return None,
    })
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "within the bounds"
)]
fn double_to_uint(value: f64) -> Option<u64> {
    (0.0..18_446_744_073_709_551_616.0)
        .contains(&value)
        .then_some(value as u64)
}

pub(crate) fn to_string<'a>(value: &Value<'a>) -> Converted<'a> {
    let text = match value {
        Value::String(_) => return Some(Ok(value.clone())),
        Value::Bool(value) => value.to_string(),
        Value::Int(value) => value.to_string(),
        Value::Uint(value) => value.to_string(),
        Value::Double(value) => not_finite(*value).map_or_else(|| print(*value), str::to_owned),
        Value::Duration(duration) => duration.to_string(),
        Value::Timestamp(time) => time.to_string(),
        Value::Type(name) => name.to_string(),
        Value::Bytes(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => return Some(Err(Error::new("invalid UTF-8 in bytes, cannot convert to string"))),
        },
        Value::Opaque(opaque) => return opaque.as_text().map(|text| Ok(Value::String(Text::from(text)))),
        _ => return None,
    };
    Some(Ok(Value::String(Text::from(text))))
}

fn to_timestamp<'a>(value: &Value<'a>) -> Converted<'a> {
    let overflow = || Error::new("timestamp overflow");
    Some(match value {
        Value::Timestamp(_) => Ok(value.clone()),
        Value::Int(seconds) => Timestamp::from_seconds(*seconds)
            .map(Value::Timestamp)
            .ok_or_else(overflow),
        Value::String(text) => match Timestamp::parse(text) {
            Ok(time) if time.in_range() => Ok(Value::Timestamp(time)),
            Ok(_) => Err(overflow()),
            Err(_) => return None,
        },
        _ => return None,
    })
}
