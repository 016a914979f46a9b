//! Whose connection a thread serves next.
//!
//! A runtime polls its tasks in the order in which they became ready. So of a thread that serves many connections a user
//! with a hundred of them would get a hundred times as much as one with a single one, who would wait for all of them.
//! Here the connections of a user share the turns of one: in each round a user has one turn, and what else it has ready
//! waits for the next rounds, in the order in which it came. Between two rounds everything else that is ready is polled,
//! and the sockets are looked at.
//!
//! A user with connections on all threads would still get more than one with a single connection. So each user has an
//! account of the time that all threads gave it ([`Accounts`]), and lets those go first whose account is lower.
//!
//! Invariants:
//! - a connection that is ready waits for one round, at most, and for those of its own user that came first; for
//!   [`PASSED`] rounds where its user has had more than others;
//! - no user saves up more than [`CREDIT`] while it wants nothing;
//! - nothing waits on a thread that has nothing else to do, nor where nobody else has asked for [`LATELY`];
//! - a connection that ends while it waits costs nobody a turn.
//!
//! Connections of clients that have not proved yet who they are share the turns of one user. Not here: how long a turn
//! may take (requests are tried for so many steps, and [`super::guard`] moves so many bytes), and threads for requests
//! that take longer ([`crate::work`]).

use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

use crate::places::Place;

/// For so many rounds a user that has asked counts as one that wants something: about a second of a busy thread.
const LATELY: u64 = 10_000;

/// Users without connections are forgotten when there are so many, and twice as many as have some.
const MANY: usize = 64;

/// A user that has had more than others lets them go first in so many rounds, one after the other.
const PASSED: u64 = 8;

/// For so many rounds after it has asked a user counts as one that goes first.
const SHORTLY: u64 = 16;

/// Accounts that differ by less than this count as equal, in nanoseconds: about a turn.
const SLACK: u64 = 100_000;

/// The most by which an account is behind the highest one.
const CREDIT: u64 = 20_000_000;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values by the name of a user, as long as somebody else holds them.
struct ByUser<T>(Mutex<BTreeMap<Arc<str>, Weak<T>>>);

impl<T> Default for ByUser<T> {
    fn default() -> ByUser<T> {
        ByUser(Mutex::default())
    }
}

impl<T> ByUser<T> {
    fn get(&self, name: &Arc<str>, make: impl FnOnce() -> T) -> Arc<T> {
        let mut users = locked(&self.0);
        if let Some(known) = users.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if users.len() >= MANY && users.len().is_power_of_two() {
            users.retain(|_, user| user.strong_count() > 0);
        }
        let new = Arc::new(make());
        users.insert(name.clone(), Arc::downgrade(&new));
        new
    }
}

/// How long all threads worked for each user, in nanoseconds.
#[derive(Default)]
pub(super) struct Accounts {
    highest: AtomicU64,
    unproven: Arc<AtomicU64>,
    users: ByUser<AtomicU64>,
}

impl Accounts {
    /// What an account counts as.
    fn of(&self, account: &AtomicU64) -> u64 {
        let least = self.highest.load(Ordering::Relaxed).saturating_sub(CREDIT);
        account.load(Ordering::Relaxed).max(least)
    }

    fn charge(&self, account: &AtomicU64, cost: u64) {
        let least = self.highest.load(Ordering::Relaxed).saturating_sub(CREDIT);
        account.fetch_max(least, Ordering::Relaxed);
        let before = account.fetch_add(cost, Ordering::Relaxed);
        self.highest.fetch_max(before.saturating_add(cost), Ordering::Relaxed);
    }
}

/// The rounds of one thread.
pub(crate) struct Rounds {
    accounts: Arc<Accounts>,
    /// What a turn of this length is charged with.
    cost: fn(Duration) -> u64,
    /// The present one.
    number: AtomicU64,
    /// Whose turn was asked for last, as an address that is only compared; 0: nobody's.
    latest: AtomicUsize,
    /// Up to this round more than one user wants something.
    contested: AtomicU64,
    /// The clients that have not proved who they are.
    unproven: Arc<User>,
    users: ByUser<User>,
    waiting: Mutex<Waiting>,
    /// The user with the lowest account of those that have asked [`SHORTLY`], and when it did.
    first: Mutex<Option<(Arc<User>, u64)>>,
}

#[derive(Default)]
struct Waiting {
    /// Who has connections that wait.
    users: VecDeque<Arc<User>>,
    /// Whether a task begins the next round.
    goes_on: bool,
}

