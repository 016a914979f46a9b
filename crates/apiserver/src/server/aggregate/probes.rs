//! Whether other API servers answer, and what they have told of themselves: their resources and the hash of their
//! OpenAPI document (`AvailableConditionController` of kube-aggregator, and its managers of discovery and OpenAPI).
//!
//! A server is asked when its APIService comes or changes, when its Service or an endpoint of that is written, and
//! otherwise twice a minute; one that does not answer is asked again soon, then more and more seldom. The shell polls
//! [`ApiServer::probe_api_services`]; without that no server is ever available.
//!
//! Invariants: a server is asked once at a time, and not twice within [`PAUSE`], whatever is written; an answer for
//! another way than the present one says nothing; what a server tells is read within bounds, and nothing of it can
//! break an answer of this one.
//!
//! Not here: how far the way there goes, and the condition ([`super::super::upkeep::availability`]).

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::StreamExt as _;
use futures::future::{Either, select};
use futures::task::AtomicWaker;
use http::{HeaderMap, HeaderValue, Method, header};
use kubewright_schema::decode;
use serde_json::Value;

use super::resources;
use super::{identify, made};
use crate::discovery::remote::RemoteResources;
use crate::env::BoxFuture;
use crate::forward::ForwardError;
use crate::model::user::{SYSTEM_MASTERS, UserInfo};
use crate::server::upkeep::api_services::Remote;
use crate::server::{ApiServer, Inner, MAX_BODY};

/// How long a server may take to answer (`discoveryClient` of upstream).
const PATIENCE: Duration = Duration::from_secs(5);
/// How long after an answer it is asked again, if nothing happens.
const AGAIN: Duration = Duration::from_secs(30);
/// How long after the first failure; each one doubles it, up to [`AGAIN`].
const SOON: Duration = Duration::from_secs(1);
/// The least time between two questions.
const PAUSE: Duration = Duration::from_millis(200);

/// What is known of other API servers.
#[derive(Default)]
pub(crate) struct Probes {
    known: Mutex<BTreeMap<Arc<str>, Known>>,
    /// APIServices whose servers are to be asked now.
    due: Mutex<BTreeSet<Arc<str>>>,
    waker: AtomicWaker,
    /// Grows whenever something else is known.
    state: AtomicU64,
}

/// The last answer of a server, and what earlier ones told.
struct Known {
    remote: Arc<Remote>,
    /// The error is the message of the condition.
    outcome: Result<(), String>,
    resources: Arc<Value>,
    /// The hash of its OpenAPI document.
    openapi: Option<String>,
}

/// What a server told.
#[derive(Default)]
struct ProbeAnswer {
    resources: Option<Value>,
    openapi: Option<String>,
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Probes {
    /// Grows whenever discovery may have changed with what is known.
    pub(crate) fn state(&self) -> u64 {
        self.state.load(Ordering::Acquire)
    }

    /// The server is to be asked.
    pub(crate) fn ask(&self, name: &str) {
        lock(&self.due).insert(name.into());
        self.waker.wake();
    }

    /// An APIService is gone.
    pub(crate) fn gone(&self, name: &str) {
        if lock(&self.known).contains_key(name) {
            self.ask(name);
        }
    }

    /// How the server answered the last time that it was asked in this way; none before.
    pub(crate) fn outcome(&self, remote: &Remote) -> Option<Result<(), String>> {
        let known = lock(&self.known);
        let known = known.get(remote.name().as_str())?;
        known.remote.is_reached_as(remote).then(|| known.outcome.clone())
    }

    /// Whether it answered then.
    pub(crate) fn has_answered(&self, remote: &Remote) -> bool {
        self.outcome(remote).is_some_and(|outcome| outcome.is_ok())
    }

    /// The resources that it has told.
    pub(crate) fn resources_of(&self, remote: &Remote) -> RemoteResources {
        let known = lock(&self.known);
        known
            .get(remote.name().as_str())
            .map_or_else(RemoteResources::default, |known| RemoteResources {
                list: known.resources.clone(),
                is_current: known.outcome.is_ok() && known.remote.is_reached_as(remote),
            })
    }

    /// The hash of its OpenAPI document.
    pub(crate) fn openapi_of(&self, remote: &Remote) -> Option<String> {
        lock(&self.known).get(remote.name().as_str())?.openapi.clone()
    }

    fn keep(&self, name: &Arc<str>, remote: Arc<Remote>, outcome: Result<ProbeAnswer, String>) {
        let mut known = lock(&self.known);
        let before = known.remove(name);
        let (outcome, told) = match outcome {
            Ok(told) => (Ok(()), told),
            Err(why) => (Err(why), ProbeAnswer::default()),
        };
        let (resources, openapi) = before.map_or_else(Default::default, |before| (before.resources, before.openapi));
        let next = Known {
            remote,
            resources: told.resources.map_or(resources, Arc::new),
            openapi: if outcome.is_ok() { told.openapi } else { openapi },
            outcome,
        };
        known.insert(name.clone(), next);
        self.state.fetch_add(1, Ordering::Release);
    }

    fn forget(&self, name: &str) {
        if lock(&self.known).remove(name).is_some() {
            self.state.fetch_add(1, Ordering::Release);
        }
    }
}

/// A server that is asked now and then.
struct Prober<'a> {
    step: Step<'a>,
    /// How often it did not answer, since it did.
    failures: u32,
    /// Whether something happened while it was asked.
    again: bool,
}

