//! What the requests under way hold in memory, and how much of it there may be.
//!
//! One request has its bounds (`Limits::REQUEST` of the API server), and no more requests compute than there are
//! threads. Those that wait meanwhile, for a webhook or the disk, keep all that they have made. So it is counted, and a
//! further request that may be large begins only while there is room.
//!
//! Invariants:
//! - a large request begins only while less is held than [`Bounds`] allow, by its user and by all; only requests that
//!   compute at that moment go beyond them;
//! - it waits for room for [`PATIENCE`] before it is refused;
//! - a request that has begun is never refused for what others hold.
//!
//! Not held up: small requests, which are counted all the same, and those of this process.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

/// How long a request waits for those before it to end.
const PATIENCE: Duration = Duration::from_secs(5);

/// How many bytes may be held: bodies, and what was made beyond them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    pub(crate) user: usize,
    pub(crate) all: usize,
}

impl Default for Bounds {
    fn default() -> Bounds {
        Bounds {
            user: 128 * 1024 * 1024,
            all: 256 * 1024 * 1024,
        }
    }
}

/// Too much is held.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What all requests hold.
#[derive(Default)]
pub(crate) struct Memory {
    bounds: Bounds,
    state: Mutex<State>,
    fewer: Notify,
}

#[derive(Default)]
struct State {
    all: usize,
    users: BTreeMap<String, usize>,
}

impl Memory {
    #[cfg(test)]
    fn of(bounds: Bounds) -> Arc<Memory> {
        Arc::new(Memory {
            bounds,
            ..Memory::default()
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a large request of this user may begin.
    ///
    /// # Errors
    /// When too much is held all the time.
    pub(crate) async fn room(&self, user: &str) -> Result<(), Full> {
        let waiting = async {
            loop {
                // It hears of each end from here on, so that none is missed after the check.
                let fewer = self.fewer.notified();
                if self.has_room(user) {
                    return;
                }
                fewer.await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.map_err(|_| Full)
    }

    fn has_room(&self, user: &str) -> bool {
        let state = self.state();
        let own = state.users.get(user).copied().unwrap_or(0);
        state.all < self.bounds.all && own < self.bounds.user
    }

    /// What a request of this user holds: nothing so far.
    pub(crate) fn permit(self: &Arc<Memory>, user: &str) -> MemoryPermit {
        MemoryPermit {
            memory: self.clone(),
            user: user.to_owned(),
            bytes: Mutex::default(),
        }
    }

    fn change(&self, user: &str, from: usize, to: usize) {
        let mut state = self.state();
        state.all = state.all - from + to;
        let own = state.users.get(user).copied().unwrap_or(0) - from + to;
        if own == 0 {
            state.users.remove(user);
        } else {
            state.users.insert(user.to_owned(), own);
        }
        drop(state);
        if to < from {
            self.fewer.notify_waiters();
        }
    }
}

/// What one request holds, until this is dropped.
pub(crate) struct MemoryPermit {
    memory: Arc<Memory>,
    user: String,
    bytes: Mutex<usize>,
}

impl MemoryPermit {
    /// It holds so many bytes now.
    pub(crate) fn set(&self, bytes: usize) {
        let mut now = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if *now != bytes {
            self.memory.change(&self.user, *now, bytes);
            *now = bytes;
        }
    }
}

impl Drop for MemoryPermit {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { user: 10, all: 15 };

    /// Whether another request of `user` may begin beside requests that hold so many bytes.
    async fn check(held: &[(&str, usize)], user: &str, expected: Result<(), Full>) {
        let memory = Memory::of(BOUNDS);
        let permit: Vec<MemoryPermit> = held.iter().map(|(user, _)| memory.permit(user)).collect();
        for (permit, (_, bytes)) in permit.iter().zip(held) {
            permit.set(bytes + 3);
            permit.set(*bytes);
        }
        assert_eq!(memory.room(user).await, expected, "{user} beside {held:?}");
        drop(permit);
        assert_eq!(memory.state().all, 0);
        assert!(memory.state().users.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_begins_while_there_is_room() {
        check(&[], "a", Ok(())).await;
        check(&[("a", 9)], "a", Ok(())).await;
        check(&[("a", 10)], "a", Err(Full)).await;
        check(&[("a", 10)], "b", Ok(())).await;
        check(&[("a", 5), ("a", 5)], "a", Err(Full)).await;
        check(&[("a", 9), ("b", 5)], "c", Ok(())).await;
        check(&[("a", 9), ("b", 6)], "c", Err(Full)).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_begins_when_others_end() {
        let memory = Memory::of(BOUNDS);
        let (first, second) = (memory.permit("a"), memory.permit("a"));
        first.set(8);
        second.set(8);
        let waits = |user: &'static str| {
            let memory = memory.clone();
            tokio::spawn(async move { memory.room(user).await })
        };
        let (own, other) = (waits("a"), waits("b"));
        tokio::task::yield_now().await;
        assert!(!own.is_finished() && !other.is_finished());
        first.set(2);
        assert_eq!(other.await.expect("no panic"), Ok(()));
        assert!(!own.is_finished());
        drop(second);
        assert_eq!(own.await.expect("no panic"), Ok(()));
    }
}
