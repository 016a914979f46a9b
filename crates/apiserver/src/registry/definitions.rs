//! The definitions that are known, each as it is at one revision: their names, and the rows that come of them.
//!
//! The cost of a write of one definition is that definition's, however many there are: it is read once at each
//! revision, and of the others only those are looked at that share a name with it.
//!
//! Invariants:
//! - names belong to the oldest definition that has them; no definition loses a name that it holds;
//! - an *open* definition is to be looked at, because it changed or because another one took or gave back a name that
//!   it wants; all others are as the naming and establishing controllers would leave them;
//! - everything here follows from the stored definitions, and may be made anew from them.
//!
//! Not here: the settling of one definition ([`super::crd`]), and the writes (`server/upkeep/definitions.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use super::crd::{self, Names, Sort};
use super::{Resource, Text};
use crate::storage::StoredObject;
use crate::values::{At, get};

/// A definition at one revision, without its schemas.
#[derive(Clone, Debug)]
struct Definition {
    revision: u64,
    group: Arc<str>,
    rank: Rank,
    wanted: Names,
    accepted: Names,
    /// The versions that it wants to serve, established or not.
    served: Vec<Arc<str>>,
    /// Whether it waits for the end of its objects.
    ending: bool,
    rows: Vec<Arc<Resource>>,
}

/// The precedence: a definition that holds names keeps them, then the older one wins.
type Rank = (bool, String, u64);

/// The definitions of a group, and the names that they share.
#[derive(Clone, Debug, Default)]
struct Group {
    holders: BTreeMap<(Sort, Text), BTreeSet<Arc<str>>>,
    wanting: BTreeMap<(Sort, Text), BTreeSet<Arc<str>>>,
    /// How many want to serve a version.
    serving: BTreeMap<Arc<str>, usize>,
}

/// All definitions, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Definitions {
    known: BTreeMap<Arc<str>, Definition>,
    groups: BTreeMap<Arc<str>, Group>,
    open: BTreeSet<(Rank, Arc<str>)>,
    changes: Vec<KindsUpdate>,
    read: usize,
}

/// The kinds that one definition served before, and those that it serves now.
#[derive(Clone, Debug)]
pub(crate) struct KindsUpdate {
    pub(crate) name: Arc<str>,
    pub(crate) group: Arc<str>,
    pub(crate) before: Vec<Arc<Resource>>,
    pub(crate) after: Vec<Arc<Resource>>,
    /// Versions that it wanted or wants to serve.
    pub(crate) versions: Vec<Arc<str>>,
    pub(crate) ending: bool,
}

impl Definition {
    /// Reads a definition that was another one before.
    fn read(stored: &StoredObject, before: Option<&Definition>) -> Definition {
        let value = stored.value();
        let mut rows = crd::rows(stored);
        // A write to its metadata or status changes no schema, so objects need no other look than before.
        let before = before.and_then(|before| before.rows.first()?.custom.as_ref());
        for custom in rows.iter_mut().filter_map(|row| row.custom.as_mut()) {
            if let Some(before) = before.filter(|before| before.fingerprint == custom.fingerprint) {
                custom.revision = before.revision;
            }
        }
        let versions = At::root(value).keys(&["spec", "versions"]);
        let served = versions.items().filter(|version| version.key("served").is_true());
        Definition {
            revision: stored.revision(),
            group: get(value, &["spec", "group"]).as_str().unwrap_or("").into(),
            rank: rank(stored),
            wanted: crd::names(get(value, &["spec", "names"])),
            accepted: crd::names(get(value, &["status", "acceptedNames"])),
            served: served.map(|version| version.key("name").text().into()).collect(),
            ending: crd::is_ending(value),
            rows: rows.into_iter().map(Arc::new).collect(),
        }
    }
}

fn rank(stored: &StoredObject) -> Rank {
    let value = stored.value();
    let created = get(value, &["metadata", "creationTimestamp"]).as_str().unwrap_or("");
    (!crd::is_established(value), created.to_owned(), stored.revision())
}

fn enter(index: &mut BTreeMap<(Sort, Text), BTreeSet<Arc<str>>>, names: &Names, name: &Arc<str>) {
    for one in names {
        index.entry(one.clone()).or_default().insert(name.clone());
    }
}

fn leave(index: &mut BTreeMap<(Sort, Text), BTreeSet<Arc<str>>>, names: &Names, name: &Arc<str>) {
    for one in names {
        if let Some(all) = index.get_mut(one) {
            all.remove(name);
            if all.is_empty() {
                index.remove(one);
            }
        }
    }
}

