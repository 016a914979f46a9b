//! The state that the admission plugins of one request share.
//!
//! Changing plugins run in a round; when one of them asks for it ([`Session::invoked`] with a change), there is a
//! second round, in which only those webhooks and policies run again that ran before the change and say that they may
//! (`reinvocationPolicy: IfNeeded`).
//!
//! Invariant: there are never more than two rounds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kubewright_schema::names;
use kubewright_schema::rules::Patterns;
use kubewright_schema::schema::GroupVersionKind;
use kubewright_schema::structural::TypeError;
use serde_json::Value;

use crate::audit::{Entry, Level};
use crate::authentication::Signer;
use crate::authorization::{self, Authorizer, Decision, Inquiry};
use crate::env::BoxFuture;
use crate::env::Env;
use crate::model::Resource;
use crate::model::status::Status;
use crate::model::unfit::Unfit;
use crate::model::user::UserInfo;
use crate::outbound::Outbound;
use crate::registry::Snapshot;
use crate::storage::{Storage, StoredObject};

/// Makes the next status of a quota out of the present one.
pub(crate) type NextStatus<'a> = Box<dyn FnMut(&Value) -> Result<Value, Status> + Send + 'a>;

/// The services of the server that plugins need.
pub(crate) trait Host: Send + Sync {
    /// Where objects are.
    fn storage(&self) -> &Arc<dyn Storage>;
    /// Time and entropy.
    fn env(&self) -> &dyn Env;
    /// How webhooks are called.
    fn outbound(&self) -> &dyn Outbound;
    /// The authorizer.
    fn authorizer(&self) -> &dyn Authorizer;
    /// Cryptography.
    fn signer(&self) -> &dyn Signer;
    /// The compiled regular expressions of policies.
    fn patterns(&self) -> &Patterns;
    /// Replaces the status of a ResourceQuota.
    fn update_quota<'a>(
        &'a self,
        namespace: &'a str,
        name: &'a str,
        next: NextStatus<'a>,
    ) -> BoxFuture<'a, Result<(), Status>>;
    /// The object in another version.
    fn convert<'a>(
        &'a self,
        object: Value,
        from: &'a Resource,
        to: &'a Resource,
    ) -> BoxFuture<'a, Result<Value, Status>>;
    /// Stored objects as clients of this version see them.
    fn show<'a>(
        &'a self,
        resource: &'a Resource,
        items: Vec<Arc<StoredObject>>,
    ) -> BoxFuture<'a, Result<Vec<Arc<StoredObject>>, Status>>;
    /// Checks the types and unknown fields of a patched `before`.
    fn decode(&self, object: &mut Value, before: &Value, resource: &Resource, kinds: &Snapshot) -> Result<(), Unfit>;
    /// Types and unknown fields of a document that a subresource takes.
    fn decode_posted(&self, document: &mut Value, kind: &GroupVersionKind) -> Result<(), String>;
    /// Fills in defaults.
    fn default(&self, object: &mut Value, resource: &Resource);
    /// Types and defaults, where unknown fields are errors.
    fn complete_strictly(&self, object: &mut Value, resource: &Resource, kinds: &Snapshot) -> Result<(), String>;
    /// Puts `managedFields` back that cannot be read; answers the warning.
    fn check_owners(&self, object: &mut Value, before: &Value) -> Option<String>;
}

/// The tools of plugins, and the place for their results. It lives as long as the admission of one object.
pub struct Session<'a> {
    server: &'a dyn Host,
    inquiry: Inquiry<'a>,
    kinds: Arc<Snapshot>,
    notes: Mutex<Notes>,
    audit: Option<&'a Entry>,
}

#[derive(Default)]
struct Notes {
    warnings: Vec<String>,
    /// Whether this is the second round.
    second: bool,
    /// Whether there is to be one.
    wanted: bool,
    plugins: BTreeMap<&'static str, Round>,
}

/// The state that one plugin keeps between the rounds.
#[derive(Default)]
struct Round {
    /// The object as the plugin left it.
    output: Value,
    /// Webhooks or policies that ran, may run again, and were not yet told to.
    eligible: BTreeSet<String>,
    /// Webhooks or policies that are to run again.
    again: BTreeSet<String>,
}

