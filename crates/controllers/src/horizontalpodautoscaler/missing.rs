//! Metrics that cannot be had, and the messages about them.
//!
//! Pure. An event and the condition quote why a metric is missing; the event `FailedComputeMetricsReplicas` sums up,
//! and adds the purpose of the first one (`computeReplicasForMetric`). For metrics of pods, objects and other
//! systems that are not set, the messages are those of a cluster that has no API for them.

use kubewright_objects::api::autoscaling::v2::{MetricIdentifier, MetricSpec, ObjectMetricSource, PodsMetricSource};

use crate::selecting;

/// A metric that cannot be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Missing {
    /// The reason of the event and of the condition.
    pub(super) reason: &'static str,
    pub(super) why: String,
    /// The purpose of the metric.
    pub(super) value: String,
}

/// No API serves the metrics of pods and objects.
const NO_CUSTOM: &str =
    "unable to fetch metrics from custom metrics API: no custom metrics API (custom.metrics.k8s.io) registered";

/// The selector of a metric, as Go prints it.
pub(super) fn selector_text(metric: &MetricIdentifier) -> String {
    let selector = metric.selector.as_ref();
    selector.map_or_else(|| "nil".to_owned(), selecting::go_text)
}

/// A metric that is not measured on pods' resources. It is not set, or cannot be read for this cause.
pub(super) fn of(spec: &MetricSpec, namespace: &str, cause: Option<&str>) -> Missing {
    if let Some(source) = &spec.pods {
        return of_pods(source, cause.unwrap_or(NO_CUSTOM));
    }
    if let Some(source) = &spec.object {
        return of_object(source, namespace, cause.unwrap_or(NO_CUSTOM));
    }
    let Some(source) = &spec.external else {
        let why = format!("unknown metric source type {:?}", spec.type_);
        return Missing {
            reason: "InvalidMetricSourceType",
            value: String::new(),
            why,
        };
    };
    let name = &source.metric.name;
    let selector = selector_text(&source.metric);
    let no_external = format!(
        "unable to fetch metrics from external metrics API: the server could not find the requested resource (get \
         {name}.external.metrics.k8s.io)"
    );
    let cause = cause.unwrap_or(&no_external);
    let kind = match source.target.average_value {
        Some(_) => format!("{name} external metric"),
        None => format!("external metric {name}"),
    };
    Missing {
        reason: "FailedGetExternalMetric",
        why: format!("unable to get external metric {namespace}/{name}/{selector}: {cause}"),
        value: format!("failed to get {name} external metric value: failed to get {kind}: "),
    }
}

fn of_pods(source: &PodsMetricSource, cause: &str) -> Missing {
    Missing {
        reason: "FailedGetPodsMetric",
        why: format!("unable to get metric {}: {cause}", source.metric.name),
        value: "failed to get pods metric value: ".to_owned(),
    }
}

fn of_object(source: &ObjectMetricSource, namespace: &str, cause: &str) -> Missing {
    let (name, object) = (&source.metric.name, &source.described_object);
    let kind = match source.target.average_value {
        Some(_) => format!("failed to get {name} object metric: "),
        None => String::new(),
    };
    Missing {
        reason: "FailedGetObjectMetric",
        // The cause stands where the end of the object's name is expected, as it does there.
        why: format!(
            "unable to get metric {name}: {} on {namespace} {}/{cause}",
            object.kind, object.name
        ),
        value: format!("failed to get object metric value: {kind}"),
    }
}

/// A metric of a resource that was not measured.
pub(super) fn of_resource(resource: &str, container: Option<&str>, why: String) -> Missing {
    let (reason, value) = match container {
        None => (
            "FailedGetResourceMetric",
            format!("failed to get {resource} resource metric value: "),
        ),
        Some(container) => (
            "FailedGetContainerResourceMetric",
            format!("failed to get {container} container metric value: "),
        ),
    };
    Missing { reason, why, value }
}

