//! An error for a person: the attempt, the place, the cause, the fix.
//!
//! Every [`Diagnostic`] carries a stable [`Code`], so that it can be looked up (`kubewright explain KWR0001`) and
//! searched for. Not here: how it is printed (the command decides on colors and JSON).

use std::fmt;

use serde::Serialize;

use crate::codes::Code;

/// Where something is wrong: a file, and as exactly as known a line, a column and a field.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file, relative to the project, with `/` between folders.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub file: String,
    /// The line, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The column in characters, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<usize>,
    /// The field, as Kubernetes writes it (`spec.replicas`), or a Rust path (`GuestbookSpec::size`).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub field: Option<String>,
}

impl Place {
    /// A whole file.
    #[must_use]
    pub fn file(file: impl Into<String>) -> Place {
        Place {
            file: file.into(),
            ..Place::default()
        }
    }

    /// The same, at a line (from 1).
    #[must_use]
    pub fn line(mut self, line: usize) -> Place {
        self.line = Some(line);
        self
    }

    /// The same, at a column (from 1).
    #[must_use]
    pub fn column(mut self, column: usize) -> Place {
        self.column = Some(column);
        self
    }

    /// The same, at a field.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Place {
        self.field = Some(field.into());
        self
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.file)?;
        if let Some(line) = self.line {
            write!(f, ":{line}")?;
            if let Some(column) = self.column {
                write!(f, ":{column}")?;
            }
        }
        match &self.field {
            Some(field) if self.file.is_empty() => f.write_str(field),
            Some(field) => write!(f, " ({field})"),
            None => Ok(()),
        }
    }
}

/// One error (or, as a warning, a doubt), in four parts: the attempt, the place, the cause, and the fix.
///
/// ```
/// use kubewright_codegen::{Diagnostic, Place, codes};
///
/// let wrong = Diagnostic::new(codes::files::EXISTS, "cannot create the project")
///     .at(Place::file("PROJECT"))
///     .because("there is a project in this folder already")
///     .fix("run the command in an empty folder");
/// assert_eq!(
///     wrong.to_string(),
///     "cannot create the project [KWR0001]\n  at: PROJECT\n  because: there is a project in this folder already\n  fix: run the command in an empty folder"
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    /// The stable code.
    pub code: Code,
    /// The failed attempt.
    pub attempted: String,
    /// Where; none when no single place is at fault.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<Place>,
    /// Why, outermost reason first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<String>,
    /// The fix; a command to type where one helps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

impl Diagnostic {
    /// `attempted`: the failed attempt, such as `cannot add the API webapp/v1 Guestbook`.
    #[must_use]
    pub fn new(code: Code, attempted: impl Into<String>) -> Diagnostic {
        Diagnostic {
            code,
            attempted: attempted.into(),
            places: Vec::new(),
            causes: Vec::new(),
            fix: None,
        }
    }

    /// Names a place; may be called several times (two declarations that contradict each other).
    #[must_use]
    pub fn at(mut self, place: Place) -> Diagnostic {
        self.places.push(place);
        self
    }

    /// Gives a reason; further calls give the reasons behind it.
    #[must_use]
    pub fn because(mut self, cause: impl fmt::Display) -> Diagnostic {
        self.causes.push(cause.to_string());
        self
    }

    /// Adds the fix.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Diagnostic {
        self.fix = Some(fix.into());
        self
    }
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} [{}]", self.attempted, self.code)?;
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

impl std::error::Error for Diagnostic {}
