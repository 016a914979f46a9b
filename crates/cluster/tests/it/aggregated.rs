//! Group versions that another API server serves, behind an APIService: a server of this test, over TLS, which knows
//! the cluster's proxy by its certificate, as `extension-apiserver-authentication` says it, and answers with what it was
//! asked.
//!
//! What may go wrong, and what then:
//!
//! | what | then |
//! |---|---|
//! | the server is not there, or its certificate is another one's | not available, with the reason; 503 |
//! | it dies after it was available | 503 in words, and soon not available |
//! | it is silent, before its answer or within | 504, or the answer breaks off, when the time of the request is up |
//! | it answers no HTTP, or less than it announced | 503, or the answer breaks off: never a whole answer |
//! | its answer or its discovery is huge | the answer passes through; discovery is not read to its end |
//! | its discovery is garbage | its version is listed without resources, the others as before |
//! | it redirects | 502; the client is never sent anywhere |
//! | its APIService is deleted while it is watched | the watch goes on, new requests find nothing |
//! | a user says that it is another one (`X-Remote-User`, also through `Connection`) | the server hears who it is |
//! | a user has no rights | 403, and the server hears nothing |
//! | a user writes a path that servers read differently (`..`) | 400, and the server hears nothing |
//! | a user opens many requests that go on | 429 for it, and answers for others |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures::{SinkExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::kube_aggregator::pkg::apis::apiregistration::v1::APIService;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, Client};
use kubewright_cluster::{Cluster, Config, Controllers, Listening, StaticTokens};
use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;

use crate::common::scenes::{create, until};
use crate::common::{Answer, Who, ask, https_client, listening, raw, soon};

const GROUP: &str = "m.io";
const WIDGETS: &str = "/apis/m.io/v1/namespaces/default/widgets";
const JANE: (&str, &str) = ("Authorization", "Bearer jane-secret");
const MALLORY: (&str, &str) = ("Authorization", "Bearer mallory-secret");

/// What the other server was asked: the lines of each head, with `client` for the name in the client's certificate.
type Requests = Arc<Mutex<Vec<BTreeMap<String, String>>>>;

/// The other server.
struct Backend {
    ca_bundle: String,
    address: std::net::SocketAddr,
    heard: Requests,
    /// Lines of watches, and the end of what is silent.
    next: Arc<Notify>,
    /// What it says of its resources.
    discovery: Arc<Mutex<String>>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn resources() -> String {
    let widgets = json!({"name": "widgets", "singularName": "widget", "namespaced": true, "kind": "Widget",
        "verbs": ["get", "list", "watch"], "shortNames": ["wi"]});
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "m.io/v1", "resources": [widgets]})
        .to_string()
}

impl Backend {
    /// A server with a certificate for this name, which asks its clients for one of this authority.
    async fn start(name: &str, front_proxy: &str) -> Backend {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(front_proxy.as_bytes()).expect("a certificate"))
            .expect("an authority");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider.clone())
            .build()
            .expect("a verifier");
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_client_cert_verifier(clients)
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the key fits");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let (heard, next) = (Requests::default(), Arc::new(Notify::new()));
        let discovery = Arc::new(Mutex::new(resources()));
        let own = (heard.clone(), next.clone(), discovery.clone());
        let task = tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let (acceptor, (heard, next, discovery)) = (acceptor.clone(), own.clone());
                tokio::spawn(async move {
                    if let Ok(stream) = acceptor.accept(socket).await {
                        let _ = serve(stream, &heard, &next, &discovery).await;
                    }
                });
            }
        });
        Backend {
            ca_bundle: BASE64_STANDARD.encode(made.cert.pem()),
            address,
            heard,
            next,
            discovery,
            task,
        }
    }

    /// What it was asked at this path.
    fn heard_at(&self, path: &str) -> Vec<BTreeMap<String, String>> {
        let heard = self.heard.lock().unwrap();
        let of_path = |one: &&BTreeMap<String, String>| one["path"].split('?').next() == Some(path);
        heard.iter().filter(of_path).cloned().collect()
    }
}

