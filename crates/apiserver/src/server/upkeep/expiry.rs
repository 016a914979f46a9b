//! Events go some time after their last write (`--event-ttl`), as those that etcd holds with a lease.
//!
//! Invariants: each stored Event stands once in the queue, by the time at which it is due, so that a write costs the
//! same however many there are; an Event that is written again has its whole time again; a watch sees an expired one as
//! DELETED. Events that were stored before a start are due by the times in their metadata: a restart renews nothing.
//!
//! The shell polls [`ApiServer::expire_events`]; nothing else here waits.

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::env::BoxFuture;
use crate::model::object;
use crate::server::ApiServer;
use crate::server::Inner;
use crate::storage::{ChangeStream, Delivery, StorageError};
use crate::values::get;

const STORE: &str = "events";

/// How many go at once, before other requests go on.
const AT_ONCE: usize = 100;
/// How long the others have.
const PAUSE: Duration = Duration::from_millis(10);

/// The Events by the time at which they are due.
struct Queue {
    lifetime: SignedDuration,
    due: BTreeSet<(Timestamp, Arc<str>)>,
    /// When each is due, and which revision of it.
    events: BTreeMap<Arc<str>, (Timestamp, u64)>,
    changes: Box<dyn ChangeStream>,
}

/// Why a queue is of no use any more.
enum QueueEnd {
    /// The server ends.
    Closed,
    /// Changes were lost.
    Lost,
}

impl ApiServer {
    /// Removes Events whose time is over, until the server is shut down. Without a call they stay for ever.
    pub async fn expire_events(&self) {
        let inner = &self.inner;
        // As with etcd, no time at all means no lease.
        let Some(lifetime) = SignedDuration::try_from(inner.config.event_ttl)
            .ok()
            .filter(|lifetime| !lifetime.is_zero())
        else {
            return;
        };
        while let QueueEnd::Lost = Queue::start(inner, lifetime).run(inner).await {}
    }
}

impl Queue {
    fn start(inner: &Inner, lifetime: SignedDuration) -> Queue {
        let (listed, changes) = inner.storage.list_and_watch(STORE, "");
        let mut queue = Queue {
            lifetime,
            due: BTreeSet::new(),
            events: BTreeMap::new(),
            changes,
        };
        let now = inner.env.now();
        for (key, event) in &listed.items {
            queue.put(key, event.revision(), written_at(event.head()).unwrap_or(now).min(now));
        }
        queue
    }

    /// An event that was written at that time.
    fn put(&mut self, key: &Arc<str>, revision: u64, written: Timestamp) {
        self.forget(key);
        let due = written.checked_add(self.lifetime).unwrap_or(Timestamp::MAX);
        self.due.insert((due, key.clone()));
        self.events.insert(key.clone(), (due, revision));
    }

    fn forget(&mut self, key: &Arc<str>) {
        if let Some((due, _)) = self.events.remove(key) {
            self.due.remove(&(due, key.clone()));
        }
    }

