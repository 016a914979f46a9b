//! Quantities: `quantity('1.5Gi').isLessThan(quantity('2Gi'))`.

use std::cmp::Ordering;
use std::rc::Rc;

use super::Called;
use super::Opaque;
use crate::error::Error;
use crate::value::Value;
use kubewright_values::quantity::{Format, Quantity};

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("string_to_quantity", [Value::String(text)]) => match text.parse::<Quantity>() {
            Ok(amount) => Ok(value(amount, is_integral(text))),
            Err(error) => Err(Error::new(error.to_string())),
        },
        ("is_quantity_string", [Value::String(text)]) => Ok(Value::Bool(text.parse::<Quantity>().is_ok())),
        (_, [Value::Opaque(Opaque::Quantity { amount, integral })]) => return of_one(overload, amount, *integral),
        (
            _,
            [
                Value::Opaque(Opaque::Quantity { amount, integral }),
                Value::Opaque(Opaque::Quantity {
                    amount: other,
                    integral: both,
                }),
            ],
        ) => return of_two(overload, amount, other, *integral && *both),
        (_, [Value::Opaque(Opaque::Quantity { amount, integral }), Value::Int(other)]) => {
            let other = Quantity::new(i128::from(*other), 0, Format::DecimalExponent);
            match overload {
                "quantity_add_int" => Ok(value((**amount).clone() + other, *integral)),
                "quantity_sub_int" => Ok(value((**amount).clone() - other, *integral)),
                _ => return None,
            }
        }
        _ => return None,
    })
}

fn value<'a>(amount: Quantity, integral: bool) -> Value<'a> {
    Value::Opaque(Opaque::Quantity {
        amount: Rc::new(amount),
        integral,
    })
}

fn of_one<'a>(overload: &str, amount: &Quantity, integral: bool) -> Called<'a> {
    let whole = || {
        let whole = i64::try_from(amount.value()).ok()?;
        let exact = Quantity::new(i128::from(whole), 0, amount.format()) == *amount;
        (integral && exact).then_some(whole)
    };
    Some(match overload {
        "quantity_sign" => Ok(Value::Int(i64::from(amount.sign()))),
        "quantity_get_float" => Ok(Value::Double(amount.approximate())),
        "quantity_get_int" => whole()
            .map(Value::Int)
            .ok_or_else(|| Error::new("cannot convert value to integer")),
        "quantity_is_integer" => Ok(Value::Bool(whole().is_some())),
        _ => return None,
    })
}

fn of_two<'a>(overload: &str, left: &Quantity, right: &Quantity, integral: bool) -> Called<'a> {
    Some(Ok(match overload {
        "quantity_is_greater_than" => Value::Bool(left > right),
        "quantity_is_less_than" => Value::Bool(left < right),
        "quantity_compare_to" => Value::Int(match left.cmp(right) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }),
        "quantity_add" => value(left.clone() + right.clone(), integral),
        "quantity_sub" => value(left.clone() - right.clone(), integral),
        _ => return None,
    }))
}

/// Kubernetes keeps an amount as an integer if its text is short and has no fraction once its suffix is counted in; any
/// other amount has no integer value, even if it is whole (`1000m`).
fn is_integral(text: &str) -> bool {
    let text = text.trim_start_matches(['+', '-']);
    let number = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = text.split_at(number);
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = whole.trim_start_matches('0').len();
    let binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    if let Some(power) = binary.iter().position(|known| *known == suffix) {
        return fraction.is_empty() && digits + (power + 1) * 3 < 15;
    }
    let decimal = ["", "k", "M", "G", "T", "P", "E"];
    let power = match decimal.iter().position(|known| *known == suffix) {
        Some(power) => power * 3,
        None => suffix.trim_start_matches(['e', 'E']).parse().unwrap_or(0),
    };
    // Neither a suffix of fractions nor a negative exponent counts as one of the known.
    let known = suffix.is_empty() || decimal.contains(&suffix) || suffix[1..].parse::<usize>().is_ok();
    known && fraction.len() <= power && digits + fraction.len() <= 18
}
