//! Regular expressions: `matches`, `find`, `findAll`.
//!
//! Go and the `regex` crate are of one family, but Go's `\d`, `\w`, `\s` and `\b` mean ASCII, a `{` that begins no
//! repetition is itself, and sets have no operators: expressions are rewritten accordingly. Who evaluates rules again
//! and again keeps their compiled expressions in [`Patterns`], a bounded number of them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use regex::{Regex, RegexBuilder};
use regex_syntax::ast;
use regex_syntax::hir::translate::Translator;

use self::size::Size;
use self::walk::Program;
use super::Called;
use crate::error::Error;
use crate::value::Value;
use kubewright_values::{Minor, budget};

mod size;
mod walk;

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>], patterns: &Patterns) -> Called<'a> {
    let [Value::String(text), Value::String(pattern), rest @ ..] = args else {
        return None;
    };
    let count = match (overload, rest) {
        ("matches" | "matches_string", []) => {
            return Some(
                patterns
                    .compile(pattern)
                    .map(|regex| Value::Bool(regex.matches(text)))
                    .map_err(Error::new),
            );
        }
        ("string_find_string" | "string_find_all_string", []) => usize::MAX,
        // A negative count means all.
        ("string_find_all_string_int", [Value::Int(count)]) => usize::try_from(*count).unwrap_or(usize::MAX),
        _ => return None,
    };
    let regex = match patterns.compile(pattern) {
        Ok(regex) => regex,
        Err(error) => return Some(Err(Error::new(format!("Illegal regex: {error}")))),
    };
    Some(Ok(if overload == "string_find_string" {
        Value::string(regex.find(text).unwrap_or_default())
    } else {
        let found = regex.find_all(text, count, |found| budget::produce(VALUE + found.len()));
        Value::strings(found.into_iter().map(str::to_owned))
    }))
}

/// The memory of a list item beside its text.
const VALUE: usize = 64;

/// How many compiled expressions are kept, and how large each of them may be (in ranges of characters, or in parts if it
/// is walked). Each keeps its notes: some 32 MiB for each thread, were all of them full.
const KEPT: usize = 128;
const KEPT_WEIGHT: usize = 2_000;

/// The most memory in which a compiled expression notes its states for a text, for each thread.
const NOTES: usize = 256 * 1024;

/// What the evaluations of a server share: the version of Kubernetes whose functions they have, and the compiled
/// expressions. At most `KEPT` expressions, none larger than `KEPT_WEIGHT`; when it is full it begins anew.
#[derive(Debug, Default)]
pub struct Patterns {
    compiled: Mutex<BTreeMap<String, Arc<GoRegex>>>,
    minor: Minor,
}

impl Patterns {
    /// None yet, for a server of this version.
    pub fn of(minor: Minor) -> Patterns {
        let compiled = Mutex::default();
        Patterns { compiled, minor }
    }

    pub(crate) fn minor(&self) -> Minor {
        self.minor
    }

    /// The compiled expression, shared with earlier callers.
    ///
    /// # Errors
    /// Go's message.
    pub fn compile(&self, pattern: &str) -> Result<Arc<GoRegex>, String> {
        // Whole entries only are added and taken away: after a panic elsewhere the map is as good as before.
        let known = || self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(regex) = known().get(pattern) {
            return Ok(regex.clone());
        }
        let regex = compile(pattern)?;
        if regex.weight <= KEPT_WEIGHT {
            let mut kept = known();
            if kept.len() >= KEPT {
                kept.clear();
            }
            kept.insert(pattern.to_owned(), regex.clone());
        }
        Ok(regex)
    }
}

/// A compiled expression, and how large it is. It is shared and never copied: a copy of a [`Regex`] begins without
/// those notes, and making them anew costs far more than a short match does.
#[derive(Debug)]
pub struct GoRegex {
    engine: Engine,
    weight: usize,
}

#[derive(Debug)]
enum Engine {
    Crate { regex: Regex, parts: usize },
    Walk(Program),
}

impl GoRegex {
    /// Whether it matches somewhere in the text.
    pub fn matches(&self, text: &str) -> bool {
        match &self.engine {
            Engine::Crate { regex, parts } => {
                spend(text, *parts);
                regex.is_match(text)
            }
            Engine::Walk(program) => program.matches(text),
        }
    }

