//! Whose connection a thread serves next.
//!
//! A runtime polls its tasks in the order in which they became ready. So of a thread that serves many connections a user
//! with a hundred of them would get a hundred times as much as one with a single one, who would wait for all of them.
//! Here the connections of a user share the turns of one: in each round a user has one turn, and what else it has ready
//! waits for the next rounds, in the order in which it came. Between two rounds everything else that is ready is polled,
//! and the sockets are looked at.
//!
//! Invariants:
//! - a connection that is ready waits for one round, at most, and for those of its own user that came first;
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

use crate::places::Place;

/// For so many rounds a user that has asked counts as one that wants something: about a second of a busy thread.
const LATELY: u64 = 10_000;

/// Users without connections are forgotten when there are so many, and twice as many as have some.
const MANY: usize = 64;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The rounds of one thread.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The present one.
    number: AtomicU64,
    /// Whose turn was asked for last, as an address that is only compared; 0: nobody's.
    latest: AtomicUsize,
    /// Up to this round more than one user wants something.
    contested: AtomicU64,
    /// The clients that have not proved who they are.
    unproven: Arc<User>,
    users: Mutex<BTreeMap<Arc<str>, Weak<User>>>,
    waiting: Mutex<Waiting>,
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
    /// Nothing is ready any more on the thread, so whatever comes next belongs to another round.
    pub(super) fn rest(&self) {
        self.number.fetch_add(1, Ordering::Relaxed);
    }

    fn user(&self, name: &Arc<str>) -> Arc<User> {
        let mut users = locked(&self.users);
        if let Some(known) = users.get(name).and_then(Weak::upgrade) {
            return known;
        }
        if users.len() >= MANY && users.len().is_power_of_two() {
            users.retain(|_, user| user.strong_count() > 0);
        }
        let new = Arc::default();
        users.insert(name.clone(), Arc::downgrade(&new));
        new
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
        let has_turn = is_alone || user.next.load(Ordering::Relaxed) <= number;
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
            waiting.users.retain(|user| {
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
        let mut waits = Waits(None);
        poll_fn(|cx| {
            if let Some(rounds) = &self.rounds {
                ready!(waits.poll(rounds, self.user(rounds), cx));
            }
            work.as_mut().poll(cx)
        })
        .await
    }
}

/// The ticket of work that waits for its turn.
struct Waits(Option<Arc<Ticket>>);

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

    /// How many turns these users have, each with so many connections that are always ready, of so many.
    async fn turns(users: &[(&str, usize)], of: usize) -> Vec<usize> {
        let (places, rounds) = (places(), Arc::new(Rounds::default()));
        let counts: Arc<[AtomicUsize]> = users.iter().map(|_| AtomicUsize::new(0)).collect();
        let mut connections = JoinSet::new();
        for (index, (user, count)) in users.iter().enumerate() {
            for _ in 0..*count {
                let (seat, taken) = seat(&places, &rounds, user);
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
            counts
                .iter()
                .map(|count| count.load(Ordering::Relaxed))
                .collect::<Vec<_>>()
        };
        while all().contains(&0) {
            yield_now().await;
        }
        // From here on everybody wants something.
        let before = all();
        let since = || {
            all()
                .iter()
                .zip(&before)
                .map(|(now, before)| now - before)
                .collect::<Vec<_>>()
        };
        while since().iter().sum::<usize>() < of {
            yield_now().await;
        }
        since()
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
            let turns = turns(users, 600).await;
            let fair = turns.iter().sum::<usize>() / users.len();
            for count in &turns {
                assert!(count.abs_diff(fair) <= 3, "{users:?}: {turns:?}");
            }
        }
    }

    #[tokio::test]
    async fn nobody_waits_on_a_thread_that_rests() {
        let (places, rounds) = (places(), Arc::new(Rounds::default()));
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
        }
    }

    #[tokio::test]
    async fn who_is_alone_never_waits() {
        let (places, rounds) = (places(), Arc::new(Rounds::default()));
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
        let (places, rounds) = (places(), Arc::new(Rounds::default()));
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
