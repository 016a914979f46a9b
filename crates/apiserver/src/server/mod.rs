//! The server: one pipeline for every request and every kind.
//!
//! [`ApiServer::handle`] routes a request, asks the authorizer, and hands it to a verb, each in a file of its own;
//! `write` has the parts that all writes share. The behaviour of a kind is in its row ([`crate::model::Resource`]).
//!
//! Invariants: a request works on one snapshot of the registry; a conflict runs the function of a write again; nothing
//! in a request makes a verb panic; what costs too much is cancelled (`budget`) before it commits.

mod admit;
mod aggregate;
mod apply;
mod authorize;
mod compress;
mod config;
mod conversion_review;
pub(crate) mod convert;
mod create;
mod custom;
mod deadline;
mod decode;
mod delete;
mod embedded;
mod empties;
mod endpoint;
mod flow;
mod fork;
mod head;
mod health;
mod host;
mod last_applied;
mod lists;
mod managed;
mod monitoring;
mod options;
mod patch;
mod paths;
#[cfg(test)]
mod quota_tests;
mod read;
pub(crate) mod respond;
mod route;
mod served;
mod settle;
mod special;
mod update;
mod upkeep;
pub(crate) mod watch;
mod weight;
mod write;
mod zpages;

#[cfg(test)]
mod answers_tests;
#[cfg(test)]
mod budget_tests;
#[cfg(test)]
mod flow_tests;
#[cfg(test)]
mod growth_tests;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod owner_tests;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod schema_change_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;
#[cfg(test)]
mod webhook_tests;

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use kubewright_runlog::Recorder;
use kubewright_schema::budget::{Exhausted, Limits, Metered, Trial};

pub use crate::wire::query::first_broken_escape;
pub use config::{Advice, Config, Parts};
use deadline::Deadline;
use endpoint::{Endpoint, NotServed};
pub use fork::ForkPoint;
use head::Target;
pub use head::{Admitted, Arrival};
pub use special::streams::{Connect, LogOptions, Streams, Wants};
pub use upkeep::bootstrap::Place;
pub use weight::{TRIAL, TooLong, Weight};

use crate::admission::Admission;
use crate::admission::standard::Standard;
use crate::audit::{AuditLog, Entry};
use crate::authentication::{Authenticated, Authenticator, Identity};
use crate::authorization::{self, Authorizer, Policy, impersonation::Impersonation};
use crate::flow_control::FlowControl;
use crate::forward::Forwarder;
use crate::meter::Meter;
use crate::model::{Resource, Verbs, status::Status};
use crate::outbound::Outbound;
use crate::registry::{Kinds, Registry, Snapshot};
use crate::shares::Ledger;
use crate::storage::{Followed, Storage};
use crate::wire::negotiate::{self, Output};
use crate::wire::query::Query;
use crate::{Body, Env, UserInfo};
use respond::Responder;
use route::{Page, ResourcePath, Verb};
use served::{Missing, check_path_name, find};

