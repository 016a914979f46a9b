//! What a request is about, by its path.

/// The resource of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) plural: String,
    pub(super) namespace: Option<String>,
    pub(super) name: Option<String>,
    pub(super) subresource: Option<String>,
}

impl Target {
    /// `None` for what is no resource: discovery, health, versions.
    pub(super) fn of(path: &str) -> Option<Target> {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match *parts {
            ["api", version, ref rest @ ..] => ("", version, rest),
            ["apis", group, version, ref rest @ ..] => (group, version, rest),
            _ => return None,
        };
        let (namespace, rest) = match *rest {
            // What follows the name of a namespace is a resource in it, unless it is a part of the namespace itself.
            ["namespaces", namespace, plural, ref rest @ ..] if !["status", "finalize"].contains(&plural) => {
                (Some(namespace), [&[plural][..], rest].concat())
            }
            _ => (None, rest.to_vec()),
        };
        let mut rest = rest.into_iter().map(str::to_owned);
        let plural = rest.next()?;
        let (name, subresource) = (rest.next(), rest.next());
        Some(Target {
            group: group.to_owned(),
            version: version.to_owned(),
            plural,
            namespace: namespace.map(str::to_owned),
            name,
            subresource,
        })
    }

    /// Group and version as objects have them.
    pub(super) fn api_version(&self) -> String {
        match self.group.is_empty() {
            true => self.version.clone(),
            false => format!("{}/{}", self.group, self.version),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_a_resource() {
        let check = |path: &str, expected: Option<[&str; 6]>| {
            let found = Target::of(path).map(|t| {
                let text = |part: Option<String>| part.unwrap_or_default();
                [
                    t.group,
                    t.version,
                    t.plural,
                    text(t.namespace),
                    text(t.name),
                    text(t.subresource),
                ]
            });
            assert_eq!(found, expected.map(|parts| parts.map(str::to_owned)), "{path}");
        };
        check("/api/v1/pods", Some(["", "v1", "pods", "", "", ""]));
        check("/api/v1/namespaces", Some(["", "v1", "namespaces", "", "", ""]));
        check("/api/v1/namespaces/a", Some(["", "v1", "namespaces", "", "a", ""]));
        check(
            "/api/v1/namespaces/a/status",
            Some(["", "v1", "namespaces", "", "a", "status"]),
        );
        check("/api/v1/namespaces/a/pods", Some(["", "v1", "pods", "a", "", ""]));
        check(
            "/api/v1/namespaces/a/pods/b/log",
            Some(["", "v1", "pods", "a", "b", "log"]),
        );
        check(
            "/apis/apps/v1/namespaces/a/deployments/b",
            Some(["apps", "v1", "deployments", "a", "b", ""]),
        );
        check(
            "/apis/g.io/v1/things/b/status",
            Some(["g.io", "v1", "things", "", "b", "status"]),
        );
        for other in [
            "/",
            "/version",
            "/api",
            "/api/v1",
            "/apis/apps",
            "/apis/apps/v1",
            "/healthz",
        ] {
            check(other, None);
        }
    }
}
