//! From a text to nodes: the grammar of Go's `text/template/parse`.

use std::collections::BTreeMap;

use serde_json::{Number, Value};

use super::{Template, functions};

/// How deeply actions and parentheses may be nested.
const DEEPEST: usize = 100;

#[derive(Clone, Debug)]
pub(super) enum Node {
    Text(String),
    /// Writes a value, or sets a variable.
    Action(Pipe),
    /// `if … else if … else`: the branches in order.
    If(Vec<(Pipe, Vec<Node>)>, Vec<Node>),
    With(Pipe, Vec<Node>, Vec<Node>),
    Range(Pipe, Vec<Node>, Vec<Node>),
    Break,
    Continue,
    Template(String, Option<Pipe>),
}

/// Commands, each of which gets the value of the one before as its last argument.
#[derive(Clone, Debug, Default)]
pub(super) struct Pipe {
    /// The variables that it sets, without their `$`.
    pub(super) variables: Vec<String>,
    /// `=` instead of `:=`.
    pub(super) assigns: bool,
    pub(super) commands: Vec<Vec<Argument>>,
}

#[derive(Clone, Debug)]
pub(super) enum Argument {
    Dot,
    Literal(Value),
    /// `.a.b`
    Field(Vec<String>),
    /// `$x.a.b`; `$` alone is the empty name.
    Variable(String, Vec<String>),
    Function(String),
    /// `(…).a.b`
    Pipe(Pipe, Vec<String>),
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    /// `.a`; the dot alone is empty.
    Field(String),
    Variable(String),
    Word(String),
    Literal(Value),
    Open,
    Close,
    Bar,
    Declare,
    Assign,
    Comma,
    Space,
}

/// A part of the text: plain, or what stands between `{{` and `}}`.
enum Part {
    Text(String),
    Action(Vec<Token>, usize),
}

pub(super) fn parse(text: &str) -> Result<Template, String> {
    let mut parser = Parser {
        parts: parts(text)?.into_iter(),
        named: BTreeMap::new(),
        variables: Vec::new(),
        loops: 0,
        depth: 0,
    };
    let (main, end) = parser.nodes()?;
    if let Some((line, tokens)) = end {
        return Err(at(line, format!("unexpected {{{{{}}}}}", first_word(&tokens))));
    }
    let named = parser.named;
    let template = Template { main, named };
    for called in all_called(&template) {
        if !template.named.contains_key(called) {
            return Err(format!("the template {called:?} is not defined"));
        }
    }
    Ok(template)
}

fn at(line: usize, why: impl std::fmt::Display) -> String {
    format!("line {line}: {why}")
}

fn all_called(template: &Template) -> Vec<&str> {
    fn of<'n>(nodes: &'n [Node], found: &mut Vec<&'n str>) {
        for node in nodes {
            match node {
                Node::Template(name, _) => found.push(name),
                Node::If(branches, otherwise) => {
                    branches.iter().for_each(|(_, body)| of(body, found));
                    of(otherwise, found);
                }
                Node::With(_, body, otherwise) | Node::Range(_, body, otherwise) => {
                    of(body, found);
                    of(otherwise, found);
                }
                Node::Text(_) | Node::Action(_) | Node::Break | Node::Continue => {}
            }
        }
    }
    let mut found = Vec::new();
    of(&template.main, &mut found);
    template.named.values().for_each(|body| of(body, &mut found));
    found
}

