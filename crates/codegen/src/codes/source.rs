//! KWR0200–KWR0299: edits of Rust sources.

use super::{Code, Explanation};

/// A Rust file cannot be parsed.
pub const SYNTAX: Code = Code(200);

pub(super) const EXPLANATIONS: &[Explanation] = &[Explanation {
    code: SYNTAX,
    title: "a Rust file cannot be read",
    story: "Before a command adds a module or a registration to a Rust file, it parses the file, so that the addition lands where it belongs. \
            The file has a syntax error; nothing was changed.\n\nFix the place that the message names (`cargo check` says more), and run the command again.",
}];
