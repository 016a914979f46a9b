//! The order in which waiting work gets its turns: start-time fair queuing.
//!
//! Each user has an account of the time that was computed for it. The next turn goes to the user with waiting work
//! whose account is the lowest; within a user turns go round among its connections, and within a connection work is
//! taken in the order in which it came.
//!
//! Invariants:
//! - a user that comes back starts at the account of whoever had the latest turn: nobody saves up turns, and nobody
//!   waits for more than the turns that have begun;
//! - users that always have work waiting differ by one turn each, at most, in what was computed for them;
//! - whose work waits while nothing runs for it may begin beside all others ([`Turns::begin_of_idle`]);
//! - nothing here waits, computes or reads a clock.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::Client;

/// A turn counts as this long at least, in nanoseconds: what it costs to give it.
pub(super) const LEAST: u64 = 100_000;

/// Accounts of users without work are looked through when there are so many, and twice as many as in use.
const MANY: usize = 64;

/// Everything that waits for a turn, and the accounts of those it belongs to.
pub(super) struct Turns<J> {
    /// The account of whoever had the latest turn, as it was then; it never goes back.
    now: u64,
    users: BTreeMap<String, User<J>>,
    /// The users that have work waiting: account, since when, name.
    order: BTreeSet<(u64, u64, String)>,
    /// The number of the next work.
    next: u64,
    running: usize,
    /// How many users there may be before those that are gone are forgotten.
    many: usize,
}

struct User<J> {
    /// Nanoseconds.
    account: u64,
    since: u64,
    running: usize,
    /// By connection; the first one is next.
    waiting: VecDeque<(Option<u64>, BTreeMap<u64, J>)>,
}

impl<J> Turns<J> {
    pub(super) fn new() -> Turns<J> {
        Turns {
            now: 0,
            users: BTreeMap::new(),
            order: BTreeSet::new(),
            next: 0,
            running: 0,
            many: MANY,
        }
    }

    /// Work that waits for a turn from now on; its number, to [`leave`](Turns::leave) with.
    pub(super) fn wait(&mut self, client: &Client, job: J) -> u64 {
        let (number, now) = (self.next, self.now);
        self.next += 1;
        self.forget();
        self.change(&client.user, |user| {
            if user.waiting.is_empty() {
                user.account = user.account.max(now);
                user.since = number;
            }
            let connection = user.waiting.iter().position(|(known, _)| *known == client.connection);
            let at = connection.unwrap_or_else(|| {
                user.waiting.push_back((client.connection, BTreeMap::new()));
                user.waiting.len() - 1
            });
            user.waiting[at].1.insert(number, job);
        });
        number
    }

    /// Work that waits no longer.
    pub(super) fn leave(&mut self, client: &Client, number: u64) -> Option<J> {
        self.change(&client.user, |user| {
            let at = user.waiting.iter().position(|(known, _)| *known == client.connection)?;
            let left = user.waiting[at].1.remove(&number);
            if user.waiting[at].1.is_empty() {
                user.waiting.remove(at);
            }
            left
        })
    }

    /// The work whose turn it is. [`end`](Turns::end) must follow.
    pub(super) fn begin(&mut self) -> Option<J> {
        let (account, _, name) = self.order.first().cloned()?;
        debug_assert!(account >= self.now, "nobody waits with an account of the past");
        self.now = self.now.max(account);
        self.begin_as(&name)
    }

    /// The same, of users for whom nothing runs.
    pub(super) fn begin_of_idle(&mut self) -> Option<J> {
        let (_, _, name) = self.order.iter().find(|(_, _, name)| !self.runs(name)).cloned()?;
        self.begin_as(&name)
    }

    /// How many turns have begun and not ended.
    pub(super) fn running(&self) -> usize {
        self.running
    }

    /// Whether a turn of this user has begun.
    pub(super) fn runs(&self, user: &str) -> bool {
        self.users.get(user).is_some_and(|user| user.running > 0)
    }

    fn begin_as(&mut self, name: &str) -> Option<J> {
        self.running += 1;
        self.change(name, |user| {
            let (connection, mut jobs) = user.waiting.pop_front()?;
            let job = jobs.pop_first().map(|(_, job)| job);
            debug_assert!(job.is_some(), "a connection in the queue has work waiting");
            if !jobs.is_empty() {
                user.waiting.push_back((connection, jobs));
            }
            user.running += 1;
            user.account += LEAST;
            job
        })
    }

    /// A turn of this user is over, which took so many nanoseconds.
    pub(super) fn end(&mut self, user: &str, cost: u64) {
        self.change(user, |user| {
            debug_assert!(user.running > 0, "a turn ends once");
            user.running -= 1;
            user.account += cost.saturating_sub(LEAST);
        });
        debug_assert!(self.running > 0, "a turn ends once");
        self.running -= 1;
        if self.running == 0 && self.order.is_empty() {
            // Nothing waits and nothing runs: all accounts begin again at zero.
            self.users.clear();
        }
    }

