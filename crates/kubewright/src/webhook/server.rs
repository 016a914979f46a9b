//! The HTTPS server of the webhooks.
//!
//! Invariants: W5 see `certificate.rs`; W6 it listens before a cache lists (`manager` starts it first and stops it
//! late); W7 the reading of a request is bounded in size, in time and in number, so that a client which misbehaves
//! costs others nothing: a request takes one of the places in which work is done only after its body has arrived, and
//! conversions have places of their own;
//! HTTP/1.1 only unless HTTP/2 is asked for, because of its history of resets (CVE-2023-44487). A stop lets requests in
//! flight finish.
//!
//! Not here: what is answered (`handlers.rs`), how bodies are read (`body.rs`).

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use jiff::SignedDuration;
use kube::core::Status;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::WebhookHandlers;
use super::body::Budget;
use super::conversion::PATH as CONVERSIONS;
use super::handlers::bad_request;
use crate::certificate::{self, Files};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::net;
use crate::own_certificate;
use crate::stop::Stop;
use crate::trace;

/// The largest admission review that is read, in bytes, as in controller-runtime: it holds an object twice.
const MAX_REVIEW: usize = 7 << 20;
/// The largest conversion that is read, in bytes: it holds all the objects of a list. controller-runtime has no limit.
const MAX_CONVERSION: usize = 256 << 20;
/// How many bytes of bodies are held at the same time, until their requests are answered.
const MAX_BODIES: usize = 320 << 20;
/// Larger bodies than this are parsed and converted on a thread where no other request waits.
const LARGE: usize = 1 << 20;
/// How many reviews, and how many conversions, are worked on at the same time; more wait.
const MAX_REQUESTS: usize = 128;
/// How many connections are open at the same time; more wait to be accepted.
const MAX_CONNECTIONS: usize = 1024;
/// How long the TLS handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a connection may take to send a request's head, or idle between requests.
const HEADER: Duration = Duration::from_secs(90);
/// How long an answer may take when the API server does not say how long it waits. Its default.
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest that an API server waits.
const MAX_TIMEOUT: Duration = Duration::from_secs(30);

/// Where and with which certificate webhooks are served (controller-runtime's `webhook.Options`).
///
/// ```
/// use kubewright::webhook::WebhookServer;
///
/// let server = WebhookServer::new().address("127.0.0.1:9443").certificate_dir("/run/certificates");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct WebhookServer {
    address: String,
    directory: PathBuf,
    certificate: String,
    key: String,
    secret: Option<String>,
    client_authority: Option<PathBuf>,
    http2: bool,
}

impl Default for WebhookServer {
    fn default() -> WebhookServer {
        WebhookServer {
            address: ":9443".to_owned(),
            directory: default_certificate_dir(),
            certificate: "tls.crt".to_owned(),
            key: "tls.key".to_owned(),
            secret: None,
            client_authority: None,
            http2: false,
        }
    }
}

/// Where certificates are looked for by default, as controller-runtime does: `k8s-webhook-server/serving-certs` in the
/// temporary directory.
pub fn default_certificate_dir() -> PathBuf {
    std::env::temp_dir().join("k8s-webhook-server").join("serving-certs")
}

impl WebhookServer {
    /// On port 9443 of all addresses, with `tls.crt` and `tls.key` in [`default_certificate_dir`].
    pub fn new() -> WebhookServer {
        WebhookServer::default()
    }

    /// The address to listen on, `:9443` for all addresses of the machine; port 0 takes a free one, see
    /// [`Manager::webhook_address`](crate::Manager::webhook_address).
    pub fn address(mut self, address: impl Into<String>) -> WebhookServer {
        self.address = address.into();
        self
    }

    /// The directory of the certificate and its key.
    pub fn certificate_dir(mut self, directory: impl Into<PathBuf>) -> WebhookServer {
        self.directory = directory.into();
        self
    }

    /// The names of the two files, when they are not `tls.crt` and `tls.key`.
    pub fn certificate_names(mut self, certificate: impl Into<String>, key: impl Into<String>) -> WebhookServer {
        (self.certificate, self.key) = (certificate.into(), key.into());
        self
    }

