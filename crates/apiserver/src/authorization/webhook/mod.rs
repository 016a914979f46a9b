//! Another server that decides about requests (`--authorization-mode=Webhook`): it gets a SubjectAccessReview for every
//! request about which no authorizer before it has an opinion.
//!
//! | file | what |
//! |---|---|
//! | `review.rs` | the review that is sent, and what its answer means |
//! | `conditions.rs` | `matchConditions`: which requests are asked about |
//! | `cache.rs` | answers that are still good |
//!
//! Invariants: an answer is remembered no longer than its time to live, and never for questions that a client made
//! long; a request waits for at most [`Settings::timeout`] and the retries of `RETRIES`. A webhook that cannot be asked
//! has no opinion, or refuses, as [`Settings::on_error`] says, and the request is answered 500 unless another
//! authorizer allows it.
//!
//! Not here: how the review is sent ([`Reviewer`], in the shell), and how the settings are read (the command).

mod cache;
mod conditions;
mod review;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright_schema::rules::Patterns;
use serde_json::Value;

use self::cache::Cache;
pub use self::conditions::Conditions;
pub use self::review::Version;
use super::{Answer, Attributes, Authorizer, Decision, KnownRules, Verdict};
use crate::env::{BoxFuture, Env};
use crate::model::Minor;
use crate::model::user::UserInfo;

/// The pauses between the tries of a review (`DefaultRetryBackoff` of apiserver's webhooks, without its jitter).
const RETRIES: [Duration; 4] = [
    Duration::from_millis(500),
    Duration::from_millis(750),
    Duration::from_millis(1125),
    Duration::from_millis(1688),
];

/// How an authorization webhook is asked (`WebhookConfiguration` of `apiserver.config.k8s.io`).
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Its name, in logs.
    pub name: String,
    /// The version of SubjectAccessReview that is sent.
    pub version: Version,
    /// How long a yes is remembered; zero: not at all.
    pub authorized_ttl: Duration,
    /// How long everything else is remembered; zero: not at all.
    pub unauthorized_ttl: Duration,
    /// How long one review may take.
    pub timeout: Duration,
    /// The verdict for a failure: [`Verdict::NoOpinion`] or [`Verdict::Deny`] (`failurePolicy`).
    pub on_error: Verdict,
    /// Which requests are asked about (`matchConditions`).
    pub conditions: Conditions,
}

/// Why a review was not answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewError {
    /// The failure in words.
    pub message: String,
    /// Whether it may go better when it is sent once more (`DefaultShouldRetry`).
    pub retry: bool,
}

/// Sends SubjectAccessReviews. The shell does it over HTTPS, a test answers itself.
pub trait Reviewer: Send + Sync + 'static {
    /// Posts the review; gives up after `timeout`. The answer is the document that came back.
    fn review(&self, review: Value, timeout: Duration) -> BoxFuture<'static, Result<Value, ReviewError>>;
}

/// An authorization webhook: the contents of [`Mode::Webhook`](super::Mode::Webhook).
#[derive(Clone)]
pub struct Webhook {
    /// How it is asked.
    pub settings: Settings,
    /// The client that sends the reviews.
    pub reviewer: Arc<dyn Reviewer>,
}

impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.settings.fmt(f)
    }
}

/// Two are the same that are asked the same way.
impl PartialEq for Webhook {
    fn eq(&self, other: &Webhook) -> bool {
        self.settings == other.settings
    }
}

/// The authorizer that asks a [`Webhook`].
pub(crate) struct Remote(Arc<Inner>);

struct Inner {
    webhook: Webhook,
    env: Arc<dyn Env>,
    cache: Mutex<Cache>,
    /// The functions of expressions, and their compiled regular expressions.
    patterns: Patterns,
}

impl Remote {
    pub(crate) fn new(webhook: Webhook, env: Arc<dyn Env>, minor: Minor) -> Remote {
        Remote(Arc::new(Inner {
            webhook,
            env,
            cache: Mutex::default(),
            patterns: Patterns::of(minor),
        }))
    }
}

impl Authorizer for Remote {
    fn decide(&self, user: &UserInfo, attributes: &Attributes) -> Answer {
        let inner = &self.0;
        let settings = &inner.webhook.settings;
        let spec = review::spec(user, attributes);
        match settings.conditions.evaluate(&spec, &inner.patterns) {
            Ok(true) => {}
            Ok(false) => return Decision::no_opinion("").into(),
            Err(why) => return Decision::failed(settings.on_error, why).into(),
        }
        let key = spec.to_string();
        if let Some(status) = inner.remembered(&key) {
            return status.decision().into();
        }
        let (inner, remember) = (inner.clone(), review::is_short(attributes));
        Answer::Asked(Box::pin(async move { inner.ask(spec, remember.then_some(key)).await }))
    }

    fn rules_for(&self, _user: &UserInfo, _namespace: &str) -> KnownRules {
        KnownRules {
            incomplete: true,
            error: "webhook authorizer does not support user rule resolution".to_owned(),
            ..KnownRules::default()
        }
    }
}

impl Inner {
    fn remembered(&self, key: &str) -> Option<review::Status> {
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.get(key, self.env.now())
    }

    async fn ask(&self, spec: Value, key: Option<String>) -> Decision {
        let Webhook { settings, reviewer } = &self.webhook;
        let mut pauses = RETRIES.into_iter();
        let answer = loop {
            let sent = review::document(settings.version, &spec);
            match reviewer.review(sent, settings.timeout).await {
                Err(why) if why.retry => match pauses.next() {
                    Some(pause) => self.env.sleep(pause).await,
                    None => break Err(why.message),
                },
                Err(why) => break Err(why.message),
                Ok(answer) => break review::Status::of(&answer, settings.version),
            }
        };
        match answer {
            Ok(status) => {
                if let Some(key) = key {
                    self.remember(key, status.clone());
                }
                status.decision()
            }
            Err(why) => {
                tracing::error!(webhook = settings.name, why, "an authorization webhook cannot be asked");
                Decision::failed(settings.on_error, why)
            }
        }
    }

    fn remember(&self, key: String, status: review::Status) {
        let settings = &self.webhook.settings;
        let lasting = match status.allowed {
            true => settings.authorized_ttl,
            false => settings.unauthorized_ttl,
        };
        if lasting.is_zero() {
            return;
        }
        let seconds = i64::try_from(lasting.as_secs()).unwrap_or(i64::MAX);
        let until = crate::env::later(self.env.now(), seconds);
        let mut cache = self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        cache.put(key, status, until);
    }
}
