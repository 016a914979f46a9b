//! The server: one pipeline for every request and every kind.
//!
//! [`ApiServer::handle`] routes a request, asks the authorizer, and hands it to a verb. The verbs stand in files of their own: `read`
//! (get, list, watch), `create`, `update`, `patch`, `apply`, `delete`, `subresource`; what all writes share is in `write`. What belongs to a kind
//! comes out of its row (see [`crate::model::Resource`]).
//!
//! Invariants: a request works on one snapshot of the registry; a write is a function of the present object that runs again when somebody
//! else was faster; nothing that a request holds makes a verb panic; one that costs too much is cancelled before it commits (see
//! [`kubewright_schema::budget`]).

mod admit;
mod apply;
mod authorize;
mod compress;
mod conversion_review;
pub(crate) mod convert;
mod create;
mod custom;
mod decode;
mod delete;
mod embedded;
mod empties;
mod head;
mod health;
mod host;
mod last_applied;
mod lists;
mod managed;
mod options;
mod patch;
mod paths;
#[cfg(test)]
mod quota_tests;
mod read;
pub(crate) mod respond;
mod route;
mod settle;
mod special;
mod subresource;
mod update;
mod upkeep;
pub(crate) mod watch;
mod weight;
mod write;

#[cfg(test)]
mod growth;
#[cfg(test)]
mod hostile_tests;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod token_tests;
#[cfg(test)]
mod webhook_tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize};

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};
use kubewright_schema::budget::{Exhausted, Limits, Metered, Trial};

use crate::model::form::key;
pub use crate::wire::query::first_broken_escape;
pub use head::Admitted;
use head::Target;
pub use special::streams::{Connect, LogOptions, Streams, Wants};
pub use weight::{TRIAL, TooLong, Weight};

use crate::admission::policy::{MutatingPolicies, ParameterAccess, ValidatingPolicies};
use crate::admission::{
    Admission, Classes, LimitRanger, MutatingWebhooks, NamespaceLifecycle, PodSecurity, Resizes, ResourceQuotas,
    ServiceAccounts, Signers, StorageProtection, TaintNodes, Tolerations, TopologyLabels, ValidatingWebhooks,
};
use crate::audit::{AuditLog, Entry};
use crate::authentication::{Authenticated, Authenticator, Identity, NoSigner, Signer, StaticTokens};
use crate::authorization::{self, Authorizer, Policy, impersonation::Impersonation};
use crate::model::status::Status;
use crate::model::{Resource, Subresource, Verbs};
use crate::outbound::{NoOutbound, Outbound};
use crate::registry::{Registry, Snapshot, order_of_store};
use crate::storage::{Bounds, MemoryStorage, Storage};
use crate::wire::negotiate::{self, Output};
use crate::wire::query::Query;
use crate::{Body, Env, ServiceRange, UserInfo};
use respond::{Reply, Responder};
use route::{ResourcePath, Verb};

/// The largest request body that is read, in bytes (3 MiB, as kube-apiserver).
pub const MAX_BODY: usize = 3 * 1024 * 1024;

/// What may be set about a server. `Config::default()` is right for a test cluster.
#[derive(Clone, Debug)]
pub struct Config {
    /// `gitVersion` that `/version` answers with.
    pub version: String,
    /// How many changes of one kind are kept for watches that start in the past and for reads of older versions; older ones
    /// answer 410. Default 4096.
    pub history: usize,
    /// How many bytes of changes are kept of all kinds together, whatever their number. Default 64 MiB.
    pub history_bytes: usize,
    /// How many events may wait for one watcher before it is cut off. Default 4096.
    pub watch_buffer: usize,
    /// How many watches may be open at the same time; more are answered with 429. Default 20000.
    pub max_watches: usize,
    /// How often a watch that asked for bookmarks gets one. Default one minute.
    pub bookmark_interval: std::time::Duration,
    /// How long Events stay after their last write (`--event-ttl`), when somebody polls [`ApiServer::expire_events`]; zero: for ever.
    /// Default one hour.
    pub event_ttl: std::time::Duration,
    /// The issuer of service account tokens (`--service-account-issuer`), which is their audience as well.
    pub issuer: String,
    /// Users who come with a token (`--token-auth-file`). Default nobody.
    pub static_tokens: StaticTokens,
    /// Whether new pods get their service account and its token (the admission plugin `ServiceAccount`). It needs somebody who makes the
    /// account `default` of every namespace: without it no pod can be created there. Default no.
    pub service_account_admission: bool,
    /// Whether requests without credentials are answered as those of `system:anonymous` (`--anonymous-auth`). Default yes.
    pub anonymous: bool,
    /// Who decides what users may do (`--authorization-mode`), in this order. Default RBAC.
    pub authorization: Vec<authorization::Mode>,
    /// The admission plugins that do not run (`--disable-admission-plugins`), of [`SEPARABLE_PLUGINS`]. Default none.
    pub disabled_plugins: std::collections::BTreeSet<String>,
    /// The addresses that Services get. Default `10.0.0.0/24`, as kube-apiserver.
    pub service_range: ServiceRange,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            version: "v1.36.3".to_owned(),
            history: 4096,
            history_bytes: Bounds::default().history_bytes,
            watch_buffer: 4096,
            max_watches: 20_000,
            bookmark_interval: std::time::Duration::from_secs(60),
            event_ttl: std::time::Duration::from_secs(3600),
            service_range: ServiceRange::default(),
            issuer: "https://kubernetes.default.svc.cluster.local".to_owned(),
            static_tokens: StaticTokens::default(),
            service_account_admission: false,
            anonymous: true,
            authorization: vec![authorization::Mode::Rbac],
            disabled_plugins: std::collections::BTreeSet::new(),
        }
    }
}

