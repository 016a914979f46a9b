//! The handlers of a store, by view: who is told of a change, and of what is there when it joins.
//!
//! Invariants: SI1 a handler is told of everything inside its view once the store covers that, then of every change;
//! SI6 one that was removed is not called again; a view that arrives while handlers run is let in by whoever holds the
//! lock, when that is released. What is there is told without the lock: it may mean decoding every object.

use std::ops::{Deref, DerefMut};
use std::sync::{Arc, MutexGuard, PoisonError};

use kubewright_engine::dispatch::{Handler, notify};
use kubewright_engine::{Event, HandlerId};

use super::SharedStore;
use crate::cache::coverage::Coverage;
use crate::cache::handlers::drop_guarded;
use crate::cache::part::Part;
use crate::form::Cached;
use crate::form::packed::Lease;

/// The handlers, by view.
#[derive(Default)]
pub(super) struct Dispatch {
    next: u64,
    pub(super) parts: Vec<Listening>,
    /// Up to here the views were told that they are synced.
    pub(super) synced: Option<Coverage>,
}

pub(super) struct Listening {
    pub(super) part: Arc<Part>,
    /// The store covers it, and its handlers were told of what is there.
    pub(super) joined: bool,
    handlers: Vec<Registered>,
}

struct Registered {
    id: HandlerId,
    handler: Handler<dyn Cached>,
    /// The changes since the snapshot that it is being told of.
    waiting: Option<Vec<Event<dyn Cached>>>,
}

/// The dispatch lock.
pub(super) struct DispatchGuard<'a> {
    store: &'a SharedStore,
    guard: Option<MutexGuard<'a, Dispatch>>,
}

impl Deref for DispatchGuard<'_> {
    type Target = Dispatch;

    fn deref(&self) -> &Dispatch {
        self.guard.as_ref().expect("it is held until the drop")
    }
}

impl DerefMut for DispatchGuard<'_> {
    fn deref_mut(&mut self) -> &mut Dispatch {
        self.guard.as_mut().expect("it is held until the drop")
    }
}

impl Drop for DispatchGuard<'_> {
    fn drop(&mut self) {
        self.guard = None;
        self.store.admit_if_free();
    }
}

