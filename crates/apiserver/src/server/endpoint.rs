//! What answers a request to a resource: decided once, from the kind's row, the path and the verb.
//!
//! Invariant: whether a path is served is known before anything of the request is read. The texts of the refusals are
//! in [`NotServed::status`] alone.
//!
//! Not here: whether there is such a resource at all (`served`).

use super::Call;
use super::respond::Reply;
use super::route::{ResourcePath, Verb};
use super::special::metrics::MetricsOf;
use super::special::{self, Posted};
use super::write::Part;
use crate::env::BoxFuture;
use crate::model::form::key;
use crate::model::status::Status;
use crate::model::{Connection, Document, Resource, ScalePaths, Subresource, Verbs};

/// What answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Endpoint {
    Get,
    List,
    Watch,
    Create,
    Update(Part),
    Patch(Part),
    Delete,
    DeleteCollection,
    /// A PUT or PATCH of custom resources without a name: refused, but as what it is.
    Nameless(Verb),
    GetScale(ScalePaths),
    UpdateScale(ScalePaths),
    PatchScale(ScalePaths),
    /// A document that a subresource takes.
    Document(&'static Document),
    Connect(Connection),
    /// A kind that is answered and not stored.
    Posted(Posted),
    Component,
    Components,
    Metrics(MetricsOf),
    MetricsList(MetricsOf),
}

/// Why nothing answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotServed {
    /// There is no such path.
    Path,
    /// The path does not have this method.
    Method,
    /// The custom resource has no such subresource.
    Subresource,
    /// The kind does not support this verb.
    Verb(Verb),
}

impl NotServed {
    /// The answer to a request for `name` of this kind.
    pub(super) fn status(self, resource: &Resource, name: &str) -> Status {
        match self {
            NotServed::Path => Status::no_such_path(),
            NotServed::Method => Status::method_not_allowed(),
            NotServed::Subresource => Status::not_found(resource, name),
            NotServed::Verb(verb) => Status::not_supported(resource, verb.as_str()),
        }
    }

    /// Whether the router says it, and not the kind.
    pub(super) fn is_routers(self) -> bool {
        matches!(self, NotServed::Path | NotServed::Method)
    }

    /// The router's refusal where it is reported before an `Accept` header or a parameter that does not parse. The handler
    /// of custom resources reads these first.
    pub(super) fn before_negotiation(self, resource: &Resource, path: &ResourcePath, verb: Verb) -> Option<NotServed> {
        match resource.verbs {
            _ if resource.custom.is_some() => None,
            Verbs::CreateOnly if path.subresource.is_none() => {
                (verb != Verb::Create || path.name.is_some()).then_some(NotServed::Method)
            }
            Verbs::ReadOnly if verb == Verb::Watch => None,
            _ => Some(self),
        }
    }
}

impl Endpoint {
    /// What answers this verb at this path.
    pub(super) fn of(resource: &Resource, path: &ResourcePath, verb: Verb) -> Result<Endpoint, NotServed> {
        if let Some(wanted) = &path.subresource {
            return Endpoint::of_subresource(resource, wanted, verb);
        }
        let is_named = path.name.is_some();
        let everywhere = resource.namespaced && path.namespace.is_none();
        match resource.verbs {
            Verbs::CreateOnly => Endpoint::of_posted(resource, verb, is_named, everywhere),
            Verbs::ReadOnly => Endpoint::of_computed(resource, path, verb),
            verbs => Endpoint::of_stored(resource, verb, is_named, everywhere, verbs == Verbs::All),
        }
    }

    fn of_stored(
        resource: &Resource,
        verb: Verb,
        is_named: bool,
        everywhere: bool,
        has_all_verbs: bool,
    ) -> Result<Endpoint, NotServed> {
        let is_custom = resource.custom.is_some();
        Ok(match (verb, is_named) {
            (Verb::Get, true) => Endpoint::Get,
            (Verb::List, false) => Endpoint::List,
            (Verb::Watch, _) => Endpoint::Watch,
            // For custom resources upstream's router looks at the verb alone: the body names the new object
            // (`crdHandler`).
            (Verb::Create, _) if !everywhere && (!is_named || is_custom) => Endpoint::Create,
            (Verb::Update, true) => Endpoint::Update(Part::Main),
            (Verb::Patch, true) => Endpoint::Patch(Part::Main),
            (Verb::Delete, true) => Endpoint::Delete,
            (Verb::Update | Verb::Patch, false) if is_custom && !everywhere => Endpoint::Nameless(verb),
            (Verb::DeleteCollection, false) if !everywhere && has_all_verbs => Endpoint::DeleteCollection,
            _ => return Err(NotServed::Method),
        })
    }

