//! Threads that serve connections, each with a runtime of its own.
//!
//! A runtime that shares its tasks between threads wakes a second thread whenever the first has found work, which costs
//! more than most requests do. Here a connection stays on the thread that it was given to; where there are many, they
//! spread.
//!
//! Invariants:
//! - a connection is served by one thread from its handshake to its end, the one that had the fewest when it came;
//! - the threads end when the last [`Threads`] is dropped, and with them the connections that they still serve.
//!
//! Not here: which connections are accepted, and their limits (see the module above).

use std::io;
use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

use super::rounds::{Accounts, Rounds};
use crate::work::STACK;

/// Where connections are served; cheap to clone. Without threads of its own that is the runtime of the caller.
#[derive(Clone, Default)]
pub struct Threads {
    threads: Arc<[Thread]>,
    /// Dropped with the last clone, which tells the threads to end.
    _running: Option<Arc<watch::Sender<()>>>,
}

struct Thread {
    runtime: Handle,
    /// As many clones as the thread has connections, and one.
    load: Arc<()>,
    rounds: Arc<Rounds>,
}

impl Threads {
    /// So many threads; 0 serves on the runtime of the caller.
    pub fn start(count: usize) -> io::Result<Threads> {
        if count == 0 {
            return Ok(Threads::default());
        }
        let (running, watched) = watch::channel(());
        let accounts = Arc::new(Accounts::default());
        let start = |_| Thread::start(watched.clone(), accounts.clone());
        let threads: io::Result<Vec<Thread>> = (0..count).map(start).collect();
        Ok(Threads {
            threads: threads?.into(),
            _running: Some(Arc::new(running)),
        })
    }

    /// Lets `serve` have a connection, on the thread with the fewest; the task is one of `connections`. `None`: the
    /// connection is lost.
    pub(crate) fn serve<F, S>(&self, stream: TcpStream, connections: &mut JoinSet<()>, serve: F) -> Option<AbortHandle>
    where
        F: FnOnce(TcpStream, Option<Arc<Rounds>>) -> S + Send + 'static,
        S: Future<Output = ()> + Send,
    {
        let Some(thread) = self.threads.iter().min_by_key(|thread| Arc::strong_count(&thread.load)) else {
            return Some(connections.spawn(async move { serve(stream, None).await }));
        };
        // The socket belongs to the runtime that accepted it until it is said otherwise.
        let socket = match stream.into_std() {
            Ok(socket) => socket,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be handed to the thread that serves it");
                return None;
            }
        };
        let (load, rounds) = (thread.load.clone(), thread.rounds.clone());
        let served = async move {
            match TcpStream::from_std(socket) {
                Ok(stream) => serve(stream, Some(rounds)).await,
                Err(error) => tracing::warn!(%error, "a thread could not take a connection"),
            }
            drop(load);
        };
        Some(connections.spawn_on(served, &thread.runtime))
    }
}

impl Thread {
    fn start(mut running: watch::Receiver<()>, accounts: Arc<Accounts>) -> io::Result<Thread> {
        let rounds = Arc::new(Rounds::new(accounts));
        let resting = rounds.clone();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .on_thread_park(move || resting.rest())
            .build()?;
        let handle = runtime.handle().clone();
        std::thread::Builder::new()
            .name("kubewright-serve".to_owned())
            .stack_size(STACK)
            .spawn(move || {
                // Nothing is ever sent: the error says that the sender is gone.
                let _ = runtime.block_on(running.changed());
                // A function that still blocks must not keep the thread.
                runtime.shutdown_background();
            })?;
        Ok(Thread {
            runtime: handle,
            load: Arc::new(()),
            rounds,
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// The answers to four clients that stay: the name of the thread that serves each.
    async fn served_by(count: usize) -> Vec<String> {
        let threads = Threads::start(count).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut connections = JoinSet::new();
        let mut clients = Vec::new();
        let mut seen = Vec::new();
        for _ in 0..4 {
            let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
            let mut client = client.unwrap();
            threads.serve(accepted.unwrap().0, &mut connections, |mut stream, _| async move {
                let thread = format!("{:?}\n", std::thread::current().id());
                stream.write_all(thread.as_bytes()).await.unwrap();
                // Until the client goes.
                let _ = stream.read_u8().await;
            });
            let mut name = String::new();
            while !name.ends_with('\n') {
                name.push(char::from(client.read_u8().await.unwrap()));
            }
            seen.push(name);
            clients.push(client);
        }
        drop(clients);
        while let Some(ended) = connections.join_next().await {
            ended.unwrap();
        }
        seen
    }

    async fn check(count: usize, spread: &[usize]) {
        let seen = served_by(count).await;
        let mut shares: Vec<usize> = seen
            .iter()
            .collect::<std::collections::BTreeSet<_>>()
            .iter()
            .map(|thread| seen.iter().filter(|other| other == thread).count())
            .collect();
        shares.sort_unstable();
        assert_eq!(shares, spread, "{count} threads: {seen:?}");
    }

    #[tokio::test]
    async fn connections_spread_over_the_threads() {
        check(0, &[4]).await;
        check(1, &[4]).await;
        check(2, &[2, 2]).await;
        check(3, &[1, 1, 2]).await;
    }

    #[tokio::test]
    async fn what_is_still_served_ends_with_the_threads() {
        let threads = Threads::start(1).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (client, accepted) = tokio::join!(TcpStream::connect(address), listener.accept());
        let mut connections = JoinSet::new();
        threads.serve(accepted.unwrap().0, &mut connections, |_stream, _| {
            std::future::pending()
        });
        drop(threads);
        let ended = connections.join_next().await.expect("one connection");
        assert!(ended.is_err_and(|error| error.is_cancelled()));
        assert_eq!(client.unwrap().read(&mut [0]).await.unwrap(), 0, "the socket is closed");
    }
}