    /// The first match.
    fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.find_all(text, 1, |_| ()).into_iter().next()
    }

    /// As many matches from the start as are wanted, each shown to `seen` when it is found.
    fn find_all<'t>(&self, text: &'t str, most: usize, seen: impl Fn(&str)) -> Vec<&'t str> {
        let seen = |found: &'t str| {
            seen(found);
            found
        };
        match &self.engine {
            Engine::Crate { regex, parts } => {
                spend(text, *parts);
                regex
                    .find_iter(text)
                    .take(most)
                    .map(|found| seen(found.as_str()))
                    .collect()
            }
            Engine::Walk(program) => walk_all(program, text).take(most).map(seen).collect(),
        }
    }
}

/// At worst each character is held against each part of the expression.
fn spend(text: &str, parts: usize) {
    budget::spend(1 + text.len().saturating_mul(parts) / 16);
}

/// The matches that do not overlap. An empty one does not follow another directly.
fn walk_all<'t>(program: &Program, text: &'t str) -> impl Iterator<Item = &'t str> {
    let (mut from, mut last) = (Some(0), None);
    std::iter::from_fn(move || {
        loop {
            let (start, end) = program.find_at(text, from?)?;
            let behind = || Some(end + text[end..].chars().next()?.len_utf8());
            let repeated = start == end && last == Some(end);
            from = if start == end { behind() } else { Some(end) };
            last = Some(end);
            if !repeated {
                return Some(&text[start..end]);
            }
        }
    })
}

/// The most ranges that the `regex` crate is given to compile: some two milliseconds.
const RANGES: usize = 4_000;

/// The compiled expression, which the caller keeps.
///
/// # Errors
/// Go's message.
pub fn compile(pattern: &str) -> Result<Arc<GoRegex>, String> {
    budget::spend(pattern.len().saturating_mul(16));
    budget::produce(pattern.len().saturating_mul(64));
    let translated = translate(pattern);
    let unreadable = || refused(&complaint(pattern));
    let tree = ast::parse::Parser::new().parse(&translated).map_err(|_| unreadable())?;
    // The expressions that Go refuses although the crate takes them.
    let complaint = complaint(pattern);
    let refusals = [
        "invalid nested repetition",
        "invalid repeat count",
        "invalid character class range: `[:",
    ];
    if refusals.iter().any(|refusal| complaint.starts_with(refusal)) {
        return Err(refused(&complaint));
    }
    size::repeated(&tree).map_err(|span| {
        let shown = &translated[span.start.offset..span.end.offset];
        refused(&format!("invalid repeat count: `{shown}`"))
    })?;
    // Any flag `i` will do: this is a bound.
    let folded = pattern.match_indices("(?").any(|(at, _)| {
        let flags = pattern[at + 2..].bytes().take_while(|b| b"imsU-".contains(b));
        flags.into_iter().any(|flag| flag == b'i')
    });
    size::spend_on_sets(&tree, folded);
    let expression = Translator::new()
        .translate(&translated, &tree)
        .map_err(|_| unreadable())?;
    let size = Size::of(&expression);
    if size.ranges > RANGES {
        let engine = Engine::Walk(Program::new(&expression, size.parts));
        return Ok(Arc::new(GoRegex {
            engine,
            weight: size.parts,
        }));
    }
    budget::spend(size.ranges.saturating_mul(48));
    budget::produce(size.ranges.saturating_mul(64));
    let compiled = RegexBuilder::new(&translated).dfa_size_limit(NOTES).build();
    let regex = compiled.map_err(|_| unreadable())?;
    Ok(Arc::new(GoRegex {
        engine: Engine::Crate {
            regex,
            parts: size.parts,
        },
        weight: size.ranges,
    }))
}

fn refused(complaint: &str) -> String {
    format!("error parsing regexp: {complaint}")
}

/// Go's expression in the words of the `regex` crate.
fn translate(pattern: &str) -> String {
    let mut translated = String::with_capacity(pattern.len() + 8);
    let mut rest = pattern;
    // Whether a set is open, and whether its first element is still to come.
    let (mut in_set, mut first) = (false, false);
    // Where the last name of characters ends: a missing one is not searched for again and again.
    let last_name = pattern.rfind(":]");
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        let was_first = std::mem::take(&mut first);
        match c {
            '\\' => taken += escape(&mut translated, &rest[1..], in_set),
            '[' if !in_set => {
                in_set = true;
                first = true;
                translated.push('[');
                if rest[1..].starts_with('^') {
                    translated.push('^');
                    taken += 1;
                }
            }
            '[' if rest.starts_with("[:") && last_name.is_some_and(|last| last > pattern.len() - rest.len()) => {
                let end = rest.find(":]").map_or(1, |end| end + 2);
                translated.push_str(&rest[..end]);
                taken = end;
            }
            ']' if in_set && was_first => translated.push_str("\\]"),
            ']' if in_set => {
                in_set = false;
                translated.push(']');
            }
            '[' | '&' | '~' if in_set => {
                translated.push('\\');
                translated.push(c);
            }
            '{' if !in_set && !is_repetition(rest) => translated.push_str("\\{"),
            '{' if !in_set => {
                let end = rest.find('}').map_or(1, |end| end + 1);
                translated.push_str(&rest[..end]);
                taken = end;
            }
            '}' if !in_set => translated.push_str("\\}"),
            other => translated.push(other),
        }
        rest = &rest[taken..];
    }
    translated
}

