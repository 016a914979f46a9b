//! Admission: the plugins that may change or refuse a write after authorization.
//!
//! Plugins see the object twice: first they may change it ([`Admission::mutate`]), then, after validation, they may
//! only refuse it ([`Admission::validate`]). They are asynchronous because webhooks wait for answers. The [`Session`]
//! of a request holds the state that its plugins share (warnings, conversion between versions, whether the mutating
//! plugins run a second time).
//!
//! Here: [`NamespaceLifecycle`], [`LimitRanger`], [`ServiceAccounts`], [`NodeRestriction`], [`TaintNodes`],
//! [`PodSecurity`], [`Classes`], [`Tolerations`], [`StorageProtection`], [`OwnerReferences`], [`Resizes`], [`Signers`],
//! [`TopologyLabels`], [`MutatingWebhooks`] and [`ValidatingWebhooks`]; in `matching` what configurations and policies
//! choose requests by, in `policy` the admission policies. Last of all comes [`ResourceQuotas`].

pub(crate) mod additions;
mod classes;
mod limits;
pub mod matching;
mod node_restriction;
mod nodes;
mod owners;
mod pod_security;
pub mod policy;
mod quota;
mod resizes;
mod service_account;
mod session;
mod signers;
pub(crate) mod standard;
mod webhook;

use std::sync::Arc;

use kubewright_schema::schema::GroupVersionKind;
use serde_json::{Value, json};

use crate::env::BoxFuture;
use crate::model::Resource;
use crate::model::object;
use crate::model::status::{Cause, Status};
use crate::model::user::UserInfo;
use crate::outbound::AdmissionQuestion;
use crate::storage::Storage;
use crate::values::get;
use matching::Matched;

pub use crate::model::Operation;
pub use additions::{StorageProtection, Tolerations};
pub use classes::Classes;
pub use limits::LimitRanger;
pub use node_restriction::NodeRestriction;
pub use nodes::{TaintNodes, TopologyLabels};
pub use owners::OwnerReferences;
pub use pod_security::PodSecurity;
pub use quota::ResourceQuotas;
pub use resizes::Resizes;
pub use service_account::ServiceAccounts;
pub use session::Session;
pub(crate) use session::{Host, NextStatus};
pub use signers::Signers;
pub use standard::{OPTIONAL_PLUGINS, SEPARABLE_PLUGINS};
pub use webhook::{MutatingWebhooks, ValidatingWebhooks};

/// The attributes of a request that plugins get besides the object (`admission.Attributes`).
#[derive(Clone, Debug)]
pub struct Attributes {
    /// The resource of the path, in the version of the path.
    pub resource: Arc<Resource>,
    /// Last segment of the path, or empty.
    pub subresource: String,
    /// Kind of the objects that plugins see: that of the resource, or that of the document posted to a subresource,
    /// such as `autoscaling/v1` Scale.
    pub kind: GroupVersionKind,
    /// The operation.
    pub operation: Operation,
    /// Namespace of the object; empty for cluster-scoped ones, but that of a namespace is its own name, as upstream.
    pub namespace: String,
    /// Name of the object; empty while it is to be generated.
    pub name: String,
    /// The user of the request.
    pub user: UserInfo,
    /// Whether nothing will be persisted.
    pub dry_run: bool,
    /// `CreateOptions`, `UpdateOptions` or `DeleteOptions` of `meta.k8s.io/v1`, with `kind` and `apiVersion`.
    pub options: Value,
}

impl Attributes {
    /// Whether plugins see objects of the resource's own kind, which can be converted to its other versions.
    pub fn is_own_kind(&self) -> bool {
        let resource = &self.resource;
        self.kind.group == resource.group && self.kind.version == resource.version && self.kind.kind == resource.kind
    }

    /// The same as [`Attributes::review`] for a webhook in this process.
    pub(crate) fn question(&self, matched: &Matched, uid: String, [object, old]: [&Value; 2]) -> AdmissionQuestion {
        let resource = |row: &Resource| [&row.group, &row.version, &row.plural].map(ToString::to_string);
        AdmissionQuestion {
            uid,
            kinds: [matched.kind.clone(), self.kind.clone()],
            resources: [resource(&matched.resource), resource(&self.resource)],
            subresource: self.subresource.clone(),
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            operation: self.operation,
            user: self.user.clone(),
            dry_run: self.dry_run,
            options: self.options.clone(),
            object: object.clone(),
            old_object: old.clone(),
        }
    }

