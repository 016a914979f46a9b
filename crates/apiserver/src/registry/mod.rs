//! Which kinds are served: the resource table, its index, and the documents that are made from it.
//!
//! A [`Registry`] holds one [`Snapshot`] and swaps it as a whole when CustomResourceDefinitions change. A request takes
//! the snapshot once and keeps it, so that it never sees half of a change. A new snapshot shares all unchanged parts
//! with the one before: it costs the rows that changed and some pointers. Discovery and OpenAPI documents are made on
//! first use; those of discovery live as long as their snapshot, those of OpenAPI as long as what they are made from.
//!
//! Invariants: a snapshot never changes; built-in rows come first, in the order of discovery; (group, version, plural)
//! is unique.
//!
//! Not here: storage of the definitions. The pipeline stores them and tells of what changed (`Registry::apply`).

mod built_in;
pub mod crd;
pub(crate) mod definitions;
pub(crate) mod documents;
mod hash;
pub(crate) mod unserved;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use crate::model::*;
pub use built_in::Kinds;
use definitions::{Definitions, KindsUpdate};
pub(crate) use hash::{hash, short as short_hash};

/// The kinds that are served now.
#[derive(Debug)]
pub struct Registry {
    current: RwLock<Arc<Snapshot>>,
}

/// The kinds that were served at one moment, with the documents about them.
#[derive(Debug)]
pub struct Snapshot {
    pub(crate) kinds: Arc<Kinds>,
    /// Built-in rows that only some servers have.
    beside: Arc<Vec<Arc<Resource>>>,
    served: BTreeMap<Arc<str>, Arc<GroupRows>>,
    /// Definitions that wait for the end of their objects.
    ending: Arc<BTreeSet<Arc<str>>>,
    rows: OnceLock<Arc<Vec<Arc<Resource>>>>,
    groups: OnceLock<Vec<Group>>,
    pub(crate) discovery: documents::discovery::Cache,
    pub(crate) openapi: documents::openapi::Cache,
}

/// The rows of one version by plural.
type VersionRows = BTreeMap<Arc<str>, Arc<Resource>>;

/// The rows of one group. Snapshots share it until one of its definitions changes.
#[derive(Clone, Debug, Default)]
struct GroupRows {
    versions: BTreeMap<Arc<str>, Arc<VersionRows>>,
    /// Whether there are built-in kinds in it.
    built_in: bool,
    /// How many rows come of definitions.
    custom: usize,
    /// Whether two rows wanted one place: a change decides anew which row gets it.
    contested: bool,
}

/// An API group with its versions, as discovery lists them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Name, empty for the core group.
    pub name: String,
    /// Versions, the preferred one first.
    pub versions: Vec<String>,
}

impl Registry {
    /// These kinds.
    pub fn of(kinds: Arc<Kinds>) -> Self {
        Self {
            current: RwLock::new(Arc::new(Snapshot::built_in(kinds))),
        }
    }

    /// These kinds, with those of `metrics.k8s.io`.
    pub fn measuring(kinds: Arc<Kinds>) -> Self {
        let metrics = kinds.built_in.metrics.clone();
        Self {
            current: RwLock::new(Arc::new(Snapshot::built_in(kinds).with(metrics))),
        }
    }

    /// Those that another registry serves.
    pub(crate) fn serving(snapshot: Arc<Snapshot>) -> Self {
        Self {
            current: RwLock::new(snapshot),
        }
    }

    /// All built-in kinds.
    #[cfg(test)]
    pub(crate) fn new() -> Self {
        Self::of(Kinds::of_tests(Minor::default()))
    }