/// Cuts the text at its actions; `{{-` and `-}}` take the space beside them away.
fn parts(text: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    let (mut rest, mut line, mut trims) = (text, 1, false);
    loop {
        let (before, action) = match rest.split_once("{{") {
            Some((before, action)) => (before, Some(action)),
            None => (rest, None),
        };
        let starts = line + before.matches('\n').count();
        let mut plain = if trims { before.trim_start() } else { before };
        let Some(action) = action else {
            parts.push(Part::Text(plain.to_owned()));
            return Ok(parts);
        };
        let is_space = |text: &str| text.starts_with([' ', '\t', '\n', '\r']);
        let inner = match action.strip_prefix('-').filter(|inner| is_space(inner)) {
            Some(inner) => {
                plain = plain.trim_end();
                inner
            }
            None => action,
        };
        parts.push(Part::Text(plain.to_owned()));
        let length = match inner.trim_start().strip_prefix("/*") {
            Some(_) => inner
                .find("*/")
                .map(|end| end + 2)
                .ok_or_else(|| at(starts, "a comment is not closed"))?,
            None => 0,
        };
        let end = length + closing(&inner[length..]).ok_or_else(|| at(starts, "{{ without }}"))?;
        let content = &inner[..end];
        let trimmed = content
            .strip_suffix('-')
            .filter(|text| text.ends_with([' ', '\t', '\n', '\r']) || text.is_empty());
        trims = trimmed.is_some();
        let content = trimmed.unwrap_or(content);
        if length == 0 {
            parts.push(Part::Action(tokens(content).map_err(|why| at(starts, why))?, starts));
        } else if !content[length..].trim().is_empty() {
            return Err(at(starts, "a comment stands alone between {{ and }}"));
        }
        line = starts + content.matches('\n').count();
        rest = &inner[end + 2..];
    }
}

/// Where an action ends; not within a text.
fn closing(action: &str) -> Option<usize> {
    let mut quote = None;
    let mut letters = action.char_indices();
    while let Some((position, letter)) = letters.next() {
        match (quote, letter) {
            (None, '}') if action[position..].starts_with("}}") => return Some(position),
            (None, '"' | '`' | '\'') => quote = Some(letter),
            (Some('"' | '\''), '\\') => drop(letters.next()),
            (Some(open), letter) if open == letter => quote = None,
            _ => {}
        }
    }
    None
}

fn is_word(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn tokens(action: &str) -> Result<Vec<Token>, String> {
    let mut found: Vec<Token> = Vec::new();
    let mut rest = action.trim();
    while let Some(letter) = rest.chars().next() {
        let word = |text: &str| text.find(|letter| !is_word(letter)).unwrap_or(text.len());
        let (token, length) = match letter {
            letter if letter.is_whitespace() => (Token::Space, rest.len() - rest.trim_start().len()),
            '(' => (Token::Open, 1),
            ')' => (Token::Close, 1),
            '|' => (Token::Bar, 1),
            ',' => (Token::Comma, 1),
            '=' => (Token::Assign, 1),
            ':' if rest.starts_with(":=") => (Token::Declare, 2),
            '"' => {
                let end = closed(&rest[1..], '"').ok_or("a text is not closed")? + 2;
                (Token::Literal(Value::String(unquoted(&rest[1..end - 1])?)), end)
            }
            '`' => {
                let end = rest[1..].find('`').ok_or("a text is not closed")? + 2;
                (Token::Literal(Value::String(rest[1..end - 1].to_owned())), end)
            }
            '\'' => {
                let end = closed(&rest[1..], '\'').ok_or("a letter is not closed")? + 2;
                let text = unquoted(&rest[1..end - 1])?;
                let code = text.chars().next().filter(|_| text.chars().count() == 1);
                let code = code.ok_or_else(|| format!("{} is no letter", &rest[..end]))?;
                (Token::Literal(Value::from(u32::from(code))), end)
            }
            '$' => {
                let length = 1 + word(&rest[1..]);
                (Token::Variable(rest[1..length].to_owned()), length)
            }
            '.' if !rest[1..].starts_with(|next: char| next.is_ascii_digit()) => {
                let length = 1 + word(&rest[1..]);
                (Token::Field(rest[1..length].to_owned()), length)
            }
            letter if letter.is_ascii_digit() || "+-.".contains(letter) => {
                let end = rest
                    .char_indices()
                    .find(|(position, letter)| *position > 0 && !(is_word(*letter) || ".+-".contains(*letter)))
                    .map_or(rest.len(), |(position, _)| position);
                (Token::Literal(Value::Number(number(&rest[..end])?)), end)
            }
            letter if is_word(letter) => {
                let length = word(rest);
                let token = match &rest[..length] {
                    "true" => Token::Literal(Value::Bool(true)),
                    "false" => Token::Literal(Value::Bool(false)),
                    "nil" => Token::Literal(Value::Null),
                    word => Token::Word(word.to_owned()),
                };
                (token, length)
            }
            other => return Err(format!("unexpected {other:?} in {{{{{action}}}}}")),
        };
        found.push(token);
        rest = &rest[length..];
    }
    Ok(found)
}

fn closed(text: &str, quote: char) -> Option<usize> {
    let mut letters = text.char_indices();
    while let Some((position, letter)) = letters.next() {
        match letter {
            '\\' => drop(letters.next()),
            letter if letter == quote => return Some(position),
            _ => {}
        }
    }
    None
}

/// The text of a Go literal, without its quotes.
fn unquoted(text: &str) -> Result<String, String> {
    let mut plain = String::new();
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            plain.push(letter);
            continue;
        }
        let escaped = letters.next();
        let mut code = |length: usize| {
            let digits: String = letters.by_ref().take(length).collect();
            let code = u32::from_str_radix(&digits, 16).ok().and_then(char::from_u32);
            code.ok_or_else(|| format!("{digits:?} is no code of a letter"))
        };
        plain.push(match escaped {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some(plain @ ('\\' | '"' | '\'')) => plain,
            Some('x') => code(2)?,
            Some('u') => code(4)?,
            Some('U') => code(8)?,
            other => {
                return Err(format!(
                    "the escape \\{} is not known",
                    other.map(String::from).unwrap_or_default()
                ));
            }
        });
    }
    Ok(plain)
}

