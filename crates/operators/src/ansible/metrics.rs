//! The metrics of ansible-operator, under their names.

use std::time::Duration;

use kubewright::prometheus_client::metrics::family::Family;
use kubewright::prometheus_client::metrics::gauge::Gauge;
use kubewright::prometheus_client::metrics::histogram::Histogram;
use kubewright::prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;

/// Of all controllers of an operator. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Metrics {
    results: Family<Labels, Gauge>,
    durations: Family<Labels, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            results: Family::default(),
            durations: Family::new_with_constructor(|| {
                // Those of Prometheus' clients.
                Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0])
            }),
        }
    }
}

impl Metrics {
    /// Adds them to a registry.
    pub(super) fn register(&self, registry: &mut Registry) {
        let build: Family<Labels, Gauge> = Family::default();
        let labels = vec![
            ("commit", String::new()),
            ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ];
        build.get_or_create(&labels).set(1);
        let name = |name: &str| format!("ansible_operator_{name}");
        registry.register(
            name("build_info"),
            "Build information for the ansible-operator binary",
            build,
        );
        let results = self.results.clone();
        registry.register(
            name("reconcile_result"),
            "Gauge of reconciles and their results",
            results,
        );
        let durations = self.durations.clone();
        registry.register(name("reconciles"), "How long in seconds a reconcile takes", durations);
    }

    /// A run has ended, or none could be begun.
    pub(super) fn ended(&self, kind: &str, well: bool) {
        let result = if well { "succeeded" } else { "failed" };
        let labels = vec![("GVK", kind.to_owned()), ("result", result.to_owned())];
        self.results.get_or_create(&labels).inc();
    }

    /// A run took so long.
    pub(super) fn took(&self, kind: &str, duration: Duration) {
        let labels = vec![("GVK", kind.to_owned())];
        self.durations.get_or_create(&labels).observe(duration.as_secs_f64());
    }
}