/// A user with connections to this thread.
#[derive(Default)]
struct User {
    account: Arc<AtomicU64>,
    /// How often others went first since its latest turn.
    passed: AtomicU64,
    /// The round after that of its latest turn.
    next: AtomicU64,
    /// Connections that wait, in the order of their turns.
    waiting: Mutex<VecDeque<Arc<Ticket>>>,
    /// Whether there are any.
    waits: AtomicBool,
}

/// The turn of a connection that waits for it.
#[derive(Default)]
struct Ticket {
    is_due: AtomicBool,
    /// `None`: it does not wait any more.
    waker: Mutex<Option<Waker>>,
}

impl Rounds {
    pub(super) fn new(accounts: Arc<Accounts>) -> Rounds {
        Rounds::charging(accounts, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }

    fn charging(accounts: Arc<Accounts>, cost: fn(Duration) -> u64) -> Rounds {
        let unproven = User {
            account: accounts.unproven.clone(),
            ..User::default()
        };
        Rounds {
            accounts,
            cost,
            number: AtomicU64::default(),
            latest: AtomicUsize::default(),
            contested: AtomicU64::default(),
            unproven: Arc::new(unproven),
            users: ByUser::default(),
            waiting: Mutex::default(),
            first: Mutex::default(),
        }
    }

    /// Nothing is ready any more on the thread, so whatever comes next belongs to another round.
    pub(super) fn rest(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
        *locked(&self.first) = None;
    }

    fn user(&self, name: &Arc<str>) -> Arc<User> {
        self.users.get(name, || User {
            account: self.accounts.users.get(name, AtomicU64::default),
            ..User::default()
        })
    }

    /// Whether this user has had more than another one that wants something.
    fn is_ahead(&self, user: &Arc<User>, number: u64) -> bool {
        let account = self.accounts.of(&user.account);
        let mut first = locked(&self.first);
        if let Some((other, asked)) = &*first
            && number <= asked.saturating_add(SHORTLY)
            && account > self.accounts.of(&other.account)
        {
            return account > self.accounts.of(&other.account).saturating_add(SLACK);
        }
        *first = Some((user.clone(), number));
        false
    }

    /// Whether this user may have a turn at once.
    fn admits(&self, user: &Arc<User>) -> bool {
        let number = self.number.load(Ordering::Relaxed);
        let own = Arc::as_ptr(user).addr();
        let before = self.latest.swap(own, Ordering::Relaxed);
        if before != own && before != 0 {
            self.contested.store(number.saturating_add(LATELY), Ordering::Relaxed);
        }
        let is_alone = self.contested.load(Ordering::Relaxed) <= number;
        let has_turn = is_alone || user.next.load(Ordering::Relaxed) <= number && !self.is_ahead(user, number);
        let admits = has_turn && !user.waits.load(Ordering::Relaxed);
        if admits {
            user.next.store(number.saturating_add(1), Ordering::Relaxed);
        }
        admits
    }

    /// Lets a connection of this user wait for one of the next rounds.
    fn wait(self: &Arc<Rounds>, user: &Arc<User>, cx: &Context<'_>) -> Arc<Ticket> {
        let ticket = Arc::new(Ticket {
            is_due: AtomicBool::new(false),
            waker: Mutex::new(Some(cx.waker().clone())),
        });
        let mut waiting = locked(&self.waiting);
        locked(&user.waiting).push_back(ticket.clone());
        if !user.waits.swap(true, Ordering::Relaxed) {
            waiting.users.push_back(user.clone());
        }
        if !std::mem::replace(&mut waiting.goes_on, true) {
            tokio::spawn(self.clone().go_on());
        }
        ticket
    }

    /// Begins round after round until nothing waits.
    async fn go_on(self: Arc<Rounds>) {
        loop {
            // Behind everything that is ready.
            tokio::task::yield_now().await;
            let mut waiting = locked(&self.waiting);
            let number = self.number.fetch_add(1, Ordering::Relaxed) + 1;
            let accounts = waiting.users.iter().map(|user| self.accounts.of(&user.account));
            let first = accounts.min().unwrap_or(0).saturating_add(SLACK);
            waiting.users.retain(|user| {
                let is_ahead = self.accounts.of(&user.account) > first;
                if is_ahead && user.passed.fetch_add(1, Ordering::Relaxed) < PASSED {
                    return true;
                }
                user.passed.store(0, Ordering::Relaxed);
                user.next.store(number.saturating_add(1), Ordering::Relaxed);
                user.pass()
            });
            if waiting.users.is_empty() {
                waiting.goes_on = false;
                return;
            }
        }
    }
}

impl User {
    /// Gives its turn to the next connection; whether further ones wait.
    fn pass(&self) -> bool {
        let mut waiting = locked(&self.waiting);
        while let Some(next) = waiting.pop_front() {
            // It may have ended meanwhile.
            if let Some(waker) = locked(&next.waker).take() {
                next.is_due.store(true, Ordering::Relaxed);
                waker.wake();
                break;
            }
        }
        let waits = !waiting.is_empty();
        self.waits.store(waits, Ordering::Relaxed);
        waits
    }
}

/// A connection among those of its thread.
pub(super) struct Connection {
    /// `None`: it is served on the runtime of the caller, whose turns are its own.
    rounds: Option<Arc<Rounds>>,
    place: Arc<Place>,
    user: OnceLock<Arc<User>>,
}

impl Connection {
    pub(super) fn new(rounds: Option<Arc<Rounds>>, place: Arc<Place>) -> Connection {
        Connection {
            rounds,
            place,
            user: OnceLock::new(),
        }
    }

