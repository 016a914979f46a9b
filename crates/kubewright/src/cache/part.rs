//! A view's share in the changes of a store: which of them it sees, and as what.
//!
//! A store holds the union of what its views need. So a change of the store may be another one for a view, or none: an
//! object that leaves the view's scope is deleted there, one that enters it is added. And an object whose text the
//! view's type cannot read keeps the last state that could be read, until it is deleted.
//!
//! Invariants: SI1 for one key a view sees `(Added Modified* Deleted)*`, whatever the store holds beside it; it sees
//! nothing before the store covers what it needs, and then everything that is there; RF11 "deleted" is said only of
//! what was shown, and what cannot be read is shown as nothing.

use std::any::TypeId;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_engine::{Event, HandlerId, Meta, ObjectKey, ResourceVersion, Unreadable};

use super::coverage::Coverage;
use super::handlers::Subscriber;
use super::store::KubeMeta;
use crate::form::{Cached, arrived, check, packed, unpacked};

/// One view of a store: a type and a scope.
pub(crate) struct Part {
    pub(super) kind: TypeId,
    pub(super) needs: Coverage,
    /// Its objects are decoded when they arrive.
    checks: AtomicBool,
    /// The store covers it, and every inline handler has returned for everything that was there then.
    synced: AtomicBool,
    /// Nobody has it any more.
    gone: AtomicBool,
    /// Objects that its type cannot read.
    broken: Mutex<BTreeMap<ObjectKey, Broken>>,
    /// The handlers that have a task.
    pub(super) subscribers: Mutex<BTreeMap<HandlerId, Arc<Subscriber>>>,
}

/// An object that a type cannot read.
#[derive(Clone)]
struct Broken {
    facts: Unreadable,
    /// Its last state that could be read, if the view has shown one.
    last: Option<Arc<dyn Cached>>,
    reported: bool,
}

/// A change as a view sees it.
pub(super) struct Seen {
    pub(super) event: Event<dyn Cached>,
    /// What handlers with a type are going to decode: it stays decoded until all have looked.
    pub(super) held: Vec<Arc<dyn Cached>>,
}

impl Part {
    pub(super) fn new(kind: TypeId, needs: Coverage) -> Part {
        Part {
            kind,
            needs,
            checks: AtomicBool::new(false),
            synced: AtomicBool::new(false),
            gone: AtomicBool::new(false),
            broken: Mutex::default(),
            subscribers: Mutex::default(),
        }
    }

    fn broken(&self) -> MutexGuard<'_, BTreeMap<ObjectKey, Broken>> {
        // No code of a user runs under this lock.
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn subscribers(&self) -> MutexGuard<'_, BTreeMap<HandlerId, Arc<Subscriber>>> {
        self.subscribers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on objects are decoded when they arrive. `false` when they were before.
    pub(super) fn check(&self) -> bool {
        !self.checks.swap(true, Ordering::Relaxed)
    }

    pub(super) fn checks(&self) -> bool {
        self.checks.load(Ordering::Relaxed)
    }

