//! The usage of pods, for the metrics API and for the autoscaler alike: measured where they are processes, else
//! annotated.
//!
//! Of a simulated pod of which nothing is said, nothing runs and so nothing is used. Of a process nothing is known
//! before it was looked at for the first time, some seconds after its start. Decided elsewhere: which pods are asked
//! about (the API server), the effect of the figures.

use std::sync::Arc;
use std::time::Duration;

use kubewright::k8s_openapi::api::core::v1::Pod;
use kubewright_apiserver::meter::{self, Measured, Used};
use serde_json::Value;

use crate::objects::{meta, usage};
use crate::processes::{Processes, Usage};

/// The window of annotated figures, which hold at all times: as often as metrics-server looks.
const STEADY: Duration = Duration::from_secs(15);

/// Measures the usage of pods. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Meter {
    processes: Option<Processes>,
}

impl Meter {
    pub(crate) fn new(processes: Option<Processes>) -> Meter {
        Meter { processes }
    }

    /// The use of a resource by a pod, or by one of its containers, in thousandths; none when it is not known.
    pub(crate) fn used(&self, pod: &Pod, resource: &str, container: Option<&str>) -> Option<i128> {
        let Some(processes) = self.processes.as_ref().filter(|processes| processes.runs(pod)) else {
            return usage::of_pod(pod, resource, container);
        };
        let uid = meta::uid(&pod.metadata);
        let amount = |usage: Usage| match resource {
            // Rounded up, as quantities are.
            "cpu" => Some(i128::from(usage.cpu.div_ceil(1_000_000))),
            "memory" => Some(i128::from(usage.memory).saturating_mul(1000)),
            _ => None,
        };
        let wanted = usage::containers(pod).filter(|one| container.is_none_or(|name| name == one.name));
        let known = wanted.map(|one| amount(processes.usage(uid, &one.name)?));
        // A part is not the whole.
        let known: Vec<i128> = known.collect::<Option<_>>()?;
        known.into_iter().reduce(i128::saturating_add)
    }
}

/// The meter of the API server, where these controllers run: without kubelets there is no source of figures, and no
/// metrics API.
pub(crate) fn served(controllers: &[&str], processes: Option<&Processes>) -> Option<Arc<dyn meter::Meter>> {
    let meter = || Arc::new(Meter::new(processes.cloned())) as Arc<dyn meter::Meter>;
    controllers.contains(&"node").then(meter)
}

impl meter::Meter for Meter {
    fn pod(&self, pod: &Value) -> Option<Measured> {
        let class = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str);
        let names = running(pod);
        match self.processes.as_ref().filter(|processes| processes.runs_class(class)) {
            Some(processes) => measured(processes, pod, &names),
            None => Some(said(pod, &names)),
        }
    }
}

/// The names of the containers of a pod that run.
fn running(pod: &Value) -> Vec<&str> {
    let of = |list: &str| pod.pointer(&format!("/status/{list}")).and_then(Value::as_array);
    let all = of("initContainerStatuses")
        .into_iter()
        .chain(of("containerStatuses"))
        .flatten();
    let running = all.filter(|status| status.pointer("/state/running").is_some());
    running.filter_map(|status| status.get("name")?.as_str()).collect()
}

fn measured(processes: &Processes, pod: &Value, names: &[&str]) -> Option<Measured> {
    let uid = pod.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or("");
    let all = names.iter().map(|name| Some((name, processes.usage(uid, name)?)));
    let all: Vec<_> = all.collect::<Option<_>>()?;
    let (_, first) = all.first()?;
    Some(Measured {
        window: first.window,
        ago: first.at.elapsed(),
        containers: all
            .iter()
            .map(|(name, usage)| Used {
                container: (**name).to_owned(),
                cpu: usage.cpu,
                memory: usage.memory,
            })
            .collect(),
    })
}

fn said(pod: &Value, names: &[&str]) -> Measured {
    let annotations = pod.pointer("/metadata/annotations");
    let annotation = |key: &str| annotations?.get(key)?.as_str();
    let cpu = usage::said(annotation, names, "cpu");
    let memory = usage::said(annotation, names, "memory");
    let amount = |milli: Option<i128>, times: i128, of: i128| {
        let amount = milli.unwrap_or(0).saturating_mul(times) / of;
        u64::try_from(amount).unwrap_or(u64::MAX)
    };
    let containers = names.iter().zip(cpu).zip(memory).map(|((name, cpu), memory)| Used {
        container: (*name).to_owned(),
        cpu: amount(cpu, 1_000_000, 1),
        memory: amount(memory, 1, 1000),
    });
    Measured {
        window: STEADY,
        ago: Duration::ZERO,
        containers: containers.collect(),
    }
}

#[cfg(test)]
mod tests {
    use kubewright_apiserver::meter::Meter as _;
    use serde_json::json;

    use super::*;

    #[test]
    fn simulated_pods_use_what_is_said() {
        let check = |annotations: Value, states: &[(&str, &str)], expected: &[(&str, u64, u64)]| {
            let statuses = states
                .iter()
                .map(|(name, state)| json!({"name": name, "state": {(*state): {}}}));
            let statuses: Vec<Value> = statuses.collect();
            let pod = json!({"metadata": {"annotations": annotations}, "status": {"containerStatuses": statuses}});
            let measured = Meter::default().pod(&pod).expect("it is known");
            let found: Vec<_> = (measured.containers.iter())
                .map(|used| (used.container.as_str(), used.cpu, used.memory))
                .collect();
            assert_eq!(found, expected, "{pod}");
        };
        let both = [("a", "running"), ("b", "running")];
        check(Value::Null, &both, &[("a", 0, 0), ("b", 0, 0)]);
        let said = json!({"kubewright.dev/usage-cpu": "300m", "kubewright.dev/usage-memory.b": "1Mi"});
        check(
            said.clone(),
            &both,
            &[("a", 150_000_000, 0), ("b", 150_000_000, 1_048_576)],
        );
        check(said, &[("a", "running"), ("b", "waiting")], &[("a", 300_000_000, 0)]);
        check(json!({}), &[("a", "terminated")], &[]);
    }
}