/// The largest request body that is read, in bytes (3 MiB, as kube-apiserver).
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// A Kubernetes API server without a socket. A clone is another handle to the same server.
///
/// The shell asks for the user ([`ApiServer::authenticate`]) and whether he may ([`ApiServer::admit`]), reads the body
/// (see [`MAX_BODY`]) and sends the answer of [`ApiServer::answer`]. [`ApiServer::handle`] does the last three in one.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) env: Arc<dyn Env>,
    /// When it was made.
    started: jiff::Timestamp,
    pub(crate) config: Config,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) registry: Registry,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The stored roles and bindings, for the authorizer and for the checks of granted rules.
    pub(crate) policy: Arc<Policy>,
    impersonation: Impersonation,
    pub(crate) outbound: Arc<dyn Outbound>,
    audit: Option<AuditLog>,
    recorder: Option<Arc<dyn Recorder>>,
    pub(crate) meter: Option<Arc<dyn Meter>>,
    pub(crate) advice: Option<Advice>,
    admission: Vec<Box<dyn Admission>>,
    /// What `/metrics` shows.
    monitoring: monitoring::Monitoring,
    flow_control: FlowControl,
    /// Open watches.
    pub(crate) watches: Arc<Ledger>,
    /// The objects that watches begin with, and have not sent yet.
    pub(crate) beginnings: Arc<Ledger>,
    /// The known definitions. Held while one is settled, so that the registry never goes back in time.
    definitions: std::sync::Mutex<crate::registry::definitions::Definitions>,
    /// The unique values that objects hold, so that none is given twice.
    claims: upkeep::claims::Claims,
    compaction: upkeep::compaction::Compaction,
    endings: upkeep::endings::WorkerState,
    identity: upkeep::bootstrap::Identity,
    remote_services: Followed<upkeep::api_services::RemoteServices>,
    forwarder: Option<Arc<dyn Forwarder>>,
    /// Requests under way to other servers.
    forwarded: Arc<Ledger>,
    probes: aggregate::probes::Probes,
    slices: upkeep::slices::Slices,
    flow_schemas: Followed<upkeep::FlowSchemas>,
    budgets: Followed<special::eviction::budgets::Budgets>,
    /// See [`crate::model::StrategyContext::search_start`].
    search_start: AtomicU64,
    /// The compiled regular expressions of rules and policies.
    pub(crate) patterns: kubewright_schema::rules::Patterns,
}

/// A request on its way through the pipeline.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) kinds: Arc<Snapshot>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) path: &'a ResourcePath,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    pub(crate) user: &'a UserInfo,
    /// Whose share it takes: the authenticated user, also when another one is impersonated.
    pub(crate) principal: &'a str,
    deadline: &'a Deadline,
    pub(crate) output: Output,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// The entry in the audit log, if the request is entered.
    pub(crate) audit: Option<&'a Entry>,
}

impl ApiServer {
    /// A new server with empty storage except the objects of every cluster: the system's namespaces, the service
    /// `default/kubernetes`, the system's priority classes and the bootstrap policy of RBAC.
    pub fn new(kinds: Arc<Kinds>, env: Arc<dyn Env>, config: Config) -> ApiServer {
        ApiServer::with(Parts::new(kinds, env, config))
    }

    /// The same with all built-in kinds.
    #[cfg(test)]
    pub(crate) fn of_tests(env: Arc<dyn Env>, config: Config) -> ApiServer {
        ApiServer::with(Parts::of_tests(env, config))
    }

    /// The same with parts of the caller's.
    pub fn with(parts: Parts) -> ApiServer {
        let Parts {
            kinds,
            env,
            config,
            storage,
            authorizer,
            outbound,
            forwarder,
            signer,
            audit,
            recorder,
            meter,
            advice,
            derived,
        } = parts;
        recorder.iter().for_each(|to| storage.record(to.clone()));
        let is_fork = derived.is_some();
        let policy = Arc::new(Policy::new(storage.clone()));
        let authorizer = authorizer
            .unwrap_or_else(|| authorization::by_modes(&config.authorization, &policy, &storage, &env, config.minor));
        let authenticator = config.authenticator(signer, storage.clone(), env.clone());
        let admission = Standard {
            storage: &storage,
            env: &env,
            service_accounts: config.service_account_admission,
            disabled: &config.disabled_plugins,
            enabled: &config.enabled_plugins,
        }
        .plugins();
        let seed = env.random();
        let search_start = AtomicU64::new(seed);
        let flow_control = FlowControl::new(config.max_requests, seed);
        let watches = Ledger::new(config.max_watches);
        let forwarded = Ledger::new(config.max_watches.min(aggregate::UNDER_WAY));
        let inner = Inner {
            authorizer,
            policy,
            impersonation: Impersonation::default(),
            started: env.now(),
            env,
            patterns: kubewright_schema::rules::Patterns::of(config.minor),
            config,
            authenticator,
            registry: match (&derived, &meter) {
                (Some(derived), _) => Registry::serving(derived.kinds.clone()),
                (None, Some(_)) => Registry::measuring(kinds),
                (None, None) => Registry::of(kinds),
            },
            outbound,
            audit,
            recorder,
            meter,
            advice,
            admission,
            storage,
            monitoring: monitoring::Monitoring::default(),
            flow_control,
            watches,
            beginnings: Ledger::new(watch::BEGINNINGS),
            definitions: std::sync::Mutex::new(derived.map(|derived| derived.definitions).unwrap_or_default()),
            claims: upkeep::claims::Claims::default(),
            compaction: upkeep::compaction::Compaction::default(),
            endings: upkeep::endings::WorkerState::default(),
            remote_services: upkeep::api_services::remote_services(),
            forwarder,
            forwarded,
            probes: aggregate::probes::Probes::default(),
            identity: upkeep::bootstrap::Identity::default(),
            slices: upkeep::slices::Slices::default(),
            flow_schemas: upkeep::flow_schemas(),
            budgets: special::eviction::budgets::budgets(),
            search_start,
        };
        inner.recall();
        // A fork has all of it.
        if !is_fork {
            upkeep::bootstrap::fill(&inner);
            inner.record_all_allocations();
        }
        ApiServer { inner: Arc::new(inner) }
    }

