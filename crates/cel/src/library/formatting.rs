//! `'%s has %d'.format([name, count])`.

use crate::ast::{Expr, ExprKind};
use crate::error::Error;
use crate::types::Type;
use crate::value::{Key, List, Value};
use crate::work::{ITEM, made};
use kubewright_values::error::quote;

/// Digits behind the point where none are asked for.
const PRECISION: usize = 6;

/// More digits than this, Go does not print.
const MOST_DIGITS: usize = 1_000_000;

/// The longest text that is made, whatever precision is asked for.
const MOST_BYTES: usize = 64 << 20;

pub(super) fn format<'a>(format: &str, args: &List<'a>) -> Result<Value<'a>, Error> {
    let mut text = String::with_capacity(format.len());
    let (mut rest, mut next) = (format, 0);
    while let Some((plain, after)) = up_to_clause(rest) {
        text.push_str(&plain.replace("%%", "%"));
        let arg = args.get(next).ok_or_else(|| Error::new(out_of_range(next)))??;
        let (clause, after) = Clause::after_percent(after).map_err(Error::new)?;
        if clause.verb == 'f' || clause.verb == 'e' {
            made(clause.precision.min(MOST_DIGITS));
        }
        weigh(&arg);
        let written = clause.write(&arg).map_err(|error| Error::new(during(&error)))?;
        text.push_str(&written);
        if text.len() > MOST_BYTES {
            return Err(Error::CostExceeded);
        }
        (rest, next) = (after, next + 1);
    }
    text.push_str(&rest.replace("%%", "%"));
    Ok(Value::string(text))
}

/// Counts the text that a value will be. Lists may hold each other many times.
fn weigh(value: &Value<'_>) {
    match value {
        Value::String(text) => made(ITEM + 2 * text.len()),
        Value::Bytes(bytes) => made(ITEM + 4 * bytes.len()),
        Value::List(list) => {
            made(ITEM);
            list.iter().flatten().for_each(|item| weigh(&item));
        }
        Value::Map(map) => {
            made(ITEM);
            for (key, value) in map.entries().flatten() {
                weigh(&key.to_value());
                weigh(&value);
            }
        }
        _ => made(ITEM),
    }
}

fn out_of_range(index: usize) -> String {
    format!("index {index} out of range")
}

fn during(error: &str) -> String {
    format!("error during formatting: {error}")
}

/// The text before the next clause, and the text behind its `%`.
fn up_to_clause(format: &str) -> Option<(&str, &str)> {
    let mut from = 0;
    loop {
        let at = from + format[from..].find('%')?;
        if !format[at + 1..].starts_with('%') {
            return Some((&format[..at], &format[at + 1..]));
        }
        from = at + 2;
    }
}

/// Checks a call of `format` with literals before it is ever made: whether the types of the arguments fit the clauses.
///
/// # Errors
/// The error, and the argument that it is about, if it is about one.
pub(crate) fn check<'e>(
    format: &str,
    args: &'e [Expr],
    type_of: &dyn Fn(&Expr) -> Type,
) -> Result<(), (Option<&'e Expr>, String)> {
    let (mut rest, mut next) = (format, 0);
    while let Some((_, after)) = up_to_clause(rest) {
        if after.is_empty() {
            return Err((None, "unexpected end of string".into()));
        }
        let arg = args.get(next).ok_or_else(|| (None, out_of_range(next)))?;
        let (clause, after) = Clause::after_percent(after).map_err(|error| (None, error))?;
        clause
            .check(arg, type_of)
            .map_err(|(arg, error)| (Some(arg), during(&error)))?;
        (rest, next) = (after, next + 1);
    }
    if args.len() > next {
        let count = args.len();
        let message = format!("too many arguments supplied to string.format (expected {next}, got {count})");
        return Err((None, message));
    }
    Ok(())
}

/// The clause behind a `%`.
struct Clause {
    verb: char,
    precision: usize,
}

/// `%s`
const TEXT: Clause = Clause {
    verb: 's',
    precision: PRECISION,
};

impl Clause {
    fn after_percent(text: &str) -> Result<(Self, &str), String> {
        if text.is_empty() {
            return Err("unexpected end of string".into());
        }
        Self::parse(text).map_err(|error| format!("could not parse formatting clause: {error}"))
    }

