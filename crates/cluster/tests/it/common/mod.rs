//! The shared parts of the tests: a cluster, both ways to it, and raw connections for misbehaving clients.

// Helpers of tests may fail as tests do; clippy only knows functions that are tests themselves.
#![allow(clippy::unwrap_used)]

pub(crate) mod scenes;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright_cluster::{Cluster, ClusterBuilder, Listening};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::client::TlsStream;

/// Nothing in these tests takes longer; a longer wait is a failure.
pub(crate) const SOON: Duration = Duration::from_secs(60);

/// A future that must be ready soon.
pub(crate) async fn soon<F: Future>(what: &str, future: F) -> F::Output {
    match tokio::time::timeout(SOON, future).await {
        Ok(output) => output,
        Err(_) => panic!("{what}: not within {SOON:?}"),
    }
}

/// A cluster that listens on loopback.
pub(crate) async fn listening(builder: ClusterBuilder) -> (Cluster, Listening) {
    let cluster = builder.start().await.expect("a cluster starts");
    let listening = cluster
        .listen("127.0.0.1:0".parse().unwrap())
        .await
        .expect("loopback has a free port");
    (cluster, listening)
}

/// kube's own client over HTTPS, out of the kubeconfig.
pub(crate) async fn https_client(listening: &Listening) -> kube::Client {
    let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("a usable kubeconfig");
    kube::Client::try_from(config).expect("a client")
}

/// The identity of a raw client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Who {
    Admin,
    Nobody,
}

/// A TLS connection on which the test writes any bytes; HTTP/1.1.
pub(crate) async fn raw(listening: &Listening, who: Who) -> TlsStream<TcpStream> {
    raw_with(listening, who, &[b"http/1.1"]).await
}

/// The same with a choice of protocols.
pub(crate) async fn raw_with(listening: &Listening, who: Who, alpn: &[&[u8]]) -> TlsStream<TcpStream> {
    let stream = TcpStream::connect(listening.address).await.expect("the port is open");
    secure(listening, who, alpn, stream).await
}

/// A connection whose client has little room for unread bytes.
pub(crate) async fn raw_small(listening: &Listening, who: Who) -> TlsStream<TcpStream> {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.set_recv_buffer_size(16 * 1024).expect("a small buffer");
    let stream = socket.connect(listening.address).await.expect("the port is open");
    secure(listening, who, &[b"http/1.1"], stream).await
}

async fn secure(listening: &Listening, who: Who, alpn: &[&[u8]], stream: TcpStream) -> TlsStream<TcpStream> {
    let mut config = client_config(listening, who);
    config.alpn_protocols = alpn.iter().map(|protocol| protocol.to_vec()).collect();
    let name = ServerName::try_from("localhost").unwrap();
    let connecting = tokio_rustls::TlsConnector::from(Arc::new(config)).connect(name, stream);
    soon("TLS handshake", connecting).await.expect("the handshake succeeds")
}

/// TLS as a client needs it: the cluster's authority, and the administrator's certificate when asked for.
pub(crate) fn client_config(listening: &Listening, who: Who) -> rustls::ClientConfig {
    let kubeconfig = Kubeconfig::from_yaml(&listening.kubeconfig).expect("a kubeconfig");
    let decode = |data: &str| base64::prelude::BASE64_STANDARD.decode(data).expect("base64");
    let authority = kubeconfig.clusters[0]
        .cluster
        .as_ref()
        .unwrap()
        .certificate_authority_data
        .as_ref()
        .unwrap();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&decode(authority)).unwrap())
        .unwrap();
    let builder = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    if who == Who::Nobody {
        return builder.with_no_client_auth();
    }
    // The key is a secret to kube's types, but not to a reader of the text.
    let value = |key: &str| {
        let line = listening
            .kubeconfig
            .lines()
            .find_map(|line| line.trim().strip_prefix(key))
            .unwrap();
        decode(line.trim())
    };
    let certificate = CertificateDer::from_pem_slice(&value("client-certificate-data:")).unwrap();
    let key = PrivateKeyDer::from_pem_slice(&value("client-key-data:")).unwrap();
    builder.with_client_auth_cert(vec![certificate], key).unwrap()
}

/// An answer as it came over the wire.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    fn parse(bytes: &[u8]) -> Answer {
        let text = String::from_utf8_lossy(bytes);
        let (head, body) = text
            .split_once("\r\n\r\n")
            .unwrap_or_else(|| panic!("not an HTTP answer: {text:?}"));
        let code = head
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .unwrap_or_else(|| panic!("no status code: {head:?}"));
        Answer {
            code,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    /// The body as JSON.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("not JSON ({error}): {self:?}"))
    }
}

/// Sends a whole request that ends its connection, and reads the answer to the end.
pub(crate) async fn ask(
    listening: &Listening,
    who: Who,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> Answer {
    let mut stream = raw(listening, who).await;
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n");
    if !body.is_empty() || ["POST", "PUT", "PATCH"].contains(&method) {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    head += "\r\n";
    stream.write_all(head.as_bytes()).await.expect("the head is taken");
    stream.write_all(body).await.expect("the body is taken");
    read_answer(&mut stream).await
}

/// Reads until the server closes.
pub(crate) async fn read_answer(stream: &mut TlsStream<TcpStream>) -> Answer {
    let mut bytes = Vec::new();
    soon("an answer", stream.read_to_end(&mut bytes))
        .await
        .expect("the connection ends cleanly");
    Answer::parse(&bytes)
}

/// Reads one answer that says how long it is, and leaves the connection open.
pub(crate) async fn read_head_and_body(stream: &mut TlsStream<TcpStream>) -> Answer {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").parse().expect("a number");
            if body.len() >= length {
                return Answer::parse(&bytes);
            }
        }
        let read = stream.read_buf(&mut bytes).await.expect("an answer");
        assert_ne!(read, 0, "the connection ended before the answer: {text:?}");
    }
}
