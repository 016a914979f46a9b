//! Operators without code, beside the embedded cluster.

mod helm;