    /// The present snapshot. Take it once for each request.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The row of `/apis/{group}/{version}/{plural}` (group empty for `/api`).
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.snapshot().lookup(group, version, plural)
    }

    /// All rows.
    pub fn resources(&self) -> Arc<Vec<Arc<Resource>>> {
        self.snapshot().resources()
    }

    /// Takes over the changes of the definitions. Only versions that are `served` in definitions whose condition
    /// `Established` is true are served. Call it after each write to a definition.
    pub(crate) fn apply(&self, changes: &[KindsUpdate], definitions: &Definitions) {
        if changes.is_empty() {
            return;
        }
        let next = Arc::new(self.snapshot().changed(changes, definitions));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// Replaces the custom kinds by those of these definitions.
    #[cfg(test)]
    pub(crate) fn apply_crds<'a>(&self, crds: impl IntoIterator<Item = &'a serde_json::Value>) {
        use crate::storage::StoredObject;

        let mut definitions = Definitions::default();
        for definition in crds {
            let stored = StoredObject::unversioned(definition.clone());
            definitions.put(crate::model::object::name(definition), Some(&stored));
        }
        let next = Snapshot::built_in(self.snapshot().kinds.clone()).changed(&definitions.take_changes(), &definitions);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(next);
    }
}

impl GroupRows {
    /// Puts a row in its place, unless another has it.
    fn add(&mut self, row: &Arc<Resource>) {
        match row.custom {
            Some(_) => self.custom += 1,
            None => self.built_in = true,
        }
        let version = self.versions.entry(row.version.as_ref().into()).or_default();
        // Two definitions cannot both be Established with one plural; a built-in kind always wins.
        if version.contains_key(row.plural.as_ref()) {
            self.contested = true;
        } else {
            Arc::make_mut(version).insert(row.plural.as_ref().into(), row.clone());
        }
    }

    fn remove(&mut self, row: &Arc<Resource>) {
        self.custom = self.custom.saturating_sub(1);
        let Some(version) = self.versions.get_mut(row.version.as_ref()) else {
            return;
        };
        if version
            .get(row.plural.as_ref())
            .is_some_and(|known| Arc::ptr_eq(known, row))
        {
            Arc::make_mut(version).remove(row.plural.as_ref());
        }
        if version.is_empty() {
            self.versions.remove(row.version.as_ref());
        }
    }

    /// Its versions by Kubernetes' version priority.
    fn ordered_versions(&self) -> Vec<String> {
        let mut versions: Vec<String> = self.versions.keys().map(ToString::to_string).collect();
        versions.sort_by(|a, b| version_priority(b).cmp(&version_priority(a)).then_with(|| a.cmp(b)));
        versions
    }
}

impl Snapshot {
    fn of(
        kinds: Arc<Kinds>,
        beside: Arc<Vec<Arc<Resource>>>,
        served: BTreeMap<Arc<str>, Arc<GroupRows>>,
        ending: Arc<BTreeSet<Arc<str>>>,
        openapi: documents::openapi::Cache,
    ) -> Self {
        Self {
            kinds,
            beside,
            served,
            ending,
            rows: OnceLock::new(),
            groups: OnceLock::new(),
            discovery: documents::discovery::Cache::default(),
            openapi,
        }
    }

    fn built_in(kinds: Arc<Kinds>) -> Self {
        let served = kinds.served.clone();
        Self::of(
            kinds,
            Arc::default(),
            served,
            Arc::default(),
            documents::openapi::Cache::default(),
        )
    }

    /// Whether the objects of a built-in kind are in this store.
    pub(crate) fn is_built_in_store(&self, store: &str) -> bool {
        self.kinds.built_in.rows.iter().any(|row| *row.store == *store)
    }

    /// The version of Kubernetes whose kinds these are.
    pub(crate) fn minor(&self) -> Minor {
        self.kinds.minor()
    }

    /// Puts the errors in an object of a built-in kind into the words of the version.
    pub(crate) fn tell(&self) -> Tell {
        self.kinds.built_in.tell
    }

    /// The row of the Scale that `/scale` of built-in kinds shows, and that all kinds are read by.
    pub(crate) fn scale(&self) -> &Arc<Resource> {
        &self.kinds.built_in.scale
    }

    /// The row of the Scale of a kind.
    pub(crate) fn scale_of(&self, scaled: &Resource) -> Arc<Resource> {
        let built_in = &self.kinds.built_in;
        match scaled.custom {
            Some(_) => built_in.custom_scale.clone(),
            None => built_in.scale.clone(),
        }
    }

    /// The kind that `/token` of a ServiceAccount takes and answers.
    pub(crate) fn token_request(&self) -> Arc<Resource> {
        self.kinds.built_in.token_request.clone()
    }

