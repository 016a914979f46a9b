//! Lists and sets.

use std::cmp::Ordering;

use kubewright_values::budget;

use super::{Called, int};
use crate::error::Error;
use crate::value::{Duration, List, Value};
use crate::value::{compare, equal, is_ordered};
use crate::work::{ITEM, made};

/// Taking an item out of a list, and comparing it.
const COMPARED: usize = 3;

pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    Some(match (overload, args) {
        ("list_a_index_of_int", [Value::List(list), item]) => position(list, item, false),
        ("list_a_last_index_of_int", [Value::List(list), item]) => position(list, item, true),
        ("list_sets_contains_list", [Value::List(a), Value::List(b)]) => contains(a, b).map(Value::Bool),
        ("list_sets_intersects_list", [Value::List(a), Value::List(b)]) => intersects(a, b),
        ("list_sets_equivalent_list", [Value::List(a), Value::List(b)]) => {
            contains(a, b).and_then(|there| Ok(Value::Bool(there && contains(b, a)?)))
        }
        ("list_slice", [Value::List(list), Value::Int(start), Value::Int(end)]) => slice(list, *start, *end),
        ("list_flatten", [Value::List(list)]) => flatten(list, 1),
        ("list_flatten_int", [Value::List(list), Value::Int(depth)]) => flatten(list, *depth),
        ("lists_range", [Value::Int(count)]) => Ok(Value::list((0..*count).map(Value::Int).collect())),
        ("list_reverse", [Value::List(list)]) => list.to_vec().map(|mut items| {
            items.reverse();
            Value::list(items)
        }),
        ("list_distinct", [Value::List(list)]) => distinct(list),
        (id, [Value::List(list)]) if id.ends_with("_is_sorted_bool") => is_sorted(list),
        (id, [Value::List(list)]) if id.contains("_sum_") => sum(id, list),
        (id, [Value::List(list)]) if id.contains("_max_") => extreme(list, "max", Ordering::Less),
        (id, [Value::List(list)]) if id.contains("_min_") => extreme(list, "min", Ordering::Greater),
        (id, [Value::List(list)]) if id.ends_with("_sort") => sort(list, list),
        (id, [Value::List(list), Value::List(keys)]) if id.ends_with("_sortByAssociatedKeys") => sort(list, keys),
        _ => return None,
    })
}

fn position<'a>(list: &List<'a>, item: &Value<'a>, last: bool) -> Result<Value<'a>, Error> {
    let items = list.to_vec()?;
    let is = |candidate: &Value<'a>| matches!(equal(candidate, item), Ok(true));
    let found = if last {
        items.iter().rposition(is)
    } else {
        items.iter().position(is)
    };
    Ok(found.map_or(Value::Int(-1), int))
}

/// Whether `list` holds everything in `part`.
fn contains<'a>(list: &List<'a>, part: &List<'a>) -> Result<bool, Error> {
    for item in part.iter() {
        if !list.contains(&item?)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn intersects<'a>(left: &List<'a>, right: &List<'a>) -> Result<Value<'a>, Error> {
    for item in left.iter() {
        if matches!(right.contains(&item?), Ok(true)) {
            return Ok(Value::Bool(true));
        }
    }
    Ok(Value::Bool(false))
}

/// An item of a type that has an order.
fn ordered<'a>(item: Result<Value<'a>, Error>) -> Result<Value<'a>, Error> {
    let item = item?;
    if is_ordered(&item) {
        Ok(item)
    } else {
        Err(Error::no_overload())
    }
}

fn is_sorted<'a>(list: &List<'a>) -> Result<Value<'a>, Error> {
    budget::spend(COMPARED * list.len());
    let mut previous: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = ordered(item)?;
        if let Some(previous) = &previous
            && matches!(compare(previous, &item), Ok(Ordering::Greater))
        {
            return Ok(Value::Bool(false));
        }
        previous = Some(item);
    }
    Ok(Value::Bool(true))
}

