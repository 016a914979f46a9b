//! Calls of the API server to webhooks: over HTTPS, or to a function in this process; and requests that it passes on to
//! other API servers (`forward`).
//!
//! A call is sent on where the answer says so, and sent again when the answer says when, as client-go does it, all
//! within its time. Connections are kept for the next call (`idle`); `tls` decides which certificates to trust,
//! `resolve` finds the address of a Service. Errors are in the words of Go's HTTP client, for they end up in answers
//! that users read.
//!
//! Invariants: nothing is trusted but the `caBundle`, or without one the machine's authorities; an answer of more than
//! 3 MiB is an error; connections end with the cluster.
//!
//! Not here: the content of a call (the API server's), proxies.

mod forward;
mod idle;
mod redirect;
mod resolve;
mod tls;

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use kubewright_apiserver::env::BoxFuture;
use kubewright_apiserver::outbound::{
    AdmissionQuestion, AdmissionVerdict, Destination, Inside, Outbound, OutboundAnswer, OutboundCall, OutboundError,
};
use kubewright_apiserver::storage::Storage;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use crate::pieces::{Pieces, too_fine};
use idle::{Idle, Key};
use redirect::Step;
use resolve::ServiceAddress;

pub(crate) use forward::Tunnel;
pub use tls::FrontProxy;

/// The largest answer that is read, in bytes: as large as a request to the server may be.
const MAX_ANSWER: usize = 3 << 20;
/// How many requests a call may become by being sent on, and how often it is tried again when the answer says when (as
/// client-go).
const MAX_STEPS: usize = 10;
const MAX_RETRIES: usize = 10;

/// A webhook in this process: gets the document that would be posted, answers with the one that would come back, or
/// with why it could not be reached.
pub(crate) type WebhookFunction = Arc<dyn Fn(Value) -> BoxFuture<'static, Result<Value, String>> + Send + Sync>;

/// An admission webhook in this process that takes what is asked without its text.
type AdmissionFunction =
    Arc<dyn Fn(AdmissionQuestion, Duration) -> BoxFuture<'static, Result<AdmissionVerdict, String>> + Send + Sync>;

struct AdmissionInside(AdmissionFunction);

impl Inside for AdmissionInside {
    fn ask(
        &self,
        question: AdmissionQuestion,
        timeout: Duration,
    ) -> BoxFuture<'static, Result<AdmissionVerdict, OutboundError>> {
        let asking = (self.0)(question, timeout);
        Box::pin(async move {
            match tokio::time::timeout(timeout, asking).await {
                Ok(answer) => answer.map_err(failed),
                Err(_) => Err(OutboundError::Timeout),
            }
        })
    }
}

/// Webhooks in this process, by the URL that requests to them would go to.
#[derive(Clone, Default)]
pub struct Functions {
    documents: BTreeMap<String, WebhookFunction>,
    admission: BTreeMap<String, Arc<AdmissionInside>>,
}

impl Functions {
    /// Answers calls to `url` (as a configuration has it, or `https://name.namespace.svc:port/path` for a service) with
    /// a function.
    pub fn add<F, R>(&mut self, url: &str, function: F)
    where
        F: Fn(Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let function: WebhookFunction = Arc::new(move |document| Box::pin(function(document)));
        let url = Destination::Url(url.to_owned()).url();
        self.admission.remove(&url);
        self.documents.insert(url, function);
    }

    /// Answers what admission asks at `url` with a function. What else comes there is not for it.
    fn add_admission<F, R>(&mut self, url: &str, function: F)
    where
        F: Fn(AdmissionQuestion, Duration) -> R + Send + Sync + 'static,
        R: Future<Output = Result<AdmissionVerdict, String>> + Send + 'static,
    {
        let function: AdmissionFunction = Arc::new(move |question, timeout| Box::pin(function(question, timeout)));
        let url = Destination::Url(url.to_owned()).url();
        self.admission.insert(url, Arc::new(AdmissionInside(function)));
    }
}

type Sender = SendRequest<Full<Bytes>>;

/// The real thing.
pub struct HttpsOutbound(Arc<Shared>);

