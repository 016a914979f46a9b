//! The places of a listener: which connections are open, which must go when there is no room, and which have been
//! silent for too long.
//!
//! Invariants:
//! - no more connections are open than [`Bounds::all`]; unproven clients have no more than a part of the places, and no
//!   address has the last of them;
//! - of proven clients, all connections of a user have no more than its share of the places ([`Ledger`]);
//! - a proven client with a request under way keeps its place, however long the request takes;
//! - where there is no room, the silent go first: unproven clients, then the ones that have rested longest.
//!
//! Nothing here waits: connections report their state ([`Place`]), one [`Places::sweep`] now and then looks at all of
//! them. So a connection that rests costs no timer.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use kubewright_apiserver::shares::{Ledger, NoShare, Share};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

mod descriptors;
mod limits;

pub use limits::Limits;

/// How often at most the log tells of clients that found no place.
const TELLING: Duration = Duration::from_secs(10);

/// So many places are for unproven clients, however few there are.
const LEAST_UNPROVEN: usize = 16;

/// The numbers of places, in all and for each sort of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) all: usize,
    /// For clients that have not proved their identity yet.
    pub(crate) unproven: usize,
    /// For one address of another machine; the last 64 bits of IPv6 make no other one.
    pub(crate) each_remote: usize,
    /// For this machine.
    pub(crate) local: usize,
}

impl Bounds {
    /// The shares of so many places.
    pub(crate) fn of(all: usize) -> Bounds {
        let all = all.max(1);
        Bounds {
            all,
            unproven: (all / 4).max(LEAST_UNPROVEN).min(all),
            each_remote: (all / 4).max(LEAST_UNPROVEN).min(all),
            local: all - all / 8,
        }
    }

    fn of_address(&self, address: IpAddr) -> usize {
        if address.is_loopback() {
            self.local
        } else {
            self.each_remote
        }
    }
}

/// All places of a listener.
pub(crate) struct Places {
    bounds: Bounds,
    limits: Limits,
    users: Arc<Ledger>,
    started: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    open: BTreeMap<u64, Arc<Place>>,
    addresses: BTreeMap<IpAddr, usize>,
    /// Of proven clients, whose they are.
    users: BTreeMap<u64, (String, Share)>,
    unproven: usize,
    turned_away: u64,
    told: Option<Instant>,
}

/// The state of a connection, as it reports it itself.
pub(crate) struct Place {
    places: Arc<Places>,
    id: u64,
    /// Of its network, which places are counted by.
    address: IpAddr,
    /// Its own.
    peer: IpAddr,
    /// The TLS handshake is over.
    secure: AtomicBool,
    /// Who the client has proved to be.
    user: OnceLock<Arc<str>>,
    /// Whether there was a request.
    asked: AtomicBool,
    under_way: AtomicU32,
    /// Over HTTP/1, whether a watch is being sent.
    watching: AtomicBool,
    /// Since when nothing is under way, in milliseconds of the listener.
    resting: AtomicU64,
    /// Since when a head has begun to arrive; 0: none has.
    head: AtomicU64,
    leave: Notify,
    task: OnceLock<AbortHandle>,
}

/// A place that is taken; it is free when this is dropped.
pub(crate) struct Taken(Arc<Place>);

/// A request under way; it is over when this is dropped.
pub(crate) struct UnderWay(Arc<Place>);

/// The bound that left no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All,
    Unproven,
    Address,
}

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Full::All => "all places are taken by clients that have requests under way",
            Full::Unproven => "too many connections of clients that have not shown who they are",
            Full::Address => "too many connections of one address",
        })
    }
}