fn number(text: &str) -> Result<Number, String> {
    let plain = text.replace('_', "");
    let (sign, digits) = match plain.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, plain.strip_prefix('+').unwrap_or(&plain)),
    };
    let other = [("0x", 16), ("0b", 2), ("0o", 8)];
    let whole = match other
        .iter()
        .find_map(|(prefix, radix)| Some((digits.strip_prefix(prefix)?, *radix)))
    {
        Some((digits, radix)) => i64::from_str_radix(digits, radix).ok(),
        None => digits.parse().ok(),
    };
    let whole = whole.map(|whole: i64| Number::from(sign * whole));
    let broken = || plain.parse().ok().and_then(Number::from_f64);
    whole.or_else(broken).ok_or_else(|| format!("{text:?} is no number"))
}

fn first_word(tokens: &[Token]) -> &str {
    match tokens.first() {
        Some(Token::Word(word)) => word,
        _ => "",
    }
}

/// Where nodes end: the line and the words of `end`, `else …`.
type End = Option<(usize, Vec<Token>)>;

struct Parser {
    parts: std::vec::IntoIter<Part>,
    named: BTreeMap<String, Vec<Node>>,
    /// The variables that are known, by scope.
    variables: Vec<String>,
    loops: usize,
    depth: usize,
}

impl Parser {
    /// Nodes up to an `end`, an `else`, or the end of the text.
    fn nodes(&mut self) -> Result<(Vec<Node>, End), String> {
        self.depth += 1;
        if self.depth > DEEPEST {
            return Err(format!("actions are nested more than {DEEPEST} deep"));
        }
        let scope = self.variables.len();
        let mut nodes = Vec::new();
        let end = loop {
            let (tokens, line) = match self.parts.next() {
                None => break None,
                Some(Part::Text(text)) => {
                    if !text.is_empty() {
                        nodes.push(Node::Text(text));
                    }
                    continue;
                }
                Some(Part::Action(tokens, line)) => (tokens, line),
            };
            if matches!(first_word(&tokens), "end" | "else") {
                break Some((line, tokens));
            }
            nodes.extend(self.node(tokens, line).map_err(|why| match why.starts_with("line ") {
                true => why,
                false => at(line, why),
            })?);
        };
        self.variables.truncate(scope);
        self.depth -= 1;
        Ok((nodes, end))
    }

