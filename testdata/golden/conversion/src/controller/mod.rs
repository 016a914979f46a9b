//! The controllers: what happens to objects.

pub mod book_controller;
