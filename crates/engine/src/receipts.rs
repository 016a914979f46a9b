//! Which of our own writes a store does not show yet: the barrier behind reads that see their own writes.
//!
//! The API server acknowledges a write before the watch delivers it. A receipt is left in between, and a read is held
//! while a receipt says that the store still shows an older state. A read takes a [`Ticket`] first: only writes that
//! were acknowledged before it hold it, so writers that never rest starve no reader. Every receipt knows two things,
//! and they differ: whether the present state of the store is too old ([`Hold`]), and whether it can never be too old
//! again, so that the receipt is dropped.
//!
//! Invariants, for every interleaving of writes, acknowledgements and watch events (`tests.rs` enumerates them):
//! * K1 a read that is not held shows a state that is not older than any write acknowledged before its ticket.
//! * K2 a write outside the scope holds no read, unless the store still shows the object as inside.
//! * K3 after a delete the deleted incarnation is not shown, also when the store had not seen it when it was deleted.
//! * K4 a write with an unknown outcome holds reads until the API server was asked.
//! * When the store has caught up, no receipt is left; receipts left behind by a reset of the server's history are
//!   asked for.
//!
//! Memory is bounded by the keys that were written and that the store has yet to show, not by the number of writes. Of
//! writes with an unknown outcome, which no change of the store settles, `UNKNOWN` keys are told apart; of more it is
//! known only that there are some in a namespace. Not here: which objects a scope
//! selects, requests, waiting and deadlines, the lock. The caller evaluates and reads the store under one lock.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::key::ObjectKey;
use crate::meta::{self, ResourceVersion};

/// So many writes of one key are told apart; readers of the older half of more wait a little longer than they must.
const WRITES_PER_KEY: usize = 64;
/// So many deletions with an unknown version are kept; the oldest of more is asked for.
const DELETIONS: usize = 256;

/// So many keys whose only receipts are of unknown outcomes are told apart.
const UNKNOWN: usize = 1024;

/// A store's state for one key.
#[derive(Clone, Copy, Debug, Default)]
pub struct View<'a> {
    /// The version of the store's contents; `None` before the first list.
    pub store: Option<&'a ResourceVersion>,
    /// The object, when the store has it.
    pub object: Option<Shown<'a>>,
}

/// A store's state of one object.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// `metadata.uid`.
    pub uid: Option<&'a str>,
    /// `metadata.resourceVersion`.
    pub version: Option<&'a str>,
}

impl View<'_> {
    /// Whether the store or the object is at this version or a later one.
    fn reached(&self, version: &ResourceVersion) -> bool {
        self.store.is_some_and(|store| store.reached(version))
            || self.object.is_some_and(|object| object.reached(version))
    }
}

impl Shown<'_> {
    fn reached(&self, version: &ResourceVersion) -> bool {
        let Some(own) = self.version else { return false };
        let order = meta::compare(own, version.as_str());
        own == version.as_str() || order.is_some_and(|order| order != Ordering::Less)
    }
}

/// Where an object is after a write, seen from the scope of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// The scope selects it: the store will show it.
    Inside,
    /// The scope does not select it, or it does not exist: the store will not show it.
    Outside,
}

/// Everything that was acknowledged before a moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(u64);

/// Whether a read may be answered from the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hold {
    /// It may.
    Nothing,
    /// The watch will bring the missing change.
    Wait,
    /// Only the API server knows; ask it, then tell [`Receipts::asked`].
    Ask,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Receipt {
    /// A write at this version.
    Written { version: Version, place: Place },
    /// This incarnation was deleted, at a version that is not known.
    Deleted {
        uid: String,
        /// A version at which it existed.
        seen: Option<Version>,
        /// A version at which it did not exist any more.
        until: Option<Version>,
        /// Whether the scope selects, so that "not shown" may mean that it left for a while.
        selective: bool,
    },
    /// It is unknown whether the write happened.
    Unknown,
    /// Under the empty name: as [`Receipt::Unknown`], of any objects of the namespace.
    UnknownOfAny,
}

/// A resource version in an order of its own, for sets of states in tests; comparing versions is
/// [`ResourceVersion::compare`].
#[derive(Clone, Debug, PartialEq, Eq)]
struct Version(ResourceVersion);

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Version) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Version) -> Ordering {
        self.0.as_str().cmp(other.0.as_str())
    }
}

