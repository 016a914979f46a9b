//! Objects as YAML text, as sigs.k8s.io/yaml writes them: keys in order, lists not indented below their key, strings quoted only where
//! they would be read as something else.

use serde_json::Value;

/// The YAML text of a value, with a newline at the end.
pub(crate) fn encode(value: &Value) -> String {
    let mut text = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => write_map(&mut text, map, 0, false),
        Value::Array(items) if !items.is_empty() => write_list(&mut text, items, 0),
        scalar => {
            write_scalar(&mut text, scalar, 0);
            text.push('\n');
        }
    }
    text
}

fn indent(text: &mut String, depth: usize) {
    text.extend(std::iter::repeat_n("  ", depth));
}

/// Writes the entries of a map; `inline`: the first one goes on the present line, behind a dash.
fn write_map(text: &mut String, map: &serde_json::Map<String, Value>, depth: usize, inline: bool) {
    // Sorted here, so that the text does not depend on how serde_json keeps maps.
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 || !inline {
            indent(text, depth);
        }
        write_string(text, key, None);
        text.push(':');
        match value {
            Value::Object(inner) if !inner.is_empty() => {
                text.push('\n');
                write_map(text, inner, depth + 1, false);
            }
            Value::Array(items) if !items.is_empty() => {
                text.push('\n');
                write_list(text, items, depth);
            }
            scalar => {
                text.push(' ');
                write_scalar(text, scalar, depth + 1);
                text.push('\n');
            }
        }
    }
}

fn write_list(text: &mut String, items: &[Value], depth: usize) {
    for item in items {
        indent(text, depth);
        text.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_map(text, map, depth + 1, true),
            Value::Array(inner) if !inner.is_empty() => {
                let mut nested = String::new();
                write_list(&mut nested, inner, depth + 1);
                text.push_str(nested.trim_start_matches(' '));
            }
            scalar => {
                write_scalar(text, scalar, depth + 1);
                text.push('\n');
            }
        }
    }
}

fn write_scalar(text: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Null => text.push_str("null"),
        Value::Bool(flag) => text.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&number.to_string()),
        Value::String(string) => write_string(text, string, Some(depth)),
        Value::Array(_) => text.push_str("[]"),
        Value::Object(_) => text.push_str("{}"),
    }
}

/// Writes a string; `depth`: where the lines of a block scalar stand, `None` for keys, which are never blocks.
fn write_string(text: &mut String, string: &str, depth: Option<usize>) {
    let printable = !string
        .chars()
        .any(|c| (c.is_control() && c != '\n') || c == '\u{feff}' || ('\u{2028}'..='\u{2029}').contains(&c));
    match depth {
        Some(depth) if printable && string.contains('\n') && !string.starts_with([' ', '\n']) => {
            write_block(text, string, depth);
        }
        _ if !printable || string.contains('\n') || reads_as_another_type(string) => {
            write_quoted(text, string, depth);
        }
        _ if needs_quotes(string) => {
            text.push('\'');
            write_folded(text, &string.replace('\'', "''"), depth);
            text.push('\'');
        }
        _ => write_folded(text, string, depth),
    }
}

/// The column behind which a text is broken.
const WIDTH: usize = 80;

/// How many characters the last line has.
fn column(text: &str) -> usize {
    text.rsplit('\n').next().map_or(0, |line| line.chars().count())
}

/// Writes a text that may be broken where a single space stands beyond the width, but never a key.
fn write_folded(text: &mut String, string: &str, depth: Option<usize>) {
    let Some(depth) = depth else {
        text.push_str(string);
        return;
    };
    let mut at = column(text);
    let mut spaces = false;
    let mut characters = string.chars().peekable();
    while let Some(c) = characters.next() {
        let single = c == ' ' && !spaces && characters.peek().is_some_and(|next| *next != ' ');
        spaces = c == ' ';
        if single && at > WIDTH {
            text.push('\n');
            indent(text, depth);
            at = 2 * depth;
        } else {
            text.push(c);
            at += 1;
        }
    }
}

fn write_block(text: &mut String, string: &str, depth: usize) {
    let body = string.trim_end_matches('\n');
    text.push_str(match string.len() - body.len() {
        0 => "|-",
        1 => "|",
        _ => "|+",
    });
    let body = if string.ends_with("\n\n") {
        &string[..string.len() - 1]
    } else {
        body
    };
    for line in body.split('\n') {
        text.push('\n');
        if !line.is_empty() {
            indent(text, depth);
            text.push_str(line);
        }
    }
}

