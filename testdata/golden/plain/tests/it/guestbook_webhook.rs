//! The webhooks of Guestbook, called as the API server calls them.

use kubewright::prelude::*;
use kubewright::webhook::Operation;

use plain::webhook::v1::guestbook_webhook::*;
use plain_api::v1;

/// A Guestbook as people write it.
fn sample() -> v1::Guestbook {
    v1::Guestbook::new("sample", v1::GuestbookSpec::default())
}

#[tokio::test]
async fn defaults_are_set_once() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Guestbook>(Operation::Create);
    let mut once = sample();
    GuestbookDefaulter.default(&mut once, &request).await?;
    // Assert the defaults here.
    let mut twice = once.clone();
    GuestbookDefaulter.default(&mut twice, &request).await?;
    assert_eq!(once, twice);
    Ok(())
}

#[tokio::test]
async fn what_is_right_is_taken() -> Result<(), Box<dyn std::error::Error>> {
    let request = AdmissionRequest::detached::<v1::Guestbook>(Operation::Create);
    GuestbookValidator.create(&sample(), &request).await?;
    GuestbookValidator
        .update(&sample(), &sample(), &request)
        .await?;
    // Assert here what is refused.
    assert_eq!(request.warnings(), [""; 0]);
    Ok(())
}
