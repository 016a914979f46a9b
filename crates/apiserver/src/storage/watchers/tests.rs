//! Random histories of writers and watchers, against a model that keeps for each watcher what it must get.

use std::sync::atomic::AtomicBool;
use std::task::Wake;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::storage::{MemoryStorage, Storage as _};

const LIMITS: Limits = Limits {
    changes: 5,
    bytes: 4000,
};
const PREFIXES: [&str; 4] = ["", "a/", "a/x", "b/"];
const KEYS: [&str; 4] = ["a/x", "a/y", "b/x", "c"];

#[derive(Clone, Debug)]
enum Step {
    Subscribe {
        prefix: usize,
        ahead: u64,
    },
    Publish {
        key: usize,
        large: bool,
    },
    /// A watcher reads so many times.
    Read {
        watcher: usize,
        times: usize,
    },
    Leave {
        watcher: usize,
    },
    CutOff,
    Close,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..PREFIXES.len(), 0..3_u64).prop_map(|(prefix, ahead)| Step::Subscribe { prefix, ahead }),
        12 => (0..KEYS.len(), any::<bool>()).prop_map(|(key, large)| Step::Publish { key, large }),
        12 => (0..8_usize, 1..9_usize).prop_map(|(watcher, times)| Step::Read { watcher, times }),
        2 => (0..8_usize).prop_map(|watcher| Step::Leave { watcher }),
        1 => Just(Step::CutOff),
        1 => Just(Step::Close),
    ]
}

#[derive(Default)]
struct Flag(AtomicBool);

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A watcher, and what it must get.
struct Watcher {
    subscriber: Subscriber,
    prefix: &'static str,
    /// Sizes and revisions of what it has not read.
    due: VecDeque<(u64, usize)>,
    /// The last answer was to wait.
    waits: bool,
    woken: Arc<Flag>,
    cut_off: bool,
    closed: bool,
}

#[derive(Default)]
struct World {
    watchers: Watchers,
    sitting: Vec<Watcher>,
    revision: u64,
}

impl World {
    fn run(&mut self, step: &Step) {
        match *step {
            Step::Subscribe { prefix, ahead } => self.subscribe(PREFIXES[prefix], ahead),
            Step::Publish { key, large } => self.publish(KEYS[key], large),
            Step::Read { watcher, times } => {
                for _ in 0..times {
                    if let Some(watcher) = self.sitting.get_mut(watcher) {
                        watcher.read();
                    }
                }
            }
            Step::Leave { watcher } => {
                if watcher < self.sitting.len() {
                    self.sitting.swap_remove(watcher);
                }
            }
            Step::CutOff => self.cut_off(),
            Step::Close => self.close(),
        }
        let sitting = self.sitting.iter().filter(|watcher| !watcher.closed);
        assert_eq!(self.watchers.count(), sitting.count());
    }

    fn subscribe(&mut self, prefix: &'static str, ahead: u64) {
        if self.sitting.len() < 8 {
            let after = self.revision + ahead;
            self.sitting.push(Watcher {
                subscriber: self.watchers.subscribe(prefix, after, LIMITS),
                prefix,
                due: VecDeque::new(),
                waits: false,
                woken: Arc::default(),
                cut_off: false,
                closed: false,
            });
        }
    }

    fn publish(&mut self, key: &'static str, large: bool) {
        self.revision += 1;
        let change = change(key, self.revision, large);
        let mut wake = Vec::new();
        self.watchers.publish(&change, &mut wake);
        wake.into_iter().for_each(Waker::wake);
        for watcher in &mut self.sitting {
            if !watcher.closed && key.starts_with(watcher.prefix) {
                watcher.due.push_back((self.revision, change.size()));
                assert!(watcher.is_awake(), "a watcher that waits is woken");
            }
        }
    }

    fn cut_off(&mut self) {
        let mut wake = Vec::new();
        self.watchers.cut_off_after(self.revision, &mut wake);
        wake.into_iter().for_each(Waker::wake);
        for watcher in &mut self.sitting {
            watcher.cut_off |= !watcher.closed && watcher.subscriber.after() > self.revision;
            assert!(!watcher.cut_off || watcher.is_awake());
        }
    }

