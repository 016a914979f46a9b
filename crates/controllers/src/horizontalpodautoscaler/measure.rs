//! How many replicas the use of a resource asks for (`replica_calculator.go`).
//!
//! The metrics API says how much pods use (`kubewright_objects::usage`). The annotation `kubewright.dev/load-cpu` of the autoscaler
//! is a load that all ready pods share of which nothing else is known. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::core::v1::Pod;

use kubewright_objects::pods;
use kubewright_objects::quantity::milli;
use kubewright_objects::{meta, usage};

/// `--horizontal-pod-autoscaler-cpu-initialization-period` and `--horizontal-pod-autoscaler-initial-readiness-delay`.
const CPU_INITIALIZATION: Duration = Duration::from_secs(300);
const INITIAL_READINESS: Duration = Duration::from_secs(30);

/// The metric and its target.
pub(super) struct Wanted<'a> {
    pub(super) metric: Metric<'a>,
    /// One container, or all.
    pub(super) container: Option<&'a str>,
    pub(super) target: Target,
    /// How far above and below the target nothing is done, as shares of it.
    pub(super) tolerance: (f64, f64),
}

/// What is measured of each pod.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Metric<'a> {
    /// A resource that the pods use, such as `cpu`.
    Resource(&'a str),
    /// A metric of the pods (`type: Pods`), which has no request.
    Pods,
}

#[derive(Clone, Copy)]
pub(super) enum Target {
    /// Percent of the request.
    Utilization(i32),
    /// Thousandths for each pod.
    Average(i128),
}

/// The measurement.
#[derive(Debug, PartialEq)]
pub(super) struct Measured {
    pub(super) replicas: i32,
    pub(super) utilization: Option<i32>,
    /// Thousandths for each pod.
    pub(super) average: i128,
}

/// The load that is said of all pods together.
pub(super) fn load(scaler: &ObjectMeta, resource: &str) -> Option<i128> {
    let text = meta::annotation(scaler, &format!("kubewright.dev/load-{resource}"))?;
    milli(&Quantity(text.to_owned()))
}

/// The request of a pod (`calculateRequests`).
fn request(pod: &Pod, resource: &str, container: Option<&str>) -> Result<i128, String> {
    let mut sum: i128 = 0;
    for container in usage::containers(pod).filter(|one| container.is_none_or(|name| one.name == name)) {
        let requests = container
            .resources
            .as_ref()
            .and_then(|resources| resources.requests.as_ref());
        let amount = requests.and_then(|requests| milli(requests.get(resource)?));
        let amount = amount.ok_or_else(|| {
            let pod = meta::name(&pod.metadata);
            format!(
                "missing request for {resource} in container {} of Pod {pod}",
                container.name
            )
        })?;
        sum = sum.saturating_add(amount);
    }
    Ok(sum)
}

/// Whether the usage of a pod does not count yet, because the pod only begins.
fn begins(pod: &Pod, now: Timestamp) -> bool {
    let ready = pods::condition(pod, "Ready");
    let start = pod.status.as_ref().and_then(|status| status.start_time.as_ref());
    let (Some(ready), Some(start)) = (ready, start) else {
        return true;
    };
    let age = |time: Timestamp| Duration::try_from(time.duration_since(start.0)).unwrap_or_default();
    let is_unready = ready.status == "False";
    match age(now) < CPU_INITIALIZATION {
        true => is_unready,
        // It has never been ready.
        false => {
            is_unready
                && ready
                    .last_transition_time
                    .as_ref()
                    .is_none_or(|time| age(time.0) < INITIAL_READINESS)
        }
    }
}

pub(super) fn ratio(used: i128, of: i128) -> f64 {
    // Amounts of pods are far below the exact range of a float.
    used as f64 / of.max(1) as f64
}

pub(super) fn ceil(value: f64) -> i32 {
    value.ceil().clamp(0.0, f64::from(i32::MAX)) as i32
}

/// Whether a ratio is so near to one that nothing is done.
pub(super) fn is_near(ratio: f64, (above, below): (f64, f64)) -> bool {
    (1.0 - below..=1.0 + above).contains(&ratio)
}

