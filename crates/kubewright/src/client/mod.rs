//! The client: it reads from the shared cache, writes to the API, and its reads see its own writes.
//!
//! A write leaves a receipt with every informer that could hold the object; a read of that object waits until the
//! informer's store has reached the write. Invariants (K1–K6 of the reference): a read never blocks for ever (after the
//! deadline a single object is read from the API, a list fails with [`Error::Stale`]); a write outside an informer's
//! scope does not block its reads; dry runs and refused writes leave no receipt, writes with an unknown outcome (also
//! those whose future was dropped) make the next read ask the API; a delete has the uid of the object that it means.
//!
//! - `read.rs`,
//! - `views.rs`: facts about objects,
//! - `write.rs`,
//! - `status.rs`: the status by server-side apply,
//! - `api.rs`: a plain `kube::Api` under the same rules,
//! - `send.rs`: deadlines and retries; this file: what reads and writes share.
//!
//! Not here: apply, see `apply.rs`; the receipts themselves, see the engine's `receipts`.

mod api;
pub(crate) mod apply;
mod read;
mod send;
mod status;
mod subresource;
mod target;
mod views;
mod warnings;
mod write;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use kube::api::{PostParams, ValidationDirective};
use kube::core::ObjectMeta;
use kubewright_engine::ObjectKey;
use kubewright_engine::retry::Effect;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tracing::Instrument;

pub use self::api::ApiScope;
pub(crate) use self::send::AGENT;
pub use self::send::{REQUEST_DEADLINE, connect};
use self::send::{Sending, add_parameter, late, validate_fields};
use self::target::scoped;
pub use self::views::View;
use self::warnings::LoggedWarnings;
use crate::cache::{Cache, Gone, Written};
use crate::diff::changes_between;
use crate::error::{Error, Result};
use crate::form::{Cached, Form, guarded, times};
use crate::object::ObjectRef;
use crate::observe::{Observation, Observers};
use crate::own_writes::OwnWrites;
use crate::request::HOME_CLUSTER;
use crate::term::Fence;
use crate::trace;
use apply::Applied;
pub(crate) use target::Target;

/// How long a read waits for the cache to show a write of our own.
pub const READ_DEADLINE: Duration = Duration::from_secs(5);
/// How long a read waits for the first list of a kind that was never read before.
pub const FIRST_READ_DEADLINE: Duration = Duration::from_secs(30);

/// The client that operators use (controller-runtime's delegating `client.Client` with read-your-writes). Cheap to
/// clone.
///
/// Reads are typed and answered from the cache; the first read of a kind starts its informer, which then lives as long
/// as the cache. Writes go to the API server and their answers come back as `Arc`s.
///
/// ```
/// use kubewright::{Client, Result};
/// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
///
/// async fn shout(client: &Client) -> Result<()> {
///     if let Some(config) = client.get::<ConfigMap>("default", "settings").await? {
///         let mut config = (*config).clone();
///         config.data.get_or_insert_default().insert("volume".into(), "11".into());
///         client.update(&config).await?;
///         // This read sees the write.
///         assert!(client.get::<ConfigMap>("default", "settings").await?.is_some());
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Client {
    shared: Arc<Shared>,
    clusters: Arc<Clusters>,
    controller: Option<Arc<str>>,
    field_manager: Arc<str>,
    /// Whether somebody gave it the name of its field manager.
    is_named: bool,
    dry_run: bool,
    /// Takes fields over from other managers.
    forces: bool,
    field_validation: Option<ValidationDirective>,
    only_reads: bool,
    leaves_receipts: bool,
    fence: Fence,
    /// Where a controller's writes are noted.
    own_writes: Option<OwnWrites>,
    read_deadline: Duration,
    request_deadline: Duration,
}

struct Shared {
    kube: kube::Client,
    cache: Cache,
    observers: Observers,
    applied: Applied,
    warned: LoggedWarnings,
    statuses: status::SentStatuses,
}