impl Definitions {
    /// The names of all.
    pub(crate) fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.known.keys()
    }

    /// At which revision a definition is known.
    pub(crate) fn revision(&self, name: &str) -> Option<u64> {
        self.known.get(name).map(|known| known.revision)
    }

    /// How many times a definition was read.
    #[cfg(test)]
    pub(crate) fn times_read(&self) -> usize {
        self.read
    }

    /// Whether a definition of the group wants to serve this version.
    pub(crate) fn serves(&self, group: &str, version: &str) -> bool {
        let group = self.groups.get(group);
        group.is_some_and(|group| group.serving.contains_key(version))
    }

    /// All versions that definitions want to serve: group and version.
    pub(crate) fn served(&self) -> impl Iterator<Item = (&str, &str)> {
        let groups = self.groups.iter();
        groups.flat_map(|(name, group)| group.serving.keys().map(move |version| (&**name, &**version)))
    }

    /// The kinds that the changed definitions served before, and those that they serve now; each change is returned
    /// once.
    pub(crate) fn take_changes(&mut self) -> Vec<KindsUpdate> {
        std::mem::take(&mut self.changes)
    }

    /// The rows of a group, in the order in which they may take a place.
    pub(crate) fn rows<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<Resource>> {
        let members = self.known.values().filter(move |known| &*known.group == group);
        members.flat_map(|known| &known.rows)
    }

    /// Takes note of the definition stored under a name now.
    pub(crate) fn put(&mut self, name: &str, stored: Option<&StoredObject>) {
        if self.revision(name) == stored.map(StoredObject::revision) {
            return;
        }
        let name: Arc<str> = name.into();
        let old = self.remove(&name);
        let new = stored.map(|stored| Definition::read(stored, old.as_ref()));
        self.read += usize::from(new.is_some());
        let group = new.as_ref().or(old.as_ref()).map(|known| known.group.clone());
        let empty = Names::new();
        let accepted = [&old, &new].map(|one| one.as_ref().map_or(&empty, |known| &known.accepted));
        let moved: Vec<_> = accepted[0].symmetric_difference(accepted[1]).cloned().collect();
        let group = group.unwrap_or_else(|| "".into());
        self.reopen(&group, &moved);
        let versions = [&old, &new]
            .into_iter()
            .flatten()
            .flat_map(|known| known.served.clone());
        self.changes.push(KindsUpdate {
            name: name.clone(),
            versions: versions.collect(),
            before: old.map_or_else(Vec::new, |known| known.rows),
            after: new.as_ref().map_or_else(Vec::new, |known| known.rows.clone()),
            ending: new.as_ref().is_some_and(|known| known.ending),
            group,
        });
        if let Some(new) = new {
            self.insert(name, new);
        }
    }

    fn insert(&mut self, name: Arc<str>, new: Definition) {
        let group = self.groups.entry(new.group.clone()).or_default();
        enter(&mut group.holders, &new.accepted, &name);
        enter(&mut group.wanting, &new.wanted, &name);
        for version in &new.served {
            *group.serving.entry(version.clone()).or_default() += 1;
        }
        self.open.insert((new.rank.clone(), name.clone()));
        self.known.insert(name, new);
    }

    fn remove(&mut self, name: &Arc<str>) -> Option<Definition> {
        let old = self.known.remove(name)?;
        self.open.remove(&(old.rank.clone(), name.clone()));
        let group = self.groups.get_mut(&old.group)?;
        leave(&mut group.holders, &old.accepted, name);
        leave(&mut group.wanting, &old.wanted, name);
        for version in &old.served {
            if let Some(count) = group.serving.get_mut(version) {
                *count -= 1;
                if *count == 0 {
                    group.serving.remove(version);
                }
            }
        }
        if group.wanting.is_empty() && group.holders.is_empty() && group.serving.is_empty() {
            self.groups.remove(&old.group);
        }
        Some(old)
    }

    /// Queues the definitions that want one of these names again.
    fn reopen(&mut self, group: &str, names: &[(Sort, Text)]) {
        let Some(group) = self.groups.get(group) else { return };
        for name in names.iter().filter_map(|name| group.wanting.get(name)).flatten() {
            if let Some(known) = self.known.get(name) {
                self.open.insert((known.rank.clone(), name.clone()));
            }
        }
    }

    /// The definition to check next.
    pub(crate) fn next_open(&self) -> Option<Arc<str>> {
        self.open.first().map(|(_, name)| name.clone())
    }

    /// Says that this one is as it shall be.
    pub(crate) fn close(&mut self, name: &str) {
        if let Some((name, known)) = self.known.get_key_value(name) {
            self.open.remove(&(known.rank.clone(), name.clone()));
        }
    }

    /// The status with the names and conditions that the definition shall have; none when it has them. The definition
    /// was [put](Self::put) before. If its objects would share the store of a built-in kind (`built_in`), it gets no
    /// name. Upstream stores the two apart, and serves both.
    pub(crate) fn settled(&self, name: &str, definition: &Value, built_in: bool, now: Timestamp) -> Option<Value> {
        let group = self.known.get(name).and_then(|known| self.groups.get(&known.group));
        let is_taken = |sort: Sort, wanted: &str| {
            let holders = group.and_then(|group| group.holders.get(&(sort, Text::Owned(wanted.to_owned()))));
            built_in || holders.is_some_and(|holders| holders.iter().any(|holder| &**holder != name))
        };
        crd::settle(definition, &is_taken, now)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::object;

    fn definition(plural: &str, kind: &str, created: u32) -> Value {
        json!({
            "metadata": {
                "name": format!("{plural}.ex.io"), "creationTimestamp": format!("2026-01-01T00:00:{created:02}Z")
            },
            "spec": {
                "group": "ex.io", "scope": "Namespaced",
                "names": {"plural": plural, "singular": plural, "kind": kind, "listKind": format!("{kind}List")},
                "versions": [
                    {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}
                ]
            },
            "status": {"acceptedNames": {"plural": "", "kind": ""}}
        })
    }

    /// The definitions of a storage, which is a map here.
    #[derive(Default)]
    struct World {
        stored: BTreeMap<String, StoredObject>,
        definitions: Definitions,
        revision: u64,
    }

    impl World {
        fn put(&mut self, definition: Value) {
            self.revision += 1;
            let name = object::name(&definition).to_owned();
            self.stored
                .insert(name.clone(), StoredObject::new(self.revision, definition));
            self.definitions.put(&name, self.stored.get(&name));
        }

        fn delete(&mut self, name: &str) {
            self.stored.remove(name);
            self.definitions.put(name, None);
        }

        /// Settles everything; how many definitions were looked at.
        fn settle(&mut self) -> usize {
            let mut looks = 0;
            while let Some(name) = self.definitions.next_open() {
                looks += 1;
                let value = self.stored[&*name].value();
                if let Some(status) = self.definitions.settled(&name, value, false, Timestamp::UNIX_EPOCH) {
                    let mut next = value.clone();
                    next["status"] = status;
                    self.put(next);
                }
                self.definitions.close(&name);
            }
            looks
        }

        /// Which of the wanted kinds a definition has, and whether it is served.
        fn check(&self, name: &str, kind: &str, established: bool) {
            let value = self.stored[name].value();
            let accepted = value.pointer("/status/acceptedNames/kind").and_then(Value::as_str);
            assert_eq!(accepted, Some(kind), "{value}");
            let served = self.definitions.known[name].rows.len();
            assert_eq!((crd::is_established(value), served == 1), (established, established));
        }
    }

    #[test]
    fn names_go_on_when_they_are_given_back() {
        let mut world = World::default();
        world.put(definition("as", "A", 0));
        world.put(definition("bs", "A", 1));
        world.put(definition("cs", "A", 2));
        world.settle();
        world.check("as.ex.io", "A", true);
        world.check("bs.ex.io", "", false);
        world.check("cs.ex.io", "", false);
        world.delete("as.ex.io");
        world.settle();
        world.check("bs.ex.io", "A", true);
        world.check("cs.ex.io", "", false);
        world.put(definition("as", "A", 3));
        world.settle();
        world.check("as.ex.io", "", false);
        assert_eq!(world.definitions.served().collect::<Vec<_>>(), [("ex.io", "v1")]);
        for name in ["as.ex.io", "bs.ex.io", "cs.ex.io"] {
            world.delete(name);
        }
        assert!(world.definitions.groups.is_empty() && world.definitions.open.is_empty());
    }

    #[test]
    fn others_are_left_alone() {
        let mut world = World::default();
        for index in 0..50 {
            world.put(definition(&format!("kind{index}s"), &format!("Kind{index}"), 0));
            assert_eq!(world.settle(), 1, "the others have nothing to do with it");
            // As it came, and with its status.
            assert_eq!(world.definitions.times_read(), 2 * (index + 1));
        }
    }
}