/// Writes the escape behind a backslash; gives back how many bytes that was.
fn escape(translated: &mut String, after: &str, in_set: bool) -> usize {
    let Some(c) = after.chars().next() else {
        translated.push('\\');
        return 0;
    };
    let set = |inner: &str, negated: bool| match (in_set, negated) {
        (true, false) => inner.to_owned(),
        (_, true) => format!("[^{inner}]"),
        (false, false) => format!("[{inner}]"),
    };
    let text = match c {
        'd' | 'D' => set("0-9", c == 'D'),
        'w' | 'W' => set("0-9A-Za-z_", c == 'W'),
        's' | 'S' => set("\\t\\n\\x0c\\r ", c == 'S'),
        'b' | 'B' if !in_set => format!("(?-u:\\{c})"),
        'Q' if !in_set => {
            let (literal, taken) = match after[1..].find("\\E") {
                Some(end) => (&after[1..1 + end], end + 3),
                None => (&after[1..], after.len()),
            };
            translated.push_str(&regex::escape(literal));
            return taken;
        }
        // The braces of `\p{Greek}` and `\x{e9}` are no repetition.
        'p' | 'P' | 'x' if after[1..].starts_with('{') => {
            let taken = after.find('}').map_or(1, |end| end + 1);
            translated.push('\\');
            translated.push_str(&after[..taken]);
            return taken;
        }
        // The crate gives these a meaning that Go does not know.
        '<' | '>' | 'u' | 'U' | 'Z' => "\\!".to_owned() + "(",
        other => format!("\\{other}"),
    };
    translated.push_str(&text);
    c.len_utf8()
}

/// `{2}`, `{2,}` or `{2,3}`.
fn is_repetition(text: &str) -> bool {
    let after_digits = |text: &'_ str| text.bytes().take_while(u8::is_ascii_digit).count();
    let least = after_digits(&text[1..]);
    let rest = &text[1 + least..];
    let most = |rest: &str| rest[after_digits(rest)..].starts_with('}');
    least > 0 && (rest.starts_with('}') || rest.strip_prefix(',').is_some_and(most))
}

