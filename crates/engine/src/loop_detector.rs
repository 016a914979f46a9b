//! Controllers that wake themselves: the write of each reconcile of a key wakes the next one.
//!
//! Told which versions the controller's own writes gave to objects, and which changes woke a key, it says when a key
//! was woken by nothing but own writes [`LENGTH`] times in a row within [`WITHIN`]. A controller that goes through some
//! states of its own, each of which it writes down, stops before that; one that writes a time stamp at every pass does
//! not.
//!
//! Invariants: any other cause, a change by another client, a timer, a retry, begins anew; a loop is reported once,
//! until it was interrupted; the memory is bounded, and a forgotten write counts as one of another client.
//!
//! Not here: two controllers that wake each other, which cannot be told from two that work hand in hand without
//! comparing their writes.

use crate::time::Instant;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// So many reconciles of a key in a row that own writes caused are a loop…
pub const LENGTH: u32 = 10;
/// …when the first is not longer ago than this.
pub const WITHIN: Duration = Duration::from_secs(30);
/// How many writes are remembered: those of a controller that its watches have not shown yet.
const WRITES: usize = 1024;
/// How many keys are followed.
const KEYS: usize = 1024;

/// The memory of one controller. `K`: its keys; `O`: how objects are named.
#[derive(Debug)]
pub struct LoopDetector<K, O> {
    /// Versions by object.
    writes: BTreeMap<O, BTreeSet<String>>,
    /// The same in the order in which they came.
    order: VecDeque<(O, String)>,
    runs: BTreeMap<K, Run>,
}

#[derive(Debug)]
struct Run {
    length: u32,
    since: Instant,
    reported: bool,
}

/// The causes that woke a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeUp {
    /// Nothing but the controller's own writes.
    pub by_itself: bool,
    /// It is a loop, and this is the first time that it is said.
    pub is_loop: bool,
}

impl<K, O> Default for LoopDetector<K, O> {
    fn default() -> LoopDetector<K, O> {
        LoopDetector {
            writes: BTreeMap::new(),
            order: VecDeque::new(),
            runs: BTreeMap::new(),
        }
    }
}

impl<K: Ord + Clone, O: Ord + Clone> LoopDetector<K, O> {
    /// Nothing is known.
    pub fn new() -> LoopDetector<K, O> {
        LoopDetector::default()
    }

    /// The controller has written an object, which has this resourceVersion since.
    pub fn wrote(&mut self, object: O, version: &str) {
        let version = version.to_owned();
        if !self.writes.entry(object.clone()).or_default().insert(version.clone()) {
            return;
        }
        self.order.push_back((object, version));
        if self.order.len() > WRITES
            && let Some((object, version)) = self.order.pop_front()
        {
            self.forget(&object, &version);
        }
    }

    fn forget(&mut self, object: &O, version: &str) {
        if let Some(versions) = self.writes.get_mut(object) {
            versions.remove(version);
            if versions.is_empty() {
                self.writes.remove(object);
            }
        }
    }