impl Places {
    pub(crate) fn new(bounds: Bounds, limits: Limits) -> Arc<Places> {
        Arc::new(Places {
            users: Ledger::new(bounds.all),
            bounds,
            limits,
            started: Instant::now(),
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Never 0, which stands for never.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis())
            .unwrap_or(u64::MAX)
            .saturating_add(1)
    }

    /// A place for a client of this address, if need be that of a silent connection.
    ///
    /// # Errors
    /// The bound, when no connection can go for this one.
    pub(crate) fn take(self: &Arc<Places>, peer: IpAddr) -> Result<Taken, Full> {
        let address = network(peer);
        let now = self.now();
        let mut state = self.state();
        let taken = self.make_room(&mut state, address);
        if let Err(full) = taken {
            self.tell(&mut state, full);
            return Err(full);
        }
        state.next += 1;
        let place = Arc::new(Place {
            places: self.clone(),
            id: state.next,
            address,
            peer: peer.to_canonical(),
            secure: AtomicBool::new(false),
            user: OnceLock::new(),
            asked: AtomicBool::new(false),
            under_way: AtomicU32::new(0),
            watching: AtomicBool::new(false),
            resting: AtomicU64::new(now),
            head: AtomicU64::new(0),
            leave: Notify::new(),
            task: OnceLock::new(),
        });
        state.open.insert(place.id, place.clone());
        *state.addresses.entry(address).or_default() += 1;
        state.unproven += 1;
        Ok(Taken(place))
    }

    fn make_room(&self, state: &mut State, address: IpAddr) -> Result<(), Full> {
        if state.addresses.get(&address).copied().unwrap_or(0) >= self.bounds.of_address(address) {
            state.send_away(|place| place.address == address).ok_or(Full::Address)?;
        }
        if state.unproven >= self.bounds.unproven {
            state.send_away(|place| !place.is_proven()).ok_or(Full::Unproven)?;
        }
        if state.open.len() >= self.bounds.all {
            state.send_away(|_| true).ok_or(Full::All)?;
        }
        Ok(())
    }

    /// Frees a place for a file or socket that the process wants to open.
    pub(crate) fn send_somebody_away(&self) {
        self.state().send_away(|_| true);
    }

    /// Says that clients found no place, without filling the log.
    fn tell(&self, state: &mut State, full: Full) {
        state.turned_away += 1;
        if state.told.is_some_and(|told| told.elapsed() < TELLING) {
            return;
        }
        tracing::error!(
            clients = state.turned_away,
            connections = state.open.len(),
            "connections were closed at once: {full}"
        );
        state.told = Some(Instant::now());
        state.turned_away = 0;
    }

    /// Lets those go that have been silent for longer than they may.
    pub(crate) fn sweep(&self) {
        let now = self.now();
        let mut state = self.state();
        let overdue: Vec<Arc<Place>> = state
            .open
            .values()
            .filter(|place| place.is_overdue(now, &self.limits))
            .cloned()
            .collect();
        for place in overdue {
            place.go(&mut state);
        }
    }

    /// How often [`sweep`](Places::sweep) is worth it.
    pub(crate) fn sweeping(&self) -> Duration {
        let limits = &self.limits;
        let least = limits.handshake.min(limits.head).min(limits.idle);
        (least / 8).clamp(Duration::from_millis(10), Duration::from_secs(1))
    }

    /// The cluster stops: every connection finishes its request under way.
    pub(crate) fn end(&self) {
        let state = self.state();
        for place in state.open.values() {
            place.ask_to_leave();
        }
    }
}

impl State {
    /// Closes the least missed connection among those that are meant, and of unproven ones a few at once, so that a
    /// crowd does not cause a full scan each time. `None`: every connection has to stay.
    fn send_away(&mut self, is_meant: impl Fn(&Place) -> bool) -> Option<()> {
        let mut least_missed: Vec<(Missed, &Arc<Place>)> = self
            .open
            .values()
            .filter(|place| is_meant(place))
            .filter_map(|place| Some((place.missed()?, place)))
            .collect();
        let (class, ..) = least_missed.iter().map(|(missed, _)| *missed).min()?;
        let unknown = class == Class::SilentUnproven;
        let count = if unknown { 1 + least_missed.len() / 64 } else { 1 };
        if count < least_missed.len() {
            least_missed.select_nth_unstable_by_key(count, |(missed, _)| *missed);
        }
        let going: Vec<Arc<Place>> = least_missed
            .into_iter()
            .take(count)
            .filter(|(missed, _)| missed.0 == class)
            .map(|(_, place)| place.clone())
            .collect();
        for place in going {
            place.go(self);
        }
        Some(())
    }

    /// The connections of a user.
    fn of_user(&self, user: &str) -> BTreeSet<u64> {
        let own = self.users.iter().filter(|(_, (name, _))| name == user);
        own.map(|(id, _)| *id).collect()
    }

    fn forget(&mut self, place: &Place) {
        if self.open.remove(&place.id).is_none() {
            return;
        }
        self.users.remove(&place.id);
        if let Some(count) = self.addresses.get_mut(&place.address) {
            *count -= 1;
            if *count == 0 {
                self.addresses.remove(&place.address);
            }
        }
        if !place.is_proven() {
            self.unproven -= 1;
        }
    }
}

/// The classes of connections, in the order in which they are closed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    SilentUnproven,
    Unproven,
    Silent,
}

/// The order in which they go: those of a class by how long they have rested, and by when they came.
type Missed = (Class, u64, u64);

