//! From an item to its slot: hashes beside numbers of slots, in one piece of memory.
//!
//! Open addressing with linear probing. An item is kept once, in its slot: here are only the halves of hashes, which
//! are compared before an item is looked at, and which are all that growing and removing need. No code walks through
//! the places, so that the order of hashes shows nowhere: with any hash function, the same calls get the same answers.
//!
//! Invariants: at most three in four places are taken; between the place that an entry's hash names and its own no
//! place is empty.

const EMPTY: u32 = u32::MAX;
const FEWEST: usize = 16;

#[derive(Clone, Copy)]
struct Bucket {
    hash: u32,
    slot: u32,
}

/// The slots by the hashes of their items.
#[derive(Default)]
pub(super) struct Index {
    /// As many as a power of two, or none.
    places: Vec<Bucket>,
    len: usize,
}

impl Index {
    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot with this hash that `is_it` knows.
    pub(super) fn find(&self, hash: u32, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        loop {
            let place = self.places.get(at)?;
            if place.slot == EMPTY {
                return None;
            }
            if place.hash == hash && is_it(place.slot) {
                return Some(place.slot);
            }
            at = self.after(at);
        }
    }

    /// Enters a slot that is not in here.
    pub(super) fn insert(&mut self, hash: u32, slot: u32) {
        if (self.len + 1) * 4 > self.places.len() * 3 {
            self.grow();
        }
        self.put(Bucket { hash, slot });
        self.len += 1;
    }

    /// Takes a slot out that is in here.
    pub(super) fn remove(&mut self, hash: u32, slot: u32) {
        let mut gap = self.home(hash);
        while self.places[gap].slot != slot {
            gap = self.after(gap);
        }
        // An item that could stand nearer to its home moves up, so that no gap parts it from there.
        let mut at = gap;
        loop {
            at = self.after(at);
            let place = self.places[at];
            if place.slot == EMPTY {
                break;
            }
            if self.distance(self.home(place.hash), at) >= self.distance(gap, at) {
                self.places[gap] = place;
                gap = at;
            }
        }
        self.places[gap].slot = EMPTY;
        self.len -= 1;
    }

    fn put(&mut self, place: Bucket) {
        let mut at = self.home(place.hash);
        while self.places[at].slot != EMPTY {
            at = self.after(at);
        }
        self.places[at] = place;
    }

    fn grow(&mut self) {
        let count = (self.places.len() * 2).max(FEWEST);
        let empty = Bucket { hash: 0, slot: EMPTY };
        for place in std::mem::replace(&mut self.places, vec![empty; count]) {
            if place.slot != EMPTY {
                self.put(place);
            }
        }
    }

    fn home(&self, hash: u32) -> usize {
        hash as usize & self.places.len().wrapping_sub(1)
    }

    fn after(&self, at: usize) -> usize {
        (at + 1) & (self.places.len() - 1)
    }

    /// How many steps it is from one place to another.
    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.places.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// Few hashes, so that chains are long and run over the end of the table.
        #[test]
        fn it_finds_what_a_map_finds(steps in proptest::collection::vec((0..40_u32, 0..8_u32), 0..300)) {
            let hash_of = |slot: u32, spread: u32| if spread == 0 { u32::MAX } else { slot % 6 + 12 };
            let (mut index, mut model) = (Index::default(), BTreeMap::new());
            for (slot, spread) in steps {
                match model.remove(&slot) {
                    Some(hash) => index.remove(hash, slot),
                    None => {
                        let hash = hash_of(slot, spread);
                        index.insert(hash, slot);
                        model.insert(slot, hash);
                    }
                }
                prop_assert_eq!(index.is_empty(), model.is_empty());
                for slot in 0..40 {
                    let hash = model.get(&slot).copied();
                    for asked in [hash_of(slot, 0), hash_of(slot, 1)] {
                        let expected = (hash == Some(asked)).then_some(slot);
                        prop_assert_eq!(index.find(asked, |found| found == slot), expected);
                    }
                }
            }
        }
    }
}
