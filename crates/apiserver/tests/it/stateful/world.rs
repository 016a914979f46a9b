//! A server with a clock of its own, a journal in memory, and the clients' memory: tokens and open watches.
//!
//! Time passes only when a request waits for it: one that waits for a timer gets it at once, and the clock moves on.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream as _;
use http::{HeaderValue, Request, Response};
use jiff::Timestamp;
use kubewright_apiserver::env::BoxFuture;
use kubewright_apiserver::registry::Kinds;
use kubewright_apiserver::storage::journal::{Journal, Listener, Outcome, Record, Restored};
use kubewright_apiserver::storage::{MemoryStorage, StoredObject};
use kubewright_apiserver::{ApiServer, Body, Config, Env, Parts, UserInfo, WatchBody};
use kubewright_schema::decode;
use serde_json::Value;

use super::checks;
use super::generator::{self, Ask, Step};

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic is a finding, and the world ends with it.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// By moment and number.
type Timers = BTreeMap<(u64, u64), Waker>;

/// Time that passes when it is asked to, and counted entropy.
pub(crate) struct Clock {
    seed: AtomicU64,
    /// Milliseconds since the beginning, and the waiters for each moment.
    state: Mutex<(u64, Timers)>,
}

impl Clock {
    fn advance(&self, milliseconds: u64) {
        let mut state = locked(&self.state);
        state.0 = state.0.saturating_add(milliseconds);
        let now = state.0;
        let later = state.1.split_off(&(now + 1, 0));
        for waker in std::mem::replace(&mut state.1, later).into_values() {
            waker.wake();
        }
    }

    /// Lets the next timer fire; `false` when there is none.
    fn leap(&self) -> bool {
        let next = locked(&self.state).1.first_key_value().map(|((at, _), _)| *at);
        let Some(at) = next else { return false };
        let now = locked(&self.state).0;
        self.advance(at.saturating_sub(now));
        true
    }
}

struct Shared(Arc<Clock>);

impl Env for Shared {
    fn now(&self) -> Timestamp {
        let milliseconds = i64::try_from(locked(&self.0.state).0).unwrap_or(i64::MAX);
        let start = 1_790_000_000_000_i64;
        Timestamp::from_millisecond(start.saturating_add(milliseconds)).unwrap_or(Timestamp::MAX)
    }

    fn random(&self) -> u64 {
        let mut x = self.0.seed.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let clock = self.0.clone();
        let wait = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 4);
        let until = locked(&clock.state).0.saturating_add(wait);
        let id = clock.seed.fetch_add(1, Ordering::Relaxed);
        Box::pin(std::future::poll_fn(move |cx| {
            let mut state = locked(&clock.state);
            if state.0 >= until {
                return Poll::Ready(());
            }
            state.1.insert((until, id), cx.waker().clone());
            Poll::Pending
        }))
    }
}

/// The records that were written, as a disk would have them.
#[derive(Default)]
pub(crate) struct Memory {
    listener: Mutex<Option<Listener>>,
    state: Mutex<Written>,
}

/// Store and key of every object, with its revision and its text.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Written {
    pub(crate) revision: u64,
    told: u64,
    pub(crate) objects: BTreeMap<(String, String), (u64, Bytes)>,
}

impl Journal for Memory {
    fn start(&self, listener: Listener) {
        *locked(&self.listener) = Some(listener);
    }

    fn append(&self, record: Record) {
        let mut state = locked(&self.state);
        let key = (record.store.to_string(), record.change.key.to_string());
        state.revision = record.change.revision;
        if record.change.deleted {
            state.objects.remove(&key);
        } else {
            let after = &record.change.after;
            state.objects.insert(key, (after.revision(), after.encoded().clone()));
        }
    }
}

impl Memory {
    /// Says that everything is safe; `false` when that was said before.
    fn flush(&self) -> bool {
        let mut state = locked(&self.state);
        if state.told == state.revision {
            return false;
        }
        state.told = state.revision;
        let revision = state.revision;
        drop(state);
        if let Some(listener) = &*locked(&self.listener) {
            listener(Outcome::Durable(revision));
        }
        true
    }
}

/// An answer that is complete; the beginning of a watch has no body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) content_type: String,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        // It may nest deeper than serde_json reads.
        decode::json(&self.body)
            .map(|decoded| decoded.value)
            .unwrap_or_default()
    }

    pub(crate) fn shown(&self) -> String {
        let text: String = String::from_utf8_lossy(&self.body).chars().take(600).collect();
        format!("{} {} {text}", self.code, self.content_type)
    }
}

