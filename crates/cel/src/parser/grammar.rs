//! The rules of the grammar.
//!
//! Each is a function that takes its tokens and answers its expression, or where it is stuck. Binary operators are put
//! together without recursion. A rare part of a rule stands in a function of its own: it would make the stack of each
//! nesting larger.

use super::super::ast::{Call, Entry, Expr, ExprId, ExprKind, Literal, op};
use super::lexer::{Kind, Set, Token, set, unescape};
use super::{MAX_NESTING, Parser, Stuck, global, names};
use crate::names::is_reserved;

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

impl Parser {
    pub(super) fn start(&mut self) -> Expr {
        let expr = self.expr(set(&[Kind::Eof]), false);
        if let Err(stuck) = self.expect(Kind::Eof, 0, false, 1) {
            self.syntax_error(stuck.at, &stuck.message);
        }
        expr
    }

    fn expr(&mut self, follow: Set, nullable: bool) -> Expr {
        self.nesting += 1;
        if self.nesting > MAX_NESTING {
            self.abort(&format!("expression recursion limit exceeded: {MAX_NESTING}"));
            self.nesting -= 1;
            let offset = self.token().offset;
            return self.blank(offset);
        }
        let begin = self.enter(follow, nullable);
        let result = self.conditional();
        self.nesting -= 1;
        self.leave(begin, result)
    }

    fn conditional(&mut self) -> Result<Expr, Stuck> {
        let condition = self.operators(set(&[Kind::Question]), true);
        if self.peek() == Kind::Question {
            self.ternary(condition)
        } else {
            Ok(condition)
        }
    }

    fn ternary(&mut self, condition: Expr) -> Result<Expr, Stuck> {
        let question = self.advance();
        let id = self.new_id();
        let yes = self.operators(set(&[Kind::Colon]), false);
        self.expect(Kind::Colon, UNARY, false, 2)?;
        let no = self.expr(0, true);
        let call = global(id, question.offset, op::CONDITIONAL, vec![condition, yes, no]);
        Ok(self.measured(call, 1))
    }

    /// Everything that binds closer than `?:`. No operator takes a call of its own, so that the stack is only as deep
    /// as parentheses are nested.
    fn operators(&mut self, follow: Set, nullable: bool) -> Expr {
        const ALL: Set = RELATION | CALC | set(&[Kind::Or, Kind::And]);
        self.follow.push((follow, nullable));
        self.follow.push((ALL, true));
        let (mut operands, mut pending) = (vec![self.unary()], Vec::<Operator>::new());
        while let Some(binding) = binding(self.peek()) {
            while pending.last().is_some_and(|before| before.binding.takes(binding)) {
                self.reduce(&mut operands, &mut pending);
            }
            let token = self.advance();
            let (kind, offset, id) = (token.kind, token.offset, self.new_id());
            pending.push(Operator {
                binding,
                kind,
                offset,
                id,
            });
            operands.push(self.unary());
        }
        while !pending.is_empty() {
            self.reduce(&mut operands, &mut pending);
        }
        self.follow.truncate(self.follow.len() - 2);
        operands.pop().expect("one operand is left when no operator is")
    }

    /// Makes a call of the last operator, or of the last run of a logical operator.
    fn reduce(&mut self, operands: &mut Vec<Expr>, pending: &mut Vec<Operator>) {
        let Some(last) = pending.last() else { return };
        let (binding, kind) = (last.binding, last.kind);
        let run = pending
            .iter()
            .rev()
            .take_while(|operator| operator.binding == binding)
            .count();
        let count = if binding.is_logical() { run } else { 1 };
        let operators: Vec<(ExprId, u32)> = pending
            .drain(pending.len() - count..)
            .map(|operator| (operator.id, operator.offset))
            .collect();
        let mut terms: Vec<Option<Expr>> = operands.drain(operands.len() - count - 1..).map(Some).collect();
        let call = self.balance(operator_name(kind), &mut terms, &operators);
        let levels = u16::from(!binding.is_logical());
        let call = self.measured(call, levels);
        operands.push(call);
    }

    fn unary(&mut self) -> Expr {
        let begin = self.enter(0, true);
        let result = self.signed();
        self.leave(begin, result)
    }

