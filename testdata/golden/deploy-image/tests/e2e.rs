//! The operator in a real cluster: `make test-e2e` makes one, deploys to it and runs this. Other test runs leave it out.

use std::error::Error;
use std::time::Duration;

use kubewright::k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::k8s_openapi::api::core::v1::{Event, Namespace, Pod};
use kubewright::kube::api::{Api, ListParams, LogParams};
use kubewright::kube::{Client, ResourceExt};

const TIMEOUT: Duration = Duration::from_secs(180);
const NAMESPACE: &str = "deploy-image-system";
const NAME: &str = "deploy-image-controller-manager";

#[tokio::test]
#[ignore = "needs a cluster with the operator deployed: make test-e2e"]
async fn the_operator_runs() -> Result<(), Box<dyn Error>> {
    let client = Client::try_default().await?;
    let checked = tokio::time::timeout(TIMEOUT, check(&client)).await;
    match checked {
        Ok(Ok(())) => Ok(()),
        failed => {
            explain(&client).await?;
            failed?
        }
    }
}

/// It is available, has not been restarted, keeps the strictest security standard, and the API server trusts its webhooks.
async fn check(client: &Client) -> Result<(), Box<dyn Error>> {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), NAMESPACE);
    loop {
        let status = deployments.get(NAME).await?.status.unwrap_or_default();
        if status.available_replicas > Some(0) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = namespaces.get(NAMESPACE).await?;
    let enforced = namespace.labels().get("pod-security.kubernetes.io/enforce");
    assert_eq!(enforced.map(String::as_str), Some("restricted"));
    for pod in pods(client).await? {
        let containers = pod
            .status
            .and_then(|status| status.container_statuses)
            .unwrap_or_default();
        for container in containers {
            assert_eq!(container.restart_count, 0);
        }
    }
    let webhooks: Api<ValidatingWebhookConfiguration> = Api::all(client.clone());
    let name = "deploy-image-validating-webhook-configuration";
    if let Some(configuration) = webhooks.get_opt(name).await? {
        for webhook in configuration.webhooks.unwrap_or_default() {
            assert!(webhook.client_config.ca_bundle.is_some());
        }
    }
    Ok(())
}

async fn pods(client: &Client) -> Result<Vec<Pod>, kubewright::kube::Error> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    let of_operator = ListParams::default().labels("control-plane=controller-manager");
    Ok(pods.list(&of_operator).await?.items)
}

/// Prints what helps to find the cause of a failure: the state of the pods, their logs, and events.
#[allow(clippy::print_stderr)] // for the log of a run that failed
async fn explain(client: &Client) -> Result<(), Box<dyn Error>> {
    let api: Api<Pod> = Api::namespaced(client.clone(), NAMESPACE);
    for pod in pods(client).await? {
        eprintln!("{}: {:?}", pod.name_any(), pod.status);
        match api.logs(&pod.name_any(), &LogParams::default()).await {
            Ok(logs) => eprintln!("{logs}"),
            Err(why) => eprintln!("no logs: {why}"),
        }
    }
    let events: Api<Event> = Api::namespaced(client.clone(), NAMESPACE);
    for event in events.list(&ListParams::default()).await? {
        eprintln!(
            "{:?} {:?}: {:?}",
            event.involved_object.name, event.reason, event.message
        );
    }
    Ok(())
}
