//! The webhook server over a real socket: the embedded API server calls it as kube-apiserver does.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use k8s_openapi::api::core::v1::Secret;
use kubewright::kube;
use kubewright::kube::ResourceExt as _;
use kubewright::kube::api::{Api, DynamicObject, PostParams};
use kubewright::webhook::{WebhookServer, configurations};
use kubewright::{Action, Context, Controller, Reconciler, Stop, StopSource};
use kubewright::{AdmissionRequest, Denied, Operator, Validator, Webhook};
use kubewright_cluster::WebhookCertificates;
use kubewright_testing::{Cluster, Controllers, Result, TestCluster};
use rustls::pki_types::{CertificateDer, ServerName, pem::PemObject as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::kinds::{v1, v2};
use super::{admission, guestbook, operator, words};

const NAMES: &[&str] = &["127.0.0.1", "localhost"];

struct Served {
    cluster: TestCluster,
    directory: tempfile::TempDir,
    certificates: WebhookCertificates,
    address: SocketAddr,
    stop: StopSource,
    running: JoinHandle<Result<(), kubewright::Error>>,
}

fn bundle(certificates: &WebhookCertificates) -> String {
    base64::engine::general_purpose::STANDARD.encode(certificates.ca())
}

/// The operator serves HTTPS on loopback; CRDs and configurations point there.
async fn served() -> Result<Served> {
    serve(operator()).await
}

async fn serve(operator: Operator) -> Result<Served> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let certificates = WebhookCertificates::new()?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    certificates.write(directory.path(), NAMES)?;
    let server = WebhookServer::new()
        .address("127.0.0.1:0")
        .certificate_dir(directory.path());
    let operator = operator.webhook_server(server);
    let (crds, descriptions) = (operator.crds()?, operator.webhooks());
    let manager = operator.manager(cluster.kube()).build()?;
    let address = manager.webhook_address();
    let (stop, stopped) = Stop::pair();
    let running = tokio::spawn(async move { manager.run(async move { stopped.requested().await }).await });
    let address = address.await;
    let reached = |path: &str| json!({"url": format!("https://{address}{path}"), "caBundle": bundle(&certificates)});
    for crd in crds {
        let mut crd = json!(crd);
        crd["spec"]["conversion"] = json!({
            "strategy": "Webhook",
            "webhook": {"clientConfig": reached("/convert"), "conversionReviewVersions": ["v1"]},
        });
        cluster
            .install_crds([serde_json::from_value(crd).expect("a CRD")])
            .await?;
    }
    for configuration in configurations("", &descriptions, |webhook| reached(&webhook.path)) {
        let configuration: DynamicObject = serde_json::from_value(configuration).expect("an object");
        let kind = configuration
            .types
            .as_ref()
            .map(|types| types.kind.clone())
            .unwrap_or_default();
        admission(&cluster, &kind)
            .create(&PostParams::default(), &configuration)
            .await?;
    }
    Ok(Served {
        cluster,
        directory,
        certificates,
        address,
        stop,
        running,
    })
}

impl Served {
    async fn create(&self, name: &str, spec: Value) -> Result<v1::Guestbook, kube::Error> {
        let mut guestbook = guestbook(spec);
        guestbook.metadata.name = Some(name.to_owned());
        let api: Api<v1::Guestbook> = Api::namespaced(self.cluster.kube(), "default");
        api.create(&PostParams::default(), &guestbook).await
    }

    /// Has the API server trust another authority for the defaulter.
    async fn trust(&self, certificates: &WebhookCertificates) -> Result<()> {
        let api = admission(&self.cluster, "MutatingWebhookConfiguration");
        let name = "mutating-webhook-configuration";
        let mut configuration = api.get(name).await?;
        configuration.data["webhooks"][0]["clientConfig"]["caBundle"] = json!(bundle(certificates));
        api.replace(name, &PostParams::default(), &configuration).await?;
        Ok(())
    }

    /// Sends one request of raw HTTP/1.1 and reads the whole answer.
    async fn raw(&self, request: &[u8]) -> String {
        let mut stream = self.send(request).await;
        let mut answer = Vec::new();
        // The server may close without saying goodbye after a body that it did not read.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// The certificate that a new connection is shown.
    async fn leaf(&self) -> CertificateDer<'static> {
        let stream = self.send(b"").await;
        let shown = stream.get_ref().1.peer_certificates().expect("a certificate");
        shown[0].clone().into_owned()
    }

