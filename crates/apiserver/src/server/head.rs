//! What is decided from the head of a request, before its body is read: where it leads, and whether its user may.
//!
//! A body costs memory and time; nobody sends one who is refused anyway. `WithAuthorization` stands before the handlers upstream, too.
//!
//! Invariant: a refusal is the answer that the whole request would get.

use http::{Method, Response, request};
use kubewright_schema::budget::{self, Limits};

use super::query::Query;
use super::respond::{Reply, Responder};
use super::route::{self, Path, ResourcePath, Verb};
use super::{ApiServer, Inner, authorize, check_timeout};
use crate::authorization::Attributes;
use crate::server::negotiate::Output;
use crate::server::query::decode;
use crate::status::Status;
use crate::{Body, UserInfo};

/// A request whose user may do what its head asks for; [`ApiServer::answer`] does it.
pub struct Admitted {
    pub(super) query: Query,
    pub(super) target: Target,
    /// For whom the request is answered: who asks, or whom he impersonates.
    pub(super) user: UserInfo,
}

/// Where a request leads.
pub(super) enum Target {
    /// To a resource; no verb stands for a method that resources never take.
    Resource(ResourcePath, Option<Verb>),
    /// To a path that is no resource.
    Path,
}

impl ApiServer {
    /// Whether a user may do what the head of a request asks for.
    ///
    /// # Errors
    /// The answer to the request, whatever its body holds.
    pub fn admit(&self, head: &request::Parts, user: UserInfo) -> Result<Admitted, Box<Response<Body>>> {
        match budget::within(Limits::REQUEST, || self.inner.admit_head(head, user)) {
            Ok(admitted) => admitted,
            Err(why) => {
                let status = Status::too_costly(why);
                Err(Box::new(self.inner.fail_as_asked(
                    &head.headers,
                    &Query::default(),
                    &status,
                )))
            }
        }
        .map_err(|refusal| Box::new(self.finished(head, *refusal)))
    }
}

impl Inner {
    fn admit_head(&self, head: &request::Parts, user: UserInfo) -> Result<Admitted, Box<Response<Body>>> {
        let query = Query::parse(head.uri.query().unwrap_or("")).map_err(|status| Box::new(self.fail(&status)))?;
        let refused = |status: Status| Box::new(self.fail_as_asked(&head.headers, &query, &status));
        check_timeout(&query).map_err(refused)?;
        let (target, attributes) = match route::parse(head.uri.path()) {
            Path::Resource(path) => {
                let verb = Verb::of(&head.method, &path, query.flag("watch"));
                let attributes = authorize::resource_attributes(&path, verb, &query);
                (Target::Resource(path, verb), attributes)
            }
            Path::Verb => return Err(Box::new(self.unreadable_path(&head.uri, &query))),
            Path::Discovery | Path::Other => (Target::Path, path_attributes(&head.method, &head.uri)),
        };
        let user = self.admit(user, &head.headers, &attributes).map_err(refused)?;
        Ok(Admitted { query, target, user })
    }

    /// What a verb in the path answers that is about nothing.
    fn unreadable_path(&self, uri: &http::Uri, query: &Query) -> Response<Body> {
        let said = uri.path_and_query().map_or("", |said| said.as_str());
        let why = "failed to create RequestInfo: unable to determine kind and namespace from url";
        let text = format!("Internal Server Error: {said:?}: {why}, {said}\n");
        Responder {
            output: Output::JSON,
            query,
            now: self.env.now(),
        }
        .respond(Reply::text(500, text))
    }
}

/// What a request on a path that is no resource asks.
fn path_attributes(method: &Method, uri: &http::Uri) -> Attributes {
    Attributes {
        verb: method.as_str().to_ascii_lowercase(),
        path: decode(uri.path(), false),
        ..Attributes::default()
    }
}
