//! Requests as text. A file has a group: its title, then its inputs, each with a name and the codes that are right:
//!
//! ```text
//! a pod with 30,000 volumes: 201 413 422
//!   POST $PODS as wide «pod¦wide¦"volumes":[«30000*,¦{"name":"v#","emptyDir":{}}»]»
//! ```
//!
//! The last request is the input itself. Those above it are sent before it, and those after `then` make room again.
//! `400! POST …` stands for 400 of them, `400? POST …` for a tenth of that in a debug build, `400?50 POST …` for 50. `as` names
//! the object that the request makes, `by 64` has 64 clients send it (an eighth in a debug build), each with its number
//! for @@, and each `` `…` `` is a header. MERGE, JSON, STRATEGIC and `APPLY:manager` are patches of these types. A line
//! that is indented further goes on with the one above it.
//!
//! Between « and » stands what is made when it is needed, because some of it is large: `«9!¦x»` is nine letters,
//! `«9*,¦x»` as many joined by commas, where thousands are fewer in a debug build ([`scaled`]). `#` is the number of the
//! repetition and `##` the one around it, both from 0; `#{/250%250}` computes with it, `#{_9}` is nine less it, and
//! `#{~}` counts down. Everything else is a word of `words.txt`, with its arguments between ¦; there `$1` is an
//! argument, `$,1` one that is preceded by a comma if it is there. ␤, ␍ and ␀ are the end of a line, a return, and NUL.

use std::collections::HashMap;
use std::net::TcpListener;
use std::sync::LazyLock;

use crate::hostile::answering::client_config;
use crate::hostile::input::{Input, Request, any, input};
use crate::hostile::values::scaled;

/// What stands between « and » besides repetitions.
static WORDS: LazyLock<HashMap<&str, String>> = LazyLock::new(|| {
    let blocks = include_str!("words.txt").split("\n\n");
    let words = blocks.filter_map(|block| match block.trim_end().split_once('\n') {
        Some((comment, word)) if comment.starts_with("//") => word.split_once(':'),
        _ => block.trim_end().split_once(':'),
    });
    words
        .map(|(name, text)| (name, joined(text.lines()).join("\n")))
        .collect()
});

/// A client that connects here waits: the connection is never accepted.
static SILENT: LazyLock<TcpListener> = LazyLock::new(|| TcpListener::bind("127.0.0.1:0").unwrap());

/// The group of a file.
pub(super) fn group(file: &'static str) -> (&'static str, Vec<Input>) {
    let (title, rest) = file.split_once('\n').unwrap();
    let mut inputs = Vec::new();
    let lines: Vec<&str> = rest.lines().filter(|line| !line.starts_with("//")).collect();
    for lines in lines.chunk_by(|_, next| next.starts_with("  ")) {
        let (name, answers) = lines[0].rsplit_once(": ").unwrap();
        let answers: Vec<u16> = answers.split(' ').map(|code| code.parse().unwrap()).collect();
        let lines = joined(lines[1..].iter().copied());
        inputs.push(input(name, answers.leak(), move || request(&lines)));
    }
    (title, inputs)
}

