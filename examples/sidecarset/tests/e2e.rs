//! The operator in a real cluster: `make test-e2e` makes one, deploys to it and runs this. Other test runs leave it out.

use std::time::Duration;

use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::kube::{Api, Client};

const PATIENCE: Duration = Duration::from_secs(180);

#[tokio::test]
#[ignore = "needs a cluster with the operator deployed: make test-e2e"]
async fn the_operator_becomes_available() -> Result<(), Box<dyn std::error::Error>> {
    let client = Client::try_default().await?;
    let namespace = "sidecarset-system";
    let name = "sidecarset-controller-manager";
    let deployments: Api<Deployment> = Api::namespaced(client, namespace);
    let available = async {
        loop {
            let deployment = deployments.get(name).await?;
            let status = deployment.status.unwrap_or_default();
            if status.available_replicas > Some(0) {
                return Ok::<(), kubewright::kube::Error>(());
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    tokio::time::timeout(PATIENCE, available).await??;
    Ok(())
}
