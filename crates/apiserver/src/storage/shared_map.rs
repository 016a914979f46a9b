//! An ordered map whose copies share their memory.
//!
//! To copy it is to count one reference more, so a reader takes a copy and looks at it without any lock, while the
//! writer goes on. The entries stand in chunks; a change copies only the chunk of its key and the list of the chunks,
//! and only while a copy holds them. How many entries a range has is known from the lengths of its chunks.
//!
//! Invariants: keys ascend over all chunks; no chunk is empty, none is longer than [`CHUNK`].

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// The most entries of a chunk.
const CHUNK: usize = 128;
/// A chunk that has so few entries is joined to the one before it, if that has as few.
const FEW: usize = CHUNK / 4;

/// An ordered map whose copies share their memory.
pub(crate) struct SharedMap<K, V> {
    chunks: Arc<Vec<Chunk<K, V>>>,
    len: usize,
}

type Chunk<K, V> = Arc<Vec<(K, V)>>;

/// The place of an entry: its chunk, and where it is in it.
type Place = (usize, usize);

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> SharedMap<K, V> {
        SharedMap {
            chunks: Arc::default(),
            len: 0,
        }
    }
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> SharedMap<K, V> {
        SharedMap {
            chunks: self.chunks.clone(),
            len: self.len,
        }
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.entries((0, 0))).finish()
    }
}

impl<K, V> SharedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The entries from a place on.
    fn entries(&self, (chunk, at): Place) -> impl Iterator<Item = (&K, &V)> {
        let first = self.chunks.get(chunk).and_then(|chunk| chunk.get(at..));
        let others = self.chunks.iter().skip(chunk.saturating_add(1));
        let all = first.into_iter().chain(others.map(|chunk| chunk.as_slice()));
        all.flatten().map(|(key, value)| (key, value))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries((0, 0))
    }

    pub(crate) fn first(&self) -> Option<&(K, V)> {
        self.chunks.first()?.first()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    /// How many entries stand before a place.
    fn before(&self, (chunk, at): Place) -> usize {
        let whole = self.chunks.iter().take(chunk);
        whole.map(|chunk| chunk.len()).sum::<usize>() + at
    }
}

impl<K: Ord, V> SharedMap<K, V> {
    /// Where a key is, or where it would be: then the place may be the end of a chunk.
    fn find<Q: Ord + ?Sized>(&self, key: &Q) -> Result<Place, Place>
    where
        K: Borrow<Q>,
    {
        let not_behind = |chunk: &Chunk<K, V>| chunk.first().is_some_and(|(first, _)| first.borrow() <= key);
        let chunk = self.chunks.partition_point(not_behind).saturating_sub(1);
        let Some(entries) = self.chunks.get(chunk) else {
            return Err((0, 0));
        };
        match entries.binary_search_by(|(known, _)| known.borrow().cmp(key)) {
            Ok(at) => Ok((chunk, at)),
            Err(at) => Err((chunk, at)),
        }
    }

    pub(crate) fn get_key_value<Q: Ord + ?Sized>(&self, key: &Q) -> Option<(&K, &V)>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.find(key).ok()?;
        self.chunks.get(chunk)?.get(at).map(|(key, value)| (key, value))
    }

    pub(crate) fn get<Q: Ord + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.get_key_value(key).map(|(_, value)| value)
    }

    pub(crate) fn contains_key<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.find(key).is_ok()
    }

    /// The place of the first entry that is not before the bound of a range.
    fn start<Q: Ord + ?Sized>(&self, bound: Bound<&Q>) -> Place
    where
        K: Borrow<Q>,
    {
        match bound {
            Bound::Unbounded => (0, 0),
            Bound::Included(key) => self.find(key).unwrap_or_else(|place| place),
            Bound::Excluded(key) => match self.find(key) {
                Ok((chunk, at)) => (chunk, at.saturating_add(1)),
                Err(place) => place,
            },
        }
    }

    /// The place behind the last entry of a range.
    fn end<Q: Ord + ?Sized>(&self, bound: Bound<&Q>) -> Place
    where
        K: Borrow<Q>,
    {
        match bound {
            Bound::Unbounded => (self.chunks.len(), 0),
            Bound::Included(key) => self.start(Bound::Excluded(key)),
            Bound::Excluded(key) => self.start(Bound::Included(key)),
        }
    }

    /// The entries of a range; nothing if it ends before it begins.
    pub(crate) fn range<'a, Q: Ord + ?Sized>(
        &'a self,
        range: (Bound<&Q>, Bound<&Q>),
    ) -> impl Iterator<Item = (&'a K, &'a V)> + use<'a, K, V, Q>
    where
        K: Borrow<Q>,
    {
        let (from, to) = range;
        let start = self.start(from);
        let count = self.before(self.end(to)).saturating_sub(self.before(start));
        self.entries(start).take(count)
    }

    /// How many entries a range has, from the lengths of its chunks.
    pub(crate) fn count<Q: Ord + ?Sized>(&self, (from, to): (Bound<&Q>, Bound<&Q>)) -> usize
    where
        K: Borrow<Q>,
    {
        self.before(self.end(to)).saturating_sub(self.before(self.start(from)))
    }
}

