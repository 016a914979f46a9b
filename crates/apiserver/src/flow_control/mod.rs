//! API Priority and Fairness: FlowSchemas say to which priority level a request belongs, and priority levels say how many
//! requests are answered at the same time and who waits for whom (KEP-1040).
//!
//! A request is classified when its user is known, and takes its seats when its body has come, until it is answered. While
//! it waits for something, such as a webhook, they count for its own flow only ([`Seats::pause`]).
//!
//! Invariants: an exempt request takes no lock; every seat is given back, also when a request is dropped or panics.
//!
//! Not here: what users share whichever level their requests belong to (processors, memory, watches: [`crate::shares`]).
//! A watch takes no seat: what it begins with is shared there.

mod levels;
mod settings;

use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::channel::oneshot;
use futures::future::{Either, select};
use http::{HeaderMap, HeaderName};

use self::levels::{Begun, Entered, Levels, Reason};
use self::settings::{Counts, FLOW_SCHEMAS, FlowSchema, PRIORITY_LEVELS, PriorityLevel, PriorityLevels, Settings};
use crate::Env;
use crate::authorization::Attributes;
use crate::model::user::UserInfo;
use crate::storage::{Followed, Storage};

const FLOW_SCHEMA_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-flowschema-uid");
const PRIORITY_LEVEL_UID: HeaderName = HeaderName::from_static("x-kubernetes-pf-prioritylevel-uid");

/// Tells a waiting request that it is its turn, and how many seats it has.
type SeatSender = oneshot::Sender<u64>;

/// The flow control of a server.
pub(crate) struct FlowControl {
    settings: Followed<Settings>,
    /// The seats of all levels together; none: no request waits.
    seats: u64,
    /// Gives the flows of each server other queues.
    seed: u64,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    levels: Levels<SeatSender>,
    /// The priority levels that `levels` was configured with.
    configured: Option<Arc<PriorityLevels>>,
}

/// What a request was classified as.
#[derive(Debug)]
pub(crate) struct Flow {
    schema: Arc<FlowSchema>,
    level: Arc<PriorityLevel>,
    levels: Arc<PriorityLevels>,
    hash: u64,
}

/// The seats of a request that is being answered. They are free when this is dropped.
#[derive(Default)]
pub struct Seats(Option<Taken>);

struct Taken {
    counts: Arc<Counts>,
    /// None for an exempt request.
    limited: Option<Limited>,
}

/// So many seats of a flow in a level.
struct Limited {
    state: Arc<Mutex<State>>,
    level: Arc<str>,
    flow: u64,
    seats: u64,
    /// Written only while the state is locked.
    paused: AtomicBool,
}

/// A request that waits for its turn, until this is dropped.
struct Waiting<'f> {
    state: &'f Arc<Mutex<State>>,
    schema: &'f FlowSchema,
    flow: u64,
    number: u64,
    turn: oneshot::Receiver<u64>,
}

/// Why a request is not answered.
#[derive(Debug)]
pub(crate) struct Rejected;

impl Flow {
    /// Says in the answer what the request was classified as.
    pub(crate) fn mark(&self, headers: &mut HeaderMap) {
        headers.insert(FLOW_SCHEMA_UID, self.schema.uid.clone());
        headers.insert(PRIORITY_LEVEL_UID, self.level.uid.clone());
    }

    /// Whether the request may have to wait.
    pub(crate) fn is_limited(&self) -> bool {
        self.level.limited.is_some()
    }
}

impl FlowControl {
    /// The flow control of a server whose levels have so many seats together (`--max-requests-inflight` and
    /// `--max-mutating-requests-inflight`); none: no request is classified.
    pub(crate) fn new(seats: u64, seed: u64) -> FlowControl {
        FlowControl {
            settings: Followed::new(&[FLOW_SCHEMAS, PRIORITY_LEVELS]),
            seats,
            seed,
            state: Arc::default(),
        }
    }

