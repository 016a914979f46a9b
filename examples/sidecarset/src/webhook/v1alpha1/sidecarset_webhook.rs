//! What the API server asks before it stores a SidecarSet.

use kubewright::prelude::*;

use sidecarset_api::v1alpha1;

/// Fills in what a SidecarSet leaves open.
#[derive(Clone, Copy, Debug, Default)]
pub struct SidecarSetDefaulter;

impl Defaulter for SidecarSetDefaulter {
    type Object = v1alpha1::SidecarSet;

    /// Called before a SidecarSet is created or changed, perhaps twice: the second time there must be nothing left to do.
    async fn default(&self, sidecarset: &mut v1alpha1::SidecarSet, _: &AdmissionRequest) -> Result<(), Denied> {
        // Set what is missing.
        let _ = sidecarset;
        Ok(())
    }
}

/// Says which sidecarsets may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct SidecarSetValidator;

impl Validator for SidecarSetValidator {
    type Object = v1alpha1::SidecarSet;

    /// Called before a SidecarSet is created.
    async fn create(&self, sidecarset: &v1alpha1::SidecarSet, _: &AdmissionRequest) -> Result<(), Denied> {
        let errors = FieldErrors::new();
        // A field that is wrong is named: `errors.invalid("spec.foo", &sidecarset.spec.foo, "must be …")`.
        let _ = sidecarset;
        errors.into_result()
    }

    /// Called before a SidecarSet is changed.
    async fn update(
        &self,
        _: &v1alpha1::SidecarSet,
        sidecarset: &v1alpha1::SidecarSet,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(sidecarset, request).await
    }
}

/// The webhooks of sidecarsets, and what the API server is told about them.
pub fn webhook() -> Webhook<v1alpha1::SidecarSet> {
    Webhook::of::<v1alpha1::SidecarSet>()
        .defaulter(SidecarSetDefaulter)
        .mutating(|webhook| webhook.path("/mutate-apps-kruise-io-sidecarset"))
        .validator(SidecarSetValidator)
        .validating(|webhook| webhook.path("/validate-apps-kruise-io-sidecarset"))
}
