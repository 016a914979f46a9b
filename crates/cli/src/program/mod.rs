//! The operator's program: built with cargo, and asked for its declaration.
//!
//! The one way to it for every command: `build` finds the program of the package that is the operator, `declaration`
//! asks it, `validation` asks an API server for its errors about the webhooks. Errors that stop a command are KWR0391 (there
//! is no program) and KWR0390 (it prints no declaration); `dev`, which goes on, shows the same.

use std::path::PathBuf;
use std::time::Duration;

use kubewright_codegen::codes::{crds, machine};
use kubewright_codegen::{Diagnostic, Place};
use tokio::sync::{mpsc, oneshot};

use crate::output::Failure;
use crate::signals::stop_signal;

pub(crate) mod build;
pub(crate) mod declaration;
pub(crate) mod validation;

pub(crate) use build::{BuildOptions, Built, Failed, Outcome, Verbosity};

/// That cargo cannot be started.
pub(crate) fn no_cargo(why: std::io::Error) -> Diagnostic {
    Diagnostic::new(machine::TOOLCHAIN, "cannot run cargo")
        .because(why)
        .fix("install Rust (https://rustup.rs), and see that cargo is in the PATH; kubewright doctor looks at both")
}

/// Builds to the end, or until a signal ends this command. Answers the program and how long it took.
///
/// # Errors
/// KWR0802 without cargo, KWR0391 when there is no program; when it was interrupted.
pub(crate) async fn built(options: &BuildOptions) -> Result<(PathBuf, Duration), Failure> {
    // Held until the build is done: dropping it would cancel.
    let (_keep, cancel) = oneshot::channel();
    let (progress, mut done) = mpsc::channel(8);
    let stop = stop_signal()?;
    // Cargo's own bar, on a terminal, says more.
    let is_drawn = options.verbosity == Verbosity::Cargo && crate::progress::cargo_draws();
    let working = (!is_drawn).then(|| crate::progress::during("compiling the operator"));
    let told = async {
        while let Some((done, total)) = done.recv().await {
            let of = if total > 0 {
                format!(" of {total}")
            } else {
                String::new()
            };
            if let Some(working) = &working {
                working.now(format!("compiling the operator: {done}{of} crates"));
            }
        }
        std::future::pending().await
    };
    let outcome = tokio::select! {
        built = build::build(options, cancel, progress) => built.map_err(no_cargo)?.outcome,
        () = stop => Outcome::Cancelled,
        never = told => never,
    };
    match outcome {
        Outcome::Program(program, took) => Ok((program, took)),
        Outcome::Failed(failed) => Err(build_failed(options, failed).into()),
        Outcome::Cancelled => Err(Failure::new("the build was interrupted")),
    }
}

fn build_failed(options: &BuildOptions, failed: Failed) -> Diagnostic {
    let manifest = options.root.join("Cargo.toml");
    let failure =
        Diagnostic::new(crds::BUILD, "cannot build the operator").at(Place::file(manifest.display().to_string()));
    match (failed.place, failed.rendered.as_str()) {
        (Some(place), _) => failure
            .because(format!("it does not compile; the first error is at {place}"))
            .fix("cargo build shows the errors"),
        (None, "") => failure
            .because("it does not compile; the errors are above")
            .fix("correct the first error and run the command again; nothing was written"),
        (None, text) => failure
            .because(text.trim_start_matches("error: ").to_owned())
            .fix("correct what the cause names and run the command again; nothing was written"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_build_names_its_cause() {
        let check = |rendered: &str, place: Option<&str>, expected: &str| {
            let failed = Failed {
                rendered: rendered.into(),
                place: place.map(str::to_owned),
                errors: 1,
            };
            let failure = build_failed(&BuildOptions::default(), failed).to_string();
            assert!(failure.contains("KWR0391") && failure.contains(expected), "{failure}");
        };
        check(
            "error[E0308]: mismatched",
            Some("src/lib.rs:1:2"),
            "the first error is at src/lib.rs:1:2",
        );
        check("", None, "the errors are above");
        check("error: the package has no program", None, "the package has no program");
    }
}
