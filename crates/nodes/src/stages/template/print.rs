//! Values as text: how Go prints them, and `printf`.

use std::iter::Peekable;
use std::str::Chars;

use serde_json::{Number, Value};

/// A value as an action writes it.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => "<no value>".to_owned(),
        other => spelled(other),
    }
}

/// `fmt`'s `%v`.
pub(super) fn spelled(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::Bool(it) => it.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => text.clone(),
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(spelled).collect();
            format!("[{}]", items.join(" "))
        }
        Value::Object(map) => {
            let pairs: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{key}:{}", spelled(value)))
                .collect();
            format!("map[{}]", pairs.join(" "))
        }
    }
}

/// `fmt.Sprintf`, with its words for what does not fit.
pub(super) fn printf(format: &str, arguments: &[Value]) -> String {
    let mut text = String::new();
    let mut arguments = arguments.iter();
    let mut letters = format.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter != '%' {
            text.push(letter);
            continue;
        }
        let mut flags = String::new();
        while let Some(flag) = letters.next_if(|next| "-+# 0".contains(*next)) {
            flags.push(flag);
        }
        // More than a page of padding is never meant.
        let width = digits(&mut letters).min(1 << 12);
        let precision = letters.next_if_eq(&'.').map(|_| digits(&mut letters).min(1 << 8));
        let Some(verb) = letters.next() else {
            text.push_str("%!(NOVERB)");
            break;
        };
        if verb == '%' {
            text.push('%');
            continue;
        }
        let Some(argument) = arguments.next() else {
            text.push_str(&format!("%!{verb}(MISSING)"));
            continue;
        };
        let shown = verb_of(verb, argument, &flags, precision);
        let missing = width.saturating_sub(shown.chars().count());
        match (flags.contains('-'), flags.contains('0') && "dxXf".contains(verb)) {
            (true, _) => text.push_str(&format!("{shown}{}", " ".repeat(missing))),
            (false, true) => {
                let (sign, digits) = match shown.strip_prefix(['-', '+']) {
                    Some(digits) => (&shown[..1], digits),
                    None => ("", shown.as_str()),
                };
                text.push_str(&format!("{sign}{}{digits}", "0".repeat(missing)));
            }
            (false, false) => text.push_str(&format!("{}{shown}", " ".repeat(missing))),
        }
    }
    let rest: Vec<String> = arguments
        .map(|value| format!("{}={}", kind(value), spelled(value)))
        .collect();
    if !rest.is_empty() {
        text.push_str(&format!("%!(EXTRA {})", rest.join(", ")));
    }
    text
}

/// The number that stands next; 0 where there is none.
fn digits(letters: &mut Peekable<Chars<'_>>) -> usize {
    let mut number = String::new();
    while let Some(digit) = letters.next_if(char::is_ascii_digit) {
        number.push(digit);
    }
    number.parse().unwrap_or(0)
}

fn verb_of(verb: char, value: &Value, flags: &str, precision: Option<usize>) -> String {
    let wrong = || format!("%!{verb}({}={})", kind(value), spelled(value));
    let signed = |text: String| match flags.contains('+') && !text.starts_with('-') {
        true => format!("+{text}"),
        false => text,
    };
    let whole = whole(value);
    match (verb, value) {
        ('v' | 's', Value::String(text)) => match precision {
            Some(most) => text.chars().take(most).collect(),
            None => text.clone(),
        },
        ('v', _) | ('s', Value::Array(_) | Value::Object(_)) => spelled(value),
        ('s', Value::Number(number)) => number.to_string(),
        ('q', Value::String(text)) => Value::from(text.as_str()).to_string(),
        ('q', Value::Number(number)) => Value::from(number.to_string()).to_string(),
        ('t', Value::Bool(it)) => it.to_string(),
        ('d', _) => whole.map_or_else(wrong, |whole| signed(whole.to_string())),
        ('x', Value::String(text)) => text.bytes().map(|byte| format!("{byte:02x}")).collect(),
        ('x', _) => whole.map_or_else(wrong, |whole| signed(format!("{whole:x}"))),
        ('X', _) => whole.map_or_else(wrong, |whole| signed(format!("{whole:X}"))),
        ('f', _) => match decimal(value) {
            Some(number) => signed(format!("{number:.*}", precision.unwrap_or(6))),
            None => wrong(),
        },
        ('T', _) => kind(value).to_owned(),
        _ => wrong(),
    }
}

/// The Go type of a value.
pub(super) fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A number without a part behind the point.
pub(super) fn whole(value: &Value) -> Option<i64> {
    value.as_number().and_then(Number::as_i64)
}

pub(super) fn decimal(value: &Value) -> Option<f64> {
    value.as_number().and_then(Number::as_f64)
}
