//! What pods use, as the shell measures it: the figures of `metrics.k8s.io`.
//!
//! A server that is given a [`Meter`] serves that group; one without does not know it, as a cluster without
//! metrics-server. Here: the trait. What is made of the figures: `server/special/metrics.rs`.

use std::time::Duration;

use serde_json::Value;

/// Knows what pods use.
pub trait Meter: Send + Sync + 'static {
    /// What the containers of a running pod use now; `None` when that is not known, or not yet.
    fn pod(&self, pod: &Value) -> Option<Measured>;
}

/// What a pod uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Measured {
    /// The time of which the use of cpu is the mean.
    pub window: Duration,
    /// How long ago that time ended.
    pub ago: Duration,
    /// Its containers that run.
    pub containers: Vec<Used>,
}

/// What a container uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// Its name.
    pub container: String,
    /// Billionths of a cpu.
    pub cpu: u64,
    /// Bytes that are resident.
    pub memory: u64,
}