fn sum<'a>(overload: &str, list: &List<'a>) -> Result<Value<'a>, Error> {
    budget::spend(COMPARED * list.len());
    let mut sum = match overload {
        "list_uint_sum_uint" => Value::Uint(0),
        "list_double_sum_double" => Value::Double(0.0),
        "list_duration_sum_duration" => Value::Duration(Duration(0)),
        _ => Value::Int(0),
    };
    for item in list.iter() {
        sum = crate::value::add(&sum, &item?)?;
    }
    Ok(sum)
}

/// The element that every other one compares `worse` to.
fn extreme<'a>(list: &List<'a>, name: &str, worse: Ordering) -> Result<Value<'a>, Error> {
    budget::spend(COMPARED * list.len());
    let mut best: Option<Value<'a>> = None;
    for item in list.iter() {
        let item = ordered(item)?;
        match &best {
            Some(best) if compare(best, &item) != Ok(worse) => {}
            _ => best = Some(item),
        }
    }
    best.ok_or_else(|| Error::new(format!("{name} called on empty list")))
}

fn slice<'a>(list: &List<'a>, start: i64, end: i64) -> Result<Value<'a>, Error> {
    let wrong = |why: &str| Err(Error::new(format!("cannot slice({start}, {end}), {why}")));
    let (Ok(from), Ok(to)) = (usize::try_from(start), usize::try_from(end)) else {
        return wrong("negative indexes not supported");
    };
    if from > to {
        return wrong("start index must be less than or equal to end index");
    }
    if list.len() < to {
        return wrong(&format!("list is length {}", list.len()));
    }
    let items: Result<Vec<_>, _> = list.iter().skip(from).take(to - from).collect();
    Ok(Value::list(items?))
}

fn flatten<'a>(list: &List<'a>, depth: i64) -> Result<Value<'a>, Error> {
    fn into<'a>(flat: &mut Vec<Value<'a>>, list: &List<'a>, depth: i64) -> Result<(), Error> {
        for item in list.iter() {
            made(ITEM);
            match item? {
                Value::List(inner) if depth > 0 => into(flat, &inner, depth - 1)?,
                other => flat.push(other),
            }
        }
        Ok(())
    }
    if depth < 0 {
        return Err(Error::new("level must be non-negative"));
    }
    let mut flat = Vec::new();
    into(&mut flat, list, depth)?;
    Ok(Value::list(flat))
}

fn distinct<'a>(list: &List<'a>) -> Result<Value<'a>, Error> {
    let mut items: Vec<Value<'a>> = Vec::new();
    for item in list.iter() {
        let item = item?;
        if !items.iter().any(|known| matches!(equal(&item, known), Ok(true))) {
            items.push(item);
        }
    }
    Ok(Value::list(items))
}

/// The items in the order of their keys.
fn sort<'a>(list: &List<'a>, keys: &List<'a>) -> Result<Value<'a>, Error> {
    if list.len() != keys.len() {
        return Err(Error::new(format!(
            "@sortByAssociatedKeys() expected a list of the same size as the associated keys list, but got {} and {} \
             elements respectively",
            list.len(),
            keys.len()
        )));
    }
    let keys = keys.to_vec()?;
    if let Some(first) = keys.first() {
        if compare(first, first).is_err() && !matches!(first, Value::Double(_)) {
            return Err(Error::new("list elements must be comparable"));
        }
        if keys.iter().any(|key| key.type_name() != first.type_name()) {
            return Err(Error::new("list elements must have the same type"));
        }
    }
    let mut keyed: Vec<_> = keys.into_iter().zip(list.to_vec()?).collect();
    // A number that is none compares with nothing: it stays where it is.
    let is_nan = |value: &Value<'_>| matches!(value, Value::Double(number) if number.is_nan());
    keyed.sort_by(|(a, _), (b, _)| compare(a, b).unwrap_or_else(|_| is_nan(a).cmp(&is_nan(b))));
    Ok(Value::list(keyed.into_iter().map(|(_, item)| item).collect()))
}
