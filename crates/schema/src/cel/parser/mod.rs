//! Source text to a tree, with macros expanded.
//!
//! A parser by recursive descent that makes the same mistakes out of wrong input as the generated parser of cel-go: what
//! it expected, whether it leaves a token out (`extraneous input`), takes one as given (`missing`) or gives a rule up
//! (`mismatched input`) and goes on where the text fits again. For that, every rule knows what may follow it
//! (the stack `follow`).
//!
//! Invariant: a tree is handed out only when nothing was wrong.

mod lexer;
mod macros;

use std::sync::Arc;

use super::Issue;
use super::ast::{Call, Entry, Expr, ExprId, ExprKind, Literal, op};
use lexer::{Kind, Set, Token, set};

/// Most characters of an expression.
const MAX_LENGTH: usize = 100_000;
/// Deepest nesting of one rule of the grammar.
const MAX_DEPTH: u32 = 250;
/// Most mistakes of syntax before the parser gives up.
const MAX_ERRORS: usize = 100;
/// Most times that the parser goes on after a mistake.
const MAX_RECOVERIES: usize = 30;

/// Identifiers that the language keeps for itself.
const RESERVED: &[&str] = &[
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

const PRIMARY: Set = set(&[
    Kind::OpenBracket,
    Kind::OpenBrace,
    Kind::OpenParen,
    Kind::Dot,
    Kind::Minus,
    Kind::True,
    Kind::False,
    Kind::Null,
    Kind::Float,
    Kind::Int,
    Kind::Uint,
    Kind::Text,
    Kind::Bytes,
    Kind::Identifier,
]);
const UNARY: Set = PRIMARY | set(&[Kind::Exclamation]);
const RELATION: Set = set(&[
    Kind::Equals,
    Kind::NotEquals,
    Kind::In,
    Kind::Less,
    Kind::LessEquals,
    Kind::GreaterEquals,
    Kind::Greater,
]);
const CALC: Set = set(&[Kind::Plus, Kind::Minus, Kind::Star, Kind::Slash, Kind::Percent]);
const MEMBER: Set = set(&[Kind::Dot, Kind::OpenBracket]);

/// Parses an expression.
///
/// # Errors
/// Mistakes of syntax and of the use of macros, with cel-go's words.
pub fn parse(source: &str) -> Result<Expr, Vec<Issue>> {
    let source: Vec<char> = source.chars().collect();
    if source.len() > MAX_LENGTH {
        let size = source.len();
        return Err(vec![Issue {
            offset: Issue::NOWHERE,
            message: format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}"),
        }]);
    }
    let (tokens, issues) = lexer::tokens(&source);
    let mut parser = Parser {
        source,
        tokens,
        at: 0,
        follow: Vec::new(),
        recovering: false,
        last_error: None,
        recoveries: 0,
        depth: 0,
        gave_up: false,
        syntax: issues,
        issues: Vec::new(),
        next_id: 1,
    };
    let expr = parser.start();
    let mut issues = parser.syntax;
    issues.append(&mut parser.issues);
    if issues.is_empty() { Ok(expr) } else { Err(issues) }
}

/// A rule cannot go on; what is to be said about it.
struct Stuck {
    /// The token at fault.
    at: usize,
    message: String,
    /// The place in the grammar.
    place: u8,
}

struct Parser {
    source: Vec<char>,
    tokens: Vec<Token>,
    at: usize,
    /// For each rule under way: what may follow it, and whether the rule around may end there.
    follow: Vec<(Set, bool)>,
    /// A mistake was reported and nothing matched since; more mistakes are consequences.
    recovering: bool,
    last_error: Option<(usize, u8)>,
    recoveries: usize,
    depth: u32,
    gave_up: bool,
    syntax: Vec<Issue>,
    issues: Vec<Issue>,
    next_id: ExprId,
}

impl Parser {
    fn peek(&self) -> Kind {
        self.kind(0)
    }

    fn kind(&self, ahead: usize) -> Kind {
        self.tokens.get(self.at + ahead).map_or(Kind::Eof, |token| token.kind)
    }

    fn token(&self) -> &Token {
        &self.tokens[self.at]
    }

