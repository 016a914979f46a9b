//! Operators: equality, order, arithmetic, membership. Which one applies is told by the values, not by declared types.

use std::cmp::Ordering;

use crate::ast::op;
use crate::error::Error;
use crate::value::number::Number;
use crate::value::{Text, Value};
use kubewright_values::budget;

/// The steps to compare two values: both are taken out of their containers, and their contents are shared for a while.
const EQUALITY: usize = 5;

/// `a == b`. Values of different types are not equal, but for numbers, which are equal when they are the same number.
///
/// # Errors
/// Values that cannot be compared, such as a quantity with an address.
pub fn equal<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<bool, Error> {
    budget::spend(EQUALITY);
    Ok(match (left, right) {
        (Value::Null, Value::Null) => true,
        (Value::Null, _) | (_, Value::Null) => false,
        (Value::Bool(a), Value::Bool(b)) => a == b,
        (Value::String(a), Value::String(b)) | (Value::Type(a), Value::Type(b)) => {
            if a.len() == b.len() {
                budget::spend_on_text(a.len());
            }
            a == b
        }
        (Value::Bytes(a), Value::Bytes(b)) => a == b,
        (Value::Duration(a), Value::Duration(b)) => a == b,
        (Value::Timestamp(a), Value::Timestamp(b)) => a == b,
        (Value::List(a), Value::List(b)) => return a.equals(b),
        (Value::Map(a), Value::Map(b)) => return a.equals(b),
        (Value::Optional(Some(a)), Value::Optional(Some(b))) => return equal(a, b),
        (Value::Optional(a), Value::Optional(b)) => a.is_none() && b.is_none(),
        (Value::Object(a), Value::Object(b)) => {
            if a.type_name != b.type_name || a.fields.len() != b.fields.len() {
                return Ok(false);
            }
            for ((name, mine), (other, theirs)) in a.fields.iter().zip(&b.fields) {
                if name != other || !equal(mine, theirs)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Opaque(a), Value::Opaque(b)) => a.equals(b).ok_or_else(Error::no_overload)?,
        (Value::Opaque(_), _) => return Err(Error::no_overload()),
        // A value with a schema refuses to be compared with another type.
        (Value::List(list), _) if list.is_declared() => return Err(Error::no_overload()),
        (Value::Map(map), _) if map.is_declared() => return Err(Error::no_overload()),
        _ => match (number(left), number(right)) {
            (Some(a), Some(b)) => a.approximate_order(b) == Some(Ordering::Equal),
            _ => false,
        },
    })
}

fn number(value: &Value<'_>) -> Option<Number> {
    match value {
        Value::Int(value) => Some(Number::Whole(i128::from(*value))),
        Value::Uint(value) => Some(Number::Whole(i128::from(*value))),
        Value::Double(value) => Some(Number::Double(*value)),
        _ => None,
    }
}

/// The order of two values.
///
/// # Errors
/// `no such overload` for values without an order, `NaN values cannot be ordered`.
pub fn compare(left: &Value<'_>, right: &Value<'_>) -> Result<Ordering, Error> {
    if let (Some(a), Some(b)) = (number(left), number(right)) {
        return a
            .approximate_order(b)
            .ok_or_else(|| Error::new("NaN values cannot be ordered"));
    }
    match (left, right) {
        (Value::Bool(a), Value::Bool(b)) => Ok(a.cmp(b)),
        (Value::String(a), Value::String(b)) => {
            budget::spend_on_text(a.len().min(b.len()));
            Ok(a.cmp(b))
        }
        (Value::Bytes(a), Value::Bytes(b)) => Ok(a.cmp(b)),
        (Value::Duration(a), Value::Duration(b)) => Ok(a.cmp(b)),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.partial_cmp(b).ok_or_else(Error::no_overload),
        _ => Err(Error::no_overload()),
    }
}

/// Whether values of this type have an order.
pub(crate) fn is_ordered(value: &Value<'_>) -> bool {
    matches!(
        value,
        Value::Bool(_)
            | Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::Duration(_)
            | Value::Timestamp(_)
    )
}

/// An operator of one or two operands; none when `function` is no operator.
pub(crate) fn apply<'a>(function: &str, args: &[Value<'a>]) -> Option<Result<Value<'a>, Error>> {
    let ordering = |accepts: fn(Ordering) -> bool, left: &Value<'a>, right: &Value<'a>| {
        if !is_ordered(left) {
            return Err(unsupported(function, left));
        }
        compare(left, right).map(|order| Value::Bool(accepts(order)))
    };
    Some(match (function, args) {
        (op::EQUALS, [a, b]) => equal(a, b).map(Value::Bool),
        // Values that cannot be compared are not equal.
        (op::NOT_EQUALS, [a, b]) => Ok(Value::Bool(!matches!(equal(a, b), Ok(true)))),
        (op::LESS, [a, b]) => ordering(Ordering::is_lt, a, b),
        (op::LESS_EQUALS, [a, b]) => ordering(Ordering::is_le, a, b),
        (op::GREATER, [a, b]) => ordering(Ordering::is_gt, a, b),
        (op::GREATER_EQUALS, [a, b]) => ordering(Ordering::is_ge, a, b),
        (op::IN, [element, container]) => contains(element, container),
        (op::NOT, [Value::Bool(value)]) => Ok(Value::Bool(!value)),
        (op::NOT, [_]) => Err(Error::no_overload()),
        (op::NEGATE, [value]) => negate(value),
        (op::ADD, [a, b]) => add(a, b),
        (op::SUBTRACT, [a, b]) => subtract(a, b),
        (op::MULTIPLY, [a, b]) => multiply(a, b),
        (op::DIVIDE, [a, b]) => divide(a, b),
        (op::MODULO, [a, b]) => modulo(a, b),
        _ => return None,
    })
}

