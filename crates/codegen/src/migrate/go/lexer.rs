//! Go's source as tokens, with the comments that stand before declarations.
//!
//! As the language's specification has it, for the tokens of a declaration: identifiers, literals, operators, automatic
//! semicolons, comments. Not here: the values of number literals; nothing of this project needs them.

/// A token with its place.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// The line it begins in, from 1.
    pub(super) line: usize,
    /// The bytes it stands for.
    pub(super) span: std::ops::Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Kind {
    Word(String),
    /// The value of a string literal, raw or interpreted.
    Text(String),
    /// A number or a rune, as written.
    Literal(String),
    Sign(&'static str),
    /// A semicolon, written or at a line's end.
    End,
}

/// A comment: its lines without the marks, and the lines that it stands in.
#[derive(Clone, Debug)]
pub(super) struct Comment {
    pub(super) text: Vec<String>,
    pub(super) first: usize,
    pub(super) last: usize,
    /// Whether code stands before it in its line.
    pub(super) trails: bool,
}

/// Longest first.
const SIGNS: &[&str] = &[
    "<<=", ">>=", "&^=", "...", "&&", "||", "<-", "++", "--", "==", "!=", "<=", ">=", ":=", "+=", "-=", "*=", "/=",
    "%=", "&=", "|=", "^=", "<<", ">>", "&^", "+", "-", "*", "/", "%", "&", "|", "^", "<", ">", "=", "!", "(", ")",
    "[", "]", "{", "}", ",", ".", ":", "~",
];

/// Tokens and comments of a file.
///
/// # Errors
/// The line and the error, where the text is not Go.
pub(super) fn read(text: &str) -> Result<(Vec<Token>, Vec<Comment>), (usize, String)> {
    let mut lexer = Lexer {
        text,
        at: 0,
        line: 1,
        tokens: Vec::new(),
        comments: Vec::new(),
    };
    while lexer.at < text.len() {
        lexer.step()?;
    }
    lexer.end_of_line();
    Ok((lexer.tokens, lexer.comments))
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    line: usize,
    tokens: Vec<Token>,
    comments: Vec<Comment>,
}

impl Lexer<'_> {
    fn step(&mut self) -> Result<(), (usize, String)> {
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else {
            return Ok(());
        };
        match first {
            '\n' => {
                self.end_of_line();
                self.line += 1;
                self.at += 1;
            }
            _ if first.is_whitespace() || first == '\u{feff}' => self.at += first.len_utf8(),
            ';' => self.push(Kind::End, 1),
            '/' if rest.starts_with("//") => {
                let line = rest.lines().next().unwrap_or_default();
                self.comment(vec![line[2..].to_owned()], line.len());
            }
            '/' if rest.starts_with("/*") => {
                let Some(end) = rest[2..].find("*/").map(|end| end + 2) else {
                    return Err((self.line, "a comment does not end".to_owned()));
                };
                let lines = rest[2..end]
                    .lines()
                    .map(|line| line.trim_start_matches([' ', '\t', '*']).to_owned());
                self.comment(lines.collect(), end + 2);
            }
            '`' => {
                let Some(end) = rest[1..].find('`') else {
                    return Err((self.line, "a raw string does not end".to_owned()));
                };
                self.push(Kind::Text(rest[1..=end].replace('\r', "")), end + 2);
            }
            '"' => self.interpreted(rest)?,
            '\'' => {
                let mut escaped = false;
                let end = rest[1..].find(|c| {
                    let ends = c == '\'' && !escaped;
                    escaped = c == '\\' && !escaped;
                    ends
                });
                let Some(end) = end else {
                    return Err((self.line, "a rune does not end".to_owned()));
                };
                self.push(Kind::Literal(rest[..end + 2].to_owned()), end + 2);
            }
            _ if first.is_alphabetic() || first == '_' => {
                let length = rest
                    .find(|c: char| !c.is_alphanumeric() && c != '_')
                    .unwrap_or(rest.len());
                self.push(Kind::Word(rest[..length].to_owned()), length);
            }
            _ if first.is_ascii_digit() || (first == '.' && rest[1..].starts_with(|c: char| c.is_ascii_digit())) => {
                let length = rest
                    .find(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != '.')
                    .unwrap_or(rest.len());
                self.push(Kind::Literal(rest[..length].to_owned()), length);
            }
            _ => match SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
                Some(sign) => self.push(Kind::Sign(sign), sign.len()),
                None => return Err((self.line, format!("{first:?} is not a token of Go"))),
            },
        }
        Ok(())
    }

    fn push(&mut self, kind: Kind, length: usize) {
        let lines = self.text[self.at..self.at + length].matches('\n').count();
        self.tokens.push(Token {
            kind,
            line: self.line,
            span: self.at..self.at + length,
        });
        self.line += lines;
        self.at += length;
    }

    /// Go puts a semicolon at the end of a line whose last token may end a statement.
    fn end_of_line(&mut self) {
        let ends = match self.tokens.last().map(|token| &token.kind) {
            Some(Kind::Word(word)) => !matches!(
                word.as_str(),
                "case"
                    | "chan"
                    | "const"
                    | "default"
                    | "defer"
                    | "else"
                    | "for"
                    | "func"
                    | "go"
                    | "goto"
                    | "if"
                    | "import"
                    | "interface"
                    | "map"
                    | "package"
                    | "range"
                    | "select"
                    | "struct"
                    | "switch"
                    | "type"
                    | "var"
            ),
            Some(Kind::Text(_) | Kind::Literal(_)) => true,
            Some(Kind::Sign(sign)) => matches!(*sign, ")" | "]" | "}" | "++" | "--"),
            _ => false,
        };
        if ends {
            self.tokens.push(Token {
                kind: Kind::End,
                line: self.line,
                span: self.at..self.at,
            });
        }
    }

    fn comment(&mut self, text: Vec<String>, length: usize) {
        let lines = self.text[self.at..self.at + length].matches('\n').count();
        let trails = self.tokens.last().is_some_and(|token| token.line == self.line);
        // A general comment over lines acts like a line's end.
        if lines > 0 {
            self.end_of_line();
        }
        self.comments.push(Comment {
            text,
            first: self.line,
            last: self.line + lines,
            trails,
        });
        self.line += lines;
        self.at += length;
    }

    fn interpreted(&mut self, rest: &str) -> Result<(), (usize, String)> {
        let mut value = String::new();
        let mut letters = rest.char_indices().skip(1);
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.push(Kind::Text(value), at + 1);
                    return Ok(());
                }
                '\n' => break,
                '\\' => match letters.next() {
                    Some((_, 'n')) => value.push('\n'),
                    Some((_, 't')) => value.push('\t'),
                    Some((_, 'r')) => value.push('\r'),
                    Some((_, escaped @ ('\\' | '"' | '\''))) => value.push(escaped),
                    // Escapes by number: kept as written, since nothing here needs their value.
                    Some((_, other)) => value.extend(['\\', other]),
                    None => break,
                },
                letter => value.push(letter),
            }
        }
        Err((self.line, "a string does not end in its line".to_owned()))
    }
}
