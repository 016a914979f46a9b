//! Memory that principals share, and the requests that wait until there is room for them.
//!
//! How much a request or an answer will take shows only while it is made. So it is counted as it grows, and another one
//! begins only while its principal holds less than is free ([`Ledger::has_room`]); what has begun is never refused for
//! what others hold.
//!
//! Invariants:
//! - whoever waits for room is woken when anything is given back, and looks again;
//! - it is refused after a while, and told when to come back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright_apiserver::shares::{Ledger, NoShare, Share};
use tokio::sync::Notify;
use tokio::sync::futures::Notified;

/// So many bytes for all principals.
pub(crate) struct Room {
    ledger: Arc<Ledger>,
    fewer: Notify,
}

impl Room {
    pub(crate) fn new(bytes: usize) -> Arc<Room> {
        Arc::new(Room {
            ledger: Ledger::new(bytes),
            fewer: Notify::new(),
        })
    }

    pub(crate) fn has_room(&self, principal: &str) -> bool {
        self.ledger.has_room(principal)
    }

    /// Waits until this principal may begin something, but not for longer than `patience`.
    ///
    /// # Errors
    /// When it has its share all the time.
    pub(crate) async fn wait(&self, principal: &str, patience: Duration) -> Result<(), NoShare> {
        let waiting = async {
            loop {
                // It hears of each end from here on, so that none is missed after the check.
                let fewer = self.less();
                if self.has_room(principal) {
                    return;
                }
                fewer.await;
            }
        };
        let waited = tokio::time::timeout(patience, waiting).await;
        waited.map_err(|_| self.refuse(principal))
    }

    /// Ends when something becomes less from here on.
    pub(crate) fn less(&self) -> Notified<'_> {
        self.fewer.notified()
    }

    pub(crate) fn refuse(&self, principal: &str) -> NoShare {
        self.ledger.refuse(principal)
    }

    /// Whether half of it is taken, as by one principal that takes all that it may.
    pub(crate) fn is_scarce(&self) -> bool {
        let (held, capacity) = self.ledger.held();
        held >= capacity / 2
    }

    /// What something of this principal takes: nothing so far.
    pub(crate) fn open(self: &Arc<Room>, principal: &str) -> Held {
        Held {
            room: self.clone(),
            share: Mutex::new(self.ledger.open(principal)),
        }
    }

    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        self.ledger.held().0
    }
}

/// What one request or answer takes, until this is dropped.
pub(crate) struct Held {
    room: Arc<Room>,
    share: Mutex<Share>,
}

impl Held {
    /// It takes so many bytes now.
    pub(crate) fn set(&self, bytes: usize) {
        let mut share = self.share.lock().unwrap_or_else(PoisonError::into_inner);
        let before = share.held();
        if before == bytes {
            return;
        }
        share.set(bytes);
        drop(share);
        if bytes < before {
            self.room.fewer.notify_waiters();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

    /// Whether another request of `user` may begin beside requests that hold so many bytes of 16.
    async fn check(held: &[(&str, usize)], user: &str, expected: bool) {
        let room = Room::new(16);
        let all: Vec<Held> = held.iter().map(|(user, _)| room.open(user)).collect();
        for (one, (_, bytes)) in all.iter().zip(held) {
            one.set(bytes + 3);
            one.set(*bytes);
        }
        let begins = room.wait(user, PATIENCE).await.is_ok();
        assert_eq!(begins, expected, "{user} beside {held:?}");
        drop(all);
        assert_eq!(room.held(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_begins_while_its_user_holds_less_than_is_free() {
        check(&[], "a", true).await;
        check(&[("a", 7)], "a", true).await;
        check(&[("a", 8)], "a", false).await;
        check(&[("a", 8)], "b", true).await;
        check(&[("a", 4), ("a", 4)], "a", false).await;
        check(&[("a", 8), ("b", 3)], "b", true).await;
        check(&[("a", 8), ("b", 4)], "b", false).await;
        check(&[("a", 8), ("b", 4)], "c", true).await;
        // More than there is, by what had begun.
        check(&[("a", 20)], "b", false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_waits_begins_when_others_end() {
        let room = Room::new(16);
        let (first, second) = (room.open("a"), room.open("a"));
        first.set(8);
        second.set(8);
        let waits = |user: &'static str| {
            let room = room.clone();
            tokio::spawn(async move { room.wait(user, PATIENCE).await })
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
