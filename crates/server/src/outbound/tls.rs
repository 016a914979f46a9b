//! The certificates that the server trusts when it calls a webhook or another API server, and the one that it shows to
//! the latter.
//!
//! As in Go, a certificate that stands in the `caBundle` itself is trusted, even if it may not sign others: webhooks
//! often come with a certificate that is its own authority.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use kubewright_apiserver::model::facts::pem;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificates::Authority;

/// How many bundles are remembered: more than a cluster has configurations.
const MAX_BUNDLES: usize = 200;

/// The authority of the cluster's front proxy, which other API servers know: made when it is first asked for.
pub type FrontProxy = Arc<dyn Fn() -> crate::Result<Arc<Authority>> + Send + Sync>;

/// TLS configurations by the bundle they trust, and whether they trust any certificate.
#[derive(Default)]
pub(super) struct Trust {
    known: Mutex<BTreeMap<(Bytes, bool), Arc<ClientConfig>>>,
    front: Option<FrontProxy>,
    /// The certificate of the front proxy, with its key.
    shown: OnceLock<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
}

impl Trust {
    /// Configurations that show a certificate of this front proxy.
    pub(super) fn of(front: Option<FrontProxy>) -> Trust {
        Trust {
            front,
            ..Trust::default()
        }
    }

    /// The configuration that trusts a bundle of PEM certificates, or the machine's authorities when it is empty; or
    /// any certificate.
    pub(super) fn config(&self, bundle: &Bytes, insecure: bool) -> Result<Arc<ClientConfig>, String> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (bundle.clone(), insecure);
        if let Some(config) = known.get(&key) {
            return Ok(config.clone());
        }
        let config = Arc::new(make(bundle, insecure, self.shown()?)?);
        if known.len() >= MAX_BUNDLES {
            known.clear();
        }
        known.insert(key, config.clone());
        Ok(config)
    }

    /// The certificate that is shown, with its key.
    fn shown(&self) -> Result<Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>, String> {
        let Some(front) = &self.front else { return Ok(None) };
        let shown = match self.shown.get() {
            Some(shown) => shown,
            None => {
                let made = front().and_then(|authority| authority.front_proxy_client());
                let made = made.map_err(|error| error.to_string())?;
                self.shown.get_or_init(|| (made.certificate_der(), made.key_der()))
            }
        };
        Ok(Some((shown.0.clone(), shown.1.clone_key())))
    }
}

fn make(
    bundle: &Bytes,
    insecure: bool,
    shown: Option<(CertificateDer<'static>, PrivateKeyDer<'static>)>,
) -> Result<ClientConfig, String> {
    const UNREADABLE: &str = "unable to load root certificates: unable to parse bytes as PEM block";
    let listed: Vec<CertificateDer<'static>> = if bundle.is_empty() {
        rustls_native_certs::load_native_certs().certs
    } else {
        pem::certificates(bundle)
            .into_iter()
            .map(CertificateDer::from)
            .collect()
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(listed.iter().cloned());
    if roots.is_empty() && !bundle.is_empty() {
        return Err(UNREADABLE.to_owned());
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let chains = if roots.is_empty() {
        None
    } else {
        let built = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build();
        Some(built.map_err(|error| error.to_string())?)
    };
    let verifier = Verifier {
        chains,
        listed: if bundle.is_empty() { Vec::new() } else { listed },
        insecure,
        provider: provider.clone(),
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier));
    let mut config = match shown {
        None => config.with_no_client_auth(),
        Some((certificate, key)) => config
            .with_client_auth_cert(vec![certificate], key)
            .map_err(|error| error.to_string())?,
    };
    // kube-apiserver calls webhooks with HTTP/1.1 only; other API servers speak it as well.
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

/// Chains to the authorities, or exactly one of the certificates that were listed.
#[derive(Debug)]
struct Verifier {
    /// `None` on a machine without authorities.
    chains: Option<Arc<WebPkiServerVerifier>>,
    listed: Vec<CertificateDer<'static>>,
    /// Whether any certificate will do.
    insecure: bool,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.insecure {
            return Ok(ServerCertVerified::assertion());
        }
        if self.listed.iter().any(|listed| listed == end_entity) {
            check_listed(end_entity, server_name, now)?;
            return Ok(ServerCertVerified::assertion());
        }
        match &self.chains {
            Some(chains) => chains.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now),
            None => Err(CertificateError::UnknownIssuer.into()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// Time and name of a certificate that is trusted for itself.
fn check_listed(certificate: &CertificateDer<'_>, name: &ServerName<'_>, now: UnixTime) -> Result<(), rustls::Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    if seconds > parsed.validity().not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    if seconds < parsed.validity().not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    verify_server_name(&ParsedCertificate::try_from(certificate)?, name)
}

/// Shakes hands with a server that must have a certificate for `host`; the error is in Go's words.
pub(super) async fn connect(
    config: Arc<ClientConfig>,
    host: &str,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, String> {
    let name = ServerName::try_from(host.to_owned()).map_err(|error| format!("tls: {error}"))?;
    let connected = TlsConnector::from(config).connect(name, stream).await;
    connected.map_err(|error| {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
        match inner {
            Some(error) => words(error, host),
            None if error.kind() == std::io::ErrorKind::UnexpectedEof => "EOF".to_owned(),
            None => error.to_string(),
        }
    })
}

fn words(error: &rustls::Error, host: &str) -> String {
    let x509 = |why: &str| format!("tls: failed to verify certificate: x509: {why}");
    match error {
        rustls::Error::InvalidCertificate(reason) => match reason {
            // A certificate that is neither listed nor signed by a listed one has no known authority, even when it has
            // other faults.
            CertificateError::UnknownIssuer | CertificateError::BadSignature | CertificateError::Other(_) => {
                x509("certificate signed by unknown authority")
            }
            CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. } => x509("certificate has expired or is not yet valid"),
            CertificateError::NotValidForName => x509(&format!("certificate is not valid for {host}")),
            CertificateError::NotValidForNameContext { presented, .. } => {
                let names: Vec<&str> = presented.iter().map(|name| bare(name)).collect();
                if names.is_empty() {
                    x509(&format!(
                        "certificate is not valid for any names, but wanted to match {host}"
                    ))
                } else {
                    x509(&format!("certificate is valid for {}, not {host}", names.join(", ")))
                }
            }
            other => x509(&other.to_string()),
        },
        rustls::Error::InvalidMessage(_) => "http: server gave HTTP response to HTTPS client".to_owned(),
        other => format!("tls: {other}"),
    }
}

/// `DnsName("x")` as `x`.
fn bare(name: &str) -> &str {
    let quoted = name.split('"').nth(1);
    quoted.unwrap_or_else(|| name.split(['(', ')']).nth(1).unwrap_or(name))
}
