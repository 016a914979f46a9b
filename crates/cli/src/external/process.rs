//! Where the program of an external plug-in is, and how it is asked: JSON to its standard input, JSON from its standard
//! output.
//!
//! Invariants: a program that takes too long, or prints too much, is ended, with all that it started; nothing is waited
//! for without an end.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use kubewright_codegen::external::{Key, Request};
use kubewright_codegen::{Diagnostic, Place, codes};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// How long a program may take for one answer.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How long an answer may be.
const ANSWER: u64 = 32 << 20;

/// The variable that says another number of seconds.
const SECONDS: &str = "KUBEWRIGHT_PLUGIN_SECONDS";

/// The variable with the folder of all plug-ins.
const FOLDER: &str = "EXTERNAL_PLUGINS_PATH";

/// Whether a program's standard error is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stderr {
    Shown,
    Hidden,
}

/// How long is waited; at most an hour.
fn timeout() -> Duration {
    let said = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok());
    said.filter(|seconds| (1..=3600).contains(seconds))
        .map_or(TIMEOUT, Duration::from_secs)
}

/// The folder that plug-ins are looked for in, as kubebuilder does.
pub(super) fn folder() -> Option<PathBuf> {
    let said = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = said(FOLDER) {
        return Some(PathBuf::from(folder));
    }
    let home = || said("HOME").map(PathBuf::from);
    let config = match said("XDG_CONFIG_HOME") {
        Some(folder) => PathBuf::from(folder),
        None if cfg!(target_os = "macos") => home()?.join("Library/Application Support"),
        None => home()?.join(".config"),
    };
    Some(config.join("kubebuilder/plugins"))
}

/// The program of a plug-in: `NAME/VERSION/NAME`, with any ending.
pub(super) fn find(key: &Key) -> Option<PathBuf> {
    let folder = folder()?.join(&key.name).join(&key.version);
    let plain = folder.join(&key.name);
    if plain.is_file() {
        return Some(plain);
    }
    let entries = std::fs::read_dir(&folder).ok()?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.is_file() && path.file_stem().is_some_and(|stem| stem == key.name.as_str()))
        .collect();
    found.sort();
    found.into_iter().next()
}

/// Asks a program, and answers its output.
///
/// # Errors
/// When it cannot be started, fails, takes too long or prints too much.
pub(super) fn run(
    key: &Key,
    path: &Path,
    folder: &Path,
    request: &Request,
    stderr: Stderr,
) -> Result<String, Diagnostic> {
    let wrong = |why: String| {
        Diagnostic::new(
            codes::project::EXTERNAL,
            format!("cannot run the plug-in {}", key.title()),
        )
        .at(Place::file(path.display().to_string()))
        .because(why)
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|why| wrong(why.to_string()))?;
    let _working = crate::progress::during(format!("running the plug-in {}", key.title()));
    let (text, limit) = (request.to_text(), timeout());
    runtime.block_on(async {
        let mut child = Command::new(path)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(match stderr {
                Stderr::Shown => Stdio::inherit(),
                Stderr::Hidden => Stdio::null(),
            })
            // A group of its own, so that its child processes can be ended with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| {
                let fix =
                    "a plug-in is a program: chmod +x, and a first line such as #!/usr/bin/env python3 in a script";
                wrong(why.to_string()).fix(fix)
            })?;
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let done = tokio::time::timeout(limit, talk(&mut child, &text)).await;
        let outcome = match done {
            Ok(Ok((printed, _))) if printed.len() as u64 > ANSWER => {
                Err(wrong(format!("its answer is longer than {} MiB", ANSWER >> 20)))
            }
            Ok(Ok((printed, status))) if status.success() => {
                String::from_utf8(printed).map_err(|_| wrong("its answer is not UTF-8".to_owned()))
            }
            Ok(Ok((_, status))) => Err(wrong(format!("it ended with {status}"))),
            Ok(Err(why)) => Err(wrong(why.to_string())),
            Err(_) => Err(wrong(format!(
                "it has not answered in {} seconds, and was ended",
                limit.as_secs()
            ))
            .fix("run it yourself to see what it waits for; KUBEWRIGHT_PLUGIN_SECONDS gives it more time")),
        };
        if let Some(group) = group.filter(|_| outcome.is_err()) {
            // It may have ended by itself by now.
            let _ = kill_process_group(group, Signal::KILL);
        }
        outcome
    })
}

/// Hands the request over while reading the answer: either may be longer than a pipe holds.
async fn talk(child: &mut Child, text: &str) -> std::io::Result<(Vec<u8>, std::process::ExitStatus)> {
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A program may answer without having read everything.
            let _ = stdin.write_all(text.as_bytes()).await;
        }
    };
    let read = async {
        let mut printed = Vec::new();
        if let Some(stdout) = stdout {
            stdout.take(ANSWER + 1).read_to_end(&mut printed).await?;
        }
        Ok::<_, std::io::Error>(printed)
    };
    let ((), printed) = tokio::join!(write, read);
    let printed = printed?;
    if printed.len() as u64 > ANSWER {
        child.start_kill()?;
    }
    Ok((printed, child.wait().await?))
}
