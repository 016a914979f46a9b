//! The types of autorebooter's API, for the operator and its clients.

pub mod v1alpha1;