struct Shared {
    storage: Arc<dyn Storage>,
    functions: RwLock<Functions>,
    /// For webhooks.
    trust: tls::Trust,
    /// For API servers.
    fronts: tls::Trust,
    idle: Idle<Sender>,
    stop: CancellationToken,
}

impl HttpsOutbound {
    /// Services are looked up in `storage`; connections end with `stop`; to other API servers `front` proves that this is
    /// the cluster's.
    pub fn new(
        storage: Arc<dyn Storage>,
        functions: Functions,
        front: Option<FrontProxy>,
        stop: CancellationToken,
    ) -> HttpsOutbound {
        HttpsOutbound(Arc::new(Shared {
            storage,
            functions: RwLock::new(functions),
            trust: tls::Trust::default(),
            fronts: tls::Trust::of(front),
            idle: Idle::default(),
            stop,
        }))
    }
}

impl HttpsOutbound {
    /// Answers calls to `url` with this function from now on.
    pub fn add<F, R>(&self, url: &str, function: F)
    where
        F: Fn(Value) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, String>> + Send + 'static,
    {
        let mut functions = self.0.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.add(url, function);
    }

    /// Answers what admission asks at `url` with this function from now on.
    pub fn add_admission<F, R>(&self, url: &str, function: F)
    where
        F: Fn(AdmissionQuestion, Duration) -> R + Send + Sync + 'static,
        R: Future<Output = Result<AdmissionVerdict, String>> + Send + 'static,
    {
        let mut functions = self.0.functions.write().unwrap_or_else(PoisonError::into_inner);
        functions.add_admission(url, function);
    }
}

impl Outbound for HttpsOutbound {
    fn call(&self, call: OutboundCall) -> BoxFuture<'static, Result<OutboundAnswer, OutboundError>> {
        let shared = self.0.clone();
        Box::pin(async move {
            let timeout = call.timeout;
            tokio::time::timeout(timeout, shared.call(call))
                .await
                .unwrap_or(Err(OutboundError::Timeout))
        })
    }

    fn inside(&self, url: &str) -> Option<Arc<dyn Inside>> {
        let functions = self.0.functions.read().unwrap_or_else(PoisonError::into_inner);
        let inside = functions.admission.get(url)?.clone();
        Some(inside)
    }
}

fn failed(why: impl Into<String>) -> OutboundError {
    OutboundError::Failed(why.into())
}

/// Why a call has no answer.
enum Broken {
    /// The connection ended before anything of the call was sent, as one that was kept may have done; another one may
    /// take it.
    Unsent(OutboundError),
    /// The server may have seen the call, and must not see it twice.
    Failed(OutboundError),
}

/// Host and port of a URL, and whether it is one of HTTPS.
struct Authority {
    host: String,
    port: u16,
    secure: bool,
}

/// An answer, and the next step by it.
struct Answered {
    answer: OutboundAnswer,
    location: Option<String>,
    /// When to try again, should the status be one that may change.
    again: Option<Duration>,
}

impl Authority {
    fn of(url: &Uri) -> Result<Authority, OutboundError> {
        let secure = match url.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            other => {
                let why = format!("unsupported protocol scheme {:?}", other.unwrap_or(""));
                return Err(failed(why));
            }
        };
        let host = url.host().ok_or_else(|| failed("http: no Host in request URL"))?;
        Ok(Authority {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port_u16().unwrap_or(if secure { 443 } else { 80 }),
            secure,
        })
    }
}

impl Shared {
    async fn call(&self, call: OutboundCall) -> Result<OutboundAnswer, OutboundError> {
        let url = call.to.url();
        if let Some(function) = self.function(&url) {
            let document = call.document().map_err(|error| failed(error.to_string()))?;
            let answer = function(document).await.map_err(failed)?;
            return Ok(OutboundAnswer {
                code: 200,
                content_type: "application/json".to_owned(),
                body: Bytes::from(answer.to_string()),
            });
        }
        let url: Uri = format!("{url}?{}", call.query)
            .parse()
            .map_err(|error| failed(format!("parse {url:?}: {error}")))?;
        // A configuration names HTTPS only; the target of a redirect may have any scheme.
        if url.scheme_str() != Some("https") {
            let scheme = url.scheme_str().unwrap_or("");
            return Err(failed(format!("unsupported protocol scheme {scheme:?}")));
        }
        for _ in 0..MAX_RETRIES {
            let answered = self.follow(&url, &call).await?;
            let Some(again) = answered.again else {
                return Ok(answered.answer);
            };
            tokio::time::sleep(again).await;
        }
        Ok(self.follow(&url, &call).await?.answer)
    }

