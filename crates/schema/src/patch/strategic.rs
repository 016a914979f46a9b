//! Strategic merge patch: a merge patch that knows how Kubernetes' lists merge
//! (`k8s.io/apimachinery/pkg/util/strategicpatch`).
//!
//! Which lists merge, and by which key, comes from the schema (`x-kubernetes-patch-strategy`,
//! `x-kubernetes-patch-merge-key`); all other lists are replaced. Directives in the patch: `$patch` (`replace`,
//! `delete`, `merge`), `$deleteFromPrimitiveList/x`, `$setElementOrder/x`, `$retainKeys`.
//!
//! Invariant: no directive survives into the result of a part that merges. Order of a merged list: items that the patch
//! names stand in the patch's order, the others keep the order they had, and the two are interleaved by the old order
//! as far as it says anything.

mod error;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::go;
use crate::measure;
use crate::schema::{Schema, SchemaRef, Type};
pub use error::StrategicError;

const DIRECTIVE: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const DELETE: &str = "$deleteFromPrimitiveList";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";
const ORDER: &str = "$setElementOrder";
const ORDER_PREFIX: &str = "$setElementOrder/";

/// The document with the patch applied, by the rules of `schema`. What is new in the patch moves into the document: it
/// may be large.
///
/// # Errors
/// When a directive is malformed or an item of a merging list lacks its key. The document is not touched.
pub fn apply(document: &Value, patch: Value, schema: &SchemaRef) -> Result<Value, StrategicError> {
    match (document, patch) {
        (Value::Object(document), Value::Object(patch)) => {
            Ok(Value::Object(merge_map(document.clone(), patch, Some(schema))?))
        }
        (_, Value::Object(patch)) => Ok(Value::Object(merge_map(Map::new(), patch, Some(schema))?)),
        (_, other) => Err(StrategicError::NotAnObject(measure::shown(&other))),
    }
}

fn child<'a>(schema: Option<&'a Schema>, key: &str) -> Option<&'a SchemaRef> {
    let schema = schema?;
    schema.properties.get(key).or(schema.additional_properties.as_ref())
}

/// Whether the schema gives the field that patch strategy.
fn follows(schema: Option<&SchemaRef>, strategy: &str) -> bool {
    schema.is_some_and(|schema| schema.get().patch_strategy.iter().any(|word| word == strategy))
}

/// Takes the original, so that no level of a deep document is copied for each level around it.
fn merge_map(
    original: Map<String, Value>,
    mut patch: Map<String, Value>,
    schema: Option<&SchemaRef>,
) -> Result<Map<String, Value>, StrategicError> {
    match patch.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
        None => {}
        // A replacement is taken as it stands.
        Some((_, Some("replace"))) => {
            patch.remove(DIRECTIVE);
            return Ok(patch);
        }
        Some((_, Some("delete"))) => return Ok(Map::new()),
        Some((directive, _)) => return Err(unknown(directive, &patch)),
    }
    let schema = schema.map(SchemaRef::get);
    let mut merged = retain(original, &patch)?;
    check_orders(&merged, &patch, schema)?;
    let (directives, changes) = split(patch);
    delete_from_primitive_lists(&mut merged, &directives)?;
    // An order without a change of the list only sorts it.
    let orders = directives
        .iter()
        .filter_map(|(key, order)| Some((key.strip_prefix(ORDER_PREFIX)?, order)));
    let alone: Vec<(&str, &Value)> = orders.filter(|(list, _)| !changes.contains_key(*list)).collect();
    for (key, change) in changes {
        let order = match directives.is_empty() {
            true => None,
            false => directives.get(&format!("{ORDER_PREFIX}{key}")),
        };
        let schema = child(schema, &key);
        match merged.get_mut(&key) {
            _ if change.is_null() => {
                merged.remove(&key);
            }
            Some(present) => merge_value(present, change, order, schema)?,
            // Where there was nothing, there is nothing to merge with.
            None => merged.extend(fresh(change).map(|value| (key, value))),
        }
    }
    for (list, order) in alone {
        if let Some(Value::Array(items)) = merged.get_mut(list) {
            let merging = Merging {
                change: Vec::new(),
                order: Some(order),
                schema: child(schema, list),
            };
            *items = merge_list(std::mem::take(items), merging)?;
        }
    }
    Ok(merged)
}

