//! How items of lists are written as elements of paths: `v:"x"`, `k:{"port":80}`. Keys are sorted and nothing stands
//! between them, so that equal items are equal texts.
//!
//! A list may have as many of these as a body has room for, and each write makes and reads them: they are written
//! without a copy of their values, and read without any where they are of the form that is written here ([`is_plain`]).

use serde::Serialize;
use serde_json::Value;

use crate::budget;

/// The element of an item of a set.
pub(super) fn value_element(value: &Value) -> String {
    let mut text = Vec::with_capacity("v:\"\"".len() + value.as_str().map_or(4, str::len));
    text.extend_from_slice(b"v:");
    write(value, &mut text);
    finished(text)
}

/// The element of an item with these keys.
pub(super) fn key_element(mut keys: Vec<(&str, &Value)>) -> String {
    keys.sort_by_key(|(key, _)| *key);
    keys.dedup_by_key(|(key, _)| *key);
    // Keys are mostly names; there is room for a number as well.
    let text_of = |value: &Value| value.as_str().map_or(4, str::len);
    let room = |(key, value): &(&str, &Value)| key.len() + text_of(value) + "\"\":\"\",".len();
    let mut text = Vec::with_capacity("k:{}".len() + keys.iter().map(room).sum::<usize>());
    text.extend_from_slice(b"k:{");
    for (at, (key, value)) in keys.into_iter().enumerate() {
        if at > 0 {
            text.push(b',');
        }
        write(key, &mut text);
        text.push(b':');
        write(value, &mut text);
    }
    text.push(b'}');
    finished(text)
}

fn write<T: Serialize + ?Sized>(value: &T, text: &mut Vec<u8>) {
    let begin = text.len();
    // Neither a list of bytes nor a value of JSON refuses anything.
    let _ = serde_json::to_writer(&mut *text, value);
    budget::spend_on_text(text.len() - begin);
}

fn finished(text: Vec<u8>) -> String {
    // The written bytes are text.
    String::from_utf8(text).unwrap_or_default()
}

/// Whether a text is a scalar, or an object of scalars, as it is written here: reading and writing it would give the
/// same text. For rare forms (escapes, fractions, objects in objects) it answers no, which costs time only.
pub(super) fn is_plain(text: &str) -> bool {
    let Some(rest) = text.strip_prefix('{') else {
        return scalar(text) == Some("");
    };
    let (mut rest, mut last) = (rest, None);
    loop {
        let Some((key, after)) = string(rest) else { return false };
        let value = after.strip_prefix(':').and_then(scalar);
        match value {
            _ if last.is_some_and(|last| last >= key) => return false,
            Some("}") => return true,
            Some(after) if after.starts_with(',') => rest = &after[1..],
            _ => return false,
        }
        last = Some(key);
    }
}

/// The rest behind a scalar, if one stands here.
fn scalar(text: &str) -> Option<&str> {
    for word in ["true", "false", "null"] {
        if let Some(rest) = text.strip_prefix(word) {
            return Some(rest);
        }
    }
    match string(text) {
        Some((_, rest)) => Some(rest),
        None => number(text),
    }
}

/// A string without escapes, and the rest.
fn string(text: &str) -> Option<(&str, &str)> {
    let inner = text.strip_prefix('"')?;
    let end = inner.find(|c: char| c == '"' || c == '\\' || c < ' ')?;
    let (string, rest) = inner.split_at(end);
    Some((string, rest.strip_prefix('"')?))
}

/// The rest behind a whole number of a few digits.
fn number(text: &str) -> Option<&str> {
    const FEW: usize = 18;
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit());
    let count = text.len() - digits.len();
    let is_written_so = (1..=FEW).contains(&count) && (count == 1 || !text.starts_with('0'));
    // A fraction or an exponent would go on.
    (is_written_so && !digits.starts_with(['.', 'e', 'E'])).then_some(digits)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn elements_are_written_like_json() {
        for (value, want) in [
            (json!("a\"b\n"), r#"v:"a\"b\n""#),
            (json!(1.5), "v:1.5"),
            (json!(null), "v:null"),
        ] {
            assert_eq!(value_element(&value), want);
        }
        let (one, two) = (json!(1), json!("x"));
        assert_eq!(key_element(vec![("b", &two), ("a", &one)]), r#"k:{"a":1,"b":"x"}"#);
        assert_eq!(key_element(Vec::new()), "k:{}");
    }

    #[test]
    fn plain_is_what_would_be_written_so() {
        for (text, want) in [
            (r#""x""#, true),
            ("80", true),
            ("0", true),
            (r#"{"name":"c"}"#, true),
            (r#"{"port":80,"protocol":"TCP"}"#, true),
            (r#"{"a":true,"b":null}"#, true),
            (r#"{"protocol":"TCP","port":80}"#, false),
            (r#"{"a":1,"a":2}"#, false),
            (r#"{"name": "c"}"#, false),
            (r#""x" "#, false),
            (r#""a\u0062""#, false),
            ("080", false),
            ("-0", false),
            ("1.0", false),
            ("1e3", false),
            ("10000000000000000000", false),
            (r#"{"a":[1]}"#, false),
            (r#"{"a":1"#, false),
            (r#"{"a":1}}"#, false),
            ("", false),
            ("{", false),
            ("\"\u{1}\"", false),
        ] {
            assert_eq!(is_plain(text), want, "{text}");
        }
    }

    fn some_text() -> impl Strategy<Value = String> {
        prop_oneof![
            r#"[{}",:\\ 0-9a-ctruefalsn.-]{0,12}"#,
            prop::collection::btree_map("[a-c]", "[a-z0-9]{0,3}", 0..3).prop_map(|map| json!(map).to_string()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_plain_is_written_as_it_was_read(text in some_text()) {
            if is_plain(&text) {
                let value: Value = serde_json::from_str(&text).expect("it is JSON");
                prop_assert_eq!(value.to_string(), text);
            }
        }
    }
}
