//! The value of a YAML scalar by the rules of YAML 1.1, in the reading of `goyaml.v2`.

use serde_json::{Number, Value};

use crate::base64;
use crate::decode::{DecodeError, json, whole};

/// A resolved scalar.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    /// A whole number that only a `uint64` holds.
    Unsigned(u64),
    Float(f64),
    Text(String),
    /// A plain `<<`, which means itself as a value.
    Merge,
}

impl Scalar {
    pub(super) fn into_value(self) -> Result<Value, DecodeError> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Integer(value) => Value::from(value),
            Self::Unsigned(value) => json::number(&value.to_string(), true)?,
            // Go writes floats without a fraction as whole numbers, and reads them so.
            Self::Float(value) => match whole(value) {
                Some(whole) => Value::from(whole),
                None => Value::Number(Number::from_f64(value).ok_or_else(|| not_json(value))?),
            },
            Self::Text(text) => Value::String(text),
            Self::Merge => Value::String("<<".to_owned()),
        })
    }

    /// The field that a scalar names, and how Go prints the key.
    pub(super) fn key(&self) -> Result<(String, String), DecodeError> {
        let plain = |text: String| Ok((text.clone(), text));
        match self {
            Self::Null => Err(DecodeError::new(
                "yaml: invalid map key: null cannot be the key of an object",
            )),
            Self::Bool(value) => plain(value.to_string()),
            Self::Integer(value) => plain(value.to_string()),
            Self::Unsigned(value) => plain(value.to_string()),
            Self::Float(value) => plain(value.to_string()),
            Self::Text(text) => Ok((text.clone(), crate::error::quote(text))),
            Self::Merge => Ok(("<<".to_owned(), "\"<<\"".to_owned())),
        }
    }
}

fn not_json(value: f64) -> DecodeError {
    let shown = if value.is_nan() {
        "NaN"
    } else if value > 0.0 {
        "+Inf"
    } else {
        "-Inf"
    };
    DecodeError::new(format!("json: unsupported value: {shown}"))
}

/// Resolves a scalar with the name of its standard tag (`str`, `int`, …), if it has one. A quoted scalar and one with a
/// custom tag are texts.
pub(super) fn resolve(written: &str, plain: bool, tag: Option<&str>, tagged: bool) -> Result<Scalar, DecodeError> {
    let text = || Scalar::Text(written.to_owned());
    match tag {
        Some("str" | "timestamp") => return Ok(text()),
        Some("binary") => return binary(written),
        None if tagged || !plain => return Ok(text()),
        _ => {}
    }
    let found = if plain || tag.is_some() {
        implicit(written)
    } else {
        text()
    };
    match (tag, found) {
        (Some("float"), Scalar::Integer(value)) => {
            #[allow(clippy::cast_precision_loss, reason = "that is what !!float asks for")]
            let value = value as f64;
            Ok(Scalar::Float(value))
        }
        (None, found)
        | (Some("null"), found @ Scalar::Null)
        | (Some("bool"), found @ Scalar::Bool(_))
        | (Some("int"), found @ (Scalar::Integer(_) | Scalar::Unsigned(_)))
        | (Some("float"), found @ Scalar::Float(_))
        | (Some("merge"), found @ Scalar::Merge) => Ok(found),
        (Some(tag @ ("null" | "bool" | "int" | "float" | "merge")), found) => {
            let kind = match found {
                Scalar::Null => "null",
                Scalar::Bool(_) => "bool",
                Scalar::Integer(_) | Scalar::Unsigned(_) => "int",
                Scalar::Float(_) => "float",
                Scalar::Text(_) => "str",
                Scalar::Merge => "merge",
            };
            Err(DecodeError::new(format!(
                "yaml: cannot decode !!{kind} `{written}` as a !!{tag}"
            )))
        }
        (Some(_), _) => Ok(text()),
    }
}

fn binary(written: &str) -> Result<Scalar, DecodeError> {
    let compact: String = written.split_whitespace().collect();
    let bytes =
        base64::decode(&compact).map_err(|_| DecodeError::new("yaml: !!binary value contains invalid base64 data"))?;
    // JSON has no bytes: invalid UTF-8 is replaced, as Go does.
    Ok(Scalar::Text(String::from_utf8(bytes).unwrap_or_else(|error| {
        String::from_utf8_lossy(error.as_bytes()).into_owned()
    })))
}

