//! The controllers: what happens to objects.

mod connection;
pub mod rebootpolicy_controller;
mod report;
mod targets;

pub use targets::VALUE_HASH;
