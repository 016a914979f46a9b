//! The changes of a write: the fields that came, went, or have another value.

use std::cmp::Ordering;

use serde_json::{Map, Value};

use super::FieldSet;
use super::set::{Node, field};
use super::shape::{Form, Shape, element, fields};
use crate::measure;
use crate::sorted::sort_by_text;

/// The difference between two values of one type (`Comparison` upstream).
#[derive(Debug, Default, PartialEq)]
pub(super) struct Diff {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Compares two objects.
pub(super) fn diff(old: &Value, new: &Value, shape: Shape<'_>) -> Diff {
    let found = compare(old, new, shape);
    Diff {
        added: found.added.children,
        modified: found.modified.children,
        removed: found.removed.children,
    }
}

#[derive(Default)]
struct Found {
    added: Node,
    modified: Node,
    removed: Node,
}

impl Found {
    /// Another value.
    fn modified() -> Found {
        Found {
            modified: Node::LEAF,
            ..Found::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn put(&mut self, element: String, below: Found) {
        let mut element = Some(element);
        let mut parts = [
            (&mut self.added, below.added),
            (&mut self.modified, below.modified),
            (&mut self.removed, below.removed),
        ]
        .into_iter()
        .filter(|(_, theirs)| !theirs.is_empty())
        .peekable();
        while let Some((ours, theirs)) = parts.next() {
            // Mostly it is in one of them.
            let name = if parts.peek().is_none() {
                element.take()
            } else {
                element.clone()
            };
            ours.children.put(name.unwrap_or_default(), theirs);
        }
    }
}

/// Equality that does not mind whether a number is written as `1` or `1.0`.
fn same(old: &Value, new: &Value) -> bool {
    match (old, new) {
        (Value::Number(old), Value::Number(new)) => old == new || old.as_f64() == new.as_f64(),
        _ => old == new,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Object(map) => map.is_empty(),
        Value::Array(list) => list.is_empty(),
        _ => false,
    }
}

fn compare(old: &Value, new: &Value, shape: Shape<'_>) -> Found {
    if measure::same(old, new) {
        Found::default()
    } else {
        compare_unequal(old, new, shape)
    }
}

fn compare_unequal(old: &Value, new: &Value, shape: Shape<'_>) -> Found {
    let form = shape.form([Some(old), Some(new)]);
    match form {
        Form::Leaf => {
            let mut found = if same(old, new) {
                Found::default()
            } else {
                Found::modified()
            };
            if shape.is_deduced() {
                // An object that became something else takes its fields along, and the other way round.
                found.removed.children = fields(old, shape).children;
                found.added.children = fields(new, shape).children;
            }
            found
        }
        _ if is_empty(old) && is_empty(new) => Found::modified(),
        Form::Map => compare_maps(old.as_object(), new.as_object(), shape),
        Form::Set | Form::Items(_) => compare_lists(old, new, form, shape.items()),
    }
}

/// Compares values that may be on one side only.
fn compare_parts(old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>) -> Found {
    match (old, new) {
        (Some(old), Some(new)) => compare(old, new, shape),
        (None, Some(new)) => Found {
            added: whole(new, shape),
            ..Found::default()
        },
        (Some(old), None) => Found {
            removed: whole(old, shape),
            ..Found::default()
        },
        (None, None) => Found::default(),
    }
}

/// A value that came or went as a whole: each of its parts did.
fn whole(value: &Value, shape: Shape<'_>) -> Node {
    let mut children = FieldSet::default();
    match (shape.form([Some(value), None]), value) {
        (Form::Leaf, _) if shape.is_deduced() => children = fields(value, shape).children,
        (Form::Map, Value::Object(map)) => {
            children = FieldSet::with_capacity(map.len());
            for (key, part) in map {
                children.put(field(key), whole(part, shape.part_or_nothing(key).shape));
            }
        }
        (form @ (Form::Set | Form::Items(_)), Value::Array(_)) => {
            let items = index(value, form);
            children = FieldSet::with_capacity(items.len());
            let mut left = &items[..];
            while let Some(element) = first(left) {
                let node = match split_off(&mut left, element) {
                    [(_, item)] => whole(item, shape.items()),
                    // Items that stand twice are one.
                    _ => Node::LEAF,
                };
                children.put(element.to_owned(), node);
            }
        }
        _ => {}
    }
    Node { member: true, children }
}

fn compare_maps(old: Option<&Map<String, Value>>, new: Option<&Map<String, Value>>, shape: Shape<'_>) -> Found {
    let none = Map::new();
    let (olds, news) = (old.unwrap_or(&none), new.unwrap_or(&none));
    let mut found = Found::default();
    for (key, old_part, new_part) in side_by_side(olds, news) {
        let part = || shape.part_or_nothing(key).shape;
        let below = match (old_part, new_part) {
            // Of most parts nothing more need be known.
            (Some(old), Some(new)) if measure::same(old, new) => continue,
            (Some(old), Some(new)) => compare_unequal(old, new, part()),
            // A field that no client wrote has a value all the same where its struct is present.
            (Some(present), None) => {
                let absent = new.and_then(|_| shape.absent(key));
                compare_parts(Some(present), absent, part())
            }
            (None, present) => {
                let absent = old.and_then(|_| shape.absent(key));
                compare_parts(absent, present, part())
            }
        };
        if !below.is_empty() {
            found.put(field(key), below);
        }
    }
    found
}

/// The entries of two maps by their keys, in order.
pub(super) fn side_by_side<'m>(
    old: &'m Map<String, Value>,
    new: &'m Map<String, Value>,
) -> impl Iterator<Item = (&'m str, Option<&'m Value>, Option<&'m Value>)> {
    let (mut olds, mut news) = (old.iter().peekable(), new.iter().peekable());
    std::iter::from_fn(move || {
        let order = match (olds.peek(), news.peek()) {
            (Some((old, _)), Some((new, _))) => old.cmp(new),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => return None,
        };
        let old = (order != Ordering::Greater).then(|| olds.next()).flatten();
        let new = (order != Ordering::Less).then(|| news.next()).flatten();
        let (key, _) = old.or(new)?;
        Some((key.as_str(), old.map(|(_, value)| value), new.map(|(_, value)| value)))
    })
}

fn compare_lists(old: &Value, new: &Value, form: Form<'_>, items: Shape<'_>) -> Found {
    let (old, new) = (index(old, form), index(new, form));
    let (mut old, mut new) = (&old[..], &new[..]);
    let mut found = Found::default();
    // In order, so that each result is put at the end.
    while let Some(element) = first(old).into_iter().chain(first(new)).min() {
        let (olds, news) = (split_off(&mut old, element), split_off(&mut new, element));
        let below = match (olds, news) {
            ([] | [_], [] | [_]) => compare_parts(values(olds).next(), values(news).next(), items),
            // Items that stand twice are compared as a whole.
            _ if values(olds).eq(values(news)) => Found::default(),
            ([_, _, ..], [_, _, ..]) => Found::modified(),
            // One that becomes several loses its parts, and one that is left of several has them anew.
            _ => {
                let of = |some: &[Item<'_>]| match some {
                    [] => Node::default(),
                    [(_, item)] => whole(item, items),
                    _ => Node::LEAF,
                };
                Found {
                    added: of(news),
                    removed: of(olds),
                    ..Found::default()
                }
            }
        };
        found.put(element.to_owned(), below);
    }
    found
}

/// An item with its element.
type Item<'a> = (String, &'a Value);

/// The items that have elements, in the order of these.
fn index<'a>(list: &'a Value, form: Form<'_>) -> Vec<Item<'a>> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    let mut found = Vec::with_capacity(list.len());
    found.extend(list.iter().filter_map(|item| Some((element(form, item).ok()?, item))));
    sort_by_text(&mut found);
    found
}