    fn change<T>(&mut self, name: &str, change: impl FnOnce(&mut User<J>) -> T) -> T {
        let user = self.users.entry(name.to_owned()).or_insert_with(|| User {
            account: 0,
            since: 0,
            running: 0,
            waiting: VecDeque::new(),
        });
        let before = (user.account, user.since);
        let waited = !user.waiting.is_empty();
        let changed = change(user);
        let waits = !user.waiting.is_empty();
        let after = (user.account, user.since);
        let place = |(account, since)| (account, since, name.to_owned());
        if waited && (!waits || before != after) {
            let was = self.order.remove(&place(before));
            debug_assert!(was, "the order has all users with waiting work");
        }
        if waits && (!waited || before != after) {
            self.order.insert(place(after));
        }
        changed
    }

    /// Forgets those who have nothing here, and owe nothing.
    fn forget(&mut self) {
        if self.users.len() < self.many {
            return;
        }
        let now = self.now;
        self.users
            .retain(|_, user| !user.waiting.is_empty() || user.running > 0 || user.account > now);
        self.many = (2 * self.users.len()).max(MANY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(user: &str, connection: u64) -> Client {
        Client {
            user: user.to_owned(),
            connection: Some(connection),
        }
    }

    /// The order of work of these clients, where each turn costs the same.
    fn check(waiting: &[(&str, u64)], expected: &[usize]) {
        let mut turns = Turns::new();
        for (index, (user, connection)) in waiting.iter().enumerate() {
            turns.wait(&client(user, *connection), index);
        }
        let order: Vec<usize> = std::iter::from_fn(|| {
            let next = turns.begin()?;
            turns.end(waiting[next].0, 2 * LEAST);
            Some(next)
        })
        .collect();
        assert_eq!(order, expected, "{waiting:?}");
        assert!(turns.order.is_empty());
    }

    #[test]
    fn turns_go_round() {
        check(&[("a", 1), ("a", 1), ("a", 1)], &[0, 1, 2]);
        check(&[("a", 1), ("a", 1), ("a", 1), ("b", 2)], &[0, 3, 1, 2]);
        check(&[("a", 1), ("a", 1), ("a", 2), ("a", 2)], &[0, 2, 1, 3]);
        check(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 4)], &[0, 3, 1, 4, 2]);
    }

    #[test]
    fn what_has_left_has_no_turn() {
        let mut turns = Turns::new();
        let number = turns.wait(&client("a", 1), 1);
        turns.wait(&client("b", 2), 2);
        assert_eq!(turns.leave(&client("a", 1), number), Some(1));
        assert_eq!(turns.leave(&client("a", 1), number), None);
        assert_eq!(turns.begin(), Some(2));
        assert_eq!(turns.begin(), None);
    }

    /// How many of the next turns each of two users gets, whose turns cost so much.
    fn shares(costs: [u64; 2], turns_of_all: usize) -> [u64; 2] {
        let mut turns = Turns::new();
        let users = ["a", "b"];
        let mut shares = [0, 0];
        for (index, user) in users.iter().enumerate() {
            for connection in 0..3 {
                turns.wait(&client(user, connection), index);
            }
        }
        for turn in 0..turns_of_all {
            let index = turns.begin().expect("there is always work");
            turns.end(users[index], costs[index]);
            turns.wait(&client(users[index], turn as u64 % 3), index);
            shares[index] += 1;
        }
        shares
    }

    #[test]
    fn time_is_shared_and_not_requests() {
        assert_eq!(shares([LEAST; 2], 1000), [500, 500]);
        let [long, short] = shares([10 * LEAST, LEAST], 1100);
        assert!(
            (90..=110).contains(&long) && (990..=1010).contains(&short),
            "{long} {short}"
        );
    }

    #[test]
    fn nobody_saves_up_turns() {
        let mut turns = Turns::new();
        for _ in 0..100 {
            turns.wait(&client("a", 1), "a");
            assert_eq!(turns.begin(), Some("a"));
            turns.end("a", 50 * LEAST);
        }
        for user in ["a", "b"] {
            for _ in 0..10 {
                turns.wait(&client(user, 1), user);
            }
        }
        let mut order = Vec::new();
        while let Some(user) = turns.begin() {
            turns.end(user, LEAST);
            order.push(user);
        }
        assert_eq!(order[..10].iter().filter(|user| **user == "b").count(), 5, "{order:?}");
    }

    #[test]
    fn who_has_no_turn_may_begin_beside_the_others() {
        let mut turns = Turns::new();
        for (user, job) in [("a", 1), ("a", 2), ("b", 3), ("b", 4), ("c", 5)] {
            turns.wait(&client(user, 1), job);
        }
        assert_eq!(turns.begin(), Some(1));
        assert_eq!([turns.begin_of_idle(), turns.begin_of_idle()], [Some(3), Some(5)]);
        assert_eq!(turns.begin_of_idle(), None, "each has a turn");
        turns.end("b", LEAST);
        assert_eq!(turns.begin_of_idle(), Some(4));
        assert_eq!((turns.begin(), turns.begin(), turns.running()), (Some(2), None, 4));
    }

    #[test]
    fn users_that_are_gone_are_forgotten() {
        let mut turns = Turns::new();
        for index in 0..10_000 {
            let user = format!("user-{index}");
            turns.wait(&client(&user, 1), ());
            assert_eq!(turns.begin(), Some(()));
            turns.end(&user, LEAST);
        }
        assert!(turns.users.len() <= 2 * MANY, "{}", turns.users.len());
    }
}