    fn close(&mut self) {
        let mut wake = Vec::new();
        self.watchers.close(&mut wake);
        wake.into_iter().for_each(Waker::wake);
        for watcher in &mut self.sitting {
            watcher.closed = true;
            assert!(watcher.is_awake());
        }
    }
}

fn change(key: &str, revision: u64, large: bool) -> Arc<Change> {
    let storage = MemoryStorage::new(1, 1);
    let text = if large { "x".repeat(1500) } else { String::new() };
    let object = storage
        .create("s", key, json!({"metadata": {}, "text": text}))
        .expect("it is new");
    let mut change = Change::new(key.into(), None, object, false);
    change.revision = revision;
    Arc::new(change)
}

impl Watcher {
    fn is_awake(&self) -> bool {
        !self.waits || self.woken.0.load(Ordering::Relaxed)
    }

    fn read(&mut self) {
        let waker = Waker::from(self.woken.clone());
        let answer = self.subscriber.poll(&mut Context::from_waker(&waker));
        self.waits = answer.is_pending();
        let bytes: usize = self.due.iter().map(|(_, bytes)| bytes).sum();
        let behind = self.due.len() > LIMITS.changes || bytes > LIMITS.bytes;
        // A watch from the future skips what it did not ask for.
        let after = self.subscriber.after();
        while self.due.front().is_some_and(|(revision, _)| *revision <= after) {
            self.due.pop_front();
        }
        match answer {
            Poll::Ready(Delivery::Change(change)) => {
                let due = self.due.pop_front();
                assert_eq!(due, Some((change.revision, change.size())), "everything in order, once");
            }
            Poll::Ready(Delivery::Overrun) => {
                assert!(
                    self.cut_off || behind,
                    "a watcher that keeps up is not cut off: {:?}",
                    self.due
                );
                self.cut_off = true;
            }
            Poll::Ready(Delivery::Closed) => assert!(self.closed && self.due.is_empty()),
            Poll::Pending => {
                self.woken.0.store(false, Ordering::Relaxed);
                assert!(self.due.is_empty() && !self.closed && !self.cut_off);
                assert!(self.subscriber.is_settled());
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_watcher_gets_its_changes_or_is_cut_off(steps in proptest::collection::vec(step(), 0..120)) {
        let mut world = World::default();
        for step in &steps {
            world.run(step);
        }
        let behind = |watchers: &Watchers| {
            let logs = watchers.logs.values();
            logs.map(|log| log.lock().entries.len()).max().unwrap_or_default()
        };
        prop_assert!(behind(&world.watchers) <= LIMITS.changes);
        for log in world.watchers.logs.values() {
            let contents = log.lock();
            prop_assert!(contents.bytes <= LIMITS.bytes || contents.entries.len() == 1);
            let sizes = contents.entries.iter().map(|entry| entry.change.size());
            prop_assert_eq!(contents.bytes, sizes.sum::<usize>());
        }
        // When all have read, and when all have gone, nothing is kept.
        for watcher in &mut world.sitting {
            for _ in 0..=LIMITS.changes + BATCH {
                watcher.read();
            }
        }
        prop_assert_eq!(behind(&world.watchers), 0);
        world.sitting.clear();
        for log in world.watchers.logs.values() {
            prop_assert_eq!(log.lock().cursors.capacity(), 0);
        }
        prop_assert_eq!((world.watchers.count(), world.watchers.waiting_bytes()), (0, 0));
    }
}

/// A log without watchers does not stay: each namespace that was ever watched would have one.
#[test]
fn logs_without_watchers_are_dropped() {
    let mut watchers = Watchers::default();
    for number in 0..1000 {
        let prefix = format!("namespace-{number}/");
        drop(watchers.subscribe(&prefix, 0, LIMITS));
    }
    assert!(watchers.logs.len() <= FEW_LOGS, "{}", watchers.logs.len());
    let known: BTreeSet<usize> = watchers.logs.keys().map(|prefix| prefix.len()).collect();
    assert_eq!(watchers.lengths, known);
}
