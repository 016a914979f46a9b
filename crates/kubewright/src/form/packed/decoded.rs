//! The decoded objects of an informer: how many there may be, and which are given up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use kubewright_engine::{Event, Unreadable};
use tokio::time::Instant;

use super::{Packed, Read, looked};
use crate::form::Cached;

/// So much text must be decoded again, which takes a third of a second, …
const AGAIN: usize = 64 << 20;
/// … within this time, before a cache grows…
const WITHIN: Duration = Duration::from_secs(60);
/// … by this factor; it shrinks by the same one after a time in which less than this part was read at all.
const GROWTH: usize = 4;

/// How much text of decoded objects an informer keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    least: usize,
    most: usize,
}

impl Default for Budget {
    fn default() -> Budget {
        Budget::DEFAULT
    }
}

impl Budget {
    /// From 2 MiB to 64 MiB, as reads need it; decoded it is about eight times as much.
    pub(crate) const DEFAULT: Budget = Budget {
        least: 2 << 20,
        most: 64 << 20,
    };

    /// So much, with any reads.
    pub(crate) fn fixed(bytes: usize) -> Budget {
        Budget {
            least: bytes,
            most: bytes,
        }
    }
}

/// At most so many objects that turned out to be unreadable wait to be reported; further ones are found by the next
/// read.
const NOTED: usize = 1024;

/// The decoded objects of one informer, and how its objects are decoded.
pub(crate) struct DecodedCache {
    pub(super) read: Read,
    budget: Budget,
    /// Objects are decoded when they arrive.
    checks: AtomicBool,
    order: Mutex<Order>,
    /// How much text was read, decoded or not, since the cache was last trimmed.
    pub(super) used: AtomicUsize,
    /// Objects that turned out to be unreadable and were not reported yet.
    broken: Mutex<Vec<Unreadable>>,
}

/// In the order in which they were decoded.
#[derive(Default)]
struct Order {
    objects: VecDeque<(Weak<Packed>, usize)>,
    bytes: usize,
    /// How much there may be now, beyond the least.
    grown: usize,
    /// How many of the given-up bytes were decoded again, and since when they are counted.
    again: usize,
    since: Option<Instant>,
    /// Since when the reads of a grown cache are counted.
    trimmed: Option<Instant>,
}

impl Order {
    /// An object that was given up is decoded again; more is kept when that happens often.
    fn decoded_again(&mut self, bytes: usize, budget: Budget, now: Instant) {
        let since = *self.since.get_or_insert(now);
        if now.duration_since(since) > WITHIN {
            (self.since, self.again) = (Some(now), 0);
        }
        self.again = self.again.saturating_add(bytes);
        if self.again > AGAIN {
            self.grown = self.allowed(budget).saturating_mul(GROWTH).min(budget.most);
            (self.since, self.again, self.trimmed) = (None, 0, None);
        }
    }

    /// Less is kept where so little was read that decoding all of it again would be no cost.
    fn trim(&mut self, used: &AtomicUsize, budget: Budget, now: Instant) {
        if self.grown == 0 {
            return;
        }
        let since = *self.trimmed.get_or_insert_with(|| {
            used.store(0, Ordering::Relaxed);
            now
        });
        if now.duration_since(since) <= WITHIN {
            return;
        }
        self.trimmed = Some(now);
        if used.swap(0, Ordering::Relaxed) < AGAIN / GROWTH {
            let less = self.grown / GROWTH;
            self.grown = if less > budget.least { less } else { 0 };
        }
    }

    /// Takes the oldest objects out, as far as there are more than there may be.
    fn excess(&mut self, budget: Budget) -> Vec<Arc<Packed>> {
        let mut over = Vec::new();
        while self.bytes > self.allowed(budget)
            && let Some((oldest, bytes)) = self.objects.pop_front()
        {
            self.bytes -= bytes;
            over.extend(oldest.upgrade());
        }
        over
    }

    fn allowed(&self, budget: Budget) -> usize {
        self.grown.max(budget.least)
    }
}

impl DecodedCache {
    /// An empty cache.
    pub(crate) fn new(read: Read, budget: Budget) -> Arc<DecodedCache> {
        Arc::new(DecodedCache {
            read,
            budget,
            checks: AtomicBool::new(false),
            order: Mutex::default(),
            used: AtomicUsize::new(0),
            broken: Mutex::default(),
        })
    }

    /// From now on objects are decoded when they arrive. `false` when they were before.
    pub(crate) fn check(&self) -> bool {
        !self.checks.swap(true, Ordering::Relaxed)
    }

