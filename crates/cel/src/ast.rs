//! Expressions as a tree.
//!
//! Macros are expanded when this tree is made: `has(a.b)` is a [`Select`](ExprKind::Select) that only tests, and `all`,
//! `exists`, `exists_one`, `map`, `filter`, `transformList`, `transformMap`, `transformMapEntry`, `optMap`,
//! `optFlatMap` are a [`Comprehension`]. Operators are calls of functions with the names of [`op`].
//!
//! Invariants: ids are dense, begin at 1 and are unique within one expression; the checker has replaced qualified names
//! (`a.b` where a variable of that name is declared) by one [`Ident`](ExprKind::Ident), calls of qualified functions
//! (`sets.contains(…)`) by a call without a target, names of types by [`TypeName`](ExprKind::TypeName), and has entered
//! the overloads that fit into each call.

use std::sync::Arc;

use super::decls::Overload;
use super::types::Type;

/// The number of an expression within its program.
pub type ExprId = u32;

/// Names of the functions that operators call.
pub mod op {
    /// `a ? b : c`
    pub const CONDITIONAL: &str = "_?_:_";
    /// `a && b`
    pub const AND: &str = "_&&_";
    /// `a || b`
    pub const OR: &str = "_||_";
    /// `!a`
    pub const NOT: &str = "!_";
    /// `a == b`
    pub const EQUALS: &str = "_==_";
    /// `a != b`
    pub const NOT_EQUALS: &str = "_!=_";
    /// `a < b`
    pub const LESS: &str = "_<_";
    /// `a <= b`
    pub const LESS_EQUALS: &str = "_<=_";
    /// `a > b`
    pub const GREATER: &str = "_>_";
    /// `a >= b`
    pub const GREATER_EQUALS: &str = "_>=_";
    /// `a + b`
    pub const ADD: &str = "_+_";
    /// `a - b`
    pub const SUBTRACT: &str = "_-_";
    /// `a * b`
    pub const MULTIPLY: &str = "_*_";
    /// `a / b`
    pub const DIVIDE: &str = "_/_";
    /// `a % b`
    pub const MODULO: &str = "_%_";
    /// `-a`
    pub const NEGATE: &str = "-_";
    /// `a[b]`
    pub const INDEX: &str = "_[_]";
    /// `a[?b]`
    pub const OPT_INDEX: &str = "_[?_]";
    /// `a.?b`; the second argument is a string literal, the name of the field.
    pub const OPT_SELECT: &str = "_?._";
    /// `a in b`
    pub const IN: &str = "@in";
    /// The condition of `all` and `exists`: true for errors, so that a later element may decide.
    pub const NOT_STRICTLY_FALSE: &str = "@not_strictly_false";
    /// Adds one entry, or the entries of a map, to the accumulator of `transformMap`; a key that is there is an error.
    pub const MAP_INSERT: &str = "cel.@mapInsert";
}

/// The accumulator of the comprehensions that macros expand to.
pub const ACCUMULATOR: &str = "@result";

/// One expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The number of this expression within its program.
    pub id: ExprId,
    /// Where it begins in the source, in characters. For a binary operator or a call: where the operator or the
    /// parenthesis stands, as cel-go reports it.
    pub offset: u32,
    /// The kind of the expression.
    pub kind: ExprKind,
}

/// The forms of an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant.
    Literal(Literal),
    /// A variable: of the environment, of a comprehension, or the accumulator. Names may hold dots.
    Ident(Arc<str>),
    /// The name of a type, which is a value of its own: `type(x) == int`. Only after checking.
    TypeName(Type),
    /// `operand.field`, or `has(operand.field)`.
    Select {
        /// The object, map or dynamic value.
        operand: Box<Expr>,
        /// The field as it is written: escaped (`__namespace__`) for objects, the plain key for maps.
        field: Arc<str>,
        /// `has(…)`: whether the field is there.
        test_only: bool,
    },
    /// A function or an operator.
    Call(Call),
    /// `[a, ?b]`.
    List {
        /// The elements in order.
        elements: Vec<Expr>,
        /// Indexes of the elements that were written with `?`: optional values that are left out when they are none.
        optional: Vec<usize>,
    },
    /// `{k: v, ?k: v}`.
    Map(Vec<Entry>),
    /// `Type{field: value}`.
    Struct {
        /// The type's qualified name.
        type_name: Arc<str>,
        /// The fields; keys are string literals.
        entries: Vec<Entry>,
    },
    /// A loop with an accumulator.
    Comprehension(Box<Comprehension>),
}