/// The directives of a patch, and its other fields. Few patches have directives, and those of most items are none.
fn split(patch: Map<String, Value>) -> (Map<String, Value>, Map<String, Value>) {
    match patch.keys().any(|key| is_directive(key)) {
        true => patch.into_iter().partition(|(key, _)| is_directive(key)),
        false => (Map::new(), patch),
    }
}

/// `$deleteFromPrimitiveList/x`: the items of the list that go.
fn delete_from_primitive_lists(
    merged: &mut Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<(), StrategicError> {
    for (key, items) in patch.iter().filter(|(key, _)| key.starts_with(DELETE)) {
        let list = key.strip_prefix(DELETE_PREFIX).ok_or(StrategicError::DeleteFormat)?;
        match (merged.get_mut(list), items) {
            (Some(Value::Array(items)), Value::Array(gone)) => {
                check_types(items, gone)?;
                let gone: BTreeSet<Name<'_>> = gone.iter().map(id).collect();
                items.retain(|item| !gone.contains(&id(item)));
            }
            (_, Value::Null) => {
                merged.remove(list);
            }
            // A value that is not a list deletes nothing.
            _ => {}
        }
    }
    Ok(())
}

/// Whether every `$setElementOrder/x` can order its items.
fn check_orders(
    original: &Map<String, Value>,
    patch: &Map<String, Value>,
    schema: Option<&Schema>,
) -> Result<(), StrategicError> {
    let list_of = |value: &Value| match value {
        Value::Array(_) => Ok(()),
        Value::Null => Err(StrategicError::OrderType("%!s(<nil>)")),
        other => Err(StrategicError::OrderType(go::type_name(other))),
    };
    for (key, order) in patch.iter().filter(|(key, _)| key.starts_with(ORDER)) {
        let field = key.strip_prefix(ORDER_PREFIX).ok_or(StrategicError::OrderFormat)?;
        list_of(order)?;
        let change = patch.get(field);
        for list in [original.get(field), change].into_iter().flatten() {
            list_of(list)?;
        }
        let Some(schema) = schema.filter(|schema| !schema.properties.is_empty()) else {
            continue;
        };
        let Some(of) = schema.properties.get(field) else {
            return Err(StrategicError::NoField {
                type_: schema.type_name().unwrap_or_default().to_owned(),
                field: field.to_owned(),
            });
        };
        if of.type_ != Some(Type::Array) {
            return Err(StrategicError::NotAList);
        }
        if let (Value::Array(order), Some(Value::Array(change))) = (order, change) {
            let identity = match of.patch_merge_key.as_deref() {
                Some(key) => Identity::Key(key),
                None => Identity::Value,
            };
            let named: Vec<&Value> = change.iter().filter(|item| item.get(DIRECTIVE).is_none()).collect();
            let (ids, order_ids) = (identity.all(named.iter().copied()), identity.all(order));
            check_order((&named, &ids), (order, &places(&order_ids)))?;
        }
        let mut lists = [original.get(field), change]
            .into_iter()
            .flatten()
            .filter_map(Value::as_array)
            .peekable();
        if lists.peek().is_some() && lists.all(Vec::is_empty) {
            return Err(StrategicError::NothingToOrder);
        }
    }
    Ok(())
}

fn is_directive(key: &str) -> bool {
    key == DIRECTIVE || key == RETAIN || key.starts_with(DELETE_PREFIX) || key.starts_with(ORDER_PREFIX)
}

fn unknown(directive: &Value, map: &Map<String, Value>) -> StrategicError {
    let shown = match directive {
        Value::String(text) => text.clone(),
        Value::Null => "%!s(<nil>)".to_owned(),
        Value::Bool(_) | Value::Number(_) => format!("%!s({}={directive})", go::type_name(directive)),
        other => go::text(other),
    };
    StrategicError::Directive {
        directive: shown,
        map: go::text(&Value::Object(map.clone())),
    }
}

/// Lists merge only when all their items are of one type (`sliceElementType`).
fn check_types(original: &[Value], change: &[Value]) -> Result<(), StrategicError> {
    let mut types = original.iter().chain(change).map(go::type_name);
    let Some(first) = types.next() else { return Ok(()) };
    if first == "[]interface {}" {
        return Err(StrategicError::ListOfLists);
    }
    if types.all(|other| other == first) {
        return Ok(());
    }
    let both = Value::from(vec![Value::from(original.to_vec()), Value::from(change.to_vec())]);
    Err(StrategicError::Types(go::text(&both)))
}

/// `$retainKeys`: keys of the original that are not listed go.
fn retain(original: Map<String, Value>, patch: &Map<String, Value>) -> Result<Map<String, Value>, StrategicError> {
    let Some(listed) = patch.get(RETAIN) else {
        return Ok(original);
    };
    let Value::Array(listed) = listed else {
        return Err(StrategicError::Retain);
    };
    let listed: BTreeSet<&str> = listed.iter().filter_map(Value::as_str).collect();
    let unlisted = patch
        .iter()
        .find(|(key, value)| !is_directive(key) && !value.is_null() && !listed.contains(key.as_str()));
    if unlisted.is_some() {
        return Err(StrategicError::Retain);
    }
    let kept = original.into_iter().filter(|(key, _)| listed.contains(key.as_str()));
    Ok(kept.collect())
}

fn merge_value(
    present: &mut Value,
    change: Value,
    order: Option<&Value>,
    schema: Option<&SchemaRef>,
) -> Result<(), StrategicError> {
    match (&mut *present, change) {
        (Value::Object(_), change @ Value::Object(_)) if follows(schema, "replace") => *present = change,
        (Value::Object(before), Value::Object(change)) => {
            *before = merge_map(std::mem::take(before), change, schema)?;
        }
        (Value::Array(before), Value::Array(change)) if follows(schema, "merge") => {
            check_types(before, &change)?;
            let merging = Merging { change, order, schema };
            *before = merge_list(std::mem::take(before), merging)?;
        }
        (Value::Array(_), change @ Value::Array(_)) => *present = change,
        // Where there was nothing of that type, there is nothing to merge with.
        (_, change) => {
            if let Some(value) = fresh(change) {
                *present = value;
            }
        }
    }
    Ok(())
}

/// A new part of the document: without `null`s, and without maps that say `$patch`. None when it is such a map itself.
fn fresh(mut change: Value) -> Option<Value> {
    freshen(&mut change).then_some(change)
}

/// Whether a new part stays; takes out of it what does not.
fn freshen(change: &mut Value) -> bool {
    match change {
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => return false,
        Value::Object(fields) => fields.retain(|_, value| !value.is_null() && freshen(value)),
        Value::Array(items) => items.retain_mut(freshen),
        _ => {}
    }
    true
}

/// What only equal values have in common. It borrows the text of a string: lists come from requests and may be long.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'v> {
    Text(Cow<'v, str>),
    /// Another value as JSON.
    Other(String),
}

impl Name<'_> {
    fn into_owned(self) -> Name<'static> {
        match self {
            Name::Text(text) => Name::Text(Cow::Owned(text.into_owned())),
            Name::Other(json) => Name::Other(json),
        }
    }
}

