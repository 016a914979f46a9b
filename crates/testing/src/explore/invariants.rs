//! What the user of an operator relies on at any time, looked at after each write of anybody.
//!
//! Two faults may cancel each other out before a step ends: two of three members that are restarted at once come back,
//! and the quorum was lost all the same. Invariant: every revision of a run is looked at, in its order.

use std::collections::BTreeMap;
use std::sync::Arc;

use kubewright_cluster::ApiServer;
use serde_json::Value;

use super::snapshot::stores;

/// Whether it holds of all objects.
type Holds = dyn Fn(&[Value]) -> bool + Send + Sync;

/// What holds, in words, and whether it does.
#[derive(Clone)]
pub(super) struct Invariant {
    pub(super) what: String,
    pub(super) holds: Arc<Holds>,
}

/// What first did not hold after a revision, and the revision at which it did not.
pub(super) fn broken(invariants: &[Invariant], api: &ApiServer, after: u64) -> Option<(String, u64)> {
    if invariants.is_empty() {
        return None;
    }
    let mut all = Vec::new();
    let mut objects = Vec::new();
    let mut places = BTreeMap::new();
    for (store, kind) in stores(api) {
        let changes = api.changes_after(&store, after);
        // What changed is undone: the first change of an object knows how it was.
        let mut first = BTreeMap::new();
        for change in &changes {
            first.entry(change.key.clone()).or_insert_with(|| change.before.clone());
        }
        let unchanged = api
            .entries(&store)
            .into_iter()
            .filter(|(key, _)| !first.contains_key(key));
        let unchanged: Vec<_> = unchanged.map(|(key, entry)| (key, entry.object())).collect();
        let before = first.into_iter().filter_map(|(key, before)| Some((key, before?)));
        for (key, object) in unchanged.into_iter().chain(before) {
            places.insert((store.clone(), key), objects.len());
            objects.push(of_kind(object.value(), &kind));
        }
        all.extend(changes.into_iter().map(|change| (store.clone(), kind.clone(), change)));
    }
    all.sort_by_key(|(_, _, change)| change.revision);
    for (store, kind, change) in all {
        let key = (store, change.key.clone());
        let place = places.get(&key).copied();
        match (place, change.deleted) {
            // The place of what is gone stays empty.
            (Some(place), true) => objects[place] = Value::Null,
            (Some(place), false) => objects[place] = of_kind(change.after.value(), &kind),
            (None, true) => {}
            (None, false) => {
                places.insert(key, objects.len());
                objects.push(of_kind(change.after.value(), &kind));
            }
        }
        if let Some(broken) = invariants.iter().find(|invariant| !(invariant.holds)(&objects)) {
            return Some((broken.what.clone(), change.revision));
        }
    }
    None
}

fn of_kind(object: &Value, kind: &str) -> Value {
    let mut object = object.clone();
    object["kind"] = Value::from(kind);
    object
}