/// The clusters of a manager.
struct Clusters {
    home: Arc<Shared>,
    named: RwLock<BTreeMap<String, Arc<Shared>>>,
}

impl Clusters {
    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Arc<Shared>>> {
        self.named.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Arc<Shared>>> {
        self.named.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("controller", &self.controller)
            .field("dry_run", &self.dry_run)
            .finish_non_exhaustive()
    }
}

impl Client {
    /// A client that writes through `kube` and reads from `cache`.
    pub fn new(kube: kube::Client, cache: Cache) -> Client {
        let (observers, field_manager) = (cache.observers().clone(), "kubewright");
        cache.note_applies_of(field_manager);
        let shared = Arc::new(Shared {
            kube,
            cache,
            observers,
            applied: Applied::default(),
            warned: LoggedWarnings::default(),
            statuses: status::SentStatuses::default(),
        });
        Client {
            clusters: Arc::new(Clusters {
                home: shared.clone(),
                named: RwLock::default(),
            }),
            shared,
            controller: None,
            field_manager: Arc::from(field_manager),
            is_named: false,
            dry_run: false,
            forces: true,
            field_validation: None,
            only_reads: false,
            leaves_receipts: true,
            fence: Fence::default(),
            own_writes: None,
            read_deadline: READ_DEADLINE,
            request_deadline: REQUEST_DEADLINE,
        }
    }

    /// The same client, which leads to other clusters as well.
    pub(crate) fn beside(&self, others: impl IntoIterator<Item = (String, Client)>) -> Client {
        let named = others.into_iter().map(|(name, client)| (name, client.shared));
        let clusters = Clusters {
            home: self.shared.clone(),
            named: RwLock::new(named.collect()),
        };
        Client {
            clusters: Arc::new(clusters),
            ..self.clone()
        }
    }

    /// From now on this client, and all that were made of it, lead to this cluster as well.
    pub(crate) fn join(&self, name: &str, other: &Client) {
        self.clusters.write().insert(name.to_owned(), other.shared.clone());
    }

    /// From now on none of them does.
    pub(crate) fn leave(&self, name: &str) {
        let left = self.clusters.write().remove(name);
        drop(left); // what it held may be the user's, and is dropped without the lock
    }

    /// The same client for another cluster of the manager
    /// ([`ManagerBuilder::cluster`](crate::ManagerBuilder::cluster)): its reads come from that cluster's cache and see
    /// own writes there. [`HOME_CLUSTER`] is the one that the manager itself was made with.
    ///
    /// ```
    /// # async fn copy(ctx: kubewright::Context) -> kubewright::Result<()> {
    /// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    ///
    /// let west = ctx.client().cluster("west")?;
    /// let settings = west.get::<ConfigMap>("default", "settings").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Configuration`] when the manager has no cluster of this name.
    pub fn cluster(&self, name: &str) -> Result<Client> {
        let shared = match name {
            HOME_CLUSTER => Some(self.clusters.home.clone()),
            name => self.clusters.read().get(name).cloned(),
        };
        let Some(shared) = shared else {
            let known: Vec<String> = self.clusters.read().keys().cloned().collect();
            return Err(Error::Configuration(format!(
                "there is no cluster {name:?} (there is {known:?}); add it with ManagerBuilder::cluster, or \
                 Controllers::add_cluster"
            )));
        };
        Ok(Client { shared, ..self.clone() })
    }

    /// Those beside the home cluster, by name.
    pub(crate) fn other_clusters(&self) -> Vec<(String, Client)> {
        let others = self.clusters.read().clone();
        let client = |shared| Client { shared, ..self.clone() };
        others
            .into_iter()
            .map(|(name, shared)| (name, client(shared)))
            .collect()
    }

