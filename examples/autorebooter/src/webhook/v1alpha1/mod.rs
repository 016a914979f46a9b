//! Webhooks for kinds of version `v1alpha1`.

pub mod rebootpolicy_webhook;
