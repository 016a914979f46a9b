//! Nothing: this crate is its manifest.