    /// The user of a request with these headers and this client certificate; the error is the answer (401).
    ///
    /// Add [`Authenticated::warn`] to the answer of the request.
    ///
    /// # Errors
    /// The response to credentials that prove nothing.
    pub fn authenticate(
        &self,
        identity: &Identity,
        head: &http::request::Parts,
    ) -> Result<Authenticated, Box<Response<Body>>> {
        let authenticator = &self.inner.authenticator;
        let headers = &head.headers;
        authenticator
            .authenticate(identity, headers, authenticator.audiences())
            .map_err(|why| {
                tracing::debug!(why, "credentials are refused");
                let refusal = Status::failure(401, "Unauthorized", "Unauthorized");
                self.inner.enter_unauthenticated(head, &refusal);
                let responder = Responder {
                    output: negotiate::of_failure(headers, &Query::default()),
                    query: &Query::default(),
                    env: self.inner.env.as_ref(),
                };
                Box::new(responder.fail(&refusal))
            })
    }

    /// Answers one request of an authenticated user. Never panics on any request.
    pub async fn handle(&self, request: Request<Bytes>, user: UserInfo) -> Response<Body> {
        self.handle_within(Limits::REQUEST, request, user).await
    }

    /// The same of a request that may cost so much.
    pub(crate) async fn handle_within(
        &self,
        limits: Limits,
        request: Request<Bytes>,
        user: UserInfo,
    ) -> Response<Body> {
        let (head, body) = request.into_parts();
        match self.admit(&head, user).await {
            Ok(admitted) => {
                let mut response = match self.enter(&admitted).await {
                    Ok(_seats) => self.answer_within(limits, &admitted, &head, &body).await,
                    Err(rejection) => *rejection,
                };
                admitted.complete(&mut response);
                response
            }
            Err(refusal) => *refusal,
        }
    }

    /// Answers a request that was admitted with this head. Call [`Admitted::complete`] with the response.
    pub async fn answer(&self, admitted: &Admitted, head: &http::request::Parts, body: &Bytes) -> Response<Body> {
        self.answer_within(Limits::REQUEST, admitted, head, body).await
    }

    async fn answer_within(
        &self,
        limits: Limits,
        admitted: &Admitted,
        head: &http::request::Parts,
        body: &Bytes,
    ) -> Response<Body> {
        let answering = self.inner.answer(admitted, head, body);
        let response = match Metered::new(limits, answering).telling(&admitted.made).await {
            Ok(response) => response,
            Err(why) => self.too_costly(admitted, head, why),
        };
        compress::finished(head, Some(&admitted.target), response, self.inner.config.minor)
    }

    /// How long a request may be tried where others wait meanwhile.
    pub fn trial() -> Trial {
        Trial::new(TRIAL)
    }

