//! The record of one request, from its arrival to the end of its answer (`AuditContext` of apiserver).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::{HeaderMap, request};
use kubewright_schema::protobuf::order::{Order, Ordered};
use serde_json::{Value, json};

use super::event::{AuthenticationMetadata, Event, ObjectReference, without_managed_fields};
use super::policy::{Chosen, Level, Stage};
use super::{AUDIT_ID, AuditLog, Format, PeerAddress};
use crate::authorization::Attributes;
use crate::env::{self, Env, rfc3339_micros};
use crate::model::object;
use crate::model::status::Status;
use crate::model::user::UserInfo;

/// The longest `User-Agent` that is written whole, in bytes (`maxUserAgentLength`).
const MAX_USER_AGENT: usize = 1024;
const TRUNCATED: &str = "...TRUNCATED";

/// A request that is entered. Clones share one entry; it is complete when the last of them is dropped.
pub struct Entry {
    log: AuditLog,
    env: Arc<dyn Env>,
    chosen: Chosen,
    /// Whether the answer may go on for long, so that its beginning is an event (`longRunningRequestCheck`).
    long_running: bool,
    id: String,
    uri: String,
    verb: String,
    user: UserInfo,
    source_ips: Vec<String>,
    user_agent: String,
    received: String,
    notes: Mutex<Notes>,
}

