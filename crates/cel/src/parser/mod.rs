//! Source text to a tree, with macros expanded.
//!
//! A parser by recursive descent that makes the same mistakes out of wrong input as the generated parser of cel-go: the
//! expected tokens, whether it leaves a token out (`extraneous input`), takes one as given (`missing`) or gives a rule
//! up (`mismatched input`) and goes on where the text fits again. For that, every rule knows the tokens that may follow
//! it (the stack `follow`).
//!
//! Invariant: a tree is handed out only when nothing was wrong.

mod grammar;
mod lexer;
mod macros;

use std::ops::Range;
use std::sync::Arc;

use super::Issue;
use super::ast::{Call, Expr, ExprId, ExprKind, Literal};
use lexer::{Kind, Set, Token, set};

/// Most characters of an expression.
const MAX_LENGTH: usize = 100_000;
/// Deepest nesting of expressions in parentheses, brackets and arguments.
const MAX_NESTING: u32 = 250;
/// Deepest nesting of operators, selections and calls.
const MAX_DEPTH: u16 = 250;
/// The deepest tree, with the levels that do not count as nesting: logical operators and expanded macros.
const MAX_HEIGHT: u16 = 550;
/// Most mistakes of syntax before the parser gives up.
const MAX_ERRORS: usize = 100;
/// Most times that the parser goes on after a mistake.
const MAX_RECOVERIES: usize = 30;

/// Parses an expression; `plain_names`: names in backticks are a mistake.
///
/// # Errors
/// Mistakes of syntax and of the use of macros, with cel-go's words.
pub fn parse(source: &str, plain_names: bool) -> Result<Expr, Vec<Issue>> {
    let source: Vec<char> = source.chars().collect();
    if source.len() > MAX_LENGTH {
        let size = source.len();
        return Err(vec![Issue {
            offset: Issue::NOWHERE,
            message: format!("expression code point size exceeds limit: size: {size}, limit {MAX_LENGTH}"),
        }]);
    }
    let lexed = lexer::lex(&source);
    let mut parser = Parser {
        source,
        plain_names,
        tokens: lexed.tokens,
        left_out: lexed.left_out,
        at: 0,
        follow: Vec::new(),
        recovering: false,
        last_error: None,
        recoveries: 0,
        nesting: 0,
        heights: vec![(0, 0)],
        gave_up: false,
        syntax: lexed.issues,
        issues: Vec::new(),
        next_id: 1,
    };
    let expr = parser.start();
    let mut issues = parser.syntax;
    issues.append(&mut parser.issues);
    let nowhere = issues.iter().position(|issue| issue.offset == Issue::NOWHERE);
    match nowhere {
        // Upstream stops where it is, before it could find more.
        Some(at) => Err(vec![issues.swap_remove(at)]),
        None if issues.is_empty() => Ok(expr),
        None => Err(issues),
    }
}

/// A rule cannot go on; the error to report.
struct Stuck {
    /// The token at fault.
    at: usize,
    message: String,
    /// The place in the grammar.
    place: u8,
}

