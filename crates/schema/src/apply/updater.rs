//! The effect of a write on the ownership of fields.

mod scale;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use serde_json::Value;

use super::diff::{Diff, diff};
use super::managers::{ManagedFields, Manager, Operation, Owned};
use super::pruning::Pruning;
use super::shape::{Form, element, fields};
use super::views::{Changes, Views, changes, fit_entries, is_untyped, unreadable, untyped, unwritable};
use super::{FieldSet, ObjectType, check, merge};
use crate::{budget, measure};
pub use scale::{scale_managers, scale_to_parent};

/// More Update entries than this are joined into one of [`ANCIENT`].
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of changes that are too long ago to be told apart.
const ANCIENT: &str = "ancient-changes";
/// The manager of the fields that an object had before its managers were tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// The fields without an owner: the identity of an object, and fields that only the server writes.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| budget::unlimited(unowned));

fn unowned() -> FieldSet {
    let mut set = FieldSet::default();
    for path in [
        "apiVersion",
        "kind",
        "metadata",
        "metadata.name",
        "metadata.namespace",
        "metadata.creationTimestamp",
        "metadata.selfLink",
        "metadata.uid",
        "metadata.clusterName",
        "metadata.generation",
        "metadata.managedFields",
        "metadata.resourceVersion",
    ] {
        set.extend(FieldSet::of_path(path.split('.')));
    }
    set
}

/// A field that another manager owns and an apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages show it: `"m1"`, `"ctl" with subresource "status"`, `"kubectl" using apps/v1 at
    /// 2026-01-01T00:00:00Z`.
    pub manager: String,
    /// The field as messages show it: `.data.x`.
    pub field: String,
}

/// An object as another version of its kind has it, by what it is, the `apiVersion` that it is in, and the one it is
/// wanted in; with how fields are looked at there. None where it cannot be said.
pub type Convert<'a> = &'a (dyn Fn(&Value, &str, &str) -> Option<(ObjectType, Value)> + Sync);

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// It does not fit the schema; the text says where.
    Invalid(String),
    /// The live object does not fit it, though the configuration does; the text says where.
    Live(String),
    /// The object cannot be had in a version in which one of its managers wrote: the whole message.
    Unconverted(String),
    /// Other managers own fields that it would change.
    Conflicts(Vec<Conflict>),
}

