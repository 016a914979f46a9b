//! Merging an applied configuration into the live object, and taking fields out of an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::FieldSet;
use super::set::field;
use super::shape::{Form, Shape, element};
use crate::budget;

/// The live object with what is applied on top: granular maps and lists are joined, everything else is replaced.
pub(super) fn merge(live: &Value, applied: &Value, shape: Shape<'_>) -> Value {
    join(Some(live), Some(applied), shape).unwrap_or(Value::Null)
}

/// Whether what is applied is there already, so that merging it would change nothing. Who applies the same again and again, as controllers
/// do, is answered without a copy of the object. Only what is certain is said: where identities are in doubt, merging decides.
pub(super) fn is_there(live: &Value, applied: &Value, shape: Shape<'_>) -> bool {
    match (shape.form([Some(live), Some(applied)]), live, applied) {
        (Form::Map, Value::Object(live), Value::Object(applied)) => applied.iter().all(|(key, applied)| {
            let below = shape.part_or_nothing(key).shape;
            live.get(key).is_some_and(|live| is_there(live, applied, below))
        }),
        (form @ Form::Items(_), Value::Array(live), Value::Array(applied)) => {
            let mut seen = BTreeSet::new();
            live.len() == applied.len()
                && live.iter().zip(applied).all(|(live, applied)| {
                    let (Ok(place), Ok(wanted)) = (element(form, live), element(form, applied)) else {
                        return false;
                    };
                    place == wanted && seen.insert(place) && is_there(live, applied, shape.items())
                })
        }
        (_, live, applied) => live == applied,
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn join(live: Option<&Value>, applied: Option<&Value>, shape: Shape<'_>) -> Option<Value> {
    budget::spend(1);
    let winner = || applied.or(live).cloned();
    let form = shape.form([live, applied]);
    if matches!(form, Form::Leaf) || (is_empty(live) && is_empty(applied)) || applied.is_none() {
        return winner();
    }
    match form {
        Form::Map => {
            let none = Map::new();
            let live = live.and_then(Value::as_object).unwrap_or(&none);
            let applied = applied.and_then(Value::as_object).unwrap_or(&none);
            let mut joined = Map::new();
            for (key, value) in live.iter().filter(|(key, _)| !applied.contains_key(*key)) {
                joined.insert(key.clone(), value.clone());
            }
            for (key, value) in applied {
                let below = join(live.get(key), Some(value), shape.part_or_nothing(key).shape);
                joined.insert(key.clone(), below.unwrap_or(Value::Null));
            }
            Some(Value::Object(joined))
        }
        _ => Some(join_lists(live, applied, form, shape.items())),
    }
}

/// An item with its element; one without an identity stays where it is.
type Item<'a> = (Option<String>, &'a Value);

fn indexed<'a>(list: Option<&'a Value>, form: Form<'_>) -> Vec<Item<'a>> {
    let items = list.and_then(Value::as_array).into_iter().flatten();
    items.map(|item| (element(form, item).ok(), item)).collect()
}

/// Joins two lists: the applied items are in the applied order, and what is only live stays as near as it can to where it was.
fn join_lists(live: Option<&Value>, applied: Option<&Value>, form: Form<'_>, items: Shape<'_>) -> Value {
    let (live, applied) = (indexed(live, form), indexed(applied, form));
    let known = |list: &[Item<'_>]| -> BTreeMap<String, usize> {
        let elements = list.iter().enumerate();
        elements
            .filter_map(|(at, (element, _))| Some((element.clone()?, at)))
            .collect()
    };
    let (in_live, in_applied) = (known(&live), known(&applied));
    let is_shared = |item: &Item<'_>, other: &BTreeMap<String, usize>| {
        item.0.as_ref().is_some_and(|element| other.contains_key(element))
    };
    let joined = |item: &Item<'_>| {
        let live = item
            .0
            .as_ref()
            .and_then(|element| in_live.get(element))
            .map(|at| live[*at].1);
        join(live, Some(item.1), items).unwrap_or(Value::Null)
    };
    // The shared items in the applied order; the next one tells where the live list is waited for.
    let mut shared = applied.iter().filter(|item| is_shared(item, &in_live)).peekable();
    let mut merged: BTreeMap<&str, ()> = BTreeMap::new();
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let (mut at_live, mut at_applied) = (0, 0);
    while at_live < live.len() || at_applied < applied.len() {
        if let (Some(left), Some(right)) = (live.get(at_live), applied.get(at_applied)) {
            if left.0.is_some() && left.0 == right.0 {
                out.push(joined(right));
                merged.extend(right.0.as_deref().map(|element| (element, ())));
                (at_live, at_applied) = (at_live + 1, at_applied + 1);
                shared.next();
                continue;
            }
            let wanted = shared.peek().is_some_and(|next| next.0 == left.0);
            if is_shared(left, &in_applied) && shared.peek().is_some() && !wanted {
                // It has its turn later, or had it.
                at_live += 1;
                continue;
            }
        }
        if let Some(left) = live.get(at_live) {
            if !is_shared(left, &in_applied) {
                out.push(left.1.clone());
                at_live += 1;
                continue;
            }
            if left.0.as_deref().is_some_and(|element| merged.contains_key(element)) {
                at_live += 1;
            }
        }
        if let Some(right) = applied.get(at_applied) {
            if shared.peek().is_some_and(|next| next.0 == right.0) {
                shared.next();
            }
            out.push(joined(right));
            merged.extend(right.0.as_deref().map(|element| (element, ())));
            at_applied += 1;
        } else if at_live < live.len() && is_shared(&live[at_live], &in_applied) {
            // Everything applied is placed, so this one is as well.
            at_live += 1;
        }
    }
    Value::Array(out)
}

/// The value without these fields and items. What is emptied by that becomes null, so that it does not look like an empty value.
pub(super) fn remove(value: &Value, gone: &FieldSet, shape: Shape<'_>) -> Value {
    budget::spend(1);
    let form = shape.form([Some(value), None]);
    match (form, value) {
        (Form::Map, Value::Object(map)) => {
            let mut kept = Map::new();
            for (key, below) in map {
                match gone.get(&field(key)) {
                    None => kept.insert(key.clone(), below.clone()),
                    Some(node) if node.member => continue,
                    Some(node) => kept.insert(
                        key.clone(),
                        remove(below, &node.children, shape.part_or_nothing(key).shape),
                    ),
                };
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Object(kept)
            }
        }
        (Form::Set | Form::Items(_), Value::Array(list)) => {
            let mut kept = Vec::new();
            for item in list {
                let node = element(form, item).ok().and_then(|element| gone.get(&element));
                match node {
                    None => kept.push(item.clone()),
                    Some(node) if node.member => {}
                    Some(node) => kept.push(remove(item, &node.children, shape.items())),
                }
            }
            if kept.is_empty() {
                Value::Null
            } else {
                Value::Array(kept)
            }
        }
        _ => value.clone(),
    }
}
