//! The grammar of paths and templates, by recursive descent; filters nest only so deep.

use serde_json::Value;

use super::{Comparison, Filter, Node, Operand, Step};

/// Filters within filters, and ranges within ranges.
const MAX_NESTING: usize = 8;
/// Each `..` multiplies the visited values.
const MAX_RECURSIVE: usize = 2;

type Parsed<T> = Result<T, String>;

pub(super) fn parse(text: &str) -> Parsed<Vec<Node>> {
    if text.trim().is_empty() {
        return Err("is empty".to_owned());
    }
    if !text.contains('{') {
        // Without braces the whole is one path, and its first dot may be left out.
        let bare = text.starts_with(|first: char| first.is_alphanumeric() || matches!(first, '_' | '*' | '\\'));
        let path = if bare { format!(".{text}") } else { text.to_owned() };
        return Ok(vec![Node::Query(whole_path(path.trim(), 0)?)]);
    }
    let mut rest = text;
    let (nodes, ended) = template(&mut rest, 0)?;
    if ended {
        Err("not in range, nothing to end".to_owned())
    } else {
        Ok(nodes)
    }
}

/// Nodes up to the end of the text or to `{end}`; true for the latter.
fn template(rest: &mut &str, nesting: usize) -> Parsed<(Vec<Node>, bool)> {
    let mut nodes = Vec::new();
    while let Some(open) = rest.find('{') {
        if open > 0 {
            nodes.push(Node::Text(rest[..open].to_owned()));
        }
        let close = closing(&rest[open..])? + open;
        let action = rest[open + 1..close].trim();
        *rest = &rest[close + 1..];
        if action == "end" {
            return Ok((nodes, true));
        }
        nodes.push(
            match action
                .strip_prefix("range")
                .filter(|path| path.starts_with([' ', '.', '[', '$', '@']))
            {
                Some(path) => {
                    if nesting == MAX_NESTING {
                        return Err(format!("more than {MAX_NESTING} ranges within each other"));
                    }
                    let (body, ended) = template(rest, nesting + 1)?;
                    if !ended {
                        return Err("unterminated range".to_owned());
                    }
                    Node::Range(whole_path(path.trim(), 0)?, body)
                }
                None => match action.chars().next() {
                    Some(quote @ ('"' | '\'')) => literal_text(action, quote)?,
                    _ => Node::Query(whole_path(action, 0)?),
                },
            },
        );
    }
    if !rest.is_empty() {
        nodes.push(Node::Text((*rest).to_owned()));
        *rest = "";
    }
    Ok((nodes, false))
}

/// The brace that closes the one at the start; braces in quotes do not count.
fn closing(text: &str) -> Parsed<usize> {
    let mut quote = None;
    let mut escaped = false;
    for (at, character) in text.char_indices() {
        match (quote, character) {
            _ if escaped => escaped = false,
            (_, '\\') => escaped = true,
            (None, '}') => return Ok(at),
            (None, '\'' | '"') => quote = Some(character),
            (Some(open), _) if open == character => quote = None,
            _ => {}
        }
    }
    Err(if quote.is_some() {
        "unterminated quoted string"
    } else {
        "unclosed action"
    }
    .to_owned())
}

fn literal_text(action: &str, quote: char) -> Parsed<Node> {
    let (text, rest) = quoted(action, quote)?;
    if rest.is_empty() {
        Ok(Node::Text(text))
    } else {
        Err(unrecognized(rest))
    }
}

fn unrecognized(rest: &str) -> String {
    format!(
        "unrecognized character in action: '{}'",
        rest.chars().next().unwrap_or_default()
    )
}

/// A quoted text at the start, without quotes and escapes, and the rest.
fn quoted(text: &str, quote: char) -> Parsed<(String, &str)> {
    let mut plain = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' => match characters.next() {
                Some((_, 'n')) => plain.push('\n'),
                Some((_, 't')) => plain.push('\t'),
                Some((_, 'r')) => plain.push('\r'),
                Some((_, escaped)) => plain.push(escaped),
                None => break,
            },
            _ if character == quote => return Ok((plain, &text[at + quote.len_utf8()..])),
            other => plain.push(other),
        }
    }
    Err("unterminated quoted string".to_owned())
}

/// A path that takes all of the text.
fn whole_path(text: &str, nesting: usize) -> Parsed<Vec<Step>> {
    let (steps, rest) = path(text, nesting)?;
    if rest.trim().is_empty() {
        Ok(steps)
    } else {
        Err(unrecognized(rest.trim_start()))
    }
}

/// The path at the start of the text, and the rest.
fn path(text: &str, nesting: usize) -> Parsed<(Vec<Step>, &str)> {
    let mut steps = Vec::new();
    let mut rest = text.strip_prefix(['$', '@']).unwrap_or(text);
    loop {
        if let Some(after) = rest.strip_prefix("..") {
            steps.push(Step::Recursive);
            if steps.iter().filter(|step| **step == Step::Recursive).count() > MAX_RECURSIVE {
                return Err(format!("more than {MAX_RECURSIVE} recursive descents"));
            }
            rest = after;
            if !rest.starts_with('[') {
                rest = field(rest, &mut steps)?;
            }
        } else if let Some(after) = rest.strip_prefix('.') {
            // `{.}` is the value itself, and `.[0]` is `[0]`.
            let alone = after.is_empty() || after.starts_with([' ', '[', '=', '!', '<', '>', ')']);
            rest = if alone { after } else { field(after, &mut steps)? };
        } else if let Some(after) = rest.strip_prefix('[') {
            rest = brackets(after, &mut steps, nesting)?;
        } else {
            return Ok((steps, rest));
        }
    }
}

