//! Whether a request may take longer than a few milliseconds, as far as that shows before it is answered.
//!
//! A shell answers light requests on the thread that serves the connection, where another thread would cost more than
//! the answer, and heavy ones where they hold up no other request. So this looks at lengths and counts only; it reads
//! nothing and costs next to nothing.
//!
//! Costs that lengths do not show (an expensive rule, a selector that matches nothing, a webhook's large answer) appear
//! during the request: a light request is tried there, for so many steps ([`TRIAL`]), and begins again on another
//! thread when it needs more ([`ApiServer::try_answer`]).
//!
//! Invariant: a request that goes on after its first change is heavy from the beginning, because it cannot begin again.

use super::head::{Admitted, Target};
use super::route::{Page, ResourcePath, Verb};
use super::{ApiServer, Inner, special};
use crate::model::{Resource, Subresource};

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// A few milliseconds at most.
    Light,
    /// Perhaps longer.
    Heavy,
}

/// How long a light request may take where it is tried: some two milliseconds.
pub const TRIAL: u64 = 200_000;

/// The answer to a request would take longer than it may where it was tried; nothing has been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong;

/// The longest text that is read or written on the way: of a body, of the object that it changes.
pub(crate) const LIGHT_TEXT: usize = 16 * 1024;

/// The most objects that are looked at.
const LIGHT_OBJECTS: usize = 500;

impl ApiServer {
    /// The weight of a request with a body of this length.
    pub fn weight(&self, admitted: &Admitted, body: usize) -> Weight {
        let heavy = body > LIGHT_TEXT
            || match &admitted.target {
                Target::Resource(path, verb) => self.inner.is_heavy(admitted, path, *verb),
                // Documents of all kinds, made when they are asked for.
                Target::Page(page) => matches!(page, Page::OpenApiV2 | Page::OpenApiV3(_) | Page::Metrics),
            };
        if heavy { Weight::Heavy } else { Weight::Light }
    }
}

impl Inner {
    fn is_heavy(&self, admitted: &Admitted, path: &ResourcePath, verb: Option<Verb>) -> bool {
        let Some(verb) = verb else { return false };
        let kinds = self.registry.snapshot();
        let Some(resource) = kinds.lookup(&path.group, &path.version, &path.plural) else {
            return false;
        };
        let looked_at = special::metrics::looks_at(&resource);
        let many = || {
            let store = looked_at.unwrap_or(&resource.store);
            self.storage.count(store, &path.prefix()) > LIGHT_OBJECTS
        };
        match (verb, path.name.as_deref()) {
            (Verb::Get, Some(_)) if looked_at.is_some() => many(),
            // Each delete is a change, and asks the rules again.
            (Verb::DeleteCollection, _) => true,
            (Verb::List, _) => many(),
            // Changes since a version are sent one by one.
            (Verb::Watch, _) => matches!(admitted.query.get("resourceVersion"), "" | "0") && many(),
            (Verb::Create, None) => resource.strategy.rules_others,
            (Verb::Create, Some(_)) if changes_twice(&resource, path) => true,
            (_, Some(name)) => {
                let namespace = if resource.namespaced {
                    path.namespace.as_deref().unwrap_or("")
                } else {
                    ""
                };
                let long = self
                    .storage
                    .text_length(&resource.store, &crate::model::form::key(namespace, name))
                    > LIGHT_TEXT;
                long || (verb != Verb::Get && resource.strategy.rules_others)
            }
            (_, None) => false,
        }
    }
}

