//! The target of a path and a method (the counterpart of apiserver's `RequestInfo`).
//!
//! Not here: whether the kind exists; the registry knows that.

use http::Method;
use percent_encoding::percent_decode_str;

use crate::discovery::DiscoveryPath;
use crate::model::{NAMESPACES, form};

/// The target of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Path {
    /// Below `/api/v1/` or `/apis/group/version/`.
    Resource(ResourcePath),
    /// Anything else, such as `/healthz`.
    Page(Page),
    /// A verb in the path without a resource.
    Verb,
}

/// A target that is not a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// The paths that there are.
    Index,
    /// `/healthz`, `/livez` or `/readyz`, and the check below it, which may be empty.
    Health {
        endpoint: &'static str,
        check: String,
    },
    /// Groups, versions and resources.
    Discovery(DiscoveryPath),
    /// The document of OpenAPI v2.
    OpenApiV2,
    /// The document of OpenAPI v3 of this path, or, if it is empty, their index.
    OpenApiV3(String),
    Version,
    OpenIdConfiguration,
    /// The keys of tokens.
    KeySet,
    /// The numbers of Prometheus.
    Metrics,
    /// Since when the server runs, and what it is.
    Statusz,
    /// Its settings.
    Flagz,
    /// A path of kube-apiserver about itself that this server does not serve.
    NotServed,
    /// Nothing.
    Nothing,
}

/// Paths of kube-apiserver about itself that this server does not serve.
const NOT_SERVED: [&str; 3] = ["metrics", "debug", "swaggerapi"];

/// The parts of a resource path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ResourcePath {
    pub(crate) group: String,
    pub(crate) version: String,
    /// `None` for paths without `/namespaces/x/`; for the namespace object itself its own name.
    pub(crate) namespace: Option<String>,
    pub(crate) plural: String,
    pub(crate) name: Option<String>,
    pub(crate) subresource: Option<String>,
    /// The deprecated form `/api/v1/watch/…`.
    pub(crate) legacy_watch: bool,
    /// More segments than resources have, from their slash on: below `proxy` the path of the program that is meant.
    /// Only a slash when the path ends in one.
    pub(crate) below: String,
}

impl ResourcePath {
    /// The keys of what the path covers begin with this: with a namespace, or, of all, with nothing.
    pub(crate) fn prefix(&self) -> String {
        form::key(self.namespace.as_deref().unwrap_or(""), "")
    }
}

/// Splits a path. A path with an empty segment in the middle is unknown.
pub(crate) fn parse(path: &str) -> Path {
    // An escaped slash is a slash.
    let path = &*match path.contains('%') {
        true => percent_decode_str(path).decode_utf8_lossy(),
        false => path.into(),
    };
    // The target of `CONNECT host:port`, which has no path, and that of `GET *`.
    if !path.starts_with('/') {
        return Path::Page(Page::Nothing);
    }
    let mut segments: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    if segments.last().is_some_and(|last| last.is_empty()) {
        segments.pop();
    }
    let (group, version, rest) = match segments.as_slice() {
        ["api"] | ["api", _] | ["apis"] | ["apis", _] | ["apis", _, _] => return Path::Page(page(path)),
        ["api", _, "watch" | "proxy"] | ["apis", _, _, "watch" | "proxy"] => return Path::Verb,
        ["api", version, rest @ ..] => ("", version, rest),
        ["apis", group, version, rest @ ..] => (*group, version, rest),
        _ => return Path::Page(page(path)),
    };
    let mut found = resource(group, version, rest);
    if path.ends_with('/') && !found.below.ends_with('/') {
        found.below.push('/');
    }
    Path::Resource(found)
}

/// A path that is no resource's.
fn page(path: &str) -> Page {
    let trimmed = path.trim_end_matches('/');
    if let Some(place) = DiscoveryPath::at(trimmed) {
        return Page::Discovery(place);
    }
    let is_exact = trimmed == path;
    let segments: Vec<&str> = trimmed.split('/').skip(1).collect();
    if let [name, check @ ..] = segments.as_slice()
        && let Some(endpoint) = health(name).filter(|_| is_exact)
    {
        let check = check.join("/");
        return Page::Health { endpoint, check };
    }
    match segments.as_slice() {
        // With a slash at its end it names no document.
        ["openapi", "v3", _, ..] if !is_exact => Page::OpenApiV3(path.to_owned()),
        ["openapi", "v3", document @ ..] => Page::OpenApiV3(document.join("/")),
        ["openapi", "v2"] if is_exact => Page::OpenApiV2,
        [] | ["index.html"] => Page::Index,
        ["metrics"] if is_exact => Page::Metrics,
        ["statusz"] if is_exact => Page::Statusz,
        ["flagz"] if is_exact => Page::Flagz,
        [name, ..] if NOT_SERVED.contains(name) => Page::NotServed,
        [".well-known", "openid-configuration"] => Page::OpenIdConfiguration,
        ["openid", "v1", "jwks"] => Page::KeySet,
        ["version"] => Page::Version,
        _ => Page::Nothing,
    }
}

fn health(name: &str) -> Option<&'static str> {
    ["healthz", "livez", "readyz"].into_iter().find(|known| *known == name)
}

