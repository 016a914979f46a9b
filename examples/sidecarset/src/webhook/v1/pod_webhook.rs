//! What the API server asks before it stores a Pod.

use kubewright::prelude::*;

use kubewright::k8s_openapi::api::core::v1;

/// Fills in what a Pod leaves open.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodDefaulter;

impl Defaulter for PodDefaulter {
    type Object = v1::Pod;

    /// Called before a Pod is created or changed, perhaps twice: the second time there must be nothing left to do.
    async fn default(&self, pod: &mut v1::Pod, _: &AdmissionRequest) -> Result<(), Denied> {
        // Set what is missing.
        let _ = pod;
        Ok(())
    }
}

/// The webhooks of pods, and what the API server is told about them.
pub fn webhook() -> Webhook<v1::Pod> {
    Webhook::of::<v1::Pod>()
        .defaulter(PodDefaulter)
        .mutating(|webhook| webhook.path("/mutate-pod"))
}
