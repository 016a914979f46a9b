//! `/healthz`, which is `/livez` as well, and `/readyz` over HTTP, as probes expect them.
//!
//! `200 ok` or `500` with the failed checks; `?verbose` lists all of them; `/readyz/<check>` answers one. Ready means
//! that every controller's sources have been listed once. A source that fails later is shown with its check, but does
//! not make the operator unready: an unready operator would serve no webhooks either.
//!
//! Not here: connections and their limits, see `net.rs`; TLS; metrics.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use http::StatusCode;
use tokio::net::TcpListener;

use crate::error::{Error, Result, end_of_panic};
use crate::net::{self, Answer};
use crate::stop::Stop;

/// A check: `Err` is the problem in words.
pub(crate) type Check = Arc<dyn Fn() -> Result<(), String> + Send + Sync>;

/// A remark beside a check that does not fail.
pub(crate) type Remark = Arc<dyn Fn() -> Vec<String> + Send + Sync>;

#[derive(Clone)]
struct Entry {
    check: Check,
    remark: Option<Remark>,
}

/// The checks of a manager.
#[derive(Clone, Default)]
pub(crate) struct Checks(Arc<Mutex<BTreeMap<&'static str, BTreeMap<String, Entry>>>>);

impl fmt::Debug for Checks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Checks")
    }
}

impl Checks {
    pub(crate) fn add(&self, endpoint: &'static str, name: &str, check: Check) {
        self.insert(endpoint, name, Entry { check, remark: None });
    }

    /// A check with something to be told beside it.
    pub(crate) fn add_remarked(&self, endpoint: &'static str, name: &str, check: Check, remark: Remark) {
        let remark = Some(remark);
        self.insert(endpoint, name, Entry { check, remark });
    }

    pub(crate) fn remove(&self, endpoint: &'static str, name: &str) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(endpoint).or_default().remove(name);
    }

    fn insert(&self, endpoint: &'static str, name: &str, entry: Entry) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(endpoint).or_default().insert(name.to_owned(), entry);
    }

    /// Status and text for a path and query.
    pub(crate) fn answer(&self, path: &str, query: &str) -> (StatusCode, String) {
        let mut parts = path.trim_matches('/').splitn(2, '/');
        let endpoint = parts.next().unwrap_or_default();
        let filed = match endpoint {
            "livez" | "healthz" => "healthz",
            "readyz" => "readyz",
            _ => return (StatusCode::NOT_FOUND, "404 page not found\n".to_owned()),
        };
        let only = parts.next();
        let checks = self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(filed)
            .cloned()
            .unwrap_or_default();
        let chosen: BTreeMap<&String, &Entry> = checks
            .iter()
            .filter(|(name, _)| only.is_none_or(|only| only == *name))
            .collect();
        if only.is_some_and(|only| only != "ping") && chosen.is_empty() {
            return (StatusCode::NOT_FOUND, "404 page not found\n".to_owned());
        }
        let mut text = "[+]ping ok\n".to_owned();
        let mut failed = false;
        for (name, Entry { check, remark }) in chosen {
            // It may be the user's.
            let checked = catch_unwind(AssertUnwindSafe(|| check()));
            match checked.unwrap_or_else(|payload| Err(format!("the check panicked: {}", end_of_panic(payload)))) {
                Ok(()) => {
                    text.push_str(&format!("[+]{name} ok\n"));
                    let remarks = remark.iter().flat_map(|remark| remark());
                    remarks.for_each(|remark| text.push_str(&format!("   {remark}\n")));
                }
                Err(reason) => {
                    failed = true;
                    text.push_str(&format!("[-]{name} failed: {reason}\n"));
                }
            }
        }
        match failed {
            true => (
                StatusCode::INTERNAL_SERVER_ERROR,
                format!("{text}{endpoint} check failed\n"),
            ),
            false
                if query
                    .split('&')
                    .any(|part| part == "verbose" || part.starts_with("verbose=")) =>
            {
                (StatusCode::OK, format!("{text}{endpoint} check passed\n"))
            }
            false => (StatusCode::OK, "ok".to_owned()),
        }
    }
}

/// Binds the address. Separate from serving, so that a taken port is an error at once.
pub(crate) async fn bind(address: &str) -> Result<(TcpListener, SocketAddr)> {
    let attempted =
        |error: std::io::Error| Error::Configuration(format!("cannot listen for health probes on {address}: {error}"));
    let listener = net::listen(address).await.map_err(attempted)?;
    let local = listener.local_addr().map_err(attempted)?;
    Ok((listener, local))
}

/// Serves until the stop.
pub(crate) async fn serve(listener: TcpListener, checks: Checks, stop: Stop) -> Result<()> {
    net::serve(listener, "health probes", None, stop, move |request| {
        let (status, text) = checks.answer(request.uri.path(), request.uri.query().unwrap_or_default());
        async move { Answer::text(status, text) }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::{HEADER, MAX_CONNECTIONS};

    /// More clients that say nothing than there may be connections hold a probe up only until their time is over.
    #[tokio::test(start_paused = true)]
    async fn silent_clients_keep_no_probe_from_its_answer() {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (listener, address) = bind("127.0.0.1:0").await.expect("a free port");
        let (_source, stop) = Stop::pair();
        tokio::spawn(serve(listener, Checks::default(), stop));
        let mut silent = Vec::new();
        for _ in 0..=MAX_CONNECTIONS {
            silent.push(tokio::net::TcpStream::connect(address).await.expect("it listens"));
        }
        let mut probe = tokio::net::TcpStream::connect(address).await.expect("it listens");
        let request = b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        probe.write_all(request).await.expect("it is taken");
        let mut answer = String::new();
        tokio::time::timeout(HEADER * 3, probe.read_to_string(&mut answer))
            .await
            .expect("the silent ones are closed")
            .expect("an answer");
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[test]
    fn probes_answer_as_kubernetes_components_do() {
        let checks = Checks::default();
        checks.add("readyz", "good", Arc::new(|| Ok(())));
        let check = |path: &str, query: &str, status: u16, text: &str| {
            assert_eq!(
                checks.answer(path, query),
                (StatusCode::from_u16(status).expect("a status"), text.to_owned()),
                "{path}?{query}"
            );
        };
        check("/healthz", "", 200, "ok");
        check("/livez", "", 200, "ok");
        check("/readyz", "", 200, "ok");
        check(
            "/readyz",
            "verbose",
            200,
            "[+]ping ok\n[+]good ok\nreadyz check passed\n",
        );
        check("/livez", "verbose", 200, "[+]ping ok\nlivez check passed\n");
        check("/readyz/good", "", 200, "ok");
        check("/readyz/other", "", 404, "404 page not found\n");
        check("/metrics", "", 404, "404 page not found\n");
        checks.add("readyz", "bad", Arc::new(|| Err("not yet".to_owned())));
        check(
            "/readyz",
            "",
            500,
            "[+]ping ok\n[-]bad failed: not yet\n[+]good ok\nreadyz check failed\n",
        );
        check("/healthz", "", 200, "ok");
        checks.add("readyz", "bad", Arc::new(|| Ok(())));
        let trouble = || vec!["Secret in all namespaces: the watch failed".to_owned()];
        checks.add_remarked("readyz", "sick", Arc::new(|| Ok(())), Arc::new(trouble));
        check("/readyz", "", 200, "ok");
        check(
            "/readyz",
            "verbose",
            200,
            "[+]ping ok\n[+]bad ok\n[+]good ok\n[+]sick ok\n   Secret in all namespaces: the watch failed\nreadyz check passed\n",
        );
    }
}