/// Answers one request.
async fn serve(
    mut stream: TlsStream<TcpStream>,
    heard: &Requests,
    next: &Notify,
    discovery: &Mutex<String>,
) -> std::io::Result<()> {
    let mut read = Vec::new();
    let ends = loop {
        if let Some(at) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut read).await? == 0 {
            return Ok(());
        }
    };
    let head = String::from_utf8_lossy(&read[..ends]).into_owned();
    let mut lines = head.trim_end().split("\r\n");
    let line: Vec<&str> = lines.next().unwrap_or("").split(' ').collect();
    let mut said: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in lines.filter_map(|line| line.split_once(": ")) {
        let all = said.entry(name.to_lowercase()).or_default();
        *all = [all.as_str(), value].join(if all.is_empty() { "" } else { "," });
    }
    let length = said
        .get("content-length")
        .map_or(0, |length| length.parse().expect("a number"));
    while read.len() < ends + length {
        stream.read_buf(&mut read).await?;
    }
    said.insert("method".to_owned(), line[0].to_owned());
    said.insert("path".to_owned(), line[1].to_owned());
    said.insert("body".to_owned(), String::from_utf8_lossy(&read[ends..]).into_owned());
    let shown = stream.get_ref().1.peer_certificates().and_then(|shown| shown.first());
    let is_proxy = shown.is_some_and(|shown| shown.windows(18).any(|part| part == b"front-proxy-client"));
    said.insert(
        "client".to_owned(),
        if is_proxy { "front-proxy-client" } else { "" }.to_owned(),
    );
    heard.lock().unwrap().push(said.clone());
    let path = line[1].split('?').next().unwrap_or("");
    let whole = |code: &str, body: &str| {
        format!(
            "HTTP/1.1 {code}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let answer = match path {
        "/apis/m.io/v1" => whole("200 OK", &discovery.lock().unwrap().clone()),
        "/openapi/v3" => {
            let url = json!({"serverRelativeURL": "/openapi/v3/apis/m.io/v1?hash=ABC"});
            whole(
                "200 OK",
                &json!({"paths": {"apis/m.io/v1": url, "apis/apps/v1": url}}).to_string(),
            )
        }
        _ if path.ends_with("/silent") => {
            next.notified().await;
            return Ok(());
        }
        _ if path.ends_with("/stalled") => {
            stream
                .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart")
                .await?;
            stream.flush().await?;
            next.notified().await;
            return Ok(());
        }
        _ if path.ends_with("/cut") => "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\npart".to_owned(),
        _ if path.ends_with("/garbage") => "this is no HTTP\r\n\r\n".to_owned(),
        _ if path.ends_with("/redirect") => {
            "HTTP/1.1 307 Moved\r\nLocation: https://evil.example/\r\nContent-Length: 0\r\n\r\n".to_owned()
        }
        _ if path.ends_with("/huge") => whole("200 OK", &"x".repeat(20 << 20)),
        _ if said.get("upgrade").is_some_and(|upgrade| upgrade == "websocket") => {
            let accept =
                tokio_tungstenite::tungstenite::handshake::derive_accept_key(said["sec-websocket-key"].as_bytes());
            let head = format!(
                "HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            let role = tokio_tungstenite::tungstenite::protocol::Role::Server;
            let mut socket = tokio_tungstenite::WebSocketStream::from_raw_socket(stream, role, None).await;
            while let Some(Ok(message)) = socket.next().await {
                if message.is_text() && socket.send(Message::text(format!("heard {message}"))).await.is_err() {
                    break;
                }
            }
            return Ok(());
        }
        _ if line[1].contains("watch=") => {
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await?;
            for number in 0.. {
                let event = format!("{}\n", json!({"type": "ADDED", "object": {"number": number}}));
                let chunk = format!("{:x}\r\n{event}\r\n", event.len());
                stream.write_all(chunk.as_bytes()).await?;
                stream.flush().await?;
                next.notified().await;
            }
            return Ok(());
        }
        _ => whole("201 Created", &json!(said).to_string()),
    };
    stream.write_all(answer.as_bytes()).await?;
    stream.flush().await?;
    stream.shutdown().await
}

/// A cluster in which Jane and Mallory have tokens, and an administrator's client.
async fn cluster(change: impl FnOnce(&mut Config)) -> (Cluster, Listening, Client) {
    let mut config = Config {
        static_tokens: StaticTokens::parse(
            "jane-secret,jane,7,\"dev,ops\"\nmallory-secret,mallory,8,dev\nroot-secret,root,9,system:masters\n",
        )
        .expect("a file of tokens"),
        loopback_endpoints: true,
        ..Config::default()
    };
    change(&mut config);
    let builder = Cluster::builder().controllers(Controllers::None).api(config);
    let (cluster, listening) = listening(builder).await;
    let client = https_client(&listening).await;
    grant(&client, "jane").await;
    (cluster, listening, client)
}

/// Everything in the group, for a user.
async fn grant(client: &Client, user: &str) {
    let role = json!({"metadata": {"name": format!("all-{user}")},
        "rules": [{"apiGroups": [GROUP], "resources": ["*"], "verbs": ["*"]}]});
    let binding = json!({"metadata": {"name": format!("all-{user}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("all-{user}")},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}]});
    let roles: Api<k8s_openapi::api::rbac::v1::ClusterRole> = Api::all(client.clone());
    let bindings: Api<k8s_openapi::api::rbac::v1::ClusterRoleBinding> = Api::all(client.clone());
    create(&roles, role).await;
    create(&bindings, binding).await;
}

async fn front_proxy(client: &Client) -> String {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "kube-system");
    let map = maps
        .get("extension-apiserver-authentication")
        .await
        .expect("it is there");
    let data = map.data.expect("it has data");
    assert_eq!(data["requestheader-allowed-names"], r#"["front-proxy-client"]"#);
    assert_eq!(data["requestheader-username-headers"], r#"["X-Remote-User"]"#);
    assert_eq!(data["requestheader-uid-headers"], r#"["X-Remote-Uid"]"#);
    assert_eq!(data["requestheader-group-headers"], r#"["X-Remote-Group"]"#);
    assert_eq!(data["requestheader-extra-headers-prefix"], r#"["X-Remote-Extra-"]"#);
    assert_ne!(data["requestheader-client-ca-file"], data["client-ca-file"]);
    data["requestheader-client-ca-file"].clone()
}

fn api_service(spec: &Value) -> Value {
    let mut whole = json!({"group": GROUP, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10,
        "service": {"namespace": "default", "name": "backend", "port": 443}});
    for (field, value) in spec.as_object().into_iter().flatten() {
        whole[field] = value.clone();
    }
    json!({"metadata": {"name": "v1.m.io"}, "spec": whole})
}

/// The Service and its endpoint.
async fn announce(client: &Client, backend: &Backend) {
    let services: Api<Service> = Api::default_namespaced(client.clone());
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    let service = json!({"metadata": {"name": "backend"}, "spec": {"ports": [{"port": 443, "name": "https"}]}});
    create(&services, service).await;
    let (ip, port) = (backend.address.ip(), backend.address.port());
    let slice = json!({"metadata": {"name": "backend-1", "labels": {"kubernetes.io/service-name": "backend"}},
        "addressType": "IPv4", "endpoints": [{"addresses": [ip]}], "ports": [{"name": "https", "port": port}]});
    create(&slices, slice).await;
}

/// Waits until the condition says this.
async fn is_available(client: &Client, status: &str, reason: &str) -> String {
    let services: Api<APIService> = Api::all(client.clone());
    let said = |service: Option<&APIService>| {
        let conditions = service.and_then(|service| service.status.as_ref()?.conditions.as_ref());
        let first = conditions.and_then(|conditions| conditions.first());
        first.map(|first| (first.status.clone(), first.reason.clone(), first.message.clone()))
    };
    let found = until(&services, "v1.m.io", |service| {
        said(service).is_some_and(|(found, why, _)| found == status && why.as_deref() == Some(reason))
    });
    let found = found.await;
    said(found.as_ref())
        .and_then(|(_, _, message)| message)
        .unwrap_or_default()
}

/// A cluster with another server that is available.
async fn joined(change: impl FnOnce(&mut Config)) -> (Cluster, Listening, Client, Backend) {
    let (cluster, listening, client) = cluster(change).await;
    let backend = Backend::start("backend.default.svc", &front_proxy(&client).await).await;
    announce(&client, &backend).await;
    let services: Api<APIService> = Api::all(client.clone());
    create(&services, api_service(&json!({"caBundle": backend.ca_bundle}))).await;
    is_available(&client, "True", "Passed").await;
    (cluster, listening, client, backend)
}

async fn get(listening: &Listening, user: (&str, &str), path: &str) -> Answer {
    ask(listening, Who::Nobody, "GET", path, &[user], b"").await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_other_server_hears_what_was_authorized_and_who_asks() {
    let (cluster, listening, _, backend) = joined(|_| ()).await;
    let forged = [
        JANE,
        ("X-Remote-User", "root"),
        ("X_Remote_User", "root"),
        ("X-Remote-Group", "system:masters"),
        ("X-Remote-Extra-Scopes", "all"),
        ("X-Remote-Uid", "0"),
        ("Connection", "X-Remote-User, X-Remote-Group"),
        ("Content-Type", "application/json"),
        ("Accept", "application/json"),
    ];
    let path = format!("{WIDGETS}?fieldManager=a%20b");
    let answer = ask(&listening, Who::Nobody, "POST", &path, &forged, b"{\"a\":1}").await;
    assert_eq!(answer.code, 201, "{answer:?}");
    let heard = answer.json();
    for (name, expected) in [
        ("method", "POST"),
        ("path", "/apis/m.io/v1/namespaces/default/widgets?fieldManager=a%20b"),
        ("body", "{\"a\":1}"),
        ("client", "front-proxy-client"),
        ("x-remote-user", "jane"),
        ("x-remote-uid", "7"),
        ("x-remote-group", "dev,ops,system:authenticated"),
        ("content-type", "application/json"),
        ("host", "backend.default.svc"),
    ] {
        assert_eq!(heard[name], expected, "{name}: {heard}");
    }
    for absent in ["authorization", "x_remote_user", "x-remote-extra-scopes", "connection"] {
        assert!(heard.get(absent).is_none(), "{absent}: {heard}");
    }

    // One who may impersonate is heard as whom he becomes, and his own headers do not go on.
    let root = ("Authorization", "Bearer root-secret");
    let headers = [
        root,
        ("Impersonate-User", "jane"),
        ("Impersonate-Group", "dev"),
        ("Impersonate-Extra-a", "b"),
    ];
    let answer = ask(&listening, Who::Nobody, "GET", WIDGETS, &headers, b"").await;
    let heard = answer.json();
    assert_eq!(heard["x-remote-user"], "jane");
    assert_eq!(heard["x-remote-group"], "dev,system:authenticated");
    assert_eq!(heard["x-remote-extra-a"], "b");
    assert!(heard.get("impersonate-user").is_none(), "{heard}");

    // Who may not is not heard at all; nor is a path that the other server may read as another one.
    let count = backend.heard_at(WIDGETS).len();
    let refused = ask(
        &listening,
        Who::Nobody,
        "GET",
        WIDGETS,
        &[MALLORY, ("X-Remote-User", "jane")],
        b"",
    )
    .await;
    assert_eq!(refused.code, 403, "{refused:?}");
    assert!(
        refused
            .body
            .contains("User \\\"mallory\\\" cannot list resource \\\"widgets\\\" in API group \\\"m.io\\\"")
    );
    assert_eq!(get(&listening, ("X-Remote-User", "jane"), WIDGETS).await.code, 403);
    for path in [
        "default/../b/widgets",
        "default/%2e%2E/b/widgets",
        "default%2F..%2Fb/widgets",
        "a//widgets",
    ] {
        let path = format!("/apis/m.io/v1/namespaces/{path}");
        let refused = get(&listening, JANE, &path).await;
        assert_eq!(refused.code, 400, "{path}: {refused:?}");
    }
    assert_eq!(backend.heard_at(WIDGETS).len(), count);
    let heard = backend.heard.lock().unwrap().clone();
    assert!(heard.iter().all(|one| !one["path"].contains("/b/widgets")), "{heard:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn its_failures_are_answers() {
    let (cluster, listening, client, backend) = joined(|_| ()).await;
    let check = async |what: &str, code: u16, said: &str| {
        let answer = get(&listening, JANE, &format!("{WIDGETS}/{what}")).await;
        assert_eq!(answer.code, code, "{what}: {answer:?}");
        assert!(answer.body.contains(said), "{what}: {answer:?}");
        assert!(!answer.head.to_lowercase().contains("location:"), "{what}: {answer:?}");
    };
    check(
        "redirect",
        502,
        "the backend attempted to redirect this request, which is not permitted",
    )
    .await;
    check("garbage", 503, "error trying to reach service: ").await;
    check(
        "silent?timeout=1s",
        504,
        "request did not complete within the allotted timeout",
    )
    .await;
    let answer = ask(
        &listening,
        Who::Nobody,
        "POST",
        &format!("{WIDGETS}/silent?timeout=1s"),
        &[JANE],
        b"{}",
    )
    .await;
    assert_eq!(answer.code, 504, "{answer:?}");
    let huge = get(&listening, JANE, &format!("{WIDGETS}/huge")).await;
    assert_eq!((huge.code, huge.body.len()), (200, 20 << 20));
    // What breaks off within an answer cannot be told in words: the connection ends before the announced length.
    for what in ["cut", "stalled?timeout=1s"] {
        let mut stream = raw(&listening, Who::Nobody).await;
        let head = format!(
            "GET {WIDGETS}/{what} HTTP/1.1\r\nHost: localhost\r\n{}: {}\r\n\r\n",
            JANE.0, JANE.1
        );
        stream.write_all(head.as_bytes()).await.expect("it is taken");
        let mut bytes = Vec::new();
        let _ = soon("the end", stream.read_to_end(&mut bytes)).await;
        let text = String::from_utf8_lossy(&bytes).to_lowercase();
        assert!(text.contains("content-length: 100"), "{what}: {text}");
        assert!(text.ends_with("\r\n\r\npart"), "{what}: {text}");
    }
    // It dies.
    backend.task.abort();
    let gone = get(&listening, JANE, WIDGETS).await;
    assert_eq!(gone.code, 503, "{gone:?}");
    assert!(
        gone.body
            .starts_with("error trying to reach service: dial tcp 127.0.0.1:"),
        "{gone:?}"
    );
    // Whatever is written at its Service has it asked again.
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    slices
        .patch("backend-1", &PatchParams::default(), &Patch::Merge(label))
        .await
        .expect("it is written");
    let why = is_available(&client, "False", "FailedDiscoveryCheck").await;
    assert!(
        why.starts_with("failing or missing response from https://10.0.0."),
        "{why}"
    );
    assert!(why.ends_with("connect: connection refused"), "{why}");
    let gone = get(&listening, JANE, WIDGETS).await;
    assert_eq!((gone.code, gone.body.as_str()), (503, "service unavailable\n"));
    assert_eq!(get(&listening, MALLORY, WIDGETS).await.code, 403, "rights come first");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn it_is_available_when_the_way_there_is_open() {
    let (cluster, listening, client) = cluster(|_| ()).await;
    let services: Api<APIService> = Api::all(client.clone());
    let front_proxy = front_proxy(&client).await;
    let backend = Backend::start("backend.default.svc", &front_proxy).await;
    let other = Backend::start("backend.default.svc", &front_proxy).await;
    create(&services, api_service(&json!({"caBundle": other.ca_bundle}))).await;
    is_available(&client, "False", "ServiceNotFound").await;
    assert_eq!(get(&listening, JANE, WIDGETS).await.code, 503);
    announce(&client, &backend).await;
    // Its certificate is not of the authority that is trusted.
    let why = is_available(&client, "False", "FailedDiscoveryCheck").await;
    assert!(why.contains("x509: certificate signed by unknown authority"), "{why}");
    assert!(backend.heard.lock().unwrap().is_empty(), "it was told nothing");
    let change = async |spec: Value| {
        let patch = Patch::Merge(json!({"spec": spec}));
        services
            .patch("v1.m.io", &PatchParams::default(), &patch)
            .await
            .expect("it is written");
    };
    change(json!({"caBundle": backend.ca_bundle})).await;
    is_available(&client, "True", "Passed").await;
    assert_eq!(get(&listening, JANE, WIDGETS).await.code, 201);
    // Not even its own certificate is asked for.
    change(json!({"caBundle": null, "insecureSkipTLSVerify": true})).await;
    is_available(&client, "True", "Passed").await;
    assert_eq!(get(&listening, JANE, WIDGETS).await.code, 201);
    // It is asked as the cluster.
    let heard = backend.heard_at("/apis/m.io/v1");
    let asked = heard
        .iter()
        .find(|one| one["x-remote-user"] == "system:kube-aggregator");
    assert_eq!(asked.expect("it was asked")["x-remote-group"], "system:masters");
    let backing: Api<Service> = Api::default_namespaced(client.clone());
    backing
        .delete("backend", &DeleteParams::default())
        .await
        .expect("it is there");
    is_available(&client, "False", "ServiceNotFound").await;
    services
        .delete("v1.m.io", &DeleteParams::default())
        .await
        .expect("it is there");
    let gone = get(&listening, JANE, WIDGETS).await;
    assert_eq!((gone.code, gone.body.as_str()), (404, "404 page not found\n"));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn discovery_and_openapi_tell_of_it() {
    let (cluster, listening, client, backend) = joined(|_| ()).await;
    let root = ("Authorization", "Bearer root-secret");
    const AGGREGATED: (&str, &str) = (
        "Accept",
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
    );
    let groups = async || {
        let answer = ask(&listening, Who::Nobody, "GET", "/apis", &[root, AGGREGATED], b"").await;
        let groups = answer.json()["items"].as_array().cloned().unwrap_or_default();
        let own = groups.iter().find(|group| group["metadata"]["name"] == GROUP);
        (groups.len(), own.cloned().unwrap_or_default())
    };
    let (count, own) = groups().await;
    let kind = json!({"group": "", "version": "", "kind": "Widget"});
    let widgets = json!({"resource": "widgets", "responseKind": kind, "scope": "Namespaced",
        "singularResource": "widget", "verbs": ["get", "list", "watch"], "shortNames": ["wi"]});
    let version = json!({"version": "v1", "resources": [widgets], "freshness": "Current"});
    assert_eq!(own["versions"], json!([version]));
    let legacy = get(&listening, root, "/apis").await.json();
    let listed = legacy["groups"]
        .as_array()
        .into_iter()
        .flatten()
        .any(|group| group["name"] == GROUP);
    assert!(listed, "{legacy}");
    let group = get(&listening, root, "/apis/m.io").await.json();
    assert_eq!(group["preferredVersion"]["groupVersion"], "m.io/v1");
    let resources = get(&listening, root, "/apis/m.io/v1").await.json();
    assert_eq!(resources["resources"][0]["name"], "widgets");
    // Its document is listed with its hash, and answered by it; of others it says nothing.
    let index = get(&listening, root, "/openapi/v3").await.json();
    let url = "/openapi/v3/apis/m.io/v1?hash=ABC";
    assert_eq!(index["paths"]["apis/m.io/v1"]["serverRelativeURL"], url);
    assert_ne!(index["paths"]["apis/apps/v1"]["serverRelativeURL"], url);
    assert_eq!(get(&listening, root, url).await.json()["path"], url);

    // What it tells is garbage from now on, or endless: only its own entry suffers.
    let slices: Api<EndpointSlice> = Api::default_namespaced(client.clone());
    for (number, told) in ["{\"kind\": [".to_owned(), "x".repeat(4 << 20)].into_iter().enumerate() {
        *backend.discovery.lock().unwrap() = told;
        let before = backend.heard_at("/apis/m.io/v1").len();
        let label = json!({"metadata": {"labels": {"a": number.to_string()}}});
        let patch = Patch::Merge(label);
        slices
            .patch("backend-1", &PatchParams::default(), &patch)
            .await
            .expect("it is written");
        if number == 1 {
            let why = is_available(&client, "False", "FailedDiscoveryCheck").await;
            assert!(why.ends_with("the answer has more than 3145728 bytes"), "{why}");
        } else {
            let asked = async {
                while backend.heard_at("/apis/m.io/v1").len() == before {
                    tokio::task::yield_now().await;
                }
            };
            soon("a question", asked).await;
        }
        let (now, own) = groups().await;
        assert_eq!(now, count);
        assert_eq!(own["versions"][0]["version"], "v1");
        assert_eq!(
            own["versions"][0]["resources"][0]["resource"], "widgets",
            "what it told last"
        );
    }
    let (_, own) = groups().await;
    assert_eq!(own["versions"][0]["freshness"], "Stale");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn watches_and_other_protocols_pass() {
    let (cluster, listening, client, backend) = joined(|_| ()).await;
    let mut stream = raw(&listening, Who::Nobody).await;
    let head = format!(
        "GET {WIDGETS}?watch=true HTTP/1.1\r\nHost: localhost\r\n{}: {}\r\n\r\n",
        JANE.0, JANE.1
    );
    stream.write_all(head.as_bytes()).await.expect("it is taken");
    let mut read = Vec::new();
    let mut event = async |number: u32| {
        let wanted = format!("\"number\":{number}");
        let reading = async {
            while !String::from_utf8_lossy(&read).contains(&wanted) {
                assert_ne!(stream.read_buf(&mut read).await.expect("it goes on"), 0);
            }
        };
        soon("an event", reading).await;
    };
    event(0).await;
    backend.next.notify_one();
    event(1).await;

    let mut request = http::Request::get(format!("wss://localhost{WIDGETS}/a/attach"))
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", generate_key());
    request = request.header(JANE.0, JANE.1);
    let socket = tokio_tungstenite::client_async(request.body(()).unwrap(), raw(&listening, Who::Nobody).await);
    let (mut socket, _) = soon("a WebSocket", socket).await.expect("it becomes a WebSocket");
    socket.send(Message::text("hello")).await.expect("it is taken");
    let said = soon("a message", socket.next())
        .await
        .expect("it goes on")
        .expect("a message");
    assert_eq!(said, Message::text("heard hello"));
    assert_eq!(
        backend.heard_at(&format!("{WIDGETS}/a/attach"))[0]["x-remote-user"],
        "jane"
    );

    // The APIService goes: what goes on goes on, and what is new finds nothing.
    let services: Api<APIService> = Api::all(client.clone());
    services
        .delete("v1.m.io", &DeleteParams::default())
        .await
        .expect("it is there");
    assert_eq!(get(&listening, JANE, WIDGETS).await.code, 404);
    backend.next.notify_one();
    event(2).await;
    socket.send(Message::text("still")).await.expect("it is taken");
    let said = soon("a message", socket.next())
        .await
        .expect("it goes on")
        .expect("a message");
    assert_eq!(said, Message::text("heard still"));
    cluster.stop().await;
}

/// However many requests of one user go on there, another one is answered.
#[tokio::test(flavor = "multi_thread")]
async fn who_asks_too_much_takes_nobody_s_share() {
    const ALL: usize = 8;
    let (cluster, listening, client, _backend) = joined(|config| config.max_watches = ALL).await;
    grant(&client, "mallory").await;
    let mut held = Vec::new();
    let refused = loop {
        let mut stream = raw(&listening, Who::Nobody).await;
        let (name, value) = MALLORY;
        let head = format!("GET {WIDGETS}?watch=true HTTP/1.1\r\nHost: localhost\r\n{name}: {value}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.expect("it is taken");
        let mut read = Vec::new();
        while !String::from_utf8_lossy(&read).contains("\r\n\r\n") {
            assert_ne!(soon("a head", stream.read_buf(&mut read)).await.expect("it goes on"), 0);
        }
        held.push(stream);
        let text = String::from_utf8_lossy(&read).into_owned();
        if !text.starts_with("HTTP/1.1 200") {
            break text;
        }
        assert!(held.len() < ALL, "one user takes everything");
    };
    assert!(
        refused.starts_with("HTTP/1.1 429") && refused.contains("retry-after: 1"),
        "{refused}"
    );
    assert_eq!(get(&listening, JANE, WIDGETS).await.code, 201);
    // What ends gives its share back.
    drop(held);
    let again = async {
        while get(&listening, MALLORY, WIDGETS).await.code == 429 {
            tokio::task::yield_now().await;
        }
    };
    soon("a share", again).await;
    cluster.stop().await;
}

/// An APIService decides for a group version that this server has, too; but for its own group.
#[tokio::test(flavor = "multi_thread")]
async fn the_api_service_decides() {
    let (cluster, listening, client, backend) = joined(|_| ()).await;
    let services: Api<APIService> = Api::all(client.clone());
    let root = ("Authorization", "Bearer root-secret");
    let service = json!({"namespace": "default", "name": "backend", "port": 443});
    let patch = Patch::Merge(json!({"spec": {"service": service, "caBundle": backend.ca_bundle}}));
    const LEASES: &str = "/apis/coordination.k8s.io/v1/leases";
    assert_eq!(get(&listening, root, LEASES).await.json()["kind"], "LeaseList");
    services
        .patch("v1.coordination.k8s.io", &PatchParams::default(), &patch)
        .await
        .expect("it is written");
    let waiting = async {
        loop {
            let answer = get(&listening, root, LEASES).await;
            match answer.code {
                503 => {}
                201 => break answer.json(),
                _ => panic!("{answer:?}"),
            }
        }
    };
    assert_eq!(soon("an answer", waiting).await["path"], LEASES);
    let patch = Patch::Merge(json!({"spec": {"service": null, "caBundle": null}}));
    services
        .patch("v1.coordination.k8s.io", &PatchParams::default(), &patch)
        .await
        .expect("it is written");
    assert_eq!(get(&listening, root, LEASES).await.json()["kind"], "LeaseList");
    cluster.stop().await;
}