impl Round {
    fn call_again(&mut self) {
        self.again.append(&mut self.eligible);
    }
}

impl<'a> Session<'a> {
    pub(crate) fn new(server: &'a dyn Host, kinds: Arc<Snapshot>, audit: Option<&'a Entry>) -> Session<'a> {
        Session {
            inquiry: Inquiry::new(server.authorizer()),
            server,
            kinds,
            notes: Mutex::default(),
            audit,
        }
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kinds that the request sees.
    pub fn kinds(&self) -> &Snapshot {
        &self.kinds
    }

    /// Where objects are.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        self.server.storage()
    }

    /// Time and entropy.
    pub fn env(&self) -> &dyn Env {
        self.server.env()
    }

    /// Cryptography.
    pub(crate) fn signer(&self) -> &dyn Signer {
        self.server.signer()
    }

    /// The server's compiled regular expressions.
    pub(crate) fn patterns(&self) -> &Patterns {
        self.server.patterns()
    }

    /// How webhooks are called.
    pub fn outbound(&self) -> &dyn Outbound {
        self.server.outbound()
    }

    /// Whether `user` may do it. Call it within [`settled`](Session::settled) only: the answer may take time.
    pub(crate) fn decide(&self, user: &UserInfo, attributes: &authorization::Attributes) -> Decision {
        self.inquiry.decide(user, attributes)
    }

    /// The result of `run` once the authorizer has answered all its questions. It may run several times, and must
    /// change nothing.
    pub(crate) async fn settled<T>(&self, run: impl FnMut() -> T) -> T {
        self.inquiry.settled(run).await
    }

    /// The stored Namespace of this name.
    pub fn namespace(&self, name: &str) -> Option<Arc<StoredObject>> {
        self.server.storage().get("namespaces", name)
    }

    /// Replaces the status of a ResourceQuota by the result of `next` for the present one; tries again after a conflict
    /// with another write.
    ///
    /// # Errors
    /// The error of `next`, or the reason why the status could not be written. A quota that is gone is no error.
    pub async fn update_quota(
        &self,
        namespace: &str,
        name: &str,
        next: impl FnMut(&Value) -> Result<Value, Status> + Send,
    ) -> Result<(), Status> {
        self.server.update_quota(namespace, name, Box::new(next)).await
    }

    /// Sends a text to the client as a `Warning` header.
    pub fn warn(&self, text: impl Into<String>) {
        self.notes().warnings.push(text.into());
    }

    /// Whether annotations of the request are written to the audit log.
    pub fn is_audited(&self) -> bool {
        self.audit.is_some()
    }

    /// Says something about the request in the audit log (`AddAnnotation` of `admission.Attributes`).
    pub fn annotate(&self, key: &str, value: impl Into<String>) {
        self.annotate_from(Level::Metadata, key, || value.into());
    }

    /// The same in a log that tells so much of the request (`AddAnnotationWithLevel`). A text that is not an annotation
    /// key is dropped, as upstream.
    pub fn annotate_from(&self, level: Level, key: &str, value: impl FnOnce() -> String) {
        if let Some(entry) = self.audit.filter(|entry| entry.level() >= level)
            && key.contains('/')
            && names::qualified_name(key).is_empty()
        {
            entry.annotate(key, value());
        }
    }

    /// Takes the warnings that were left.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.notes().warnings)
    }

    /// The object, which is of `from`, in another version of the same kind.
    ///
    /// # Errors
    /// The error of a conversion webhook, or the reason why it cannot be reached.
    pub async fn convert(&self, object: Value, from: &Resource, to: &Resource) -> Result<Value, Status> {
        self.server.convert(object, from, to).await
    }

    /// Stored objects as clients of this version see them.
    ///
    /// # Errors
    /// As of [`convert`](Session::convert).
    pub async fn show(
        &self,
        resource: &Resource,
        items: Vec<Arc<StoredObject>>,
    ) -> Result<Vec<Arc<StoredObject>>, Status> {
        self.server.show(resource, items).await
    }

    /// Types and unknown fields of what merging left of `before`, which is an object of its kind.
    ///
    /// # Errors
    /// The error of Go's decoder for an object that does not fit.
    pub fn fit(&self, object: &mut Value, before: &Value, resource: &Resource) -> Result<(), TypeError> {
        self.server
            .decode(object, before, resource, &self.kinds)
            .map_err(Unfit::into_error)
    }

    /// The same of what a patch left.
    ///
    /// # Errors
    /// The error of Go's decoder for an object that does not fit, as an answer to the request.
    pub fn decode(&self, object: &mut Value, before: &Value, resource: &Resource) -> Result<(), Status> {
        self.server
            .decode(object, before, resource, &self.kinds)
            .map_err(Unfit::into_status)
    }

    /// Types and unknown fields of a document that a subresource takes, such as a Scale.
    ///
    /// # Errors
    /// The error of Go's decoder for a document that does not fit.
    pub fn decode_posted(&self, document: &mut Value, kind: &GroupVersionKind) -> Result<(), String> {
        self.server.decode_posted(document, kind)
    }

    /// Fills in defaults.
    pub fn default(&self, object: &mut Value, resource: &Resource) {
        self.server.default(object, resource);
    }

    /// Types, unknown fields, which are errors here, and defaults.
    ///
    /// # Errors
    /// The error of Go's strict decoder for an object that does not fit.
    pub fn complete_strictly(&self, object: &mut Value, resource: &Resource) -> Result<(), String> {
        self.server.complete_strictly(object, resource, &self.kinds)
    }

    /// Checks the `managedFields` of an object that a plugin changed: entries that cannot be read are replaced by those
    /// before the change, and the client gets a warning.
    pub fn check_owners(&self, object: &mut Value, before: &Value) {
        if let Some(warning) = self.server.check_owners(object, before) {
            self.warn(warning);
        }
    }

    /// Whether this is the second round.
    pub fn is_reinvocation(&self) -> bool {
        self.notes().second
    }

    /// Whether any plugin changed the object.
    pub(crate) fn was_changed(&self) -> bool {
        self.notes().wanted
    }

    /// A plugin begins its round on this object. In the second round a change that others made since the first calls
    /// for everything that may run again.
    pub fn begin(&self, plugin: &'static str, object: &Value) {
        let mut notes = self.notes();
        let second = notes.second;
        let round = notes.plugins.entry(plugin).or_default();
        if second && round.output != *object {
            round.call_again();
        }
    }

    /// Whether the plugin's webhook or policy `id` is to run in this round.
    pub fn may_invoke(&self, plugin: &'static str, id: &str) -> bool {
        let notes = self.notes();
        !notes.second || notes.plugins.get(plugin).is_some_and(|round| round.again.contains(id))
    }

    /// `id` ran. `changed`: it changed the object, so that earlier webhooks or policies run again; `reinvocable`: it
    /// may be run again itself.
    pub fn invoked(&self, plugin: &'static str, id: &str, changed: bool, reinvocable: bool) {
        let mut notes = self.notes();
        notes.wanted |= changed;
        let round = notes.plugins.entry(plugin).or_default();
        if changed {
            round.call_again();
        }
        if reinvocable {
            round.eligible.insert(id.to_owned());
        }
    }

    /// The plugin is done with its round and leaves this object.
    pub fn end(&self, plugin: &'static str, object: &Value) {
        let mut notes = self.notes();
        // There is no third round that would ask, and if nothing may run again the second one does not ask, either:
        // the object may be large.
        if notes.second {
            return;
        }
        if let Some(round) = notes.plugins.get_mut(plugin).filter(|round| !round.eligible.is_empty()) {
            round.output = object.clone();
        }
    }

    /// Whether a second round begins now.
    pub(crate) fn next_round(&self) -> bool {
        let mut notes = self.notes();
        let begins = notes.wanted && !notes.second;
        notes.second |= begins;
        begins
    }
}
