//! Many connections at once: a silent client holds up no other, and one that finds no room is told. A watch is an
//! answer among others on its connection, even when its client sends further bytes.

mod frames;

use crate::common::{self, Who, listening, raw, raw_with, soon};
use kubewright_cluster::{Cluster, Controllers, Limits, Listening};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

const WATCH: &str = "/api/v1/namespaces/default/configmaps?watch=true";

async fn server(connections: usize) -> (Cluster, Listening) {
    let limits = Limits {
        connections,
        ..Limits::default()
    };
    listening(Cluster::builder().controllers(Controllers::None).limits(limits)).await
}

/// A further client gets an answer.
async fn a_new_client_is_served(what: &str, listening: &Listening) {
    let mut stream = raw(listening, Who::Admin).await;
    get(&mut stream, "/readyz").await;
    let mut answer = [0; 12];
    soon(what, stream.read_exact(&mut answer)).await.expect("an answer");
    assert_eq!(&answer, b"HTTP/1.1 200", "{what}");
}

async fn get(stream: &mut TlsStream<TcpStream>, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the request is taken");
}

/// A watch that has begun; `None`: the server ended the connection, or said that its user has too many.
async fn watch(listening: &Listening) -> Option<TlsStream<TcpStream>> {
    let config = common::client_config(listening, Who::Admin);
    let socket = TcpStream::connect(listening.address).await.ok()?;
    let name = "localhost".try_into().expect("a name");
    let connecting = tokio_rustls::TlsConnector::from(std::sync::Arc::new(config)).connect(name, socket);
    let mut stream = soon("a handshake", connecting).await.ok()?;
    let request = format!("GET {WATCH} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut head = [0; 12];
    soon("the head of a watch", stream.read_exact(&mut head)).await.ok()?;
    if &head == b"HTTP/1.1 429" {
        return None;
    }
    assert_eq!(&head, b"HTTP/1.1 200");
    Some(stream)
}

/// Keeps as many silent connections as there are places, and more, in a state; a new client must find one all the same.
async fn check<S>(what: &str, silent: impl AsyncFn(&Listening) -> S) {
    let (cluster, listening) = server(64).await;
    let mut crowd = Vec::new();
    for turn in 0..100 {
        crowd.push(silent(&listening).await);
        if turn % 20 == 19 {
            a_new_client_is_served(what, &listening).await;
        }
    }
    drop(crowd);
    cluster.stop().await;
}

#[tokio::test]
async fn a_silent_client_keeps_no_other_waiting() {
    let connect = async |listening: &Listening| TcpStream::connect(listening.address).await.expect("the port is open");
    check("without a word", connect).await;
    let greet = async |listening: &Listening| {
        let mut stream = connect(listening).await;
        stream
            .write_all(&[22, 3, 1, 2, 0, 1])
            .await
            .expect("half a greeting is taken");
        stream
    };
    check("half a greeting", greet).await;
    let half = async |listening: &Listening| {
        let mut stream = raw(listening, Who::Nobody).await;
        stream
            .write_all(b"GET /readyz HTTP/1.1\r\nX-Slow: ")
            .await
            .expect("half a head is taken");
        stream
    };
    check("half a head", half).await;
    let second = async |listening: &Listening| {
        let mut stream = raw_with(listening, Who::Nobody, &[b"h2"]).await;
        let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        stream.write_all(settings).await.expect("settings are taken");
        stream
    };
    check("HTTP/2 without a stream", second).await;
    // Proven clients that rest: the longest resting goes.
    let known = async |listening: &Listening| raw(listening, Who::Admin).await;
    check("known, and silent", known).await;
}

#[tokio::test]
async fn where_everybody_has_something_under_way_a_new_client_is_told() {
    let (cluster, listening) = server(64).await;
    let mut watches = Vec::new();
    while let Some(stream) = watch(&listening).await {
        watches.push(stream);
        assert!(watches.len() <= 64, "more connections than places");
    }
    // One user has not all of them, and the others are free.
    assert_eq!(watches.len(), 32);
    watches.pop();
    let again = async { while watch(&listening).await.is_none() {} };
    soon("the place of a client that went", again).await;
    cluster.stop().await;
}

#[tokio::test]
async fn the_place_of_a_watch_is_free_when_its_client_goes() {
    let (cluster, listening) = server(64).await;
    // However the client goes: with unread data, in the middle of a word, with a goodbye.
    for way in 0..3 {
        let all = async {
            let mut opened = Vec::new();
            while opened.len() < 32 {
                opened.extend(watch(&listening).await);
            }
            opened
        };
        for mut stream in soon("places for all", all).await {
            match way {
                0 => {}
                1 => stream.write_all(b"GET /").await.expect("half a request is taken"),
                _ => stream.shutdown().await.expect("a goodbye is taken"),
            }
        }
    }
    a_new_client_is_served("after all that", &listening).await;
    cluster.stop().await;
}

/// Sends this, and reads until the last chunk of a watch that ends after a second: its head, and its lines.
async fn short_watch(stream: &mut TlsStream<TcpStream>, version: &str, rest: &str) -> (String, String) {
    let request = format!("GET {WATCH}&timeoutSeconds=1 HTTP/{version}\r\nHost: x\r\n{rest}");
    stream
        .write_all(request.as_bytes())
        .await
        .expect("the request is taken");
    let mut text = Vec::new();
    let reading = async {
        while !text.ends_with(b"\r\n0\r\n\r\n") && stream.read_buf(&mut text).await.expect("an answer") > 0 {}
    };
    soon("the end of a watch", reading).await;
    let text = String::from_utf8(text).expect("text");
    let (head, mut body) = text.split_once("\r\n\r\n").expect("a head");
    if !head.contains("transfer-encoding: chunked") {
        return (head.to_owned(), body.to_owned());
    }
    let mut lines = String::new();
    loop {
        let (length, rest) = body.split_once("\r\n").expect("the length of a chunk");
        let length = usize::from_str_radix(length, 16).expect("a length");
        let (chunk, end) = rest.split_at(length);
        lines += chunk;
        body = end.strip_prefix("\r\n").expect("the end of a chunk");
        if length == 0 {
            assert_eq!(body, "", "something behind the last chunk");
            return (head.to_owned(), lines);
        }
    }
}

/// A watch sees the present objects; whether its connection can be used again.
async fn check_after_watch(listening: &Listening, version: &str, rest: &str, goes_on: bool) {
    let mut stream = raw(listening, Who::Admin).await;
    for _ in 0..2 {
        let (head, lines) = short_watch(&mut stream, version, rest).await;
        assert!(
            head.starts_with(&format!("HTTP/{version} 200 OK\r\n")),
            "{rest:?}: {head}"
        );
        for field in ["content-type: application/json", "date: "] {
            assert!(head.contains(field), "{rest:?}: {head}");
        }
        let seen: Vec<serde_json::Value> = lines
            .lines()
            .map(|line| serde_json::from_str(line).expect("an event"))
            .collect();
        let names: Vec<_> = seen.iter().map(|event| &event["object"]["metadata"]["name"]).collect();
        assert_eq!(names, ["kube-root-ca.crt"], "{rest:?}");
        if !goes_on {
            assert_eq!(stream.read(&mut [0]).await.expect("a clean end"), 0, "{rest:?}");
            return;
        }
        get(&mut stream, "/readyz").await;
        let answer = common::read_head_and_body(&mut stream).await;
        assert_eq!((answer.code, &*answer.body), (200, "ok"), "{rest:?}");
    }
}

#[tokio::test]
async fn a_watch_leaves_its_connection_as_it_was() {
    let (cluster, listening) = listening(Cluster::builder()).await;
    let client = common::https_client(&listening).await;
    let maps = kube::Api::<k8s_openapi::api::core::v1::ConfigMap>::namespaced(client, "default");
    let there = async { while maps.get_opt("kube-root-ca.crt").await.expect("an answer").is_none() {} };
    soon("the ConfigMap of the namespace", there).await;
    let check = |version, rest, goes_on| check_after_watch(&listening, version, rest, goes_on);
    tokio::join!(
        check("1.1", "\r\n", true),
        check("1.1", "Connection: keep-alive\r\n\r\n", true),
        check("1.1", "Connection: close\r\n\r\n", false),
        check("1.1", "Connection: x, Close\r\n\r\n", false),
        // A request behind the end of the connection is not answered.
        check("1.1", "\r\nGET /readyz HTTP/1.1\r\nHost: x\r\n\r\n", false),
        check("1.0", "\r\n", false),
    );
    cluster.stop().await;
}
