//! Operators that are built for real: scaffolded projects with the library of this checkout behind them.
//!
//! Building takes minutes, so it is asked for: `KUBEWRIGHT_BUILD_OPERATORS=1`, as `.ci/run` does. All of them share the
//! target folder of this workspace and the versions of its `Cargo.lock`: each crate is compiled once, and nothing is
//! downloaded.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::KUBEWRIGHT;

/// Whether operators are to be built; says aloud when they are not.
#[allow(clippy::print_stderr)] // what did not run is told aloud
pub(crate) fn are_built() -> bool {
    let asked = std::env::var_os("KUBEWRIGHT_BUILD_OPERATORS").is_some_and(|value| !value.is_empty());
    if !asked {
        eprintln!("left out: building operators takes minutes; KUBEWRIGHT_BUILD_OPERATORS=1 asks for it");
    }
    asked
}

/// The root of this checkout.
pub(crate) fn checkout() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("the crate lies in crates/cli")
        .to_path_buf()
}

/// Gives a project the versions that this workspace is tested with.
pub(crate) fn lock(project: &Path) {
    std::fs::copy(checkout().join("Cargo.lock"), project.join("Cargo.lock")).expect("Cargo.lock can be copied");
}

/// A program in a project: the one under test for `kubewright`; its builds go where the workspace's own builds go.
pub(crate) fn command(program: &str, project: &Path) -> Command {
    let program_folder = Path::new(KUBEWRIGHT).parent().expect("a program is in a folder");
    let target = program_folder
        .parent()
        .expect("a profile's folder is in the target folder");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(program_folder.to_path_buf()).chain(std::env::split_paths(&path));
    let mut command = Command::new(if program == "kubewright" { KUBEWRIGHT } else { program });
    // cargo's variables for this test would be news to build scripts (ring's), and half of the world would be compiled
    // anew.
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy();
        let of_cargo = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_"];
        if of_cargo.iter().any(|prefix| name.starts_with(prefix)) {
            command.env_remove(&*name);
        }
    }
    command
        .current_dir(project)
        .env(
            "PATH",
            std::env::join_paths(folders).expect("folders of the PATH have no colons"),
        )
        .env("CARGO_TARGET_DIR", target)
        .env("CARGO_NET_OFFLINE", "true")
        // The library as it is here: the revision that a user's project names is not there yet, and nothing is downloaded.
        .env("KUBEWRIGHT_PATH", checkout())
        // This comes from the surroundings of the test: a user who builds an operator does not have it.
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null());
    command
}

/// Types a command line, and panics with its output when it fails.
pub(crate) fn type_in(line: &str, project: &Path) -> String {
    let mut words = line.split_whitespace();
    let mut command = command(words.next().expect("a command line has words"), project);
    let output = command.args(words).output().expect("the program starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(
        output.status.success(),
        "$ {line} (in {}) ended with {}\n{said}",
        project.display(),
        output.status
    );
    said
}
