//! What a request and its answer tell: whether it writes, and whether that changed anything.

use http::Request;
use http_body_util::BodyExt as _;
use kubewright::kube::{self, client::Body};
use serde_json::Value;

use super::super::fault::Fault;
use super::Seam;
use crate::intercept::Call;

/// The annotation by which a ConfigMap or Endpoints is a lock (client-go's `resourcelock` before there were Leases).
pub(in super::super) const LOCK: &str = "control-plane.alpha.kubernetes.io/leader";

impl Seam {
    /// The request, and whether it is about a lock of an election.
    pub(super) async fn looks_for_lock(
        &self,
        request: Request<Body>,
        call: &Call,
    ) -> Result<(Request<Body>, bool), kube::Error> {
        let may_be = call.group.is_empty() && matches!(call.resource.as_str(), "configmaps" | "endpoints");
        if self.is_lock(call) || !may_be || request.method() == http::Method::GET {
            let is_lock = self.is_lock(call);
            return Ok((request, is_lock));
        }
        let (parts, body) = request.into_parts();
        let sent = body.collect().await?.to_bytes();
        let shown: Value = serde_json::from_slice(&sent).unwrap_or_default();
        let is_lock = shown["metadata"]["annotations"][LOCK].is_string();
        if is_lock {
            let name = shown["metadata"]["name"].as_str().unwrap_or(&call.name);
            let lock = (call.resource.clone(), call.namespace.clone(), name.to_owned());
            self.state().traffic.locks.insert(lock);
        }
        Ok((Request::from_parts(parts, Body::from(sent.to_vec())), is_lock))
    }
}

/// Code and reason with which a fault that lasts refuses.
pub(super) fn code_of(fault: &Fault) -> (u16, &'static str) {
    match fault {
        Fault::Forbidden(_) => (403, "Forbidden"),
        Fault::Timeouts(_) => (504, "Timeout"),
        Fault::Throttled(_) => (429, "TooManyRequests"),
        _ => (503, "ServiceUnavailable"),
    }
}

fn revision_of(object: &Value) -> u64 {
    let version = object["metadata"]["resourceVersion"].as_str();
    version.and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// Whether an answer tells of a change after `before`: an object that it wrote, or one that is gone.
pub(super) fn changed(answer: &Value, before: u64) -> bool {
    match answer["kind"].as_str() {
        Some("Status") => true,
        _ => revision_of(answer) > before,
    }
}

/// Writes of events and Leases and dry runs are no writes here: a fault at one of them is no other than none.
pub(super) fn is_write(request: &Request<Body>) -> bool {
    let is_dry = request
        .uri()
        .query()
        .is_some_and(|query| query.split('&').any(|part| part.starts_with("dryRun=")));
    let is_left_out = request
        .uri()
        .path()
        .split('/')
        .any(|part| part == "events" || part == "leases");
    let is_review = request.uri().path().ends_with("reviews");
    request.method() != http::Method::GET && !is_dry && !is_left_out && !is_review
}
