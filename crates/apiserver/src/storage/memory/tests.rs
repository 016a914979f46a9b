//! Cases beyond the conformance suite: the memory in use, and the freedom of a journal.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn object(value: u64) -> Value {
    json!({"metadata": {"name": "a"}, "data": {"value": value.to_string()}})
}

#[test]
fn a_dropped_watch_is_forgotten() {
    let storage = MemoryStorage::new(10, 10);
    let watch = storage.watch("s", "", 1).expect("nothing is compacted");
    drop(watch);
    storage.create("s", "a", object(1)).expect("a is new");
    assert_eq!(storage.shared.read().stores["s"].watchers.count(), 0);
}

#[test]
fn prefixes_keep_namespaces_apart() {
    let storage = MemoryStorage::new(10, 10);
    for key in ["a/x", "a-b/y", "ab/z", "a/y"] {
        storage.create("s", key, object(1)).expect("the key is new");
    }
    let request = ListRequest {
        prefix: "a/".to_owned(),
        ..ListRequest::default()
    };
    let listed = storage.list("s", &request).expect("now is never compacted");
    let keys: Vec<&str> = listed.items.iter().map(|(key, _)| &**key).collect();
    assert_eq!(keys, ["a/x", "a/y"]);
}

/// The roles that the server makes at its start are read once; as trees of values they are ten times as large as their
/// texts.
#[test]
fn a_follower_of_a_store_keeps_nothing_open() {
    let storage = MemoryStorage::new(10, 10);
    let text = r#"{"metadata":{"name":"a","resourceVersion":""}}"#.to_owned();
    storage.create_text("s", "a", text).expect("a is new");
    let (listed, _changes) = storage.list_and_watch("s", "");
    assert_eq!(listed.items[0].1.value()["metadata"]["name"], "a");
    assert_eq!(storage.usage().open_bytes, 0);
    storage.get("s", "a").expect("it is there");
    drop(listed);
    storage.get("s", "a").expect("it is there");
    assert_ne!(storage.usage().open_bytes, 0, "what is asked for alone is kept open");
}

/// Endless writes of objects with texts of this size hold no more than the bounds, and dropped revisions are reported
/// as gone.
#[test]
fn endless_writes_hold_a_bounded_number_of_bytes() {
    let check = |size: usize, bounds: Bounds| {
        let storage = MemoryStorage::bounded(bounds);
        let _stalled = storage.watch("s", "", 1).expect("nothing is compacted yet");
        let first = storage.revision();
        let mut peak = Usage::default();
        for round in 0..400_u64 {
            let value = json!({"metadata": {}, "data": "x".repeat(size), "round": round});
            let store = if round % 5 == 0 { "t" } else { "s" };
            match storage.get(store, "a") {
                None => drop(storage.create(store, "a", value).expect("it is new")),
                Some(old) if round % 7 == 0 => drop(storage.delete(store, "a", old.revision()).expect("it is there")),
                Some(old) => drop(
                    storage
                        .update(store, "a", old.revision(), value)
                        .expect("nobody is faster"),
                ),
            }
            let usage = storage.usage();
            peak.change_bytes = peak.change_bytes.max(usage.change_bytes);
            peak.waiting_bytes = peak.waiting_bytes.max(usage.waiting_bytes);
            peak.open_bytes = peak.open_bytes.max(usage.open_bytes);
            peak.changes = peak.changes.max(usage.changes);
        }
        let largest = 2 * (size + 1024);
        assert!(peak.change_bytes <= bounds.history_bytes, "{size}: {peak:?}");
        assert!(
            peak.waiting_bytes <= bounds.buffer_bytes.max(largest),
            "{size}: {peak:?}"
        );
        assert!(peak.open_bytes <= RECENT_BYTES, "{size}: {peak:?}");
        assert!(peak.changes <= 2 * bounds.history, "{size}: {peak:?}");
        assert_eq!(
            storage.shared.read().history_bytes,
            storage.usage().change_bytes,
            "the sum is that of its parts"
        );
        assert!(matches!(
            storage.watch("s", "", first),
            Err(StorageError::Compacted { .. })
        ));
        let now = storage.revision();
        assert!(storage.watch("s", "", now).is_ok());
    };
    let kib = 1024;
    for (size, history, history_bytes) in [(10, 40, 1 << 30), (10_000, 10_000, 256 * kib), (400_000, 10, 900 * kib)] {
        check(
            size,
            Bounds {
                history,
                history_bytes,
                buffer: 100,
                buffer_bytes: 128 * kib,
                ..Bounds::default()
            },
        );
    }
}

