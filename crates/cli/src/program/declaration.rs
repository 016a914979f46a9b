//! The declaration of the built operator: the hidden subcommand `__declaration`, which prints one JSON document and
//! needs no cluster.
//!
//! An operator whose `main` is not `kubewright::run` does not know the subcommand and starts to work: it gets a
//! kubeconfig that does not exist, and [`TIMEOUT`].

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use kubewright_codegen::codes::crds;
use kubewright_codegen::manifests::{self, Declaration, Objects, Options};
use kubewright_codegen::{Diagnostic, Place};
use tokio::process::Command;

use crate::files::Disk;

/// The subcommand.
const SUBCOMMAND: &str = "__declaration";
/// Printing a declaration takes milliseconds, but the machine may be busy with a build on all cores.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Asks a program for its declaration.
///
/// # Errors
/// KWR0390 when it gives none, with its output instead.
pub(crate) async fn ask(program: &Path, root: &Path) -> Result<Declaration, Diagnostic> {
    let mut command = Command::new(program);
    command
        .arg(SUBCOMMAND)
        .current_dir(root)
        .env("KUBECONFIG", "/nonexistent/no-cluster-is-needed-to-declare")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env_remove(kubewright::OBSERVE_SOCKET)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let output = match tokio::time::timeout(TIMEOUT, command.output()).await {
        Err(_) => {
            return Err(no_declaration(format!(
                "it did not end within {} seconds",
                TIMEOUT.as_secs()
            )));
        }
        Ok(Err(why)) => return Err(no_declaration(format!("it cannot be started: {why}"))),
        Ok(Ok(output)) => output,
    };
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        if let Some(panic) = Panic::of(&stderr) {
            return Err(panic.into_diagnostic());
        }
        let last = stderr
            .lines()
            .rfind(|line| !line.trim().is_empty())
            .unwrap_or("nothing");
        return Err(no_declaration(format!("it failed ({}): {last}", output.status)));
    }
    Declaration::parse(&String::from_utf8_lossy(&output.stdout)).map_err(|why| why.at(Place::file("src/main.rs")))
}

/// A panic as Rust's own hook prints it: `thread 'main' (7) panicked at src/lib.rs:10:5:`, then the message.
struct Panic {
    place: Place,
    message: String,
}

impl Panic {
    fn of(stderr: &str) -> Option<Panic> {
        let mut lines = stderr.lines().skip_while(|line| !line.contains(" panicked at "));
        let (_, place) = lines.next()?.split_once(" panicked at ")?;
        let mut parts = place.trim_end_matches(':').rsplitn(3, ':');
        let (column, line, file) = (parts.next(), parts.next(), parts.next());
        let number = |part: Option<&str>| part.and_then(|part| part.parse().ok());
        let place = match (file, number(line), number(column)) {
            (Some(file), Some(line), Some(column)) => Place::file(file).line(line).column(column),
            _ => Place::file(place),
        };
        let ends = |line: &&str| line.starts_with("note: run with `RUST_BACKTRACE") || *line == "stack backtrace:";
        let message: Vec<&str> = lines.take_while(|line| !ends(line)).collect();
        Some(Panic {
            place,
            message: message.join("\n").trim_end().to_owned(),
        })
    }

    fn into_diagnostic(self) -> Diagnostic {
        Diagnostic::new(crds::DECLARATION, "cannot learn what the operator consists of")
            .at(self.place)
            .because(format!("its program panicked: {}", self.message))
            .fix("correct what the message names; `operator()` and what it calls run without a cluster here")
    }
}

fn no_declaration(why: impl Into<String>) -> Diagnostic {
    Diagnostic::new(crds::DECLARATION, "cannot learn what the operator consists of")
        .at(Place::file("src/main.rs"))
        .because(format!("its program was asked with `{SUBCOMMAND}`: {}", why.into()))
        .fix("let main call kubewright::run(operator()), as a project of `kubewright init` does")
}

/// The controllers with the kinds that they reconcile.
pub(crate) fn controllers(declaration: &Declaration) -> BTreeMap<String, String> {
    let each = declaration.controllers.iter();
    each.map(|controller| (controller.name.clone(), controller.reconciles.kind.clone()))
        .collect()
}

/// The definitions and webhook configurations that `kubewright manifests` would write. `root`: the project, for the
/// places of errors.
///
/// # Errors
/// All that is wrong.
pub(crate) fn objects(declaration: &Declaration, root: &Path) -> Result<Objects, Vec<Diagnostic>> {
    let disk = Disk::new(root);
    let decided = Options::of_project(&disk).map_err(|why| vec![why])?;
    // Here the operator works in all namespaces, even if it does not where it is deployed.
    let options = Options {
        namespace: None,
        ..decided
    };
    manifests::objects(declaration, &disk, &options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_keeps_its_message_and_its_place() {
        let check = |stderr: &str, place: &str, message: &str| {
            let panic = Panic::of(stderr).unwrap();
            assert_eq!(
                (panic.place.to_string().as_str(), panic.message.as_str()),
                (place, message)
            );
        };
        let note = "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n";
        let usual = format!("a word\n\nthread 'main' (77) panicked at src/lib.rs:10:5:\nno such kind\n{note}");
        check(&usual, "src/lib.rs:10:5", "no such kind");
        let long = format!("thread 'main' panicked at src/a b.rs:1:2:\none\n\ntwo: Err(\"x\")\n{note}");
        check(&long, "src/a b.rs:1:2", "one\n\ntwo: Err(\"x\")");
        let traced = "thread 'tokio-1' panicked at src/lib.rs:3:4:\nmoved\nstack backtrace:\n   0: rust_begin_unwind\n";
        check(traced, "src/lib.rs:3:4", "moved");
        check("thread 'main' panicked at here", "here", "");
        assert!(Panic::of("it panicked\n").is_none());
    }

    #[tokio::test]
    async fn a_program_without_a_declaration_is_reported() {
        let check = async |program: &str, expected: &str| {
            let refused = ask(Path::new(program), Path::new("/")).await.unwrap_err();
            assert_eq!(refused.code, crds::DECLARATION);
            assert!(refused.to_string().contains(expected), "{refused}");
        };
        check("/bin/false", "exit status: 1").await;
        check("/bin/true", "because: EOF while parsing").await;
        check("/bin/echo", "expected value").await;
        check("/nonexistent", "it cannot be started").await;
    }
}
