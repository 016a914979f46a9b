//! `cargo demo`: the first command of the README.
//!
//! Whoever types it has just cloned the repository, and waits for a build that takes minutes. So this program is
//! compiled alone, in a second, says what is going to happen and how long it takes, and then becomes Cargo. Not here:
//! the demo itself, which is a command of kubewright.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// What is about to happen. The minutes are those of two cores, downloads not counted; `.ci/night` measures them.
const WORDS: &str = "\
kubewright: building the command, with a Kubernetes API server inside. The first build takes about three minutes
on two cores, later ones seconds. Then a cluster starts, an operator runs in it, and a Guestbook becomes Ready.
";

/// Runs `cargo run -- demo ARGUMENTS`, after a word about it.
///
/// # Errors
/// Cargo cannot be started. Otherwise this does not return: the process becomes Cargo.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    eprint!("{WORDS}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let error = Command::new(&cargo)
        .args(["run", "--locked", "--package", "kubewright-cli", "--", "demo"])
        .args(arguments)
        .exec();
    Err(format!("{} cannot be started: {error}", cargo.display()))
}
