//! `/healthz`, `/livez`, `/readyz`: whether the server works, as a whole and check by check.
//!
//! The checks have kube-apiserver's names, because clients ask for them by name; each name of kube-apiserver is
//! answered. The list (`?verbose`) shows only the checks that exist here: the storage, and the hooks that have made
//! something before the first request is answered.

use http::Response;

use super::Inner;
use super::respond::Reply;
use crate::Body;
use crate::wire::query::Query;

/// The checks before the hooks, in order.
const LIVE: [&str; 4] = ["ping", "log", "loopback-serving-certificate", "etcd"];
const READY: [&str; 5] = ["ping", "log", "etcd", "etcd-readiness", "informer-sync"];
const READY_LAST: [&str; 1] = ["shutdown"];

/// The checks of the storage, by the names that monitoring knows.
const STORAGE: [&str; 3] = ["etcd", "etcd-readiness", STORAGE_HERE];

/// The hooks that run once when the server starts, and must be done.
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

/// Those that have made something here.
const DONE: [&str; 11] = [
    "poststarthook/start-apiextensions-controllers",
    "poststarthook/start-system-namespaces-controller",
    "poststarthook/start-legacy-token-tracking-controller",
    "poststarthook/rbac/bootstrap-roles",
    "poststarthook/scheduling/bootstrap-system-priority-classes",
    "poststarthook/priority-and-fairness-config-producer",
    "poststarthook/start-kubernetes-service-cidr-controller",
    "poststarthook/apiservice-registration-controller",
    "poststarthook/apiservice-discovery-controller",
    "poststarthook/apiservice-openapi-controller",
    "poststarthook/apiservice-openapiv3-controller",
];

/// The storage check, under the name of this server's storage.
const STORAGE_HERE: &str = "storage";

/// The checks that are listed.
fn listed() -> impl Iterator<Item = &'static str> {
    ["ping", "log", STORAGE_HERE].into_iter().chain(DONE)
}

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
        let trouble = self.storage.trouble();
        let fails = |check: &str| STORAGE.contains(&check) && trouble.is_some();
        if !check.is_empty() {
            return match &trouble {
                _ if !checks.contains(&check) && check != STORAGE_HERE => self.not_found_text(query),
                Some(why) if fails(check) => {
                    self.respond(query, Reply::text(500, format!("internal server error: {why}\n")))
                }
                _ => self.respond(query, Reply::text(200, "ok")),
            };
        }
        let excluded = query.all("exclude");
        // A client that excludes etcd means the storage.
        let is_excluded = |check: &str| {
            let mut excluded = excluded.iter().map(|name| &**name);
            excluded.any(|name| name == check || (check == STORAGE_HERE && STORAGE.contains(&name)))
        };
        let broken = listed().any(|check| fails(check) && !is_excluded(check));
        if !broken && !query.has("verbose") {
            return self.respond(query, Reply::text(200, "ok"));
        }
        let mut text: String = listed()
            .map(|check| {
                if is_excluded(check) {
                    format!("[+]{check} excluded: ok\n")
                } else if fails(check) {
                    format!("[-]{check} failed: reason withheld\n")
                } else {
                    format!("[+]{check} ok\n")
                }
            })
            .collect();
        let unknown: Vec<String> = excluded
            .iter()
            .filter(|name| !checks.contains(&name.as_str()) && *name != STORAGE_HERE)
            .map(|name| kubewright_schema::error::quote(name))
            .collect();
        if !unknown.is_empty() {
            text.push_str(&format!(
                "warn: some health checks cannot be excluded: no matches for {}\n",
                unknown.join(", ")
            ));
        }
        let (code, outcome) = if broken { (500, "failed") } else { (200, "passed") };
        text.push_str(&format!("{endpoint} check {outcome}\n"));
        self.respond(query, Reply::text(code, text))
    }
}