    /// [`answer`](ApiServer::answer) where others wait meanwhile. A request that has changed something runs to its end;
    /// so does one that has made an outbound call, which should continue on another thread ([`Trial::has_called`]).
    ///
    /// # Errors
    /// [`TooLong`], with nothing done. Ask again, with [`ApiServer::answer`], on a thread where no other request waits.
    pub async fn try_answer(
        &self,
        trial: &Trial,
        admitted: &Admitted,
        head: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, TooLong> {
        let answering = self.inner.answer(admitted, head, body);
        let metered = Metered::new(Limits::REQUEST, answering);
        let mut trying = metered.telling(&admitted.made).on(trial);
        let response = match (&mut trying).await {
            Ok(response) => response,
            Err(Exhausted::Trial) => return Err(TooLong),
            Err(why) => self.too_costly(admitted, head, why),
        };
        if trying.is_on_trial() && compress::is_wanted(&head.headers, &admitted.target, &response) {
            return Err(TooLong);
        }
        Ok(compress::finished(
            head,
            Some(&admitted.target),
            response,
            self.inner.config.minor,
        ))
    }

    fn too_costly(&self, admitted: &Admitted, head: &http::request::Parts, why: Exhausted) -> Response<Body> {
        let status = Status::too_costly(why);
        noted(admitted.audit.as_deref(), &status);
        self.inner.fail_as_asked(&head.headers, &Query::default(), &status)
    }

    /// 504, for a shell that dropped a request whose time was up ([`Admitted::expire`]).
    pub fn timed_out(&self, admitted: &Admitted, head: &http::request::Parts) -> Response<Body> {
        let status = admitted.deadline.status();
        noted(admitted.audit.as_deref(), &status);
        self.inner.fail_as_asked(&head.headers, &Query::default(), &status)
    }

    /// 413, for a shell that stopped reading a body at [`MAX_BODY`].
    pub fn body_too_large(&self) -> Response<Body> {
        self.inner.fail(&Status::body_too_large(MAX_BODY))
    }

    /// Ends all watches; requests that come later are answered as before.
    pub fn shutdown(&self) {
        self.inner.storage.close_watches();
    }

    /// Waits until everything that is stored survives the process; at once when storage keeps nothing beyond it.
    ///
    /// # Errors
    /// The 500 that writes get when it cannot be kept.
    pub async fn settled(&self) -> Result<(), Status> {
        self.inner.settle(self.inner.storage.revision()).await
    }

    /// The version of the latest write.
    pub fn resource_version(&self) -> u64 {
        self.inner.storage.revision()
    }

    /// The kinds that are served now.
    pub fn kinds(&self) -> Arc<Snapshot> {
        self.inner.registry.snapshot()
    }
}

impl Inner {
    /// A failure before anything is negotiated.
    fn fail(&self, status: &Status) -> Response<Body> {
        Responder {
            output: Output::JSON,
            query: &Query::default(),
            env: self.env.as_ref(),
        }
        .fail(status)
    }

    /// A failure in the form that the client asks for, as far as there is one.
    fn fail_as_asked(&self, headers: &HeaderMap, query: &Query, status: &Status) -> Response<Body> {
        Responder {
            output: negotiate::of_failure(headers, query),
            query,
            env: self.env.as_ref(),
        }
        .fail(status)
    }

    async fn answer(&self, admitted: &Admitted, head: &http::request::Parts, body: &Bytes) -> Response<Body> {
        if body.len() > MAX_BODY {
            return self.fail(&Status::body_too_large(MAX_BODY));
        }
        if let Some(remote) = &admitted.remote {
            return self.forward(remote, admitted, head, body).await;
        }
        let query = &admitted.query;
        match &admitted.target {
            Target::Resource(path, verb) => self.answer_resource(head, admitted, path, *verb, body).await,
            Target::Page(page) => {
                let answer = self.answer_page(page, head, query);
                // The served kinds follow from the stored definitions; health must be answered at once.
                if !matches!(page, Page::Health { .. })
                    && let Err(status) = self.settle(self.storage.revision()).await
                {
                    return self.fail(&status);
                }
                answer
            }
        }
    }

