//! What the processes ask for: whether something is on its way to or from them, and whether they ask without pause.
//!
//! Invariant: what is under way ends, also when its request is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::super::fault::Fault;
use super::super::log::resource;
use super::Seam;
use crate::intercept::Call;

/// What the processes ask for, beside watches, and what is on its way to them: nobody can know that a process of another
/// program has nothing left to do, but that it asks for nothing can be seen.
#[derive(Default)]
pub(in super::super) struct Traffic {
    /// Requests that are not answered, and events that are held.
    under_way: usize,
    /// When there was something last.
    last: Option<Instant>,
    /// A fault that lasts ends then.
    due: Option<Instant>,
    /// The kinds of requests since they were last looked at.
    kinds: BTreeSet<String>,
    /// The resources that are watched.
    pub(in super::super) watched: BTreeSet<String>,
    /// A process holds a Lease, or wants to.
    pub(in super::super) elects: bool,
    /// ConfigMaps and Endpoints that are locks of an election, as before there were Leases: resource, namespace, name.
    pub(in super::super) locks: BTreeSet<(String, String, String)>,
    /// What the clients call themselves.
    pub(in super::super) agents: BTreeSet<String>,
}

/// Something is under way as long as this lives.
pub(in super::super) struct UnderWay(Arc<Seam>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.traffic.under_way -= 1;
        state.traffic.last = Some(Instant::now());
    }
}

/// Which reconciles run, and what failed in them.
#[derive(Default)]
pub(super) struct Reconciles {
    /// How many of each process.
    running: BTreeMap<usize, usize>,
    /// A write that failed while one ran alone, by its process.
    failed: BTreeMap<usize, Call>,
    /// The first one that was as good as forgotten.
    swallowed: Option<String>,
}

impl Reconciles {
    pub(super) fn counts(&mut self, process: usize, begins: bool) {
        let running = self.running.entry(process).or_default();
        *running = if begins {
            *running + 1
        } else {
            running.saturating_sub(1)
        };
        // Of several nobody can tell whose write it was.
        if *running != 1 || begins {
            self.failed.remove(&process);
        }
    }
}

/// The writes and reconciles of each kind within one second.
#[derive(Default)]
pub(super) struct Burst {
    begin: Option<Instant>,
    counts: BTreeMap<String, usize>,
    /// The first kind that came too often.
    flood: Option<String>,
}

impl Burst {
    const SECOND: Duration = Duration::from_secs(1);
    /// More of a kind than this in a second are a flood.
    const MANY: usize = 300;
    /// So many are enough for one that undoes and makes again.
    const SOME: usize = 10;

    /// Counts one more, and says whether these are too many.
    fn counts(&mut self, now: Instant, kind: String) -> bool {
        if self
            .begin
            .is_none_or(|begin| now.duration_since(begin) >= Burst::SECOND)
        {
            (self.begin, self.counts) = (Some(now), BTreeMap::new());
        }
        let count = self.counts.entry(kind.clone()).or_default();
        *count += 1;
        let floods = *count > Burst::MANY;
        if floods {
            self.flood.get_or_insert(kind);
        }
        floods
    }

    /// When the second ends, if as many of this kind have come in it as an operator that sees an old state needs.
    fn end_if_full(&self, kind: &str) -> Option<Instant> {
        let is_full = self.counts.get(kind).is_some_and(|count| *count >= Burst::SOME);
        self.begin.filter(|_| is_full).map(|begin| begin + Burst::SECOND)
    }
}

impl Seam {
    /// A process begins.
    pub(in super::super) fn begins(&self) {
        self.state().since_start = 0;
    }

    /// Something is under way to or from a process.
    pub(in super::super) fn under_way(self: &Arc<Seam>) -> UnderWay {
        self.state().traffic.under_way += 1;
        UnderWay(self.clone())
    }

    /// A fault that lasts ends then.
    pub(in super::super) fn due(&self, at: Instant) {
        let mut state = self.state();
        state.traffic.due = state.traffic.due.max(Some(at));
    }

    /// For how long nothing was under way and no fault has lasted; none while something does.
    pub(in super::super) fn quiet(&self) -> Option<Duration> {
        let state = self.state();
        let traffic = &state.traffic;
        let since = traffic.last.max(traffic.due).unwrap_or(self.begin);
        match traffic.under_way {
            0 => Instant::now().checked_duration_since(since),
            _ => None,
        }
    }

    /// Waits until the process goes on, if it stands still.
    pub(in super::super) async fn stands_still(&self, process: usize) {
        let paused = self.state().paused;
        if let Some((_, until)) = paused.filter(|(paused, _)| *paused == process) {
            tokio::time::sleep_until(until).await;
        }
    }

    /// How many writes of Leases were carried out so far.
    pub(in super::super) fn renewals(&self) -> u64 {
        self.state().renewals
    }

