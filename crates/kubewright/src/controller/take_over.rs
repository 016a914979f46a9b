//! Taking over the work of another replica: all keys are looked at, on caches that show what the other one wrote.
//!
//! Caches of a replica that stands by are filled, and follow the API server with a lag; a Lease changes hands in
//! milliseconds. So workers wait, at the begin of a term and for each gained shard, until the controller's informers
//! show everything that was written before. Invariants: M8 no reconcile begins on a cache that is older than the last
//! write of the earlier holder, unless the deadline has passed, which is logged; SH7 a replica that gains a shard looks
//! at all its keys; a key of a shard whose caches have not caught up is kept, and comes back.
//!
//! Not here: how an informer finds out, see `cache/core/catch_up.rs`.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt as _;
use kubewright_engine::queue::{Merge, Priority, Work};
use tokio::time::Instant;

use super::control_loop::{LoopEvents, Prepared};
use crate::cache::{Health, SharedInformer};
use crate::cause::{Cause, CauseKind, Causes};
use crate::client::Client;
use crate::request::Request;
use crate::sharding::Generation;

/// How long workers wait for their caches. A watch that is silent for longer is broken, and its informer says so; work
/// on what it has is better than none.
const DEADLINE: Duration = Duration::from_secs(30);

impl Prepared {
    /// Waits until all informers show what was written before `since` (M8).
    pub(super) async fn catch_up(&self, since: Instant, progress: &impl LoopEvents) {
        progress.waits(Some(
            "it waits until its caches show everything that the last holder of the Lease wrote",
        ));
        let own = self.engaged.only();
        self.engaged.must_catch_up(since);
        let own = own.iter().flat_map(|own| own.of_client());
        until_fresh(&self.name, own.chain(working(&self.client)), since).await;
        progress.waits(None);
    }

    /// Another replica led until now, or none: its timers and retries went with it, so everything is looked at once. In
    /// the first term of this replica that is what the caches were filled with.
    pub(super) fn add_all(&self, is_first: bool) {
        for request in self.engaged.keys() {
            let cause = match is_first {
                true => Cause::about(CauseKind::InitialList, self.engaged.reference(&request)),
                false => Cause::requested("this replica leads again"),
            };
            self.queue.add(request, Priority::LOW, Causes::of(cause));
        }
    }

    /// Looks at every key of the gained shards, for ever: earlier changes were another replica's (SH7).
    pub(super) async fn take_over(&self, progress: &impl LoopEvents) -> Infallible {
        let Some(mut shards) = self.shards.clone() else {
            return std::future::pending().await;
        };
        let mut known = Vec::new();
        loop {
            let gained = shards.gained(&mut known).await;
            if let Some(since) = gained.since() {
                self.catch_up(since, progress).await;
            }
            for (request, causes) in self.fresh.confirm(known.clone()) {
                self.queue.add(request, Priority::NORMAL, causes);
            }
            for request in self.engaged.keys() {
                if gained.has(&request) {
                    let causes = Causes::of(Cause::requested("this replica takes over its shard"));
                    self.queue.add(request, Priority::LOW, causes);
                }
            }
        }
    }
}

/// The informers of a client whose watches work now. Others are not waited for: what was read once, or by somebody else,
/// delays nobody.
pub(crate) fn working(client: &Client) -> impl Iterator<Item = (&Client, SharedInformer)> {
    let all = client.cache().informers().into_iter();
    let working = all.filter(|informer| informer.health() == Health::Synced);
    working.map(move |informer| (client, informer))
}

/// Waits until these informers, each of a client, show what was written before `since`, or until the deadline has passed,
/// which is logged.
pub(crate) async fn until_fresh<'a>(
    who: &str,
    informers: impl Iterator<Item = (&'a Client, SharedInformer)>,
    since: Instant,
) {
    let deadline = Instant::now() + DEADLINE;
    let all = informers.map(|(client, informer)| async move {
        let page = |scope, token| client.metadata_page(&informer, scope, token).boxed();
        let caught_up = informer.caught_up(&page, since, deadline).await;
        caught_up.map_err(|why| format!("{}: {why}", informer.name()))
    });
    let all = futures::future::join_all(all).await;
    let behind: Vec<String> = all.into_iter().filter_map(Result::err).collect();
    if !behind.is_empty() {
        tracing::warn!(
            who,
            ?behind,
            "it begins after {DEADLINE:?}, although caches may be older than what the last holder of the Lease wrote"
        );
    }
}

/// The shards that may be worked on, because the caches have caught up since they were gained, and the keys that wait
/// for that.
#[derive(Default)]
pub(super) struct FreshShards(Mutex<State>);

#[derive(Default)]
struct State {
    /// By shard.
    confirmed: Vec<Option<u64>>,
    kept: BTreeMap<Request, Causes>,
}

impl FreshShards {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The work, if the caches are new enough for its shard. Otherwise it is kept.
    pub(super) fn admit(&self, shard: Generation, work: Work<Request, Causes>) -> Option<Work<Request, Causes>> {
        let mut state = self.state();
        if shard.is_in(&state.confirmed) {
            return Some(work);
        }
        let Work { item, causes, .. } = work;
        state.kept.entry(item).or_default().merge(causes);
        None
    }

    /// The caches have caught up since these shards, by their generations, were gained; answers the keys that were
    /// kept. Those that must wait on are kept again.
    fn confirm(&self, confirmed: Vec<Option<u64>>) -> BTreeMap<Request, Causes> {
        let mut state = self.state();
        state.confirmed = confirmed;
        std::mem::take(&mut state.kept)
    }
}
