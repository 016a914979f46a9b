//! Computing the value of an expression.
//!
//! The interpreter walks the checked tree. Everything that it does is charged as Kubernetes charges it ([`cost`]): one
//! for a variable, a field or an index, for functions as much as they traverse. An evaluation that costs more than
//! [`PER_CALL_LIMIT`] ends with [`Error::CostExceeded`]; a caller that evaluates several expressions for one request
//! keeps the remaining budget ([`RUNTIME_BUDGET`]) and hands it in.
//!
//! ```
//! use kubewright_cel::eval::{Bindings, PER_CALL_LIMIT, Patterns, evaluate};
//! use kubewright_cel::types::{Decl, Type};
//! use kubewright_cel::value::Value;
//! use kubewright_cel::{Environment, compile};
//! use serde_json::json;
//!
//! let environment = Environment::new().variable("object", Decl::new(Type::Dyn));
//! let program = compile("object.spec.replicas + 1", &environment).expect("it is well typed");
//! let object = json!({"spec": {"replicas": 2}});
//!
//! let variables = Bindings::new().with("object", Value::from_json(&object));
//! let patterns = Patterns::default(); // kept as long as the rules are
//! let outcome = evaluate(&program, &variables, &patterns, PER_CALL_LIMIT);
//! assert_eq!(outcome.result.expect("both are numbers").to_string(), "3");
//! assert_eq!(outcome.cost, 4);
//!
//! let empty = json!({});
//! let variables = Bindings::new().with("object", Value::from_json(&empty));
//! let error = evaluate(&program, &variables, &patterns, PER_CALL_LIMIT).result.expect_err("there is no spec");
//! assert_eq!(error.to_string(), "no such key: spec");
//! ```
//!
//! Invariants: no input makes it panic; the stack is bounded by a limit on nesting, memory by the budget.

mod attribute;
pub mod cost;
mod dispatch;
mod fold;
#[cfg(test)]
mod tests;

use kubewright_values::{Minor, budget};

use super::Program;
use super::ast::{Call, Entry, Expr, ExprKind, Literal, op};
use super::value::{Key, List, Map, Text, Value};
use crate::work::{ITEM, made};
use std::collections::BTreeMap;
use std::rc::Rc;

pub use super::error::Error;
pub use super::library::regex::Patterns;
pub use super::value::{compare, equal};
pub use cost::{MATCH_CONDITIONS_BUDGET, OUT_OF_BUDGET, PER_CALL_LIMIT, RUNTIME_BUDGET};

/// The variables that expressions may name.
pub trait Variables<'a> {
    /// The value of a variable; none when it is not known.
    fn get(&self, name: &str) -> Option<Result<Value<'a>, Error>>;
}

/// Variables with values that are known before the evaluation.
#[derive(Clone, Debug, Default)]
pub struct Bindings<'a>(BTreeMap<String, Value<'a>>);

impl<'a> Bindings<'a> {
    /// No variables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a variable.
    #[must_use]
    pub fn with(mut self, name: &str, value: Value<'a>) -> Self {
        self.0.insert(name.to_owned(), value);
        self
    }
}

impl<'a> Variables<'a> for Bindings<'a> {
    fn get(&self, name: &str) -> Option<Result<Value<'a>, Error>> {
        self.0.get(name).cloned().map(Ok)
    }
}

/// The result of an evaluation, with its cost.
#[derive(Clone, Debug)]
pub struct Outcome<'a> {
    /// The value, or why there is none.
    pub result: Result<Value<'a>, Error>,
    /// The cost of the evaluation, to be taken from the budget of the request.
    pub cost: u64,
}

/// Evaluates a program that may cost up to `limit`, mostly [`PER_CALL_LIMIT`]. Regular expressions are compiled once
/// for `patterns`.
pub fn evaluate<'a>(
    program: &'a Program,
    variables: &dyn Variables<'a>,
    patterns: &Patterns,
    limit: u64,
) -> Outcome<'a> {
    evaluate_expr(program.expr(), variables, patterns, limit)
}

/// Evaluates a tree that was checked.
pub(crate) fn evaluate_expr<'a>(
    expr: &'a Expr,
    variables: &dyn Variables<'a>,
    patterns: &Patterns,
    limit: u64,
) -> Outcome<'a> {
    let mut interpreter = Interpreter {
        variables,
        patterns,
        scopes: Vec::new(),
        depth: 0,
        cost: 0,
        limit,
    };
    let result = interpreter.eval(expr);
    Outcome {
        result,
        cost: interpreter.cost,
    }
}

