//! Webhooks for kinds of version `v1alpha1`.

pub mod memstore_webhook;
