//! The controllers: what happens to objects.

pub mod httproute_controller;