    async fn answer_resource(
        &self,
        head: &http::request::Parts,
        admitted: &Admitted,
        path: &ResourcePath,
        verb: Option<Verb>,
        body: &Bytes,
    ) -> Response<Body> {
        let (method, headers) = (&head.method, &head.headers);
        let (query, audit) = (&admitted.query, admitted.audit.as_deref());
        let refuse = |status: &Status| self.fail_as_asked(headers, query, noted(audit, status));
        let kinds = self.registry.snapshot();
        let resource = match find(&kinds, path) {
            Ok(resource) => resource,
            Err(Missing::Group) => return self.not_found_text(query),
            Err(Missing::Resource) => return refuse(&Status::no_such_path()),
        };
        let Some(verb) = verb else {
            let is_named = resource.verbs == Verbs::CreateOnly && path.name.is_some();
            let is_unknown = is_named || Endpoint::of(&resource, path, Verb::Get) == Err(NotServed::Path);
            let why = if is_unknown { NotServed::Path } else { NotServed::Method };
            return self.fail(noted(audit, &why.status(&resource, "")));
        };
        // The old form of watches is a path of its own, which is only read.
        if path.legacy_watch && resource.custom.is_none() {
            if path.subresource.is_some() {
                return refuse(&Status::no_such_path());
            }
            if method != Method::GET {
                return self.fail(noted(audit, &Status::method_not_allowed()));
            }
        }
        let endpoint = Endpoint::of(&resource, path, verb);
        let refusal = endpoint.as_ref().err().copied();
        let early = refusal.and_then(|why| why.before_negotiation(&resource, path, verb));
        if early.is_none()
            && matches!(verb, Verb::Get | Verb::Patch | Verb::Delete)
            && let Some(Err(status)) = path.name.as_deref().map(check_path_name)
        {
            return refuse(&status);
        }
        let many = matches!(verb, Verb::List | Verb::Watch);
        let output = match special::review::output(&resource, headers, query, many) {
            Ok(output) => output,
            Err(_) if matches!(endpoint, Ok(Endpoint::Connect(_))) => negotiate::of_failure(headers, query), // no document
            Err(status) => {
                let early = early.map(|why| why.status(&resource, path.name.as_deref().unwrap_or("")));
                return refuse(&early.unwrap_or_else(|| patch::refused(verb, &resource, headers, status)));
            }
        };
        let env = self.env.as_ref();
        let responder = Responder { output, query, env };
        let mut call = Call {
            server: self,
            kinds,
            resource,
            path,
            query,
            headers,
            body,
            user: &admitted.user,
            principal: &admitted.principal,
            deadline: &admitted.deadline,
            output,
            warnings: Vec::new(),
            audit,
        };
        if let Some(warning) = call
            .resource
            .custom
            .as_ref()
            .and_then(|custom| custom.deprecation_warning.clone())
        {
            call.warnings.push(warning);
        }
        let outcome = match endpoint {
            Ok(endpoint) => call.run(endpoint).await,
            Err(why) => Err(why.status(&call.resource, call.name())),
        };
        // A path that is not served gives no deprecation warning.
        let is_routed = !refusal.is_some_and(NotServed::is_routers);
        if let Some(deprecation) = call.resource.deprecation.filter(|_| is_routed) {
            call.warnings.insert(0, deprecation.to_owned());
            if let Some(entry) = audit {
                entry.annotate("k8s.io/deprecated", "true");
            }
        }
        let settled = self.settled(outcome).await;
        if verb.writes() {
            self.policy.settle_written(&call.resource.store);
        }
        match settled {
            Ok(mut reply) => {
                reply.warnings.splice(0..0, call.warnings);
                admitted.enter(&responder, &reply.content, verb);
                responder.respond(reply)
            }
            Err(mut status) => {
                status.warnings.splice(0..0, call.warnings);
                refuse(&status)
            }
        }
    }
}

/// A failure, which is entered in the audit log as the answer.
fn noted<'s>(audit: Option<&Entry>, status: &'s Status) -> &'s Status {
    if let Some(entry) = audit {
        entry.answered(&status.to_value());
    }
    status
}