impl Config {
    /// How a storage for this server writes objects down, and what it may hold besides them.
    pub fn bounds(&self) -> Bounds {
        Bounds {
            history: self.history,
            history_bytes: self.history_bytes,
            buffer: self.watch_buffer,
            order: order_of_store,
            ..Bounds::default()
        }
    }
}

/// What a server is made of. [`Parts::new`] is right for a test cluster; change what is to be different.
pub struct Parts {
    /// Time, entropy, timers.
    pub env: Arc<dyn Env>,
    /// Sizes and limits.
    pub config: Config,
    /// Where objects live.
    pub storage: Arc<dyn Storage>,
    /// Who may do what; `None`: `system:masters` everything, others what the stored roles and bindings give them
    /// ([`authorization::standard`]).
    pub authorizer: Option<Arc<dyn Authorizer>>,
    /// How webhooks are called.
    pub outbound: Arc<dyn Outbound>,
    /// The key that tokens of service accounts are signed with.
    pub signer: Arc<dyn Signer>,
    /// The audit log, if one is kept.
    pub audit: Option<AuditLog>,
}

impl Parts {
    /// Empty storage in memory, RBAC, no way to call webhooks, no tokens, no audit log.
    pub fn new(env: Arc<dyn Env>, config: Config) -> Parts {
        Parts {
            storage: Arc::new(MemoryStorage::bounded(config.bounds())),
            authorizer: None,
            outbound: Arc::new(NoOutbound),
            signer: Arc::new(NoSigner),
            audit: None,
            env,
            config,
        }
    }
}

/// A Kubernetes API server without a socket. A clone is another handle to the same server.
///
/// The shell asks who it is ([`ApiServer::authenticate`]) and whether he may ([`ApiServer::admit`]), reads the body (see [`MAX_BODY`]) and
/// sends what [`ApiServer::answer`] says. [`ApiServer::handle`] does the last three in one.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) config: Config,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) registry: Registry,
    pub(crate) authenticator: Authenticator,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The stored roles and bindings, for the authorizer and for the checks of what is granted.
    pub(crate) policy: Arc<Policy>,
    impersonation: Impersonation,
    pub(crate) outbound: Arc<dyn Outbound>,
    audit: Option<AuditLog>,
    admission: Vec<Box<dyn Admission>>,
    /// Open watches.
    pub(crate) watches: Arc<AtomicUsize>,
    /// What is known of the definitions. Held while one is settled, so that the registry never goes back in time.
    definitions: std::sync::Mutex<crate::registry::definitions::Definitions>,
    /// What objects hold that no other may have, so that nothing is given twice.
    claims: upkeep::claims::Claims,
    endings: upkeep::endings::Attended,
    of_others: upkeep::api_services::KnownOfOthers,
    /// See [`crate::model::StrategyContext::turns`].
    turns: AtomicU64,
}