impl<K: Ord + Clone, V: Clone> SharedMap<K, V> {
    /// The entries of a chunk, for a change of them.
    fn chunk(&mut self, chunk: usize) -> Option<&mut Vec<(K, V)>> {
        Arc::make_mut(&mut self.chunks).get_mut(chunk).map(Arc::make_mut)
    }

    pub(crate) fn get_mut<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.find(key).ok()?;
        self.chunk(chunk)?.get_mut(at).map(|(_, value)| value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let place = match self.find(&key) {
            Ok((chunk, at)) => {
                let present = self.chunk(chunk)?.get_mut(at)?;
                return Some(std::mem::replace(&mut present.1, value));
            }
            Err(place) => place,
        };
        self.put(place, (key, value));
        None
    }

    /// The value at a key, which is made if there is none.
    pub(crate) fn or_default(&mut self, key: K) -> &mut V
    where
        V: Default,
    {
        let (chunk, at) = match self.find(&key) {
            Ok(place) => place,
            Err(place) => self.put(place, (key, V::default())),
        };
        let chunk = Arc::make_mut(&mut Arc::make_mut(&mut self.chunks)[chunk]);
        &mut chunk[at].1
    }

    /// Puts a new entry at its place, and answers where it is then.
    fn put(&mut self, (mut chunk, mut at): Place, entry: (K, V)) -> Place {
        self.len += 1;
        let last = self.chunks.len().saturating_sub(1);
        let chunks = Arc::make_mut(&mut self.chunks);
        let full = chunks.get(chunk).is_none_or(|entries| entries.len() >= CHUNK);
        if full && chunk == last && chunks.get(chunk).is_none_or(|entries| at == entries.len()) {
            // Keys that come in their order fill their chunks.
            chunks.push(Arc::new(vec![entry]));
            return (chunks.len() - 1, 0);
        }
        if full {
            let upper = Arc::make_mut(&mut chunks[chunk]).split_off(CHUNK / 2);
            chunks.insert(chunk + 1, Arc::new(upper));
            if at > CHUNK / 2 {
                (chunk, at) = (chunk + 1, at - CHUNK / 2);
            }
        }
        Arc::make_mut(&mut chunks[chunk]).insert(at, entry);
        (chunk, at)
    }

    pub(crate) fn remove<Q: Ord + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        let (chunk, at) = self.find(key).ok()?;
        let chunks = Arc::make_mut(&mut self.chunks);
        let entries = Arc::make_mut(&mut chunks[chunk]);
        let (_, value) = entries.remove(at);
        let (left, before) = (entries.len(), chunk.saturating_sub(1));
        self.len -= 1;
        if left == 0 {
            chunks.remove(chunk);
        } else if chunk > 0 && left <= FEW && chunks[before].len() <= FEW {
            let rest = chunks.remove(chunk);
            Arc::make_mut(&mut chunks[before]).extend(rest.iter().cloned());
        }
        Some(value)
    }
}

