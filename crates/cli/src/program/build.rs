//! Compiles the operator with cargo, and reads cargo's messages.
//!
//! A line is parsed by a pure function ([`Message::of`]); the rest starts a process and reads its two pipes.
//! Invariants: a build that is dropped or cancelled takes its compilers with it (they are one process group); of the
//! errors the first one is kept whole, because it is the one to correct first.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use kubewright_codegen::project::default_run;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::{mpsc, oneshot};

use crate::output::{BAD, paint};
use crate::regular;

/// How much of cargo's output is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Verbosity {
    /// Nothing: it is captured, and this command reports the parts that matter.
    #[default]
    Captured,
    /// All of it, on standard error.
    Cargo,
    /// Compiler errors only, on standard error.
    Errors,
}

impl Verbosity {
    /// For a command that goes on after the build: on a terminal a person sees cargo's progress, elsewhere its errors
    /// are shown.
    pub(crate) fn shown() -> Verbosity {
        match crate::progress::cargo_draws() && !crate::progress::is_quiet() {
            true => Verbosity::Cargo,
            false => Verbosity::Errors,
        }
    }
}

/// What is built, and how much of cargo's output is printed.
#[derive(Clone, Debug, Default)]
pub(crate) struct BuildOptions {
    pub(crate) root: PathBuf,
    pub(crate) release: bool,
    pub(crate) features: Option<String>,
    pub(crate) verbosity: Verbosity,
}

/// A build that is over.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) outcome: Outcome,
    /// The folders of the packages on this machine, as far as cargo came.
    pub(crate) packages: BTreeSet<PathBuf>,
    pub(crate) began: SystemTime,
}

/// The outcome.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The program, and how long it took.
    Program(PathBuf, Duration),
    Failed(Failed),
    Cancelled,
}

/// Why there is no program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Failed {
    /// The first error as the compiler shows it, with colors; empty when cargo has shown it already.
    pub(crate) rendered: String,
    /// Where it is: `src/lib.rs:12:5`.
    pub(crate) place: Option<String>,
    /// How many errors there are.
    pub(crate) errors: usize,
}

/// Compiles until it is done, or until `cancel` is sent to or dropped. `progress` receives the number of crates that are
/// done, and of all.
///
/// # Errors
/// When cargo cannot be started.
pub(crate) async fn build(
    options: &BuildOptions,
    cancel: oneshot::Receiver<()>,
    progress: mpsc::Sender<(usize, usize)>,
) -> std::io::Result<Built> {
    let (began, clock) = (SystemTime::now(), Instant::now());
    if let Some(wrong) = unreadable(&options.root) {
        return Ok(Built {
            outcome: Outcome::Failed(Failed {
                rendered: format!("error: {wrong}"),
                place: None,
                errors: 1,
            }),
            packages: BTreeSet::new(),
            began,
        });
    }
    let mut group = Group(command(options).spawn()?);
    let (out, err) = (group.0.stdout.take(), group.0.stderr.take());
    let read_out = async {
        let (mut messages, mut packages, mut compiled) = (Vec::new(), BTreeSet::new(), 0);
        if let Some(out) = out {
            let mut lines = BufReader::new(out).lines();
            while let Some(line) = lines.next_line().await? {
                messages.extend(Message::of(&line));
                if options.verbosity == Verbosity::Errors && line.contains("\"compiler-artifact\"") {
                    compiled += 1;
                    // Cargo's own bar, which knows how many there are, is not drawn.
                    let _ = progress.try_send((compiled, 0));
                }
                packages.extend(package(&line));
            }
        }
        Ok::<_, std::io::Error>((messages, packages))
    };
    let read_err = async {
        match err {
            Some(err) => read_progress(err, &progress).await,
            None => Ok(String::new()),
        }
    };
    let reading = async { tokio::try_join!(read_out, read_err) };
    let ((messages, packages), stderr) = tokio::select! {
        read = reading => read?,
        _ = cancel => {
            group.end();
            group.0.wait().await?;
            return Ok(Built {
                outcome: Outcome::Cancelled,
                packages: BTreeSet::new(),
                began,
            });
        }
    };
    let status = group.0.wait().await?;
    let outcome = match options.verbosity {
        _ if status.success() => match program(&messages, &options.root) {
            Ok(program) => Outcome::Program(program, clock.elapsed()),
            Err(rendered) => Outcome::Failed(Failed {
                rendered,
                place: None,
                errors: 1,
            }),
        },
        Verbosity::Captured => Outcome::Failed(Failed::of(messages, &stderr)),
        Verbosity::Cargo | Verbosity::Errors => Outcome::Failed(Failed::default()),
    };
    Ok(Built {
        outcome,
        packages,
        began,
    })
}

