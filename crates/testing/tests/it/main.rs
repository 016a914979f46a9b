//! Operators and controllers in test clusters: the runtime, webhooks, crashes, virtual time, and the kit itself.
//!
//! One program for all of them, because each integration test program links a server. What a whole process remembers is
//! tested in a process of its own (`alone`).

mod agents;
#[path = "../../../cluster/tests/it/alone.rs"]
mod alone;
mod autoscaling;
mod controllers;
mod explore;
mod forks;
mod kit;
mod outside;
mod pods;
mod runtime;
mod spans;
mod time;
mod webhooks;
