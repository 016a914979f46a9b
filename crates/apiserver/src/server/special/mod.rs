//! Resources that are not plain objects: subresources that take a document of their own, reviews, kinds that are
//! computed at each request, and the connections to running pods. Each file says of which kind it is; the pipeline
//! beside this folder names none.

pub(crate) mod binding;
pub(crate) mod components;
pub(crate) mod connect;
pub(crate) mod eviction;
pub(crate) mod metrics;
pub(crate) mod openid;
pub(crate) mod proxy;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod streams;
pub(crate) mod token_request;
pub(crate) mod token_review;

use crate::model::Document;
use crate::model::status::Status;
use crate::server::Call;
use crate::server::respond::Reply;
use crate::server::route::Verb;

impl Call<'_> {
    /// Answers a document that was posted to a subresource.
    pub(crate) async fn take_document(&mut self, document: &Document) -> Result<Reply, Status> {
        match document.kind {
            "Binding" => self.bind().await,
            "Eviction" => self.evict().await,
            "TokenRequest" => self.request_token().await,
            other => Err(Status::not_implemented(format!("{other} is not answered"))),
        }
    }

    /// Kinds that are answered and not stored.
    pub(crate) async fn run_create_only(&mut self, verb: Verb, everywhere: bool) -> Result<Reply, Status> {
        let is_binding = self.resource.group.is_empty() && self.resource.kind == "Binding";
        match (verb, self.path.name.is_some()) {
            (Verb::Create, false) if is_binding && !everywhere => self.bind_what_it_names().await,
            _ if is_binding && !everywhere => Err(Status::method_not_allowed()),
            (_, true) => Err(Status::no_such_path()),
            (Verb::Create, false) if !everywhere && token_review::is_one(&self.resource) => self.review_token().await,
            (Verb::Create, false) if !everywhere && review::is_answered(&self.resource) => self.review().await,
            (Verb::Create, false) if !everywhere => self.create().await,
            (_, false) if everywhere => Err(Status::no_such_path()),
            _ => Err(Status::method_not_allowed()),
        }
    }

    /// Kinds that are computed when they are asked for.
    pub(crate) fn run_read_only(&mut self, verb: Verb) -> Result<Reply, Status> {
        match (verb, self.path.name.is_some(), metrics::of(&self.resource)) {
            (Verb::Get, true, None) => self.get_component(),
            (Verb::List, false, None) => self.list_components(),
            (Verb::Get, true, Some(whose)) => self.get_metrics(whose),
            (Verb::List, false, Some(whose)) => self.list_metrics(whose),
            (Verb::Watch, false, _) if !self.path.legacy_watch => {
                Err(Status::not_supported(&self.resource, verb.as_str()))
            }
            _ => Err(Status::method_not_allowed()),
        }
    }
}