/// The world of one sequence.
pub(crate) struct World {
    pub(crate) server: ApiServer,
    clock: Arc<Clock>,
    journal: Arc<Memory>,
    watches: Vec<(String, WatchBody)>,
    latest_continue: String,
    /// Answers that refuse because a request takes too much work, and all that refuse.
    pub(crate) exhausted: u64,
    pub(crate) refused: u64,
    /// How many answers of which code, by method or by kind of patch.
    pub(crate) answers: BTreeMap<(&'static str, u16), u64>,
}

/// More than this many stay open only until the next one.
const WATCHES: usize = 8;

impl World {
    pub(crate) fn new() -> World {
        let clock = Arc::new(Clock {
            seed: AtomicU64::new(1),
            state: Mutex::default(),
        });
        let journal = Arc::new(Memory::default());
        let server = begin(&clock, &journal, &Written::default());
        journal.flush();
        World {
            server,
            clock,
            journal,
            watches: Vec::new(),
            latest_continue: String::new(),
            exhausted: 0,
            refused: 0,
            answers: BTreeMap::new(),
        }
    }

    /// The records that a disk would hold now.
    pub(crate) fn written(&self) -> Written {
        locked(&self.journal.state).clone()
    }

    /// Ends the server, and begins one with the records of its journal.
    pub(crate) fn restart(&mut self) {
        self.watches.clear();
        let written = self.written();
        self.journal = Arc::new(Memory::default());
        *locked(&self.journal.state) = written.clone();
        self.server = begin(&self.clock, &self.journal, &written);
        self.journal.flush();
    }

    /// Does a step and checks the answer.
    pub(crate) fn take(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Wait(seconds) => self.clock.advance(seconds * 1000),
            Step::Restart => self.restart(),
            Step::Ask(ask) => {
                let ask = self.resolved(ask);
                self.play(&ask)?;
            }
            Step::Edit {
                path,
                subresource,
                seed,
            } => {
                let present = self.get(path, "application/json")?.json();
                self.play(&generator::edited(path, subresource, *seed, &present))?;
            }
        }
        self.drain()
    }

    fn play(&mut self, ask: &Ask) -> Result<(), String> {
        let answer = self.ask(ask)?;
        checks::answer(ask, &answer).map_err(|problem| format!("{problem}\nto {:?}", Step::Ask(ask.clone())))?;
        self.remember(ask, &answer);
        Ok(())
    }

    fn remember(&mut self, ask: &Ask, answer: &Answer) {
        let kind = ask.content_type.strip_prefix("application/").unwrap_or("");
        let how = if ask.method == "PATCH" { kind } else { ask.method };
        *self.answers.entry((how, answer.code)).or_default() += 1;
        if answer.code >= 400 {
            self.refused += 1;
            let text = String::from_utf8_lossy(&answer.body);
            self.exhausted += u64::from(text.contains("more work than") || text.contains("makes more out of"));
        }
        if let Some(token) = answer.json()["metadata"]["continue"].as_str() {
            self.latest_continue = token.to_owned();
        }
    }

    /// Puts values that are known now in the places that were unknown when the sequence was made.
    fn resolved(&mut self, ask: &Ask) -> Ask {
        let mut ask = ask.clone();
        let has = |text: &[u8]| {
            [&b"@RV@"[..], b"@UID@"]
                .iter()
                .any(|word| text.windows(word.len()).any(|w| w == *word))
        };
        if has(&ask.body) || has(ask.path.as_bytes()) {
            let path = ask.path.split('?').next().unwrap_or_default();
            let present = self.get(path, "application/json").map(|answer| answer.json());
            let present = present.unwrap_or_default();
            let version = present["metadata"]["resourceVersion"].as_str().unwrap_or("1");
            let uid = present["metadata"]["uid"].as_str().unwrap_or("u");
            ask.path = ask.path.replace("@RV@", version);
            if let Ok(text) = std::str::from_utf8(&ask.body) {
                ask.body = text.replace("@RV@", version).replace("@UID@", uid).into_bytes();
            }
        }
        ask.path = ask.path.replace("@CONTINUE@", &self.latest_continue);
        ask
    }

    pub(crate) fn get(&mut self, path: &str, accept: &'static str) -> Result<Answer, String> {
        self.ask(&Ask {
            method: "GET",
            path: path.to_owned(),
            content_type: "",
            accept,
            body: Vec::new(),
        })
    }