fn command(options: &BuildOptions) -> Command {
    // The cargo of the shell, and not the one that built this program.
    let mut command = Command::new("cargo");
    command
        .arg("build")
        .current_dir(&options.root)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .process_group(0);
    if options.verbosity == Verbosity::Errors {
        command.arg("--quiet");
    }
    if options.verbosity != Verbosity::Captured {
        command
            .arg("--message-format=json-render-diagnostics")
            .stderr(Stdio::inherit());
    } else {
        command
            .arg("--message-format=json-diagnostic-rendered-ansi")
            .env("CARGO_TERM_PROGRESS_WHEN", "always")
            .env("CARGO_TERM_PROGRESS_WIDTH", "100")
            .env("CARGO_TERM_COLOR", "never")
            .stderr(Stdio::piped());
    }
    match anstream::ColorChoice::global() {
        anstream::ColorChoice::Always => drop(command.env("CARGO_TERM_COLOR", "always")),
        anstream::ColorChoice::Never => drop(command.env("CARGO_TERM_COLOR", "never")),
        _ => {}
    }
    if options.release {
        command.arg("--release");
    }
    if let Some(features) = &options.features {
        command.args(["--features", features]);
    }
    command
}

/// A process with all that it started.
struct Group(Child);

impl Group {
    fn end(&mut self) {
        if let Some(pid) = self.0.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // A group that has ended meanwhile needs no signal.
            let _ = kill_process_group(pid, Signal::TERM);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.end();
    }
}

/// Reads cargo's standard error: progress goes to `progress`, the rest is given back.
async fn read_progress(
    mut err: impl tokio::io::AsyncRead + Unpin,
    progress: &mpsc::Sender<(usize, usize)>,
) -> std::io::Result<String> {
    let mut stderr = String::new();
    let mut rest = Vec::new();
    let mut buffer = [0_u8; 4096];
    loop {
        let count = err.read(&mut buffer).await?;
        rest.extend_from_slice(&buffer[..count]);
        // Cargo redraws the progress bar in place, so its lines end with a carriage return.
        while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let line: Vec<u8> = rest.drain(..=end).collect();
            let line = String::from_utf8_lossy(&line[..end]);
            match progress_of(&line) {
                // The reader that draws the bar may be slower than cargo.
                Some(done) => drop(progress.try_send(done)),
                None if !line.trim().is_empty() => stderr.push_str(&format!("{}\n", line.trim_end())),
                None => {}
            }
        }
        if count == 0 {
            stderr.push_str(&String::from_utf8_lossy(&rest));
            return Ok(stderr);
        }
    }
}

/// The numbers of cargo's progress bar: `Building [====>   ] 61/74: kube` is `(61, 74)`.
fn progress_of(line: &str) -> Option<(usize, usize)> {
    let (_, after) = line.split_once("Building [")?.1.split_once("] ")?;
    let (done, total) = after.split(':').next()?.split_once('/')?;
    Some((done.trim().parse().ok()?, total.trim().parse().ok()?))
}

/// One line of cargo's standard output, as far as it matters here.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Message {
    Error {
        rendered: String,
        place: Option<String>,
    },
    Program {
        name: String,
        manifest: PathBuf,
        source: PathBuf,
        program: PathBuf,
    },
}

#[derive(Deserialize)]
#[serde(tag = "reason", rename_all = "kebab-case")]
enum RawMessage {
    #[serde(rename = "compiler-message")]
    CompilerMessage { message: Diagnostic },
    CompilerArtifact {
        manifest_path: PathBuf,
        target: Target,
        executable: Option<PathBuf>,
    },
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: Option<String>,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
    line_start: usize,
    column_start: usize,
    is_primary: bool,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
    src_path: PathBuf,
}

impl Message {
    fn of(line: &str) -> Option<Message> {
        // Build scripts and procedural macros may print any text into the same pipe.
        match serde_json::from_str(line).ok()? {
            RawMessage::CompilerMessage { message } if message.level.starts_with("error") => {
                let primary = message.spans.iter().find(|span| span.is_primary);
                Some(Message::Error {
                    rendered: message.rendered.unwrap_or_default(),
                    place: primary.map(|span| format!("{}:{}:{}", span.file_name, span.line_start, span.column_start)),
                })
            }
            RawMessage::CompilerArtifact {
                manifest_path,
                target,
                executable: Some(program),
            } if target.kind.iter().any(|kind| kind == "bin") => Some(Message::Program {
                name: target.name,
                manifest: manifest_path,
                source: target.src_path,
                program,
            }),
            _ => None,
        }
    }
}

