//! What a write means for who owns what.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::diff::{Diff, diff};
use super::managers::{ManagedFields, Manager, Operation, Owned};
use super::shape::{Shape, fields, with_named};
use super::{FieldSet, ObjectType, check, merge};

/// More Update entries than this are joined into one of [`ANCIENT`].
const MAX_UPDATE_MANAGERS: usize = 10;
/// The manager of changes that are too long ago to be told apart.
const ANCIENT: &str = "ancient-changes";
/// The manager of what an object held before anybody was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// What nobody owns: who an object is, and what only the server writes.
static UNOWNED: LazyLock<FieldSet> = LazyLock::new(|| {
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
        set.extend(&FieldSet::of_path(path.split('.')));
    }
    set
});

/// A field that somebody else owns and an apply would change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The owner as messages show it: `"m1"`, `"ctl" with subresource "status"`, `"kubectl" using apps/v1 at 2026-01-01T00:00:00Z`.
    pub manager: String,
    /// The field as messages show it: `.data.x`.
    pub field: String,
}

/// Why a configuration was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApplyError {
    /// It does not fit the schema; the text says where.
    Invalid(String),
    /// Others own what it would change.
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

/// Follows an ordinary write from `live` (null: it creates) to `new`, neither with `managedFields`: what changed belongs to the manager
/// from now on. Answers whether the entries changed. `now` is the time for the manager's entry.
///
/// An object that has no entries any more is not tracked again before somebody applies.
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
    if managed.entries.is_empty() && !live.is_null() {
        return false;
    }
    let changed = follow(kind.shape(), live, new, managed, manager, version, Some(now));
    cap(managed) || changed
}

/// The same without the rule for objects that are not tracked.
fn follow(
    shape: Shape<'_>,
    live: &Value,
    new: &Value,
    managed: &mut ManagedFields,
    manager: &Manager,
    version: &str,
    now: Option<&str>,
) -> bool {
    let empty = Value::Object(serde_json::Map::new());
    let live = if live.is_null() { &empty } else { live };
    let difference = diff(live, new, shape);
    let Diff {
        mut added,
        modified,
        mut removed,
    } = difference;
    added.extend(&modified);
    added.subtract(&UNOWNED);
    removed.subtract(&UNOWNED);
    if added.is_empty() && removed.is_empty() {
        return false;
    }
    managed.entries.retain(|_, owned| {
        owned.fields.subtract(&added);
        owned.fields.subtract(&removed);
        !owned.fields.is_empty()
    });
    if !added.is_empty() {
        let owned = managed.entries.entry(manager.clone()).or_insert_with(|| Owned {
            fields: FieldSet::default(),
            api_version: version.to_owned(),
            time: None,
        });
        owned.fields.extend(&added);
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
            && let Some(joined) = entries.get_mut(&bucket)
        {
            joined.fields.extend(&owned.fields);
            // The later of the two: the entries come in the order of their times.
            joined.time = owned.time;
            left -= 1;
        }
    }
    true
}

/// Applies a configuration to the live object (null: it creates), neither with `managedFields`.
///
/// Answers the new object, or none when nothing changes but perhaps who owns what. Removed fields that leave an empty struct leave
/// null. `now` is the time for the manager's entry.
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
    let shape = kind.shape();
    let errors = check::check(config, shape);
    if !errors.is_empty() {
        return Err(ApplyError::Invalid(check::joined(&errors)));
    }
    let creates = live.is_null();
    let empty = Value::Object(serde_json::Map::new());
    let live = if creates { &empty } else { live };
    if managed.entries.is_empty() && !creates {
        let before = Manager::new(BEFORE_FIRST_APPLY, Operation::Update, version, "");
        let before = Manager {
            subresource: manager.subresource.clone(),
            ..before
        };
        follow(shape, &Value::Null, live, managed, &before, version, Some(now));
    }
    let mut new = merge::merge(live, config, shape);
    let last = managed.entries.get(manager).cloned();
    let owned = Owned {
        // With what nobody owns, so that who the object is survives the pruning.
        fields: fields(config, shape).children,
        api_version: version.to_owned(),
        time: last.as_ref().and_then(|last| last.time.clone()),
    };
    managed.entries.insert(manager.clone(), owned);
    if let Some(last) = last {
        new = prune(&new, &last.fields, managed, shape);
    }
    if let Some(owned) = managed.entries.get_mut(manager) {
        owned.fields.subtract(&UNOWNED);
    }
    let difference = diff(live, &new, shape);
    give_way(&difference, managed, manager, force)?;
    if difference.is_empty() && !creates {
        return Ok(None);
    }
    if let Some(owned) = managed.entries.get_mut(manager) {
        owned.time = Some(now.to_owned());
    }
    Ok(Some(new))
}