    /// A reconcile of the key begins. `changes`: which objects have changed, to which version; `others`: something else
    /// asks for it, too.
    pub fn woken<'a>(
        &mut self,
        key: &K,
        changes: impl IntoIterator<Item = (&'a O, &'a str)>,
        others: bool,
        now: Instant,
    ) -> WakeUp
    where
        O: 'a,
    {
        let mut any = false;
        let by_itself = !others
            && changes.into_iter().all(|(object, version)| {
                any = true;
                let versions = self.writes.get(object);
                versions.is_some_and(|versions| versions.contains(version))
            })
            && any;
        if !by_itself {
            self.runs.remove(key);
        }
        WakeUp {
            by_itself,
            is_loop: by_itself && self.again(key, now),
        }
    }

    /// Counts one more; whether it is a loop that was not told yet.
    fn again(&mut self, key: &K, now: Instant) -> bool {
        if self.runs.len() >= KEYS && !self.runs.contains_key(key) {
            return false;
        }
        let begins = || Run {
            length: 0,
            since: now,
            reported: false,
        };
        let run = self.runs.entry(key.clone()).or_insert_with(begins);
        run.length += 1;
        if run.length < LENGTH {
            return false;
        }
        let fast = now.since(run.since) <= WITHIN;
        let first = fast && !run.reported;
        // Counted anew, so that the next ones are measured by their own time.
        *run = Run {
            length: 0,
            since: now,
            reported: run.reported || fast,
        };
        first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A controller of the key `k` that writes `o` at every pass.
    struct World {
        loops: LoopDetector<&'static str, &'static str>,
        version: u64,
        now: Instant,
    }

    impl World {
        fn new() -> World {
            World {
                loops: LoopDetector::new(),
                version: 0,
                now: Instant::ZERO,
            }
        }

        /// So many passes, each woken by the write before; how often a loop is told.
        fn spin(&mut self, passes: u32, every: Duration) -> usize {
            let mut reports = 0;
            for _ in 0..passes {
                self.version += 1;
                self.now = self.now + every;
                let version = self.version.to_string();
                self.loops.wrote("o", &version);
                let woken = self.loops.woken(&"k", [(&"o", version.as_str())], false, self.now);
                assert!(woken.by_itself);
                reports += usize::from(woken.is_loop);
            }
            reports
        }
    }

    #[test]
    fn a_loop_is_told_once() {
        let mut world = World::new();
        assert_eq!(world.spin(LENGTH - 1, Duration::from_millis(1)), 0);
        assert_eq!(world.spin(1, Duration::from_millis(1)), 1);
        assert_eq!(world.spin(10 * LENGTH, Duration::from_millis(1)), 0);
    }

    #[test]
    fn what_others_do_begins_anew() {
        let check = |changes: &[(&'static str, &str)], others: bool| {
            let mut world = World::new();
            assert_eq!(world.spin(LENGTH - 1, Duration::from_millis(1)), 0);
            let changes = changes.iter().map(|(object, version)| (object, *version));
            let woken = world.loops.woken(&"k", changes, others, world.now);
            assert_eq!((woken.by_itself, woken.is_loop), (false, false));
            assert_eq!(world.spin(LENGTH - 1, Duration::from_millis(1)), 0);
            assert_eq!(world.spin(1, Duration::from_millis(1)), 1, "and then it is one");
        };
        check(&[("o", "x")], false); // a version that somebody else wrote
        check(&[("o", "1"), ("p", "1")], false); // one of two
        check(&[("o", "1")], true); // a timer as well
        check(&[], true);
        check(&[], false);
    }

    #[test]
    fn a_loop_after_an_interruption_is_told_again() {
        let mut world = World::new();
        assert_eq!(world.spin(LENGTH, Duration::from_millis(1)), 1);
        world.loops.woken(&"k", [(&"o", "x")], false, world.now);
        assert_eq!(world.spin(LENGTH, Duration::from_millis(1)), 1);
    }

    #[test]
    fn slow_ones_are_no_loop_and_a_fast_one_after_them_is() {
        let mut world = World::new();
        assert_eq!(world.spin(10 * LENGTH, WITHIN), 0);
        assert_eq!(world.spin(2 * LENGTH, Duration::from_millis(1)), 1);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut loops = LoopDetector::new();
        for number in 0..2 * WRITES {
            loops.wrote(number, "1");
            let key = number;
            loops.woken(&key, [(&number, "1")], false, Instant::ZERO);
        }
        assert_eq!((loops.writes.len(), loops.order.len()), (WRITES, WRITES));
        for version in 0..2 * WRITES {
            loops.wrote(0, &version.to_string());
        }
        let versions = loops.writes.values().map(BTreeSet::len).sum::<usize>();
        assert_eq!((versions, loops.order.len()), (WRITES, WRITES));
        assert_eq!(loops.runs.len(), KEYS);
        assert!(
            !loops.woken(&0, [(&0, "1")], false, Instant::ZERO).by_itself,
            "it is forgotten"
        );
    }
}
