//! Operators without code, beside an embedded cluster.

#![allow(
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test says what it expects where it can fail"
)]

mod ansible;
mod helm;
mod proxy;
mod real;
mod support;