    /// Sends raw bytes on a new connection.
    async fn send(&self, request: &[u8]) -> tokio_rustls::client::TlsStream<TcpStream> {
        let mut trusted = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(self.certificates.ca().as_bytes()).expect("a certificate");
        trusted.add(ca).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(trusted)
            .with_no_client_auth();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let socket = TcpStream::connect(self.address).await.expect("it listens");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = connector.connect(name, socket).await.expect("a handshake");
        assert_eq!(
            stream.get_ref().1.alpn_protocol(),
            Some(b"http/1.1".as_slice()),
            "HTTP/2 is off by default"
        );
        stream.write_all(request).await.expect("it reads");
        stream.flush().await.expect("it reads");
        stream
    }
}

#[tokio::test]
async fn the_api_server_calls_it_and_a_stop_ends_it() -> Result<()> {
    let served = served().await?;
    let created = served.create("hello", json!({"size": 3})).await?;
    assert_eq!(created.spec.title.as_deref(), Some("Welcome"));
    let refused = served.create("large", json!({"size": 101})).await;
    assert!(words(refused).starts_with("422 Invalid: admission webhook \"vguestbook-v1.kb.io\" denied the request: "));
    let v2: Api<v2::Guestbook> = Api::namespaced(served.cluster.kube(), "default");
    assert_eq!(v2.get("hello").await?.spec.pages.count, 3);

    served.stop.stop();
    served.running.await.expect("it does not panic")?;
    assert!(
        TcpStream::connect(served.address).await.is_err(),
        "nobody listens any more"
    );
    Ok(())
}

/// Tells the names of the Guestbooks that it is given in v2.
struct Tell(tokio::sync::mpsc::UnboundedSender<String>);

impl Reconciler for Tell {
    type Object = v2::Guestbook;

    async fn reconcile(&self, guestbook: Arc<v2::Guestbook>, _: Context) -> kubewright::Result<Action> {
        // The test may have heard enough.
        let _ = self.0.send(guestbook.name_any());
        Ok(Action::await_change())
    }
}

/// W6: the first list of a controller needs a conversion that the same operator serves.
#[tokio::test]
async fn w6_webhooks_are_served_before_the_caches_list() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let certificates = WebhookCertificates::new()?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    certificates.write(directory.path(), NAMES)?;
    let port = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port")
        .local_addr()
        .expect("an address");
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let operator = operator().controller(Controller::of(Tell(told))).webhook_server(
        WebhookServer::new()
            .address(port.to_string())
            .certificate_dir(directory.path()),
    );
    for crd in operator.crds()? {
        let mut crd = json!(crd);
        let reached = json!({"url": format!("https://{port}/convert"), "caBundle": bundle(&certificates)});
        crd["spec"]["conversion"] = json!({
            "strategy": "Webhook", "webhook": {"clientConfig": reached, "conversionReviewVersions": ["v1"]},
        });
        cluster
            .install_crds([serde_json::from_value(crd).expect("a CRD")])
            .await?;
    }
    let stored: Api<v1::Guestbook> = Api::namespaced(cluster.kube(), "default");
    stored
        .create(&PostParams::default(), &guestbook(json!({"size": 1})))
        .await?;
    let (stop, stopped) = Stop::pair();
    let running = tokio::spawn(operator.run(cluster.kube(), async move { stopped.requested().await }));
    assert_eq!(heard.recv().await.as_deref(), Some("hello"));
    stop.stop();
    running.await.expect("it does not panic")?;
    Ok(())
}

/// W5: new connections get the new certificate, a broken pair is not taken.
#[tokio::test]
async fn w5_certificates_are_read_again() -> Result<()> {
    let served = served().await?;
    served.create("before", json!({"size": 1})).await?;
    let next = WebhookCertificates::new()?;
    served.trust(&next).await?;
    let untrusted = words(served.create("untrusted", json!({"size": 1})).await);
    assert!(
        untrusted.contains("x509: certificate signed by unknown authority"),
        "{untrusted}"
    );

    // First half a pair, as a reader may meet it: the old one stays.
    std::fs::write(served.directory.path().join("tls.key"), "nonsense").expect("it is ours");
    next.write(served.directory.path(), NAMES)?;
    let mut created = served.create("after", json!({"size": 1})).await;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    while let Err(error) = &created {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new certificate is not served: {error}"
        );
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        created = served.create("after", json!({"size": 1})).await;
    }
    // The validator's configuration knows the old authority only: its connection was not dropped.
    served.stop.stop();
    Ok(())
}

/// W5: while a certificate gives way to the next one of its authority, no request fails.
#[tokio::test]
async fn w5_a_rotation_fails_no_request() -> Result<()> {
    let served = served().await?;
    let first = served.leaf().await;
    served.certificates.write(served.directory.path(), NAMES)?;
    let deadline = tokio::time::Instant::now() + std::time::Duration::from_secs(30);
    let mut number = 0;
    let mut create = async || {
        number += 1;
        served.create(&format!("under-load-{number}"), json!({"size": 1})).await
    };
    while served.leaf().await == first {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new certificate is not served"
        );
        create().await?;
    }
    for _ in 0..20 {
        create().await?;
    }
    served.stop.stop();
    Ok(())
}