    /// The same client under a controller's name: its writes are observed under that name and carry it as field
    /// manager.
    pub(crate) fn for_controller(&self, name: &Arc<str>) -> Client {
        self.cache().note_applies_of(name);
        Client {
            controller: Some(name.clone()),
            field_manager: name.clone(),
            ..self.clone()
        }
    }

    /// The same client, whose writes are refused.
    pub(crate) fn only_reading(&self) -> Client {
        Client {
            only_reads: true,
            ..self.clone()
        }
    }

    /// The same client, whose writes are sent only as long as this replica leads (LE6).
    pub(crate) fn under(&self, fence: Fence) -> Client {
        Client { fence, ..self.clone() }
    }

    /// The same client, whose writes are noted as those of one controller.
    pub(crate) fn noted_in(&self, own_writes: &OwnWrites) -> Client {
        Client {
            own_writes: Some(own_writes.clone()),
            ..self.clone()
        }
    }

    /// The same client with another field manager (`fieldManager` of every write). Outside controllers its writes are
    /// observed under this name.
    #[must_use]
    pub fn with_field_manager(&self, name: &str) -> Client {
        Client {
            is_named: true,
            ..self.of_manager(name)
        }
    }

    /// The same client with the field manager of a whole manager, which does not say who in it writes.
    pub(crate) fn of_manager(&self, name: &str) -> Client {
        self.cache().note_applies_of(name);
        Client {
            field_manager: Arc::from(name),
            ..self.clone()
        }
    }

    /// The same client with `dryRun=All` on every write: the server checks and answers, and changes nothing.
    #[must_use]
    pub fn with_dry_run(&self) -> Client {
        Client {
            dry_run: true,
            ..self.clone()
        }
    }

    /// The same client, whose applies take no field over from another manager: where one would change it they are
    /// refused, with the names of the managers and the fields ([`Error::is_field_conflict`]).
    #[must_use]
    pub fn without_force(&self) -> Client {
        Client {
            forces: false,
            ..self.clone()
        }
    }

    /// The same client with `fieldValidation` on every create, update and patch: what the server does with fields that
    /// it does not know or that are there twice. With `Strict` it refuses the object; without this it warns.
    #[must_use]
    pub fn with_field_validation(&self, directive: ValidationDirective) -> Client {
        Client {
            field_validation: Some(directive),
            ..self.clone()
        }
    }

    /// The same client, whose writes no read waits for: a cached read may show the object as it was before. For a
    /// controller that keeps its own account of its writes, as a scheduler of the pods that it bound (`AssumePod` in
    /// kube-scheduler), where readers of other controllers have nothing to gain by waiting.
    #[must_use]
    pub fn without_receipts(&self) -> Client {
        Client {
            leaves_receipts: false,
            ..self.clone()
        }
    }

    /// The same client with another deadline for reads that wait for writes of our own; see [`READ_DEADLINE`].
    #[must_use]
    pub fn with_read_deadline(&self, deadline: Duration) -> Client {
        Client {
            read_deadline: deadline,
            ..self.clone()
        }
    }

    /// The same client with another deadline for each request, retries included; see [`REQUEST_DEADLINE`].
    #[must_use]
    pub fn with_request_deadline(&self, deadline: Duration) -> Client {
        Client {
            request_deadline: deadline,
            ..self.clone()
        }
    }

    /// The plain kube client, for everything that is not offered here. Cached reads do not wait for its writes, and its
    /// requests have neither a deadline nor our retries.
    pub fn kube(&self) -> &kube::Client {
        &self.shared.kube
    }

    /// The cache that reads come from.
    pub fn cache(&self) -> &Cache {
        &self.shared.cache
    }

    pub(crate) fn observers(&self) -> &Observers {
        &self.shared.observers
    }

    pub(crate) fn applied(&self) -> &Applied {
        &self.shared.applied
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        self.dry_run
    }

    pub(crate) fn field_manager(&self) -> &str {
        &self.field_manager
    }
}

pub(crate) type BuiltRequest = std::result::Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// The plumbing below the verbs.
impl Client {
    fn post_params(&self) -> PostParams {
        PostParams {
            dry_run: self.dry_run,
            field_manager: Some(self.field_manager.to_string()),
        }
    }

