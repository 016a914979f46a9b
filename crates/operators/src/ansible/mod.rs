//! Operators whose reconciler is an Ansible role or playbook, run by `ansible-runner`.
//!
//! An object leads to a run: its spec becomes variables ([`vars`]), the run gets a folder of its own ([`input`]), the
//! program is called ([`runner`]) and tells what it does ([`receiver`], [`events`]); its requests to the cluster go through
//! a [`proxy`], and its end is written into the status of the object ([`status`]).

pub mod events;
pub mod input;
mod metrics;
mod operator;
pub mod proxy;
pub mod receiver;
mod reconciler;
pub mod runner;
pub mod snake;
pub mod status;
mod user_metrics;
pub mod vars;
pub mod watch;

pub use operator::{Options, operator};
