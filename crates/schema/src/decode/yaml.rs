//! YAML as Kubernetes reads it: the events of a YAML parser, resolved by the rules of YAML 1.1 as `goyaml.v2` keeps
//! them, and turned into JSON values, as `sigs.k8s.io/yaml` does.
//!
//! Values are built with a stack of their own, so depth costs no program stack. An alias copies its value; the copies
//! of a document are bounded, because a few lines of aliases of aliases would fill any memory.

mod resolve;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use granit_parser::{ErrorKind, Event, Options, Parser, ScalarStyle, ScanError, Tag};
use serde_json::{Map, Value};

use super::{DecodeError, Decoded, MAX_DEPTH, MAX_DUPLICATES};
use crate::{budget, measure};
use resolve::Scalar;

/// How many nodes, and how many bytes of text, aliases may add to a document.
const MAX_COPIED_NODES: usize = 400_000;
const MAX_COPIED_BYTES: usize = 16 << 20;

pub(super) fn decode(bytes: &[u8]) -> Result<Decoded, DecodeError> {
    let text = std::str::from_utf8(bytes).map_err(|_| DecodeError::new("yaml: invalid leading UTF-8 octet"))?;
    if text.chars().any(is_control) {
        return Err(DecodeError::new("yaml: control characters are not allowed"));
    }
    if let Some(refusal) = refused_start(text) {
        return Err(DecodeError::new(refusal));
    }
    let text = json_length(text).map_or(text, |length| &text[..length]);
    let halves = text.contains("\\ud") || text.contains("\\uD");
    let mut places = Places {
        text,
        character: 0,
        byte: 0,
    };
    let mut builder = Builder::default();
    let mut options = Options::default();
    // Comments mean nothing here, and the parser would bound their number.
    options.set_emit_comments(false);
    options.flow_nesting_limit = MAX_DEPTH;
    options.block_nesting_limit = MAX_DEPTH;
    for next in Parser::new_from_str_with_options(text, options) {
        let (event, span) = next.map_err(|error| wrong(&error, text))?;
        let closes = matches!(event, Event::MappingEnd | Event::SequenceEnd);
        if halves && matches!(event, Event::Scalar(_, ScalarStyle::DoubleQuoted, ..)) {
            let (begin, end) = (places.byte_of(span.start.index()), places.byte_of(span.end.index()));
            if let Some(place) = half_character(&text[begin..end]) {
                let line = text[..begin + place].matches('\n').count();
                return Err(DecodeError::new(message_at(Place::Scanner(line), NO_SUCH_CHARACTER)));
            }
        }
        if let Event::Alias(id) = event
            && !builder.anchors.contains_key(&id)
        {
            let name = name_at(text, span.start.index());
            return Err(DecodeError::new(format!("yaml: anchor '{name}' value contains itself")));
        }
        // The rest behind the document is not read.
        if builder.take(event, span.start.line(), text)? || (closes && builder.open.is_empty()) {
            break;
        }
    }
    Ok(Decoded {
        value: builder.document,
        duplicates: builder.duplicates,
    })
}

/// Whether a character may not stand in YAML at all.
fn is_control(c: char) -> bool {
    (c.is_control() && !matches!(c, '\t' | '\n' | '\r' | '\u{85}')) || matches!(c, '\u{fffe}' | '\u{ffff}')
}

/// A list or mapping that is not complete yet.
struct Open {
    anchor: usize,
    kind: Kind,
}

enum Kind {
    List(Vec<Value>),
    Mapping {
        fields: Map<String, Value>,
        own: BTreeSet<String>,
        key: Key,
    },
}

/// The next part of a mapping.
enum Key {
    Expected,
    Field(String),
    /// A null, which no field can be called.
    Null,
    /// `<<`: the next value is merged.
    Merge,
}

/// A complete value that an alias may name.
struct Anchored {
    value: Value,
    key: Option<String>,
    depth: usize,
    nodes: usize,
    bytes: usize,
}

#[derive(Default)]
struct Builder {
    document: Value,
    open: Vec<Open>,
    anchors: BTreeMap<usize, Anchored>,
    copied_nodes: usize,
    copied_bytes: usize,
    duplicates: Vec<String>,
}

