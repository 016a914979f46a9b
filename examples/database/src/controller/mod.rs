//! The controllers: what happens to objects.

mod copies;
mod credentials;
pub mod database_controller;
mod deletion;
mod server;
mod status;
mod storage;