/// The folder of the package that a line is about, if it lies on this machine for people to edit.
fn package(line: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct PackageLine {
        package_id: String,
        manifest_path: PathBuf,
    }
    let line: PackageLine = serde_json::from_str(line).ok()?;
    let ours = line.package_id.contains("path+file://");
    ours.then(|| line.manifest_path.parent().map(Path::to_path_buf))?
}

impl Failed {
    /// The first error in full, and how many there are; indented as the entries of `dev` are.
    pub(crate) fn text(&self) -> String {
        let count = match self.errors {
            1 => "does not compile".to_owned(),
            count => format!("does not compile: {count} errors, the first one is"),
        };
        let indented = self.rendered.replace('\n', &format!("\n{:12}", ""));
        format!("{}\n{:12}{indented}", paint(BAD, count), "")
    }

    fn of(messages: Vec<Message>, stderr: &str) -> Failed {
        let mut errors = messages.into_iter().filter_map(|message| match message {
            // "aborting due to 2 previous errors" is a summary and no error.
            Message::Error { rendered, place } if place.is_some() || !rendered.contains("aborting due to") => {
                Some((rendered, place))
            }
            _ => None,
        });
        if let Some((rendered, place)) = errors.next() {
            return Failed {
                rendered: rendered.trim_end().to_owned(),
                place,
                errors: 1 + errors.count(),
            };
        }
        // Nothing was compiled: a manifest cannot be read, or a dependency cannot be downloaded.
        let start = stderr.find("error").unwrap_or_default();
        let rendered = match stderr[start..].trim_end() {
            "" => "cargo failed and did not say why; `cargo build` in this folder may".to_owned(),
            text => text.to_owned(),
        };
        Failed {
            rendered,
            place: None,
            errors: 1,
        }
    }
}

/// A file that cargo would read without an end, such as a FIFO.
fn unreadable(root: &Path) -> Option<String> {
    let files = [
        "Cargo.toml",
        "Cargo.lock",
        ".cargo/config.toml",
        "src/main.rs",
        "src/lib.rs",
        "api/Cargo.toml",
    ];
    files
        .into_iter()
        .find_map(|file| match regular::check(&root.join(file)) {
            Err(why) if why.kind() == ErrorKind::InvalidInput => Some(format!("{file}: {why}")),
            _ => None,
        })
}