impl Builder {
    /// Takes an event; true after the first document.
    fn take(&mut self, event: Event<'_>, line: usize, text: &str) -> Result<bool, DecodeError> {
        budget::spend(1);
        match event {
            Event::Scalar(written, style, anchor, tag) => {
                let scalar = scalar(&written, style, tag.as_deref())?;
                if self.expects_key() {
                    self.key(&scalar, anchor, line)?;
                } else {
                    let value = scalar.into_value()?;
                    self.anchor(anchor, &value, None)?;
                    self.value(value)?;
                }
            }
            Event::SequenceStart(_, anchor, _) => self.start(anchor, Kind::List(Vec::new()))?,
            Event::MappingStart(_, anchor, _) => {
                let kind = Kind::Mapping {
                    fields: Map::new(),
                    own: BTreeSet::new(),
                    key: Key::Expected,
                };
                self.start(anchor, kind)?;
            }
            Event::SequenceEnd | Event::MappingEnd => {
                if let Some(Open { anchor, kind }) = self.open.pop() {
                    let value = match kind {
                        Kind::List(items) => Value::Array(items),
                        Kind::Mapping { fields, .. } => Value::Object(fields),
                    };
                    self.anchor(anchor, &value, None)?;
                    self.value(value)?;
                }
            }
            Event::Alias(id) => self.alias(id, line)?,
            Event::DocumentEnd => return Ok(true),
            // White space and comments alone are the null document; a directive needs one to follow.
            Event::StreamEnd if text.trim_start().starts_with('%') => {
                return Err(DecodeError::new("yaml: did not find expected <document start>"));
            }
            _ => {}
        }
        Ok(false)
    }

    fn expects_key(&self) -> bool {
        matches!(
            self.open.last(),
            Some(Open {
                kind: Kind::Mapping { key: Key::Expected, .. },
                ..
            })
        )
    }

    fn start(&mut self, anchor: usize, kind: Kind) -> Result<(), DecodeError> {
        if self.open.len() == MAX_DEPTH {
            return Err(DecodeError::new("yaml: exceeded max depth"));
        }
        self.open.push(Open { anchor, kind });
        Ok(())
    }

    fn key(&mut self, scalar: &Scalar, anchor: usize, line: usize) -> Result<(), DecodeError> {
        if matches!(scalar, Scalar::Merge) {
            return self.set_key(Key::Merge);
        }
        if matches!(scalar, Scalar::Null) {
            return self.set_key(Key::Null);
        }
        let (name, shown) = scalar.key()?;
        if anchor != 0 {
            let value = Value::String(name.clone());
            self.anchor(anchor, &value, Some(name.clone()))?;
        }
        self.field(name, &shown, line)
    }

    fn field(&mut self, name: String, shown: &str, line: usize) -> Result<(), DecodeError> {
        if let Some(Open {
            kind: Kind::Mapping { own, .. },
            ..
        }) = self.open.last_mut()
            && !own.insert(name.clone())
            && self.duplicates.len() < MAX_DUPLICATES
        {
            self.duplicates
                .push(format!("line {line}: key {shown} already set in map"));
        }
        self.set_key(Key::Field(name))
    }

    fn set_key(&mut self, next: Key) -> Result<(), DecodeError> {
        match self.open.last_mut() {
            Some(Open {
                kind: Kind::Mapping { key, .. },
                ..
            }) => {
                *key = next;
                Ok(())
            }
            _ => Err(DecodeError::new("yaml: found a key outside of a mapping")),
        }
    }

