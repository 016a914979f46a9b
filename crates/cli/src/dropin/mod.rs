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

use kubewright_cluster::Minor;

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

/// The version of Kubernetes to serve: that of the folder by whose name this program was called
/// (`k8s/1.37.2-linux-amd64/kube-apiserver`, as setup-envtest lays it out), or what the environment says.
///
/// # Errors
/// The version that is not served.
fn minor() -> Result<Minor, String> {
    let name = std::env::args_os().next().unwrap_or_default();
    let folder = Path::new(&name).parent().and_then(Path::file_name);
    let said = std::env::var("KUBEWRIGHT_KUBERNETES_VERSION").ok();
    version_of(folder.and_then(std::ffi::OsStr::to_str), said.as_deref())
}

fn version_of(folder: Option<&str>, said: Option<&str>) -> Result<Minor, String> {
    let of_folder = folder
        .and_then(|folder| folder.split_once('-'))
        .map(|(version, _)| version);
    let of_folder = of_folder.filter(|version| version.starts_with("1."));
    let Some(version) = of_folder.or(said.filter(|said| !said.is_empty())) else {
        return Ok(Minor::default());
    };
    version.parse().map_err(|why| match of_folder {
        Some(_) => format!("{why}; the folder {} asks for it", folder.unwrap_or_default()),
        None => format!("{why}; KUBEWRIGHT_KUBERNETES_VERSION asks for it"),
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_and_the_environment_say_which_version_it_is() {
        let check = |folder, said, expected: Result<Minor, &str>| {
            assert_eq!(
                version_of(folder, said),
                expected.map_err(str::to_owned),
                "{folder:?} {said:?}"
            );
        };
        check(Some("1.37.2-linux-amd64"), None, Ok(Minor::V37));
        check(Some("1.36.0-darwin-arm64"), Some("1.37"), Ok(Minor::V36));
        check(Some("assets"), Some("1.37"), Ok(Minor::V37));
        check(Some("my-assets"), Some(""), Ok(Minor::default()));
        check(None, None, Ok(Minor::default()));
        let there = "is not served; there are 1.36 and 1.37";
        let of_folder = format!("Kubernetes 1.30.0 {there}; the folder 1.30.0-linux-amd64 asks for it");
        check(Some("1.30.0-linux-amd64"), None, Err(&of_folder));
        let of_environment = format!("Kubernetes 1.30 {there}; KUBEWRIGHT_KUBERNETES_VERSION asks for it");
        check(None, Some("1.30"), Err(&of_environment));
    }
}
