//! JSON by hand: Go's error message depends on the state of the scanner.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value};

use super::{DecodeError, Decoded, MAX_DEPTH, MAX_DUPLICATES};
use crate::{budget, measure};

/// `merging`: an object that stands twice is read into the same one.
pub(super) fn decode(bytes: &[u8], merging: bool) -> Result<Decoded, DecodeError> {
    let mut reader = Reader {
        merging,
        bytes,
        at: 0,
        depth: 0,
        path: Vec::new(),
        duplicates: Vec::new(),
        seen: BTreeSet::new(),
    };
    let value = reader.value()?;
    match reader.peek() {
        None => Ok(Decoded {
            value,
            duplicates: reader.duplicates,
        }),
        Some(byte) => Err(unexpected(byte, "after top-level value")),
    }
}

enum Step {
    Key(String),
    Index(usize),
}

/// Reads an object into one that is there.
fn overlay(before: &mut Map<String, Value>, value: Map<String, Value>) {
    for (key, value) in value {
        match (before.get_mut(&key), value) {
            (Some(Value::Object(before)), Value::Object(value)) => overlay(before, value),
            (_, value) => drop(before.insert(key, value)),
        }
    }
}

struct Reader<'a> {
    merging: bool,
    bytes: &'a [u8],
    at: usize,
    depth: usize,
    path: Vec<Step>,
    duplicates: Vec<String>,
    seen: BTreeSet<String>,
}

fn end() -> DecodeError {
    DecodeError::new("unexpected end of JSON input")
}

/// Go reads a byte as the character of that number.
fn unexpected(byte: u8, context: &str) -> DecodeError {
    let shown = match byte {
        b'\'' => r"\'".to_owned(),
        b'"' => "\"".to_owned(),
        _ => crate::error::quote(&char::from(byte).to_string())
            .trim_matches('"')
            .to_owned(),
    };
    DecodeError::new(format!("invalid character '{shown}' {context}"))
}