impl Place {
    /// Sets the task that runs the connection.
    pub(crate) fn runs_as(&self, task: AbortHandle) {
        // Each connection has one task, which is told once.
        let _ = self.task.set(task);
    }

    /// The address of the client.
    pub(crate) fn peer(&self) -> IpAddr {
        self.peer
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The handshake is over.
    pub(crate) fn is_secure(&self) {
        self.resting.store(self.places.now(), Ordering::Relaxed);
        self.secure.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_proven(&self) -> bool {
        self.user.get().is_some()
    }

    /// The user that the client has proved to be.
    pub(crate) fn user(&self) -> Option<&Arc<str>> {
        self.user.get()
    }

    /// The client is authenticated as this user, whose silent connections go when it has its share already.
    ///
    /// # Errors
    /// When all of them have requests under way.
    pub(crate) fn prove(&self, user: &str) -> Result<(), NoShare> {
        if self.is_proven() {
            return Ok(());
        }
        let users = &self.places.users;
        let mut state = self.places.state();
        if !users.has_room(user) {
            let own: BTreeSet<u64> = state.of_user(user);
            state.send_away(|place| own.contains(&place.id));
        }
        let share = users.take(user, 1)?;
        if state.open.contains_key(&self.id) && self.user.set(user.into()).is_ok() {
            state.unproven -= 1;
            state.users.insert(self.id, (user.to_owned(), share));
        }
        Ok(())
    }

    /// A request has begun.
    pub(crate) fn begin(self: &Arc<Place>) -> UnderWay {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        self.asked.store(true, Ordering::Relaxed);
        self.head.store(0, Ordering::Relaxed);
        UnderWay(self.clone())
    }

    /// A watch is sent to the client, which has nothing to say meanwhile.
    pub(crate) fn watches(&self) {
        self.watching.store(true, Ordering::Relaxed);
    }

    /// Bytes have come that belong to no request yet, or to the body of one. `false`: the connection is to end. If a
    /// client sent bytes while a watch is sent, its going would not be noticed, because nothing is read behind them.
    pub(crate) fn heard(&self) -> bool {
        if self.watching.load(Ordering::Relaxed) {
            return false;
        }
        if self.under_way.load(Ordering::Relaxed) == 0 && self.head.load(Ordering::Relaxed) == 0 {
            self.head.store(self.places.now(), Ordering::Relaxed);
        }
        true
    }

    /// Waits until the connection is to end after its request under way.
    pub(crate) async fn leaves(&self) {
        self.leave.notified().await;
    }

    /// `None`: it stays.
    fn missed(&self) -> Option<Missed> {
        let silent = self.under_way.load(Ordering::Relaxed) == 0;
        let class = match (self.is_proven(), silent) {
            (false, true) => Class::SilentUnproven,
            (false, false) => Class::Unproven,
            (true, true) => Class::Silent,
            (true, false) => return None,
        };
        Some((class, self.resting.load(Ordering::Relaxed), self.id))
    }

    fn is_overdue(&self, now: u64, limits: &Limits) -> bool {
        let passed = |since: u64, limit: Duration| u128::from(now.saturating_sub(since)) >= limit.as_millis();
        let resting = self.resting.load(Ordering::Relaxed);
        if !self.secure.load(Ordering::Relaxed) {
            return passed(resting, limits.handshake);
        }
        if self.under_way.load(Ordering::Relaxed) > 0 {
            return false;
        }
        let head = self.head.load(Ordering::Relaxed);
        let asked = self.asked.load(Ordering::Relaxed);
        (head > 0 && passed(head, limits.head)) || passed(resting, if asked { limits.idle } else { limits.head })
    }

    /// Ends the connection: politely when its client may send another request, and else at once.
    fn go(&self, state: &mut State) {
        state.forget(self);
        let polite = self.is_proven() && self.head.load(Ordering::Relaxed) == 0;
        if polite {
            self.ask_to_leave();
        } else {
            self.abort();
        }
    }

    /// The connection is to end after its request under way.
    pub(crate) fn ask_to_leave(&self) {
        self.leave.notify_one();
    }

    fn abort(&self) {
        if let Some(task) = self.task.get() {
            task.abort();
        }
    }
}

impl std::ops::Deref for Taken {
    type Target = Arc<Place>;

    fn deref(&self) -> &Arc<Place> {
        &self.0
    }
}

impl std::ops::Deref for UnderWay {
    type Target = Arc<Place>;

    fn deref(&self) -> &Arc<Place> {
        &self.0
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.places.state().forget(&self.0);
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let place = &self.0;
        place.resting.store(place.places.now(), Ordering::Relaxed);
        place.watching.store(false, Ordering::Relaxed);
        place.under_way.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The owner of an address: a client with one IPv6 address has 2^64 of them.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) if !address.is_loopback() => {
            let prefix = u128::from(address) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of a connection.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Does {
        /// Its TLS handshake.
        Greets,
        /// Nothing; the client is unknown.
        Rests,
        /// The client is unknown and has a request under way.
        Asks,
        /// Nothing; the client is known.
        RestsKnown,
        AsksKnown,
    }
    use Does::{Asks, AsksKnown, Greets, Rests, RestsKnown};

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    /// A connection, its request under way, and its task.
    type Open = (Taken, Option<UnderWay>, tokio::task::JoinHandle<()>);

    fn open(places: &Arc<Places>, from: IpAddr, does: Does) -> Result<Open, Full> {
        let taken = places.take(from)?;
        let task = tokio::spawn(std::future::pending());
        taken.runs_as(task.abort_handle());
        if does != Greets {
            taken.is_secure();
        }
        if matches!(does, RestsKnown | AsksKnown) {
            // Each is another user's.
            taken.prove(&format!("user-{}", taken.id())).expect("a share");
        }
        let asking = matches!(does, Asks | AsksKnown).then(|| taken.begin());
        Ok((taken, asking, task))
    }

    fn is_open(place: &Place) -> bool {
        place.places.state().open.contains_key(&place.id)
    }

    /// Which of these connections, which came one after another, go when another one comes from an address.
    async fn check(bounds: &Bounds, there: &[(IpAddr, Does)], from: IpAddr, expected: Result<&[usize], Full>) {
        let places = Places::new(bounds.clone(), Limits::default());
        let mut opened = Vec::new();
        for (from, does) in there {
            opened.push(open(&places, *from, *does).unwrap_or_else(|full| panic!("{there:?}: {full}")));
            tokio::time::advance(Duration::from_millis(5)).await;
        }
        let came = places.take(from).map(|_| {
            let gone = opened.iter().enumerate().filter(|(_, (taken, ..))| !is_open(taken));
            gone.map(|(at, _)| at).collect::<Vec<_>>()
        });
        assert_eq!(came, expected.map(<[usize]>::to_vec), "{there:?} and {from}");
        drop(opened);
        let state = places.state();
        assert_eq!(
            (state.open.len(), state.unproven, state.addresses.len()),
            (0, 0, 0),
            "{there:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_closed_in_order_for_a_new_client() {
        let there = |does: &[Does]| does.iter().map(|does| (HERE, *does)).collect::<Vec<_>>();
        let bounds = Bounds {
            all: 4,
            unproven: 3,
            each_remote: 2,
            local: 5,
        };
        let roomy = Bounds {
            unproven: 4,
            ..bounds.clone()
        };
        check(&bounds, &there(&[Rests, Rests]), HERE, Ok(&[])).await;
        // Of unknown clients the longest silent one, and those that do nothing before those with a request.
        check(&bounds, &there(&[Rests, Greets, Rests]), HERE, Ok(&[0])).await;
        check(&bounds, &there(&[Asks, Greets, Rests]), HERE, Ok(&[1])).await;
        check(&bounds, &there(&[Asks, Asks, Asks]), HERE, Ok(&[0])).await;
        // A known one goes when there is no unknown one, and never while it asks.
        check(
            &bounds,
            &there(&[RestsKnown, RestsKnown, RestsKnown, Rests]),
            HERE,
            Ok(&[3]),
        )
        .await;
        check(
            &bounds,
            &there(&[AsksKnown, RestsKnown, RestsKnown, AsksKnown]),
            HERE,
            Ok(&[1]),
        )
        .await;
        check(
            &bounds,
            &there(&[AsksKnown, AsksKnown, AsksKnown, Asks]),
            HERE,
            Ok(&[3]),
        )
        .await;
        check(&bounds, &there(&[AsksKnown; 4]), HERE, Err(Full::All)).await;
        // The shares of an address.
        let (one, other) = (address("10.0.0.1"), address("10.0.0.2"));
        check(
            &roomy,
            &[(one, RestsKnown), (one, Rests), (other, Rests)],
            one,
            Ok(&[1]),
        )
        .await;
        check(&roomy, &[(one, AsksKnown), (one, AsksKnown)], one, Err(Full::Address)).await;
        check(&roomy, &[(one, AsksKnown), (one, AsksKnown)], other, Ok(&[])).await;
        check(
            &roomy,
            &[(one, AsksKnown), (one, AsksKnown)],
            address("::ffff:10.0.0.1"),
            Err(Full::Address),
        )
        .await;
        let (near, far) = (address("2001:db8::1"), address("2001:db8:0:1::1"));
        check(
            &roomy,
            &[(near, AsksKnown), (near, AsksKnown)],
            address("2001:db8::2"),
            Err(Full::Address),
        )
        .await;
        check(&roomy, &[(near, AsksKnown), (near, AsksKnown)], far, Ok(&[])).await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_crowd_of_unknown_clients_leaves_room() {
        let places = Places::new(Bounds::of(400), Limits::default());
        let mut crowd = Vec::new();
        for _ in 0..2000 {
            crowd.push(open(&places, HERE, Rests).unwrap_or_else(|full| panic!("{full}")));
            assert!(places.state().unproven <= 100);
        }
        // The newest connection is not the one that goes.
        let last = &crowd.last().expect("a crowd").0;
        assert!(is_open(last));
    }

    /// When a connection ends that does this, in seconds, looked at once a second; `None`: not within ten minutes.
    async fn check_end(what: &str, does: impl AsyncFnOnce(&Taken), expected: Option<u64>) {
        let places = Places::new(Bounds::of(10), Limits::default());
        let started = Instant::now();
        let (taken, _, _task) = open(&places, HERE, Greets).unwrap_or_else(|full| panic!("{full}"));
        does(&taken).await;
        while is_open(&taken) && started.elapsed() < Duration::from_secs(600) {
            tokio::time::advance(Duration::from_secs(1)).await;
            places.sweep();
        }
        let ended = (!is_open(&taken)).then(|| started.elapsed().as_secs());
        assert_eq!(ended, expected, "{what}");
    }

    #[tokio::test(start_paused = true)]
    async fn silence_has_an_end() {
        let wait = async |seconds: u64| tokio::time::advance(Duration::from_secs(seconds)).await;
        check_end("a handshake", async |_: &Taken| {}, Some(10)).await;
        check_end("no request", async |taken: &Taken| taken.is_secure(), Some(32)).await;
        let slow = async |taken: &Taken| {
            taken.is_secure();
            taken.heard();
            wait(20).await;
            taken.heard();
        };
        check_end("a slow first head", slow, Some(32)).await;
        let rest = async |taken: &Taken| {
            taken.is_secure();
            taken.prove("user").expect("a share");
            taken.heard();
            drop(taken.begin());
        };
        check_end("a rest after a request", rest, Some(90)).await;
        let head = async |taken: &Taken| {
            rest(taken).await;
            wait(50).await;
            taken.heard();
        };
        check_end("half a head after a rest", head, Some(82)).await;
        let next = async |taken: &Taken| {
            head(taken).await;
            wait(10).await;
            drop(taken.begin());
        };
        check_end("another request", next, Some(150)).await;
        let watch = async |taken: &Taken| {
            rest(taken).await;
            // As long as the test.
            std::mem::forget(taken.begin());
        };
        check_end("a watch", watch, None).await;
    }

    #[tokio::test(start_paused = true)]
    async fn clients_that_can_reconnect_are_asked_to_close() {
        let places = Places::new(Bounds::of(10), Limits::default());
        let (known, _, known_task) = open(&places, HERE, RestsKnown).unwrap_or_else(|full| panic!("{full}"));
        let (unknown, _, unknown_task) = open(&places, HERE, Rests).unwrap_or_else(|full| panic!("{full}"));
        tokio::time::advance(Duration::from_secs(91)).await;
        places.sweep();
        known.leaves().await;
        assert!(unknown_task.await.is_err_and(|error| error.is_cancelled()));
        assert!(!known_task.is_finished());
        assert!(!is_open(&known) && !is_open(&unknown));
    }

    #[tokio::test(start_paused = true)]
    async fn all_connections_of_a_user_have_one_share() {
        let places = Places::new(Bounds::of(64), Limits::default());
        let open = |user: &str, asks: bool| {
            let taken = places.take(HERE).expect("a place");
            let proven = taken.prove(user);
            let asking = asks.then(|| taken.begin());
            proven.is_ok().then_some((taken, asking))
        };
        let busy: Vec<_> = std::iter::from_fn(|| open("a", true)).collect();
        assert_eq!(busy.len(), 32);
        let other: Vec<_> = std::iter::from_fn(|| open("b", true)).collect();
        assert_eq!(other.len(), 16);
        drop(busy);
        // Those that are silent make room for one that asks.
        let silent: Vec<_> = std::iter::from_fn(|| open("a", false)).take(100).collect();
        assert_eq!(silent.iter().filter(|(taken, _)| is_open(taken)).count(), 24);
        drop((silent, other));
        assert_eq!(places.users.held().0, 0);
    }
}