    async fn run(mut self, inner: &Inner) -> QueueEnd {
        let mut timer: Option<(Timestamp, BoxFuture<'static, ()>)> = None;
        loop {
            self.remove_due(inner);
            let now = inner.env.now();
            let next = self.due.first().map(|(due, _)| *due);
            if timer.as_ref().map(|(due, _)| *due) != next || next.is_some_and(|due| due <= now) {
                timer = next.map(|due| {
                    let left = Duration::try_from(due.duration_since(now)).unwrap_or_default();
                    (due, inner.env.sleep(left.max(PAUSE)))
                });
            }
            let next = poll_fn(|cx| {
                if let Err(over) = self.take_in(inner, cx) {
                    return Poll::Ready(Err(over));
                }
                let first = self.due.first().map(|(due, _)| *due);
                match &mut timer {
                    Some((due, timer)) if Some(*due) == first => timer.as_mut().poll(cx).map(Ok),
                    None if first.is_none() => Poll::Pending,
                    _ => Poll::Ready(Ok(())),
                }
            });
            if let Err(over) = next.await {
                return over;
            }
        }
    }

    /// Takes in new writes.
    fn take_in(&mut self, inner: &Inner, cx: &mut Context<'_>) -> Result<(), QueueEnd> {
        loop {
            match self.changes.poll_next(cx) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Delivery::Change(change)) if change.deleted => self.forget(&change.key),
                Poll::Ready(Delivery::Change(change)) => self.put(&change.key, change.revision, inner.env.now()),
                Poll::Ready(Delivery::Overrun) => return Err(QueueEnd::Lost),
                Poll::Ready(Delivery::Closed) => return Err(QueueEnd::Closed),
            }
        }
    }

    /// Removes some of those whose time is over.
    fn remove_due(&mut self, inner: &Inner) {
        let now = inner.env.now();
        let row = inner.registry.snapshot().by_kind("", "v1", "Event");
        for _ in 0..AT_ONCE {
            let Some((_, key)) = self.due.first().filter(|(due, _)| *due <= now).cloned() else {
                return;
            };
            let revision = self.events.get(&key).map_or(0, |(_, revision)| *revision);
            self.forget(&key);
            match inner.storage.delete(STORE, &key, revision) {
                Ok(gone) => {
                    if let Some(row) = &row {
                        inner.after_delete(row, &gone);
                    }
                }
                // Nothing can be written now: it is tried again.
                Err(StorageError::Unavailable(_)) => self.put(&key, revision, now),
                // It was written or removed meanwhile, and the change is on its way here.
                Err(_) => {}
            }
        }
    }
}

/// The latest time at which the metadata says that the object was written.
fn written_at(event: &Value) -> Option<Timestamp> {
    let time = |value: &Value| value.as_str()?.parse().ok();
    let entries = get(event, &["metadata", "managedFields"])
        .as_array()
        .into_iter()
        .flatten();
    let changed = entries.filter_map(|entry| time(get(entry, &["time"]))).max();
    changed.max(object::text(event, "creationTimestamp").parse().ok())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;

    use serde_json::json;

    use super::*;
    use crate::server::tests::World;

    const EVENTS: &str = "/api/v1/namespaces/default/events";
    const HOUR: u64 = 3600;

    fn names(world: &World) -> Vec<String> {
        let listed = world.call(&format!("GET {EVENTS}"), &Value::Null).body;
        let items = listed["items"].as_array().into_iter().flatten();
        items.map(|item| object::name(item).to_owned()).collect()
    }

    #[test]
    fn events_go_an_hour_after_their_last_write() {
        let world = World::new();
        let mut cx = Context::from_waker(Waker::noop());
        let event = |name: &str| {
            json!({"metadata": {"name": name}, "reason": "R", "message": "m", "type": "Normal",
                   "involvedObject": {"kind": "Pod", "namespace": "default", "name": "p"}})
        };
        let create = |name: &str| {
            let answer = world.call(&format!("POST {EVENTS}"), &event(name));
            assert_eq!(answer.code, 201, "{}", answer.body);
        };
        create("before");
        world.advance(Duration::from_secs(HOUR / 2));
        // As after a restart: it knows only the stored Events.
        let api = world.api.clone();
        let mut expiring = pin!(api.expire_events());
        let mut check = |seconds: u64, expected: &[&str]| {
            world.advance(Duration::from_secs(seconds));
            assert!(expiring.as_mut().poll(&mut cx).is_pending());
            assert_eq!(names(&world), expected);
        };
        check(0, &["before"]);
        create("kept");
        check(HOUR / 2 - 1, &["before", "kept"]);
        check(1, &["kept"]);
        let patched = world.call(&format!("PATCH {EVENTS}/kept"), &json!({"count": 2}));
        assert_eq!(patched.code, 200, "{}", patched.body);
        check(0, &["kept"]);
        check(HOUR - 1, &["kept"]);
        check(1, &[]);
        (0..250).for_each(|index| create(&format!("e{index}")));
        check(0, &names(&world).iter().map(String::as_str).collect::<Vec<_>>());
        world.advance(Duration::from_secs(HOUR));
        while !names(&world).is_empty() {
            assert!(expiring.as_mut().poll(&mut cx).is_pending());
            world.advance(PAUSE);
        }
        world.api.shutdown();
        assert!(expiring.as_mut().poll(&mut cx).is_ready());
    }
}