impl Receipt {
    /// The present state of the store is too old.
    fn holds(&self, view: &View<'_>) -> bool {
        match self {
            Receipt::Unknown | Receipt::UnknownOfAny => true,
            Receipt::Written { version, place } => {
                (*place == Place::Inside || view.object.is_some()) && !view.reached(&version.0)
            }
            Receipt::Deleted { uid, seen, .. } => view.object.is_some_and(|object| {
                let older = seen.as_ref().is_some_and(|seen| !object.reached(&seen.0));
                object.uid.is_none_or(|shown| shown == uid) || older
            }),
        }
    }

    /// The state of the store will never be too old again.
    fn satisfied(&self, view: &View<'_>) -> bool {
        match self {
            Receipt::Unknown | Receipt::UnknownOfAny => false,
            Receipt::Written { version, .. } => view.reached(&version.0),
            Receipt::Deleted {
                seen, until, selective, ..
            } => {
                let after =
                    |version: &Option<Version>| version.as_ref().is_some_and(|version| view.reached(&version.0));
                !self.holds(view) && (after(until) || (!selective && after(seen)))
            }
        }
    }
}

/// A receipt, or several of the same kind, by the numbers of their acknowledgements.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    first: u64,
    last: u64,
    receipt: Receipt,
}

/// The receipts of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Receipts {
    keys: BTreeMap<ObjectKey, Vec<Entry>>,
    /// Keys of which nothing but [`Receipt::Unknown`] is left: no change of the store says anything about them, so that
    /// [`Receipts::settle`], which runs after every batch of changes, leaves them alone.
    unknown: BTreeMap<ObjectKey, Vec<Entry>>,
    /// How many were left when they were last joined.
    crowded: usize,
    /// How many acknowledgements there were.
    count: u64,
    /// How many deletions there are, at most.
    deletions: usize,
    history_resets: u64,
}

/// Leaving receipts.
impl Receipts {
    /// A write was acknowledged at this version.
    pub fn wrote(&mut self, key: ObjectKey, version: ResourceVersion, place: Place, view: &View<'_>) {
        let version = Version(version);
        self.push(key, Receipt::Written { version, place }, view);
    }

    /// A delete was acknowledged, and the object is gone (one that waits for its finalizers is
    /// [written](Receipts::wrote)). `uid`: which incarnation; `seen`: a version at which it existed. `selective`: the
    /// scope selects by labels or fields.
    pub fn deleted(
        &mut self,
        key: ObjectKey,
        uid: Option<&str>,
        seen: Option<ResourceVersion>,
        selective: bool,
        view: &View<'_>,
    ) {
        // Without a uid the deleted incarnation cannot be told from its successor.
        let Some(uid) = uid else { return self.unknown(key) };
        let shown = view
            .object
            .filter(|object| object.uid == Some(uid))
            .and_then(|object| object.version);
        let seen = seen.or_else(|| shown.map(ResourceVersion::new)).map(Version);
        let receipt = Receipt::Deleted {
            uid: uid.to_owned(),
            seen,
            until: None,
            selective,
        };
        self.push(key, receipt, view);
        self.deletions += 1;
        if self.deletions > DELETIONS {
            self.bound_deletions();
        }
    }

    /// A write was sent and its outcome is not known. The empty name stands for a name that the server was to choose.
    pub fn unknown(&mut self, key: ObjectKey) {
        self.count += 1;
        let number = self.count;
        self.note_unknown(key, Receipt::Unknown, number, number);
        if self.unknown.len() > UNKNOWN.max(2 * self.crowded) {
            self.join_unknown();
        }
    }

    fn note_unknown(&mut self, key: ObjectKey, receipt: Receipt, first: u64, last: u64) {
        let all = match self.keys.contains_key(&key) {
            true => &mut self.keys,
            false => &mut self.unknown,
        };
        let entries = all.entry(key).or_default();
        match entries.iter_mut().find(|entry| entry.receipt == receipt) {
            Some(entry) => (entry.first, entry.last) = (entry.first.min(first), entry.last.max(last)),
            None => entries.push(Entry { first, last, receipt }),
        }
    }

