//! What keeps an exploration from its end: what was tried, why it failed, and what to do.

use std::fmt;

use super::super::fault::Fault;
use super::child::{Output, Program};
use crate::error::Error;

/// Why a program could not be explored.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Failed {
    /// What does not work, in one line.
    pub attempted: String,
    /// Why, the nearest cause first.
    pub because: Vec<String>,
    /// What to do.
    pub fix: Option<String>,
}

impl Failed {
    pub(super) fn new(attempted: impl Into<String>) -> Failed {
        Failed {
            attempted: attempted.into(),
            because: Vec::new(),
            fix: None,
        }
    }

    pub(super) fn because(mut self, why: impl ToString) -> Failed {
        self.because.push(why.to_string());
        self
    }

    pub(super) fn fix(mut self, fix: impl Into<String>) -> Failed {
        self.fix = Some(fix.into());
        self
    }

    /// With the last lines that the program printed.
    pub(super) fn printed(self, output: Option<&Output>) -> Failed {
        /// How many.
        const SHOWN: usize = 12;
        let printed = output.map(|output| output.last(SHOWN)).unwrap_or_default();
        match printed.is_empty() {
            true => self.because("it printed nothing"),
            false => self.because(format!("it printed last:\n{}", printed.join("\n"))),
        }
    }

    /// While this fault was played.
    pub(super) fn of(self, fault: &Fault) -> Failed {
        let mut because = vec![self.attempted];
        because.extend(self.because);
        Failed {
            attempted: format!("{fault} cannot be played"),
            because,
            fix: self.fix,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.attempted)?;
        for why in &self.because {
            write!(f, "\n  because: {why}")?;
        }
        match &self.fix {
            Some(fix) => write!(f, "\n  fix: {fix}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Failed {}

impl From<Error> for Failed {
    fn from(error: Error) -> Failed {
        let text = error.to_string();
        let Error::Api { attempted, source } = error else {
            let failed = Failed::new(text.clone());
            return match text.contains("the cluster has no kind") {
                true => failed.fix(NO_KIND),
                false => failed,
            };
        };
        let failed = Failed::new(format!("cannot {attempted}")).because(source);
        if attempted.starts_with("find the kind") {
            failed.fix(NO_KIND)
        } else if attempted.starts_with("make the step") {
            failed.fix(
                "the API server refuses the sample: correct it; what it needs, such as a namespace, may be a sample as \
                 well",
            )
        } else {
            failed
        }
    }
}

const NO_KIND: &str = "install its CRD: --crds with the file or the folder of the CustomResourceDefinitions";

/// A program that ended by itself.
pub(super) fn exited(program: &Program, status: std::process::ExitStatus, output: &Output) -> Failed {
    let failed = Failed::new(format!("the operator ended by itself: {}", program.command)).because(status);
    let failed = failed.printed(Some(output));
    let text = output.last(usize::MAX).join("\n");
    if matches!(status.code(), Some(126 | 127)) {
        failed.fix("there is no such program: name it as a shell in this folder finds it, such as ./bin/manager")
    } else if text.contains("address already in use") || text.contains("Address already in use") {
        failed.fix(
            "several run side by side: let each have a port of its own with {port} in the command, such as \
             --health-probe-bind-address :{port}, or switch the listener off, or use --jobs 1",
        )
    } else {
        failed.fix(
            "run it with KUBECONFIG of a cluster to see why; it must take the cluster from there and run until it is \
             stopped",
        )
    }
}