    /// Sends a call, and sends it on where the answer says so.
    async fn follow(&self, first: &Uri, call: &OutboundCall) -> Result<Answered, OutboundError> {
        let mut step = Step {
            method: Method::POST,
            url: first.clone(),
            referer: None,
        };
        let mut sent_on = String::new();
        for taken in 0..MAX_STEPS {
            let elsewhere = |error: OutboundError| match error {
                OutboundError::Failed(why) if taken > 0 => OutboundError::Elsewhere {
                    url: step.url.to_string(),
                    why,
                },
                error => error,
            };
            let answered = self.exchange(first, &step, call).await.map_err(elsewhere)?;
            let next = step.next(answered.answer.code, answered.location.as_deref());
            let Some(next) = next.map_err(failed).map_err(elsewhere)? else {
                return Ok(answered);
            };
            sent_on = answered.location.unwrap_or_default();
            step = next;
        }
        Err(OutboundError::Elsewhere {
            url: sent_on,
            why: format!("stopped after {MAX_STEPS} redirects"),
        })
    }

    /// Sends one request and waits for its answer.
    async fn exchange(&self, first: &Uri, step: &Step, call: &OutboundCall) -> Result<Answered, OutboundError> {
        let authority = Authority::of(&step.url)?;
        let scheme = step.url.scheme_str().unwrap_or("");
        let key = (
            format!("{scheme}://{}:{}", authority.host, authority.port),
            call.ca_bundle.clone(),
        );
        while let Some(sender) = self.idle.take(&key) {
            match self.send(sender, step, call, &key).await {
                Err(Broken::Unsent(_)) => {}
                Err(Broken::Failed(error)) => return Err(error),
                Ok(answer) => return Ok(answer),
            }
        }
        // A Service is where it is only under its own name.
        let there = Destination::Url(step.url.to_string());
        let to = if step.url.authority() == first.authority() {
            &call.to
        } else {
            &there
        };
        let sender = self.connect(&authority, to, call).await?;
        let answer = self.send(sender, step, call, &key).await;
        answer.map_err(|(Broken::Unsent(error) | Broken::Failed(error))| error)
    }

    fn function(&self, url: &str) -> Option<WebhookFunction> {
        let functions = self.functions.read().unwrap_or_else(PoisonError::into_inner);
        functions.documents.get(url).cloned()
    }

    async fn send(&self, mut sender: Sender, step: &Step, call: &OutboundCall, key: &Key) -> Result<Answered, Broken> {
        let authority = step.url.authority().map_or("", |authority| authority.as_str());
        let path = step.url.path_and_query().map_or("/", |path| path.as_str());
        let mut request = Request::builder()
            .method(step.method.clone())
            .uri(path)
            .header(header::HOST, authority)
            .header(header::USER_AGENT, "kube-apiserver-admission")
            .header(header::ACCEPT, "application/json, */*");
        if let Some(referer) = &step.referer {
            request = request.header(header::REFERER, referer);
        }
        let body = if step.has_body() {
            request = request.header(header::CONTENT_TYPE, "application/json");
            call.body.clone()
        } else {
            Bytes::new()
        };
        let request = request
            .body(Full::new(body))
            .map_err(|error| Broken::Failed(failed(error.to_string())))?;
        let response = sender.try_send_request(request).await.map_err(|mut error| {
            let unsent = error.take_message().is_some();
            let why = failed(broken(error.error()));
            if unsent {
                Broken::Unsent(why)
            } else {
                Broken::Failed(why)
            }
        })?;
        let said = |name: header::HeaderName| Some(response.headers().get(name)?.to_str().ok()?.to_owned());
        let content_type = said(header::CONTENT_TYPE).unwrap_or_default();
        let location = said(header::LOCATION);
        let code = response.status().as_u16();
        let again = said(header::RETRY_AFTER)
            .filter(|_| code == 429 || code >= 500)
            .and_then(|seconds| seconds.trim().parse::<i64>().ok())
            .map(|seconds| Duration::from_secs(u64::try_from(seconds).unwrap_or(0)));
        let body = whole(response.into_body())
            .await
            .map_err(|error| Broken::Failed(failed(format!("error reading response body: {error}"))))?;
        self.idle.keep(key, sender);
        Ok(Answered {
            answer: OutboundAnswer {
                code,
                content_type,
                body,
            },
            location,
            again,
        })
    }