    fn node(&mut self, tokens: Vec<Token>, line: usize) -> Result<Option<Node>, String> {
        let keyword = first_word(&tokens).to_owned();
        let rest = tokens.get(1..).unwrap_or_default();
        Ok(Some(match keyword.as_str() {
            "if" => self.branches(rest, line)?,
            "with" | "range" => {
                let scope = self.variables.len();
                let pipe = self.pipe(rest, &keyword)?;
                let is_loop = usize::from(keyword == "range");
                self.loops += is_loop;
                let (body, end) = self.nodes()?;
                self.loops -= is_loop;
                let otherwise = match self.otherwise(end, line, &keyword)? {
                    None => Vec::new(),
                    Some(rest) if rest.is_empty() => self.rest_of(line, &keyword)?,
                    Some(rest) if keyword == "with" && first_word(&rest) == "with" => {
                        self.node(rest, line)?.into_iter().collect()
                    }
                    Some(_) => return Err(format!("unexpected words behind else in {keyword}")),
                };
                self.variables.truncate(scope);
                match is_loop {
                    1 => Node::Range(pipe, body, otherwise),
                    _ => Node::With(pipe, body, otherwise),
                }
            }
            "break" | "continue" if self.loops == 0 => return Err(format!("{keyword} outside of range")),
            "break" if rest.is_empty() => Node::Break,
            "continue" if rest.is_empty() => Node::Continue,
            "define" | "block" => {
                let (name, rest) = self.name(rest, &keyword)?;
                let (outer, loops) = (std::mem::take(&mut self.variables), std::mem::take(&mut self.loops));
                let (body, end) = self.nodes()?;
                (self.variables, self.loops) = (outer, loops);
                if self.otherwise(end, line, &keyword)?.is_some() {
                    return Err(format!("unexpected else in {keyword}"));
                }
                self.named.insert(name.clone(), body);
                match keyword.as_str() {
                    "define" => return Ok(None),
                    _ => Node::Template(name, Some(self.pipe(&rest, &keyword)?)),
                }
            }
            "template" => {
                let (name, rest) = self.name(rest, &keyword)?;
                let is_empty = rest.iter().all(|token| *token == Token::Space);
                let pipe = (!is_empty).then(|| self.pipe(&rest, &keyword)).transpose()?;
                Node::Template(name, pipe)
            }
            _ => Node::Action(self.pipe(&tokens, "the action")?),
        }))
    }

    /// `if`, with the `else if` of its end.
    fn branches(&mut self, condition: &[Token], line: usize) -> Result<Node, String> {
        let scope = self.variables.len();
        let mut condition = condition.to_vec();
        let mut branches = Vec::new();
        loop {
            let pipe = self.pipe(&condition, "if")?;
            let (body, end) = self.nodes()?;
            branches.push((pipe, body));
            let otherwise = match self.otherwise(end, line, "if")? {
                None => Vec::new(),
                Some(rest) if rest.is_empty() => self.rest_of(line, "if")?,
                Some(rest) if first_word(&rest) == "if" => {
                    condition = rest[1..].to_vec();
                    continue;
                }
                Some(_) => return Err("unexpected words behind else in if".to_owned()),
            };
            self.variables.truncate(scope);
            return Ok(Node::If(branches, otherwise));
        }
    }

    /// What follows `else`; nothing at an `end`.
    fn otherwise(&mut self, end: End, line: usize, of: &str) -> Result<Option<Vec<Token>>, String> {
        let Some((_, tokens)) = end else {
            return Err(at(line, format!("{of} has no end")));
        };
        let words: Vec<Token> = tokens[1..]
            .iter()
            .skip_while(|token| **token == Token::Space)
            .cloned()
            .collect();
        match first_word(&tokens) {
            "else" => Ok(Some(words)),
            _ if words.is_empty() => Ok(None),
            _ => Err("unexpected words behind end".to_owned()),
        }
    }

    fn rest_of(&mut self, line: usize, of: &str) -> Result<Vec<Node>, String> {
        let (nodes, end) = self.nodes()?;
        match self.otherwise(end, line, of)? {
            None => Ok(nodes),
            Some(_) => Err(format!("a second else in {of}")),
        }
    }

    /// The name of a template in quotes, and the rest.
    fn name(&self, tokens: &[Token], keyword: &str) -> Result<(String, Vec<Token>), String> {
        match tokens {
            [Token::Space, Token::Literal(Value::String(name)), rest @ ..] => Ok((name.clone(), rest.to_vec())),
            _ => Err(format!("{keyword} needs a name in quotes")),
        }
    }

