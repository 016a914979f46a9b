//! Regular expressions: `matches`, `find`, `findAll`.
//!
//! Go and the `regex` crate are of one family, but Go's `\d`, `\w`, `\s` and `\b` mean ASCII, a `{` that begins no repetition
//! is itself, and sets have no operators: expressions are rewritten accordingly. Compiled expressions are kept, a bounded
//! number of them, since rules are evaluated again and again.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

use regex::Regex;

use super::Called;
use crate::cel::eval::Error;
use crate::cel::value::Value;

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    let [Value::String(text), Value::String(pattern), rest @ ..] = args else {
        return None;
    };
    let count = match (overload, rest) {
        ("matches" | "matches_string", []) => {
            return Some(
                compile(pattern)
                    .map(|regex| Value::Bool(regex.is_match(text)))
                    .map_err(Error::new),
            );
        }
        ("string_find_string" | "string_find_all_string", []) => usize::MAX,
        // A negative count means all.
        ("string_find_all_string_int", [Value::Int(count)]) => usize::try_from(*count).unwrap_or(usize::MAX),
        _ => return None,
    };
    let regex = match compile(pattern) {
        Ok(regex) => regex,
        Err(error) => return Some(Err(Error::new(format!("Illegal regex: {error}")))),
    };
    Some(Ok(if overload == "string_find_string" {
        Value::string(regex.find(text).map_or("", |found| found.as_str()))
    } else {
        Value::strings(regex.find_iter(text).take(count).map(|found| found.as_str().to_owned()))
    }))
}

/// How many compiled expressions are kept.
const KEPT: usize = 256;

static COMPILED: LazyLock<Mutex<BTreeMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// The compiled expression, or Go's message.
pub(crate) fn compile(pattern: &str) -> Result<Regex, String> {
    let mut kept = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(regex) = kept.get(pattern) {
        return Ok(regex.clone());
    }
    let regex = Regex::new(&translate(pattern)).map_err(|_| refused(&complaint(pattern)))?;
    // What Go refuses although the crate takes it.
    let complaint = complaint(pattern);
    let refusals = [
        "invalid nested repetition",
        "invalid repeat count",
        "invalid character class range: `[:",
    ];
    if refusals.iter().any(|refusal| complaint.starts_with(refusal)) {
        return Err(refused(&complaint));
    }
    if kept.len() >= KEPT {
        kept.clear();
    }
    kept.insert(pattern.to_owned(), regex.clone());
    Ok(regex)
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
            '[' if rest.starts_with("[:") && rest.contains(":]") => {
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

/// Writes what follows a backslash; gives back how many bytes that was.
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
        // The crate gives these a meaning that Go does not know.
        '<' | '>' | 'u' | 'U' | 'Z' => "\\!".to_owned() + "(",
        other => format!("\\{other}"),
    };
    translated.push_str(&text);
    c.len_utf8()
}

/// `{2}`, `{2,}` or `{2,3}`.
fn is_repetition(text: &str) -> bool {
    let Some(inside) = text[1..].split_once('}').map(|(inside, _)| inside) else {
        return false;
    };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match inside.split_once(',') {
        Some((least, most)) => number(least) && (most.is_empty() || number(most)),
        None => number(inside),
    }
}

