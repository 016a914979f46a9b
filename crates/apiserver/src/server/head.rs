//! Decisions from the head of a request, before its body is read: its target, and whether its user may do it.
//!
//! A body costs memory and time; a request that is refused anyway need not send one. `WithAuthorization` stands before
//! the handlers upstream, too.
//!
//! What a decision costs follows from the rules that users write, so it is tried where requests are read
//! ([`ApiServer::try_admit`]), and made where it may take long when it does.
//!
//! Invariants: a refusal is the answer that the whole request would get; a request is entered in the audit log once,
//! however often its admission begins.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, request};
use kubewright_runlog::Call;
use kubewright_schema::budget::{Exhausted, Limits, Metered, Trial};
use kubewright_schema::error::quote;

use super::authorize::NotAdmitted;
use super::deadline::Deadline;
use super::monitoring::Counted;
use super::respond::{Content, Responder};
use super::route::{self, Page, Path, ResourcePath, Verb};
use super::upkeep::api_services::Remote;
use super::{ApiServer, Inner, TooLong, authorize, compress, noted};
use crate::audit::{AUDIT_ID, Entry};
use crate::authorization::Attributes;
use crate::flow_control::Flow;
use crate::model::object;
use crate::model::status::Status;
use crate::recording::Recording;
use crate::wire::query::Query;
use crate::wire::query::decode;
use crate::{Body, UserInfo};

/// A request whose head has arrived: what stays when its admission begins again elsewhere.
#[derive(Default)]
pub struct Arrival {
    /// Its entry in the audit log, once that is made.
    audit: OnceLock<Option<Arc<Entry>>>,
}

/// The head of a request that was admitted, or the answer to one that was refused.
type Decided = Result<Admitted, Box<Response<Body>>>;

/// A request whose head was admitted; [`ApiServer::answer`] answers it.
pub struct Admitted {
    pub(super) query: Query,
    pub(super) target: Target,
    /// The server that answers it, if that is another one.
    pub(super) remote: Option<Arc<Remote>>,
    /// The user for whom the request is answered: the authenticated or the impersonated one.
    pub(super) user: UserInfo,
    /// Whose share it takes: the name of the authenticated user. A user who impersonates others gets no larger share by that.
    pub(super) principal: String,
    /// Its entry in the audit log, if it is entered.
    pub(super) audit: Option<Arc<Entry>>,
    /// Its part in the run log, if one is kept.
    pub(super) recording: Option<Arc<Recording>>,
    pub(super) deadline: Deadline,
    /// Its flow, unless no FlowSchema matches it.
    pub(super) flow: Option<Flow>,
    /// Bytes that the answering has made so far.
    pub(super) made: AtomicU64,
    /// Its place in the metrics, if it is to a resource.
    counted: Option<Counted>,
}