/// `Apply failed with 2 conflicts: …`: the conflicts by manager.
pub fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [one] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            one.manager, one.field
        );
    }
    let mut by_manager: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for conflict in conflicts {
        by_manager.entry(&conflict.manager).or_default().push(&conflict.field);
    }
    let mut lines = Vec::new();
    for (manager, fields) in by_manager {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(fields.into_iter().map(|field| format!("- {field}")));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

fn shown(manager: &Manager) -> String {
    let mut text = format!("{:?}", manager.name);
    if !manager.subresource.is_empty() {
        text = format!("{text} with subresource {:?}", manager.subresource);
    }
    if manager.operation == Operation::Update {
        text = format!("{text} using {}", manager.api_version);
    }
    text
}

/// The fields of a configuration that the live object has with the same values, as [`Conflict::field`] names them: the
/// fields that its author may be said to own (`lastAppliedManager` upstream).
pub fn unchanged(kind: &ObjectType, config: &Value, live: &Value) -> BTreeSet<String> {
    let shape = kind.shape();
    let mut same = fields(config, shape).children;
    let Diff {
        added,
        modified,
        removed,
    } = diff(config, live, shape);
    for other in [&added, &modified, &removed] {
        same.subtract(other);
    }
    same.paths().into_iter().collect()
}

/// Follows an ordinary write from `live` (null: it creates) to `new`, neither with `managedFields`: changed fields
/// belong to the manager from now on. Answers whether the entries changed. `now` is the time for the manager's entry.
///
/// An object that has no entries any more is not tracked again before the next apply.
///
/// ```
/// use kubewright_schema::apply::{ManagedFields, Manager, ObjectType, Operation, update};
/// use kubewright_schema::catalog;
/// use serde_json::{Value, json};
///
/// let kind = ObjectType::built_in(catalog::for_kind("", "v1", "ConfigMap").expect("built in"));
/// let writer = Manager::new("kubectl", Operation::Update, "v1", "");
/// let mut managed = ManagedFields::default();
/// let new = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}});
/// update(&kind, &Value::Null, &new, &mut managed, &writer, "v1", "2026-01-01T00:00:00Z");
/// assert_eq!(managed.entries[&writer].fields.paths(), [".data", ".data.x"]);
/// ```
pub fn update(
    kind: &ObjectType,
    live: &Value,
    new: &Value,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    now: &str,
) -> bool {
    update_seen(kind, live, new, managed, manager, version, now, &Views::new())
}

/// [`update`] for a kind whose versions differ in their fields: a manager's losses are judged in the version in which
/// it wrote.
#[expect(clippy::too_many_arguments, reason = "a write is that many things, each once")]
pub fn update_seen(
    kind: &ObjectType,
    live: &Value,
    new: &Value,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    now: &str,
    views: &Views,
) -> bool {
    if managed.entries.is_empty() && !live.is_null() || has_nameless_items(kind, live) || has_nameless_items(kind, new)
    {
        return false;
    }
    let no_version = |owned: &Owned| owned.api_version.matches('/').count() > 1;
    if managed.entries.values().any(no_version)
        || unreadable(views).is_some()
        || unwritable(views).is_some()
        || is_untyped(kind, live, new)
    {
        // As upstream: an object whose owners are not known any more is not tracked.
        managed.entries.clear();
        return true;
    }
    let known = managed.entries.len();
    managed
        .entries
        .retain(|_, owned| kind.reads(version, &owned.api_version));
    let fitted = fit_entries(kind, views, managed);
    let others = changes(views, managed);
    // A manager that owns nothing has no entry.
    managed.entries.retain(|_, owned| !owned.fields.is_empty());
    let dropped = managed.entries.len() != known;
    let changed = follow(kind, live, new, managed, manager, version, Some(now), &others);
    cap(managed) || changed || dropped || fitted
}

/// Whether an item of a list lacks its key. Upstream cannot read such an object, and leaves managedFields as they are. Of
/// the built-in kinds only a ServiceAccount has such items, its secrets; so only lists at the top are looked at.
fn has_nameless_items(kind: &ObjectType, object: &Value) -> bool {
    let mut fields = object.as_object().into_iter().flatten().filter(|_| !kind.is_custom());
    fields.any(|(key, value)| {
        let Value::Array(items) = value else { return false };
        match kind.shape().part_or_nothing(key).shape.form([Some(value), None]) {
            form @ Form::Items(_) => items.iter().any(|item| element(form, item).is_err()),
            _ => false,
        }
    })
}

/// In which fields two objects differ, without those that a write does not change.
fn difference(kind: &ObjectType, old: &Value, new: &Value) -> Diff {
    let mut found = diff(old, new, kind.shape());
    for set in [&mut found.added, &mut found.modified, &mut found.removed] {
        set.subtract_below(kind.reset());
    }
    found
}

/// The same without the rule for objects that are not tracked.
#[expect(clippy::too_many_arguments, reason = "a write is that many things, each once")]
fn follow(
    kind: &ObjectType,
    live: &Value,
    new: &Value,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    now: Option<&str>,
    others: &Changes,
) -> bool {
    let empty = Value::Object(serde_json::Map::new());
    let live = if live.is_null() { &empty } else { live };
    let Diff {
        mut added,
        modified,
        mut removed,
    } = difference(kind, live, new);
    added.extend(modified);
    added.subtract(&UNOWNED);
    removed.subtract(&UNOWNED);
    if added.is_empty() && removed.is_empty() {
        return false;
    }
    managed.entries.retain(|_, owned| {
        if let Some(seen) = others.get(&owned.api_version) {
            for lost in [&seen.added, &seen.modified, &seen.removed] {
                owned.fields.subtract(lost);
            }
        } else {
            owned.fields.subtract(&added);
            owned.fields.subtract(&removed);
        }
        !owned.fields.is_empty()
    });
    if !added.is_empty() {
        let owned = managed.entries.entry(manager.clone()).or_insert_with(|| Owned {
            fields: FieldSet::default(),
            api_version: version.to_owned(),
            time: None,
        });
        owned.fields.extend(added);
        owned.time = now.map(str::to_owned);
    }
    true
}

/// Joins the oldest updates of a version until there are few enough.
fn cap(managed: &mut ManagedFields) -> bool {
    let entries = &mut managed.entries;
    let mut updates: Vec<(Option<String>, Manager)> = entries
        .iter()
        .filter(|(manager, _)| manager.operation == Operation::Update)
        .map(|(manager, owned)| (owned.time.clone(), manager.clone()))
        .collect();
    let mut left = updates.len();
    if left <= MAX_UPDATE_MANAGERS {
        return false;
    }
    updates.sort();
    let mut first_of: BTreeMap<String, Manager> = BTreeMap::new();
    let mut joined: BTreeMap<Manager, Vec<FieldSet>> = BTreeMap::new();
    for (_, manager) in updates {
        if left <= MAX_UPDATE_MANAGERS {
            break;
        }
        let Some(version) = entries.get(&manager).map(|owned| owned.api_version.clone()) else {
            continue;
        };
        let Some(first) = first_of.get(&version) else {
            first_of.insert(version, manager);
            continue;
        };
        let bucket = Manager::new(ANCIENT, Operation::Update, &version, "");
        if !entries.contains_key(&bucket)
            && let Some(owned) = entries.remove(first)
        {
            entries.insert(bucket.clone(), owned);
        }
        if manager != bucket
            && let Some(owned) = entries.remove(&manager)
            && let Some(of_bucket) = entries.get_mut(&bucket)
        {
            joined.entry(bucket).or_default().push(owned.fields);
            // The later of the two: the entries come in the order of their times.
            of_bucket.time = owned.time;
            left -= 1;
        }
    }
    for (bucket, sets) in joined {
        if let Some(of_bucket) = entries.get_mut(&bucket) {
            of_bucket.fields.extend(FieldSet::union(sets));
        }
    }
    true
}

/// The live object of an apply (null: it creates), without `managedFields`.
#[derive(Clone, Copy, Debug)]
pub struct Live<'a> {
    /// The object.
    pub object: &'a Value,
    /// Whether it is known to be of its type ([`untyped`]).
    pub is_typed: bool,
}

