//! As much of Go's template language as our charts use, so that a test can render them without Helm.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::yaml;

#[derive(Clone, Debug)]
enum Node {
    Text(String),
    Print(String),
    Assign(String, String),
    /// `if`, `with` or `range`: the word, its branches, and the `else`.
    Block(String, Vec<(String, Vec<Node>)>, Vec<Node>),
}

/// A chart: its definitions, and the values of a release.
pub(super) struct Chart {
    defines: BTreeMap<String, Vec<Node>>,
    root: Value,
}

enum Token {
    Text(String),
    Action(String),
}

fn tokens(text: &str) -> Vec<Token> {
    let mut out: Vec<Token> = Vec::new();
    let mut rest = text;
    let mut trim = false;
    while let Some(at) = rest.find("{{") {
        let (before, after) = rest.split_at(at);
        let end = after.find("}}").unwrap_or_else(|| panic!("an action ends: {after}"));
        let (mut action, mut before) = (&after[2..end], before);
        if trim {
            before = before.trim_start();
        }
        if let Some(inner) = action.strip_prefix('-') {
            action = inner;
            before = before.trim_end();
        }
        trim = action.ends_with('-');
        out.push(Token::Text(before.to_owned()));
        out.push(Token::Action(action.trim_end_matches('-').trim().to_owned()));
        rest = &after[end + 2..];
    }
    out.push(Token::Text(if trim { rest.trim_start() } else { rest }.to_owned()));
    out
}

impl Chart {
    /// `values` is values.yaml with the release's own values.
    pub(super) fn new(helpers: &str, values: Value, name: &str, release: &str, namespace: &str) -> Chart {
        let mut chart = Chart {
            defines: BTreeMap::new(),
            root: json!({
                "Values": values,
                "Chart": {"Name": name, "AppVersion": "1.2.3"},
                "Release": {"Name": release, "Namespace": namespace, "Service": "Helm"},
            }),
        };
        let mut tokens = tokens(helpers).into_iter().peekable();
        while let Some(token) = tokens.next() {
            if let Token::Action(action) = token
                && let Some(name) = action.strip_prefix("define ")
            {
                let (body, _) = parse(&mut tokens);
                chart.defines.insert(name.trim_matches('"').to_owned(), body);
            }
        }
        chart
    }

    pub(super) fn render(&self, template: &str) -> String {
        let (nodes, last) = parse(&mut tokens(template).into_iter());
        assert_eq!(last, None, "every end has a beginning: {template}");
        let mut out = String::new();
        self.run(&nodes, &self.root, &mut BTreeMap::new(), &mut out);
        out
    }

    fn run(&self, nodes: &[Node], dot: &Value, vars: &mut BTreeMap<String, Value>, out: &mut String) {
        for node in nodes {
            match node {
                Node::Text(text) => out.push_str(text),
                Node::Print(action) => out.push_str(&as_text(&self.value(action, dot, vars))),
                Node::Assign(name, action) => {
                    let value = self.value(action, dot, vars);
                    vars.insert(name.clone(), value);
                }
                Node::Block(word, branches, otherwise) => {
                    let mut taken = false;
                    for (condition, body) in branches {
                        let value = self.value(condition, dot, vars);
                        if !truth(&value) {
                            continue;
                        }
                        taken = true;
                        match (word.as_str(), &value) {
                            ("range", Value::Array(items)) => {
                                items.iter().for_each(|item| self.run(body, item, vars, out));
                            }
                            ("with", value) => self.run(body, value, vars, out),
                            _ => self.run(body, dot, vars, out),
                        }
                        break;
                    }
                    if !taken {
                        self.run(otherwise, dot, vars, out);
                    }
                }
            }
        }
    }

    fn value(&self, pipeline: &str, dot: &Value, vars: &BTreeMap<String, Value>) -> Value {
        let mut piped: Option<Value> = None;
        for command in split(pipeline, '|') {
            let words = split(&command, ' ');
            let mut arguments: Vec<Value> = words.iter().skip(1).map(|word| self.word(word, dot, vars)).collect();
            let is_call = words[0].chars().all(char::is_alphanumeric) && words[0].parse::<f64>().is_err();
            piped = Some(if is_call {
                arguments.extend(piped);
                self.call(&words[0], &arguments)
            } else {
                assert!(arguments.is_empty() && piped.is_none(), "{pipeline}");
                self.word(&words[0], dot, vars)
            });
        }
        piped.unwrap_or_default()
    }

