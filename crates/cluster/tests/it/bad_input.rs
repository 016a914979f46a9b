//! Misbehaving clients: a clear answer, nothing lost, and no effect on other clients.

use std::time::{Duration, Instant};

use crate::common::{
    Answer, Who, ask, https_client, listening, raw, raw_small, raw_with, read_answer, read_head_and_body, soon,
};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{DeleteParams, PostParams, WatchEvent, WatchParams};
use kubewright_cluster::{Cluster, Controllers, Limits, Listening};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

const JSON: &[(&str, &str)] = &[("Content-Type", "application/json")];
const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// A cluster without controllers: these tests are about the server.
async fn server(limits: Limits) -> (Cluster, Listening) {
    listening(Cluster::builder().controllers(Controllers::None).limits(limits)).await
}

/// A request and the expected answer.
struct Case {
    what: &'static str,
    method: &'static str,
    path: &'static str,
    headers: &'static [(&'static str, &'static str)],
    body: Vec<u8>,
    code: u16,
    /// The reason of the `Status`; empty when the answer is plain text instead.
    reason: &'static str,
    /// A part of the message, or all of the text.
    message: &'static str,
}

/// A `Status` with this code, this reason, and this in its message.
fn is_status(what: &str, answer: &Answer, code: u16, reason: &str, message: &str) {
    let status = answer.json();
    assert_eq!(answer.code, code, "{what}: {answer:?}");
    assert_eq!(status["kind"], "Status", "{what}: {answer:?}");
    assert_eq!(status["code"], code, "{what}: {answer:?}");
    assert_eq!(status["reason"].as_str().unwrap_or(""), reason, "{what}: {answer:?}");
    assert!(
        status["message"].as_str().unwrap_or("").contains(message),
        "{what}: {message:?} not in {answer:?}"
    );
}

/// Another client is served, and its object is stored.
async fn others_are_served(listening: &Listening) {
    let api: Api<ConfigMap> = Api::default_namespaced(https_client(listening).await);
    let mut written = ConfigMap::default();
    written.metadata.generate_name = Some("other-".to_owned());
    let written = soon("a write of somebody else", api.create(&PostParams::default(), &written))
        .await
        .expect("the write succeeds");
    let name = written.metadata.name.as_deref().expect("created objects have names");
    let read = soon("a read of somebody else", api.get(name))
        .await
        .expect("the read succeeds");
    assert_eq!(read, written);
    api.delete(name, &DeleteParams::default())
        .await
        .expect("the delete succeeds");
}