    async fn send<T: DeserializeOwned>(&self, attempt: &str, request: BuiltRequest) -> Result<T> {
        let text = self.send_text(attempt, request).await?;
        times::read(&text).map_err(|error| Error::from_api(attempt, kube::Error::SerdeError(error)))
    }

    pub(crate) async fn send_text(&self, attempt: &str, request: BuiltRequest) -> Result<String> {
        let mut request = request.map_err(|error| Error::from_api(attempt, kube::Error::BuildRequest(error)))?;
        if let Some(directive) = &self.field_validation {
            validate_fields(&mut request, directive);
        }
        let reads = request.method() == http::Method::GET || self.dry_run;
        let effect = if reads { Effect::Read } else { Effect::Write };
        if !reads && self.only_reads {
            let why = "it was not sent, because the mapping of a source only reads; write in reconcile";
            return Err(Error::terminal(format!("{attempt}: {why}")));
        }
        let refuse = || self.refuse(reads, attempt);
        let span = trace::request(request.method(), request.uri().path());
        let sending = Sending {
            kube: self.kube(),
            metrics: self.cache().metrics(),
            warned: &self.shared.warned,
            entropy: &self.cache().env().entropy,
            effect,
            deadline: self.request_deadline,
            span: &span,
        };
        let writing = (!reads).then(|| self.fence.writing());
        let answer = sending.exchange(request, refuse).instrument(span.clone()).await;
        if let Some(writing) = writing {
            writing.ended();
        }
        answer.map_err(|error| Error::from_api(attempt, error))
    }

    /// Why a request is not sent now: the term of this client has ended by time, or was lost (LE6). Asked right before
    /// each attempt, so that a wait before it counts.
    fn refuse(&self, reads: bool, attempt: &str) -> Option<Error> {
        (!reads && self.fence.is_over()).then(|| Error::NotLeading {
            attempted: attempt.to_owned(),
        })
    }

    async fn send_object(&self, attempt: &str, request: BuiltRequest, form: &Form) -> Result<Arc<dyn Cached>> {
        let text = self.send_text(attempt, request).await?;
        decode(attempt, &text, form)
    }

    /// Sends a write whose answer is the object, and leaves its receipt.
    async fn write(
        &self,
        target: &Target<'_>,
        verb: &'static str,
        subresource: Option<&str>,
        request: BuiltRequest,
        form: &Form,
    ) -> Result<Arc<dyn Cached>> {
        let attempt = target.attempt_at(verb, subresource);
        let flight = self.send_write(target);
        let text = flight.outcome(self.send_text(&attempt, request).await)?;
        let written = decode(&attempt, &text, form);
        if !self.dry_run {
            match &written {
                Ok(written) => self.arm(target, &written.metadata(), &|| written.json_or_null()),
                // It was written nevertheless.
                Err(_) => self.arm_text(target, &text),
            }
        }
        written
    }

    /// Leaves a receipt with the cache.
    fn leave_receipt(&self, receipt: impl FnOnce(&Cache)) {
        if self.leaves_receipts {
            receipt(self.cache());
        }
    }

    /// Leaves the receipt of a write whose outcome or version is unknown: the next read asks the API once.
    fn leave_unknown(&self, target: &Target<'_>) {
        self.leave_receipt(|cache| cache.arm_unknown(target.resource, &target.object_key()));
    }

    fn arm(&self, target: &Target<'_>, meta: &ObjectMeta, json: &dyn Fn() -> Value) {
        let name = meta.name.as_deref().unwrap_or(target.name);
        let key = ObjectKey::new(target.namespace, name);
        if is_gone(meta) {
            let (uid, seen) = (meta.uid.as_deref(), meta.resource_version.as_deref());
            return self.leave_receipt(|cache| cache.arm_deleted(target.resource, &Gone { key, uid, seen }));
        }
        self.leave_receipt(|cache| cache.arm(target.resource, &Written { key, meta, json }));
    }