    fn user<'s>(&'s self, rounds: &'s Rounds) -> &'s Arc<User> {
        match (self.user.get(), self.place.user()) {
            (Some(user), _) => user,
            (None, Some(name)) => self.user.get_or_init(|| rounds.user(name)),
            (None, None) => &rounds.unproven,
        }
    }

    /// Does something for the client of this connection whenever it is its turn.
    pub(super) async fn in_turns<W: Future>(&self, work: W) -> W::Output {
        let mut work = pin!(work);
        let mut waits = Waits::default();
        poll_fn(|cx| self.poll_in_turn(&mut waits, cx, |cx| work.as_mut().poll(cx))).await
    }

    /// Polls something for the client of this connection when it is its turn.
    pub(super) fn poll_in_turn<T>(
        &self,
        waits: &mut Waits,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        let Some(rounds) = &self.rounds else { return poll(cx) };
        ready!(waits.poll(rounds, self.user(rounds), cx));
        let began = Instant::now();
        let polled = poll(cx);
        // It may have proved who it is.
        let account = &self.user(rounds).account;
        rounds.accounts.charge(account, (rounds.cost)(began.elapsed()));
        polled
    }
}

/// The ticket of work that waits for its turn.
#[derive(Default)]
pub(super) struct Waits(Option<Arc<Ticket>>);

impl Waits {
    fn poll(&mut self, rounds: &Arc<Rounds>, user: &Arc<User>, cx: &Context<'_>) -> Poll<()> {
        match &self.0 {
            None if rounds.admits(user) => return Poll::Ready(()),
            None => self.0 = Some(rounds.wait(user, cx)),
            Some(ticket) if ticket.is_due.load(Ordering::Relaxed) => {
                self.0 = None;
                return Poll::Ready(());
            }
            Some(ticket) => {
                if let Some(waker) = &mut *locked(&ticket.waker) {
                    waker.clone_from(cx.waker());
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(ticket) = &self.0 {
            *locked(&ticket.waker) = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use std::net::Ipv4Addr;
    use tokio::task::{JoinSet, yield_now};

    use super::*;
    use crate::places::{Bounds, Limits, Places, Taken};

    /// The rounds of so many threads, on which each turn costs the same.
    fn threads(count: usize) -> Vec<Arc<Rounds>> {
        let accounts = Arc::new(Accounts::default());
        let rounds = || Arc::new(Rounds::charging(accounts.clone(), |_| 2 * SLACK));
        std::iter::repeat_with(rounds).take(count).collect()
    }

    fn places() -> Arc<Places> {
        Places::new(Bounds::of(1000), Limits::default())
    }

    /// A connection of this user, or of nobody who is known.
    fn seat(places: &Arc<Places>, rounds: &Arc<Rounds>, user: &str) -> (Connection, Taken) {
        let taken = places.take(Ipv4Addr::LOCALHOST.into()).expect("there are places");
        if !user.is_empty() {
            taken.prove(user).expect("it has a share");
        }
        (Connection::new(Some(rounds.clone()), taken.clone()), taken)
    }

    /// How many turns these users have, each with so many connections that are always ready, of so many. The last one has
    /// had some on another thread before.
    async fn turns(users: &[(&str, usize)], elsewhere: usize, of: usize) -> Vec<usize> {
        let (places, threads) = (places(), threads(2));
        // All of them want something from the start.
        let mut asked = Vec::new();
        for (user, _) in users {
            let (seat, taken) = seat(&places, &threads[0], user);
            seat.in_turns(async {}).await;
            asked.push((seat, taken));
        }
        let (other, _other) = seat(&places, &threads[1], users.last().expect("there are users").0);
        for _ in 0..elsewhere {
            other.in_turns(async {}).await;
        }
        let counts: Arc<[AtomicUsize]> = users.iter().map(|_| AtomicUsize::new(0)).collect();
        let mut connections = JoinSet::new();
        for (index, (user, count)) in users.iter().enumerate() {
            for _ in 0..*count {
                let (seat, taken) = seat(&places, &threads[0], user);
                let counts = counts.clone();
                connections.spawn(async move {
                    let works = async {
                        loop {
                            counts[index].fetch_add(1, Ordering::Relaxed);
                            yield_now().await;
                        }
                    };
                    seat.in_turns::<_>(works).await;
                    drop(taken);
                });
            }
        }
        let all = || {
            let counts = counts.iter().map(|count| count.load(Ordering::Relaxed));
            counts.collect::<Vec<_>>()
        };
        while all().iter().sum::<usize>() < of {
            yield_now().await;
        }
        all()
    }

    #[tokio::test]
    async fn users_have_as_many_turns_however_many_connections_they_have() {
        for users in [
            &[("a", 1), ("b", 1)][..],
            &[("a", 100), ("b", 1)],
            &[("a", 1), ("b", 100)],
            &[("a", 50), ("b", 2), ("c", 7)],
            &[("", 50), ("b", 1)],
        ] {
            let turns = turns(users, 0, 600).await;
            let fair = turns.iter().sum::<usize>() / users.len();
            for count in &turns {
                assert!(count.abs_diff(fair) <= 3, "{users:?}: {turns:?}");
            }
        }
    }

    /// Who has had turns on another thread has as many less here; but one of [`PASSED`] and one at least.
    #[tokio::test]
    async fn users_have_as_many_turns_on_all_threads_together() {
        for (users, elsewhere, of, expected) in [
            (&[("a", 1), ("b", 100)][..], 30, 200, [115, 85]),
            (&[("a", 50), ("b", 1)], 30, 200, [115, 85]),
            (&[("a", 1), ("", 50)], 30, 200, [115, 85]),
            (&[("a", 1), ("b", 50)], 10_000, 90, [80, 10]),
        ] {
            let turns = turns(users, elsewhere, of).await;
            for (count, expected) in turns.iter().zip(expected) {
                assert!(count.abs_diff(expected) <= 5, "{users:?} after {elsewhere}: {turns:?}");
            }
        }
    }

    #[tokio::test]
    async fn nobody_waits_on_a_thread_that_rests() {
        let (places, rounds) = (places(), threads(1).remove(0));
        let (one, _one) = seat(&places, &rounds, "a");
        let (other, _other) = seat(&places, &rounds, "b");
        for _ in 0..3 {
            assert_eq!(other.in_turns(async {}).now_or_never(), Some(()));
            assert_eq!(one.in_turns(async {}).now_or_never(), Some(()));
            assert_eq!(one.in_turns(async {}).now_or_never(), None, "it has had its turn");
            rounds.rest();
            // What it waited for was given up.
            one.in_turns(async {}).await;
            rounds.rest();
            other.in_turns(async {}).await;
            rounds.rest();
        }
    }

    #[tokio::test]
    async fn who_is_alone_never_waits() {
        let (places, rounds) = (places(), threads(1).remove(0));
        let connections: Vec<(Connection, Taken)> = (0..20).map(|_| seat(&places, &rounds, "a")).collect();
        for (own, _taken) in &connections {
            assert_eq!(own.in_turns(async {}).now_or_never(), Some(()));
        }
        let (other, _other) = seat(&places, &rounds, "b");
        assert_eq!(other.in_turns(async {}).now_or_never(), Some(()));
        let (own, _taken) = &connections[0];
        assert_eq!(own.in_turns(async {}).now_or_never(), None, "it is not alone any more");
        for _ in 0..LATELY {
            rounds.rest();
        }
        own.in_turns(async {}).await;
        for (own, _taken) in &connections {
            assert_eq!(own.in_turns(async {}).now_or_never(), Some(()));
        }
    }

    #[tokio::test]
    async fn what_is_given_up_costs_nobody_a_turn() {
        let (places, rounds) = (places(), threads(1).remove(0));
        let (other, _other) = seat(&places, &rounds, "b");
        other.in_turns(async {}).await;
        let connections: Vec<(Connection, Taken)> = (0..20).map(|_| seat(&places, &rounds, "a")).collect();
        let mut waiting: Vec<_> = connections
            .iter()
            .map(|(seat, _)| Box::pin(seat.in_turns(async {})))
            .collect();
        assert_eq!((&mut waiting[0]).now_or_never(), Some(()));
        for one in &mut waiting[1..] {
            assert_eq!(one.now_or_never(), None);
        }
        let last = waiting.pop().expect("there are many");
        drop(waiting);
        let before = rounds.number.load(Ordering::Relaxed);
        last.await;
        assert_eq!(rounds.number.load(Ordering::Relaxed), before + 1);
        assert!(locked(&rounds.waiting).users.is_empty());
    }
}