/// A field without quotes: up to a character that cannot be part of one, unless it is escaped.
fn field<'a>(text: &'a str, steps: &mut Vec<Step>) -> Parsed<&'a str> {
    let mut name = String::new();
    let mut end = text.len();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        if character == '\\' {
            name.extend(characters.next().map(|(_, escaped)| escaped));
        } else if " \t\n.,[]{}()$@=!<>#?'\"".contains(character) {
            end = at;
            break;
        } else {
            name.push(character);
        }
    }
    if name.is_empty() {
        return Err(unrecognized(&text[end..]));
    }
    steps.push(if &text[..end] == "*" {
        Step::Wildcard
    } else {
        Step::Field(name)
    });
    Ok(&text[end..])
}

/// The contents of brackets, after the opening one.
fn brackets<'a>(text: &'a str, steps: &mut Vec<Step>, nesting: usize) -> Parsed<&'a str> {
    let text = text.trim_start();
    if let Some(after) = text.strip_prefix('?') {
        let after = after
            .trim_start()
            .strip_prefix('(')
            .ok_or("a filter must stand in parentheses")?;
        if nesting == MAX_NESTING {
            return Err(format!("more than {MAX_NESTING} filters within each other"));
        }
        let (filter, rest) = filter(after, nesting + 1)?;
        steps.push(Step::Filter(Box::new(filter)));
        return rest
            .trim_start()
            .strip_prefix(']')
            .ok_or_else(|| "unterminated array".to_owned());
    }
    let mut union = Vec::new();
    let mut rest = text;
    loop {
        rest = element(rest.trim_start(), &mut union)?.trim_start();
        match rest.chars().next() {
            Some(',') => rest = &rest[1..],
            Some(']') => break,
            _ => return Err("unterminated array".to_owned()),
        }
    }
    match union.len() {
        1 => steps.append(&mut union),
        _ => steps.push(Step::Union(union)),
    }
    Ok(&rest[1..])
}

/// One of `*`, a field in single quotes, an index, a slice.
fn element<'a>(text: &'a str, union: &mut Vec<Step>) -> Parsed<&'a str> {
    if text.starts_with('\'') {
        let (name, rest) = quoted(text, '\'')?;
        union.push(Step::Field(name));
        return Ok(rest);
    }
    let end = text.find([',', ']', '}']).ok_or("unterminated array")?;
    let written = text[..end].trim();
    union.push(match written.split(':').collect::<Vec<_>>()[..] {
        ["*"] => Step::Wildcard,
        [index] => Step::Index(number(index)?),
        [from, to] => Step::Slice(bound(from)?, bound(to)?, 1),
        [from, to, step] => {
            let step = usize::try_from(bound(step)?.unwrap_or(1)).ok().filter(|step| *step > 0);
            Step::Slice(
                bound(from)?,
                bound(to)?,
                step.ok_or("the step of a slice must be greater than 0")?,
            )
        }
        _ => return Err(format!("invalid array index {written}")),
    });
    Ok(&text[end..])
}

fn bound(written: &str) -> Parsed<Option<i64>> {
    if written.trim().is_empty() {
        Ok(None)
    } else {
        number(written).map(Some)
    }
}

fn number(written: &str) -> Parsed<i64> {
    written
        .trim()
        .parse()
        .map_err(|_| format!("invalid array index {written}"))
}

/// A filter after its opening parenthesis, and the rest behind the closing one.
fn filter(text: &str, nesting: usize) -> Parsed<(Filter, &str)> {
    let (left, rest) = operand(text.trim_start(), nesting)?;
    let rest = rest.trim_start();
    if let Some(rest) = rest.strip_prefix(')') {
        return Ok((Filter { left, comparison: None }, rest));
    }
    // The longer ones first.
    let comparisons = [
        ("==", Comparison::Equal),
        ("!=", Comparison::NotEqual),
        ("<=", Comparison::LessOrEqual),
        (">=", Comparison::GreaterOrEqual),
        ("<", Comparison::Less),
        (">", Comparison::Greater),
    ];
    let found = comparisons
        .iter()
        .find_map(|(text, comparison)| rest.strip_prefix(text).map(|rest| (*comparison, rest)));
    let (comparison, rest) = found.ok_or("unterminated filter")?;
    let (right, rest) = operand(rest.trim_start(), nesting)?;
    let rest = rest.trim_start().strip_prefix(')').ok_or("unterminated filter")?;
    Ok((
        Filter {
            left,
            comparison: Some((comparison, right)),
        },
        rest,
    ))
}

fn operand(text: &str, nesting: usize) -> Parsed<(Operand, &str)> {
    match text.chars().next() {
        Some(quote @ ('"' | '\'')) => {
            let (text, rest) = quoted(text, quote)?;
            Ok((Operand::Literal(Value::from(text)), rest))
        }
        Some('@' | '$' | '.') => path(text, nesting).map(|(steps, rest)| (Operand::Query(steps), rest)),
        _ => {
            let end = text.find([')', '=', '!', '<', '>', ' ']).unwrap_or(text.len());
            let (word, rest) = text.split_at(end);
            if word.is_empty() {
                return Err("a filter has nothing on one side".to_owned());
            }
            let value = match word {
                "true" | "false" => Some(Value::Bool(word == "true")),
                _ => serde_json::from_str(word).ok().filter(Value::is_number),
            };
            let wrong = || format!("a filter compares @ paths, numbers, quoted texts, true and false, not {word}");
            Ok((Operand::Literal(value.ok_or_else(wrong)?), rest))
        }
    }
}