/// The operator among the programs that cargo built: the only one, the one that `default-run` names, or that of
/// `src/main.rs`.
fn program(messages: &[Message], root: &Path) -> Result<PathBuf, String> {
    // Links in the path of a project are resolved by cargo.
    let real = |path: &Path| path.canonicalize().ok();
    let same = |path: &Path, other: &Path| path == other || real(path).is_some_and(|path| real(other) == Some(path));
    let ours: Vec<(&String, &PathBuf, &PathBuf)> = messages
        .iter()
        .filter_map(|message| match message {
            Message::Program {
                name,
                manifest,
                source,
                program,
            } if same(manifest, &root.join("Cargo.toml")) => Some((name, source, program)),
            _ => None,
        })
        .collect();
    if let [(_, _, program)] = ours[..] {
        return Ok(program.clone());
    }
    let main = root.join("src/main.rs");
    let preferred = regular::text(&root.join("Cargo.toml"))
        .ok()
        .and_then(|text| default_run(&text));
    let found = match &preferred {
        Some(preferred) => ours.iter().find(|(name, _, _)| *name == preferred),
        None => ours.iter().find(|(_, source, _)| same(source, &main)),
    };
    // Cargo lists programs in the order in which they are done.
    let mut names: Vec<&str> = ours.iter().map(|(name, _, _)| name.as_str()).collect();
    names.sort_unstable();
    found.map(|(_, _, program)| (*program).clone()).ok_or_else(|| match names[..] {
        [] => "error: the package has no program: there is no src/main.rs and no [[bin]] in Cargo.toml".to_owned(),
        _ => format!(
            "error: it is not clear which program is the operator: the package has {}, and none of them is src/main.rs; say which in \
             Cargo.toml: default-run = \"…\"",
            names.join(", ")
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn error(rendered: &str, place: Option<(&str, usize, usize)>) -> String {
        let spans: Vec<_> = place
            .iter()
            .map(|(file, line, column)| json!({"file_name": file, "line_start": line, "column_start": column, "is_primary": true}))
            .collect();
        json!({"reason": "compiler-message", "message": {"level": "error", "rendered": rendered, "spans": spans}})
            .to_string()
    }

    #[test]
    fn the_first_error_is_kept_whole_and_the_others_are_counted() {
        let lines = [
            json!({"reason": "compiler-message", "message": {"level": "warning", "rendered": "warning: w", "spans": []}}).to_string(),
            "a build script talks".to_owned(),
            error("error[E0308]: mismatched types\n", Some(("src/lib.rs", 12, 5))),
            error("error: another", Some(("src/main.rs", 1, 1))),
            error("error: aborting due to 2 previous errors", None),
            json!({"reason": "build-finished", "success": false}).to_string(),
        ];
        let messages = lines.iter().filter_map(|line| Message::of(line)).collect();
        assert_eq!(
            Failed::of(messages, "error: could not compile"),
            Failed {
                rendered: "error[E0308]: mismatched types".into(),
                place: Some("src/lib.rs:12:5".into()),
                errors: 2,
            }
        );
    }

    #[test]
    fn errors_of_cargo_are_shown_when_nothing_was_compiled() {
        let check = |stderr: &str, rendered: &str| assert_eq!(Failed::of(Vec::new(), stderr).rendered, rendered);
        check(
            "    Updating index\nerror: failed to parse manifest\n\nCaused by: no\n",
            "error: failed to parse manifest\n\nCaused by: no",
        );
        check("", "cargo failed and did not say why; `cargo build` in this folder may");
    }

    #[test]
    fn the_progress_bar_is_parsed() {
        assert_eq!(
            progress_of("    Building [=====>   ] 61/74: kube, serde"),
            Some((61, 74))
        );
        assert_eq!(progress_of("   Compiling kube v5.0.0"), None);
        assert_eq!(progress_of("    Building [=====>   ] many"), None);
    }

    #[test]
    fn packages_of_this_machine_are_told_from_those_of_registries() {
        let check = |id: &str, expected: Option<&str>| {
            let line = json!({"reason": "compiler-artifact", "package_id": id, "manifest_path": "/p/Cargo.toml"});
            assert_eq!(package(&line.to_string()).as_deref(), expected.map(Path::new));
        };
        check("path+file:///p#guestbook@0.1.0", Some("/p"));
        check("guestbook 0.1.0 (path+file:///p)", Some("/p"));
        check("registry+https://github.com/rust-lang/crates.io-index#kube@5.0.0", None);
        assert_eq!(package("a build script talks"), None);
    }

    #[test]
    fn the_operator_is_the_program_of_main() {
        let artifact = |manifest: &str, source: &str, program: &str| {
            let name = program.rsplit('/').next();
            json!({"reason": "compiler-artifact", "manifest_path": manifest, "executable": program,
                "target": {"name": name, "kind": ["bin"], "src_path": source}})
            .to_string()
        };
        let check_in = |root: &str, lines: &[String], expected: Result<&str, &str>| {
            let messages: Vec<_> = lines.iter().filter_map(|line| Message::of(line)).collect();
            match (program(&messages, Path::new(root)), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, Path::new(expected)),
                (Err(found), Err(expected)) => assert!(found.contains(expected), "{found}"),
                (found, expected) => panic!("{found:?} is not {expected:?}"),
            }
        };
        let check = |lines: &[String], expected| check_in("/p", lines, expected);
        let tool = artifact("/p/Cargo.toml", "/p/src/bin/tool.rs", "/t/tool");
        let main = artifact("/p/Cargo.toml", "/p/src/main.rs", "/t/op");
        let other = artifact("/other/Cargo.toml", "/other/src/main.rs", "/t/other");
        check(&[tool.clone(), main.clone(), other.clone()], Ok("/t/op"));
        check(std::slice::from_ref(&tool), Ok("/t/tool"));
        check(
            &[tool, artifact("/p/Cargo.toml", "/p/src/bin/b.rs", "/t/b")],
            Err("the package has b, tool"),
        );
        check(&[other], Err("no program"));

        let folder = tempfile::tempdir().unwrap();
        let manifest = folder.path().join("Cargo.toml");
        std::fs::write(&manifest, "[package]\nname = 'x'\ndefault-run = \"tool\"\n").unwrap();
        let [tool, main] =
            ["src/bin/tool.rs", "src/main.rs"].map(|source| folder.path().join(source).display().to_string());
        let manifest = manifest.display().to_string();
        let built = [
            artifact(&manifest, &tool, "/t/tool"),
            artifact(&manifest, &main, "/t/op"),
        ];
        check_in(&folder.path().display().to_string(), &built, Ok("/t/tool"));
    }
}
