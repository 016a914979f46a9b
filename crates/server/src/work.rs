//! Threads for requests that may take long, and whose turn it is on them.
//!
//! A connection is served by one thread together with many others. A request that computes for a hundred milliseconds
//! there would hold up all of them, so it is answered here, and the thread of its connection only waits for the answer.
//!
//! Invariants:
//! - no more requests compute at the same time than there are threads; one that waits for something else (a webhook,
//!   the disk) has no turn meanwhile;
//! - turns go round: first from user to user, then among the connections of a user, so that the hundred requests of one
//!   delay another's one by a single turn;
//! - so many requests are inside, of a connection and in total, and no more ([`QueueFull`]).
//!
//! The threads have large stacks, because objects may be nested deeply. They start with the first request that needs
//! them.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, ready};

use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

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

/// Too many requests are inside.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QueueFull;

/// The threads; cheap to clone.
#[derive(Clone)]
pub struct Workers {
    queue: Arc<FairQueue>,
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
            queue: Arc::new(FairQueue::new(threads.max(1))),
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
            queue: Arc::new(FairQueue::new(1)),
            pool: Arc::new(OnceLock::from(Pool(None))),
        }
    }

    /// Does the work of a client on one of the threads. Dropping the future gives it up.
    ///
    /// # Errors
    /// [`QueueFull`], before anything is begun.
    pub(crate) async fn run<W>(&self, client: Client, work: Pin<Box<W>>) -> Result<W::Output, QueueFull>
    where
        W: Future + Send + 'static,
        W::Output: Send + 'static,
    {
        let inside = WorkPermit::enter(&self.queue, client)?;
        let pool = self.pool.get_or_init(|| match start(self.queue.threads) {
            Ok(runtime) => Pool(Some(runtime)),
            Err(error) => {
                tracing::error!(%error, "there are no threads for long requests; they are answered where they arrive");
                Pool(None)
            }
        });
        let Some(runtime) = &pool.0 else { return Ok(work.await) };
        let task = runtime.spawn(Paced {
            inside,
            waiting: None,
            work,
        });
        let mut task = GivenUp(task);
        match (&mut task.0).await {
            Ok(output) => Ok(output),
            Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
            // The threads have ended, and the cluster with them: no caller waits for the answer.
            Err(_) => std::future::pending().await,
        }
    }
}

fn start(threads: usize) -> io::Result<Runtime> {
    Builder::new_multi_thread()
        .worker_threads(threads)
        .thread_stack_size(STACK)
        .thread_name("kubewright-work")
        .enable_all()
        .build()
}

/// Ends the task when its caller does not wait for it any more.
struct GivenUp<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for GivenUp<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The order of the waiting requests.
struct FairQueue {
    threads: usize,
    state: Mutex<State>,
}

struct State {
    free: usize,
    inside: usize,
    clients: BTreeMap<Client, usize>,
    waiting: Ring<String, Ring<Option<u64>, VecDeque<oneshot::Sender<()>>>>,
}

/// Queues by name; the first one is next.
type Ring<K, Q> = VecDeque<(K, Q)>;

impl FairQueue {
    fn new(threads: usize) -> FairQueue {
        FairQueue {
            threads,
            state: Mutex::new(State {
                free: threads,
                inside: 0,
                clients: BTreeMap::new(),
                waiting: VecDeque::new(),
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A turn now, or a receiver that tells when.
    fn take(self: &Arc<FairQueue>, client: &Client) -> QueuedWork {
        let (send, receive) = oneshot::channel();
        let mut state = self.state();
        if state.free > 0 {
            state.free -= 1;
            // The receiver is in our hands.
            let _ = send.send(());
        } else {
            state.wait(client, send);
        }
        QueuedWork {
            queue: self.clone(),
            told: receive,
            has: false,
        }
    }

    /// A turn is over, and the next waiting request gets it.
    fn give_back(&self) {
        let mut state = self.state();
        while let Some(next) = state.next() {
            if next.send(()).is_ok() {
                return;
            }
        }
        state.free += 1;
    }
}

impl State {
    fn wait(&mut self, client: &Client, waiter: oneshot::Sender<()>) {
        let connections = of(&mut self.waiting, &client.user);
        of(connections, &client.connection).push_back(waiter);
    }

    /// The next waiting request. Its connection and its user move to the end of their queues.
    fn next(&mut self) -> Option<oneshot::Sender<()>> {
        let (user, mut connections) = self.waiting.pop_front()?;
        let (connection, mut waiters) = connections.pop_front()?;
        let next = waiters.pop_front();
        if !waiters.is_empty() {
            connections.push_back((connection, waiters));
        }
        if !connections.is_empty() {
            self.waiting.push_back((user, connections));
        }
        next
    }
}

/// The queue of a name, an empty one at the end when there is none.
fn of<'a, K: Clone + PartialEq, Q: Default>(ring: &'a mut Ring<K, Q>, name: &K) -> &'a mut Q {
    let at = ring.iter().position(|(known, _)| known == name).unwrap_or_else(|| {
        ring.push_back((name.clone(), Q::default()));
        ring.len() - 1
    });
    &mut ring[at].1
}

/// A turn that is waited for, or had; it is given back when this is dropped.
struct QueuedWork {
    queue: Arc<FairQueue>,
    told: oneshot::Receiver<()>,
    has: bool,
}

impl QueuedWork {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if !self.has {
            // There is no error: a request in the queue stays until it is told.
            self.has = ready!(Pin::new(&mut self.told).poll(cx)).is_ok();
        }
        Poll::Ready(())
    }
}

impl Drop for QueuedWork {
    fn drop(&mut self) {
        self.told.close();
        if self.has || self.told.try_recv().is_ok() {
            self.queue.give_back();
        }
    }
}

/// A request that is inside, until this is dropped.
struct WorkPermit {
    queue: Arc<FairQueue>,
    client: Client,
}

impl WorkPermit {
    fn enter(queue: &Arc<FairQueue>, client: Client) -> Result<WorkPermit, QueueFull> {
        let mut state = queue.state();
        let count = state.clients.get(&client).copied().unwrap_or(0);
        if client.connection.is_some() && (count >= EACH || state.inside >= ALL) {
            return Err(QueueFull);
        }
        state.inside += 1;
        state.clients.insert(client.clone(), count + 1);
        drop(state);
        Ok(WorkPermit {
            queue: queue.clone(),
            client,
        })
    }
}

impl Drop for WorkPermit {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.inside -= 1;
        if let Some(count) = state.clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                state.clients.remove(&self.client);
            }
        }
    }
}