/// A request on its way through the pipeline.
pub(crate) struct Call<'a> {
    pub(crate) server: &'a Inner,
    pub(crate) kinds: Arc<Snapshot>,
    pub(crate) resource: Arc<Resource>,
    pub(crate) path: ResourcePath,
    pub(crate) query: &'a Query,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a Bytes,
    pub(crate) user: &'a UserInfo,
    pub(crate) output: Output,
    /// Texts for `Warning` headers.
    pub(crate) warnings: Vec<String>,
    /// The entry in the audit log, if the request is entered.
    pub(crate) audit: Option<&'a Entry>,
}

/// The admission plugins that can be left out one by one, by their names upstream.
pub const SEPARABLE_PLUGINS: [&str; 14] = [
    "NamespaceLifecycle",
    "LimitRanger",
    "ServiceAccount",
    "TaintNodesByCondition",
    "PodSecurity",
    "DefaultTolerationSeconds",
    "StorageObjectInUseProtection",
    "PersistentVolumeClaimResize",
    "PodTopologyLabels",
    "MutatingAdmissionPolicy",
    "MutatingAdmissionWebhook",
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionWebhook",
    "ResourceQuota",
];

/// The admission plugins of a server, in the order in which they see a write (`AllOrderedPlugins`).
fn plugins(
    config: &Config,
    storage: &Arc<dyn Storage>,
    env: &Arc<dyn Env>,
    authorizer: &Arc<dyn Authorizer>,
) -> Vec<Box<dyn Admission>> {
    let service_accounts = config
        .service_account_admission
        .then(|| Box::new(ServiceAccounts::new(storage.clone(), env.clone())) as Box<dyn Admission>);
    // What has no name of its own here cannot be left out.
    let all: Vec<(&str, Option<Box<dyn Admission>>)> = vec![
        (
            "NamespaceLifecycle",
            Some(Box::new(NamespaceLifecycle::new(storage.clone()))),
        ),
        ("LimitRanger", Some(Box::new(LimitRanger::new(storage.clone())))),
        ("ServiceAccount", service_accounts),
        ("TaintNodesByCondition", Some(Box::new(TaintNodes))),
        ("PodSecurity", Some(Box::new(PodSecurity))),
        ("", Some(Box::new(Classes::new(storage.clone())))),
        ("DefaultTolerationSeconds", Some(Box::new(Tolerations))),
        ("StorageObjectInUseProtection", Some(Box::new(StorageProtection))),
        ("PersistentVolumeClaimResize", Some(Box::new(Resizes))),
        ("", Some(Box::new(Signers::new(authorizer.clone())))),
        ("PodTopologyLabels", Some(Box::new(TopologyLabels))),
        ("", Some(Box::new(ParameterAccess))),
        ("MutatingAdmissionPolicy", Some(Box::new(MutatingPolicies::default()))),
        ("MutatingAdmissionWebhook", Some(Box::new(MutatingWebhooks::default()))),
        (
            "ValidatingAdmissionPolicy",
            Some(Box::new(ValidatingPolicies::default())),
        ),
        (
            "ValidatingAdmissionWebhook",
            Some(Box::new(ValidatingWebhooks::default())),
        ),
        // What is charged is never refused by another plugin.
        ("ResourceQuota", Some(Box::new(ResourceQuotas))),
    ];
    all.into_iter()
        .filter(|(name, _)| !config.disabled_plugins.contains(*name))
        .filter_map(|(_, plugin)| plugin)
        .collect()
}

impl ApiServer {
    /// A new server with empty storage but for what every cluster has: the namespaces `default`, `kube-system`, `kube-public`
    /// and `kube-node-lease`, the service `default/kubernetes`, the two priority classes of the system, and the bootstrap policy of RBAC.
    pub fn new(env: Arc<dyn Env>, config: Config) -> ApiServer {
        ApiServer::with(Parts::new(env, config))
    }

    /// The same with parts of the caller's.
    pub fn with(parts: Parts) -> ApiServer {
        let Parts {
            env,
            config,
            storage,
            authorizer,
            outbound,
            signer,
            audit,
        } = parts;
        let policy = Arc::new(Policy::new(storage.clone()));
        let authorizer = authorizer.unwrap_or_else(|| authorization::by_modes(&config.authorization, &policy));
        let tokens = config.static_tokens.clone();
        let authenticator = Authenticator::new(tokens, &config.issuer, signer, storage.clone(), env.clone())
            .anonymous(config.anonymous);
        let admission = plugins(&config, &storage, &env, &authorizer);
        let turns = AtomicU64::new(env.random());
        let inner = Inner {
            authorizer,
            policy,
            impersonation: Impersonation::default(),
            env,
            config,
            authenticator,
            registry: Registry::new(),
            outbound,
            audit,
            admission,
            storage,
            watches: Arc::default(),
            definitions: std::sync::Mutex::default(),
            claims: upkeep::claims::Claims::default(),
            endings: upkeep::endings::Attended::default(),
            of_others: upkeep::api_services::KnownOfOthers::default(),
            turns,
        };
        inner.recall();
        upkeep::bootstrap::fill(&inner);
        inner.note_all_holdings();
        ApiServer { inner: Arc::new(inner) }
    }

