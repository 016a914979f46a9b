//! The smallest HTTPS client that can ask for `/readyz`, used alike for us and for the peer.
//!
//! It checks no certificate (both servers make their own at start) and opens a connection for each try: the measured
//! server was not there a moment ago.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Asks for `/readyz` again and again until it is answered with 200.
///
/// # Errors
/// When that takes longer than `patience`.
pub(crate) async fn until_ready(address: SocketAddr, patience: Duration) -> Result<(), String> {
    let connector = TlsConnector::from(Arc::new(trusting_config()));
    let end = Instant::now() + patience;
    loop {
        if ready(&connector, address).await.unwrap_or(false) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(format!("{address} did not answer /readyz with 200 within {patience:?}"));
        }
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
}

async fn ready(connector: &TlsConnector, address: SocketAddr) -> std::io::Result<bool> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    let mut stream = connector.connect(ServerName::from(address.ip()), socket).await?;
    stream
        .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok(&head == b"HTTP/1.1 200")
}

/// TLS that trusts every certificate: both servers make theirs at start.
pub(crate) fn trusting_config() -> ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("ring offers the default versions of TLS")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Trusting(
            provider.signature_verification_algorithms.supported_schemes(),
        )))
        .with_no_client_auth()
}

#[derive(Debug)]
struct Trusting(Vec<SignatureScheme>);

impl ServerCertVerifier for Trusting {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.clone()
    }
}