fn values<'i>(items: &'i [Item<'_>]) -> impl Iterator<Item = &'i Value> {
    items.iter().map(|(_, value)| *value)
}

fn first<'i>(items: &'i [Item<'_>]) -> Option<&'i str> {
    items.first().map(|(element, _)| element.as_str())
}

/// Takes the items of this element from the front, if they are there.
fn split_off<'i, 'a>(items: &mut &'i [Item<'a>], element: &str) -> &'i [Item<'a>] {
    let count = items.iter().take_while(|(known, _)| known == element).count();
    let (taken, rest) = items.split_at(count);
    *items = rest;
    taken
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::apply::{ManagedFields, Manager, ObjectType, Operation, update};
    use crate::catalog;

    /// What kube-apiserver 1.37.2 enters for the only port of a Service that is written as often as is said.
    #[test]
    fn items_that_stand_twice_are_owned_as_a_whole() {
        const NOW: &str = "2026-01-01T00:00:00Z";
        let kind = ObjectType::built_in(catalog::for_kind("", "v1", "Service").expect("built in"));
        let manager = Manager::new("m", Operation::Update, "v1", "");
        let service = |times: usize, name: &str| {
            let port = json!({"port": 80, "protocol": "TCP", "name": name});
            json!({"spec": {"ports": vec![port; times]}})
        };
        let (whole, parts) = (
            json!({}),
            json!({".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}}),
        );
        for (before, after, expected) in [
            ((1, "a"), (2, "a"), &whole),
            ((2, "a"), (1, "a"), &parts),
            ((2, "a"), (2, "b"), &whole),
        ] {
            let mut managed = ManagedFields::default();
            let (before, after) = (service(before.0, before.1), service(after.0, after.1));
            update(&kind, &Value::Null, &before, &mut managed, &manager, "v1", NOW);
            update(&kind, &before, &after, &mut managed, &manager, "v1", NOW);
            let entered = managed.entries[&manager].fields.clone().encode();
            let key = r#"k:{"port":80,"protocol":"TCP"}"#;
            assert_eq!(entered["f:spec"]["f:ports"][key], *expected, "{before} and {after}");
        }
    }
}
