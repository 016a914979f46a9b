//! Requests through the front, whose time is up.

use std::sync::mpsc;

use futures::StreamExt as _;
use http_body::Frame;
use kubewright_apiserver::Config;
use kubewright_apiserver::registry::Kinds;
use tokio::sync::oneshot;

use super::*;
use crate::env::RealEnv;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn front(workers: Workers) -> Front {
    let env = Arc::new(RealEnv::new(jiff::Timestamp::now));
    let api = ApiServer::new(
        Kinds::new(kubewright_kinds::built_in(Default::default())),
        env,
        Config::default(),
    );
    Front::new(api, CancellationToken::new(), Duration::from_secs(60), workers)
}

/// The code of the answer to a request whose body comes in these pieces, and its message.
async fn ask(
    front: &Front,
    method: Method,
    uri: &str,
    body: impl Iterator<Item = Bytes> + Send + 'static,
    ends: bool,
) -> (u16, String) {
    let pieces = futures::stream::iter(body.map(|piece| Ok::<_, std::convert::Infallible>(Frame::data(piece))));
    let rest = futures::stream::pending();
    let pieces = if ends {
        pieces.boxed()
    } else {
        pieces.chain(rest).boxed()
    };
    let request = Request::builder()
        .method(method)
        .uri(uri)
        .header("content-type", "application/json");
    let request = request
        .body(http_body_util::StreamBody::new(pieces))
        .expect("a request");
    let answer = front.answer(request, &Peer::in_process(UserInfo::admin())).await;
    let code = answer.status().as_u16();
    let mut body = answer.into_body();
    let mut text = Vec::new();
    while let Some(piece) = poll_fn(|cx| body.poll_bytes(cx)).await {
        text.extend_from_slice(&piece.expect("no panic"));
    }
    let status: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
    (code, status["message"].as_str().unwrap_or_default().to_owned())
}

fn map(bytes: usize) -> std::iter::Once<Bytes> {
    let map = serde_json::json!({"metadata": {"name": "m"}, "data": {"k": "x".repeat(bytes)}});
    std::iter::once(Bytes::from(map.to_string()))
}

const OF_WRITES: &str = "Timeout: request did not complete within requested timeout - context deadline exceeded";
const OF_OTHERS: &str = "Timeout: request did not complete within the allotted timeout";

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_for_its_turn_for_too_long_is_answered_and_changes_nothing() {
    let workers = Workers::new(1);
    let front = front(workers.clone());
    let (open, gate) = mpsc::channel::<()>();
    let (begun, has_begun) = oneshot::channel();
    let busy = Client {
        user: UserInfo::admin().name,
        connection: None,
    };
    let (blocking, blocker) = (workers.clone(), busy.clone());
    let blocked = tokio::spawn(async move {
        let work = async move {
            let _ = begun.send(());
            let _ = gate.recv();
        };
        blocking.run(blocker, Box::pin(work)).await
    });
    has_begun.await.expect("it begins");
    let began = Instant::now();
    let nothing = std::iter::empty;
    let large = ask(&front, Method::POST, MAPS, map(20_000), true).await;
    assert_eq!(large, (504, OF_WRITES.to_owned()));
    assert_eq!(began.elapsed().as_secs(), 34);
    let began = Instant::now();
    let asked = ask(&front, Method::POST, &format!("{MAPS}?timeout=3s"), map(20_000), true).await;
    assert_eq!(asked, (504, OF_WRITES.to_owned()));
    assert_eq!(began.elapsed().as_secs(), 3);
    let document = ask(&front, Method::GET, "/openapi/v3/api/v1", nothing(), true).await;
    assert_eq!(document, (504, OF_OTHERS.to_owned()));
    drop(open);
    assert_eq!(blocked.await.expect("no panic"), Ok(()));
    assert_eq!(workers.run(busy, Box::pin(async {})).await, Ok(()));
    // From here on the threads are waited for, whose time goes on.
    tokio::time::resume();
    assert_eq!(
        ask(&front, Method::GET, &format!("{MAPS}/m"), nothing(), true).await.0,
        404
    );
    assert_eq!(ask(&front, Method::POST, MAPS, map(20_000), true).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_stalls_has_the_time_of_its_request() {
    let front = front(Workers::none());
    let half = || std::iter::once(Bytes::from("{"));
    let began = Instant::now();
    let asked = ask(&front, Method::POST, &format!("{MAPS}?timeout=3s"), half(), false).await;
    assert_eq!((asked, began.elapsed().as_secs()), ((504, OF_WRITES.to_owned()), 3));
    assert_eq!(ask(&front, Method::POST, MAPS, half(), false).await.0, 408);
}

/// HTTP/2 packs any number of fields into a few bytes, and each takes memory while the body arrives.
#[tokio::test]
async fn a_request_has_so_many_header_fields() {
    let front = front(Workers::none());
    let with = async |fields: usize, method: Method, ends: bool| {
        let mut request = Request::builder().method(method).uri(MAPS);
        for index in 0..fields {
            request = request.header("x-field", index);
        }
        let pieces = futures::stream::iter(ends.then_some(())).map(|()| Ok(Frame::data(Bytes::from("{}"))));
        let rest = futures::stream::pending::<Result<_, std::convert::Infallible>>();
        let body = if ends { pieces.boxed() } else { rest.boxed() };
        let request = request.body(http_body_util::StreamBody::new(body)).expect("a request");
        let answer = front.answer(request, &Peer::in_process(UserInfo::admin())).await;
        answer.status().as_u16()
    };
    for method in [Method::GET, Method::PUT] {
        assert_eq!(with(FIELDS + 1, method.clone(), true).await, 431, "{method}");
        assert_ne!(with(FIELDS, method.clone(), true).await, 431, "{method}");
    }
    let mut stalled = Box::pin(with(FIELDS, Method::POST, false));
    assert_eq!((&mut stalled).now_or_never(), None);
    let (held, _) = front.bodies.held();
    assert!((FIELDS * 32..FIELDS * 128).contains(&held), "{held} bytes");
    drop(stalled);
    assert_eq!(front.bodies.held().0, 0);
}