impl<K: Ord + Clone, L: Ord + Clone, V: Clone> SharedMap<K, SharedMap<L, V>> {
    /// Removes an entry of a map that is a value here, and that map with its last entry.
    pub(crate) fn remove_within<Q: Ord + ?Sized, R: Ord + ?Sized>(&mut self, outer: &Q, inner: &R)
    where
        K: Borrow<Q>,
        L: Borrow<R>,
    {
        let Some(map) = self.get_mut(outer) else { return };
        map.remove(inner);
        if map.is_empty() {
            self.remove(outer);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::ops::RangeBounds as _;

    use proptest::prelude::*;

    use super::*;

    type Map = SharedMap<u16, u32>;

    fn is_sound(map: &Map) -> bool {
        let keys: Vec<u16> = map.keys().copied().collect();
        let fits = |chunk: &Chunk<u16, u32>| (1..=CHUNK).contains(&chunk.len());
        keys.is_sorted_by(|one, next| one < next) && keys.len() == map.len() && map.chunks.iter().all(fits)
    }

    fn bound() -> impl Strategy<Value = Bound<u16>> {
        prop_oneof![
            Just(Bound::Unbounded),
            any::<u16>().prop_map(|key| Bound::Included(key % 1500)),
            any::<u16>().prop_map(|key| Bound::Excluded(key % 1500)),
        ]
    }

    proptest! {
        /// It is the map of the standard library, and a copy stays as it was.
        #[test]
        fn it_is_a_map(
            steps in prop::collection::vec((any::<u16>(), 0..5_u8), 0..2_000),
            ascending in any::<bool>(),
            ranges in prop::collection::vec((bound(), bound()), 0..20),
        ) {
            let (mut map, mut known) = (Map::default(), BTreeMap::new());
            let mut copies = Vec::new();
            for (index, (key, step)) in (0..).zip(steps) {
                let key = if ascending && step < 4 { u16::try_from(index).unwrap_or(0) } else { key % 1_500 };
                match step {
                    0..3 => prop_assert_eq!(map.insert(key, index), known.insert(key, index)),
                    3 => {
                        *map.or_default(key) += 1;
                        *known.entry(key).or_default() += 1;
                    }
                    _ => prop_assert_eq!(map.remove(&key), known.remove(&key)),
                }
                if index % 300 == 0 {
                    copies.push((map.clone(), known.clone()));
                }
                prop_assert_eq!(map.get(&key), known.get(&key));
            }
            copies.push((map, known));
            for (map, known) in copies {
                prop_assert!(is_sound(&map));
                prop_assert!(map.iter().eq(known.iter()));
                for (from, to) in &ranges {
                    let wanted = known.iter().filter(|(key, _)| (*from, *to).contains(*key));
                    let found = (from.as_ref(), to.as_ref());
                    prop_assert!(map.range(found).eq(wanted.clone()));
                    prop_assert_eq!(map.count(found), wanted.count());
                }
            }
        }
    }

    /// A key that counts how often keys are compared.
    #[derive(Clone, PartialEq, Eq)]
    struct Counted(u32);

    thread_local! {
        static COMPARED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
    }

    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Counted) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }

    impl Ord for Counted {
        fn cmp(&self, other: &Counted) -> std::cmp::Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }

    /// A change costs the same beside a copy of many entries as beside one of few; and a range is counted without a
    /// look at its keys.
    #[test]
    fn what_is_shared_is_not_looked_at() {
        const MANY: u32 = 100_000;
        let mut map = SharedMap::default();
        (0..MANY).for_each(|key| assert!(map.insert(Counted(2 * key), ()).is_none()));
        assert!(
            map.chunks.len() <= MANY as usize / CHUNK + 1,
            "keys in their order fill the chunks"
        );
        let copy = map.clone();
        COMPARED.set(0);
        map.insert(Counted(7), ());
        assert!(COMPARED.get() < 40, "{}", COMPARED.get());
        let shared = copy
            .chunks
            .iter()
            .filter(|chunk| map.chunks.iter().any(|other| Arc::ptr_eq(chunk, other)));
        assert_eq!(shared.count(), copy.chunks.len() - 1);
        COMPARED.set(0);
        let (from, to) = (Counted(10), Counted(2 * MANY - 10));
        assert_eq!(
            map.count((Bound::Included(&from), Bound::Excluded(&to))),
            MANY as usize - 10
        );
        assert!(COMPARED.get() < 80, "{}", COMPARED.get());
    }
}
