//! JSON as Go's encoder writes it: `<`, `>`, `&` and the separators U+2028 and U+2029 are escaped, so that the text may
//! stand in HTML.
//!
//! Objects are escaped once, when their text is made for storage; lists and watches copy that text.

use std::io::{self, Write};

use kubewright_schema::protobuf::order::{Order, Row};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter};
use serde_json::{Map, Serializer, Value};

/// The escape of a character that begins with this byte, and how long it is unescaped.
fn escape(rest: &[u8]) -> Option<(&'static str, usize)> {
    match rest {
        [b'<', ..] => Some(("\\u003c", 1)),
        [b'>', ..] => Some(("\\u003e", 1)),
        [b'&', ..] => Some(("\\u0026", 1)),
        [0xe2, 0x80, 0xa8, ..] => Some(("\\u2028", 3)),
        [0xe2, 0x80, 0xa9, ..] => Some(("\\u2029", 3)),
        _ => None,
    }
}

/// The bytes with which a character begins that may have to be escaped.
const SUSPECTS: [bool; 256] = {
    let mut suspects = [false; 256];
    suspects[b'<' as usize] = true;
    suspects[b'>' as usize] = true;
    suspects[b'&' as usize] = true;
    suspects[0xe2] = true;
    suspects
};

/// Writes a part of a text. Most parts have nothing to escape, which is seen in one pass.
pub(crate) fn write_fragment<W: ?Sized + Write>(writer: &mut W, fragment: &str) -> io::Result<()> {
    let suspect = |byte: &u8| SUSPECTS[usize::from(*byte)];
    let mut rest = fragment.as_bytes();
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|tail| tail.iter().position(suspect)) {
        let (plain, suspected) = rest.split_at(from.saturating_add(at));
        match escape(suspected) {
            Some((escaped, length)) => {
                writer.write_all(plain)?;
                writer.write_all(escaped.as_bytes())?;
                rest = suspected.get(length..).unwrap_or_default();
                from = 0;
            }
            None => from = plain.len().saturating_add(1),
        }
    }
    writer.write_all(rest)
}

/// Compact JSON.
struct Compact;

impl Formatter for Compact {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        write_fragment(writer, fragment)
    }
}

/// Indented JSON.
struct Indented(PrettyFormatter<'static>);

impl Formatter for Indented {
    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_array(writer)
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array(writer)
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_array_value(writer, first)
    }

    fn end_array_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_array_value(writer)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object(writer)
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object(writer)
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.0.begin_object_key(writer, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.begin_object_value(writer)
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0.end_object_value(writer)
    }

    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        write_fragment(writer, fragment)
    }
}

/// The bytes of a text that are not written as they are, or begin a character that may not be.
const SPECIAL: [bool; 256] = {
    let mut special = SUSPECTS;
    let mut control = 0;
    while control < 0x20 {
        special[control] = true;
        control += 1;
    }
    special[b'"' as usize] = true;
    special[b'\\' as usize] = true;
    special
};

/// How many bytes of a text come before a special one.
fn plain_run(bytes: &[u8]) -> usize {
    const STEP: usize = 16;
    // Without a way out of a step, and without a table, the processor looks at its bytes at once.
    let special = |byte: &u8| (*byte < 0x20) | (*byte == b'"') | (*byte == b'\\') | is_suspect(*byte);
    let is_plain = |step: &&[u8]| !step.iter().fold(false, |found, byte| found | special(byte));
    let steps = bytes.chunks_exact(STEP).take_while(is_plain).count();
    let skipped = steps.saturating_mul(STEP);
    let rest = bytes.get(skipped..).unwrap_or_default();
    let run = rest.iter().position(|byte| SPECIAL[usize::from(*byte)]);
    skipped.saturating_add(run.unwrap_or(rest.len()))
}

fn is_suspect(byte: u8) -> bool {
    (byte == b'<') | (byte == b'>') | (byte == b'&') | (byte == 0xe2)
}

/// Writes the texts of stored values, which is most of the work of a write, without serde's generality; and notes how
/// deep they nest.
pub(crate) struct Text<'o> {
    pub(crate) out: &'o mut Vec<u8>,
    /// In how many lists and objects the next value is.
    pub(crate) within: usize,
    /// The most so far.
    pub(crate) deepest: usize,
}

impl Text<'_> {
    /// Appends a value whose objects are in this order.
    pub(crate) fn value(&mut self, value: &Value, order: Order) {
        let order = order.within(value);
        match value {
            Value::Null => self.out.extend_from_slice(b"null"),
            Value::Bool(true) => self.out.extend_from_slice(b"true"),
            Value::Bool(false) => self.out.extend_from_slice(b"false"),
            Value::Number(number) => write(self.out, number),
            Value::String(text) => string(self.out, text),
            Value::Object(map) => self.map(map, order, &mut Row::default()),
            Value::Array(items) => {
                let mut row = Row::default();
                self.inside(b"[]", |this| {
                    for (at, item) in items.iter().enumerate() {
                        if at > 0 {
                            this.out.push(b',');
                        }
                        match item {
                            Value::Object(map) => this.map(map, order, &mut row),
                            item => this.value(item, order),
                        }
                    }
                });
            }
        }
    }

    /// Appends an object: one of a row whose order is determined once.
    fn map<'v>(&mut self, map: &'v Map<String, Value>, order: Order, row: &mut Row<'v>) {
        self.inside(b"{}", |this| {
            let mut first = true;
            let mut entry = |key: &str, value: &Value, order: Order| {
                if !std::mem::take(&mut first) {
                    this.out.push(b',');
                }
                string(this.out, key);
                this.out.push(b':');
                this.value(value, order);
            };
            if order.is_sorted() {
                map.iter().for_each(|(key, value)| entry(key, value, order));
            } else {
                let entries = row.entries(map, order);
                entries.for_each(|(key, value, order)| entry(key, value, order));
            }
        });
    }

    fn inside(&mut self, [open, close]: &[u8; 2], write: impl FnOnce(&mut Self)) {
        let within = self.within;
        self.within = within.saturating_add(1);
        self.deepest = self.deepest.max(self.within);
        self.out.push(*open);
        write(self);
        self.out.push(*close);
        self.within = within;
    }
}

