//! Metrics with the names that controller-runtime and client-go use, so that existing dashboards and alerts work, and
//! additional ones for the cache.
//!
//! Frequent changes are counted where they happen, in handles that are looked up once. Other values are read when the
//! metrics are requested (queues, caches, the process). Invariant: labels have few values, all from the operator's
//! own declaration, verbs and status codes; no value from a client becomes a label.
//!
//! - `controllers.rs`: reconciles and their queues,
//! - `shards.rs`: the shards of replicas,
//! - `caches.rs`: informers,
//! - `process.rs`: metrics of the process from the operating system,
//! - `server.rs`: the endpoint,
//! - `access.rs`: who may read it.

mod controllers;
mod process;
mod shards;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use self::controllers::Queues;
pub(crate) use self::controllers::{ControllerMetrics, Result as ReconcileResult};

/// Labels with their values.
type Labels<const N: usize> = [(&'static str, String); N];

/// The metrics of one manager. Cheap to clone.
///
/// An operator adds its own to the same registry:
///
/// ```
/// use kubewright::Operator;
/// use kubewright::prometheus_client::metrics::counter::Counter;
///
/// fn operator(orders: Counter) -> Operator {
///     // Read as shop_orders_total.
///     Operator::new("shop").metrics(move |registry| registry.register("shop_orders", "Orders that were placed", orders))
/// }
/// ```
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Mutex<Registry>,
    controllers: controllers::Families,
    queues: Queues,
    requests: Family<Labels<3>, Counter>,
    /// Of the API server, as requests are counted.
    host: OnceLock<String>,
    leading: Family<Labels<1>, Gauge>,
    blocked: Gauge,
    shards: shards::Families,
    webhooks: Webhooks,
}

/// The requests to webhooks.
struct Webhooks {
    requests: Family<Labels<2>, Counter>,
    latency: Family<Labels<1>, Histogram>,
    in_flight: Family<Labels<1>, Gauge>,
    panics: Family<Labels<1>, Counter>,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

impl Metrics {
    /// Metrics that nothing was counted in yet.
    pub fn new() -> Metrics {
        let mut registry = Registry::default();
        let controllers = controllers::Families::register(&mut registry);
        let queues = Queues::default();
        queues.register(&mut registry);
        let requests = Family::default();
        let about = "Number of HTTP requests, partitioned by status code, method, and host";
        registry.register("rest_client_requests", about, requests.clone());
        let leading = Family::default();
        let about = "Whether this replica leads: 1 the leader, 0 another replica is";
        registry.register("leader_election_master_status", about, leading.clone());
        let blocked = Gauge::default();
        let about = "Number of reconciliations that have blocked their thread for five seconds or more";
        registry.register("kubewright_blocked_reconciles", about, blocked.clone());
        let shards = shards::Families::register(&mut registry);
        let webhooks = Webhooks::register(&mut registry);
        process::register(&mut registry);
        Metrics(Arc::new(Inner {
            registry: Mutex::new(registry),
            controllers,
            queues,
            requests,
            host: OnceLock::new(),
            leading,
            blocked,
            shards,
            webhooks,
        }))
    }

    /// Adds metrics of the operator's own.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry());
    }

    /// All of them, as the endpoint answers: the text format of OpenMetrics 1.0.
    pub fn encode(&self) -> String {
        let mut text = String::new();
        let encoded = prometheus_client::encoding::text::encode(&mut text, &self.registry());
        encoded.expect("writing to a String cannot fail");
        text
    }

    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.0.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Names the API server, with its port, for the metrics of requests. The first call counts.
    pub(crate) fn talks_to(&self, host: String) {
        self.0.host.get_or_init(|| host);
    }

    /// A request was answered (`code` of the answer) or not (`<error>`, as client-go has it).
    pub(crate) fn requested(&self, method: &http::Method, code: Option<u16>) {
        let code = code.map_or_else(|| "<error>".to_owned(), |code| code.to_string());
        let labels = [
            ("code", code),
            ("host", self.0.host.get().cloned().unwrap_or_default()),
            ("method", method.to_string()),
        ];
        self.0.requests.get_or_create(&labels).inc();
    }

    /// So many reconciles block their threads now.
    pub(crate) fn blocked(&self, reconciles: i64) {
        self.0.blocked.set(reconciles);
    }

    pub(crate) fn leads(&self, lease: &str, leads: bool) {
        self.0
            .leading
            .get_or_create(&[("name", lease.to_owned())])
            .set(i64::from(leads));
    }

    /// A request for a webhook begins; the returned value reports its end.
    pub(crate) fn webhook(&self, path: &str) -> WebhookCall {
        let labels = [("webhook", path.to_owned())];
        self.0.webhooks.in_flight.get_or_create(&labels).inc();
        WebhookCall {
            metrics: self.clone(),
            labels,
            began: tokio::time::Instant::now(),
            code: 500,
        }
    }

    pub(crate) fn webhook_panicked(&self, path: &str) {
        let labels = [("webhook", path.to_owned())];
        self.0.webhooks.panics.get_or_create(&labels).inc();
    }
}

/// A request for a webhook that is under way. Dropped, it has ended.
pub(crate) struct WebhookCall {
    metrics: Metrics,
    labels: Labels<1>,
    began: tokio::time::Instant,
    code: u16,
}

impl WebhookCall {
    pub(crate) fn answered(mut self, code: u16) {
        self.code = code;
    }
}

impl Drop for WebhookCall {
    fn drop(&mut self) {
        let webhooks = &self.metrics.0.webhooks;
        webhooks.in_flight.get_or_create(&self.labels).dec();
        let took = self.began.elapsed().as_secs_f64();
        webhooks.latency.get_or_create(&self.labels).observe(took);
        let path = self.labels[0].1.clone();
        let labels = [("code", self.code.to_string()), ("webhook", path)];
        webhooks.requests.get_or_create(&labels).inc();
    }
}

impl Webhooks {
    fn register(registry: &mut Registry) -> Webhooks {
        let webhooks = Webhooks {
            requests: Family::default(),
            latency: Family::new_with_constructor(latency),
            in_flight: Family::default(),
            panics: Family::default(),
        };
        registry.register(
            "controller_runtime_webhook_requests",
            "Total number of admission requests by HTTP status code",
            webhooks.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            webhooks.latency.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served",
            webhooks.in_flight.clone(),
        );
        registry.register(
            "controller_runtime_webhook_panics",
            "Total number of webhook panics",
            webhooks.panics.clone(),
        );
        webhooks
    }
}

/// client_golang's `DefBuckets`.
fn latency() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
}
