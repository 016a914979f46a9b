//! Validates webhook configurations before they are written, and definitions of bundles: they are sent, as dry runs, to
//! an API server in this process.
//!
//! The configurations are complete, with the fields that patches added, so exactly what is written is validated. Not
//! here: which webhook an error is about, and its text for a person ([`manifests::refused`]); definitions of a project,
//! which `kubewright-codegen` validates itself.

use kubewright::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
use kubewright::kube::{self};
use kubewright_cluster::{Cluster, Controllers};
use kubewright_codegen::bundle::validate::Report;
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
        match dry_run(&cluster, "admissionregistration.k8s.io", configuration).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) => {
                wrong.extend(manifests::refused(configuration, &status.message, &causes(&status)));
            }
            Err(why) => wrong.extend(no_server(why.to_string())),
        }
    }
    cluster.stop().await;
    if wrong.is_empty() { Ok(()) } else { Err(wrong) }
}

/// Adds to the report of a bundle what an API server has against its definitions.
///
/// # Errors
/// When the API server in this process does not start.
pub(crate) async fn definitions(report: &mut Report) -> Result<(), Diagnostic> {
    let definitions = std::mem::take(&mut report.definitions);
    if definitions.is_empty() {
        return Ok(());
    }
    let no_server = |why: String| {
        Diagnostic::new(
            codes::config::INVALID_BUNDLE,
            "cannot ask an API server about the definitions",
        )
        .because(why)
    };
    let cluster = Cluster::builder().controllers(Controllers::None).start().await;
    let cluster = cluster.map_err(|why| no_server(why.to_string()))?;
    for definition in &definitions {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default();
        match dry_run(&cluster, "apiextensions.k8s.io", definition).await {
            Ok(()) => {}
            Err(kube::Error::Api(status)) => {
                let causes = causes(&status);
                if causes.is_empty() {
                    report.refused(name, "", &status.message);
                }
                for (field, why) in causes {
                    report.refused(name, &field, &format!("{field}: {why}"));
                }
            }
            Err(kube::Error::SerdeError(why)) => report.refused(name, "metadata", &why.to_string()),
            Err(why) => return Err(no_server(why.to_string())),
        }
    }
    cluster.stop().await;
    Ok(())
}

/// The fields of a refusal, and what is wrong with each.
fn causes(status: &kube::core::Status) -> Vec<(String, String)> {
    let causes = status.details.as_ref().map(|details| details.causes.as_slice());
    let causes = causes.unwrap_or_default().iter();
    causes
        .map(|cause| (cause.field.clone(), cause.message.clone()))
        .collect()
}

async fn dry_run(cluster: &Cluster, group: &str, object: &Value) -> kube::Result<()> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    let object: DynamicObject = serde_json::from_value(object.clone()).map_err(kube::Error::SerdeError)?;
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    Api::all_with(cluster.client(), &kind)
        .create(&dry, &object)
        .await
        .map(drop)
}
