//! Strings: searching, cutting, replacing, joining. Places are counted in characters.

use kubewright_values::budget;

use super::{Called, formatting, int};
use crate::error::Error;
use crate::value::{List, Value};
use crate::work::made;

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("list_join", [Value::List(list)]) => join(list, ""),
        ("list_join_string", [Value::List(list), Value::String(separator)]) => join(list, separator),
        (_, [Value::String(text)]) => return of_one(overload, text),
        ("string_format", [Value::String(format), Value::List(args)]) => formatting::format(format, args),
        (_, [Value::String(text), Value::String(other), rest @ ..]) => return of_two(overload, text, other, rest),
        ("string_char_at_int", [Value::String(text), Value::Int(at)]) => char_at(text, *at),
        ("string_substring_int", [Value::String(text), Value::Int(start)]) => substring(text, *start, None),
        ("string_substring_int_int", [Value::String(text), Value::Int(start), Value::Int(end)]) => {
            substring(text, *start, Some(*end))
        }
        _ => return None,
    })
}

fn of_one<'a>(overload: &str, text: &str) -> Called<'a> {
    Some(Ok(Value::string(match overload {
        "string_lower_ascii" => text.to_ascii_lowercase(),
        "string_upper_ascii" => text.to_ascii_uppercase(),
        // Go's white space is Unicode's.
        "string_trim" => text.trim().to_owned(),
        "strings_quote" => quote(text),
        "string_jsonpatch_escapeKey_string" => text.replace('~', "~0").replace('/', "~1"),
        _ => return None,
    })))
}

fn of_two<'a>(overload: &str, text: &str, other: &str, rest: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, rest) {
        ("contains_string", []) => Ok(Value::Bool(text.contains(other))),
        ("starts_with_string", []) => Ok(Value::Bool(text.starts_with(other))),
        ("ends_with_string", []) => Ok(Value::Bool(text.ends_with(other))),
        ("string_index_of_string", []) => index_of(text, other, 0),
        ("string_index_of_string_int", [Value::Int(from)]) => index_of(text, other, *from),
        ("string_last_index_of_string", []) => last_index_of(text, other, None),
        ("string_last_index_of_string_int", [Value::Int(from)]) => last_index_of(text, other, Some(*from)),
        ("string_replace_string_string", [Value::String(new)]) => Ok(Value::string(text.replace(other, new))),
        ("string_replace_string_string_int", [Value::String(new), Value::Int(count)]) => {
            Ok(Value::string(match usize::try_from(*count) {
                Ok(count) => text.replacen(other, new, count),
                // A negative count means all.
                Err(_) => text.replace(other, new),
            }))
        }
        ("string_split_string", []) => Ok(split(text, other, -1)),
        ("string_split_string_int", [Value::Int(count)]) => Ok(split(text, other, *count)),
        _ => return None,
    })
}

fn out_of_range(at: i64) -> Error {
    Error::new(format!("index out of range: {at}"))
}

fn char_at<'a>(text: &str, at: i64) -> Result<Value<'a>, Error> {
    budget::spend(1 + text.len() / 8);
    let index = usize::try_from(at).map_err(|_| out_of_range(at))?;
    match text.chars().nth(index) {
        Some(c) => Ok(Value::string(c)),
        None if index == text.chars().count() => Ok(Value::string("")),
        None => Err(out_of_range(at)),
    }
}

fn substring<'a>(text: &str, start: i64, end: Option<i64>) -> Result<Value<'a>, Error> {
    if let Some(end) = end
        && start > end
    {
        return Err(Error::new(format!(
            "invalid substring range. start: {start}, end: {end}"
        )));
    }
    made(size_of::<char>() * text.len());
    let chars: Vec<char> = text.chars().collect();
    let place = |at: i64| {
        usize::try_from(at)
            .ok()
            .filter(|index| *index <= chars.len())
            .ok_or_else(|| out_of_range(at))
    };
    let from = place(start)?;
    let to = end.map_or(Ok(chars.len()), place)?;
    Ok(Value::string(chars[from..to].iter().collect::<String>()))
}

fn index_of<'a>(text: &str, part: &str, from: i64) -> Result<Value<'a>, Error> {
    if part.is_empty() {
        return Ok(Value::Int(from));
    }
    let start = usize::try_from(from).map_err(|_| out_of_range(from))?;
    let Some((start_byte, _)) = text.char_indices().nth(start) else {
        return Ok(Value::Int(-1));
    };
    Ok(match text[start_byte..].find(part) {
        Some(at) => int(start + text[start_byte..start_byte + at].chars().count()),
        None => Value::Int(-1),
    })
}

fn last_index_of<'a>(text: &str, part: &str, from: Option<i64>) -> Result<Value<'a>, Error> {
    let length = text.chars().count();
    if part.is_empty() {
        return Ok(from.map_or_else(|| int(length), Value::Int));
    }
    let Some(from) = from else {
        return Ok(text
            .rfind(part)
            .map_or(Value::Int(-1), |at| int(text[..at].chars().count())));
    };
    let last = usize::try_from(from).map_err(|_| out_of_range(from))?;
    if last >= length {
        return Ok(Value::Int(-1));
    }
    // A match may begin at `last` at the latest.
    let end = text
        .char_indices()
        .nth(last + part.chars().count())
        .map_or(text.len(), |(at, _)| at);
    Ok(text[..end]
        .rfind(part)
        .map_or(Value::Int(-1), |at| int(text[..at].chars().count())))
}

fn split<'a>(text: &str, separator: &str, count: i64) -> Value<'a> {
    let limit = match usize::try_from(count) {
        Ok(0) => return Value::list(Vec::new()),
        Ok(limit) => limit,
        Err(_) => usize::MAX,
    };
    if !separator.is_empty() {
        return Value::strings(text.splitn(limit, separator).map(str::to_owned));
    }
    // An empty separator parts the characters, the last of the parts being the rest.
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        if parts.len() + 1 == limit {
            parts.push(rest.to_owned());
            break;
        }
        parts.push(c.to_string());
        rest = &rest[c.len_utf8()..];
    }
    Value::strings(parts)
}

fn join<'a>(list: &List<'a>, separator: &str) -> Result<Value<'a>, Error> {
    let mut joined = String::new();
    for (at, item) in list.iter().enumerate() {
        if at > 0 {
            joined.push_str(separator);
        }
        match item? {
            Value::String(text) => {
                made(text.len() + separator.len());
                joined.push_str(&text);
            }
            other => return Err(Error::new(format!("join: invalid input: {other}"))),
        }
    }
    Ok(Value::string(joined))
}

/// In double quotes, with the language's escapes.
fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '\u{7}' => quoted.push_str("\\a"),
            '\u{8}' => quoted.push_str("\\b"),
            '\u{c}' => quoted.push_str("\\f"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            '\u{b}' => quoted.push_str("\\v"),
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}
