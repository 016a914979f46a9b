//! Sizes that metrics of pods, of other objects and of other systems ask for (`GetMetricReplicas`,
//! `GetObjectMetricReplicas`, `GetExternalMetricReplicas` and their like for each pod).
//!
//! Pure. The values are those that were set (`crate::metrics`); where none is, the metric is missing.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright_objects::api::autoscaling::v2::{
    ExternalMetricSource, ExternalMetricStatus, MetricIdentifier, MetricSpec, MetricStatus, MetricTarget,
    MetricValueStatus, ObjectMetricSource, ObjectMetricStatus, PodsMetricSource, PodsMetricStatus,
};
use kubewright_objects::api::core::v1::Pod;

use super::measure::{self, Metric, Target, Wanted};
use super::missing::Missing;
use super::{Proposal, missing, quantity};
use crate::metrics;
use kubewright_objects::pods;
use kubewright_objects::quantity::milli;

/// What the sizes depend on, besides the metric.
pub(super) struct ScaleContext<'a> {
    pub(super) namespace: &'a str,
    pub(super) pods: &'a [&'a Pod],
    /// The size in the target's spec, and the one in its status.
    pub(super) size: (i32, i32),
    pub(super) tolerance: (f64, f64),
    pub(super) now: Timestamp,
}

/// A size, and the value of the metric that it follows from.
type Sized = (i32, MetricValueStatus);