    /// A certificate that the operator makes itself, and keeps in this Secret of its own namespace, instead of one in
    /// files. It is good for 90 days and replaced after 60, without a call that fails; the API server gets the
    /// certificate to trust (`caBundle`) in every webhook configuration and definition that leads here. Replicas share
    /// the Secret.
    ///
    /// The operator needs the verbs `create`, `get` and `update` on `secrets` in its namespace; `list`, `watch` and
    /// `patch` on `mutatingwebhookconfigurations` and `validatingwebhookconfigurations`; and, where it converts, `get` and `patch`
    /// on `customresourcedefinitions`. `config/certificates` has them.
    pub fn own_certificate(mut self, secret: impl Into<String>) -> WebhookServer {
        self.secret = Some(secret.into());
        self
    }

    /// Answers only who shows a certificate of an authority in this file of PEM (controller-runtime's `ClientCAName`):
    /// the API server, when its `--admission-control-config-file` gives it one for webhooks. The file is read once, at
    /// the start.
    pub fn client_authority(mut self, file: impl Into<PathBuf>) -> WebhookServer {
        self.client_authority = Some(file.into());
        self
    }

    /// Who may connect.
    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>> {
        let Some(file) = &self.client_authority else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let wrong = |why: String| {
            let file = file.display();
            Error::Configuration(format!(
                "cannot read the authorities of webhook clients in {file}: {why}"
            ))
        };
        let read = CertificateDer::pem_file_iter(file).map_err(|error| wrong(error.to_string()))?;
        let mut roots = RootCertStore::empty();
        for certificate in read {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            roots.add(certificate).map_err(|error| wrong(error.to_string()))?;
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone());
        verifier.build().map_err(|error| wrong(error.to_string()))
    }

    /// Offers HTTP/2 as well.
    #[cfg(feature = "http2")]
    pub fn http2(mut self, offered: bool) -> WebhookServer {
        self.http2 = offered;
        self
    }

    /// The certificate, and the future that keeps it current.
    async fn certificate(
        &self,
        handlers: &WebhookHandlers,
        clock: Arc<dyn Clock>,
        provider: &Arc<CryptoProvider>,
        stop: &Stop,
    ) -> Result<(Arc<certificate::Current>, BoxFuture<'static, ()>)> {
        if let Some(secret) = &self.secret {
            let conversions = handlers.conversions();
            let served = own_certificate::Served {
                paths: handlers.paths(),
                definitions: conversions
                    .iter()
                    .map(|of| format!("{}.{}", of.hub.plural, of.hub.group))
                    .collect(),
            };
            let managed = own_certificate::manage(
                handlers.client(),
                clock,
                secret.clone(),
                served,
                provider.clone(),
                stop.clone(),
            );
            let managed = managed.await;
            let (current, keeping) = managed.map_err(|why| {
                Error::Configuration(format!(
                    "the webhook server has no certificate of its own: {why}. config/certificates has the rights that it needs (KWR0550)"
                ))
            })?;
            return Ok((current, Box::pin(keeping)));
        }
        let files = Files {
            certificate: self.directory.join(&self.certificate),
            key: self.directory.join(&self.key),
        };
        let loaded = certificate::load(files, "the webhook server", provider.clone(), stop.clone());
        let (current, keeping) = loaded.map_err(|why| {
            Error::Configuration(format!(
                "the webhook server has no certificate: {why}. In a cluster cert-manager puts it there; name another directory with \
                 --webhook-cert-path, or set ENABLE_WEBHOOKS=false to run without webhooks (KWR0550)"
            ))
        })?;
        Ok((current, Box::pin(keeping)))
    }

