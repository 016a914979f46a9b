//! The types that read the texts of a store, and for each its decoded objects: how many there may be, and which are
//! given up.

use std::any::TypeId;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};
use std::time::Duration;

use kubewright_engine::Unreadable;
use tokio::time::Instant;

use super::rooms::Rooms;
use super::{Head, Kept, Packed, Read, Transform, transformed};
use crate::form::{Cached, Form, guarded};

/// So much text must be decoded again, which takes a third of a second, …
const AGAIN: usize = 64 << 20;
/// … within this time, before a cache grows…
const WITHIN: Duration = Duration::from_secs(60);
/// … by this factor; it shrinks by the same one after a time in which less than this part was read at all.
const GROWTH: usize = 4;

/// How much text of decoded objects is kept for each type.
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

/// At most this part of the room is taken by objects that are gone.
const GONE_PART: usize = 16;

/// So much text of objects that pass by is kept decoded, as a reconcile comes soon after its event. More would cost
/// memory, in holes between the texts, and time: what is freed soon is still in the processor's cache…
const PASSING: usize = 16 << 10;
/// … and at most this part of the least room.
const PASSING_PART: usize = 16;

/// At most so many objects that turned out to be unreadable wait to be reported; further ones are found by the next
/// read.
const NOTED: usize = 1024;

/// The types that read the texts of one store.
pub(crate) struct Decoders {
    /// Where their texts stand.
    pub(super) rooms: Rooms,
    budget: Budget,
    all: RwLock<Vec<Arc<DecodedCache>>>,
}

impl Decoders {
    pub(crate) fn new(budget: Budget) -> Arc<Decoders> {
        Arc::new(Decoders {
            rooms: Rooms::default(),
            budget,
            all: RwLock::default(),
        })
    }

    /// From now on this type reads, too; `transform`: what is changed before, unless the text is what that has left.
    pub(crate) fn add(&self, form: &Form, transform: Option<Transform>) -> Arc<DecodedCache> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|known| known.kind == form.id) {
            return known.clone();
        }
        let number = u32::try_from(all.len()).expect("a program has fewer types");
        let cache = Arc::new(DecodedCache {
            number,
            kind: form.id,
            read: form.decode.kept,
            metadata_only: form.metadata_only,
            transform,
            budget: self.budget,
            order: Mutex::default(),
            used: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            broken: Mutex::default(),
        });
        all.push(cache.clone());
        cache
    }

    /// The cache of a type.
    ///
    /// # Errors
    /// When no view of this type was asked for.
    pub(super) fn of(&self, kind: TypeId) -> Result<Arc<DecodedCache>, Arc<str>> {
        let found = self.all().iter().find(|known| known.kind == kind).cloned();
        found.ok_or_else(|| Arc::from("no informer of this kind has this type"))
    }

    /// An object that is decoded in the cache of this number is gone.
    pub(super) fn gone(&self, number: u32, bytes: usize) {
        if let Some(cache) = self.all().get(number as usize) {
            cache.gone(bytes);
        }
    }

    /// The transform of a type, if it has one.
    pub(crate) fn transform(&self, kind: TypeId) -> Option<Transform> {
        self.of(kind).ok()?.transform.clone()
    }

    /// Objects that turned out to be unreadable since the last call, and for which type.
    pub(crate) fn take_broken(&self) -> Vec<(TypeId, Vec<Unreadable>)> {
        let each = self
            .all()
            .iter()
            .map(|cache| (cache.kind, cache.take_broken()))
            .collect::<Vec<_>>();
        each.into_iter().filter(|(_, broken)| !broken.is_empty()).collect()
    }

    /// Shrinks the caches of which little was read for a while. The watch calls this whenever it hears something.
    pub(crate) fn trim(&self, now: Instant) {
        let all = self.all().clone();
        all.iter().for_each(|cache| cache.trim(now));
        self.rooms.trim(now);
    }

    fn all(&self) -> RwLockReadGuard<'_, Vec<Arc<DecodedCache>>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The decoded objects of one type, and how its objects are decoded.
pub(crate) struct DecodedCache {
    /// Among those of its store.
    pub(super) number: u32,
    kind: TypeId,
    read: Read,
    metadata_only: bool,
    transform: Option<Transform>,
    budget: Budget,
    order: Mutex<Order>,
    /// How much text was read, decoded or not, since the cache was last trimmed.
    pub(super) used: AtomicUsize,
    /// How much of what the cache counts belongs to objects that are gone: a newer version has taken their place.
    gone: AtomicUsize,
    /// Objects that turned out to be unreadable and were not reported yet.
    broken: Mutex<Vec<Unreadable>>,
}

/// Objects in the order in which they were decoded, and the length of their texts.
#[derive(Default)]
struct Line {
    objects: VecDeque<(Weak<Packed>, usize)>,
    bytes: usize,
}

impl Line {
    fn push(&mut self, packed: &Arc<Packed>) {
        self.objects.push_back((Arc::downgrade(packed), packed.text.len()));
        self.bytes += packed.text.len();
    }

