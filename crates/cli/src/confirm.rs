//! Questions to a person at a terminal.

use std::io::{BufRead, IsTerminal, Write};

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Yes.
    Yes,
    /// No.
    No,
    /// There was nobody to ask, or no answer, and why.
    Unasked(&'static str),
}

/// Asks until the answer is yes or no. The question is written to standard error, because standard output is the
/// result.
pub(crate) fn yes_or_no(question: &str) -> Answer {
    if !std::io::stdin().is_terminal() {
        return Answer::Unasked("Standard input is not a terminal, so the command cannot ask.");
    }
    let mut out = anstream::stderr().lock();
    let mut lines = std::io::stdin().lock().lines();
    loop {
        // A question that cannot be shown cannot be answered either.
        let shown = write!(out, "{question} [y/n] ").and_then(|()| out.flush());
        if shown.is_err() {
            return Answer::Unasked("It cannot be shown.");
        }
        match lines.next() {
            Some(Ok(answer)) => match answer.trim().to_ascii_lowercase().as_str() {
                "y" | "yes" => return Answer::Yes,
                "n" | "no" => return Answer::No,
                _ => {}
            },
            _ => return Answer::Unasked("There was no answer."),
        }
    }
}