    fn pipe(&mut self, tokens: &[Token], of: &str) -> Result<Pipe, String> {
        let mut pipe = Pipe::default();
        let set = tokens
            .iter()
            .position(|token| matches!(token, Token::Declare | Token::Assign));
        let mut rest = tokens;
        if let Some(set) = set {
            pipe.assigns = tokens[set] == Token::Assign;
            for token in &tokens[..set] {
                match token {
                    Token::Variable(name) if !name.is_empty() => pipe.variables.push(name.clone()),
                    Token::Space | Token::Comma => {}
                    _ => return Err("only variables can be set".to_owned()),
                }
            }
            let most = if of == "range" { 2 } else { 1 };
            if pipe.variables.is_empty() || pipe.variables.len() > most {
                return Err(format!("{of} sets {} variables", pipe.variables.len()));
            }
            rest = &tokens[set + 1..];
        }
        let unknown = |name: &&String| pipe.assigns && !self.variables.contains(name);
        if let Some(name) = pipe.variables.iter().find(unknown) {
            return Err(format!("undefined variable \"${name}\""));
        }
        let mut at = 0;
        pipe.commands = self.commands(rest, &mut at, 0)?;
        debug_assert_eq!(at, rest.len(), "outside of parentheses all tokens are read");
        if !pipe.assigns {
            self.variables.extend(pipe.variables.iter().cloned());
        }
        Ok(pipe)
    }

    /// Commands between bars, up to the end or a closing parenthesis.
    fn commands(&self, tokens: &[Token], at: &mut usize, depth: usize) -> Result<Vec<Vec<Argument>>, String> {
        if depth > DEEPEST {
            return Err(format!("parentheses are nested more than {DEEPEST} deep"));
        }
        let mut commands = vec![Vec::new()];
        while let Some(token) = tokens.get(*at) {
            let arguments = commands.last_mut().expect("there is one from the start");
            // Two arguments have a space between them.
            let is_apart = *at == 0 || matches!(tokens[*at - 1], Token::Space | Token::Open | Token::Bar);
            *at += 1;
            let argument = match token {
                Token::Space => continue,
                Token::Close if depth > 0 => {
                    *at -= 1;
                    break;
                }
                Token::Bar => {
                    commands.push(Vec::new());
                    continue;
                }
                Token::Open => {
                    let commands = self.commands(tokens, at, depth + 1)?;
                    if tokens.get(*at) != Some(&Token::Close) {
                        return Err("( without )".to_owned());
                    }
                    *at += 1;
                    let pipe = Pipe {
                        commands,
                        ..Pipe::default()
                    };
                    Argument::Pipe(pipe, fields(tokens, at))
                }
                Token::Field(name) if name.is_empty() => Argument::Dot,
                Token::Field(name) => {
                    let mut path = vec![name.clone()];
                    path.extend(fields(tokens, at));
                    Argument::Field(path)
                }
                Token::Variable(name) => {
                    if !name.is_empty() && !self.variables.contains(name) {
                        return Err(format!("undefined variable \"${name}\""));
                    }
                    Argument::Variable(name.clone(), fields(tokens, at))
                }
                Token::Word(name) => {
                    if !functions::is_known(name) {
                        return Err(format!("function {name:?} not defined"));
                    }
                    Argument::Function(name.clone())
                }
                Token::Literal(value) => Argument::Literal(value.clone()),
                Token::Close => return Err("unexpected )".to_owned()),
                Token::Declare | Token::Assign => return Err("unexpected :=".to_owned()),
                Token::Comma => return Err("unexpected ,".to_owned()),
            };
            if !is_apart {
                return Err("two values without a space between them".to_owned());
            }
            arguments.push(argument);
        }
        if commands.iter().any(Vec::is_empty) {
            return Err("missing value for command".to_owned());
        }
        let is_called = |argument: &Argument| matches!(argument, Argument::Function(_));
        let later = commands.iter().skip(1).filter_map(|command| command.first());
        if later.into_iter().any(|first| !is_called(first)) {
            return Err("what stands behind | is a function".to_owned());
        }
        if commands
            .iter()
            .any(|command| command.len() > 1 && !is_called(&command[0]))
        {
            return Err("can't give argument to non-function".to_owned());
        }
        Ok(commands)
    }
}

/// The fields that stand behind a value without a space.
fn fields(tokens: &[Token], at: &mut usize) -> Vec<String> {
    let mut path = Vec::new();
    while let Some(Token::Field(name)) = tokens.get(*at).filter(|token| **token != Token::Field(String::new())) {
        path.push(name.clone());
        *at += 1;
    }
    path
}