    /// Which flow a request belongs to.
    pub(crate) fn classify(&self, storage: &dyn Storage, user: &UserInfo, attributes: &Attributes) -> Option<Flow> {
        if self.seats == 0 {
            return None;
        }
        let settings = self.settings.now(storage);
        let (schema, level) = settings.first_match(user, attributes)?;
        let hash = match level.limited {
            None => 0,
            Some(_) => {
                let mut hasher = DefaultHasher::new();
                (self.seed, &schema.name, schema.distinguish(user, attributes)).hash(&mut hasher);
                hasher.finish()
            }
        };
        Some(Flow {
            schema: schema.clone(),
            level: level.clone(),
            levels: settings.levels.clone(),
            hash,
        })
    }

    /// Waits until the request may be answered, at most so long.
    ///
    /// # Errors
    /// It is rejected.
    pub(crate) async fn enter(
        &self,
        flow: &Flow,
        wanted: u64,
        env: &dyn Env,
        patience: Duration,
    ) -> Result<Seats, Rejected> {
        let counts = &flow.schema.counts;
        let taken = |limited| {
            Counts::add(&counts.dispatched);
            Counts::add(&counts.executing);
            Seats(Some(Taken {
                counts: counts.clone(),
                limited,
            }))
        };
        if !flow.is_limited() {
            return Ok(taken(None));
        }
        let level = &flow.schema.level;
        let limited = |seats| Limited {
            state: self.state.clone(),
            level: level.clone(),
            flow: flow.hash,
            seats,
            paused: AtomicBool::new(false),
        };
        let (tell, turn) = oneshot::channel();
        let entered = {
            let mut state = lock(&self.state);
            state.configure(&flow.levels, self.seats);
            let entered = state.levels.enter(level, flow.hash, wanted, || tell);
            if matches!(entered, Ok(Entered::Waits(_))) {
                self::tell(state.levels.dispatch());
            }
            entered
        };
        let number = match entered {
            Ok(Entered::Begins(seats)) => return Ok(taken(Some(limited(seats)))),
            Ok(Entered::Waits(number)) => number,
            Err(reason) => return Err(reject(counts, reason)),
        };
        Counts::add(&counts.waiting);
        let mut waiting = Waiting {
            state: &self.state,
            schema: &flow.schema,
            flow: flow.hash,
            number,
            turn,
        };
        let seats = match select(&mut waiting.turn, env.sleep(patience)).await {
            Either::Left((seats, _)) => seats.ok(),
            Either::Right(_) => waiting.give_up(),
        };
        match seats {
            Some(seats) => Ok(taken(Some(limited(seats)))),
            None => Err(reject(counts, Reason::TimeOut)),
        }
    }

