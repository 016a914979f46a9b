//! A `kubewright dev` that runs in a test, and the lines that it prints.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long it may take until an expected line.
const PATIENCE: Duration = Duration::from_secs(180);

/// A `dev` that runs, and its lines.
pub(crate) struct RunningDev {
    process: Child,
    lines: Receiver<String>,
    seen: String,
}

impl RunningDev {
    /// Starts the command, which must be `dev` itself and no shell around it.
    pub(crate) fn start(mut command: Command) -> RunningDev {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let out = process.stdout.take().unwrap();
        let (send, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // A test that failed reads no more.
                let _ = send.send(line);
            }
        });
        RunningDev {
            process,
            lines,
            seen: String::new(),
        }
    }

    /// Reads lines until one has the words.
    pub(crate) fn until(&mut self, words: &str) {
        self.until_line(words, |line| line.contains(words));
    }

    /// Reads lines until one fits; `expected` is for the message of a test that fails.
    pub(crate) fn until_line(&mut self, expected: &str, fits: impl Fn(&str) -> bool) {
        let end = Instant::now() + PATIENCE;
        while let Ok(line) = self.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.seen.push_str(&format!("{line}\n"));
            if fits(&line) {
                return;
            }
        }
        panic!("dev never said {expected:?}:\n{}", self.seen);
    }

    /// The line that its user types in another terminal.
    pub(crate) fn export(&self) -> String {
        let export = self
            .seen
            .lines()
            .find_map(|line| line.trim().strip_prefix("kubeconfig  "));
        export.expect("dev says where its kubeconfig is").to_owned()
    }

    /// Presses Ctrl-C, and returns all lines, also those that come afterwards.
    pub(crate) fn end(mut self) -> String {
        let sent = Command::new("kill")
            .args(["-INT", &self.process.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        while let Ok(line) = self.lines.recv_timeout(PATIENCE) {
            self.seen.push_str(&format!("{line}\n"));
        }
        assert!(self.process.wait().unwrap().success(), "{}", self.seen);
        std::mem::take(&mut self.seen)
    }
}

impl Drop for RunningDev {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