impl SharedStore {
    pub(super) fn dispatch(&self) -> DispatchGuard<'_> {
        let mut guard = self.dispatch.lock().unwrap_or_else(PoisonError::into_inner);
        self.admit(&mut guard);
        DispatchGuard {
            store: self,
            guard: Some(guard),
        }
    }

    /// Lets the views in that have arrived, unless somebody has the lock, who will do it then: a handler that asks for
    /// a view must not wait for itself.
    pub(super) fn admit_if_free(&self) {
        // Again, for those that came meanwhile and found the lock taken.
        while self.has_arrivals() {
            match self.dispatch.try_lock() {
                Ok(mut dispatch) => self.admit(&mut dispatch),
                Err(_) => return,
            }
        }
    }

    fn has_arrivals(&self) -> bool {
        !self.arrived().is_empty()
    }

    /// Lets the views in that have arrived, and tells handlers of what is there now that the store covers their view.
    pub(super) fn admit(&self, dispatch: &mut Dispatch) {
        let arrived = std::mem::take(&mut *self.arrived());
        dispatch.parts.extend(arrived.into_iter().map(|part| Listening {
            part,
            joined: false,
            handlers: Vec::new(),
        }));
        if dispatch.parts.iter().all(|listening| listening.joined) {
            return;
        }
        let Some(coverage) = self.read().coverage.clone() else {
            return;
        };
        for listening in &mut dispatch.parts {
            if listening.joined || !coverage.covers(&listening.part.needs) {
                continue;
            }
            listening.joined = true;
            let watched = !listening.handlers.is_empty() || listening.part.checks();
            let there = if watched {
                self.snapshot(&listening.part)
            } else {
                Vec::new()
            };
            for object in there {
                self.tell_of(listening, &Event::Added { object, initial: true }, None, None);
            }
            let synced = dispatch.synced.as_ref();
            if synced.is_some_and(|synced| synced.covers(&listening.part.needs)) {
                listening.part.set_synced();
                self.changed();
            }
        }
    }

    /// The objects inside a view, as the store has them.
    fn snapshot(&self, part: &Part) -> Vec<Arc<dyn Cached>> {
        let contents = self.read();
        let mut objects = contents.store.list(part.needs.scope.namespace.as_deref()).items;
        let selects = part.selects_of(contents.coverage.as_ref());
        drop(contents);
        if selects {
            objects.retain(|object| part.needs.scope.selects(&**object));
        }
        objects
    }

    /// Adds a handler: it is told of everything that is inside its view, and then of every change. What is there it is
    /// told without the lock: that may decode every object.
    pub(in crate::cache) fn add_handler(&self, part: &Arc<Part>, handler: Handler<dyn Cached>) -> HandlerId {
        let mut dispatch = self.dispatch();
        let id = HandlerId(dispatch.next);
        dispatch.next += 1;
        let Some(listening) = dispatch.of(part) else {
            debug_assert!(false, "a view that is held is listed");
            return id;
        };
        let joined = listening.joined;
        listening.handlers.push(Registered {
            id,
            handler: handler.clone(),
            waiting: joined.then(Vec::new),
        });
        if !joined {
            return id;
        }
        let mut events: Vec<Event<dyn Cached>> = self
            .snapshot(part)
            .into_iter()
            .map(|object| Event::Added { object, initial: true })
            .collect();
        while !events.is_empty() {
            drop(dispatch);
            for event in events {
                let shown = match (&event, part.checks()) {
                    (Event::Added { object, initial: true }, true) => part.last_readable(object),
                    _ => Some(event.object().clone()),
                };
                let event = match (shown, event) {
                    (None, _) => continue,
                    (Some(object), Event::Added { initial, .. }) => Event::Added { object, initial },
                    (Some(_), event) => event,
                };
                self.report(notify(id, &handler, &event).as_slice());
            }
            dispatch = self.dispatch();
            let known = dispatch.of(part).and_then(|listening| listening.handler(id));
            events = match known {
                None => return id, // removed meanwhile
                Some(known) => known.waiting.take().unwrap_or_default(),
            };
            if !events.is_empty()
                && let Some(known) = dispatch.of(part).and_then(|listening| listening.handler(id))
            {
                known.waiting = Some(Vec::new());
            }
        }
        if let Some(known) = dispatch.of(part).and_then(|listening| listening.handler(id)) {
            known.waiting = None;
        }
        id
    }

    /// Forgets a handler; `false` when there was none.
    pub(in crate::cache) fn remove_handler(&self, part: &Arc<Part>, handler: HandlerId) -> bool {
        let mut dispatch = self.dispatch();
        let Some(listening) = dispatch.of(part) else {
            return false;
        };
        let before = listening.handlers.len();
        listening.handlers.retain(|known| known.id != handler);
        listening.handlers.len() < before
    }

    pub(in crate::cache) fn has_handler(&self, part: &Arc<Part>, handler: HandlerId) -> bool {
        let mut dispatch = self.dispatch();
        let found = dispatch.of(part).and_then(|listening| listening.handler(handler));
        found.is_some_and(|known| known.waiting.is_none())
    }

    pub(super) fn tell(&self, dispatch: &mut Dispatch, events: Vec<Event<dyn Cached>>, last: Option<&Arc<dyn Cached>>) {
        if events.is_empty() {
            return;
        }
        self.tombstones().note(&events);
        for other in self.family.others(self) {
            events.iter().for_each(|event| other.hears_of(event));
        }
        dispatch.parts.retain(|listening| !listening.part.is_gone());
        let coverage = self.read().coverage.clone();
        for event in &events {
            for listening in dispatch.parts.iter_mut().filter(|listening| listening.joined) {
                self.tell_of(listening, event, last, coverage.as_ref());
            }
        }
        drop_guarded(&self.resource.kind, events);
    }

    /// Without a coverage the event is known to be inside the view.
    fn tell_of(
        &self,
        listening: &mut Listening,
        event: &Event<dyn Cached>,
        last: Option<&Arc<dyn Cached>>,
        coverage: Option<&Coverage>,
    ) {
        let part = &listening.part;
        if listening.handlers.is_empty() && !part.is_watchful() {
            return;
        }
        let selects = coverage.is_some() && part.selects_of(coverage);
        let Some(seen) = part.sees(event, last, selects, listening.handlers.len()) else {
            return;
        };
        // The old state is decoded only if somebody asks for it.
        let lease = match &seen.event {
            Event::Modified { old, .. } if part.checks() => Lease::of(old, part.kind),
            _ => None,
        };
        for known in &mut listening.handlers {
            match &mut known.waiting {
                Some(waiting) => waiting.push(seen.event.clone()),
                None => self.report(notify(known.id, &known.handler, &seen.event).as_slice()),
            }
        }
        drop_guarded(&self.resource.kind, lease);
        drop_guarded(&self.resource.kind, seen.held);
        drop_guarded(&self.resource.kind, [seen.event]);
    }
}

impl Dispatch {
    fn of(&mut self, part: &Arc<Part>) -> Option<&mut Listening> {
        self.parts
            .iter_mut()
            .find(|listening| Arc::ptr_eq(&listening.part, part))
    }
}

impl Listening {
    fn handler(&mut self, id: HandlerId) -> Option<&mut Registered> {
        self.handlers.iter_mut().find(|known| known.id == id)
    }
}
