//! Threads for requests that may take long, and whose turn it is on them.
//!
//! A connection is served by one thread together with many others. A request that computes for a hundred milliseconds
//! there would hold up all of them, so it is answered here, and the thread of its connection only waits for the answer.
//!
//! A turn is one poll of the request: what it computes until it waits for something. Whatever is ready to be polled
//! waits in one queue ([`turns`]), and the threads take from it one by one, so that the order is decided there and by
//! nothing else: a waker puts work into the queue and never polls it.
//!
//! Invariants:
//! - no more requests compute at the same time than there are threads, but for one of each user for whom nothing else does
//!   ([`job::OTHERS`]); one that waits for something else (a webhook, the disk) has no turn meanwhile;
//! - turns go round: first from user to user, then among the connections of a user, so that the hundred requests of one
//!   delay those of another by nothing but the time that its processors take;
//! - so many requests are inside, of a connection, of a user its share ([`Ledger`]), and in total, and no more.
//!
//! The threads have large stacks, because objects may be nested deeply. They start with the first request that needs
//! them.

mod job;
mod turns;

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use futures::FutureExt as _;
use kubewright_apiserver::shares::{Ledger, NoShare, Share};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use job::Queue;

/// The stack for objects of 500 levels, in a program that was built without optimization, several times over.
pub(crate) const STACK: usize = 16 * 1024 * 1024;

/// The most requests of a connection that are inside.
const EACH: usize = 500;
/// And of all.
const ALL: usize = 4000;

/// On whose turn a request is answered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Client {
    pub(crate) user: String,
    /// `None`: this process, which is not bounded.
    pub(crate) connection: Option<u64>,
}

/// The threads; cheap to clone.
#[derive(Clone)]
pub struct Workers {
    queue: Arc<Queue>,
    inside: Arc<Inside>,
    pool: Arc<OnceLock<Pool>>,
}

/// `None`: the system gave no threads.
struct Pool(Option<Runtime>);

