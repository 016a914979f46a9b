//! Webhooks for kinds of version `v1`.

pub mod httproute_webhook;
