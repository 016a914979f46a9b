//! Webhooks for kinds of version `v1`.

pub mod pod_webhook;