    /// Puts a complete value where it belongs.
    fn value(&mut self, value: Value) -> Result<(), DecodeError> {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.document = value,
            Some(Kind::List(items)) => {
                measure::count_item();
                items.push(value);
            }
            Some(Kind::Mapping { fields, key, .. }) => match std::mem::replace(key, Key::Expected) {
                Key::Field(name) => {
                    measure::count_field(fields.len());
                    fields.insert(name, value);
                }
                Key::Null => {
                    let shown = if value.is_null() {
                        "<nil>".to_owned()
                    } else {
                        go_syntax(&value)
                    };
                    return Err(DecodeError::new(format!(
                        "unsupported map key of type: %!s(<nil>), key: <nil>, value: {shown}"
                    )));
                }
                Key::Merge => merge(fields, value)?,
                Key::Expected => {
                    return Err(DecodeError::new(format!(
                        "yaml: invalid map key: {}",
                        go_syntax(&value)
                    )));
                }
            },
        }
        Ok(())
    }

    /// Keeps a complete value for aliases. That is a copy too: anchors within anchors would make many.
    fn anchor(&mut self, anchor: usize, value: &Value, key: Option<String>) -> Result<(), DecodeError> {
        if anchor != 0 {
            let (depth, nodes, bytes) = measure(value);
            self.charge(nodes, bytes)?;
            budget::produce(measure::held(value));
            self.anchors.insert(
                anchor,
                Anchored {
                    value: value.clone(),
                    key,
                    depth,
                    nodes,
                    bytes,
                },
            );
        }
        Ok(())
    }

    fn charge(&mut self, nodes: usize, bytes: usize) -> Result<(), DecodeError> {
        self.copied_nodes += nodes;
        self.copied_bytes += bytes;
        if self.copied_nodes > MAX_COPIED_NODES || self.copied_bytes > MAX_COPIED_BYTES {
            return Err(DecodeError::new("yaml: document contains excessive aliasing"));
        }
        Ok(())
    }

    fn alias(&mut self, id: usize, line: usize) -> Result<(), DecodeError> {
        let Some(anchored) = self.anchors.get(&id) else {
            return Err(DecodeError::new(format!(
                "yaml: line {line}: an anchor's value contains itself"
            )));
        };
        let (nodes, bytes, depth, key) = (anchored.nodes, anchored.bytes, anchored.depth, anchored.key.clone());
        self.charge(nodes, bytes)?;
        if self.open.len() + depth > MAX_DEPTH {
            return Err(DecodeError::new("yaml: exceeded max depth"));
        }
        let value = self
            .anchors
            .get(&id)
            .map(|anchored| anchored.value.clone())
            .unwrap_or_default();
        budget::produce(measure::held(&value));
        if !self.expects_key() {
            return self.value(value);
        }
        let key = key.or_else(|| match &value {
            Value::String(text) => Some(text.clone()),
            Value::Bool(_) | Value::Number(_) => Some(value.to_string()),
            _ => None,
        });
        let key = key.ok_or_else(|| DecodeError::new("yaml: invalid map key: an object or list cannot be a key"))?;
        let shown = crate::error::quote(&key);
        self.field(key, &shown, line)
    }
}

/// A value of `goyaml.v2`, whose maps may have any keys, as `%#v` prints it.
fn go_syntax(value: &Value) -> String {
    crate::apply::go_syntax(value).replace("map[string]interface {}", "map[interface {}]interface {}")
}

/// Depth, number of nodes and bytes of text of a value.
fn measure(value: &Value) -> (usize, usize, usize) {
    let of = |(depth, nodes, bytes): (usize, usize, usize), value: &Value| {
        let (inner, more, text) = measure(value);
        (depth.max(inner + 1), nodes + more, bytes + text)
    };
    match value {
        Value::Array(items) => items.iter().fold((1, 1, 0), of),
        Value::Object(fields) => fields.iter().fold((1, 1, 0), |(depth, nodes, bytes), (key, value)| {
            of((depth, nodes, bytes + key.len()), value)
        }),
        Value::String(text) => (0, 1, text.len()),
        _ => (0, 1, 0),
    }
}

/// `<<: *defaults`: the fields of a mapping, or of several, of which the first wins.
fn merge(fields: &mut Map<String, Value>, value: Value) -> Result<(), DecodeError> {
    match value {
        Value::Object(more) => fields.extend(more),
        Value::Array(items) => {
            for item in items.into_iter().rev() {
                let Value::Object(more) = item else {
                    return Err(no_merge());
                };
                fields.extend(more);
            }
        }
        _ => return Err(no_merge()),
    }
    Ok(())
}

fn no_merge() -> DecodeError {
    DecodeError::new("yaml: map merge requires map or sequence of maps as the value")
}