    /// Keeps one receipt for each namespace instead of one for each key.
    fn join_unknown(&mut self) {
        for (key, entries) in std::mem::take(&mut self.unknown) {
            let any = ObjectKey {
                name: "".into(),
                ..key.clone()
            };
            for Entry { first, last, receipt } in entries {
                // A name that the server was to choose is not one that somebody asks for.
                match key == any {
                    true => self.note_unknown(key.clone(), receipt, first, last),
                    false => self.note_unknown(any.clone(), Receipt::UnknownOfAny, first, last),
                }
            }
        }
        // With more namespaces than that, each key more would join all of them again.
        self.crowded = self.unknown.len();
    }

    fn push(&mut self, key: ObjectKey, receipt: Receipt, view: &View<'_>) {
        self.count += 1;
        if receipt.satisfied(view) {
            return;
        }
        let number = self.count;
        self.insert(key, number, number, receipt);
    }

    fn insert(&mut self, key: ObjectKey, first: u64, last: u64, receipt: Receipt) {
        let unknown = self.unknown.remove(&key);
        let entries = self.keys.entry(key).or_default();
        entries.extend(unknown.into_iter().flatten());
        // Acknowledged earlier and written later: a read that waits for this one waits for that one too.
        if entries
            .iter()
            .any(|entry| entry.first <= first && entry.receipt.covers(&receipt))
        {
            return;
        }
        entries.push(Entry { first, last, receipt });
        if entries.len() > WRITES_PER_KEY {
            join_newest(entries);
        }
    }

    /// Asks for the older half of the deletions when there are too many.
    fn bound_deletions(&mut self) {
        let is_deletion = |entry: &Entry| matches!(entry.receipt, Receipt::Deleted { .. });
        let entries = self.keys.values().flatten();
        let mut numbers: Vec<u64> = entries
            .filter(|entry| is_deletion(entry))
            .map(|entry| entry.first)
            .collect();
        numbers.sort_unstable();
        if numbers.len() > DELETIONS {
            let kept = numbers.split_off(numbers.len() - DELETIONS / 2);
            let entries = self.keys.values_mut().flatten();
            for entry in entries.filter(|entry| is_deletion(entry) && !kept.contains(&entry.first)) {
                entry.receipt = Receipt::Unknown;
            }
            self.deletions = kept.len();
        } else {
            self.deletions = numbers.len();
        }
    }
}

/// Joins the two newest writes when that is possible: readers of the older one then wait for the newer.
fn join_newest(entries: &mut Vec<Entry>) {
    let Some(newest) = entries.pop() else { return };
    match entries.last_mut() {
        Some(before) if newest.receipt.covers(&before.receipt) => {
            before.last = newest.last;
            before.receipt = newest.receipt;
        }
        _ => entries.push(newest),
    }
}

impl Receipt {
    /// Whether no read that this one lets pass is too old for `other`.
    fn covers(&self, other: &Receipt) -> bool {
        match (self, other) {
            (Receipt::Written { version, .. }, Receipt::Written { version: other, .. }) => version.0.reached(&other.0),
            _ => self == other,
        }
    }
}

/// Reading.
impl Receipts {
    /// Everything that was acknowledged until now. Take it before the first look at the store.
    pub fn ticket(&self) -> Ticket {
        Ticket(self.count)
    }

    /// Whether a read of this key with this ticket may be answered from the store.
    pub fn hold(&self, key: &ObjectKey, ticket: Ticket, view: &View<'_>) -> Hold {
        let of_any = self.of_any(key.namespace.as_deref()).filter(|_| !key.name.is_empty());
        let entries = self.of(key).into_iter().flatten();
        entries
            .chain(of_any)
            .filter(|entry| entry.first <= ticket.0)
            .map(|entry| entry.hold(view))
            .max()
            .unwrap_or(Hold::Nothing)
    }

