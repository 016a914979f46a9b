//! What the API server asks before it stores a Sailor.

use kubewright::prelude::*;

use multigroup_api::crew::v1;

/// Says which sailors may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct SailorValidator;

impl Validator for SailorValidator {
    type Object = v1::Sailor;

    /// Called before a Sailor is created.
    async fn create(&self, sailor: &v1::Sailor, _: &AdmissionRequest) -> Result<(), Denied> {
        let mut errors = FieldErrors::new();
        if sailor.spec.rank == v1::Rank::Captain && sailor.spec.bunk.is_some() {
            errors.invalid("spec.bunk", sailor.spec.bunk, "a captain has a cabin");
        }
        errors.into_result()
    }

    /// Called before a Sailor is changed.
    async fn update(
        &self,
        _: &v1::Sailor,
        sailor: &v1::Sailor,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(sailor, request).await
    }
}

/// The webhooks of sailors, and what the API server is told about them.
pub fn webhook() -> Webhook<v1::Sailor> {
    Webhook::of::<v1::Sailor>().validator(SailorValidator)
}