/// W7, W1: a body that is not a review gets an answer in words, and nothing large is read.
#[tokio::test]
async fn w7_what_is_not_a_review_is_refused_in_words() -> Result<()> {
    let served = served().await?;
    let path = "/validate-webapp-my-domain-v1-guestbook";
    let head = |method: &str, path: &str, length: usize, kind: &str| {
        format!(
            "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        )
    };
    let json = "application/json";
    let post = |body: &str| (head("POST", path, body.len(), json) + body).into_bytes();
    let mut told = Vec::new();
    for request in [
        head("GET", path, 0, json).into_bytes(),
        head("POST", "/other", 0, json).into_bytes(),
        head("POST", path, 2, "text/plain").into_bytes(),
        head("POST", path, (7 << 20) + 1, json).into_bytes(),
        post(""),
        post("{"),
        post("[]"),
        post(r#"{"apiVersion": "v1", "kind": "Pod"}"#),
        post(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}"#),
        post(r#"{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "u"}}"#),
    ] {
        let answer = served.raw(&request).await;
        let code = answer.split_whitespace().nth(1).unwrap_or_default().to_owned();
        let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default()).unwrap_or_default();
        told.push(format!(
            "{code} {}: {}",
            body["reason"].as_str().unwrap_or("?"),
            body["message"].as_str().unwrap_or("?")
        ));
    }
    insta::assert_snapshot!(told.join("\n"));
    served.stop.stop();
    Ok(())
}

/// W7: clients that announce a body and send half of it take no place of those whose body is there.
#[tokio::test]
async fn w7_slow_clients_take_no_place() -> Result<()> {
    let served = served().await?;
    let head = "POST /convert?timeout=30s HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{";
    let mut slow = Vec::new();
    for _ in 0..140 {
        slow.push(served.send(head.as_bytes()).await);
    }
    let created = tokio::time::timeout(
        std::time::Duration::from_secs(9),
        served.create("hello", json!({"size": 3})),
    )
    .await;
    created.expect("nobody waits for the slow ones")?;
    served.stop.stop();
    Ok(())
}

/// Asked about anything, it waits for ever.
struct Hanging(watch::Sender<usize>);

impl Validator for Hanging {
    type Object = Secret;

    async fn create(&self, _: &Secret, _: &AdmissionRequest) -> Result<(), Denied> {
        self.0.send_modify(|asked| *asked += 1);
        std::future::pending().await
    }
}

/// W7: reviews take no place of conversions. A review may wait for a list whose objects are converted here.
#[tokio::test]
async fn w7_a_conversion_waits_for_no_review() -> Result<()> {
    let asked = watch::Sender::new(0);
    let hanging = Webhook::of::<Secret>().validator(Hanging(asked.clone()));
    let served = serve(operator().webhook(hanging)).await?;
    let post = |path: &str, body: &Value| {
        let body = body.to_string();
        let length = body.len();
        format!(
            "POST {path}?timeout=30s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        )
    };
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "operation": "CREATE", "name": "s", "namespace": "default",
        "kind": {"group": "", "version": "v1", "kind": "Secret"},
        "resource": {"group": "", "version": "v1", "resource": "secrets"},
        "object": {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}},
    }});
    let review = post("/validate--v1-secret", &review);
    let mut reviews = Vec::new();
    for _ in 0..140 {
        reviews.push(served.send(review.as_bytes()).await);
    }
    let all = async { asked.subscribe().wait_for(|asked| *asked >= 128).await.map(drop) };
    tokio::time::timeout(std::time::Duration::from_secs(25), all)
        .await
        .expect("as many are worked on as there may be")
        .expect("the server runs");
    let objects = [guestbook(json!({"size": 3}))];
    let request = json!({"uid": "u", "desiredAPIVersion": "webapp.my.domain/v2", "objects": objects});
    let conversion = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request});
    let conversion = post("/convert", &conversion);
    let mut first = reviews.swap_remove(0);
    let mut byte = [0];
    tokio::select! {
        biased;
        answer = served.raw(conversion.as_bytes()) => assert!(answer.starts_with("HTTP/1.1 200"), "{answer}"),
        _ = first.read(&mut byte) => panic!("a review was given up before the conversion was answered"),
    }
    served.stop.stop();
    Ok(())
}