    pub(super) fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    pub(super) fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    pub(super) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }

    pub(super) fn set_gone(&self) {
        self.gone.store(true, Ordering::Relaxed);
    }

    /// Whether it must look at objects, of a store that holds this: where the server selects, it need not.
    pub(super) fn selects_of(&self, coverage: Option<&Coverage>) -> bool {
        coverage.is_none_or(|coverage| coverage.scope != self.needs.scope)
    }

    /// Whether changes matter to it that no handler is told of.
    pub(super) fn is_watchful(&self) -> bool {
        self.checks() || !self.broken().is_empty()
    }

    /// The change as this view sees it; `None` when it sees none. `last`: what the store had of a deleted object;
    /// `selects`: whether the store holds more than this view.
    pub(super) fn sees(
        &self,
        event: &Event<dyn Cached>,
        last: Option<&Arc<dyn Cached>>,
        selects: bool,
        handlers: usize,
    ) -> Option<Seen> {
        if let Event::Modified { old, new } = event
            && is_same_version(&**old, &**new)
        {
            return None; // The store knows more of it now; it has not changed.
        }
        let event = match selects {
            true => self.inside(event, last)?,
            false => event.clone(),
        };
        self.readable(event, last, handlers)
    }

    fn inside(&self, event: &Event<dyn Cached>, last: Option<&Arc<dyn Cached>>) -> Option<Event<dyn Cached>> {
        let holds = |object: &Arc<dyn Cached>| self.needs.scope.selects(&**object);
        match event {
            Event::Added { object, .. } => holds(object).then(|| event.clone()),
            Event::Deleted { object, .. } => holds(last.unwrap_or(object)).then(|| event.clone()),
            Event::Modified { old, new } => match (holds(old), holds(new)) {
                (true, true) => Some(event.clone()),
                (false, true) => Some(Event::Added {
                    object: new.clone(),
                    initial: false,
                }),
                // As the server tells it: the last state that was inside.
                (true, false) => Some(Event::Deleted {
                    key: KubeMeta::key(&**old)?,
                    object: old.clone(),
                    final_state_unknown: false,
                }),
                (false, false) => None,
            },
        }
    }

    fn readable(&self, event: Event<dyn Cached>, last: Option<&Arc<dyn Cached>>, handlers: usize) -> Option<Seen> {
        let seen = |event, held| Some(Seen { event, held });
        if !self.is_watchful() {
            return seen(event, Vec::new());
        }
        let key = match &event {
            Event::Deleted { key, .. } => key.clone(),
            other => KubeMeta::key(&**other.object())?,
        };
        let before = self.broken().remove(&key);
        if !self.checks() {
            return seen(event, Vec::new());
        }
        let read = |object: &Arc<dyn Cached>| self.read(object, handlers);
        match event {
            Event::Deleted {
                key,
                object,
                final_state_unknown,
            } => {
                let read = before.map_or_else(|| read(&object).map_err(|_| last.cloned()), |broken| Err(broken.last));
                let (object, final_state_unknown, held) = match read {
                    Ok(held) => (object, final_state_unknown, held),
                    Err(last) => (last?, true, None),
                };
                let event = Event::Deleted {
                    key,
                    object,
                    final_state_unknown,
                };
                seen(event, Vec::from_iter(held))
            }
            Event::Added { object, initial } => match read(&object) {
                Ok(held) => seen(Event::Added { object, initial }, Vec::from_iter(held)),
                Err(reason) => self.keep_broken(key, &object, &reason, None),
            },
            Event::Modified { old, new } => match (read(&new), before) {
                (Ok(held), None) => seen(Event::Modified { old, new }, Vec::from_iter(held)),
                (Ok(held), Some(broken)) => {
                    let event = match broken.last {
                        Some(old) => Event::Modified { old, new },
                        None => Event::Added {
                            object: new,
                            initial: false,
                        },
                    };
                    seen(event, Vec::from_iter(held))
                }
                (Err(reason), None) => {
                    let last = check(&*old, self.kind).is_ok().then_some(old);
                    self.keep_broken(key, &new, &reason, last)
                }
                (Err(reason), Some(broken)) => self.keep_broken(key, &new, &reason, broken.last),
            },
        }
    }

    /// Whether the type can read an object, which is decoded when nobody has tried yet, or when several handlers will.
    fn read(&self, object: &Arc<dyn Cached>, handlers: usize) -> Result<Option<Arc<dyn Cached>>, Arc<str>> {
        match packed(&**object).and_then(|packed| packed.was_read(self.kind)) {
            Some(Err(reason)) => Err(reason),
            Some(Ok(())) if handlers < 2 => Ok(None),
            _ => arrived(object.clone(), self.kind).map(Some),
        }
    }

    fn keep_broken(
        &self,
        key: ObjectKey,
        object: &Arc<dyn Cached>,
        reason: &str,
        last: Option<Arc<dyn Cached>>,
    ) -> Option<Seen> {
        let id = object.object_id();
        let facts = Unreadable {
            key: key.clone(),
            uid: id.uid.map(str::to_owned),
            resource_version: id.version.map(ResourceVersion::new),
            message: reason.to_owned(),
        };
        let broken = Broken {
            facts,
            last,
            reported: false,
        };
        self.broken().insert(key, broken);
        None
    }

    /// A read could not decode this object, which the store holds.
    pub(super) fn found_broken(&self, facts: &Unreadable) {
        let mut broken = self.broken();
        if broken.get(&facts.key).is_none_or(|known| known.facts != *facts) {
            let last = broken.remove(&facts.key).and_then(|known| known.last);
            let found = Broken {
                facts: facts.clone(),
                last,
                reported: false,
            };
            broken.insert(facts.key.clone(), found);
        }
    }

    /// The objects that its type cannot read, in order.
    pub(super) fn unreadable(&self) -> Vec<Unreadable> {
        self.broken().values().map(|broken| broken.facts.clone()).collect()
    }

    pub(super) fn unreadable_by_key(&self, key: &ObjectKey) -> Option<Unreadable> {
        self.broken().get(key).map(|broken| broken.facts.clone())
    }

    /// How many of them are shown in no state at all.
    pub(super) fn not_shown(&self) -> usize {
        self.broken().values().filter(|broken| broken.last.is_none()).count()
    }

    /// Those that nobody was told of yet.
    pub(super) fn take_unreported(&self) -> Vec<Unreadable> {
        let mut broken = self.broken();
        let fresh = broken.values_mut().filter(|broken| !broken.reported);
        fresh
            .map(|broken| {
                broken.reported = true;
                broken.facts.clone()
            })
            .collect()
    }

    /// The object as handlers are told of it; `None` when its type has never read it.
    pub(super) fn last_readable(&self, object: &Arc<dyn Cached>) -> Option<Arc<dyn Cached>> {
        match KubeMeta::key(&**object).and_then(|key| self.broken().get(&key).cloned()) {
            None => Some(object.clone()),
            Some(broken) => broken.last,
        }
    }

    /// The object as this view shows it, decoded; in its last readable state where that is another one.
    ///
    /// # Errors
    /// Why there is none.
    pub(super) fn show(&self, object: Arc<dyn Cached>) -> Result<Arc<dyn Cached>, Arc<str>> {
        match unpacked(object.clone(), self.kind) {
            Ok(shown) => Ok(shown),
            Err(reason) => {
                let last = KubeMeta::key(&*object).and_then(|key| self.broken().get(&key)?.last.clone());
                last.map_or(Err(reason), |last| unpacked(last, self.kind))
            }
        }
    }
}

/// Whether both are one version of one object.
fn is_same_version(old: &dyn Cached, new: &dyn Cached) -> bool {
    let (old, new) = (old.object_id(), new.object_id());
    old.version.is_some() && old.version == new.version && old.uid == new.uid
}

/// How the engine is to replace an object by one that says more.
pub(super) fn supersedes(new: &dyn Cached, stored: &dyn Cached) -> bool {
    match (packed(new), packed(stored)) {
        (Some(new), Some(stored)) => new.kept() != stored.kept(),
        _ => false,
    }
}
