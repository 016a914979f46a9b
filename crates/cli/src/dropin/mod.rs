//! This program under other names: its behavior when a link named `kube-apiserver` or `etcd` leads to it, as in the
//! folder of `kubewright assets`.
//!
//! Test environments such as envtest start these two as children, with flags in Go's forms, ask whether they are well,
//! and end them with SIGTERM. Both end by themselves when the process that started them is gone, so that a test run
//! that is killed leaves nothing behind.
//!
//! Invariants: a flag acts, or is refused in words; the error about a wrong flag is the original's.
//!
//! Not here: the cluster (`kubewright_cluster`), the folder of links (`commands/assets.rs`).

mod apiserver;
mod authorization;
mod etcd;
mod features;
mod flags;
mod settings;
mod table;

use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Runs the program that the name of this process stands for; `None`: it is `kubewright`.
pub(crate) fn called(started: Instant) -> Option<ExitCode> {
    let mut arguments = std::env::args_os();
    let name = arguments.next()?;
    let run = match Path::new(&name).file_name()?.to_str()? {
        "kube-apiserver" => apiserver::main,
        "etcd" => etcd::main,
        _ => return None,
    };
    // An argument that is not UTF-8 is no known flag; its text with replacement characters tells which one.
    let arguments: Vec<String> = arguments.map(|one| one.to_string_lossy().into_owned()).collect();
    Some(run(&arguments, started))
}

/// Says on standard error why it ends.
fn failed(why: &str) -> ExitCode {
    use std::io::Write as _;
    // Standard error is gone, so there is no place for the error.
    let _ = writeln!(anstream::stderr().lock(), "Error: {why}");
    ExitCode::FAILURE
}

/// Warns on standard error of a difference to the original.
fn warn(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(anstream::stderr().lock(), "Warning: {text}");
}

/// Prints a text that was asked for.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = anstream::stdout().lock().write_all(text.as_bytes());
}
