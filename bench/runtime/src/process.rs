//! A subject: a process, its messages, and the machine's figures of it (Linux: `/proc`).

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

/// How long a subject may be silent.
const PATIENCE: Duration = Duration::from_secs(180);
/// The kernel counts a process's time in hundredths of a second (`USER_HZ`, the same on every Linux that Rust knows).
const TICKS: f64 = 100.0;

/// A subject that runs; it ends when this is dropped.
pub(crate) struct Subject {
    name: String,
    child: Child,
    commands: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

/// Megabytes.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    /// Private to the process: `RssAnon`.
    pub(crate) private: f64,
    /// All that is resident, with the pages of the program: `VmRSS`.
    pub(crate) resident: f64,
    /// The most that was private since [`Subject::forget_peak`]: `VmHWM` less the memory that is not private now.
    pub(crate) peak: f64,
}

impl Subject {
    /// Starts a subject, which waits for its word `go`.
    pub(crate) async fn start(program: &Path, url: &str, task: &str, keep: &str) -> Result<Subject, String> {
        let name = program
            .file_name()
            .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let mut child = Command::new(program)
            .args([url, task, keep])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| format!("cannot start {}: {why}", program.display()))?;
        let commands = child.stdin.take().ok_or("the subject has no standard input")?;
        let output = child.stdout.take().ok_or("the subject has no standard output")?;
        let mut subject = Subject {
            name,
            child,
            commands,
            lines: BufReader::new(output).lines(),
        };
        subject.hear("ready").await?;
        Ok(subject)
    }

    /// Tells it one word.
    pub(crate) async fn tell(&mut self, word: &str) -> Result<(), String> {
        let told = self.commands.write_all(format!("{word}\n").as_bytes()).await;
        told.map_err(|why| format!("{} does not listen: {why}", self.name))
    }

    /// Waits for a line that begins with this word, and answers its numbers. Reconciles are told of in between.
    pub(crate) async fn hear(&mut self, word: &str) -> Result<Vec<f64>, String> {
        loop {
            let line = self.line().await?;
            let mut words = line.split(' ');
            match words.next() {
                Some(first) if first == word => {
                    let numbers: Result<Vec<f64>, _> = words.map(str::parse).collect();
                    return numbers.map_err(|why| format!("{} says {line:?}: {why}", self.name));
                }
                Some("reconciled" | "marked") => {}
                _ => return Err(format!("{} says {line:?} instead of {word:?}", self.name)),
            }
        }
    }

    /// Waits until it has told of so many reconciles.
    pub(crate) async fn reconciled(&mut self, count: usize) -> Result<(), String> {
        while self
            .hear("reconciled")
            .await?
            .first()
            .is_none_or(|told| *told < count as f64)
        {}
        Ok(())
    }

    async fn line(&mut self) -> Result<String, String> {
        match tokio::time::timeout(PATIENCE, self.lines.next_line()).await {
            Err(_) => Err(format!("{} was silent for {PATIENCE:?}", self.name)),
            Ok(Err(why)) => Err(format!("{}: {why}", self.name)),
            Ok(Ok(None)) => Err(format!("{} has ended", self.name)),
            Ok(Ok(Some(line))) => Ok(line),
        }
    }

    /// Lets it collect its garbage, if it has any.
    pub(crate) async fn collect(&mut self) -> Result<(), String> {
        self.tell("collect").await?;
        self.hear("collected").await.map(drop)
    }

    fn read(&self, file: &str) -> Result<String, String> {
        let id = self.child.id().ok_or_else(|| format!("{} has ended", self.name))?;
        let path = format!("/proc/{id}/{file}");
        std::fs::read_to_string(&path).map_err(|why| format!("cannot read {path}: {why}"))
    }

    fn field(&self, status: &str, name: &str) -> Result<f64, String> {
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let number = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
        number.ok_or_else(|| format!("the status of {} has no {name}", self.name))
    }

    pub(crate) fn memory(&self) -> Result<Memory, String> {
        let status = self.read("status")?;
        let megabytes = |name: &str| self.field(&status, name).map(|kilobytes| kilobytes / 1024.0);
        let (private, resident) = (megabytes("RssAnon")?, megabytes("VmRSS")?);
        Ok(Memory {
            private,
            resident,
            peak: megabytes("VmHWM")? - (resident - private),
        })
    }

    /// Its private memory, and its share of the memory in common with other processes, in megabytes (`Pss`).
    pub(crate) fn share(&self) -> Result<f64, String> {
        let rollup = self.read("smaps_rollup")?;
        self.field(&rollup, "Pss").map(|kilobytes| kilobytes / 1024.0)
    }

    /// The peak begins anew.
    pub(crate) fn forget_peak(&self) -> Result<(), String> {
        let id = self.child.id().ok_or_else(|| format!("{} has ended", self.name))?;
        std::fs::write(format!("/proc/{id}/clear_refs"), "5").map_err(|why| format!("the peak of {}: {why}", self.name))
    }

    /// Time on processors in seconds, of all threads that there are and were.
    pub(crate) fn cpu(&self) -> Result<f64, String> {
        let stat = self.read("stat")?;
        // The name in parentheses may hold anything.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        match (ticks(11), ticks(12)) {
            (Some(user), Some(system)) => Ok((user + system) / TICKS),
            _ => Err(format!("the machine does not say how long {} ran", self.name)),
        }
    }

    /// How often its threads have gone to sleep.
    pub(crate) fn sleeps(&self) -> Result<f64, String> {
        let id = self.child.id().ok_or_else(|| format!("{} has ended", self.name))?;
        let failed = |why: std::io::Error| format!("the threads of {}: {why}", self.name);
        let mut sum = 0.0;
        for thread in std::fs::read_dir(format!("/proc/{id}/task")).map_err(failed)? {
            let status = std::fs::read_to_string(thread.map_err(failed)?.path().join("status"));
            // A thread may end between the two.
            sum += status.map_or(Ok(0.0), |status| self.field(&status, "voluntary_ctxt_switches"))?;
        }
        Ok(sum)
    }

    /// Ends it and waits until it is gone.
    pub(crate) async fn stop(mut self) -> Result<(), String> {
        self.child
            .kill()
            .await
            .map_err(|why| format!("cannot end {}: {why}", self.name))
    }
}
