//! The webhook that the API server calls before it stores a Pod: the containers of SidecarSets are injected into it.

use kubewright::prelude::*;

use kubewright::jiff::Timestamp;
use kubewright::k8s_openapi::api::core::v1;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubewright::webhook::Operation;
use sidecarset_api::v1alpha1::SidecarSet;

use crate::sidecar::{inject, selecting};

/// Injects sidecars.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodDefaulter;

// ANCHOR: defaulter
impl Defaulter for PodDefaulter {
    type Object = v1::Pod;

    /// Called before a Pod is created, perhaps twice: the second time there is nothing left to do.
    async fn default(&self, pod: &mut v1::Pod, request: &AdmissionRequest) -> Result<(), Denied> {
        if !inject::is_active(pod) {
            return Ok(());
        }
        let client = request.client()?;
        let namespace = request.namespace.as_deref().unwrap_or_default();
        // A namespace that the cache has not seen yet has no labels that a selector could want.
        let labels = match client.get::<v1::Namespace>(None, namespace).await? {
            Some(found) => found.metadata.labels.clone().unwrap_or_default(),
            None => [(selecting::NAMESPACE_NAME.to_owned(), namespace.to_owned())].into(),
        };
        let sets = client.list::<SidecarSet>(None).await?;
        let meant = |set: &&SidecarSet| {
            set.injects() && selecting::covers(set, namespace, &labels) && selecting::selects_pod(set, pod)
        };
        let meant: Vec<&SidecarSet> = sets.iter().map(|set| &**set).filter(meant).collect();
        inject::inject(pod, &meant, &Time(Timestamp::now()))?;
        Ok(())
    }
}
// ANCHOR_END: defaulter

// ANCHOR: webhook
/// The webhooks of pods, and what the API server is told about them. The framework leaves out kube-system and the
/// namespaces of operators.
pub fn webhook() -> Webhook<v1::Pod> {
    Webhook::of::<v1::Pod>()
        .defaulter(PodDefaulter)
        .mutating(|webhook| webhook.path("/mutate-pod").operations([Operation::Create]))
}
// ANCHOR_END: webhook
