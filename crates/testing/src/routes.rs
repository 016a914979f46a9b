//! Leads the API server to an operator's webhooks without a socket.
//!
//! Configurations name the service that a deployed operator would have (`guestbook-webhook-service` in
//! `guestbook-system`), so that messages read as they do in a real cluster; a call to it goes to the operator's
//! handlers. Invariant: the resources of an ended operator are freed, and calls to it fail as calls to a pod that is
//! gone.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, CustomResourceDefinition, ServiceReference, WebhookClientConfig, WebhookConversion,
};
use kubewright::AdmissionRequest;
use kubewright::k8s_openapi::api::authentication::v1::UserInfo;
use kubewright::kube::core::{DynamicObject, GroupVersionKind, GroupVersionResource};
use kubewright::webhook::{Operation, WebhookHandlers, configurations};
use kubewright_cluster::{AdmissionOperation, AdmissionQuestion, AdmissionVerdict, Cluster};
use serde_json::{Value, json};

/// How long a call may take when it does not come from the API server, which gives up by itself: the most that it
/// waits.
const LONGEST: Duration = Duration::from_secs(30);
const CONVERT: &str = "/convert";
/// What the API server hears when the operator has ended.
const GONE: &str = "dial tcp: connect: connection refused";

/// The way to the webhooks of one operator.
pub(crate) struct Routes {
    name: String,
    /// Empty when the operator has ended.
    handlers: Arc<RwLock<Option<WebhookHandlers>>>,
}

impl Routes {
    pub(crate) fn new(operator: &str, handlers: WebhookHandlers) -> Routes {
        Routes {
            name: operator.to_lowercase(),
            handlers: Arc::new(RwLock::new(Some(handlers))),
        }
    }

    fn handlers(&self) -> Option<WebhookHandlers> {
        present(&self.handlers)
    }

    fn namespace(&self) -> String {
        format!("{}-system", self.name)
    }

    fn service(&self) -> String {
        format!("{}-webhook-service", self.name)
    }

    /// From now on calls reach the handlers: questions of admission as they are, everything else as documents.
    pub(crate) fn open(&self, cluster: &Cluster) {
        for path in self.handlers().iter().flat_map(WebhookHandlers::paths) {
            let url = format!("https://{}.{}.svc:443{path}", self.service(), self.namespace());
            let (handlers, at) = (self.handlers.clone(), path.clone());
            cluster.answer_webhook(&url, move |document| {
                let (handlers, path) = (present(&handlers), at.clone());
                async move {
                    let handlers = handlers.ok_or(GONE)?;
                    let answer = handlers.call(&path, LONGEST, document).await;
                    answer.map_err(|status| status.message)
                }
            });
            if path != CONVERT {
                let handlers = self.handlers.clone();
                cluster.answer_admission(&url, move |question, timeout| {
                    let (handlers, path) = (present(&handlers), path.clone());
                    // A little less than the API server waits, as over HTTPS, so that it hears why.
                    let within = timeout - timeout / 20;
                    async move { admit(&handlers.ok_or(GONE)?, &path, within, question).await }
                });
            }
        }
    }

    /// From now on calls fail.
    pub(crate) fn close(&self) {
        *self.handlers.write().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The webhook configurations of the operator.
    pub(crate) fn configurations(&self) -> Vec<DynamicObject> {
        let descriptions = self
            .handlers()
            .map(|handlers| handlers.descriptions())
            .unwrap_or_default();
        let made = configurations(
            &format!("{}-", self.name),
            &descriptions,
            |webhook| json!({"service": {"namespace": self.namespace(), "name": self.service(), "path": webhook.path}}),
        );
        made.into_iter()
            .map(|object| serde_json::from_value(object).expect("a configuration has type and metadata"))
            .collect()
    }

    /// Has kinds converted by the operator that it has conversions of.
    pub(crate) fn convert(&self, crds: &mut [CustomResourceDefinition]) {
        let conversions = self
            .handlers()
            .map(|handlers| handlers.conversions())
            .unwrap_or_default();
        for crd in crds {
            let converted =
                |hub: &kubewright::webhook::Kind| hub.group == crd.spec.group && hub.kind == crd.spec.names.kind;
            if conversions.iter().any(|conversion| converted(&conversion.hub)) {
                crd.spec.conversion = Some(self.conversion());
            }
        }
    }

    fn conversion(&self) -> CustomResourceConversion {
        let service = ServiceReference {
            namespace: self.namespace(),
            name: self.service(),
            path: Some(CONVERT.to_owned()),
            port: None,
        };
        CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(WebhookClientConfig {
                    service: Some(service),
                    ..WebhookClientConfig::default()
                }),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        }
    }
}

/// A killed operator cannot say that it ends.
impl Drop for Routes {
    fn drop(&mut self) {
        self.close();
    }
}

/// Asks the handlers of an operator what the API server of a cluster in this process wants to know.
async fn admit(
    handlers: &WebhookHandlers,
    path: &str,
    within: Duration,
    question: AdmissionQuestion,
) -> Result<AdmissionVerdict, String> {
    let answer = handlers.admit(path, within, request_of(question)).await;
    let answer = answer.map_err(|status| status.message)?;
    Ok(AdmissionVerdict {
        allowed: answer.refusal.is_none(),
        status: answer.refusal.map_or(Value::Null, |status| json!(status)),
        patch: answer.patch,
        warnings: answer.warnings,
        audit_annotations: answer.audit_annotations.into_iter().collect(),
    })
}

fn request_of(question: AdmissionQuestion) -> AdmissionRequest {
    let operation = match question.operation {
        AdmissionOperation::Create => Operation::Create,
        AdmissionOperation::Update => Operation::Update,
        AdmissionOperation::Delete => Operation::Delete,
        AdmissionOperation::Connect => Operation::Connect,
    };
    let [seen, asked] = question.kinds.map(|kind| GroupVersionKind {
        group: kind.group,
        version: kind.version,
        kind: kind.kind,
    });
    let [resource, request_resource] = question
        .resources
        .map(|[group, version, resource]| GroupVersionResource::gvr(&group, &version, &resource));
    let given = |text: String| (!text.is_empty()).then_some(text);
    let present = |value: Value| (!value.is_null()).then_some(value);
    let mut request = AdmissionRequest::new(operation, seen, resource);
    request.uid = question.uid;
    request.sub_resource = given(question.subresource);
    request.request_kind = Some(asked);
    request.request_resource = Some(request_resource);
    request.name = question.name;
    request.namespace = given(question.namespace);
    request.user_info = UserInfo {
        username: given(question.user.name),
        uid: given(question.user.uid),
        groups: (!question.user.groups.is_empty()).then_some(question.user.groups),
        extra: (!question.user.extra.is_empty()).then_some(question.user.extra),
    };
    request.dry_run = question.dry_run;
    request.options = present(question.options);
    request.object = present(question.object);
    request.old_object = present(question.old_object);
    request
}

fn present(handlers: &RwLock<Option<WebhookHandlers>>) -> Option<WebhookHandlers> {
    handlers.read().unwrap_or_else(PoisonError::into_inner).clone()
}
