//! Regular expressions of schemas, compiled on first use.

use std::fmt;
use std::sync::{Arc, OnceLock};

use kubewright_cel::library::regex::{GoRegex, compile};

/// A `pattern` keyword: the text of an RE2 expression, compiled on the first match and shared by clones.
#[derive(Clone)]
pub struct Pattern(Arc<Inner>);

struct Inner {
    source: String,
    compiled: OnceLock<Result<Arc<GoRegex>, String>>,
}

impl Pattern {
    /// The pattern of this text. Whether it compiles is seen by [`check`](Self::check).
    pub fn new(source: impl Into<String>) -> Self {
        Self(Arc::new(Inner {
            source: source.into(),
            compiled: OnceLock::new(),
        }))
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.0.source
    }

    /// Compiles the expression.
    ///
    /// # Errors
    /// Go's error about a text that is no regular expression, or one that compiles to more than `regex` allows in
    /// memory.
    pub fn check(&self) -> Result<(), &String> {
        self.compiled().map(drop)
    }

    /// Whether it matches somewhere in the text.
    ///
    /// # Errors
    /// As [`check`](Self::check).
    pub fn matches(&self, text: &str) -> Result<bool, &String> {
        self.compiled().map(|regex| regex.matches(text))
    }

    fn compiled(&self) -> Result<&GoRegex, &String> {
        let compiled = self.0.compiled.get_or_init(|| compile(&self.0.source));
        compiled.as_ref().map(AsRef::as_ref)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0.source, f)
    }
}
