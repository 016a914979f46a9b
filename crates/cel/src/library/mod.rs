//! The functions that expressions may call, by overload.
//!
//! The table of signatures is [`decls`](super::decls); the interpreter has found the overload that fits the values, so
//! that a function gets only the types of its signature. An argument that does not fit all the same is answered with
//! `None`, which is `no such overload`. Operators and conversions are those of [`value`](super::value), and so are the
//! functions of opaque values.

pub(super) mod formatting;
mod lists;
pub(super) mod objects;
mod optional;
pub mod regex;
mod strings;
mod times;

use super::value::Value;
use super::value::opaque::{self, Called};
use regex::Patterns;

/// Calls the function behind an overload.
pub(super) fn call<'a>(overload: &str, args: &[Value<'a>], patterns: &Patterns) -> Called<'a> {
    None.or_else(|| strings::call(overload, args))
        .or_else(|| lists::call(overload, args))
        .or_else(|| regex::call(overload, args, patterns))
        .or_else(|| times::call(overload, args))
        .or_else(|| optional::call(overload, args))
        .or_else(|| opaque::call(overload, args))
}

/// The integer of a place or a count.
fn int<'a>(value: usize) -> Value<'a> {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}
