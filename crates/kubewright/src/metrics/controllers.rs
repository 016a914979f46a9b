//! Reconciles and work queues.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kubewright_engine::queue;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Metric, Registry};

use super::{Labels, Metrics};

/// How a reconcile ended, as the label `result` says.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Result {
    Success,
    RequeueAfter,
    /// It runs again without a failure: a conflict, or a cache that lags. (controller-runtime counts these as errors.)
    Requeue,
    Error,
}

type ByController<M> = Family<Labels<1>, M, fn() -> M>;
type ByQueue<M> = Family<Labels<2>, M, fn() -> M>;

pub(super) struct Families {
    results: ByQueue<Counter>,
    errors: ByController<Counter>,
    terminal: ByController<Counter>,
    panics: ByController<Counter>,
    timeouts: ByController<Counter>,
    not_leading: ByController<Counter>,
    self_woken: ByController<Counter>,
    source_panics: ByController<Counter>,
    time: ByController<Histogram>,
    workers: ByController<Gauge>,
    active: ByController<Gauge>,
    waited: ByQueue<Histogram>,
    worked: ByQueue<Histogram>,
}

/// The handles of one controller.
#[derive(Clone, Debug)]
pub(crate) struct ControllerMetrics {
    /// In the order of [`Result`].
    results: [Counter; 4],
    errors: Counter,
    terminal: Counter,
    panics: Counter,
    timeouts: Counter,
    not_leading: Counter,
    self_woken: Counter,
    time: Histogram,
    active: Gauge,
    waited: Histogram,
    worked: Histogram,
    /// Its queue is asked as long as one of these lives.
    _queue: Arc<AskedQueue>,
}

impl Families {
    pub(super) fn register(registry: &mut Registry) -> Families {
        let mut add = Adder(registry);
        Families {
            results: add.add(
                "controller_runtime_reconcile",
                "Total number of reconciliations per controller",
                Counter::default,
            ),
            errors: add.add(
                "controller_runtime_reconcile_errors",
                "Total number of reconciliation errors per controller",
                Counter::default,
            ),
            terminal: add.add(
                "controller_runtime_terminal_reconcile_errors",
                "Total number of terminal reconciliation errors per controller",
                Counter::default,
            ),
            panics: add.add(
                "controller_runtime_reconcile_panics",
                "Total number of reconciliation panics per controller",
                Counter::default,
            ),
            timeouts: add.add(
                "controller_runtime_reconcile_timeouts",
                "Total number of reconciliation timeouts per controller",
                Counter::default,
            ),
            not_leading: add.add(
                "kubewright_reconcile_not_leading",
                "Total number of reconciliations that ended with a write that was not sent, because the replica did not lead any more",
                Counter::default,
            ),
            self_woken: add.add(
                "kubewright_reconcile_self_woken",
                "Total number of reconciliations that nothing but writes of the same controller caused",
                Counter::default,
            ),
            source_panics: add.add(
                "kubewright_source_panics",
                "Total number of panics of predicates, mappings and indexes per controller",
                Counter::default,
            ),
            time: add.add(
                "controller_runtime_reconcile_time_seconds",
                "Length of time per reconciliation per controller",
                reconcile_time,
            ),
            workers: add.add(
                "controller_runtime_max_concurrent_reconciles",
                "Maximum number of concurrent reconciles per controller",
                Gauge::default,
            ),
            active: add.add(
                "controller_runtime_active_workers",
                "Number of currently used workers per controller",
                Gauge::default,
            ),
            waited: add.add(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested",
                queue_time,
            ),
            worked: add.add(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes",
                queue_time,
            ),
        }
    }
}

/// Registers families.
struct Adder<'a>(&'a mut Registry);

impl Adder<'_> {
    fn add<const N: usize, M>(&mut self, name: &str, help: &str, new: fn() -> M) -> Family<Labels<N>, M, fn() -> M>
    where
        Family<Labels<N>, M, fn() -> M>: Metric + Clone,
        Labels<N>: std::hash::Hash + Eq + Clone,
    {
        let family = Family::new_with_constructor(new);
        self.0.register(name, help, family.clone());
        family
    }
}

fn reconcile_time() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
        1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ])
}

fn queue_time() -> Histogram {
    Histogram::new(exponential_buckets(1e-8, 10.0, 12))
}

impl Metrics {
    /// The handles of a controller, and its queue, which is asked when the metrics are read.
    pub(crate) fn controller(
        &self,
        name: &str,
        workers: usize,
        queue: impl Fn() -> queue::Metrics + Send + Sync + 'static,
    ) -> ControllerMetrics {
        let families = &self.0.controllers;
        let one = [("controller", name.to_owned())];
        let two = [("controller", name.to_owned()), ("name", name.to_owned())];
        let result = |result: &str| {
            let labels = [("controller", name.to_owned()), ("result", result.to_owned())];
            families.results.get_or_create_owned(&labels)
        };
        let workers = i64::try_from(workers).unwrap_or(i64::MAX);
        families.workers.get_or_create(&one).set(workers);
        let asked = Arc::new(self.0.queues.add(name, Box::new(queue)));
        ControllerMetrics {
            results: ["success", "requeue_after", "requeue", "error"].map(result),
            errors: families.errors.get_or_create_owned(&one),
            terminal: families.terminal.get_or_create_owned(&one),
            panics: families.panics.get_or_create_owned(&one),
            timeouts: families.timeouts.get_or_create_owned(&one),
            not_leading: families.not_leading.get_or_create_owned(&one),
            self_woken: families.self_woken.get_or_create_owned(&one),
            time: families.time.get_or_create_owned(&one),
            active: families.active.get_or_create_owned(&one),
            waited: families.waited.get_or_create_owned(&two),
            worked: families.worked.get_or_create_owned(&two),
            _queue: asked,
        }
    }
}