/// The value of a plain scalar.
fn implicit(written: &str) -> Scalar {
    match written {
        "" | "~" | "null" | "Null" | "NULL" => Scalar::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Scalar::Bool(true),
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Scalar::Bool(false),
        ".nan" | ".NaN" | ".NAN" => Scalar::Float(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Scalar::Float(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Scalar::Float(f64::NEG_INFINITY),
        "<<" => Scalar::Merge,
        _ => number(written).unwrap_or_else(|| Scalar::Text(written.to_owned())),
    }
}

fn number(written: &str) -> Option<Scalar> {
    if !written.starts_with(|first: char| first.is_ascii_digit() || matches!(first, '+' | '-' | '.')) {
        return None;
    }
    let digits = written.replace('_', "");
    if let Some(integer) = integer(&digits) {
        return Some(integer);
    }
    is_float(&digits)
        .then(|| digits.parse().ok())
        .flatten()
        .map(Scalar::Float)
}

/// `12`, `0x1F`, `0b101`, `0o17`, and `017`, which is octal too.
fn integer(digits: &str) -> Option<Scalar> {
    let (negative, unsigned) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits),
    };
    let prefixes = [("0x", 16), ("0X", 16), ("0b", 2), ("0B", 2), ("0o", 8), ("0O", 8)];
    let prefixed = prefixes
        .iter()
        .find_map(|(prefix, radix)| unsigned.strip_prefix(prefix).map(|rest| (rest, *radix)));
    let octal = || {
        unsigned
            .strip_prefix('0')
            .filter(|rest| !rest.is_empty())
            .map(|rest| (rest, 8))
    };
    let (rest, radix) = prefixed.or_else(octal).unwrap_or((unsigned, 10));
    // Rust would take a second sign.
    if rest.starts_with(['+', '-']) {
        return None;
    }
    let number = u64::from_str_radix(rest, radix).ok()?;
    if negative {
        return 0_i64.checked_sub_unsigned(number).map(Scalar::Integer);
    }
    Some(i64::try_from(number).map_or(Scalar::Unsigned(number), Scalar::Integer))
}

/// Digits with a point or an exponent; Rust alone would also take `inf`, `nan` and the like.
fn is_float(text: &str) -> bool {
    let text = text.strip_prefix(['+', '-']).unwrap_or(text);
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['+', '-']).unwrap_or(exponent))),
        None => (text, None),
    };
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    is_digits(whole)
        && is_digits(fraction)
        && !(whole.is_empty() && fraction.is_empty())
        && exponent.is_none_or(|exponent| !exponent.is_empty() && is_digits(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars() {
        let check = |written: &str, scalar: Scalar| assert_eq!(implicit(written), scalar, "{written}");
        check("", Scalar::Null);
        check("~", Scalar::Null);
        check("yes", Scalar::Bool(true));
        check("Off", Scalar::Bool(false));
        check("y", Scalar::Bool(true));
        check("yEs", Scalar::Text("yEs".into()));
        check("12", Scalar::Integer(12));
        check("+12", Scalar::Integer(12));
        check("-1_000", Scalar::Integer(-1000));
        check("0x1F", Scalar::Integer(31));
        check("0b101", Scalar::Integer(5));
        check("-0b101", Scalar::Integer(-5));
        check("0644", Scalar::Integer(420));
        check("0o644", Scalar::Integer(420));
        check("0", Scalar::Integer(0));
        check("08", Scalar::Float(8.0));
        check("1.5", Scalar::Float(1.5));
        check(".5", Scalar::Float(0.5));
        check("5.", Scalar::Float(5.0));
        check("1e3", Scalar::Float(1000.0));
        check("-9223372036854775808", Scalar::Integer(i64::MIN));
        check("9223372036854775808", Scalar::Unsigned(1 << 63));
        check(".inf", Scalar::Float(f64::INFINITY));
        for text in [
            "1.2.3",
            "1:30",
            "10.0.0.1",
            "1e",
            "e3",
            ".",
            "-",
            "+",
            "--1",
            "0x",
            "inf",
            "nan",
            "v1",
            "1Gi",
            "2001-12-14",
            "12abc",
        ] {
            check(text, Scalar::Text(text.into()));
        }
    }

    #[test]
    fn tags_and_quotes() {
        let check = |written: &str, plain: bool, tag: Option<&str>, scalar: Scalar| {
            assert_eq!(
                resolve(written, plain, tag, tag.is_some()),
                Ok(scalar),
                "{written} {tag:?}"
            );
        };
        check("1", false, None, Scalar::Text("1".into()));
        check("1", true, Some("str"), Scalar::Text("1".into()));
        check("1", false, Some("int"), Scalar::Integer(1));
        check("1", true, Some("float"), Scalar::Float(1.0));
        check("<<", true, None, Scalar::Merge);
        check("<<", false, None, Scalar::Text("<<".into()));
        assert!(resolve("a", true, Some("bool"), true).is_err());
        assert!(resolve("*", true, Some("binary"), true).is_err());
    }
}