/// The proposal of a metric of pods; `scaler` may have a load that they share.
pub(super) fn of_pods(
    spec: &MetricSpec,
    source: &PodsMetricSource,
    scaler: &ObjectMeta,
    scene: &ScaleContext<'_>,
) -> Proposal {
    let name = &source.metric.name;
    let missing = |cause: Option<&str>| missing::of(spec, scene.namespace, cause);
    let annotation = metrics::custom(name);
    let value = |of: &ObjectMeta| {
        let values = metrics::values(of, &annotation, source.metric.selector.as_ref());
        let values = values.map_err(|cause| missing(Some(&cause)))?;
        Ok(values.map(|values| total(&values)))
    };
    let load = value(scaler)?;
    let mut used = BTreeMap::new();
    for pod in scene.pods {
        if let Some(value) = value(&pod.metadata)? {
            used.insert(pod.metadata.name.as_deref(), value);
        }
    }
    if used.is_empty() && load.is_none() {
        return Err(missing(None));
    }
    let target = source.target.average_value.as_ref().and_then(milli).unwrap_or(0);
    let wanted = Wanted {
        metric: Metric::Pods,
        container: None,
        target: Target::Average(target),
        tolerance: scene.tolerance,
    };
    let of = |pod: &Pod| used.get(&pod.metadata.name.as_deref()).copied();
    let found = measure::replicas(scene.pods, scene.size.0, &wanted, of, load, scene.now);
    let found = found.map_err(|why| Missing { why, ..missing(None) })?;
    let status = MetricStatus {
        type_: spec.type_.clone(),
        pods: Some(PodsMetricStatus {
            current: average(found.average),
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok((found.replicas, format!("pods metric {name}"), status))
}

/// The proposal of a metric of an object, which has this metadata if it exists.
pub(super) fn of_object(
    spec: &MetricSpec,
    source: &ObjectMetricSource,
    object: Option<&ObjectMeta>,
    scene: &ScaleContext<'_>,
) -> Proposal {
    let (name, kind) = (&source.metric.name, &source.described_object.kind);
    let (annotation, selector) = (metrics::custom(name), source.metric.selector.as_ref());
    let values = object.map_or(Ok(None), |object| metrics::values(object, &annotation, selector));
    let (size, current) = sized(spec, values, &source.target, scene)?;
    let name = match current.average_value {
        Some(_) => external_name(&source.metric),
        None => format!("{kind} metric {name}"),
    };
    let status = MetricStatus {
        type_: spec.type_.clone(),
        object: Some(ObjectMetricStatus {
            current,
            described_object: source.described_object.clone(),
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok((size, name, status))
}

/// The proposal of a metric of another system, which is set on a Namespace.
pub(super) fn of_external(
    spec: &MetricSpec,
    source: &ExternalMetricSource,
    namespace: Option<&ObjectMeta>,
    scene: &ScaleContext<'_>,
) -> Proposal {
    let (name, selector) = (&source.metric.name, source.metric.selector.as_ref());
    let annotation = metrics::external(name);
    let values = namespace.map_or(Ok(None), |namespace| metrics::values(namespace, &annotation, selector));
    let (size, current) = sized(spec, values, &source.target, scene)?;
    let status = MetricStatus {
        type_: spec.type_.clone(),
        external: Some(ExternalMetricStatus {
            current,
            metric: source.metric.clone(),
        }),
        ..MetricStatus::default()
    };
    Ok((size, external_name(&source.metric), status))
}

fn total(values: &[i128]) -> i128 {
    values.iter().fold(0, |sum: i128, value| sum.saturating_add(*value))
}

fn external_name(metric: &MetricIdentifier) -> String {
    format!("external metric {}({})", metric.name, missing::selector_text(metric))
}

fn average(value: i128) -> MetricValueStatus {
    MetricValueStatus {
        average_value: Some(quantity(value)),
        ..MetricValueStatus::default()
    }
}

/// The size that the values of a metric ask for.
fn sized(
    spec: &MetricSpec,
    values: Result<Option<Vec<i128>>, String>,
    target: &MetricTarget,
    scene: &ScaleContext<'_>,
) -> Result<Sized, Missing> {
    let missing = |cause: Option<&str>| missing::of(spec, scene.namespace, cause);
    let values = values.map_err(|cause| missing(Some(&cause)))?;
    let values = values.ok_or_else(|| missing(None))?;
    size_by(total(&values), target, scene).map_err(|why| Missing { why, ..missing(None) })
}

/// The size that one value asks for: as a whole, or divided among the pods.
fn size_by(value: i128, target: &MetricTarget, scene: &ScaleContext<'_>) -> Result<Sized, String> {
    let (in_spec, in_status) = scene.size;
    if let Some(each) = target.average_value.as_ref().and_then(milli) {
        let ratio = measure::ratio(value, each.saturating_mul(i128::from(in_status)));
        let size = match measure::is_near(ratio, scene.tolerance) {
            true => in_status,
            false => measure::ceil(measure::ratio(value, each)),
        };
        let pods = i128::from(in_status.max(1));
        let share = value.saturating_add(pods - 1) / pods;
        return Ok((size, average(share)));
    }
    let Some(whole) = target.value.as_ref().and_then(milli) else {
        return Err("neither a value target nor an average value target was set".to_owned());
    };
    let ratio = measure::ratio(value, whole);
    let current = MetricValueStatus {
        value: Some(quantity(value)),
        ..MetricValueStatus::default()
    };
    // From no pod at all it goes by the ratio alone.
    if in_spec == 0 {
        return Ok((measure::ceil(ratio), current));
    }
    if measure::is_near(ratio, scene.tolerance) {
        return Ok((in_spec, current));
    }
    if scene.pods.is_empty() {
        let why = "no pods returned by selector while calculating replica count";
        return Err(format!("unable to calculate ready pods: {why}"));
    }
    let works = |pod: &&&Pod| pods::phase(pod) == "Running" && pods::is_ready(pod);
    let ready = scene.pods.iter().filter(works).count();
    Ok((measure::ceil(ratio * ready as f64), current))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, packets: Option<&str>, ready: bool) -> Pod {
        let annotations = packets.map(|packets| json!({ metrics::custom("packets"): packets }));
        let ready = if ready { "True" } else { "False" };
        let pod = json!({
            "metadata": { "name": name, "annotations": annotations },
            "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": ready }] },
        });
        serde_json::from_value(pod).expect("a pod")
    }

    /// The size, the name of the metric and its status; or the reason why there is none.
    fn check(spec: Value, set: Value, pods: &[Pod], expected: Result<(i32, &str, Value), &str>) {
        let spec: MetricSpec = serde_json::from_value(spec).expect("a metric");
        let set: ObjectMeta = serde_json::from_value(json!({ "name": "set", "annotations": set })).expect("metadata");
        let all: Vec<&Pod> = pods.iter().collect();
        let size = i32::try_from(pods.len()).expect("few");
        let scene = ScaleContext {
            namespace: "shop",
            pods: &all,
            size: (size, size),
            tolerance: (0.1, 0.1),
            now: Timestamp::UNIX_EPOCH,
        };
        let found = match (&spec.pods, &spec.object, &spec.external) {
            (Some(source), ..) => of_pods(&spec, source, &set, &scene),
            (_, Some(source), _) => of_object(&spec, source, Some(&set), &scene),
            (.., Some(source)) => of_external(&spec, source, Some(&set), &scene),
            _ => panic!("{spec:?}"),
        };
        let current = |status: MetricStatus| {
            let status = serde_json::to_value(status).expect("JSON");
            status[spec.type_.to_lowercase()]["current"].clone()
        };
        let found = found
            .map(|(size, name, status)| (size, name, current(status)))
            .map_err(|missing| missing.why);
        let expected = expected
            .map(|(size, name, current)| (size, name.to_owned(), current))
            .map_err(str::to_owned);
        assert_eq!(found, expected, "{spec:?}");
    }

    fn two() -> [Pod; 2] {
        [pod("a", None, true), pod("b", None, true)]
    }

    #[test]
    fn metrics_of_pods() {
        let packets = |of: Value| {
            json!({ "type": "Pods", "pods": { "metric": { "name": "packets", "selector": of },
            "target": { "type": "AverageValue", "averageValue": "10" } } })
        };
        let plain = || packets(Value::Null);
        let name = "pods metric packets";
        let average = |value: &str| json!({ "averageValue": value });
        let pods = |a: &str, b: &str| [pod("a", Some(a), true), pod("b", Some(b), true)];
        check(plain(), json!({}), &pods("20", "25"), Ok((5, name, average("22500m"))));
        check(plain(), json!({}), &pods("11", "11"), Ok((2, name, average("11"))));
        check(
            plain(),
            json!({}),
            &pods("1", "2k"),
            Ok((201, name, average("1000500m"))),
        );
        // Of one pod nothing is known: it uses nothing on the way up, and the target on the way down.
        let one = |value: &str| [pod("a", Some(value), true), pod("b", None, true)];
        check(plain(), json!({}), &one("60"), Ok((6, name, average("60"))));
        check(plain(), json!({}), &one("4"), Ok((2, name, average("4"))));
        // A load that they share.
        let load = json!({ metrics::custom("packets"): "50" });
        check(plain(), load, &two(), Ok((5, name, average("25"))));
        let of_a = json!({ "matchLabels": { "from": "a" } });
        check(
            packets(of_a),
            json!({}),
            &pods("from=a: 30; from=b: 9", "from=a: 30"),
            Ok((6, name, average("30"))),
        );
        check(
            plain(),
            json!({}),
            &two(),
            Err(
                "unable to get metric packets: unable to fetch metrics from custom metrics API: no custom metrics API \
                 (custom.metrics.k8s.io) registered",
            ),
        );
        check(
            plain(),
            json!({}),
            &pods("x", "1"),
            Err(
                "unable to get metric packets: the annotation custom.metrics.kubewright.dev/packets of a is \"x\": \
                 \"x\" is no quantity such as 30 or 1500m",
            ),
        );
    }

    #[test]
    fn metrics_of_objects_and_other_systems() {
        let object = |target: Value| {
            let described = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main" });
            json!({ "type": "Object", "object": { "metric": { "name": "requests" }, "describedObject": described, "target": target } })
        };
        let value = |value: &str| json!({ "type": "Value", "value": value });
        let average = |value: &str| json!({ "type": "AverageValue", "averageValue": value });
        let requests = |amount: &str| json!({ metrics::custom("requests"): amount });
        let name = "Ingress metric requests";
        check(
            object(value("10")),
            requests("25"),
            &two(),
            Ok((5, name, json!({ "value": "25" }))),
        );
        check(
            object(value("10")),
            requests("10500m"),
            &two(),
            Ok((2, name, json!({ "value": "10500m" }))),
        );
        // From no pod, and back to none.
        check(
            object(value("10")),
            requests("25"),
            &[],
            Ok((3, name, json!({ "value": "25" }))),
        );
        check(
            object(value("10")),
            requests("0"),
            &two(),
            Ok((0, name, json!({ "value": "0" }))),
        );
        let ready_one = [pod("a", None, true), pod("b", None, false)];
        check(
            object(value("10")),
            requests("30"),
            &ready_one,
            Ok((3, name, json!({ "value": "30" }))),
        );
        let name = "external metric requests(nil)";
        check(
            object(average("10")),
            requests("45"),
            &two(),
            Ok((5, name, json!({ "averageValue": "22500m" }))),
        );
        check(
            object(average("10")),
            requests("21"),
            &two(),
            Ok((2, name, json!({ "averageValue": "10500m" }))),
        );

        let external = |selector: Value, target: Value| json!({ "type": "External", "external": { "metric": { "name": "queue", "selector": selector }, "target": target } });
        let queue = || json!({ metrics::external("queue"): "name=tasks: 30; name=mails: 12" });
        let name = "external metric queue(nil)";
        check(
            external(Value::Null, average("10")),
            queue(),
            &two(),
            Ok((5, name, json!({ "averageValue": "21" }))),
        );
        check(
            external(Value::Null, value("14")),
            queue(),
            &two(),
            Ok((6, name, json!({ "value": "42" }))),
        );
        let mails = json!({ "matchLabels": { "name": "mails" } });
        let name = "external metric queue(&LabelSelector{MatchLabels:map[string]string{name: mails,},\
                    MatchExpressions:[]LabelSelectorRequirement{},})";
        check(
            external(mails, average("4")),
            queue(),
            &two(),
            Ok((3, name, json!({ "averageValue": "6" }))),
        );
    }
}
