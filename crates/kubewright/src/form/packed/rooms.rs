//! The room of texts that are gone, for the texts that come.
//!
//! An allocator with several arenas gives a text room in that of the thread which happens to read the event, and the
//! text that it replaces leaves a hole in another. A store of which every object had changed once took a third more
//! than its texts. Here a text takes the room of one that went before it, so a store needs little more than it holds.
//!
//! Invariants: a room is at most a sixteenth and 64 bytes larger than its text; at most [`MOST`] bytes wait for a text,
//! and for at most two minutes if none comes.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How many bytes may wait for a text: as much as is replaced between two events that are read. A watch puts up to 256
/// events into its store at once, and a handler may be as many behind.
const MOST: usize = 2 << 20;
/// A store in which nothing changed for so long gives up the room that is free.
const QUIET: Duration = Duration::from_secs(60);
/// Rooms have a multiple of so many bytes. Versions of one object differ by the digits of a number.
const STEP: usize = 64;

/// The free room of one store.
#[derive(Default)]
pub(super) struct Rooms(Mutex<Free>);

#[derive(Default)]
struct Free {
    /// By their capacity.
    rooms: BTreeMap<usize, Vec<String>>,
    bytes: usize,
    /// Since when no text came.
    quiet: Option<Instant>,
}

impl Rooms {
    /// The text, in the room of another if there is one that fits.
    pub(super) fn hold(&self, text: &str) -> String {
        let wanted = text.len().next_multiple_of(STEP);
        let mut room = self
            .free()
            .take(wanted)
            .unwrap_or_else(|| String::with_capacity(wanted));
        room.push_str(text);
        room
    }

    /// A text is gone.
    pub(super) fn give_back(&self, mut text: String) {
        text.clear();
        // What is dropped goes without the lock.
        let _unwanted = self.free().put(text);
    }

    /// Gives up what nothing has come for. The watch calls this whenever it hears something.
    pub(super) fn trim(&self, now: Instant) {
        let mut free = self.free();
        if free.bytes > 0 && now.duration_since(*free.quiet.get_or_insert(now)) > QUIET {
            let unwanted = std::mem::take(&mut *free);
            drop(free);
            drop(unwanted);
        }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    fn take(&mut self, wanted: usize) -> Option<String> {
        self.quiet = None;
        let (capacity, rooms) = self.rooms.range_mut(wanted..=wanted + wanted / 16).next()?;
        let (capacity, room) = (*capacity, rooms.pop());
        if rooms.is_empty() {
            self.rooms.remove(&capacity);
        }
        self.bytes -= capacity;
        room
    }

    /// What has no place: the room itself if it is large, otherwise all others, as nothing of their size has come.
    fn put(&mut self, room: String) -> (Option<String>, BTreeMap<usize, Vec<String>>) {
        let capacity = room.capacity();
        if capacity == 0 || capacity > MOST / 4 {
            return (Some(room), BTreeMap::new());
        }
        let before = match self.bytes + capacity > MOST {
            true => std::mem::take(self).rooms,
            false => BTreeMap::new(),
        };
        self.bytes += capacity;
        self.rooms.entry(capacity).or_default().push(room);
        debug_assert!(self.bytes <= MOST);
        (None, before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_takes_the_room_of_one_that_is_gone() {
        let rooms = Rooms::default();
        let waiting = || rooms.free().bytes;
        let check = |gone: usize, comes: usize, takes: bool| {
            *rooms.free() = Free::default();
            let before = rooms.hold(&"a".repeat(gone));
            let (place, capacity) = (before.as_ptr(), before.capacity());
            assert!(capacity <= gone + STEP, "{capacity}");
            rooms.give_back(before);
            assert_eq!(waiting(), capacity);
            let text = "b".repeat(comes);
            let after = rooms.hold(&text);
            assert_eq!(
                (&after, after.as_ptr() == place, waiting() == 0),
                (&text, takes, takes),
                "{gone} {comes}"
            );
        };
        check(3000, 3001, true);
        check(3008, 3009, false); // a multiple of 64 has no room for one more
        check(3100, 2995, true);
        check(3100, 1500, false); // half of it would be wasted
        check(1, 60, true);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_for_long_is_given_up() {
        let rooms = Rooms::default();
        let check = async |seconds: u64, left: usize| {
            tokio::time::sleep(Duration::from_secs(seconds)).await;
            rooms.trim(Instant::now());
            assert_eq!(rooms.free().bytes, left, "{seconds}");
        };
        rooms.give_back(rooms.hold("a"));
        check(0, STEP).await;
        check(60, STEP).await;
        rooms.give_back(rooms.hold("b"));
        check(60, STEP).await; // the second came
        check(61, 0).await;
    }

    #[test]
    fn little_waits() {
        let rooms = Rooms::default();
        for length in (0..10_000).chain([1 << 20, usize::from(u16::MAX)]) {
            let text = rooms.hold(&"a".repeat(length));
            rooms.give_back(text);
            let held = rooms.free();
            let counted: usize = held.rooms.iter().map(|(capacity, rooms)| capacity * rooms.len()).sum();
            assert!(
                held.bytes == counted && counted <= MOST,
                "{length}: {} {counted}",
                held.bytes
            );
        }
    }
}
