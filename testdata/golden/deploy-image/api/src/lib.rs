//! The types of deploy-image's API, for the operator and for everybody who talks to it.

pub mod v1alpha1;
