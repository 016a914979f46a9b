//! What a write changed: the fields that came, went, or have another value.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::FieldSet;
use super::set::{Node, field};
use super::shape::{Form, Shape, element, fields};

/// The difference between two values of one type (`Comparison` upstream).
#[derive(Debug, Default, PartialEq)]
pub(super) struct Diff {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

/// Compares two objects.
pub(super) fn diff(old: &Value, new: &Value, shape: Shape<'_>) -> Diff {
    let found = compare(Some(old), Some(new), shape);
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
    fn leaf(old: Option<&Value>, new: Option<&Value>) -> Found {
        let mut found = Found::default();
        match (old, new) {
            (None, _) => found.added = Node::LEAF,
            (_, None) => found.removed = Node::LEAF,
            (Some(old), Some(new)) if !same(old, new) => found.modified = Node::LEAF,
            _ => {}
        }
        found
    }

    fn is_empty(&self) -> bool {
        self.added.is_empty() && self.modified.is_empty() && self.removed.is_empty()
    }

    fn put(&mut self, element: &str, below: Found) {
        for (ours, theirs) in [
            (&mut self.added, below.added),
            (&mut self.modified, below.modified),
            (&mut self.removed, below.removed),
        ] {
            if !theirs.is_empty() {
                ours.children.put(element.to_owned(), theirs);
            }
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

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Object(map)) => map.is_empty(),
        Some(Value::Array(list)) => list.is_empty(),
        Some(_) => false,
    }
}

fn compare(old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>) -> Found {
    if let (Some(old), Some(new)) = (old, new)
        && old == new
    {
        return Found::default();
    }
    let form = shape.form([old, new]);
    if matches!(form, Form::Leaf) {
        let mut found = Found::leaf(old, new);
        if matches!(shape, Shape::Deduced) {
            // An object that became something else takes its fields along, and the other way round.
            let parts = |value: Option<&Value>| value.map(|value| fields(value, shape).children).unwrap_or_default();
            found.removed.children = parts(old);
            found.added.children = parts(new);
        }
        return found;
    }
    if is_empty(old) && is_empty(new) {
        return Found::leaf(old, new);
    }
    let mut found = match form {
        Form::Map => compare_maps(old, new, shape),
        _ => compare_lists(old, new, form, shape.items()),
    };
    found.added.member = old.is_none();
    found.removed.member = new.is_none();
    found
}

fn compare_maps(old: Option<&Value>, new: Option<&Value>, shape: Shape<'_>) -> Found {
    let (old_map, new_map) = (old.and_then(Value::as_object), new.and_then(Value::as_object));
    let none = Map::new();
    let (olds, news) = (old_map.unwrap_or(&none), new_map.unwrap_or(&none));
    let mut found = Found::default();
    let new_only = news.keys().filter(|key| !olds.contains_key(*key));
    for key in olds.keys().chain(new_only) {
        let (old_part, new_part) = (olds.get(key), news.get(key));
        if old_part.is_some() && old_part == new_part {
            continue;
        }
        // What nobody wrote in a struct that is there has a value all the same.
        let absent = |present: bool, part: Option<&Value>| match part {
            None if present => shape.absent(key),
            _ => None,
        };
        let (old_zero, new_zero) = (absent(old_map.is_some(), old_part), absent(new_map.is_some(), new_part));
        let (old_part, new_part) = (old_part.or(old_zero.as_ref()), new_part.or(new_zero.as_ref()));
        let below = compare(old_part, new_part, shape.part_or_nothing(key).shape);
        if !below.is_empty() {
            found.put(&field(key), below);
        }
    }
    found
}

fn compare_lists(old: Option<&Value>, new: Option<&Value>, form: Form<'_>, items: Shape<'_>) -> Found {
    let (old, new) = (index(old, form), index(new, form));
    let mut found = Found::default();
    for element in old
        .keys()
        .chain(new.keys().filter(|element| !old.contains_key(*element)))
    {
        let (old, new) = (old.get(element), new.get(element));
        let below = match (old.map_or(&[][..], Vec::as_slice), new.map_or(&[][..], Vec::as_slice)) {
            ([], []) => Found::default(),
            ([], [new]) => compare(None, Some(new), items),
            ([old], []) => compare(Some(old), None, items),
            ([old], [new]) => compare(Some(old), Some(new), items),
            // Items that stand twice are compared as a whole.
            (old, new) if old == new => Found::default(),
            (old, new) => {
                let whole = |items: &[&Value]| (!items.is_empty()).then(|| Value::from(items.len()));
                let mut changed = Found::leaf(whole(old).as_ref(), whole(new).as_ref());
                if changed.added.is_empty() && changed.removed.is_empty() {
                    changed.modified = Node::LEAF;
                }
                changed
            }
        };
        found.put(element, below);
    }
    found
}

fn index<'a>(list: Option<&'a Value>, form: Form<'_>) -> BTreeMap<String, Vec<&'a Value>> {
    let mut found: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    for item in list.and_then(Value::as_array).into_iter().flatten() {
        if let Ok(element) = element(form, item) {
            found.entry(element).or_default().push(item);
        }
    }
    found
}
