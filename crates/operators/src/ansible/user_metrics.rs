//! Metrics of roles: what a task with `operator_sdk.util.osdk_metric` says becomes a metric of the operator.
//!
//! The module posts to a server on this machine, whose port it knows (5050). It needs no token, as it sends none: all that
//! it can do is to change metrics, of which there is a bounded number.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kubewright::Stop;
use kubewright::prometheus_client::collector::Collector;
use kubewright::prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use kubewright::prometheus_client::metrics::counter::Counter;
use kubewright::prometheus_client::metrics::gauge::Gauge;
use kubewright::prometheus_client::metrics::histogram::Histogram;
use kubewright::prometheus_client::registry::Registry;
use serde::{Deserialize, Deserializer};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// As many metrics may there be.
const MOST: usize = 1000;
const LONGEST: usize = 64 << 10;

/// The metrics of roles. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub(super) struct UserMetrics(Arc<Mutex<BTreeMap<String, Metric>>>);

#[derive(Debug)]
struct Metric {
    help: String,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Counter(Counter<f64, AtomicU64>),
    Gauge(Gauge<f64, AtomicU64>),
    /// A summary is one without buckets.
    Histogram(Histogram, &'static str),
}

/// What a task asks for.
#[derive(Debug, Deserialize)]
struct Asked {
    name: String,
    #[serde(default, deserialize_with = "given")]
    description: String,
    counter: Option<Change>,
    gauge: Option<Change>,
    histogram: Option<Change>,
    summary: Option<Change>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Change {
    #[serde(deserialize_with = "given")]
    increment: bool,
    #[serde(deserialize_with = "given")]
    decrement: bool,
    #[serde(deserialize_with = "given")]
    set_to_current_time: bool,
    add: Option<f64>,
    subtract: Option<f64>,
    set: Option<f64>,
    observe: Option<f64>,
}

/// The module sends `null` for what a task does not say.
fn given<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(value: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl UserMetrics {
    /// Adds them to a registry.
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// Serves until the stop.
    pub(super) async fn serve(self, port: u16, stop: Stop) -> io::Result<()> {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        let mut connections = JoinSet::new();
        loop {
            let stream = tokio::select! {
                () = stop.requested() => return Ok(()),
                Some(_) = connections.join_next() => continue,
                accepted = listener.accept() => accepted?.0,
            };
            let metrics = self.clone();
            connections.spawn(async move {
                let answer = service_fn(move |request| {
                    let metrics = metrics.clone();
                    async move { Ok::<_, Infallible>(metrics.answer(request).await) }
                });
                // A connection that breaks is one of a task that has ended.
                let _ = http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Response<Full<Bytes>> {
        let answer = |status: StatusCode, why: String| {
            let mut response = Response::new(Full::from(why));
            *response.status_mut() = status;
            response
        };
        if request.uri().path() != "/metrics" {
            return answer(StatusCode::NOT_FOUND, "metrics are posted to /metrics".to_owned());
        }
        if request.method() != Method::POST {
            return answer(StatusCode::METHOD_NOT_ALLOWED, "metrics are posted".to_owned());
        }
        let body = match Limited::new(request.into_body(), LONGEST).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return answer(StatusCode::BAD_REQUEST, error.to_string()),
        };
        let asked = serde_json::from_slice(&body).map_err(|error| error.to_string());
        match asked.and_then(|asked| self.change(asked)) {
            Ok(()) => answer(StatusCode::OK, String::new()),
            Err(why) => {
                tracing::warn!("a metric of a role: {why}");
                answer(StatusCode::BAD_REQUEST, why)
            }
        }
    }

    /// Does what a task asks for; a metric begins with its first task.
    fn change(&self, asked: Asked) -> Result<(), String> {
        let Asked {
            name,
            description,
            counter,
            gauge,
            histogram,
            summary,
        } = asked;
        let letters = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if name.is_empty() || !name.chars().all(letters) || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(format!("{name:?} is no name of a metric"));
        }
        let sorts = [
            ("counter", counter),
            ("gauge", gauge),
            ("histogram", histogram),
            ("summary", summary),
        ];
        let mut said = sorts.into_iter().filter_map(|(sort, change)| Some((sort, change?)));
        let (Some((sort, change)), None) = (said.next(), said.next()) else {
            return Err(format!(
                "{name}: a request is about one counter, gauge, histogram or summary"
            ));
        };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.contains_key(&name) {
            if all.len() >= MOST {
                return Err(format!("{name}: there are {MOST} metrics of roles already"));
            }
            let value = Value::new(sort);
            all.insert(
                name.clone(),
                Metric {
                    help: description,
                    value,
                },
            );
        }
        let known = all.get(&name).map(|metric| &metric.value);
        known
            .map_or(Ok(()), |value| value.change(sort, &change))
            .map_err(|why| format!("{name}: {why}"))
    }
}

impl Value {
    fn new(sort: &'static str) -> Value {
        // Those of Prometheus' clients.
        let buckets = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
        match sort {
            "counter" => Value::Counter(Counter::default()),
            "gauge" => Value::Gauge(Gauge::default()),
            "summary" => Value::Histogram(Histogram::new([]), sort),
            _ => Value::Histogram(Histogram::new(buckets), sort),
        }
    }

    fn sort(&self) -> &'static str {
        match self {
            Value::Counter(_) => "counter",
            Value::Gauge(_) => "gauge",
            Value::Histogram(_, sort) => sort,
        }
    }

    fn change(&self, sort: &str, change: &Change) -> Result<(), String> {
        if sort != self.sort() {
            return Err(format!("it is a {}, and cannot become a {sort}", self.sort()));
        }
        match self {
            Value::Counter(counter) => {
                let by = if change.increment {
                    1.0
                } else {
                    change.add.unwrap_or_default()
                };
                if by.is_nan() || by < 0.0 {
                    return Err("a counter never goes down".to_owned());
                }
                counter.inc_by(by);
            }
            Value::Gauge(gauge) => {
                let now = std::time::SystemTime::now()
                    .duration_since(std::time::UNIX_EPOCH)
                    .unwrap_or_default();
                let _ = match change {
                    Change { increment: true, .. } => gauge.inc(),
                    Change { decrement: true, .. } => gauge.dec(),
                    Change { add: Some(by), .. } => gauge.inc_by(*by),
                    Change { subtract: Some(by), .. } => gauge.dec_by(*by),
                    Change { set: Some(to), .. } => gauge.set(*to),
                    Change {
                        set_to_current_time: true,
                        ..
                    } => gauge.set(now.as_secs_f64()),
                    _ => gauge.get(),
                };
            }
            Value::Histogram(histogram, _) => {
                if let Some(value) = change.observe {
                    histogram.observe(value);
                }
            }
        }
        Ok(())
    }
}

impl Collector for UserMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, metric) in &*all {
            let value: &dyn EncodeMetric = match &metric.value {
                Value::Counter(counter) => counter,
                Value::Gauge(gauge) => gauge,
                Value::Histogram(histogram, _) => histogram,
            };
            let described = encoder.encode_descriptor(name, &metric.help, None, value.metric_type())?;
            value.encode(described)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kubewright::prometheus_client::encoding::text::encode;
    use serde_json::json;

    use super::*;

    #[test]
    fn tasks_change_metrics() {
        let metrics = UserMetrics::default();
        let change = |body: serde_json::Value| metrics.change(serde_json::from_value(body).expect("a request"));
        let works = |body: serde_json::Value| assert_eq!(change(body.clone()), Ok(()), "{body}");
        works(json!({"name": "runs", "description": "how many", "counter": {}}));
        works(json!({"name": "runs", "counter": {"increment": null, "add": null}, "gauge": null, "description": null}));
        works(json!({"name": "runs", "counter": {"increment": true}}));
        works(json!({"name": "runs", "counter": {"add": 2}}));
        works(json!({"name": "room", "description": "how much", "gauge": {"set": 5}}));
        works(json!({"name": "room", "gauge": {"subtract": 2}}));
        works(json!({"name": "took", "description": "how long", "histogram": {"observe": 2}}));
        works(json!({"name": "sum", "description": "all", "summary": {"observe": 3}}));
        let fails = |body: serde_json::Value, expected: &str| {
            let why = change(body.clone()).expect_err("it makes no sense");
            assert!(why.contains(expected), "{body}: {why}");
        };
        fails(json!({"name": "runs", "gauge": {"set": 1}}), "it is a counter");
        fails(json!({"name": "runs", "counter": {"add": -1}}), "never goes down");
        fails(json!({"name": "no name", "counter": {}}), "is no name");
        fails(json!({"name": "none"}), "one counter, gauge, histogram or summary");
        fails(
            json!({"name": "two", "counter": {}, "gauge": {}}),
            "one counter, gauge, histogram or summary",
        );
        let mut registry = Registry::default();
        metrics.register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).expect("it is text");
        for line in ["runs_total 3.0", "room 3.0", "took_count 1", "sum_sum 3.0"] {
            assert!(text.contains(line), "{line} in\n{text}");
        }
    }
}