fn cases() -> Vec<Case> {
    let case = |what, method, path, headers, body: &str, code, reason, message| Case {
        what,
        method,
        path,
        headers,
        body: body.as_bytes().to_vec(),
        code,
        reason,
        message,
    };
    let patch: &[(&str, &str)] = &[("Content-Type", "application/merge-patch+json")];
    let yaml: &[(&str, &str)] = &[("Content-Type", "application/yaml")];
    let text: &[(&str, &str)] = &[("Content-Type", "text/plain")];
    vec![
        case(
            "malformed JSON",
            "POST",
            CONFIG_MAPS,
            JSON,
            "{bad",
            400,
            "BadRequest",
            "couldn't get version/kind; json parse error",
        ),
        case("no body", "POST", CONFIG_MAPS, JSON, "", 400, "BadRequest", "(<empty>)"),
        case(
            "JSON that is no object",
            "POST",
            CONFIG_MAPS,
            JSON,
            "[1, 2]",
            400,
            "BadRequest",
            "",
        ),
        case(
            "not UTF-8 in spirit",
            "POST",
            CONFIG_MAPS,
            JSON,
            "\u{0}\u{1}\u{2}",
            400,
            "BadRequest",
            "",
        ),
        case(
            "malformed YAML",
            "POST",
            CONFIG_MAPS,
            yaml,
            "apiVersion: v1\nkind: [",
            400,
            "BadRequest",
            "",
        ),
        case(
            "another kind",
            "POST",
            CONFIG_MAPS,
            JSON,
            r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#,
            400,
            "BadRequest",
            "Secret in version \"v1\" cannot be handled as a ConfigMap",
        ),
        case(
            "a field of the wrong type",
            "POST",
            CONFIG_MAPS,
            JSON,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":1}}"#,
            400,
            "BadRequest",
            "cannot unmarshal number into Go struct field ConfigMap.data of type string",
        ),
        case(
            "a bad name",
            "POST",
            CONFIG_MAPS,
            JSON,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A B"}}"#,
            422,
            "Invalid",
            "metadata.name: Invalid value: \"A B\"",
        ),
        case(
            "another namespace",
            "POST",
            CONFIG_MAPS,
            JSON,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}"#,
            400,
            "BadRequest",
            "the namespace of the provided object does not match",
        ),
        case(
            "an unknown content type",
            "POST",
            CONFIG_MAPS,
            text,
            "hello",
            415,
            "UnsupportedMediaType",
            "unknown format",
        ),
        case(
            "an unknown path",
            "GET",
            "/nope",
            &[],
            "",
            404,
            "",
            "404 page not found\n",
        ),
        case(
            "an unknown group",
            "GET",
            "/apis/nope.io/v1/things",
            &[],
            "",
            404,
            "",
            "404 page not found\n",
        ),
        case(
            "an unknown kind",
            "GET",
            "/api/v1/namespaces/default/things",
            &[],
            "",
            404,
            "NotFound",
            "",
        ),
        case(
            "an unknown object",
            "GET",
            "/api/v1/namespaces/default/configmaps/nope",
            &[],
            "",
            404,
            "NotFound",
            "\"nope\" not found",
        ),
        case(
            "an unknown subresource",
            "GET",
            "/api/v1/namespaces/default/configmaps/a/nope",
            &[],
            "",
            404,
            "NotFound",
            "",
        ),
        case(
            "a verb that the path has not",
            "POST",
            "/api/v1/namespaces/default/configmaps/a",
            JSON,
            "{}",
            405,
            "MethodNotAllowed",
            "",
        ),
        case(
            "a patch of nothing",
            "PATCH",
            "/api/v1/namespaces/default/configmaps/nope",
            patch,
            "{}",
            404,
            "NotFound",
            "",
        ),
        case(
            "a bad label selector",
            "GET",
            "/api/v1/namespaces/default/configmaps?labelSelector=a%3D%3D%3Db",
            &[],
            "",
            400,
            "BadRequest",
            "",
        ),
        case(
            "a bad limit",
            "GET",
            "/api/v1/namespaces/default/configmaps?limit=many",
            &[],
            "",
            400,
            "BadRequest",
            "",
        ),
        case(
            "a percent sign gone wrong",
            "GET",
            "/api/v1/namespaces/%zz/configmaps",
            &[],
            "",
            400,
            "BadRequest",
            "invalid escape \"%zz\"",
        ),
    ]
}

#[tokio::test]
async fn nonsense_is_answered_in_words() {
    let (cluster, listening) = server(Limits::default()).await;
    for Case {
        what,
        method,
        path,
        headers,
        body,
        code,
        reason,
        message,
    } in cases()
    {
        let answer = ask(&listening, Who::Admin, method, path, headers, &body).await;
        match reason {
            "" => assert_eq!(
                (answer.code, answer.body.as_str()),
                (code, message),
                "{what}: {answer:?}"
            ),
            reason => is_status(what, &answer, code, reason, message),
        }
    }
    others_are_served(&listening).await;
    cluster.stop().await;
}

#[tokio::test]
async fn anonymous_requests_may_not_read() {
    let (cluster, listening) = server(Limits::default()).await;
    let answer = ask(&listening, Who::Nobody, "GET", CONFIG_MAPS, &[], b"").await;
    is_status(
        "anonymous",
        &answer,
        403,
        "Forbidden",
        "User \"system:anonymous\" cannot list resource \"configmaps\"",
    );
    let answer = ask(
        &listening,
        Who::Nobody,
        "GET",
        CONFIG_MAPS,
        &[("Authorization", "Bearer wrong")],
        b"",
    )
    .await;
    is_status("a wrong token", &answer, 401, "Unauthorized", "Unauthorized");
    let answer = ask(&listening, Who::Nobody, "GET", "/readyz", &[], b"").await;
    assert_eq!((answer.code, answer.body.as_str()), (200, "ok"));
    cluster.stop().await;
}

