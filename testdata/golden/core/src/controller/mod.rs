//! The controllers: what happens to objects.

pub mod pod_controller;