    /// This snapshot with further built-in rows, of groups of their own.
    fn with(mut self, beside: Vec<Arc<Resource>>) -> Self {
        for row in &beside {
            let group = self.served.entry(row.group.as_ref().into()).or_default();
            Arc::make_mut(group).add(row);
        }
        self.beside = Arc::new(beside);
        self
    }

    /// This snapshot with other definitions.
    fn changed(&self, changes: &[KindsUpdate], definitions: &Definitions) -> Self {
        let mut served = self.served.clone();
        let mut ending = self.ending.clone();
        for change in changes {
            if ending.contains(&change.name) != change.ending {
                let ending = Arc::make_mut(&mut ending);
                match change.ending {
                    true => ending.insert(change.name.clone()),
                    false => ending.remove(&change.name),
                };
            }
            if change.before.is_empty() && change.after.is_empty() {
                continue;
            }
            let group = Arc::make_mut(served.entry(change.group.clone()).or_default());
            change.before.iter().for_each(|row| group.remove(row));
            change.after.iter().for_each(|row| group.add(row));
        }
        for name in changes.iter().map(|change| &change.group).collect::<BTreeSet<_>>() {
            match served.get_mut(name) {
                Some(group) if group.contested => *group = Arc::new(self.contest(name, definitions)),
                Some(group) if group.versions.is_empty() => drop(served.remove(name)),
                _ => {}
            }
        }
        Self::of(
            self.kinds.clone(),
            self.beside.clone(),
            served,
            ending,
            self.openapi.next(),
        )
    }

    /// The rows of a group in which two want the same place: the first gets it.
    fn contest(&self, group: &str, definitions: &Definitions) -> GroupRows {
        let mut rows = GroupRows::default();
        let built_in = self.built_in_rows();
        let built_in = built_in.iter().filter(|row| row.group == group);
        built_in.chain(definitions.rows(group)).for_each(|row| rows.add(row));
        rows
    }