impl Drop for Pool {
    fn drop(&mut self) {
        // A runtime may not wait for its threads where others are polled.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

impl Workers {
    /// So many threads, at least one.
    pub(crate) fn new(threads: usize) -> Workers {
        Workers {
            queue: Queue::new(threads.max(1)),
            inside: Inside::new(),
            pool: Arc::default(),
        }
    }

    /// One for each processor, at least two, so that one that computes for long leaves another.
    pub fn for_this_machine() -> Workers {
        Workers::new(std::thread::available_parallelism().map_or(2, |processors| processors.get().max(2)))
    }

    /// No threads: long requests are answered where they arrive. For clusters whose time is not the machine's, where a
    /// thread that computes would look like one that waits.
    pub fn none() -> Workers {
        Workers {
            pool: Arc::new(OnceLock::from(Pool(None))),
            ..Workers::new(1)
        }
    }

    /// Does the work of a client on one of the threads. Dropping the future gives it up.
    ///
    /// # Errors
    /// [`NoShare`], before anything is begun.
    pub(crate) async fn run<W>(&self, client: Client, work: Pin<Box<W>>) -> Result<W::Output, NoShare>
    where
        W: Future + Send + 'static,
        W::Output: Send + 'static,
    {
        let inside = WorkPermit::enter(&self.inside, &client)?;
        let pool = self.pool.get_or_init(|| match start(self.queue.threads) {
            Ok(runtime) => Pool(Some(runtime)),
            Err(error) => {
                tracing::error!(%error, "there are no threads for long requests; they are answered where they arrive");
                Pool(None)
            }
        });
        let Some(runtime) = &pool.0 else { return Ok(work.await) };
        let (tell, told) = oneshot::channel();
        let work = async move {
            let done = std::panic::AssertUnwindSafe(work).catch_unwind().await;
            drop(inside);
            // A caller that has given up does not want to know.
            let _ = tell.send(done);
        };
        let _given_up_with_this = self.queue.start(runtime.handle(), client, Box::pin(work));
        match told.await {
            Ok(Ok(output)) => Ok(output),
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            // The threads have ended, and the cluster with them: no caller waits for the answer.
            Err(_) => std::future::pending().await,
        }
    }
}

fn start(threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        // One more than turns: it looks at timers and sockets while all turns take long.
        .worker_threads(threads + 1)
        .thread_stack_size(STACK)
        .thread_name("kubewright-work")
        .enable_all()
        .build()
}

/// The requests that are inside.
struct Inside {
    all: Arc<Ledger>,
    /// How many each connection has.
    connections: Mutex<BTreeMap<u64, usize>>,
}

impl Inside {
    fn new() -> Arc<Inside> {
        Arc::new(Inside {
            all: Ledger::new(ALL),
            connections: Mutex::default(),
        })
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request that is inside, until this is dropped.
struct WorkPermit {
    inside: Arc<Inside>,
    connection: Option<u64>,
    _share: Share,
}

impl WorkPermit {
    fn enter(inside: &Arc<Inside>, client: &Client) -> Result<WorkPermit, NoShare> {
        let mut share = inside.all.open(&client.user);
        match client.connection {
            Some(connection) => {
                let mut connections = inside.connections();
                let count = connections.get(&connection).copied().unwrap_or(0);
                if count >= EACH {
                    return Err(inside.all.refuse(&client.user));
                }
                share.grow(1)?;
                connections.insert(connection, count + 1);
            }
            // This process is counted, and not bounded.
            None => share.set(1),
        }
        Ok(WorkPermit {
            inside: inside.clone(),
            connection: client.connection,
            _share: share,
        })
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        let Some(connection) = self.connection else { return };
        let mut connections = self.inside.connections();
        let count = connections.get(&connection).copied().unwrap_or(0);
        debug_assert!(count > 0, "it has been counted");
        if count > 1 {
            connections.insert(connection, count - 1);
        } else {
            connections.remove(&connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::task::JoinSet;

    use super::*;

    fn client(user: &str, connection: u64) -> Client {
        Client {
            user: user.to_owned(),
            connection: Some(connection),
        }
    }

    /// In which order work of these users is done on so many threads, where all of it waits before any begins.
    async fn order(threads: usize, waiting: &[(&'static str, u64)]) -> Vec<&'static str> {
        let workers = Workers::new(threads);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut all = JoinSet::new();
        let (has_begun, mut begun) = tokio::sync::mpsc::unbounded_channel();
        let gates: Vec<mpsc::Sender<()>> = (0..threads)
            .map(|thread| {
                let (open, gate) = mpsc::channel::<()>();
                let (workers, has_begun) = (workers.clone(), has_begun.clone());
                all.spawn(async move {
                    let blocks = async move {
                        let _ = has_begun.send(());
                        let _ = gate.recv();
                    };
                    workers.run(client("a", thread as u64), Box::pin(blocks)).await
                });
                open
            })
            .collect();
        for _ in 0..threads {
            begun.recv().await.expect("each thread is busy");
        }
        let mut others = JoinSet::new();
        for (user, connection) in waiting.iter().copied() {
            let order = order.clone();
            let work = async move { order.lock().expect("no panic").push(user) };
            let workers = workers.clone();
            let mut run = Box::pin(async move { workers.run(client(user, connection), Box::pin(work)).await });
            if user == "a" {
                assert!((&mut run).now_or_never().is_none(), "it has to wait");
                all.spawn(run);
            } else {
                others.spawn(run);
            }
        }
        while let Some(done) = others.join_next().await {
            assert_eq!(done.expect("no panic"), Ok(()));
        }
        drop(gates);
        while let Some(done) = all.join_next().await {
            assert_eq!(done.expect("no panic"), Ok(()));
        }
        assert_eq!(workers.inside.all.held().0, 0);
        Arc::into_inner(order)
            .expect("all is done")
            .into_inner()
            .expect("no panic")
    }

    #[tokio::test]
    async fn users_without_a_turn_wait_for_no_other() {
        for threads in [1, 2, 4] {
            // However many wait, on however many connections.
            let crowd = (0..240).map(|index| ("a", 100 + index % 60));
            let waiting: Vec<(&'static str, u64)> = crowd.chain([("b", 1), ("c", 1), ("b", 2)]).collect();
            let order = order(threads, &waiting).await;
            assert_eq!(order.len(), 243);
            let mut first = order[..3].to_vec();
            first.sort_unstable();
            assert_eq!(first, ["b", "b", "c"], "on {threads} threads");
        }
    }

    /// A user has as many turns at once as there are threads, or one beside those of others.
    #[tokio::test]
    async fn users_have_one_turn_at_least_and_no_more_than_there_are_threads() {
        let workers = Workers::new(2);
        let (begun, mut has_begun) = tokio::sync::mpsc::unbounded_channel();
        let mut gates = Vec::new();
        let mut all = JoinSet::new();
        let requests = [
            ("a", true),
            ("a", true),
            ("a", false),
            ("b", true),
            ("b", false),
            ("c", true),
        ];
        for (user, begins) in requests {
            let (open, gate) = mpsc::channel::<()>();
            gates.push(open);
            let (workers, begun) = (workers.clone(), begun.clone());
            let work = async move {
                let _ = begun.send(user);
                let _ = gate.recv();
            };
            let mut run = Box::pin(async move { workers.run(client(user, 1), Box::pin(work)).await });
            assert!((&mut run).now_or_never().is_none());
            all.spawn(run);
            if begins {
                assert_eq!(has_begun.recv().await, Some(user));
            }
        }
        assert_eq!(workers.queue.running(), 4);
        assert!(has_begun.try_recv().is_err(), "the others wait");
        drop(gates);
        while let Some(done) = all.join_next().await {
            assert_eq!(done.expect("no panic"), Ok(()));
        }
    }

    /// How much of the work is a user's that has these connections, with so many requests of each under way, beside one
    /// with others; in percent of what all do until so much is done.
    async fn part_of(first: (u64, usize), second: (u64, usize)) -> usize {
        const ALL: usize = 400;
        let workers = Workers::new(2);
        let (does, mut done) = tokio::sync::mpsc::unbounded_channel();
        let mut clients = JoinSet::new();
        for (user, (connections, requests)) in [("a", first), ("b", second)] {
            for connection in 0..connections {
                for _ in 0..requests {
                    let (workers, does) = (workers.clone(), does.clone());
                    let client = client(user, connection);
                    clients.spawn(async move {
                        loop {
                            let does = does.clone();
                            let work = async move {
                                let began = std::time::Instant::now();
                                while began.elapsed() < std::time::Duration::from_millis(1) {
                                    std::hint::spin_loop();
                                }
                                let _ = does.send(user);
                            };
                            assert_eq!(workers.run(client.clone(), Box::pin(work)).await, Ok(()));
                        }
                    });
                }
            }
        }
        let mut of_first = 0;
        for _ in 0..ALL {
            let user = done.recv().await.expect("there is always somebody");
            of_first += usize::from(user == "a");
        }
        clients.shutdown().await;
        of_first * 100 / ALL
    }

    #[tokio::test]
    async fn users_that_want_much_get_the_same() {
        for (first, second) in [
            ((1, 10), (1, 10)),
            ((100, 1), (1, 10)),
            ((1, 10), (100, 4)),
            ((50, 8), (2, 5)),
        ] {
            let part = part_of(first, second).await;
            assert!((40..=60).contains(&part), "{first:?} beside {second:?}: {part} %");
        }
    }

    /// Work of many turns: it waits for nothing, and lets others go first all the same.
    #[tokio::test]
    async fn a_request_asks_again_for_each_of_its_turns() {
        let workers = Workers::new(1);
        let (begun, has_begun) = oneshot::channel();
        let gives_way = workers.run(
            client("a", 1),
            Box::pin(async move {
                let _ = begun.send(());
                for turn in 0_u64.. {
                    tokio::task::yield_now().await;
                    if turn > 1_000_000 {
                        return false;
                    }
                }
                true
            }),
        );
        let other = async {
            has_begun.await.expect("it begins");
            workers.run(client("b", 1), Box::pin(async {})).await
        };
        tokio::select! {
            done = gives_way => panic!("it was not interrupted: {done:?}"),
            done = other => assert_eq!(done, Ok(())),
        }
        let after = workers.run(client("b", 1), Box::pin(async { 7 })).await;
        assert_eq!(after, Ok(7));
        // What was given up goes with the end of its turn.
        while workers.inside.all.held().0 > 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn work_that_is_given_up_before_its_turn_never_begins() {
        let workers = Workers::new(1);
        let (open, gate) = mpsc::channel::<()>();
        let (begun, has_begun) = oneshot::channel();
        let blocks = workers.run(
            client("a", 1),
            Box::pin(async move {
                let _ = begun.send(());
                let _ = gate.recv();
            }),
        );
        let given_up = async {
            has_begun.await.expect("it begins");
            let never = workers.run(client("a", 2), Box::pin(async { panic!("it was given up") }));
            assert!(never.now_or_never().is_none());
            drop(open);
        };
        let (blocked, ()) = tokio::join!(blocks, given_up);
        assert_eq!(blocked, Ok(()));
        assert_eq!(workers.run(client("c", 1), Box::pin(async { 7 })).await, Ok(7));
        assert_eq!(workers.inside.all.held().0, 0);
    }

    #[tokio::test]
    async fn a_panic_reaches_the_caller_and_no_other() {
        let workers = Workers::new(1);
        let panics = workers.run(client("a", 1), Box::pin(async { panic!("as it should") }));
        let caught = std::panic::AssertUnwindSafe(panics).catch_unwind().await;
        assert!(caught.is_err());
        assert_eq!(workers.run(client("a", 1), Box::pin(async { 7 })).await, Ok(7));
        assert_eq!(workers.inside.all.held().0, 0);
    }

    #[test]
    fn so_many_are_inside() {
        let inside = Inside::new();
        let enter = |user, connection| WorkPermit::enter(&inside, &client(user, connection));
        let mut entered: Vec<WorkPermit> = (0..EACH).map(|_| enter("a", 1).expect("room")).collect();
        assert!(enter("a", 1).is_err(), "a connection has its bound");
        // With any number of connections a user has no more than its share.
        entered.extend((2..100).flat_map(|connection| (0..EACH).map_while(move |_| enter("a", connection).ok())));
        assert_eq!(entered.len(), ALL / 2);
        let other: Vec<WorkPermit> = (0..EACH)
            .map(|_| enter("b", 100).expect("room for another user"))
            .collect();
        let here = Client {
            connection: None,
            ..client("a", 0)
        };
        let own = WorkPermit::enter(&inside, &here).expect("this process is not bounded");
        drop((entered, other, own));
        assert!(inside.connections().is_empty());
        assert_eq!(inside.all.held(), (0, ALL));
    }

    #[tokio::test]
    async fn what_waits_has_no_turn() {
        let workers = Workers::new(1);
        let (go, gate) = oneshot::channel::<()>();
        let waits = workers.run(client("a", 1), Box::pin(async move { gate.await.is_ok() }));
        let goes = async {
            workers.run(client("b", 2), Box::pin(async {})).await.expect("room");
            go.send(()).expect("the other one waits");
        };
        let (waited, ()) = tokio::join!(waits, goes);
        assert_eq!(waited, Ok(true));
    }

    #[tokio::test]
    async fn a_deep_recursion_has_room() {
        fn deep(levels: usize) -> usize {
            let frame = std::hint::black_box([0_u8; 16 * 1024]);
            if levels == 0 {
                usize::from(frame[0])
            } else {
                1 + deep(levels - 1)
            }
        }
        let levels = Workers::new(1).run(client("a", 1), Box::pin(async { deep(200) })).await;
        assert_eq!(levels, Ok(200));
    }
}
