//! Webhooks for kinds of version `v1`.

pub mod guestbook_webhook;
