//! The webhooks: what is filled in, refused and converted.

mod pod_template;
pub mod v1;
pub mod v1alpha1;
