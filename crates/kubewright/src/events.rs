//! Takes core/v1 Events and lets them wait to be written (client-go's event recorder).
//!
//! Invariant: E1 recording never blocks: equal events that wait are one, the queue of different ones is bounded, and an
//! event that does not fit is dropped and counted, with one warning for all of them.
//!
//! Not here: how they are written, see `event_writer.rs`. The cache records events, and the writer needs a client, which
//! reads from the cache.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::mpsc;

use crate::clock::Clock;

/// How many different events may wait to be written.
const QUEUE: usize = 1000;

/// The type of an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    /// Something went as it should.
    Normal,
    /// Something needs attention.
    Warning,
}

impl EventType {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            EventType::Normal => "Normal",
            EventType::Warning => "Warning",
        }
    }
}

impl fmt::Display for EventType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Takes events and writes them in the background. Cheap to clone. [`crate::Context::event`] is the usual way to one.
#[derive(Clone)]
pub struct EventRecorder {
    waiting: Waiting,
    clock: Arc<dyn Clock>,
    /// Wakes the writer, which ends with the last of these.
    wake: mpsc::Sender<()>,
}

impl fmt::Debug for EventRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventRecorder({} dropped)", self.dropped())
    }
}

pub(crate) struct Record {
    pub(crate) component: String,
    pub(crate) involved: ObjectReference,
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// How many equal events it stands for, and when the first and the last of them happened.
    pub(crate) times: i32,
    pub(crate) first: Timestamp,
    pub(crate) at: Timestamp,
}

impl Record {
    pub(crate) fn key(&self) -> Key {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        Key {
            subject: Subject {
                component: self.component.clone(),
                kind: text(&self.involved.kind),
                namespace: text(&self.involved.namespace),
                name: text(&self.involved.name),
                uid: text(&self.involved.uid),
            },
            event_type: self.event_type,
            reason: self.reason.clone(),
            message: Some(self.message.clone()),
        }
    }
}

/// The events that wait to be written.
#[derive(Clone, Default)]
pub(crate) struct Waiting(Arc<Mutex<Queued>>);

#[derive(Default)]
struct Queued {
    /// In the order of their first occurrence; the keys of `records`.
    order: VecDeque<Key>,
    records: BTreeMap<Key, Record>,
    dropped: u64,
    /// Somebody was told that events are dropped.
    warned: bool,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Queued> {
        // No code of a user runs under this lock.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; `false` when there is no room.
    fn put(&self, record: Record) -> bool {
        let key = record.key();
        let mut queued = self.lock();
        if let Some(known) = queued.records.get_mut(&key) {
            known.times = known.times.saturating_add(1);
            (known.at, known.involved) = (record.at, record.involved);
            return true;
        }
        if queued.records.len() >= QUEUE {
            queued.dropped += 1;
            return false;
        }
        queued.order.push_back(key.clone());
        queued.records.insert(key, record);
        debug_assert_eq!(queued.order.len(), queued.records.len());
        true
    }

    /// Whether this is the first event of many that is dropped.
    fn warns(&self) -> bool {
        !std::mem::replace(&mut self.lock().warned, true)
    }

    /// The one that waits longest.
    pub(crate) fn take(&self) -> Option<Record> {
        let mut queued = self.lock();
        let key = queued.order.pop_front()?;
        if queued.warned && queued.order.len() < QUEUE / 2 {
            queued.warned = false;
            tracing::info!(dropped = queued.dropped, "there is room for events again");
        }
        queued.records.remove(&key)
    }
}

impl EventRecorder {
    /// A recorder without a writer yet: what waits to be written, and what wakes who writes it.
    pub(crate) fn unwritten(clock: Arc<dyn Clock>) -> (EventRecorder, Waiting, mpsc::Receiver<()>) {
        let (wake, woken) = mpsc::channel(1);
        let waiting = Waiting::default();
        let recorder = EventRecorder {
            waiting: waiting.clone(),
            clock,
            wake,
        };
        (recorder, waiting, woken)
    }

    /// Records an event on `involved`. Never blocks. An event that equals a waiting one is counted with it; when too many
    /// different ones wait, or the writer has stopped, this one is dropped and counted.
    pub fn record(
        &self,
        component: &str,
        involved: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        let at = self.clock.now();
        let record = Record {
            component: component.to_owned(),
            involved,
            event_type,
            reason: reason.to_owned(),
            message: message.into(),
            times: 1,
            first: at,
            at,
        };
        if self.wake.is_closed() {
            self.waiting.lock().dropped += 1;
            return tracing::debug!(component, reason, "an event was dropped: the writer has stopped");
        }
        if !self.waiting.put(record) && self.waiting.warns() {
            tracing::warn!(
                component,
                reason,
                waiting = QUEUE,
                "events are dropped until those that wait are written; the API server takes them too slowly, or not at all"
            );
        }
        // A writer that was woken already looks at all that wait.
        let _ = self.wake.try_send(());
    }

    /// How many events were dropped because too many waited.
    pub fn dropped(&self) -> u64 {
        self.waiting.lock().dropped
    }
}

/// The fields by which two events are equal.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    pub(crate) subject: Subject,
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    /// None stands for all messages.
    pub(crate) message: Option<String>,
}

/// Who says something about which object; the spam filter works on these.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Subject {
    pub(crate) component: String,
    pub(crate) kind: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
}