    /// Of a kind that is answered and not stored.
    fn of_posted(resource: &Resource, verb: Verb, is_named: bool, everywhere: bool) -> Result<Endpoint, NotServed> {
        let posted = special::posted(resource);
        match (verb, is_named) {
            (Verb::Create, false) if !everywhere => Ok(posted.map_or(Endpoint::Create, Endpoint::Posted)),
            _ if posted == Some(Posted::Bind) && !everywhere => Err(NotServed::Method),
            _ if is_named || everywhere => Err(NotServed::Path),
            _ => Err(NotServed::Method),
        }
    }

    /// Of a kind that is computed when it is asked for.
    fn of_computed(resource: &Resource, path: &ResourcePath, verb: Verb) -> Result<Endpoint, NotServed> {
        let subject = special::metrics::of(resource);
        match (verb, path.name.is_some()) {
            (Verb::Get, true) => Ok(subject.map_or(Endpoint::Component, Endpoint::Metrics)),
            (Verb::List, false) => Ok(subject.map_or(Endpoint::Components, Endpoint::MetricsList)),
            (Verb::Watch, false) if !path.legacy_watch => Err(NotServed::Verb(verb)),
            _ => Err(NotServed::Method),
        }
    }

    fn of_subresource(resource: &Resource, wanted: &str, verb: Verb) -> Result<Endpoint, NotServed> {
        let is_custom = resource.custom.is_some();
        let found = resource.subresource(wanted).ok_or(match is_custom {
            true => NotServed::Subresource,
            false => NotServed::Path,
        })?;
        Ok(match (found, verb) {
            (_, verb) if !found.verbs().contains(&verb.as_str()) => {
                return Err(if is_custom {
                    NotServed::Verb(verb)
                } else {
                    NotServed::Method
                });
            }
            (Subresource::Connect(connection), _) => Endpoint::Connect(*connection),
            (Subresource::Document(document), _) => Endpoint::Document(document),
            (Subresource::Status, Verb::Update) => Endpoint::Update(Part::Status),
            (Subresource::Status, Verb::Patch) => Endpoint::Patch(Part::Status),
            (Subresource::Part(portion), Verb::Update) => Endpoint::Update(Part::Of(portion)),
            (Subresource::Part(portion), Verb::Patch) => Endpoint::Patch(Part::Of(portion)),
            (Subresource::Status | Subresource::Part(_), _) => Endpoint::Get,
            (Subresource::Scale(paths), Verb::Update) => Endpoint::UpdateScale(paths.clone()),
            (Subresource::Scale(paths), Verb::Patch) => Endpoint::PatchScale(paths.clone()),
            (Subresource::Scale(paths), _) => Endpoint::GetScale(paths.clone()),
        })
    }
}

