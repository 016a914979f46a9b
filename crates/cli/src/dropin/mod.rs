//! This program under other names: what it is when a link named `kube-apiserver` or `etcd` leads to it, as in the folder of
//! `kubewright assets`.
//!
//! Test environments such as envtest start these two as children, with flags in Go's forms, ask whether they are well, and end them with
//! SIGTERM. Both end by themselves when the process that started them is gone, so that a test run that is killed leaves nothing behind.
//!
//! Invariants: a flag acts, or is refused in words; what is said of a wrong flag is what the original says.
//!
//! Not here: the cluster (`kubewright_cluster`), the folder of links (`commands/assets.rs`).

mod apiserver;
mod authorization;
mod etcd;
mod features;
mod flags;
mod names;
mod settings;

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
    // What is no UTF-8 is no flag that is known; its text with marks in it says which one.
    let arguments: Vec<String> = arguments.map(|one| one.to_string_lossy().into_owned()).collect();
    Some(run(&arguments, started))
}

/// Says on standard error why it ends.
fn failed(why: &str) -> ExitCode {
    use std::io::Write as _;
    // Nobody is left to be told when standard error is gone.
    let _ = writeln!(anstream::stderr().lock(), "Error: {why}");
    ExitCode::FAILURE
}

/// Says on standard error what is not as in the original.
fn warn(text: &str) {
    use std::io::Write as _;
    let _ = writeln!(anstream::stderr().lock(), "Warning: {text}");
}

/// Prints a text that was asked for.
fn print(text: &str) {
    use std::io::Write as _;
    let _ = anstream::stdout().lock().write_all(text.as_bytes());
}
