//! The connection between the operator's processes and the API server, where requests are noted and faults strike.
//!
//! Invariants: without a fault a request reaches the server as it was sent, and its answer comes back as it was given;
//! a process that has ended sends nothing more; a fault strikes once, unless it says that it lasts. Not here: the
//! processes themselves, which the player (`play.rs`) starts and ends when this asks for it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use kubewright::kube::core::Status;
use kubewright::kube::{self, client::Body};
use serde_json::Value;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

use super::coverage::lacks;
use super::fault::{Fault, is_like};
use super::log::{Entry, Log, STRUCK, What, resource};
use super::stream;
use crate::cluster::TestCluster;
use crate::intercept::{Call, broken, call_of, refused};

mod harm;
pub(super) mod request;
mod stale;
mod traffic;

pub(super) use self::harm::{Harm, TOUCHED};
use self::request::{changed, code_of, is_write};
use self::stale::Stale;
pub(super) use self::traffic::Traffic;
use self::traffic::{Burst, Reconciles};

/// How long faults that last do so.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// An outage, and how late an event is that is held.
    pub(super) long: Duration,
    /// A slow write.
    pub(super) slow: Duration,
    /// A process that stands still.
    pub(super) pause: Duration,
    /// The events of a kind that are late.
    pub(super) late: Duration,
    /// A user who does not wait makes the next step.
    pub(super) hurry: Duration,
}

impl Pace {
    /// In virtual time, where minutes cost nothing.
    pub(super) const VIRTUAL: Pace = Pace {
        long: Duration::from_secs(60),
        slow: Duration::from_secs(30),
        pause: Duration::from_secs(20),
        late: Duration::from_secs(3),
        hurry: Duration::from_millis(1),
    };
    /// In the machine's time: long enough for an operator to act meanwhile.
    pub(super) const REAL: Pace = Pace {
        long: Duration::from_secs(3),
        slow: Duration::from_millis(1500),
        pause: Duration::from_secs(4),
        late: Duration::from_millis(500),
        hurry: Duration::from_millis(100),
    };
}

/// An answer as a process gets it.
pub(super) type Answer = Response<UnsyncBoxBody<Bytes, kube::Error>>;

/// What the player is asked to do.
pub(super) enum Ask {
    /// End this process and start another one.
    Crash { process: usize },
    /// Start another process beside this one, which stands still.
    TakeOver { process: usize },
    /// This process goes on: it may end its reconcile, and no more.
    GoesOn { process: usize },
    /// End this process.
    End { process: usize },
    /// Make the user's next step.
    NextStep,
}

