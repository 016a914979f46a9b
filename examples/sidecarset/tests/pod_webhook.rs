//! The webhooks of Pod, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use kubewright::k8s_openapi::api::core::v1;
use sidecarset::webhook::v1::pod_webhook::*;

/// A Pod as people write it.
fn sample() -> v1::Pod {
    v1::Pod::default()
}

#[tokio::test]
async fn defaults_are_set_once() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Pod>(Operation::Create);
    let mut once = sample();
    PodDefaulter.default(&mut once, &request).await?;
    // Assert here what is filled in.
    let mut twice = once.clone();
    PodDefaulter.default(&mut twice, &request).await?;
    assert_eq!(once, twice);
    Ok(())
}
