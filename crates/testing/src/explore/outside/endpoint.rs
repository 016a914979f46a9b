//! The address at which one process of the operator reaches the API server: HTTPS on loopback, for this process alone.
//!
//! Every request goes through the seam, in which faults strike, and on to the server without another socket, as the
//! operator's user. Invariants: who does not know the token of the process gets 401; when the endpoint is dropped, its
//! connections end. Connections that a client takes over go their own way (`tunnel.rs`).

use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::future::BoxFuture;
use http::header::{ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, HeaderValue};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kubewright::kube::{self, client::Body, core::Status};
use kubewright_cluster::Pki;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::super::seam::Answer;
use super::tunnel::Tunnel;
use crate::intercept::refused;

/// More than the API server takes.
const LONGEST_BODY: usize = 32 << 20;

/// Answers requests of a process.
pub(super) type Answering = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Result<Answer, kube::Error>> + Send + Sync>;

/// Where connections go that a client takes over, and what is called with the path of each.
pub(super) type Tunnels = (Tunnel, Arc<dyn Fn(&str) + Send + Sync>);

type Broken = Box<dyn std::error::Error + Send + Sync>;

/// The certificate of all endpoints.
#[derive(Clone)]
pub(super) struct Tls {
    acceptor: TlsAcceptor,
    authority: String,
}

impl Tls {
    /// # Errors
    /// When the system has no entropy.
    pub(super) fn new() -> Result<Tls, Broken> {
        let (chain, key) = Pki::self_signed(Ipv4Addr::LOCALHOST.into())?;
        let certificates = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut config = builder.with_no_client_auth().with_single_cert(certificates, key)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        // The authority stands behind the certificate that it signed.
        let authority = chain.rfind("-----BEGIN").map_or("", |begin| &chain[begin..]).to_owned();
        Ok(Tls {
            acceptor: TlsAcceptor::from(Arc::new(config)),
            authority,
        })
    }
}

pub(super) struct Endpoint {
    address: SocketAddr,
    token: String,
    authority: String,
    accepting: AbortHandle,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

impl Endpoint {
    /// # Errors
    /// When there is no free port.
    pub(super) async fn open(tls: &Tls, answering: Answering, tunnels: Tunnels) -> std::io::Result<Endpoint> {
        let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = socket.local_addr()?;
        let mut random = [0; 16];
        std::fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
        let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let expected = HeaderValue::try_from(format!("Bearer {token}")).map_err(std::io::Error::other)?;
        let acceptor = tls.acceptor.clone();
        let accepting = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                match socket.accept().await {
                    Ok((stream, _)) => {
                        let (acceptor, expected) = (acceptor.clone(), expected.clone());
                        let (answering, tunnels) = (answering.clone(), tunnels.clone());
                        connections.spawn(connection(stream, acceptor, expected, answering, tunnels));
                    }
                    // Of one client, or there are no descriptors left for a moment.
                    Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
                }
                while connections.try_join_next().is_some() {}
            }
        });
        Ok(Endpoint {
            address,
            token,
            authority: tls.authority.clone(),
            accepting: accepting.abort_handle(),
        })
    }

    /// The kubeconfig of the process. JSON is YAML.
    pub(super) fn kubeconfig(&self, namespace: &str) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "explore",
            "clusters": [{"name": "explore", "cluster": {
                "server": format!("https://{}", self.address),
                "certificate-authority-data": BASE64_STANDARD.encode(&self.authority),
            }}],
            "users": [{"name": "operator", "user": {"token": self.token}}],
            "contexts": [{"name": "explore", "context": {
                "cluster": "explore", "user": "operator", "namespace": namespace,
            }}],
        });
        config.to_string()
    }
}

async fn connection(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    token: HeaderValue,
    answering: Answering,
    tunnels: Tunnels,
) {
    // Without it an event may wait for the next one; a client that is gone shows soon enough.
    let _ = stream.set_nodelay(true);
    let Ok(stream) = acceptor.accept(stream).await else {
        return;
    };
    let is_second = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let service = service_fn(move |request| answer(request, token.clone(), answering.clone(), tunnels.clone()));
    // A connection that breaks is what faults are made of, and a client may go at any time.
    if is_second {
        let http = http2::Builder::new(TokioExecutor::new());
        let _ = http.serve_connection(TokioIo::new(stream), service).await;
    } else {
        let _ = http1::Builder::new()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades()
            .await;
    }
}

async fn answer(
    request: Request<Incoming>,
    token: HeaderValue,
    answering: Answering,
    (tunnel, told): Tunnels,
) -> Result<Answer, Broken> {
    if request.headers().get(AUTHORIZATION) != Some(&token) {
        let status = Status::failure("Unauthorized", "Unauthorized").with_code(401);
        return Ok(refused(&status)?.map(Body::boxed_unsync));
    }
    if Tunnel::is_wanted(&request) {
        told(request.uri().path());
        return tunnel.pass(request).await;
    }
    let (mut parts, body) = request.into_parts();
    parts.headers.remove(AUTHORIZATION);
    // Over HTTP/2 the address of the server is part of it.
    if let Some(path) = parts.uri.path_and_query() {
        parts.uri = path.as_str().parse()?;
    }
    // The seam reads answers.
    parts.headers.remove(ACCEPT_ENCODING);
    let accepted: Vec<HeaderValue> = parts.headers.get_all(ACCEPT).iter().map(readable).collect();
    parts.headers.remove(ACCEPT);
    for accepted in accepted {
        parts.headers.append(ACCEPT, accepted);
    }
    let body = Limited::new(body, LONGEST_BODY).collect().await?.to_bytes();
    let request = Request::from_parts(parts, Body::from(body.to_vec()));
    let answered: Response<_> = answering(request).await?;
    Ok(answered)
}

/// The same in JSON: clients of Go prefer protobuf or CBOR, and take JSON as well.
fn readable(accepted: &HeaderValue) -> HeaderValue {
    let Ok(text) = accepted.to_str() else {
        return accepted.clone();
    };
    let json = [
        "application/vnd.kubernetes.protobuf",
        "application/cbor-seq",
        "application/cbor",
    ]
    .iter()
    .fold(text.to_owned(), |text, binary| text.replace(binary, "application/json"));
    HeaderValue::try_from(json).unwrap_or_else(|_| accepted.clone())
}
