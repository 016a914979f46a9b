//! Listening on addresses in Go's notation, and serving small requests: probes and metrics.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::error::Result;
use crate::stop::Stop;

/// Listens on `host:port`; `:port` means every address of this machine, of both families where there are two.
pub(crate) async fn listen(address: &str) -> io::Result<TcpListener> {
    let Some(port) = address.strip_prefix(':') else {
        return TcpListener::bind(address).await;
    };
    match TcpListener::bind(format!("[::]:{port}")).await {
        // A machine without IPv6.
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(format!("0.0.0.0:{port}")).await,
        result => result,
    }
}

/// How many connections are open at the same time; more wait to be accepted.
pub(crate) const MAX_CONNECTIONS: usize = 256;
/// How long a connection may take to send a request's head, or idle between requests.
pub(crate) const HEADER: Duration = Duration::from_secs(10);
/// How long a TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// The answer to a small request.
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn text(status: StatusCode, body: String) -> Answer {
        Answer {
            status,
            content_type: "text/plain; charset=utf-8",
            body: Bytes::from(body),
        }
    }

    fn response(self) -> Response<Full<Bytes>> {
        let mut response = Response::new(Full::new(self.body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(self.content_type));
        headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
        response
    }
}

/// Answers small requests, whose bodies are not read, until the stop. Connections are bounded in number, and in the
/// time that they take to ask something, so that a client which misbehaves keeps no other from being answered. `what`
/// names the purpose of the requests, in logs.
pub(crate) async fn serve<F, Fut>(
    listener: TcpListener,
    what: &'static str,
    tls: Option<TlsAcceptor>,
    stop: Stop,
    answer: F,
) -> Result<()>
where
    F: Fn(Parts) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.requested() => return Ok(()), // dropping the set ends open connections
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of file descriptors, most likely: give them time to come back instead of spinning.
                tracing::warn!(%error, "cannot accept a connection for {what}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (tls, answer) = (tls.clone(), answer.clone());
        connections.spawn(async move {
            let served = match tls {
                None => converse(stream, answer).await,
                Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
                    Ok(Ok(stream)) => converse(stream, answer).await,
                    Ok(Err(error)) => Err(error.to_string()),
                    Err(_) => Err("the TLS handshake took too long".to_owned()),
                },
            };
            if let Err(error) = served {
                tracing::debug!(error, "a connection for {what} broke");
            }
        });
    }
}

/// One connection, over HTTP/1.1.
async fn converse<S, F, Fut>(stream: S, answer: F) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(Parts) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Answer> + Send + 'static,
{
    let service = service_fn(move |request: http::Request<Incoming>| {
        let answered = answer(request.into_parts().0);
        async move { Ok::<_, Infallible>(answered.await.response()) }
    });
    hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER)
        .serve_connection(TokioIo::new(stream), service)
        .await
        .map_err(|error| error.to_string())
}
