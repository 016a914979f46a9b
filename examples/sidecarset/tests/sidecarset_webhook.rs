//! The webhooks of SidecarSet, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use sidecarset::webhook::v1alpha1::sidecarset_webhook::*;
use sidecarset_api::v1alpha1;

/// A SidecarSet as people write it.
fn sample() -> v1alpha1::SidecarSet {
    v1alpha1::SidecarSet::new("sample", v1alpha1::SidecarSetSpec::default())
}

#[tokio::test]
async fn defaults_are_set_once() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1alpha1::SidecarSet>(Operation::Create);
    let mut once = sample();
    SidecarSetDefaulter.default(&mut once, &request).await?;
    // Assert here what is filled in.
    let mut twice = once.clone();
    SidecarSetDefaulter.default(&mut twice, &request).await?;
    assert_eq!(once, twice);
    Ok(())
}

#[tokio::test]
async fn what_is_right_is_taken() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1alpha1::SidecarSet>(Operation::Create);
    SidecarSetValidator.create(&sample(), &request).await?;
    SidecarSetValidator.update(&sample(), &sample(), &request).await?;
    // Assert here what is refused.
    assert_eq!(request.warnings(), [""; 0]);
    Ok(())
}