#[tokio::test]
async fn every_answer_has_a_name() {
    let (cluster, listening) = server(Limits::default()).await;
    for (what, path, headers, code) in [
        ("health", "/readyz", &[][..], 200),
        ("a list", CONFIG_MAPS, &[], 403),
        ("nobody", CONFIG_MAPS, &[("Authorization", "Bearer wrong")], 401),
        ("no path", "/nope", &[("Audit-ID", "mine")], 403),
    ] {
        let answer = ask(&listening, Who::Nobody, "GET", path, headers, b"").await;
        assert_eq!(answer.code, code, "{what}");
        let head = answer.head.to_ascii_lowercase();
        let id = head.lines().find_map(|line| line.strip_prefix("audit-id: "));
        let given = headers.iter().find(|(name, _)| *name == "Audit-ID");
        let fits = |id: &str| given.map_or(id.len() == 36, |(_, given)| id == *given);
        assert!(id.is_some_and(fits), "{what}: {head}");
    }
    cluster.stop().await;
}

#[tokio::test]
async fn a_refusal_is_sent_before_the_body_is_there() {
    let (cluster, listening) = server(Limits::default()).await;
    let check = async |who: Who, headers: &str, code: u16, reason: &str, message: &str| {
        let mut stream = raw(&listening, who).await;
        let head = format!(
            "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: 2000000\r\n{headers}\r\n"
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        let answer = soon("a refusal", read_head_and_body(&mut stream)).await;
        is_status(reason, &answer, code, reason, message);
        // The body is on its way all the same: the client may send it and finds its answer.
        stream.write_all(&[b' '; 1000]).await.unwrap();
    };
    let cannot = "cannot create resource \"configmaps\"";
    check(Who::Nobody, "", 403, "Forbidden", cannot).await;
    check(Who::Nobody, "Expect: 100-continue\r\n", 403, "Forbidden", cannot).await;
    check(
        Who::Nobody,
        "Authorization: Bearer wrong\r\n",
        401,
        "Unauthorized",
        "Unauthorized",
    )
    .await;
    check(Who::Admin, "Impersonate-User: jane\r\n", 403, "Forbidden", cannot).await;
    others_are_served(&listening).await;
    cluster.stop().await;
}

#[tokio::test]
async fn a_body_that_is_too_large_gets_413() {
    let (cluster, listening) = server(Limits::default()).await;
    let limit = 3 * 1024 * 1024;
    let message = "Request entity too large: limit is 3145728";
    for size in [limit + 1, 2 * limit, 10 * limit] {
        let answer = ask(&listening, Who::Admin, "POST", CONFIG_MAPS, JSON, &vec![b' '; size]).await;
        is_status("with a length", &answer, 413, "RequestEntityTooLarge", message);
    }
    // Without a length, the excess shows only when it has come.
    let mut stream = raw(&listening, Who::Admin).await;
    let head =
        format!("POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let chunk = [b"10000\r\n".as_slice(), &[b' '; 0x10000], b"\r\n"].concat();
    for _ in 0..=limit / 0x10000 {
        stream.write_all(&chunk).await.unwrap();
    }
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    is_status(
        "in chunks",
        &read_answer(&mut stream).await,
        413,
        "RequestEntityTooLarge",
        message,
    );
    // Over HTTP/2, with kube's own client.
    let api: Api<ConfigMap> = Api::default_namespaced(https_client(&listening).await);
    let mut large = ConfigMap::default();
    large.metadata.name = Some("large".to_owned());
    large.data = Some([("k".to_owned(), "x".repeat(limit))].into());
    match soon("413 over HTTP/2", api.create(&PostParams::default(), &large)).await {
        Err(kube::Error::Api(status)) => assert_eq!((status.code, status.message.as_str()), (413, message)),
        other => panic!("over HTTP/2: {other:?}"),
    }
    // A body that just fits is read: the answer is about its content.
    let answer = ask(&listening, Who::Admin, "POST", CONFIG_MAPS, JSON, &vec![b' '; limit]).await;
    assert_eq!(answer.code, 400, "{answer:?}");
    others_are_served(&listening).await;
    cluster.stop().await;
}

#[tokio::test]
async fn half_a_request_disturbs_no_other_client_and_does_nothing() {
    let body = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"half"}}"#;
    let (cluster, listening) = server(Limits {
        body: Duration::from_millis(300),
        ..Limits::default()
    })
    .await;
    let head = format!(
        "POST {CONFIG_MAPS} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let whole = format!("{head}{body}");
    // The client goes away at every kind of place: within the request line, the headers, the body, and before its last
    // byte.
    for cut in [
        1,
        10,
        head.len() / 2,
        head.len() - 1,
        head.len(),
        head.len() + 5,
        whole.len() - 1,
    ] {
        let mut stream = raw(&listening, Who::Admin).await;
        stream.write_all(&whole.as_bytes()[..cut]).await.unwrap();
        stream.shutdown().await.unwrap();
        others_are_served(&listening).await;
    }
    // It stays, and says nothing more: it is told so.
    let mut stream = raw(&listening, Who::Admin).await;
    stream.write_all(&whole.as_bytes()[..head.len() + 5]).await.unwrap();
    is_status(
        "half a body",
        &read_answer(&mut stream).await,
        408,
        "Timeout",
        "did not arrive within 300ms",
    );
    let api: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    assert!(
        api.get_opt("half").await.unwrap().is_none(),
        "half a request was carried out"
    );
    cluster.stop().await;
}

#[tokio::test]
async fn a_client_that_sends_heads_slowly_is_cut_off() {
    let limits = Limits {
        head: Duration::from_millis(300),
        handshake: Duration::from_millis(300),
        ..Limits::default()
    };
    let (cluster, listening) = server(limits).await;
    let check = async |what: &str, mut stream: Box<dyn Stream>| {
        let start = Instant::now();
        let mut rest = Vec::new();
        // One byte every now and then keeps no connection alive: the head as a whole has a deadline.
        let ended = async {
            loop {
                tokio::select! {
                    read = stream.read_buf(&mut rest) => if !matches!(read, Ok(1..)) { return },
                    () = tokio::time::sleep(Duration::from_millis(50)) => if stream.write_all(b"x").await.is_err() { return },
                }
            }
        };
        soon(what, ended).await;
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{what}: {:?}",
            start.elapsed()
        );
    };
    let mut slow = raw(&listening, Who::Admin).await;
    slow.write_all(b"GET /readyz HTTP/1.1\r\nX-Slow: ").await.unwrap();
    check("a slow header", Box::new(slow)).await;
    check("no request", Box::new(raw(&listening, Who::Admin).await)).await;
    check(
        "no protocol named",
        Box::new(raw_with(&listening, Who::Admin, &[]).await),
    )
    .await;
    let mut greeting = TcpStream::connect(listening.address).await.unwrap();
    greeting.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
    check("a slow TLS greeting", Box::new(greeting)).await;
    // Over HTTP/2, the preface is the head: silence before it ends the connection as well.
    let mut silent = raw_with(&listening, Who::Admin, &[b"h2"]).await;
    let mut settings = Vec::new();
    soon("silence over HTTP/2", silent.read_to_end(&mut settings))
        .await
        .ok();
    others_are_served(&listening).await;
    cluster.stop().await;
}

