//! Tells a client that its new object will stay as it is, because the controller of that kind does not exist here
//! (yet).
//!
//! A user should not wait for the Jobs of a CronJob that no controller looks at. A cluster without controllers warns
//! about nothing: its user wants an API server alone. Nor does a controller that exists and was left out by name: that
//! was the user's choice.
//!
//! Of kinds that others act on in a usual cluster (NetworkPolicies, Ingresses) it tells, too.
//!
//! Invariant: a row ends by itself when its controller enters [`NAMES`].

use http::header::WARNING;
use http::request::Parts;
use http::{HeaderValue, Method, Response, StatusCode};

use crate::controllers::NAMES;

/// A kind that does nothing without its controller.
struct Row {
    /// The controller, as [`NAMES`] is to have it.
    controller: &'static str,
    group: &'static str,
    plural: &'static str,
    /// The effect that does not happen.
    stays: &'static str,
}

const fn row(controller: &'static str, group: &'static str, plural: &'static str, stays: &'static str) -> Row {
    Row {
        controller,
        group,
        plural,
        stays,
    }
}

const ROWS: &[Row] = &[
    row("statefulset", "apps", "statefulsets", "it gets no pods"),
    row("daemonset", "apps", "daemonsets", "it gets no pods"),
    row("job", "batch", "jobs", "it gets no pods"),
    row("cronjob", "batch", "cronjobs", "it starts no jobs"),
    row("replicationcontroller", "", "replicationcontrollers", "it gets no pods"),
    row("endpoints", "", "services", "it gets no endpoints"),
    row(
        "disruption",
        "policy",
        "poddisruptionbudgets",
        "it refuses every eviction",
    ),
    row(
        "horizontalpodautoscaler",
        "autoscaling",
        "horizontalpodautoscalers",
        "it scales nothing",
    ),
    row(
        "persistentvolume-binder",
        "",
        "persistentvolumeclaims",
        "it is never bound to a volume",
    ),
    row(
        "persistentvolume-binder",
        "",
        "persistentvolumes",
        "it is never bound to a claim",
    ),
    row(
        "certificatesigningrequest",
        "certificates.k8s.io",
        "certificatesigningrequests",
        "nothing is signed",
    ),
    row(
        "resourceclaim",
        "resource.k8s.io",
        "resourceclaims",
        "nothing is allocated",
    ),
    row(
        "attachdetach",
        "storage.k8s.io",
        "volumeattachments",
        "nothing is attached",
    ),
];

/// Kinds that no controller of Kubernetes itself serves either: what would act on them is not in this cluster, unless its
/// user installs it.
const OF_OTHERS: &[(&str, &str, &str)] = &[
    (
        "networking.k8s.io",
        "networkpolicies",
        "this cluster has no network plugin: a NetworkPolicy restricts nothing",
    ),
    (
        "networking.k8s.io",
        "ingresses",
        "this cluster has no ingress controller of its own: an Ingress leads nowhere until you run one",
    ),
    (
        "networking.k8s.io",
        "servicecidrs",
        "this cluster gives Services no addresses of additional ServiceCIDRs",
    ),
];

/// Adds the warning, if there is one, to the answer of a request that created something.
pub(crate) fn warn<B>(head: &Parts, response: &mut Response<B>) {
    if head.method != Method::POST || response.status() != StatusCode::CREATED {
        return;
    }
    if let Some(text) = warning(head.uri.path(), NAMES)
        && let Ok(value) = HeaderValue::from_str(&format!("299 - \"{text}\""))
    {
        response.headers_mut().append(WARNING, value);
    }
}

/// The warning for an object that was posted to this path, where there are these controllers.
fn warning(path: &str, names: &[&str]) -> Option<String> {
    let (group, plural) = collection(path)?;
    if let Some((_, _, text)) = OF_OTHERS.iter().find(|(of, kind, _)| (*of, *kind) == (group, plural)) {
        return Some((*text).to_owned());
    }
    let mut rows = ROWS.iter();
    let row = rows.find(|row| row.group == group && row.plural == plural && !names.contains(&row.controller))?;
    Some(format!(
        "this cluster has no controller {} yet: {}",
        row.controller, row.stays
    ))
}

/// Group and plural of a path that objects are created at: `/apis/GROUP/VERSION[/namespaces/NAME]/PLURAL`.
fn collection(path: &str) -> Option<(&str, &str)> {
    let mut parts = path.trim_matches('/').split('/');
    let group = match parts.next()? {
        "api" => "",
        "apis" => parts.next()?,
        _ => return None,
    };
    let rest: Vec<&str> = parts.skip(1).collect();
    match rest[..] {
        [plural] | ["namespaces", _, plural] => Some((group, plural)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, names: &[&str], expected: Option<&str>) {
        assert_eq!(warning(path, names).as_deref(), expected, "{path} with {names:?}");
    }

    #[test]
    fn kinds_without_a_controller_are_named() {
        let text = "this cluster has no controller cronjob yet: it starts no jobs";
        check("/apis/batch/v1/namespaces/default/cronjobs", &["job"], Some(text));
        check("/apis/batch/v1/cronjobs", &[], Some(text));
        check("/apis/batch/v1/namespaces/default/cronjobs", &["cronjob"], None);
        check("/apis/batch/v1/namespaces/default/cronjobs/a/status", &[], None);
        check("/api/v1/namespaces/default/pods", &[], None);
        check("/api/v1/namespaces", &[], None);
        check("/apis/example.com/v1/namespaces/default/cronjobs", &[], None);
        let text = "this cluster has no controller endpoints yet: it gets no endpoints";
        check("/api/v1/namespaces/default/services", &[], Some(text));
        check("/version", &[], None);
        let text = "this cluster has no network plugin: a NetworkPolicy restricts nothing";
        check(
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            NAMES,
            Some(text),
        );
    }
}
