//! Source text to tokens.
//!
//! Invariant: the longest token wins; text that begins no token is reported once, with the character at which hope was
//! given up, and left out.

use std::ops::Range;

use super::super::Issue;

/// The kinds of tokens, in the order in which messages list them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Kind {
    Eof,
    Equals,
    NotEquals,
    In,
    Less,
    LessEquals,
    GreaterEquals,
    Greater,
    And,
    Or,
    OpenBracket,
    CloseBracket,
    OpenBrace,
    CloseBrace,
    OpenParen,
    CloseParen,
    Dot,
    Comma,
    Minus,
    Exclamation,
    Question,
    Colon,
    Plus,
    Star,
    Slash,
    Percent,
    True,
    False,
    Null,
    Float,
    Int,
    Uint,
    Text,
    Bytes,
    Identifier,
    EscapedIdentifier,
}

impl Kind {
    /// All kinds, as [`Set`]s number them.
    pub(super) const ALL: [Self; 36] = [
        Self::Eof,
        Self::Equals,
        Self::NotEquals,
        Self::In,
        Self::Less,
        Self::LessEquals,
        Self::GreaterEquals,
        Self::Greater,
        Self::And,
        Self::Or,
        Self::OpenBracket,
        Self::CloseBracket,
        Self::OpenBrace,
        Self::CloseBrace,
        Self::OpenParen,
        Self::CloseParen,
        Self::Dot,
        Self::Comma,
        Self::Minus,
        Self::Exclamation,
        Self::Question,
        Self::Colon,
        Self::Plus,
        Self::Star,
        Self::Slash,
        Self::Percent,
        Self::True,
        Self::False,
        Self::Null,
        Self::Float,
        Self::Int,
        Self::Uint,
        Self::Text,
        Self::Bytes,
        Self::Identifier,
        Self::EscapedIdentifier,
    ];

    /// As messages name it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Eof => "<EOF>",
            Self::Equals => "'=='",
            Self::NotEquals => "'!='",
            Self::In => "'in'",
            Self::Less => "'<'",
            Self::LessEquals => "'<='",
            Self::GreaterEquals => "'>='",
            Self::Greater => "'>'",
            Self::And => "'&&'",
            Self::Or => "'||'",
            Self::OpenBracket => "'['",
            Self::CloseBracket => "']'",
            Self::OpenBrace => "'{'",
            Self::CloseBrace => "'}'",
            Self::OpenParen => "'('",
            Self::CloseParen => "')'",
            Self::Dot => "'.'",
            Self::Comma => "','",
            Self::Minus => "'-'",
            Self::Exclamation => "'!'",
            Self::Question => "'?'",
            Self::Colon => "':'",
            Self::Plus => "'+'",
            Self::Star => "'*'",
            Self::Slash => "'/'",
            Self::Percent => "'%'",
            Self::True => "'true'",
            Self::False => "'false'",
            Self::Null => "'null'",
            Self::Float => "NUM_FLOAT",
            Self::Int => "NUM_INT",
            Self::Uint => "NUM_UINT",
            Self::Text => "STRING",
            Self::Bytes => "BYTES",
            Self::Identifier => "IDENTIFIER",
            Self::EscapedIdentifier => "ESC_IDENTIFIER",
        }
    }
}

/// A set of kinds.
pub(super) type Set = u64;

/// The set of these kinds.
pub(super) const fn set(kinds: &[Kind]) -> Set {
    let (mut bits, mut at) = (0, 0);
    while at < kinds.len() {
        bits |= 1 << kinds[at] as u8;
        at += 1;
    }
    bits
}

/// A token.
#[derive(Clone, Debug)]
pub(super) struct Token {
    pub(super) kind: Kind,
    /// Where it begins, in characters.
    pub(super) offset: u32,
    /// As it is written; empty at the end.
    pub(super) text: String,
}

/// The tokens of a source.
pub(super) struct Lexed {
    /// The tokens, ended by one [`Kind::Eof`].
    pub(super) tokens: Vec<Token>,
    /// Where text stands that is no token.
    pub(super) left_out: Vec<Range<usize>>,
    /// The same as mistakes.
    pub(super) issues: Vec<Issue>,
}

/// Reads a source.
pub(super) fn lex(source: &[char]) -> Lexed {
    let (mut tokens, mut issues, mut left_out, mut at) = (Vec::new(), Vec::new(), Vec::new(), 0);
    while at < source.len() {
        if source[at].is_ascii_whitespace() && source[at] != '\u{b}' {
            at += 1;
            continue;
        }
        if source[at..].starts_with(&['/', '/']) {
            while at < source.len() && source[at] != '\n' {
                at += 1;
            }
            continue;
        }
        let text = |end: usize| source[at..end.min(source.len())].iter().collect::<String>();
        let offset = u32::try_from(at).unwrap_or(u32::MAX);
        match scan(&source[at..]) {
            Ok((kind, length)) => {
                tokens.push(Token {
                    kind,
                    offset,
                    text: text(at + length),
                });
                at += length;
            }
            Err(failed) => {
                issues.push(Issue {
                    offset,
                    message: format!("Syntax error: token recognition error at: '{}'", text(at + failed + 1)),
                });
                left_out.push(at..at + failed + 1);
                at += failed + 1;
            }
        }
    }
    tokens.push(Token {
        kind: Kind::Eof,
        offset: u32::try_from(source.len()).unwrap_or(u32::MAX),
        text: String::new(),
    });
    Lexed {
        tokens,
        left_out,
        issues,
    }
}

