//! What clients share: places for watches, memory for bodies and answers, room in queues. One [`Ledger`] for each says
//! who holds how much of it, by principal: the name of the user, however many connections it has. Clients that are not
//! authenticated are `system:anonymous`, and so one principal.
//!
//! The rule (the dynamic threshold of switches that share a buffer): **a principal may take something while that and
//! what it holds already are no more than what is free.** Nothing is reserved for anybody by name, and no number of
//! principals is set.
//!
//! Promised, where `C` is the capacity and takes are small beside it:
//! - never more than `C` is held, except for what [`Share::set`] says has been made already;
//! - a principal that is alone gets half of `C`;
//! - `n` principals that all take as much as they can come to `C / (n + 1)` each, and as much stays free;
//! - `n` principals leave at least `C / 2ⁿ` free, in whichever order they take and give back: so a newcomer gets half
//!   of that at once, and more when the others give something back.
//!
//! Why the last one: let the one that took last hold `h`, when `f` was left. Then `h ≤ f`, and without it `f + h` would
//! be free, which the others had left: what is free halves at most with each principal.
//!
//! Not here: what is shared in time, such as processors, where the one that is alone gets everything.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// So many refused requests of a principal are told to come back in the same second.
const TOGETHER: u32 = 16;

/// The longest time that a refused request is told to wait, in seconds.
const LONGEST: u32 = 32;

/// Who holds how much of something.
#[derive(Debug)]
pub struct Ledger {
    capacity: usize,
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    held: usize,
    principals: BTreeMap<Arc<str>, Account>,
}

#[derive(Debug, Default)]
struct Account {
    held: usize,
    /// How often it was refused, less what it got since.
    refused: u32,
}

/// A principal has its share already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoShare {
    /// After how many seconds another try is worth it: the more were refused, the later, so that they do not all come
    /// back at once.
    pub retry_after_seconds: u32,
}

impl Ledger {
    /// A ledger of this capacity, of which nothing is held.
    pub fn new(capacity: usize) -> Arc<Ledger> {
        Arc::new(Ledger {
            capacity,
            accounts: Mutex::default(),
        })
    }

    fn accounts(&self) -> MutexGuard<'_, Accounts> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so much for a principal, until the share is dropped.
    ///
    /// # Errors
    /// When it has its share.
    pub fn take(self: &Arc<Ledger>, principal: &str, amount: usize) -> Result<Share, NoShare> {
        let mut share = self.open(principal);
        share.grow(amount)?;
        Ok(share)
    }

    /// A share of nothing, which may [grow](Share::grow).
    pub fn open(self: &Arc<Ledger>, principal: &str) -> Share {
        let known = self
            .accounts()
            .principals
            .get_key_value(principal)
            .map(|(name, _)| name.clone());
        Share {
            ledger: self.clone(),
            principal: known.unwrap_or_else(|| principal.into()),
            held: 0,
        }
    }

    /// Whether a principal may take more.
    pub fn has_room(&self, principal: &str) -> bool {
        let accounts = self.accounts();
        let own = accounts.principals.get(principal).map_or(0, |account| account.held);
        own < self.capacity.saturating_sub(accounts.held)
    }

    /// Refuses a principal, and says when it may try again.
    pub fn refuse(&self, principal: &str) -> NoShare {
        let mut accounts = self.accounts();
        if let Some(account) = accounts.principals.get_mut(principal) {
            return account.refuse();
        }
        accounts.principals.entry(principal.into()).or_default().refuse()
    }

    /// How much is held, and how much there is.
    pub fn held(&self) -> (usize, usize) {
        (self.accounts().held, self.capacity)
    }
}

impl Account {
    fn refuse(&mut self) -> NoShare {
        let retry_after_seconds = (1 + self.refused / TOGETHER).min(LONGEST);
        self.refused = self.refused.saturating_add(1);
        NoShare { retry_after_seconds }
    }
}

/// What is held for a principal, until this is dropped.
#[derive(Debug)]
pub struct Share {
    ledger: Arc<Ledger>,
    principal: Arc<str>,
    held: usize,
}

impl Share {
    /// How much it is.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes so much more.
    ///
    /// # Errors
    /// When the principal has its share; nothing is taken then.
    pub fn grow(&mut self, amount: usize) -> Result<(), NoShare> {
        if amount == 0 {
            return Ok(());
        }
        let mut accounts = self.ledger.accounts();
        let free = self.ledger.capacity.saturating_sub(accounts.held);
        let account = accounts.principals.entry(self.principal.clone()).or_default();
        if account.held.saturating_add(amount) > free {
            return Err(account.refuse());
        }
        account.held += amount;
        account.refused /= 2;
        accounts.held += amount;
        self.held += amount;
        debug_assert!(accounts.held <= self.ledger.capacity, "never more than there is");
        Ok(())
    }

