//! Webhooks for kinds of version `v1`.

pub mod sailor_webhook;
