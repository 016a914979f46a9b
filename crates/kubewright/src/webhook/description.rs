//! The description of a webhook for the API server, complete: one entry of a webhook configuration, before it is known
//! where the operator runs.
//!
//! It is data with a fixed JSON form, for the generator of manifests reads it in another process; tests and development
//! clusters make configurations out of it at once ([`configurations`]). Invariant: paths and names are kubebuilder's.

use std::any::type_name;
use std::collections::BTreeMap;

use kube::core::ApiResource;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::registration::{FailurePolicy, MatchPolicy, Registration, Reinvocation, SideEffects};
use crate::object::{Object, api_resource, is_cluster_scoped};

/// A kind of object, as a declaration names it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Kind {
    /// The API group; empty for the core group.
    pub group: String,
    /// The version, such as `v1`.
    pub version: String,
    /// The kind, such as `Guestbook`.
    pub kind: String,
    /// The resource, such as `guestbooks`.
    pub plural: String,
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// The path of the Rust type.
    pub rust: String,
}

impl Kind {
    /// The kind of a typed object.
    pub fn of<K: Object>() -> Kind {
        let ApiResource {
            group,
            version,
            kind,
            plural,
            ..
        } = api_resource::<K>();
        Kind {
            group,
            version,
            kind,
            plural,
            namespaced: !is_cluster_scoped::<K>(),
            rust: type_name::<K>().to_owned(),
        }
    }

    /// A kind that is known at run time, in the form of a type.
    pub(crate) fn dynamic<K>(resource: &ApiResource, namespaced: bool) -> Kind {
        Kind {
            group: resource.group.clone(),
            version: resource.version.clone(),
            kind: resource.kind.clone(),
            plural: resource.plural.clone(),
            namespaced,
            rust: type_name::<K>().to_owned(),
        }
    }

    /// Group and version as objects have them: `apps/v1`, `v1`.
    pub fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

/// One webhook as the API server is told about it. The JSON form is that of a declaration.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Description {
    /// The kind that the webhook is asked about.
    #[serde(rename = "for")]
    pub kind: Kind,
    /// Whether it may change objects (a `MutatingWebhookConfiguration`) or only refuse them.
    pub mutating: bool,
    /// The path under which it is served.
    pub path: String,
    /// Its name.
    pub name: String,
    /// The verbs that it is asked about, in lower case.
    pub verbs: Vec<&'static str>,
    /// The versions of the kind that it is asked about; `None` for that of the type.
    pub versions: Option<Vec<String>>,
    /// `Fail` or `Ignore`.
    pub failure_policy: &'static str,
    /// `Exact` or `Equivalent`.
    pub match_policy: Option<&'static str>,
    /// `None` or `NoneOnDryRun`.
    pub side_effects: &'static str,
    /// Seconds that the API server waits.
    pub timeout_seconds: Option<u8>,
    /// `Never` or `IfNeeded`.
    pub reinvocation_policy: Option<&'static str>,
    /// The versions of AdmissionReview that are understood.
    pub admission_review_versions: Vec<&'static str>,
    /// Resources with subresources, such as `pods/ephemeralcontainers`; `None` for the resource of the kind.
    pub resources: Option<Vec<String>>,
    /// The service that leads to the webhook, if it has another name than the generated one.
    pub service_name: Option<String>,
    /// The namespace of the service.
    pub service_namespace: Option<String>,
    /// The port of the service.
    pub service_port: Option<u16>,
    /// A URL that leads to the webhook, instead of a service.
    pub url: Option<String>,
    /// The name of the configuration object.
    pub configuration_name: Option<String>,
    /// Further fields of the entry: selectors, match conditions.
    pub patch: Option<Value>,
}

/// Which of the two configurations a webhook stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Flavour {
    Mutating,
    Validating,
}

