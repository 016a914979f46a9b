//! The webhooks of Book, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use conversion::webhook::v1::book_webhook::*;
use conversion_api::v1;

/// A Book as people write it.
fn sample() -> v1::Book {
    v1::Book::new("sample", v1::BookSpec::default())
}

#[tokio::test]
async fn defaults_are_set_once() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Book>(Operation::Create);
    let mut once = sample();
    BookDefaulter.default(&mut once, &request).await?;
    // Assert the defaults here.
    let mut twice = once.clone();
    BookDefaulter.default(&mut twice, &request).await?;
    assert_eq!(once, twice);
    Ok(())
}