struct Parser {
    source: Vec<char>,
    plain_names: bool,
    tokens: Vec<Token>,
    /// Where text stands that is no token.
    left_out: Vec<Range<usize>>,
    at: usize,
    /// For each rule under way: the tokens that may follow it, and whether the rule around may end there.
    follow: Vec<(Set, bool)>,
    /// A mistake was reported and nothing matched since; more mistakes are consequences.
    recovering: bool,
    last_error: Option<(usize, u8)>,
    recoveries: usize,
    nesting: u32,
    /// For each expression by id: the depth of its operators, and of its tree.
    heights: Vec<(u16, u16)>,
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
        self.heights.push((0, 0));
        self.next_id - 1
    }

    fn new_expr(&mut self, offset: u32, kind: ExprKind) -> Expr {
        let expr = Expr::new(self.new_id(), offset, kind);
        self.measured(expr, 0)
    }

    /// Notes how deep an expression is, which itself counts as so many levels; one that is too deep is dropped.
    fn measured(&mut self, expr: Expr, levels: u16) -> Expr {
        let below = expr.children().iter().fold((0, 0), |(depth, height), child| {
            let (child_depth, child_height) = self.heights[child.id as usize];
            (child_depth.max(depth), child_height.max(height))
        });
        let (depth, height): (u16, u16) = (below.0 + levels, below.1 + 1);
        if depth > MAX_DEPTH || height > MAX_HEIGHT {
            self.abort("max recursion depth exceeded");
            return Expr::new(expr.id, expr.offset, ExprKind::Literal(Literal::Null));
        }
        self.heights[expr.id as usize] = (depth, height);
        expr
    }

    /// Reports the one mistake that is left to report, and reads no more.
    fn abort(&mut self, message: &str) {
        if !self.gave_up {
            self.issues.push(Issue {
                offset: Issue::NOWHERE,
                message: message.to_owned(),
            });
        }
        self.give_up();
    }

    /// A placeholder for an expression that could not be parsed; never handed out.
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

    /// All tokens that may come at this point when `local` may, and with `nullable` those that follow the rules around.
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

    /// Takes a token of this kind. The tokens that may come after it tell whether it is only missing.
    fn expect(&mut self, kind: Kind, then: Set, nullable: bool, place: u8) -> Result<Token, Stuck> {
        if self.peek() == kind {
            return Ok(self.advance());
        }
        self.count_recovery();
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
        let is_read = |at: &usize| !self.left_out.iter().any(|range| range.contains(at));
        let text: String = (start..end.min(self.source.len()))
            .filter(is_read)
            .map(|at| self.source[at])
            .collect();
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

    fn count_recovery(&mut self) {
        self.recoveries += 1;
        if self.recoveries > MAX_RECOVERIES && !self.gave_up {
            self.recovering = false;
            let message = format!("error recovery attempt limit exceeded: {MAX_RECOVERIES}");
            self.syntax_error(self.at, &message);
            self.give_up();
        }
    }

    fn give_up(&mut self) {
        self.gave_up = true;
        self.at = self.tokens.len() - 1;
    }

    /// Begins a rule that may be stuck: the tokens that may follow it. Answers where it begins.
    fn enter(&mut self, follow: Set, nullable: bool) -> u32 {
        self.follow.push((follow, nullable));
        self.token().offset
    }

    /// Ends a rule; when it is stuck, reports that and skips to a token that may follow here or further out.
    fn leave(&mut self, begin: u32, result: Result<Expr, Stuck>) -> Expr {
        let expr = match result {
            Ok(expr) => expr,
            Err(stuck) => {
                self.syntax_error(stuck.at, &stuck.message);
                self.recover(stuck.place);
                self.blank(begin)
            }
        };
        self.follow.pop();
        expr
    }

    fn recover(&mut self, place: u8) {
        self.count_recovery();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Nothing, or the first mistake.
    fn check(source: &str, expected: &str) {
        let found = parse(source, false).map_or_else(|issues| issues[0].message.clone(), |_| String::new());
        let shown: String = source.chars().take(20).collect();
        assert_eq!(found, expected, "{shown}… of {} characters", source.len());
    }

    #[test]
    fn depth_is_bounded() {
        const NESTED: &str = "expression recursion limit exceeded: 250";
        const DEEP: &str = "max recursion depth exceeded";
        let nested = |open: &str, n: usize, inner: &str, close: &str| open.repeat(n) + inner + &close.repeat(n);
        for (n, parentheses, lists, sum, fields) in [
            (100, "", "", "", ""),
            (249, "", "", "", ""),
            (250, NESTED, "", DEEP, DEEP),
            (251, NESTED, NESTED, DEEP, DEEP),
            (20_000, NESTED, NESTED, DEEP, DEEP),
        ] {
            check(&nested("(", n, "true", ")"), parentheses);
            check(&nested("[", n, "", "]"), lists);
            check(&format!("1{} == 1", " + 1".repeat(n)), sum);
            check(&format!("self{} == 1", ".o".repeat(n)), fields);
            check(&format!("true{}", " && true".repeat(n.min(10_000))), "");
            check(&nested("!", n, "true", ""), "");
        }
        let steps = format!("({}", "1 + ".repeat(200));
        check(&nested(&steps, 100, "1", ")"), DEEP);
        let terms = format!("({}", "a && ".repeat(90));
        check(&nested(&terms, 200, "a", ")"), DEEP);
    }
}
