//! The operator as a process: started, its output read, stopped.
//!
//! Invariants: it is a process group of its own, so that Ctrl-C reaches only `dev`, which stops things in order;
//! it is stopped with SIGTERM, and killed after [`GRACE_PERIOD`]; dropping it kills it.

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

/// How long an operator may take to end after SIGTERM.
pub(crate) const GRACE_PERIOD: Duration = Duration::from_secs(10);
/// The number of last lines that are kept, to be shown when it crashes.
const LAST_LINES: usize = 40;

/// How the operator is run.
#[derive(Clone, Debug, Default)]
pub(crate) struct LaunchOptions {
    pub(crate) root: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<(String, OsString)>,
}

/// An operator that runs.
pub(crate) struct OperatorProcess {
    child: Child,
    started: Instant,
    last_lines: Arc<Mutex<VecDeque<String>>>,
    readers: Vec<JoinHandle<()>>,
}

/// How an operator ended.
#[derive(Clone, Debug)]
pub(crate) struct Exit {
    /// Why it ended, for people.
    pub(crate) reason: String,
    pub(crate) after: Duration,
    /// Its last lines.
    pub(crate) last_lines: Vec<String>,
}

impl OperatorProcess {
    /// Starts the program. Its lines go to `lines` as they come.
    ///
    /// # Errors
    /// When the system cannot start it.
    pub(crate) fn start(
        program: &Path,
        options: &LaunchOptions,
        lines: mpsc::Sender<String>,
    ) -> std::io::Result<OperatorProcess> {
        let mut child = Command::new(program)
            .args(&options.arguments)
            .envs(options.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&options.root)
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
        Ok(OperatorProcess {
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

    /// Waits until it ends. When `stop` is sent to or dropped, it gets SIGTERM, and SIGKILL after [`GRACE_PERIOD`].
    pub(crate) async fn end(mut self, stop: tokio::sync::oneshot::Receiver<()>) -> Exit {
        let status = tokio::select! {
            status = self.child.wait() => status,
            _ = stop => self.stop().await,
        };
        // Its last output may still come; but a grandchild may keep the pipe open.
        for reader in self.readers.drain(..) {
            let _ = tokio::time::timeout(Duration::from_millis(200), reader).await;
        }
        let last_lines = self.last_lines.lock().unwrap_or_else(PoisonError::into_inner);
        Exit {
            reason: match status {
                Ok(status) => describe(status),
                Err(why) => format!("cannot be waited for: {why}"),
            },
            after: self.started.elapsed(),
            last_lines: last_lines.iter().cloned().collect(),
        }
    }

    async fn stop(&mut self) -> std::io::Result<ExitStatus> {
        self.signal(Signal::TERM);
        if let Ok(status) = tokio::time::timeout(GRACE_PERIOD, self.child.wait()).await {
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
fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(0), _) => "ended by itself, with status 0".to_owned(),
        (Some(101), _) => "panicked (status 101)".to_owned(),
        (Some(code), _) => format!("ended with status {code}"),
        (None, Some(9)) => "was killed (SIGKILL), perhaps by the system because memory ran out".to_owned(),
        (None, Some(15)) => "ended on SIGTERM".to_owned(),
        (None, Some(6)) => "aborted (SIGABRT)".to_owned(),
        (None, Some(11)) => "crashed (SIGSEGV)".to_owned(),
        (None, signal) => format!("was ended by signal {}", signal.unwrap_or_default()),
    }
}

/// Of the last lines of an operator that crashed, those that say why: from the panic on, or the last few.
pub(crate) fn crash_output(last_lines: &[String]) -> &[String] {
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
    fn the_output_of_a_crash_begins_with_the_panic() {
        let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
        let output =
            lines("starting\nthread 'main' panicked at src/main.rs:3:5:\nno luck\nnote: run with `RUST_BACKTRACE=1`");
        assert_eq!(crash_output(&output), &output[1..]);
        let output = lines("one\ntwo");
        assert_eq!(crash_output(&output), &output[..]);
        assert!(crash_output(&[]).is_empty());
    }

    /// Runs a shell script in the place of the operator.
    async fn run_script(script: &str, stop: bool) -> (Exit, Vec<String>) {
        let (lines, mut output) = mpsc::channel(16);
        let options = LaunchOptions {
            root: std::env::temp_dir(),
            arguments: vec!["-c".into(), script.into()],
            environment: vec![("WHO".into(), "me".into())],
        };
        let running = OperatorProcess::start(Path::new("/bin/sh"), &options, lines).unwrap();
        let (stop_sender, stopped) = tokio::sync::oneshot::channel();
        let ending = tokio::spawn(running.end(stopped));
        let first = output.recv().await.unwrap();
        if stop {
            stop_sender.send(()).unwrap();
        } else {
            // A sender that is dropped would stop it.
            std::mem::forget(stop_sender);
        }
        let exit = ending.await.unwrap();
        let mut all = vec![first];
        while let Some(line) = output.recv().await {
            all.push(line);
        }
        (exit, all)
    }

    #[tokio::test]
    async fn output_is_read_and_sigterm_stops() {
        let (exit, output) = run_script("echo $WHO; echo no luck >&2; exit 3", false).await;
        assert_eq!(exit.reason, "ended with status 3");
        assert!(
            output.contains(&"me".to_owned()) && output.contains(&"no luck".to_owned()),
            "{output:?}"
        );

        let (exit, output) = run_script("trap 'echo bye; exit 0' TERM; echo up; while :; do :; done", true).await;
        assert_eq!(output, ["up", "bye"]);
        assert_eq!(exit.reason, "ended by itself, with status 0");
        assert!(exit.after < GRACE_PERIOD);
    }
}