/// Work that needs a turn whenever it computes.
struct Paced<W> {
    inside: WorkPermit,
    waiting: Option<QueuedWork>,
    work: Pin<Box<W>>,
}

impl<W: Future> Future for Paced<W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<W::Output> {
        let this = &mut *self;
        let inside = &this.inside;
        let turn = this.waiting.get_or_insert_with(|| inside.queue.take(&inside.client));
        ready!(turn.poll(cx));
        let polled = this.work.as_mut().poll(cx);
        this.waiting = None;
        polled
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

    /// The next turns, in the order in which the waiters were told.
    fn check_turns(waiting: &[(&str, u64)], expected: &[usize]) {
        let queue = Arc::new(FairQueue::new(1));
        let mut turn = queue.take(&client("busy", 0));
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(turn.poll(&mut cx).is_ready());
        let mut waiters: Vec<_> = waiting
            .iter()
            .map(|(user, connection)| Some(queue.take(&client(user, *connection))))
            .collect();
        let mut order = Vec::new();
        drop(turn);
        while order.len() < waiting.len() {
            let next = waiters
                .iter_mut()
                .position(|waiter| waiter.as_mut().is_some_and(|waiter| waiter.poll(&mut cx).is_ready()));
            let next = next.expect("somebody has the turn");
            order.push(next);
            waiters[next] = None;
        }
        assert_eq!(order, expected, "{waiting:?}");
        assert_eq!(queue.state().free, 1);
    }

    #[test]
    fn turns_go_round() {
        check_turns(&[("a", 1), ("a", 1), ("a", 1)], &[0, 1, 2]);
        check_turns(&[("a", 1), ("a", 1), ("a", 1), ("b", 2)], &[0, 3, 1, 2]);
        check_turns(&[("a", 1), ("a", 1), ("a", 2), ("a", 2)], &[0, 2, 1, 3]);
        check_turns(&[("a", 1), ("a", 2), ("a", 3), ("b", 4), ("b", 4)], &[0, 3, 1, 4, 2]);
    }

    #[test]
    fn a_cancelled_request_loses_its_turn() {
        let queue = Arc::new(FairQueue::new(1));
        let first = queue.take(&client("a", 1));
        let second = queue.take(&client("b", 2));
        let mut third = queue.take(&client("c", 3));
        drop(second);
        drop(first);
        let mut cx = Context::from_waker(std::task::Waker::noop());
        assert!(third.poll(&mut cx).is_ready());
        drop(third);
        assert_eq!(queue.state().free, 1);
    }

    #[test]
    fn so_many_are_inside() {
        let queue = Arc::new(FairQueue::new(1));
        let enter = |user, connection| WorkPermit::enter(&queue, client(user, connection));
        let inside: Vec<_> = (0..EACH).map(|_| enter("a", 1).expect("room")).collect();
        assert!(enter("a", 1).is_err());
        let other = enter("a", 2).expect("room for another connection");
        let here = Client {
            connection: None,
            ..client("a", 0)
        };
        let own = WorkPermit::enter(&queue, here).expect("this process is not bounded");
        drop((inside, other, own));
        assert!(queue.state().clients.is_empty());
        assert_eq!(queue.state().inside, 0);
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