/// Applies a configuration to the live object (null: it creates), neither with `managedFields`.
///
/// Answers the new object, or none when nothing changes except perhaps the ownership. Removed fields that leave an
/// empty struct leave null. `now` is the time for the manager's entry.
///
/// ```
/// use kubewright_schema::apply::{ApplyError, ManagedFields, Manager, ObjectType, Operation, apply, conflict_message};
/// use kubewright_schema::catalog;
/// use serde_json::{Value, json};
///
/// let kind = ObjectType::built_in(catalog::for_kind("", "v1", "ConfigMap").expect("built in"));
/// let manager = |name| Manager::new(name, Operation::Apply, "v1", "");
/// let mut managed = ManagedFields::default();
/// let config = json!({"data": {"x": "1"}});
/// let live = apply(&kind, &Value::Null, &config, &mut managed, &manager("one"), "v1", false, "2026-01-01T00:00:00Z")
///     .expect("nobody else owns anything")
///     .expect("it is new");
/// let other = json!({"data": {"x": "2"}});
/// let refused = apply(&kind, &live, &other, &mut managed, &manager("two"), "v1", false, "2026-01-01T00:00:00Z");
/// let Err(ApplyError::Conflicts(conflicts)) = refused else { panic!("{refused:?}") };
/// assert_eq!(conflict_message(&conflicts), "Apply failed with 1 conflict: conflict with \"one\": .data.x");
/// ```
///
/// # Errors
/// [`ApplyError`]; the entries are then not to be used.
#[expect(clippy::too_many_arguments, reason = "an apply is that many things, each once")]
pub fn apply(
    kind: &ObjectType,
    live: &Value,
    config: &Value,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    force: bool,
    now: &str,
) -> Result<Option<Value>, ApplyError> {
    let views = Views::new();
    if !live.is_null() {
        enter_untracked(kind, live, managed, manager, version, now);
    }
    let live = Live {
        object: live,
        is_typed: false,
    };
    let config = Cow::Borrowed(config);
    apply_seen(kind, live, config, managed, manager, version, force, now, &views, None)
}

/// Whether a configuration is of the kind's type: every field is declared, and items of lists can be told apart.
///
/// # Errors
/// [`ApplyError::Invalid`] with the errors and their places.
pub fn fits(kind: &ObjectType, config: &Value) -> Result<(), ApplyError> {
    let errors = check::check(config, kind.shape());
    if errors.is_empty() {
        Ok(())
    } else {
        Err(ApplyError::Invalid(check::joined(&errors)))
    }
}

