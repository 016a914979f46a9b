//! The tests of the operator, as one program: each file beside this one is a module. `cargo test --test it NAME` runs those of one.

mod faults;
mod guestbook_controller;
mod guestbook_webhook;
mod operator;
