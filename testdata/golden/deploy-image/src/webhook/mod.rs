//! The webhooks: what is filled in, refused and converted.

pub mod v1alpha1;