impl Metrics {
    /// The panics of a controller's functions besides its reconciler.
    pub(crate) fn source_panics(&self, controller: &str) -> Counter {
        let labels = [("controller", controller.to_owned())];
        self.0.controllers.source_panics.get_or_create_owned(&labels)
    }
}

impl ControllerMetrics {
    pub(crate) fn began(&self, waited: Duration) -> Active<'_> {
        self.waited.observe(waited.as_secs_f64());
        self.active.inc();
        Active(&self.active)
    }

    pub(crate) fn ended(&self, result: Result, took: Duration) {
        self.results[result as usize].inc();
        if let Result::Error = result {
            self.errors.inc();
        }
        self.time.observe(took.as_secs_f64());
    }

    pub(crate) fn worked(&self, worked: Duration) {
        self.worked.observe(worked.as_secs_f64());
    }

    pub(crate) fn terminal(&self) {
        self.terminal.inc();
    }

    pub(crate) fn panicked(&self) {
        self.panics.inc();
    }

    pub(crate) fn self_woken(&self) {
        self.self_woken.inc();
    }

    pub(crate) fn stopped_leading(&self) {
        self.not_leading.inc();
    }

    pub(crate) fn timed_out(&self) {
        self.timeouts.inc();
    }
}

/// A reconcile that is under way, also when it is dropped.
pub(crate) struct Active<'a>(&'a Gauge);

impl Drop for Active<'_> {
    fn drop(&mut self) {
        self.0.dec();
    }
}

type Ask = Box<dyn Fn() -> queue::Metrics + Send + Sync>;

/// The queues of all controllers, by the order in which they began.
///
/// Invariant: of controllers of one name the last is asked, because two values of one series make Prometheus refuse the
/// whole page.
#[derive(Clone, Default)]
pub(super) struct Queues(Arc<Mutex<BTreeMap<u64, (String, Ask)>>>);

impl fmt::Debug for Queues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Queues")
    }
}

impl Queues {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    fn add(&self, name: &str, ask: Ask) -> AskedQueue {
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let number = queues.last_key_value().map_or(0, |(number, _)| number + 1);
        queues.insert(number, (name.to_owned(), ask));
        AskedQueue {
            number,
            queues: self.clone(),
        }
    }

    fn ask(&self) -> BTreeMap<String, queue::Metrics> {
        let queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.values().map(|(name, ask)| (name.clone(), ask())).collect()
    }
}

/// A queue that is asked until this is dropped.
#[derive(Debug)]
struct AskedQueue {
    number: u64,
    queues: Queues,
}

impl Drop for AskedQueue {
    fn drop(&mut self) {
        let gone = self
            .queues
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(&self.number);
        drop(gone); // the lock is given back before: a queue holds causes, and with them objects of users
    }
}

impl Collector for Queues {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let all = self.ask();
        let labels = |name: &str| [("controller", name.to_owned()), ("name", name.to_owned())];
        let mut depths = encoder.encode_descriptor(
            "workqueue_depth",
            "Current depth of workqueue by workqueue and priority",
            None,
            MetricType::Gauge,
        )?;
        for (name, metrics) in &all {
            for (priority, depth) in &metrics.depths {
                let [controller, name] = labels(name);
                let labels = [controller, name, ("priority", priority.0.to_string())];
                gauge(*depth as f64).encode(depths.encode_family(&labels)?)?;
            }
        }
        for (name, help, value) in GAUGES {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for (queue, metrics) in &all {
                gauge(value(metrics)).encode(family.encode_family(&labels(queue))?)?;
            }
        }
        for (name, help, value) in COUNTERS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for (queue, metrics) in &all {
                ConstCounter::new(value(metrics)).encode(family.encode_family(&labels(queue))?)?;
            }
        }
        Ok(())
    }
}

fn gauge(value: f64) -> ConstGauge<f64> {
    ConstGauge::new(value)
}

type Row<T> = (&'static str, &'static str, fn(&queue::Metrics) -> T);

const GAUGES: [Row<f64>; 3] = [
    (
        "workqueue_unfinished_work_seconds",
        "How many seconds of work has been done that is in progress and hasn't been observed by work_duration",
        |metrics| metrics.unfinished.as_secs_f64(),
    ),
    (
        "workqueue_longest_running_processor_seconds",
        "How many seconds has the longest running processor for workqueue been running",
        |metrics| metrics.longest_running.as_secs_f64(),
    ),
    (
        "kubewright_workqueue_delayed",
        "Number of items that wait for their due time: retries and requests to run again later",
        |metrics| metrics.delayed as f64,
    ),
];

const COUNTERS: [Row<u64>; 2] = [
    (
        "workqueue_adds",
        "Total number of adds handled by workqueue",
        |metrics| metrics.adds,
    ),
    (
        "workqueue_retries",
        "Total number of retries handled by workqueue",
        |metrics| metrics.retries,
    ),
];
