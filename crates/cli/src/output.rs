//! How the command speaks: text for people, one JSON object a line for machines; colours only on a terminal.
//!
//! Styles are written as ANSI codes into the text and `anstream` takes them out again where standard output is not a
//! terminal, or `NO_COLOR` is set. A [`Failure`] has the attempt, the cause and the fix.

use std::error::Error;
use std::fmt::{self, Display};
use std::io::Write;

use clap::ValueEnum;
use kubewright_codegen::Diagnostic;
pub(crate) use kubewright_demo::paint::{BAD, CHANGE, DIM, GOOD, STRONG, WARN, paint, shell_word};
use serde_json::{Value, json};

/// Form of everything that a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// A number of things, as a person writes it: `1 object`, `12 objects`, `1,200 objects`. `one`: a word whose plural
/// ends with `s`.
pub(crate) fn count(number: usize, one: &str) -> String {
    let s = if number == 1 { "" } else { "s" };
    format!("{} {one}{s}", grouped(number))
}

/// `1,234,567`.
pub(crate) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Prints a hint beside an error that another program printed.
pub(crate) fn hint(text: &str) {
    let mut out = anstream::stderr().lock();
    // Standard error is gone, so there is no place for the text.
    let _ = writeln!(out, "\n{} {text}", paint(STRONG, "hint:"));
}

impl Format {
    /// Prints an event: `text` for people or `event` for machines.
    ///
    /// A closed pipe (`kubewright demo | head`) ends the process quietly, as it does for other commands.
    pub(crate) fn say(self, text: &str, event: &Value) {
        let mut out = anstream::stdout().lock();
        let written = match self {
            Format::Text => writeln!(out, "{text}"),
            Format::Json => writeln!(out, "{event}"),
        };
        if written.and_then(|()| out.flush()).is_err() {
            std::process::exit(141);
        }
    }

    /// Prints a doubt to standard error.
    pub(crate) fn warning(self, text: &str, event: &Value) {
        let mut out = anstream::stderr().lock();
        // Standard error is gone, so there is no place for the text.
        let _ = match self {
            Format::Text => writeln!(out, "{} {text}", paint(WARN, "warning:")),
            Format::Json => writeln!(out, "{event}"),
        };
    }

    /// Prints a failure to standard error.
    pub(crate) fn failure(self, failure: &Failure) {
        let mut out = anstream::stderr().lock();
        // Standard error is gone too, so there is no place for the text.
        let _ = match self {
            Format::Text => writeln!(out, "{} {failure}", paint(BAD, "error:")),
            Format::Json => writeln!(out, "{}", failure.to_json()),
        };
    }
}

/// Why a command did not keep its promise.
#[derive(Debug)]
pub(crate) struct Failure {
    attempted: String,
    reasons: Vec<String>,
    hint: Option<String>,
    /// A failure with a code; then it is all there is to say.
    diagnostic: Option<Box<Diagnostic>>,
}

impl Failure {
    /// `attempted`: the failed attempt, such as `cannot write the kubeconfig /x`.
    pub(crate) fn new(attempted: impl Into<String>) -> Failure {
        Failure {
            attempted: attempted.into(),
            reasons: Vec::new(),
            hint: None,
            diagnostic: None,
        }
    }

    /// The reason, with the chain of its sources.
    pub(crate) fn because(mut self, why: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        let why = why.into();
        let mut next: Option<&dyn Error> = Some(&*why);
        while let Some(error) = next {
            let text = error.to_string();
            // Many errors print their source themselves: do not say it twice.
            if !self.reasons.last().is_some_and(|last| last.contains(&text)) {
                self.reasons.push(text);
            }
            next = error.source();
        }
        self
    }

    /// The fix.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    /// The failure as an error with a code, if it is one.
    pub(crate) fn diagnostic(&self) -> Option<&Diagnostic> {
        self.diagnostic.as_deref()
    }

    fn to_json(&self) -> Value {
        if let Some(diagnostic) = &self.diagnostic {
            return json!({
                "event": "error", "code": diagnostic.code, "error": diagnostic.attempted, "places": diagnostic.places,
                "because": diagnostic.causes, "hint": diagnostic.fix,
            });
        }
        json!({"event": "error", "error": self.attempted, "because": self.reasons, "hint": self.hint})
    }
}

impl From<kubewright_demo::Error> for Failure {
    fn from(error: kubewright_demo::Error) -> Failure {
        let attempted = error.to_string();
        match error.into_source() {
            Some(why) => Failure::new(attempted).because(why),
            None => Failure::new(attempted),
        }
    }
}

impl From<Diagnostic> for Failure {
    fn from(diagnostic: Diagnostic) -> Failure {
        Failure {
            diagnostic: Some(Box::new(diagnostic)),
            ..Failure::new("")
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(diagnostic) = &self.diagnostic {
            return diagnostic.fmt(f);
        }
        f.write_str(&self.attempted)?;
        for reason in &self.reasons {
            write!(f, "\n  because: {reason}")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "\n  hint: {hint}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_a_person_writes_them() {
        assert_eq!(count(0, "object"), "0 objects");
        assert_eq!(count(1, "object"), "1 object");
        assert_eq!(count(999, "CRD"), "999 CRDs");
        assert_eq!(count(1000, "CRD"), "1,000 CRDs");
        assert_eq!(grouped(1_234_567), "1,234,567");
    }

    #[test]
    fn a_failure_says_what_why_and_what_to_do() {
        let why = std::io::Error::other("disk full");
        let failure = Failure::new("cannot write the kubeconfig ./k")
            .because(why)
            .hint("name another file with --kubeconfig");
        assert_eq!(
            failure.to_string(),
            "cannot write the kubeconfig ./k\n  because: disk full\n  hint: name another file with --kubeconfig"
        );
        assert_eq!(failure.to_json()["because"][0], "disk full");
    }
}
