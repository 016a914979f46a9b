//! The resource usage of pods, as the shell measures it: the figures of `metrics.k8s.io`.
//!
//! A server that is given a [`Meter`] serves that group; one without does not know it, as a cluster without
//! metrics-server. Here: the trait. The use of the figures: `server/special/metrics.rs`.

use std::time::Duration;

use serde_json::Value;

/// Measures the usage of pods.
pub trait Meter: Send + Sync + 'static {
    /// The present usage of a running pod's containers; `None` when it is not known, or not yet.
    fn pod(&self, pod: &Value) -> Option<Measured>;
}

/// The usage of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The time of which the use of cpu is the mean.
    pub window: Duration,
    /// How long ago that time ended.
    pub ago: Duration,
    /// Its containers that run.
    pub containers: Vec<Used>,
}

/// The usage of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Its name.
    pub container: String,
    /// Billionths of a cpu.
    pub cpu: u64,
    /// Bytes that are resident.
    pub memory: u64,
}