fn changes_twice(resource: &Resource, path: &ResourcePath) -> bool {
    let wanted = path.subresource.as_deref().unwrap_or_default();
    matches!(resource.subresource(wanted), Some(Subresource::Document(document)) if document.changes_twice)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use futures::FutureExt as _;
    use http::Request;
    use serde_json::json;

    use super::*;
    use crate::model::testing::{FakeEnv, Shared};
    use crate::{Config, UserInfo};

    fn check(api: &ApiServer, method: &str, path: &str, body: usize, expected: Weight) {
        let request = Request::builder().method(method).uri(path).body(()).expect("a request");
        let (head, ()) = request.into_parts();
        let admitted = api
            .admit(&head, UserInfo::admin())
            .now_or_never()
            .expect("no waiting")
            .unwrap_or_else(|_| panic!("{path} is refused"));
        assert_eq!(
            api.weight(&admitted, body),
            expected,
            "{method} {path} with {body} bytes"
        );
    }

    #[test]
    fn what_is_heavy() {
        use Weight::{Heavy, Light};
        const MAPS: &str = "/api/v1/namespaces/default/configmaps";
        const CRDS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
        let create = |name: &str, text: &str| {
            let body =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"k": text}});
            let request = Request::post(MAPS).header("Content-Type", "application/json");
            let request = request.body(Bytes::from(body.to_string())).expect("a request");
            let answer = api
                .handle(request, UserInfo::admin())
                .now_or_never()
                .expect("no waiting");
            assert_eq!(answer.status(), 201);
        };
        create("small", "x");
        create("large", &"x".repeat(LIGHT_TEXT));
        check(&api, "POST", MAPS, LIGHT_TEXT, Light);
        check(&api, "POST", MAPS, LIGHT_TEXT + 1, Heavy);
        check(&api, "PATCH", &format!("{MAPS}/small"), 10, Light);
        check(&api, "PATCH", &format!("{MAPS}/large"), 10, Heavy);
        check(&api, "GET", &format!("{MAPS}/nothing"), 0, Light);
        check(&api, "POST", CRDS, 10, Heavy);
        check(&api, "GET", &format!("{CRDS}/a.b.c"), 0, Light);
        check(&api, "PUT", &format!("{CRDS}/a.b.c"), 10, Heavy);
        check(&api, "GET", "/openapi/v3/api/v1", 0, Heavy);
        check(&api, "GET", "/readyz", 0, Light);
        check(&api, "GET", MAPS, 0, Light);
        for index in 0..LIGHT_OBJECTS {
            create(&format!("one-{index}"), "x");
        }
        check(&api, "GET", MAPS, 0, Heavy);
        check(&api, "GET", "/api/v1/namespaces/other/configmaps", 0, Light);
        check(&api, "GET", "/api/v1/configmaps", 0, Heavy);
        check(&api, "DELETE", MAPS, 0, Heavy);
        check(&api, "GET", &format!("{MAPS}?watch=1"), 0, Heavy);
        check(&api, "GET", &format!("{MAPS}?watch=1&resourceVersion=7"), 0, Light);
        check(&api, "GET", "/api/v1/namespaces/default/secrets", 0, Light);
    }

    /// The answer's code where a pod is created in a namespace with so many quotas of so many limits; nothing when it
    /// has to begin again elsewhere.
    fn charged(quotas: usize, limits: usize) -> Option<u16> {
        let api = ApiServer::of_tests(Arc::new(Shared(FakeEnv::new())), Config::default());
        let ask = |method: &str, path: &str, kind: &str, body: serde_json::Value| {
            let request = Request::builder().method(method).uri(path).header("Content-Type", kind);
            let request = request.body(Bytes::from(body.to_string())).expect("a request");
            let (head, body) = request.into_parts();
            let admitted = api.admit(&head, UserInfo::admin()).now_or_never().expect("no waiting");
            let admitted = admitted.unwrap_or_else(|_| panic!("{path} is refused"));
            let trial = ApiServer::trial();
            let answer = api
                .try_answer(&trial, &admitted, &head, &body)
                .now_or_never()
                .expect("no waiting");
            answer.ok().map(|answer| answer.status().as_u16())
        };
        const QUOTAS: &str = "/api/v1/namespaces/default/resourcequotas";
        let json = "application/json";
        let hard = (0..limits).map(|index| (format!("count/k{index}"), json!("1000")));
        let hard: serde_json::Map<_, _> = hard.chain([("pods".to_owned(), json!("1000"))]).collect();
        let used: serde_json::Map<_, _> = hard.keys().map(|name| (name.clone(), json!("0"))).collect();
        for index in 0..quotas {
            let name = format!("q{index}");
            let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name},
                "spec": {"hard": hard}});
            assert_eq!(ask("POST", QUOTAS, json, quota), Some(201));
            let status = json!({"status": {"hard": hard, "used": used}});
            let path = format!("{QUOTAS}/{name}/status");
            assert_eq!(ask("PATCH", &path, "application/merge-patch+json", status), Some(200));
        }
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        ask("POST", "/api/v1/namespaces/default/pods", json, pod)
    }

    #[test]
    fn charges_begin_where_they_can_end() {
        let check = |quotas: usize, limits: usize, expected: Option<u16>| {
            assert_eq!(charged(quotas, limits), expected, "{quotas} quotas of {limits} limits");
        };
        check(0, 0, Some(201));
        check(2, 3, Some(201));
        check(40, 3, None);
        check(4, 200, None);
    }
}