fn scalar(written: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, DecodeError> {
    let standard = tag
        .and_then(|tag| tag.suffix_in_namespace("tag:yaml.org,2002:"))
        .map(Cow::into_owned);
    let plain = style == ScalarStyle::Plain;
    resolve::resolve(written, plain, standard.as_deref(), tag.is_some())
}

/// Whether the collection that begins at this character closes at once.
fn closes_at_once(text: &str, at: usize) -> bool {
    let mut rest = text.chars().skip(at + 1).skip_while(|c| c.is_whitespace());
    matches!(rest.next(), Some('}' | ']'))
}

/// Where `goyaml.v2` sees a mistake, by lines from zero: its scanner tells the line, its parser the one before, and
/// neither the first.
#[derive(Clone, Copy)]
enum Place {
    Scanner(usize),
    Parser(usize),
}

/// The parser's error in the words of `goyaml.v2`, as far as it has words for it.
fn wrong(error: &ScanError, text: &str) -> DecodeError {
    const NODE: &str = "did not find expected node content";
    const SEQUENCE: &str = "did not find expected ',' or ']'";
    const MAPPING: &str = "did not find expected ',' or '}'";
    let at = error.marker().index();
    let line = error.marker().line().saturating_sub(1);
    let (parser, scanner) = (Place::Parser(line), Place::Scanner(line));
    let end = Place::Scanner(text.matches('\n').count());
    // It sees the end of the text on a line of its own.
    let unclosed = Place::Parser(text.lines().count());
    let begun = matches!(text.trim_end().as_bytes().last(), Some(b'[' | b'{' | b','));
    let before = || text.chars().take(at).filter(|c| matches!(c, '[' | '{')).last();
    let (place, words) = match error.kind() {
        ErrorKind::UnknownAnchor => {
            let name = name_at(text, at);
            return DecodeError::new(format!("yaml: unknown anchor '{name}' referenced"));
        }
        ErrorKind::UnclosedFlowCollection { .. } if begun => (unclosed, NODE),
        ErrorKind::UnclosedFlowCollection { open: '[' } => (unclosed, SEQUENCE),
        ErrorKind::UnclosedFlowCollection { .. } => (unclosed, MAPPING),
        ErrorKind::MismatchedFlowCollectionEnd { open: '[', .. } if closes_at_once(text, at) => (parser, NODE),
        ErrorKind::MismatchedFlowCollectionEnd { open: '[', .. } | ErrorKind::ExpectedFlowSequenceSeparator => {
            (parser, SEQUENCE)
        }
        ErrorKind::InvalidColonPlacement if before() == Some('[') => (parser, SEQUENCE),
        ErrorKind::MismatchedFlowCollectionEnd { .. }
        | ErrorKind::ExpectedFlowMappingSeparator
        | ErrorKind::InvalidColonPlacement => (parser, MAPPING),
        ErrorKind::ExpectedNodeContent
        | ErrorKind::MisplacedFlowCollectionEnd
        | ErrorKind::UnexpectedEofImplicitFlowMapping => (parser, NODE),
        ErrorKind::ExpectedBlockMappingKey
        | ErrorKind::InvalidTrailingSingleQuotedScalar
        | ErrorKind::InvalidTrailingDoubleQuotedScalar => (parser, "did not find expected key"),
        ErrorKind::ExpectedBlockSequenceEntry => (parser, "did not find expected '-' indicator"),
        ErrorKind::UnsupportedYamlMajorVersion => (parser, "found incompatible YAML document"),
        // A key is missed on the line after it.
        ErrorKind::InvalidSimpleKey | ErrorKind::SimpleKeyExpected => {
            (Place::Scanner(line + 1), "could not find expected ':'")
        }
        ErrorKind::UnclosedQuotedScalar | ErrorKind::InvalidQuotedScalarIndent => {
            (end, "found unexpected end of stream")
        }
        ErrorKind::TabAtBlockScalarStart => (
            Place::Scanner(line + 1),
            "found a tab character where an indentation space is expected",
        ),
        ErrorKind::TabInPlainScalar => (
            Place::Scanner(line + 1),
            "found a tab character that violates indentation",
        ),
        other => match scanner_words(other) {
            Some(words) => (scanner, words),
            None => return DecodeError::new(message_at(scanner, own_words(error))),
        },
    };
    DecodeError::new(message_at(place, words))
}

fn scanner_words(kind: &ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::UnexpectedCharacter { .. } | ErrorKind::TabNotAllowed | ErrorKind::TabInBlockIndentation => {
            "found character that cannot start any token"
        }
        ErrorKind::UnknownQuotedScalarEscape => "found unknown escape character",
        ErrorKind::InvalidQuotedScalarHexEscape => "did not find expected hexdecimal number",
        ErrorKind::InvalidLowSurrogateHexEscape
        | ErrorKind::InvalidLowSurrogate
        | ErrorKind::MissingLowSurrogate
        | ErrorKind::UnpairedLowSurrogate
        | ErrorKind::InvalidUnicodeEscape => NO_SUCH_CHARACTER,
        ErrorKind::MappingValueNotAllowed => "mapping values are not allowed in this context",
        ErrorKind::MappingKeyNotAllowed => "mapping keys are not allowed in this context",
        ErrorKind::BlockSequenceEntryNotAllowed => "block sequence entries are not allowed in this context",
        ErrorKind::MissingAnchorOrAliasName => "did not find expected alphabetic or numeric character",
        ErrorKind::UnclosedVerbatimTag => "did not find the expected '>'",
        ErrorKind::InvalidBlockScalarHeader => "did not find expected comment or line break",
        ErrorKind::ZeroBlockScalarIndent => "found an indentation indicator equal to 0",
        _ => return None,
    })
}

