//! Loops: the expansions of the macros `all`, `exists`, `map`, …

use super::{Error, Interpreter};
use crate::ast::{Call, Comprehension, Expr, ExprKind, op};
use crate::value::Value;

/// The items of a loop.
enum Range<'a> {
    List(Vec<Result<Value<'a>, Error>>),
    Entries(Vec<(Value<'a>, Result<Value<'a>, Error>)>),
}

impl<'a> Interpreter<'a, '_> {
    pub(super) fn fold(&mut self, fold: &'a Comprehension) -> Result<Value<'a>, Error> {
        let range = self.eval(&fold.range)?;
        let range = entries(&range, fold.iter_var2.is_some())?;
        let accumulator = self.eval(&fold.accu_init);
        if let Err(error) = &accumulator
            && error.is_fatal()
        {
            return accumulator;
        }
        let scope = self.scopes.len();
        self.scopes.push((&fold.accu_var, accumulator));
        let looped = match range {
            Range::List(items) => items
                .into_iter()
                .try_for_each(|item| self.turn(fold, scope, [Some(item), None])),
            Range::Entries(entries) => entries
                .into_iter()
                .try_for_each(|(key, value)| self.turn(fold, scope, [Some(Ok(key)), Some(value)])),
        };
        self.scopes.truncate(scope + 1);
        let result = match looped {
            Ok(()) | Err(Stop::Condition) => self.eval(&fold.result),
            Err(Stop::Fatal(error)) => Err(error),
        };
        self.scopes.truncate(scope);
        result
    }

    /// One turn of the loop.
    fn turn(
        &mut self,
        fold: &'a Comprehension,
        scope: usize,
        [first, second]: [Option<Result<Value<'a>, Error>>; 2],
    ) -> Result<(), Stop> {
        self.scopes.truncate(scope + 1);
        if let Some(value) = first {
            self.scopes.push((&fold.iter_var, value));
        }
        if let (Some(value), Some(name)) = (second, &fold.iter_var2) {
            self.scopes.push((name, value));
        }
        match self.eval(&fold.condition) {
            Ok(Value::Bool(false)) => return Err(Stop::Condition),
            Err(error) if error.is_fatal() => return Err(Stop::Fatal(error)),
            _ => {}
        }
        let next = self.step(&fold.step, scope);
        if let Err(error) = &next
            && error.is_fatal()
        {
            return Err(Stop::Fatal(error.clone()));
        }
        self.scopes[scope].1 = next;
        Ok(())
    }

    /// The accumulator's next value. Where the step adds to the accumulator, it is taken out of its scope first, so
    /// that it grows in place: a list that is copied in each turn would take quadratic time.
    fn step(&mut self, step: &'a Expr, scope: usize) -> Result<Value<'a>, Error> {
        if let ExprKind::Call(call) = &step.kind {
            match (&*call.function, call.args.as_slice()) {
                (op::CONDITIONAL, [condition, truthy, falsy]) => {
                    return match self.eval(condition)? {
                        Value::Bool(true) => self.conditional_step(truthy, scope),
                        Value::Bool(false) => self.conditional_step(falsy, scope),
                        _ => Err(Error::no_overload()),
                    };
                }
                (op::ADD | op::MAP_INSERT, [first, rest @ ..]) if self.is_accumulator(first, scope) => {
                    return self.grow(call, rest, scope);
                }
                _ => {}
            }
        }
        self.eval(step)
    }

    fn conditional_step(&mut self, step: &'a Expr, scope: usize) -> Result<Value<'a>, Error> {
        if self.is_accumulator(step, scope) {
            return self.take(scope);
        }
        self.step(step, scope)
    }

    fn grow(&mut self, call: &'a Call, rest: &'a [Expr], scope: usize) -> Result<Value<'a>, Error> {
        self.charge(1)?;
        let mut values = vec![Value::Null];
        for arg in rest {
            values.push(self.eval(arg)?);
        }
        values[0] = self.take(scope)?;
        self.apply(call, values)
    }

    fn is_accumulator(&self, expr: &Expr, scope: usize) -> bool {
        matches!(&expr.kind, ExprKind::Ident(name) if **name == *self.scopes[scope].0
            && self.scopes[scope + 1..].iter().all(|(known, _)| *known != &**name))
    }

    fn take(&mut self, scope: usize) -> Result<Value<'a>, Error> {
        std::mem::replace(&mut self.scopes[scope].1, Ok(Value::Null))
    }
}

/// Why a loop ends early.
enum Stop {
    Condition,
    Fatal(Error),
}

fn entries<'a>(range: &Value<'a>, two: bool) -> Result<Range<'a>, Error> {
    crate::work::worked(
        range
            .size()
            .map_or(0, |size| usize::try_from(size).unwrap_or(usize::MAX)),
    )?;
    let index = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
    Ok(match range {
        Value::List(list) if two => {
            Range::Entries(list.iter().enumerate().map(|(at, item)| (index(at), item)).collect())
        }
        Value::List(list) => Range::List(list.iter().collect()),
        Value::Map(map) if two => Range::Entries(
            map.keys()
                .into_iter()
                .map(|key| {
                    let key = key.to_value();
                    let value = map.get(&key).map(|value| value.unwrap_or(Value::Null));
                    (key, value)
                })
                .collect(),
        ),
        Value::Map(map) => Range::List(map.keys().iter().map(|key| Ok(key.to_value())).collect()),
        other if two => {
            let message = format!("unsupported comprehension range type: {}", go_type(other));
            return Err(Error::new(message));
        }
        other => {
            return Err(Error::new(format!("got '{}', expected iterable type", go_type(other))));
        }
    })
}

/// The type of a value as Go prints it.
fn go_type(value: &Value<'_>) -> String {
    match value {
        Value::Null => "types.Null".into(),
        Value::Bool(_) => "types.Bool".into(),
        Value::Int(_) => "types.Int".into(),
        Value::Uint(_) => "types.Uint".into(),
        Value::Double(_) => "types.Double".into(),
        Value::String(_) => "types.String".into(),
        Value::Bytes(_) => "types.Bytes".into(),
        Value::Duration(_) => "types.Duration".into(),
        Value::Timestamp(_) => "types.Timestamp".into(),
        Value::Optional(_) => "*types.Optional".into(),
        other => other.type_name().to_owned(),
    }
}
