//! Why an evaluation has no value.

use std::fmt;

/// An error of an evaluation, in cel-go's words.
///
/// Most errors are values to the language: `false && error` is false. The end of the budget is not: nothing catches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A mistake that the expression made: `no such key: x`, `division by zero`.
    Runtime(Box<str>),
    /// The types of the arguments fit nothing; with the call as far as it is named, else empty.
    NoOverload(Box<str>),
    /// The evaluation costs more than it may.
    CostExceeded,
    /// The expression is nested deeper than the interpreter goes.
    TooDeep,
}

impl Error {
    /// An error with this text.
    pub fn new(message: impl Into<String>) -> Self {
        Self::Runtime(message.into().into_boxed_str())
    }

    /// `no such overload`
    pub(crate) fn no_overload() -> Self {
        Self::NoOverload(Box::default())
    }

    /// `no such overload: f(string)`
    pub(crate) fn no_overload_of(call: impl Into<String>) -> Self {
        Self::NoOverload(call.into().into_boxed_str())
    }

    /// `integer overflow`
    pub(crate) fn overflow() -> Self {
        Self::new("integer overflow")
    }

    /// Whether it ends the evaluation, even inside `||`, `&&` or a macro.
    pub fn is_fatal(&self) -> bool {
        matches!(self, Self::CostExceeded | Self::TooDeep)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Runtime(message) => f.write_str(message),
            Self::NoOverload(call) if call.is_empty() => f.write_str("no such overload"),
            Self::NoOverload(call) => write!(f, "no such overload: {call}"),
            Self::CostExceeded => f.write_str("operation cancelled: actual cost limit exceeded"),
            Self::TooDeep => f.write_str("expression recursion limit exceeded: 250"),
        }
    }
}

impl std::error::Error for Error {}
