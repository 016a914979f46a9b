//! One file for each controller.

pub mod guestbook_controller;
