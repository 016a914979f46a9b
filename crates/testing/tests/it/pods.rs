//! Pods that misbehave in one line: those that are there and those to come.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kubewright::kube::Api;
use kubewright::kube::api::PostParams;
use kubewright_testing::{Result, TestCluster};
use serde_json::json;

fn container(pod: &Pod) -> Option<&ContainerStatus> {
    pod.status.as_ref()?.container_statuses.as_ref()?.first()
}

fn waits(pod: &Pod) -> Option<&str> {
    container(pod)?.state.as_ref()?.waiting.as_ref()?.reason.as_deref()
}

fn ended(pod: &Pod) -> Option<(i32, &str)> {
    let last = container(pod)?.last_state.as_ref()?.terminated.as_ref()?;
    Some((last.exit_code, last.reason.as_deref()?))
}

fn is_ready(pod: &Pod) -> bool {
    container(pod).is_some_and(|one| one.ready)
}

#[tokio::test]
async fn pods_misbehave_in_one_line() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let db = cluster.pods("app=db").in_namespace("default");
    let api: Api<Deployment> = Api::default_namespaced(cluster.kube());
    let deployment = json!({ "metadata": { "name": "db" }, "spec": {
        "replicas": 1, "selector": { "matchLabels": { "app": "db" } },
        "template": { "metadata": { "labels": { "app": "db" } }, "spec": { "containers": [{ "name": "c", "image": "app:1" }] } },
    } });
    let deployment = serde_json::from_value(deployment).expect("a deployment");
    // Said before the first pod is there.
    db.never_ready().await?;
    api.create(&PostParams::default(), &deployment).await?;
    let one = |is: fn(&Pod) -> bool| move |pods: &[Pod]| matches!(pods, [pod] if is(pod));
    let namespace = Some("default");
    let runs = one(|pod| container(pod).is_some_and(|one| one.started == Some(true) && !one.ready));
    cluster.wait_for_all(namespace, "runs and is not ready", runs).await?;
    db.recover().await?;
    cluster.wait_for_all(namespace, "is ready", one(is_ready)).await?;
    db.crash().await?;
    let crashed = one(|pod| is_ready(pod) && container(pod).is_some_and(|one| one.restart_count == 1));
    cluster
        .wait_for_all(namespace, "has crashed once and is well", crashed)
        .await?;
    db.run_out_of_memory().await?;
    let killed = one(|pod| waits(pod) == Some("CrashLoopBackOff") && ended(pod) == Some((137, "OOMKilled")));
    cluster
        .wait_for_all(namespace, "is killed again and again", killed)
        .await?;
    cluster.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_selector_that_is_none() -> Result<()> {
    let cluster = TestCluster::start().await?;
    let error = cluster
        .pods("app in (db)")
        .never_ready()
        .await
        .expect_err("it is refused");
    assert!(error.to_string().contains("is no label selector"), "{error}");
    Ok(())
}