    fn signed(&mut self) -> Result<Expr, Stuck> {
        self.sync(UNARY, 3)?;
        let number_follows = matches!(self.kind(1), Kind::Int | Kind::Float);
        match self.peek() {
            Kind::Exclamation => self.negated(Kind::Exclamation, op::NOT),
            Kind::Minus if !number_follows => self.negated(Kind::Minus, op::NEGATE),
            _ => Ok(self.member()),
        }
    }

    fn negated(&mut self, kind: Kind, function: &str) -> Result<Expr, Stuck> {
        if kind == Kind::Minus && PRIMARY & set(&[self.kind(1)]) == 0 {
            return Err(self.no_viable(self.at, self.at + 1, 4));
        }
        let operator = self.advance();
        let mut count = 1;
        while self.peek() == kind && !(kind == Kind::Minus && matches!(self.kind(1), Kind::Int | Kind::Float)) {
            self.advance();
            count += 1;
        }
        if kind == Kind::Exclamation && !self.is(UNARY) {
            let message = format!("extraneous input {} expecting {}", self.shown(self.at), names(UNARY));
            self.syntax_error(self.at, &message);
        }
        let id = self.new_id();
        let operand = self.member();
        if count % 2 == 0 {
            return Ok(operand);
        }
        Ok(self.measured(global(id, operator.offset, function, vec![operand]), 0))
    }

    fn member(&mut self) -> Expr {
        let begin = self.enter(0, true);
        let result = self.selections();
        self.leave(begin, result)
    }

    fn selections(&mut self) -> Result<Expr, Stuck> {
        let begin = self.enter(MEMBER, true);
        let result = self.primary();
        let expr = self.leave(begin, result);
        if self.is(MEMBER) { self.selected(expr) } else { Ok(expr) }
    }

    fn selected(&mut self, mut expr: Expr) -> Result<Expr, Stuck> {
        loop {
            expr = match self.peek() {
                Kind::Dot => self.selection(expr)?,
                Kind::OpenBracket => self.index(expr)?,
                _ => return Ok(expr),
            };
            expr = self.measured(expr, 1);
        }
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
        let field = self.field(&name);
        if name.kind == Kind::Identifier && !optional && self.peek() == Kind::OpenParen {
            let open = self.advance();
            let id = self.new_id();
            let args = self.arguments()?;
            return Ok(self.call(id, open.offset, &name.text, Some(operand), args));
        }
        if optional {
            let id = self.new_id();
            let field = self.new_expr(name.offset, ExprKind::Literal(Literal::String(field.into())));
            return Ok(global(id, dot.offset, op::OPT_SELECT, vec![operand, field]));
        }
        let kind = ExprKind::Select {
            operand: Box::new(operand),
            field: field.into(),
            test_only: false,
        };
        Ok(self.new_expr(dot.offset, kind))
    }