const NO_SUCH_CHARACTER: &str = "found invalid Unicode character escape code";

/// The parser's message, without its context.
fn own_words(error: &ScanError) -> String {
    let info = error.info();
    match info.strip_prefix("while ").and_then(|rest| rest.split_once(", ")) {
        Some((_, words)) => words.to_owned(),
        None => info,
    }
}

fn message_at(place: Place, words: impl std::fmt::Display) -> String {
    match place {
        Place::Scanner(0) | Place::Parser(0) => format!("yaml: {words}"),
        Place::Scanner(line) => format!("yaml: line {}: {words}", line + 1),
        Place::Parser(line) => format!("yaml: line {line}: {words}"),
    }
}

/// The name of the alias at this character.
fn name_at(text: &str, at: usize) -> String {
    let rest = text.chars().skip(at).skip_while(|c| *c == '*');
    rest.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        .collect()
}

/// Texts that the scanner of `goyaml.v2` refuses before there is a document: a tab that indents it, and a directive
/// that it does not know.
fn refused_start(text: &str) -> Option<String> {
    for (line, content) in text.lines().enumerate() {
        let rest = content.trim_start_matches([' ', '\t']);
        let indent = &content[..content.len() - rest.len()];
        if indent.contains('\t') {
            let words = "found character that cannot start any token";
            return Some(message_at(Place::Scanner(line), words));
        }
        if rest.is_empty() || rest.starts_with('#') {
            continue;
        }
        let unknown = content.starts_with('%') && !content.starts_with("%YAML") && !content.starts_with("%TAG");
        return unknown.then(|| message_at(Place::Scanner(line), "found unknown directive name"));
    }
    None
}

/// The length of a JSON document, which ends at its closing bracket, whatever follows.
fn json_length(text: &str) -> Option<usize> {
    if !text.starts_with('{') {
        return None;
    }
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    matches!(values.next(), Some(Ok(_))).then(|| values.byte_offset())
}

/// Where in a written text an escape stands for half a character, which YAML has not.
fn half_character(written: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = written[at..].find('\\') {
        let place = at + found;
        let escape = &written[place + 1..];
        if let [b'u' | b'U', b'd' | b'D', b'8'..=b'9' | b'a'..=b'f' | b'A'..=b'F', ..] = escape.as_bytes() {
            return Some(place);
        }
        at = place + 1 + escape.chars().next().map_or(0, char::len_utf8);
    }
    None
}

/// Finds the bytes of a text by the places of their characters, which the parser tells. They are asked for in order:
/// earlier ones are not counted again.
struct Places<'a> {
    text: &'a str,
    character: usize,
    byte: usize,
}

