//! Optional values.

use std::rc::Rc;

use super::Called;
use crate::error::Error;
use crate::value::{List, Value};

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("optional_of", [value]) => Ok(Value::some(value.clone())),
        ("optional_ofNonZeroValue", [value]) => Ok(if value.is_zero() {
            Value::Optional(None)
        } else {
            Value::some(value.clone())
        }),
        ("optional_none", []) => Ok(Value::Optional(None)),
        ("optional_value", [Value::Optional(value)]) => value
            .as_ref()
            .map(|value| (**value).clone())
            .ok_or_else(|| Error::new("optional.none() dereference")),
        ("optional_hasValue", [Value::Optional(value)]) => Ok(Value::Bool(value.is_some())),
        ("optional_or_optional", [Value::Optional(None), other]) => Ok(other.clone()),
        ("optional_or_optional", [first, _]) => Ok(first.clone()),
        ("optional_orValue_value", [Value::Optional(None), other]) => Ok(other.clone()),
        ("optional_orValue_value", [Value::Optional(Some(value)), _]) => Ok((**value).clone()),
        ("list_first", [Value::List(list)]) => at(list, Some(0)),
        ("list_last", [Value::List(list)]) => at(list, list.len().checked_sub(1)),
        ("optional_unwrap" | "optional_unwrapOpt", [Value::List(list)]) => unwrap(list),
        _ => return None,
    })
}

fn at<'a>(list: &List<'a>, index: Option<usize>) -> Result<Value<'a>, Error> {
    let item = index.and_then(|index| list.get(index)).transpose()?;
    Ok(Value::Optional(item.map(Rc::new)))
}

fn unwrap<'a>(list: &List<'a>) -> Result<Value<'a>, Error> {
    let mut values = Vec::new();
    for item in list.iter() {
        match item? {
            Value::Optional(Some(value)) => values.push((*value).clone()),
            Value::Optional(None) => {}
            other => {
                return Err(Error::new(format!(
                    "value at index {} is not optional: {}",
                    values.len(),
                    other.type_name()
                )));
            }
        }
    }
    Ok(Value::list(values))
}