    fn parse(text: &str) -> Result<(Self, &str), String> {
        let (precision, text) = match text.strip_prefix('.') {
            None => (PRECISION, text),
            Some(text) => precision(text)?,
        };
        let mut chars = text.chars();
        match chars.next() {
            Some(verb) if "sdfebxXo".contains(verb) => Ok((Self { verb, precision }, chars.as_str())),
            Some(other) => Err(format!("unrecognized formatting clause \"{other}\"")),
            None => Err("unexpected end of string".into()),
        }
    }

    /// Whether an argument of this type can be written.
    fn check<'e>(&self, arg: &'e Expr, type_of: &dyn Fn(&Expr) -> Type) -> Result<(), (&'e Expr, String)> {
        let ty = type_of(arg);
        let fits = ty.is_dyn_or_error()
            || match self.verb {
                's' => return check_text(arg, type_of),
                'd' | 'o' => matches!(ty, Type::Int | Type::Uint),
                'f' | 'e' => matches!(ty, Type::Double | Type::String),
                'b' => matches!(ty, Type::Int | Type::Uint | Type::Bool),
                _ => matches!(ty, Type::Int | Type::Uint | Type::String | Type::Bytes),
            };
        if fits {
            Ok(())
        } else {
            Err((arg, self.refuse(ty.name())))
        }
    }

    fn refuse(&self, given: &str) -> String {
        let wanted = match self.verb {
            'd' => "decimal clause can only be used on integers",
            'o' => "octal clause can only be used on integers",
            'b' => "only integers and bools can be formatted as binary",
            'f' => "fixed-point clause can only be used on doubles",
            'e' => "scientific clause can only be used on doubles",
            's' => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and \
                 timestamps"
            }
            _ => "only integers, byte buffers, and strings can be formatted as hex",
        };
        format!("{wanted}, was given {given}")
    }

    fn write(&self, value: &Value<'_>) -> Result<String, String> {
        match (self.verb, value) {
            ('s', value) => as_text(value),
            ('f' | 'e', value) => self.number(value),
            ('x', value) => self.hex(value),
            ('X', value) => self.hex(value).map(|hex| hex.to_uppercase()),
            ('d', Value::Int(value)) => Ok(value.to_string()),
            ('d', Value::Uint(value)) => Ok(value.to_string()),
            ('b', Value::Int(value)) => Ok(signed(*value, |value| format!("{value:b}"))),
            ('b', Value::Uint(value)) => Ok(format!("{value:b}")),
            ('b', Value::Bool(value)) => Ok(u8::from(*value).to_string()),
            ('o', Value::Int(value)) => Ok(signed(*value, |value| format!("{value:o}"))),
            ('o', Value::Uint(value)) => Ok(format!("{value:o}")),
            (_, value) => Err(self.refuse(value.type_name())),
        }
    }

    fn hex(&self, value: &Value<'_>) -> Result<String, String> {
        let of_bytes = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match value {
            Value::Int(value) => Ok(signed(*value, |value| format!("{value:x}"))),
            Value::Uint(value) => Ok(format!("{value:x}")),
            Value::String(text) => Ok(of_bytes(text.as_bytes())),
            Value::Bytes(bytes) => Ok(of_bytes(bytes)),
            other => Err(self.refuse(other.type_name())),
        }
    }

    /// `%f` and `%e`.
    fn number(&self, value: &Value<'_>) -> Result<String, String> {
        let number = match value {
            Value::Double(number) => *number,
            Value::String(text) => match &**text {
                "NaN" => f64::NAN,
                "Infinity" => f64::INFINITY,
                "-Infinity" => f64::NEG_INFINITY,
                _ => return Err(self.refuse("string")),
            },
            other => return Err(self.refuse(other.type_name())),
        };
        let precision = self.precision.min(MOST_DIGITS);
        if self.verb == 'f' {
            return Ok(not_finite(number).map_or_else(|| grouped(&padded(number, precision)), str::to_owned));
        }
        let text = match not_finite(number) {
            Some(text) => text.to_owned(),
            None => {
                let written = format!("{number:.PRECISION$e}");
                let (mantissa, exponent) = written.split_once('e').expect("the format writes an exponent");
                let exponent: i32 = exponent.parse().expect("the format writes a number");
                format!("{mantissa}×10{}", superscript(exponent))
            }
        };
        // The precision of `%e` sets the width of the number, and not its digits, in Kubernetes.
        Ok(format!(
            "{}{text}",
            " ".repeat(precision.saturating_sub(text.chars().count()))
        ))
    }
}

