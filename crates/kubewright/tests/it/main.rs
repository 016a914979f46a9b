//! The runtime against a server that does as it is told (`fake`).

mod fake;
mod runtime;
