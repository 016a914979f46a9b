//! What is generated beside the recordings of kubebuilder and kustomize. `support` reads them, for the command's tests as
//! well.

mod config;
mod kustomize_errors;
mod support;
