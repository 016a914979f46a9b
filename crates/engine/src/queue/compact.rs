//! After a burst (a first list of 500 k items) the memory goes back (Q11), also when some items stay: nearly every
//! controller has one that waits for its time.
//!
//! The items that are left move together into new slots. Invariants: the order of every list stays; a token that was
//! given out before still ends its run; an item moves at most as often as three others have gone, so that moving costs
//! each release a constant.

use std::hash::{BuildHasher, Hash};

use super::{Index, Links, List, Merge, WorkQueue};

/// So many slots are kept as long as any is in use.
const FEW: usize = 1024;
/// The slots are compacted when fewer than one in so many is in use.
const SPARSE: usize = 4;

impl<T: Hash + Eq + Clone, C: Merge, S: BuildHasher + Default> WorkQueue<T, C, S> {
    pub(super) fn compact(&mut self) {
        let used = self.slots.len() - self.free.len();
        if used == 0 && self.burst {
            (self.slots, self.links, self.free) = (Vec::new(), Vec::new(), Vec::new());
            self.index = Index::default();
            self.burst = false;
            return;
        }
        if self.slots.len() <= FEW || used * SPARSE > self.slots.len() {
            return;
        }
        const GONE: u32 = u32::MAX;
        let mut places = vec![GONE; self.slots.len()];
        let mut slots = Vec::with_capacity(used);
        let mut index = Index::default();
        for (before, slot) in std::mem::take(&mut self.slots).into_iter().enumerate() {
            let Some(slot) = slot else { continue };
            let after = u32::try_from(slots.len()).expect("there are fewer slots than before");
            places[before] = after;
            index.insert(slot.hash, after);
            if let Some(run) = &slot.running {
                self.moved.insert(run.number, after);
            }
            slots.push(Some(slot));
        }
        let mut links = vec![Links::default(); slots.len()];
        let ready = self.ready.iter_mut().map(|(_, list)| list);
        for list in ready.chain([&mut self.running]) {
            let mut moved = List::default();
            for id in list.ids(&self.links) {
                moved.push_back(&mut links, places[id as usize]);
            }
            *list = moved;
        }
        for id in self.delayed.values_mut() {
            *id = places[*id as usize];
        }
        self.delayed_keys = self.delayed.iter().map(|(key, id)| (*id, *key)).collect();
        (self.slots, self.links, self.index, self.free) = (slots, links, index, Vec::new());
        self.burst = true;
        debug_assert!(places.iter().filter(|place| **place != GONE).count() == used);
    }
}