    /// As `arm`, for an answer that the type cannot read.
    fn arm_text(&self, target: &Target<'_>, text: &str) {
        let object: Value = serde_json::from_str(text).unwrap_or_default();
        match ObjectMeta::deserialize(&object["metadata"]) {
            Ok(meta) => self.arm(target, &meta, &|| object.clone()),
            Err(_) => self.leave_unknown(target),
        }
    }

    /// Notes that a write is about to be sent. Dropped without an outcome, as when the caller's future is dropped, it
    /// leaves a receipt that says so.
    fn send_write<'a>(&'a self, target: &'a Target<'a>) -> InFlight<'a> {
        InFlight {
            client: self,
            target,
            open: !self.dry_run,
        }
    }

    /// Tells the observers of a write.
    fn wrote(
        &self,
        target: &Target<'_>,
        verb: &'static str,
        subresource: Option<&str>,
        before: Option<&dyn Cached>,
        after: &dyn Cached,
    ) {
        if self.dry_run {
            return;
        }
        let meta = after.metadata();
        if before.is_some_and(|before| before.object_id().version == meta.resource_version.as_deref()) {
            return; // The server changed nothing, so nothing was written.
        }
        let named = Target {
            name: meta.name.as_deref().unwrap_or(target.name),
            ..*target
        };
        if let (Some(own_writes), Some(version)) = (&self.own_writes, meta.resource_version.as_deref()) {
            own_writes.wrote(ObjectRef::named(named.resource, named.namespace, named.name), version);
        }
        self.notify(&named, verb, subresource, || match before {
            Some(before) => changes_between(&before.json_or_null(), &after.json_or_null()),
            None => Vec::new(),
        });
    }

    fn notify(
        &self,
        target: &Target<'_>,
        verb: &'static str,
        subresource: Option<&str>,
        changes: impl FnOnce() -> Vec<crate::diff::FieldChange>,
    ) {
        self.observers().notify(|| Observation::Written {
            controller: self
                .controller
                .clone()
                .or_else(|| self.is_named.then(|| self.field_manager.clone())),
            verb,
            object: ObjectRef::named(target.resource, target.namespace, target.name),
            subresource: subresource.map(str::to_owned),
            changes: changes(),
        });
    }

    /// The object as the cache has it right now, without waiting and without starting an informer.
    pub(crate) fn cached(&self, form: &Form, target: &Target<'_>) -> Option<Arc<dyn Cached>> {
        let parts = self.cache().existing_of(form)?;
        parts.of(target.namespace).core().shown(target.namespace, target.name)
    }
}

/// Whether this write was the object's end: it was being deleted, and nothing holds it any more.
fn is_gone(meta: &ObjectMeta) -> bool {
    let held = meta
        .finalizers
        .as_ref()
        .is_some_and(|finalizers| !finalizers.is_empty());
    meta.deletion_timestamp.is_some() && !held && meta.deletion_grace_period_seconds.unwrap_or(0) <= 0
}

fn decode(attempt: &str, text: &str, form: &Form) -> Result<Arc<dyn Cached>> {
    guarded(|| (form.decode.object)(text)).map_err(|reason| Error::Undecodable {
        object: format!("the answer to {attempt}"),
        reason,
    })
}

/// A write between its request and its answer.
struct InFlight<'a> {
    client: &'a Client,
    target: &'a Target<'a>,
    open: bool,
}

impl InFlight<'_> {
    /// The answer has come, or will not.
    fn outcome<T>(mut self, answer: Result<T>) -> Result<T> {
        self.open &= answer.as_ref().is_err_and(Error::outcome_unknown);
        answer
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if self.open {
            self.client.leave_unknown(self.target);
        }
    }
}
