//! JSON as Go's encoder writes it: `<`, `>`, `&` and the separators U+2028 and U+2029 are escaped, so that the text may
//! stand in HTML.
//!
//! Objects are escaped once, when their text is made for storage; lists and watches copy that text.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{Formatter, PrettyFormatter};

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
}
