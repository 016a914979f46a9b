//! What the API server asks before it stores a Memstore.

use kubewright::prelude::*;

use deploy_image_api::v1alpha1;

/// Says which memstores may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemstoreValidator;

impl Validator for MemstoreValidator {
    type Object = v1alpha1::Memstore;

    /// Called before a Memstore is created.
    async fn create(
        &self,
        memstore: &v1alpha1::Memstore,
        _: &AdmissionRequest,
    ) -> Result<(), Denied> {
        let errors = FieldErrors::new();
        // A field that is wrong is named: `errors.invalid("spec.size", &memstore.spec.size, "must be …")`.
        let _ = memstore;
        errors.into_result()
    }

    /// Called before a Memstore is changed.
    async fn update(
        &self,
        _: &v1alpha1::Memstore,
        memstore: &v1alpha1::Memstore,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(memstore, request).await
    }
}

/// The webhooks of memstores, and what the API server is told about them.
pub fn webhook() -> Webhook<v1alpha1::Memstore> {
    Webhook::of::<v1alpha1::Memstore>().validator(MemstoreValidator)
}