    fn is(&self, wanted: Set) -> bool {
        wanted & set(&[self.peek()]) != 0
    }

    /// Takes the present token; the end is never left behind.
    fn advance(&mut self) -> Token {
        let token = self.token().clone();
        if token.kind != Kind::Eof {
            self.at += 1;
        }
        self.recovering = false;
        self.last_error = None;
        token
    }

    fn new_id(&mut self) -> ExprId {
        self.next_id += 1;
        self.next_id - 1
    }

    fn new_expr(&mut self, offset: u32, kind: ExprKind) -> Expr {
        Expr::new(self.new_id(), offset, kind)
    }

    /// What stands for an expression that is not one; never handed out.
    fn blank(&mut self, offset: u32) -> Expr {
        self.new_expr(offset, ExprKind::Literal(Literal::Null))
    }

    fn mistake(&mut self, offset: u32, message: impl Into<String>) -> Expr {
        self.issues.push(Issue {
            offset,
            message: message.into(),
        });
        self.blank(offset)
    }

    // ---- mistakes of syntax ----

    fn syntax_error(&mut self, at: usize, message: &str) {
        if std::mem::replace(&mut self.recovering, true) || self.gave_up {
            return;
        }
        let offset = self.tokens[at].offset;
        let message = if self.syntax.len() < MAX_ERRORS {
            format!("Syntax error: {message}")
        } else {
            self.gave_up = true;
            format!("Syntax error: More than {MAX_ERRORS} syntax errors")
        };
        self.syntax.push(Issue { offset, message });
    }

    fn shown(&self, at: usize) -> String {
        match &self.tokens[at] {
            token if token.kind == Kind::Eof => "'<EOF>'".to_owned(),
            token => quote(&token.text),
        }
    }

    /// Everything that may come at this point when `local` may, and with `nullable` what follows the rules around.
    fn expected(&self, local: Set, nullable: bool) -> Set {
        let (mut set_, mut open) = (local, nullable);
        for (follow, nullable) in self.follow.iter().rev() {
            if !open {
                return set_;
            }
            set_ |= follow;
            open = *nullable;
        }
        if open { set_ | set(&[Kind::Eof]) } else { set_ }
    }

    /// Leaves one token out when the next one is expected.
    fn delete_one(&mut self, expected: Set) -> bool {
        if set(&[self.kind(1)]) & expected == 0 || self.peek() == Kind::Eof {
            return false;
        }
        let message = format!("extraneous input {} expecting {}", self.shown(self.at), names(expected));
        self.syntax_error(self.at, &message);
        self.at += 1;
        self.recovering = false;
        true
    }

    fn mismatch(&self, expected: Set, place: u8) -> Stuck {
        Stuck {
            at: self.at,
            message: format!("mismatched input {} expecting {}", self.shown(self.at), names(expected)),
            place,
        }
    }

    /// Takes a token of this kind. What may come after it is needed to see that it is only missing.
    fn expect(&mut self, kind: Kind, then: Set, nullable: bool, place: u8) -> Result<Token, Stuck> {
        if self.peek() == kind {
            return Ok(self.advance());
        }
        self.count_recovery()?;
        let wanted = set(&[kind]);
        if self.delete_one(wanted) {
            return Ok(self.advance());
        }
        if self.expected(then, nullable) & set(&[self.peek()]) != 0 {
            let message = format!("missing {} at {}", kind.name(), self.shown(self.at));
            self.syntax_error(self.at, &message);
            let offset = self.token().offset;
            return Ok(Token {
                kind,
                offset,
                text: String::new(),
            });
        }
        Err(self.mismatch(wanted, place))
    }

    /// Before a choice: the next token must begin one of the alternatives.
    fn sync(&mut self, alternatives: Set, place: u8) -> Result<(), Stuck> {
        if self.recovering || self.is(alternatives) || self.delete_one(alternatives) {
            return Ok(());
        }
        Err(self.mismatch(alternatives, place))
    }

