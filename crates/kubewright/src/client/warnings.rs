//! What the API server warns of, in the log: deprecated versions, fields that it does not know, admission's remarks
//! (client-go's `WarningHandler`).
//!
//! Invariant: a warning is logged once, however often a reconcile provokes it, as long as no thousand others came.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use http::header::WARNING;

/// So many texts are remembered; then all are forgotten.
const KEPT: usize = 1000;

/// The warnings that were logged.
#[derive(Debug, Default)]
pub(super) struct LoggedWarnings(Mutex<BTreeSet<String>>);

impl LoggedWarnings {
    /// Logs the warnings of an answer that are new.
    pub(super) fn note(&self, headers: &HeaderMap, path: &str) {
        for value in headers.get_all(WARNING) {
            let Some(text) = value.to_str().ok().and_then(text_of) else {
                continue;
            };
            if self.is_new(&text) {
                tracing::warn!(path, "the API server warns: {text}");
            }
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.contains(text) {
            return false;
        }
        if logged.len() >= KEPT {
            logged.clear();
        }
        logged.insert(text.to_owned())
    }
}

/// The text of `299 - "text"` (RFC 7234, 5.5), in which quotes and backslashes are escaped; nothing of other codes.
fn text_of(value: &str) -> Option<String> {
    let quoted = value.strip_prefix("299 ")?.split_once(" \"")?.1;
    let mut text = String::new();
    let mut letters = quoted.chars();
    loop {
        match letters.next()? {
            '"' => return Some(text),
            '\\' => text.push(letters.next()?),
            letter => text.push(letter),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_warning() {
        let check = |value: &str, expected: Option<&str>| assert_eq!(text_of(value).as_deref(), expected, "{value}");
        check(
            "299 - \"unknown field \\\"spec.x\\\"\"",
            Some("unknown field \"spec.x\""),
        );
        check(
            "299 example \"a \\\\ b\" \"Thu, 26 Nov 2026 00:00:00 GMT\"",
            Some("a \\ b"),
        );
        check("199 - \"not of the API server\"", None);
        check("299 - \"cut off", None);
        check("299 - \"cut off\\", None);
        check("299 - none", None);
        check("", None);
    }

    #[test]
    fn a_warning_is_logged_once() {
        let warned = LoggedWarnings::default();
        let new = |text: &str| warned.is_new(text);
        assert_eq!([new("a"), new("b"), new("a")], [true, true, false]);
        for number in 0..KEPT {
            new(&number.to_string());
        }
        assert!(
            warned.0.lock().expect("quiet").len() <= KEPT,
            "it does not grow without end"
        );
    }
}
