//! The tests of the operator, as one program: each file beside this one is a module. `cargo test --test it NAME` runs those of one.

mod crew_sailor_controller;
mod crew_sailor_webhook;
mod dock_harbour_berth_controller;
mod faults;
mod operator;
mod sea_lanes_sailor_controller;
