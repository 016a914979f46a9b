//! The cluster through its doors: HTTPS and clients in this process.
//!
//! One program for all of them, because each integration test program links a server. What belongs to a whole process
//! (its memory, its death) is tested in a process of its own: this program again, for one test. `common` is shared.

mod aggregated;
mod alone;
mod as_upstream;
mod bad_input;
mod certificates;
mod common;
mod controllers;
mod crowds;
mod durable;
mod hostile;
mod nodes;
mod plain_kube;
mod recordings;
mod run_log;
mod services;
mod stages;
mod watch_sockets;
mod webhook_function;
mod workloads;
