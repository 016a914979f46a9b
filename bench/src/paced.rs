//! Writes that keep to a clock, on several connections.
//!
//! When each is due is fixed at the start, so that one that is late makes those behind it late as well. A thread of its
//! own says when: the runtime's timer knows milliseconds only, and would be a part of each figure.

use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinSet;

use crate::client::Connection;
use crate::servers::Server;

/// One connection sends one request after another, so one alone could not keep to the clock.
const WRITERS: usize = 10;

/// A write that is due.
#[derive(Clone, Copy)]
pub(crate) struct Due {
    /// Its number, from 0.
    pub(crate) index: usize,
    /// When it is to be sent.
    pub(crate) at: Instant,
}

/// Does `count` pieces of work, `rate` of them a second.
///
/// # Errors
/// The first error of a piece, or of a connection.
pub(crate) async fn keep<W, F>(server: &Server, rate: usize, count: usize, work: W) -> Result<(), String>
where
    W: Fn(Connection, Due) -> F + Clone + Send + 'static,
    F: Future<Output = Result<Connection, String>> + Send,
{
    let mut writers = JoinSet::new();
    let mut told = Vec::new();
    for _ in 0..WRITERS {
        let mut connection = Connection::open(server.address).await?;
        let (tell, mut due) = mpsc::unbounded_channel();
        told.push(tell);
        let work = work.clone();
        writers.spawn(async move {
            while let Some(due) = due.recv().await {
                connection = work(connection, due).await?;
            }
            Ok::<_, String>(())
        });
    }
    thread::spawn(move || clock(rate, count, &told));
    while let Some(done) = writers.join_next().await {
        done.map_err(|why| format!("a writer: {why}"))??;
    }
    Ok(())
}

fn clock(rate: usize, count: usize, writers: &[UnboundedSender<Due>]) {
    let started = Instant::now();
    for index in 0..count {
        let at = started + Duration::from_secs_f64(index as f64 / rate as f64);
        thread::sleep(at.saturating_duration_since(Instant::now()));
        if writers[index % writers.len()].send(Due { index, at }).is_err() {
            return; // it ended with an error
        }
    }
}
