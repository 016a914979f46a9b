//! The webhooks of HTTPRoute, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use external::webhook::v1::httproute_webhook::*;
use external_api::external::gateway_networking::v1;

/// An HTTPRoute as people write it.
fn sample() -> v1::HTTPRoute {
    let mut httproute = v1::HTTPRoute::new("sample", v1::HTTPRouteSpec::default());
    httproute.spec.hostnames = vec!["my.domain".to_owned()];
    httproute
}

#[tokio::test]
async fn what_is_right_is_taken() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::HTTPRoute>(Operation::Create);
    HTTPRouteValidator.create(&sample(), &request).await?;
    HTTPRouteValidator
        .update(&sample(), &sample(), &request)
        .await?;
    let for_all = v1::HTTPRoute::new("sample", v1::HTTPRouteSpec::default());
    let refused = HTTPRouteValidator.create(&for_all, &request).await;
    assert!(refused.is_err_and(|why| why.to_string().contains("spec.hostnames")));
    assert_eq!(request.warnings(), [""; 0]);
    Ok(())
}