/// W7: a conversion carries all the objects of a list.
#[tokio::test]
async fn w7_a_conversion_of_many_megabytes_is_answered() -> Result<()> {
    let served = served().await?;
    let title = "x".repeat(1000);
    let objects: Vec<Value> = (0..9000)
        .map(|number| {
            let mut object = guestbook(json!({"size": 3, "title": title}));
            object.metadata.name = Some(format!("g{number}"));
            json!(object)
        })
        .collect();
    let request = json!({"uid": "u", "desiredAPIVersion": "webapp.my.domain/v2", "objects": objects});
    let review =
        json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "request": request}).to_string();
    assert!(review.len() > 8 << 20);
    let head = format!(
        "POST /convert?timeout=30s HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        review.len()
    );
    let answer = served.raw((head + &review).as_bytes()).await;
    assert!(
        answer.starts_with("HTTP/1.1 200"),
        "{}",
        &answer[..answer.len().min(500)]
    );
    let body: Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1).unwrap_or_default()).expect("a review");
    let converted = body["response"]["convertedObjects"].as_array().map(Vec::len);
    assert_eq!(converted, Some(9000), "{}", body["response"]["result"]);
    served.stop.stop();
    Ok(())
}

/// A server without a certificate names the fix.
#[tokio::test]
async fn a_missing_certificate_is_explained() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let server = WebhookServer::new()
        .address("127.0.0.1:0")
        .certificate_dir(Path::new("/nowhere"));
    let manager = operator().webhook_server(server).manager(cluster.kube()).build()?;
    let error = manager
        .run(std::future::pending())
        .await
        .expect_err("there is no certificate");
    insta::assert_snapshot!(error.to_string(), @"the webhook server has no certificate: cannot read /nowhere/tls.crt: No such file or directory (os error 2). In a cluster cert-manager puts it there; name another directory with --webhook-cert-path, or set ENABLE_WEBHOOKS=false to run without webhooks (KWR0550)");
    Ok(())
}

/// An authority, and a certificate with its key that it signed.
fn signed(
    folder: &Path,
) -> (
    std::path::PathBuf,
    CertificateDer<'static>,
    rustls::pki_types::PrivateKeyDer<'static>,
) {
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = params.self_signed(&key).expect("an authority");
    let file = folder.join("clients.crt");
    std::fs::write(&file, authority.pem()).expect("it can be written");
    let issuer = rcgen::Issuer::new(params, key);
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).expect("a certificate");
    let key = rustls::pki_types::PrivatePkcs8KeyDer::from(key.serialize_der());
    (file, certificate.der().clone(), key.into())
}

/// Only who shows a certificate of the right authority is answered.
#[tokio::test]
async fn clients_show_a_certificate() -> Result<()> {
    let cluster = TestCluster::start_with(Cluster::builder().controllers(Controllers::None)).await?;
    let certificates = WebhookCertificates::new()?;
    let directory = tempfile::tempdir().expect("a temporary directory");
    certificates.write(directory.path(), NAMES)?;
    let (authorities, certificate, key) = signed(directory.path());
    let elsewhere = tempfile::tempdir().expect("a temporary directory");
    let (_, stranger, strangers_key) = signed(elsewhere.path());
    let server = WebhookServer::new()
        .address("127.0.0.1:0")
        .certificate_dir(directory.path())
        .client_authority(&authorities);
    let manager = operator().webhook_server(server).manager(cluster.kube()).build()?;
    let address = manager.webhook_address();
    let (_stop, stopped) = Stop::pair();
    tokio::spawn(async move { manager.run(async move { stopped.requested().await }).await });
    let address = address.await;
    for (shown, expected) in [
        (None, false),
        (Some((stranger, strangers_key)), false),
        (Some((certificate, key)), true),
    ] {
        let mut trusted = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(certificates.ca().as_bytes()).expect("a certificate");
        trusted.add(ca).expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(trusted);
        let config = match shown {
            None => config.with_no_client_auth(),
            Some((certificate, key)) => config.with_client_auth_cert(vec![certificate], key).expect("a pair"),
        };
        let socket = TcpStream::connect(address).await.expect("it listens");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let name = ServerName::try_from("localhost").expect("a name");
        let mut stream = connector
            .connect(name, socket)
            .await
            .expect("the server shows its certificate");
        let ask = b"GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let mut answer = Vec::new();
        // With TLS 1.3 a client learns of a refusal when it reads.
        let _ = stream.write_all(ask).await;
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8_lossy(&answer);
        assert_eq!(answer.starts_with("HTTP/1.1 404"), expected, "{answer}");
    }
    let missing = WebhookServer::new()
        .client_authority("/nowhere/clients.crt")
        .certificate_dir(directory.path());
    let manager = operator().webhook_server(missing).manager(cluster.kube()).build()?;
    let failed = manager
        .run(std::future::pending::<()>())
        .await
        .map_err(|error| error.to_string());
    assert!(
        failed.is_err_and(|why| why.contains("cannot read the authorities of webhook clients in /nowhere/clients.crt"))
    );
    Ok(())
}