    async fn connect(
        &self,
        authority: &Authority,
        to: &Destination,
        call: &OutboundCall,
    ) -> Result<Sender, OutboundError> {
        let stream = self.dial(authority, to).await?;
        // Small requests and small answers: waiting to fill a packet only costs time.
        stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
        if !authority.secure {
            return self.speak(stream).await;
        }
        let config = self.trust.config(&call.ca_bundle, false).map_err(failed)?;
        let stream = tls::connect(config, &authority.host, stream).await.map_err(failed)?;
        self.speak(stream).await
    }

    /// Speaks HTTP on a stream.
    async fn speak(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<Sender, OutboundError> {
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| failed(error.to_string()))?;
        let stop = self.stop.clone();
        tokio::spawn(async move {
            tokio::select! {
                ended = connection => {
                    if let Err(error) = ended {
                        tracing::debug!(%error, "a connection to a webhook broke");
                    }
                }
                () = stop.cancelled() => {}
            }
        });
        Ok(sender)
    }

    async fn dial(&self, authority: &Authority, to: &Destination) -> Result<TcpStream, OutboundError> {
        let addresses = match to {
            Destination::Service {
                namespace, name, port, ..
            } => match resolve::service(self.storage.as_ref(), namespace, name, *port).map_err(failed)? {
                ServiceAddress::Addresses(addresses) => addresses,
                ServiceAddress::Host(host) => lookup(&host, *port).await?,
            },
            Destination::Url(_) => lookup(&authority.host, authority.port).await?,
        };
        let mut last = None;
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = Some(format!("dial tcp {address}: {}", words(&error))),
            }
        }
        Err(failed(last.unwrap_or_else(|| no_such_host(&authority.host))))
    }
}

/// A connection that ended before the answer, as Go says it.
fn broken(error: &hyper::Error) -> String {
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        match inner.downcast_ref::<io::Error>().map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) => return "EOF".to_owned(),
            Some(io::ErrorKind::ConnectionReset) => return "read: connection reset by peer".to_owned(),
            _ => source = inner.source(),
        }
    }
    if error.is_incomplete_message() || error.is_canceled() || error.is_closed() {
        "EOF".to_owned()
    } else {
        error.to_string()
    }
}

async fn lookup(host: &str, port: u16) -> Result<Vec<SocketAddr>, OutboundError> {
    tokio::net::lookup_host((host, port))
        .await
        .map(Iterator::collect)
        .map_err(|_| failed(no_such_host(host)))
}

fn no_such_host(host: &str) -> String {
    format!("dial tcp: lookup {host}: no such host")
}

/// An error of the operating system as Go prints it.
fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        _ => format!("connect: {error}"),
    }
}

