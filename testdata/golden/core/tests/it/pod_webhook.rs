//! The webhooks of Pod, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use core_operator::webhook::v1::pod_webhook::*;
use kubewright::k8s_openapi::api::core::v1;

/// A Pod as people write it.
fn sample() -> v1::Pod {
    v1::Pod {
        spec: Some(v1::PodSpec::default()),
        ..v1::Pod::default()
    }
}

#[tokio::test]
async fn defaults_are_set_once() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Pod>(Operation::Create);
    let mut once = sample();
    PodDefaulter.default(&mut once, &request).await?;
    let spec = once.spec.clone().unwrap_or_default();
    assert_eq!(spec.automount_service_account_token, Some(false));
    let mut twice = once.clone();
    PodDefaulter.default(&mut twice, &request).await?;
    assert_eq!(once, twice);
    Ok(())
}

#[tokio::test]
async fn what_is_right_is_taken() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Pod>(Operation::Create);
    PodValidator.create(&sample(), &request).await?;
    PodValidator.update(&sample(), &sample(), &request).await?;
    // Assert here what is refused.
    assert_eq!(request.warnings(), [""; 0]);
    Ok(())
}
