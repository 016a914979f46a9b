//! Merging an applied configuration into the live object, and taking fields out of an object.

use serde_json::{Map, Value};

use super::FieldSet;
use super::diff::side_by_side;
use super::set::field;
use super::shape::{Form, Shape, element};
use crate::budget;
use crate::sorted::sort_by_text;

/// The live object with the applied configuration on top: granular maps and lists are joined, everything else is
/// replaced.
pub(super) fn merge(live: &Value, applied: &Value, shape: Shape<'_>) -> Value {
    join(Some(live), Some(applied), shape).unwrap_or(Value::Null)
}

/// Whether the applied values are there already, so that merging them would change nothing. A client that applies the
/// same again and again, as controllers do, is answered without a copy of the object. Only certain results are given:
/// where identities are in doubt, merging decides.
pub(super) fn is_there(live: &Value, applied: &Value, shape: Shape<'_>) -> bool {
    match (shape.form([Some(live), Some(applied)]), live, applied) {
        (Form::Map, Value::Object(live), Value::Object(applied)) => applied.iter().all(|(key, applied)| {
            let below = shape.part_or_nothing(key).shape;
            live.get(key).is_some_and(|live| is_there(live, applied, below))
        }),
        (form @ Form::Items(_), Value::Array(live), Value::Array(applied)) => {
            let mut seen = Vec::with_capacity(live.len());
            let same = live.len() == applied.len()
                && live.iter().zip(applied).all(|(live, applied)| {
                    let (Ok(place), Ok(wanted)) = (element(form, live), element(form, applied)) else {
                        return false;
                    };
                    let same = place == wanted && is_there(live, applied, shape.items());
                    seen.push(place);
                    same
                });
            seen.sort_unstable();
            // An item that stands twice is in doubt.
            same && seen.is_sorted_by(|one, other| one < other)
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
            Some(Value::Object(join_maps(live, applied, shape)))
        }
        _ => Some(join_lists(live, applied, form, shape.items())),
    }
}

fn join_maps(live: &Map<String, Value>, applied: &Map<String, Value>, shape: Shape<'_>) -> Map<String, Value> {
    budget::spend(live.len() + applied.len());
    let both = side_by_side(live, applied).map(|(key, live, applied)| {
        let value = match (live, applied) {
            (live, Some(applied)) => join(live, Some(applied), shape.part_or_nothing(key).shape),
            (live, None) => live.cloned(),
        };
        (key.to_owned(), value.unwrap_or(Value::Null))
    });
    // In order, so that the map is built at once.
    both.collect()
}

/// An item with the number of its element; one without an identity stays where it is.
#[derive(Clone, Copy)]
struct Item<'a> {
    id: Option<usize>,
    value: &'a Value,
}

/// Two lists side by side: equal elements have the same number.
struct Lists<'a> {
    live: Vec<Item<'a>>,
    applied: Vec<Item<'a>>,
    /// By number: the live item; null for an element that stands twice, because no item can be told to be the one that
    /// the applied one changes (`indexListPathElements` of structured-merge-diff since 4.4).
    in_live: Vec<Option<&'a Value>>,
    /// By number: whether it is applied.
    in_applied: Vec<bool>,
}

impl<'a> Lists<'a> {
    fn new(live: &'a [Value], applied: &'a [Value], form: Form<'_>) -> Lists<'a> {
        let values = || live.iter().chain(applied);
        let mut elements: Vec<(String, usize)> = Vec::with_capacity(live.len() + applied.len());
        elements.extend(
            values()
                .enumerate()
                .filter_map(|(at, item)| Some((element(form, item).ok()?, at))),
        );
        sort_by_text(&mut elements);
        let mut items: Vec<Item<'_>> = values().map(|value| Item { id: None, value }).collect();
        let (mut in_live, mut in_applied) = (Vec::new(), Vec::new());
        let mut last = None;
        for (element, at) in &elements {
            if last != Some(element) {
                in_live.push(None);
                in_applied.push(false);
                last = Some(element);
            }
            let id = in_live.len() - 1;
            items[*at].id = Some(id);
            if *at < live.len() {
                in_live[id] = Some(if in_live[id].is_none() {
                    items[*at].value
                } else {
                    &Value::Null
                });
            } else {
                in_applied[id] = true;
            }
        }
        let applied = items.split_off(live.len());
        Lists {
            live: items,
            applied,
            in_live,
            in_applied,
        }
    }

    fn is_live(&self, item: &Item<'_>) -> bool {
        item.id.is_some_and(|id| self.in_live[id].is_some())
    }

    fn is_applied(&self, item: &Item<'_>) -> bool {
        item.id.is_some_and(|id| self.in_applied[id])
    }

    /// The applied items that are there already, in the applied order.
    fn shared(&self) -> impl Iterator<Item = &Item<'a>> {
        self.applied.iter().filter(|item| self.is_live(item))
    }
}

