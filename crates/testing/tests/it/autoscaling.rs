//! Autoscalers that follow a load, in time that the test owns.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::autoscaling::v2::HorizontalPodAutoscaler;
use k8s_openapi::api::core::v1::Event;
use kubewright::Object;
use kubewright::k8s_openapi::jiff::Timestamp;
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams, PostParams};
use kubewright_testing::{Cluster, Minor, Result, TestCluster};
use serde_json::{Value, json};

/// A cluster with a Deployment `web` of so many of these containers, and its autoscalers, of which there are none yet.
async fn web(replicas: u32, container: Value) -> Result<(TestCluster, Api<Deployment>, Api<HorizontalPodAutoscaler>)> {
    web_at(Minor::default(), replicas, container).await
}

async fn web_at(
    minor: Minor,
    replicas: u32,
    container: Value,
) -> Result<(TestCluster, Api<Deployment>, Api<HorizontalPodAutoscaler>)> {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().expect("a time");
    let cluster = TestCluster::in_virtual_time(start, Cluster::builder().kubernetes_version(minor)).await?;
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.kube());
    let deployment = json!({ "metadata": { "name": "web" }, "spec": {
        "replicas": replicas, "selector": { "matchLabels": { "app": "web" } },
        "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [container] } },
    } });
    let deployment = serde_json::from_value(deployment).expect("a deployment");
    deployments.create(&PostParams::default(), &deployment).await?;
    cluster.settle().await?;
    let scalers = Api::default_namespaced(cluster.kube());
    Ok((cluster, deployments, scalers))
}

fn plain() -> Value {
    json!({ "name": "c", "image": "app:1" })
}

/// Has `web` scaled by an unknown metric of its pods.
async fn scale_by_packets(scalers: &Api<HorizontalPodAutoscaler>, name: &str) -> Result<()> {
    let target = json!({ "type": "AverageValue", "averageValue": "10" });
    let scaler = json!({ "metadata": { "name": name }, "spec": {
        "maxReplicas": 20, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "metrics": [{ "type": "Pods", "pods": { "metric": { "name": "packets" }, "target": target } }],
    } });
    let scaler = serde_json::from_value(scaler).expect("an autoscaler");
    scalers.create(&PostParams::default(), &scaler).await?;
    Ok(())
}

/// The load grows: the target doubles until it fits. It falls: five minutes later the target shrinks, not below its
/// least size.
#[tokio::test]
async fn a_target_follows_its_load() -> Result<()> {
    let container = json!({ "name": "c", "image": "app:1", "resources": { "requests": { "cpu": "500m" } } });
    let (cluster, deployments, scalers) = web(2, container).await?;
    let target = json!({ "type": "Utilization", "averageUtilization": 50 });
    let scaler = json!({ "metadata": { "name": "web", "annotations": { "kubewright.dev/load-cpu": "500m" } }, "spec": {
        "minReplicas": 1, "maxReplicas": 20, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "metrics": [{ "type": "Resource", "resource": { "name": "cpu", "target": target } }],
    } });
    let scaler = serde_json::from_value(scaler).expect("an autoscaler");
    scalers.create(&PostParams::default(), &scaler).await?;
    let load = async |amount: &str| -> Result<()> {
        let patch = Patch::Merge(json!({ "metadata": { "annotations": { "kubewright.dev/load-cpu": amount } } }));
        scalers.patch("web", &PatchParams::default(), &patch).await?;
        Ok(())
    };
    // The size, and its conditions, after so many seconds.
    let check = async |seconds: u64, size: i32, able: &str, limited: &str| -> Result<()> {
        cluster.advance(Duration::from_secs(seconds)).await?;
        let found = deployments.get("web").await?.spec.and_then(|spec| spec.replicas);
        let conditions = scalers
            .get("web")
            .await?
            .status
            .and_then(|status| status.conditions)
            .unwrap_or_default();
        let reason = |type_: &str| {
            let found = conditions.iter().find(|condition| condition.type_ == type_);
            found
                .and_then(|condition| condition.reason.as_deref())
                .unwrap_or_default()
        };
        let said = (
            found,
            reason("AbleToScale"),
            reason("ScalingLimited"),
            reason("ScalingActive"),
        );
        assert_eq!(
            said,
            (Some(size), able, limited, "ValidMetricFound"),
            "after {seconds} s more"
        );
        Ok(())
    };
    check(16, 2, "ReadyForNewScale", "DesiredWithinRange").await?;
    load("2500m").await?;
    check(1, 4, "SucceededRescale", "ScaleUpLimit").await?;
    check(15, 8, "SucceededRescale", "ScaleUpLimit").await?;
    check(15, 10, "SucceededRescale", "DesiredWithinRange").await?;
    check(15, 10, "ReadyForNewScale", "DesiredWithinRange").await?;
    load("100m").await?;
    check(200, 10, "ScaleDownStabilized", "DesiredWithinRange").await?;
    check(150, 1, "ReadyForNewScale", "DesiredWithinRange").await?;
    cluster.stop().await;
    Ok(())
}