/// What Go says about an expression that is none: the mistakes that are made most.
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
                Some('p' | 'P') if Regex::new(&rest[..class_end(rest)]).is_err() => {
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
                let named = ["(?P<", "(?<"].into_iter().find(|start| rest.starts_with(start));
                if let Some(start) = named.filter(|_| !rest.starts_with("(?<=") && !rest.starts_with("(?<!")) {
                    let name = rest[start.len()..].split_once('>').map(|(name, _)| name);
                    let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
                    match name {
                        None => return format!("invalid named capture: `{rest}`"),
                        Some(name) if name.is_empty() || !name.chars().all(is_word) => {
                            return format!("invalid named capture: `{start}{name}>`");
                        }
                        Some(_) => {}
                    }
                } else if let Some(flagged) = rest.strip_prefix("(?") {
                    let flags = flagged.bytes().take_while(|b| b"imsU-".contains(b)).count();
                    if !flagged[flags..].starts_with([':', ')']) {
                        let shown: String = rest.chars().take(3 + flags).collect();
                        return format!("invalid or unsupported Perl syntax: `{shown}`");
                    }
                }
                open.push(rest);
                repeatable = false;
                rest = &rest[1..];
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
    match text.find('}') {
        Some(end) if text[2..].starts_with('{') => end + 1,
        _ => 2 + text[2..].chars().next().map_or(0, char::len_utf8),
    }
}

/// Where a set ends, or which of its ranges runs backwards.
fn set_end(text: &str) -> Result<usize, Option<&str>> {
    let chars: Vec<(usize, char)> = text.char_indices().collect();
    let mut at = 0;
    while let Some(&(place, c)) = chars.get(at) {
        match c {
            ']' => return Ok(place),
            '\\' => at += 2,
            '[' if text[place..].starts_with("[:") => match text[place..].find(":]") {
                Some(end) if !is_class(&text[place + 2..place + end]) => {
                    return Err(Some(&text[place..place + end + 2]));
                }
                Some(end) => at += text[place..place + end + 2].chars().count(),
                None => at += 1,
            },
            _ => {
                if let (Some((_, '-')), Some(&(last, upper))) = (chars.get(at + 1), chars.get(at + 2))
                    && upper != ']'
                    && upper != '\\'
                {
                    if upper < c {
                        return Err(Some(&text[place..last + upper.len_utf8()]));
                    }
                    at += 2;
                }
                at += 1;
            }
        }
    }
    Err(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, matching: &[&str], other: &[&str]) {
        let regex = compile(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
        for text in matching {
            assert!(regex.is_match(text), "{pattern} matches {text:?}");
        }
        for text in other {
            assert!(!regex.is_match(text), "{pattern} does not match {text:?}");
        }
    }

    #[test]
    fn means_what_it_means_to_go() {
        check("^\\d+$", &["12"], &["٣", ""]);
        check("^[\\w-]+$", &["a-b_1"], &["é"]);
        check("^\\W$", &["é", "-"], &["a"]);
        check("^[^\\s]$", &["a", "\u{a0}"], &[" "]);
        check("a{", &["a{"], &["a"]);
        check("^a{,2}$", &["a{,2}"], &["aa"]);
        check("^a{2}$", &["aa"], &["a{2}"]);
        check("^[[]$", &["["], &[]);
        check("^[]a]$", &["]", "a"], &["[]a]"]);
        check("^[a&&b]+$", &["a&b"], &["c"]);
        check("^[[:alpha:]]$", &["a"], &["1", ":"]);
        check("^\\Qa.b\\E$", &["a.b"], &["axb"]);
        check("(?i)^x(?:y)?$", &["X", "xY"], &["z"]);
        check("(?P<n>a)|*b?".trim_end_matches("|*b?"), &["a"], &["b"]);
        check("\\bfoo\\b", &["a foo"], &["afoo"]);
    }

    #[test]
    fn go_refuses() {
        for (pattern, complaint) in [
            ("[", "missing closing ]: `[`"),
            ("a)", "unexpected ): `a)`"),
            ("(a", "missing closing ): `(a`"),
            ("+", "missing argument to repetition operator: `+`"),
            ("a+*", "invalid nested repetition operator: `+*`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("\\", "trailing backslash at end of expression: ``"),
            ("(?!a)", "invalid or unsupported Perl syntax: `(?!`"),
            (
                "((((((((a{30}){30}){30}){30}){30}){30}){30}){30})",
                "expression too large",
            ),
        ] {
            let error = compile(pattern).expect_err(pattern);
            assert!(error.contains(complaint), "{pattern}: {error}");
        }
    }
}
