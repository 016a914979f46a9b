//! Calls of functions: evaluating the arguments, finding the overload that fits the values, charging for it.

use super::{Error, Interpreter, cost};
use crate::ast::{Call, Expr, op};
use crate::decls::Overload;
use crate::library;
use crate::types::Type;
use crate::value::{Text, Value};
use crate::value::{convert, operators};
use crate::work::{ITEM, made};
use kubewright_values::{Minor, budget};

/// The largest text that one call may make where no request sets a limit. The budget ends far below it for all
/// functions but `replace`.
const MOST_BYTES: u64 = 64 << 20;

impl<'a> Interpreter<'a, '_> {
    pub(super) fn function(&mut self, expr: &'a Expr, call: &'a Call) -> Result<Value<'a>, Error> {
        let mut values = Vec::with_capacity(call.args.len() + 1);
        if let Some(target) = &call.target {
            values.push(self.eval(target)?);
        }
        for arg in &call.args {
            values.push(self.eval(arg)?);
        }
        if cost::is_constant(expr) {
            return made_of(self.invoke(call, &values));
        }
        self.apply(call, values)
    }

    /// Calls a function with values, and charges for it.
    pub(super) fn apply(&mut self, call: &'a Call, mut values: Vec<Value<'a>>) -> Result<Value<'a>, Error> {
        let overload = match call.overloads.as_slice() {
            [overload] => Some(overload.id),
            _ => None,
        };
        // An accumulator that is handed over grows in place.
        if let (op::ADD, [Value::List(_), Value::List(_)]) = (&*call.function, values.as_slice()) {
            self.charge(1)?;
            if let (Some(Value::List(right)), Some(Value::List(left))) = (values.pop(), values.pop()) {
                return left.concat(&right).map(Value::List);
            }
        }
        if let (op::MAP_INSERT, Some(Value::Map(_))) = (&*call.function, values.first()) {
            self.charge(1)?;
            return insert(values);
        }
        if cost::is_set_lookup(&call.function, overload, &call.args, &values) {
            return self.invoke(call, &values);
        }
        self.reserve(call, &values)?;
        let by_result = matches!(&*call.function, "join" | "slice" | "reverse" | "lists.range");
        if !by_result {
            // Before the work is done, so that the budget bounds it.
            self.charge(cost::call(&call.function, overload, &values, None))?;
            return made_of(self.invoke(call, &values));
        }
        let result = made_of(self.invoke(call, &values));
        self.charge(cost::call(&call.function, overload, &values, result.as_ref().ok()))?;
        result
    }

    /// Refuses a call that would take more memory than the budget stands for.
    fn reserve(&self, call: &Call, values: &[Value<'a>]) -> Result<(), Error> {
        if let ("lists.range", [Value::Int(count)]) = (&*call.function, values) {
            // Older versions give an empty list for a negative size, and know no largest one.
            const MOST: i64 = 1_000_000;
            let why = match *count {
                _ if self.patterns.minor() < Minor::V37 => None,
                ..0 => Some(format!("lists.range: size must be non-negative, got {count}")),
                0..=MOST => None,
                _ => Some(format!("lists.range: size {count} exceeds maximum allowed ({MOST})")),
            };
            if let Some(why) = why {
                return Err(Error::new(why));
            }
            if u64::try_from(*count).is_ok_and(|count| count > self.limit) {
                return Err(Error::CostExceeded);
            }
        }
        let size = match (&*call.function, values) {
            ("replace", [Value::String(text), Value::String(old), Value::String(new), ..]) => {
                let places = if old.is_empty() {
                    text.len() + 1
                } else {
                    text.len() / old.len()
                };
                (places as u64).saturating_mul(new.len() as u64)
            }
            (op::ADD, [Value::String(left), Value::String(right)]) => (left.len() + right.len()) as u64,
            (op::ADD, [Value::Bytes(left), Value::Bytes(right)]) => (left.len() + right.len()) as u64,
            ("split", [Value::String(text), Value::String(separator), ..]) => {
                budget::spend_on_text(text.len());
                (text.matches(&**separator).count() as u64).saturating_mul(ITEM as u64)
            }
            ("lists.range", [Value::Int(count)]) => u64::try_from(*count).unwrap_or(0).saturating_mul(ITEM as u64),
            ("join", [Value::List(list), separator @ ..]) => {
                let separator = match separator {
                    [Value::String(separator)] => separator.len() as u64,
                    _ => 0,
                };
                let length = |item: Result<Value<'a>, Error>| match item {
                    Ok(Value::String(text)) => text.len() as u64,
                    _ => 0,
                };
                list.iter()
                    .map(|item| length(item) + separator)
                    .fold(0, u64::saturating_add)
            }
            _ => 0,
        };
        budget::require(usize::try_from(size).unwrap_or(usize::MAX));
        if size > MOST_BYTES {
            return Err(Error::CostExceeded);
        }
        Ok(())
    }

    fn invoke(&self, call: &Call, values: &[Value<'a>]) -> Result<Value<'a>, Error> {
        let function = &*call.function;
        if let Some(result) = operators::apply(function, values) {
            return result;
        }
        if let ("size", [value]) = (function, values) {
            return match value.size() {
                Some(size) if !matches!(value, Value::Opaque(_)) => {
                    Ok(Value::Int(i64::try_from(size).unwrap_or(i64::MAX)))
                }
                _ => Err(operators::unsupported("size", value)),
            };
        }
        // Older versions do not look where a search for nothing begins.
        if let ("indexOf" | "lastIndexOf", [Value::String(text), Value::String(part), Value::Int(from)]) =
            (function, values)
            && part.is_empty()
            && self.patterns.minor() >= Minor::V37
        {
            let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
            return match *from {
                ..0 => Err(Error::new(format!("index out of range: {from}"))),
                from => Ok(Value::Int(from.min(length))),
            };
        }
        let texts = || values.iter().all(|value| matches!(value, Value::String(_)));
        if matches!(function, "matches" | "contains" | "startsWith" | "endsWith") && !texts() {
            return Err(Error::no_overload());
        }
        // Without the checker's overloads, as for a tree that was built by hand, every overload of the name is tried.
        let declared;
        let candidates = if call.overloads.is_empty() {
            declared = crate::decls::function(function).map_or(&[][..], |function| &function.overloads);
            declared
        } else {
            &call.overloads
        };
        let Some(overload) = candidates.iter().find(|overload| fits(overload, values)) else {
            return Err(match function {
                "sort" | "@sortByAssociatedKeys" => operators::unsupported(function, &values[0]),
                "flatten" => Error::no_overload_of(format!("{}.flatten()", values[0].type_name())),
                // With an expression that was compiled before, the function itself looks at its argument.
                "find" | "findAll" if is_constant_text(call.args.first()) => Error::no_overload(),
                _ => mismatch(function, values),
            });
        };
        if let ([value], Some(result)) = (values, values.first().and_then(|value| convert::apply(function, value))) {
            debug_assert_eq!(value.type_name(), values[0].type_name());
            return result;
        }
        library::call(overload.id, values, self.patterns).unwrap_or_else(|| Err(mismatch(function, values)))
    }
}

/// A value that a function made, counted as far as it is new: the items of a list are older, or were counted when they
/// were made.
fn made_of<'a>(result: Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
    let value = result?;
    made(match &value {
        Value::String(Text::Shared(text)) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::List(list) => list.made(),
        _ => 0,
    });
    Ok(value)
}

