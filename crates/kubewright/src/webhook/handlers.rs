//! From a path and a question to an answer, whoever carries them: the HTTPS server, as documents, or a test cluster in
//! this process, as they are.
//!
//! Invariants: W1 every review that can be read gets an answer with its uid, even when the user's code fails; a handler
//! that panics or takes too long is answered for, logged, and affects no other request.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::core::Status;
use serde_json::Value;
use tracing::Instrument as _;

use super::authentication::{self, Authenticate};
use super::conversion::{Convert, PATH};
use super::denied::Denied;
use super::description::{ConversionDescription, Description};
use super::request::AdmissionRequest;
use super::{Registered, json_patch, review};
use crate::client::Client;
use crate::clock::Clock;
use crate::error::{Error, Result, end_of_panic};
use crate::metrics::{Metrics, WebhookCall};
use crate::trace;

/// Judges one request: a patch that may be empty, or a refusal.
pub(crate) trait Admit: Send + Sync {
    /// `object` is that of the request, with what handlers of the same webhook have changed before.
    fn admit<'a>(
        &'a self,
        request: &'a AdmissionRequest,
        object: Option<&'a Value>,
    ) -> BoxFuture<'a, Result<Vec<json_patch::Operation>, Denied>>;
}

/// The handlers of one webhook, one after the other: each sees what those before it made of the object, and their steps
/// together are the patch. The first refusal is the answer.
#[derive(Default)]
pub(crate) struct Chain(Vec<Box<dyn Admit>>);

impl Chain {
    pub(super) fn add(&mut self, handler: impl Admit + 'static) {
        self.0.push(Box::new(handler));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    async fn admit(&self, request: &AdmissionRequest) -> Result<Vec<json_patch::Operation>, Denied> {
        let mut patch = Vec::new();
        let mut changed: Option<Value> = None;
        for (index, handler) in self.0.iter().enumerate() {
            let steps = handler
                .admit(request, changed.as_ref().or(request.object.as_ref()))
                .await?;
            let is_last = index + 1 == self.0.len();
            if !steps.is_empty() && !is_last {
                let before = changed.take().or_else(|| request.object.clone()).unwrap_or_default();
                changed = Some(json_patch::applied(before, &steps));
            }
            patch.extend(steps);
        }
        Ok(patch)
    }
}

/// What the handlers say to a request ([`WebhookHandlers::admit`]).
#[derive(Debug)]
#[non_exhaustive]
pub struct AdmissionResponse {
    /// Why the write is refused, if it is.
    pub refusal: Option<Status>,
    /// The operations of a JSON patch of the object; none from a validating webhook.
    pub patch: Vec<Value>,
    /// For the person who writes.
    pub warnings: Vec<String>,
    /// For the audit log.
    pub audit_annotations: BTreeMap<String, String>,
}

/// The webhooks and conversions of an operator before it has a client.
#[derive(Default)]
pub(crate) struct Parts {
    pub(crate) webhooks: Vec<Registered>,
    pub(crate) conversions: Vec<Box<dyn Convert>>,
    /// By path.
    pub(crate) authenticators: Vec<(String, Box<dyn Authenticate>)>,
}

/// Everything that an operator answers to the API server, by path. Cheap to clone.
///
/// [`Manager::webhooks`](crate::Manager::webhooks) hands it out. A server of your own, or a test, gives it the body
/// that the API server posts:
///
/// ```
/// # use kubewright::webhook::WebhookHandlers;
/// async fn ask(handlers: &WebhookHandlers, review: serde_json::Value) {
///     let answer = handlers.call("/mutate--v1-pod", std::time::Duration::from_secs(10), review).await;
///     match answer {
///         Ok(review) => println!("allowed: {}", review["response"]["allowed"]),
///         Err(status) => println!("HTTP {}: {}", status.code, status.message),
///     }
/// }
/// ```
#[derive(Clone)]
pub struct WebhookHandlers(Arc<Inner>);

struct Inner {
    parts: Parts,
    by_path: BTreeMap<String, usize>,
    client: Client,
    clock: Arc<dyn Clock>,
}

impl fmt::Debug for WebhookHandlers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.paths()).finish()
    }
}