impl Description {
    pub(super) fn of<K: Object>(flavour: Flavour, registration: &Registration) -> Description {
        let kind = Kind::of::<K>();
        let mutating = flavour == Flavour::Mutating;
        let lower = kind.kind.to_lowercase();
        let path = || {
            let verb = if mutating { "mutate" } else { "validate" };
            let group = kind.group.replace('.', "-");
            format!("/{verb}-{group}-{}-{lower}", kind.version)
        };
        let name = || {
            let letter = if mutating { 'm' } else { 'v' };
            format!("{letter}{lower}-{}.kb.io", kind.version)
        };
        let resource = |subresource: &String| match subresource.is_empty() {
            true => kind.plural.clone(),
            false => format!("{}/{subresource}", kind.plural),
        };
        let (service_namespace, service_name, service_port) = match registration.service.clone() {
            Some((namespace, name, port)) => (Some(namespace), Some(name), port),
            None => (None, None, None),
        };
        let verbs = match &registration.operations {
            _ if registration.all_operations => vec!["*"],
            Some(operations) => operations.iter().map(|operation| operation.verb()).collect(),
            None => vec!["create", "update"],
        };
        let is_built_in = kind.namespaced && is_built_in(&kind.group);
        let mut patch = registration.patch.clone();
        if is_built_in && !registration.everywhere && !patch.contains_key("namespaceSelector") {
            patch.insert("namespaceSelector".to_owned(), elsewhere());
        }
        Description {
            mutating,
            path: registration.path.clone().unwrap_or_else(path),
            name: registration.name.clone().unwrap_or_else(name),
            verbs,
            versions: registration.versions.clone(),
            failure_policy: match registration.failure_policy {
                FailurePolicy::Fail => "Fail",
                FailurePolicy::Ignore => "Ignore",
            },
            match_policy: registration.match_policy.map(|policy| match policy {
                MatchPolicy::Exact => "Exact",
                MatchPolicy::Equivalent => "Equivalent",
            }),
            side_effects: match registration.side_effects {
                SideEffects::None => "None",
                SideEffects::NoneOnDryRun => "NoneOnDryRun",
            },
            timeout_seconds: registration
                .timeout_seconds
                .or((is_built_in && !registration.everywhere).then_some(5)),
            reinvocation_policy: registration.reinvocation.map(|policy| match policy {
                Reinvocation::Never => "Never",
                Reinvocation::IfNeeded => "IfNeeded",
            }),
            admission_review_versions: vec!["v1"],
            resources: (!registration.subresources.is_empty())
                .then(|| registration.subresources.iter().map(resource).collect()),
            service_name,
            service_namespace,
            service_port,
            url: registration.url.clone(),
            configuration_name: registration.configuration_name.clone(),
            patch: (!patch.is_empty()).then_some(Value::Object(patch)),
            kind,
        }
    }