    /// Takes the oldest objects out, as far as there are more than there may be.
    fn excess(&mut self, allowed: usize) -> Vec<Arc<Packed>> {
        let mut over = Vec::new();
        while self.bytes > allowed
            && let Some((oldest, bytes)) = self.objects.pop_front()
        {
            self.bytes -= bytes;
            over.extend(oldest.upgrade());
        }
        over
    }
}

/// Objects that have lost their place.
#[derive(Default)]
#[must_use]
pub(super) struct Excess {
    decoded: Vec<Arc<Packed>>,
    passing: Vec<Arc<Packed>>,
}

impl Excess {
    pub(super) fn rest(self, cache: &DecodedCache) {
        self.decoded.iter().for_each(|packed| packed.rest(cache, false));
        self.passing.iter().for_each(|packed| packed.rest(cache, true));
    }
}

#[derive(Default)]
struct Order {
    decoded: Line,
    passing: Line,
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

    /// Counts only what is there: an object that changes all the time would take the room of all others.
    fn forget_gone(&mut self, gone: &AtomicUsize, budget: Budget) {
        if gone.load(Ordering::Relaxed) <= self.allowed(budget) / GONE_PART {
            return;
        }
        gone.store(0, Ordering::Relaxed);
        let Line { objects, bytes } = &mut self.decoded;
        objects.retain(|(object, _)| object.strong_count() > 0);
        *bytes = objects.iter().map(|(_, bytes)| bytes).sum();
    }

    fn allowed(&self, budget: Budget) -> usize {
        self.grown.max(budget.least)
    }

    fn excess(&mut self, budget: Budget) -> Excess {
        let allowed = self.allowed(budget);
        Excess {
            decoded: self.decoded.excess(allowed),
            passing: self.passing.excess(PASSING.min(budget.least / PASSING_PART)),
        }
    }
}

impl DecodedCache {
    /// Reads an object as this type.
    ///
    /// # Errors
    /// Why that is not possible.
    pub(super) fn decode(&self, text: &str, head: &Head, kept: Kept) -> Result<Arc<dyn Cached>, String> {
        let mut text = Cow::Borrowed(text);
        if self.metadata_only && kept != Kept::Metadata {
            // As the server answers one who asks for no more; the rest is not even looked at.
            let (from, to) = head.metadata;
            let metadata = text.get(from as usize..to as usize).filter(|text| !text.is_empty());
            text = Cow::Owned(format!(
                r#"{{"apiVersion":"meta.k8s.io/v1","kind":"PartialObjectMetadata","metadata":{}}}"#,
                metadata.unwrap_or("{}")
            ));
        }
        if let Some(transform) = self.transform.as_ref().filter(|_| kept != Kept::Transformed) {
            text = Cow::Owned(match self.metadata_only {
                true => transform(&text)?,
                false => transformed(transform, &text, head)?.0,
            });
        }
        guarded(|| (self.read)(&text))
    }

    /// An object that is decoded here is gone.
    pub(super) fn gone(&self, bytes: usize) {
        self.gone.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(super) fn note(&self, object: Unreadable) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        if broken.len() < NOTED {
            broken.push(object);
        }
    }

    /// Objects that turned out to be unreadable since the last call.
    pub(super) fn take_broken(&self) -> Vec<Unreadable> {
        std::mem::take(&mut self.broken.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Finds a place for an object that is decoded. It stays if there is room, or if it is read `again`; otherwise it
    /// passes by. `passed`: it has such a place now.
    pub(super) fn put(&self, packed: &Arc<Packed>, again: bool, passed: bool) -> (bool, Excess) {
        if self.budget.least == usize::MAX {
            return (true, Excess::default()); // nothing is ever taken down
        }
        let mut order = self.order();
        if again && !passed {
            order.decoded_again(packed.text.len(), self.budget, Instant::now());
        }
        let allowed = order.allowed(self.budget);
        let is_full = |order: &Order| order.decoded.bytes + packed.text.len() > allowed;
        if is_full(&order) {
            order.forget_gone(&self.gone, self.budget);
        }
        let stays = again || !is_full(&order);
        let line = if stays { &mut order.decoded } else { &mut order.passing };
        line.push(packed);
        (stays, order.excess(self.budget))
    }

    fn trim(&self, now: Instant) {
        let mut order = self.order();
        order.trim(&self.used, self.budget, now);
        let over = order.excess(self.budget);
        if !over.decoded.is_empty() {
            order.decoded.objects.shrink_to_fit();
        }
        drop(order);
        over.rest(self);
    }

    fn order(&self) -> MutexGuard<'_, Order> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;

    use super::super::tests::{config, decoders, is_decoded};
    use super::*;

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
        let length = config("a", some, &decoders(Budget::fixed(0))).text.len();
        let (least, most) = (length, GROWTH * GROWTH * length);
        let all = decoders(Budget { least, most });
        let kind = TypeId::of::<ConfigMap>();
        let cache = all.of(kind).expect("it was added");
        cache.order().grown = most;
        let objects: Vec<_> = (0..10).map(|number| config(&number.to_string(), some, &all)).collect();
        let read = || {
            objects
                .iter()
                .for_each(|packed| drop(packed.unpack(kind).expect("a ConfigMap")));
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
