//! A process of the operator: any program, with a group of its own, of which everything ends together.
//!
//! Invariants: the program sees the cluster of its kubeconfig and no other; what is dropped is killed; its output is
//! kept in part, whatever it prints.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::Instant;

/// How many lines are kept, and how much of each.
const KEPT: usize = 200;
const LINE: u64 = 4096;

/// How long the last words of a process are waited for.
const WORDS: Duration = Duration::from_secs(1);

/// How a process is started.
#[derive(Clone, Debug)]
pub(super) struct Program {
    /// As a shell takes it; `{port}` stands for a free port.
    pub(super) command: String,
    pub(super) folder: PathBuf,
    pub(super) variables: Vec<(String, String)>,
}

/// What a process printed last.
#[derive(Clone, Debug, Default)]
pub(super) struct Output(Arc<Mutex<Printed>>);

#[derive(Debug, Default)]
struct Printed {
    lines: VecDeque<(Instant, String)>,
    /// The first line that tells of a panic.
    panic: Option<String>,
    /// How many of its outputs have not ended.
    open: usize,
}

pub(super) struct Child {
    process: tokio::process::Child,
    group: Option<Pid>,
    pub(super) output: Output,
}

impl Drop for Child {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

impl Child {
    /// Starts the program.
    ///
    /// # Errors
    /// When there is no shell; a program that is not there ends at once with 127.
    pub(super) fn start(
        program: &Program,
        kubeconfig: &Path,
        namespace: &str,
        temporary: &Path,
    ) -> std::io::Result<Child> {
        let mut text = program.command.clone();
        while let Some(at) = text.find("{port}") {
            let port = std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
            text.replace_range(at..at + "{port}".len(), &port.to_string());
        }
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", &text])
            .current_dir(&program.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true);
        // A program that believes itself in a cluster would look for another API server.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("KUBERNETES_") {
                command.env_remove(name);
            }
        }
        command
            .env("KUBECONFIG", kubeconfig)
            .env("TMPDIR", temporary)
            // What Python prints is lost when it is killed, unless it is told so.
            .env("PYTHONUNBUFFERED", "1")
            .envs(program.variables.iter().cloned());
        // Where it lives, as Deployments say it by the downward API.
        for name in ["POD_NAMESPACE", "OPERATOR_NAMESPACE"] {
            if std::env::var_os(name).is_none() && program.variables.iter().all(|(known, _)| known != name) {
                command.env(name, namespace);
            }
        }
        let mut process = command.spawn()?;
        let group = process
            .id()
            .and_then(|id| i32::try_from(id).ok())
            .and_then(Pid::from_raw);
        let output = Output::default();
        output.printed().open = 2;
        if let Some(stdout) = process.stdout.take() {
            tokio::spawn(output.clone().keep(stdout));
        }
        if let Some(stderr) = process.stderr.take() {
            tokio::spawn(output.clone().keep(stderr));
        }
        Ok(Child { process, group, output })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        // Nobody else waits for it, so there is no error to tell.
        self.process.try_wait().ok().flatten()
    }

    /// Sends a signal to all of its group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // It may have ended by itself.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Output {
    fn printed(&self) -> MutexGuard<'_, Printed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last lines.
    pub(super) fn last(&self, count: usize) -> Vec<String> {
        let printed = self.printed();
        let skipped = printed.lines.len().saturating_sub(count);
        printed
            .lines
            .iter()
            .skip(skipped)
            .map(|(_, line)| line.clone())
            .collect()
    }

    /// The last lines, each with when it came.
    pub(super) fn lines(&self) -> Vec<(Instant, String)> {
        self.printed().lines.iter().cloned().collect()
    }

    pub(super) fn panic(&self) -> Option<String> {
        self.printed().panic.clone()
    }

    async fn keep(self, from: impl AsyncRead + Unpin) {
        let mut from = BufReader::new(from);
        loop {
            let mut line = Vec::new();
            match (&mut from).take(LINE).read_until(b'\n', &mut line).await {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let mut printed = self.printed();
            if is_panic(&line) {
                printed.panic.get_or_insert_with(|| line.clone());
            }
            if printed.lines.len() == KEPT {
                printed.lines.pop_front();
            }
            printed.lines.push_back((Instant::now(), line));
        }
        self.printed().open -= 1;
    }

    /// Waits for the last words of a process that has ended; something that it started may go on for ever.
    pub(super) async fn whole(&self) {
        let begin = Instant::now();
        while self.printed().open > 0 && begin.elapsed() < WORDS {
            tokio::time::sleep(WORDS / 100).await;
        }
    }
}

/// The panics of Go, of controller-runtime, which catches them, and of Rust.
fn is_panic(line: &str) -> bool {
    line.starts_with("panic: ")
        || line.starts_with("fatal error: ")
        || line.contains("Observed a panic")
        || (line.starts_with("thread '") && line.contains("panicked at"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_of_a_group_ends_together_and_sees_no_other_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let program = Program {
            command: "echo $KUBECONFIG {port}; sleep 600 & echo $!; wait".to_owned(),
            folder: folder.path().to_path_buf(),
            variables: Vec::new(),
        };
        let child = Child::start(&program, Path::new("/the/kubeconfig"), "default", Path::new("/tmp")).unwrap();
        while child.output.last(2).len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let lines = child.output.last(2);
        let (path, port) = lines[0].split_once(' ').unwrap();
        assert!(path == "/the/kubeconfig" && port.parse::<u16>().is_ok(), "{lines:?}");
        let pid = Pid::from_raw(lines[1].parse().unwrap()).unwrap();
        assert!(rustix::process::test_kill_process(pid).is_ok());
        drop(child);
        // It is gone, or waits for init to take note of it.
        let state = || std::fs::read_to_string(format!("/proc/{}/stat", lines[1])).unwrap_or_default();
        while !state().is_empty() && !state().contains(") Z ") {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn panics_are_known() {
        for line in [
            "panic: runtime error: invalid memory address or nil pointer dereference",
            "2026-01-01T00:00:00Z ERROR Observed a panic {\"controller\": \"db\"}",
            "thread 'main' (7) panicked at src/main.rs:1:1:",
        ] {
            assert!(is_panic(line), "{line}");
        }
        assert!(!is_panic("do not panic: all is well"));
    }
}
