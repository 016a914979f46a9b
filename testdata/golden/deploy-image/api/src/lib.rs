//! The types of deploy-image's API, for the operator and its clients.

pub mod v1alpha1;
