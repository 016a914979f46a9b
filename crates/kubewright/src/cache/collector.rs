//! Metrics of informers, which controller-runtime does not have.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::{Cache, Health, SharedInformer, WeakCache};

/// Asks the informers when the metrics are read; keeps none of them alive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Caches(Arc<Mutex<Vec<WeakCache>>>);

impl Caches {
    /// Once for all caches of a manager, also of those that come later: a metric is described once.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register_collector(Box::new(self.clone()));
    }

    /// From now on this one is asked, too.
    pub(crate) fn add(&self, cache: &Cache) {
        let mut caches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        caches.retain(|cache| cache.upgrade().is_some());
        caches.push(cache.downgrade());
    }
}

type Row = (&'static str, &'static str, fn(&SharedInformer) -> f64);

const ROWS: [Row; 4] = [
    (
        "kubewright_cache_objects",
        "Number of objects in the cache, by kind and scope",
        |informer| informer.core().len() as f64,
    ),
    (
        "kubewright_cache_bytes",
        "Bytes of the objects in the cache at rest, by kind and scope",
        |informer| informer.core().bytes() as f64,
    ),
    (
        "kubewright_cache_healthy",
        "Whether the cache is synced and its watch works, by kind and scope",
        |informer| f64::from(u8::from(informer.health() == Health::Synced)),
    ),
    (
        "kubewright_cache_unreadable_objects",
        "Number of objects that do not decode into their Rust type, by kind and scope",
        |informer| informer.core().unreadable().len() as f64,
    ),
];

impl Collector for Caches {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let caches = known.iter().filter_map(WeakCache::upgrade);
        let mut informers: Vec<SharedInformer> = caches.flat_map(|cache| cache.informers()).collect();
        // Several types of one kind and scope are one series: they read the same objects.
        let mut names = BTreeSet::new();
        informers.retain(|informer| names.insert(informer.name().to_owned()));
        for (name, help, value) in ROWS {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
            for informer in &informers {
                let labels = [("cache", informer.name().to_owned())];
                ConstGauge::new(value(informer)).encode(family.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}
