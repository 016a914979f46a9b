//! The webhooks of Memstore, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use deploy_image::webhook::v1alpha1::memstore_webhook::*;
use deploy_image_api::v1alpha1;

/// A Memstore as people write it.
fn sample() -> v1alpha1::Memstore {
    v1alpha1::Memstore::new("sample", v1alpha1::MemstoreSpec::default())
}

#[tokio::test]
async fn what_is_right_is_taken() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1alpha1::Memstore>(Operation::Create);
    MemstoreValidator.create(&sample(), &request).await?;
    MemstoreValidator
        .update(&sample(), &sample(), &request)
        .await?;
    // Assert here what is refused.
    assert_eq!(request.warnings(), [""; 0]);
    Ok(())
}