    fn no_viable(&self, from: usize, at: usize, place: u8) -> Stuck {
        let start = self.tokens[from].offset as usize;
        let end = self.tokens[at].offset as usize + self.tokens[at].text.chars().count();
        let text: String = self.source[start..end.min(self.source.len())].iter().collect();
        let text = if self.tokens[at].kind == Kind::Eof {
            text.trim_end()
        } else {
            &text
        };
        let message = match text {
            ".true" | ".false" | ".null" => format!("mismatched input '{}' expecting IDENTIFIER", &text[1..]),
            _ => format!("no viable alternative at input {}", quote(text)),
        };
        Stuck { at, message, place }
    }

    fn count_recovery(&mut self) -> Result<(), Stuck> {
        self.recoveries += 1;
        if self.recoveries > MAX_RECOVERIES && !self.gave_up {
            self.recovering = false;
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.at, &message);
            self.give_up();
        }
        Ok(())
    }

    fn give_up(&mut self) {
        self.gave_up = true;
        self.at = self.tokens.len() - 1;
    }

    /// Runs a rule; when it is stuck, reports it and skips to what may follow here or further out.
    fn rule(&mut self, follow: Set, nullable: bool, body: impl FnOnce(&mut Self) -> Result<Expr, Stuck>) -> Expr {
        self.follow.push((follow, nullable));
        self.depth += 1;
        let offset = self.token().offset;
        let result = if self.depth > MAX_DEPTH * 7 {
            if !self.gave_up {
                self.issues.push(Issue {
                    offset: Issue::NOWHERE,
                    message: format!("expression recursion limit exceeded: {MAX_DEPTH}"),
                });
            }
            self.give_up();
            Ok(self.blank(offset))
        } else {
            body(self)
        };
        let expr = result.unwrap_or_else(|stuck| {
            self.syntax_error(stuck.at, &stuck.message);
            self.recover(stuck.place);
            self.blank(offset)
        });
        self.depth -= 1;
        self.follow.pop();
        expr
    }

    fn recover(&mut self, place: u8) {
        let _ = self.count_recovery();
        if self.last_error == Some((self.at, place)) && self.peek() != Kind::Eof {
            // Nothing moved since the last mistake at this very place.
            self.at += 1;
        }
        self.last_error = Some((self.at, place));
        let stops = self.follow.iter().fold(0, |all, (follow, _)| all | follow);
        while self.peek() != Kind::Eof && !self.is(stops) {
            self.at += 1;
        }
    }

    // ---- the grammar ----

    fn start(&mut self) -> Expr {
        let expr = self.expr(set(&[Kind::Eof]), false);
        if let Err(stuck) = self.expect(Kind::Eof, 0, false, 1) {
            self.syntax_error(stuck.at, &stuck.message);
        }
        expr
    }

    fn expr(&mut self, follow: Set, nullable: bool) -> Expr {
        self.rule(follow, nullable, |p| {
            let condition = p.logic(op::OR, Kind::Or, set(&[Kind::Question]), true);
            if p.peek() != Kind::Question {
                return Ok(condition);
            }
            let question = p.advance();
            let id = p.new_id();
            let yes = p.logic(op::OR, Kind::Or, set(&[Kind::Colon]), false);
            p.expect(Kind::Colon, UNARY, false, 2)?;
            let no = p.expr(0, true);
            Ok(global(id, question.offset, op::CONDITIONAL, vec![condition, yes, no]))
        })
    }

    /// `a || b || c`, and below it `a && b && c`: the terms become a balanced tree.
    fn logic(&mut self, function: &'static str, kind: Kind, follow: Set, nullable: bool) -> Expr {
        self.rule(follow, nullable, |p| {
            let (mut terms, mut operators) = (Vec::new(), Vec::new());
            loop {
                let term = if kind == Kind::Or {
                    p.logic(op::AND, Kind::And, set(&[Kind::Or]), true)
                } else {
                    p.relation(0, set(&[Kind::And]), true)
                };
                terms.push(Some(term));
                if p.peek() != kind {
                    break;
                }
                let operator = p.advance();
                operators.push((p.new_id(), operator.offset));
            }
            Ok(balance(function, &mut terms, &operators))
        })
    }

    /// Comparisons, left to right.
    fn relation(&mut self, _level: u8, follow: Set, nullable: bool) -> Expr {
        self.rule(follow, nullable, |p| {
            let mut left = p.calc(1, RELATION, true);
            let mut chain = 0;
            while p.is(RELATION) {
                let operator = p.advance();
                let function = operator_name(operator.kind);
                let id = p.new_id();
                let right = p.rule(RELATION, true, |p| Ok(p.calc(1, RELATION, true)));
                left = global(id, operator.offset, function, vec![left, right]);
                chain += 1;
                p.limit_chain(chain);
            }
            Ok(left)
        })
    }

    /// Sums (level 1) of products (level 2).
    fn calc(&mut self, level: u8, follow: Set, nullable: bool) -> Expr {
        const PRODUCT: Set = set(&[Kind::Star, Kind::Slash, Kind::Percent]);
        const SUM: Set = set(&[Kind::Plus, Kind::Minus]);
        self.rule(follow, nullable, |p| {
            let mut left = p.unary(CALC, true);
            let mut chain = 0;
            loop {
                let next = if p.is(PRODUCT) {
                    2
                } else if p.is(SUM) && level == 1 {
                    1
                } else {
                    return Ok(left);
                };
                let operator = p.advance();
                let id = p.new_id();
                let right = if next == 2 {
                    p.unary(CALC, true)
                } else {
                    p.calc(2, CALC, true)
                };
                left = global(id, operator.offset, operator_name(operator.kind), vec![left, right]);
                chain += 1;
                p.limit_chain(chain);
            }
        })
    }

    /// A chain of operators or selections is as deep as it is long.
    fn limit_chain(&mut self, length: u32) {
        if length >= MAX_DEPTH && !self.gave_up {
            self.issues.push(Issue {
                offset: Issue::NOWHERE,
                message: format!("expression recursion limit exceeded: {MAX_DEPTH}"),
            });
            self.give_up();
        }
    }

    fn unary(&mut self, follow: Set, nullable: bool) -> Expr {
        self.rule(follow, nullable, |p| {
            p.sync(UNARY, 3)?;
            let number_follows = matches!(p.kind(1), Kind::Int | Kind::Float);
            let (kind, function) = match p.peek() {
                Kind::Exclamation => (Kind::Exclamation, op::NOT),
                Kind::Minus if !number_follows => (Kind::Minus, op::NEGATE),
                _ => return Ok(p.member(0, true)),
            };
            if kind == Kind::Minus && UNARY & !set(&[Kind::Exclamation]) & set(&[p.kind(1)]) == 0 {
                return Err(p.no_viable(p.at, p.at + 1, 4));
            }
            let operator = p.advance();
            let mut count = 1;
            while p.peek() == kind && !(kind == Kind::Minus && matches!(p.kind(1), Kind::Int | Kind::Float)) {
                p.advance();
                count += 1;
            }
            if kind == Kind::Exclamation && !p.is(UNARY) {
                let message = format!("extraneous input {} expecting {}", p.shown(p.at), names(UNARY));
                p.syntax_error(p.at, &message);
            }
            let id = p.new_id();
            let operand = p.member(0, true);
            Ok(if count % 2 == 0 {
                operand
            } else {
                global(id, operator.offset, function, vec![operand])
            })
        })
    }

    fn member(&mut self, follow: Set, nullable: bool) -> Expr {
        self.rule(follow, nullable, |p| {
            let mut expr = p.rule(MEMBER, true, Self::primary);
            let mut chain = 0;
            loop {
                expr = match p.peek() {
                    Kind::Dot => p.selection(expr)?,
                    Kind::OpenBracket => p.index(expr)?,
                    _ => return Ok(expr),
                };
                chain += 1;
                p.limit_chain(chain);
            }
        })
    }

    fn selection(&mut self, operand: Expr) -> Result<Expr, Stuck> {
        const NAME: Set = set(&[Kind::Identifier, Kind::EscapedIdentifier]);
        let from = self.at;
        let optional = self.kind(1) == Kind::Question;
        let name_at = if optional { 2 } else { 1 };
        if NAME & set(&[self.kind(name_at)]) == 0 {
            return Err(self.no_viable(from, (from + name_at).min(self.tokens.len() - 1), 5));
        }
        let dot = self.advance();
        if optional {
            self.advance();
        }
        let name = self.advance();
        if name.kind == Kind::EscapedIdentifier {
            self.mistake(name.offset, "unsupported syntax: '`'");
        } else if !optional && self.peek() == Kind::OpenParen {
            let open = self.advance();
            let id = self.new_id();
            let args = self.arguments()?;
            return Ok(self.call(id, open.offset, &name.text, Some(operand), args));
        }
        if optional {
            let id = self.new_id();
            let field = self.new_expr(name.offset, ExprKind::Literal(Literal::String(name.text.into())));
            return Ok(global(id, dot.offset, op::OPT_SELECT, vec![operand, field]));
        }
        let kind = ExprKind::Select {
            operand: Box::new(operand),
            field: name.text.into(),
            test_only: false,
        };
        Ok(self.new_expr(dot.offset, kind))
    }

    fn index(&mut self, operand: Expr) -> Result<Expr, Stuck> {
        let open = self.advance();
        let id = self.new_id();
        self.sync(UNARY | set(&[Kind::Question]), 6)?;
        let function = if self.peek() == Kind::Question {
            self.advance();
            op::OPT_INDEX
        } else {
            op::INDEX
        };
        let index = self.expr(set(&[Kind::CloseBracket]), false);
        self.expect(Kind::CloseBracket, MEMBER, true, 7)?;
        Ok(global(id, open.offset, function, vec![operand, index]))
    }

    /// The arguments of a call and the closing parenthesis.
    fn arguments(&mut self) -> Result<Vec<Expr>, Stuck> {
        let mut args = Vec::new();
        self.sync(UNARY | set(&[Kind::CloseParen]), 8)?;
        if self.is(UNARY) {
            loop {
                args.push(self.expr(set(&[Kind::Comma, Kind::CloseParen]), false));
                if self.peek() != Kind::Comma {
                    break;
                }
                self.advance();
            }
        }
        self.expect(Kind::CloseParen, MEMBER, true, 9)?;
        Ok(args)
    }

    fn primary(&mut self) -> Result<Expr, Stuck> {
        self.sync(PRIMARY, 10)?;
        let token = self.token().clone();
        match token.kind {
            Kind::OpenParen => {
                self.advance();
                let expr = self.expr(set(&[Kind::CloseParen]), false);
                self.expect(Kind::CloseParen, MEMBER, true, 11)?;
                Ok(expr)
            }
            Kind::OpenBracket => self.list(),
            Kind::OpenBrace => self.map(),
            Kind::Dot | Kind::Identifier => self.named(),
            _ if PRIMARY & set(&[token.kind]) != 0 => self.literal(),
            _ => Err(self.mismatch(PRIMARY, 12)),
        }
    }

    /// A variable, a call or a struct.
    fn named(&mut self) -> Result<Expr, Stuck> {
        let from = self.at;
        let dotted = self.peek() == Kind::Dot;
        if dotted && self.kind(1) != Kind::Identifier {
            return Err(self.no_viable(from, (from + 1).min(self.tokens.len() - 1), 13));
        }
        let mut end = usize::from(dotted) + 1;
        while self.kind(end) == Kind::Dot && self.kind(end + 1) == Kind::Identifier {
            end += 2;
        }
        let start = self.token().offset;
        if self.kind(end) == Kind::OpenBrace {
            let name: String = self.tokens[from..from + end].iter().map(|token| &*token.text).collect();
            (0..end).for_each(|_| drop(self.advance()));
            return self.construct(&name);
        }
        if dotted {
            self.advance();
        }
        let name = self.advance();
        let reserved = RESERVED.contains(&name.text.as_str());
        let full = if dotted {
            format!(".{}", name.text)
        } else {
            name.text.clone()
        };
        if self.peek() != Kind::OpenParen {
            if reserved {
                return Ok(self.mistake(start, format!("reserved identifier: {}", name.text)));
            }
            return Ok(self.new_expr(name.offset, ExprKind::Ident(full.into())));
        }
        let open = self.advance();
        let id = self.new_id();
        let args = self.arguments()?;
        if reserved {
            return Ok(self.mistake(start, format!("reserved identifier: {}", name.text)));
        }
        Ok(self.call(id, open.offset, &full, None, args))
    }

    fn list(&mut self) -> Result<Expr, Stuck> {
        const CLOSE: Set = set(&[Kind::CloseBracket]);
        let open = self.advance();
        let id = self.new_id();
        let (mut elements, mut optional) = (Vec::new(), Vec::new());
        let begins = UNARY | set(&[Kind::Question]);
        self.sync(begins | CLOSE | set(&[Kind::Comma]), 14)?;
        if self.is(begins) {
            loop {
                if self.peek() == Kind::Question {
                    self.advance();
                    optional.push(elements.len());
                }
                elements.push(self.expr(set(&[Kind::Comma, Kind::CloseBracket]), false));
                if self.peek() != Kind::Comma || begins & set(&[self.kind(1)]) == 0 {
                    break;
                }
                self.advance();
            }
        }
        self.sync(CLOSE | set(&[Kind::Comma]), 15)?;
        if self.peek() == Kind::Comma {
            self.advance();
        }
        self.expect(Kind::CloseBracket, MEMBER, true, 16)?;
        Ok(Expr::new(id, open.offset, ExprKind::List { elements, optional }))
    }

    fn map(&mut self) -> Result<Expr, Stuck> {
        let open = self.advance();
        let id = self.new_id();
        let entries = self.entries(UNARY, |p| Ok(p.expr(set(&[Kind::Colon]), false)))?;
        Ok(Expr::new(id, open.offset, ExprKind::Map(entries)))
    }

    fn construct(&mut self, name: &str) -> Result<Expr, Stuck> {
        const NAME: Set = set(&[Kind::Identifier, Kind::EscapedIdentifier]);
        let open = self.advance();
        let id = self.new_id();
        let entries = self.entries(NAME, |p| {
            p.sync(NAME, 17)?;
            let name = p.advance();
            if name.kind == Kind::EscapedIdentifier {
                return Ok(p.mistake(name.offset, "unsupported syntax: '`'"));
            }
            Ok(p.new_expr(name.offset, ExprKind::Literal(Literal::String(name.text.into()))))
        })?;
        let type_name = name.into();
        Ok(Expr::new(id, open.offset, ExprKind::Struct { type_name, entries }))
    }

    /// `key: value, ?key: value, }` after the opening brace.
    fn entries(
        &mut self,
        key_begins: Set,
        mut key: impl FnMut(&mut Self) -> Result<Expr, Stuck>,
    ) -> Result<Vec<Entry>, Stuck> {
        const CLOSE: Set = set(&[Kind::CloseBrace]);
        let begins = key_begins | set(&[Kind::Question]);
        let mut entries = Vec::new();
        self.sync(begins | CLOSE | set(&[Kind::Comma]), 18)?;
        if self.is(begins) {
            loop {
                let optional = self.peek() == Kind::Question;
                if optional {
                    self.advance();
                }
                let key = key(self)?;
                let colon = self.expect(Kind::Colon, UNARY, false, 19)?;
                let id = self.new_id();
                let value = self.expr(set(&[Kind::Comma, Kind::CloseBrace]), false);
                entries.push(Entry {
                    id,
                    offset: colon.offset,
                    key,
                    value,
                    optional,
                });
                if self.peek() != Kind::Comma || begins & set(&[self.kind(1)]) == 0 {
                    break;
                }
                self.advance();
            }
        }
        self.sync(CLOSE | set(&[Kind::Comma]), 20)?;
        if self.peek() == Kind::Comma {
            self.advance();
        }
        self.expect(Kind::CloseBrace, MEMBER, true, 21)?;
        Ok(entries)
    }

    fn literal(&mut self) -> Result<Expr, Stuck> {
        let first = self.token().clone();
        let minus = first.kind == Kind::Minus;
        if minus && !matches!(self.kind(1), Kind::Int | Kind::Float) {
            return Err(self.no_viable(self.at, (self.at + 1).min(self.tokens.len() - 1), 22));
        }
        if minus {
            self.advance();
        }
        let token = self.advance();
        let text = format!("{}{}", if minus { "-" } else { "" }, token.text);
        let literal = match token.kind {
            Kind::True => Ok(Literal::Bool(true)),
            Kind::False => Ok(Literal::Bool(false)),
            Kind::Null => Ok(Literal::Null),
            Kind::Int => integer(&text).map(Literal::Int).ok_or("invalid int literal"),
            Kind::Uint => unsigned(&text).map(Literal::Uint).ok_or("invalid uint literal"),
            Kind::Float => match text.parse::<f64>() {
                Ok(number) if number.is_finite() => Ok(Literal::Double(number)),
                _ => Err("invalid double literal"),
            },
            Kind::Bytes => lexer::unescape(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into())),
            _ => lexer::unescape(&text, false).and_then(|bytes| {
                let text = String::from_utf8(bytes).map_err(|_| "invalid unicode code point")?;
                Ok(Literal::String(text.into()))
            }),
        };
        Ok(match literal {
            Ok(literal) => self.new_expr(first.offset, ExprKind::Literal(literal)),
            Err(message) => self.mistake(first.offset, message),
        })
    }

    /// A call, or what a macro of this name makes of it.
    fn call(&mut self, id: ExprId, offset: u32, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        match self.expand(offset, function, target, args) {
            Ok(Ok(expanded)) => expanded,
            Ok(Err((at, message))) => self.mistake(at, message),
            Err((target, args)) => Expr::new(
                id,
                offset,
                ExprKind::Call(Call {
                    function: function.into(),
                    target: target.map(Box::new),
                    args,
                    overloads: Vec::new(),
                }),
            ),
        }
    }
}

