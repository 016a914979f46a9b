//! Objects as YAML text, as sigs.k8s.io/yaml writes them: keys in order, lists not indented below their key, strings
//! quoted only where they would be read as something else. Vendor extensions of OpenAPI v2 come from another library,
//! and have another [`Style`].

use serde_json::Value;

/// How far things are from the margin, and how long lines may be.
#[derive(Clone, Copy)]
pub(crate) struct Style {
    /// A value below a key is indented to the next multiple of this many columns.
    step: usize,
    /// Whether a list below a key is indented as a map is.
    indents_lists: bool,
    /// The column behind which a text is broken.
    width: usize,
}

impl Style {
    /// That of objects.
    pub(crate) const OBJECTS: Style = Style {
        step: 2,
        indents_lists: false,
        width: 80,
    };
    /// That of vendor extensions.
    pub(crate) const EXTENSIONS: Style = Style {
        step: 4,
        indents_lists: true,
        width: usize::MAX,
    };

    /// The column of a value below a key at this column.
    fn below(self, column: usize) -> usize {
        (column / self.step + 1) * self.step
    }
}

/// How far right of a dash the item stands.
const DASH: usize = 2;

/// The YAML text of a value, with a newline at the end.
pub(crate) fn encode(value: &Value, style: Style) -> String {
    let mut text = Writer {
        text: String::new(),
        style,
    };
    match value {
        Value::Object(map) if !map.is_empty() => text.map(map, 0, false),
        Value::Array(items) if !items.is_empty() => text.list(items, 0),
        scalar => {
            text.scalar(scalar, style.below(0));
            text.push('\n');
        }
    }
    text.text
}

struct Writer {
    text: String,
    style: Style,
}

impl Writer {
    fn push(&mut self, c: char) {
        self.text.push(c);
    }