/// A call of a function: `f(args)` or `target.f(args)`.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// The function's name, or one of [`op`].
    pub function: Arc<str>,
    /// The receiver, for calls in the style of a method.
    pub target: Option<Box<Expr>>,
    /// The arguments without the receiver.
    pub args: Vec<Expr>,
    /// The overloads that fit the types of the arguments, in the order of the table; more than one when types are known
    /// only at run time. Empty before checking, and for [`op::OPT_SELECT`].
    pub overloads: Vec<&'static Overload>,
}

/// An entry of a map or a field of a struct.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The number of the entry itself.
    pub id: ExprId,
    /// Where its colon stands, in characters.
    pub offset: u32,
    /// The key; for fields of structs a string literal.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Written with `?`: the value is optional, the entry is left out when it is none.
    pub optional: bool,
}

/// A loop over the elements of a list or the keys of a map.
///
/// The accumulator begins as `accu_init`; for each element, while `condition` holds, it becomes `step`; the value is
/// `result`. With one variable it is the element of a list or the key of a map; with two, index and element, or key and
/// value.
#[derive(Clone, Debug, PartialEq)]
pub struct Comprehension {
    /// The variable of the loop.
    pub iter_var: Arc<str>,
    /// The second variable, in two-variable comprehensions.
    pub iter_var2: Option<Arc<str>>,
    /// The list or map of the loop.
    pub range: Expr,
    /// The accumulator's name, mostly [`ACCUMULATOR`].
    pub accu_var: Arc<str>,
    /// The accumulator's first value, computed outside of its scope.
    pub accu_init: Expr,
    /// Whether the loop goes on.
    pub condition: Expr,
    /// The accumulator's next value.
    pub step: Expr,
    /// The value of the whole; sees the accumulator only.
    pub result: Expr,
}

/// A constant.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`
    Null,
    /// `true`, `false`
    Bool(bool),
    /// `1`, `0x1f`
    Int(i64),
    /// `1u`
    Uint(u64),
    /// `1.0`, `1e3`
    Double(f64),
    /// `'text'`
    String(Arc<str>),
    /// `b'bytes'`
    Bytes(Arc<[u8]>),
}

impl Expr {
    /// An expression.
    pub fn new(id: ExprId, offset: u32, kind: ExprKind) -> Self {
        Self { id, offset, kind }
    }

    /// The literal string that this expression is.
    pub fn as_str(&self) -> Option<&Arc<str>> {
        match &self.kind {
            ExprKind::Literal(Literal::String(text)) => Some(text),
            _ => None,
        }
    }

    /// The expressions directly below this one.
    pub fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Literal(_) | ExprKind::Ident(_) | ExprKind::TypeName(_) => Vec::new(),
            ExprKind::Select { operand, .. } => vec![operand],
            ExprKind::Call(call) => call.target.as_deref().into_iter().chain(&call.args).collect(),
            ExprKind::List { elements, .. } => elements.iter().collect(),
            ExprKind::Map(entries) | ExprKind::Struct { entries, .. } => {
                entries.iter().flat_map(|entry| [&entry.key, &entry.value]).collect()
            }
            ExprKind::Comprehension(inner) => vec![
                &inner.range,
                &inner.accu_init,
                &inner.condition,
                &inner.step,
                &inner.result,
            ],
        }
    }

    /// Calls `visit` for this expression and every one below it, outermost first.
    pub fn walk<'a>(&'a self, visit: &mut dyn FnMut(&'a Self)) {
        visit(self);
        for child in self.children() {
            child.walk(visit);
        }
    }
}