/// Any connection.
trait Stream: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin {}
impl<S: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin> Stream for S {}

#[tokio::test]
async fn garbage_instead_of_tls_ends_only_its_own_connection() {
    let (cluster, listening) = server(Limits::default()).await;
    let garbage: &[&[u8]] = &[
        b"",
        b"\0",
        &[0xff; 4096],
        b"\x16\x03\x01\xff\xff",
        b"SSH-2.0-x\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
    ];
    for bytes in garbage {
        let mut stream = TcpStream::connect(listening.address).await.unwrap();
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = Vec::new();
        // A reset is an end as well: the server closed while garbage was still on its way.
        let _ = soon("the end of a garbage connection", stream.read_to_end(&mut answer)).await;
        if bytes.starts_with(b"GET") {
            let answer = String::from_utf8_lossy(&answer);
            assert!(
                answer.ends_with("Client sent an HTTP request to an HTTPS server.\n"),
                "{answer:?}"
            );
        }
        others_are_served(&listening).await;
    }
    cluster.stop().await;
}

#[tokio::test]
async fn broken_http_ends_only_its_own_connection() {
    let (cluster, listening) = server(Limits::default()).await;
    let long = format!("GET /readyz HTTP/1.1\r\nX-Long: {}\r\n\r\n", "x".repeat(200_000));
    let broken: &[(&str, u16)] = &[
        ("\r\n\r\nnonsense\r\n\r\n", 400),
        ("GET /readyz HTTP/9.9\r\n\r\n", 400),
        ("GET\0/readyz HTTP/1.1\r\n\r\n", 400),
        ("POST /readyz HTTP/1.1\r\nContent-Length: many\r\n\r\n", 400),
        (
            "POST /readyz HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
            400,
        ),
        (&long, 431),
    ];
    for (bytes, code) in broken {
        let mut stream = raw(&listening, Who::Admin).await;
        // The server may end the connection before it has read all of it.
        let _ = stream.write_all(bytes.as_bytes()).await;
        let mut answer = Vec::new();
        let _ = soon("the end of a broken request", stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        let short = &bytes[..bytes.len().min(60)];
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {code} ")),
            "{short:?}: {answer:?}"
        );
        others_are_served(&listening).await;
    }
    cluster.stop().await;
}

