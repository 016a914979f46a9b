//! The user's wishes for the registration of a webhook: everything that kubebuilder's webhook marker can say.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};

use super::request::Operation;

/// The fate of a write when the webhook cannot be called.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailurePolicy {
    /// The write is refused.
    #[default]
    Fail,
    /// The write goes on without the webhook.
    Ignore,
}

/// Whether the webhook is asked about writes through other versions of the kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MatchPolicy {
    /// Only about writes in exactly the registered version.
    Exact,
    /// About writes in any version; the object is converted first. The API server's default.
    Equivalent,
}

/// Whether the webhook changes anything besides its answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum SideEffects {
    /// Nothing, so that it may be asked about dry runs.
    #[default]
    None,
    /// Something, but not in a dry run.
    NoneOnDryRun,
}

/// Whether a mutating webhook is asked again after later ones have changed the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reinvocation {
    /// Once for each write. The API server's default.
    Never,
    /// Again when something changed in the meantime.
    IfNeeded,
}

/// The registration of one webhook, where it differs from the values that follow from the kind (kubebuilder's
/// `+kubebuilder:webhook` marker).
///
/// See [`Webhook::mutating`](super::Webhook::mutating) and [`Webhook::validating`](super::Webhook::validating).
#[derive(Debug, Clone, Default, PartialEq)]
#[must_use]
pub struct Registration {
    pub(super) path: Option<String>,
    pub(super) name: Option<String>,
    pub(super) operations: Option<Vec<Operation>>,
    pub(super) all_operations: bool,
    pub(super) versions: Option<Vec<String>>,
    pub(super) failure_policy: FailurePolicy,
    pub(super) match_policy: Option<MatchPolicy>,
    pub(super) side_effects: SideEffects,
    pub(super) timeout_seconds: Option<u8>,
    pub(super) reinvocation: Option<Reinvocation>,
    pub(super) subresources: Vec<String>,
    pub(super) configuration_name: Option<String>,
    pub(super) service: Option<(String, String, Option<u16>)>,
    pub(super) url: Option<String>,
    pub(super) everywhere: bool,
    pub(super) patch: Map<String, Value>,
}

impl Registration {
    /// The path under which the webhook is served. Default: kubebuilder's, such as
    /// `/mutate-webapp-my-domain-v1-guestbook`.
    pub fn path(mut self, path: impl Into<String>) -> Registration {
        self.path = Some(path.into());
        self
    }

    /// The name of the webhook, at least three labels with dots. Default: kubebuilder's, such as `mguestbook-v1.kb.io`.
    pub fn name(mut self, name: impl Into<String>) -> Registration {
        self.name = Some(name.into());
        self
    }

    /// The writes about which the webhook is asked. Default: create and update.
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Registration {
        self.operations = Some(operations.into_iter().collect());
        self
    }

    /// Asks about every operation, also about those that Kubernetes may add (`*`).
    pub fn all_operations(mut self) -> Registration {
        self.all_operations = true;
        self
    }

    /// The versions of the kind about whose writes the webhook is asked, or `*` for all. Default: the version of the
    /// Rust type. With [`MatchPolicy::Equivalent`] writes through other versions count anyway; with
    /// [`MatchPolicy::Exact`] objects come in the version that was written, which the Rust type must be able to read.
    pub fn versions<T: Into<String>>(mut self, versions: impl IntoIterator<Item = T>) -> Registration {
        self.versions = Some(versions.into_iter().map(Into::into).collect());
        self
    }

    /// The fate of a write when the webhook cannot be called. Default: [`FailurePolicy::Fail`].
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Registration {
        self.failure_policy = policy;
        self
    }

    /// Whether writes through other versions count.
    pub fn match_policy(mut self, policy: MatchPolicy) -> Registration {
        self.match_policy = Some(policy);
        self
    }

    /// Whether the webhook has side effects. Default: [`SideEffects::None`].
    pub fn side_effects(mut self, effects: SideEffects) -> Registration {
        self.side_effects = effects;
        self
    }

    /// How long the API server waits for an answer, in seconds, 1 to 30. The API server's default is 10; for kinds of
    /// Kubernetes itself the default is 5, because much of a cluster waits with them.
    pub fn timeout_seconds(mut self, seconds: u8) -> Registration {
        self.timeout_seconds = Some(seconds);
        self
    }

    /// Whether the webhook is asked again. For mutating webhooks only.
    pub fn reinvocation_policy(mut self, policy: Reinvocation) -> Registration {
        self.reinvocation = Some(policy);
        self
    }

    /// Asks about these subresources of the kind (`status`, `ephemeralcontainers`) instead of the objects themselves;
    /// `""` stands for the objects.
    pub fn subresources<T: Into<String>>(mut self, subresources: impl IntoIterator<Item = T>) -> Registration {
        self.subresources = subresources.into_iter().map(Into::into).collect();
        self
    }

    /// Only objects with such labels.
    pub fn object_selector(self, selector: LabelSelector) -> Registration {
        self.patch("objectSelector", json!(selector))
    }

    /// Also objects in `kube-system` and in namespaces of operators. Without this, a webhook for a kind of Kubernetes
    /// itself (pods, say) is not asked about those, unless [`namespace_selector`](Registration::namespace_selector)
    /// says otherwise: an operator that must answer before its own pods may start never starts.
    pub fn everywhere(mut self) -> Registration {
        self.everywhere = true;
        self
    }

    /// Only objects in namespaces with such labels.
    pub fn namespace_selector(self, selector: LabelSelector) -> Registration {
        self.patch("namespaceSelector", json!(selector))
    }

    /// Only requests for which these CEL expressions, by name, are true.
    pub fn match_conditions<N: Into<String>, E: Into<String>>(
        self,
        conditions: impl IntoIterator<Item = (N, E)>,
    ) -> Registration {
        let conditions: BTreeMap<String, String> = conditions
            .into_iter()
            .map(|(name, expression)| (name.into(), expression.into()))
            .collect();
        let conditions: Vec<Value> = conditions
            .into_iter()
            .map(|(name, expression)| json!({"name": name, "expression": expression}))
            .collect();
        self.patch("matchConditions", Value::Array(conditions))
    }

    /// The name of the configuration object that the webhook stands in. Default: `mutating-webhook-configuration` or
    /// `validating-webhook-configuration`.
    pub fn configuration_name(mut self, name: impl Into<String>) -> Registration {
        self.configuration_name = Some(name.into());
        self
    }

    /// The service that leads to the webhook. Default: `webhook-service` in namespace `system`, which the generated
    /// kustomization renames.
    pub fn service(mut self, namespace: impl Into<String>, name: impl Into<String>, port: Option<u16>) -> Registration {
        self.service = Some((namespace.into(), name.into(), port));
        self
    }

    /// A URL that leads to the webhook, instead of a service.
    pub fn url(mut self, url: impl Into<String>) -> Registration {
        self.url = Some(url.into());
        self
    }

    /// Sets any other field of the webhook in its configuration, by its name in YAML.
    pub fn patch(mut self, field: impl Into<String>, value: Value) -> Registration {
        self.patch.insert(field.into(), value);
        self
    }
}
