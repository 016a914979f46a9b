//! Answers a test gives in place of the API server: refusals, lost answers, delays (controller-runtime's
//! `interceptor`).
//!
//! An interceptor sees every request of the operators that are run in the cluster, below their client: its retries, its
//! reads of own writes and its caches work as in production. Requests of the test's own client pass.
//!
//! Invariants: the interceptor that was set last is asked first; one that is dropped is asked no more; a request that
//! is let pass reaches the API server as it was sent.

use std::fmt;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use http::{Request, Response, StatusCode};
use kubewright::kube::core::Status;
use kubewright::kube::{self, client::Body};
pub use kubewright_runlog::Call;

use crate::request_info::RequestInfo;

/// What becomes of a request.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Answer {
    /// It goes on: to the interceptor before this one, and at last to the API server.
    Pass,
    /// It goes on after this time.
    After(Duration),
    /// It does not reach the API server, which seems to answer with this status; see [`refusal`].
    Refuse(Box<Status>),
    /// It does not reach the API server: the connection is refused.
    Unreachable,
    /// The API server carries it out, and the answer is lost: the connection breaks.
    Lost,
}

/// The status of a refusal: an HTTP code, a reason such as `Conflict`, `Forbidden`, `TooManyRequests`, `InternalError`,
/// and a message.
#[must_use]
pub fn refusal(code: u16, reason: &str, message: &str) -> Answer {
    let status = Status::failure(message, reason).with_code(code);
    Answer::Refuse(Box::new(status))
}

type Decides = dyn Fn(&Call) -> Answer + Send + Sync;

/// The interceptors of a cluster.
#[derive(Clone, Default)]
pub(crate) struct Interceptors(Arc<Inner>);

#[derive(Default)]
struct Inner {
    next: AtomicU64,
    all: Mutex<Vec<(u64, Arc<Decides>)>>,
}

impl fmt::Debug for Interceptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interceptors({})", self.0.all().len())
    }
}

impl Inner {
    fn all(&self) -> MutexGuard<'_, Vec<(u64, Arc<Decides>)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// As long as it lives, its function is asked; see [`TestCluster::intercept`](crate::TestCluster::intercept).
#[must_use = "an interceptor that is dropped is asked no more"]
pub struct Interceptor {
    inner: Weak<Inner>,
    id: u64,
}

impl fmt::Debug for Interceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Interceptor({})", self.id)
    }
}

impl Drop for Interceptor {
    fn drop(&mut self) {
        if let Some(inner) = self.inner.upgrade() {
            let mut all = inner.all();
            let at = all.iter().position(|(id, _)| *id == self.id);
            let gone = at.map(|at| all.remove(at));
            drop(all); // what the function holds may be the test's, and is dropped without the lock
            drop(gone);
        }
    }
}

impl Interceptors {
    pub(crate) fn add(&self, decides: impl Fn(&Call) -> Answer + Send + Sync + 'static) -> Interceptor {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.all().push((id, Arc::new(decides)));
        Interceptor {
            inner: Arc::downgrade(&self.0),
            id,
        }
    }

    /// The same client, about whose requests the interceptors are asked.
    pub(crate) fn before(&self, client: &kube::Client) -> kube::Client {
        let (intercepts, inner) = (self.clone(), client.clone());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (intercepts, inner) = (intercepts.clone(), inner.clone());
            async move { intercepts.answer(&inner, request).await }
        });
        kube::Client::new(service, client.default_namespace())
    }

    async fn answer(&self, client: &kube::Client, request: Request<Body>) -> Result<Response<Body>, kube::Error> {
        let deciding: Vec<Arc<Decides>> = self.0.all().iter().rev().map(|(_, one)| one.clone()).collect();
        if deciding.is_empty() {
            return client.send(request).await;
        }
        let call = call_of(&request);
        for decides in deciding {
            match decides(&call) {
                Answer::Pass => {}
                Answer::After(time) => tokio::time::sleep(time).await,
                Answer::Refuse(status) => return refused(&status),
                Answer::Unreachable => return Err(broken(ErrorKind::ConnectionRefused)),
                Answer::Lost => {
                    client.send(request).await?;
                    return Err(broken(ErrorKind::ConnectionReset));
                }
            }
        }
        client.send(request).await
    }
}

pub(crate) fn refused(status: &Status) -> Result<Response<Body>, kube::Error> {
    let body = serde_json::to_vec(status).map_err(kube::Error::SerdeError)?;
    let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let answer = Response::builder()
        .status(code)
        .header("content-type", "application/json");
    answer.body(Body::from(body)).map_err(kube::Error::HttpError)
}

pub(crate) fn broken(kind: ErrorKind) -> kube::Error {
    kube::Error::Service(std::io::Error::from(kind).into())
}

pub(crate) fn call_of(request: &Request<Body>) -> Call {
    let requested = RequestInfo::of(request.method(), request.uri());
    let (resource, subresource) = requested.resource.split_once('/').unwrap_or((&requested.resource, ""));
    Call {
        verb: requested.verb.to_owned(),
        resource: resource.to_owned(),
        subresource: subresource.to_owned(),
        group: requested.group,
        namespace: requested.namespace.unwrap_or_default(),
        name: requested.name.unwrap_or_default(),
        path: request.uri().path().to_owned(),
    }
}
