//! Takes Events and lets them wait to be written (client-go's event recorder in `tools/events`).
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
use kube::core::{ApiResource, ObjectMeta};
use tokio::sync::mpsc;

use crate::clock::Clock;
use crate::object::{Given, Object, api_resource};

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

/// What an event says, besides who says it and about which object; for [`Context::record`](crate::Context::record).
///
/// ```
/// use kubewright::{Context, EventNote};
/// # use kubewright::k8s_openapi::api::core::v1::{Pod, PersistentVolumeClaim};
/// # fn told(ctx: &Context, pod: &Pod, claim: &PersistentVolumeClaim) {
/// let note = EventNote::warning("FailedMount", "its volume is attached to another node");
/// ctx.record(pod, note.action("Mounting").related(claim));
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct EventNote {
    pub(crate) event_type: EventType,
    pub(crate) reason: String,
    pub(crate) action: Option<String>,
    pub(crate) message: String,
    pub(crate) related: Option<ObjectReference>,
}

impl EventNote {
    /// Why something was done or has happened, as one word in CamelCase, and what, in a sentence.
    pub fn new(event_type: EventType, reason: impl Into<String>, message: impl Into<String>) -> EventNote {
        EventNote {
            event_type,
            reason: reason.into(),
            action: None,
            message: message.into(),
            related: None,
        }
    }

    /// A note of something that went as it should.
    pub fn normal(reason: impl Into<String>, message: impl Into<String>) -> EventNote {
        EventNote::new(EventType::Normal, reason, message)
    }

    /// A note of something that needs attention.
    pub fn warning(reason: impl Into<String>, message: impl Into<String>) -> EventNote {
        EventNote::new(EventType::Warning, reason, message)
    }

    /// What was done or failed, as one word in CamelCase: `Mounting`. The default is the reason.
    pub fn action(mut self, action: impl Into<String>) -> EventNote {
        self.action = Some(action.into());
        self
    }

    /// A second object that has to do with it.
    pub fn related<'a, K: Object>(mut self, object: impl Given<'a, K>) -> EventNote {
        self.related = Some(reference(&api_resource::<K>(), object.given().meta()));
        self
    }
}

/// How events name an object.
pub(crate) fn reference(resource: &ApiResource, meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(resource.api_version.clone()),
        kind: Some(resource.kind.clone()),
        name: meta.name.clone(),
        namespace: meta.namespace.clone(),
        resource_version: meta.resource_version.clone(),
        uid: meta.uid.clone(),
        ..Default::default()
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
    pub(crate) regarding: ObjectReference,
    pub(crate) note: EventNote,
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
                kind: text(&self.regarding.kind),
                namespace: text(&self.regarding.namespace),
                name: text(&self.regarding.name),
                uid: text(&self.regarding.uid),
            },
            event_type: self.note.event_type,
            reason: self.note.reason.clone(),
            action: self.note.action.clone(),
            related: self.note.related.as_ref().map(|related| {
                let parts = [&related.kind, &related.namespace, &related.name, &related.uid];
                parts.map(text)
            }),
            message: Some(self.note.message.clone()),
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
            (known.at, known.regarding) = (record.at, record.regarding);
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

    /// Records an event about `regarding`. Never blocks. An event that equals a waiting one is counted with it; when too many
    /// different ones wait, or the writer has stopped, this one is dropped and counted.
    pub fn record(
        &self,
        component: &str,
        regarding: ObjectReference,
        event_type: EventType,
        reason: &str,
        message: impl Into<String>,
    ) {
        self.record_note(component, regarding, EventNote::new(event_type, reason, message));
    }

    /// As [`EventRecorder::record`], with everything that an event can say.
    pub fn record_note(&self, component: &str, regarding: ObjectReference, note: EventNote) {
        let at = self.clock.now();
        let reason = note.reason.clone();
        let record = Record {
            component: component.to_owned(),
            regarding,
            note,
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
    pub(crate) action: Option<String>,
    /// Kind, namespace, name and uid.
    pub(crate) related: Option<[String; 4]>,
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