    fn push_str(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn indent(&mut self, column: usize) {
        self.text.extend(std::iter::repeat_n(' ', column));
    }

    /// Writes the entries of a map; `inline`: the first one goes on the present line, behind a dash.
    fn map(&mut self, map: &serde_json::Map<String, Value>, column: usize, inline: bool) {
        // Sorted here, so that the text does not depend on how serde_json keeps maps.
        let mut entries: Vec<(&String, &Value)> = map.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        let below = self.style.below(column);
        for (index, (key, value)) in entries.into_iter().enumerate() {
            if index > 0 || !inline {
                self.indent(column);
            }
            self.string(key, None);
            self.push(':');
            match value {
                Value::Object(inner) if !inner.is_empty() => {
                    self.push('\n');
                    self.map(inner, below, false);
                }
                Value::Array(items) if !items.is_empty() => {
                    self.push('\n');
                    self.list(items, if self.style.indents_lists { below } else { column });
                }
                scalar => {
                    self.push(' ');
                    self.scalar(scalar, below);
                    self.push('\n');
                }
            }
        }
    }

    fn list(&mut self, items: &[Value], column: usize) {
        for item in items {
            self.indent(column);
            self.item(item, column);
        }
    }

    /// Writes an item behind its dash, which stands at this column.
    fn item(&mut self, item: &Value, column: usize) {
        self.push_str("- ");
        let column = column + DASH;
        match item {
            Value::Object(map) if !map.is_empty() => self.map(map, column, true),
            Value::Array(inner) => match inner.split_first() {
                Some((first, rest)) => {
                    self.item(first, column);
                    self.list(rest, column);
                }
                None => self.push_str("[]\n"),
            },
            scalar => {
                self.scalar(scalar, column);
                self.push('\n');
            }
        }
    }

    /// Writes a value that fits behind a key or a dash; further lines of it stand at the column.
    fn scalar(&mut self, value: &Value, column: usize) {
        match value {
            Value::Null => self.push_str("null"),
            Value::Bool(flag) => self.push_str(if *flag { "true" } else { "false" }),
            Value::Number(number) => self.push_str(&number.to_string()),
            Value::String(string) => self.string(string, Some(column)),
            Value::Array(_) => self.push_str("[]"),
            Value::Object(_) => self.push_str("{}"),
        }
    }

    /// Writes a string; `column`: where further lines stand, `None` for keys, which have none.
    fn string(&mut self, string: &str, column: Option<usize>) {
        let printable = !string
            .chars()
            .any(|c| (c.is_control() && c != '\n') || c == '\u{feff}' || ('\u{2028}'..='\u{2029}').contains(&c));
        match column {
            Some(column) if printable && string.contains('\n') && !string.starts_with([' ', '\n']) => {
                self.block(string, column);
            }
            _ if !printable || string.contains('\n') || reads_as_another_type(string) => {
                self.quoted(string, column);
            }
            _ if needs_quotes(string) => {
                self.push('\'');
                self.folded(&string.replace('\'', "''"), column);
                self.push('\'');
            }
            _ => self.folded(string, column),
        }
    }

    /// How many characters the last line has.
    fn filled(&self) -> usize {
        self.text.rsplit('\n').next().map_or(0, |line| line.chars().count())
    }

    /// Writes a text that may be broken where a single space stands beyond the width, but never a key.
    fn folded(&mut self, string: &str, column: Option<usize>) {
        let Some(column) = column else {
            self.push_str(string);
            return;
        };
        let mut at = self.filled();
        let mut spaces = false;
        let mut characters = string.chars().peekable();
        while let Some(c) = characters.next() {
            let single = c == ' ' && !spaces && characters.peek().is_some_and(|next| *next != ' ');
            spaces = c == ' ';
            if single && at > self.style.width {
                self.push('\n');
                self.indent(column);
                at = column;
            } else {
                self.push(c);
                at += 1;
            }
        }
    }

    fn block(&mut self, string: &str, column: usize) {
        let body = string.trim_end_matches('\n');
        self.push_str(match string.len() - body.len() {
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
            self.push('\n');
            if !line.is_empty() {
                self.indent(column);
                self.push_str(line);
            }
        }
    }

    fn quoted(&mut self, string: &str, column: Option<usize>) {
        use std::fmt::Write as _;
        self.push('"');
        let mut spaces = false;
        let mut characters = string.chars().enumerate().peekable();
        while let Some((at, c)) = characters.next() {
            let breaks = c == ' ' && !spaces && at > 0 && characters.peek().is_some();
            spaces = c == ' ';
            match (c, column) {
                (' ', Some(column)) if breaks && self.filled() > self.style.width => {
                    self.push('\n');
                    self.indent(column);
                    if characters.peek().is_some_and(|(_, next)| *next == ' ') {
                        self.push('\\');
                    }
                }
                ('"', _) => self.push_str("\\\""),
                ('\\', _) => self.push_str("\\\\"),
                ('\n', _) => self.push_str("\\n"),
                ('\t', _) => self.push_str("\\t"),
                ('\r', _) => self.push_str("\\r"),
                (c, _) if u32::from(c) < 0x20 || c == '\u{7f}' => {
                    let _ = write!(self.text, "\\x{:02x}", u32::from(c));
                }
                (c, _) if c.is_control() || c == '\u{feff}' || ('\u{2028}'..='\u{2029}').contains(&c) => {
                    let _ = write!(self.text, "\\u{:04x}", u32::from(c));
                }
                (c, _) => self.push(c),
            }
        }
        self.push('"');
    }
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
    // Go takes both cases of the letter.
    let prefixed = |prefix: &str, radix: u32| {
        let parts = digits.split_at_checked(prefix.len());
        parts.is_some_and(|(head, tail)| {
            head.eq_ignore_ascii_case(prefix) && !tail.is_empty() && tail.chars().all(|c| c.is_digit(radix))
        })
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
        assert_eq!(encode(&value, Style::OBJECTS), want);
    }

    #[test]
    fn extensions() {
        #[track_caller]
        fn check(value: Value, want: &str) {
            assert_eq!(encode(&value, Style::EXTENSIONS), want);
        }
        check(json!("merge"), "merge\n");
        check(json!("two\nlines"), "|-\n    two\n    lines\n");
        check(json!(["a", ["b"], []]), "- a\n- - b\n- []\n");
        check(
            json!({"a": {"b": ["c", {"d": {"e": 1}}]}}),
            "a:\n    b:\n        - c\n        - d:\n            e: 1\n",
        );
        let long = "word ".repeat(30) + "end";
        check(
            json!([{"message": long, "rule": "x"}]),
            &format!("- message: {long}\n  rule: x\n"),
        );
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
            ("0XA", "\"0XA\""),
            ("-0B1", "\"-0B1\""),
            ("0O17", "\"0O17\""),
            ("0Xz", "0Xz"),
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
            for style in [Style::OBJECTS, Style::EXTENSIONS] {
                let text = encode(&value, style);
                let back = kubewright_schema::decode::yaml(text.as_bytes());
                prop_assert!(back.as_ref().is_ok_and(|decoded| decoded.value == value), "{text}\n{:?}", back.map(|d| d.value));
            }
        });
    }
}
