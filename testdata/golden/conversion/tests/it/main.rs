//! The tests of the operator, as one program: each file beside this one is a module. `cargo test --test it NAME` runs those of one.

mod book_controller;
mod book_v2_conversion;
mod book_webhook;
mod faults;
mod operator;
