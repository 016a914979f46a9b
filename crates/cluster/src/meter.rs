//! The usage of pods for the metrics API: measured where they are processes, else annotated.
//!
//! The same figures as autoscalers get (`kubewright_nodes::meter`). Decided elsewhere: which pods are asked about (the
//! API server).

use std::sync::Arc;
use std::time::Duration;

use kubewright_apiserver::meter::{Measured, Meter, Used};
use kubewright_nodes::Processes;
use kubewright_objects::usage;
use serde_json::Value;

/// The window of annotated figures, which hold at all times: as often as metrics-server looks.
const STEADY: Duration = Duration::from_secs(15);

/// The meter of the API server, where these controllers run: without kubelets there is no source of figures, and no
/// metrics API.
pub(crate) fn served(controllers: &[&str], processes: Option<&Processes>) -> Option<Arc<dyn Meter>> {
    let meter = || Arc::new(Served(processes.cloned())) as Arc<dyn Meter>;
    controllers.contains(&"node").then(meter)
}

/// The usage of pods as the metrics API has it.
struct Served(Option<Processes>);

impl Meter for Served {
    fn pod(&self, pod: &Value) -> Option<Measured> {
        let class = pod.pointer("/spec/runtimeClassName").and_then(Value::as_str);
        let names = running(pod);
        match self.0.as_ref().filter(|processes| processes.runs_class(class)) {
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
            let measured = Served(None).pod(&pod).expect("it is known");
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
