//! The errors of an API server about webhook configurations, before a real one is asked: they are sent to one in this
//! process, as dry runs.
//!
//! The configurations are whole, with the fields that patches added, so exactly the written ones are judged. Not here:
//! which webhook an answer is about and its meaning for a person ([`manifests::refused`]); definitions, which
//! `kubewright-codegen` judges itself.

use kubewright::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kubewright::kube::{self};
use kubewright_cluster::{Cluster, Controllers};
use kubewright_codegen::manifests;
use kubewright_codegen::{Diagnostic, codes};
use serde_json::Value;

/// The errors of an API server about the configurations.
///
/// # Errors
/// All that is wrong, each at its webhook; or the API server in this process does not start.
pub(crate) async fn webhooks(configurations: &[Value]) -> Result<(), Vec<Diagnostic>> {
    if configurations.is_empty() {
        return Ok(());
    }
    let unasked = |why: String| {
        vec![Diagnostic::new(codes::webhooks::SETTING, "cannot ask an API server about the webhooks").because(why)]
    };
    let cluster = Cluster::builder().controllers(Controllers::None).start().await;
    let cluster = cluster.map_err(|why| unasked(why.to_string()))?;
    let mut wrong = Vec::new();
    for configuration in configurations {
        match sent(&cluster, configuration).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) => {
                let causes = status.details.as_ref().map(|details| details.causes.as_slice());
                let told: Vec<(String, String)> = causes
                    .unwrap_or_default()
                    .iter()
                    .map(|cause| (cause.field.clone(), cause.message.clone()))
                    .collect();
                wrong.extend(manifests::refused(configuration, &status.message, &told));
            }
            Err(why) => wrong.extend(unasked(why.to_string())),
        }
    }
    cluster.stop().await;
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

async fn sent(cluster: &Cluster, configuration: &Value) -> kube::Result<()> {
    let kind = configuration["kind"].as_str().unwrap_or_default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind));
    let object: DynamicObject = serde_json::from_value(configuration.clone()).map_err(kube::Error::SerdeError)?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    Api::all_with(cluster.client(), &kind)
        .create(&dry, &object)
        .await
        .map(drop)
}