/// The facts that are found on the way.
#[derive(Default)]
struct Notes {
    impersonated: Option<(UserInfo, &'static str)>,
    about: Option<ObjectReference>,
    sent: Option<Value>,
    status: Option<Value>,
    answer: Option<Value>,
    annotations: BTreeMap<String, String>,
    started: bool,
    complete: bool,
}

impl Entry {
    /// Begins the entry of a request, if the policy wants one, and writes that the request was received.
    ///
    /// # Errors
    /// The 500 of a strict log that cannot be written.
    pub(crate) fn begin(
        log: &AuditLog,
        env: &Arc<dyn Env>,
        head: &request::Parts,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Result<Option<Arc<Entry>>, Status> {
        let Some(entry) = Entry::of(log, env, head, user, attributes) else {
            return Ok(None);
        };
        match entry.write(Stage::RequestReceived) {
            Err(()) if log.strict => {
                entry.notes().complete = true;
                Err(Status::internal("failed to store audit event"))
            }
            _ => Ok(Some(Arc::new(entry))),
        }
    }

    /// Enters a request whose user is unknown: one event, of its refusal (`WithFailedAuthenticationAudit`).
    pub(crate) fn unauthenticated(
        log: &AuditLog,
        env: &Arc<dyn Env>,
        head: &request::Parts,
        attributes: &Attributes,
        refusal: &Status,
    ) {
        if let Some(entry) = Entry::of(log, env, head, &UserInfo::default(), attributes) {
            entry.answered(&refusal.to_value());
            let _ = entry.write(Stage::ResponseStarted);
            entry.notes().complete = true;
        }
    }

    fn of(
        log: &AuditLog,
        env: &Arc<dyn Env>,
        head: &request::Parts,
        user: &UserInfo,
        attributes: &Attributes,
    ) -> Option<Entry> {
        let chosen = log.policy.evaluate(user, attributes)?.clone();
        let given = |name: http::HeaderName| {
            let value = head.headers.get(name).map(http::HeaderValue::as_bytes);
            String::from_utf8_lossy(value.unwrap_or_default()).into_owned()
        };
        let id = match given(AUDIT_ID) {
            id if id.is_empty() => env::uuid(env.as_ref()),
            id => id,
        };
        let about = attributes.is_resource().then(|| ObjectReference {
            resource: attributes.resource.clone(),
            namespace: attributes.namespace.clone(),
            name: attributes.name.clone(),
            api_group: attributes.group.clone(),
            api_version: attributes.version.clone(),
            subresource: attributes.subresource.clone(),
            ..ObjectReference::default()
        });
        Some(Entry {
            log: log.clone(),
            chosen,
            long_running: is_long_running(attributes),
            id,
            uri: head.uri.path_and_query().map_or("", |text| text.as_str()).to_owned(),
            verb: attributes.verb.clone(),
            user: user.clone(),
            source_ips: source_ips(&head.headers, head.extensions.get::<PeerAddress>().map(|peer| peer.0)),
            user_agent: cut_user_agent(given(http::header::USER_AGENT)),
            received: rfc3339_micros(env.now()),
            env: env.clone(),
            notes: Mutex::new(Notes {
                about,
                ..Notes::default()
            }),
        })
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The name of the request in the log.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How much is written about it.
    pub fn level(&self) -> Level {
        self.chosen.level
    }

    /// The impersonated user for whom the request is answered. `constraint` is the verb of the constrained mode that
    /// allowed it, or empty.
    pub(crate) fn impersonated(&self, user: &UserInfo, constraint: &'static str) {
        self.notes().impersonated = Some((user.clone(), constraint));
    }

    /// Says something about the request. The first value of a key stays (`addAuditAnnotationLocked`).
    pub(crate) fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        self.notes()
            .annotations
            .entry(key.into())
            .or_insert_with(|| value.into());
    }

    /// The object that was sent, with its defaults and its kind (`LogRequestObject`). Adds the name and namespace that
    /// the path does not have.
    pub(crate) fn sent(&self, object: impl FnOnce() -> Value, seen: &Value) {
        let sent = (self.chosen.level >= Level::Request).then(|| self.shown(object()));
        let mut notes = self.notes();
        let about = notes.about.get_or_insert_default();
        for (field, key) in [
            (&mut about.namespace, "namespace"),
            (&mut about.name, "name"),
            (&mut about.uid, "uid"),
            (&mut about.resource_version, "resourceVersion"),
        ] {
            if field.is_empty() {
                object::text(seen, key).clone_into(field);
            }
        }
        if sent.is_some() {
            notes.sent = sent;
        }
    }

    /// The patch that was sent (`LogRequestPatch`).
    pub(crate) fn sent_patch(&self, patch: &Value) {
        if self.chosen.level >= Level::Request {
            self.notes().sent = Some(patch.clone());
        }
    }

    /// Whether the object of the answer is wanted.
    pub(crate) fn wants_answer(&self) -> bool {
        self.chosen.level >= Level::RequestResponse
    }

    /// The document of the answer (`LogResponseObject`). Of a Status its fields are reported at every level.
    pub(crate) fn answered(&self, document: &Value) {
        let is_status = document.get("kind").is_some_and(|kind| kind == "Status");
        let status = is_status.then(|| {
            let mut status = json!({"metadata": {}});
            for field in ["status", "message", "reason", "details", "code"] {
                if let Some(value) = document.get(field) {
                    status[field] = value.clone();
                }
            }
            status
        });
        let answer = self.wants_answer().then(|| self.shown(document.clone()));
        let mut notes = self.notes();
        notes.status = status;
        notes.answer = answer;
    }

    fn shown(&self, mut object: Value) -> Value {
        if self.chosen.omit_managed_fields {
            without_managed_fields(&mut object);
        }
        object
    }

    /// The answer is there: writes that it begins where it may go on, and that it is complete where it does not.
    pub(crate) fn respond(&self, code: u16, goes_on: bool) {
        let begins = {
            let mut notes = self.notes();
            if notes.complete {
                return;
            }
            let status = notes.status.get_or_insert_with(|| json!({"metadata": {}}));
            status["code"] = json!(code);
            let begins = self.long_running && !notes.started;
            notes.started = true;
            begins
        };
        if begins {
            let _ = self.write(Stage::ResponseStarted);
        }
        if !goes_on {
            self.complete(Stage::ResponseComplete);
        }
    }

    /// The server panicked over the request.
    pub(crate) fn panicked(&self) {
        self.notes().status = Some(json!({
            "metadata": {},
            "status": "Failure",
            "message": "APIServer panic'd; the log of the server says where",
            "reason": "InternalError",
            "code": 500,
        }));
        self.complete(Stage::Panic);
    }

    fn complete(&self, stage: Stage) {
        if !std::mem::replace(&mut self.notes().complete, true) {
            let _ = self.write(stage);
        }
    }

    /// Writes an event; that it could not be written is logged here.
    fn write(&self, stage: Stage) -> Result<(), ()> {
        if self.chosen.omitted.contains(&stage) {
            return Ok(());
        }
        let now = match stage {
            Stage::RequestReceived => self.received.clone(),
            _ => rfc3339_micros(self.env.now()),
        };
        let Some(line) = self.line(stage, &now) else {
            // Upstream does not refuse the request either.
            let stage = stage.as_str();
            tracing::error!(id = self.id, stage, "an audit event is too large even after truncating");
            return Ok(());
        };
        self.log.sink.write(&line).map_err(|why| {
            tracing::error!(
                id = self.id,
                stage = stage.as_str(),
                why,
                "an audit event could not be written"
            );
        })
    }

    /// The event; none when it is too large.
    fn line(&self, stage: Stage, now: &str) -> Option<String> {
        let notes = self.notes();
        let metadata = |(_, constraint): &(UserInfo, &'static str)| {
            (!constraint.is_empty()).then_some(AuthenticationMetadata {
                impersonation_constraint: constraint,
            })
        };
        let mut event = Event {
            kind: "Event",
            api_version: "audit.k8s.io/v1",
            level: self.chosen.level.as_str(),
            audit_id: &self.id,
            stage: stage.as_str(),
            request_uri: &self.uri,
            verb: &self.verb,
            user: (&self.user).into(),
            impersonated_user: notes.impersonated.as_ref().map(|(user, _)| user.into()),
            authentication_metadata: notes.impersonated.as_ref().and_then(metadata),
            source_ips: &self.source_ips,
            user_agent: &self.user_agent,
            object_ref: notes.about.as_ref(),
            response_status: notes
                .status
                .as_ref()
                .map(|status| Ordered::new(status, Order::of_kind("v1", "Status"))),
            request_object: notes.sent.as_ref().map(Ordered::by_kind),
            response_object: notes.answer.as_ref().map(Ordered::by_kind),
            request_received_timestamp: &self.received,
            stage_timestamp: now,
            annotations: &notes.annotations,
        };
        let mut line = event.line();
        let max = self.log.max_event_size.unwrap_or(usize::MAX);
        // As upstream's backend `truncate` does it: only these levels have objects that can be left out.
        let mut annotations;
        if line.len() > max && self.chosen.level >= Level::Request {
            annotations = notes.annotations.clone();
            annotations.insert("audit.k8s.io/truncated".to_owned(), "true".to_owned());
            event.annotations = &annotations;
            (event.request_object, event.response_object) = (None, None);
            line = event.line();
        }
        if line.len() > max {
            return None;
        }
        Some(match self.log.format {
            Format::Json => line,
            Format::Legacy => {
                let code = notes.status.as_ref().and_then(|status| status["code"].as_i64());
                event.text(notes.status.as_ref().map(|_| code.unwrap_or(0)))
            }
        })
    }
}

impl Drop for Entry {
    /// A watch that ended, or a client that did not wait for its answer.
    fn drop(&mut self) {
        let (begins, complete) = {
            let notes = self.notes.get_mut().unwrap_or_else(PoisonError::into_inner);
            let closed =
                || json!({"metadata": {}, "status": "Success", "message": "Connection closed early", "code": 200});
            if !notes.complete && notes.status.is_none() {
                notes.status = Some(closed());
            }
            (self.long_running && !notes.started, notes.complete)
        };
        if begins && !complete {
            let _ = self.write(Stage::ResponseStarted);
        }
        self.complete(Stage::ResponseComplete);
    }
}

/// `BasicLongRunningRequestCheck` as kube-apiserver sets it up.
fn is_long_running(attributes: &Attributes) -> bool {
    matches!(attributes.verb.as_str(), "watch" | "proxy")
        || matches!(
            attributes.subresource.as_str(),
            "attach" | "exec" | "proxy" | "log" | "portforward"
        )
}

fn cut_user_agent(mut text: String) -> String {
    if text.len() > MAX_USER_AGENT {
        let end = (0..=MAX_USER_AGENT).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push_str(TRUNCATED);
    }
    text
}

/// The addresses that a request came from, the client first, as far as the headers are believed (`SourceIPs` of
/// apimachinery).
fn source_ips(headers: &HeaderMap, peer: Option<IpAddr>) -> Vec<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or("");
    let mut ips: Vec<IpAddr> = text("x-forwarded-for")
        .split(',')
        .filter_map(|part| part.trim().parse().ok())
        .collect();
    if let Ok(real) = text("x-real-ip").trim().parse::<IpAddr>()
        && !ips.contains(&real)
    {
        ips.push(real);
    }
    if let Some(peer) = peer
        && ips.last() != Some(&peer)
    {
        ips.push(peer);
    }
    ips.iter().map(IpAddr::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn source_addresses_are_those_of_the_headers_and_the_peer() {
        #[track_caller]
        fn check(forwarded: &str, real: &str, peer: &str, expected: &[&str]) {
            let mut headers = HeaderMap::new();
            for (name, value) in [("x-forwarded-for", forwarded), ("x-real-ip", real)] {
                if !value.is_empty() {
                    headers.insert(name, value.parse().unwrap());
                }
            }
            assert_eq!(source_ips(&headers, peer.parse().ok()), expected);
        }
        check("", "", "127.0.0.1", &["127.0.0.1"]);
        check("", "", "", &[]);
        check(
            "10.0.0.1, 10.0.0.2",
            "",
            "127.0.0.1",
            &["10.0.0.1", "10.0.0.2", "127.0.0.1"],
        );
        check("10.0.0.1, nonsense", "10.0.0.3", "10.0.0.3", &["10.0.0.1", "10.0.0.3"]);
        check("10.0.0.1", "10.0.0.1", "10.0.0.1", &["10.0.0.1"]);
        check("", "::1", "127.0.0.1", &["::1", "127.0.0.1"]);
    }

    #[test]
    fn a_long_user_agent_is_cut() {
        assert_eq!(cut_user_agent("kubectl".to_owned()), "kubectl");
        assert_eq!(cut_user_agent("x".repeat(1024)).len(), 1024);
        let cut = cut_user_agent(format!("{}ä{}", "x".repeat(1023), "y".repeat(9)));
        assert_eq!(cut, format!("{}{TRUNCATED}", "x".repeat(1023)));
    }
}
