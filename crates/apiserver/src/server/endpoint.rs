//! What answers a request to a resource: decided once, from the kind's row, the path and the verb.
//!
//! Invariant: whether a path is served is known before anything of the request is read. The texts of the refusals are
//! in [`NotServed::status`] alone.
//!
//! Not here: whether there is such a resource at all (`served`).

use super::Call;
use super::respond::Reply;
use super::route::{ResourcePath, Verb};
use super::special::metrics::Whose;
use super::special::{self, Posted};
use super::write::Part;
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
    Metrics(Whose),
    MetricsList(Whose),
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

    /// The router's refusal where it is told before an `Accept` header or a parameter that does not parse. The handler
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
            _ if posted == Some(Posted::Binding) && !everywhere => Err(NotServed::Method),
            _ if is_named || everywhere => Err(NotServed::Path),
            _ => Err(NotServed::Method),
        }
    }

    /// Of a kind that is computed when it is asked for.
    fn of_computed(resource: &Resource, path: &ResourcePath, verb: Verb) -> Result<Endpoint, NotServed> {
        let whose = special::metrics::of(resource);
        match (verb, path.name.is_some()) {
            (Verb::Get, true) => Ok(whose.map_or(Endpoint::Component, Endpoint::Metrics)),
            (Verb::List, false) => Ok(whose.map_or(Endpoint::Components, Endpoint::MetricsList)),
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
                return Err(if is_custom { NotServed::Verb(verb) } else { NotServed::Method });
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
    pub(super) async fn run(&mut self, endpoint: Endpoint) -> Result<Reply, Status> {
        match endpoint {
            Endpoint::Get => self.get().await,
            Endpoint::List => self.list().await,
            Endpoint::Watch => self.watch().await,
            Endpoint::Create => self.create().await,
            Endpoint::Update(part) => self.update(part).await,
            Endpoint::Patch(part) => self.patch(part).await,
            Endpoint::Delete => self.delete().await,
            Endpoint::DeleteCollection => self.delete_collection().await,
            Endpoint::Nameless(verb) => {
                if verb == Verb::Patch {
                    self.check_patch_type()?;
                }
                Err(Status::bad_request("name must be provided"))
            }
            Endpoint::GetScale(paths) => self.get_scale(&paths).await,
            Endpoint::UpdateScale(paths) => self.update_scale(&paths).await,
            Endpoint::PatchScale(paths) => self.patch_scale(&paths).await,
            Endpoint::Document(document) => self.take_document(document).await,
            Endpoint::Connect(connection) => self.connect(connection).await,
            Endpoint::Posted(Posted::Binding) => self.bind_what_it_names().await,
            Endpoint::Posted(Posted::TokenReview) => self.review_token().await,
            Endpoint::Posted(Posted::Review(review)) => self.review(review).await,
            Endpoint::Component => self.get_component(),
            Endpoint::Components => self.list_components(),
            Endpoint::Metrics(whose) => self.get_metrics(whose),
            Endpoint::MetricsList(whose) => self.list_metrics(whose),
        }
    }
}