pub(super) struct Seam {
    pub(super) fault: Option<Fault>,
    pub(super) pace: Pace,
    /// Kinds of requests that come all the time.
    noise: BTreeSet<String>,
    asks: UnboundedSender<Ask>,
    begin: Instant,
    /// For the intruder, and for the newest revision.
    cluster: TestCluster,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    log: Log,
    step: usize,
    attempts: usize,
    /// How many events of each resource were delivered.
    heard: BTreeMap<String, usize>,
    /// The writes with which faults that last began, until when they do, and with which code and reason.
    lasting: Vec<(Call, Instant, (u16, &'static str))>,
    /// The events of a kind are late already.
    is_late: bool,
    /// When the fault struck first.
    struck: Option<Duration>,
    /// How many processes ended by a crash loop, and the writes of the present one.
    crashes: usize,
    since_start: usize,
    dead: Vec<usize>,
    /// The process that ends with its reconcile.
    ending: Option<usize>,
    /// The process that stands still, and until when: nothing reaches it or leaves it meanwhile.
    paused: Option<(usize, Instant)>,
    /// How many writes of Leases were carried out.
    renewals: u64,
    stale: Option<Stale>,
    traffic: Traffic,
    burst: Burst,
    reconciles: Reconciles,
    harm: Harm,
}

impl Seam {
    pub(super) fn new(
        fault: Option<Fault>,
        pace: Pace,
        noise: BTreeSet<String>,
        cluster: TestCluster,
        asks: UnboundedSender<Ask>,
    ) -> Arc<Seam> {
        Arc::new(Seam {
            fault,
            pace,
            noise,
            asks,
            begin: Instant::now(),
            cluster,
            state: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client of a process.
    pub(super) fn client(self: &Arc<Seam>, process: usize, kube: &kube::Client) -> kube::Client {
        self.begins();
        let (seam, kube) = (self.clone(), kube.clone());
        let namespace = kube.default_namespace().to_owned();
        let service = tower::service_fn(move |request: Request<Body>| {
            let (seam, kube) = (seam.clone(), kube.clone());
            async move { seam.answer(process, &kube, request).await }
        });
        kube::Client::new(service, namespace)
    }

    /// The process sends nothing more.
    pub(super) fn end(&self, process: usize) {
        self.state().dead.push(process);
    }

    /// A reconcile of this process ended.
    pub(super) fn finished(&self, process: usize) {
        let ends = {
            let mut state = self.state();
            let ends = state.ending == Some(process);
            if ends {
                state.ending = None;
                state.dead.push(process);
            }
            ends
        };
        if ends {
            self.ask_end(process);
        }
    }

    /// Has a process ended.
    pub(super) fn ask_end(&self, process: usize) {
        // Without a player the run is over.
        let _ = self.asks.send(Ask::End { process });
    }

    /// The run goes on where the undisturbed one was after a step, with so many writes and events.
    pub(super) fn goes_on(&self, step: usize, attempts: usize, heard: BTreeMap<String, usize>) {
        let mut state = self.state();
        state.step = step;
        state.attempts = attempts;
        state.heard = heard;
    }

    /// The user's next step begins; answers its number.
    pub(super) fn next_step(&self, what: &str) -> usize {
        let step = {
            let mut state = self.state();
            state.step += 1;
            state.step
        };
        self.tell(0, format!("step {step}: {what}"));
        step
    }

    /// The user leaves out the steps before this one.
    pub(super) fn skip_to(&self, step: usize) {
        self.state().step = step;
    }

    /// Notes a line for people.
    pub(super) fn tell(&self, process: usize, text: String) {
        self.note(process, Call::default(), What::Told(text));
    }

    /// Notes the begin or the end of a reconcile.
    pub(super) fn reconcile(&self, process: usize, what: What) {
        if let What::Reconcile { begins, text } = &what {
            self.state().reconciles.counts(process, *begins);
            if *begins {
                let of = text.split(": ").next().unwrap_or_default().to_owned();
                self.floods(process, of);
            }
        }
        self.note(process, Call::default(), what);
    }

    fn note(&self, process: usize, call: Call, what: What) {
        let at = self.begin.elapsed();
        let mut state = self.state();
        let step = state.step;
        state.log.entries.push(Entry {
            at,
            step,
            process,
            what,
            call,
            ..Entry::default()
        });
    }

    /// The faults of this run.
    pub(super) fn faults(&self) -> &[Fault] {
        self.fault.as_ref().map_or(&[], Fault::parts)
    }

    /// A fault strikes, now.
    pub(super) fn strike(&self, process: usize, fault: &Fault) {
        let at = self.begin.elapsed();
        self.state().struck.get_or_insert(at);
        self.tell(process, format!("{STRUCK}{} ({fault})", fault.told(&self.pace)));
    }

    /// Looks at what happened so far.
    pub(super) fn look<T>(&self, look: impl FnOnce(&Log) -> T) -> T {
        look(&self.state().log)
    }

    /// How long after the beginning of the run this was.
    pub(super) fn since(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.begin)
    }

    /// When the fault struck.
    pub(super) fn struck(&self) -> Option<Duration> {
        self.state().struck
    }

    /// The operator's writes that changed something, behind so many entries.
    pub(super) fn effective_writes(&self, from: usize) -> Vec<String> {
        self.look(|log| {
            let writes = log.entries[from..].iter().filter(|entry| entry.is_effective());
            writes.map(Entry::plain).collect()
        })
    }

    /// The end of the run: what happened, and when the fault struck.
    pub(super) fn ends(&self) -> (Log, Option<Duration>) {
        let mut state = self.state();
        (std::mem::take(&mut state.log), state.struck)
    }

    /// Answers a request of a process.
    pub(super) async fn answer(
        self: Arc<Seam>,
        process: usize,
        kube: &kube::Client,
        request: Request<Body>,
    ) -> Result<Answer, kube::Error> {
        self.stands_still(process).await;
        if self.state().dead.contains(&process) {
            return std::future::pending().await;
        }
        let call = call_of(&request);
        let (request, is_lock) = self.looks_for_lock(request, &call).await?;
        let agent = request.headers().get(http::header::USER_AGENT);
        let _under_way = self.comes(&call, is_lock, agent.and_then(|agent| agent.to_str().ok()));
        let answered = match call.verb.as_str() {
            "watch" => self.clone().watch(process, kube, request, call).await,
            "list" => kube.send(self.aged(request, &call)?).await.map(boxed),
            _ if is_write(&request) && !is_lock => self.clone().write(process, kube, request, call).await,
            _ => {
                let answer = kube.send(request).await;
                let renews = is_lock && call.verb != "get";
                if renews && answer.as_ref().is_ok_and(|answer| answer.status().is_success()) {
                    self.state().renewals += 1;
                }
                answer.map(boxed)
            }
        };
        self.stands_still(process).await;
        if self.state().dead.contains(&process) {
            return std::future::pending().await;
        }
        answered
    }

    async fn watch(
        self: Arc<Seam>,
        process: usize,
        kube: &kube::Client,
        request: Request<Body>,
        call: Call,
    ) -> Result<Answer, kube::Error> {
        let is_initial = request
            .uri()
            .query()
            .is_some_and(|query| query.contains("sendInitialEvents=true"));
        let opens = match self.stale(&call) {
            // The past cannot be watched from its beginning; the client lists instead.
            Some(_) if is_initial => {
                let status = Status::failure("sendInitialEvents is forbidden", "Invalid").with_code(422);
                return refused(&status).map(boxed);
            }
            Some(stale) => Some(stale.until),
            None => None,
        };
        let answer = kube.send(request).await?;
        if !answer.status().is_success() {
            return Ok(boxed(answer));
        }
        let of = resource(&call);
        self.state().traffic.watched.insert(of);
        let (parts, body) = answer.into_parts();
        let delivered = stream::Delivery {
            seam: self,
            process,
            call,
            is_initial,
            opens,
        };
        Ok(Response::from_parts(parts, delivered.of(body)))
    }

    /// Counts an event, notes it, and answers what becomes of it.
    pub(super) fn deliver(&self, process: usize, call: &Call, event: What, name: (String, String)) -> Option<&Fault> {
        let call = Call {
            namespace: name.0,
            name: name.1,
            ..call.clone()
        };
        if self.is_lock(&call) {
            return None;
        }
        let of = resource(&call);
        let number = {
            let mut state = self.state();
            let count = state.heard.entry(of.clone()).or_default();
            *count += 1;
            *count
        };
        let strikes = |fault: &&Fault| match fault {
            Fault::Held { resource, event } | Fault::Missed { resource, event } | Fault::Cut { resource, event } => {
                *resource == of && *event == number
            }
            Fault::Late { resource } => *resource == of,
            _ => false,
        };
        let struck = self.faults().iter().find(strikes);
        if let Some(fault) = struck {
            let lasts = matches!(fault, Fault::Late { .. });
            let is_first = !lasts || !std::mem::replace(&mut self.state().is_late, true);
            if is_first {
                self.strike(process, fault);
            }
        }
        if !matches!(struck, Some(Fault::Missed { .. })) {
            self.note(process, call, event);
        }
        struck
    }

    async fn write(
        self: Arc<Seam>,
        process: usize,
        kube: &kube::Client,
        request: Request<Body>,
        mut call: Call,
    ) -> Result<Answer, kube::Error> {
        let number = {
            let mut state = self.state();
            state.attempts += 1;
            state.since_start += 1;
            state.attempts
        };
        let (parts, body) = request.into_parts();
        let sent = body.collect().await?.to_bytes();
        let lacks = {
            let sent: Value = serde_json::from_slice(&sent).unwrap_or_default();
            if call.name.is_empty() {
                // A create names its object in the body, or not at all.
                call.name = sent["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            }
            lacks(&call.verb, &sent)
        };
        let kind = format!("{} {}", call.verb, resource(&call));
        self.wait_for_the_next_second(&kind).await;
        if self.floods(process, kind) {
            return std::future::pending().await;
        }
        let note = |code: Option<u16>, effective: bool, call: &Call| {
            let what = What::Write {
                code,
                effective,
                revision: None,
                lacks,
            };
            self.note(process, call.clone(), what);
            let is_refused = code.is_none_or(|code| code >= 500 || code == 429 || code == 403);
            self.comes_to(process, call, is_refused && !effective);
        };
        let strikes = self.faults().iter().find(|fault| fault.write() == Some(number));
        let strike = || strikes.iter().for_each(|fault| self.strike(process, fault));
        match strikes {
            Some(Fault::CrashBefore(_)) => {
                strike();
                note(None, false, &call);
                return self.crash(process).await;
            }
            Some(Fault::Refused(_)) => {
                strike();
                note(Some(500), false, &call);
                return refused(&Status::failure("the server is not well", "InternalError").with_code(500)).map(boxed);
            }
            Some(Fault::Unsent(_)) => {
                strike();
                note(None, false, &call);
                return Err(broken(ErrorKind::ConnectionReset));
            }
            Some(Fault::Slow(_)) => {
                strike();
                tokio::time::sleep(self.pace.slow).await;
            }
            Some(Fault::Overtaken(_)) => {
                strike();
                let _ = self.asks.send(Ask::NextStep);
                tokio::time::sleep(self.pace.slow).await;
            }
            Some(Fault::Touched(_)) => {
                strike();
                self.touch(parts.uri.path(), &call).await;
            }
            Some(fault @ (Fault::Outage(_) | Fault::Timeouts(_) | Fault::Throttled(_) | Fault::Forbidden(_))) => {
                strike();
                let until = Instant::now() + self.pace.long;
                self.due(until);
                self.state().lasting.push((call.clone(), until, code_of(fault)));
            }
            _ => {}
        }
        if let Some((code, reason)) = self.is_out(&call) {
            note(Some(code), false, &call);
            let mut answer =
                refused(&Status::failure("for some time this is refused", reason).with_code(code)).map(boxed)?;
            if code == 429 {
                let wait = http::HeaderValue::from_static("1");
                answer.headers_mut().insert(http::header::RETRY_AFTER, wait);
            }
            return Ok(answer);
        }
        self.notes_claim_in_use(&call);
        let request = Request::from_parts(parts, Body::from(sent.to_vec()));
        let before = self.cluster.cluster().api().resource_version();
        let answer = kube.send(request).await?;
        let (parts, body) = answer.into_parts();
        let body = body.collect().await?.to_bytes();
        let shown: Value = serde_json::from_slice(&body).unwrap_or_default();
        let effective = parts.status.is_success() && changed(&shown, before);
        if call.name.is_empty() {
            call.name = shown["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        }
        if effective && matches!(strikes, Some(Fault::Touched(_))) {
            self.notes_lost_change(&call, &shown);
        }
        let is_answered = !matches!(strikes, Some(Fault::CrashAfter(_) | Fault::Unanswered(_)));
        note(is_answered.then_some(parts.status.as_u16()), effective, &call);
        match strikes {
            Some(Fault::CrashAfter(_)) => {
                strike();
                return self.crash(process).await;
            }
            Some(Fault::Unanswered(_)) => {
                strike();
                return Err(broken(ErrorKind::ConnectionReset));
            }
            Some(Fault::Paused(_)) => {
                strike();
                self.state().paused = Some((process, Instant::now() + self.pace.pause));
                let _ = self.asks.send(Ask::TakeOver { process });
                tokio::time::sleep(self.pace.pause).await;
                self.tell(process, "the process goes on".to_owned());
                self.state().ending = Some(process);
                let _ = self.asks.send(Ask::GoesOn { process });
            }
            Some(Fault::NextStep(_) | Fault::DeleteEarly(_)) => {
                strike();
                let _ = self.asks.send(Ask::NextStep);
                // The answer comes when the step is made: the operator would else be done before.
                tokio::time::sleep(self.pace.hurry).await;
            }
            _ => {}
        }
        if self.crashes_again(number) {
            let loops = self.faults().iter().find(|fault| matches!(fault, Fault::CrashLoop(_)));
            loops.into_iter().for_each(|fault| self.strike(process, fault));
            return self.crash(process).await;
        }
        Ok(boxed(Response::from_parts(parts, Body::from(body.to_vec()))))
    }

    async fn crash(&self, process: usize) -> Result<Answer, kube::Error> {
        self.state().dead.push(process);
        let _ = self.asks.send(Ask::Crash { process });
        std::future::pending().await
    }

    /// Code and reason of the refusal, while a fault that lasts strikes such a write.
    fn is_out(&self, call: &Call) -> Option<(u16, &'static str)> {
        let state = self.state();
        let found = state
            .lasting
            .iter()
            .find(|(first, until, _)| Instant::now() < *until && is_like(call, first));
        found.map(|(.., code)| *code)
    }
}

fn boxed(answer: Response<Body>) -> Answer {
    answer.map(Body::boxed_unsync)
}
