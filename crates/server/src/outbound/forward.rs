//! Requests that are passed on to the servers behind APIServices.
//!
//! Each has a connection of its own, which ends with its answer: none carries the requests of two users, and what breaks
//! concerns one request. The connection proves with a certificate of the cluster's front proxy that what it says of its
//! users is true. It is HTTP/1.1, where a request may switch to another protocol.
//!
//! Invariants: no redirect is followed; a server that does not shake hands within [`CONNECTING`] has failed; dropping
//! the answer ends the connection.
//!
//! Not here: which requests, with which headers (the API server's); how long an answer may take (the same).

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt as _;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kubewright_apiserver::Body;
use kubewright_apiserver::env::BoxFuture;
use kubewright_apiserver::forward::{Cut, Forward, ForwardError, Forwarder, Pieces};
use kubewright_apiserver::outbound::{Destination, OutboundError};
use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio_util::sync::CancellationToken;

use super::{Authority, HttpsOutbound, Shared, broken, resolve, tls};
use crate::response::{Duplex, ResponseBody, Upgrade};

/// How long a connection may take until it is secure.
const CONNECTING: Duration = Duration::from_secs(10);

impl Forwarder for HttpsOutbound {
    fn forward(&self, forward: Forward) -> BoxFuture<'static, Result<Response<Pieces>, ForwardError>> {
        let shared = self.0.clone();
        Box::pin(async move { shared.forward(forward).await })
    }
}

fn failed(error: OutboundError) -> ForwardError {
    ForwardError::Failed(error.to_string())
}

impl Shared {
    async fn forward(&self, forward: Forward) -> Result<Response<Pieces>, ForwardError> {
        let Forward {
            namespace,
            service: name,
            port,
            ca_bundle,
            insecure,
            mut request,
        } = forward;
        // Again when it is dialled: it costs little, and is another failure.
        resolve::service(self.storage.as_ref(), &namespace, &name, port).map_err(ForwardError::Unresolved)?;
        let authority = Authority {
            host: format!("{name}.{namespace}.svc"),
            port,
            secure: true,
        };
        let to = Destination::Service {
            namespace,
            name,
            path: String::new(),
            port,
        };
        let connecting = async {
            let stream = self.dial(&authority, &to).await?;
            stream
                .set_nodelay(true)
                .map_err(|error| super::failed(error.to_string()))?;
            let config = self.fronts.config(&ca_bundle, insecure).map_err(super::failed)?;
            tls::connect(config, &authority.host, stream)
                .await
                .map_err(super::failed)
        };
        let stream = tokio::time::timeout(CONNECTING, connecting).await;
        let stream = stream.unwrap_or(Err(OutboundError::Timeout)).map_err(failed)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| ForwardError::Failed(error.to_string()))?;
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = connection.with_upgrades() => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection to an API server broke");
                    }
                }
                () = stop.cancelled() => {}
            }
        });
        let host = HeaderValue::try_from(authority.host).map_err(|error| ForwardError::Failed(error.to_string()))?;
        request.headers_mut().insert(header::HOST, host);
        let may_switch = request.headers().contains_key(header::UPGRADE);
        let answer = sender.send_request(request.map(Full::new)).await;
        let mut answer = answer.map_err(|error| ForwardError::Failed(broken(&error)))?;
        if answer.status() == StatusCode::SWITCHING_PROTOCOLS {
            if !may_switch {
                let why = "the server switches to another protocol, which was not asked for";
                return Err(ForwardError::Failed(why.to_owned()));
            }
            let upgraded = hyper::upgrade::on(&mut answer).await;
            let upgraded = upgraded.map_err(|error| ForwardError::Failed(error.to_string()))?;
            answer.extensions_mut().insert(Tunnel::new(upgraded));
        }
        Ok(answer.map(|body| -> Pieces {
            let pieces = body.into_data_stream().then(|piece| async move {
                let Err(error) = &piece else {
                    return piece.map_err(|_| Cut);
                };
                tracing::debug!(%error, "an answer of an API server broke off");
                // What came before it reaches the client first: a connection that fails is not written to any more.
                tokio::task::yield_now().await;
                Err(Cut)
            });
            Box::pin(pieces)
        }))
    }
}

/// A connection to another server that speaks another protocol from now on.
#[derive(Clone)]
pub(crate) struct Tunnel(Arc<Mutex<Option<Upgraded>>>);

impl Tunnel {
    fn new(upgraded: Upgraded) -> Tunnel {
        Tunnel(Arc::new(Mutex::new(Some(upgraded))))
    }

    /// Carries what client and server say, until both have ended or `stop`. `body` is the body of the answer, which
    /// holds what the request takes.
    pub(crate) fn connect(self, body: Body, stop: &CancellationToken) -> ResponseBody {
        let stop = stop.clone();
        let run = move |client: Box<dyn Duplex>, begun: Bytes| -> futures::future::BoxFuture<'static, ()> {
            Box::pin(async move {
                let server = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
                let Some(server) = server else { return };
                let _held = body;
                tokio::select! {
                    () = carry(client, TokioIo::new(server), begun) => {}
                    () = stop.cancelled() => {}
                }
            })
        };
        ResponseBody::Upgrade(Upgrade(Box::new(run)))
    }
}

async fn carry(mut client: Box<dyn Duplex>, mut server: TokioIo<Upgraded>, begun: Bytes) {
    let carried = async {
        server.write_all(&begun).await?;
        copy_bidirectional(&mut client, &mut server).await
    };
    if let Err(error) = carried.await {
        tracing::debug!(%error, "a connection through this server ended early");
    }
}