/// How many replicas there should be of pods that use so much, in thousandths.
pub(super) fn replicas(
    all: &[&Pod],
    current: i32,
    wanted: &Wanted<'_>,
    used: impl Fn(&Pod) -> Option<i128>,
    load: Option<i128>,
    now: Timestamp,
) -> Result<Measured, String> {
    let alive = |pod: &&&Pod| !meta::is_deleting(&pod.metadata) && pods::phase(pod) != "Failed";
    let counted: Vec<&Pod> = all.iter().filter(alive).copied().collect();
    let ready = counted.iter().filter(|pod| pods::is_ready(pod)).count();
    let share = load.map(|load| load / i128::try_from(ready.max(1)).unwrap_or(1));
    let of = |pod: &Pod| used(pod).or(share.filter(|_| pods::is_ready(pod)));
    if let Metric::Resource(resource) = wanted.metric
        && !counted.iter().any(|pod| of(pod).is_some())
    {
        return Err(format!(
            "unable to get metrics for resource {resource}: no metrics returned from resource metrics API"
        ));
    }
    let (mut metrics, mut unready, mut missing) = (BTreeMap::new(), Vec::new(), Vec::new());
    let mut requests = BTreeMap::new();
    for pod in counted {
        let name = meta::name(&pod.metadata);
        // Only resources have a utilization.
        if let (Target::Utilization(_), Metric::Resource(resource)) = (wanted.target, wanted.metric) {
            requests.insert(name, request(pod, resource, wanted.container)?);
        }
        match of(pod) {
            _ if pods::phase(pod) == "Pending" => unready.push(name),
            None => missing.push(name),
            Some(_) if wanted.metric == Metric::Resource("cpu") && begins(pod, now) => unready.push(name),
            Some(used) => {
                metrics.insert(name, used);
            }
        }
    }
    if metrics.is_empty() {
        return Err("did not receive metrics for targeted pods (pods might be unready)".to_owned());
    }
    let requested = |name: &str| requests.get(name).copied().unwrap_or(0);
    let compare = |metrics: &BTreeMap<&str, i128>| -> (f64, Option<i32>, i128) {
        let used = metrics.values().fold(0_i128, |sum, used| sum.saturating_add(*used));
        let average = used / i128::try_from(metrics.len().max(1)).unwrap_or(1);
        match wanted.target {
            Target::Average(target) => (ratio(average, target), None, average),
            Target::Utilization(target) => {
                let all = metrics
                    .keys()
                    .fold(0_i128, |sum, name| sum.saturating_add(requested(name)));
                let percent = used.saturating_mul(100) / all.max(1);
                let percent = i32::try_from(percent).unwrap_or(i32::MAX);
                (f64::from(percent) / f64::from(target.max(1)), Some(percent), average)
            }
        }
    };
    let counted_ready = i32::try_from(metrics.len()).unwrap_or(i32::MAX);
    let (first, utilization, average) = compare(&metrics);
    let is_near = |ratio: f64| is_near(ratio, wanted.tolerance);
    let found = |replicas: i32| Measured {
        replicas,
        utilization,
        average,
    };
    if missing.is_empty() && (unready.is_empty() || first <= 1.0) {
        return Ok(found(if is_near(first) {
            current
        } else {
            ceil(first * f64::from(counted_ready))
        }));
    }
    // An unknown value is assumed to be the one that leads to the smaller change: pods without metrics use their full
    // target on the way down, and nothing on the way up.
    for name in missing {
        let full = match wanted.target {
            Target::Average(target) => target,
            Target::Utilization(target) => requested(name).saturating_mul(i128::from(target.max(100))) / 100,
        };
        metrics.insert(name, if first < 1.0 { full } else { 0 });
    }
    if first > 1.0 {
        metrics.extend(unready.into_iter().map(|name| (name, 0)));
    }
    let again = compare(&metrics).0;
    let turned = (first < 1.0 && again > 1.0) || (first > 1.0 && again < 1.0);
    if is_near(again) || turned {
        return Ok(found(current));
    }
    let next = ceil(again * f64::from(i32::try_from(metrics.len()).unwrap_or(i32::MAX)));
    let against = (again < 1.0 && next > current) || (again > 1.0 && next < current);
    Ok(found(if against { current } else { next }))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Each pod: its usage (empty: unknown), and whether it is ready.
    fn check(uses: &[(&str, bool)], target: Target, load: Option<&str>, expected: Result<(i32, Option<i32>), &str>) {
        let pod = |(at, (used, ready)): (usize, &(&str, bool))| -> Pod {
            let annotations = if used.is_empty() {
                json!({})
            } else {
                json!({ "kubewright.dev/usage-cpu": used })
            };
            let ready = if *ready { "True" } else { "False" };
            let pod = json!({
                "metadata": { "name": format!("p{at}"), "annotations": annotations },
                "spec": { "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }] },
                "status": { "phase": "Running", "startTime": "1970-01-01T00:00:00Z", "conditions": [{ "type": "Ready", "status": ready }] },
            });
            serde_json::from_value(pod).expect("a pod")
        };
        let pods: Vec<Pod> = uses.iter().enumerate().map(pod).collect();
        let all: Vec<&Pod> = pods.iter().collect();
        let wanted = Wanted {
            metric: Metric::Resource("cpu"),
            container: None,
            target,
            tolerance: (0.1, 0.1),
        };
        let load = load.and_then(|load| milli(&Quantity(load.to_owned())));
        let current = i32::try_from(uses.len()).expect("few");
        let now = Timestamp::from_second(60).expect("small");
        let found = replicas(&all, current, &wanted, |pod| usage::of_pod(pod, "cpu", None), load, now);
        let found = found
            .as_ref()
            .map(|found| (found.replicas, found.utilization))
            .map_err(String::as_str);
        assert_eq!(found, expected, "{uses:?} {load:?}");
    }

    #[test]
    fn how_many() {
        use Target::{Average, Utilization};
        check(
            &[("500m", true), ("500m", true)],
            Utilization(50),
            None,
            Ok((2, Some(50))),
        );
        check(
            &[("540m", true), ("540m", true)],
            Utilization(50),
            None,
            Ok((2, Some(54))),
        );
        check(
            &[("900m", true), ("700m", true)],
            Utilization(50),
            None,
            Ok((4, Some(80))),
        );
        check(
            &[("100m", true), ("100m", true)],
            Utilization(50),
            None,
            Ok((1, Some(10))),
        );
        // One of which nothing is known uses all on the way down, and nothing on the way up.
        check(&[("100m", true), ("", true)], Utilization(50), None, Ok((2, Some(10))));
        check(&[("2", true), ("", true)], Utilization(50), None, Ok((4, Some(200))));
        // A pod that is not ready counts as one without usage.
        check(&[("1", true), ("9", false)], Utilization(50), None, Ok((2, Some(100))));
        check(&[("900m", true), ("700m", true)], Average(400), None, Ok((4, None)));
        check(
            &[("", true), ("", true)],
            Utilization(50),
            Some("3"),
            Ok((6, Some(150))),
        );
        const NONE: &str = "unable to get metrics for resource cpu: no metrics returned from resource metrics API";
        check(&[("", true)], Utilization(50), None, Err(NONE));
        check(
            &[("1", false)],
            Utilization(50),
            None,
            Err("did not receive metrics for targeted pods (pods might be unready)"),
        );
    }
}