/// All of an answer.
async fn whole<B>(body: B) -> Result<Bytes, Box<dyn std::error::Error + Send + Sync>>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (mut body, mut pieces) = (Limited::new(body, MAX_ANSWER), Pieces::default());
    while let Some(frame) = body.frame().await {
        let frame = frame?;
        if !pieces.admit() {
            return Err(too_fine().into());
        }
        if let Ok(data) = frame.into_data() {
            pieces.add(data);
        }
    }
    Ok(pieces.whole())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kubewright_apiserver::storage::MemoryStorage;
    use rustls::pki_types::PrivateKeyDer;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio_rustls::TlsAcceptor;

    use super::*;

    async fn call(outbound: &HttpsOutbound, to: Destination) -> String {
        let call = OutboundCall {
            to,
            ca_bundle: Bytes::new(),
            body: Bytes::from("{}"),
            query: "timeout=1s".to_owned(),
            timeout: Duration::from_secs(1),
        };
        match outbound.call(call).await {
            Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
            Err(error) => error.to_string(),
        }
    }

    #[tokio::test]
    async fn answers_come_in_pieces() {
        let check = async |count: usize, size: usize, expected: Result<usize, &str>| {
            let piece = move |_| Ok::<_, std::io::Error>(http_body::Frame::data(Bytes::from(vec![b' '; size])));
            let read = whole(http_body_util::StreamBody::new(futures::stream::iter(
                (0..count).map(piece),
            )))
            .await;
            let read = read.map(|read| read.len()).map_err(|error| error.to_string());
            assert_eq!(read, expected.map_err(str::to_owned), "{count} of {size} bytes");
        };
        check(0, 0, Ok(0)).await;
        check(3, 5, Ok(15)).await;
        check(3, MAX_ANSWER / 3, Ok(MAX_ANSWER)).await;
        check(4, MAX_ANSWER / 3, Err("length limit exceeded")).await;
        check(100_000, 1, Ok(100_000)).await;
        check(100_001, 1, Err("it comes in more than 100000 pieces")).await;
    }

    #[tokio::test]
    async fn calls_and_their_errors() {
        let storage = Arc::new(MemoryStorage::new(16, 16));
        for (name, ip) in [("there", "127.0.0.1"), ("empty", "")] {
            let service = json!({"metadata": {"name": name}, "spec": {"ports": [{"port": 443, "name": "https"}]}});
            let key = format!("n/{name}");
            storage.create("services", &key, service).expect("it is new");
            let addresses = if ip.is_empty() {
                json!([])
            } else {
                json!([{ "ip": ip }])
            };
            let subset = json!({"addresses": addresses, "ports": [{"name": "https", "port": 1}]});
            let endpoints = json!({"metadata": {"name": name}, "subsets": [subset]});
            storage.create("endpoints", &key, endpoints).expect("it is new");
        }
        let elsewhere =
            json!({"metadata": {"name": "elsewhere"}, "spec": {"type": "ExternalName", "externalName": "127.0.0.1"}});
        storage.create("services", "n/elsewhere", elsewhere).expect("it is new");
        let mut functions = Functions::default();
        functions.add("https://hooks.test/a/", |document: Value| async move {
            Ok(json!({ "got": document }))
        });
        let outbound = HttpsOutbound::new(storage, functions, None, CancellationToken::new());
        let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let silent = format!("https://{}/x", silent.local_addr().expect("an address"));
        let service = |name: &str, port: u16| Destination::Service {
            namespace: "n".to_owned(),
            name: name.to_owned(),
            path: "/x".to_owned(),
            port,
        };
        let url = |text: &str| Destination::Url(text.to_owned());
        for (to, expected) in [
            (url("https://hooks.test/a"), r#"{"got":{}}"#),
            (url("http://hooks.test/b"), "unsupported protocol scheme \"http\""),
            (
                url("https://127.0.0.1:1/x"),
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
            (url(&silent), "context deadline exceeded"),
            (service("nobody", 443), "service \"nobody\" not found"),
            (service("there", 80), "no service port 80 found for service \"there\""),
            (
                service("there", 443),
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
            (service("empty", 443), "no endpoints available for service \"empty\""),
            (
                service("elsewhere", 1),
                "dial tcp 127.0.0.1:1: connect: connection refused",
            ),
        ] {
            assert_eq!(call(&outbound, to.clone()).await, expected, "{to:?}");
        }
    }

    /// The acceptor of TLS for a stream, and the certificate to trust.
    fn acceptor() -> (TlsAcceptor, Bytes) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("the key fits");
        (TlsAcceptor::from(Arc::new(config)), Bytes::from(made.cert.pem()))
    }

    /// A webhook that answers the first call on a connection and hangs up on the second; how many calls it saw.
    async fn moody_webhook() -> (String, Bytes, Arc<AtomicUsize>) {
        let (acceptor, pem) = acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://{}/x", listener.local_addr().expect("an address"));
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(socket).await else {
                    continue;
                };
                let mut request = [0; 4096];
                let _ = stream.read(&mut request).await;
                counted.fetch_add(1, Ordering::SeqCst);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                    .await;
                let _ = stream.flush().await;
                if matches!(stream.read(&mut request).await, Ok(1..)) {
                    counted.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        (url, pem, calls)
    }

    #[tokio::test]
    async fn no_webhook_is_called_twice_for_one_call() {
        let (url, ca_bundle, calls) = moody_webhook().await;
        let outbound = HttpsOutbound::new(
            Arc::new(MemoryStorage::new(16, 16)),
            Functions::default(),
            None,
            CancellationToken::new(),
        );
        let mut answers = Vec::new();
        for _ in 0..2 {
            let call = OutboundCall {
                to: Destination::Url(url.clone()),
                ca_bundle: ca_bundle.clone(),
                body: Bytes::from("{}"),
                query: "timeout=10s".to_owned(),
                timeout: Duration::from_secs(10),
            };
            answers.push(match outbound.call(call).await {
                Ok(answer) => String::from_utf8_lossy(&answer.body).into_owned(),
                Err(error) => error.to_string(),
            });
        }
        assert_eq!(
            (answers, calls.load(Ordering::SeqCst)),
            (vec!["ok".to_owned(), "EOF".to_owned()], 2)
        );
    }

    /// A webhook that answers with these heads, one after the other, and hangs up after each; the lines of the requests
    /// that it saw.
    async fn scripted_webhook(heads: &'static [&'static str]) -> (String, Bytes, Arc<Mutex<Vec<String>>>) {
        let (acceptor, pem) = acceptor();
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let url = format!("https://{}/x", listener.local_addr().expect("an address"));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = seen.clone();
        tokio::spawn(async move {
            for head in heads {
                let Ok((socket, _)) = listener.accept().await else {
                    return;
                };
                let Ok(mut stream) = acceptor.accept(socket).await else {
                    return;
                };
                let mut request = [0; 4096];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let line = request.lines().next().unwrap_or("").to_owned();
                let body = request.rsplit("\r\n").next().unwrap_or("").to_owned();
                let told = format!("{} {body}", line.trim_end_matches(" HTTP/1.1"));
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(told);
                let answer = format!("HTTP/1.1 {head}\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
                let _ = stream.write_all(answer.as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        (url, pem, seen)
    }

    #[tokio::test]
    async fn calls_are_sent_on_and_again() {
        async fn check(heads: &'static [&'static str], code: u16, requests: &[&str]) {
            let (url, ca_bundle, seen) = scripted_webhook(heads).await;
            let storage = Arc::new(MemoryStorage::new(16, 16));
            let outbound = HttpsOutbound::new(storage, Functions::default(), None, CancellationToken::new());
            let call = OutboundCall {
                to: Destination::Url(url),
                ca_bundle,
                body: Bytes::from("{}"),
                query: "timeout=10s".to_owned(),
                timeout: Duration::from_secs(10),
            };
            let answer = outbound.call(call).await.map(|answer| answer.code);
            assert_eq!(answer, Ok(code), "{heads:?}");
            let seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            assert_eq!(*seen, requests, "{heads:?}");
        }
        let first = "POST /x?timeout=10s {}";
        check(&["307 x\r\nLocation: /y", "200 x"], 200, &[first, "POST /y {}"]).await;
        check(&["302 x\r\nLocation: /y", "200 x"], 200, &[first, "GET /y "]).await;
        check(&["302 x"], 302, &[first]).await;
        check(&["429 x\r\nRetry-After: 0", "200 x"], 200, &[first, first]).await;
        check(&["503 x\r\nRetry-After: -1", "200 x"], 200, &[first, first]).await;
        check(&["429 x\r\nRetry-After: soon"], 429, &[first]).await;
        check(&["404 x\r\nRetry-After: 0"], 404, &[first]).await;
        const SLOW: [&str; 11] = ["429 x\r\nRetry-After: 0"; 11];
        check(&SLOW, 429, &[first; 11]).await;
    }
}
