//! Edits of Rust that a person owns: a module, a registration, a path, and nothing else.
//!
//! A [`Source`] is parsed, so an edit lands in its place in any layout; it changes a range of bytes, so comments, order
//! and layout of everything else stay. Invariants: an edit that was made already changes nothing; one whose place was
//! rewritten by hand is refused with the line to add; text formatted by rustfmt still is afterwards. Inside: `modules`
//! (`mod` and `use` items), `chain` (calls at the end of a function), `paths` (moved items), `attributes`. Not here:
//! which edits a command wants ([`crate::scaffold`]).

use std::ops::Range;

use proc_macro2::{LineColumn, TokenStream, TokenTree};

use crate::codes;
use crate::conflict;
use crate::diagnostic::{Diagnostic, Place};

mod attributes;
mod chain;
mod modules;
mod paths;
#[cfg(test)]
mod tests;

pub use chain::layout_chain;
pub use modules::name_order;

/// A Rust file that is being edited.
///
/// ```
/// use kubewright_codegen::source::Source;
/// let mut lib = Source::parse("src/lib.rs", "use kubewright::Operator;\n\npub fn operator() -> Operator {\n    Operator::new(\"shop\")\n}\n").unwrap();
/// lib.add_module("controller");
/// lib.append_call("operator", "controller(controller::cart_controller::controller())").unwrap();
/// assert!(lib.text().contains("pub mod controller;"));
/// assert!(lib.text().contains("Operator::new(\"shop\").controller(controller::cart_controller::controller())"));
/// ```
#[derive(Clone)]
pub struct Source {
    path: String,
    text: String,
    file: syn::File,
}

impl Source {
    /// Reads a file; `path` is for messages.
    ///
    /// # Errors
    /// When it is not Rust, with the place.
    pub fn parse(path: &str, text: &str) -> Result<Source, Diagnostic> {
        // A mark of the byte order would shift every range, and is not needed.
        let text = text.trim_start_matches('\u{feff}');
        match parse(text) {
            Ok(file) => Ok(Source {
                path: path.to_owned(),
                text: text.to_owned(),
                file,
            }),
            Err(wrong) => {
                let LineColumn { line, column } = wrong.span().start();
                let told = Diagnostic::new(codes::source::SYNTAX, format!("cannot edit {path}"))
                    .at(Place::file(path).line(line).column(column + 1))
                    .because(wrong)
                    .fix("correct the file (see cargo check) and run the command again");
                Err(conflict::instead(told, path, text))
            }
        }
    }

    /// The text with all edits so far.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The text, when the edits are done.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// Replaces a range of bytes. The result is Rust, because every edit puts whole items, calls or names in place of
    /// such.
    fn replace(&mut self, range: Range<usize>, with: &str) {
        let newline = if self.text.contains("\r\n") { "\r\n" } else { "\n" };
        let with = with.replace("\r\n", "\n").replace('\n', newline);
        self.text.replace_range(range, &with);
        self.file = parse(&self.text).expect("whole items, calls and names were exchanged for such");
    }

    /// The range, with everything up to the beginning of the line and the line's end, when nothing else is on its
    /// lines.
    fn whole_lines(&self, range: Range<usize>) -> Range<usize> {
        let before = &self.text[..range.start];
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let after = &self.text[range.end..];
        let end = after.find('\n').map_or(self.text.len(), |at| range.end + at + 1);
        let blank = |text: &str| text.trim().is_empty();
        if blank(&self.text[start..range.start]) && blank(&self.text[range.end..end]) {
            start..end
        } else {
            range
        }
    }

    /// The white space at the beginning of the line on which a byte stands.
    fn indent_at(&self, at: usize) -> &str {
        let start = self.text[..at].rfind('\n').map_or(0, |at| at + 1);
        let line = &self.text[start..];
        &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
    }

    /// The error of an edit whose place is not there any more.
    fn rewritten(&self, attempted: &str, line: usize, why: &str, by_hand: &str) -> Diagnostic {
        Diagnostic::new(codes::files::EDITED, attempted)
            .at(Place::file(self.path.clone()).line(line))
            .because(why)
            .fix(format!(
                "write `{by_hand}` there by hand and run the command again; nothing was written"
            ))
    }
}

/// `syn::parse_file` would cut off a `#!` line and count bytes without it; such a line is no part of a library, so it
/// is an error here.
fn parse(text: &str) -> syn::Result<syn::File> {
    syn::parse_str(text)
}

/// Tokens as texts, with delimiters, for comparing code in any layout.
fn flat(tokens: TokenStream, into: &mut Vec<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    proc_macro2::Delimiter::Parenthesis => ("(", ")"),
                    proc_macro2::Delimiter::Brace => ("{", "}"),
                    proc_macro2::Delimiter::Bracket => ("[", "]"),
                    proc_macro2::Delimiter::None => ("", ""),
                };
                into.push(open.to_owned());
                flat(group.stream(), into);
                into.push(close.to_owned());
            }
            other => into.push(other.to_string()),
        }
    }
    // A comma before a closing delimiter is a matter of layout.
    into.dedup_by(|next, previous| {
        previous == "," && [")", "}", "]"].contains(&next.as_str()) && {
            previous.clone_from(next);
            true
        }
    });
}

fn flat_text(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    if let Ok(stream) = text.parse::<TokenStream>() {
        flat(stream, &mut tokens);
    }
    tokens
}

/// Whether code contains other code, as tokens.
fn contains(code: &str, wanted: &str) -> bool {
    let (code, wanted) = (flat_text(code), flat_text(wanted));
    !wanted.is_empty() && code.windows(wanted.len()).any(|window| window == wanted)
}