/// As kube-apiserver 1.36.3 answers.
#[tokio::test]
async fn targets_without_a_path_are_not_found() {
    let (cluster, listening) = server(Limits::default()).await;
    let nothing = "404 page not found\n";
    for (line, code, body) in [
        ("CONNECT example.org:443", 404, nothing),
        ("CONNECT *", 404, nothing),
        ("GET *", 404, nothing),
        ("POST *", 404, nothing),
        ("PRI *", 404, nothing),
        ("GET example.org:443", 404, nothing),
        ("GET http://example.org/nope", 404, nothing),
        ("OPTIONS *", 200, ""),
        ("GET http://example.org/readyz", 200, "ok"),
    ] {
        let mut stream = raw(&listening, Who::Admin).await;
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it is sent");
        let mut answer = Vec::new();
        // A server may close a connection without the last words of TLS.
        let _ = soon("the end of an answer", stream.read_to_end(&mut answer)).await;
        let answer = String::from_utf8_lossy(&answer);
        let (head, rest) = answer.split_once("\r\n\r\n").unwrap_or_default();
        assert!(head.starts_with(&format!("HTTP/1.1 {code} ")), "{line}: {answer:?}");
        assert_eq!(rest, body, "{line}: {head:?}");
    }
    let answer = ask(&listening, Who::Nobody, "OPTIONS", "*", &[], b"").await;
    assert_eq!((answer.code, answer.body.as_str()), (200, ""), "{answer:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_stops_reading_a_watch_disturbs_no_other() {
    let stall = Duration::from_secs(2);
    let (cluster, listening) = server(Limits {
        stall,
        ..Limits::default()
    })
    .await;
    // It asks for a watch over HTTP/1.1 and then never reads.
    let mut deaf = raw_small(&listening, Who::Admin).await;
    let request = format!("GET {CONFIG_MAPS}?watch=true HTTP/1.1\r\nHost: x\r\n\r\n");
    deaf.write_all(request.as_bytes()).await.unwrap();
    let mut first = [0; 12];
    soon("the head of the watch", deaf.read_exact(&mut first))
        .await
        .unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    // Another one watches over the same server and must see everything.
    let api: Api<ConfigMap> = Api::default_namespaced(https_client(&listening).await);
    let events = api.watch(&WatchParams::default(), "0").await.expect("a watch");
    let count = 24;
    let seeing = async {
        let mut events = std::pin::pin!(events);
        let mut seen = Vec::new();
        while seen.len() < count {
            match events
                .try_next()
                .await
                .expect("the watch goes on")
                .expect("the watch does not end")
            {
                WatchEvent::Added(object) => seen.extend(object.metadata.name.filter(|name| name.starts_with("big-"))),
                WatchEvent::Error(error) => panic!("the watch of somebody else failed: {error:?}"),
                _ => {}
            }
        }
        seen
    };
    // More than the buffers on the way hold.
    let writer: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let writing = async {
        let mut names = Vec::new();
        for index in 0..count {
            let mut object = ConfigMap::default();
            object.metadata.name = Some(format!("big-{index:03}"));
            object.data = Some([("k".to_owned(), "x".repeat(500_000))].into());
            names.extend(
                writer
                    .create(&PostParams::default(), &object)
                    .await
                    .expect("writes go on")
                    .metadata
                    .name,
            );
        }
        names
    };
    let (written, seen) = soon("all events", futures::future::join(writing, seeing)).await;
    assert_eq!(seen, written, "every event, in order");
    // The deaf one stays deaf for longer than it may, and is cut off: the bytes on the way arrive, and then the end.
    tokio::time::sleep(2 * stall).await;
    let mut rest = Vec::new();
    let _ = soon("the end of the deaf connection", deaf.read_to_end(&mut rest)).await;
    assert!(
        rest.len() < count * 500_000,
        "nothing was held back: {} bytes",
        rest.len()
    );
    others_are_served(&listening).await;
    let start = Instant::now();
    cluster.stop().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
}

#[tokio::test]
async fn stop_does_not_wait_for_clients() {
    let (cluster, listening) = server(Limits::default()).await;
    let quiet = raw(&listening, Who::Admin).await;
    let mut half = raw(&listening, Who::Admin).await;
    half.write_all(b"POST /api HTTP/1.1\r\nContent-Length: 9\r\n\r\nx")
        .await
        .unwrap();
    let half_handshake = TcpStream::connect(listening.address).await.unwrap();
    let api: Api<ConfigMap> = Api::default_namespaced(https_client(&listening).await);
    let watch = api.watch(&WatchParams::default(), "0").await.expect("a watch");
    let in_process: Api<ConfigMap> = Api::default_namespaced(cluster.client());
    let watch_in_process = in_process.watch(&WatchParams::default(), "0").await.expect("a watch");
    let start = Instant::now();
    cluster.stop().await;
    assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // Watches end as a stream ends, not as an error.
    for (what, events) in [("HTTPS", watch.boxed()), ("in process", watch_in_process.boxed())] {
        let rest = soon("the end of a watch", events.try_collect::<Vec<_>>()).await;
        rest.unwrap_or_else(|error| panic!("{what}: a watch ended with {error:?}"));
    }
    assert!(
        TcpStream::connect(listening.address).await.is_err(),
        "the port is still open"
    );
    assert!(
        matches!(in_process.get("a").await, Err(kube::Error::Service(_))),
        "a stopped cluster answers"
    );
    assert!(matches!(
        cluster.listen(listening.address).await,
        Err(kubewright_cluster::Error::Stopped)
    ));
    drop((quiet, half, half_handshake));
}

#[tokio::test]
async fn the_last_handle_stops_the_cluster() {
    let (cluster, listening) = server(Limits::default()).await;
    let client = cluster.client();
    let other = cluster.clone();
    drop(cluster);
    others_are_served(&listening).await;
    drop(other);
    let api: Api<ConfigMap> = Api::default_namespaced(client);
    assert!(
        matches!(api.get("a").await, Err(kube::Error::Service(_))),
        "a dropped cluster answers"
    );
    let closed = async {
        while TcpStream::connect(listening.address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    soon("the port closes", closed).await;
}

#[tokio::test]
async fn an_address_in_use_is_an_error_with_the_address() {
    let (cluster, listening) = server(Limits::default()).await;
    let error = cluster.listen(listening.address).await.unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with(&format!("cannot listen on {}: ", listening.address)),
        "{error}"
    );
    cluster.stop().await;
}
