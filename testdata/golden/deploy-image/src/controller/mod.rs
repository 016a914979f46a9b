//! The controllers: what happens to objects.

pub mod memstore_controller;
