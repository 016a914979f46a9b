//! A first-in-first-out list through slots: removal from the middle and length in constant time, no allocation per
//! item.

const NONE: u32 = u32::MAX;

/// The neighbours of a slot in the one list that it is in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Links {
    previous: u32,
    next: u32,
}

impl Default for Links {
    fn default() -> Links {
        Links {
            previous: NONE,
            next: NONE,
        }
    }
}

#[derive(Debug)]
pub(super) struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Default for List {
    fn default() -> List {
        List {
            first: NONE,
            last: NONE,
            len: 0,
        }
    }
}

impl List {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn front(&self) -> Option<u32> {
        (self.first != NONE).then_some(self.first)
    }

    /// The slots in this list, in order.
    pub(super) fn ids<'a>(&self, links: &'a [Links]) -> impl Iterator<Item = u32> + 'a {
        let next = |id: &u32| Some(links[*id as usize].next).filter(|next| *next != NONE);
        std::iter::successors(self.front(), next)
    }

    pub(super) fn push_back(&mut self, links: &mut [Links], id: u32) {
        links[id as usize] = Links {
            previous: self.last,
            next: NONE,
        };
        match self.last {
            NONE => self.first = id,
            last => links[last as usize].next = id,
        }
        self.last = id;
        self.len += 1;
    }

    /// Takes out a slot that is in this list.
    pub(super) fn remove(&mut self, links: &mut [Links], id: u32) {
        let Links { previous, next } = std::mem::take(&mut links[id as usize]);
        match previous {
            NONE => self.first = next,
            previous => links[previous as usize].next = next,
        }
        match next {
            NONE => self.last = previous,
            next => links[next as usize].previous = previous,
        }
        self.len -= 1;
    }
}