    /// Gets the certificate and listens. The future serves until the stop.
    pub(crate) async fn bind(
        self,
        handlers: WebhookHandlers,
        clock: Arc<dyn Clock>,
        stop: Stop,
    ) -> Result<(SocketAddr, impl Future<Output = Result<()>> + Send + 'static)> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificates, keeping) = self.certificate(&handlers, clock, &provider, &stop).await?;
        let mut config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Configuration(format!("cannot set up TLS for webhooks: {error}")))?
            .with_client_cert_verifier(self.verifier(&provider)?)
            .with_cert_resolver(certificates);
        config.alpn_protocols = match self.http2 {
            true => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
            false => vec![b"http/1.1".to_vec()],
        };
        let attempted = |error: std::io::Error| {
            Error::Configuration(format!("cannot listen for webhooks on {}: {error}", self.address))
        };
        let listener = net::listen(&self.address).await.map_err(attempted)?;
        let address = listener.local_addr().map_err(attempted)?;
        let server = Server {
            handlers,
            reviews: Arc::new(Semaphore::new(MAX_REQUESTS)),
            conversions: Arc::new(Semaphore::new(MAX_REQUESTS)),
            bodies: Budget::new(MAX_BODIES),
            tls: TlsAcceptor::from(Arc::new(config)),
            #[cfg(feature = "http2")]
            http2: self.http2,
            stop,
        };
        Ok((address, async move {
            let (_, result) = tokio::join!(keeping, server.accept(listener));
            result
        }))
    }
}

#[derive(Clone)]
struct Server {
    handlers: WebhookHandlers,
    reviews: Arc<Semaphore>,
    /// Apart from reviews: one that reads from the cache may wait for a list whose objects are converted here.
    conversions: Arc<Semaphore>,
    bodies: Budget,
    tls: TlsAcceptor,
    #[cfg(feature = "http2")]
    http2: bool,
    stop: Stop,
}

impl Server {
    async fn accept(self, listener: TcpListener) -> Result<()> {
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                biased;
                () = self.stop.requested() => break,
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => accepted,
            };
            match accepted {
                Ok((stream, peer)) => drop(connections.spawn(self.clone().serve(stream, peer))),
                Err(error) => {
                    // Out of file descriptors, most likely: give them time to come back instead of spinning.
                    tracing::warn!(%error, "cannot accept a connection for webhooks");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        drop(listener);
        while connections.join_next().await.is_some() {} // each ends with the request that it is at
        Ok(())
    }

    async fn serve(self, stream: TcpStream, peer: SocketAddr) {
        // Small answers: waiting to fill a packet only costs time.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, %peer, "cannot set TCP_NODELAY for a webhook connection");
        }
        let stream = tokio::select! {
            biased;
            () = self.stop.requested() => return,
            shaken = timeout(HANDSHAKE, self.tls.accept(stream)) => match shaken {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => return tracing::debug!(%error, %peer, "a TLS handshake for webhooks failed"),
                Err(_) => return tracing::debug!(%peer, "a TLS handshake for webhooks took too long"),
            },
        };
        let builder = self.builder();
        let server = self.clone();
        let service = service_fn(move |request| {
            let server = server.clone();
            async move { Ok::<_, Infallible>(server.respond(request).await) }
        });
        let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
        let served = tokio::select! {
            biased;
            served = connection.as_mut() => served,
            () = self.stop.requested() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(%error, %peer, "a connection for webhooks broke");
        }
    }

    #[cfg(not(feature = "http2"))]
    fn builder(&self) -> hyper::server::conn::http1::Builder {
        let mut builder = hyper::server::conn::http1::Builder::new();
        builder.timer(TokioTimer::new()).header_read_timeout(HEADER);
        builder
    }

    #[cfg(feature = "http2")]
    fn builder(&self) -> hyper_util::server::conn::auto::Builder<hyper_util::rt::TokioExecutor> {
        let mut builder = hyper_util::server::conn::auto::Builder::new(hyper_util::rt::TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER);
        let streams = MAX_REQUESTS as u32;
        builder.http2().timer(TokioTimer::new()).max_concurrent_streams(streams);
        match self.http2 {
            true => builder,
            false => builder.http1_only(),
        }
    }

