//! Validates webhook configurations before they are written: they are sent, as dry runs, to an API server in this
//! process.
//!
//! The configurations are complete, with the fields that patches added, so exactly what is written is validated. Not
//! here: which webhook an error is about, and its text for a person ([`manifests::refused`]); definitions, which
//! `kubewright-codegen` validates itself.

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
    let no_server = |why: String| {
        vec![Diagnostic::new(codes::webhooks::SETTING, "cannot ask an API server about the webhooks").because(why)]
    };
    let cluster = Cluster::builder().controllers(Controllers::None).start().await;
    let cluster = cluster.map_err(|why| no_server(why.to_string()))?;
    let mut wrong = Vec::new();
    for configuration in configurations {
        match dry_run(&cluster, configuration).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) => {
                let causes = status.details.as_ref().map(|details| details.causes.as_slice());
                let causes: Vec<(String, String)> = causes
                    .unwrap_or_default()
                    .iter()
                    .map(|cause| (cause.field.clone(), cause.message.clone()))
                    .collect();
                wrong.extend(manifests::refused(configuration, &status.message, &causes));
            }
            Err(why) => wrong.extend(no_server(why.to_string())),
        }
    }
    cluster.stop().await;
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

async fn dry_run(cluster: &Cluster, configuration: &Value) -> kube::Result<()> {
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