/// Whether a configuration says anything that the live object does not have.
pub fn would_change(kind: &ObjectType, live: &Value, config: &Value) -> bool {
    !merge::is_there(live, config, kind.shape()) && merge::merge(live, config, kind.shape()) != *live
}

/// Enters the fields of an object that was not tracked: they belong to `before-first-apply`. `present` is as much of
/// the object as a write of this manager reaches (upstream's fields without the reset ones). Does nothing when there
/// are entries.
pub fn enter_untracked(
    kind: &ObjectType,
    present: &Value,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    now: &str,
) {
    if !managed.entries.is_empty() {
        return;
    }
    let before = Manager {
        subresource: manager.subresource.clone(),
        ..Manager::new(BEFORE_FIRST_APPLY, Operation::Update, version, "")
    };
    let nothing = Changes::new();
    follow(
        kind,
        &Value::Null,
        present,
        managed,
        &before,
        version,
        Some(now),
        &nothing,
    );
}

/// [`apply`] of which [`enter_untracked`] is done already, for a kind whose versions differ in their fields. Its result
/// does not depend on `views`, only the ownership and the conflicts do: so an apply without them, by force, shows the
/// objects of which they must be made. Fields that are given up are judged in the versions in which their owners wrote
/// where `convert` can tell, and otherwise in that of the apply. A created object takes over the values of an owned
/// configuration.
///
/// # Errors
/// As [`apply`].
#[expect(clippy::too_many_arguments, reason = "an apply is that many things, each once")]
pub fn apply_seen(
    kind: &ObjectType,
    live: Live<'_>,
    config: Cow<'_, Value>,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    force: bool,
    now: &str,
    views: &Views,
    convert: Option<Convert<'_>>,
) -> Result<Option<Value>, ApplyError> {
    fits(kind, &config)?;
    let Live { object: live, is_typed } = live;
    if !is_typed && let Some(why) = untyped(kind, live) {
        return Err(ApplyError::Live(why));
    }
    if let Some(why) = unreadable(views) {
        return Err(ApplyError::Unconverted(why));
    }
    let shape = kind.shape();
    let creates = live.is_null();
    let empty = Value::Object(serde_json::Map::new());
    let live = if creates { &empty } else { live };
    managed
        .entries
        .retain(|_, owned| kind.reads(version, &owned.api_version));
    fit_entries(kind, views, managed);
    refuse_unwritable(views, managed.entries.get(manager))?;
    let others = changes(views, managed);
    // With the unowned fields, so that the identity of the object survives the pruning.
    let mut applied = fields(&config, shape).children;
    let mut new = if merge::is_there(live, &config, shape) {
        Cow::Borrowed(live)
    } else if creates {
        // There is nothing to merge with, and each item is there once.
        Cow::Owned(config.into_owned())
    } else {
        Cow::Owned(merge::merge(live, &config, shape))
    };
    let mut last = managed.entries.remove(manager);
    applied.subtract_below(kind.reset());
    if let Some(last) = &mut last {
        last.fields.subtract_below(kind.reset());
    }
    let owned = Owned {
        fields: applied,
        api_version: version.to_owned(),
        time: last.as_ref().and_then(|last| last.time.clone()),
    };
    managed.entries.insert(manager.clone(), owned);
    // Nothing goes when everything that was applied the last time is applied again.
    let repeated = |last: &FieldSet| {
        let now = managed.entries.get(manager);
        now.is_some_and(|owned| owned.fields.contains_all(last))
    };
    if let Some(last) = last.filter(|last| !repeated(&last.fields)) {
        new = Cow::Owned(Pruning { kind, version, convert }.prune(new, last, managed));
    }
    if let Some(owned) = managed.entries.get_mut(manager) {
        owned.fields.subtract(&UNOWNED);
    }
    let difference = match &new {
        Cow::Owned(new) if managed.entries.keys().any(|other| other != manager) => difference(kind, live, new),
        // Nothing changed, or there is no other manager to lose it.
        _ => Diff::default(),
    };
    give_way(difference, managed, manager, force, others)?;
    // The order of items belongs to no field, and yet is a change.
    if !creates && *live == *new {
        return Ok(None);
    }
    if let Some(owned) = managed.entries.get_mut(manager) {
        owned.time = Some(now.to_owned());
    }
    Ok(Some(new.into_owned()))
}

