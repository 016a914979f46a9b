//! Webhooks that fail, each in its way: the error of the user who writes an object, and that `failurePolicy: Ignore`
//! lets him pass.
//!
//! The other side is a program of bytes on a socket, so that it can be as wrong as a foreign webhook may be. Invariant:
//! with any fault, the request is answered soon after the webhook's timeout.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::api::{Api, DeleteParams, DynamicObject, PostParams};
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::admission;

/// The timeout of every webhook, in seconds, and when a request that is not answered counts as hanging.
const TIMEOUT: u64 = 1;
const HANGS: Duration = Duration::from_secs(20);

/// The webhook's reaction to a review.
#[derive(Clone, Copy)]
enum Fault {
    /// It answers with this; `UID` is the request's.
    Answers(&'static str),
    /// It answers with this head and body, in bytes.
    Says(&'static str, &'static str),
    /// It sends ten megabytes.
    Floods,
    /// It closes the connection, as a program that ends does.
    Closes,
    /// It never answers.
    Sleeps,
    /// It answers a byte at a time and never ends.
    Drips,
    /// The port is closed.
    Down,
    /// It accepts, and no handshake follows.
    Mute,
    /// Its certificate has expired, is for another name, or is signed by another authority.
    Expired,
    WrongName,
    Stranger,
}

const HTML: &str = "<html><body>It works!</body></html>";
const ALLOWED: &str = r#"{"uid":"UID","allowed":true}"#;

/// Each fault with the client's error behind `failed calling webhook "fault.example.com": `; nothing when it is let
/// through.
const CASES: [(&str, Fault, Option<&str>); 20] = [
    ("well", Fault::Answers(ALLOWED), None),
    (
        "wrong uid",
        Fault::Answers(r#"{"uid":"other","allowed":true}"#),
        Some("received invalid webhook response: expected response.uid="),
    ),
    (
        "no uid",
        Fault::Answers(r#"{"allowed":true}"#),
        Some("received invalid webhook response: expected response.uid="),
    ),
    (
        "no patch type",
        Fault::Answers(r#"{"uid":"UID","allowed":true,"patch":"W10="}"#),
        Some("received invalid webhook response: webhook returned response.patch but not response.patchType"),
    ),
    (
        "a patch that is none",
        // {}
        Fault::Answers(r#"{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"e30="}"#),
        Some("received undecodable patch in webhook response: json: cannot unmarshal object"),
    ),
    (
        "a patch of what is not there",
        // [{"op":"remove","path":"/nothing"}]
        Fault::Answers(
            r#"{"uid":"UID","allowed":true,"patchType":"JSONPatch","patch":"W3sib3AiOiJyZW1vdmUiLCJwYXRoIjoiL25vdGhpbmcifV0="}"#,
        ),
        Some("error in remove for path: '/nothing': Unable to remove nonexistent key: nothing"),
    ),
    (
        "no response",
        Fault::Says(
            "200 OK",
            r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#,
        ),
        Some("received invalid webhook response: webhook response was absent"),
    ),
    (
        "another kind",
        Fault::Says("200 OK", r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p"}}"#),
        Some("failed to call webhook: no kind \"Pod\" is registered for version \"v1\""),
    ),
    (
        "nothing",
        Fault::Says("200 OK", ""),
        Some("failed to call webhook: 0-length response with status code: 200"),
    ),
    (
        "HTML",
        Fault::Says("200 OK", HTML),
        Some("failed to call webhook: couldn't get version/kind; json parse error: "),
    ),
    (
        "an error page",
        Fault::Says("500 Internal Server Error", HTML),
        Some("failed to call webhook: an error on the server (\"<html>"),
    ),
    (
        "not found",
        Fault::Says("404 Not Found", ""),
        Some("failed to call webhook: the server could not find the requested resource"),
    ),
    (
        "ten megabytes",
        Fault::Floods,
        Some("error reading response body: length limit exceeded"),
    ),
    ("ends", Fault::Closes, Some(": EOF")),
    ("sleeps", Fault::Sleeps, Some("context deadline exceeded")),
    ("drips", Fault::Drips, Some("context deadline exceeded")),
    ("down", Fault::Down, Some("connect: connection refused")),
    ("mute", Fault::Mute, Some("context deadline exceeded")),
    (
        "expired",
        Fault::Expired,
        Some("x509: certificate has expired or is not yet valid"),
    ),
    (
        "another name",
        Fault::WrongName,
        Some("x509: certificate is valid for "),
    ),
];

/// An authority and its certificates.
struct Signer {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Signer {
    fn new(name: &str) -> Signer {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).expect("an authority").pem();
        Signer {
            pem,
            issuer: Issuer::new(params, key),
        }
    }

    fn acceptor(&self, name: &str, last_year: i32) -> TlsAcceptor {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(last_year, 1, 1);
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .expect("they fit");
        TlsAcceptor::from(Arc::new(config))
    }
}

/// A webhook that listens; it ends with the test's runtime.
async fn listen(fault: Fault, ours: &Signer, other: &Signer) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    let acceptor = match fault {
        Fault::Expired => ours.acceptor("127.0.0.1", 2021),
        Fault::WrongName => ours.acceptor("webhook.example.com", 2090),
        Fault::Stranger => other.acceptor("127.0.0.1", 2090),
        _ => ours.acceptor("127.0.0.1", 2090),
    };
    if matches!(fault, Fault::Down) {
        return address;
    }
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(serve(socket, acceptor, fault));
        }
    });
    address
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, fault: Fault) {
    if matches!(fault, Fault::Mute) {
        let _kept = socket;
        return std::future::pending().await;
    }
    // The other side may hang up: some of the cases are about that.
    if let Ok(mut stream) = acceptor.accept(socket).await {
        while let Some(uid) = review(&mut stream).await {
            if answer(&mut stream, fault, &uid).await.is_err() {
                return;
            }
        }
    }
}

/// Reads a request and finds the uid of its review.
async fn review(stream: &mut (impl AsyncRead + Unpin)) -> Option<String> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| {
                line.to_ascii_lowercase()
                    .strip_prefix("content-length:")?
                    .trim()
                    .parse::<usize>()
                    .ok()
            });
            if body.len() >= length.unwrap_or(0) {
                let review: Value = serde_json::from_str(body).ok()?;
                return Some(review["request"]["uid"].as_str()?.to_owned());
            }
        }
        if stream.read_buf(&mut request).await.ok()? == 0 {
            return None;
        }
    }
}