    /// Whether a crash loop ends the process after this write.
    pub(super) fn crashes_again(&self, number: usize) -> bool {
        const TIMES: usize = 3;
        let Some(Fault::CrashLoop(first)) = self.fault else {
            return false;
        };
        let mut state = self.state();
        let is_due = match state.crashes {
            0 => number == first,
            TIMES.. => false,
            // Its successors get a little further each.
            crashes => state.since_start > crashes.min(2),
        };
        state.crashes += usize::from(is_due);
        is_due
    }

    /// What is known about the requests.
    pub(in super::super) fn traffic<T>(&self, look: impl FnOnce(&Traffic) -> T) -> T {
        look(&self.state().traffic)
    }

    /// The kinds of requests since this was last asked.
    pub(in super::super) fn kinds_of_requests(&self) -> BTreeSet<String> {
        std::mem::take(&mut self.state().traffic.kinds)
    }

    /// Whether an object is a lock of an election.
    pub(super) fn is_lock(&self, call: &Call) -> bool {
        let lock = (call.resource.clone(), call.namespace.clone(), call.name.clone());
        call.resource == "leases" || self.state().traffic.locks.contains(&lock)
    }

    /// Notes a request. It is under way unless it is a watch, is about a lock of an election, or is one of those that
    /// come all the time.
    pub(super) fn comes(self: &Arc<Seam>, call: &Call, is_lock: bool, agent: Option<&str>) -> Option<UnderWay> {
        let is_under_way = {
            let mut state = self.state();
            let traffic = &mut state.traffic;
            if let Some(agent) = agent.filter(|agent| !traffic.agents.contains(*agent)) {
                traffic.agents.insert(agent.to_owned());
            }
            if is_lock {
                traffic.elects |= call.verb != "watch";
                return None;
            }
            let kind = format!("{} {} {}", call.verb, resource(call), call.subresource);
            let counts = call.verb != "watch" && !self.noise.contains(&kind);
            traffic.kinds.insert(kind);
            counts
        };
        is_under_way.then(|| self.under_way())
    }

    /// A write came to its end: it failed, or was carried out, maybe in a second try.
    pub(super) fn comes_to(&self, process: usize, call: &Call, fails: bool) {
        let mut state = self.state();
        let reconciles = &mut state.reconciles;
        if !fails {
            reconciles
                .failed
                .retain(|of, failed| *of != process || failed.resource != call.resource);
        } else if reconciles.running.get(&process) == Some(&1) {
            reconciles.failed.insert(process, call.clone());
        }
    }

    /// A reconcile of a process ended as if all were done.
    pub(in super::super) fn ended_well(&self, process: usize) {
        let mut state = self.state();
        let reconciles = &mut state.reconciles;
        if let Some(failed) = reconciles.failed.remove(&process) {
            let subresource = match failed.subresource.as_str() {
                "" => String::new(),
                subresource => format!("/{subresource}"),
            };
            let write = format!("{} {}{subresource} {}", failed.verb, resource(&failed), failed.name);
            reconciles.swallowed.get_or_insert(write);
        }
    }

    /// A write that failed, in a reconcile that ended as if all were done.
    pub(in super::super) fn swallowed(&self) -> Option<String> {
        self.state().reconciles.swallowed.clone()
    }

    /// The kind of write, or the reconcile, that came in floods.
    pub(in super::super) fn flood(&self) -> Option<String> {
        self.state().burst.flood.clone()
    }

    /// Ends a process that makes hundreds of writes of one kind, or begins hundreds of reconciles, within a second: no
    /// time passes meanwhile, and the run would never end.
    pub(super) fn floods(&self, process: usize, kind: String) -> bool {
        let floods = {
            let mut state = self.state();
            let floods = state.burst.counts(Instant::now(), kind);
            if floods {
                state.dead.push(process);
            }
            floods
        };
        if floods {
            self.ask_end(process);
        }
        floods
    }

    /// While a process sees an old state, another client may undo what it writes, and it writes it again: the garbage
    /// collector deletes the children of an owner whose deletion comes late. On a machine that goes on until the news is
    /// there. In virtual time, where a write takes none, it comes only if the writes of a second have an end.
    pub(super) async fn wait_for_the_next_second(&self, kind: &str) {
        let lags = self.faults().iter().any(|fault| {
            matches!(
                fault,
                Fault::Late { .. }
                    | Fault::Held { .. }
                    | Fault::Missed { .. }
                    | Fault::Cut { .. }
                    | Fault::Stale { .. }
                    | Fault::Past { .. }
            )
        });
        let end = self.state().burst.end_if_full(kind);
        if let Some(end) = end.filter(|_| lags) {
            tokio::time::sleep_until(end).await;
        }
    }
}
