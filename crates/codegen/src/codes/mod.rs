//! The codes of errors, and the long story of each: the output of `kubewright explain KWR0001`.
//!
//! One file for each area, with a block of a hundred numbers; a code stands beside its story. Invariants: a code that
//! was released never changes its meaning and is never used again; every code has a story; numbers are unique and stand
//! in order.

use std::fmt;

use serde::{Serialize, Serializer};

pub mod config;
pub mod crds;
pub mod dev;
pub mod files;
pub mod machine;
pub mod project;
pub mod rbac;
pub mod runtime;
pub mod source;
pub mod webhooks;

/// The stable number of a kind of error, printed as `KWR0001`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Code(pub u16);

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KWR{:04}", self.0)
    }
}

impl Serialize for Code {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// A code with its story.
#[derive(Clone, Copy, Debug)]
pub struct Explanation {
    /// The code.
    pub code: Code,
    /// The error in one line, without a full stop.
    pub title: &'static str,
    /// Why it happens, how to find the cause and the fix, in Markdown.
    pub story: &'static str,
}

/// All areas, in the order of their numbers.
const AREAS: &[&[Explanation]] = &[
    files::EXPLANATIONS,
    project::EXPLANATIONS,
    source::EXPLANATIONS,
    crds::EXPLANATIONS,
    rbac::EXPLANATIONS,
    webhooks::EXPLANATIONS,
    runtime::EXPLANATIONS,
    config::EXPLANATIONS,
    dev::EXPLANATIONS,
    machine::EXPLANATIONS,
];

/// All codes with their stories, in order.
pub fn all() -> impl Iterator<Item = &'static Explanation> {
    AREAS.iter().copied().flatten()
}

/// The story of a code as a person types it: `KWR0001`, `kwr0001` or `1`.
///
/// ```
/// use kubewright_codegen::codes;
/// assert_eq!(codes::find("kwr0001").map(|found| found.code), Some(codes::files::EXISTS));
/// assert!(codes::find("KWR9999").is_none());
/// ```
#[must_use]
pub fn find(typed: &str) -> Option<&'static Explanation> {
    let typed = typed.trim().to_ascii_uppercase();
    let number: u16 = typed.strip_prefix("KWR").unwrap_or(&typed).parse().ok()?;
    all().find(|explanation| explanation.code.0 == number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_in_order_and_every_story_says_something() {
        let mut last = 0;
        for explanation in all() {
            assert!(explanation.code.0 > last, "{} after {last}", explanation.code);
            last = explanation.code.0;
            assert!(
                !explanation.title.ends_with('.'),
                "{}: a title has no full stop",
                explanation.code
            );
            assert!(explanation.story.len() > 80, "{}: tell the story", explanation.code);
        }
    }
}