/// Why no size follows from so many metrics of which these are missing.
pub(super) fn sum(missing: &[Missing], of: usize) -> String {
    let first = missing.first().map_or_else(
        || "no metrics are named".to_owned(),
        |first| format!("{}{}", first.value, first.why),
    );
    format!(
        "invalid metrics ({} invalid out of {of}), first error is: {first}",
        missing.len()
    )
}

/// The message of the condition.
pub(super) fn condition(why: &str) -> String {
    format!("the HPA was unable to compute the replica count: {why}")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// As kube-controller-manager 1.36.3 says it where no metrics are served.
    #[test]
    fn what_is_said() {
        let check = |spec: Value, reason: &str, why: &str, value: &str| {
            let spec: MetricSpec = serde_json::from_value(spec).expect("a metric");
            let found = of(&spec, "shop", None);
            assert_eq!((found.reason, found.why.as_str()), (reason, why));
            let expected = format!("invalid metrics (1 invalid out of 2), first error is: {value}{why}");
            assert_eq!(sum(&[found], 2), expected);
        };
        let target = |type_: &str, field: &str| json!({ "type": type_, field: "10" });
        check(
            json!({ "type": "Pods", "pods": { "metric": { "name": "packets" }, "target": target("AverageValue", "averageValue") } }),
            "FailedGetPodsMetric",
            "unable to get metric packets: unable to fetch metrics from custom metrics API: no custom metrics API \
             (custom.metrics.k8s.io) registered",
            "failed to get pods metric value: ",
        );
        let object = |target: Value| {
            let described = json!({ "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "name": "main" });
            json!({ "type": "Object", "object": { "metric": { "name": "requests" }, "describedObject": described, "target": target } })
        };
        let why = "unable to get metric requests: Ingress on shop main/unable to fetch metrics from custom metrics API: \
                   no custom metrics API (custom.metrics.k8s.io) registered";
        check(
            object(target("Value", "value")),
            "FailedGetObjectMetric",
            why,
            "failed to get object metric value: ",
        );
        check(
            object(target("AverageValue", "averageValue")),
            "FailedGetObjectMetric",
            why,
            "failed to get object metric value: failed to get requests object metric: ",
        );
        let external = |selector: Value, target: Value| json!({ "type": "External", "external": { "metric": { "name": "queue", "selector": selector }, "target": target } });
        check(
            external(Value::Null, target("Value", "value")),
            "FailedGetExternalMetric",
            "unable to get external metric shop/queue/nil: unable to fetch metrics from external metrics API: the server \
             could not find the requested resource (get queue.external.metrics.k8s.io)",
            "failed to get queue external metric value: failed to get external metric queue: ",
        );
        let some = json!([{ "key": "a", "operator": "In", "values": ["x", "why"] }]);
        check(
            external(
                json!({ "matchLabels": { "queue": "tasks" }, "matchExpressions": some }),
                target("AverageValue", "averageValue"),
            ),
            "FailedGetExternalMetric",
            "unable to get external metric shop/queue/&LabelSelector{MatchLabels:map[string]string{queue: tasks,},\
             MatchExpressions:[]LabelSelectorRequirement{LabelSelectorRequirement{Key:a,Operator:In,Values:[x why],},},}: \
             unable to fetch metrics from external metrics API: the server could not find the requested resource (get \
             queue.external.metrics.k8s.io)",
            "failed to get queue external metric value: failed to get queue external metric: ",
        );
    }

    #[test]
    fn what_is_said_of_resources() {
        let check = |container: Option<&str>, reason: &str, value: &str| {
            let missing = of_resource("cpu", container, "failed to get cpu utilization: why".to_owned());
            assert_eq!(missing.reason, reason);
            let expected = format!("invalid metrics (1 invalid out of 1), first error is: {value}");
            assert_eq!(sum(&[missing], 1), expected);
        };
        check(
            None,
            "FailedGetResourceMetric",
            "failed to get cpu resource metric value: failed to get cpu utilization: why",
        );
        check(
            Some("c"),
            "FailedGetContainerResourceMetric",
            "failed to get c container metric value: failed to get cpu utilization: why",
        );
    }
}
