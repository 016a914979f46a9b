//! Why a reconcile runs.
//!
//! Every enqueue has a [`Cause`]. The causes of a key are collected until its reconcile starts; they are then in
//! [`crate::Context::causes`], in the logs and in observations. The fields that changed are found when somebody asks for
//! them, which most reconcilers never do: until then a cause keeps both states of its object. All causes of a controller
//! together keep at most [`ROOM`] bytes of states. When there is no more room, as in a long queue, the fields are found
//! when the cause is made.
//!
//! Invariants: a key holds at most [`MAX_CAUSES`] causes, and each of them at most [`MAX_CHANGES`](crate::MAX_CHANGES)
//! fields with the beginnings of their values; several changes of one object become one (first before, last after), so
//! it shows the changes since the last reconcile; causes that did not fit are counted; a cause whose fields were found
//! keeps no object.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::sync::OwnedSemaphorePermit;

use crate::diff::{self, FieldChange};
use crate::form::{Cached, changes_of, text_len};
use crate::object::ObjectRef;

/// At most this many causes are kept for one key until its reconcile starts.
pub const MAX_CAUSES: usize = 16;

/// One reason for a reconcile. `Display` is a sentence: `Deployment default/hello changed: status.readyReplicas 0 → 2`.
#[derive(Clone)]
pub struct Cause {
    kind: CauseKind,
    object: Option<Arc<ObjectRef>>,
    change: Option<Arc<Changed>>,
    /// Taken from the room of a [`Waker`](crate::Waker), until a worker has the key.
    reservation: Option<Reservation>,
}

/// A place in a bounded queue.
type Reservation = Arc<OwnedSemaphorePermit>;

/// The kind of cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum CauseKind {
    /// The object was there when the cache was filled.
    InitialList,
    /// The object was created.
    Created,
    /// The object changed.
    Changed,
    /// The object was deleted.
    Deleted,
    /// The delay of [`crate::Action::requeue_after`] is over.
    Timer(Duration),
    /// The reconcile before this one failed.
    Retry {
        /// Which attempt this is; the first retry is 1.
        attempt: u32,
        /// The error of the attempt before.
        error: String,
    },
    /// Code of the operator asked for it, with its reason.
    Requested(String),
    /// More causes than are kept.
    More(usize),
}

impl Cause {
    /// A reason given by the operator's own code.
    pub fn requested(reason: impl Into<String>) -> Cause {
        Cause {
            kind: CauseKind::Requested(reason.into()),
            object: None,
            change: None,
            reservation: None,
        }
    }

    pub(crate) fn reserved(reason: String, reservation: Reservation) -> Cause {
        Cause {
            reservation: Some(reservation),
            ..Cause::requested(reason)
        }
    }

    pub(crate) fn timer(delay: Duration) -> Cause {
        Cause {
            kind: CauseKind::Timer(delay),
            object: None,
            change: None,
            reservation: None,
        }
    }

    pub(crate) fn retry(attempt: u32, error: String) -> Cause {
        Cause {
            kind: CauseKind::Retry { attempt, error },
            object: None,
            change: None,
            reservation: None,
        }
    }

    pub(crate) fn about(kind: CauseKind, object: ObjectRef) -> Cause {
        Cause {
            kind,
            object: Some(Arc::new(object)),
            change: None,
            reservation: None,
        }
    }

    /// An object changed in these fields.
    #[cfg(test)]
    pub(crate) fn changed_in(object: ObjectRef, fields: Vec<FieldChange>) -> Cause {
        Cause::with_change(object, Changed::found(fields, None))
    }

    /// An object changed from one state to another.
    pub(crate) fn changed(object: ObjectRef, old: &Arc<dyn Cached>, new: &Arc<dyn Cached>, room: &Room) -> Cause {
        let version = new.object_id().version.map(Box::from);
        let change = match States::keep(old.clone(), new.clone(), room) {
            Ok(states) => Changed {
                fields: OnceLock::new(),
                states: Mutex::new(Some(states)),
                version,
            },
            Err((old, new)) => Changed::found(changes_of(&*old, &*new), version),
        };
        Cause::with_change(object, change)
    }

    fn with_change(object: ObjectRef, change: Changed) -> Cause {
        Cause {
            change: Some(Arc::new(change)),
            ..Cause::about(CauseKind::Changed, object)
        }
    }

    /// The kind of cause.
    pub fn kind(&self) -> &CauseKind {
        &self.kind
    }

    /// The object it happened to, if it was an object.
    pub fn object(&self) -> Option<&ObjectRef> {
        self.object.as_deref()
    }

    /// The fields that changed; empty unless the kind is [`CauseKind::Changed`]. Of long values it has the beginning.
    pub fn changes(&self) -> &[FieldChange] {
        self.change.as_ref().map_or(&[], |change| change.fields())
    }

    /// The resourceVersion that a changed object has, as far as it is known in this process.
    pub(crate) fn version(&self) -> Option<&str> {
        self.change.as_ref()?.version.as_deref()
    }

