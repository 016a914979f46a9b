//! The usage of pods: measured where they are processes, else annotated.
//!
//! Of a simulated pod of which nothing is said, nothing runs and so nothing is used. Of a process nothing is known
//! before it was looked at for the first time, some seconds after its start. Decided elsewhere: the effect of the
//! figures.

use std::sync::Arc;

use kubewright_objects::api::core::v1::Pod;
use kubewright_objects::meta;
use kubewright_objects::usage::{self, Annotated, Meter};

use crate::processes::{Processes, Usage};

/// Tells what pods use, where these run as processes.
pub fn meter(processes: Option<Processes>) -> Arc<dyn Meter> {
    match processes {
        Some(processes) => Arc::new(Measured(processes)),
        None => Arc::new(Annotated),
    }
}

struct Measured(Processes);

impl Meter for Measured {
    fn used(&self, pod: &Pod, resource: &str, container: Option<&str>) -> Option<i128> {
        if !self.0.runs(pod) {
            return usage::of_pod(pod, resource, container);
        }
        let uid = meta::uid(&pod.metadata);
        let amount = |usage: Usage| match resource {
            // Rounded up, as quantities are.
            "cpu" => Some(i128::from(usage.cpu.div_ceil(1_000_000))),
            "memory" => Some(i128::from(usage.memory).saturating_mul(1000)),
            _ => None,
        };
        let wanted = usage::containers(pod).filter(|one| container.is_none_or(|name| name == one.name));
        let known = wanted.map(|one| amount(self.0.usage(uid, &one.name)?));
        // A part is not the whole.
        let known: Vec<i128> = known.collect::<Option<_>>()?;
        known.into_iter().reduce(i128::saturating_add)
    }
}