/// An autoscaler takes its target to zero and up again, as kube-controller-manager 1.37.2; a target that somebody else
/// took to zero stays there.
#[tokio::test]
async fn a_target_goes_to_zero_and_back() -> Result<()> {
    let (cluster, deployments, scalers) = web_at(Minor::V37, 2, plain()).await?;
    let external = json!({ "metric": { "name": "queue" }, "target": { "type": "AverageValue", "averageValue": "10" } });
    let scaler = json!({ "metadata": { "name": "web" }, "spec": {
        "minReplicas": 0, "maxReplicas": 20, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "metrics": [{ "type": "External", "external": external }],
        "behavior": { "scaleDown": { "stabilizationWindowSeconds": 0 } },
    } });
    let scaler = serde_json::from_value(scaler).expect("an autoscaler");
    cluster.set_external_metric("default", "queue", "0").await?;
    scalers.create(&PostParams::default(), &scaler).await?;
    let check = async |size: i32, kind: &str, reason: &str| -> Result<()> {
        cluster.advance(Duration::from_secs(40)).await?;
        let found = deployments.get("web").await?.spec.and_then(|spec| spec.replicas);
        let status = scalers.get("web").await?.status.expect("it has one");
        let conditions = status.conditions.unwrap_or_default();
        let condition = conditions.into_iter().find(|condition| condition.type_ == kind);
        let said = condition.and_then(|condition| condition.reason);
        assert_eq!((found, said.as_deref()), (Some(size), Some(reason)));
        Ok(())
    };
    check(0, "ScaledToZero", "ScaledToZero").await?;
    cluster.set_external_metric("default", "queue", "25").await?;
    check(3, "ScaledToZero", "NotScaledToZero").await?;
    let none = Patch::Merge(json!({ "spec": { "replicas": 0 } }));
    deployments.patch("web", &PatchParams::default(), &none).await?;
    check(0, "ScalingActive", "ScalingDisabled").await?;
    cluster.stop().await;
    Ok(())
}

/// The conditions where a metric cannot be had, or where it is not clear which pods count.
#[tokio::test]
async fn what_is_not_known_is_said() -> Result<()> {
    let (cluster, _, scalers) = web(2, plain()).await?;
    let create = async |name: &str| -> Result<()> {
        scale_by_packets(&scalers, name).await?;
        cluster.advance(Duration::from_secs(20)).await
    };
    let events: Api<Event> = Api::default_namespaced(cluster.kube());
    let check = async |name: &str, reason: &str, condition: &str, event: &str| -> Result<()> {
        let status = scalers.get(name).await?.status.expect("it has one");
        assert_eq!((status.current_replicas, status.desired_replicas), (Some(2), 0));
        let conditions = status.conditions.unwrap_or_default();
        let active = conditions
            .iter()
            .find(|one| one.type_ == "ScalingActive")
            .expect("it is said");
        let found = (
            active.status.as_str(),
            active.reason.as_deref(),
            active.message.as_deref(),
        );
        assert_eq!(found, ("False", Some(reason), Some(condition)));
        let said = events
            .list(&Default::default())
            .await?
            .items
            .into_iter()
            .filter_map(|one| {
                let about = one.involved_object.name.as_deref() == Some(name);
                let reason = one.reason.filter(|_| about)?;
                Some(format!("{reason}: {}", one.message.unwrap_or_default()))
            });
        let said: Vec<String> = said.collect();
        for expected in [
            format!("{reason}: {event}"),
            format!("FailedComputeMetricsReplicas: {event}"),
        ] {
            assert!(said.iter().any(|one| one.starts_with(&expected)), "{expected} {said:?}");
        }
        Ok(())
    };
    create("one").await?;
    let why = "unable to get metric packets: unable to fetch metrics from custom metrics API: no custom metrics API \
               (custom.metrics.k8s.io) registered";
    let condition = format!("the HPA was unable to compute the replica count: {why}");
    check("one", "FailedGetPodsMetric", &condition, "").await?;
    create("two").await?;
    let why = "pods by selector app=web are controlled by multiple HPAs: [default/one default/two]";
    check("two", "AmbiguousSelector", why, why).await?;
    check("one", "AmbiguousSelector", why, why).await?;
    cluster.stop().await;
    Ok(())
}

/// An autoscaler of `web` with this metric.
async fn scale_by(scalers: &Api<HorizontalPodAutoscaler>, metric: Value) -> Result<()> {
    let scaler = json!({ "metadata": { "name": "web" }, "spec": {
        "maxReplicas": 20, "scaleTargetRef": { "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" },
        "metrics": [metric],
    } });
    let scaler = serde_json::from_value(scaler).expect("an autoscaler");
    scalers.create(&PostParams::default(), &scaler).await?;
    Ok(())
}

// ANCHOR: queue
/// A Deployment follows the length of a queue.
#[tokio::test]
async fn a_target_follows_a_queue() -> Result<()> {
    let (cluster, deployments, scalers) = web(2, plain()).await?;
    scale_by(
        &scalers,
        json!({ "type": "External", "external": {
        "metric": { "name": "queue_length", "selector": { "matchLabels": { "queue": "tasks" } } },
        "target": { "type": "AverageValue", "averageValue": "10" },
    } }),
    )
    .await?;
    cluster
        .set_external_metric("default", "queue_length", "queue=tasks: 60; queue=mails: 4")
        .await?;
    cluster.advance(Duration::from_secs(40)).await?;
    let size = deployments.get("web").await?.spec.and_then(|spec| spec.replicas);
    assert_eq!(size, Some(6));
    cluster.stop().await;
    Ok(())
}
// ANCHOR_END: queue

