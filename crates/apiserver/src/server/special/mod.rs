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
mod readable;
pub(crate) mod review;
pub(crate) mod scale;
pub(crate) mod streams;
pub(crate) mod token_request;
pub(crate) mod token_review;

use crate::model::status::Status;
use crate::model::{Document, Resource};
use crate::server::Call;
use crate::server::respond::Reply;

/// The kinds that are posted and answered, and not stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Posted {
    Bind,
    ReviewToken,
    Review(review::Review),
}

/// Which of them a kind is.
pub(crate) fn posted(resource: &Resource) -> Option<Posted> {
    match (resource.group.as_ref(), resource.kind.as_ref()) {
        ("", "Binding") => Some(Posted::Bind),
        ("authentication.k8s.io", "TokenReview") => Some(Posted::ReviewToken),
        _ => review::Review::of(resource).map(Posted::Review),
    }
}

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
}