    /// The error in it, as far as it shows without a cluster.
    pub(crate) fn check(&self) -> Result<(), String> {
        let wrong = |what: String| Err(format!("webhook {} of {}: {what}", self.name, self.kind.rust));
        let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'/');
        if !self.path.starts_with('/') || !self.path.bytes().all(legal) {
            return wrong(format!(
                "the path {:?} must begin with / and consist of letters, digits, -, _, . and /",
                self.path
            ));
        }
        if self.path == super::conversion::PATH {
            return wrong(format!(
                "the path {:?} belongs to conversions; choose another",
                self.path
            ));
        }
        if self.name.split('.').filter(|label| !label.is_empty()).count() < 3 {
            return wrong("its name must be a domain name with at least three labels".to_owned());
        }
        if self.verbs.is_empty() {
            return wrong("it is asked about nothing; name at least one operation".to_owned());
        }
        if self.versions.as_ref().is_some_and(Vec::is_empty) {
            return wrong("it is asked about no version; name at least one, or leave `versions` out".to_owned());
        }
        if self.timeout_seconds.is_some_and(|seconds| !(1..=30).contains(&seconds)) {
            return wrong("its timeout must be between 1 and 30 seconds".to_owned());
        }
        if !self.mutating && self.reinvocation_policy.is_some() {
            return wrong("a reinvocation policy is for mutating webhooks only".to_owned());
        }
        Ok(())
    }

    /// The webhook as an entry of a configuration, reached through `client_config`.
    fn entry(&self, client_config: Value) -> Value {
        let resources = self.resources.clone().unwrap_or_else(|| vec![self.kind.plural.clone()]);
        let versions = self.versions.clone().unwrap_or_else(|| vec![self.kind.version.clone()]);
        let operations: Vec<String> = self.verbs.iter().map(|verb| verb.to_uppercase()).collect();
        let mut entry = Map::new();
        let mut set = |key: &str, value: Value| {
            if !value.is_null() {
                entry.insert(key.to_owned(), value);
            }
        };
        set("name", json!(self.name));
        set("clientConfig", client_config);
        set(
            "rules",
            json!([{
                "apiGroups": [self.kind.group],
                "apiVersions": versions,
                "resources": resources,
                "operations": operations,
            }]),
        );
        set("failurePolicy", json!(self.failure_policy));
        set("matchPolicy", json!(self.match_policy));
        set("sideEffects", json!(self.side_effects));
        set("timeoutSeconds", json!(self.timeout_seconds));
        set("reinvocationPolicy", json!(self.reinvocation_policy));
        set("admissionReviewVersions", json!(self.admission_review_versions));
        for (key, value) in self.patch.iter().filter_map(Value::as_object).flatten() {
            set(key, value.clone());
        }
        Value::Object(entry)
    }
}

/// Whether a group is one of Kubernetes itself: operators themselves consist of such kinds.
fn is_built_in(group: &str) -> bool {
    !group.contains('.') || group.ends_with(".k8s.io")
}

/// All namespaces but `kube-system` and those of operators, which the scaffold labels as kubebuilder does.
fn elsewhere() -> Value {
    json!({"matchExpressions": [
        {"key": "control-plane", "operator": "DoesNotExist"},
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]},
    ]})
}

/// The versions of one kind that an operator converts between, as a declaration names them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConversionDescription {
    /// The version that every other one is converted through.
    pub hub: Kind,
    /// The other versions.
    pub spokes: Vec<Kind>,
}

/// The webhook configurations (`MutatingWebhookConfiguration`, `ValidatingWebhookConfiguration`) of an operator, as
/// JSON objects. Their names begin with `prefix`; `client_config` says how one is reached.
///
/// ```
/// # use kubewright::k8s_openapi::api::core::v1::Pod;
/// # use kubewright::{AdmissionRequest, Validator, Webhook};
/// # struct PodValidator;
/// # impl Validator for PodValidator { type Object = Pod; }
/// use kubewright::webhook::configurations;
///
/// let described = Webhook::of::<Pod>().validator(PodValidator).descriptions();
/// let made = configurations("guard-", &described, |webhook| {
///     serde_json::json!({"url": format!("https://127.0.0.1:9443{}", webhook.path)})
/// });
/// assert_eq!(made[0]["metadata"]["name"], "guard-validating-webhook-configuration");
/// ```
pub fn configurations(
    prefix: &str,
    descriptions: &[Description],
    client_config: impl Fn(&Description) -> Value,
) -> Vec<Value> {
    let mut made: BTreeMap<(bool, String), Vec<Value>> = BTreeMap::new();
    for description in descriptions {
        let usual = match description.mutating {
            true => "mutating-webhook-configuration",
            false => "validating-webhook-configuration",
        };
        let name = description.configuration_name.as_deref().unwrap_or(usual);
        let entries = made
            .entry((!description.mutating, format!("{prefix}{name}")))
            .or_default();
        entries.push(description.entry(client_config(description)));
    }
    let configuration = |((validating, name), webhooks): ((bool, String), Vec<Value>)| {
        let kind = match validating {
            true => "ValidatingWebhookConfiguration",
            false => "MutatingWebhookConfiguration",
        };
        json!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {"name": name},
            "webhooks": webhooks,
        })
    };
    made.into_iter().map(configuration).collect()
}
