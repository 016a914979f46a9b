//! Which kinds are served: the resource table, its index, and the documents that are made from it.
//!
//! A [`Registry`] holds one [`Snapshot`] and swaps it as a whole when CustomResourceDefinitions change. A request takes the snapshot once
//! and keeps it, so that it never sees half of a change. Discovery and OpenAPI documents are made on first use and live as long as their
//! snapshot.
//!
//! Invariants: a snapshot never changes; built-in rows come first, in the order of discovery; (group, version, plural) is unique.
//!
//! Not here: storage of the definitions. The pipeline stores them and calls [`Registry::apply_crds`].

mod builtin;
pub mod crd;
mod hash;
mod resource;
pub(crate) mod unserved;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use serde_json::Value;

pub(crate) use builtin::token_request;
pub(crate) use hash::{hash, short as short_hash};
pub use resource::*;

/// The kinds that are served now.
#[derive(Debug)]
pub struct Registry {
    current: RwLock<Arc<Snapshot>>,
}

/// The kinds that were served at one moment, with the documents about them.
#[derive(Debug)]
pub struct Snapshot {
    rows: Arc<Vec<Arc<Resource>>>,
    groups: Vec<Group>,
    index: BTreeMap<String, BTreeMap<String, BTreeMap<String, Arc<Resource>>>>,
    pub(crate) discovery: crate::discovery::Cache,
    pub(crate) openapi: crate::openapi::Cache,
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
    /// The built-in kinds.
    pub fn new() -> Self {
        Self {
            current: RwLock::new(Arc::new(Snapshot::new(builtin::rows()))),
        }
    }

    /// What is served now. Take it once for each request.
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

    /// Replaces the custom kinds by those that these CustomResourceDefinitions define. Give all stored definitions; only versions that are
    /// `served` in definitions whose condition `Established` is true count. Call it after each write to a definition.
    pub fn apply_crds<'a>(&self, crds: impl IntoIterator<Item = &'a Value>) {
        let mut rows = builtin::rows();
        for definition in crds {
            rows.extend(crd::rows(definition).into_iter().map(Arc::new));
        }
        let next = Arc::new(Snapshot::new(rows));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
    }
}

impl Default for Registry {
    fn default() -> Self {
        Self::new()
    }
}

impl Snapshot {
    fn new(rows: Vec<Arc<Resource>>) -> Self {
        let mut index: BTreeMap<String, BTreeMap<String, BTreeMap<String, Arc<Resource>>>> = BTreeMap::new();
        let mut kept = Vec::with_capacity(rows.len());
        for row in rows {
            let slot = index
                .entry(row.group.to_string())
                .or_default()
                .entry(row.version.to_string())
                .or_default();
            // Two definitions cannot both be Established with one plural; a built-in kind always wins.
            if !slot.contains_key(row.plural.as_ref()) {
                slot.insert(row.plural.to_string(), Arc::clone(&row));
                kept.push(row);
            }
        }
        let groups = groups(&kept);
        Self {
            rows: Arc::new(kept),
            groups,
            index,
            discovery: crate::discovery::Cache::default(),
            openapi: crate::openapi::Cache::default(),
        }
    }

    /// The row of `/apis/{group}/{version}/{plural}` (group empty for `/api`).
    pub fn lookup(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        self.index.get(group)?.get(version)?.get(plural).cloned()
    }

    /// The row of a kind in a version, such as `apps`, `v1`, `Deployment`.
    pub fn by_kind(&self, group: &str, version: &str, kind: &str) -> Option<Arc<Resource>> {
        self.index
            .get(group)?
            .get(version)?
            .values()
            .find(|row| row.kind == kind)
            .cloned()
    }

    /// Whether any kind is served in the group (an unknown group answers 404 in plain text).
    pub fn has_group(&self, group: &str) -> bool {
        self.index.contains_key(group)
    }

    /// Whether any kind is served in this version of the group.
    pub fn has_version(&self, group: &str, version: &str) -> bool {
        self.index
            .get(group)
            .is_some_and(|versions| versions.contains_key(version))
    }

    /// All rows, built-in ones first.
    pub fn resources(&self) -> Arc<Vec<Arc<Resource>>> {
        Arc::clone(&self.rows)
    }

    /// Whether only definitions serve the group, and none of them this version.
    pub(crate) fn lacks_custom_version(&self, group: &str, version: &str) -> bool {
        let mut rows = self.rows.iter().filter(|row| row.group == group).peekable();
        rows.peek().is_some() && rows.all(|row| row.custom.is_some() && row.version != version)
    }

    /// The rows of one version of a group, ordered by plural.
    pub fn version_rows(&self, group: &str, version: &str) -> impl Iterator<Item = &Arc<Resource>> {
        self.index
            .get(group)
            .and_then(|versions| versions.get(version))
            .into_iter()
            .flat_map(BTreeMap::values)
    }

    /// The groups in the order of discovery, the core group first.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }
}

/// Groups with their versions: built-in ones in the order of the table, custom ones by name; versions by Kubernetes' version priority.
fn groups(rows: &[Arc<Resource>]) -> Vec<Group> {
    let mut builtin: Vec<Group> = Vec::new();
    let mut custom: BTreeMap<String, Group> = BTreeMap::new();
    for row in rows {
        let group = match builtin.iter_mut().position(|group| group.name == row.group) {
            Some(at) => &mut builtin[at],
            None if row.custom.is_none() => {
                builtin.push(Group {
                    name: row.group.to_string(),
                    versions: Vec::new(),
                });
                builtin.last_mut().expect("just pushed")
            }
            None => custom.entry(row.group.to_string()).or_insert_with(|| Group {
                name: row.group.to_string(),
                versions: Vec::new(),
            }),
        };
        if !group.versions.contains(&row.version.to_string()) {
            group.versions.push(row.version.to_string());
        }
    }
    let mut all = builtin;
    all.extend(custom.into_values());
    for group in &mut all {
        group
            .versions
            .sort_by(|a, b| version_priority(b).cmp(&version_priority(a)).then_with(|| a.cmp(b)));
    }
    all
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