/// Go's error about a broken expression: the most frequent mistakes.
fn complaint(pattern: &str) -> String {
    let (mut open, mut rest, mut repeatable) = (Vec::new(), pattern, false);
    while let Some(c) = rest.chars().next() {
        let mut taken = c.len_utf8();
        match c {
            '\\' => match rest.chars().nth(1) {
                None => return "trailing backslash at end of expression: ``".into(),
                Some(next) if next.is_ascii_alphanumeric() && !"0abfnrtvdDwWsSbBAzQEpPCx".contains(next) => {
                    return format!("invalid escape sequence: `\\{next}`");
                }
                Some('p' | 'P') if !is_known_class(&rest[..class_end(rest)]) => {
                    return format!("invalid character class range: `{}`", &rest[..class_end(rest)]);
                }
                Some(next) => taken += next.len_utf8(),
            },
            '[' => {
                let skip = usize::from(rest[1..].starts_with('^')) + 1;
                let skip = skip + usize::from(rest[skip..].starts_with(']'));
                match set_end(&rest[skip..]) {
                    Ok(end) => taken = skip + end + 1,
                    Err(None) => return format!("missing closing ]: `{rest}`"),
                    Err(Some(range)) => return format!("invalid character class range: `{range}`"),
                }
            }
            '(' => {
                let mut head = 1;
                let named = ["(?P<", "(?<"].into_iter().find(|start| rest.starts_with(start));
                if let Some(start) = named.filter(|_| !rest.starts_with("(?<=") && !rest.starts_with("(?<!")) {
                    let name = rest[start.len()..].split_once('>').map(|(name, _)| name);
                    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
                    match name {
                        None => return format!("invalid named capture: `{rest}`"),
                        Some(name) if name.is_empty() || !name.chars().all(is_word) => {
                            return format!("invalid named capture: `{start}{name}>`");
                        }
                        Some(name) => head = start.len() + name.len() + 1,
                    }
                } else if let Some(flagged) = rest.strip_prefix("(?") {
                    let flags = flagged.bytes().take_while(|b| b"imsU-".contains(b)).count();
                    if !flagged[flags..].starts_with([':', ')']) {
                        let shown: String = rest.chars().take(3 + flags).collect();
                        return format!("invalid or unsupported Perl syntax: `{shown}`");
                    }
                    head = 3 + flags;
                }
                // Flags alone are no group: `(?i)`.
                if !rest[..head].ends_with(')') {
                    open.push(rest);
                    repeatable = false;
                }
                rest = &rest[head..];
                continue;
            }
            ')' if open.pop().is_none() => return format!("unexpected ): `{pattern}`"),
            '*' | '+' | '?' if !repeatable => return format!("missing argument to repetition operator: `{c}`"),
            '*' | '+' | '?' => {
                let lazy = usize::from(rest[1..].starts_with('?'));
                let after = &rest[1 + lazy..];
                if after.starts_with(['*', '+', '?']) {
                    return format!("invalid nested repetition operator: `{}`", &rest[..2 + lazy]);
                }
                taken += lazy;
            }
            '{' if is_repetition(rest) => {
                let shown = &rest[..rest.find('}').map_or(1, |end| end + 1)];
                if !repeatable {
                    return format!("missing argument to repetition operator: `{shown}`");
                }
                let counts: Vec<u32> = shown[1..shown.len() - 1]
                    .split(',')
                    .filter(|count| !count.is_empty())
                    .map(|count| count.parse().unwrap_or(u32::MAX))
                    .collect();
                if counts.iter().any(|count| *count > 1000) || counts.len() == 2 && counts[0] > counts[1] {
                    return format!("invalid repeat count: `{shown}`");
                }
                taken = shown.len();
            }
            _ => {}
        }
        repeatable = !matches!(c, '|' | '^');
        rest = &rest[taken..];
    }
    if open.is_empty() {
        return format!("expression too large: `{pattern}`");
    }
    format!("missing closing ): `{pattern}`")
}

/// Whether a name stands for characters in a set: `[:alpha:]`, `[:^alpha:]`.
fn is_class(name: &str) -> bool {
    const CLASSES: [&str; 14] = [
        "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper",
        "word", "xdigit",
    ];
    CLASSES.contains(&name.strip_prefix('^').unwrap_or(name))
}

/// Where `\pL` or `\p{Greek}` ends.
fn class_end(text: &str) -> usize {
    let name = text[2..].strip_prefix('{').and_then(|name| name.find('}'));
    match name {
        Some(end) => end + 4,
        None => 2 + text[2..].chars().next().map_or(0, char::len_utf8),
    }
}

/// Whether `\pL` or `\p{Greek}` names characters.
fn is_known_class(class: &str) -> bool {
    budget::spend(2_000);
    budget::spend_on_text(class.len());
    regex_syntax::parse(class).is_ok()
}

/// Where a set ends, or which of its ranges runs backwards.
fn set_end(text: &str) -> Result<usize, Option<&str>> {
    let width = |at: usize| text[at..].chars().next().map_or(0, char::len_utf8);
    let (mut at, mut names) = (0, true);
    while let Some(c) = text[at..].chars().next() {
        let next = at + c.len_utf8();
        match c {
            ']' => return Ok(at),
            '\\' => at = next + width(next),
            '[' if names && text[at..].starts_with("[:") => match text[at..].find(":]") {
                Some(end) if !is_class(text.get(at + 2..at + end).unwrap_or_default()) => {
                    return Err(Some(&text[at..at + end + 2]));
                }
                Some(end) => at += end + 2,
                None => {
                    names = false;
                    at = next;
                }
            },
            _ => {
                let mut after = text[next..].chars();
                if let (Some('-'), Some(upper)) = (after.next(), after.next())
                    && upper != ']'
                    && upper != '\\'
                {
                    let end = next + 1 + upper.len_utf8();
                    if upper < c {
                        return Err(Some(&text[at..end]));
                    }
                    at = end;
                } else {
                    at = next;
                }
            }
        }
    }
    Err(None)
}

#[cfg(test)]
mod tests;