async fn answer(stream: &mut (impl AsyncWrite + Unpin), fault: Fault, uid: &str) -> std::io::Result<()> {
    let whole = |status: &str, content_type: &str, body: &str| {
        format!(
            "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    match fault {
        Fault::Answers(response) => {
            let response = response.replace("UID", uid);
            let body =
                format!(r#"{{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","response":{response}}}"#);
            stream
                .write_all(whole("200 OK", "application/json", &body).as_bytes())
                .await?;
        }
        Fault::Says(status, body) => {
            let content_type = if body == HTML { "text/html" } else { "application/json" };
            stream.write_all(whole(status, content_type, body).as_bytes()).await?;
        }
        Fault::Floods => {
            let body = format!(r#"{{"kind":"{}"}}"#, "x".repeat(10 << 20));
            stream
                .write_all(whole("200 OK", "application/json", &body).as_bytes())
                .await?;
        }
        Fault::Drips => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
                .await?;
            loop {
                stream.write_all(b"1\r\n \r\n").await?;
                stream.flush().await?;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        Fault::Sleeps => std::future::pending().await,
        _ => return Err(std::io::ErrorKind::ConnectionAborted.into()),
    }
    stream.flush().await
}

fn configuration(address: SocketAddr, policy: &str, ca: &str) -> DynamicObject {
    let configuration = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
        "metadata": { "name": "fault" },
        "webhooks": [{
            "name": "fault.example.com",
            "clientConfig": { "url": format!("https://{address}/mutate"), "caBundle": STANDARD.encode(ca) },
            "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"] }],
            "failurePolicy": policy, "timeoutSeconds": TIMEOUT, "sideEffects": "None", "admissionReviewVersions": ["v1"],
        }],
    });
    serde_json::from_value(configuration).expect("an object")
}

/// The answer about a ConfigMap while the webhook has this fault: the words behind the webhook's name, or nothing.
async fn told(cluster: &TestCluster, fault: Fault, policy: &str, signers: &[Signer; 2]) -> Result<Option<String>> {
    let [ours, other] = signers;
    let address = listen(fault, ours, other).await;
    let configurations = admission(cluster, "MutatingWebhookConfiguration");
    configurations
        .create(&PostParams::default(), &configuration(address, policy, &ours.pem))
        .await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(cluster.kube());
    let map = serde_json::from_value(json!({ "metadata": { "generateName": "m-" } })).expect("an object");
    let parameters = PostParams::default();
    let created = tokio::time::timeout(HANGS, maps.create(&parameters, &map)).await;
    let created = created.expect("the request is answered though its webhook fails");
    configurations.delete("fault", &DeleteParams::default()).await?;
    Ok(created.err().map(|error| match error {
        kubewright::kube::Error::Api(status) => format!("{} {}", status.code, status.message),
        other => other.to_string(),
    }))
}

#[tokio::test]
async fn what_a_failing_webhook_does_to_others() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let signers = [Signer::new("ours"), Signer::new("other")];
    let stranger = (
        "a stranger",
        Fault::Stranger,
        Some("x509: certificate signed by unknown authority"),
    );
    for (name, fault, expected) in CASES.into_iter().chain([stranger]) {
        let refused = told(&cluster, fault, "Fail", &signers).await?;
        match (&refused, expected) {
            (None, None) => {}
            (Some(said), Some(expected)) => {
                assert!(said.starts_with("500 Internal error occurred: "), "{name}: {said}");
                assert!(said.contains(expected), "{name}: {said}");
            }
            _ => panic!("{name}: {refused:?}"),
        }
        let ignored = told(&cluster, fault, "Ignore", &signers).await?;
        // A patch that cannot be applied is no failure of the call (`mutatingDispatcher.Dispatch`): the policy says
        // nothing of it.
        let expected = refused.filter(|said| !said.contains("failed calling webhook"));
        assert_eq!(ignored, expected, "{name}, ignored");
    }
    cluster.stop().await;
    Ok(())
}
