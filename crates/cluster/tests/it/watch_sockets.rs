//! Watches over WebSockets, as browsers and the Java client of fabric8 begin them; said and refused as kube-apiserver
//! does.

use crate::common::{Who, ask, https_client, listening, raw, soon};
use futures::{SinkExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kubewright_cluster::{Cluster, Config, Controllers, Listening, StaticTokens};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true&fieldSelector=metadata.name%3Dseen";

type Socket = WebSocketStream<TlsStream<TcpStream>>;

/// A watch over a WebSocket.
async fn watch(
    listening: &Listening,
    path: &str,
    headers: &[(&str, &str)],
) -> (Socket, http::Response<Option<Vec<u8>>>) {
    let mut request = http::Request::get(format!("wss://localhost{path}"))
        .header("host", "localhost")
        .header("connection", "Upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", generate_key())
        .header("origin", "https://localhost");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let stream = raw(listening, Who::Admin).await;
    let begun = tokio_tungstenite::client_async(request.body(()).expect("a request"), stream);
    soon("a WebSocket", begun).await.expect("it becomes a WebSocket")
}

/// The next message.
async fn next(socket: &mut Socket) -> Message {
    let message = soon("a message", socket.next()).await;
    message.expect("the socket goes on").expect("a message")
}

async fn server() -> (Cluster, Listening, Api<ConfigMap>) {
    let (cluster, listening) = listening(Cluster::builder().controllers(Controllers::None)).await;
    let api = Api::default_namespaced(https_client(&listening).await);
    (cluster, listening, api)
}

fn seen() -> ConfigMap {
    let mut seen = ConfigMap::default();
    seen.metadata.name = Some("seen".to_owned());
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn each_event_is_a_message() {
    let (_cluster, listening, api) = server().await;
    let (mut socket, _) = watch(&listening, WATCH, &[]).await;
    // A client's messages have no effect, and a ping is answered.
    socket.send(Message::Ping("there".into())).await.expect("it is taken");
    socket.send(Message::Text("words".into())).await.expect("it is taken");
    assert_eq!(next(&mut socket).await, Message::Pong("there".into()));
    for turn in ["first", "second"] {
        api.create(&PostParams::default(), &seen()).await.expect(turn);
        api.delete("seen", &DeleteParams::default()).await.expect(turn);
        for kind in ["ADDED", "DELETED"] {
            let message = next(&mut socket).await;
            let text = message.to_text().expect("JSON comes as text");
            assert!(message.is_text() && text.ends_with("}\n"), "{turn}: {text:?}");
            let event: serde_json::Value = serde_json::from_str(text).expect("one event");
            assert_eq!(
                (event["type"].as_str(), event["object"]["metadata"]["name"].as_str()),
                (Some(kind), Some("seen"))
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn protobuf_comes_as_bytes() {
    let (_cluster, listening, api) = server().await;
    api.create(&PostParams::default(), &seen())
        .await
        .expect("it is created");
    let accept = [("accept", "application/vnd.kubernetes.protobuf;stream=watch")];
    let (mut socket, _) = watch(&listening, WATCH, &accept).await;
    let message = next(&mut socket).await;
    // A WatchEvent, without the length that stands before it in a stream.
    assert!(
        message.is_binary() && message.clone().into_data().starts_with(b"\n\x05ADDED\x12"),
        "{message:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_end_is_said() {
    let (cluster, listening, _) = server().await;
    let ends_well = |message: Message| match message {
        Message::Close(Some(close)) => assert_eq!(close.code, CloseCode::Normal),
        other => panic!("{other:?}"),
    };
    let (mut socket, _) = watch(&listening, &format!("{WATCH}&timeoutSeconds=1"), &[]).await;
    ends_well(next(&mut socket).await);
    let (mut socket, _) = watch(&listening, WATCH, &[]).await;
    let ((), message) = tokio::join!(cluster.stop(), next(&mut socket));
    ends_well(message);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_get_one() {
    let (_cluster, listening, _) = server().await;
    let (_socket, answer) = watch(&listening, WATCH, &[("sec-websocket-protocol", "any")]).await;
    assert_eq!(answer.headers()["sec-websocket-protocol"], "any");

    let well: [(&str, &str); 5] = [
        ("connection", "keep-alive, Upgrade"),
        ("upgrade", "WebSocket"),
        ("sec-websocket-version", "13"),
        ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ("origin", "https://localhost"),
    ];
    let check = async |without: &str, instead: &[(&str, &str)], path: &str, code: u16, body: &str| {
        let kept = well.iter().filter(|(name, _)| *name != without);
        let headers: Vec<_> = kept.chain(instead).copied().collect();
        let answer = ask(&listening, Who::Admin, "GET", path, &headers, b"").await;
        assert_eq!(answer.code, code, "without {without}, {instead:?}: {answer:?}");
        assert!(answer.body.contains(body), "without {without}, {instead:?}: {answer:?}");
    };
    let version = "missing or bad WebSocket Version";
    check("origin", &[], WATCH, 403, "").await;
    check("sec-websocket-version", &[], WATCH, 400, version).await;
    check(
        "sec-websocket-version",
        &[("sec-websocket-version", "99")],
        WATCH,
        400,
        version,
    )
    .await;
    check("sec-websocket-key", &[], WATCH, 400, "mismatch challenge/response").await;
    check("", &[("sec-websocket-protocol", "a, b")], WATCH, 400, "").await;
    // A request that is not a watch is answered as ever, and so is a watch that is refused.
    check("", &[], "/api/v1/namespaces/default", 200, "\"Namespace\"").await;
    check("", &[], "/api/v1/nothing?watch=true", 404, "404").await;
    // Another protocol does not count as an upgrade.
    let ends = format!("{WATCH}&timeoutSeconds=1");
    check("upgrade", &[("upgrade", "SPDY/3.1")], &ends, 200, "").await;
}

/// Answered as kube-apiserver 1.36 answers the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_may_be_a_protocol() {
    let static_tokens = StaticTokens::parse("secret,jane,7,system:masters\n").expect("a file of tokens");
    let config = Config {
        static_tokens,
        ..Config::default()
    };
    let server = Cluster::builder().controllers(Controllers::None).api(config);
    let (_cluster, listening) = listening(server).await;
    let check = async |protocols: &str, code: u16, chosen: Option<&str>| {
        let headers = [
            ("connection", "Upgrade"),
            ("upgrade", "websocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
            ("origin", "https://localhost"),
            ("sec-websocket-protocol", protocols),
        ];
        let ends = format!("{WATCH}&timeoutSeconds=1");
        let answer = ask(&listening, Who::Nobody, "GET", &ends, &headers, b"").await;
        assert_eq!(answer.code, code, "{protocols}: {answer:?}");
        let mut lines = answer.head.lines();
        let said = lines.find_map(|line| line.strip_prefix("sec-websocket-protocol: "));
        assert_eq!(said, chosen, "{protocols}: {answer:?}");
    };
    let prefixed = |token: &str| format!("base64url.bearer.authorization.k8s.io.{token}");
    let (right, wrong) = (prefixed("c2VjcmV0"), prefixed("d3Jvbmc"));
    check(&format!("{right}, any"), 101, Some("any")).await;
    check(&format!("any,{right}"), 101, Some("any")).await;
    check(&right, 401, None).await;
    check(&format!("{wrong}, any"), 401, None).await;
    check(&format!("{}, any", prefixed("***")), 401, None).await;
    check(&format!("{right},{right}, any"), 401, None).await;
    check(&format!("{}, any", prefixed("")), 403, None).await;
    check(&format!("{right}, a, b"), 400, None).await;
}