/// Lines, each with those that are indented below it.
fn joined<'a>(text: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for line in text {
        match (line.strip_prefix("      "), lines.last_mut()) {
            (Some(more), Some(last)) => last.push_str(more),
            _ => lines.push(line.trim_start().to_owned()),
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// The last request of some lines, with the others before and after it.
fn request(lines: &[String]) -> Request {
    let (mut requests, mut afterwards) = (Vec::new(), Vec::new());
    for line in lines
        .iter()
        .map(|line| with_words(line))
        .collect::<Vec<_>>()
        .iter()
        .flat_map(|text| text.lines())
    {
        let (line, list) = match line.strip_prefix("then ") {
            Some(line) => (line, &mut afterwards),
            None => (line, &mut requests),
        };
        match line.split_once(' ') {
            Some((count, line)) if count.starts_with(|first: char| first.is_ascii_digit()) => {
                let count = match counted(count) {
                    (_, in_debug) if cfg!(debug_assertions) && !in_debug.is_empty() => in_debug.parse().unwrap(),
                    (count, _) => count,
                };
                list.extend((0..count).map(|index| one(line, &[(index, count)])));
            }
            _ => list.push(one(line, &[])),
        }
    }
    let last = requests.pop().unwrap();
    let whole = requests.into_iter().fold(last, Request::after);
    afterwards.into_iter().fold(whole, Request::then)
}

/// One line as a request.
fn one(line: &str, numbers: &[(usize, usize)]) -> Request {
    let (method, rest) = line.split_once(' ').unwrap();
    let (path, mut rest) = rest.split_once(' ').unwrap_or((rest, ""));
    let (method, content_type) = match method.split_once(':').map_or(method, |(method, _)| method) {
        "GET" => ("GET", ""),
        "POST" => ("POST", "application/json"),
        "PUT" => ("PUT", "application/json"),
        "DELETE" => ("DELETE", "application/json"),
        "MERGE" => ("PATCH", "application/merge-patch+json"),
        "JSON" => ("PATCH", "application/json-patch+json"),
        "STRATEGIC" => ("PATCH", "application/strategic-merge-patch+json"),
        "APPLY" | "PATCH" => ("PATCH", "application/apply-patch+yaml"),
        other => (&*other.to_owned().leak(), "application/json"),
    };
    let mut headers = Vec::new();
    let (mut name, mut clients) = (None, 1);
    loop {
        if let Some((word, more)) = rest.strip_prefix("as ").map(|rest| split(rest, ' ')) {
            (name, rest) = (Some(made(word, numbers)), more);
        } else if let Some((word, more)) = rest.strip_prefix("by ").map(|rest| split(rest, ' ')) {
            let all: usize = word.parse().unwrap();
            clients = if cfg!(debug_assertions) && all >= 64 {
                all / 8
            } else {
                all
            };
            rest = more;
        } else if let Some((header, more)) = rest.strip_prefix('`').map(|rest| split(rest, '`')) {
            headers.push(header);
            rest = more.strip_prefix(' ').unwrap_or(more);
        } else {
            break;
        }
    }
    let mut request = any(method, &made(path, numbers), content_type, made(rest, numbers));
    if content_type.is_empty() {
        request.headers.clear();
    }
    if let Some((_, manager)) = line.split(' ').next().and_then(|method| method.split_once(':')) {
        request = request.query(&format!("force=true&fieldManager={}", made(manager, numbers)));
    }
    for header in headers {
        let (count, header) = match header.split_once(' ') {
            Some((count, header)) if count.ends_with('!') => (counted(count).0, header),
            _ => (1, header),
        };
        for index in 0..count {
            let numbers = [(index, count)];
            let (key, value) = header.split_once(": ").unwrap();
            if key == "Content-Type" {
                request.headers.clear();
            }
            if !value.is_empty() {
                request = request.header(&made(key, &numbers), &made(value, &numbers));
            }
        }
    }
    Request {
        name,
        clients,
        ..request
    }
}

/// What is before a separator that is between no « and », and what is behind it; all of it, if there is none.
fn split(text: &str, separator: char) -> (&str, &str) {
    let mut depth = 0;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if letter == separator && depth == 0 => return (&text[..at], &text[at + letter.len_utf8()..]),
            '«' => depth += 1,
            '»' => depth -= 1,
            _ => {}
        }
    }
    (text, "")
}

/// How often: `400!` is just that, `5000*,` fewer in a debug build, and what stands between them.
fn counted(head: &str) -> (usize, &str) {
    let end = head
        .find(['!', '*', '?'])
        .unwrap_or_else(|| panic!("how often is {head:?}?"));
    let count: usize = head[..end].parse().unwrap();
    let count = match &head[end..=end] {
        "*" => scaled(count),
        "?" if cfg!(debug_assertions) => count / 10,
        _ => count,
    };
    (count, &head[end + 1..])
}

