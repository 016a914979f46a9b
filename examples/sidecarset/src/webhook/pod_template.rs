//! The API server's own defaults and rules for containers and volumes, without a copy of them: they are sent to it as a
//! PodTemplate, in a dry run.
//!
//! A PodTemplate has all of a pod's defaults and rules, and nothing happens to one: no quota counts it, and the webhook
//! for pods is not asked.

use kubewright::k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplate, PodTemplateSpec};
use kubewright::kube::core::Status;
use kubewright::prelude::*;
use sidecarset_api::v1alpha1::SidecarSet;

/// The namespace of the PodTemplate, which every cluster has.
const NAMESPACE: &str = "default";
/// Stands last among the containers, for a pod has at least one.
const PLACEHOLDER: &str = "sidecarset-placeholder";

/// The containers and volumes of the set with the API server's defaults.
///
/// # Errors
/// As the API server answers; [`refusal`] makes it speak of the SidecarSet.
pub(super) async fn complete(client: &Client, set: &SidecarSet) -> Result<Option<PodSpec>> {
    let placeholder = Container {
        name: PLACEHOLDER.to_owned(),
        image: Some(PLACEHOLDER.to_owned()),
        ..Container::default()
    };
    let own = set.spec.containers.iter().map(|sidecar| sidecar.container.clone());
    let init = set.spec.init_containers.iter().map(|sidecar| sidecar.container.clone());
    let spec = PodSpec {
        containers: own.chain([placeholder]).collect(),
        init_containers: Some(init.collect()),
        volumes: Some(set.spec.volumes.clone()),
        ..PodSpec::default()
    };
    let template = PodTemplate {
        metadata: ObjectMeta {
            generate_name: Some("sidecarset-".to_owned()),
            namespace: Some(NAMESPACE.to_owned()),
            ..ObjectMeta::default()
        },
        template: Some(PodTemplateSpec {
            metadata: None,
            spec: Some(spec),
        }),
    };
    let completed = client.with_dry_run().create(&template).await?;
    Ok(completed.template.clone().and_then(|template| template.spec))
}

/// Sets the defaults in the SidecarSet. A set that the API server refuses is left as it is: the validating webhook
/// reports why.
///
/// # Errors
/// When the API server cannot be asked.
pub(super) async fn set_defaults(client: &Client, set: &mut SidecarSet) -> Result<()> {
    let completed = match complete(client, set).await {
        Ok(Some(completed)) => completed,
        Ok(None) => return Ok(()),
        Err(error) if is_invalid(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    for (sidecar, container) in set.spec.containers.iter_mut().zip(completed.containers) {
        sidecar.container = container;
    }
    let init = completed.init_containers.into_iter().flatten();
    for (sidecar, container) in set.spec.init_containers.iter_mut().zip(init) {
        sidecar.container = container;
    }
    set.spec.volumes = completed.volumes.unwrap_or_default();
    Ok(())
}

/// Checks the SidecarSet's containers and volumes by the API server's rules.
///
/// # Errors
/// The errors of the API server, with the SidecarSet's paths.
pub(super) async fn check(client: &Client, set: &SidecarSet) -> Result<(), Denied> {
    match complete(client, set).await {
        Ok(_) => Ok(()),
        Err(error) if is_invalid(&error) => Err(refusal(set, error)),
        Err(error) => Err(error.into()),
    }
}

fn is_invalid(error: &Error) -> bool {
    error
        .status()
        .is_some_and(|status| status.code == 422 || status.code == 400)
}

/// A refusal of the PodTemplate as one of the SidecarSet: `template.spec.containers[0]` is `spec.containers[0]`.
fn refusal(set: &SidecarSet, error: Error) -> Denied {
    let Some(status) = error.status() else {
        return error.into();
    };
    let mut status: Status = status.clone();
    let Some(details) = &mut status.details else {
        return Denied::status(status);
    };
    let name = set.metadata.name.clone().unwrap_or_default();
    let mut texts = Vec::new();
    for cause in &mut details.causes {
        if let Some(path) = cause.field.strip_prefix("template.") {
            cause.field = path.to_owned();
        }
        texts.push(format!("{}: {}", cause.field, cause.message));
    }
    if !texts.is_empty() {
        status.message = format!("SidecarSet.apps.kruise.io {name:?} is invalid: {}", texts.join(", "));
    }
    details.name = name;
    details.group = "apps.kruise.io".to_owned();
    details.kind = "SidecarSet".to_owned();
    Denied::status(status)
}
