//! The tests of the operator, as one program: each file beside this one is a module. `cargo test --test it NAME` runs those of one.

mod faults;
mod memstore_controller;
mod memstore_webhook;
mod operator;
