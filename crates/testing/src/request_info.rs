//! What a request asks for, as kube-apiserver's `RequestInfo` has it.

use http::{Method, Uri};

/// The target of a request. Without a resource it is a path, such as `/version`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestInfo {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `other`.
    pub(crate) verb: &'static str,
    pub(crate) group: String,
    /// With its subresource: `deployments/status`.
    pub(crate) resource: String,
    pub(crate) namespace: Option<String>,
    pub(crate) name: Option<String>,
}

impl RequestInfo {
    pub(crate) fn of(method: &Method, uri: &Uri) -> RequestInfo {
        let parts: Vec<&str> = uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, rest) = match parts.as_slice() {
            ["api", _, rest @ ..] => ("", rest),
            ["apis", group, _, rest @ ..] if !rest.is_empty() => (*group, rest),
            _ => ("", &[][..]),
        };
        // `namespaces/NAME` alone, or with a subresource of its own, is the Namespace.
        let (namespace, rest) = match rest {
            ["namespaces", _, "status" | "finalize"] => (None, rest),
            ["namespaces", namespace, inner @ ..] if !inner.is_empty() => (Some(*namespace), inner),
            _ => (None, rest),
        };
        let name = rest.get(1).copied();
        let resource = match (rest.first(), rest.get(2)) {
            (Some(resource), Some(subresource)) => format!("{resource}/{subresource}"),
            (Some(resource), None) => (*resource).to_owned(),
            (None, _) => String::new(),
        };
        RequestInfo {
            verb: verb(method, uri, !rest.is_empty(), name.is_some()),
            group: group.to_owned(),
            resource,
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
        }
    }
}

fn verb(method: &Method, uri: &Uri, is_resource: bool, is_named: bool) -> &'static str {
    if !is_resource {
        return if *method == Method::GET { "get" } else { "other" };
    }
    let query = uri.query().unwrap_or_default();
    let is_watch = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    match (method.as_str(), is_named) {
        ("GET", _) if is_watch => "watch",
        ("GET", true) => "get",
        ("GET", false) => "list",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "delete",
        ("DELETE", false) => "deletecollection",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_asks_for_what_the_server_authorizes() {
        let check = |method: &str, uri: &str, expected: &str| {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let info = RequestInfo::of(&method, &uri.parse().expect("an address"));
            let (namespace, name) = (info.namespace.unwrap_or_default(), info.name.unwrap_or_default());
            let info = format!("{} {}.{} {namespace}/{name}", info.verb, info.resource, info.group);
            assert_eq!(info, expected, "{method} {uri}");
        };
        check("GET", "/api/v1/pods?limit=500", "list pods. /");
        check("GET", "/api/v1/pods?watch=true&resourceVersion=1", "watch pods. /");
        check("GET", "/api/v1/namespaces/a/pods/b", "get pods. a/b");
        check("GET", "/api/v1/namespaces/a", "get namespaces. /a");
        check("PUT", "/api/v1/namespaces/a/finalize", "update namespaces/finalize. /a");
        check(
            "PATCH",
            "/apis/apps/v1/namespaces/a/deployments/b/scale?force=true",
            "patch deployments/scale.apps a/b",
        );
        check(
            "DELETE",
            "/apis/apps/v1/namespaces/a/deployments",
            "deletecollection deployments.apps a/",
        );
        check("POST", "/api/v1/namespaces", "create namespaces. /");
        check("GET", "/metrics", "get . /");
        check("GET", "/apis/apps/v1", "get . /");
    }
}
