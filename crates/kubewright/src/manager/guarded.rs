//! The parts that run on the leader alone: how controllers and runnables begin, and begin again.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::timeout;

use super::groups::Group;
use crate::client::Client;
use crate::controller::{Equipment, Prepared, Told, Watched};
use crate::election::Terms;
use crate::error::Result;
use crate::health::Checks;
use crate::runnable::Runnable;
use crate::stop::Stop;

/// How long a runnable may take to end when this replica leads no more; less than what lies between the renew deadline and the end of a lease.
const TERM_END: Duration = Duration::from_secs(1);

/// Counts what has begun to work, once each.
#[derive(Clone)]
pub(super) struct Started(Arc<Waiting>);

struct Waiting {
    parts: AtomicUsize,
    ready: watch::Sender<bool>,
}

impl Started {
    pub(super) fn of(parts: usize, ready: watch::Sender<bool>) -> Started {
        ready.send_replace(parts == 0);
        Started(Arc::new(Waiting {
            parts: AtomicUsize::new(parts),
            ready,
        }))
    }

    pub(super) fn one(&self) {
        if self.0.parts.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.ready.send_replace(true);
        }
    }
}

/// What a controller's loop tells: probes wait for its caches, [`Manager::ready`] for its workers.
struct Progress {
    synced: watch::Sender<bool>,
    started: Mutex<Option<Started>>,
}

impl Told for Progress {
    fn synced(&self) {
        self.synced.send_replace(true);
    }

    fn started(&self) {
        let first = self.started.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(started) = first {
            started.one();
        }
    }
}

/// Starts a controller's loop; the future answers when its caches are synced.
pub(super) fn watch_start(
    loops: &mut Group,
    controller: Prepared,
    equipment: &Equipment,
    terms: &Terms,
    checks: &Checks,
    started: Started,
) -> BoxFuture<'static, ()> {
    let name = controller.name.clone();
    let (synced, mut seen) = watch::channel(false);
    let (is_synced, sources) = (seen.clone(), Arc::new(controller.sources()));
    let all = sources.clone();
    let check = move || match *is_synced.borrow() {
        true => Ok(()),
        false => Err(unsynced(&all)),
    };
    let remark = move || sources.iter().flat_map(Watched::troubles).collect();
    checks.add_remarked("readyz", &name, Arc::new(check), Arc::new(remark));
    let progress = Progress {
        synced,
        started: Mutex::new(Some(started)),
    };
    let stop = loops.stop();
    loops.spawn(
        &format!("controller {name}"),
        controller.run(equipment.clone(), terms.clone(), stop, progress),
    );
    Box::pin(async move {
        // A controller that fails ends the manager by itself; nothing else may begin.
        if seen.wait_for(|synced| *synced).await.is_err() {
            std::future::pending::<()>().await;
        }
    })
}

/// Why a controller's sources are not synced.
fn unsynced(sources: &[Watched]) -> String {
    let mut missing: Vec<String> = sources.iter().filter_map(Watched::missing).collect();
    missing.sort();
    missing.dedup(); // several sources may share an informer
    match missing.is_empty() {
        true => "its caches are not synced".to_owned(),
        false => format!("its caches are not synced: {}", missing.join("; ")),
    }
}

/// A runnable, which runs anew in every term.
pub(super) struct Led {
    pub(super) runnable: Box<dyn Runnable>,
    pub(super) client: Client,
    pub(super) terms: Terms,
    pub(super) started: Started,
}

impl Led {
    pub(super) async fn run(mut self, stop: Stop) -> Result<()> {
        let mut first = Some(self.started.clone());
        loop {
            let term = tokio::select! {
                biased;
                () = stop.requested() => return Ok(()),
                term = self.terms.begun() => term,
            };
            let (source, token) = Stop::pair();
            let mut running = self.runnable.run(self.client.under(term.lead()), token);
            if let Some(started) = first.take() {
                started.one();
            }
            tokio::select! {
                biased;
                () = stop.requested() => {
                    source.stop();
                    return running.await;
                }
                () = term.over() => {
                    source.stop();
                    // What does not end by itself is dropped: another replica begins soon.
                    if let Ok(ended) = timeout(TERM_END, running).await {
                        ended?;
                    }
                }
                ended = &mut running => {
                    ended?;
                    tokio::select! {
                        () = stop.requested() => return Ok(()),
                        () = term.over() => {}
                    }
                }
            }
        }
    }
}
