//! The command as a person uses it: each module starts the program, and compares its words, files and exit statuses.
//!
//! One program for all of them, because each integration test program links a server. `support` is shared.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test fails by panicking, and says what it leaves out"
)]

mod attributes;
mod autoupdate;
mod book;
mod bundles;
mod cluster;
mod codes;
mod day_one;
mod demo;
mod deploy;
mod dev;
mod dropin;
mod examples;
mod explore;
mod golden;
mod kubectl;
mod managed;
mod manifests;
mod migrated;
mod mistakes;
mod pictures;
mod plugins;
mod processes;
mod projects;
mod python;
mod real;
mod run_log;
mod scaffold;
mod shell;
mod status;
mod support;
mod tested;
mod tutorial;
mod walk;
mod without_code;