fn is_constant_text(arg: Option<&Expr>) -> bool {
    arg.is_some_and(|arg| arg.as_str().is_some())
}

fn insert(values: Vec<Value<'_>>) -> Result<Value<'_>, Error> {
    let mut values = values.into_iter();
    match (values.next(), values.next(), values.next()) {
        (Some(Value::Map(map)), Some(key), Some(value)) => map.insert(&key, value).map(Value::Map),
        (Some(Value::Map(mut map)), Some(Value::Map(more)), None) => {
            for entry in more.entries() {
                let (key, value) = entry?;
                map = map.insert(&key.to_value(), value)?;
            }
            Ok(Value::Map(map))
        }
        _ => Err(Error::no_overload()),
    }
}

/// `no such overload: name(types)`.
fn mismatch(function: &str, values: &[Value<'_>]) -> Error {
    let types: Vec<&str> = values.iter().map(Value::type_name).collect();
    Error::no_overload_of(format!("{function}({})", types.join(", ")))
}

fn fits(overload: &Overload, values: &[Value<'_>]) -> bool {
    // These look at the elements themselves.
    let unguarded = matches!(overload.function, "flatten" | "sort" | "@sortByAssociatedKeys");
    let takes = |(ty, value): (&Type, &Value<'_>)| match value {
        Value::List(_) if unguarded => matches!(ty, Type::List(_)),
        value => takes(ty, value),
    };
    overload.args.len() == values.len() && overload.args.iter().zip(values).all(takes)
}

/// Whether a parameter takes a value. Of lists and maps the first element tells.
fn takes(ty: &Type, value: &Value<'_>) -> bool {
    match (ty, value) {
        (Type::Dyn | Type::Param(_) | Type::Error, _) => true,
        (Type::List(element), Value::List(list)) => match list.get(0) {
            Some(Ok(first)) => takes(element, &first),
            _ => true,
        },
        (Type::Map(key, element), Value::Map(map)) => match map.entries().next() {
            Some(Ok((first, value))) => takes(key, &first.to_value()) && takes(element, &value),
            _ => true,
        },
        (Type::Optional(_), Value::Optional(_)) => true,
        (ty, value) => ty.name() == value.type_name(),
    }
}
