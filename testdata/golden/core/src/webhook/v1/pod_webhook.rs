//! What the API server asks before it stores a Pod.

use kubewright::prelude::*;

use kubewright::k8s_openapi::api::core::v1;

/// Sets the defaults of a Pod.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodDefaulter;

impl Defaulter for PodDefaulter {
    type Object = v1::Pod;

    /// Called before a Pod is created or changed, perhaps twice: the second call must change nothing.
    async fn default(&self, pod: &mut v1::Pod, _: &AdmissionRequest) -> Result<(), Denied> {
        if let Some(spec) = &mut pod.spec {
            spec.automount_service_account_token.get_or_insert(false);
        }
        Ok(())
    }
}

/// Says which pods may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct PodValidator;

impl Validator for PodValidator {
    type Object = v1::Pod;

    /// Called before a Pod is created.
    async fn create(&self, pod: &v1::Pod, _: &AdmissionRequest) -> Result<(), Denied> {
        let errors = FieldErrors::new();
        // A field that is wrong is named: `errors.invalid("spec.foo", &pod.spec.foo, "must be …")`.
        let _ = pod;
        errors.into_result()
    }

    /// Called before a Pod is changed.
    async fn update(
        &self,
        _: &v1::Pod,
        pod: &v1::Pod,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(pod, request).await
    }
}

/// The webhooks of pods, and what the API server is told about them.
pub fn webhook() -> Webhook<v1::Pod> {
    Webhook::of::<v1::Pod>()
        .defaulter(PodDefaulter)
        .validator(PodValidator)
}