    pub(crate) fn send(
        &mut self,
        method: &'static str,
        path: &str,
        content_type: &'static str,
        body: &str,
    ) -> Result<Answer, String> {
        self.ask(&Ask {
            method,
            path: path.to_owned(),
            content_type,
            accept: "application/json",
            body: body.as_bytes().to_vec(),
        })
    }

    /// Asks, and lets time pass as long as the server waits for it.
    pub(crate) fn ask(&mut self, ask: &Ask) -> Result<Answer, String> {
        let mut builder = Request::builder().method(ask.method).uri(&ask.path);
        for (name, value) in [("content-type", ask.content_type), ("accept", ask.accept)] {
            if !value.is_empty() {
                builder = builder.header(name, HeaderValue::from_static(value));
            }
        }
        let Ok(request) = builder.body(Bytes::from(ask.body.clone())) else {
            // Not a request for any HTTP server.
            return Ok(Answer {
                code: 400,
                content_type: "text/plain".to_owned(),
                body: Bytes::new(),
            });
        };
        let answering = self.server.handle(request, UserInfo::admin());
        let response = run(&self.clock, &self.journal, answering)?;
        self.whole(&ask.path, response)
    }

    fn whole(&mut self, path: &str, response: Response<Body>) -> Result<Answer, String> {
        let content_type = response.headers().get("content-type");
        let content_type = content_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or("")
            .to_owned();
        let code = response.status().as_u16();
        let body = response.into_body().whole().unwrap_or_else(|body| {
            if let Body::Watch(watch) = body {
                self.watches.truncate(WATCHES);
                self.watches.push((path.to_owned(), watch));
            }
            Bytes::new()
        });
        Ok(Answer {
            code,
            content_type,
            body,
        })
    }

    /// Reads the lines of the open watches.
    fn drain(&mut self) -> Result<(), String> {
        self.journal.flush();
        let mut open = Vec::new();
        for (path, mut watch) in std::mem::take(&mut self.watches) {
            if events(&mut watch)
                .map_err(|problem| format!("the watch {path}: {problem}"))?
                .is_none()
            {
                open.push((path, watch));
            }
        }
        self.watches = open;
        Ok(())
    }

    /// The first event of a watch.
    pub(crate) fn first_event(&mut self, path: &str) -> Result<Bytes, String> {
        self.watches.clear();
        let answer = self.get(path, "application/json")?;
        let Some((_, mut watch)) = self.watches.pop() else {
            return Err(format!("no watch: {}", answer.shown()));
        };
        let mut cx = Context::from_waker(Waker::noop());
        match Pin::new(&mut watch).poll_next(&mut cx) {
            Poll::Ready(Some(event)) => Ok(event),
            Poll::Ready(None) => Err("a watch that ends at once".to_owned()),
            Poll::Pending => Err("a watch that tells nothing".to_owned()),
        }
    }
}

/// Reads all events that are there; `Some` when the watch has ended.
fn events(watch: &mut WatchBody) -> Result<Option<()>, String> {
    let mut cx = Context::from_waker(Waker::noop());
    loop {
        match Pin::new(&mut *watch).poll_next(&mut cx) {
            Poll::Pending => return Ok(None),
            Poll::Ready(None) => return Ok(Some(())),
            Poll::Ready(Some(event)) => checks::event(&event)?,
        }
    }
}

fn begin(clock: &Arc<Clock>, journal: &Arc<Memory>, written: &Written) -> ApiServer {
    let config = Config::default();
    let objects = written.objects.iter().map(|((store, key), (revision, text))| {
        let object = StoredObject::restore(*revision, text.clone()).expect("what was stored can be restored");
        (Arc::from(store.as_str()), Arc::from(key.as_str()), object)
    });
    let restored = Restored {
        revision: written.revision,
        objects: objects.collect(),
        ..Restored::default()
    };
    let kinds = Kinds::new(kubewright_kinds::built_in(Default::default()));
    let storage = MemoryStorage::journaled(config.bounds(&kinds), restored, journal.clone());
    let mut parts = Parts::new(kinds, Arc::new(Shared(clock.clone())), config);
    parts.storage = Arc::new(storage);
    ApiServer::with(parts)
}

/// Runs a future to its end: writes become safe, and timers fire, when it waits.
fn run<T>(clock: &Clock, journal: &Memory, future: impl Future<Output = T>) -> Result<T, String> {
    let mut future = std::pin::pin!(future);
    let mut cx = Context::from_waker(Waker::noop());
    for _ in 0..100_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return Ok(output);
        }
        if !journal.flush() && !clock.leap() {
            return Err("the server waits for nothing".to_owned());
        }
    }
    Err("the server waits for ever".to_owned())
}