    /// Who sends a request with these headers over a connection with this certificate; the error is the answer (401).
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
                    now: self.inner.env.now(),
                };
                Box::new(responder.fail(&refusal))
            })
    }

    /// Answers one request of an authenticated user. Never panics on what the request holds.
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
        match self.admit(&head, user) {
            Ok(admitted) => {
                let mut response = self.answer_within(limits, &admitted, &head, &body).await;
                admitted.complete(&mut response);
                response
            }
            Err(refusal) => *refusal,
        }
    }

    /// Answers a request that was admitted with this head. Call [`Admitted::complete`] with what is sent.
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
        let response = match Metered::new(limits, answering).await {
            Ok(response) => response,
            Err(why) => self.too_costly(admitted, head, why),
        };
        self.finished(head, response)
    }

    /// How long a request may be tried where others wait meanwhile.
    pub fn trial() -> Trial {
        Trial::new(TRIAL)
    }

    /// [`answer`](ApiServer::answer) where others wait meanwhile. What has changed something goes on to its end; what has called somebody
    /// does so, too, and should go on elsewhere ([`Trial::has_called`]).
    ///
    /// # Errors
    /// [`TooLong`], with nothing done. Ask again, with [`ApiServer::answer`], where nobody waits.
    pub async fn try_answer(
        &self,
        trial: &Trial,
        admitted: &Admitted,
        head: &http::request::Parts,
        body: &Bytes,
    ) -> Result<Response<Body>, TooLong> {
        let mut trying = Metered::new(Limits::REQUEST, self.inner.answer(admitted, head, body)).on(trial);
        let response = match (&mut trying).await {
            Ok(response) => response,
            Err(Exhausted::Trial) => return Err(TooLong),
            Err(why) => self.too_costly(admitted, head, why),
        };
        if trying.is_on_trial() && compress::is_wanted(head, &response) {
            return Err(TooLong);
        }
        Ok(self.finished(head, response))
    }

    fn too_costly(&self, admitted: &Admitted, head: &http::request::Parts, why: Exhausted) -> Response<Body> {
        let status = Status::too_costly(why);
        noted(admitted.audit.as_deref(), &status);
        self.inner.fail_as_asked(&head.headers, &Query::default(), &status)
    }

    /// An answer as the client takes it: in gzip when it asks for it, without its body when it only wants the head.
    fn finished(&self, head: &http::request::Parts, mut response: Response<Body>) -> Response<Body> {
        if compress::is_wanted(head, &response) {
            compress::response(&mut response);
        }
        if head.method == Method::HEAD {
            *response.body_mut() = Body::Full(Bytes::new());
        }
        response
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

/// How long a client wants to wait must be a duration; watches have a parameter of their own for it.
fn check_timeout(query: &Query) -> Result<(), Status> {
    let timeout = query.get("timeout");
    if timeout.is_empty() || query.flag("watch") {
        return Ok(());
    }
    crate::kinds::cron::duration(timeout)
        .map_err(|why| Status::bad_request(format!("invalid timeout specified in the request URL - {why}")))
}

impl Inner {
    /// A failure before anything is negotiated.
    fn fail(&self, status: &Status) -> Response<Body> {
        Responder {
            output: Output::JSON,
            query: &Query::default(),
            now: self.env.now(),
        }
        .fail(status)
    }

    /// A failure in the form that the client asks for, as far as there is one.
    fn fail_as_asked(&self, headers: &HeaderMap, query: &Query, status: &Status) -> Response<Body> {
        Responder {
            output: negotiate::of_failure(headers, query),
            query,
            now: self.env.now(),
        }
        .fail(status)
    }

    async fn answer(&self, admitted: &Admitted, head: &http::request::Parts, body: &Bytes) -> Response<Body> {
        if body.len() > MAX_BODY {
            return self.fail(&Status::body_too_large(MAX_BODY));
        }
        let query = &admitted.query;
        match &admitted.target {
            Target::Resource(path, verb) => self.answer_resource(head, admitted, path.clone(), *verb, body).await,
            Target::Path => {
                let uri = &head.uri;
                let answer = self.answer_path(&head.method, uri, &head.headers, query);
                // What is served follows from the definitions that are stored; health must be told at once.
                if !paths::is_health(uri.path())
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
        path: ResourcePath,
        verb: Option<Verb>,
        body: &Bytes,
    ) -> Response<Body> {
        let (method, headers) = (&head.method, &head.headers);
        let (query, audit) = (&admitted.query, admitted.audit.as_deref());
        let refuse = |status: &Status| self.fail_as_asked(headers, query, noted(audit, status));
        let kinds = self.registry.snapshot();
        let resource = match find(&kinds, &path) {
            Ok(resource) => resource,
            Err(_) if self.is_elsewhere(&path.group, &path.version) => return self.unavailable_text(query),
            Err(Missing::Group) => return self.not_found_text(query),
            Err(Missing::Resource) => return refuse(&Status::no_such_path()),
        };
        let Some(verb) = verb else {
            let nameless = resource.verbs == Verbs::CreateOnly && path.name.is_some();
            let everywhere = resource.verbs == Verbs::CreateOnly && resource.namespaced && path.namespace.is_none();
            let unknown = unrouted(&resource, &path, Verb::Get).is_some_and(|status| status.code == 404);
            let status = if nameless || everywhere || unknown {
                Status::no_such_path()
            } else {
                Status::method_not_allowed()
            };
            return self.fail(noted(audit, &status));
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
        if unrouted(&resource, &path, verb).is_none()
            && matches!(verb, Verb::Get | Verb::Patch | Verb::Delete)
            && let Some(Err(status)) = path.name.as_deref().map(check_path_name)
        {
            return refuse(&status);
        }
        let streams = matches!(verb, Verb::List | Verb::Watch);
        let output = match special::review::output(&resource, headers, query, streams) {
            Ok(output) => output,
            // What leads nowhere is told before what nobody understands.
            Err(status) => {
                let status = unrouted(&resource, &path, verb).unwrap_or(status);
                return refuse(&status);
            }
        };
        let responder = Responder {
            output,
            query,
            now: self.env.now(),
        };
        let mut call = Call {
            server: self,
            kinds,
            resource,
            path,
            query,
            headers,
            body,
            user: &admitted.user,
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
        let outcome = call.run(verb).await;
        let unrouted = outcome
            .as_ref()
            .is_err_and(|status| [Status::method_not_allowed(), Status::no_such_path()].contains(status));
        // A path that leads nowhere warns of nothing.
        if let Some(deprecation) = call.resource.deprecation().filter(|_| !unrouted) {
            call.warnings.insert(0, deprecation.to_owned());
            if let Some(entry) = audit {
                entry.annotate("k8s.io/deprecated", "true");
            }
        }
        match self.settled(outcome).await {
            Ok(mut reply) => {
                reply.warnings.splice(0..0, call.warnings);
                if let Some(entry) = audit {
                    responder.enter(entry, &reply.content);
                }
                responder.respond(reply)
            }
            Err(mut status) => {
                status.warnings.splice(0..0, call.warnings);
                refuse(&status)
            }
        }
    }

    /// What a path of nothing answers: no Status, as upstream.
    fn not_found_text(&self, query: &Query) -> Response<Body> {
        Responder {
            output: Output::JSON,
            query,
            now: self.env.now(),
        }
        .respond(Reply::text(404, "404 page not found\n"))
    }

    /// What the paths of another server answer, to which nothing is proxied.
    fn unavailable_text(&self, query: &Query) -> Response<Body> {
        Responder {
            output: Output::JSON,
            query,
            now: self.env.now(),
        }
        .respond(Reply::text(503, "service unavailable\n"))
    }
}

/// A failure, which is entered in the audit log as the answer.
fn noted<'s>(audit: Option<&Entry>, status: &'s Status) -> &'s Status {
    if let Some(entry) = audit {
        entry.answered(&status.to_value());
    }
    status
}

enum Missing {
    Group,
    Resource,
}

fn find(kinds: &Snapshot, path: &ResourcePath) -> Result<Arc<Resource>, Missing> {
    let Some(resource) = kinds.lookup(&path.group, &path.version, &path.plural) else {
        // In a group that only definitions serve, what none of them serves is no path at all.
        return Err(match kinds.is_built_in_group(&path.group) {
            true => Missing::Resource,
            false => Missing::Group,
        });
    };
    let scope_fits = resource.namespaced || path.namespace.is_none() || resource.is_namespace();
    let is_proxied = path.subresource.as_deref() == Some("proxy")
        && resource
            .subresources
            .iter()
            .any(|subresource| matches!(subresource, Subresource::Refused { name: "proxy", .. }));
    let in_scope = scope_fits && (!resource.namespaced || path.namespace.is_some() || path.name.is_none());
    if !in_scope {
        // Definitions make no path of the other scope.
        return Err(match resource.custom {
            Some(_) => Missing::Group,
            None => Missing::Resource,
        });
    }
    if path.below.len() > 1 && !is_proxied {
        return Err(Missing::Resource);
    }
    if path.namespace.as_deref() == Some("") || path.name.as_deref() == Some("") {
        return Err(Missing::Resource);
    }
    Ok(resource)
}

/// A name that cannot be a segment of a path names nothing.
fn check_path_name(name: &str) -> Result<(), Status> {
    let messages = kubewright_schema::names::path_segment_name(name);
    if messages.is_empty() {
        return Ok(());
    }
    let why = format!("Name parameter invalid: {name:?}: {}", messages.join(";"));
    Err(Status::bad_request(why))
}

/// What the router in front of a built-in kind answers to a path or a method that the kind does not have.
fn unrouted(resource: &Resource, path: &ResourcePath, verb: Verb) -> Option<Status> {
    if resource.custom.is_some() {
        return None;
    }
    let refused = |allowed: bool| (!allowed).then(Status::method_not_allowed);
    if let Some(wanted) = &path.subresource {
        let mut known = resource.subresources.iter();
        let Some(found) = known.find(|known| known.name() == wanted) else {
            return Some(Status::no_such_path());
        };
        return refused(found.verbs().contains(&verb.as_str()));
    }
    let named = path.name.is_some();
    let everywhere = resource.namespaced && path.namespace.is_none();
    if resource.verbs == Verbs::CreateOnly {
        return refused(verb == Verb::Create && !named);
    }
    refused(match verb {
        Verb::Get => named,
        Verb::List | Verb::Watch => true,
        _ if resource.verbs == Verbs::ReadOnly => false,
        Verb::Create => !named && !everywhere,
        Verb::Update | Verb::Patch | Verb::Delete => named,
        Verb::DeleteCollection => !everywhere && resource.verbs == Verbs::All,
    })
}

impl Call<'_> {
    async fn run(&mut self, verb: Verb) -> Result<Reply, Status> {
        if self.path.subresource.is_some() {
            return self.run_subresource(verb).await;
        }
        let everywhere = self.resource.namespaced && self.path.namespace.is_none();
        let verbs = self.resource.verbs;
        if verbs == Verbs::CreateOnly {
            return self.run_create_only(verb, everywhere).await;
        }
        if verbs == Verbs::ReadOnly {
            return self.run_read_only(verb);
        }
        match (verb, self.path.name.is_some()) {
            (Verb::Get, true) => self.get().await,
            (Verb::List, false) => self.list().await,
            (Verb::Watch, _) => self.watch().await,
            (Verb::Create, false) if !everywhere => self.create().await,
            // For custom resources upstream's router looks at the verb alone, and what is created is what the body names (`crdHandler`).
            (Verb::Create, true) if self.resource.custom.is_some() && !everywhere => self.create().await,
            (Verb::Update, true) => self.update().await,
            (Verb::Patch, true) => self.patch().await,
            (Verb::Delete, true) => self.delete().await,
            (Verb::Update | Verb::Patch, false) if self.resource.custom.is_some() && !everywhere => {
                if verb == Verb::Patch {
                    self.check_patch_type()?;
                }
                Err(Status::bad_request("name must be provided"))
            }
            (Verb::DeleteCollection, false) if !everywhere && verbs == Verbs::All => self.delete_collection().await,
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// Namespace of the path; empty for cluster-scoped kinds.
    pub(crate) fn namespace(&self) -> &str {
        if self.resource.namespaced {
            self.path.namespace.as_deref().unwrap_or("")
        } else {
            ""
        }
    }

    /// Name in the path, or empty.
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or("")
    }

    /// The storage key of the object that the path names.
    pub(crate) fn key(&self) -> String {
        key(self.namespace(), self.name())
    }
}