fn write_quoted(text: &mut String, string: &str, depth: Option<usize>) {
    use std::fmt::Write as _;
    text.push('"');
    let mut spaces = false;
    let mut characters = string.chars().enumerate().peekable();
    while let Some((at, c)) = characters.next() {
        let breaks = c == ' ' && !spaces && at > 0 && characters.peek().is_some();
        spaces = c == ' ';
        match c {
            ' ' if breaks && depth.is_some() && column(text) > WIDTH => {
                text.push('\n');
                indent(text, depth.unwrap_or(0));
                if characters.peek().is_some_and(|(_, next)| *next == ' ') {
                    text.push('\\');
                }
            }
            '"' => text.push_str("\\\""),
            '\\' => text.push_str("\\\\"),
            '\n' => text.push_str("\\n"),
            '\t' => text.push_str("\\t"),
            '\r' => text.push_str("\\r"),
            c if u32::from(c) < 0x20 || c == '\u{7f}' => {
                let _ = write!(text, "\\x{:02x}", u32::from(c));
            }
            c if c.is_control() || c == '\u{feff}' || ('\u{2028}'..='\u{2029}').contains(&c) => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

/// Whether the plain text would be read as a number, a boolean, a null or a time (YAML 1.1).
fn reads_as_another_type(string: &str) -> bool {
    const WORDS: [&str; 10] = ["y", "n", "yes", "no", "true", "false", "on", "off", "null", "~"];
    if string.is_empty() || WORDS.contains(&string.to_ascii_lowercase().as_str()) {
        return true;
    }
    let bytes = string.as_bytes();
    let sign = usize::from(matches!(bytes[0], b'-' | b'+'));
    let rest = &string[sign..];
    if matches!(rest.to_ascii_lowercase().as_str(), ".inf" | ".nan") {
        return true;
    }
    let Some(first) = rest
        .bytes()
        .next()
        .filter(|byte| byte.is_ascii_digit() || *byte == b'.')
    else {
        return false;
    };
    let digits = rest.replace('_', "");
    let prefixed = |prefix: &str, radix: u32| {
        digits
            .strip_prefix(prefix)
            .is_some_and(|tail| !tail.is_empty() && tail.chars().all(|c| c.is_digit(radix)))
    };
    let date = sign == 0
        && rest.len() >= 8
        && bytes[..4].iter().all(u8::is_ascii_digit)
        && rest.as_bytes()[4] == b'-'
        && rest.bytes().all(|b| b.is_ascii_digit() || b"-:.TtZz+ ".contains(&b));
    let sexagesimal = first.is_ascii_digit()
        && rest.contains(':')
        && rest.bytes().all(|b| b.is_ascii_digit() || b == b':' || b == b'.');
    (digits.parse::<f64>().is_ok() && digits.bytes().any(|b| b.is_ascii_digit()))
        || prefixed("0x", 16)
        || prefixed("0o", 8)
        || prefixed("0b", 2)
        || date
        || sexagesimal
}

/// Whether a string cannot stand without quotes for reasons of syntax.
fn needs_quotes(string: &str) -> bool {
    let first = string.chars().next().unwrap_or(' ');
    let second = string.chars().nth(1);
    let indicator = match first {
        '-' | '?' | ':' => second.is_none_or(|c| c == ' '),
        ',' | '[' | ']' | '{' | '}' | '#' | '&' | '*' | '!' | '|' | '>' | '\'' | '"' | '%' | '@' | '`' => true,
        _ => false,
    };
    let edges = string.starts_with(' ') || string.ends_with(' ') || string.ends_with(':');
    let document = string.starts_with("---") || string.starts_with("...") || string == "=" || string == "<<";
    indicator || edges || document || string.contains(": ") || string.contains(" #")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(value: Value, want: &str) {
        assert_eq!(encode(&value), want);
    }

    #[test]
    fn objects() {
        check(json!({}), "{}\n");
        check(
            json!({"metadata": {"finalizers": ["a", "b"], "labels": {"app": "y"}, "empty": {}, "none": []}, "data": {"a": "1"}, "n": 3, "x": null}),
            "data:\n  a: \"1\"\nmetadata:\n  empty: {}\n  finalizers:\n  - a\n  - b\n  labels:\n    app: \"y\"\n  none: []\n\"n\": 3\nx: null\n",
        );
        check(
            json!({"l": [{"a": 1, "b": {"c": 2}}, [1, 2], []]}),
            "l:\n- a: 1\n  b:\n    c: 2\n- - 1\n  - 2\n- []\n",
        );
    }

    #[test]
    fn strings() {
        for (string, want) in [
            ("plain", "plain"),
            ("", "\"\""),
            ("true", "\"true\""),
            ("1.5", "\"1.5\""),
            ("0x1f", "\"0x1f\""),
            ("1e3", "\"1e3\""),
            ("2026-01-02T03:04:05Z", "\"2026-01-02T03:04:05Z\""),
            ("*", "'*'"),
            ("a: b", "'a: b'"),
            ("it's", "it's"),
            ("- x", "'- x'"),
            ("-x", "-x"),
            ("configmaps \"none\" not found", "configmaps \"none\" not found"),
            ("a\tb", "\"a\\tb\""),
            ("1.2.3", "1.2.3"),
            ("one\ntwo", "|-\n  one\n  two"),
            ("one\ntwo\n", "|\n  one\n  two"),
        ] {
            check(json!({ "k": string }), &format!("k: {want}\n"));
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        use proptest::prelude::*;
        let strings = proptest::collection::vec(
            proptest::string::string_regex("[ -~\n\t]{0,12}").expect("a pattern"),
            0..6,
        );
        proptest!(|(values in strings)| {
            let value = json!({"list": values, "map": {"deep": values.iter().map(|v| json!({"v": v})).collect::<Vec<_>>()}});
            let text = encode(&value);
            let back = kubewright_schema::decode::yaml(text.as_bytes());
            prop_assert!(back.as_ref().is_ok_and(|decoded| decoded.value == value), "{text}\n{:?}", back.map(|d| d.value));
        });
    }
}
