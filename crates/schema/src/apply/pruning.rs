//! Taking out the fields that a manager gave up, in all versions that concern them.
//!
//! Objects and their field sets are large: unchanged parts are borrowed, and each set is made once.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::Value;

use super::managers::{ManagedFields, Owned};
use super::shape::{Shape, fields};
use super::updater::Convert;
use super::{FieldSet, ObjectType, merge};

/// A kind whose versions may differ, and the version of the apply.
pub(super) struct Pruning<'a> {
    pub(super) kind: &'a ObjectType,
    pub(super) version: &'a str,
    pub(super) convert: Option<Convert<'a>>,
}

impl Pruning<'_> {
    /// The object in another version.
    fn seen<'v>(&self, value: Cow<'v, Value>, from: &str, to: &str) -> (Cow<'_, ObjectType>, Cow<'v, Value>) {
        let other = self.convert.filter(|_| from != to);
        match other.and_then(|convert| convert(&value, from, to)) {
            Some((kind, value)) => (Cow::Owned(kind), Cow::Owned(value)),
            None => (Cow::Borrowed(self.kind), value),
        }
    }

    /// The fields of the managers, by the version in which they wrote.
    fn owned<'m>(&'m self, managed: &'m ManagedFields) -> BTreeMap<&'m str, Cow<'m, FieldSet>> {
        let mut owned: BTreeMap<&str, Vec<&FieldSet>> = BTreeMap::new();
        for entry in managed.entries.values() {
            let version = match self.convert {
                Some(_) => entry.api_version.as_str(),
                None => self.version,
            };
            owned.entry(version).or_default().push(&entry.fields);
        }
        let joined = owned.into_iter().map(|(version, sets)| match sets.as_slice() {
            [one] => (version, Cow::Borrowed(*one)),
            _ => {
                let sets = sets.into_iter().cloned().collect();
                (version, Cow::Owned(FieldSet::union(sets)))
            }
        });
        joined.collect()
    }

    /// Removes the fields that the manager applied the last time, does not apply now, and no other manager owns.
    pub(super) fn prune(&self, merged: Cow<'_, Value>, last: Owned, managed: &ManagedFields) -> Value {
        if last.fields.is_empty() {
            return merged.into_owned();
        }
        let mut owned = self.owned(managed);
        let first = match self.convert {
            Some(_) => last.api_version.as_str(),
            None => self.version,
        };
        let (kind, merged) = self.seen(merged, self.version, first);
        let shape = kind.shape();
        let all = named(&merged, shape);
        let mut gone = last.fields;
        gone.name_fields(shape);
        let pruned = merge::remove(&merged, &gone, shape);
        let mut pruned = add_back(&merged, &all, pruned, owned.remove(first).as_deref(), shape);
        let (mut other, mut at) = (Cow::Borrowed(&*merged), first);
        for (version, fields) in &owned {
            let (kind, whole) = self.seen(other, at, version);
            let (_, left) = self.seen(Cow::Owned(pruned), at, version);
            let all = named(&whole, kind.shape());
            pruned = add_back(&whole, &all, left.into_owned(), Some(fields), kind.shape());
            (other, at) = (whole, version);
        }
        // And so do fields that went with their parent although this manager never owned them.
        let (_, pruned) = self.seen(Cow::Owned(pruned), at, first);
        let dangling = all.difference(&named(&pruned, shape)).intersection(&gone);
        drop((pruned, all, gone));
        let left = merge::remove(&merged, &dangling, shape);
        self.seen(Cow::Owned(left), first, self.version).1.into_owned()
    }
}

/// The fields of an object, those included that its type names.
fn named(value: &Value, shape: Shape<'_>) -> FieldSet {
    let mut set = fields(value, shape).children;
    set.name_fields(shape);
    set
}

/// The object `left` with the owned fields put back, and everything on the way to them; all fields of `whole` are
/// known.
fn add_back(whole: &Value, all: &FieldSet, left: Value, owned: Option<&FieldSet>, shape: Shape<'_>) -> Value {
    let mut gone = all.difference(&named(&left, shape));
    drop(left);
    if let Some(owned) = owned {
        gone.subtract_named(owned, shape);
    }
    merge::remove(whole, &gone, shape)
}