/// The digits behind a point, with the rest.
fn precision(text: &str) -> Result<(usize, &str), String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(digits);
    if rest.is_empty() {
        return Err("error while parsing precision: could not find end of precision specifier".into());
    }
    let precision = digits.parse().map_err(|_| {
        let why = if digits.is_empty() { "invalid syntax" } else { "value out of range" };
        format!(
            "error while parsing precision: error while converting precision to integer: strconv.Atoi: parsing {}: {why}",
            quote(digits)
        )
    })?;
    Ok((precision, rest))
}

/// A double has at most some 1100 digits behind the point: further ones are zeros.
fn padded(number: f64, precision: usize) -> String {
    let digits = precision.min(1100);
    format!("{number:.digits$}") + &"0".repeat(precision - digits)
}

/// Commas between groups of three digits, as Americans write them.
fn grouped(number: &str) -> String {
    let (sign, digits) = match number.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", number),
    };
    let (whole, fraction) = digits.split_at(digits.find('.').unwrap_or(digits.len()));
    let mut text = String::from(sign);
    for (at, digit) in whole.char_indices() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + fraction
}

fn superscript(exponent: i32) -> String {
    const DIGITS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
    let digits = format!("{:02}", exponent.abs());
    let sign = if exponent < 0 { "⁻" } else { "" };
    let digits = digits.bytes().map(|digit| DIGITS[usize::from(digit - b'0')]);
    sign.chars().chain(digits).collect()
}

/// How Kubernetes' American locale prints a value that is not a number.
fn not_finite(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

fn signed(value: i64, write: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    sign.to_owned() + &write(value.unsigned_abs())
}

/// Whether everything in an argument can be written as text.
fn check_text<'e>(arg: &'e Expr, type_of: &dyn Fn(&Expr) -> Type) -> Result<(), (&'e Expr, String)> {
    let ty = type_of(arg);
    if matches!(ty, Type::Optional(_) | Type::Object(_) | Type::Opaque(_)) {
        return Err((arg, TEXT.refuse(ty.name())));
    }
    match &arg.kind {
        ExprKind::List { elements, .. } => elements.iter().try_for_each(|element| check_text(element, type_of)),
        ExprKind::Map(entries) => entries.iter().try_for_each(|entry| {
            check_text(&entry.key, type_of)?;
            check_text(&entry.value, type_of)
        }),
        _ => Ok(()),
    }
}

/// `%s`
fn as_text(value: &Value<'_>) -> Result<String, String> {
    match value {
        Value::Null => Ok("null".into()),
        Value::List(list) => {
            let items: Result<Vec<String>, String> = list
                .iter()
                .map(|item| literal(&item.map_err(|error| error.to_string())?))
                .collect();
            Ok(format!("[{}]", items?.join(", ")))
        }
        Value::Map(map) => {
            let mut pairs = Vec::new();
            for entry in map.entries() {
                let (key, value) = entry.map_err(|error| error.to_string())?;
                if let Key::Double(_) = key {
                    return Err("no formatting function for map key of type double".into());
                }
                pairs.push((literal(&key.to_value())?, literal(&value)?));
            }
            pairs.sort();
            let pairs: Vec<String> = pairs.iter().map(|(key, value)| format!("{key}:{value}")).collect();
            Ok(format!("{{{}}}", pairs.join(", ")))
        }
        Value::Optional(_) | Value::Object(_) | Value::Opaque(_) => Err(TEXT.refuse(value.type_name())),
        other => match crate::value::to_string(other) {
            Some(Ok(Value::String(text))) => Ok(text.to_string()),
            Some(Err(error)) => Err(format!(
                "could not convert argument {} to string",
                quote(&error.to_string())
            )),
            _ => Err(format!(
                "could not convert argument {} to string",
                quote(&other.to_string())
            )),
        },
    }
}

/// As an element of a list or a map prints: as one would write it.
fn literal(value: &Value<'_>) -> Result<String, String> {
    Ok(match value {
        Value::String(text) => quote(text),
        Value::Bytes(bytes) => format!("b{}", quote(&String::from_utf8_lossy(bytes))),
        Value::Double(number) if number.is_nan() => "\"NaN\"".into(),
        Value::Double(number) if number.is_infinite() => (if *number > 0.0 { "\"+Inf\"" } else { "\"-Inf\"" }).into(),
        Value::Double(number) => format!("{number:.PRECISION$}"),
        Value::Timestamp(time) => format!("timestamp({})", quote(&time.to_string())),
        Value::Duration(duration) => format!("duration({})", quote(&duration.to_string())),
        Value::Optional(_) | Value::Object(_) | Value::Opaque(_) => {
            return Err(format!("no formatting function for {}", value.type_name()));
        }
        other => as_text(other)?,
    })
}
