//! The program of a run: how it is called, watched, and ended with all that it has started.
//!
//! Invariants: a run that is dropped leaves no process behind; at a stop the runner may end its playbook by itself before
//! it is killed. Of its output a little is kept, for the case that there are no events.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use kubewright::Stop;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};

use super::events::Event;
use super::watch::Target;

/// How long a runner has to end its playbook.
const GRACE: Duration = Duration::from_secs(8);
/// How much of the output is kept.
const TAIL: usize = 4 << 10;

/// A call of `ansible-runner`.
#[derive(Debug)]
pub struct Call<'a> {
    /// The program.
    pub program: &'a Path,
    /// The input directory.
    pub folder: &'a Path,
    /// What is run.
    pub target: &'a Target,
    /// The name of the run.
    pub job: &'a str,
    /// Of how many runs artifacts are kept.
    pub artifacts: u32,
    /// The number of `-v`.
    pub verbosity: u8,
    /// Whether facts of the machine are gathered only where a playbook asks.
    pub explicit_gathering: bool,
    /// Beside the environment of this process.
    pub environment: &'a [(String, OsString)],
}

/// How a program ended.
#[derive(Debug)]
pub struct Ended {
    /// The status; `None` when it was ended here, because of a stop.
    pub status: Option<ExitStatus>,
    /// The end of its output.
    pub output: String,
}

impl Ended {
    /// The end in words.
    #[must_use]
    pub fn words(&self) -> String {
        use std::os::unix::process::ExitStatusExt as _;
        match self.status {
            None => "ansible-runner was ended, because the operator stops".to_owned(),
            Some(status) => match status.signal() {
                Some(signal) => format!("ansible-runner was killed by signal {signal}"),
                None => format!("ansible-runner ended with status {}", status.code().unwrap_or_default()),
            },
        }
    }
}

impl Call<'_> {
    fn arguments(&self) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = vec!["run".into(), self.folder.into()];
        arguments.extend(["--rotate-artifacts".into(), self.artifacts.to_string().into()]);
        match self.target {
            Target::Playbook(path) => arguments.extend(["-p".into(), path.into()]),
            Target::Role(path) => {
                let above = path.parent().unwrap_or(Path::new("/"));
                arguments.extend(["--role".into(), path.file_name().unwrap_or_default().to_owned()]);
                arguments.extend(["--roles-path".into(), above.into()]);
                arguments.extend(["--hosts".into(), "localhost".into()]);
                if self.explicit_gathering {
                    arguments.push("--role-skip-facts".into());
                }
            }
        }
        arguments.extend(["-i".into(), self.job.into()]);
        if self.verbosity > 0 {
            arguments.push(format!("-{}", "v".repeat(usize::from(self.verbosity))).into());
        }
        arguments
    }

    /// Runs it to its end, or until the stop.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub async fn run(&self, stop: &Stop) -> io::Result<Ended> {
        let mut command = Command::new(self.program);
        command.args(self.arguments()).envs(self.environment.iter().cloned());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.process_group(0).kill_on_drop(true);
        let mut child = command.spawn().map_err(|error| self.not_started(&error))?;
        let mut tree = Tree(child.id());
        let (out, err) = (child.stdout.take(), child.stderr.take());
        let output = tokio::spawn(async move { futures::join!(tail(out), tail(err)) });
        let status = tokio::select! {
            status = child.wait() => Some(status?),
            () = stop.requested() => {
                end(&mut child).await;
                None
            }
        };
        tree.0 = None; // it has been waited for, and its number may be another's by now
        // Whoever has inherited the output may outlive the runner.
        let output = tokio::time::timeout(Duration::from_secs(1), output).await;
        let (out, err) = output.ok().and_then(Result::ok).unwrap_or_default();
        Ok(Ended {
            status,
            output: format!("{}\n{}", without_results(&out), without_results(&err))
                .trim()
                .to_owned(),
        })
    }

    fn not_started(&self, error: &io::Error) -> io::Error {
        let why = match error.kind() {
            // A script whose first line names a Python that is not there is not found, either.
            io::ErrorKind::NotFound if self.program.is_file() => no_python(self.program),
            io::ErrorKind::NotFound => no_program(self.program),
            _ => format!("{} cannot be started: {error}", self.program.display()),
        };
        io::Error::new(error.kind(), why)
    }
}

/// A process that nobody has waited for, and its descendants, which end when this is dropped.
struct Tree(Option<u32>);

impl Drop for Tree {
    fn drop(&mut self) {
        if let Some(process) = self.0 {
            kill_tree(process);
        }
    }
}

fn kill_tree(process: u32) {
    let Ok(children) = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")) else {
        return; // it has ended
    };
    let children: Vec<u32> = children
        .split_whitespace()
        .filter_map(|child| child.parse().ok())
        .collect();
    signal(process, Signal::KILL);
    children.into_iter().for_each(kill_tree);
}

fn signal(process: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) {
        // One that has ended meanwhile needs none.
        let _ = kill_process(pid, signal);
    }
}

/// Ends a runner: it is asked, and killed when it takes too long.
async fn end(child: &mut Child) {
    let Some(process) = child.id() else { return };
    signal(process, Signal::TERM);
    if tokio::time::timeout(GRACE, child.wait()).await.is_err() {
        kill_tree(process);
        let _ = child.wait().await;
    }
}