/// The token at the beginning with its length, or how many characters could be read before none was possible.
fn scan(rest: &[char]) -> Result<(Kind, usize), usize> {
    let first = rest[0];
    let second = rest.get(1).copied();
    let either =
        |with: char, double: Kind, single: Kind| Ok(if second == Some(with) { (double, 2) } else { (single, 1) });
    let only = |with: char, double: Kind| if second == Some(with) { Ok((double, 2)) } else { Err(1) };
    match first {
        '=' => only('=', Kind::Equals),
        '&' => only('&', Kind::And),
        '|' => only('|', Kind::Or),
        '!' => either('=', Kind::NotEquals, Kind::Exclamation),
        '<' => either('=', Kind::LessEquals, Kind::Less),
        '>' => either('=', Kind::GreaterEquals, Kind::Greater),
        '[' => Ok((Kind::OpenBracket, 1)),
        ']' => Ok((Kind::CloseBracket, 1)),
        '{' => Ok((Kind::OpenBrace, 1)),
        '}' => Ok((Kind::CloseBrace, 1)),
        '(' => Ok((Kind::OpenParen, 1)),
        ')' => Ok((Kind::CloseParen, 1)),
        ',' => Ok((Kind::Comma, 1)),
        '-' => Ok((Kind::Minus, 1)),
        '?' => Ok((Kind::Question, 1)),
        ':' => Ok((Kind::Colon, 1)),
        '+' => Ok((Kind::Plus, 1)),
        '*' => Ok((Kind::Star, 1)),
        '/' => Ok((Kind::Slash, 1)),
        '%' => Ok((Kind::Percent, 1)),
        '.' if !second.is_some_and(|c| c.is_ascii_digit()) => Ok((Kind::Dot, 1)),
        '.' | '0'..='9' => Ok(number(rest)),
        '\'' | '"' => string(rest, 0).map(|length| (Kind::Text, length)),
        '`' => escaped(rest),
        'a'..='z' | 'A'..='Z' | '_' => Ok(word(rest)),
        _ => Err(0),
    }
}

fn count(rest: &[char], fits: impl Fn(char) -> bool) -> usize {
    rest.iter().take_while(|c| fits(**c)).count()
}

fn number(rest: &[char]) -> (Kind, usize) {
    let uint = |end: usize, kind| match rest.get(end) {
        Some('u' | 'U') => (Kind::Uint, end + 1),
        _ => (kind, end),
    };
    if rest.starts_with(&['0', 'x']) {
        let digits = count(&rest[2..], |c| c.is_ascii_hexdigit());
        if digits > 0 {
            return uint(2 + digits, Kind::Int);
        }
    }
    let digits = |from: usize| count(&rest[from.min(rest.len())..], |c| c.is_ascii_digit());
    let whole = digits(0);
    let (mut end, mut float) = (whole, false);
    if rest.get(end) == Some(&'.') && digits(end + 1) > 0 {
        end += 1 + digits(end + 1);
        float = true;
    }
    if matches!(rest.get(end), Some('e' | 'E')) {
        let sign = usize::from(matches!(rest.get(end + 1), Some('+' | '-')));
        let exponent = digits(end + 1 + sign);
        if exponent > 0 {
            end += 1 + sign + exponent;
            float = true;
        }
    }
    if float {
        (Kind::Float, end)
    } else {
        uint(whole, Kind::Int)
    }
}

fn escaped(rest: &[char]) -> Result<(Kind, usize), usize> {
    let inner = count(&rest[1..], |c| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | ' ')
    });
    match rest.get(1 + inner) {
        Some('`') if inner > 0 => Ok((Kind::EscapedIdentifier, inner + 2)),
        _ => Err(1 + inner),
    }
}

fn word(rest: &[char]) -> (Kind, usize) {
    let lower = |at: usize| rest.get(at).map(char::to_ascii_lowercase);
    // `r''`, `b''`, `br''`: a prefix belongs to the string only when the string ends.
    for (prefix, kind, raw) in [
        ("r", Kind::Text, true),
        ("b", Kind::Bytes, false),
        ("br", Kind::Bytes, true),
    ] {
        let fits = prefix.chars().enumerate().all(|(at, c)| lower(at) == Some(c));
        if fits && matches!(rest.get(prefix.len()), Some('\'' | '"')) {
            let quoted = if raw {
                raw_string(&rest[prefix.len()..])
            } else {
                string(&rest[prefix.len()..], 0).ok()
            };
            if let Some(length) = quoted {
                return (kind, prefix.len() + length);
            }
        }
    }
    let length = count(rest, |c| c.is_ascii_alphanumeric() || c == '_');
    let kind = match rest[..length].iter().collect::<String>().as_str() {
        "in" => Kind::In,
        "true" => Kind::True,
        "false" => Kind::False,
        "null" => Kind::Null,
        _ => Kind::Identifier,
    };
    (kind, length)
}

