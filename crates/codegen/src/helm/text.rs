//! From an object with holes to a template's text.
//!
//! An object is changed as data; where Go's template language is needed, a [`Pieces`] hands out a mark that YAML prints
//! as it is, and [`Pieces::print`] puts the piece in its place. Invariant: `{{` that was in the object itself is
//! printed so that Helm gives it back.

use serde_json::Value;

use crate::yaml;

/// The text in place of a mark.
enum Piece {
    /// Within a line.
    Inline(String),
    /// The value of a field, in whole lines: `{{- toYaml … | nindent N }}`.
    Block(String),
    /// An item or a field that is there only if a value says so.
    If {
        condition: String,
        key: Option<String>,
        value: Value,
    },
    /// Lines in place of an item or a field.
    Lines(Vec<String>),
}

/// The pieces of one template.
#[derive(Default)]
pub(super) struct Pieces(Vec<Piece>);

/// The beginning and the end of marks; [`super::object`] refuses objects that contain it.
pub(super) const MARK: &str = "KWPIECE";

impl Pieces {
    fn add(&mut self, piece: Piece) -> String {
        self.0.push(piece);
        format!("{MARK}{}{MARK}", self.0.len() - 1)
    }

    /// An expression within a text.
    pub(super) fn inline(&mut self, expression: &str) -> String {
        self.add(Piece::Inline(format!("{{{{ {expression} }}}}")))
    }

    /// The value of a field, as YAML.
    pub(super) fn block(&mut self, expression: &str) -> Value {
        self.add(Piece::Block(expression.to_owned())).into()
    }

    /// An item of a list that depends on a value.
    pub(super) fn item_if(&mut self, condition: &str, value: Value) -> Value {
        let (condition, key) = (condition.to_owned(), None);
        self.add(Piece::If { condition, key, value }).into()
    }

    /// Makes a field of an object depend on a value.
    pub(super) fn field_if(&mut self, condition: &str, object: &mut serde_json::Map<String, Value>, key: &str) {
        if let Some(value) = object.remove(key) {
            let (condition, key) = (condition.to_owned(), Some(key.to_owned()));
            object.insert(self.add(Piece::If { condition, key, value }), Value::Null);
        }
    }

    /// Lines of template language as an item.
    pub(super) fn item_lines(&mut self, lines: &[&str]) -> Value {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        self.add(Piece::Lines(lines)).into()
    }

    /// The same as a field.
    pub(super) fn field_lines(&mut self, object: &mut serde_json::Map<String, Value>, lines: &[&str]) {
        let lines = lines.iter().map(|line| (*line).to_owned()).collect();
        object.insert(self.add(Piece::Lines(lines)), Value::Null);
    }

    /// The template.
    pub(super) fn print(&self, object: &Value) -> String {
        let mut out = String::new();
        self.expand(&escaped(object), 0, &mut out);
        out
    }

    fn piece(&self, mark: &str) -> Option<&Piece> {
        let number = mark.strip_prefix(MARK)?.strip_suffix(MARK)?;
        self.0.get(number.parse::<usize>().ok()?)
    }

    fn expand(&self, text: &str, depth: usize, out: &mut String) {
        for line in text.lines() {
            let body = line.trim_start();
            let column = depth + line.len() - body.len();
            let pad = " ".repeat(column);
            let alone = body.strip_prefix("- ").or_else(|| body.strip_suffix(": null"));
            if let Some(Piece::Lines(lines)) = alone.and_then(|mark| self.piece(mark)) {
                for line in lines {
                    out.push_str(&format!("{pad}{line}\n"));
                }
            } else if let Some(Piece::If { condition, key, value }) = alone.and_then(|mark| self.piece(mark)) {
                out.push_str(&format!("{pad}{{{{- if {condition} }}}}\n"));
                let inner = match key {
                    Some(key) => Value::Object([(key.clone(), value.clone())].into_iter().collect()),
                    None => Value::Array(vec![value.clone()]),
                };
                self.expand(&escaped(&inner), column, out);
                out.push_str(&format!("{pad}{{{{- end }}}}\n"));
            } else if let Some((key, Piece::Block(expression))) = body
                .split_once(": ")
                .and_then(|(key, mark)| Some((key, self.piece(mark)?)))
            {
                // `- key: value` stands two further in than its dash.
                let inner = column + 2 + 2 * usize::from(key.starts_with("- "));
                out.push_str(&format!(
                    "{pad}{key}:\n{}{{{{- toYaml {expression} | nindent {inner} }}}}\n",
                    " ".repeat(inner)
                ));
            } else {
                out.push_str(&format!("{}\n", self.inlined(line, depth)));
            }
        }
    }

    fn inlined(&self, line: &str, depth: usize) -> String {
        let mut done = " ".repeat(if line.is_empty() { 0 } else { depth });
        let mut parts = line.split(MARK);
        done.push_str(parts.next().unwrap_or_default());
        // A mark is between two of its words.
        while let Some(number) = parts.next() {
            if let Some(Piece::Inline(text)) = number.parse::<usize>().ok().and_then(|number| self.0.get(number)) {
                done.push_str(text);
            }
            done.push_str(parts.next().unwrap_or_default());
        }
        done
    }
}

fn escaped(value: &Value) -> String {
    yaml::to_string(value).replace("{{", "{{ \"{{\" }}")
}
