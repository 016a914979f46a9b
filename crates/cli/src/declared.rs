//! What the operator of a project declares: its program is built and asked.
//!
//! The program answers the hidden subcommand `__declaration` with one line of JSON and ends; it needs no cluster. One that does not answer within
//! [`PATIENCE`] is ended, for it has no such subcommand and began to run.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use kubewright_codegen::codes::crds as codes;
use kubewright_codegen::manifests::Declaration;
use kubewright_codegen::{Diagnostic, Place};
use serde_json::Value;

/// How long the operator may take to say what it is.
const PATIENCE: Duration = Duration::from_secs(20);

fn wrong(attempted: &str) -> Diagnostic {
    Diagnostic::new(codes::BUILD, attempted)
}

/// Builds the operator of the project and reads its declaration.
///
/// # Errors
/// KWR0391 when it does not compile or run, KWR0390 when it answers something else.
pub(crate) fn of(root: &Path) -> Result<Declaration, Diagnostic> {
    let program = build(root)?;
    Declaration::parse(&ask(&program)?)
}

/// Builds the project and answers its program. The compiler speaks for itself, on standard error.
fn build(root: &Path) -> Result<PathBuf, Diagnostic> {
    let manifest = root.join("Cargo.toml");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let built = Command::new(cargo)
        .args([
            "build",
            "--quiet",
            "--bins",
            "--message-format=json-render-diagnostics",
            "--manifest-path",
        ])
        .arg(&manifest)
        .current_dir(root)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|why| {
            wrong("cannot build the operator")
                .because(format!("cargo cannot be started: {why}"))
                .fix("install Rust: https://rustup.rs")
        })?;
    if !built.status.success() {
        return Err(wrong("cannot build the operator")
            .at(Place::file(manifest.display().to_string()))
            .because("it does not compile (the compiler's words are above); manifests come from the compiled program")
            .fix("mend the first error and run the command again; nothing was written"));
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let programs: Vec<(String, PathBuf)> = text.lines().filter_map(|line| program(line, &manifest)).collect();
    match programs.as_slice() {
        [(_, only)] => Ok(only.clone()),
        [] => Err(wrong("cannot find the operator's program")
            .at(Place::file(manifest.display().to_string()))
            .because("the package has no binary")
            .fix("a project has src/main.rs with `kubewright::run(operator()).await`")),
        several => {
            let preferred = preferred(&manifest);
            let found = several.iter().find(|(name, _)| Some(name) == preferred.as_ref());
            found.map(|(_, path)| path.clone()).ok_or_else(|| {
                let names: Vec<&str> = several.iter().map(|(name, _)| name.as_str()).collect();
                wrong("cannot tell which program is the operator")
                    .at(Place::file(manifest.display().to_string()))
                    .because(format!("the package has several: {}", names.join(", ")))
                    .fix("say which in Cargo.toml: default-run = \"…\"")
            })
        }
    }
}

/// A program of the package, if the line of cargo tells of one.
fn program(line: &str, manifest: &Path) -> Option<(String, PathBuf)> {
    let message: Value = serde_json::from_str(line).ok()?;
    let of_package = message["manifest_path"].as_str().is_some_and(|path| {
        let same = |path: &Path| path.canonicalize().ok();
        same(Path::new(path)) == same(manifest)
    });
    let name = message["target"]["name"].as_str()?.to_owned();
    let executable = message["executable"].as_str()?;
    of_package.then(|| (name, PathBuf::from(executable)))
}

/// The program that `cargo run` takes: `default-run`, or the one that is called as the package.
fn preferred(manifest: &Path) -> Option<String> {
    let text = std::fs::read_to_string(manifest).ok()?;
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once('=')?;
            (name.trim() == key).then(|| value.trim().trim_matches('"').to_owned())
        })
    };
    value("default-run").or_else(|| value("name"))
}

/// Runs the program with the hidden subcommand.
fn ask(program: &Path) -> Result<String, Diagnostic> {
    let failed = || wrong("cannot ask the operator what it declares").at(Place::file(program.display().to_string()));
    let mut child = Command::new(program)
        .arg("__declaration")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .map_err(|why| failed().because(why))?;
    let (tell, told) = mpsc::channel();
    if let Some(mut out) = child.stdout.take() {
        std::thread::spawn(move || {
            let mut text = String::new();
            let read = out.read_to_string(&mut text).map(|_| text);
            // Nobody listens any more when the patience is over.
            let _ = tell.send(read);
        });
    }
    let answer = told.recv_timeout(PATIENCE);
    if answer.is_err() {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|why| failed().because(why))?;
    let fix = "let main be `kubewright::run(operator()).await`, which answers `__declaration`";
    match answer {
        Err(_) => Err(failed()
            .because(format!("it did not answer within {} seconds", PATIENCE.as_secs()))
            .fix(fix)),
        Ok(Err(why)) => Err(failed().because(why)),
        Ok(Ok(_)) if !status.success() => Err(failed().because(format!("it ended with {status}")).fix(fix)),
        Ok(Ok(text)) => Ok(text),
    }
}