/// The length of a string with its quotes, or how far it could be read.
fn string(rest: &[char], from: usize) -> Result<usize, usize> {
    let quote = rest[from];
    if rest[from..].starts_with(&[quote; 3])
        && let Ok(end) = quoted(rest, from + 3, quote, true)
    {
        return Ok(end);
    }
    quoted(rest, from + 1, quote, false)
}

fn quoted(rest: &[char], mut at: usize, quote: char, long: bool) -> Result<usize, usize> {
    loop {
        match rest.get(at) {
            None => return Err(at),
            Some(c) if *c == quote && !long => return Ok(at + 1),
            Some(_) if long && rest[at..].starts_with(&[quote; 3]) => return Ok(at + 3),
            Some('\\') => at = escape(rest, at + 1)?,
            Some('\n' | '\r') if !long => return Err(at),
            Some(_) => at += 1,
        }
    }
}

/// The place after an escape sequence whose letter stands at `at`.
fn escape(rest: &[char], at: usize) -> Result<usize, usize> {
    let (digits, fits): (usize, fn(char) -> bool) = match rest.get(at) {
        Some('a' | 'b' | 'f' | 'n' | 'r' | 't' | 'v' | '"' | '\'' | '\\' | '?' | '`') => (0, |_| true),
        Some('x' | 'X') => (2, |c| c.is_ascii_hexdigit()),
        Some('u') => (4, |c| c.is_ascii_hexdigit()),
        Some('U') => (8, |c| c.is_ascii_hexdigit()),
        Some('0'..='3') => (2, |c| matches!(c, '0'..='7')),
        _ => return Err(at),
    };
    let found = rest[at + 1..].iter().take(digits).take_while(|c| fits(**c)).count();
    if found == digits {
        Ok(at + 1 + digits)
    } else {
        Err(at + 1 + found)
    }
}

fn raw_string(rest: &[char]) -> Option<usize> {
    let quote = rest[0];
    if rest.starts_with(&[quote; 3])
        && let Some(end) = rest[3..].windows(3).position(|end| end == [quote; 3])
    {
        return Some(3 + end + 3);
    }
    let inner = count(&rest[1..], |c| c != quote && c != '\n' && c != '\r');
    (rest.get(1 + inner) == Some(&quote)).then_some(inner + 2)
}

/// The bytes that a string or bytes literal stands for; the text has quotes and perhaps an `r`.
///
/// # Errors
/// The error in an escape sequence.
pub(super) fn unescape(literal: &str, bytes: bool) -> Result<Vec<u8>, &'static str> {
    let literal = literal.replace("\r\n", "\n").replace('\r', "\n");
    let raw = literal.starts_with(['r', 'R']);
    let quoted = if raw { &literal[1..] } else { &literal[..] };
    let width = if quoted.len() >= 6 && (quoted.starts_with("'''") || quoted.starts_with("\"\"\"")) {
        3
    } else {
        1
    };
    let inner = quoted
        .get(width..quoted.len().saturating_sub(width))
        .ok_or("unable to unescape string")?;
    if raw {
        return Ok(inner.as_bytes().to_vec());
    }
    let mut out = Vec::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        let letter = chars
            .next()
            .ok_or("unable to unescape string, found '\\' as last character")?;
        let (radix, digits) = match letter {
            'x' | 'X' => (16, 2),
            'u' if !bytes => (16, 4),
            'U' if !bytes => (16, 8),
            'u' | 'U' => return Err("unable to unescape string"),
            '0'..='3' => (8, 2),
            _ => {
                out.push(simple_escape(letter)?);
                continue;
            }
        };
        let mut code = if radix == 8 {
            u32::from(letter) - u32::from('0')
        } else {
            0
        };
        for _ in 0..digits {
            let digit = chars.next().and_then(|c| c.to_digit(radix));
            code = code.wrapping_mul(radix) + digit.ok_or("unable to unescape string")?;
        }
        if bytes {
            out.push(u8::try_from(code).map_err(|_| "unable to unescape string")?);
        } else {
            let c = char::from_u32(code).ok_or("invalid unicode code point")?;
            out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }
    Ok(out)
}

fn simple_escape(letter: char) -> Result<u8, &'static str> {
    Ok(match letter {
        'a' => 7,
        'b' => 8,
        'f' => 12,
        'n' => b'\n',
        'r' => b'\r',
        't' => b'\t',
        'v' => 11,
        '\\' => b'\\',
        '\'' => b'\'',
        '"' => b'"',
        '`' => b'`',
        '?' => b'?',
        _ => return Err("unable to unescape string"),
    })
}
