//! Whether the events that wait for watchers become more and more: 500 watchers, 1,000 writes a second, which are
//! 500,000 events a second.
//!
//! * The writers keep to a clock: a write that is late does not move those after it, so the offered load does not
//!   depend on the server.
//! * *behind*: writes that are acknowledged, less the events that the slowest watcher has read, looked at every 20 ms.
//!   It holds everything between the two: the server's queue, sockets, and a client that shares the two cores with the
//!   server and takes a good part of them.
//! * The queue does not grow when the lag in the last second (median) is not more than twice that in the second one, or
//!   is no more than a tenth of a second's writes, and no watcher was cut off. A server that acknowledges fewer writes
//!   than are offered (but for one in twenty) has not shown that: the writers wait for their answers, so that a server
//!   that is too slow is offered less.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::Spread;
use crate::client::{Call, Connection};
use crate::load::{CONFIG_MAPS, WATCHERS, config_map, watching};
use crate::servers::Server;

const RATE: usize = 1000;
const SECONDS: usize = 10;
/// One connection sends one request after another, so one alone could not keep to the clock.
const WRITERS: usize = 10;
const WRITES: usize = RATE * SECONDS;
const LOOK: Duration = Duration::from_millis(20);

/// The observation: how far behind the slowest watcher was in each second, and how long it took to catch up after the
/// last write.
struct Seen {
    behind: Vec<f64>,
    longest: usize,
    rate: f64,
    caught_up: Duration,
}

/// Measures ours and prints.
pub(crate) async fn measure(kubewright: &Path) -> Result<(), String> {
    let folder = tempfile::tempdir().map_err(|why| format!("no temporary folder: {why}"))?;
    let server = Server::ours(kubewright, folder.path(), None).await?;
    let seen = paced(&server).await?;
    server.stop().await;
    let (early, late) = (seen.behind[1], seen.behind[SECONDS - 1]);
    let verdict = if seen.rate < RATE as f64 * 0.95 {
        "MISSED: so many writes were not reached, on this machine in this moment"
    } else if late <= (2.0 * early).max(RATE as f64 / 10.0) {
        "met"
    } else {
        "MISSED"
    };
    let seconds: Vec<String> = seen.behind.iter().map(|median| format!("{median:.0}")).collect();
    println!(
        "\n{RATE} writes a second for {SECONDS} s, {WATCHERS} watchers: {:.0} a second were acknowledged; the slowest watcher was behind by {} \
         events (median of each second), by {} at most, and had caught up {:.0} ms after the last write (does not grow) {verdict}",
        seen.rate,
        seconds.join(", "),
        seen.longest,
        seen.caught_up.as_secs_f64() * 1000.0
    );
    Ok(())
}

async fn paced(server: &Server) -> Result<Seen, String> {
    let counts: Arc<Vec<AtomicUsize>> = Arc::new((0..WATCHERS).map(|_| AtomicUsize::new(0)).collect());
    let mut watchers = JoinSet::new();
    for at in 0..WATCHERS {
        let (mut watch, counts) = (watching(server).await?, counts.clone());
        watchers.spawn(async move {
            let mut seen = Vec::new();
            while counts[at].load(Ordering::Relaxed) < WRITES {
                let lines = watch.some_lines(&mut seen).await?.ok_or("the watch ended")?;
                counts[at].fetch_add(lines, Ordering::Relaxed);
            }
            Ok::<(), String>(())
        });
    }
    let written = Arc::new(AtomicUsize::new(0));
    let mut connections = Vec::new();
    for _ in 0..WRITERS {
        connections.push(Connection::open(server.address).await?);
    }
    let mut writers = JoinSet::new();
    let started = Instant::now();
    for (writer, mut connection) in connections.into_iter().enumerate() {
        let written = written.clone();
        writers.spawn(async move {
            for index in (writer..WRITES).step_by(WRITERS) {
                let due = started + Duration::from_secs(1) * u32::try_from(index).unwrap_or(u32::MAX) / RATE as u32;
                tokio::time::sleep_until(due.into()).await;
                let body = config_map(&format!("paced-{index}"), "v");
                connection.call(&Call::post(CONFIG_MAPS, &body)).await?;
                written.fetch_add(1, Ordering::Relaxed);
            }
            Ok::<(), String>(())
        });
    }
    let slowest = || {
        counts
            .iter()
            .map(|count| count.load(Ordering::Relaxed))
            .min()
            .unwrap_or(0)
    };
    let (mut behind, mut longest) = (vec![Vec::new(); SECONDS], 0);
    let mut done = None;
    while slowest() < WRITES {
        let acknowledged = written.load(Ordering::Relaxed);
        if acknowledged == WRITES {
            done.get_or_insert_with(Instant::now);
        }
        let waiting = acknowledged.saturating_sub(slowest());
        longest = longest.max(waiting);
        if let (None, Some(second)) = (done, behind.get_mut(started.elapsed().as_secs() as usize)) {
            second.push(waiting as f64);
        }
        for tasks in [&mut writers, &mut watchers] {
            if let Some(ended) = tasks.try_join_next() {
                ended.map_err(|why| format!("a client: {why}"))??;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
    let done = done.unwrap_or_else(Instant::now);
    Ok(Seen {
        behind: behind.into_iter().map(|second| Spread::of(second).median()).collect(),
        longest,
        rate: WRITES as f64 / (done - started).as_secs_f64(),
        caught_up: done.elapsed(),
    })
}
