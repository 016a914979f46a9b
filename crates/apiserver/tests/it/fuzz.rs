//! Any request, however malformed, gets an answer: no panic, and a Status where something is refused.
//!
//! As a test it runs shortly. Longer: `KUBEWRIGHT_FUZZ_SECONDS=600 cargo test --release -p kubewright-apiserver
//! --test it fuzz::`.

#[path = "../../../schema/tests/it/fuzz/check.rs"]
mod check;

use std::future::{pending, ready};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use check::check;
use futures::FutureExt as _;
use http::Request;
use kubewright_apiserver::env::BoxFuture;
use kubewright_apiserver::registry::Kinds;
use kubewright_apiserver::{ApiServer, Body, Config, Env, UserInfo};
use serde_json::Value;

/// A world in which no time passes.
struct Still(AtomicU64);

impl Env for Still {
    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::UNIX_EPOCH
    }

    fn random(&self) -> u64 {
        self.0.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed)
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration.is_zero() {
            Box::pin(ready(()))
        } else {
            Box::pin(pending())
        }
    }
}

const METHODS: &[&str] = &["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "SING"];
const PATHS: &[&str] = &[
    "/api",
    "/apis",
    "/v1",
    "/apps",
    "/namespaces",
    "/default",
    "/pods",
    "/configmaps",
    "/deployments",
    "/services",
    "/x",
    "/nodes",
    "/status",
    "/scale",
    "/log",
    "/eviction",
    "/binding",
    "/token",
    "/",
    "/openapi/v3",
    "/healthz",
    "/apiextensions.k8s.io",
    "/customresourcedefinitions",
    "/things.example.com",
    "/example.com",
    "/things",
    "/%2e%2e",
    "/autoscaling/v2/horizontalpodautoscalers",
    "/rbac.authorization.k8s.io/v1/clusterroles",
    "/authorization.k8s.io/v1/subjectaccessreviews",
];
const QUERY: &[&str] = &[
    "watch=1",
    "limit=1",
    "limit=-1",
    "continue=abc",
    "resourceVersion=0",
    "resourceVersion=x",
    "resourceVersionMatch=Exact",
    "labelSelector=a in (b",
    "labelSelector=a=b",
    "fieldSelector=metadata.name=x",
    "fieldSelector=!",
    "dryRun=All",
    "fieldManager=m",
    "fieldValidation=Strict",
    "force=true",
    "pretty=1",
    "gracePeriodSeconds=-5",
    "propagationPolicy=Orphan",
    "sendInitialEvents=true",
    "timeoutSeconds=0",
    "includeObject=None",
    "%zz",
    "watch=maybe",
];
const TYPES: &[&str] = &[
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/json-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    ";;;",
    "*/*",
];
const BODIES: &[&str] = &[
    "",
    "{}",
    "[]",
    "null",
    "{\"kind\":\"Pod\",\"apiVersion\":\"v1\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}",
    "{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"b\"}}",
    "{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{\"name\":\"x\",\"namespace\":\"default\"},\"data\":{\"a\":\"b\"}}",
    "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x\ndata: {a: c}\n",
    "[{\"op\":\"add\",\"path\":\"/data/a\",\"value\":\"x\"}]",
    "{\"spec\":{\"replicas\":\"many\"}}",
    "{\"apiVersion\":\"apps/v1\",\"kind\":\"Deployment\",\"metadata\":{\"name\":\"x\"},\"spec\":{\"selector\":{\"matchLabels\":{\"a\":\"b\"}},\"template\":{\"metadata\":{\"labels\":{\"a\":\"b\"}},\"spec\":{\"containers\":[{\"name\":\"c\",\"image\":\"i\"}]}}}}",
    "{\"apiVersion\":\"apiextensions.k8s.io/v1\",\"kind\":\"CustomResourceDefinition\",\"metadata\":{\"name\":\"things.example.com\"},\"spec\":{\"group\":\"example.com\",\"scope\":\"Namespaced\",\"names\":{\"plural\":\"things\",\"kind\":\"Thing\"},\"versions\":[{\"name\":\"v1\",\"served\":true,\"storage\":true,\"schema\":{\"openAPIV3Schema\":{\"type\":\"object\",\"x-kubernetes-preserve-unknown-fields\":true}}}]}}",
    "{\"metadata\":{\"name\":\"x\",\"managedFields\":[{\"manager\":\"m\",\"fieldsV1\":{\"k:{\":{}}}]}}",
    "{\"metadata\":{\"name\":1}}",
    "{\"metadata\":null}",
    "{\"metadata\":{\"finalizers\":[\"a\"]}}",
    "k8s\0\x0a\x09\x0a\x02v1\x12\x03Pod",
    "{\"a\":",
    "\u{feff}{}",
    "{\"spec\":{\"user\":\"x\"}}",
];

/// Decisions out of bytes.
struct Input<'a>(std::slice::Iter<'a, u8>);

impl<'a> Input<'a> {
    fn pick(&mut self, words: &[&'a str]) -> &'a str {
        let byte = self.0.next().copied().unwrap_or(0);
        words[usize::from(byte) % words.len()]
    }

    fn some(&mut self, words: &[&'a str], most: usize) -> Vec<&'a str> {
        let count = usize::from(self.0.next().copied().unwrap_or(0)) % (most + 1);
        (0..count).map(|_| self.pick(words)).collect()
    }

    fn request(&mut self) -> Option<Request<Bytes>> {
        let path = self.some(PATHS, 7).concat();
        let query = self.some(QUERY, 3).join("&");
        let mut body = Bytes::from(self.pick(BODIES).to_owned());
        let cut = usize::from(self.0.next().copied().unwrap_or(255));
        if cut < body.len() / 2 {
            body.truncate(cut);
        }
        let path = if path.is_empty() { "/" } else { &path };
        Request::builder()
            .method(self.pick(METHODS))
            .uri(format!("{path}?{}", query.replace(' ', "%20")))
            .header("content-type", self.pick(TYPES))
            .header("accept", self.pick(TYPES))
            .body(body)
            .ok()
    }
}

#[test]
fn every_request_is_answered() {
    // A request that panics leaves nothing half done that the next one could see: the test is over then.
    let kinds = Kinds::new(kubewright_kinds::built_in(Default::default()));
    let server = AssertUnwindSafe(ApiServer::new(
        kinds,
        Arc::new(Still(AtomicU64::new(1))),
        Config::default(),
    ));
    check(|bytes| {
        let mut input = Input(bytes.iter());
        for _ in 0..3 {
            let Some(request) = input.request() else { continue };
            let line = format!("{} {}", request.method(), request.uri());
            // A request that waits for time to pass waits for ever here.
            let answer = server.handle(request, UserInfo::admin()).now_or_never();
            let Some(answer) = answer else { continue };
            let code = answer.status().as_u16();
            assert!((200..600).contains(&code), "{line}: {code}");
            // The real server's 500s for mistakes of the client have no reason; one with a reason would be a fault of
            // ours.
            let faulty = code == 500 && shown(answer.body()).contains("InternalError");
            assert!(!faulty, "{line}: {}", shown(answer.body()));
            if code >= 400
                && let Body::Full(body) = answer.body()
                && let Ok(status) = serde_json::from_slice::<Value>(&body[..])
                && status["kind"] == "Status"
            {
                assert_eq!(status["code"], code, "{line}");
            }
        }
    });
}

fn shown(body: &Body) -> String {
    match body {
        Body::Full(body) => String::from_utf8_lossy(body).into_owned(),
        Body::Long(_) => "a long list".to_owned(),
        Body::Watch(_) | Body::Forwarded(_) => "a stream".to_owned(),
    }
}
