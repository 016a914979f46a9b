//! What the API server asks before it stores a Book.

use kubewright::prelude::*;

use conversion_api::v1;

/// Sets the defaults of a Book.
#[derive(Clone, Copy, Debug, Default)]
pub struct BookDefaulter;

impl Defaulter for BookDefaulter {
    type Object = v1::Book;

    /// Called before a Book is created or changed, perhaps twice: the second call must change nothing.
    async fn default(&self, book: &mut v1::Book, _: &AdmissionRequest) -> Result<(), Denied> {
        // Set what is missing.
        let _ = book;
        Ok(())
    }
}

/// The webhooks of books, and what the API server is told about them.
pub fn webhook() -> Webhook<v1::Book> {
    Webhook::of::<v1::Book>().defaulter(BookDefaulter)
}

/// The versions of books: each is converted through `v1`.
pub fn conversion() -> Conversion<v1::Book> {
    Conversion::hub::<v1::Book>().spoke::<conversion_api::v2::Book>()
}
