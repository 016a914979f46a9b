//! The webhooks that the API server calls before it stores a RebootPolicy.

use kubewright::prelude::*;

use autorebooter_api::v1alpha1;

use crate::policy::validation;

/// Says which rebootpolicies may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct RebootPolicyValidator;

impl Validator for RebootPolicyValidator {
    type Object = v1alpha1::RebootPolicy;

    /// Called before a RebootPolicy is created.
    async fn create(&self, rebootpolicy: &v1alpha1::RebootPolicy, _: &AdmissionRequest) -> Result<(), Denied> {
        validation::check(rebootpolicy).into_result()
    }

    /// Called before a RebootPolicy is changed.
    async fn update(
        &self,
        _: &v1alpha1::RebootPolicy,
        rebootpolicy: &v1alpha1::RebootPolicy,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(rebootpolicy, request).await
    }
}

/// The webhooks of rebootpolicies, and what the API server is told about them.
pub fn webhook() -> Webhook<v1alpha1::RebootPolicy> {
    Webhook::of::<v1alpha1::RebootPolicy>().validator(RebootPolicyValidator)
}
