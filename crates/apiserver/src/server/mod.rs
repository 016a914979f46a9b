//! The server: one pipeline for every request and every kind.
//!
//! [`ApiServer::handle`] routes a request, asks the authorizer, and hands it to a verb. The verbs stand in files of their own: `read`
//! (get, list, watch), `create`, `update`, `patch`, `apply`, `delete`, `subresource`; what all writes share is in `write`. What belongs to a kind
//! comes out of its row (see [`crate::registry::Resource`]).
//!
//! Invariants: a request works on one snapshot of the registry; a write is a function of the present object that runs again when somebody
//! else was faster; nothing that a request holds makes a verb panic.

mod admit;
mod apply;
mod authorize;
mod bootstrap;
mod claims;
mod conversion_review;
pub(crate) mod convert;
mod create;
mod custom;
mod decode;
mod definitions;
mod delete;
mod eviction;
mod managed;
pub(crate) mod negotiate;
mod options;
mod patch;
mod paths;
pub(crate) mod query;
mod read;
pub(crate) mod respond;
mod review;
mod route;
mod subresource;
mod update;
mod write;
mod yaml;

#[cfg(test)]
mod recorded;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod webhook_tests;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Response};

pub use crate::authorization::{Attributes, Authorizer};
pub(crate) use convert::{complete_strictly, decode_patched};
pub(crate) use managed::check_admitted;
pub(crate) use managed::object_type;
pub(crate) use respond::full as full_object;
pub(crate) use subresource::name_of as subresource_name;
pub(crate) use write::default;

use crate::admission::policy::{MutatingPolicies, ParameterAccess, ValidatingPolicies};
use crate::admission::{
    Admission, Classes, MutatingWebhooks, NamespaceLifecycle, Signers, TaintNodes, ValidatingWebhooks,
};
use crate::authorization::{self, Policy, impersonation::Impersonation};
use crate::outbound::{NoOutbound, Outbound};
use crate::registry::{Registry, Resource, Snapshot, Verbs};
use crate::status::Status;
use crate::storage::{MemoryStorage, Storage};
use crate::{Body, Env, UserInfo};
use negotiate::Output;
use query::Query;
use respond::{Reply, Responder};
use route::{Path, ResourcePath, Verb};

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
    /// How many events may wait for one watcher before it is cut off. Default 4096.
    pub watch_buffer: usize,
    /// How many watches may be open at the same time; more are answered with 429. Default 20000.
    pub max_watches: usize,
    /// How often a watch that asked for bookmarks gets one. Default one minute.
    pub bookmark_interval: std::time::Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            version: "v1.36.3".to_owned(),
            history: 4096,
            watch_buffer: 4096,
            max_watches: 20_000,
            bookmark_interval: std::time::Duration::from_secs(60),
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
}

impl Parts {
    /// Empty storage in memory, RBAC, no way to call webhooks.
    pub fn new(env: Arc<dyn Env>, config: Config) -> Parts {
        Parts {
            storage: Arc::new(MemoryStorage::new(config.history, config.watch_buffer)),
            authorizer: None,
            outbound: Arc::new(NoOutbound),
            env,
            config,
        }
    }
}

