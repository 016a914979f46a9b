//! `/healthz`, `/livez`, `/readyz`: whether the server works, as a whole and check by check.
//!
//! The checks have kube-apiserver's names, because clients ask for them by name. All of them are about this process: what they look at is
//! done before the first request is answered, so an answer is their proof.

use http::Response;

use super::Inner;
use super::query::Query;
use super::respond::Reply;
use crate::Body;

/// What is checked before the hooks, in order.
const LIVE: [&str; 4] = ["ping", "log", "loopback-serving-certificate", "etcd"];
const READY: [&str; 5] = ["ping", "log", "etcd", "etcd-readiness", "informer-sync"];
const READY_LAST: [&str; 1] = ["shutdown"];

/// What runs once when the server starts, and must be done.
const HOOKS: [&str; 30] = [
    "poststarthook/start-apiserver-admission-initializer",
    "poststarthook/generic-apiserver-start-informers",
    "poststarthook/priority-and-fairness-config-consumer",
    "poststarthook/priority-and-fairness-filter",
    "poststarthook/storage-object-count-tracker-hook",
    "poststarthook/start-apiextensions-informers",
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/crd-informer-synced",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/peer-endpoint-reconciler-controller",
    "poststarthook/start-cluster-authentication-info-controller",
    "poststarthook/start-kube-apiserver-identity-lease-controller",
    "poststarthook/start-kube-apiserver-identity-lease-garbage-collector",
    "poststarthook/storage-readiness",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/start-service-ip-repair-controllers",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/bootstrap-controller",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/start-kube-aggregator-informers",
    "poststarthook/apiservice-status-local-available-controller",
    "poststarthook/apiservice-status-remote-available-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/kube-apiserver-autoregistration",
    "autoregister-completion",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The checks behind `/healthz`, `/livez` or `/readyz`, in their order.
fn checks(endpoint: &str) -> Vec<&'static str> {
    let (first, last): (&[&str], &[&str]) = if endpoint == "readyz" {
        (&READY, &READY_LAST)
    } else {
        (&LIVE, &[])
    };
    [first, &HOOKS, last].concat()
}

/// The paths of all checks, for the index at `/`.
pub(super) fn paths() -> impl Iterator<Item = String> {
    ["healthz", "livez", "readyz"].into_iter().flat_map(|endpoint| {
        let below = checks(endpoint)
            .into_iter()
            .map(move |check| format!("/{endpoint}/{check}"));
        std::iter::once(format!("/{endpoint}")).chain(below)
    })
}

impl Inner {
    /// `check` is empty for the endpoint itself.
    pub(super) fn health(&self, endpoint: &str, check: &str, query: &Query) -> Response<Body> {
        let checks = checks(endpoint);
        if !check.is_empty() {
            return if checks.contains(&check) {
                self.respond(query, Reply::text(200, "ok"))
            } else {
                self.not_found_text(query)
            };
        }
        if !query.has("verbose") {
            return self.respond(query, Reply::text(200, "ok"));
        }
        let excluded = query.all("exclude");
        let mut text: String = checks
            .iter()
            .map(|check| {
                let excluded = if excluded.iter().any(|name| name == check) {
                    "excluded: "
                } else {
                    ""
                };
                format!("[+]{check} {excluded}ok\n")
            })
            .collect();
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|name| !checks.contains(&name.as_str()))
            .map(|name| kubewright_schema::error::quote(name))
            .collect();
        if !unknown.is_empty() {
            text.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                unknown.join(", ")
            ));
        }
        text.push_str(&format!("{endpoint} check passed\n"));
        self.respond(query, Reply::text(200, text))
    }
}
