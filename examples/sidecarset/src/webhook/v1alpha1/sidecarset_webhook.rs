//! The webhooks that the API server calls before it stores a SidecarSet.

use kubewright::prelude::*;

use sidecarset_api::v1alpha1;

use crate::sidecar::{conflicts, defaults, rules};
use crate::webhook::pod_template;

/// Sets the defaults of a SidecarSet.
#[derive(Clone, Copy, Debug, Default)]
pub struct SidecarSetDefaulter;

impl Defaulter for SidecarSetDefaulter {
    type Object = v1alpha1::SidecarSet;

    /// Called before a SidecarSet is created or changed, perhaps twice: the second time there is nothing left to do.
    async fn default(&self, sidecarset: &mut v1alpha1::SidecarSet, request: &AdmissionRequest) -> Result<(), Denied> {
        defaults::set(sidecarset);
        pod_template::set_defaults(request.client()?, sidecarset).await?;
        defaults::annotate(sidecarset);
        Ok(())
    }
}

/// Says which sidecarsets may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct SidecarSetValidator;

impl Validator for SidecarSetValidator {
    type Object = v1alpha1::SidecarSet;

    /// Called before a SidecarSet is created.
    async fn create(&self, sidecarset: &v1alpha1::SidecarSet, request: &AdmissionRequest) -> Result<(), Denied> {
        let client = request.client()?;
        let mut errors = rules::check(sidecarset);
        let all = client.list::<v1alpha1::SidecarSet>(None).await?;
        errors.extend(conflicts::check(sidecarset, all.iter().map(|set| &**set)));
        errors.into_result()?;
        pod_template::check(client, sidecarset).await
    }

    /// Called before a SidecarSet is changed.
    async fn update(
        &self,
        old: &v1alpha1::SidecarSet,
        sidecarset: &v1alpha1::SidecarSet,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        rules::check_update(old, sidecarset).into_result()?;
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
