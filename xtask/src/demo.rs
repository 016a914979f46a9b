//! `cargo demo`: the first command of the README.
//!
//! Whoever types it has just cloned the repository, and waits for a build that takes minutes. So this program is
//! compiled alone, in a second, says what is going to happen and how long it takes, builds the command, and becomes it.
//! Not here: the demo itself, which is a command of kubewright.

use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// What is about to happen. The minutes are those of two cores, downloads not counted; the log of the gate has what it
/// took.
const WORDS: &str = "\
kubewright: building the command, with a Kubernetes API server inside. The first build takes about five minutes
on two cores, later ones seconds. Then a cluster starts, an operator runs in it, and a Guestbook becomes Ready.
";

/// Builds the command, with a word before it about what that takes, and runs `kubewright demo ARGUMENTS`.
///
/// It is built as the tests of the workspace build it, with the same features of each dependency: `cargo test
/// --workspace`, the second command of the README, finds everything compiled.
///
/// # Errors
/// The build fails, or the program cannot be started. Otherwise this does not return: the process becomes the demo.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    eprint!("{WORDS}");
    let mut build = crate::cargo();
    build.args([
        "build",
        "--locked",
        "--workspace",
        "--features",
        "workspace-hack/io",
        "--bin",
        "kubewright",
    ]);
    let built = build
        .status()
        .map_err(|error| format!("cargo cannot be started: {error}"))?;
    if !built.success() {
        return Err("the command does not compile; what cargo printed says why".to_owned());
    }
    let this = std::env::current_exe().map_err(|error| format!("the folder of this program is not known: {error}"))?;
    let program = this.with_file_name("kubewright");
    let error = Command::new(&program).arg("demo").args(arguments).exec();
    Err(format!("{} cannot be started: {error}", program.display()))
}