/// The text before the first «, what is between it and its », and the text behind that.
fn braced(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once('«')?;
    let (inside, after) = split(rest, '»');
    Some((before, inside, after))
}

/// The text with its words, and the repetitions as they are.
fn with_words(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inside, after)) = braced(rest) {
        out += before;
        rest = after;
        let (head, body) = inside.split_once('¦').unwrap_or((inside, ""));
        if head.starts_with(|first: char| first.is_ascii_digit()) {
            out += &format!("«{head}¦{}»", with_words(body));
            continue;
        }
        out += &match head {
            "silent" => format!("https://{}/", SILENT.local_addr().unwrap()),
            "answer" => client_config(body),
            _ => {
                let word = WORDS.get(head).unwrap_or_else(|| panic!("there is no word {head:?}"));
                let mut arguments = body;
                let mut said = word.clone();
                for number in 1..=5 {
                    let (argument, more) = split(arguments, '¦');
                    let comma = if argument.is_empty() { "" } else { "," };
                    said = said.replace(&format!("$,{number}"), &format!("{comma}{argument}"));
                    said = said.replace(&format!("${number}"), argument);
                    arguments = more;
                }
                with_words(&said)
            }
        };
    }
    out += rest;
    for (name, text) in WORDS.iter().filter(|(name, _)| name.starts_with('$')) {
        out = out.replace(name, text);
    }
    out
}

/// The text with its repetitions and numbers; the last of these is that of the innermost repetition.
fn made(text: &str, numbers: &[(usize, usize)]) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, inside, after)) = braced(rest) {
        out += &numbered(before, numbers);
        rest = after;
        let (head, body) = inside.split_once('¦').unwrap();
        let (count, between) = counted(head);
        if !body.contains(['#', '«']) {
            out += &vec![plain(body); count].join(between);
            continue;
        }
        for index in 0..count {
            out += if index == 0 { "" } else { between };
            out += &made(body, &[numbers, &[(index, count)]].concat());
        }
    }
    out + &numbered(rest, numbers)
}

/// The text with its numbers.
fn numbered(text: &str, numbers: &[(usize, usize)]) -> String {
    let Some((innermost, around)) = numbers.split_last() else {
        return plain(text);
    };
    let mut parts = text.split('#').peekable();
    let mut out = parts.next().unwrap_or_default().to_owned();
    while let Some(part) = parts.next() {
        let (number, part) = match around.last() {
            Some(number) if part.is_empty() && parts.peek().is_some() => (number, parts.next().unwrap_or_default()),
            _ => (innermost, part),
        };
        let (steps, part) = match part.strip_prefix('{').and_then(|part| part.split_once('}')) {
            Some(found) => found,
            None => ("", part),
        };
        out += &computed(*number, steps).to_string();
        out += part;
    }
    plain(&out)
}

/// The text with what no line can hold.
fn plain(text: &str) -> String {
    text.replace('␤', "\n").replace('␍', "\r").replace('␀', "\0")
}

/// The number after steps such as `/250%250`, from the left to the right.
fn computed((index, count): (usize, usize), steps: &str) -> i64 {
    let mut number = index as i64;
    let mut rest = steps;
    while let Some(sign) = rest.chars().next() {
        let end = rest[1..]
            .find(|letter: char| !letter.is_ascii_digit())
            .map_or(rest.len(), |end| end + 1);
        let by = || -> i64 { rest[1..end].parse().unwrap() };
        number = match sign {
            '~' => count as i64 - 1 - number,
            '+' => number + by(),
            '-' => number - by(),
            '_' => by() - number,
            '*' => number * by(),
            '/' => number / by(),
            '%' => number % by(),
            other => panic!("what is {other:?} in {steps:?}?"),
        };
        rest = &rest[end..];
    }
    number
}
