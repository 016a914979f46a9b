//! The endpoint `/metrics`.
//!
//! Secure (the default): HTTPS, and only for users whom the cluster lets `get /metrics`. The certificate comes from
//! files, which are read again when they change, or is made at the start, signed by itself: a scraper that verifies
//! needs the former.

mod access;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use http::StatusCode;
use http::header::AUTHORIZATION;
use rustls::ServerConfig;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::ResolvesServerCert;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::TlsAcceptor;

use self::access::Access;
use crate::certificate::{self, Files};
use crate::client::Client;
use crate::error::{Error, Result};
use crate::metrics::Metrics;
use crate::net::{self, Answer};
use crate::stop::Stop;

/// The media type of OpenMetrics, as Prometheus expects it.
const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The address of the metrics, and their readers (controller-runtime's `metricsserver.Options`).
///
/// ```
/// use kubewright::MetricsServer;
///
/// let server = MetricsServer::new(":8443").certificate_dir("/run/certificates");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct MetricsServer {
    address: String,
    secure: bool,
    directory: Option<PathBuf>,
    names: (String, String),
}

impl MetricsServer {
    /// Metrics on this address, `:8443` for all addresses of the machine; port 0 takes a free one, see
    /// [`Manager::metrics_address`](crate::Manager::metrics_address).
    pub fn new(address: impl Into<String>) -> MetricsServer {
        MetricsServer {
            address: address.into(),
            secure: true,
            directory: None,
            names: ("tls.crt".to_owned(), "tls.key".to_owned()),
        }
    }

    /// Without TLS, for every client that reaches the port.
    pub fn insecure(mut self) -> MetricsServer {
        self.secure = false;
        self
    }

    /// The directory of the certificate and its key. Without one, a certificate is made that signs itself.
    pub fn certificate_dir(mut self, directory: impl Into<PathBuf>) -> MetricsServer {
        self.directory = Some(directory.into());
        self
    }

    /// The names of the two files, when they are not `tls.crt` and `tls.key`.
    pub fn certificate_names(mut self, certificate: impl Into<String>, key: impl Into<String>) -> MetricsServer {
        self.names = (certificate.into(), key.into());
        self
    }

    /// Reads the certificate and listens. The future serves until the stop.
    pub(crate) async fn bind(
        self,
        metrics: Metrics,
        client: &Client,
        stop: Stop,
    ) -> Result<(SocketAddr, impl Future<Output = Result<()>> + Send + 'static)> {
        let attempted = |error: std::io::Error| {
            Error::Configuration(format!("cannot listen for metrics on {}: {error}", self.address))
        };
        let listener = net::listen(&self.address).await.map_err(attempted)?;
        let address = listener.local_addr().map_err(attempted)?;
        let mut tls = None;
        let mut keeping: Option<Box<dyn Future<Output = ()> + Send + Unpin>> = None;
        if self.secure {
            let (acceptor, kept) = self.tls(&stop)?;
            (tls, keeping) = (Some(acceptor), kept);
        }
        let access = self.secure.then(|| Arc::new(Access::new(client)));
        let serving = net::serve(listener, "metrics", tls, stop, move |request: http::request::Parts| {
            let (metrics, access) = (metrics.clone(), access.clone());
            async move { answer(&metrics, access.as_deref(), &request).await }
        });
        Ok((address, async move {
            let keeping = async {
                if let Some(keeping) = keeping {
                    keeping.await;
                }
            };
            let (_, result) = tokio::join!(keeping, serving);
            result
        }))
    }

    #[allow(clippy::type_complexity)] // the future that keeps a certificate up to date, if it is in files
    fn tls(&self, stop: &Stop) -> Result<(TlsAcceptor, Option<Box<dyn Future<Output = ()> + Send + Unpin>>)> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let (certificates, keeping): (Arc<dyn ResolvesServerCert>, _) = match &self.directory {
            None => (self_signed(&provider)?, None),
            Some(directory) => {
                let files = Files {
                    certificate: directory.join(&self.names.0),
                    key: directory.join(&self.names.1),
                };
                let loaded = certificate::load(files, "the metrics server", provider.clone(), stop.clone());
                let (current, keeping) = loaded.map_err(|why| {
                    Error::Configuration(format!(
                        "the metrics server has no certificate: {why}. In a cluster cert-manager puts it there; name another directory \
                         with --metrics-cert-path, or leave the flag out for a certificate that signs itself (KWR0550)"
                    ))
                })?;
                let keeping: Box<dyn Future<Output = ()> + Send + Unpin> = Box::new(Box::pin(keeping));
                (current, Some(keeping))
            }
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Error::Configuration(format!("cannot set up TLS for metrics: {error}")))?
            .with_no_client_auth()
            .with_cert_resolver(certificates);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok((TlsAcceptor::from(Arc::new(config)), keeping))
    }
}

/// A certificate for this start, as controller-runtime makes one when none is given.
fn self_signed(provider: &CryptoProvider) -> Result<Arc<SingleCertAndKey>> {
    let failed = |why: String| Error::Configuration(format!("cannot make a certificate for metrics: {why}"));
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])
        .map_err(|error| failed(error.to_string()))?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
    let pair = CertifiedKey::from_der(vec![made.cert.der().clone()], key, provider);
    Ok(Arc::new(SingleCertAndKey::from(
        pair.map_err(|error| failed(error.to_string()))?,
    )))
}

async fn answer(metrics: &Metrics, access: Option<&Access>, request: &http::request::Parts) -> Answer {
    if request.uri.path() != "/metrics" {
        return Answer::text(StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
    }
    if ![http::Method::GET, http::Method::HEAD].contains(&request.method) {
        return Answer::text(StatusCode::METHOD_NOT_ALLOWED, "metrics are read with GET\n".to_owned());
    }
    if let Some(access) = access {
        let authorization = request.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Err((status, why)) = access.check(authorization, request.uri.path()).await {
            return Answer::text(status, format!("{why}\n"));
        }
    }
    Answer {
        status: StatusCode::OK,
        content_type: CONTENT_TYPE,
        body: metrics.encode().into(),
    }
}
