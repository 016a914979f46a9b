//! Events to handlers: the registry of a shared informer.
//!
//! Every handler sees, for each key, a valid history `(Added Modified* Deleted)*` (SI1): one that joins late is given
//! synthetic `Added` events for the objects in the store, then every later event. A handler that panics is counted and
//! reported; the others, and the store, go on (SI7). A removed handler is not called again (SI6).
//!
//! Handlers run synchronously and in order of registration, so they must be quick: map the event to keys and add them
//! to a work queue, or put it into the [`mailbox`] of a handler that may be slow. Not here: the lock. The caller must
//! not let a delta reach the store between the snapshot that it passes to [`Dispatcher::add`] and the return of that
//! call; holding the dispatcher's lock over both, and over "apply, then dispatch", does it.

pub mod mailbox;

use crate::delta::Event;
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// A handler: client-go's `ResourceEventHandler`.
pub type Handler<V> = Arc<dyn Fn(&Event<V>) + Send + Sync>;

/// Names one registration of a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HandlerId(pub u64);

/// A handler panicked on one event. Everything else went on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("event handler {} panicked: {message}; the event is lost for this handler only", handler.0)]
pub struct HandlerPanic {
    /// Which handler.
    pub handler: HandlerId,
    /// The text of the panic.
    pub message: String,
}

/// The handlers of one informer.
pub struct Dispatcher<V: ?Sized> {
    handlers: BTreeMap<HandlerId, Handler<V>>,
    next: u64,
}

impl<V: ?Sized> Default for Dispatcher<V> {
    fn default() -> Dispatcher<V> {
        Dispatcher {
            handlers: BTreeMap::new(),
            next: 0,
        }
    }
}

impl<V: ?Sized> Dispatcher<V> {
    /// No handlers yet.
    pub fn new() -> Dispatcher<V> {
        Dispatcher::default()
    }

    /// Registers a handler and gives it `snapshot`, the present content of the store, as initial `Added` events. Panics
    /// of the handler meanwhile are returned; it stays registered.
    pub fn add(
        &mut self,
        handler: Handler<V>,
        snapshot: impl IntoIterator<Item = Arc<V>>,
    ) -> (HandlerId, Vec<HandlerPanic>) {
        let id = HandlerId(self.next);
        self.next += 1;
        let mut panics = Vec::new();
        for object in snapshot {
            panics.extend(notify(id, &handler, &Event::Added { object, initial: true }));
        }
        self.handlers.insert(id, handler);
        (id, panics)
    }

    /// Removes a handler; `false` when it is not registered. When this returns, the handler will not be called again.
    pub fn remove(&mut self, id: HandlerId) -> bool {
        self.handlers.remove(&id).is_some()
    }

    /// Gives the events, in order, to every handler; returns the panics.
    pub fn dispatch(&self, events: &[Event<V>]) -> Vec<HandlerPanic> {
        let mut panics = Vec::new();
        for event in events {
            for (id, handler) in &self.handlers {
                panics.extend(notify(*id, handler, event));
            }
        }
        panics
    }

    /// Whether a handler is registered.
    pub fn contains(&self, id: HandlerId) -> bool {
        self.handlers.contains_key(&id)
    }

    /// How many handlers are registered.
    pub fn len(&self) -> usize {
        self.handlers.len()
    }

    /// Whether there is no handler.
    pub fn is_empty(&self) -> bool {
        self.handlers.is_empty()
    }
}

/// Calls a handler; answers its panic.
pub fn notify<V: ?Sized>(id: HandlerId, handler: &Handler<V>, event: &Event<V>) -> Option<HandlerPanic> {
    // The event is shared and immutable, and a handler's own state is its own business: nothing of ours can be left
    // half done.
    let payload = catch_unwind(AssertUnwindSafe(|| handler(event))).err()?;
    Some(HandlerPanic {
        handler: id,
        message: end_of_panic(payload),
    })
}

/// The text of a panic that was caught. Its payload is dropped here, and should that panic as well, it is left where it
/// is.
pub fn end_of_panic(payload: Box<dyn Any + Send>) -> String {
    let message = panic_message(payload.as_ref());
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    message
}

/// The text of a panic, or a placeholder when it was not text.
pub fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    text.unwrap_or("(not a text)").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    type Log = Arc<Mutex<Vec<Event<u32>>>>;

    fn recorder() -> (Log, Handler<u32>) {
        let log = Log::default();
        let sink = log.clone();
        (
            log,
            Arc::new(move |event: &Event<u32>| sink.lock().expect("no panic while held").push(event.clone())),
        )
    }

    fn added(object: u32, initial: bool) -> Event<u32> {
        Event::Added {
            object: Arc::new(object),
            initial,
        }
    }

    #[test]
    fn si1_late_joiner_sees_adds_first() {
        let mut dispatcher = Dispatcher::new();
        let (log, handler) = recorder();
        dispatcher.add(handler, [Arc::new(1), Arc::new(2)]);
        dispatcher.dispatch(&[added(3, false)]);
        assert_eq!(
            *log.lock().expect("quiet"),
            [added(1, true), added(2, true), added(3, false)]
        );
    }

    #[test]
    fn si6_removed_handler_is_silent() {
        let mut dispatcher = Dispatcher::new();
        let (log, handler) = recorder();
        let (id, _) = dispatcher.add(handler, []);
        assert!(dispatcher.remove(id) && !dispatcher.remove(id));
        dispatcher.dispatch(&[added(1, false)]);
        assert!(log.lock().expect("quiet").is_empty() && dispatcher.is_empty());
    }

    #[test]
    fn si7_panic_is_isolated() {
        let mut dispatcher = Dispatcher::new();
        let (before, first) = recorder();
        let (after, last) = recorder();
        dispatcher.add(first, []);
        let bad: Handler<u32> = Arc::new(|event| assert!(**event.object() != 1, "no ones, please"));
        let (bad, panics) = dispatcher.add(bad, [Arc::new(1)]);
        assert_eq!(
            panics,
            [HandlerPanic {
                handler: bad,
                message: "no ones, please".into()
            }]
        );
        dispatcher.add(last, []);
        let panics = dispatcher.dispatch(&[added(1, false), added(2, false)]);
        assert_eq!(panics.len(), 1, "{panics:?}");
        for log in [before, after] {
            assert_eq!(*log.lock().expect("quiet"), [added(1, false), added(2, false)]);
        }
    }
}
