//! The request of a webhook besides the object: its user, its target, whether it is a dry run.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::UserInfo;
use kube::core::{GroupVersionKind, GroupVersionResource};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

use super::denied::Denied;
use crate::client::Client;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, Result};
use crate::form::of_json;
use crate::object::AnyObject;

/// The verb of a write, as webhooks see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Operation {
    /// An object is created.
    Create,
    /// An object, or a subresource of it, is replaced, patched or applied.
    Update,
    /// An object is deleted.
    Delete,
    /// Something is connected to, such as `pods/exec`.
    Connect,
}

impl Operation {
    /// The verb in lower case, as kubebuilder's markers write it.
    pub fn verb(self) -> &'static str {
        match self {
            Operation::Create => "create",
            Operation::Update => "update",
            Operation::Delete => "delete",
            Operation::Connect => "connect",
        }
    }
}

/// A request of the API server to a webhook (`admission.Request`).
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct AdmissionRequest {
    /// The id of this request, echoed in the answer.
    #[serde(default)]
    pub uid: String,
    /// The kind of the object as the webhook gets it, after conversion to a version that it is registered for.
    pub kind: GroupVersionKind,
    /// The resource of the object as the webhook gets it.
    pub resource: GroupVersionResource,
    /// The subresource, such as `status`, or `None`.
    #[serde(default)]
    pub sub_resource: Option<String>,
    /// The kind that the client wrote, before conversion.
    #[serde(default)]
    pub request_kind: Option<GroupVersionKind>,
    /// The resource that the client wrote, before conversion.
    #[serde(default)]
    pub request_resource: Option<GroupVersionResource>,
    /// The name of the object; empty when the server is to generate it.
    #[serde(default)]
    pub name: String,
    /// The namespace; `None` for objects outside namespaces.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The operation.
    pub operation: Operation,
    /// Who asks.
    #[serde(default)]
    pub user_info: UserInfo,
    /// Whether nothing will be stored: a webhook must then have no side effects. [`AdmissionRequest::client`] knows.
    #[serde(default)]
    pub dry_run: bool,
    /// The options of the write, such as `CreateOptions`.
    #[serde(default)]
    pub options: Option<Value>,
    /// The object as it was sent, with fields that the Rust type does not know and with its `managedFields`, which
    /// handlers of a type do not get; `None` for deletions.
    #[serde(default)]
    pub object: Option<Value>,
    /// The object as it is stored; `None` for creations.
    #[serde(default)]
    pub old_object: Option<Value>,
    #[serde(skip)]
    warnings: Mutex<Vec<String>>,
    #[serde(skip)]
    audit_annotations: Mutex<BTreeMap<String, String>>,
    #[serde(skip)]
    client: Option<Client>,
    #[serde(skip)]
    clock: Option<AnyClock>,
}

/// The manager's.
struct AnyClock(Arc<dyn Clock>);

impl fmt::Debug for AnyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.0.now())
    }
}

impl AdmissionRequest {
    /// A request that was not sent, for tests which call a defaulter or validator directly.
    ///
    /// ```
    /// use kubewright::AdmissionRequest;
    /// use kubewright::k8s_openapi::api::core::v1::ConfigMap;
    /// use kubewright::webhook::Operation;
    ///
    /// let request = AdmissionRequest::detached::<ConfigMap>(Operation::Create);
    /// request.warn("the volume is high");
    /// assert_eq!(request.warnings(), ["the volume is high"]);
    /// ```
    pub fn detached<K: crate::Object>(operation: Operation) -> AdmissionRequest {
        let resource = crate::api_resource::<K>();
        let kind = GroupVersionKind::gvk(&resource.group, &resource.version, &resource.kind);
        let resource = GroupVersionResource::gvr(&resource.group, &resource.version, &resource.plural);
        let mut request = AdmissionRequest::new(operation, kind, resource);
        "detached".clone_into(&mut request.uid);
        request
    }

    /// A request for those who ask handlers without HTTP ([`WebhookHandlers::admit`](super::WebhookHandlers::admit)).
    /// Its other fields are empty, and can be set.
    pub fn new(operation: Operation, kind: GroupVersionKind, resource: GroupVersionResource) -> AdmissionRequest {
        AdmissionRequest {
            uid: String::new(),
            kind,
            resource,
            sub_resource: None,
            request_kind: None,
            request_resource: None,
            name: String::new(),
            namespace: None,
            operation,
            user_info: UserInfo::default(),
            dry_run: false,
            options: None,
            object: None,
            old_object: None,
            warnings: Mutex::default(),
            audit_annotations: Mutex::default(),
            client: None,
            clock: None,
        }
    }

    /// Shows a warning to the person who writes (`kubectl` prints it), whether the write is allowed or not. Keep it
    /// under 120 characters.
    pub fn warn(&self, text: impl Into<String>) {
        self.lock().push(text.into());
    }