/// Takes what changes away from the other managers, or says who is in the way.
fn give_way(difference: &Diff, managed: &mut ManagedFields, manager: &Manager, force: bool) -> Result<(), ApplyError> {
    let mut changed = difference.modified.clone();
    changed.extend(&difference.added);
    let mut conflicts = Vec::new();
    for (other, owned) in managed.entries.iter_mut().filter(|(other, _)| *other != manager) {
        let lost = owned.fields.intersection(&changed);
        if !force {
            conflicts.extend(lost.paths().into_iter().map(|field| Conflict {
                manager: shown(other),
                field,
            }));
        }
        owned.fields.subtract(&lost);
        owned.fields.subtract(&difference.removed);
    }
    if !conflicts.is_empty() {
        return Err(ApplyError::Conflicts(conflicts));
    }
    managed.entries.retain(|_, owned| !owned.fields.is_empty());
    Ok(())
}

/// Takes out what the manager applied the last time, does not apply now, and nobody else owns.
fn prune(merged: &Value, last: &FieldSet, managed: &ManagedFields, shape: Shape<'_>) -> Value {
    if last.is_empty() {
        return merged.clone();
    }
    let last = with_named(last, shape);
    let all = with_named(&fields(merged, shape).children, shape);
    let without = |gone: &FieldSet| merge::remove(merged, gone, shape);
    let left = |value: &Value| with_named(&fields(value, shape).children, shape);
    // What somebody owns comes back, with everything on the way to it.
    let mut keep = left(&without(&last));
    for owned in managed.entries.values() {
        keep.extend(&with_named(&owned.fields, shape));
    }
    let mut gone = all.clone();
    gone.subtract(&keep);
    let pruned = without(&gone);
    // And so does what went with its parent although this manager never owned it.
    let mut gone = all;
    gone.subtract(&left(&pruned));
    without(&gone.intersection(&last))
}

/// The owners of the replicas as a Scale shows them (`ScaleHandler.ToSubresource` upstream).
pub fn scale_managers(parent: &ManagedFields, path: &FieldSet) -> ManagedFields {
    let replicas = FieldSet::of_path(["spec", "replicas"].into_iter());
    let owners = parent
        .entries
        .iter()
        .filter(|(_, owned)| owned.fields.contains_all(path));
    let entries = owners.map(|(manager, owned)| {
        let owned = Owned {
            fields: replicas.clone(),
            api_version: "autoscaling/v1".to_owned(),
            time: owned.time.clone(),
        };
        (manager.clone(), owned)
    });
    ManagedFields {
        entries: entries.collect(),
    }
}

/// The owners of an object after its Scale was written (`ScaleHandler.ToParent` upstream): `version` is that of the object.
pub fn scale_to_parent(parent: &ManagedFields, scale: ManagedFields, path: &FieldSet, version: &str) -> ManagedFields {
    let mut scale = scale.entries;
    let mut entries = BTreeMap::new();
    for (manager, owned) in &parent.entries {
        let mut owned = owned.clone();
        if owned.fields.contains_all(path) && scale.remove(manager).is_none() {
            owned.fields.subtract(path);
        }
        if !owned.fields.is_empty() {
            entries.insert(manager.clone(), owned);
        }
    }
    for (mut manager, owned) in scale {
        if owned.fields.is_empty() {
            continue;
        }
        if manager.operation == Operation::Update {
            version.clone_into(&mut manager.api_version);
        }
        let time = parent.entries.get(&manager).and_then(|owned| owned.time.clone());
        let owned = Owned {
            fields: path.clone(),
            api_version: version.to_owned(),
            time,
        };
        entries.insert(manager, owned);
    }
    ManagedFields { entries }
}
