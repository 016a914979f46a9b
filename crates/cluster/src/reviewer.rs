//! Asks an authorization webhook (`--authorization-mode=Webhook`): posts SubjectAccessReviews to the server that a
//! kubeconfig names, with the certificates or the token that it holds.
//!
//! The URL of the kubeconfig is the whole of it, as client-go's `GenericWebhook` reads it: nothing is appended to its
//! path.
//!
//! Invariants: one request for one review, nothing is sent again here (the API server decides about that); an answer of
//! more than [`MAX_ANSWER`] is an error.
//!
//! Not here: the review and the meaning of the answer (`kubewright_apiserver::authorization::webhook`).

use std::error::Error as _;
use std::path::Path;
use std::time::Duration;

use http::{Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Limited};
use kubewright::kube;
use kubewright::kube::client::Body;
use kubewright::kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright_apiserver::authorization::webhook::{ReviewError, Reviewer};
use kubewright_apiserver::env::BoxFuture;
use serde_json::Value;

use crate::error::{Error, Result};

/// The largest answer that is read, in bytes.
const MAX_ANSWER: usize = 1 << 20;

/// The server of a kubeconfig, as a [`Reviewer`].
#[derive(Clone)]
pub struct KubeconfigReviewer {
    client: kube::Client,
    /// Where reviews go, for errors.
    url: String,
    path: String,
}

impl KubeconfigReviewer {
    /// The server of the current context of a kubeconfig. Call it within a Tokio runtime; nothing is connected yet.
    ///
    /// # Errors
    /// When the file cannot be read, is no kubeconfig, or names certificates that are none.
    pub async fn read(file: &Path) -> Result<KubeconfigReviewer> {
        let wrong = |why: &dyn std::fmt::Display| {
            Error::Webhook(format!(
                "the kubeconfig {} of an authorization webhook: {why}",
                file.display()
            ))
        };
        let kubeconfig = Kubeconfig::read_from(file).map_err(|why| wrong(&deepest(&why)))?;
        let current = KubeConfigOptions::default();
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &current).await;
        let mut config = config.map_err(|why| wrong(&deepest(&why)))?;
        let url = config.cluster_url.clone();
        let path = url.path().trim_end_matches('/').to_owned();
        let mut host = url.clone().into_parts();
        host.path_and_query = Some(http::uri::PathAndQuery::from_static("/"));
        config.cluster_url = Uri::from_parts(host).map_err(|why| wrong(&why))?;
        let client = kubewright::connect(config).map_err(|why| wrong(&why))?;
        Ok(KubeconfigReviewer {
            client,
            url: url.to_string().trim_end_matches('/').to_owned(),
            path: if path.is_empty() { "/".to_owned() } else { path },
        })
    }

    async fn post(self, review: Value, timeout: Duration) -> Result<Value, ReviewError> {
        let query = format!("?timeout={}s", timeout.as_secs());
        let failed = |why: &str, retry: bool| ReviewError {
            message: format!("Post \"{}{query}\": {why}", self.url),
            retry,
        };
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("{}{query}", self.path))
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .body(Body::from(review.to_string().into_bytes()))
            .map_err(|why| failed(&why.to_string(), false))?;
        let answered = tokio::time::timeout(timeout, async {
            let answer = self.client.send(request).await;
            let (head, body) = answer
                .map_err(|why| failed(&deepest(&why), was_reset(&why)))?
                .into_parts();
            let body = Limited::new(body, MAX_ANSWER).collect().await;
            let body = body.map_err(|why| failed(&format!("the answer cannot be read: {why}"), false))?;
            Ok((head.status, body.to_bytes()))
        });
        let (status, body) = answered
            .await
            .unwrap_or_else(|_| Err(failed("context deadline exceeded", false)))?;
        let document = serde_json::from_slice::<Value>(&body);
        if !status.is_success() {
            let said = document
                .ok()
                .and_then(|status| status["message"].as_str().map(str::to_owned));
            let said = said.unwrap_or_default();
            // `DefaultShouldRetry`
            let retry = matches!(
                status,
                StatusCode::TOO_MANY_REQUESTS | StatusCode::INTERNAL_SERVER_ERROR
            );
            return Err(failed(
                format!("the server answered {status}: {said}").trim_end_matches(": "),
                retry,
            ));
        }
        document.map_err(|why| failed(&format!("the answer is no JSON: {why}"), false))
    }
}

impl Reviewer for KubeconfigReviewer {
    fn review(&self, review: Value, timeout: Duration) -> BoxFuture<'static, Result<Value, ReviewError>> {
        Box::pin(self.clone().post(review, timeout))
    }
}

/// The innermost cause of an error, which says the most.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut deepest = error;
    while let Some(source) = deepest.source() {
        deepest = source;
    }
    deepest.to_string()
}

fn was_reset(error: &kube::Error) -> bool {
    let mut cause = error.source();
    while let Some(error) = cause {
        let io = error.downcast_ref::<std::io::Error>();
        if io.is_some_and(|error| error.kind() == std::io::ErrorKind::ConnectionReset) {
            return true;
        }
        cause = error.source();
    }
    false
}