fn resource(group: &str, version: &str, mut rest: &[&str]) -> ResourcePath {
    let mut path = ResourcePath {
        group: group.to_owned(),
        version: version.to_owned(),
        ..ResourcePath::default()
    };
    if let ["watch", watched @ ..] = rest
        && !watched.is_empty()
    {
        path.legacy_watch = true;
        rest = watched;
    }
    match rest {
        // The namespace itself, or one of its subresources.
        [NAMESPACES, _] | [NAMESPACES, _, "status" | "finalize"] => {}
        [NAMESPACES, namespace, below @ ..] => {
            path.namespace = Some((*namespace).to_owned());
            rest = below;
        }
        _ => {}
    }
    let mut parts = rest.iter().map(|part| (*part).to_owned());
    path.plural = parts.next().unwrap_or_default();
    path.name = parts.next();
    path.subresource = parts.next();
    for part in parts {
        path.below.push('/');
        path.below.push_str(&part);
    }
    if path.plural == NAMESPACES && path.namespace.is_none() {
        path.namespace.clone_from(&path.name);
    }
    path
}

/// The verb, as authorization and admission call it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    /// Whether it may change something.
    pub(crate) fn writes(self) -> bool {
        !matches!(self, Verb::Get | Verb::List | Verb::Watch)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Verb::Get => "get",
            Verb::List => "list",
            Verb::Watch => "watch",
            Verb::Create => "create",
            Verb::Update => "update",
            Verb::Patch => "patch",
            Verb::Delete => "delete",
            Verb::DeleteCollection => "deletecollection",
        }
    }

    /// The verb of a request on a resource; `None` for a method that resources never take.
    pub(crate) fn of(method: &Method, path: &ResourcePath, watch: bool) -> Option<Verb> {
        Some(match (method, path.name.is_some()) {
            (_, _) if path.legacy_watch => Verb::Watch,
            (&Method::GET, true) => Verb::Get,
            // The server behind a proxy may take other methods than objects do.
            (&Method::HEAD | &Method::OPTIONS, true) if path.subresource.as_deref() == Some("proxy") => Verb::Get,
            (&Method::GET, false) if watch => Verb::Watch,
            (&Method::GET, false) => Verb::List,
            (&Method::POST, _) => Verb::Create,
            (&Method::PUT, _) => Verb::Update,
            (&Method::PATCH, _) => Verb::Patch,
            (&Method::DELETE, true) => Verb::Delete,
            (&Method::DELETE, false) => Verb::DeleteCollection,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, want: [&str; 6]) {
        let Path::Resource(got) = parse(path) else {
            panic!("{path} is no resource path")
        };
        let text = |part: &Option<String>| part.clone().unwrap_or_else(|| "-".to_owned());
        let parts = [
            got.group.clone(),
            got.version.clone(),
            text(&got.namespace),
            got.plural.clone(),
            text(&got.name),
            text(&got.subresource),
        ];
        assert_eq!(parts, want, "{path}");
    }

    #[test]
    fn resource_paths() {
        check("/api/v1/pods", ["", "v1", "-", "pods", "-", "-"]);
        check("/api/v1/namespaces/a/pods/", ["", "v1", "a", "pods", "-", "-"]);
        check(
            "/api/v1/namespaces/a/pods/p/status",
            ["", "v1", "a", "pods", "p", "status"],
        );
        check("/api/v1/namespaces", ["", "v1", "-", "namespaces", "-", "-"]);
        check("/api/v1/namespaces/a", ["", "v1", "a", "namespaces", "a", "-"]);
        check(
            "/api/v1/namespaces/a/finalize",
            ["", "v1", "a", "namespaces", "a", "finalize"],
        );
        check(
            "/apis/apps/v1/namespaces/a/deployments/d",
            ["apps", "v1", "a", "deployments", "d", "-"],
        );
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Aadmin",
            [
                "rbac.authorization.k8s.io",
                "v1",
                "-",
                "clusterroles",
                "system:admin",
                "-",
            ],
        );
        check("/api/v1/watch/namespaces/a/pods/p", ["", "v1", "a", "pods", "p", "-"]);
        check(
            "/apis/apps/v1/namespaces/a",
            ["apps", "v1", "a", "namespaces", "a", "-"],
        );
        check("/api/v1//configmaps", ["", "v1", "-", "", "configmaps", "-"]);
    }

    #[test]
    fn what_is_below_a_subresource() {
        let check = |path: &str, want: &str| {
            let Path::Resource(got) = parse(&format!("/api/v1/namespaces/a/pods/p{path}")) else {
                panic!("{path} is no resource path")
            };
            assert_eq!(got.below, want, "{path}");
        };
        check("/proxy", "");
        check("/proxy/", "/");
        check("/proxy/a/b", "/a/b");
        check("/proxy/a/", "/a/");
        check("/proxy/a%20b", "/a b");
    }

    #[test]
    fn other_paths() {
        let group = |name: &str| Page::Discovery(DiscoveryPath::Group(name.to_owned()));
        let health = |check: &str| Page::Health {
            endpoint: "livez",
            check: check.to_owned(),
        };
        for (path, want) in [
            ("/api", Page::Discovery(DiscoveryPath::Core)),
            ("/api/v1/", Page::Discovery(DiscoveryPath::CoreVersion("v1".to_owned()))),
            ("/apis/apps", group("apps")),
            ("/apis/apps/", group("apps")),
            ("/livez", health("")),
            ("/livez/ping", health("ping")),
            ("/livez/", Page::Nothing),
            ("/", Page::Index),
            ("/API/v1", Page::Nothing),
            ("", Page::Nothing),
            ("*", Page::Nothing),
            ("api", Page::Nothing),
            ("/metrics", Page::Metrics),
            ("/metrics/slis", Page::NotServed),
            ("/openapi/v2", Page::OpenApiV2),
            ("/openapi/v2/", Page::Nothing),
            ("/openapi/v3/", Page::OpenApiV3(String::new())),
            ("/openapi/v3/apis/apps/v1", Page::OpenApiV3("apis/apps/v1".to_owned())),
            ("/version/", Page::Version),
        ] {
            assert_eq!(parse(path), Path::Page(want), "{path}");
        }
    }
}
