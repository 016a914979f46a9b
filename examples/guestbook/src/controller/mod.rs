//! The controllers: what happens to objects.

pub mod guestbook_controller;
