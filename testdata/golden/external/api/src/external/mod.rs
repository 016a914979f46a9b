//! Kinds of other projects, as far as this one needs them.

pub mod gateway_networking;
