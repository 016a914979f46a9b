//! Whose requests may be answered on the threads that serve connections.
//!
//! A light request costs less there than on a thread of its own ([`crate::work`]), but nobody has turns there: requests
//! are answered in the order in which they come. So a user may take a part of that time ([`PART`]) while others want
//! something as well; what it asks beyond that is answered where users take turns, light or not.
//!
//! Invariants: a user that is alone is never sent away; one that asks little neither.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A user may take one part in this many of a thread's time.
const PART: u32 = 8;
/// And so much more at once.
const BURST: Duration = Duration::from_millis(10);
/// Others want something when they have asked within this time.
const RECENT: Duration = Duration::from_secs(10);
/// Users that have not asked for long are forgotten when there are so many.
const MANY: usize = 256;

/// What each user has taken of late.
#[derive(Default)]
pub(super) struct Serving(Mutex<BTreeMap<String, Taken>>);

struct Taken {
    /// What it has taken beyond its part, as of the time at which it asked last.
    debt: Duration,
    asked: Instant,
}

impl Serving {
    /// Whether a request of this user is to be answered elsewhere.
    pub(super) fn is_due(&self, user: &str, now: Instant) -> bool {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if users.len() >= MANY {
            users.retain(|_, taken| now.saturating_duration_since(taken.asked) < RECENT);
        }
        let owes = match users.get_mut(user) {
            Some(taken) => {
                taken.renew(now);
                taken.debt > BURST
            }
            None => {
                let new = Taken {
                    debt: Duration::ZERO,
                    asked: now,
                };
                users.insert(user.to_owned(), new);
                false
            }
        };
        let is_recent = |taken: &Taken| now.saturating_duration_since(taken.asked) < RECENT;
        owes && users.iter().any(|(name, taken)| name != user && is_recent(taken))
    }

    /// A request of this user took so much.
    pub(super) fn took(&self, user: &str, time: Duration, now: Instant) {
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(taken) = users.get_mut(user) {
            taken.renew(now);
            taken.debt = taken.debt.saturating_add(time);
        }
    }
}

impl Taken {
    fn renew(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.asked);
        self.debt = self.debt.saturating_sub(passed / PART);
        self.asked = self.asked.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn who_takes_much_goes_elsewhere_while_others_ask() {
        let serving = Serving::default();
        let began = Instant::now();
        let at = |milliseconds: u32| began + MS * milliseconds;
        assert!(!serving.is_due("a", at(0)));
        serving.took("a", 100 * MS, at(100));
        assert!(!serving.is_due("a", at(100)), "it is alone");
        assert!(!serving.is_due("b", at(101)));
        serving.took("b", MS, at(102));
        assert!(serving.is_due("a", at(103)));
        assert!(!serving.is_due("b", at(104)), "it asks little");
        // 90 ms beyond the burst are over after 720.
        assert!(serving.is_due("a", at(800)));
        assert!(!serving.is_due("a", at(840)));
        serving.took("a", 10_000 * MS, at(10_840));
        assert!(!serving.is_due("a", at(10_900)), "the other one has not asked for long");
    }

    #[test]
    fn users_that_are_gone_are_forgotten() {
        let serving = Serving::default();
        let began = Instant::now();
        for index in 0..10_000_u32 {
            serving.is_due(&format!("user-{index}"), began + 100 * MS * index);
        }
        assert!(serving.0.lock().expect("no panic").len() <= MANY);
    }
}