/// What items that are the same have in common; none of an item that is like no other.
type Id<'v> = Option<Name<'v>>;

/// Where the items of a list are.
type Places<'i> = BTreeMap<&'i Id<'i>, usize>;

/// The first place of each item. Lists come from requests and may be long: no searching in loops.
fn places<'i>(ids: impl IntoIterator<Item = &'i Id<'i>>) -> Places<'i> {
    let mut places = BTreeMap::new();
    for (place, id) in ids.into_iter().enumerate() {
        places.entry(id).or_insert(place);
    }
    places
}

/// How items of a list are recognised.
#[derive(Clone, Copy, PartialEq)]
enum Identity<'a> {
    Key(&'a str),
    Value,
}

impl Identity<'_> {
    /// What an item is recognised by. An item without the key is like no other.
    fn of(self, item: &Value) -> Id<'_> {
        match self {
            Identity::Key(key) => item.get(key).map(id),
            Identity::Value => Some(id(item)),
        }
    }

    /// Of all items of a list.
    fn all<'v>(self, list: impl IntoIterator<Item = &'v Value>) -> Vec<Id<'v>> {
        list.into_iter().map(|item| self.of(item)).collect()
    }

    fn check(self, item: &Value) -> Result<Id<'_>, StrategicError> {
        let found = self.of(item);
        self.check_id(item, &found)?;
        Ok(found)
    }

    fn check_id(self, item: &Value, id: &Id<'_>) -> Result<(), StrategicError> {
        match (self, id) {
            (Identity::Key(key), None) => Err(StrategicError::NoMergeKey {
                item: go::text(item),
                key: key.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

fn id(value: &Value) -> Name<'_> {
    match value {
        Value::String(text) => Name::Text(Cow::Borrowed(text)),
        other => Name::Other(other.to_string()),
    }
}

/// What a list merges with.
struct Merging<'a> {
    change: Vec<Value>,
    order: Option<&'a Value>,
    schema: Option<&'a SchemaRef>,
}

/// Takes the original and the change, whose items are many or large: none of them is copied.
fn merge_list(original: Vec<Value>, merging: Merging<'_>) -> Result<Vec<Value>, StrategicError> {
    let schema = merging.schema.map(SchemaRef::get);
    let items_are_maps = merging
        .change
        .first()
        .or(original.first())
        .is_some_and(Value::is_object);
    let identity = match schema.and_then(|schema| schema.patch_merge_key.as_deref()) {
        Some(key) if items_are_maps => Identity::Key(key),
        _ => Identity::Value,
    };
    let owned = |item: &Value| identity.of(item).map(Name::into_owned);
    // The items themselves move into the merged list.
    let original_ids: Vec<Id<'_>> = original.iter().map(owned).collect();
    let (kept, changes) = apply_item_directives(&original_ids, merging.change, identity)?;
    let change_ids: Vec<Id<'_>> = changes.iter().map(owned).collect();
    let order = match merging.order {
        None => None,
        Some(Value::Array(order)) => Some((order.as_slice(), identity.all(order))),
        Some(other) => return Err(StrategicError::OrderType(go::type_name(other))),
    };
    let named = places(order.as_ref().map_or(&change_ids, |(_, ids)| ids));
    // An error of the merge comes first; the items move away there.
    let in_order = order.as_ref().map_or(Ok(()), |(order, _)| {
        check_order((&changes.iter().collect::<Vec<_>>(), &change_ids), (order, &named))
    });
    let kept_ids: Vec<&Id<'_>> = original_ids
        .iter()
        .zip(&kept)
        .filter_map(|(id, kept)| kept.then_some(id))
        .collect();
    let items = original.into_iter().zip(&kept);
    let mut merged: Vec<Value> = items.filter_map(|(item, kept)| kept.then_some(item)).collect();
    let item_schema = schema.and_then(|schema| schema.items.as_ref());
    let mut known = places(kept_ids.iter().copied());
    let mut ids = kept_ids.clone();
    // Items that are recognised by something else since they were merged.
    let mut renamed: BTreeMap<usize, Id<'_>> = BTreeMap::new();
    for (item, id) in changes.into_iter().zip(&change_ids) {
        identity.check_id(&item, id)?;
        let Some(&place) = known.get(id) else {
            known.insert(id, merged.len());
            ids.push(id);
            // Taken as it stands, with any directives in it.
            merged.push(item);
            continue;
        };
        match (&mut merged[place], item) {
            (Value::Object(before), Value::Object(change)) => {
                *before = merge_map(std::mem::take(before), change, item_schema)?;
            }
            (before, item) => *before = item,
        }
        if identity.of(&merged[place]) != *id {
            renamed.insert(place, owned(&merged[place]));
        }
    }
    let ids: Vec<&Id<'_>> = ids
        .into_iter()
        .enumerate()
        .map(|(place, id)| renamed.get(&place).unwrap_or(id))
        .collect();
    in_order?;
    let before = match &order {
        None => places(&original_ids),
        Some((order, order_ids)) => {
            check_order_items(&ids, (order, order_ids, &named), identity)?;
            places(overwritten(&original_ids, &kept_ids, &ids[kept_ids.len()..]))
        }
    };
    Ok(sort(merged, &ids, &named, &before, identity))
}

/// The old list as it stands when the order is made: upstream deletes and appends in its memory, so new items take the
/// room that deleted ones left at the end. This decides where they stand among items that the order does not name.
fn overwritten<'i>(original: &'i [Id<'i>], kept: &[&'i Id<'i>], added: &[&'i Id<'i>]) -> Vec<&'i Id<'i>> {
    let now = kept.iter().chain(added).copied();
    let mut before: Vec<&Id<'_>> = now.take(original.len()).collect();
    before.extend(original.iter().skip(before.len()));
    before
}

/// Takes `{$patch: delete|replace}` items out of the patch and says which items of the original stay, and what else is
/// changed.
fn apply_item_directives(
    original: &[Id<'_>],
    mut change: Vec<Value>,
    identity: Identity<'_>,
) -> Result<(Vec<bool>, Vec<Value>), StrategicError> {
    let mut gone = BTreeSet::new();
    let mut replaced = false;
    for item in &change {
        match item.get(DIRECTIVE).map(|directive| (directive, directive.as_str())) {
            None => {}
            Some((_, Some("replace"))) => replaced = true,
            Some((_, Some("delete"))) => {
                gone.insert(identity.check(item)?);
            }
            Some((_, Some("merge"))) => return Err(StrategicError::MergeItem),
            Some((directive, _)) => return Err(unknown(directive, item.as_object().unwrap_or(&Map::new()))),
        }
    }
    let kept = original.iter().map(|id| !replaced && !gone.contains(id)).collect();
    change.retain(|item| item.get(DIRECTIVE).is_none());
    Ok((kept, change))
}

/// Everything that the patch changes must be in the order, and in that order.
fn check_order(
    (changes, ids): (&[&Value], &[Id<'_>]),
    (order, places): (&[Value], &Places<'_>),
) -> Result<(), StrategicError> {
    let positions: Option<Vec<&usize>> = ids.iter().map(|id| places.get(id)).collect();
    if order.is_empty() || positions.is_some_and(|positions| positions.is_sorted()) {
        return Ok(());
    }
    Err(StrategicError::Order {
        list: go::text(&changes.iter().map(|item| (*item).clone()).collect()),
        order: go::text(&Value::from(order.to_vec())),
    })
}

/// The items of an order are looked through for each item of the list, as far as to the one that it is.
fn check_order_items(
    list: &[&Id<'_>],
    (order, ids, places): (&[Value], &[Id<'_>], &Places<'_>),
    identity: Identity<'_>,
) -> Result<(), StrategicError> {
    let Identity::Key(_) = identity else { return Ok(()) };
    let place = |id: &&Id<'_>| places.get(*id).map_or(order.len(), |place| place + 1);
    let seen = list.iter().map(place).max().unwrap_or(0);
    for (at, (item, id)) in order.iter().zip(ids).enumerate().take(seen) {
        if !item.is_object() {
            return Err(StrategicError::OrderItem(at));
        }
        identity.check_id(item, id)?;
    }
    Ok(())
}

/// Interleaves the items that the patch names (in its order) with the others (in the old order).
fn sort(
    merged: Vec<Value>,
    ids: &[&Id<'_>],
    named: &Places<'_>,
    before: &Places<'_>,
    identity: Identity<'_>,
) -> Vec<Value> {
    // Each with its place in the patch and its old place; equal scalars count once.
    let mut seen = BTreeSet::new();
    let mut placed = Vec::with_capacity(merged.len());
    for (item, id) in merged.into_iter().zip(ids) {
        let counts_once = identity == Identity::Value && !item.is_object();
        if !counts_once || seen.insert(id) {
            placed.push((named.get(id).copied(), before.get(id).copied(), item));
        }
    }
    let (mut ours, mut others): (Vec<_>, Vec<_>) = placed.into_iter().partition(|(named, _, _)| named.is_some());
    ours.sort_by_key(|(named, _, _)| *named);
    // Items that the patch adds without naming them in its order come last.
    others.sort_by_key(|(_, before, _)| before.unwrap_or(usize::MAX));
    let mut sorted = Vec::with_capacity(ours.len() + others.len());
    let (mut ours, mut others) = (ours.into_iter().peekable(), others.into_iter().peekable());
    while let (Some((_, mine, _)), Some((_, other, _))) = (ours.peek(), others.peek()) {
        let other_first = mine.zip(*other).is_some_and(|(mine, other)| other < mine);
        sorted.extend(if other_first { others.next() } else { ours.next() });
    }
    sorted.extend(ours);
    sorted.extend(others);
    sorted.into_iter().map(|(_, _, item)| item).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema::catalog;
    use serde_json::json;

    fn patched(document: &Value, patch: &Value) -> Result<Value, String> {
        let schema = catalog::for_kind("", "v1", "Pod").expect("the catalog knows Pod");
        apply(document, patch.clone(), &schema).map_err(|why| why.to_string())
    }

    fn check(document: Value, patch: Value, expected: Value) {
        assert_eq!(patched(&document, &patch), Ok(expected), "{patch}");
    }

    fn pod() -> Value {
        json!({
            "metadata": {"labels": {"x": "1"}, "finalizers": ["a", "b"]},
            "spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "A", "value": "1"}]}, {"name": "b"}], "tolerations": [{"key": "t"}]},
        })
    }

    fn containers(patch: Value) -> Value {
        patched(&pod(), &json!({"spec": patch})).unwrap()["spec"]["containers"].clone()
    }

    #[test]
    fn lists_merge_by_their_key_or_are_replaced() {
        assert_eq!(
            containers(json!({"containers": [{"name": "b", "image": "2"}]}))[1],
            json!({"name": "b", "image": "2"})
        );
        let env = containers(
            json!({"containers": [{"name": "a", "env": [{"name": "B", "value": "2"}, {"name": "A", "$patch": "delete"}]}]}),
        );
        assert_eq!(env[0]["env"], json!([{"name": "B", "value": "2"}]));
        let tolerations = patched(&pod(), &json!({"spec": {"tolerations": [{"key": "u"}]}})).unwrap();
        assert_eq!(tolerations["spec"]["tolerations"], json!([{"key": "u"}]));
    }

    #[test]
    fn new_items_stand_where_the_order_says() {
        let names = |value: Value| -> Vec<String> {
            value
                .as_array()
                .unwrap()
                .iter()
                .map(|item| item["name"].as_str().unwrap().to_string())
                .collect()
        };
        assert_eq!(
            names(containers(json!({"containers": [{"name": "c"}]}))),
            ["c", "a", "b"]
        );
        let order = json!([{"name": "a"}, {"name": "c"}, {"name": "b"}]);
        assert_eq!(
            names(containers(
                json!({"containers": [{"name": "c"}], "$setElementOrder/containers": order})
            )),
            ["a", "c", "b"]
        );
        let order = json!([{"name": "b"}, {"name": "a"}]);
        assert_eq!(
            names(containers(json!({"$setElementOrder/containers": order}))),
            ["b", "a"]
        );
        // A new item takes the place in the old order that a deleted one left.
        let live = json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "extra"}]}});
        let patch = json!({"spec": {
            "containers": [{"name": "a", "$patch": "delete"}, {"name": "c"}],
            "$setElementOrder/containers": [{"name": "b"}, {"name": "c"}],
        }});
        assert_eq!(
            names(patched(&live, &patch).expect("a good patch")["spec"]["containers"].clone()),
            ["b", "extra", "c"]
        );
    }

    #[test]
    fn directives() {
        check(
            json!({"metadata": {"labels": {"x": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "z": "3"}}}),
            json!({"metadata": {"labels": {"z": "3"}}}),
        );
        check(
            json!({"metadata": {"labels": {"x": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "delete"}}}),
            json!({"metadata": {"labels": {}}}),
        );
        // `merge` is the default; as an explicit directive it is refused.
        assert_eq!(
            patched(
                &json!({"metadata": {"labels": {"x": "1"}}}),
                &json!({"metadata": {"labels": {"$patch": "merge", "z": "3"}}}),
            ),
            Err("unknown patch type: merge in map: map[$patch:merge z:3]".to_owned())
        );
        // Recorded: where there is no map yet, with any directive and any fields beside it.
        for directive in ["merge", "replace", "delete", "maybe"] {
            check(
                json!({"metadata": {}}),
                json!({"metadata": {"labels": {"$patch": directive, "z": "3"}}}),
                json!({"metadata": {}}),
            );
        }
        check(
            json!({"metadata": {"finalizers": ["b", "a", "a"]}}),
            json!({"metadata": {"finalizers": ["c", "a"]}}),
            json!({"metadata": {"finalizers": ["c", "b", "a"]}}),
        );
        check(
            json!({}),
            json!({"spec": {"containers": [{"name": "x", "env": [{"name": "A", "$patch": "delete"}], "image": null}]}}),
            json!({"spec": {"containers": [{"name": "x", "env": []}]}}),
        );
        check(
            json!({"spec": {"containers": [{"name": "x"}]}}),
            json!({"spec": {"containers": "text"}}),
            json!({"spec": {"containers": "text"}}),
        );
        check(
            json!({"metadata": {"finalizers": ["a", "b"]}}),
            json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}}),
            json!({"metadata": {"finalizers": ["c", "b"]}}),
        );
        check(
            json!({"spec": {"a": 1, "b": 2}}),
            json!({"spec": {"$retainKeys": ["b", "c"], "c": 3}}),
            json!({"spec": {"b": 2, "c": 3}}),
        );
        check(
            json!({"spec": {"a": 1}}),
            json!({"spec": {"a": null, "n": {"x": null, "y": 1}}}),
            json!({"spec": {"n": {"y": 1}}}),
        );
        assert_eq!(
            containers(json!({"containers": [{"$patch": "replace"}, {"name": "z"}]})),
            json!([{"name": "z"}])
        );
    }

    #[test]
    fn what_cannot_be_applied_says_why() {
        let refused = |patch: Value, text: &str| {
            let why = patched(&pod(), &patch).unwrap_err();
            assert!(why.contains(text), "{why}");
        };
        refused(
            json!({"spec": {"containers": [{"image": "x"}]}}),
            "map: map[image:x] does not contain declared merge key: name",
        );
        refused(
            json!({"spec": {"containers": [{"$patch": "delete"}]}}),
            "does not contain declared merge key: name",
        );
        refused(
            json!({"spec": {"containers": [{"name": "b"}], "$setElementOrder/containers": [{"name": "a"}]}}),
            "The order in patch list:\n[map[name:b]]\n doesn't match $setElementOrder list:\n[map[name:a]]\n",
        );
        refused(
            json!({"metadata": {"labels": {"$patch": "maybe"}}}),
            "unknown patch type: maybe in map: map[$patch:maybe]",
        );
        refused(
            json!({"spec": {"containers": [{"$patch": 5}]}}),
            "unknown patch type: %!s(int64=5) in map: map[$patch:5]",
        );
        refused(
            json!({"spec": {"containers": [{"$patch": "merge"}]}}),
            "merging lists cannot yet be specified in the patch",
        );
        refused(
            json!({"spec": {"$retainKeys": "a"}}),
            "invalid patch format of retainKeys",
        );
        refused(
            json!({"spec": {"$setElementOrder/containers": "a"}}),
            "expected a []interface {}, but received a string",
        );
        refused(
            json!({"spec": {"volumes": [], "$setElementOrder/volumes": []}}),
            "no elements in any of the given slices",
        );
        refused(
            json!({"spec": {"containers": ["x"]}}),
            "list element types are not identical: [[",
        );
        refused(json!([1]), "a strategic merge patch is an object");
    }
}
