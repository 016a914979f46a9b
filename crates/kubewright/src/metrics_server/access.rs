//! Who may read the metrics: the API server is asked whose token it is (TokenReview) and whether its user may `get` the
//! path (SubjectAccessReview), as controller-runtime's `filters.WithAuthenticationAndAuthorization` does.
//!
//! Answers are kept for a minute, in a table of bounded size: scrapers come every few seconds with the same token.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::Client;
use crate::error::Chain;

/// How long an answer counts.
const KEPT: Duration = Duration::from_secs(60);
/// How many answers are kept.
const MAX_KEPT: usize = 1024;
/// How long the API server may take for one question.
const DEADLINE: Duration = Duration::from_secs(10);
/// A longer token is none.
const MAX_TOKEN: usize = 64 << 10;

/// Status and text of a refusal.
pub(super) type Refusal = (StatusCode, String);

/// Until when an answer counts, and the answer.
type CachedVerdict = (Instant, Result<(), Refusal>);

pub(super) struct Access {
    client: Client,
    /// By token and path, hashed with a key of this process: no token is kept.
    known: Mutex<BTreeMap<u64, CachedVerdict>>,
    hasher: RandomState,
}

impl Access {
    pub(super) fn new(client: &Client) -> Access {
        Access {
            client: client.with_request_deadline(DEADLINE),
            known: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    /// Whether the holder of this `Authorization` header may read the path.
    pub(super) async fn check(&self, authorization: Option<&str>, path: &str) -> Result<(), Refusal> {
        let unauthorized = || (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
        let token = authorization.and_then(bearer).ok_or_else(unauthorized)?;
        if token.len() > MAX_TOKEN {
            return Err(unauthorized());
        }
        let key = self.hasher.hash_one((token, path));
        if let Some(answer) = self.kept(key) {
            return answer;
        }
        let answer = match self.ask(token, path).await {
            Ok(answer) => answer,
            // Not kept: the next request asks again.
            Err(error) => return Err(failed(&Chain(&error).to_string())),
        };
        self.keep(key, answer.clone());
        answer
    }

    async fn ask(&self, token: &str, path: &str) -> crate::error::Result<Result<(), Refusal>> {
        let spec = json!({ "token": token });
        let review = self
            .review("authentication.k8s.io", "TokenReview", "tokenreviews", spec)
            .await?;
        let status = &review["status"];
        if status["authenticated"] != true {
            return Ok(Err((StatusCode::UNAUTHORIZED, "Unauthorized".to_owned())));
        }
        let user = &status["user"];
        let spec = json!({
            "user": user["username"],
            "uid": user["uid"],
            "groups": user["groups"],
            "extra": user["extra"],
            "nonResourceAttributes": { "path": path, "verb": "get" },
        });
        let review = self
            .review(
                "authorization.k8s.io",
                "SubjectAccessReview",
                "subjectaccessreviews",
                spec,
            )
            .await?;
        let status = &review["status"];
        if status["allowed"] == true && status["denied"] != true {
            return Ok(Ok(()));
        }
        let name = user["username"].as_str().unwrap_or_default();
        let text = format!(
            "Authorization denied for user {name}: it may not get {path}; bind it to the ClusterRole metrics-reader"
        );
        Ok(Err((StatusCode::FORBIDDEN, text)))
    }

    /// Posts a review. As JSON, because which of its fields are optional depends on the version of the linked
    /// k8s-openapi.
    async fn review(&self, group: &str, kind: &str, plural: &str, spec: Value) -> crate::error::Result<Value> {
        let review = json!({ "apiVersion": format!("{group}/v1"), "kind": kind, "spec": spec });
        let request = http::Request::post(format!("/apis/{group}/v1/{plural}"))
            .header(CONTENT_TYPE, "application/json")
            .body(review.to_string().into_bytes())
            .map_err(kube::core::request::Error::BuildRequest);
        let answer = self.client.send_text(&format!("create {kind}"), request).await?;
        Ok(serde_json::from_str(&answer)?)
    }

    fn kept(&self, key: u64) -> Option<Result<(), Refusal>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let (until, answer) = known.get(&key)?;
        (Instant::now() < *until).then(|| answer.clone())
    }

    fn keep(&self, key: u64, answer: Result<(), Refusal>) {
        let now = Instant::now();
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_KEPT {
            known.retain(|_, (until, _)| now < *until);
        }
        if known.len() < MAX_KEPT {
            known.insert(key, (now + KEPT, answer));
        }
    }
}

fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

fn failed(why: &str) -> Refusal {
    tracing::warn!("cannot find out who reads the metrics: {why}");
    let text = "Authentication failed: the operator could not ask the API server; its log says why";
    (StatusCode::INTERNAL_SERVER_ERROR, text.to_owned())
}
