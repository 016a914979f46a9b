//! How the command speaks: text for people, one JSON object a line for machines; colors only on a terminal.
//!
//! Styles are written as ANSI codes into the text and `anstream` takes them out again where standard output is not a
//! terminal, or `NO_COLOR` is set. Every error of a command is a [`Failure`].

use std::error::Error;
use std::fmt::{self, Display};
use std::io::Write;

use clap::ValueEnum;
use kubewright_codegen::{Code, Diagnostic, Place};
pub(crate) use kubewright_demo::paint::{BAD, CHANGE, DIM, GOOD, STRONG, WARN, paint, shell_word};
use serde_json::{Value, json};

use crate::errors::causes;

/// Form of everything that a command prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people.
    Text,
    /// One JSON object a line.
    #[value(alias = "json-alpha1")]
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

/// Prints the fix of an error in the arguments, which clap printed.
pub(crate) fn fix(text: &str) {
    let mut out = anstream::stderr().lock();
    // Standard error is gone, so there is no place for the text.
    let _ = writeln!(out, "\n{} {text}", paint(STRONG, "fix:"));
}

impl Format {
    /// Prints an event: `text` for people or `event` for machines.
    ///
    /// A closed pipe (`kubewright demo | head`) ends the process quietly, as it does for other commands.
    pub(crate) fn say(self, text: &str, event: &Value) {
        crate::progress::printed();
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
        crate::progress::printed();
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

/// Why a command did not keep its promise: the attempt, the places, the causes and the fix, in the form of a
/// [`Diagnostic`]; with its code, if it is one.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) code: Option<Code>,
    pub(crate) attempted: String,
    pub(crate) places: Vec<Place>,
    pub(crate) causes: Vec<String>,
    pub(crate) fix: Option<String>,
}

impl Failure {
    /// `attempted`: the failed attempt, such as `cannot write the kubeconfig /x`.
    pub(crate) fn new(attempted: impl Into<String>) -> Failure {
        Failure {
            code: None,
            attempted: attempted.into(),
            places: Vec::new(),
            causes: Vec::new(),
            fix: None,
        }
    }

    /// The cause, with the chain of its sources.
    pub(crate) fn because(mut self, why: impl Into<Box<dyn Error + Send + Sync>>) -> Failure {
        self.causes.extend(causes(&*why.into()));
        self
    }

    /// The fix.
    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Failure {
        self.fix = Some(fix.into());
        self
    }

    fn to_json(&self) -> Value {
        json!({
            "event": "error", "code": self.code, "error": self.attempted, "places": self.places,
            "because": self.causes, "fix": self.fix,
        })
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
            code: Some(diagnostic.code),
            attempted: diagnostic.attempted,
            places: diagnostic.places,
            causes: diagnostic.causes,
            fix: diagnostic.fix,
        }
    }
}

impl Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.attempted)?;
        if let Some(code) = self.code {
            write!(f, " [{code}]")?;
        }
        for place in &self.places {
            write!(f, "\n  at: {place}")?;
        }
        for cause in &self.causes {
            write!(f, "\n  because: {cause}")?;
        }
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
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
            .fix("name another file with --kubeconfig");
        assert_eq!(
            failure.to_string(),
            "cannot write the kubeconfig ./k\n  because: disk full\n  fix: name another file with --kubeconfig"
        );
        assert_eq!(failure.to_json()["because"][0], "disk full");
    }

    #[test]
    fn an_error_with_a_code_says_the_same_as_a_failure() {
        let diagnostic = Diagnostic::new(kubewright_codegen::codes::files::IO, "cannot read PROJECT")
            .at(Place::file("PROJECT").line(3))
            .because("it is too large")
            .fix("make it smaller");
        let failure = Failure::from(diagnostic.clone());
        assert_eq!(failure.to_string(), diagnostic.to_string());
        let json = failure.to_json();
        assert_eq!(
            (json["code"].as_str(), json["fix"].as_str()),
            (Some("KWR0003"), Some("make it smaller"))
        );
        assert_eq!(json["places"][0]["line"], 3);
    }
}
