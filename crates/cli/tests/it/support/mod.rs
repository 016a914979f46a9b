//! The shared parts of the command's tests: a running `kubewright cluster`, and a terminal that records the output for
//! a person.

pub(crate) mod operators;
pub(crate) mod project;
pub(crate) mod real;
pub(crate) mod running_dev;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use kubewright::kube::config::{KubeConfigOptions, Kubeconfig};
use kubewright::kube::{self, Client};

/// The program under test.
pub(crate) const KUBEWRIGHT: &str = env!("CARGO_BIN_EXE_kubewright");

/// A `kubewright cluster` with a folder of its own; it is stopped when dropped.
pub(crate) struct RunningCluster {
    pub(crate) process: Child,
    /// Kept open: a program whose output has no reader ends with the status of a broken pipe.
    _stdout: BufReader<std::process::ChildStdout>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) ready_line: String,
}

impl RunningCluster {
    /// Starts it and waits for its line.
    pub(crate) fn start(arguments: &[&str]) -> RunningCluster {
        let cluster = RunningCluster::start_json(arguments);
        assert!(
            cluster.ready_line.contains(" ready in "),
            "not a ready line: {:?}",
            cluster.ready_line
        );
        cluster
    }

    /// Starts it and waits for its line, in either form.
    pub(crate) fn start_json(arguments: &[&str]) -> RunningCluster {
        RunningCluster::start_in(tempfile::tempdir().expect("a temporary folder"), arguments)
    }

    /// The same in this folder, where it has its temporary files as well.
    pub(crate) fn start_in(folder: tempfile::TempDir, arguments: &[&str]) -> RunningCluster {
        RunningCluster::start_by(Path::new(KUBEWRIGHT), folder, arguments)
    }

    /// The same by another program, which becomes the one under test.
    pub(crate) fn start_by(program: &Path, folder: tempfile::TempDir, arguments: &[&str]) -> RunningCluster {
        let mut process = Command::new(program)
            .arg("cluster")
            .args(["--kubeconfig", "kubeconfig"])
            .args(arguments)
            .current_dir(folder.path())
            .env("TMPDIR", folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the program starts");
        let mut ready_line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().expect("standard output is piped"));
        stdout.read_line(&mut ready_line).expect("the program prints a line");
        RunningCluster {
            process,
            _stdout: stdout,
            folder,
            ready_line,
        }
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    pub(crate) async fn client(&self) -> Client {
        client_of(Kubeconfig::read_from(self.kubeconfig()).expect("the program writes a kubeconfig")).await
    }
}

/// A client as a kubeconfig says.
pub(crate) async fn client_of(kubeconfig: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("the kubeconfig is whole")).expect("the kubeconfig's keys can be used")
}

impl Drop for RunningCluster {
    fn drop(&mut self) {
        // It may have been stopped by the test already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The oldest kubectl that gets along with OpenAPI v3 alone; older ones ask for version 2, which is not served.
const OLDEST_KUBECTL: u32 = 30;

/// Whether kubectl can be used; says so when it cannot, and fails where it is insisted on.
#[allow(clippy::print_stderr)] // what did not run is told aloud
pub(crate) fn kubectl_is_there() -> bool {
    let there = Command::new("kubectl")
        .args(["version", "--client"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let why = if there.is_ok_and(|status| status.success()) {
        let version = kubectl_version();
        let minor = version
            .split('.')
            .nth(1)
            .and_then(|minor| minor.parse().ok())
            .unwrap_or(0);
        if minor >= OLDEST_KUBECTL {
            return true;
        }
        format!("kubectl {version} is older than 1.{OLDEST_KUBECTL}")
    } else {
        "kubectl is not on the PATH".to_string()
    };
    assert!(
        std::env::var_os("KUBEWRIGHT_REQUIRE_KUBECTL").is_none(),
        "{why}, and KUBEWRIGHT_REQUIRE_KUBECTL insists on it"
    );
    eprintln!("skipped: {why}");
    false
}

/// The version of kubectl, such as `v1.32.4`.
pub(crate) fn kubectl_version() -> String {
    let output = Command::new("kubectl")
        .args(["version", "--client", "-o", "json"])
        .output()
        .expect("kubectl runs");
    let version: serde_json::Value = serde_json::from_slice(&output.stdout).expect("kubectl prints JSON");
    version["clientVersion"]["gitVersion"]
        .as_str()
        .unwrap_or_default()
        .to_string()
}

/// Runs the commands of a script, one a line, and records the output for a person: standard output, `! ` standard
/// error, `? ` exit status.
///
/// Lines that begin with `#` are kept as headings; a line that ends with `\` goes on in the next one; `@until TEXT`
/// before a command repeats it until its output contains the text (20 s at most).
pub(crate) fn record(script: &str, folder: &Path, kubeconfig: &Path) -> String {
    let mut transcript = String::new();
    let mut until: Option<String> = None;
    let joined = script.replace("\\\n", "\u{1}");
    for line in joined.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if line.starts_with('#') {
            transcript.push_str(&format!("\n{line}\n"));
        } else if let Some(text) = line.strip_prefix("@until ") {
            until = Some(text.to_string());
        } else {
            let command = line.replace('\u{1}', "\\\n");
            transcript.push_str(&format!("$ {command}\n"));
            transcript.push_str(&run(&command, until.take().as_deref(), folder, kubeconfig));
        }
    }
    transcript
}

fn run(command: &str, until: Option<&str>, folder: &Path, kubeconfig: &Path) -> String {
    let end = Instant::now() + Duration::from_secs(60);
    loop {
        let output = Command::new("bash")
            .args(["-o", "pipefail", "-c", command])
            .current_dir(folder)
            .env("KUBECONFIG", kubeconfig)
            .env("HOME", folder)
            .env("TZ", "UTC")
            .env_remove("EDITOR")
            .env_remove("KUBE_EDITOR")
            .stdin(Stdio::null())
            .output()
            .expect("bash runs");
        let out = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr).into_owned();
        let reached = until.is_none_or(|text| out.contains(text) || err.contains(text));
        if reached || Instant::now() > end {
            let mut seen = out;
            if !seen.is_empty() && !seen.ends_with('\n') {
                seen.push('\n');
            }
            for line in err.lines() {
                seen.push_str(&format!("! {line}\n"));
            }
            if !reached {
                seen.push_str(&format!("(never said {:?})\n", until.unwrap_or_default()));
            }
            match output.status.code() {
                Some(0) => {}
                code => seen.push_str(&format!("? {}\n", code.unwrap_or(-1))),
            }
            return seen;
        }
    }
}
