//! The promises to operators, tried with a real API server: one program, because each test program costs a link.

mod api;
mod apply;
mod clusters;
mod controllers;
mod decodes;
mod election;
mod engaged;
mod events;
mod fence;
mod finalizers;
mod indexes;
mod metrics;
mod namespaces;
mod orphans;
mod own_writes;
mod restart;
mod rights;
mod sharding;
mod soak;
mod sources;
mod stores;
mod terms;
mod transforms;
mod twice;
mod verbs;
mod views;