impl Admitted {
    /// How many bytes the request has made beyond its body, as of the last time that it waited.
    pub fn made(&self) -> usize {
        usize::try_from(self.made.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// How long the request may take from its head to its answer. `None`: it is a watch or another stream.
    pub fn time_limit(&self) -> Option<Duration> {
        self.deadline.limit()
    }

    /// How long it may take when its body has come, counted from its head.
    pub fn handling_limit(&self) -> Option<Duration> {
        self.deadline.handling()
    }

    /// Its time is up. Returns whether to drop it, and to answer with [`ApiServer::timed_out`]; else it has changed
    /// something already, and its answer comes soon.
    pub fn expire(&self) -> bool {
        self.deadline.expire()
    }

    /// This is the response to the request, whichever code made it: it is counted, and entered in the logs. The
    /// body of a watch ends its entry later.
    pub fn complete(&self, response: &mut Response<Body>) {
        if let Some(flow) = &self.flow {
            flow.mark(response.headers_mut());
        }
        if let Some(counted) = &self.counted {
            counted.answered(response.status().as_u16());
        }
        if let Some(entry) = &self.audit {
            complete(entry, response);
        }
        if let Some(recording) = &self.recording {
            recorded(recording, response);
        }
    }

    /// Enters the content of the answer in the logs.
    pub(super) fn enter(&self, responder: &Responder<'_>, content: &Content, verb: Verb) {
        if let Some(entry) = &self.audit {
            responder.enter(entry, content);
        }
        if let (Some(recording), Content::Stored(_, stored), true) = (&self.recording, content, verb.writes()) {
            recording.answers_with(stored.revision(), object::name(stored.value()));
        }
    }

    /// The server panicked over the request: that is counted, and entered in the logs.
    pub fn panicked(&self) {
        if let Some(counted) = &self.counted {
            counted.answered(500);
        }
        if let Some(entry) = &self.audit {
            entry.panicked();
        }
        if let Some(recording) = &self.recording {
            recording.answered(500);
        }
    }
}

/// Enters the answer to a request, and gives the client the id of its entry.
fn complete(entry: &Arc<Entry>, response: &mut Response<Body>) {
    if let Ok(id) = HeaderValue::from_str(entry.id()) {
        response.headers_mut().insert(AUDIT_ID, id);
    }
    let goes_on = match response.body_mut() {
        Body::Watch(watch) => {
            watch.attach_audit_entry(entry.clone());
            true
        }
        Body::Forwarded(body) if body.is_stream() => {
            body.attach_audit_entry(entry.clone());
            true
        }
        _ => false,
    };
    entry.respond(response.status().as_u16(), goes_on);
}

/// Records the answer to a request, and what a watch delivers from now on.
fn recorded(recording: &Arc<Recording>, response: &mut Response<Body>) {
    recording.answered(response.status().as_u16());
    if let Body::Watch(watch) = response.body_mut() {
        watch.attach_recording(recording.clone());
    }
}

fn call_of(attributes: &Attributes) -> Call {
    Call {
        verb: attributes.verb.clone(),
        group: attributes.group.clone(),
        resource: attributes.resource.clone(),
        subresource: attributes.subresource.clone(),
        namespace: attributes.namespace.clone(),
        name: attributes.name.clone(),
        path: attributes.path.clone(),
    }
}

/// Where a request leads.
pub(super) enum Target {
    /// To a resource; no verb stands for a method that resources never take.
    Resource(ResourcePath, Option<Verb>),
    /// A target that is not a resource.
    Page(Page),
}

impl ApiServer {
    /// Names an answer that has no name yet: every request has one, whether it is entered in the audit log or not.
    /// `given` is the [`AUDIT_ID`] of the request (`WithAuditInit` upstream).
    pub fn name_answer(&self, given: Option<HeaderValue>, answer: &mut HeaderMap) {
        if answer.contains_key(AUDIT_ID) {
            return;
        }
        let given = given.filter(|id| !id.is_empty());
        let id = given.or_else(|| HeaderValue::try_from(crate::env::uuid(self.inner.env.as_ref())).ok());
        answer.extend(id.map(|id| (AUDIT_ID, id)));
    }

    /// Whether a user may make a request with this head.
    ///
    /// # Errors
    /// The answer to a request that is refused, whatever its body holds.
    pub async fn admit(&self, head: &request::Parts, user: UserInfo) -> Decided {
        self.admit_arrived(&Arrival::default(), head, user).await
    }

    /// The same of a request that [`ApiServer::try_admit`] was too short for.
    ///
    /// # Errors
    /// Those of [`ApiServer::admit`].
    pub async fn admit_arrived(&self, arrival: &Arrival, head: &request::Parts, user: UserInfo) -> Decided {
        let admitting = self.inner.admit_head(arrival, head, user);
        let admitted = Metered::new(Limits::REQUEST, admitting).await;
        self.decided(arrival, head, admitted)
    }

    /// The same where others wait meanwhile. A request that asks another server whether it may goes on to its end.
    ///
    /// # Errors
    /// [`TooLong`], with nothing decided. Ask again, with [`ApiServer::admit_arrived`], on a thread where no other
    /// request waits.
    pub async fn try_admit(
        &self,
        trial: &Trial,
        arrival: &Arrival,
        head: &request::Parts,
        user: UserInfo,
    ) -> Result<Decided, TooLong> {
        let admitting = self.inner.admit_head(arrival, head, user);
        match Metered::new(Limits::REQUEST, admitting).on(trial).await {
            Err(Exhausted::Trial) => Err(TooLong),
            admitted => Ok(self.decided(arrival, head, admitted)),
        }
    }

    fn decided(&self, arrival: &Arrival, head: &request::Parts, admitted: Result<Decided, Exhausted>) -> Decided {
        let admitted = admitted.unwrap_or_else(|why| {
            let entry = arrival.audit.get().and_then(Option::as_ref);
            let status = Status::too_costly(why);
            let status = noted(entry.map(|entry| &**entry), &status);
            let mut refusal = self.inner.fail_as_asked(&head.headers, &Query::default(), status);
            if let Some(entry) = entry {
                complete(entry, &mut refusal);
            }
            Err(Box::new(refusal))
        });
        admitted.map_err(|refusal| Box::new(compress::finished(head, None, *refusal, self.inner.config.minor)))
    }
}

impl Inner {
    async fn admit_head(&self, arrival: &Arrival, head: &request::Parts, user: UserInfo) -> Decided {
        let now = self.env.now();
        self.compact(now);
        let query = Query::parse(head.uri.query().unwrap_or("")).map_err(|status| Box::new(self.fail(&status)))?;
        let principal = user.name.clone();
        let refused = |status: Status| Box::new(self.fail_as_asked(&head.headers, &query, &status));
        let (target, attributes) = match route::parse(head.uri.path()) {
            Path::Resource(path) => {
                let verb = Verb::of(&head.method, &path, query.flag("watch"));
                let attributes = authorize::resource_attributes(&path, verb, &query);
                (Target::Resource(path, verb), attributes)
            }
            Path::Verb => return Err(Box::new(self.unreadable_path(&head.uri, &query))),
            Path::Page(page) => (Target::Page(page), path_attributes(&head.method, &head.uri)),
        };
        let audit = match (&self.audit, arrival.audit.get()) {
            (Some(_), Some(entry)) => entry.clone(),
            (Some(log), None) => {
                let entry = Entry::begin(log, &self.env, head, &user, &attributes).map_err(refused)?;
                arrival.audit.get_or_init(|| entry).clone()
            }
            (None, _) => None,
        };
        let entry = audit.as_deref();
        let recording = self.recorder.as_ref();
        let recording =
            recording.map(|to| Recording::of(to, self.storage.revision(), head, &user.name, call_of(&attributes)));
        let remote = target
            .version()
            .and_then(|(group, version)| self.remote(group, version));
        let mut flow = None;
        let admitted = async {
            let deadline = Deadline::of(&query, &target, remote.is_some(), self.config.request_timeout)?;
            let user = self.impersonated(user, &head.headers, &attributes, entry).await?;
            flow = self.flow_control.classify(self.storage.as_ref(), &user, &attributes);
            self.admit(&user, &attributes, entry).await?;
            Ok((user, deadline))
        };
        let admitted: Result<_, NotAdmitted> = admitted.await;
        let (user, deadline) = admitted.map_err(|why| {
            let mut refusal = match why {
                NotAdmitted::Refused(status) => refused(noted(entry, &status).clone()),
                NotAdmitted::Unknown(why) => Box::new(self.unauthorizable(&head.uri, &query, &why)),
            };
            if let Some(flow) = &flow {
                flow.mark(refusal.headers_mut());
            }
            if let Some(entry) = &audit {
                complete(entry, &mut refusal);
            }
            if let Some(recording) = &recording {
                recorded(recording, &mut refusal);
            }
            refusal
        })?;
        self.renew_identity(now);
        Ok(Admitted {
            counted: self.counted(&target, &head.headers, &query, now),
            query,
            target,
            remote,
            user,
            principal,
            audit,
            recording,
            deadline,
            flow,
            made: AtomicU64::new(0),
        })
    }

    /// Enters a request in the audit log whose credentials prove nothing.
    pub(super) fn enter_unauthenticated(&self, head: &request::Parts, refusal: &Status) {
        let Some(log) = &self.audit else { return };
        let query = Query::parse(head.uri.query().unwrap_or("")).unwrap_or_default();
        let attributes = match route::parse(head.uri.path()) {
            Path::Resource(path) => {
                let verb = Verb::of(&head.method, &path, query.flag("watch"));
                authorize::resource_attributes(&path, verb, &query)
            }
            Path::Verb | Path::Page(_) => path_attributes(&head.method, &head.uri),
        };
        Entry::unauthenticated(log, &self.env, head, &attributes, refusal);
    }

    /// The answer to a path with a verb and no resource.
    fn unreadable_path(&self, uri: &http::Uri, query: &Query) -> Response<Body> {
        let said = uri.path_and_query().map_or("", |said| said.as_str());
        let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
        self.text(500, format!("Internal Server Error: {said:?}: {why}, {said}\n"), query)
    }

    /// The answer when an authorizer fails (`responsewriters.InternalError`).
    fn unauthorizable(&self, uri: &http::Uri, query: &Query, why: &str) -> Response<Body> {
        let said = uri.path_and_query().map_or("", |said| said.as_str());
        let text = format!("Internal Server Error: {}: {why}\n", quote(said));
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.text(500, text, query)
    }
}

/// The attributes of a request on a non-resource path.
fn path_attributes(method: &Method, uri: &http::Uri) -> Attributes {
    Attributes {
        verb: method.as_str().to_ascii_lowercase(),
        path: decode(uri.path(), false),
        ..Attributes::default()
    }
}