/// Joins two lists: the applied items are in the applied order, and items that are only live stay as near as they can
/// to their places.
fn join_lists(live: Option<&Value>, applied: Option<&Value>, form: Form<'_>, items: Shape<'_>) -> Value {
    fn list(value: Option<&Value>) -> &[Value] {
        value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    let lists = Lists::new(list(live), list(applied), form);
    let (live, applied) = (&lists.live, &lists.applied);
    // The next one of these tells where the live list is waited for.
    let mut shared = lists.shared().peekable();
    // By number: whether it has its place.
    let mut placed = vec![false; lists.in_live.len()];
    let mut out = Vec::with_capacity(live.len().max(applied.len()));
    let joined = |item: &Item<'_>| {
        let live = item.id.and_then(|id| lists.in_live[id]);
        join(live, Some(item.value), items).unwrap_or(Value::Null)
    };
    let mark = |placed: &mut [bool], item: &Item<'_>| {
        if let Some(id) = item.id {
            placed[id] = true;
        }
    };
    let (mut at_live, mut at_applied) = (0, 0);
    while at_live < live.len() || at_applied < applied.len() {
        if let (Some(left), Some(right)) = (live.get(at_live), applied.get(at_applied)) {
            if left.id.is_some() && left.id == right.id {
                out.push(joined(right));
                mark(&mut placed, right);
                (at_live, at_applied) = (at_live + 1, at_applied + 1);
                shared.next();
                continue;
            }
            let wanted = shared.peek().is_some_and(|next| next.id == left.id);
            if lists.is_applied(left) && shared.peek().is_some() && !wanted {
                // It has its turn later, or had it.
                at_live += 1;
                continue;
            }
        }
        if let Some(left) = live.get(at_live) {
            if !lists.is_applied(left) {
                out.push(left.value.clone());
                at_live += 1;
                continue;
            }
            if left.id.is_some_and(|id| placed[id]) {
                at_live += 1;
            }
        }
        if let Some(right) = applied.get(at_applied) {
            if shared.peek().is_some_and(|next| next.id == right.id) {
                shared.next();
            }
            out.push(joined(right));
            mark(&mut placed, right);
            at_applied += 1;
        } else if live.get(at_live).is_some_and(|left| lists.is_applied(left)) {
            // Everything applied is placed, so this one is as well.
            at_live += 1;
        }
    }
    Value::Array(out)
}

/// The value without these fields and items. A value that becomes empty by that becomes null, so that it does not look
/// like an empty value.
pub(super) fn remove(value: &Value, gone: &FieldSet, shape: Shape<'_>) -> Value {
    budget::spend(1);
    if gone.is_empty() && !is_empty(Some(value)) {
        return value.clone();
    }
    let form = shape.form([Some(value), None]);
    match (form, value) {
        (Form::Map, Value::Object(map)) => {
            let kept = map.iter().filter_map(|(key, below)| {
                let left = match gone.get(&field(key)) {
                    None => below.clone(),
                    Some(node) if node.member => return None,
                    Some(node) => remove(below, &node.children, shape.part_or_nothing(key).shape),
                };
                Some((key.clone(), left))
            });
            let kept: Map<String, Value> = kept.collect();
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