    /// Whether objects are decoded when they arrive.
    pub(crate) fn checks(&self) -> bool {
        self.checks.load(Ordering::Relaxed)
    }

    /// The states that events show, decoded, where handlers look at objects with their type. They are held until all
    /// have looked: a state at rest would be decoded for each of them.
    pub(crate) fn decoded(&self, events: &[Event<dyn Cached>]) -> Vec<Arc<dyn Cached>> {
        if !self.checks() {
            return Vec::new();
        }
        let states = events.iter().flat_map(|event| match event {
            Event::Modified { old, new } => [Some(old), Some(new)],
            Event::Added { object, .. } | Event::Deleted { object, .. } => [Some(object), None],
        });
        states.flatten().filter_map(|state| looked(state).ok()).collect()
    }

    pub(super) fn note(&self, object: Unreadable) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.len() < NOTED {
            broken.push(object);
        }
    }

    /// Objects that turned out to be unreadable since the last call.
    pub(crate) fn take_broken(&self) -> Vec<Unreadable> {
        std::mem::take(&mut self.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// `again`: the object was decoded before.
    pub(super) fn put(&self, packed: &Arc<Packed>, again: bool) {
        if self.budget.least == usize::MAX {
            return; // nothing is ever taken down
        }
        let mut order = self.order();
        if again {
            order.decoded_again(packed.text.len(), self.budget, Instant::now());
        }
        order.objects.push_back((Arc::downgrade(packed), packed.text.len()));
        order.bytes += packed.text.len();
        let over = order.excess(self.budget);
        drop(order);
        over.iter().for_each(|packed| packed.rest());
    }

    /// Shrinks a cache of which little was read for a while. The informer calls this whenever it hears something.
    pub(crate) fn trim(&self, now: Instant) {
        let mut order = self.order();
        order.trim(&self.used, self.budget, now);
        let over = order.excess(self.budget);
        if !over.is_empty() {
            order.objects.shrink_to_fit();
        }
        drop(order);
        over.iter().for_each(|packed| packed.rest());
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::super::tests::{config, is_decoded};
    use super::*;
    use crate::form::Form;

    #[test]
    fn a_cache_grows_when_what_it_gave_up_is_read_again_and_again() {
        let budget = Budget { least: 10, most: 100 };
        let mut order = Order::default();
        let start = Instant::now();
        let mut check = |bytes: usize, after: Duration, expected: usize| {
            order.decoded_again(bytes, budget, start + after);
            assert_eq!(order.allowed(budget), expected, "{bytes} after {after:?}");
        };
        let second = Duration::from_secs(1);
        check(AGAIN, second, 10);
        // Slowly, it may go on for ever.
        check(AGAIN, second + 2 * WITHIN, 10);
        check(AGAIN, second + 4 * WITHIN, 10);
        check(1, second + 4 * WITHIN, 40);
        check(AGAIN, second + 4 * WITHIN, 40);
        check(AGAIN, second + 4 * WITHIN, 100);
        check(usize::MAX, second + 4 * WITHIN, 100);
    }

    #[test]
    fn a_cache_shrinks_when_little_is_read() {
        let (some, start) = (r#"{"a":"b"}"#, Instant::now());
        let read = Form::of::<ConfigMap>().decode.kept;
        let length = config("a", some, &DecodedCache::new(read, Budget::fixed(0))).text.len();
        let (least, most) = (length, GROWTH * GROWTH * length);
        let cache = DecodedCache::new(read, Budget { least, most });
        cache.order().grown = most;
        let objects: Vec<_> = (0..10)
            .map(|number| config(&number.to_string(), some, &cache))
            .collect();
        let read = || {
            objects
                .iter()
                .for_each(|packed| drop(packed.unpack().expect("a ConfigMap")));
        };
        let check = |minutes: u64, decoded: usize| {
            // A little later than the end of each time.
            cache.trim(start + Duration::from_millis(60_001 * minutes));
            let found = objects.iter().filter(|packed| is_decoded(packed)).count();
            assert_eq!(found, decoded, "after {minutes} minutes");
        };
        read();
        check(0, 10);
        cache.used.fetch_add(AGAIN / GROWTH, Ordering::Relaxed);
        check(1, 10);
        // Reading ten objects is little.
        read();
        check(2, 4);
        assert!(is_decoded(&objects[9]), "the last ones stay");
        check(2, 4);
        check(3, 1);
        check(4, 1);
        assert_eq!(cache.order().allowed(cache.budget), least);
    }
}