    /// The row of `/apis/{group}/{version}/{plural}` (group empty for `/api`).
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.version(group, version)?.get(plural).cloned()
    }

    fn version(&self, group: &str, version: &str) -> Option<&VersionRows> {
        Some(self.served.get(group)?.versions.get(version)?)
    }

    /// The row of a kind in a version, such as `apps`, `v1`, `Deployment`.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.version_rows(group, version).find(|row| row.kind == kind).cloned()
    }

    /// Whether any kind is served in the group (an unknown group answers 404 in plain text).
    pub fn has_group(&self, group: &str) -> bool {
        self.served.contains_key(group)
    }

    /// Whether any kind is served in this version of the group.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.version(group, version).is_some()
    }

    /// All rows, built-in ones first. The list is made when it is first asked for: no part of a request may walk over
    /// all rows.
    pub fn resources(&self) -> Arc<Vec<Arc<Resource>>> {
        let all = || {
            let rows = self
                .groups()
                .iter()
                .filter_map(|group| self.served.get(group.name.as_str()));
            let rows = rows
                .flat_map(|group| group.versions.values())
                .flat_map(|rows| rows.values());
            let custom = rows.filter(|row| row.custom.is_some()).cloned();
            Arc::new(self.built_in_rows().into_iter().chain(custom).collect())
        };
        self.rows.get_or_init(all).clone()
    }

    /// Whether this server stands in for another one in this group: `metrics.k8s.io`.
    pub(crate) fn stands_in(&self, group: &str) -> bool {
        self.beside.iter().any(|row| *row.group == *group)
    }

    /// Whether `metrics.k8s.io` is served.
    pub(crate) fn has_metrics(&self) -> bool {
        !self.beside.is_empty()
    }

    fn built_in_rows(&self) -> Vec<Arc<Resource>> {
        self.kinds
            .built_in
            .rows
            .iter()
            .chain(self.beside.iter())
            .cloned()
            .collect()
    }

    /// The other rows under which the same objects are served: other versions, and the other group of Event.
    pub(crate) fn equivalents(&self, row: &Resource) -> Vec<Arc<Resource>> {
        let is_other = |other: &Arc<Resource>| {
            other.store == row.store && (other.version != row.version || other.group != row.group)
        };
        let Some(_) = &row.custom else {
            return self
                .kinds
                .built_in
                .rows
                .iter()
                .filter(|row| is_other(row))
                .cloned()
                .collect();
        };
        let versions = self.served.get(row.group.as_ref()).into_iter();
        let rows = versions.flat_map(|group| group.versions.values());
        let rows = rows.filter_map(|rows| rows.get(row.plural.as_ref()).cloned());
        let mut rows: Vec<_> = rows.filter(is_other).collect();
        // In the order of the definition.
        rows.sort_by_key(|row| row.custom.as_ref().map(|custom| custom.source.version));
        rows
    }

    /// The row of a custom kind in any of its versions.
    pub(crate) fn of_definition(&self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        let versions = self.served.get(group)?.versions.values();
        let mut rows = versions.filter_map(|rows| rows.get(plural));
        rows.find(|row| row.custom.is_some()).cloned()
    }

    /// Whether a definition is on its way out: nothing is made of its kind any more.
    pub(crate) fn is_ending(&self, definition: &str) -> bool {
        self.ending.contains(definition)
    }

    /// Whether built-in kinds are served in the group.
    pub(crate) fn is_built_in_group(&self, group: &str) -> bool {
        self.served.get(group).is_some_and(|rows| rows.built_in)
    }

    /// Whether definitions serve kinds in the group, alone or beside built-in ones.
    pub(crate) fn has_custom_kinds(&self, group: &str) -> bool {
        self.served.get(group).is_some_and(|rows| rows.custom > 0)
    }

    /// Whether only definitions serve the group, and none of them this version.
    pub(crate) fn lacks_custom_version(&self, group: &str, version: &str) -> bool {
        self.is_custom_group(group) && !self.has_version(group, version)
    }

    /// Whether only definitions serve this group.
    pub(crate) fn is_custom_group(&self, group: &str) -> bool {
        self.has_group(group) && !self.is_built_in_group(group)
    }

    /// Whether only definitions serve this version, and one does.
    pub(crate) fn is_custom_version(&self, group: &str, version: &str) -> bool {
        self.is_custom_group(group) && self.has_version(group, version)
    }

    /// The rows of one version of a group, ordered by plural.
    pub fn version_rows(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Resource>> {
        self.version(group, version).into_iter().flat_map(BTreeMap::values)
    }

    /// The groups in the order of discovery, the core group first: built-in ones in the order of the table, custom ones
    /// by name, at last those that another server has upstream (its APIService ranks it so).
    pub fn groups(&self) -> &[Group] {
        self.groups.get_or_init(|| {
            let mut built_in: Vec<Text> = Vec::new();
            for row in &self.kinds.built_in.rows {
                if !built_in.contains(&row.group) {
                    built_in.push(row.group.clone());
                }
            }
            let built_in = built_in
                .iter()
                .filter_map(|name| self.served.get_key_value(name.as_ref()));
            let custom = self.served.iter().filter(|(_, group)| !group.built_in);
            let group = |(name, rows): (&Arc<str>, &Arc<GroupRows>)| Group {
                name: name.to_string(),
                versions: rows.ordered_versions(),
            };
            let beside: BTreeSet<&str> = self.beside.iter().map(|row| row.group.as_ref()).collect();
            let beside = beside.into_iter().filter_map(|name| self.served.get_key_value(name));
            built_in.chain(custom).chain(beside).map(group).collect()
        })
    }
}

/// The order of versions: stable before beta before alpha, higher numbers first, other words last (compare descending).
pub(crate) fn version_priority(version: &str) -> (u8, u64, u64) {
    fn number(text: &str) -> Option<(u64, &str)> {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (digits, rest) = text.split_at(end);
        (!digits.is_empty() && !digits.starts_with('0'))
            .then(|| digits.parse().ok().map(|n| (n, rest)))
            .flatten()
    }
    let parsed = version.strip_prefix('v').and_then(number).and_then(|(major, rest)| {
        let (stage, rest) = match rest {
            "" => return Some((3, major, 0)),
            _ if rest.starts_with("beta") => (2, &rest[4..]),
            _ if rest.starts_with("alpha") => (1, &rest[5..]),
            _ => return None,
        };
        number(rest)
            .filter(|(_, rest)| rest.is_empty())
            .map(|(minor, _)| (stage, major, minor))
    });
    parsed.unwrap_or((0, 0, 0))
}
