//! CPU profiles of a running operator, over HTTP, for `go tool pprof` (feature `profiling`).
//!
//! | path | answer |
//! |---|---|
//! | `/debug/pprof/` | the list of profiles |
//! | `/debug/pprof/profile?seconds=N` | a CPU profile of the next N seconds, by default thirty |
//! | other profiles of Go's `net/http/pprof` | 501, with the reason |
//!
//! A timer of the process interrupts the running threads a hundred times in each second of processor time; the crate
//! `pprof` records the stack, and [`proto`] writes the records. Nothing is set up before a request, and nothing is left
//! when the answer is sent.
//!
//! Invariants: one profile is taken at a time; it takes at most [`LONGEST`], and ends when its client disconnects;
//! without a host in its address the server listens on loopback only, because there is no authentication.

mod proto;
mod sample;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Method, StatusCode};
use tokio::sync::Semaphore;

use crate::error::{Error, Result};
use crate::net::{self, Answer};
use crate::stop::Stop;

const ROOT: &str = "/debug/pprof/";
/// Go's.
const USUAL: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(300);
/// Go's other profiles, and why they are not here.
const ABSENT: [(&str, &str); 9] = [
    ("allocs", "the allocator keeps no account of who allocates"),
    ("block", "locks and channels keep no account of who waits"),
    ("cmdline", "arguments may hold secrets"),
    ("goroutine", "there are no goroutines; tokio-console shows tasks"),
    (
        "heap",
        "the allocator keeps no account of who allocates; heaptrack or an allocator with profiles shows it",
    ),
    ("mutex", "locks keep no account of who waits"),
    ("symbol", "profiles name their functions themselves"),
    ("threadcreate", "threads are created by the runtime, once"),
    ("trace", "spans show what happens when: see the feature opentelemetry"),
];

/// Where profiles are served.
#[derive(Debug, Clone)]
pub(crate) struct ProfileServer {
    address: String,
}

impl ProfileServer {
    pub(crate) fn new(address: &str) -> ProfileServer {
        let address = match address.strip_prefix(':') {
            Some(port) => format!("127.0.0.1:{port}"),
            None => address.to_owned(),
        };
        ProfileServer { address }
    }

    /// Listens. The future serves until the stop.
    pub(crate) async fn bind(
        self,
        stop: Stop,
    ) -> Result<(SocketAddr, impl Future<Output = Result<()>> + Send + 'static)> {
        let attempted = |error: std::io::Error| {
            Error::Configuration(format!("cannot listen for profiles on {}: {error}", self.address))
        };
        let listener = net::listen(&self.address).await.map_err(attempted)?;
        let address = listener.local_addr().map_err(attempted)?;
        let one = Arc::new(Semaphore::new(1));
        let serving = net::serve(listener, "profiles", None, stop, move |request: Parts| {
            let one = one.clone();
            async move { answer(&request, one).await }
        });
        Ok((address, serving))
    }
}

async fn answer(request: &Parts, one: Arc<Semaphore>) -> Answer {
    let refused = |status, why: String| Answer::text(status, format!("{why}\n"));
    let Some(name) = request.uri.path().strip_prefix(ROOT) else {
        return refused(StatusCode::NOT_FOUND, format!("profiles are under {ROOT}"));
    };
    if request.method != Method::GET {
        return refused(StatusCode::METHOD_NOT_ALLOWED, "profiles are read with GET".to_owned());
    }
    if name.is_empty() {
        return Answer::text(StatusCode::OK, index());
    }
    if let Some((_, why)) = ABSENT.iter().find(|(absent, _)| *absent == name) {
        return refused(StatusCode::NOT_IMPLEMENTED, format!("{name} is not served: {why}"));
    }
    if name != "profile" {
        return refused(StatusCode::NOT_FOUND, format!("there is no {name}; see {ROOT}"));
    }
    let length = match length(request.uri.query().unwrap_or_default()) {
        Ok(length) => length,
        Err(why) => return refused(StatusCode::BAD_REQUEST, why),
    };
    let Ok(permit) = one.try_acquire_owned() else {
        let why = "a profile is being taken already; ask again when it has ended".to_owned();
        return refused(StatusCode::CONFLICT, why);
    };
    match sample::taken(length, permit).await {
        Ok(profile) => Answer {
            status: StatusCode::OK,
            content_type: "application/octet-stream",
            body: profile.into(),
        },
        Err(why) => refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("no profile was taken: {why}"),
        ),
    }
}

/// How long the profile is to take.
fn length(query: &str) -> Result<Duration, String> {
    let asked = query.split('&').find_map(|pair| pair.strip_prefix("seconds="));
    let Some(seconds) = asked else { return Ok(USUAL) };
    let most = LONGEST.as_secs();
    match seconds.parse() {
        Ok(seconds) if (1..=most).contains(&seconds) => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("seconds={seconds}: it is a whole number from 1 to {most}")),
    }
}

fn index() -> String {
    let mut text = format!(
        "{ROOT}profile?seconds=N: where the processors' time goes in the next N seconds ({} unless it is said, {} at most), \
         for go tool pprof\n\nNot served:\n",
        USUAL.as_secs(),
        LONGEST.as_secs()
    );
    for (name, why) in ABSENT {
        text.push_str(&format!("{name}: {why}\n"));
    }
    text
}

#[cfg(test)]
mod tests;
