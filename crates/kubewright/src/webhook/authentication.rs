//! Authentication webhooks: the API server asks whose a token is (`TokenReview`), where it was told to
//! (`--authentication-token-webhook-config-file`).
//!
//! Invariants: a token stands in no log, span or error; what cannot be judged, because the user's code fails, panics or
//! takes too long, is nobody's, and the answer says why.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::authentication::v1::UserInfo;
use serde::Deserialize;
use serde_json::{Value, json};

use super::denied::Denied;
use super::review::{self, Malformed, ReviewRequest};
use crate::client::Client;
use crate::error::end_of_panic;
use crate::metrics::Metrics;

/// Says whose a token is (controller-runtime's `authentication.Handler`).
///
/// ```
/// use kubewright::k8s_openapi::api::authentication::v1::UserInfo;
/// use kubewright::webhook::{Authenticator, TokenRequest};
/// use kubewright::{Denied, Operator};
///
/// struct Guests;
///
/// impl Authenticator for Guests {
///     async fn authenticate(&self, asked: &TokenRequest) -> Result<Option<UserInfo>, Denied> {
///         let name = asked.token().strip_prefix("guest:");
///         Ok(name.map(|name| UserInfo { username: Some(name.to_owned()), ..UserInfo::default() }))
///     }
/// }
///
/// let operator = Operator::new("guests").authenticator("/authenticate", Guests);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no authenticator",
    note = "implement `Authenticator` for it: `authenticate` says whose a token is"
)]
pub trait Authenticator: Send + Sync + 'static {
    /// Whose the token is; `None` when it is nobody's.
    ///
    /// # Errors
    /// Why that cannot be said. The API server then takes the token for nobody's, too, and logs the words.
    fn authenticate(&self, asked: &TokenRequest) -> impl Future<Output = Result<Option<UserInfo>, Denied>> + Send;
}

/// What is asked.
#[derive(Deserialize)]
pub struct TokenRequest {
    #[serde(default)]
    token: String,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(skip)]
    client: Option<Client>,
}

/// Without the token.
impl fmt::Debug for TokenRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenRequest")
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

impl TokenRequest {
    /// The token.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// For whom the token must be good, such as the API server itself; empty when nobody asks.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// A client of the cluster, with the manager's cache; none in a request that nobody sent.
    pub fn client(&self) -> Option<&Client> {
        self.client.as_ref()
    }
}

/// An authenticator whatever its type.
pub(crate) trait Authenticate: Send + Sync {
    fn authenticate<'a>(&'a self, asked: &'a TokenRequest) -> BoxFuture<'a, Result<Option<UserInfo>, Denied>>;
}

impl<A: Authenticator> Authenticate for A {
    fn authenticate<'a>(&'a self, asked: &'a TokenRequest) -> BoxFuture<'a, Result<Option<UserInfo>, Denied>> {
        Box::pin(Authenticator::authenticate(self, asked))
    }
}

/// Answers a `TokenReview` within a time.
pub(super) async fn answer(
    (path, judge): (&str, &dyn Authenticate),
    document: Value,
    within: Duration,
    client: &Client,
    metrics: &Metrics,
) -> Result<Value, Malformed> {
    let ReviewRequest {
        api_version,
        request: mut asked,
    }: ReviewRequest<TokenRequest> = review::read_token(document)?;
    if asked.token.is_empty() {
        return Err("the TokenReview has no token".to_owned());
    }
    asked.client = Some(client.clone());
    let judging = AssertUnwindSafe(judge.authenticate(&asked)).catch_unwind();
    let found = match tokio::time::timeout(within, judging).await {
        Ok(Ok(found)) => found.map_err(|denied| denied.to_string()),
        Ok(Err(panic)) => {
            metrics.webhook_panicked(path);
            Err(format!("panic: {} [recovered]", end_of_panic(panic)))
        }
        Err(_) => Err(format!("{path} did not decide within {within:?}")),
    };
    let status = match found {
        Ok(Some(user)) => json!({"authenticated": true, "user": user, "audiences": asked.audiences}),
        Ok(None) => json!({"authenticated": false}),
        Err(why) => {
            tracing::error!(path, why, "a token could not be judged");
            json!({"authenticated": false, "error": why})
        }
    };
    Ok(json!({"apiVersion": api_version, "kind": "TokenReview", "status": status}))
}