/// Sets a metric on `web`, the Deployment or the autoscaler: two pods become three. Compares what the autoscaler says
/// of the metric, and its status; all of it as kube-controller-manager 1.36.3 with an adapter for the same values.
async fn check_metric<K: Object>(metric: Value, value: &str, found: &str, status: Value) -> Result<()> {
    let (cluster, deployments, scalers) = web(2, plain()).await?;
    scale_by(&scalers, metric).await?;
    cluster
        .set_metric::<K>(Some("default"), "web", "requests", value)
        .await?;
    cluster.advance(Duration::from_secs(16)).await?;
    let size = deployments.get("web").await?.spec.and_then(|spec| spec.replicas);
    assert_eq!(size, Some(3));
    let said = scalers.get("web").await?.status.expect("it has one");
    let conditions = said.conditions.unwrap_or_default();
    let active = conditions.iter().find(|one| one.type_ == "ScalingActive");
    let message = active.and_then(|active| active.message.clone()).unwrap_or_default();
    let expected = format!("the HPA was able to successfully calculate a replica count from {found}");
    assert_eq!(message, expected);
    let metrics = serde_json::to_value(said.current_metrics).expect("JSON");
    assert_eq!(metrics, json!([status]));
    let events: Api<Event> = Api::default_namespaced(cluster.kube());
    let events = events.list(&Default::default()).await?.items.into_iter();
    let rescaled = events.filter(|event| event.reason.as_deref() == Some("SuccessfulRescale"));
    let rescaled: Vec<String> = rescaled.filter_map(|event| event.message).collect();
    assert_eq!(rescaled, [format!("New size: 3; reason: {found} above target")]);
    cluster.stop().await;
    Ok(())
}

#[tokio::test]
async fn pods_share_a_load() -> Result<()> {
    let target = json!({ "type": "AverageValue", "averageValue": "1k" });
    let pods = json!({ "metric": { "name": "requests" }, "target": target });
    let metric = json!({ "type": "Pods", "pods": pods });
    let status =
        json!({ "type": "Pods", "pods": { "metric": { "name": "requests" }, "current": { "averageValue": "1k" } } });
    check_metric::<HorizontalPodAutoscaler>(metric, "3k", "pods metric requests", status).await
}

/// A metric of the Deployment, with this target; its value in the status.
async fn check_object(target: Value, found: &str, current: Value) -> Result<()> {
    let of = |key: &str, value: Value| {
        let web = json!({ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web" });
        let object = json!({ "metric": { "name": "requests" }, "describedObject": web, key: value });
        json!({ "type": "Object", "object": object })
    };
    check_metric::<Deployment>(of("target", target), "30", found, of("current", current)).await
}

#[tokio::test]
async fn an_object_has_a_value() -> Result<()> {
    let target = json!({ "type": "Value", "value": "20" });
    check_object(target, "Deployment metric requests", json!({ "value": "30" })).await
}

#[tokio::test]
async fn an_object_has_a_value_for_each_pod() -> Result<()> {
    let target = json!({ "type": "AverageValue", "averageValue": "10" });
    check_object(target, "external metric requests(nil)", json!({ "averageValue": "15" })).await
}

/// Sizes are those of the target's spec: a rollout that is under way has more pods.
#[tokio::test]
async fn sizes_are_those_of_the_spec() -> Result<()> {
    let (cluster, deployments, scalers) = web(4, plain()).await?;
    // The pods of the next version find no node.
    let nowhere = Patch::Merge(json!({ "spec": { "template": { "spec": { "nodeSelector": { "no": "such" } } } } }));
    deployments.patch("web", &PatchParams::default(), &nowhere).await?;
    cluster.settle().await?;
    let pods = deployments.get("web").await?.status.and_then(|status| status.replicas);
    assert_eq!(pods, Some(5));
    scale_by_packets(&scalers, "web").await?;
    // After so many seconds: the sizes, and whether a change was ever noted.
    let check = async |seconds: u64, current: i32, desired: i32, changed: bool| -> Result<()> {
        cluster.advance(Duration::from_secs(seconds)).await?;
        let status = scalers.get("web").await?.status.expect("it has one");
        let said = (
            status.current_replicas,
            status.desired_replicas,
            status.last_scale_time.is_some(),
        );
        assert_eq!(said, (Some(current), desired, changed), "after {seconds} s more");
        Ok(())
    };
    check(1, 4, 0, false).await?;
    let more = Patch::Merge(json!({ "spec": { "minReplicas": 6 } }));
    scalers.patch("web", &PatchParams::default(), &more).await?;
    // It is looked at every fifteen seconds.
    check(15, 4, 6, true).await?;
    check(15, 6, 6, true).await?;
    cluster.stop().await;
    Ok(())
}
