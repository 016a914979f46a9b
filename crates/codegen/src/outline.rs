//! Where things stand in a YAML file: the lines of its lists and fields, so that errors have a place and an edit leaves
//! the rest alone.
//!
//! An [`Outline`] is the shape of a document without its values; [`kubewright_schema::decode`] reads those. Lists and
//! fields of both stand in the same order. Lines count from 1. Not here: the values, anchors (an alias is a leaf).

use granit_parser::{Event, Options, Parser, ScalarStyle, Span, StructureStyle};

/// A node of a document, with the lines that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outline {
    /// Its parts.
    pub shape: Shape,
    /// The first line. Of a value below its key: the line of the value.
    pub first: usize,
    /// The last line that belongs to it, without comments that follow.
    pub last: usize,
    /// Whether it is written between brackets.
    pub flow: bool,
}

/// The parts of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A scalar or an alias; nothing written is one too.
    Leaf,
    /// The items.
    List(Vec<Outline>),
    /// The fields: name, line of the name, value.
    Map(Vec<(String, usize, Outline)>),
}

impl Outline {
    /// The shape of the first document; `None` when there is none or the text is not YAML (the decoder reports the
    /// reason).
    pub fn of(text: &str) -> Option<Outline> {
        let mut options = Options::default();
        options.set_emit_comments(false);
        let mut events = Vec::new();
        for event in Parser::new_from_str_with_options(text, options) {
            let (event, span) = event.ok()?;
            match event {
                Event::DocumentEnd => break,
                Event::StreamStart | Event::DocumentStart(..) | Event::StreamEnd => {}
                event => events.push((event, span)),
            }
        }
        let mut next = 0;
        node(&events, &mut next, 0)
    }

    /// The line of a field's name, and its value.
    pub fn entry(&self, name: &str) -> Option<(usize, &Outline)> {
        match &self.shape {
            Shape::Map(fields) => fields
                .iter()
                .find(|(field, ..)| field == name)
                .map(|(_, line, value)| (*line, value)),
            Shape::Leaf | Shape::List(_) => None,
        }
    }

    /// The items of a list.
    pub fn items(&self) -> Option<&[Outline]> {
        match &self.shape {
            Shape::List(items) => Some(items),
            Shape::Leaf | Shape::Map(_) => None,
        }
    }

    /// The line of the node at a path of field names and indices, or of the last part of it that is there.
    pub fn line_of(&self, path: &[&str]) -> usize {
        let (mut here, mut line) = (self, self.first);
        for step in path {
            let found = match &here.shape {
                Shape::Map(_) => here.entry(step),
                Shape::List(items) => step
                    .parse()
                    .ok()
                    .and_then(|index: usize| items.get(index))
                    .map(|item| (item.first, item)),
                Shape::Leaf => None,
            };
            match found {
                Some((at, inner)) => (here, line) = (inner, at),
                None => break,
            }
        }
        line
    }
}

/// Deeper than any file of a project; the reader of values has its own bound.
const MAX_DEPTH: usize = 200;

fn node(events: &[(Event<'_>, Span)], next: &mut usize, depth: usize) -> Option<Outline> {
    let (event, span) = events.get(*next)?;
    *next += 1;
    let first = span.start.line();
    match event {
        Event::SequenceStart(style, ..) if depth < MAX_DEPTH => {
            let mut items = Vec::new();
            while !matches!(events.get(*next)?.0, Event::SequenceEnd) {
                items.push(node(events, next, depth + 1)?);
            }
            let end = close(events, next)?;
            let last = items.last().map(|item| item.last);
            Some(collection(Shape::List(items), first, last, *style, end))
        }
        Event::MappingStart(style, ..) if depth < MAX_DEPTH => {
            let mut fields = Vec::new();
            while !matches!(events.get(*next)?.0, Event::MappingEnd) {
                let (name, line) = match events.get(*next)? {
                    (Event::Scalar(name, ..), span) => (name.to_string(), span.start.line()),
                    // A key that is no word: the values' reader refuses it.
                    (_, span) => (String::new(), span.start.line()),
                };
                node(events, next, depth + 1)?;
                let mut value = node(events, next, depth + 1)?;
                if value.shape == Shape::Leaf && value.last < line || is_nothing(events, *next - 1) {
                    // An absent value stands on the line of its name.
                    (value.first, value.last) = (line, line);
                }
                fields.push((name, line, value));
            }
            let end = close(events, next)?;
            let last = fields.last().map(|(.., value)| value.last);
            Some(collection(Shape::Map(fields), first, last, *style, end))
        }
        Event::Scalar(..) | Event::Alias(_) => {
            let end = span.end;
            // A block scalar ends where the next line begins.
            let last = if end.col() == 0 && end.line() > first {
                end.line() - 1
            } else {
                end.line()
            };
            Some(Outline {
                shape: Shape::Leaf,
                first,
                last,
                flow: false,
            })
        }
        _ => None,
    }
}

fn is_nothing(events: &[(Event<'_>, Span)], at: usize) -> bool {
    matches!(events.get(at), Some((Event::Scalar(text, ScalarStyle::Plain, ..), _)) if text.is_empty() || text == "~")
}

fn close(events: &[(Event<'_>, Span)], next: &mut usize) -> Option<usize> {
    let (_, span) = events.get(*next)?;
    *next += 1;
    Some(span.end.line())
}

fn collection(shape: Shape, first: usize, last: Option<usize>, style: StructureStyle, end: usize) -> Outline {
    let flow = style == StructureStyle::Flow;
    Outline {
        shape,
        first,
        last: if flow { end } else { last.unwrap_or(first) },
        flow,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_text() {
        let text = "# head\na:\n- x\n- path: p\n  target:\n    kind: K # tail\n\n# about b\nb: [1,\n  2]\nc:\nd: |\n  text\n  more\n# end\n";
        let outline = Outline::of(text).unwrap();
        let lines = |path: &[&str]| outline.line_of(path);
        assert_eq!(lines(&["a", "1", "target", "kind"]), 6);
        assert_eq!(lines(&["a", "1", "missing"]), 4);
        let taken = |field: &str| {
            let value = outline.entry(field).unwrap().1;
            (value.first, value.last, value.flow)
        };
        assert_eq!(taken("a"), (3, 6, false));
        assert_eq!(taken("b"), (9, 10, true));
        assert_eq!(taken("c"), (11, 11, false));
        assert_eq!(taken("d").1, 14);
        assert!(Outline::of("a: [").is_none());
    }
}
