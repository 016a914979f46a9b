//! YAML as Kubernetes' own tools write it: keys sorted, lists not indented below their key, texts in quotes only where
//! they need them.
//!
//! Invariant: a written value is read back equal, by this project's reader and by `kubectl` (YAML 1.1 included: `yes`,
//! `010` and `1:30` are quoted). Not here: comments, which a caller puts in front of a document.

use serde_json::Value;

/// A value as one YAML document, without `---`.
///
/// ```
/// use kubewright_codegen::yaml::to_string;
/// use serde_json::json;
///
/// let text = to_string(&json!({"kind": "List", "items": [{"name": "a", "on": "yes"}], "empty": {}}));
/// assert_eq!(text, "empty: {}\nitems:\n- name: a\n  \"on\": \"yes\"\nkind: List\n");
/// ```
#[must_use]
pub fn to_string(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(map) if !map.is_empty() => mapping(map, 0, false, &mut out),
        Value::Array(list) if !list.is_empty() => sequence(list, 0, &mut out),
        scalar => {
            write_scalar(scalar, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Several documents, each introduced by `---`.
#[must_use]
pub fn documents_to_string(documents: &[Value]) -> String {
    documents
        .iter()
        .map(|document| format!("---\n{}", to_string(document)))
        .collect()
}

/// Reads one YAML document, as Kubernetes does.
///
/// # Errors
/// In the words of the reader, when it is no YAML.
pub fn parse(text: &str) -> Result<Value, String> {
    kubewright_schema::decode::yaml(text.as_bytes())
        .map(|read| read.value)
        .map_err(|error| error.to_string())
}

fn indent(depth: usize, out: &mut String) {
    for _ in 0..depth {
        out.push_str("  ");
    }
}

/// `inline`: the first key stands behind the dash of a list.
fn mapping(map: &serde_json::Map<String, Value>, depth: usize, inline: bool, out: &mut String) {
    let mut entries: Vec<(&String, &Value)> = map.iter().collect();
    entries.sort_by_key(|(key, _)| *key);
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if index > 0 || !inline {
            indent(depth, out);
        }
        if needs_long_key(key) {
            // A key over several lines needs the long form; in double quotes it is on one line.
            double_quoted(key, out);
        } else {
            text(key, out);
        }
        out.push(':');
        match value {
            Value::Object(below) if !below.is_empty() => {
                out.push('\n');
                mapping(below, depth + 1, false, out);
            }
            Value::Array(below) if !below.is_empty() => {
                out.push('\n');
                sequence(below, depth, out);
            }
            scalar => {
                out.push(' ');
                write_scalar(scalar, depth + 1, out);
                out.push('\n');
            }
        }
    }
}

fn sequence(list: &[Value], depth: usize, out: &mut String) {
    for item in list {
        indent(depth, out);
        out.push_str("- ");
        match item {
            Value::Object(below) if !below.is_empty() => mapping(below, depth + 1, true, out),
            Value::Array(below) if !below.is_empty() => {
                let mut inner = String::new();
                sequence(below, depth + 1, &mut inner);
                out.push_str(inner.trim_start());
            }
            scalar => {
                write_scalar(scalar, depth + 1, out);
                out.push('\n');
            }
        }
    }
}

fn write_scalar(value: &Value, depth: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::Object(_) => out.push_str("{}"),
        Value::Array(_) => out.push_str("[]"),
        Value::String(words) if fits_block(words) => block(words, depth, out),
        Value::String(words) => text(words, out),
    }
}

fn needs_long_key(key: &str) -> bool {
    key.contains('\n')
}

/// A text on one line: bare, in single quotes where its letters would mean something, in double quotes where it would
/// be another type, or needs escapes.
fn text(words: &str, out: &mut String) {
    if words.chars().any(needs_escape) {
        double_quoted(words, out);
    } else if is_other_type(words) {
        out.push('"');
        out.push_str(words);
        out.push('"');
    } else if is_bare(words) {
        out.push_str(words);
    } else {
        out.push('\'');
        out.push_str(&words.replace('\'', "''"));
        out.push('\'');
    }
}

fn needs_escape(letter: char) -> bool {
    letter.is_control()
        || matches!(
            letter,
            '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}' | '\u{85}'
        )
}

/// Whether a bare word would be read as a number, a flag, a date or nothing (YAML 1.1 and 1.2, and generously).
fn is_other_type(words: &str) -> bool {
    const RESERVED: [&str; 11] = ["y", "n", "yes", "no", "on", "off", "true", "false", "null", "~", ""];
    if RESERVED.contains(&words.to_ascii_lowercase().as_str()) || matches!(words, "=" | "<<") {
        return true;
    }
    let body = words.trim_start_matches(['+', '-']);
    let special = ["inf", ".inf", "nan", ".nan"].contains(&body.to_ascii_lowercase().as_str());
    // Underscores in numbers are passed over, behind a sign also the first.
    let signed = body.len() < words.len();
    let number = body.starts_with(|first: char| first.is_ascii_digit() || first == '.' || (signed && first == '_'))
        && body.contains(|letter: char| letter.is_ascii_digit())
        && body
            .chars()
            .all(|letter| letter.is_ascii_hexdigit() || "._:+-xXoOtTzZ ,".contains(letter));
    special || number
}

/// Whether the text means itself without quotes.
fn is_bare(words: &str) -> bool {
    let Some(first) = words.chars().next() else {
        return false;
    };
    let starts_badly = "!&*-?|>@`\"'%#{}[],:= ".contains(first)
        && !(first == '-' && words[1..].starts_with(|next: char| !next.is_whitespace() && next != '-'));
    !starts_badly
        && !words.ends_with([' ', ':'])
        && !words.contains(": ")
        && !words.contains(" #")
        && words != "---"
        && words != "..."
        && !words.starts_with("--- ")
        && !words.starts_with("... ")
}

fn double_quoted(words: &str, out: &mut String) {
    out.push('"');
    for letter in words.chars() {
        match letter {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            other if needs_escape(other) && u32::from(other) <= 0xff => {
                out.push_str(&format!("\\x{:02x}", u32::from(other)));
            }
            other if needs_escape(other) => out.push_str(&format!("\\u{:04x}", u32::from(other))),
            other => out.push(other),
        }
    }
    out.push('"');
}

/// Whether a text of several lines can stand as a block (`|`): nothing in it that a block would change.
fn fits_block(words: &str) -> bool {
    words.contains('\n')
        && !words.chars().any(|letter| letter != '\n' && (needs_escape(letter) || letter == '\t'))
        && !words.starts_with([' ', '\n'])
        && words.trim_end_matches('\n').lines().all(|line| !line.ends_with(' '))
        && !words.trim_end_matches('\n').is_empty()
        // One line break at the end, or none: more would need to be kept by count.
        && !words.ends_with("\n\n")
}

fn block(words: &str, depth: usize, out: &mut String) {
    out.push_str(if words.ends_with('\n') { "|" } else { "|-" });
    for line in words.trim_end_matches('\n').split('\n') {
        out.push('\n');
        if !line.is_empty() {
            indent(depth, out);
            out.push_str(line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kubewright_schema::decode;
    use proptest::prelude::*;
    use serde_json::json;

    fn same(value: &Value) {
        let written = to_string(value);
        let read = decode::yaml(written.as_bytes()).unwrap_or_else(|error| panic!("{error:?}\n{written}"));
        assert_eq!(&read.value, value, "{written}");
    }

    #[test]
    fn what_looks_like_something_else_is_quoted() {
        for words in [
            "",
            "yes",
            "No",
            "on",
            "~",
            "null",
            "true",
            "1",
            "-1",
            "1.5",
            "1e3",
            "0x1f",
            "010",
            "0o7",
            "1_000",
            "+_0",
            "1:30",
            ".5",
            "+.inf",
            "-.INF",
            ".nan",
            "2021-01-01",
            "2021-01-01T00:00:00Z",
            "=",
            "<<",
            "-",
            "- a",
            "a: b",
            "a:",
            "a #b",
            "#a",
            "*",
            "&a",
            "!x",
            "%a",
            "@a",
            "`a`",
            "{a}",
            "[a]",
            "a, b",
            "'",
            "\"",
            "it's",
            " a",
            "a ",
            "a\nb",
            "a\nb\n",
            "a\n\nb",
            "a\n",
            "\na",
            "  a\nb",
            "a \nb",
            "a\tb",
            "a\n\n",
            "\u{85}",
            "\u{feff}x",
            "---",
            "...",
            "--- a",
            "?",
            "? a",
            "|",
            ">",
            "a\r\nb",
            "10Gi",
            "1.36.3",
            "v1",
            "system:serviceaccount:a:b",
            "日本",
            "\u{1F600}",
            "\u{7f}",
            "-a",
            "--x=y",
            "--",
            "key: |",
            "\\",
            "a\\b",
            ",",
            ":",
            "::",
            ":a",
            "0",
            "00",
            "0.",
            "1.",
            "e1",
            "12e",
            "-0",
            "+1",
            "0b1",
            "1,000",
        ] {
            same(&json!(words));
            same(&json!([words, [words], {"k": words}]));
            same(&json!({words: {words: words}}));
        }
    }

    fn values() -> impl Strategy<Value = Value> {
        let words = prop_oneof!["\\PC{0,12}", "[-+.:0-9eExX_ a-f]{0,6}", "[ \\n\\t#:a'\"-]{0,8}"];
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            words.clone().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, move |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(words.clone(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(512))]
        #[test]
        fn what_is_written_is_read_back(value in values()) {
            same(&value);
        }
    }
}