    fn word(&self, word: &str, dot: &Value, vars: &BTreeMap<String, Value>) -> Value {
        let path = |from: &Value, path: &str| {
            let mut found = from.clone();
            for part in path.split('.').filter(|part| !part.is_empty()) {
                assert!(found.is_object(), "{word}: nothing has no {part}");
                found = found.get(part).cloned().unwrap_or_default();
            }
            found
        };
        if let Some(text) = word.strip_prefix('"') {
            return text.trim_end_matches('"').into();
        }
        if let Some(rest) = word.strip_prefix("$.") {
            return path(&self.root, rest);
        }
        if let Some(name) = word.strip_prefix('$') {
            return vars[name].clone();
        }
        if word.starts_with('.') {
            return path(dot, word);
        }
        serde_json::from_str(word).unwrap_or_else(|_| panic!("{word} is known"))
    }

    fn call(&self, name: &str, arguments: &[Value]) -> Value {
        let text = |at: usize| as_text(&arguments[at]);
        match name {
            "include" => {
                let mut out = String::new();
                let body = &self.defines[&text(0)];
                self.run(body, &arguments[1], &mut BTreeMap::new(), &mut out);
                out.into()
            }
            "toYaml" => yaml::to_string(&arguments[0]).trim_end().into(),
            "nindent" => {
                let pad = " ".repeat(usize::try_from(arguments[0].as_u64().unwrap_or_default()).unwrap_or_default());
                let lines = text(1);
                let lines = lines.lines().map(|line| format!("\n{pad}{line}"));
                lines.collect::<String>().into()
            }
            "quote" => Value::from(text(0)).to_string().into(),
            "default" => arguments[usize::from(truth(&arguments[1]))].clone(),
            "trunc" => text(1)
                .chars()
                .take(usize::try_from(arguments[0].as_u64().unwrap_or_default()).unwrap_or_default())
                .collect::<String>()
                .into(),
            "trimSuffix" => text(1).trim_end_matches(&text(0)).into(),
            "contains" => text(1).contains(&text(0)).into(),
            "printf" => arguments[1..]
                .iter()
                .fold(text(0), |done, value| done.replacen("%s", &as_text(value), 1))
                .into(),
            "and" => arguments
                .iter()
                .find(|value| !truth(value))
                .unwrap_or(&arguments[arguments.len() - 1])
                .clone(),
            other => panic!("the function {other} is not known here"),
        }
    }
}

fn truth(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(is) => *is,
        Value::Number(number) => number.as_f64() != Some(0.0),
        Value::String(text) => !text.is_empty(),
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
    }
}

fn as_text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Splits outside of quotes.
fn split(text: &str, at: char) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut quoted = false;
    for letter in text.trim().chars() {
        quoted ^= letter == '"';
        if letter == at && !quoted {
            parts.push(String::new());
        } else if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    parts
        .into_iter()
        .map(|part| part.trim().to_owned())
        .filter(|part| !part.is_empty())
        .collect()
}

/// Up to the `end` or `else` that belongs to the caller, which is given back.
fn parse(tokens: &mut dyn Iterator<Item = Token>) -> (Vec<Node>, Option<String>) {
    let mut nodes = Vec::new();
    while let Some(token) = tokens.next() {
        let action = match token {
            Token::Text(text) => {
                nodes.push(Node::Text(text));
                continue;
            }
            Token::Action(action) => action,
        };
        let (word, rest) = action.split_once(' ').unwrap_or((&action, ""));
        match word {
            _ if action.starts_with("/*") => {}
            "end" | "else" => return (nodes, Some(action)),
            "if" | "with" | "range" => {
                let mut branches = Vec::new();
                let mut otherwise = Vec::new();
                let mut condition = Some(rest.to_owned());
                loop {
                    let (body, last) = parse(tokens);
                    match condition.take() {
                        Some(condition) => branches.push((condition, body)),
                        None => otherwise = body,
                    }
                    match last.as_deref() {
                        Some("else") => {}
                        Some("end") => break,
                        Some(again) => condition = again.strip_prefix("else if ").map(str::to_owned),
                        None => panic!("{action} has no end"),
                    }
                }
                nodes.push(Node::Block(word.to_owned(), branches, otherwise));
            }
            _ => match action.split_once(" := ") {
                Some((name, value)) => {
                    nodes.push(Node::Assign(name.trim_start_matches('$').to_owned(), value.to_owned()));
                }
                None => nodes.push(Node::Print(action)),
            },
        }
    }
    (nodes, None)
}
