//! The controller `memstore`, on a cluster of its own, in a namespace that lets only restricted pods in.

use kubewright::conditions;
use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::k8s_openapi::api::core::v1::Namespace;
use kubewright::kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use kubewright_testing::TestCluster;
use serde_json::json;

use deploy_image_api::v1alpha1;

const IMAGE: &str = "memcached:1.6.26-alpine3.19";
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

#[tokio::test]
async fn each_has_pods_of_the_image() -> Result<(), Box<dyn std::error::Error>> {
    let cluster = TestCluster::start().await?;
    let namespace = cluster.namespace().await?;
    let namespaces = Api::<Namespace>::all(cluster.kube());
    let label = json!({"metadata": {"labels": {ENFORCE: "restricted"}}});
    let merge = PatchParams::default();
    namespaces
        .patch(&namespace, &merge, &Patch::Merge(label))
        .await?;

    // The whole operator, with the role that it has in production.
    let running = cluster.run(deploy_image::operator()).await?;
    let spec = v1alpha1::MemstoreSpec::default();
    let wanted = v1alpha1::Memstore::new("sample", spec);
    let objects = Api::<v1alpha1::Memstore>::namespaced(cluster.kube(), &namespace);
    objects.create(&PostParams::default(), &wanted).await?;

    let is_available = |object: &v1alpha1::Memstore| {
        let status = object.status.as_ref();
        status.is_some_and(|status| conditions::is_true(&status.conditions, "Available"))
    };
    let within = Some(namespace.as_str());
    cluster
        .wait_for(within, "sample", "is Available", is_available)
        .await?;
    let deployments = Api::<Deployment>::namespaced(cluster.kube(), &namespace);
    let spec = deployments.get("sample").await?.spec.unwrap_or_default();
    let pod = spec.template.spec.unwrap_or_default();
    assert_eq!(pod.containers[0].image.as_deref(), Some(IMAGE));
    let security = pod.containers[0]
        .security_context
        .clone()
        .unwrap_or_default();
    assert_eq!(security.run_as_user, Some(1001));

    // More are asked for.
    let more = json!({"spec": {"size": 2}});
    objects.patch("sample", &merge, &Patch::Merge(more)).await?;
    let has_two = |deployment: &Deployment| {
        let status = deployment.status.as_ref();
        status.is_some_and(|status| status.available_replicas == Some(2))
    };
    cluster
        .wait_for(within, "sample", "has two pods", has_two)
        .await?;

    // It takes its Deployment with it.
    objects.delete("sample", &DeleteParams::default()).await?;
    cluster
        .wait_gone::<v1alpha1::Memstore>(within, "sample")
        .await?;
    cluster.wait_gone::<Deployment>(within, "sample").await?;
    running.stop().await?;
    Ok(())
}
