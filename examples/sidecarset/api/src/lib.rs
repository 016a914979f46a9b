//! The types of sidecarset's API, for the operator and its clients.

pub mod v1alpha1;