/// Whether a program can be run at all: computes the parts that depend on constants only, as the API server does when a
/// rule is written (`int('x')`, `'a'.matches('[')`).
///
/// # Errors
/// The error of the constant.
pub fn instantiate(program: &Program) -> Result<(), Error> {
    let (none, patterns) = (Bindings::new(), Patterns::default());
    let mut failed = None;
    program.expr().walk(&mut |expr| {
        if failed.is_some() {
            return;
        }
        let ExprKind::Call(call) = &expr.kind else { return };
        if cost::is_constant(expr) {
            failed = evaluate_expr(expr, &none, &patterns, PER_CALL_LIMIT).result.err();
        } else if matches!(&*call.function, "matches" | "find" | "findAll") {
            let pattern = if call.target.is_some() {
                call.args.first()
            } else {
                call.args.get(1)
            };
            let Some(pattern) = pattern.filter(|pattern| cost::is_constant(pattern)) else {
                return;
            };
            failed = match evaluate_expr(pattern, &none, &patterns, PER_CALL_LIMIT).result {
                Ok(Value::String(pattern)) => crate::library::regex::compile(&pattern).err().map(Error::new),
                Ok(_) => None,
                Err(error) => Some(error),
            };
        }
    });
    failed.map_or(Ok(()), Err)
}

/// Deeper than any expression that the parser lets through.
const MAX_DEPTH: u32 = 600;

/// One evaluation.
struct Interpreter<'a, 'v> {
    variables: &'v dyn Variables<'a>,
    patterns: &'v Patterns,
    /// The variables of the loops around, innermost last. An accumulator may hold an error that a later step overrules.
    scopes: Vec<(&'a str, Result<Value<'a>, Error>)>,
    depth: u32,
    cost: u64,
    limit: u64,
}