    /// Adds a later change of the same object; `false` when the two cannot become one.
    fn absorb(&mut self, later: &Cause) -> bool {
        if self.object != later.object {
            return false;
        }
        if self.object.is_none() {
            // The same request twice is one; timers and retries come once anyway.
            return self.kind == later.kind;
        }
        match (&self.kind, &later.kind) {
            (CauseKind::Changed, CauseKind::Changed) => {
                if let (Some(first), Some(last)) = (&mut self.change, &later.change)
                    && !Arc::ptr_eq(first, last)
                {
                    *first = Arc::new(first.then(last));
                }
                true
            }
            // Created and then changed is still "created": the reconcile sees the object for the first time.
            (CauseKind::InitialList | CauseKind::Created, CauseKind::Changed) => true,
            (earlier, now) => earlier == now,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(object) = &self.object {
            write!(f, "{object} ")?;
        }
        match &self.kind {
            CauseKind::InitialList => f.write_str("in the initial list"),
            CauseKind::Created => f.write_str("created"),
            CauseKind::Deleted => f.write_str("deleted"),
            CauseKind::Changed => {
                f.write_str("changed")?;
                let changes = self.changes();
                for (index, change) in changes.iter().take(SHOWN).enumerate() {
                    write!(f, "{} {change}", if index == 0 { ":" } else { "," })?;
                }
                if changes.len() > SHOWN {
                    write!(f, " and {} more", changes.len() - SHOWN)?;
                }
                Ok(())
            }
            CauseKind::Timer(delay) => write!(f, "timer after {delay:?}"),
            CauseKind::Retry { attempt, error } => write!(f, "retry {attempt} after: {error}"),
            CauseKind::Requested(reason) => f.write_str(reason),
            CauseKind::More(count) => write!(f, "and {count} more causes"),
        }
    }
}

/// How many field changes `Display` shows.
const SHOWN: usize = 4;

/// A cause as it leaves the process.
#[derive(Serialize, Deserialize)]
struct Serialized {
    kind: CauseKind,
    object: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<FieldChange>,
}

impl Serialize for Cause {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = Serialized {
            kind: self.kind.clone(),
            object: self.object.as_deref().cloned(),
            changes: self.changes().to_vec(),
        };
        written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Cause {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cause, D::Error> {
        let Serialized { kind, object, changes } = Serialized::deserialize(deserializer)?;
        let change = (kind == CauseKind::Changed).then(|| Arc::new(Changed::found(changes, None)));
        Ok(Cause {
            kind,
            object: object.map(Arc::new),
            change,
            reservation: None,
        })
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cause({self})")
    }
}

/// How an object changed.
struct Changed {
    fields: OnceLock<Vec<FieldChange>>,
    /// Until the fields are found.
    states: Mutex<Option<States>>,
    /// The resourceVersion of the new state.
    version: Option<Box<str>>,
}

impl Changed {
    fn found(mut fields: Vec<FieldChange>, version: Option<Box<str>>) -> Changed {
        fields.iter_mut().for_each(diff::shorten);
        Changed {
            fields: OnceLock::from(fields),
            states: Mutex::default(),
            version,
        }
    }

    fn states(&self) -> MutexGuard<'_, Option<States>> {
        // Comparing runs no foreign code.
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fields(&self) -> &[FieldChange] {
        self.fields.get_or_init(|| {
            let states = self.states().take();
            let mut fields = states.map_or_else(Vec::new, |states| changes_of(&*states.old, &*states.new));
            fields.iter_mut().for_each(diff::shorten);
            fields
        })
    }

