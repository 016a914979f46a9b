//! What the API server asks before it stores a Guestbook.

use kubewright::prelude::*;

use plain_api::v1;

/// Sets the defaults of a Guestbook.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestbookDefaulter;

impl Defaulter for GuestbookDefaulter {
    type Object = v1::Guestbook;

    /// Called before a Guestbook is created or changed, perhaps twice: the second call must change nothing.
    async fn default(
        &self,
        guestbook: &mut v1::Guestbook,
        _: &AdmissionRequest,
    ) -> Result<(), Denied> {
        // Set what is missing.
        let _ = guestbook;
        Ok(())
    }
}

/// Says which guestbooks may be stored.
#[derive(Clone, Copy, Debug, Default)]
pub struct GuestbookValidator;

impl Validator for GuestbookValidator {
    type Object = v1::Guestbook;

    /// Called before a Guestbook is created.
    async fn create(&self, guestbook: &v1::Guestbook, _: &AdmissionRequest) -> Result<(), Denied> {
        let errors = FieldErrors::new();
        // A field that is wrong is named: `errors.invalid("spec.foo", &guestbook.spec.foo, "must be …")`.
        let _ = guestbook;
        errors.into_result()
    }

    /// Called before a Guestbook is changed.
    async fn update(
        &self,
        _: &v1::Guestbook,
        guestbook: &v1::Guestbook,
        request: &AdmissionRequest,
    ) -> Result<(), Denied> {
        self.create(guestbook, request).await
    }
}

/// The webhooks of guestbooks, and what the API server is told about them.
pub fn webhook() -> Webhook<v1::Guestbook> {
    Webhook::of::<v1::Guestbook>()
        .defaulter(GuestbookDefaulter)
        .validator(GuestbookValidator)
}
