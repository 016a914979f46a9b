//! The part that each family of kinds adds to the pipeline: defaults, preparation, validation, warnings, as small
//! functions in a [`Strategy`].
//!
//! One file for a family. `check` has the parts of which rules are written. Texts and their paths are Kubernetes' own:
//! clients compare them.
//!
//! Invariants: no function panics on any JSON; defaults are idempotent (a second run changes nothing), because the
//! pipeline runs them on every write; a validation only reads.
//!
//! Not here: rules for metadata (the pipeline's) and for custom resources (their schema's).
//!
//! [`Strategy`]: kubewright_model::Strategy

pub(crate) mod admission_policies;
pub(crate) mod autoscaling;
pub(crate) mod certificates;
pub(crate) mod check;
pub(crate) mod core;
pub(crate) mod cron;
pub(crate) mod declared;
pub(crate) mod definitions;
pub(crate) mod devices;
pub(crate) mod events;
pub(crate) mod flow;
mod job_status;
pub(crate) mod jobs;
mod key_pairs;
pub(crate) mod limit_ranges;
pub(crate) mod migrations;
pub(crate) mod networking;
pub(crate) mod nodes;
pub(crate) mod pods;
pub(crate) mod policy;
mod ranges;
pub(crate) mod rbac;
#[cfg(test)]
pub(crate) mod recorded_tests;
mod service_warnings;
pub(crate) mod services;
pub(crate) mod since_37;
pub(crate) mod slices;
pub(crate) mod storage;
pub(crate) mod system;
pub(crate) mod trust;
#[cfg(test)]
mod updates_tests;
pub(crate) mod webhooks;
pub(crate) mod workloads;