    /// This change and a later one of the same object.
    fn then(&self, later: &Changed) -> Changed {
        let version = later.version.clone();
        // One lock after the other: keys share their causes.
        let first = self
            .states()
            .as_ref()
            .map(|states| (states.old.clone(), states.room.clone()));
        let last = later.states().as_ref().map(|states| states.new.clone());
        if let (Some((old, room)), Some(new)) = (first, last)
            && let Ok(states) = States::keep(old, new, &room)
        {
            return Changed {
                fields: OnceLock::new(),
                states: Mutex::new(Some(states)),
                version,
            };
        }
        let mut fields = self.fields().to_vec();
        diff::merge(&mut fields, later.fields());
        Changed::found(fields, version)
    }
}

/// How many bytes of states the causes of a controller may keep.
pub(crate) const ROOM: usize = 1 << 20;

/// How much of [`ROOM`] is taken.
#[derive(Clone, Default)]
pub(crate) struct Room(Arc<AtomicUsize>);

/// An object before and after a change.
type Pair = (Arc<dyn Cached>, Arc<dyn Cached>);

/// The states of an object before and after a change, in a room.
struct States {
    old: Arc<dyn Cached>,
    new: Arc<dyn Cached>,
    bytes: usize,
    room: Room,
}

impl States {
    /// Gives the states back when there is no room for them.
    fn keep(old: Arc<dyn Cached>, new: Arc<dyn Cached>, room: &Room) -> Result<States, Pair> {
        let bytes = text_len(&*old) + text_len(&*new);
        if room.0.fetch_add(bytes, Ordering::Relaxed) + bytes > ROOM {
            room.0.fetch_sub(bytes, Ordering::Relaxed);
            return Err((old, new));
        }
        Ok(States {
            old,
            new,
            bytes,
            room: room.clone(),
        })
    }
}

impl Drop for States {
    fn drop(&mut self) {
        self.room.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The causes of one key until its reconcile starts.
#[derive(Debug, Default, Clone)]
pub(crate) struct Causes {
    list: Vec<Cause>,
    overflow: usize,
}

impl Causes {
    pub(crate) fn of(cause: Cause) -> Causes {
        let mut causes = Causes::default();
        causes.push(cause);
        causes
    }

    pub(crate) fn push(&mut self, cause: Cause) {
        // Only the newest entry about the object may take it in: "deleted, then created" must stay two things.
        if let Some(last) = self.list.iter_mut().rev().find(|known| known.object == cause.object)
            && last.absorb(&cause)
        {
            return;
        }
        if self.list.len() < MAX_CAUSES {
            self.list.push(cause);
        } else {
            self.overflow += 1;
        }
    }

    /// Forgets what has happened to which objects: whoever takes the key looks at everything anyway. That an object was
    /// there at the start stays, and what code of the operator asked for, with its reason.
    pub(crate) fn forget(&mut self) {
        self.list
            .retain(|cause| cause.object.is_none() || cause.kind == CauseKind::InitialList);
        self.list.shrink_to_fit();
        self.overflow = 0;
    }

    /// Whether the cache shows all that they say. It does not show what code of the operator asked for.
    pub(crate) fn are_seen(&self) -> bool {
        self.list.iter().all(|cause| cause.object.is_some())
    }

    /// A worker has the key: its causes wait no longer.
    pub(crate) fn taken(mut self) -> Vec<Cause> {
        if self.list.is_empty() && self.overflow == 0 {
            self.list
                .push(Cause::requested("it may have changed while another replica led"));
        }
        self.list.iter_mut().for_each(|cause| cause.reservation = None);
        self.into_vec()
    }

    pub(crate) fn into_vec(mut self) -> Vec<Cause> {
        if self.overflow > 0 {
            self.list.push(Cause {
                kind: CauseKind::More(self.overflow),
                object: None,
                change: None,
                reservation: None,
            });
        }
        self.list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::apps::v1::{Deployment, DeploymentStatus};

    fn object(name: &str) -> ObjectRef {
        ObjectRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            namespace: Some("default".into()),
            name: name.into(),
        }
    }

    fn ready(replicas: i32) -> Arc<Deployment> {
        let status = DeploymentStatus {
            ready_replicas: Some(replicas),
            ..Default::default()
        };
        Arc::new(Deployment {
            status: Some(status),
            ..Default::default()
        })
    }

    fn texts(causes: Vec<Cause>) -> Vec<String> {
        let mut set = Causes::default();
        for cause in causes {
            set.push(cause);
        }
        set.into_vec().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn causes_read_as_sentences_and_changes_of_one_object_become_one() {
        let changed = |old, new| {
            let (old, new): (Arc<dyn Cached>, Arc<dyn Cached>) = (ready(old), ready(new));
            Cause::changed(object("hello"), &old, &new, &Room::default())
        };
        let check = |causes: Vec<Cause>, expected: &[&str]| assert_eq!(texts(causes), expected);
        check(
            vec![changed(0, 2)],
            &["Deployment default/hello changed: status.readyReplicas 0 → 2"],
        );
        check(
            vec![changed(0, 1), changed(1, 2)],
            &["Deployment default/hello changed: status.readyReplicas 0 → 2"],
        );
        check(
            vec![Cause::about(CauseKind::Created, object("hello")), changed(0, 1)],
            &["Deployment default/hello created"],
        );
        check(
            vec![
                Cause::about(CauseKind::Deleted, object("hello")),
                Cause::about(CauseKind::Created, object("hello")),
            ],
            &["Deployment default/hello deleted", "Deployment default/hello created"],
        );
        check(
            vec![
                Cause::timer(Duration::from_secs(30)),
                Cause::retry(3, "no luck".into()),
                Cause::requested("asked for"),
            ],
            &["timer after 30s", "retry 3 after: no luck", "asked for"],
        );
    }

    #[test]
    fn a_key_keeps_a_bounded_number_of_causes() {
        let many = (0..100)
            .map(|n| Cause::about(CauseKind::Created, object(&format!("d{n}"))))
            .collect();
        let texts = texts(many);
        assert_eq!(texts.len(), MAX_CAUSES + 1);
        assert_eq!(texts[MAX_CAUSES], "and 84 more causes");
    }
}
