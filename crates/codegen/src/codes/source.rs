//! KWR0200–KWR0299: Rust and Go sources.

use super::{Code, Explanation};

/// A source file cannot be parsed.
pub const SYNTAX: Code = Code(200);

pub(super) const EXPLANATIONS: &[Explanation] = &[Explanation {
    code: SYNTAX,
    title: "a source file cannot be read",
    story: "Before a command adds a module or a registration to a Rust file, it parses the file to find the right \
            place. `migrate` parses the Go files and go.mod. A file has a syntax error, or a declaration that the Go \
            compiler or controller-gen refuses; nothing was changed.\n\nFix the place that the message names (`cargo \
            check`, `go vet ./...` and `controller-gen` say more), and run the command again.",
}];
