//! A webhook that is a function: the example of the book.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kubewright_cluster::Cluster;
use serde_json::{Value, json};

// ANCHOR: book
#[tokio::test]
async fn a_function_refuses() -> Result<(), Box<dyn std::error::Error>> {
    let refuse = |review: Value| async move {
        json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": {
            "uid": review["request"]["uid"],
            "allowed": false,
            "status": {"message": "no more of these"},
        }})
    };
    let cluster = Cluster::builder()
        .webhook_function("https://hooks.test/refuse", refuse)
        .start()
        .await?;
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(cluster.client());
    let configuration = serde_json::from_value(json!({
        "metadata": {"name": "refuse"},
        "webhooks": [{
            "name": "refuse.example.com",
            "clientConfig": {"url": "https://hooks.test/refuse"},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["configmaps"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
        }],
    }))?;
    configurations.create(&Default::default(), &configuration).await?;

    let maps: Api<ConfigMap> = Api::namespaced(cluster.client(), "default");
    let map: ConfigMap = serde_json::from_value(json!({"metadata": {"name": "one"}}))?;
    let error = maps.create(&Default::default(), &map).await.unwrap_err().to_string();
    let wanted = "admission webhook \"refuse.example.com\" denied the request: no more of these";
    assert!(error.contains(wanted), "{error}");
    Ok(())
}
// ANCHOR_END: book
