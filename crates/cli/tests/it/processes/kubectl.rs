//! kubectl as a person types it, and waits for its output.

use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::RunningCluster;

/// How long a state is waited for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often it is looked for.
const PAUSE: Duration = Duration::from_millis(50);

/// The outcome of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// kubectl with the kubeconfig of a cluster.
pub(crate) struct Kubectl {
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub(crate) fn of(cluster: &RunningCluster) -> Kubectl {
        Kubectl {
            kubeconfig: cluster.kubeconfig(),
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("kubectl");
        command.env("KUBECONFIG", &self.kubeconfig).args(arguments);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        let output = self.command(arguments).stdin(Stdio::null()).output();
        output.expect("kubectl starts").into()
    }

    /// Runs a command that is to succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let said = self.run(arguments);
        assert_eq!(said.code, Some(0), "{arguments:?}: {said:?}");
        said.out
    }

    /// Starts a command whose streams are pipes.
    pub(crate) fn background(&self, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        let pipes = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        pipes.spawn().expect("kubectl starts")
    }

    /// Waits until the output of a command is as it should be.
    pub(crate) fn until(&self, arguments: &[&str], is_so: impl Fn(&Said) -> bool) -> Said {
        let started = Instant::now();
        loop {
            let said = self.run(arguments);
            if is_so(&said) {
                return said;
            }
            if started.elapsed() > PATIENCE {
                let pods = self.run(&["describe", "pods"]);
                panic!("{arguments:?} still says {said:?}\n{}", pods.out);
            }
            std::thread::sleep(PAUSE);
        }
    }

    pub(crate) fn ready(&self, pod: &str) {
        self.ok(&["wait", "--for=condition=Ready", "--timeout=60s", &format!("pod/{pod}")]);
    }
}