/// A journal with a script.
#[derive(Default)]
struct Scripted {
    listener: Mutex<Option<crate::storage::journal::Listener>>,
    records: Mutex<Vec<u64>>,
}

impl Scripted {
    fn say(&self, outcome: Outcome) {
        let listener = self.listener.lock().expect("no test panics under the lock");
        listener.as_ref().expect("the storage has started it")(outcome);
    }
}

impl Journal for Scripted {
    fn start(&self, listener: crate::storage::journal::Listener) {
        *self.listener.lock().expect("no test panics under the lock") = Some(listener);
    }

    fn append(&self, record: Record) {
        let mut records = self.records.lock().expect("no test panics under the lock");
        records.push(record.change.revision);
    }
}

#[derive(Default)]
struct Counter(AtomicUsize);

impl Wake for Counter {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn journaled(revision: u64) -> (MemoryStorage, Arc<Scripted>) {
    let journal = Arc::new(Scripted::default());
    let restored = Restored {
        revision,
        objects: Vec::new(),
        ..Restored::default()
    };
    (
        MemoryStorage::journaled(Bounds::default(), restored, journal.clone()),
        journal,
    )
}

#[test]
fn no_watcher_sees_a_change_before_it_is_safe() {
    let (storage, journal) = journaled(7);
    let woken = Arc::new(Counter::default());
    let waker = Waker::from(woken.clone());
    let mut context = Context::from_waker(&waker);
    let mut stream = storage.watch("s", "", 7).expect("7 is the beginning");
    assert!(stream.poll_next(&mut context).is_pending());
    let created = storage.create("s", "a", object(1)).expect("a is new");
    assert_eq!(created.revision(), 8);
    let updated = storage.update("s", "a", 8, object(2)).expect("nobody is faster");
    assert_eq!(*journal.records.lock().expect("no panic"), [8, 9]);
    assert!(storage.settle(7).is_none(), "7 was safe from the beginning");
    let mut first = storage.settle(8).expect("8 is not safe yet");
    let mut second = storage.settle(updated.revision()).expect("9 is not safe yet");
    assert!(std::pin::Pin::new(&mut first).poll(&mut context).is_pending());
    assert!(std::pin::Pin::new(&mut second).poll(&mut context).is_pending());
    assert!(
        stream.poll_next(&mut context).is_pending(),
        "8 is told before it is safe"
    );
    assert_eq!(stream.progress(), Some(7));
    assert_eq!(woken.0.load(Ordering::Relaxed), 0);

    journal.say(Outcome::Durable(8));
    assert_eq!(
        woken.0.load(Ordering::Relaxed),
        2,
        "the watcher and the one who waits for 8"
    );
    assert_eq!(std::pin::Pin::new(&mut first).poll(&mut context), Poll::Ready(Ok(())));
    assert!(std::pin::Pin::new(&mut second).poll(&mut context).is_pending());
    assert!(matches!(stream.poll_next(&mut context), Poll::Ready(Delivery::Change(change)) if change.revision == 8));
    assert!(stream.poll_next(&mut context).is_pending());
    assert_eq!(stream.progress(), Some(8));

    // A watch that begins now gets the safe part of the past at once, and the rest when it is safe.
    let mut late = storage.watch("s", "", 7).expect("7 is kept");
    assert!(matches!(late.poll_next(&mut context), Poll::Ready(Delivery::Change(change)) if change.revision == 8));
    assert!(late.poll_next(&mut context).is_pending());
    journal.say(Outcome::Durable(9));
    for stream in [&mut stream, &mut late] {
        assert!(
            matches!(stream.poll_next(&mut context), Poll::Ready(Delivery::Change(change)) if change.revision == 9)
        );
        assert_eq!(stream.progress(), Some(9));
    }
}

#[test]
fn what_a_failing_journal_did_not_keep_is_taken_back() {
    let (storage, journal) = journaled(1);
    let mut context = Context::from_waker(Waker::noop());
    let mut stream = storage.watch("s", "", 1).expect("1 is the beginning");
    storage.create("s", "kept", object(1)).expect("kept is new");
    storage.create("s", "gone", object(1)).expect("gone is new");
    journal.say(Outcome::Durable(3));
    storage.update("s", "kept", 2, object(2)).expect("nobody is faster");
    storage.delete("s", "gone", 3).expect("it is there");
    storage.create("s", "new", object(1)).expect("new is new");
    let mut waits = storage.settle(5).expect("5 is not safe");
    let (listed, mut misled) = storage.list_and_watch("s", "");
    assert_eq!(listed.revision, 6);
    journal.say(Outcome::Failed("No space left on device".to_owned()));

    let unavailable = StorageError::Unavailable("No space left on device".to_owned());
    assert_eq!(
        std::pin::Pin::new(&mut waits).poll(&mut context),
        Poll::Ready(Err(unavailable.clone()))
    );
    assert!(
        matches!(misled.poll_next(&mut context), Poll::Ready(Delivery::Overrun)),
        "it began with what is no more"
    );
    assert_eq!(storage.revision(), 3);
    assert_eq!(storage.trouble().as_deref(), Some("No space left on device"));
    let keys: Vec<(String, u64)> = storage
        .list("s", &ListRequest::default())
        .expect("now is never compacted")
        .items
        .iter()
        .map(|(key, object)| (key.to_string(), object.revision()))
        .collect();
    assert_eq!(keys, [("gone".to_owned(), 3), ("kept".to_owned(), 2)]);
    let refused = storage.create("s", "new", object(1)).map(|object| object.revision());
    assert_eq!(refused, Err(unavailable));

    journal.say(Outcome::Recovered);
    assert_eq!(storage.trouble(), None);
    let again = storage.create("s", "new", object(3)).expect("it was taken back");
    assert_eq!(
        again.revision(),
        7,
        "a revision that somebody may have seen is not given out again"
    );
    assert!(storage.settle(6).is_some(), "6 was taken back, whatever is safe");
    journal.say(Outcome::Durable(7));
    let mut delivered = Vec::new();
    while let Poll::Ready(Delivery::Change(change)) = stream.poll_next(&mut context) {
        delivered.push(change.revision);
    }
    assert_eq!(delivered, [2, 3, 7]);
}

/// With the changes of late a watch goes on over a restart, and a list of the past is as it was.
#[test]
fn after_a_restart_watches_go_on() {
    let stored = |revision: u64, value: u64| Arc::new(StoredObject::new(revision, object(value)));
    let past = |store: &str, key: &str, before: Option<Arc<StoredObject>>, after: Arc<StoredObject>, deleted: bool| {
        super::super::journal::PastChange {
            store: store.into(),
            key: key.into(),
            before,
            after,
            deleted,
        }
    };
    let restored = Restored {
        revision: 50,
        objects: vec![
            ("s".into(), "a".into(), StoredObject::new(49, object(2))),
            ("s".into(), "old".into(), StoredObject::new(3, object(0))),
        ],
        past: vec![
            past("s", "a", None, stored(47, 1), false),
            past("t", "b", Some(stored(20, 1)), stored(48, 2), false),
            past("s", "a", Some(stored(47, 1)), stored(49, 2), false),
            past("t", "b", Some(stored(48, 2)), stored(50, 2), true),
        ],
        floor: 46,
    };
    let storage = MemoryStorage::journaled(Bounds::default(), restored, Arc::new(Scripted::default()));
    assert!(storage.shared.read().is_sound());
    let mut context = Context::from_waker(Waker::noop());
    let mut delivered = |store: &str, from: u64| {
        let mut stream = storage.watch(store, "", from).expect("it is kept");
        let mut delivered = Vec::new();
        while let Poll::Ready(Delivery::Change(change)) = stream.poll_next(&mut context) {
            delivered.push((change.revision, change.kind()));
        }
        delivered
    };
    assert_eq!(delivered("s", 46), [(47, "ADDED"), (49, "MODIFIED")]);
    assert_eq!(delivered("s", 47), [(49, "MODIFIED")]);
    assert_eq!(delivered("t", 47), [(48, "MODIFIED"), (50, "DELETED")]);
    assert_eq!(delivered("never-seen", 46), []);
    for store in ["s", "t", "never-seen"] {
        let watch = storage.watch(store, "", 45).map(drop);
        assert_eq!(watch, Err(StorageError::Compacted { asked: 45, oldest: 46 }), "{store}");
    }
    let keys = |store: &str, at: u64| {
        let request = ListRequest {
            at: Some(at),
            ..ListRequest::default()
        };
        let listed = storage.list(store, &request).expect("it is kept");
        let shown = listed
            .items
            .iter()
            .map(|(key, object)| (key.to_string(), object.revision()));
        shown.collect::<Vec<_>>()
    };
    assert_eq!(keys("s", 46), [("old".to_owned(), 3)]);
    assert_eq!(keys("s", 48), [("a".to_owned(), 47), ("old".to_owned(), 3)]);
    assert_eq!(keys("t", 47), [("b".to_owned(), 20)]);
    assert_eq!(keys("t", 50), []);
    assert_eq!(storage.create("s", "c", object(1)).expect("c is new").revision(), 51);
}

#[test]
fn after_a_restart_the_past_is_gone_and_says_so() {
    let journal = Arc::new(Scripted::default());
    let restored = Restored {
        revision: 50,
        objects: vec![("s".into(), "a".into(), StoredObject::new(20, object(1)))],
        ..Restored::default()
    };
    let storage = MemoryStorage::journaled(Bounds::default(), restored, journal);
    assert_eq!(storage.get("s", "a").map(|object| object.revision()), Some(20));
    for store in ["s", "never-seen"] {
        let watch = storage.watch(store, "", 49).map(drop);
        assert_eq!(watch, Err(StorageError::Compacted { asked: 49, oldest: 50 }), "{store}");
        let request = ListRequest {
            at: Some(49),
            ..ListRequest::default()
        };
        assert!(matches!(
            storage.list(store, &request),
            Err(StorageError::Compacted { .. })
        ));
        assert!(storage.watch(store, "", 50).is_ok());
    }
    let next = storage.create("s", "b", object(1)).expect("b is new");
    assert_eq!(next.revision(), 51);
}

proptest! {
    /// Every page of every revision that is known is the part of the whole list that it should be, and says how long
    /// the rest is; and the histories are counted right, whatever is written, compacted or taken back.
    #[test]
    fn pages_know_their_rest(
        writes in prop::collection::vec((0..4_u8, 0..40_u8, 0..6_u8), 1..120),
        asked in prop::collection::vec((any::<prop::sample::Index>(), 0..40_u8, 1..6_usize, 0..3_u8), 1..20),
    ) {
        let bounds = Bounds { history: 30, history_bytes: 12_000, ..Bounds::default() };
        let journal = Arc::new(Scripted::default());
        let restored = Restored { revision: 1, ..Restored::default() };
        let storage = MemoryStorage::journaled(bounds, restored, journal.clone());
        let key = |number: u8| format!("{}/{number}", number % 3);
        for (store, number, kind) in writes {
            let (store, key) = (format!("s{}", store / 3), key(number));
            match (kind, storage.get(&store, &key)) {
                (0, Some(present)) => drop(storage.delete(&store, &key, present.revision())),
                (1, _) => drop(storage.compact(storage.revision().saturating_sub(10), 5)),
                (2, _) => journal.say(Outcome::Durable(storage.revision())),
                (3, _) if number == 0 => {
                    journal.say(Outcome::Failed("full".to_owned()));
                    journal.say(Outcome::Recovered);
                }
                (_, Some(present)) => drop(storage.update(&store, &key, present.revision(), object(present.revision()))),
                (_, None) => drop(storage.create(&store, &key, object(0))),
            }
            prop_assert!(storage.shared.read().is_sound());
        }
        for (back, number, limit, namespace) in asked {
            let whole = ListRequest {
                at: Some(storage.revision().saturating_sub(back.index(40) as u64).max(1)),
                prefix: if namespace < 2 { format!("{namespace}/") } else { String::new() },
                ..ListRequest::default()
            };
            let Ok(all) = storage.list("s0", &whole) else { continue };
            prop_assert_eq!(all.rest, 0);
            let after = format!("{}{number}", whole.prefix);
            let page = ListRequest { after: Some(after.clone()), limit: Some(limit), ..whole };
            let page = storage.list("s0", &page).expect("the same revision");
            let behind: Vec<_> = all.items.iter().filter(|(key, _)| **key > *after).collect();
            let shown = |(key, object): &(Arc<str>, Arc<StoredObject>)| (key.clone(), object.revision());
            let expected: Vec<_> = behind.iter().take(limit).map(|item| shown(item)).collect();
            prop_assert_eq!(page.items.iter().map(shown).collect::<Vec<_>>(), expected);
            prop_assert_eq!(page.rest, behind.len().saturating_sub(limit));
        }
    }
}

/// Who lists looks at the objects without the lock: writes go on meanwhile, and do not change the list.
#[test]
fn a_list_holds_up_no_writes() {
    let storage = MemoryStorage::new(10, 10);
    for index in 0..300 {
        let key = format!("a{index}");
        storage.create("s", &key, object(1)).expect("the key is new");
    }
    let moment = {
        let state = storage.shared.read();
        state.stores["s"].at(state.revision, state.revision)
    };
    for index in 0..300 {
        storage
            .delete("s", &format!("a{index}"), 2 + index)
            .expect("it is there");
        storage
            .create("s", &format!("b{index}"), object(1))
            .expect("the key is new");
    }
    let listed = moment.list(&ListRequest::default());
    assert_eq!((listed.revision, listed.items.len()), (301, 300));
    assert!(listed.items.iter().all(|(key, _)| key.starts_with('a')));
}

/// A watch from long ago gets everything since, whatever the number: history ends with its bytes and its age. It opens
/// what it is about to read, and no more.
#[test]
fn a_watch_of_the_past_reads_on_and_on() {
    const CHANGES: u64 = 10_000;
    let storage = MemoryStorage::bounded(Bounds::default());
    for value in 0..CHANGES {
        match storage.get("s", "a").map(|present| present.revision()) {
            None => storage.create("s", "a", object(value)),
            Some(present) => storage.update("s", "a", present, object(value)),
        }
        .expect("nobody is faster");
        if value == 99 {
            storage.create("s", "b", object(value)).expect("it is new");
        }
    }
    let mut context = Context::from_waker(Waker::noop());
    let mut stream = storage.watch("s", "b", 1).expect("nothing is forgotten");
    assert!(matches!(stream.poll_next(&mut context), Poll::Ready(Delivery::Change(change)) if change.revision == 102));
    assert!(stream.poll_next(&mut context).is_pending());
    assert_eq!(stream.progress(), Some(storage.revision()));
    let mut stream = storage.watch("s", "", 1).expect("nothing is forgotten");
    storage.create("s", "c", object(0)).expect("it is new");
    for revision in 2..=storage.revision() {
        let delivered = stream.poll_next(&mut context);
        assert!(matches!(delivered, Poll::Ready(Delivery::Change(change)) if change.revision == revision));
    }
    assert!(stream.poll_next(&mut context).is_pending());
}