/// A Kubernetes API server without a socket. A clone is another handle to the same server.
///
/// The shell authenticates, reads the body (see [`MAX_BODY`]) and sends what [`ApiServer::handle`] answers.
#[derive(Clone)]
pub struct ApiServer {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) env: Arc<dyn Env>,
    pub(crate) config: Config,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) registry: Registry,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    /// The stored roles and bindings, for the authorizer and for the checks of what is granted.
    pub(crate) policy: Arc<Policy>,
    impersonation: Impersonation,
    pub(crate) outbound: Arc<dyn Outbound>,
    admission: Vec<Box<dyn Admission>>,
    /// Open watches.
    pub(crate) watches: Arc<AtomicUsize>,
    /// Held while definitions are settled, so that the registry never goes back in time.
    definitions: std::sync::Mutex<()>,
    /// Objects with allocated values that are not stored yet, so that nothing is given twice.
    claims: claims::Claims,
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
        } = parts;
        let policy = Arc::new(Policy::new(storage.clone()));
        let authorizer = authorizer.unwrap_or_else(|| authorization::standard(policy.clone()));
        let inner = Inner {
            authorizer: authorizer.clone(),
            policy,
            impersonation: Impersonation::default(),
            env,
            config,
            registry: Registry::new(),
            outbound,
            admission: vec![
                Box::new(NamespaceLifecycle::new(storage.clone())),
                Box::new(TaintNodes),
                Box::new(Classes::new(storage.clone())),
                Box::new(ParameterAccess),
                Box::new(MutatingPolicies::default()),
                Box::new(MutatingWebhooks::default()),
                Box::new(Signers::new(authorizer)),
                Box::new(ValidatingPolicies::default()),
                Box::new(ValidatingWebhooks::default()),
            ],
            storage,
            watches: Arc::default(),
            definitions: std::sync::Mutex::default(),
            claims: claims::Claims::default(),
        };
        inner.settle_definitions();
        bootstrap::fill(&inner);
        ApiServer { inner: Arc::new(inner) }
    }

    /// Answers one request of an authenticated user. Never panics on what the request holds.
    pub async fn handle(&self, request: Request<Bytes>, user: UserInfo) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let head = parts.method == Method::HEAD;
        let mut response = self
            .inner
            .answer(&parts.method, &parts.uri, &parts.headers, &body, &user)
            .await;
        if head {
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
            now: self.env.now(),
        }
        .fail(status)
    }

    /// A failure in the form that the client asks for, as far as there is one.
    fn fail_as_asked(&self, headers: &HeaderMap, query: &Query, status: &Status) -> Response<Body> {
        let asked = negotiate::output(headers, query, false).unwrap_or(Output::JSON);
        Responder {
            output: Output {
                transform: negotiate::Transform::None,
                ..asked
            },
            query,
            now: self.env.now(),
        }
        .fail(status)
    }

    async fn answer(
        &self,
        method: &Method,
        uri: &http::Uri,
        headers: &HeaderMap,
        body: &Bytes,
        user: &UserInfo,
    ) -> Response<Body> {
        if body.len() > MAX_BODY {
            return self.fail(&Status::body_too_large(MAX_BODY));
        }
        let query = match Query::parse(uri.query().unwrap_or("")) {
            Ok(query) => query,
            Err(status) => return self.fail(&status),
        };
        match route::parse(uri.path()) {
            Path::Resource(path) => self.answer_resource(method, path, headers, &query, body, user).await,
            Path::Discovery | Path::Other => self.answer_path(method, uri, headers, &query, user),
        }
    }

    async fn answer_resource(
        &self,
        method: &Method,
        path: ResourcePath,
        headers: &HeaderMap,
        query: &Query,
        body: &Bytes,
        user: &UserInfo,
    ) -> Response<Body> {
        let verb = Verb::of(method, &path, query.flag("watch"));
        let attributes = authorize::resource_attributes(&path, verb, query);
        let user = match self.admit(user, headers, &attributes) {
            Ok(user) => user,
            Err(status) => return self.fail_as_asked(headers, query, &status),
        };
        let Some(verb) = verb else {
            return self.fail(&Status::method_not_allowed());
        };
        let kinds = self.registry.snapshot();
        let resource = match find(&kinds, &path) {
            Ok(resource) => resource,
            Err(Missing::Group) => return self.not_found_text(query),
            Err(Missing::Resource) => return self.fail(&Status::no_such_path()),
        };
        let streams = path.name.is_none();
        let output = match review::output(&resource, headers, query, streams) {
            Ok(output) => output,
            Err(status) => return self.fail(&status),
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
            user: &user,
            output,
            warnings: Vec::new(),
        };
        if let Some(warning) = call
            .resource
            .custom
            .as_ref()
            .and_then(|custom| custom.deprecation_warning.clone())
        {
            call.warnings.push(warning);
        }
        match call.run(verb).await {
            Ok(mut reply) => {
                reply.warnings.splice(0..0, call.warnings);
                responder.respond(reply)
            }
            Err(mut status) => {
                status.warnings.splice(0..0, call.warnings);
                responder.fail(&status)
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
}

enum Missing {
    Group,
    Resource,
}

fn find(kinds: &Snapshot, path: &ResourcePath) -> Result<Arc<Resource>, Missing> {
    let Some(resource) = kinds.lookup(&path.group, &path.version, &path.plural) else {
        // In a group that only definitions serve, what none of them serves is no path at all.
        let built_in = kinds
            .resources()
            .iter()
            .any(|row| row.custom.is_none() && row.group == path.group);
        return Err(if built_in { Missing::Resource } else { Missing::Group });
    };
    let is_namespace = path.group.is_empty() && path.plural == "namespaces";
    let scope_fits = resource.namespaced || path.namespace.is_none() || is_namespace;
    if path.too_deep || !scope_fits || (resource.namespaced && path.namespace.is_none() && path.name.is_some()) {
        return Err(Missing::Resource);
    }
    if path.namespace.as_deref() == Some("") || path.name.as_deref() == Some("") {
        return Err(Missing::Resource);
    }
    Ok(resource)
}

impl Call<'_> {
    async fn run(&mut self, verb: Verb) -> Result<Reply, Status> {
        if self.path.subresource.is_some() {
            return self.run_subresource(verb).await;
        }
        let everywhere = self.resource.namespaced && self.path.namespace.is_none();
        let verbs = self.resource.verbs;
        if verbs == Verbs::CreateOnly {
            return match (verb, self.path.name.is_some()) {
                (_, true) => Err(Status::no_such_path()),
                (Verb::Create, false) if !everywhere && review::is_answered(&self.resource) => self.review().await,
                (Verb::Create, false) if !everywhere => self.create().await,
                (_, false) if everywhere => Err(Status::no_such_path()),
                _ => Err(Status::method_not_allowed()),
            };
        }
        match (verb, self.path.name.is_some()) {
            (Verb::Get, true) => self.get().await,
            (Verb::List, false) => self.list().await,
            (Verb::Watch, _) => self.watch().await,
            (Verb::Create, false) if !everywhere => self.create().await,
            (Verb::Update, true) => self.update().await,
            (Verb::Patch, true) => self.patch().await,
            (Verb::Delete, true) => self.delete().await,
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
        write::key(self.namespace(), self.name())
    }
}
