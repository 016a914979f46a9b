//! The webhooks of Sailor, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use multigroup::webhook::crew::v1::sailor_webhook::*;
use multigroup_api::crew::v1;

/// A Sailor as people write it.
fn sample() -> v1::Sailor {
    v1::Sailor::new("sample", v1::SailorSpec::default())
}

#[tokio::test]
async fn what_is_right_is_taken() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Sailor>(Operation::Create);
    SailorValidator.create(&sample(), &request).await?;
    SailorValidator
        .update(&sample(), &sample(), &request)
        .await?;
    let mut captain = sample();
    captain.spec.rank = v1::Rank::Captain;
    captain.spec.bunk = Some(1);
    let refused = SailorValidator.create(&captain, &request).await;
    assert!(refused.is_err_and(|why| why.to_string().contains("spec.bunk")));
    assert_eq!(request.warnings(), [""; 0]);
    Ok(())
}
