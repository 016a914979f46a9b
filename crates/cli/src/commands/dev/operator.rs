//! The operator as a process: started, listened to, stopped.
//!
//! Invariants: it is a process group of its own, so that Ctrl-C reaches `dev` alone and `dev` decides in which order
//! things end; asked to end (SIGTERM) it gets [`GRACE`] and is then killed; dropping it kills it.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// How long an operator may take to end.
pub(crate) const GRACE: Duration = Duration::from_secs(10);
/// So many of its last lines are kept, to be shown when it crashes.
const LAST_LINES: usize = 40;

/// How the operator is run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    pub(crate) root: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, OsString)>,
}

/// An operator that runs.
pub(crate) struct Running {
    child: Child,
    started: Instant,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// How an operator ended.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    /// Why, in words.
    pub(crate) how: String,
    pub(crate) after: Duration,
    /// Its last lines.
    pub(crate) last_lines: Vec<String>,
}

impl Running {
    /// Starts the program. Its lines go to `lines` as they come.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub(crate) fn start(
        program: &Path,
        conditions: &Conditions,
        lines: mpsc::Sender<String>,
    ) -> std::io::Result<Running> {
        let mut child = Command::new(program)
            .args(&conditions.arguments)
            .envs(conditions.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&conditions.root)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .process_group(0)
            .spawn()?;
        let last_lines = Arc::new(Mutex::new(VecDeque::new()));
        let mut readers = Vec::new();
        if let Some(out) = child.stdout.take() {
            readers.push(tokio::spawn(read(out, lines.clone(), last_lines.clone())));
        }
        if let Some(err) = child.stderr.take() {
            readers.push(tokio::spawn(read(err, lines, last_lines.clone())));
        }
        Ok(Running {
            child,
            started: Instant::now(),
            last_lines,
            readers,
        })
    }

    /// The number of its process, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.id()
    }

    /// Waits until it ends. When `stop` is heard it is asked to end, and after [`GRACE`] it is killed.
    pub(crate) async fn end(mut self, stop: tokio::sync::oneshot::Receiver<()>) -> Exit {
        let status = tokio::select! {
            status = self.child.wait() => status,
            _ = stop => self.stop().await,
        };
        // Its last output is worth a moment; a grandchild that keeps the pipe open is not.
        for reader in self.readers.drain(..) {
            let _ = tokio::time::timeout(Duration::from_millis(200), reader).await;
        }
        let last_lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        Exit {
            how: match status {
                Ok(status) => words(status),
                Err(why) => format!("cannot be waited for: {why}"),
            },
            after: self.started.elapsed(),
            last_lines: last_lines.iter().cloned().collect(),
        }
    }

    async fn stop(&mut self) -> std::io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        if let Ok(status) = tokio::time::timeout(GRACE, self.child.wait()).await {
            return status;
        }
        self.signal(Signal::KILL);
        self.child.wait().await
    }

    fn signal(&self, signal: Signal) {
        if let Some(pid) = self.child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            // A process that has ended meanwhile needs no signal.
            let _ = kill_process_group(pid, signal);
        }
    }
}

async fn read(from: impl AsyncRead + Unpin, lines: mpsc::Sender<String>, last: Arc<Mutex<VecDeque<String>>>) {
    let mut from = BufReader::new(from);
    let mut bytes = Vec::new();
    loop {
        bytes.clear();
        match from.read_until(b'\n', &mut bytes).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(%error, "the operator's output cannot be read any more");
                return;
            }
        }
        let line = String::from_utf8_lossy(&bytes).trim_end().to_owned();
        {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            if last.len() == LAST_LINES {
                last.pop_front();
            }
            last.push_back(line.clone());
        }
        // Without a receiver the pipe is still emptied, or the operator would wait for it.
        let _ = lines.send(line).await;
    }
}

/// `ended with status 1`, `was killed by signal 9 (SIGKILL)`.
fn words(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended by itself, with status 0".to_owned(),
        (Some(101), _) => "panicked (status 101)".to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(9)) => "was killed (SIGKILL): by somebody, or by the system for want of memory".to_owned(),
        (None, Some(15)) => "ended on SIGTERM".to_owned(),
        (None, Some(6)) => "aborted (SIGABRT)".to_owned(),
        (None, Some(11)) => "crashed (SIGSEGV)".to_owned(),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}

/// Of the last lines of an operator that crashed, those that say why: from the panic on, or the very last ones.
pub(crate) fn what_it_said(last_lines: &[String]) -> &[String] {
    const SHOWN: usize = 12;
    let from = last_lines
        .iter()
        .rposition(|line| line.contains("panicked at"))
        .unwrap_or_else(|| last_lines.len().saturating_sub(SHOWN));
    &last_lines[from..last_lines.len().min(from + SHOWN)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_what_counts_of_the_last_lines() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let said =
            lines("starting\nthread 'main' panicked at src/main.rs:3:5:\nno luck\nnote: run with `RUST_BACKTRACE=1`");
        assert_eq!(what_it_said(&said), &said[1..]);
        let said = lines("one\ntwo");
        assert_eq!(what_it_said(&said), &said[..]);
        assert!(what_it_said(&[]).is_empty());
    }

    /// Waits for a shell that plays the operator.
    async fn played(script: &str, stop: bool) -> (Exit, Vec<String>) {
        let (lines, mut said) = mpsc::channel(16);
        let conditions = Conditions {
            root: std::env::temp_dir(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("WHO".into(), "me".into())],
        };
        let running = Running::start(Path::new("/bin/sh"), &conditions, lines).unwrap();
        let (ask, asked) = tokio::sync::oneshot::channel();
        let ending = tokio::spawn(running.end(asked));
        let first = said.recv().await.unwrap();
        if stop {
            ask.send(()).unwrap();
        } else {
            // Kept: a sender that is dropped asks, too.
            std::mem::forget(ask);
        }
        let exit = ending.await.unwrap();
        let mut all = vec![first];
        while let Some(line) = said.recv().await {
            all.push(line);
        }
        (exit, all)
    }

    #[tokio::test]
    async fn an_operator_is_heard_and_stopped() {
        let (exit, said) = played("echo $WHO; echo no luck >&2; exit 3", false).await;
        assert_eq!(exit.how, "ended with status 3");
        assert!(
            said.contains(&"me".to_owned()) && said.contains(&"no luck".to_owned()),
            "{said:?}"
        );

        let (exit, said) = played("trap 'echo bye; exit 0' TERM; echo up; while :; do :; done", true).await;
        assert_eq!(said, ["up", "bye"]);
        assert_eq!(exit.how, "ended by itself, with status 0");
        assert!(exit.after < GRACE);
    }
}
