//! Operators without code, beside an embedded cluster.

#![allow(
    clippy::unwrap_used,
    clippy::print_stderr,
    unreachable_pub,
    reason = "a test says what it expects where it can fail, and what it leaves out"
)]

mod ansible;
mod helm;
mod killed;
mod proxy;
mod real;
mod support;