    /// It is so much now, whether there is room for it or not: it has been made already.
    pub fn set(&mut self, amount: usize) {
        let mut accounts = self.ledger.accounts();
        debug_assert!(accounts.held >= self.held, "a share is held once");
        accounts.held = accounts.held - self.held + amount;
        let account = accounts.principals.entry(self.principal.clone()).or_default();
        account.held = account.held - self.held + amount;
        if account.held == 0 && account.refused == 0 {
            accounts.principals.remove(&self.principal);
        }
        self.held = amount;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.held > 0 {
            self.set(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 1 << 10;
    /// The most that is taken at once.
    const MOST: usize = 16;

    /// Pseudo-random numbers, the same ones each time.
    struct Random(u64);

    impl Random {
        fn below(&mut self, bound: usize) -> usize {
            // Xorshift, of Marsaglia.
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
            usize::try_from(self.0 % bound as u64).expect("it is below")
        }
    }

    /// Takes as much as there is for a principal; how much that was.
    fn fill(ledger: &Arc<Ledger>, principal: &str, step: usize) -> Share {
        let mut share = ledger.open(principal);
        while share.grow(step).is_ok() {}
        share
    }

    #[test]
    fn who_is_alone_gets_half_and_many_get_the_same() {
        for n in 1..10 {
            let ledger = Ledger::new(CAPACITY);
            let names: Vec<String> = (0..n).map(|index| format!("user-{index}")).collect();
            let mut shares: Vec<Share> = names.iter().map(|name| ledger.open(name)).collect();
            // In turns, as clients do that all want something.
            while shares.iter_mut().filter_map(|share| share.grow(1).ok()).count() > 0 {}
            for share in &shares {
                let fair = CAPACITY / (n + 1);
                assert!(share.held().abs_diff(fair) <= 2, "{} of {n}, not {fair}", share.held());
            }
            drop(shares);
            assert_eq!(ledger.held(), (0, CAPACITY));
        }
    }

    #[test]
    fn one_principal_is_one_with_any_number_of_shares() {
        let ledger = Ledger::new(100);
        let taken: Vec<Share> = (0..100).map_while(|_| ledger.take("a", 1).ok()).collect();
        assert_eq!(taken.len(), 50);
        assert!(!ledger.has_room("a") && ledger.has_room("b"));
        assert_eq!(fill(&ledger, "b", 1).held(), 25);
    }

    /// Takes and gives back at random, and checks all that is promised after each step.
    #[test]
    fn whatever_is_taken_and_given_back_the_promises_hold() {
        for seed in 1..40_u64 {
            let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let principals = 1 + random.below(6);
            let ledger = Ledger::new(CAPACITY);
            let mut shares: Vec<(usize, Share)> = Vec::new();
            for _ in 0..100 {
                let who = random.below(principals);
                match random.below(4) {
                    0 if !shares.is_empty() => drop(shares.swap_remove(random.below(shares.len()))),
                    1 => shares.push((who, fill(&ledger, &format!("user-{who}"), 1 + random.below(MOST)))),
                    _ => {
                        let mut share = ledger.open(&format!("user-{who}"));
                        for _ in 0..random.below(100) {
                            if share.grow(1 + random.below(MOST)).is_err() {
                                break;
                            }
                        }
                        shares.push((who, share));
                    }
                }
                let held: usize = shares.iter().map(|(_, share)| share.held()).sum();
                assert_eq!(ledger.held(), (held, CAPACITY), "seed {seed}: the books are right");
                assert!(held <= CAPACITY, "seed {seed}");
                let mut holders: Vec<usize> = shares.iter().map(|(who, _)| *who).collect();
                holders.sort_unstable();
                holders.dedup();
                let free = CAPACITY - held;
                let least = (CAPACITY >> holders.len()).saturating_sub(MOST);
                assert!(
                    free >= least,
                    "seed {seed}: {} leave {free}, not {least}",
                    holders.len()
                );
                let newcomer = fill(&ledger, "newcomer", 1).held();
                assert!(
                    newcomer >= free / 2,
                    "seed {seed}: a newcomer gets {newcomer} of {free}"
                );
            }
        }
    }

    #[test]
    fn the_refused_do_not_come_back_at_once() {
        let ledger = Ledger::new(1);
        let taken = ledger.take("a", 1).expect("it is free");
        let waits: Vec<u32> = (0..1000)
            .map(|_| ledger.take("b", 1).expect_err("it is not").retry_after_seconds)
            .collect();
        assert_eq!((waits[0], waits[999]), (1, LONGEST));
        assert!(waits.is_sorted());
        for second in 1..LONGEST {
            assert_eq!(waits.iter().filter(|wait| **wait == second).count(), TOGETHER as usize);
        }
        drop(taken);
        for _ in 0..20 {
            drop(ledger.take("b", 1).expect("it is free"));
        }
        assert_eq!(
            ledger.refuse("b").retry_after_seconds,
            1,
            "what one gets counts against it"
        );
        assert_eq!(ledger.refuse("c").retry_after_seconds, 1, "each has its own wait");
    }
}