impl Parts {
    /// The error in the declaration.
    pub(crate) fn check(&self) -> Result<()> {
        let mut paths = BTreeSet::new();
        let mut names = BTreeSet::new();
        for Registered { description, .. } in &self.webhooks {
            description.check().map_err(Error::Configuration)?;
            let Description {
                path, name, mutating, ..
            } = description;
            if !paths.insert(path) {
                return Err(Error::Configuration(format!(
                    "two webhooks are served under {path}; give one of them another path, or declare the kind's webhooks together"
                )));
            }
            if !names.insert((mutating, name)) {
                return Err(Error::Configuration(format!(
                    "two webhooks are named {name}; give one of them another with Registration::name"
                )));
            }
        }
        for (path, _) in &self.authenticators {
            if !path.starts_with('/') || path == PATH {
                return Err(Error::Configuration(format!(
                    "the path of an authenticator is {path:?}; it must begin with / and not be {PATH}"
                )));
            }
            if !paths.insert(path) {
                return Err(Error::Configuration(format!("two webhooks are served under {path}")));
            }
        }
        let mut kinds = BTreeSet::new();
        for conversion in &self.conversions {
            conversion.check().map_err(Error::Configuration)?;
            let hub = conversion.kind();
            if !kinds.insert((&hub.group, &hub.kind)) {
                return Err(Error::Configuration(format!(
                    "{} has two conversions; name all its spokes in one",
                    hub.kind
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn descriptions(&self) -> Vec<Description> {
        self.webhooks
            .iter()
            .map(|webhook| webhook.description.clone())
            .collect()
    }

    pub(crate) fn conversions(&self) -> Vec<ConversionDescription> {
        self.conversions
            .iter()
            .map(|conversion| conversion.describe())
            .collect()
    }
}

impl WebhookHandlers {
    pub(crate) fn new(parts: Parts, client: Client, clock: Arc<dyn Clock>) -> WebhookHandlers {
        let paths = parts.webhooks.iter().enumerate();
        let by_path = paths
            .map(|(index, webhook)| (webhook.description.path.clone(), index))
            .collect();
        WebhookHandlers(Arc::new(Inner {
            parts,
            by_path,
            client,
            clock,
        }))
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    /// Whether the operator answers nothing: it has no webhooks, no conversions, no authenticators.
    pub fn is_empty(&self) -> bool {
        self.paths().is_empty()
    }

    /// The paths that are answered, in order.
    pub fn paths(&self) -> Vec<String> {
        let conversions = (!self.0.parts.conversions.is_empty()).then(|| PATH.to_owned());
        let authenticators = self.0.parts.authenticators.iter().map(|(path, _)| path.clone());
        let paths = conversions.into_iter().chain(self.0.by_path.keys().cloned());
        paths.chain(authenticators).collect()
    }

    /// The webhooks as the API server is told about them.
    pub fn descriptions(&self) -> Vec<Description> {
        self.0.parts.descriptions()
    }

    /// The versions that are converted between.
    pub fn conversions(&self) -> Vec<ConversionDescription> {
        self.0.parts.conversions()
    }

    /// Answers a review within a time.
    ///
    /// # Errors
    /// 404 for a path that is not served, 400 for a document that is not the review which belongs there. Everything
    /// else, refusals included, is an answer.
    pub async fn call(&self, path: &str, within: Duration, document: Value) -> Result<Value, Status> {
        self.counted(path, self.answer(path, within, document)).await
    }

    /// Answers a request that was made in this process and is not written as a review: what
    /// [`call`](WebhookHandlers::call) answers, sooner.
    ///
    /// # Errors
    /// 404 for a path under which there is no admission webhook.
    pub async fn admit(
        &self,
        path: &str,
        within: Duration,
        request: AdmissionRequest,
    ) -> Result<AdmissionResponse, Status> {
        let judging = async {
            let webhook = self.webhook(path).ok_or_else(|| self.not_served(path))?;
            let request = request.in_manager(&self.0.client, &self.0.clock);
            Ok(self.judged(webhook, within, &request).await)
        };
        self.counted(path, judging).await
    }

    async fn counted<T>(&self, path: &str, answering: impl Future<Output = Result<T, Status>>) -> Result<T, Status> {
        let counted = self.count(path);
        let span = trace::webhook(path);
        let answer = answering.instrument(span.clone()).await;
        let code = answer.as_ref().err().map_or(200, |status| status.code);
        if let Some(counted) = counted {
            counted.answered(code);
            span.record("code", code);
        }
        answer
    }

    /// Counts a request from here to its end, if the path is served.
    pub(super) fn count(&self, path: &str) -> Option<WebhookCall> {
        let converts = path == PATH && !self.0.parts.conversions.is_empty();
        let served = self.0.by_path.contains_key(path) || converts || self.authenticator(path).is_some();
        served.then(|| self.0.client.cache().metrics().webhook(path))
    }

    fn authenticator(&self, path: &str) -> Option<&dyn Authenticate> {
        let mut authenticators = self.0.parts.authenticators.iter();
        authenticators.find(|(at, _)| at == path).map(|(_, judge)| &**judge)
    }

    fn webhook(&self, path: &str) -> Option<&Registered> {
        let index = self.0.by_path.get(path)?;
        Some(&self.0.parts.webhooks[*index])
    }

    fn not_served(&self, path: &str) -> Status {
        let served = self.paths().join(", ");
        let message = format!("no webhook is served under {path}; there is {served}");
        Status::failure(&message, "NotFound").with_code(404)
    }

    async fn answer(&self, path: &str, within: Duration, document: Value) -> Result<Value, Status> {
        if path == PATH && !self.0.parts.conversions.is_empty() {
            return self.convert(document).map_err(bad_request);
        }
        if let Some(judge) = self.authenticator(path) {
            let (client, metrics) = (&self.0.client, self.0.client.cache().metrics());
            let answer = authentication::answer((path, judge), document, within, client, metrics).await;
            return answer.map_err(bad_request);
        }
        let webhook = self.webhook(path).ok_or_else(|| self.not_served(path))?;
        let asked = review::read_admission(document).map_err(bad_request)?;
        let request = asked.request.in_manager(&self.0.client, &self.0.clock);
        let response = self.judged(webhook, within, &request).await;
        Ok(review::admission_answer(&asked.api_version, &request.uid, response))
    }

    async fn judged(&self, webhook: &Registered, within: Duration, request: &AdmissionRequest) -> AdmissionResponse {
        if trace::is_wanted() {
            let span = tracing::Span::current();
            span.record("uid", request.uid.as_str());
            span.record("operation", tracing::field::debug(&request.operation));
            span.record("object", request.describe());
        }
        let verdict = judge(webhook, request, within, self.0.client.cache().metrics()).await;
        let (patch, refusal) = match verdict {
            Ok(patch) => (patch.into_iter().map(Value::from).collect(), None),
            Err(denied) => (Vec::new(), Some(denied.into_status(request))),
        };
        if let Some(status) = &refusal {
            let (webhook, object) = (&webhook.description.name, request.describe());
            tracing::debug!(webhook, object, code = status.code, message = status.message, "denied");
        }
        AdmissionResponse {
            refusal,
            patch,
            warnings: request.warnings(),
            audit_annotations: request.audit_annotations(),
        }
    }

    /// Answers a conversion.
    pub(super) fn convert(&self, document: Value) -> Result<Value, review::Malformed> {
        let asked = review::read_conversion(document)?;
        let request = asked.request;
        let one = |object: &Value| {
            let kind = object.get("kind").and_then(Value::as_str).unwrap_or_default();
            let version = object.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
            let conversion = self.0.parts.conversions.iter().find(|conversion| {
                let hub = conversion.kind();
                hub.kind == kind && hub.group == crate::object::group_of(version)
            });
            match conversion {
                Some(conversion) => conversion.convert(object, &request.desired_api_version),
                None => Err(format!(
                    "cannot convert {kind} {} of {version:?}: the operator has no conversion of this kind",
                    super::conversion::name_of(object)
                )),
            }
        };
        let converted: Result<Vec<Value>, String> = request.objects.iter().map(one).collect();
        if let Err(error) = &converted {
            tracing::error!(error, "a conversion failed");
        }
        Ok(review::conversion_answer(&asked.api_version, &request.uid, converted))
    }
}

pub(super) fn bad_request(message: String) -> Status {
    Status::failure(&message, "BadRequest").with_code(400)
}

/// Runs the user's code.
async fn judge(
    webhook: &Registered,
    request: &AdmissionRequest,
    within: Duration,
    metrics: &Metrics,
) -> Result<Vec<json_patch::Operation>, Denied> {
    let name = &webhook.description.name;
    let judging = AssertUnwindSafe(webhook.handlers.admit(request)).catch_unwind();
    match tokio::time::timeout(within, judging).await {
        Ok(Ok(verdict)) => verdict,
        Ok(Err(panic)) => {
            metrics.webhook_panicked(&webhook.description.path);
            let message = end_of_panic(panic);
            tracing::error!(
                webhook = name,
                object = request.describe(),
                message,
                "a webhook panicked"
            );
            Err(Denied::with_code(
                500,
                "InternalError",
                format!("panic: {message} [recovered]"),
            ))
        }
        Err(_) => {
            tracing::error!(
                webhook = name,
                object = request.describe(),
                ?within,
                "a webhook took too long"
            );
            let message = format!("the webhook {name} did not decide within {within:?}");
            Err(Denied::with_code(504, "Timeout", message))
        }
    }
}