enum Step<'a> {
    /// The error is that there is no such server any more.
    Asked(BoxFuture<'a, Result<bool, Gone>>),
    /// `true`: only as long as must be.
    Waits(BoxFuture<'a, ()>, bool),
}

struct Gone;

impl ApiServer {
    /// Asks the servers behind APIServices, for as long as it is polled.
    pub async fn probe_api_services(&self) {
        let inner = &*self.inner;
        for (name, _) in inner.remotes() {
            inner.probes.ask(&name);
        }
        let mut asked = BTreeMap::new();
        poll_fn(|cx| inner.poll_probes(&mut asked, cx)).await;
    }
}

impl Inner {
    fn poll_probes<'a>(&'a self, asked: &mut BTreeMap<Arc<str>, Prober<'a>>, cx: &mut Context<'_>) -> Poll<()> {
        self.probes.waker.register(cx.waker());
        for name in std::mem::take(&mut *lock(&self.probes.due)) {
            let asking = asked.entry(name.clone()).or_insert_with(|| Prober {
                step: Step::Asked(Box::pin(self.probe(name))),
                failures: 0,
                again: false,
            });
            match &asking.step {
                Step::Asked(_) => asking.again = true,
                Step::Waits(_, true) => {}
                Step::Waits(_, false) => asking.step = Step::Waits(self.env.sleep(PAUSE), true),
            }
        }
        // The first question is one that something has happened before.
        asked.retain(|name, asking| asking.poll(self, name, cx));
        Poll::Pending
    }

    /// Asks a server, and says what came of it.
    async fn probe(&self, name: Arc<str>) -> Result<bool, Gone> {
        let present = |inner: &Inner| inner.remotes().into_iter().find(|(known, _)| *known == name);
        let Some((_, remote)) = present(self) else {
            self.probes.forget(&name);
            return Err(Gone);
        };
        let outcome = match self.is_reachable(&remote) {
            true => Some(self.ask_server(&remote).await),
            false => None,
        };
        // It may have gone meanwhile.
        if present(self).is_none() {
            self.probes.forget(&name);
            return Err(Gone);
        }
        let answers = outcome.as_ref().is_none_or(Result::is_ok);
        if let Some(outcome) = outcome {
            self.probes.keep(&name, remote, outcome);
        }
        self.settle_availability_of(&name);
        Ok(answers)
    }

    async fn ask_server(&self, remote: &Remote) -> Result<ProbeAnswer, String> {
        let url = self.url_of(remote);
        let path = format!("/apis/{}/{}", remote.group, remote.version);
        let failed = |why: String| format!("failing or missing response from {url}: {why}");
        let asking = async {
            let (code, body) = self
                .fetch(remote, &path)
                .await
                .map_err(|why| failed(format!("Get {url:?}: {why}")))?;
            if !(200..300).contains(&code) {
                return Err(failed(format!("bad status from {url}: {code}")));
            }
            Ok(body)
        };
        let body = match select(Box::pin(asking), self.env.sleep(PATIENCE)).await {
            Either::Left((body, _)) => body?,
            Either::Right(_) => return Err(failed(format!("Get {url:?}: context deadline exceeded"))),
        };
        let openapi = Box::pin(self.fetch(remote, "/openapi/v3"));
        let openapi = match select(openapi, self.env.sleep(PATIENCE)).await {
            Either::Left((Ok((200, index)), _)) => resources::openapi_hash(&read(&index), &path),
            // Not every server has one.
            _ => None,
        };
        Ok(ProbeAnswer {
            resources: resources::aggregated(&read(&body)),
            openapi,
        })
    }

    /// Status and body of a page, which is read as the cluster.
    async fn fetch(&self, remote: &Remote, path: &str) -> Result<(u16, Bytes), String> {
        let Some(forwarder) = &self.forwarder else {
            return Err("this server was made without a way to reach others".to_owned());
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, HeaderValue::from_static("application/json"));
        let user = UserInfo {
            name: "system:kube-aggregator".to_owned(),
            groups: vec![SYSTEM_MASTERS.to_owned()],
            ..UserInfo::default()
        };
        identify(&mut headers, &user).map_err(|status| status.message)?;
        let request = made(Method::GET, path, headers, Bytes::new()).map_err(|status| status.message)?;
        let answer = forwarder.forward(remote.forward(request)).await;
        let answer = answer.map_err(|(ForwardError::Unresolved(why) | ForwardError::Failed(why))| why)?;
        let (code, mut pieces) = (answer.status().as_u16(), answer.into_body());
        let mut body = BytesMut::new();
        while let Some(piece) = pieces.next().await {
            body.extend_from_slice(&piece.map_err(|cut| cut.to_string())?);
            if body.len() > MAX_BODY {
                return Err(format!("the answer has more than {MAX_BODY} bytes"));
            }
        }
        Ok((code, body.freeze()))
    }
}

/// A document; null if it is none.
fn read(text: &[u8]) -> Value {
    decode::json(text).map(|read| read.value).unwrap_or_default()
}

impl<'a> Prober<'a> {
    /// Whether it goes on.
    fn poll(&mut self, inner: &'a Inner, name: &Arc<str>, cx: &mut Context<'_>) -> bool {
        loop {
            match &mut self.step {
                Step::Asked(asked) => {
                    let Poll::Ready(answers) = asked.as_mut().poll(cx) else {
                        return true;
                    };
                    let Ok(answers) = answers else { return false };
                    self.failures = if answers { 0 } else { self.failures.saturating_add(1) };
                    let pause = match (self.again, self.failures) {
                        (true, _) => PAUSE,
                        (false, 0) => AGAIN,
                        (false, failures) => SOON.saturating_mul(1 << failures.min(6).saturating_sub(1)).min(AGAIN),
                    };
                    self.step = Step::Waits(inner.env.sleep(pause), self.again);
                    self.again = false;
                }
                Step::Waits(waits, _) => {
                    if waits.as_mut().poll(cx).is_pending() {
                        return true;
                    }
                    self.step = Step::Asked(Box::pin(inner.probe(name.clone())));
                }
            }
        }
    }
}