    /// The lines of `/metrics`, under the names of upstream.
    pub(crate) fn write_metrics(&self, storage: &dyn Storage, text: &mut String) {
        if self.seats == 0 {
            return;
        }
        let settings = self.settings.now(storage);
        let schemas: Vec<&Arc<FlowSchema>> = settings
            .schemas()
            .filter(|schema| settings.levels.contains_key(&schema.level))
            .collect();
        let mut family = |name: &str, kind: &str, help: &str, rows: Vec<(String, u64)>| {
            let _ = writeln!(
                text,
                "# HELP apiserver_flowcontrol_{name} {help}\n# TYPE apiserver_flowcontrol_{name} {kind}"
            );
            for (labels, number) in rows {
                let _ = writeln!(text, "apiserver_flowcontrol_{name}{{{labels}}} {number}");
            }
        };
        let labels =
            |schema: &FlowSchema| format!("flow_schema=\"{}\",priority_level=\"{}\"", schema.name, schema.level);
        let of_schemas = |count: fn(&Counts) -> &AtomicU64| {
            let row = |schema: &&Arc<FlowSchema>| (labels(schema), count(&schema.counts).load(Ordering::Relaxed));
            schemas.iter().map(row).collect::<Vec<_>>()
        };
        family(
            "current_executing_requests",
            "gauge",
            "Requests that are being answered now.",
            of_schemas(|counts| &counts.executing),
        );
        family(
            "current_inqueue_requests",
            "gauge",
            "Requests that wait for their turn now.",
            of_schemas(|counts| &counts.waiting),
        );
        family(
            "dispatched_requests_total",
            "counter",
            "Requests that were answered, at once or after they had waited.",
            of_schemas(|counts| &counts.dispatched),
        );
        let rejected = schemas.iter().flat_map(|schema| {
            Reason::ALL.iter().filter_map(|reason| {
                let count = schema.counts.rejected[*reason as usize].load(Ordering::Relaxed);
                (count > 0).then(|| (format!("{},reason=\"{}\"", labels(schema), reason.as_str()), count))
            })
        });
        family(
            "rejected_requests_total",
            "counter",
            "Requests that were rejected.",
            rejected.collect(),
        );
        let state = {
            let mut state = lock(&self.state);
            state.configure(&settings.levels, self.seats);
            let shown = state.levels.shown();
            shown
                .map(|(name, nominal, taken, _)| (format!("priority_level=\"{name}\""), nominal, taken))
                .collect::<Vec<_>>()
        };
        let row =
            |of: fn(&(String, u64, u64)) -> u64| state.iter().map(|row| (row.0.clone(), of(row))).collect::<Vec<_>>();
        family(
            "nominal_limit_seats",
            "gauge",
            "The seats of a priority level.",
            row(|row| row.1),
        );
        family(
            "current_executing_seats",
            "gauge",
            "The seats that are taken now.",
            row(|row| row.2),
        );
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts a rejected request.
fn reject(counts: &Counts, reason: Reason) -> Rejected {
    Counts::add(&counts.rejected[reason as usize]);
    Rejected
}

/// Tells requests that have waited that they begin. The lock of the state is held, so that one that gives up either still
/// waits or has been told.
fn tell(begun: Vec<Begun<SeatSender>>) {
    for begun in begun {
        let told = begun.waker.send(begun.seats);
        debug_assert!(told.is_ok(), "who does not listen has given up before");
    }
}

impl State {
    fn configure(&mut self, levels: &Arc<PriorityLevels>, seats: u64) {
        if self
            .configured
            .as_ref()
            .is_some_and(|configured| Arc::ptr_eq(configured, levels))
        {
            return;
        }
        tell(self.levels.configure(settings::limits(levels, seats)));
        self.configured = Some(levels.clone());
    }
}

impl Waiting<'_> {
    /// Waits no longer. Returns the seats of a request that has begun meanwhile.
    fn give_up(&mut self) -> Option<u64> {
        let mut state = lock(self.state);
        let (_, begun) = state.levels.give_up(&self.schema.level, self.number);
        tell(begun);
        self.turn.try_recv().ok().flatten()
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.schema.counts.waiting.fetch_sub(1, Ordering::Relaxed);
        // None when it has begun and its seats are known, or when it has given up already.
        if let Some(seats) = self.give_up() {
            tell(lock(self.state).levels.leave(&self.schema.level, self.flow, seats));
        }
    }
}

impl Seats {
    /// The request waits for something that is not this server's work. Until it goes on, requests of other flows may begin
    /// in its place.
    pub fn pause(&self) {
        self.set_paused(true);
    }

    /// The request goes on, at once.
    pub fn resume(&self) {
        self.set_paused(false);
    }

    fn set_paused(&self, paused: bool) {
        let Some(held) = self.0.as_ref().and_then(|taken| taken.limited.as_ref()) else {
            return;
        };
        if held.paused.load(Ordering::Relaxed) == paused {
            return;
        }
        let mut state = lock(&held.state);
        if held.paused.swap(paused, Ordering::Relaxed) == paused {
            return;
        }
        if paused {
            tell(state.levels.pause(&held.level, held.flow, held.seats));
        } else {
            state.levels.resume(&held.level, held.flow, held.seats);
        }
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        self.resume();
        let Some(taken) = self.0.take() else { return };
        taken.counts.executing.fetch_sub(1, Ordering::Relaxed);
        if let Some(held) = taken.limited {
            tell(lock(&held.state).levels.leave(&held.level, held.flow, held.seats));
        }
    }
}