impl Reader<'_> {
    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        while let Some(byte) = self.bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    fn value(&mut self) -> Result<Value, DecodeError> {
        budget::spend(1);
        match self.peek().ok_or_else(end)? {
            b'{' => self.nested(Self::object),
            b'[' => self.nested(Self::list),
            b'"' => self.string().map(Value::String),
            b't' => self.literal("true", Value::Bool(true)),
            b'f' => self.literal("false", Value::Bool(false)),
            b'n' => self.literal("null", Value::Null),
            b'-' | b'0'..=b'9' => self.number(),
            byte => Err(unexpected(byte, "looking for beginning of value")),
        }
    }

    fn nested(&mut self, read: fn(&mut Self) -> Result<Value, DecodeError>) -> Result<Value, DecodeError> {
        if self.depth == MAX_DEPTH {
            return Err(unexpected(self.bytes[self.at], "exceeded max depth"));
        }
        self.depth += 1;
        self.at += 1;
        let value = read(self)?;
        self.depth -= 1;
        Ok(value)
    }

    fn object(&mut self) -> Result<Value, DecodeError> {
        let mut fields = Map::new();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Object(fields));
        }
        loop {
            match self.peek().ok_or_else(end)? {
                b'"' => {}
                byte => return Err(unexpected(byte, "looking for beginning of object key string")),
            }
            let key = self.string()?;
            match self.peek().ok_or_else(end)? {
                b':' => self.at += 1,
                byte => return Err(unexpected(byte, "after object key")),
            }
            let known = fields.contains_key(&key);
            self.path.push(Step::Key(key));
            if known {
                self.duplicate();
            } else {
                measure::count_field(fields.len());
            }
            let value = self.value()?;
            let Some(Step::Key(key)) = self.path.pop() else {
                unreachable!("steps are popped in the order of their pushing")
            };
            let merges = known && self.merging;
            let before = if merges { fields.get_mut(&key) } else { None };
            match (before, value) {
                (Some(Value::Object(before)), Value::Object(value)) => overlay(before, value),
                (_, value) => drop(fields.insert(key, value)),
            }
            match self.peek().ok_or_else(end)? {
                b',' => self.at += 1,
                b'}' => break,
                byte => return Err(unexpected(byte, "after object key:value pair")),
            }
        }
        self.at += 1;
        Ok(Value::Object(fields))
    }

    fn list(&mut self) -> Result<Value, DecodeError> {
        let mut items = Vec::new();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::Array(items));
        }
        loop {
            self.path.push(Step::Index(items.len()));
            measure::count_item();
            items.push(self.value()?);
            self.path.pop();
            match self.peek().ok_or_else(end)? {
                b',' => self.at += 1,
                b']' => break,
                byte => return Err(unexpected(byte, "after array element")),
            }
        }
        self.at += 1;
        Ok(Value::Array(items))
    }

    /// Notes that the key at the end of the path stands twice; each path once.
    fn duplicate(&mut self) {
        if self.duplicates.len() == MAX_DUPLICATES {
            return;
        }
        let mut path = String::new();
        for step in &self.path {
            match step {
                Step::Key(key) => {
                    path.push_str(if path.is_empty() { "" } else { "." });
                    path.push_str(key);
                }
                Step::Index(index) => path.push_str(&format!("[{index}]")),
            }
        }
        budget::spend_on_text(path.len());
        let text = format!("duplicate field \"{path}\"");
        if self.seen.insert(path) {
            self.duplicates.push(text);
        }
    }

    fn literal(&mut self, word: &str, value: Value) -> Result<Value, DecodeError> {
        for expected in word.bytes() {
            match self.bytes.get(self.at) {
                None => return Err(end()),
                Some(byte) if *byte == expected => self.at += 1,
                Some(byte) => {
                    let context = format!("in literal {word} (expecting '{}')", char::from(expected));
                    return Err(unexpected(*byte, &context));
                }
            }
        }
        Ok(value)
    }

    /// Reads digits, at least one.
    fn digits(&mut self, context: &str) -> Result<(), DecodeError> {
        match self.bytes.get(self.at) {
            None => return Err(end()),
            Some(byte) if !byte.is_ascii_digit() => return Err(unexpected(*byte, context)),
            Some(_) => {}
        }
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_digit) {
            self.at += 1;
        }
        Ok(())
    }

    fn number(&mut self) -> Result<Value, DecodeError> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        if self.bytes.get(self.at) == Some(&b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        let mut whole = true;
        if self.bytes.get(self.at) == Some(&b'.') {
            whole = false;
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            whole = false;
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).expect("a number is ASCII");
        number(text, whole)
    }

    /// Reads a string; at its opening quote.
    fn string(&mut self) -> Result<String, DecodeError> {
        self.at += 1;
        let mut text = Vec::new();
        loop {
            let rest = &self.bytes[self.at..];
            let run = plain_run(rest).ok_or_else(end)?;
            text.extend_from_slice(&rest[..run]);
            self.at += run;
            match rest[run] {
                b'"' => break,
                b'\\' => self.escape(&mut text)?,
                byte => return Err(unexpected(byte, "in string literal")),
            }
        }
        self.at += 1;
        // Bytes that are not UTF-8 become the replacement character, as in Go.
        Ok(String::from_utf8(text).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned()))
    }

    /// Reads an escape; at its backslash.
    fn escape(&mut self, text: &mut Vec<u8>) -> Result<(), DecodeError> {
        let byte = *self.bytes.get(self.at + 1).ok_or_else(end)?;
        let plain = match byte {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'\\' | b'/' | b'"' => byte,
            b'u' => {
                let character = self.unicode()?;
                text.extend(character.encode_utf8(&mut [0; 4]).bytes());
                return Ok(());
            }
            _ => return Err(unexpected(byte, "in string escape code")),
        };
        text.push(plain);
        self.at += 2;
        Ok(())
    }

    /// Reads `\uXXXX`, and the second half of a pair if there is one. Half a pair becomes the replacement character.
    fn unicode(&mut self) -> Result<char, DecodeError> {
        let first = self.hexadecimal()?;
        if (0xd800..0xdc00).contains(&first) && self.bytes[self.at..].starts_with(br"\u") {
            let before = self.at;
            let second = self.hexadecimal()?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = before;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hexadecimal(&mut self) -> Result<u32, DecodeError> {
        self.at += 2;
        let mut code = 0;
        for _ in 0..4 {
            let byte = *self.bytes.get(self.at).ok_or_else(end)?;
            let digit = char::from(byte).to_digit(16);
            code = code * 16 + digit.ok_or_else(|| unexpected(byte, "in \\u hexadecimal character escape"))?;
            self.at += 1;
        }
        Ok(code)
    }
}

/// How many bytes of a string come before one that ends it or means something.
fn plain_run(bytes: &[u8]) -> Option<usize> {
    const STEP: usize = 16;
    let is_special = |byte: &u8| matches!(byte, b'"' | b'\\' | 0..=0x1f);
    // Without a way out of a step the processor looks at its bytes at once.
    let plain = |step: &&[u8]| !step.iter().fold(false, |found, byte| found | is_special(byte));
    let skipped = STEP * bytes.chunks_exact(STEP).take_while(plain).count();
    Some(skipped + bytes[skipped..].iter().position(is_special)?)
}

/// The value of a written number.
pub(super) fn number(text: &str, whole: bool) -> Result<Value, DecodeError> {
    if whole && let Ok(number) = text.parse::<i64>() {
        return Ok(number.into());
    }
    let float = text.parse::<f64>().ok().and_then(Number::from_f64);
    let wrong = || {
        DecodeError::new(format!(
            "json: cannot unmarshal number {text} into Go value of type float64"
        ))
    };
    float.map(Value::Number).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
        super::decode(bytes, false)
    }
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn errors_have_the_words_of_go() {
        let check = |text: &str, message: &str| {
            assert_eq!(
                decode(text.as_bytes()).map_err(|error| error.to_string()),
                Err(message.to_owned()),
                "{text:?}"
            );
        };
        for text in [
            "",
            " ",
            "{\"kind\":",
            "{",
            "[",
            "[1",
            "[{",
            "\"a",
            "\"\\",
            "\"\\u00",
            "-",
            "1.",
            "1e",
            "tr",
            "{\"a\"",
            "{\"a\":1",
            "{\"a\":1,",
        ] {
            check(text, "unexpected end of JSON input");
        }
        check(
            "{bad",
            "invalid character 'b' looking for beginning of object key string",
        );
        check(
            "kind: ConfigMap\n",
            "invalid character 'k' looking for beginning of value",
        );
        check("{} trailing", "invalid character 't' after top-level value");
        check("{\"a\" 1}", "invalid character '1' after object key");
        check("{\"a\":1 \"b\"", "invalid character '\"' after object key:value pair");
        check(
            "{\"a\":1,}",
            "invalid character '}' looking for beginning of object key string",
        );
        check("[1 2]", "invalid character '2' after array element");
        check("[1,]", "invalid character ']' looking for beginning of value");
        check("'a'", r"invalid character '\'' looking for beginning of value");
        check("\"a\nb\"", r"invalid character '\n' in string literal");
        check(r#""\x""#, "invalid character 'x' in string escape code");
        check(
            r#""\u00g0""#,
            r"invalid character 'g' in \u hexadecimal character escape",
        );
        check("trub", "invalid character 'b' in literal true (expecting 'e')");
        check("-a", "invalid character 'a' in numeric literal");
        check("01", "invalid character '1' after top-level value");
        check("1.x", "invalid character 'x' after decimal point in numeric literal");
        check("1ex", "invalid character 'x' in exponent of numeric literal");
        check(
            "1e999",
            "json: cannot unmarshal number 1e999 into Go value of type float64",
        );
        check("é", "invalid character 'Ã' looking for beginning of value");
        check(&"[".repeat(MAX_DEPTH + 1), "invalid character '[' exceeded max depth");
    }

    #[test]
    fn doubled_keys_are_told_by_path() {
        let text = r#"{"apiVersion":"apps/v1","metadata":{"name":"e","name":"e","labels":{"a":"b","a":"c"}},"spec":{"replicas":1,"replicas":2,"template":{"spec":{"containers":[{"image":"i","image":"j","image":"k"}]}}}}"#;
        let decoded = decode(text.as_bytes()).expect("this is JSON");
        assert_eq!(
            decoded.duplicates,
            [
                r#"duplicate field "metadata.name""#,
                r#"duplicate field "metadata.labels.a""#,
                r#"duplicate field "spec.replicas""#,
                r#"duplicate field "spec.template.spec.containers[0].image""#,
            ]
        );
        assert_eq!(decoded.value["spec"]["replicas"], 2);
        let decoded = decode(br#"[{"op":"add","op":"add","value":{"a":"b","a":"c"}}]"#).expect("this is JSON");
        assert_eq!(
            decoded.duplicates,
            [r#"duplicate field "[0].op""#, r#"duplicate field "[0].value.a""#]
        );
    }

    #[test]
    fn values() {
        let check =
            |text: &[u8], value: Value| assert_eq!(decode(text).map(|decoded| decoded.value), Ok(value), "{text:?}");
        check(b" null ", Value::Null);
        check(b"[true,false,{},[]]", json!([true, false, {}, []]));
        check(b"9223372036854775807", json!(i64::MAX));
        check(b"9223372036854775808", json!(9_223_372_036_854_775_808.0_f64));
        check(b"-0", json!(0));
        check(b"1.0", json!(1.0));
        check(b"1e2", json!(100.0));
        check(
            br#""\"\\\/\b\f\n\r\t\u00e9\ud83d\ude00""#,
            json!("\"\\/\u{8}\u{c}\n\r\té😀"),
        );
        check(br#""\ud800x\ud800\u0041\udc00""#, json!("\u{fffd}x\u{fffd}A\u{fffd}"));
        check(b"\"a\xffb\"", json!("a\u{fffd}b"));
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        assert!(decode(deep.as_bytes()).is_ok());
    }

    pub(crate) fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            any::<String>().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 32, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(any::<String>(), inner, 0..4)
                    .prop_map(|fields| fields.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(value in any_value()) {
            let decoded = decode(value.to_string().as_bytes());
            prop_assert_eq!(decoded, Ok(Decoded { value, duplicates: Vec::new() }));
        }

        #[test]
        fn accepts_what_serde_accepts(text in r#"[\[\]{},:"a0-9eE.+ \\u-]{0,10}"#) {
            let ours = decode(text.as_bytes()).map(|decoded| decoded.value);
            let theirs = serde_json::from_str::<Value>(&text);
            // Half a surrogate pair is an error to serde alone.
            if theirs.is_ok() || !text.contains("\\u") {
                prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?} {:?}", ours, theirs);
            }
        }
    }

    #[test]
    fn a_run_ends_where_it_means_something() {
        for length in 0..40 {
            let mut plain = vec![b'a'; length];
            assert_eq!(plain_run(&plain), None, "{length}");
            for (at, special) in (0..length).flat_map(|at| [b'"', b'\\', 0, 0x1f].map(|special| (at, special))) {
                let before = std::mem::replace(&mut plain[at], special);
                assert_eq!(plain_run(&plain), Some(at), "{special} in {length}");
                plain[at] = before;
            }
        }
    }
}