    /// The keys that hold a list of this namespace, or of everything, and how. Nothing when it may be answered from the
    /// store.
    pub fn held_in<'a>(
        &self,
        namespace: Option<&str>,
        ticket: Ticket,
        view: impl Fn(&ObjectKey) -> View<'a>,
    ) -> Vec<(ObjectKey, Hold)> {
        let keys = self.all_keys().filter(|key| is_in(key, namespace));
        keys.map(|key| (key, self.hold(key, ticket, &view(key))))
            .filter(|(_, hold)| *hold != Hold::Nothing)
            .map(|(key, hold)| (key.clone(), hold))
            .collect()
    }

    /// Whether there are no receipts.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys have receipts.
    pub fn len(&self) -> usize {
        self.keys.len() + self.unknown.len()
    }

    /// How many keys have receipts that a change of the store may settle.
    pub fn unsettled(&self) -> usize {
        self.keys.len()
    }

    /// Whether nothing less than a list of this namespace answers for an object in it.
    pub fn is_crowded(&self, namespace: Option<&str>) -> bool {
        self.of_any(namespace).is_some()
    }

    fn of_any(&self, namespace: Option<&str>) -> Option<&Entry> {
        if self.crowded == 0 {
            return None;
        }
        let entries = self.of(&ObjectKey::new(namespace, ""))?;
        entries.iter().find(|entry| entry.receipt == Receipt::UnknownOfAny)
    }

    fn of(&self, key: &ObjectKey) -> Option<&Vec<Entry>> {
        self.keys.get(key).or_else(|| self.unknown.get(key))
    }

    fn of_mut(&mut self, key: &ObjectKey) -> Option<&mut Vec<Entry>> {
        match self.keys.get_mut(key) {
            Some(entries) => Some(entries),
            None => self.unknown.get_mut(key),
        }
    }

    fn all_keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.keys.keys().chain(self.unknown.keys())
    }
}

impl Entry {
    fn hold(&self, view: &View<'_>) -> Hold {
        match self.receipt {
            Receipt::Unknown | Receipt::UnknownOfAny => Hold::Ask,
            _ if self.receipt.holds(view) => Hold::Wait,
            _ => Hold::Nothing,
        }
    }
}

fn is_in(key: &ObjectKey, namespace: Option<&str>) -> bool {
    namespace.is_none() || key.namespace.as_deref() == namespace
}

/// Learning.
impl Receipts {
    /// The API server was asked after the ticket was taken, by a list that selects this key: the newest version and
    /// place of the object. When it is not there, the version is that of the list. Readers with receipts before the
    /// ticket now wait for this state.
    pub fn asked(&mut self, key: &ObjectKey, ticket: Ticket, version: ResourceVersion, place: Place, view: &View<'_>) {
        if let Some(first) = self.take(key, ticket) {
            let version = Version(version);
            let receipt = Receipt::Written { version, place };
            if !receipt.satisfied(view) {
                self.insert(key.clone(), first, first, receipt);
            }
        }
        self.drop_empty(key);
    }