/// cel-go names the operator where the first operand's type has no such operator at all, unless that type takes calls
/// of methods.
pub(crate) fn unsupported(function: &str, operand: &Value<'_>) -> Error {
    match operand {
        Value::String(_) | Value::Duration(_) | Value::Timestamp(_) => Error::no_overload(),
        // A truth can be negated, with another operator.
        Value::Bool(_) if function == op::NEGATE => Error::no_overload(),
        _ => Error::no_overload_of(function),
    }
}

fn contains<'a>(element: &Value<'a>, container: &Value<'a>) -> Result<Value<'a>, Error> {
    match container {
        Value::List(list) => list.contains(element).map(Value::Bool),
        Value::Map(map) => map.get(element).map(|found| Value::Bool(found.is_some())),
        _ => Err(Error::no_overload()),
    }
}

fn negate<'a>(value: &Value<'a>) -> Result<Value<'a>, Error> {
    match value {
        Value::Int(value) => value.checked_neg().map(Value::Int).ok_or_else(Error::overflow),
        Value::Double(value) => Ok(Value::Double(-value)),
        Value::Duration(value) => value.negate().map(Value::Duration),
        other => Err(unsupported(op::NEGATE, other)),
    }
}

fn uint_overflow() -> Error {
    Error::new("unsigned integer overflow")
}

fn int<'a>(value: Option<i64>) -> Result<Value<'a>, Error> {
    value.map(Value::Int).ok_or_else(Error::overflow)
}

fn uint<'a>(value: Option<u64>) -> Result<Value<'a>, Error> {
    value.map(Value::Uint).ok_or_else(uint_overflow)
}

pub(crate) fn add<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Error> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_add(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_add(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a + b)),
        (Value::String(a), Value::String(b)) => {
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Ok(Value::String(Text::from(text)))
        }
        (Value::Bytes(a), Value::Bytes(b)) => Ok(Value::Bytes([&**a, &**b].concat().into())),
        (Value::List(a), Value::List(b)) => a.clone().concat(b).map(Value::List),
        (Value::Duration(a), Value::Duration(b)) => a.add(*b).map(Value::Duration),
        (Value::Duration(span), Value::Timestamp(time)) | (Value::Timestamp(time), Value::Duration(span)) => {
            time.add(*span).map(Value::Timestamp)
        }
        (
            Value::Int(_)
            | Value::Uint(_)
            | Value::Double(_)
            | Value::String(_)
            | Value::Bytes(_)
            | Value::List(_)
            | Value::Duration(_)
            | Value::Timestamp(_),
            _,
        ) => Err(Error::no_overload()),
        (other, _) => Err(unsupported(op::ADD, other)),
    }
}

fn subtract<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Error> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_sub(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_sub(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a - b)),
        (Value::Duration(a), Value::Duration(b)) => a.subtract(*b).map(Value::Duration),
        (Value::Timestamp(a), Value::Duration(b)) => a.add(b.negate()?).map(Value::Timestamp),
        (Value::Timestamp(a), Value::Timestamp(b)) => a.since(*b).map(Value::Duration),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_) | Value::Duration(_) | Value::Timestamp(_), _) => {
            Err(Error::no_overload())
        }
        (other, _) => Err(unsupported(op::SUBTRACT, other)),
    }
}

fn multiply<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Error> {
    match (left, right) {
        (Value::Int(a), Value::Int(b)) => int(a.checked_mul(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_mul(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a * b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => Err(Error::no_overload()),
        (other, _) => Err(unsupported(op::MULTIPLY, other)),
    }
}

fn divide<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Error> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(Error::new("division by zero")),
        (Value::Int(a), Value::Int(b)) => int(a.checked_div(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_div(*b)),
        (Value::Double(a), Value::Double(b)) => Ok(Value::Double(a / b)),
        (Value::Int(_) | Value::Uint(_) | Value::Double(_), _) => Err(Error::no_overload()),
        (other, _) => Err(unsupported(op::DIVIDE, other)),
    }
}

fn modulo<'a>(left: &Value<'a>, right: &Value<'a>) -> Result<Value<'a>, Error> {
    match (left, right) {
        (Value::Int(_), Value::Int(0)) | (Value::Uint(_), Value::Uint(0)) => Err(Error::new("modulus by zero")),
        (Value::Int(a), Value::Int(b)) => int(a.checked_rem(*b)),
        (Value::Uint(a), Value::Uint(b)) => uint(a.checked_rem(*b)),
        (Value::Int(_) | Value::Uint(_), _) => Err(Error::no_overload()),
        (other, _) => Err(unsupported(op::MODULO, other)),
    }
}
