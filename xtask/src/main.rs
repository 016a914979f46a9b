//! Chores of the workspace that are not part of the product.
//!
//! `cargo demo` builds and runs the demo. `cargo xtask generate` rebuilds committed data from its published source; the
//! generators are behind the feature `generate`, which the alias `cargo xtask` sets, so that `cargo demo` compiles none
//! of their dependencies. Rules that must hold at any time (dependency arrows, paths in ARCHITECTURE.md, …) are not here
//! but in `xtask/tests/it`, ordinary tests. `cargo xtask dist` makes a release; it compresses the program five times, and
//! so runs in a build of this program that is optimized.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a chore talks to the person who runs it"
)]

use std::process::{Command, ExitCode};

mod demo;
#[cfg(any(test, feature = "dist"))]
mod dist;
#[cfg(any(test, feature = "generate"))]
mod generate;
#[cfg(any(test, feature = "generate"))]
mod internal;
#[cfg(any(test, feature = "generate"))]
mod kubernetes;
#[cfg(any(test, feature = "generate"))]
mod protobuf;

const HELP: &str = "usage: cargo demo [ARGUMENT …]
       cargo xtask dist [--program PATH] [--check]
       cargo xtask kubernetes 1.37.2 [--definitions FILE] [--check]
       cargo xtask generate --minor 37 --definitions FILE [--documents DIRECTORY --enums FILE]
       cargo xtask generate-protobuf --source DIRECTORY
       cargo xtask generate-internal --source DIRECTORY

  demo       build the command and run `kubewright demo`

  dist       build the command for a release, and write its packages, checksums and bill of materials to target/dist
             PATH: a program that is built already; --check: also try each package, as its user would

  kubernetes   fetch the packages of a version of Kubernetes, run the generators below, and say what is left for a person

  generate   write crates/schema/data from the OpenAPI definitions of a version of Kubernetes
             FILE: _definitions.json of the PyPI package kubernetes-validate (folder v1.37.0-local)

  generate-protobuf   write crates/schema/data/kubernetes.protobuf
             DIRECTORY: k8s.io of a Go module cache, with api, apimachinery, apiextensions-apiserver and kube-aggregator 0.36.3

  generate-internal   write crates/schema/data/kubernetes-1.36.internal, or with --version 1.37.2 what differs from it then
             DIRECTORY: the same, with that version of kubernetes
";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.first().map(String::as_str) {
        Some("demo") => demo::run(&arguments[1..]),
        #[cfg(any(test, feature = "dist"))]
        Some("dist") => dist::run(&arguments[1..]),
        #[cfg(not(any(test, feature = "dist")))]
        Some("dist") => optimized(&arguments),
        #[cfg(any(test, feature = "generate"))]
        Some("generate") => generate::run(&arguments[1..]),
        #[cfg(any(test, feature = "generate"))]
        Some("kubernetes") => kubernetes::run(&arguments[1..]),
        #[cfg(any(test, feature = "generate"))]
        Some("generate-protobuf") => protobuf::run(&arguments[1..]),
        #[cfg(any(test, feature = "generate"))]
        Some("generate-internal") => internal::run(&arguments[1..]),
        Some("help" | "--help" | "-h") => {
            println!("{HELP}");
            Ok(())
        }
        Some(other) => Err(format!("unknown chore {other:?}\n{HELP}")),
        None => Err(HELP.to_string()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("xtask: {why}");
            ExitCode::FAILURE
        }
    }
}

/// cargo, without what it tells this program about itself: that would be news to build scripts (ring's), now and without
/// it the next time.
fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if ["CARGO_PKG_", "CARGO_MANIFEST_"]
            .iter()
            .any(|of| name.to_string_lossy().starts_with(of))
        {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// Builds this program with optimization and with the feature `dist`, and runs it with these arguments.
#[cfg(not(any(test, feature = "dist")))]
fn optimized(arguments: &[String]) -> Result<(), String> {
    let mut command = cargo();
    command.args([
        "run",
        "--package",
        "xtask",
        "--release",
        "--quiet",
        "--locked",
        "--features",
        "dist",
        "--",
    ]);
    let done = command.args(arguments).status();
    let done = done.map_err(|why| format!("cannot start cargo: {why}"))?;
    done.success()
        .then_some(())
        .ok_or_else(|| "there is no release".to_owned())
}