    /// The `AdmissionRequest` without its uid and objects, for the resource that `matched` the request: webhooks get
    /// it, and expressions see it as `request`. Empty texts are absent.
    pub(crate) fn review(&self, matched: &Matched) -> Value {
        let kind = |kind: &GroupVersionKind| json!({"group": kind.group, "version": kind.version, "kind": kind.kind});
        let resource = |row: &Resource| json!({"group": row.group, "version": row.version, "resource": row.plural});
        let mut request = json!({
            "kind": kind(&matched.kind),
            "resource": resource(&matched.resource),
            "requestKind": kind(&self.kind),
            "requestResource": resource(&self.resource),
            "operation": self.operation.as_str(),
            "userInfo": self.user.to_value(),
            "dryRun": self.dry_run,
            "options": self.options,
        });
        for (field, text) in [
            ("subResource", &self.subresource),
            ("requestSubResource", &self.subresource),
            ("name", &self.name),
            ("namespace", &self.namespace),
        ] {
            if !text.is_empty() {
                request[field] = json!(text);
            }
        }
        request
    }
}

/// The answer of a plugin. Most plugins know it at once; those that wait for a webhook or another server answer later.
#[must_use = "a refusal that nobody reads lets the write through"]
pub enum Admitted<'a> {
    /// The answer.
    Now(Result<(), Status>),
    /// Where it will come from.
    Later(BoxFuture<'a, Result<(), Status>>),
}

impl<'a> Admitted<'a> {
    /// Nothing to say against it.
    pub const YES: Admitted<'static> = Admitted::Now(Ok(()));

    /// The answer that this future will give.
    pub fn later(answer: impl Future<Output = Result<(), Status>> + Send + 'a) -> Admitted<'a> {
        Admitted::Later(Box::pin(answer))
    }
}

/// An admission plugin.
pub trait Admission: Send + Sync + 'static {
    /// May change the object, or refuse it. `old` is there for updates and deletes; the object of a delete is null.
    /// Both are of [`Attributes::kind`], with `apiVersion` and `kind`. Runs a second time when [`Session`] says so.
    fn mutate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let _ = (session, attributes, object, old);
        Admitted::YES
    }

    /// May refuse the object as it would be stored.
    fn validate<'a>(
        &'a self,
        session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a Value,
        old: Option<&'a Value>,
    ) -> Admitted<'a> {
        let _ = (session, attributes, object, old);
        Admitted::YES
    }
}

/// The name of the object in messages: a name that is still to be generated is shown by its prefix
/// (`extractResourceName`).
pub(crate) fn subject<'a>(attributes: &'a Attributes, object: &'a Value) -> &'a str {
    let generated = object::text(object, "generateName");
    match (attributes.name.as_str(), object::name(object)) {
        ("", "") if generated.is_empty() => "Unknown",
        ("", "") => generated,
        ("", name) | (name, _) => name,
    }
}

/// Nothing is created in a namespace that is missing or being deleted; the system's namespaces cannot be deleted.
pub struct NamespaceLifecycle {
    storage: Arc<dyn Storage>,
}

/// Namespaces that may not be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-system", "kube-public"];
/// Kinds that are answered and never stored: a user who may not see a namespace must not learn from them whether it
/// exists.
const ACCESS_REVIEWS: &str = "authorization.k8s.io";

impl NamespaceLifecycle {
    /// The plugin, looking namespaces up in `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> NamespaceLifecycle {
        NamespaceLifecycle { storage }
    }

    fn check(&self, attributes: &Attributes, object: &Value) -> Result<(), Status> {
        let resource = &attributes.resource;
        let namespaces = resource.group.is_empty() && resource.plural == "namespaces";
        if attributes.operation == Operation::Delete && namespaces && IMMORTAL.contains(&attributes.name.as_str()) {
            return Err(Status::forbidden(
                resource,
                &attributes.name,
                "this namespace may not be deleted",
            ));
        }
        let unstored = resource.group == ACCESS_REVIEWS;
        if namespaces || unstored || attributes.namespace.is_empty() || attributes.operation != Operation::Create {
            return Ok(());
        }
        let Some(namespace) = self.storage.get("namespaces", &attributes.namespace) else {
            return Err(Status::namespace_not_found(&attributes.namespace));
        };
        let terminating =
            object::is_terminating(namespace.value()) || get(namespace.value(), &["status", "phase"]) == "Terminating";
        if !terminating {
            return Ok(());
        }
        let name = &attributes.namespace;
        let why = format!("unable to create new content in namespace {name} because it is being terminated");
        let mut status = Status::forbidden(resource, subject(attributes, object), &why);
        if let Some(details) = &mut status.details {
            details.causes.push(Cause {
                reason: "NamespaceTerminating".to_owned(),
                message: format!("namespace {name} is being terminated"),
                field: "metadata.namespace".to_owned(),
            });
        }
        Err(status)
    }
}

impl Admission for NamespaceLifecycle {
    fn mutate<'a>(
        &'a self,
        _session: &'a Session<'a>,
        attributes: &'a Attributes,
        object: &'a mut Value,
        _old: Option<&'a Value>,
    ) -> Admitted<'a> {
        Admitted::Now(self.check(attributes, object))
    }
}
