//! The grammar of label selectors: a scanner of tokens with one token of lookahead, and a parser by hand, since the
//! words of the errors depend on where each stands.

use std::collections::BTreeSet;

use super::{Operator, Requirement, SelectorError, key_error};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    End,
    Error,
    Identifier,
    Open,
    Close,
    Comma,
    Not,
    Operator(Operator),
}

const SYMBOLS: &[(&str, Token)] = &[
    (")", Token::Close),
    ("(", Token::Open),
    (",", Token::Comma),
    ("!", Token::Not),
    ("==", Token::Operator(Operator::DoubleEquals)),
    ("=", Token::Operator(Operator::Equals)),
    ("!=", Token::Operator(Operator::NotEquals)),
    (">", Token::Operator(Operator::GreaterThan)),
    ("<", Token::Operator(Operator::LessThan)),
];

fn is_symbol(character: char) -> bool {
    matches!(character, '=' | '!' | '(' | ')' | ',' | '>' | '<')
}

fn is_space(character: char) -> bool {
    matches!(character, ' ' | '\t' | '\r' | '\n')
}

pub(super) fn parse(text: &str) -> Result<Vec<Requirement>, SelectorError> {
    Parser { rest: text }.parse().map_err(SelectorError)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// The next token with its text, and the rest.
    fn scan(&self) -> (Token, &'a str, &'a str) {
        let text = self.rest.trim_start_matches(is_space);
        let Some(first) = text.chars().next() else {
            return (Token::End, "", text);
        };
        if is_symbol(first) {
            // The longest symbol that starts here.
            let longest = SYMBOLS
                .iter()
                .filter(|(symbol, _)| text.starts_with(symbol))
                .max_by_key(|(symbol, _)| symbol.len());
            return match longest {
                Some((symbol, token)) => (*token, &text[..symbol.len()], &text[symbol.len()..]),
                None => (Token::Error, &text[..first.len_utf8()], &text[first.len_utf8()..]),
            };
        }
        let end = text
            .find(|character| is_symbol(character) || is_space(character))
            .unwrap_or(text.len());
        let token = match &text[..end] {
            "in" => Token::Operator(Operator::In),
            "notin" => Token::Operator(Operator::NotIn),
            _ => Token::Identifier,
        };
        (token, &text[..end], &text[end..])
    }

    /// The next token where a key or value may stand: `in` and `notin` are words there.
    fn lookahead(&self) -> (Token, &'a str) {
        match self.scan() {
            (Token::Operator(Operator::In | Operator::NotIn), text, _) => (Token::Identifier, text),
            (token, text, _) => (token, text),
        }
    }

    fn consume(&mut self) -> (Token, &'a str) {
        let next = self.lookahead();
        self.rest = self.scan().2;
        next
    }

    fn parse(&mut self) -> Result<Vec<Requirement>, String> {
        let mut requirements = Vec::new();
        loop {
            match self.lookahead() {
                (Token::Identifier | Token::Not, _) => {
                    let requirement = self
                        .requirement()
                        .map_err(|error| format!("unable to parse requirement: {error}"))?;
                    requirements.push(requirement);
                }
                (Token::End, _) => return Ok(requirements),
                (_, text) => return Err(format!("found '{text}', expected: !, identifier, or 'end of string'")),
            }
            match self.consume() {
                (Token::End, _) => return Ok(requirements),
                (Token::Comma, _) => match self.lookahead() {
                    (Token::Identifier | Token::Not, _) => {}
                    (_, text) => return Err(format!("found '{text}', expected: identifier after ','")),
                },
                (_, text) => return Err(format!("found '{text}', expected: ',' or 'end of string'")),
            }
        }
    }

    fn requirement(&mut self) -> Result<Requirement, String> {
        let mut next = self.consume();
        let absent = next.0 == Token::Not;
        if absent {
            next = self.consume();
        }
        let (Token::Identifier, key) = next else {
            return Err(format!("found '{}', expected: identifier", next.1));
        };
        // The parser knows no field for the key, and Kubernetes prints that as it is.
        if let Some(error) = key_error(key, "<nil>") {
            return Err(error.to_string());
        }
        let (operator, values) = match self.lookahead().0 {
            _ if absent => (Operator::DoesNotExist, BTreeSet::new()),
            Token::End | Token::Comma => (Operator::Exists, BTreeSet::new()),
            _ => self.comparison()?,
        };
        Requirement::new(key, operator, values).map_err(|error| error.to_string())
    }

    fn comparison(&mut self) -> Result<(Operator, BTreeSet<String>), String> {
        let (token, text, rest) = self.scan();
        self.rest = rest;
        match token {
            Token::Operator(operator @ (Operator::In | Operator::NotIn)) => Ok((operator, self.values()?)),
            Token::Operator(operator) => Ok((operator, BTreeSet::from([self.value()?]))),
            _ => Err(format!("found '{text}', expected: in, notin, =, ==, !=, gt, lt")),
        }
    }

    /// The one value of `a=b`; nothing is the empty value.
    fn value(&mut self) -> Result<String, String> {
        if matches!(self.lookahead().0, Token::End | Token::Comma) {
            return Ok(String::new());
        }
        match self.consume() {
            (Token::Identifier, value) => Ok(value.to_owned()),
            (_, text) => Err(format!("found '{text}', expected: identifier")),
        }
    }

    /// `(a,b)`; an empty place is the empty value.
    fn values(&mut self) -> Result<BTreeSet<String>, String> {
        match self.consume() {
            (Token::Open, _) => {}
            (_, text) => return Err(format!("found '{text}' expected: '('")),
        }
        match self.lookahead() {
            (Token::Identifier | Token::Comma, _) => {}
            (Token::Close, _) => {
                self.consume();
                return Ok(BTreeSet::from([String::new()]));
            }
            (_, text) => return Err(format!("found '{text}', expected: ',', ')' or identifier")),
        }
        let mut values = BTreeSet::new();
        loop {
            match self.consume() {
                (Token::Identifier, value) => {
                    values.insert(value.to_owned());
                    match self.lookahead() {
                        (Token::Comma, _) => {}
                        (Token::Close, _) => break,
                        (_, text) => return Err(format!("found '{text}', expected: ',' or ')'")),
                    }
                }
                (Token::Comma, _) => {
                    if values.is_empty() || matches!(self.lookahead().0, Token::Comma | Token::Close) {
                        values.insert(String::new());
                    }
                    if self.lookahead().0 == Token::Close {
                        break;
                    }
                }
                (_, text) => return Err(format!("found '{text}', expected: ',', or identifier")),
            }
        }
        self.consume();
        Ok(values)
    }
}