    async fn respond(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let (status, document) = match self.answer(request).await {
            Ok(answer) => (StatusCode::OK, answer.to_string()),
            Err(status) => {
                tracing::warn!(
                    code = status.code,
                    message = status.message,
                    "a request for webhooks was not answered"
                );
                let code = StatusCode::from_u16(status.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
                (code, serde_json::json!(status).to_string())
            }
        };
        let mut response = Response::new(Full::new(Bytes::from(document)));
        *response.status_mut() = status;
        let json = header::HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        response
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<serde_json::Value, Status> {
        let refuse = |code: u16, reason: &str, message: String| Status::failure(&message, reason).with_code(code);
        let path = request.uri().path().to_owned();
        if !self.handlers.paths().contains(&path) {
            return Err(refuse(404, "NotFound", format!("no webhook is served under {path}")));
        }
        if request.method() != Method::POST {
            let message = format!("webhooks are asked with POST, not {}", request.method());
            return Err(refuse(405, "MethodNotAllowed", message));
        }
        let content_type = request.headers().get(header::CONTENT_TYPE);
        let content_type = content_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        if content_type.split(';').next().map(str::trim) != Some("application/json") {
            let message = format!("contentType={content_type}, expected application/json");
            return Err(refuse(415, "UnsupportedMediaType", message));
        }
        let within = deadline(request.uri().query().unwrap_or_default());
        let too_long =
            |what: &str| Status::failure(&format!("{what} took longer than {within:?}"), "Timeout").with_code(504);
        let begin = tokio::time::Instant::now();
        let (limit, places) = match path == CONVERSIONS {
            true => (MAX_CONVERSION, &self.conversions),
            false => (MAX_REVIEW, &self.reviews),
        };
        let (body, _held) = timeout(within, self.bodies.read(request.into_body(), limit))
            .await
            .map_err(|_| too_long("sending the body"))??;
        let left = || within.saturating_sub(begin.elapsed());
        let _permit = timeout(left(), places.acquire())
            .await
            .map_err(|_| too_long("waiting for other webhook requests to finish"))?;
        if body.len() <= LARGE {
            return self
                .handlers
                .call(&path, left(), parse(&body).map_err(bad_request)?)
                .await;
        }
        let handlers = self.handlers.clone();
        let large = async move {
            if path == CONVERSIONS {
                let counted = handlers.count(&path);
                let span = trace::webhook(&path);
                let entered = span.clone();
                let answer = off(move || entered.in_scope(|| handlers.convert(parse(&body)?))).await;
                let code = answer.as_ref().err().map_or(200, |status| status.code);
                span.record("code", code);
                if let Some(counted) = counted {
                    counted.answered(code);
                }
                return answer;
            }
            let document = off(move || parse(&body)).await?;
            handlers.call(&path, left(), document).await
        };
        timeout(within.saturating_sub(begin.elapsed()), large)
            .await
            .map_err(|_| too_long("converting the objects"))?
    }
}

/// Runs work that takes long on a thread for such.
async fn off<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, Status> {
    let failed = |error| Status::failure(&format!("the request failed: {error}"), "InternalError").with_code(500);
    let done = tokio::task::spawn_blocking(work).await.map_err(failed)?;
    done.map_err(bad_request)
}

fn parse(body: &[u8]) -> Result<serde_json::Value, String> {
    serde_json::from_slice(body).map_err(|error| match body.is_empty() {
        true => "request body is empty".to_owned(),
        false => format!("the body is not JSON: {error}"),
    })
}

/// How long the answer may take: a little less than the API server waits (`?timeout=10s`), so that it hears why.
fn deadline(query: &str) -> Duration {
    let given = query.split('&').find_map(|part| part.strip_prefix("timeout="));
    let whole = given.and_then(go_duration).unwrap_or(TIMEOUT).min(MAX_TIMEOUT);
    whole - whole / 20
}

/// A duration as Go prints it: `10s`, `1m30s`, `500ms`.
fn go_duration(text: &str) -> Option<Duration> {
    let parsed: SignedDuration = text.parse().ok()?;
    Duration::try_from(parsed).ok().filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_api_server_says_how_long_it_waits() {
        let check = |query: &str, millis: u64| assert_eq!(deadline(query), Duration::from_millis(millis), "{query:?}");
        check("timeout=10s", 9_500);
        check("x=1&timeout=1m30s", 28_500);
        check("timeout=500ms", 475);
        check("timeout=1.5s", 1_425);
        for odd in [
            "",
            "timeout=",
            "timeout=x",
            "timeout=5",
            "timeout=-1s",
            "timeout=0s",
            "timeout=1e400s",
        ] {
            check(odd, 9_500);
        }
    }
}