    /// The warnings so far.
    pub fn warnings(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// Notes something about the request in the audit log of the API server, where it stands under the name of the
    /// webhook and this key (controller-runtime's `AuditAnnotations`). A key that is noted twice has the later value.
    pub fn annotate(&self, key: impl Into<String>, value: impl Into<String>) {
        let mut annotations = self.audit_annotations.lock().unwrap_or_else(PoisonError::into_inner);
        annotations.insert(key.into(), value.into());
    }

    /// What was noted for the audit log so far.
    pub fn audit_annotations(&self) -> BTreeMap<String, String> {
        let annotations = self.audit_annotations.lock();
        annotations.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A client of the cluster, with the manager's cache. For a dry run its writes are dry runs too.
    ///
    /// # Errors
    /// [`Error::Configuration`] for a [detached](AdmissionRequest::detached) request.
    pub fn client(&self) -> Result<&Client> {
        self.client
            .as_ref()
            .ok_or_else(|| Error::Configuration("a detached admission request has no cluster to talk to".to_owned()))
    }

    /// The time of day, for time stamps in objects and for what is too old or too new: that of the manager, which tests
    /// set ([`ManagerBuilder::clock`](crate::ManagerBuilder::clock)).
    pub fn now(&self) -> Timestamp {
        self.clock
            .as_ref()
            .map_or_else(|| SystemClock.now(), |clock| clock.0.now())
    }

    pub(super) fn in_manager(mut self, client: &Client, clock: &Arc<dyn Clock>) -> AdmissionRequest {
        self.client = Some(match self.dry_run {
            true => client.with_dry_run(),
            false => client.clone(),
        });
        self.clock = Some(AnyClock(clock.clone()));
        self
    }

    /// The object that a handler gets, which a review for it must have.
    pub(super) fn needed<'a>(&self, object: Option<&'a Value>) -> Result<&'a Value, Denied> {
        object.ok_or_else(|| self.without("object"))
    }

    /// The object as it is stored.
    pub(super) fn raw_old_object(&self) -> Result<&Value, Denied> {
        self.old_object.as_ref().ok_or_else(|| self.without("oldObject"))
    }

    fn without(&self, field: &str) -> Denied {
        let verb = self.operation.verb();
        Denied::with_code(
            400,
            "BadRequest",
            format!(
                "the AdmissionReview to {verb} {} has no request.{field}",
                self.describe()
            ),
        )
    }

    /// Decodes the object of `field`, without its `managedFields`: caches leave them out as well, and of a small object
    /// they are the larger part.
    pub(super) fn decode<K: AnyObject>(&self, raw: &Value, field: &str) -> Result<K, Denied> {
        of_json(&Unmanaged(raw)).map_err(|error| {
            Denied::with_code(
                400,
                "BadRequest",
                format!(
                    "the webhook cannot read request.{field} of {} as {}: {error}",
                    self.describe(),
                    std::any::type_name::<K>()
                ),
            )
        })
    }

    /// The object in words: `Pod default/hello`, `Pod default/hello (subresource status)`.
    pub(super) fn describe(&self) -> String {
        let mut text = self.kind.kind.clone();
        let name = if self.name.is_empty() {
            "(no name yet)"
        } else {
            &self.name
        };
        match self.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
            Some(namespace) => text.push_str(&format!(" {namespace}/{name}")),
            None => text.push_str(&format!(" {name}")),
        }
        if let Some(subresource) = self.sub_resource.as_deref().filter(|name| !name.is_empty()) {
            text.push_str(&format!(" (subresource {subresource})"));
        }
        text
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.warnings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An object that is written without its `managedFields`.
struct Unmanaged<'a>(&'a Value);

impl Serialize for Unmanaged<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => to.collect_map(fields.iter().map(|(name, value)| {
                let is_metadata = name == "metadata";
                (name, Part { value, is_metadata })
            })),
            other => other.serialize(to),
        }
    }
}

/// A field of an object.
struct Part<'a> {
    value: &'a Value,
    is_metadata: bool,
}

impl Serialize for Part<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.value {
            Value::Object(fields) if self.is_metadata => {
                to.collect_map(fields.iter().filter(|(name, _)| *name != "managedFields"))
            }
            other => other.serialize(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_typed_object_comes_without_its_managed_fields() {
        let request = AdmissionRequest::detached::<ConfigMap>(Operation::Create);
        let raw = json!({
            "metadata": { "name": "a", "managedFields": [{ "manager": "m", "metadata": { "managedFields": 1 } }] },
            "data": { "managedFields": "mine", "metadata": "mine, too" },
        });
        let object: ConfigMap = request.decode(&raw, "object").expect("a ConfigMap");
        assert_eq!(object.metadata.name.as_deref(), Some("a"));
        assert_eq!(object.metadata.managed_fields, None);
        let data = object.data.unwrap_or_default();
        assert_eq!(
            (data["managedFields"].as_str(), data["metadata"].as_str()),
            ("mine", "mine, too")
        );
        let why = request.decode::<ConfigMap>(&json!({ "metadata": 5 }), "object");
        let why = why.expect_err("no ConfigMap").to_string();
        assert!(why.contains("cannot read request.object of ConfigMap"), "{why}");
    }
}