impl Places<'_> {
    fn byte_of(&mut self, character: usize) -> usize {
        if character < self.character {
            (self.character, self.byte) = (0, 0);
        }
        let rest = &self.text[self.byte..];
        let mut places = rest.char_indices().map(|(place, _)| place);
        let step = places.nth(character - self.character).unwrap_or(rest.len());
        (self.character, self.byte) = (character, self.byte + step);
        self.byte
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn values() {
        let check = |text: &str, value: Value| {
            assert_eq!(
                decode(text.as_bytes()).map(|decoded| decoded.value),
                Ok(value),
                "{text}"
            );
        };
        check("", Value::Null);
        check("# nothing\n", Value::Null);
        check(&format!("a: {}1\n", "# why\n  ".repeat(1000)), json!({"a": 1}));
        let deep = format!("{}{}", "[".repeat(MAX_DEPTH), "]".repeat(MAX_DEPTH));
        check(&deep, crate::decode::json(deep.as_bytes()).expect("this is JSON").value);
        check("---\na: 1\n---\nb: [\n", json!({"a": 1}));
        check(
            "kind: ConfigMap\ndata: {on: 'x', b: yes}\n",
            json!({"kind": "ConfigMap", "data": {"true": "x", "b": true}}),
        );
        check("a: |\n  x\n  y\nb: >-\n  x\n  y\n", json!({"a": "x\ny\n", "b": "x y"}));
        check(
            "- 'yes'\n- \"1\"\n- !!str 2\n- ~\n-\n",
            json!(["yes", "1", "2", null, null]),
        );
        check("1: a\ntrue: b\n1.5: c\n", json!({"1": "a", "true": "b", "1.5": "c"}));
        check(
            "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: 2}\n",
            json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}),
        );
        check(
            "a: &x {p: 1, m: 1}\nb: &y {p: 2}\nc: {<<: [*x, *y], m: 3}\n",
            json!({"a": {"p": 1, "m": 1}, "b": {"p": 2}, "c": {"p": 1, "m": 3}}),
        );
        check("{\"a\": [1, 2.5, \"x\"]}", json!({"a": [1, 2.5, "x"]}));
        check("a: 2001-12-14\n", json!({"a": "2001-12-14"}));
        check("a: 1e3\nb: 1.0\n", json!({"a": 1000, "b": 1}));
        check("a: !!binary aGk=\n", json!({"a": "hi"}));
        check("a: !custom x\n", json!({"a": "x"}));
    }

    #[test]
    fn doubled_keys_are_told_by_line() {
        let check = |text: &str, expected: &[&str]| {
            assert_eq!(
                decode(text.as_bytes()).map(|decoded| decoded.duplicates).as_deref(),
                Ok(&expected.iter().map(ToString::to_string).collect::<Vec<_>>()[..]),
                "{text}"
            );
        };
        check("a: 1\nb: 2\n", &[]);
        check(
            "apiVersion: v1\nkind: Service\nmetadata:\n  name: s\n  name: s\nspec:\n  ports:\n  - port: 80\n    port: 81\n    nam: x\n",
            &[
                "line 5: key \"name\" already set in map",
                "line 9: key \"port\" already set in map",
            ],
        );
        check("1: a\n1: b\n", &["line 2: key 1 already set in map"]);
        check("a: &x {b: 1}\nc:\n  <<: *x\n  b: 2\n", &[]);
        assert_eq!(
            decode(b"a: 1\na: 2\n").map(|decoded| decoded.value),
            Ok(json!({"a": 2}))
        );
    }

    #[test]
    fn errors() {
        let check = |text: &str, message: &str| {
            assert_eq!(
                decode(text.as_bytes()).map_err(|error| error.to_string()),
                Err(message.to_owned()),
                "{text:?}"
            );
        };
        check("a: [", "yaml: line 1: did not find expected node content");
        check("{\"a\": [}", "yaml: did not find expected node content");
        check("{\"a\": [1}", "yaml: did not find expected ',' or ']'");
        check("a: [1\n", "yaml: line 1: did not find expected ',' or ']'");
        check("a: 1\nb: {c: 1", "yaml: line 2: did not find expected ',' or '}'");
        check(
            "a: 1\n b: 2\n",
            "yaml: line 2: mapping values are not allowed in this context",
        );
        check("a: 'x", "yaml: found unexpected end of stream");
        check("a: .inf\n", "json: unsupported value: +Inf");
        check("? [a]\n: b\n", "yaml: invalid map key: []interface {}{\"a\"}");
        check(
            "a: {<<: 1}\n",
            "yaml: map merge requires map or sequence of maps as the value",
        );
        check("a: &x [*x]\n", "yaml: anchor 'x' value contains itself");
        check(
            "é: \"é\"\nb: \"\\\\ud800\"\nc: \"é\\ud800\"\n",
            "yaml: line 3: found invalid Unicode character escape code",
        );
        check("a: !!int x\n", "yaml: cannot decode !!str `x` as a !!int");
        let billion = (1..20).fold("a0: &a0 [x,x,x,x,x,x,x,x]\n".to_owned(), |text, n| {
            text + &format!("a{n}: &a{n} [{}]\n", vec![format!("*a{}", n - 1); 8].join(","))
        });
        check(&billion, "yaml: document contains excessive aliasing");
        assert!(decode("[".repeat(100_000).as_bytes()).is_err());
        assert!(decode("- ".repeat(100_000).as_bytes()).is_err());
        assert!(decode(b"a: \xff").is_err());
    }

    proptest! {
        #[test]
        fn json_is_yaml(fields in prop::collection::btree_map("[a-z]{1,5}", prop_oneof![
            any::<i64>().prop_map(Value::from),
            any::<bool>().prop_map(Value::from),
            "[ -~]{0,8}".prop_map(Value::from),
        ], 0..5)) {
            let value: Value = fields.into_iter().collect();
            prop_assert_eq!(decode(value.to_string().as_bytes()).map(|decoded| decoded.value), Ok(value));
        }

        #[test]
        fn no_text_panics(text in "[-a:\\[\\]{}&*!<?|> \n\t#%'\"0.]{0,24}") {
            let _ = decode(text.as_bytes());
        }
    }
}