    /// The name of a field, without the backticks that allow more characters.
    fn field<'a>(&mut self, name: &'a Token) -> &'a str {
        if name.kind == Kind::EscapedIdentifier && self.plain_names {
            self.mistake(name.offset, "unsupported syntax: '`'");
        }
        name.text.trim_matches('`')
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
        let reserved = is_reserved(&name.text);
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
        Ok(self.measured(Expr::new(id, open.offset, ExprKind::List { elements, optional }), 0))
    }

    fn map(&mut self) -> Result<Expr, Stuck> {
        let open = self.advance();
        let id = self.new_id();
        let entries = self.entries(UNARY, |p| Ok(p.expr(set(&[Kind::Colon]), false)))?;
        Ok(self.measured(Expr::new(id, open.offset, ExprKind::Map(entries)), 0))
    }

    fn construct(&mut self, name: &str) -> Result<Expr, Stuck> {
        const NAME: Set = set(&[Kind::Identifier, Kind::EscapedIdentifier]);
        let open = self.advance();
        let id = self.new_id();
        let entries = self.entries(NAME, |p| {
            p.sync(NAME, 17)?;
            let name = p.advance();
            let field = p.field(&name).into();
            Ok(p.new_expr(name.offset, ExprKind::Literal(Literal::String(field))))
        })?;
        let type_name = name.into();
        Ok(self.measured(Expr::new(id, open.offset, ExprKind::Struct { type_name, entries }), 0))
    }

    /// `key: value, ?key: value, }` after the opening brace.
    fn entries(
        &mut self,
        key_begins: Set,
        mut key: impl FnMut(&mut Self) -> Result<Expr, Stuck>,
    ) -> Result<Vec<Entry>, Stuck> {
        const CLOSE: Set = set(&[Kind::CloseBrace]);
        let begins = key_begins | set(&[Kind::Question]);
        let (mut keys, mut colons, mut values) = (Vec::new(), Vec::new(), Vec::new());
        self.sync(begins | CLOSE | set(&[Kind::Comma]), 18)?;
        if self.is(begins) {
            loop {
                let optional = self.peek() == Kind::Question;
                if optional {
                    self.advance();
                }
                keys.push((optional, key(self)?));
                let colon = self.expect(Kind::Colon, UNARY, false, 19)?;
                colons.push((self.new_id(), colon.offset));
                values.push(self.expr(set(&[Kind::Comma, Kind::CloseBrace]), false));
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
        let parts = keys.into_iter().zip(colons).zip(values);
        Ok(parts
            .map(|(((optional, key), (id, offset)), value)| Entry {
                id,
                offset,
                key,
                value,
                optional,
            })
            .collect())
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
            Kind::Bytes => unescape(&text[1..], true).map(|bytes| Literal::Bytes(bytes.into())),
            _ => unescape(&text, false).and_then(|bytes| {
                let text = String::from_utf8(bytes).map_err(|_| "invalid unicode code point")?;
                Ok(Literal::String(text.into()))
            }),
        };
        Ok(match literal {
            Ok(literal) => self.new_expr(first.offset, ExprKind::Literal(literal)),
            Err(message) => self.mistake(first.offset, message),
        })
    }

    /// Many terms of one operator as a tree of even depth.
    fn balance(&mut self, function: &str, terms: &mut [Option<Expr>], operators: &[(ExprId, u32)]) -> Expr {
        if operators.is_empty() {
            return terms[0].take().expect("each term is taken once");
        }
        let middle = operators.len() / 2;
        let (left, right) = terms.split_at_mut(middle + 1);
        let left = self.balance(function, left, &operators[..middle]);
        let right = self.balance(function, right, &operators[middle + 1..]);
        let (id, offset) = operators[middle];
        self.measured(global(id, offset, function, vec![left, right]), 0)
    }

    /// A call, or the expansion of a macro of this name.
    fn call(&mut self, id: ExprId, offset: u32, function: &str, target: Option<Expr>, args: Vec<Expr>) -> Expr {
        match self.expand(offset, function, target, args) {
            Ok(Ok(expanded)) => expanded,
            Ok(Err((at, message))) => self.mistake(at, message),
            Err((target, args)) => {
                let call = Call {
                    function: function.into(),
                    target: target.map(Box::new),
                    args,
                    overloads: Vec::new(),
                };
                self.measured(Expr::new(id, offset, ExprKind::Call(call)), 0)
            }
        }
    }
}

/// A binary operator that waits for its right side.
struct Operator {
    binding: Binding,
    kind: Kind,
    offset: u32,
    id: ExprId,
}

/// How close an operator binds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Binding {
    Or,
    And,
    Relation,
    Sum,
    Product,
}

impl Binding {
    fn is_logical(self) -> bool {
        self <= Self::And
    }

    /// Whether an operator takes the operand before one of this binding. Runs of a logical operator stay together.
    fn takes(self, next: Self) -> bool {
        self > next || (self == next && !self.is_logical())
    }
}

fn binding(kind: Kind) -> Option<Binding> {
    Some(match kind {
        Kind::Or => Binding::Or,
        Kind::And => Binding::And,
        Kind::Plus | Kind::Minus => Binding::Sum,
        Kind::Star | Kind::Slash | Kind::Percent => Binding::Product,
        _ if RELATION & set(&[kind]) != 0 => Binding::Relation,
        _ => return None,
    })
}

fn operator_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Or => op::OR,
        Kind::And => op::AND,
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