impl<'a> Interpreter<'a, '_> {
    fn charge(&mut self, cost: u64) -> Result<(), Error> {
        self.cost = self.cost.saturating_add(cost);
        if self.cost > self.limit {
            return Err(Error::CostExceeded);
        }
        Ok(())
    }

    fn eval(&mut self, expr: &'a Expr) -> Result<Value<'a>, Error> {
        budget::spend(8);
        if self.depth >= MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let value = self.eval_kind(expr);
        self.depth -= 1;
        value
    }

    fn eval_kind(&mut self, expr: &'a Expr) -> Result<Value<'a>, Error> {
        match &expr.kind {
            ExprKind::Literal(literal) => Ok(constant(literal)),
            ExprKind::TypeName(named) => Ok(Value::Type(Text::Borrowed(named.name()))),
            ExprKind::Ident(_) | ExprKind::Select { .. } => self.attribute(expr),
            ExprKind::Call(call) => self.call(expr, call),
            ExprKind::List { elements, optional } => self.list(expr, elements, optional),
            ExprKind::Map(entries) => self.map(expr, entries),
            ExprKind::Struct { type_name, entries } => self.object(type_name, entries),
            ExprKind::Comprehension(comprehension) => self.fold(comprehension),
        }
    }

    fn lookup(&self, name: &str) -> Result<Value<'a>, Error> {
        if let Some((_, value)) = self.scopes.iter().rev().find(|(known, _)| *known == name) {
            return value.clone();
        }
        self.variables
            .get(name)
            .unwrap_or_else(|| Err(Error::new(format!("no such attribute(s): {name}"))))
    }

    fn call(&mut self, expr: &'a Expr, call: &'a Call) -> Result<Value<'a>, Error> {
        match &*call.function {
            op::AND | op::OR => self.logical(call),
            op::CONDITIONAL | op::INDEX | op::OPT_INDEX | op::OPT_SELECT => self.attribute(expr),
            "or" | "orValue" if call.target.is_some() => self.alternative(call),
            op::NOT_STRICTLY_FALSE => self.not_strictly_false(call),
            _ => self.function(expr, call),
        }
    }

    /// `&&` and `||`: one side may decide although the other fails.
    fn logical(&mut self, call: &'a Call) -> Result<Value<'a>, Error> {
        let decides = &*call.function == op::OR;
        let mut failed = None;
        for term in &call.args {
            match self.eval(term) {
                Ok(Value::Bool(value)) if value == decides => return Ok(Value::Bool(decides)),
                Ok(Value::Bool(_)) => {}
                Ok(_) => failed = failed.or_else(|| Some(Error::no_overload())),
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(Value::Bool(!decides)), Err)
    }

    /// `a.or(b)` and `a.orValue(b)`: the second is only computed when the first is none. Free.
    fn alternative(&mut self, call: &'a Call) -> Result<Value<'a>, Error> {
        let (Some(target), [other]) = (&call.target, call.args.as_slice()) else {
            return Err(Error::no_overload());
        };
        match self.eval(target)? {
            Value::Optional(None) => self.eval(other),
            Value::Optional(Some(value)) if &*call.function == "orValue" => Ok((*value).clone()),
            // Older versions take anything else for the value that is there.
            value @ Value::Optional(_) => Ok(value),
            value if self.patterns.minor() < Minor::V37 => Ok(value),
            _ => Err(Error::no_overload()),
        }
    }

    fn not_strictly_false(&mut self, call: &'a Call) -> Result<Value<'a>, Error> {
        let value = match call.args.first().map(|arg| self.eval(arg)) {
            Some(Err(error)) if error.is_fatal() => return Err(error),
            Some(Ok(Value::Bool(value))) => value,
            _ => true,
        };
        self.charge(1)?;
        Ok(Value::Bool(value))
    }

    fn list(&mut self, expr: &'a Expr, elements: &'a [Expr], optional: &[usize]) -> Result<Value<'a>, Error> {
        made(ITEM * elements.len());
        let mut values = Vec::with_capacity(elements.len());
        for (at, element) in elements.iter().enumerate() {
            let value = self.eval(element)?;
            if optional.binary_search(&at).is_err() {
                values.push(value);
                continue;
            }
            match value {
                Value::Optional(Some(value)) => values.push((*value).clone()),
                Value::Optional(None) => {}
                other => {
                    return Err(Error::new(format!(
                        "cannot initialize optional list element from non-optional value {other}"
                    )));
                }
            }
        }
        if !cost::is_constant(expr) {
            self.charge(cost::LIST_CREATION)?;
        }
        Ok(Value::List(List::new(values)))
    }

    fn map(&mut self, expr: &'a Expr, entries: &'a [Entry]) -> Result<Value<'a>, Error> {
        made(kubewright_values::measure::map_held(entries.len()) + ITEM * entries.len());
        let mut values = BTreeMap::new();
        for entry in entries {
            let key = self.eval(&entry.key)?;
            let value = self.eval(&entry.value)?;
            let known = Key::from_value(&key)
                .ok_or_else(|| Error::new(format!("unsupported key type: {}", key.type_name())))?;
            match present(entry, &key, value)? {
                Some(value) => {
                    values.insert(known, value);
                }
                None => {
                    values.remove(&known);
                }
            }
        }
        if !cost::is_constant(expr) {
            self.charge(cost::MAP_CREATION)?;
        }
        Ok(Value::Map(Map::new(values)))
    }

    fn object(&mut self, type_name: &'a str, entries: &'a [Entry]) -> Result<Value<'a>, Error> {
        made(kubewright_values::measure::map_held(entries.len()) + ITEM * entries.len());
        let mut fields = BTreeMap::new();
        for entry in entries {
            let Some(name) = entry.key.as_str() else {
                return Err(Error::new("a field is named by a string"));
            };
            let value = self.eval(&entry.value)?;
            let key = Value::String(Text::Borrowed(name));
            match present(entry, &key, value)? {
                Some(value) => {
                    fields.insert(Text::Borrowed(name), value);
                }
                None => {
                    fields.remove(&Text::Borrowed(name));
                }
            }
        }
        self.charge(cost::OBJECT_CREATION)?;
        super::library::objects::construct(type_name, fields).map(|object| Value::Object(Rc::new(object)))
    }
}

/// The value of an entry, unless it was written with `?` and is none.
fn present<'a>(entry: &Entry, key: &Value<'a>, value: Value<'a>) -> Result<Option<Value<'a>>, Error> {
    match value {
        value if !entry.optional => Ok(Some(value)),
        Value::Optional(value) => Ok(value.map(|value| (*value).clone())),
        other => Err(Error::new(format!(
            "cannot initialize optional entry '{key}' from non-optional value {other}"
        ))),
    }
}

fn constant(literal: &Literal) -> Value<'_> {
    match literal {
        Literal::Null => Value::Null,
        Literal::Bool(value) => Value::Bool(*value),
        Literal::Int(value) => Value::Int(*value),
        Literal::Uint(value) => Value::Uint(*value),
        Literal::Double(value) => Value::Double(*value),
        Literal::String(text) => Value::String(Text::Borrowed(text)),
        Literal::Bytes(bytes) => Value::Bytes(Rc::from(&**bytes)),
    }
}