async fn tail(stream: Option<impl AsyncRead + Unpin>) -> String {
    let mut kept = Vec::new();
    if let Some(mut stream) = stream {
        let mut buffer = vec![0; TAIL];
        while let Ok(read @ 1..) = stream.read(&mut buffer).await {
            kept.extend_from_slice(&buffer[..read]);
            let surplus = kept.len().saturating_sub(TAIL);
            kept.drain(..surplus);
        }
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// A text without the colors of a terminal, which the runner asks Ansible for.
fn without_colors(text: &str) -> String {
    let mut parts = text.split("\u{1b}[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        // Numbers and semicolons, and the letter that ends the sequence.
        let mut rest = part
            .trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
            .chars();
        rest.next();
        plain.push_str(rest.as_str());
    }
    plain
}

/// The lines of an output in which no task's result is.
fn without_results(output: &str) -> String {
    let output = without_colors(output);
    let lines = output
        .lines()
        .filter(|line| !line.contains("=> {") && !line.trim().is_empty());
    let lines: Vec<&str> = lines.collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

/// The events among the artifacts of a run, in order: for a Python without `ansible-runner-http`.
///
/// # Errors
/// When they cannot be read.
pub fn recorded(folder: &Path, job: &str) -> io::Result<Vec<Event>> {
    let recorded = folder.join("artifacts").join(job).join("job_events");
    let mut events = Vec::new();
    let entries = match std::fs::read_dir(&recorded) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(events),
        entries => entries?,
    };
    for entry in entries {
        let path: PathBuf = entry?.path();
        // A file without its end is one that a killed runner wrote.
        let whole = path.extension().is_some_and(|extension| extension == "json");
        let event = std::fs::read(&path)
            .ok()
            .and_then(|text| serde_json::from_slice::<Event>(&text).ok());
        events.extend(event.filter(|_| whole));
    }
    events.sort_by_key(|event| event.counter);
    Ok(events)
}

/// Points `artifacts/latest` at the run.
///
/// # Errors
/// When the link cannot be made.
pub fn mark_latest(folder: &Path, job: &str) -> io::Result<()> {
    let artifacts = folder.join("artifacts");
    let (run, link) = (artifacts.join(job), artifacts.join("latest"));
    match std::fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ if !run.exists() => return Ok(()),
        _ => {}
    }
    std::os::unix::fs::symlink(run, link)
}

/// That the runner is not installed, and what to do.
pub(super) fn no_program(program: &Path) -> String {
    format!(
        "there is no program {}; kubewright ansible-operator install makes an environment with it; or install \
         ansible-core, ansible-runner and ansible-runner-http with pip, where PATH or VIRTUAL_ENV leads",
        program.display()
    )
}

/// That the Python of the runner is gone, and what to do.
fn no_python(program: &Path) -> String {
    let text = std::fs::read_to_string(program).unwrap_or_default();
    let first = text.lines().next().unwrap_or_default().trim_start_matches("#!");
    format!(
        "{} cannot be started, because its interpreter {first:?} is not there; kubewright ansible-operator install \
         --force makes the environment anew",
        program.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_runner_is_called_as_ansible_operator_calls_it() {
        let check = |target: Target, verbosity: u8, explicit: bool, expected: &str| {
            let call = Call {
                program: Path::new("ansible-runner"),
                folder: Path::new("/in"),
                target: &target,
                job: "7",
                artifacts: 20,
                verbosity,
                explicit_gathering: explicit,
                environment: &[],
            };
            let arguments: Vec<String> = call
                .arguments()
                .iter()
                .map(|word| word.to_string_lossy().into_owned())
                .collect();
            assert_eq!(arguments.join(" "), expected);
        };
        let (role, playbook) = (
            Target::Role("/roles/memcached".into()),
            Target::Playbook("/p/play.yml".into()),
        );
        check(
            role.clone(),
            2,
            true,
            "run /in --rotate-artifacts 20 --role memcached --roles-path /roles --hosts localhost --role-skip-facts -i 7 -vv",
        );
        check(
            role,
            0,
            false,
            "run /in --rotate-artifacts 20 --role memcached --roles-path /roles --hosts localhost -i 7",
        );
        check(
            playbook,
            1,
            true,
            "run /in --rotate-artifacts 20 -p /p/play.yml -i 7 -v",
        );
    }

    #[test]
    fn results_of_tasks_are_no_part_of_an_error() {
        let output = "ok: [localhost] => {\"data\": \"c2VjcmV0\"}\n\n[ERROR]: no role\n";
        assert_eq!(without_results(output), "[ERROR]: no role");
    }

    #[test]
    fn colors_are_no_part_of_an_error() {
        let check = |output: &str, plain: &str| assert_eq!(without_colors(output), plain, "{output:?}");
        check("plain", "plain");
        check("\u{1b}[0;31m[ERROR]: no role\u{1b}[0m\n", "[ERROR]: no role\n");
        check("\u{1b}[1;35m\u{1b}[0m", "");
        check("cut \u{1b}[0;3", "cut ");
        check("\u{1b}[äb", "b");
    }
}