impl Call<'_> {
    /// Namespace of the path; empty for cluster-scoped kinds.
    pub(crate) fn namespace(&self) -> &str {
        if self.resource.namespaced {
            self.path.namespace.as_deref().unwrap_or("")
        } else {
            ""
        }
    }

    /// Name in the path, or empty.
    pub(crate) fn name(&self) -> &str {
        self.path.name.as_deref().unwrap_or("")
    }

    /// The storage key of the object that the path names.
    pub(crate) fn key(&self) -> String {
        key(self.namespace(), self.name())
    }

    /// A write needs a lot of room for its stages. It has a place of its own, so that no request moves that room about.
    pub(super) async fn run(&mut self, endpoint: Endpoint) -> Result<Reply, Status> {
        let answering: BoxFuture<'_, Result<Reply, Status>> = match endpoint {
            Endpoint::Get => return self.get().await,
            Endpoint::List => Box::pin(self.list()),
            Endpoint::Watch => Box::pin(self.watch()),
            Endpoint::Create => Box::pin(self.create()),
            Endpoint::Update(part) => Box::pin(self.update(part)),
            Endpoint::Patch(part) => Box::pin(self.patch(part)),
            Endpoint::Delete => Box::pin(self.delete()),
            Endpoint::DeleteCollection => Box::pin(self.delete_collection()),
            Endpoint::Nameless(verb) => {
                if verb == Verb::Patch {
                    self.check_patch_type()?;
                }
                return Err(Status::bad_request("name must be provided"));
            }
            Endpoint::GetScale(paths) => return self.get_scale(&paths).await,
            Endpoint::UpdateScale(paths) => return Box::pin(self.update_scale(&paths)).await,
            Endpoint::PatchScale(paths) => return Box::pin(self.patch_scale(&paths)).await,
            Endpoint::Document(document) => Box::pin(self.take_document(document)),
            Endpoint::Connect(connection) => Box::pin(self.connect(connection)),
            Endpoint::Posted(Posted::Bind) => Box::pin(self.bind_what_it_names()),
            Endpoint::Posted(Posted::ReviewToken) => Box::pin(self.review_token()),
            Endpoint::Posted(Posted::Review(review)) => Box::pin(self.review(review)),
            Endpoint::Component => return self.get_component(),
            Endpoint::Components => return self.list_components(),
            Endpoint::Metrics(subject) => return self.get_metrics(subject),
            Endpoint::MetricsList(subject) => return self.list_metrics(subject),
        };
        answering.await
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::json;

    use super::super::route::{self, Path};
    use super::super::served::find;
    use super::*;
    use crate::registry::Registry;

    /// What answers requests, and what refuses them before and after an `Accept` header that does not parse.
    #[test]
    fn every_request_has_one_endpoint() {
        let registry = Registry::of(crate::registry::Kinds::of_tests(crate::Minor::default()));
        registry.apply_crds([&json!({
            "metadata": {"name": "ws.x.io"},
            "spec": {
                "group": "x.io",
                "scope": "Namespaced",
                "names": {"plural": "ws", "kind": "W", "singular": "w", "listKind": "WList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
                    "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
            "status": {"conditions": [{"type": "Established", "status": "True"}],
                "acceptedNames": {"plural": "ws", "kind": "W", "singular": "w", "listKind": "WList"}},
        })]);
        let kinds = registry.snapshot();
        let check = |method: &str, path: &str, expected: &str| {
            let (path, query) = path.split_once('?').unwrap_or((path, ""));
            let Path::Resource(target) = route::parse(path) else {
                panic!("{path} is no resource path")
            };
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let verb = Verb::of(&method, &target, query == "watch").expect("a verb");
            let row = find(&kinds, &target).unwrap_or_else(|_| panic!("{path} is not served"));
            let found = match Endpoint::of(&row, &target, verb) {
                Ok(endpoint) => format!("{endpoint:?}"),
                Err(why) => match why.before_negotiation(&row, &target, verb) {
                    Some(early) if early == why => format!("{why:?}"),
                    early => format!("{why:?}, before negotiation {early:?}"),
                },
            };
            assert_eq!(found, expected, "{method} {path}?{query}");
        };
        const MAPS: &str = "/api/v1/namespaces/a/configmaps";
        check("GET", MAPS, "List");
        check("GET", "/api/v1/namespaces/a/configmaps?watch", "Watch");
        check("POST", MAPS, "Create");
        check("POST", "/api/v1/configmaps", "Method");
        check("DELETE", MAPS, "DeleteCollection");
        check("DELETE", "/api/v1/configmaps", "Method");
        check("DELETE", "/api/v1/namespaces", "Method");
        check("PUT", MAPS, "Method");
        check("POST", "/api/v1/namespaces/a/configmaps/m", "Method");
        check("PUT", "/api/v1/namespaces/a/configmaps/m", "Update(Main)");
        check("GET", "/api/v1/namespaces/a/configmaps/m/status", "Path");
        check("PATCH", "/api/v1/namespaces/a/pods/p/status", "Patch(Status)");
        check("DELETE", "/api/v1/namespaces/a/pods/p/status", "Method");
        check("GET", "/api/v1/namespaces/a/pods/p/binding", "Method");
        check("GET", "/api/v1/namespaces/a/finalize", "Method");
        // Kinds that are answered and not stored.
        check("POST", "/api/v1/namespaces/a/bindings", "Posted(Bind)");
        check("GET", "/api/v1/namespaces/a/bindings", "Method");
        check("POST", "/api/v1/bindings", "Path, before negotiation None");
        const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
        check("POST", REVIEWS, "Posted(ReviewToken)");
        check("GET", REVIEWS, "Method");
        check(
            "GET",
            "/apis/authentication.k8s.io/v1/tokenreviews/r",
            "Path, before negotiation Some(Method)",
        );
        // Kinds that are computed.
        check("GET", "/api/v1/componentstatuses", "Components");
        check("GET", "/api/v1/componentstatuses/c", "Component");
        check("DELETE", "/api/v1/componentstatuses/c", "Method");
        check(
            "GET",
            "/api/v1/componentstatuses?watch",
            "Verb(Watch), before negotiation None",
        );
        check(
            "GET",
            "/api/v1/watch/componentstatuses",
            "Method, before negotiation None",
        );
        // Custom resources: the handler answers, after it has read the header.
        check("POST", "/apis/x.io/v1/namespaces/a/ws/w", "Create");
        check("PUT", "/apis/x.io/v1/namespaces/a/ws", "Nameless(Update)");
        check("POST", "/apis/x.io/v1/ws", "Method, before negotiation None");
        check("GET", "/apis/x.io/v1/namespaces/a/ws/w/status", "Get");
        check(
            "DELETE",
            "/apis/x.io/v1/namespaces/a/ws/w/status",
            "Verb(Delete), before negotiation None",
        );
        check(
            "GET",
            "/apis/x.io/v1/namespaces/a/ws/w/scale",
            "Subresource, before negotiation None",
        );
    }
}
