//! Receives the events of one run, over HTTP on a Unix socket, as `ansible-runner-http` sends them.
//!
//! Invariant: an event is answered when it has been handed on, so that the runner, which waits for the answers, has
//! ended after its last event. The socket lies in a folder that is this user's alone.

use std::convert::Infallible;
use std::io;
use std::path::Path;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::events::Event;

/// The longest event: the output of one task is in it, twice.
const LONGEST: usize = 64 << 20;

/// Receives until it is dropped.
#[derive(Debug)]
pub struct Receiver {
    _serving: JoinSet<()>,
}

impl Receiver {
    /// Listens at a path, and hands the events on in order.
    ///
    /// # Errors
    /// When there can be no socket.
    pub fn start(socket: &Path) -> io::Result<(Receiver, mpsc::Receiver<Event>)> {
        let listener = UnixListener::bind(socket)?;
        let (sender, events) = mpsc::channel(16);
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => match accepted {
                        Ok((stream, _)) => {
                            let sender = sender.clone();
                            let answer = service_fn(move |request| receive(request, sender.clone()));
                            connections.spawn(async move {
                                // A connection that breaks is one of a runner that was killed.
                                let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                            });
                        }
                        Err(error) => tracing::warn!(%error, "an event's connection was not accepted"),
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok((Receiver { _serving: serving }, events))
    }
}

async fn receive(request: Request<Incoming>, events: mpsc::Sender<Event>) -> Result<Response<Full<Bytes>>, Infallible> {
    let answer = |status: StatusCode, why: &str| {
        let mut response = Response::new(Full::from(why.to_owned()));
        *response.status_mut() = status;
        Ok(response)
    };
    if request.uri().path() != "/events/" {
        return answer(StatusCode::NOT_FOUND, "events are posted to /events/");
    }
    if request.method() != Method::POST {
        return answer(StatusCode::METHOD_NOT_ALLOWED, "events are posted");
    }
    let sort = request
        .headers()
        .get(http::header::CONTENT_TYPE)
        .and_then(|sort| sort.to_str().ok());
    if sort.and_then(|sort| sort.split(';').next()) != Some("application/json") {
        return answer(StatusCode::UNSUPPORTED_MEDIA_TYPE, "events are application/json");
    }
    let body = match Limited::new(request.into_body(), LONGEST).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) => {
            tracing::warn!(%error, "an event could not be read");
            return answer(StatusCode::PAYLOAD_TOO_LARGE, "it is too long, or broke off");
        }
    };
    let event: Event = match serde_json::from_slice(&body) {
        Ok(event) => event,
        Err(error) => {
            tracing::warn!(%error, "an event is no JSON of an event");
            return answer(StatusCode::BAD_REQUEST, "it is no event");
        }
    };
    // Those without a uuid are about the runner itself.
    if !event.uuid.is_empty() && events.send(event).await.is_err() {
        return answer(StatusCode::GONE, "the run has ended");
    }
    answer(StatusCode::NO_CONTENT, "")
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::UnixStream;

    use super::*;

    async fn post(socket: &Path, head: &str, body: &str) -> String {
        let mut stream = UnixStream::connect(socket).await.expect("it listens");
        let length = body.len();
        let text = format!(
            "{head} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\nContent-Type: application/json; charset=utf-8\r\nConnection: close\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await.expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("it is answered");
        answer.split(' ').nth(1).unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn events_are_received_as_they_come() {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("events");
        let (receiver, mut events) = Receiver::start(&socket).expect("it listens");
        let event = r#"{"uuid":"u","counter":2,"event":"runner_on_ok","event_data":{},"stdout":"","created":"now"}"#;
        let codes = [
            post(&socket, "POST /events/", event).await,
            post(&socket, "POST /events/", r#"{"status":"running"}"#).await,
            post(&socket, "POST /events/", "no event").await,
            post(&socket, "GET /events/", "").await,
            post(&socket, "POST /other", event).await,
        ];
        assert_eq!(codes, ["204", "204", "400", "405", "404"]);
        let received = events.try_recv().expect("an event");
        assert_eq!((received.event.as_str(), received.counter), ("runner_on_ok", 2));
        assert!(events.try_recv().is_err(), "those about the runner are left out");
        drop(receiver);
    }
}
