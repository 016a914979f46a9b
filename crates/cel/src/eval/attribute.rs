//! Variables with the fields and indexes behind them.
//!
//! `a.b[c].?d` is one attribute: a variable (or any expression) and a chain of qualifiers. Behind the first optional
//! qualifier the chain ends at a missing value, and the result is optional.

use super::{Error, Interpreter};
use crate::ast::{Expr, ExprKind, op};
use crate::value::{List, Text, Value};

/// One step of a chain.
struct Qualifier<'a> {
    key: Key<'a>,
    optional: bool,
    test_only: bool,
}

/// The key of a step.
enum Key<'a> {
    Field(&'a str),
    Index(&'a Expr),
}

/// The expression that the chain begins with, and the steps in order.
fn chain(mut expr: &Expr) -> (&Expr, Vec<Qualifier<'_>>) {
    let mut qualifiers = Vec::new();
    loop {
        let (operand, qualifier) = match &expr.kind {
            ExprKind::Select {
                operand,
                field,
                test_only,
            } => (
                &**operand,
                Qualifier {
                    key: Key::Field(field),
                    optional: false,
                    test_only: *test_only,
                },
            ),
            ExprKind::Call(call) => match (&*call.function, call.args.as_slice()) {
                (op::INDEX | op::OPT_INDEX | op::OPT_SELECT, [operand, index]) => (
                    operand,
                    Qualifier {
                        key: Key::Index(index),
                        optional: &*call.function != op::INDEX,
                        test_only: false,
                    },
                ),
                _ => break,
            },
            _ => break,
        };
        qualifiers.push(qualifier);
        expr = operand;
    }
    qualifiers.reverse();
    (expr, qualifiers)
}

impl<'a> Interpreter<'a, '_> {
    /// The value of a variable, a chain, or `a ? b : c`.
    pub(super) fn attribute(&mut self, expr: &'a Expr) -> Result<Value<'a>, Error> {
        let (base, qualifiers) = chain(expr);
        // `has(…)` and the conditional itself are free.
        let tested = qualifiers.last().is_some_and(|last| last.test_only);
        let conditional = matches!(&base.kind, ExprKind::Call(call) if &*call.function == op::CONDITIONAL);
        let value = self.resolve(base, &qualifiers)?;
        if !tested && !conditional {
            self.charge(1)?;
        }
        match value {
            Value::Optional(value) if tested => Ok(Value::Bool(value.is_some())),
            value => Ok(value),
        }
    }

    /// As [`attribute`](Self::attribute), but free for itself: branches of a conditional and indexes.
    fn part(&mut self, expr: &'a Expr) -> Result<Value<'a>, Error> {
        let (base, qualifiers) = chain(expr);
        let bare = qualifiers.is_empty() && !matches!(&base.kind, ExprKind::Ident(_));
        let conditional = matches!(&base.kind, ExprKind::Call(call) if &*call.function == op::CONDITIONAL);
        if bare && !conditional {
            return self.eval(expr);
        }
        if qualifiers.last().is_some_and(|last| last.test_only) {
            return self.attribute(expr);
        }
        self.resolve(base, &qualifiers)
    }

    fn resolve(&mut self, base: &'a Expr, qualifiers: &[Qualifier<'a>]) -> Result<Value<'a>, Error> {
        let value = match &base.kind {
            ExprKind::Ident(name) => self.lookup(name)?,
            ExprKind::Call(call) if &*call.function == op::CONDITIONAL => {
                let [condition, truthy, falsy] = call.args.as_slice() else {
                    return Err(Error::no_overload());
                };
                match self.eval(condition)? {
                    Value::Bool(true) => self.branch(truthy)?,
                    Value::Bool(false) => self.branch(falsy)?,
                    _ => return Err(Error::no_overload()),
                }
            }
            _ => self.eval(base)?,
        };
        self.qualify(value, qualifiers)
    }

    fn branch(&mut self, expr: &'a Expr) -> Result<Value<'a>, Error> {
        if self.depth >= super::MAX_DEPTH {
            return Err(Error::TooDeep);
        }
        self.depth += 1;
        let value = self.part(expr);
        self.depth -= 1;
        value
    }

    fn qualify(&mut self, value: Value<'a>, qualifiers: &[Qualifier<'a>]) -> Result<Value<'a>, Error> {
        if qualifiers.is_empty() {
            return Ok(value);
        }
        let mut optional = false;
        let mut value = match value {
            Value::Optional(None) => return Ok(Value::Optional(None)),
            Value::Optional(Some(inner)) => {
                optional = true;
                (*inner).clone()
            }
            other => other,
        };
        for qualifier in qualifiers {
            optional |= qualifier.optional;
            let key = match qualifier.key {
                Key::Field(name) => Value::String(Text::Borrowed(name)),
                Key::Index(index) => self.branch(index)?,
            };
            if qualifier.test_only {
                self.charge(1)?;
                let found = find(&value, &key, true)?;
                value = Value::Bool(found.is_some());
                if optional {
                    return Ok(Value::Optional(found.map(Into::into)));
                }
                continue;
            }
            match find(&value, &key, optional) {
                Ok(Some(found)) => {
                    self.charge(1)?;
                    value = found;
                }
                Ok(None) => return Ok(Value::Optional(None)),
                Err(error) => {
                    self.charge(1)?;
                    return Err(error);
                }
            }
        }
        Ok(if optional { Value::some(value) } else { value })
    }
}

/// The value at a key. A missing one is an error unless its presence is the question.
fn find<'a>(value: &Value<'a>, key: &Value<'a>, presence: bool) -> Result<Option<Value<'a>>, Error> {
    let found = match value {
        Value::Map(map) => map.get(key)?,
        Value::List(list) => return item(list, key, presence),
        Value::Object(object) => {
            let Value::String(name) = key else {
                return Err(Error::new(format!("unsupported indexer: {key}")));
            };
            match object.field(name) {
                Some(value) => Some(value.clone()),
                None if presence => None,
                None => Some(Value::Null),
            }
        }
        _ => None,
    };
    match found {
        None if !presence => Err(Error::new(format!("no such key: {key}"))),
        found => Ok(found),
    }
}

fn item<'a>(list: &List<'a>, key: &Value<'a>, presence: bool) -> Result<Option<Value<'a>>, Error> {
    let unsupported = || Error::new(format!("unsupported index value {key} in list"));
    let index = match key {
        Value::Int(index) => *index,
        // Lists with a schema take nothing else.
        other @ (Value::Uint(_) | Value::Double(_)) if list.is_declared() => {
            return Err(Error::new(format!("unsupported index: {other}")));
        }
        Value::Uint(index) => i64::try_from(*index).map_err(|_| unsupported())?,
        Value::Double(index) => crate::value::convert::lossless_int(*index).ok_or_else(unsupported)?,
        other => {
            return Err(Error::new(format!(
                "unsupported index type '{}' in list",
                other.type_name()
            )));
        }
    };
    match usize::try_from(index).ok().and_then(|index| list.get(index)) {
        Some(item) => item.map(Some),
        None if presence => Ok(None),
        None => Err(Error::new(format!("index out of bounds: {key}"))),
    }
}
