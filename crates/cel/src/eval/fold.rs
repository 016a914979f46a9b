//! Loops: the expansions of the macros `all`, `exists`, `map`, …

use kubewright_values::budget;

use super::{Error, Interpreter};
use crate::ast::{Call, Comprehension, Expr, ExprKind, op};
use crate::value::Value;

/// Steps of an iteration, whatever is evaluated in it.
const ITERATION: usize = 2;

/// The one variable of a loop in an iteration, or its two. Made one iteration at a time: most loops over much end
/// early.
type LoopVariables<'a> = [Option<Result<Value<'a>, Error>>; 2];

impl<'a> Interpreter<'a, '_> {
    pub(super) fn fold(&mut self, fold: &'a Comprehension) -> Result<Value<'a>, Error> {
        let range = self.eval(&fold.range)?;
        let mut iterations = iterations(&range, fold.iter_var2.is_some())?;
        let accumulator = self.eval(&fold.accu_init);
        if let Err(error) = &accumulator
            && error.is_fatal()
        {
            return accumulator;
        }
        let scope = self.scopes.len();
        self.scopes.push((&fold.accu_var, accumulator));
        let looped = iterations.try_for_each(|iteration| self.iteration(fold, scope, iteration));
        self.scopes.truncate(scope + 1);
        let result = match looped {
            Ok(()) | Err(Stop::Condition) => self.eval(&fold.result),
            Err(Stop::Fatal(error)) => Err(error),
        };
        self.scopes.truncate(scope);
        result
    }

    /// One iteration of the loop.
    fn iteration(
        &mut self,
        fold: &'a Comprehension,
        scope: usize,
        [first, second]: LoopVariables<'a>,
    ) -> Result<(), Stop> {
        budget::spend(ITERATION);
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
    /// that it grows in place: a list that is copied in each iteration would take quadratic time.
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

/// The iterations of a loop over a value.
fn iterations<'r, 'a>(
    range: &'r Value<'a>,
    two: bool,
) -> Result<Box<dyn Iterator<Item = LoopVariables<'a>> + 'r>, Error> {
    let index = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
    let pair = |key: Value<'a>, value| [Some(Ok(key)), Some(value)];
    Ok(match range {
        Value::List(list) if two => {
            let items = list.iter().enumerate();
            Box::new(items.map(move |(at, item)| pair(index(at), item)))
        }
        Value::List(list) => Box::new(list.iter().map(|item| [Some(item), None])),
        Value::Map(map) if two => Box::new(map.iter_keys().map(move |key| {
            let key = key.to_value();
            let value = map.get(&key).map(|value| value.unwrap_or(Value::Null));
            pair(key, value)
        })),
        Value::Map(map) => Box::new(map.iter_keys().map(|key| [Some(Ok(key.to_value())), None])),
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
