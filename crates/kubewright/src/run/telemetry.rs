//! Spans for an OpenTelemetry collector, by OTLP over HTTP, when the environment names one
//! (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`; the specification's other variables count as
//! well).
//!
//! Spans are batched and sent by a thread of the SDK, over a connection of the operator's own runtime. A collector that
//! is gone costs spans and nothing else. Not here: HTTPS (put a collector or agent beside the operator), metrics and
//! logs.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::Level;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::registry::LookupSpan;

/// Where a collector is told to be, in the order in which it counts.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];
/// How long the last spans may take to be sent.
const LAST: Duration = Duration::from_secs(5);
/// The most that is read of a collector's answer.
const ANSWER: usize = 64 * 1024;

/// Spans that are being exported, to be ended in order.
pub(super) struct Exporting {
    provider: Option<SdkTracerProvider>,
    /// The message for the log, once there is one.
    trouble: Option<String>,
}

/// The layer that exports spans, if the environment asks for it.
pub(super) fn layer<S>(operator: &str) -> (Option<Box<dyn Layer<S> + Send + Sync>>, Exporting)
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let nothing = |trouble| Exporting {
        provider: None,
        trouble,
    };
    let configured = ENDPOINTS
        .into_iter()
        .find_map(|name| Some((name, std::env::var(name).ok()?)));
    let Some((name, endpoint)) = configured.filter(|(_, endpoint)| !endpoint.is_empty()) else {
        return (None, nothing(None));
    };
    if endpoint.starts_with("https:") {
        let why = format!(
            "{name}: spans are not exported, because HTTPS to a collector is not supported; put one beside the operator"
        );
        return (None, nothing(Some(why)));
    }
    match exporting(None, operator) {
        Ok(provider) => {
            let layer = of(&provider);
            let exporting = Exporting {
                provider: Some(provider),
                trouble: None,
            };
            (Some(layer), exporting)
        }
        Err(why) => (None, nothing(Some(format!("{name}: spans are not exported: {why}")))),
    }
}

/// All spans of the runtime, and those of the operator's own code at level info.
fn of<S>(provider: &SdkTracerProvider) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
{
    let wanted = |meta: &tracing::Metadata<'_>| {
        *meta.level() <= Level::INFO || (meta.is_span() && meta.target().starts_with("kubewright"))
    };
    let tracer = provider.tracer("kubewright");
    tracing_opentelemetry::layer()
        .with_tracer(tracer)
        .with_filter(filter_fn(wanted))
        .boxed()
}

/// `endpoint`: instead of the environment's.
fn exporting(endpoint: Option<&str>, operator: &str) -> Result<SdkTracerProvider, String> {
    let runtime = Handle::try_current().map_err(|error| error.to_string())?;
    let builder = SpanExporter::builder()
        .with_http()
        .with_http_client(Sender::new(runtime));
    let builder = match endpoint {
        Some(endpoint) => builder.with_endpoint(endpoint),
        None => builder,
    };
    let exporter = builder.build().map_err(|error| error.to_string())?;
    let resource = Resource::builder();
    let resource = match std::env::var_os("OTEL_SERVICE_NAME") {
        Some(_) => resource, // it is read there
        None => resource.with_service_name(operator.to_owned()),
    };
    Ok(SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_resource(resource.build())
        .build())
}

impl Exporting {
    /// Reports errors from before there was a log.
    pub(super) fn log(&self) {
        if let Some(trouble) = &self.trouble {
            tracing::warn!("{trouble}");
        }
    }

    /// Sends the rest.
    pub(super) async fn end(self) {
        let Some(provider) = self.provider else { return };
        // It blocks until our runtime has sent the spans.
        let ended = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST)).await;
        if let Ok(Err(error)) = ended {
            tracing::warn!(%error, "the last spans were not exported");
        }
    }
}

/// Sends over the operator's runtime, from any thread.
struct Sender {
    runtime: Handle,
    client: Client<HttpConnector, Full<Bytes>>,
}

impl Sender {
    fn new(runtime: Handle) -> Sender {
        let client = Client::builder(TokioExecutor::new()).build_http();
        Sender { runtime, client }
    }
}

impl fmt::Debug for Sender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

type Sent<'a> = Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'a>>;

impl HttpClient for Sender {
    fn send_bytes<'a, 'b>(&'a self, request: Request<Bytes>) -> Sent<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        let sending = self.client.request(request.map(Full::new));
        let sent = self.runtime.spawn(async move {
            let (head, body) = sending.await?.into_parts();
            let body = Limited::new(body, ANSWER).collect().await?.to_bytes();
            Ok(Response::from_parts(head, body))
        });
        Box::pin(async move { sent.await? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tracing_subscriber::layer::SubscriberExt as _;

    /// Answers one request with 200; the request.
    async fn collector(listener: TcpListener) -> Vec<u8> {
        let (mut stream, _) = listener.accept().await.expect("it connects");
        let (mut request, mut part) = (Vec::new(), [0; 4096]);
        loop {
            let read = stream.read(&mut part).await.expect("it is read");
            request.extend_from_slice(&part[..read]);
            let text = String::from_utf8_lossy(&request).to_lowercase();
            let Some((head, _)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.and_then(|length| length.parse().ok()).expect("a length");
            let began = request
                .windows(4)
                .position(|four| four == b"\r\n\r\n")
                .expect("it was found")
                + 4;
            if request.len() >= began + length {
                break;
            }
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
        stream.write_all(answer).await.expect("it is written");
        request
    }

    #[tokio::test]
    async fn spans_reach_a_collector() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().expect("an address"));
        let provider = exporting(Some(&endpoint), "guestbook").expect("it is built");
        tracing::subscriber::with_default(tracing_subscriber::registry().with(of(&provider)), || {
            tracing::error_span!(target: "kubewright::controller", "reconcile", object = "default/a").in_scope(|| {
                let path = "/api/v1/namespaces/default/configmaps/a-copy";
                crate::trace::request(&http::Method::PATCH, path).in_scope(|| {});
            });
            tracing::debug_span!(target: "hyper", "a library's business").in_scope(|| {});
        });
        let collected = tokio::spawn(collector(listener));
        let exporting = Exporting {
            provider: Some(provider),
            trouble: None,
        };
        exporting.end().await;
        let request = collected.await.expect("no panic");
        let text = String::from_utf8_lossy(&request);
        assert!(text.starts_with("POST /v1/traces "), "{text}");
        for word in [
            "guestbook",
            "reconcile",
            "default/a",
            "request",
            "patch",
            "configmaps",
            "a-copy",
        ] {
            assert!(text.contains(word), "{word}: {text}");
        }
        assert!(!text.contains("a library's business"), "{text}");
    }
}