/// A call without a receiver.
fn global(id: ExprId, offset: u32, function: &str, args: Vec<Expr>) -> Expr {
    let call = Call {
        function: function.into(),
        target: None,
        args,
        overloads: Vec::new(),
    };
    Expr::new(id, offset, ExprKind::Call(call))
}

/// Many terms of one operator as a tree of even depth.
fn balance(function: &str, terms: &mut [Option<Expr>], operators: &[(ExprId, u32)]) -> Expr {
    if operators.is_empty() {
        return terms[0].take().expect("each term is taken once");
    }
    let middle = operators.len() / 2;
    let (left, right) = terms.split_at_mut(middle + 1);
    let left = balance(function, left, &operators[..middle]);
    let right = balance(function, right, &operators[middle + 1..]);
    let (id, offset) = operators[middle];
    global(id, offset, function, vec![left, right])
}

fn operator_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Equals => op::EQUALS,
        Kind::NotEquals => op::NOT_EQUALS,
        Kind::In => op::IN,
        Kind::Less => op::LESS,
        Kind::LessEquals => op::LESS_EQUALS,
        Kind::GreaterEquals => op::GREATER_EQUALS,
        Kind::Greater => op::GREATER,
        Kind::Plus => op::ADD,
        Kind::Minus => op::SUBTRACT,
        Kind::Star => op::MULTIPLY,
        Kind::Slash => op::DIVIDE,
        _ => op::MODULO,
    }
}

fn integer(text: &str) -> Option<i64> {
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text),
    };
    match digits.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(&format!("{sign}{hex}"), 16).ok(),
        None => text.parse().ok(),
    }
}

fn unsigned(text: &str) -> Option<u64> {
    let digits = &text[..text.len() - 1];
    match digits.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// `{'a', 'b'}`, or the name alone when it is one.
fn names(kinds: Set) -> String {
    let names: Vec<&str> = Kind::ALL
        .iter()
        .filter(|kind| kinds & set(&[**kind]) != 0)
        .map(|kind| kind.name())
        .collect();
    match names.as_slice() {
        [one] => (*one).to_owned(),
        many => format!("{{{}}}", many.join(", ")),
    }
}

fn quote(text: &str) -> String {
    let text = text.replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t");
    format!("'{text}'")
}

/// A name as the tree holds it.
fn name(text: &str) -> Arc<str> {
    text.into()
}