    /// As [`Receipts::asked`], for a list of a whole namespace, or of everything, at `version`: `listed` are the
    /// objects in it, `shown` says which objects the store has.
    pub fn asked_all<'a>(
        &mut self,
        namespace: Option<&str>,
        ticket: Ticket,
        version: &ResourceVersion,
        listed: &BTreeMap<ObjectKey, ResourceVersion>,
        shown: impl Fn() -> Vec<ObjectKey>,
        view: impl Fn(&ObjectKey) -> View<'a>,
    ) {
        let keys: Vec<ObjectKey> = self.all_keys().filter(|key| is_in(key, namespace)).cloned().collect();
        for key in keys {
            if key.name.is_empty() {
                let of_any = self.is_crowded(key.namespace.as_deref());
                let gone = match of_any {
                    true => shown(),
                    false => Vec::new(),
                };
                let gone = gone.into_iter().filter(|gone| !listed.contains_key(gone));
                let gone: Vec<ObjectKey> = gone.filter(|gone| gone.namespace == key.namespace).collect();
                if let Some(first) = self.found(&key, ticket, listed, &view) {
                    for gone in gone {
                        let (version, place) = (Version(version.clone()), Place::Outside);
                        self.learnt(gone, first, Receipt::Written { version, place }, &view);
                    }
                }
                continue;
            }
            let (version, place) = match listed.get(&key) {
                Some(version) => (version, Place::Inside),
                None => (version, Place::Outside),
            };
            self.asked(&key, ticket, version.clone(), place, &view(&key));
        }
        self.absent_until(namespace, ticket, version);
    }

    /// A name that the server was to choose is one of those that are listed. Answers the number of the oldest receipt.
    fn found<'a>(
        &mut self,
        unnamed: &ObjectKey,
        ticket: Ticket,
        listed: &BTreeMap<ObjectKey, ResourceVersion>,
        view: &impl Fn(&ObjectKey) -> View<'a>,
    ) -> Option<u64> {
        let taken = self.take(unnamed, ticket);
        self.drop_empty(unnamed);
        let first = taken?;
        for (key, version) in listed.iter().filter(|(key, _)| key.namespace == unnamed.namespace) {
            let (version, place) = (Version(version.clone()), Place::Inside);
            self.learnt(key.clone(), first, Receipt::Written { version, place }, view);
        }
        Some(first)
    }

    fn learnt<'a>(&mut self, key: ObjectKey, first: u64, receipt: Receipt, view: &impl Fn(&ObjectKey) -> View<'a>) {
        if !receipt.satisfied(&view(&key)) {
            self.insert(key, first, first, receipt);
        }
    }

    /// An object deleted before the ticket did not exist at this version.
    fn absent_until(&mut self, namespace: Option<&str>, ticket: Ticket, version: &ResourceVersion) {
        let keys = self.keys.iter_mut().filter(|(key, _)| is_in(key, namespace));
        for entry in keys
            .flat_map(|(_, entries)| entries)
            .filter(|entry| entry.last <= ticket.0)
        {
            if let Receipt::Deleted { until, .. } = &mut entry.receipt {
                until.get_or_insert_with(|| Version(version.clone()));
            }
        }
    }

    /// Takes out the receipts that the answer to a question at this ticket replaces; answers the number of the oldest.
    fn take(&mut self, key: &ObjectKey, ticket: Ticket) -> Option<u64> {
        let entries = self.of_mut(key)?;
        let mut first = None;
        entries.retain_mut(|entry| {
            if entry.first > ticket.0 {
                return true;
            }
            first = Some(first.map_or(entry.first, |first: u64| first.min(entry.first)));
            let later = entry.last > ticket.0;
            if matches!(entry.receipt, Receipt::Unknown | Receipt::UnknownOfAny) {
                entry.first = ticket.0 + 1;
            }
            later
        });
        first
    }

    fn drop_empty(&mut self, key: &ObjectKey) {
        if self.unknown.is_empty() {
            self.crowded = 0;
        }
        for all in [&mut self.keys, &mut self.unknown] {
            if all.get(key).is_some_and(Vec::is_empty) {
                all.remove(key);
            }
        }
    }

    /// Readers with this ticket have waited too long for these keys: from now on the API server is asked about them.
    pub fn overdue<'a>(
        &mut self,
        keys: impl IntoIterator<Item = &'a ObjectKey>,
        ticket: Ticket,
        view: impl Fn(&ObjectKey) -> View<'a>,
    ) {
        for key in keys {
            let view = view(key);
            let entries = self.of_mut(key).into_iter().flatten();
            for entry in entries.filter(|entry| entry.first <= ticket.0 && entry.receipt.holds(&view)) {
                entry.receipt = Receipt::Unknown;
            }
        }
    }

    /// The store has changed: drops the receipts that it has reached. `history_resets`:
    /// [`crate::Store::history_resets`]. Versions of another history mean nothing, so after a reset the API server is
    /// asked about all that is left.
    pub fn settle<'a>(&mut self, history_resets: u64, view: impl Fn(&ObjectKey) -> View<'a>) {
        let reset = self.history_resets != history_resets;
        self.history_resets = history_resets;
        let unknown = &mut self.unknown;
        self.keys.retain(|key, entries| {
            if reset {
                entries.iter_mut().for_each(|entry| entry.receipt = Receipt::Unknown);
            } else {
                let view = view(key);
                entries.retain(|entry| !entry.receipt.satisfied(&view));
            }
            let is_unknown = |entry: &Entry| matches!(entry.receipt, Receipt::Unknown | Receipt::UnknownOfAny);
            let settled = entries.iter().all(is_unknown);
            if settled && !entries.is_empty() {
                unknown.insert(key.clone(), std::mem::take(entries));
            }
            !settled
        });
    }
}

#[cfg(test)]
mod tests;
