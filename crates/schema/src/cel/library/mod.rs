//! What the functions do that expressions may call, by overload.
//!
//! The table of signatures is [`decls`](super::decls); the interpreter has found the overload that fits the values, so that a
//! function only takes apart what it was promised. What it cannot take apart anyway, it answers with `None`, which is
//! `no such overload`. Operators and conversions are the interpreter's own.

pub mod authorizer;
mod cidr;
mod formats;
pub(super) mod formatting;
mod ip;
mod lists;
pub(super) mod objects;
pub mod opaque;
mod optional;
mod quantities;
pub(crate) mod regex;
mod semver;
mod strings;
mod times;
pub mod url;

use super::eval::Error;
use super::value::Value;

/// The result of a function; none when the arguments do not fit.
type Called<'a> = Option<Result<Value<'a>, Error>>;

/// Calls the function behind an overload.
pub(super) fn call<'a>(overload: &str, args: &[Value<'a>]) -> Called<'a> {
    None.or_else(|| strings::call(overload, args))
        .or_else(|| lists::call(overload, args))
        .or_else(|| regex::call(overload, args))
        .or_else(|| times::call(overload, args))
        .or_else(|| optional::call(overload, args))
        .or_else(|| quantities::call(overload, args))
        .or_else(|| url::call(overload, args))
        .or_else(|| ip::call(overload, args))
        .or_else(|| cidr::call(overload, args))
        .or_else(|| semver::call(overload, args))
        .or_else(|| formats::call(overload, args))
        .or_else(|| authorizer::call(overload, args))
}

/// The integer of a place or a count.
fn int<'a>(value: usize) -> Value<'a> {
    Value::Int(i64::try_from(value).unwrap_or(i64::MAX))
}