/// Refuses an apply whose result some version cannot read: `last` is the manager's entry so far.
fn refuse_unwritable(views: &Views, last: Option<&Owned>) -> Result<(), ApplyError> {
    let Some((version, why)) = unwritable(views) else {
        return Ok(());
    };
    let pruned = last.filter(|last| !last.fields.is_empty());
    Err(ApplyError::Unconverted(match pruned {
        Some(last) if last.api_version == version => {
            format!("failed to prune fields: failed to convert merged object to last applied version: {why}")
        }
        Some(_) => format!(
            "failed to prune fields: failed add back owned items: failed to convert merged object at version {version}: {why}"
        ),
        None => format!("failed to convert new object: {why}"),
    }))
}

/// What a write takes from others: fields that have another value, and those that are gone.
struct Lost {
    changed: FieldSet,
    removed: FieldSet,
}

impl Lost {
    fn of(difference: Diff) -> Lost {
        let mut changed = difference.modified;
        changed.extend(difference.added);
        Lost {
            changed,
            removed: difference.removed,
        }
    }
}

/// Takes the changed fields away from the other managers, or answers the conflicts.
fn give_way(
    difference: Diff,
    managed: &mut ManagedFields,
    manager: &Manager,
    force: bool,
    others: Changes,
) -> Result<(), ApplyError> {
    let mut conflicts = Vec::new();
    let here = Lost::of(difference);
    let there = others.into_iter().map(|(version, seen)| (version, Lost::of(seen)));
    let there: BTreeMap<String, Lost> = there.collect();
    for (other, owned) in managed.entries.iter_mut().filter(|(other, _)| *other != manager) {
        let lost = there.get(&owned.api_version).unwrap_or(&here);
        if !force {
            let fields = owned.fields.intersection(&lost.changed).paths();
            conflicts.extend(fields.into_iter().map(|field| {
                let manager = shown(other);
                budget::produce(measure::text_held(manager.len()));
                Conflict { manager, field }
            }));
        }
        owned.fields.subtract(&lost.changed);
        owned.fields.subtract(&lost.removed);
    }
    if !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    managed.entries.retain(|_, owned| !owned.fields.is_empty());
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{SchemaRef, catalog};

    const NOW: &str = "2026-01-01T00:00:00Z";

    fn custom() -> ObjectType {
        let schema = json!({"type": "object", "properties": {
            "box": {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}},
            "whole": {"type": "array", "items": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }});
        ObjectType::custom(SchemaRef::from_crd(&schema).expect("a schema"))
    }

    fn applied(
        live: &Value,
        config: &Value,
        managed: &mut ManagedFields,
        name: &str,
        force: bool,
    ) -> Result<Option<Value>, ApplyError> {
        let manager = Manager::new(name, Operation::Apply, "g/v1", "");
        apply(&custom(), live, config, managed, &manager, "g/v1", force, NOW)
    }

    #[test]
    fn configurations_of_a_wrong_form_are_refused() {
        for (config, want) in [
            (json!({"nope": 1}), ".nope: field not declared in schema"),
            (json!({"box": 1}), ".box: expected map, got &{1}"),
            (
                json!({"set": {"a": [1, "x"]}}),
                ".set: expected list, got &{map[a:[1 x]]}",
            ),
            (json!({"set": ["x", "x"]}), ".set: duplicate entries for key [=\"x\"]"),
            (
                json!({"list": [{"k": "a"}, {"k": "a"}]}),
                ".list: duplicate entries for key [k=\"a\"]",
            ),
            (
                json!({"list": [null]}),
                ".list: element 0: associative list with keys may not have a null element",
            ),
            (
                json!({"list": [{"v": "1"}]}),
                ".list: element 0: associative list with keys has an element that omits all key fields [\"k\"] (and doesn't have default values for any key fields)",
            ),
            (
                json!({"box": {"a": 1}}),
                ".box.a: expected string, got &value.valueUnstructured{Value:1}",
            ),
            (
                json!({"list": [{"k": "a", "v": "1"}], "box": {"c": 1}}),
                "errors:\n  .box.c: field not declared in schema\n  .list[k=\"a\"].v: expected numeric (int or float), got string",
            ),
        ] {
            let refused = applied(&Value::Null, &config, &mut ManagedFields::default(), "m", false);
            assert_eq!(refused, Err(ApplyError::Invalid(want.to_owned())), "{config}");
        }
    }

    #[test]
    fn items_keep_their_places() {
        for (live, config, want) in [
            (json!(["a", "b", "c"]), json!(["d"]), json!(["a", "b", "c", "d"])),
            (json!(["a", "b", "c"]), json!(["c", "a"]), json!(["b", "c", "a"])),
            (json!(["a", "b", "c"]), json!(["x", "b"]), json!(["a", "x", "b", "c"])),
            (json!(["a", "a", "b"]), json!(["b"]), json!(["a", "a", "b"])),
            (json!(["a", "b", "a"]), json!(["a"]), json!(["a", "b"])),
        ] {
            let new = merge::merge(&json!({"set": live}), &json!({"set": config}), custom().shape());
            assert_eq!(new["set"], want, "{live} and {config}");
        }
        let item = |key: &str, value: u64| json!({"k": key, "v": value});
        for (live, config, want) in [
            (json!([item("a", 1)]), json!([{"k": "a"}]), json!([item("a", 1)])),
            // Which of the two the applied one would change cannot be told.
            (
                json!([item("a", 1), item("a", 2)]),
                json!([{"k": "a"}]),
                json!([{"k": "a"}]),
            ),
            (
                json!([item("a", 1), item("b", 1), {"k": "a"}]),
                json!([{"k": "a"}, {"k": "b"}]),
                json!([{"k": "a"}, item("b", 1)]),
            ),
            (
                json!([item("a", 1), item("a", 2), item("a", 3)]),
                json!([item("b", 1)]),
                json!([item("a", 1), item("a", 2), item("a", 3), item("b", 1)]),
            ),
        ] {
            let new = merge::merge(&json!({"list": live}), &json!({"list": config}), custom().shape());
            assert_eq!(new["list"], want, "{live} and {config}");
        }
    }

    #[test]
    fn what_nobody_owns_any_more_goes() {
        let mut managed = ManagedFields::default();
        let one = json!({"box": {"a": "1"}, "set": ["x", "y"], "list": [{"k": "a", "v": 1}], "free": {"p": {"q": 1}}});
        let live = applied(&Value::Null, &one, &mut managed, "one", false)
            .expect("applied")
            .expect("new");
        assert_eq!(live, one);
        let two = json!({"set": ["y"], "list": [{"k": "a"}]});
        assert_eq!(applied(&live, &two, &mut managed, "two", false), Ok(None));
        let left = applied(&live, &json!({}), &mut managed, "one", false)
            .expect("applied")
            .expect("new");
        assert_eq!(left, json!({"set": ["y"], "list": [{"k": "a"}]}));
        assert_eq!(managed.entries.len(), 1);
    }

    /// As kube-apiserver 1.37.2: secrets of a ServiceAccount may have no name.
    #[test]
    fn items_without_a_name_change_no_owner() {
        let kind = ObjectType::built_in(catalog::for_kind("", "v1", "ServiceAccount").expect("built in"));
        let manager = Manager::new("m", Operation::Update, "v1", "");
        let (named, nameless) = (
            json!({"secrets": [{"name": "a"}]}),
            json!({"secrets": [{"name": "a"}, {}]}),
        );
        let mut managed = ManagedFields::default();
        assert!(!update(
            &kind,
            &Value::Null,
            &nameless,
            &mut managed,
            &manager,
            "v1",
            NOW
        ));
        assert!(managed.entries.is_empty());
        assert!(update(&kind, &Value::Null, &named, &mut managed, &manager, "v1", NOW));
        let before = managed.clone();
        assert!(!update(&kind, &named, &nameless, &mut managed, &manager, "v1", NOW));
        assert_eq!(managed, before);
    }

    #[test]
    fn plain_structs_of_built_in_kinds_are_always_there() {
        let kind = ObjectType::built_in(catalog::for_kind("apps", "v1", "Deployment").expect("built in"));
        let manager = Manager::new("m", Operation::Update, "apps/v1", "");
        let mut managed = ManagedFields::default();
        let new = json!({"spec": {"strategy": {"type": "Recreate"}, "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [{"name": "c", "resources": {}}]}}}});
        assert!(update(
            &kind,
            &Value::Null,
            &new,
            &mut managed,
            &manager,
            "apps/v1",
            NOW
        ));
        assert_eq!(
            managed.entries[&manager].fields.clone().encode(),
            json!({"f:spec": {"f:selector": {}, "f:strategy": {"f:type": {}},
                "f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:resources": {}}}}}}})
        );
        let before = managed.clone();
        assert!(!update(&kind, &new, &new, &mut managed, &manager, "apps/v1", "later"));
        assert_eq!(managed, before);
    }

    /// Without empty lists and maps: upstream drops one with its last item although it is applied, and puts it back the
    /// next time.
    fn some_object() -> impl Strategy<Value = Value> {
        let word = || prop::sample::select(vec!["a", "b", "c"]);
        let words = || prop::collection::btree_set(word(), 1..3).prop_map(|set| json!(set));
        let list = prop::collection::btree_map(word(), prop::option::of(1..3), 1..3).prop_map(|items| {
            let items = items.into_iter().map(|(k, v)| match v {
                Some(v) => json!({"k": k, "v": v}),
                None => json!({"k": k}),
            });
            Value::Array(items.collect())
        });
        let free = prop::collection::btree_map(word(), words(), 1..3).prop_map(|map| json!(map));
        let part = |key: &'static str, value: BoxedStrategy<Value>| {
            prop::option::of(value).prop_map(move |value| (key, value))
        };
        let fields = (
            part("set", words().boxed()),
            part("whole", words().boxed()),
            part("list", list.boxed()),
            part("free", free.boxed()),
            part("box", word().prop_map(|word| json!({"a": word})).boxed()),
        );
        fields.prop_map(|(a, b, c, d, e)| {
            let fields = [a, b, c, d, e].into_iter();
            fields
                .filter_map(|(key, value)| Some((key.to_owned(), value?)))
                .collect()
        })
    }

    /// What both objects of a write have is looked at once.
    #[test]
    fn errors_of_either_object_are_found() {
        let kind = custom();
        let objects = [
            json!({"box": {"a": "x", "b": 1}, "list": [{"k": "a", "v": 1}]}),
            json!({"box": {"a": 1, "b": 1}, "list": [{"k": "a", "v": 1}]}),
            json!({"box": {"a": "x", "b": 1}, "list": [{"k": "a", "v": "1"}], "gone": 1}),
            json!({"box": 7}),
            json!({"box": null, "gone": {"a": 1}}),
            json!({"metadata": {"name": "a", "labels": {"a": 1}}, "box": {"a": "x", "b": 1}}),
            json!({"metadata": {"name": "a", "labels": {"a": "b"}}}),
            json!({}),
            Value::Null,
        ];
        for live in &objects {
            for new in &objects {
                let expected = [live, new].into_iter().any(|object| untyped(&kind, object).is_some());
                assert_eq!(is_untyped(&kind, live, new), expected, "{live} and {new}");
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_there_is_not_merged(live in some_object(), config in some_object()) {
            let kind = custom();
            let merged = merge::merge(&live, &config, kind.shape());
            for live in [&live, &merged] {
                if merge::is_there(live, &config, kind.shape()) {
                    prop_assert_eq!(&merge::merge(live, &config, kind.shape()), live);
                }
            }
        }

        #[test]
        fn applying_again_changes_nothing(live in some_object(), one in some_object(), two in some_object()) {
            let mut managed = ManagedFields::default();
            let writer = Manager::new("w", Operation::Update, "g/v1", "");
            update(&custom(), &Value::Null, &live, &mut managed, &writer, "g/v1", NOW);
            let mut object = live;
            for config in [&one, &two] {
                let new = applied(&object, config, &mut managed, "m", true).expect("forced");
                object = new.unwrap_or(object);
                if object.to_string().contains("null") {
                    // A struct that lost its only field is null, which the server refuses.
                    break;
                }
                let before = managed.clone();
                prop_assert_eq!(applied(&object, config, &mut managed, "m", false), Ok(None));
                prop_assert_eq!(&managed, &before);
                // The written entries can be read, and no entry is without a field.
                prop_assert_eq!(ManagedFields::decode(managed.clone().encode().as_ref()), Ok(managed.clone()));
                prop_assert!(managed.entries.values().all(|owned| !owned.fields.is_empty()));
            }
        }
    }
}
