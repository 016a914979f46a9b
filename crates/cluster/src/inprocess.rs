//! A `kube::Client` that reaches the API server by a function call: no socket, no TLS, no HTTP framing.
//!
//! The maker of a client decides its user. Requests and answers are the same as over HTTPS: both doors lead to the same
//! front. A watch's body streams; dropping it, or the future of a request, cancels its work.

use std::sync::Arc;

use futures::future::BoxFuture;
use http::{Request, Response};
use kubewright::kube;
use kubewright_apiserver::UserInfo;
use kubewright_nodes::{Behaviours, Processes};
use kubewright_server::{Front, Peer, ResponseBody};

use crate::error::Error;
use crate::streams::Streams;

/// A client of the server behind `front`. Must be called inside a tokio runtime, which carries the client's requests.
pub(crate) fn client(front: Front, user: UserInfo) -> kube::Client {
    let service = tower::service_fn(move |request| answer(front.clone(), user.clone(), request));
    kube::Client::new(service, "default")
}

/// The streams for clients of `front`. It holds the server as it is now: a client that it makes is connected with
/// nothing.
pub(crate) fn streams(front: &Front, processes: Option<Processes>, behaviours: Behaviours) -> Streams {
    let behind = front.clone();
    Streams {
        processes,
        behaviours,
        client: Arc::new(move || client(behind.clone(), UserInfo::admin())),
        stop: front.stop.clone(),
    }
}

fn answer(
    front: Front,
    user: UserInfo,
    request: Request<kube::client::Body>,
) -> BoxFuture<'static, Result<Response<ResponseBody>, Error>> {
    Box::pin(async move {
        // As a refused connection is for a server that is gone.
        if front.stop.is_cancelled() {
            return Err(Error::Stopped);
        }
        Ok(front.answer(request, &Peer::in_process(user)).await)
    })
}
