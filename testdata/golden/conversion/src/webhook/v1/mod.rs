//! Webhooks for kinds of version `v1`.

pub mod book_webhook;