/// Appends a text in quotes.
pub(crate) fn string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, special) = rest.split_at(plain_run(rest));
        out.extend_from_slice(plain);
        let Some(byte) = special.first() else { break };
        let mut length = 1;
        match (byte, escape(special)) {
            (_, Some((escaped, of))) => {
                out.extend_from_slice(escaped.as_bytes());
                length = of;
            }
            (b'"', _) => out.extend_from_slice(b"\\\""),
            (b'\\', _) => out.extend_from_slice(b"\\\\"),
            (0x08, _) => out.extend_from_slice(b"\\b"),
            (0x0c, _) => out.extend_from_slice(b"\\f"),
            (b'\n', _) => out.extend_from_slice(b"\\n"),
            (b'\r', _) => out.extend_from_slice(b"\\r"),
            (b'\t', _) => out.extend_from_slice(b"\\t"),
            (0..=0x1f, _) => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            // Another character that begins like a separator.
            (other, _) => out.push(*other),
        }
        rest = special.get(length..).unwrap_or_default();
    }
    out.push(b'"');
}

/// Appends a value, compact. The value's maps must have texts as keys.
pub(crate) fn write<T: Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    let written = value.serialize(&mut Serializer::with_formatter(out, Compact));
    written.expect("a JSON value can be written to memory");
}

/// A value as text, compact. The value's maps must have texts as keys.
pub(crate) fn text<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    write(&mut out, value);
    out
}

/// The same, indented.
pub(crate) fn indented<T: Serialize + ?Sized>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(128);
    let formatter = Indented(PrettyFormatter::new());
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, formatter));
    written.expect("a JSON value can be written to memory");
    out
}

#[cfg(test)]
mod tests {
    use kubewright_schema::protobuf::order::Ordered;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn texts_may_stand_in_html() {
        let check = |value: Value, wanted: &str| {
            let written = String::from_utf8(text(&value)).expect("JSON is UTF-8");
            assert_eq!(written, wanted);
            let lines = String::from_utf8(indented(&value)).expect("JSON is UTF-8");
            for read in [&written, &lines] {
                assert_eq!(serde_json::from_str::<Value>(read).expect("it is JSON"), value);
            }
            assert_eq!(
                lines.split_whitespace().collect::<String>(),
                wanted.split_whitespace().collect::<String>()
            );
        };
        check(json!({"a<": "<b>&"}), r#"{"a\u003c":"\u003cb\u003e\u0026"}"#);
        check(json!("\u{2028}x\u{2029}"), r#""\u2028x\u2029""#);
        // These begin with the same byte.
        check(json!("\u{2027}\u{202a}€&€"), "\"\u{2027}\u{202a}€\\u0026€\"");
        check(json!(["", "plain", "\"\\\n"]), r#"["","plain","\"\\\n"]"#);
    }

    fn some_value() -> impl Strategy<Value = Value> {
        let text = || prop_oneof!["[a-z]{0,40}", "[ -~\u{0}-\u{1f}<>&\u{7f}é\u{2027}-\u{202a}𝄞]{0,40}"];
        let leaf = prop_oneof![
            Just(json!(null)),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ];
        let key = prop_oneof![
            text(),
            prop::sample::select(vec!["kind", "spec", "metadata", "name", "labels"]).prop_map(str::to_owned)
        ];
        leaf.prop_recursive(4, 40, 5, move |inner| {
            prop_oneof![
                prop::collection::btree_map(key.clone(), inner.clone(), 0..5)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
                prop::collection::vec(inner, 0..5).prop_map(Value::Array),
            ]
        })
    }

    fn depth(value: &Value) -> usize {
        match value {
            Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
            Value::Object(map) => 1 + map.values().map(depth).max().unwrap_or(0),
            _ => 0,
        }
    }

    proptest! {
        /// The writer of stored texts and serde's write the same.
        #[test]
        fn stored_texts_are_those_of_serde(value in some_value(), at in 0..3_usize) {
            let order = [
                Order::SORTED,
                Order::of_kind("v1", "Pod"),
                Order::of_kind("apps/v1", "DeploymentList"),
            ][at];
            let mut out = Vec::new();
            let mut writer = Text { out: &mut out, within: 0, deepest: 0 };
            writer.value(&value, order);
            let deepest = writer.deepest;
            prop_assert_eq!(String::from_utf8(out), String::from_utf8(text(&Ordered::new(&value, order))));
            prop_assert_eq!(deepest, depth(&value));
        }
    }
}
