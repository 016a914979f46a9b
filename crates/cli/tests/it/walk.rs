//! The walk: an empty folder becomes an operator that reconciles, typed as a person types it, in a folder with a space
//! in its path.
//!
//! The output is a snapshot, without times, ports and the paths of this machine. Building the operator is asked for
//! (see `support::operators`).

use std::io::{Read, Write as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::running_dev::RunningDev;
use crate::support::{self, operators};

struct Walk {
    _place: tempfile::TempDir,
    folder: PathBuf,
    /// The commands and their output so far.
    seen: String,
}

impl Walk {
    fn begin() -> Walk {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("my work/guestbook");
        std::fs::create_dir_all(&folder).unwrap();
        Walk {
            _place: place,
            folder,
            seen: String::new(),
        }
    }

    /// The command line in a shell, as it is typed.
    fn shell(&self, line: &str) -> Command {
        let mut shell = operators::command("bash", &self.folder);
        shell
            .args(["-c", line])
            .env("NO_COLOR", "1")
            .env("CARGO_TERM_COLOR", "never")
            // Tests print in their order.
            .env("RUST_TEST_THREADS", "1")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        shell
    }

    /// Types a command line and records its output. It must succeed.
    fn type_in(&mut self, line: &str) {
        let output = self.shell(line).output().unwrap();
        let out = String::from_utf8(output.stdout).unwrap();
        // The messages of cargo about compiling and waiting are left out.
        let err = String::from_utf8(output.stderr).unwrap();
        self.seen.push_str(&format!("$ {line}\n{out}\n"));
        assert!(output.status.success(), "{line}: {}\n{out}{err}", output.status);
    }

    /// Types a command line on a terminal and answers its questions with yes.
    fn answer(&mut self, line: &str) {
        let mut played = self
            .shell(&format!("script -q -e -c '{line}' /dev/null"))
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let (mut input, mut out) = (played.stdin.take().unwrap(), played.stdout.take().unwrap());
        let (mut seen, mut answered) = (String::new(), 0);
        let mut buffer = [0; 4096];
        while let Ok(count @ 1..) = out.read(&mut buffer) {
            seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
            if seen.matches("[y/n] ").count() > answered {
                answered += 1;
                input.write_all(b"y\n").unwrap();
            }
        }
        assert!(played.wait().unwrap().success(), "{line}:\n{seen}");
        self.seen.push_str(&format!("$ {line}\n{}\n", seen.replace('\r', "")));
    }
}

#[test]
fn from_an_empty_folder_to_an_operator_that_reconciles() {
    let script = Command::new("script").arg("--version").output();
    if !script.is_ok_and(|output| output.status.success()) {
        eprintln!("left out: this machine has no `script` to play a terminal");
        return;
    }
    if !operators::are_built() || !support::kubectl_is_there() {
        return;
    }
    let mut walk = Walk::begin();
    walk.type_in("kubewright init --domain my.domain");
    operators::lock(&walk.folder);
    walk.answer("kubewright create api --group webapp --version v1 --kind Guestbook");
    walk.type_in(
        "kubewright create webhook --group webapp --version v1 --kind Guestbook --defaulting --programmatic-validation",
    );
    walk.type_in("kubewright manifests");
    walk.type_in("cargo test");

    // `exec`, so that the process is the command and no shell.
    let mut dev = RunningDev::start(walk.shell("exec kubewright dev"));
    dev.until("operator ready");
    // In another terminal, with the line of `dev`.
    let export = dev.export();
    let first = std::mem::take(&mut walk.seen);
    walk.type_in(&format!("{export}; kubectl apply -k config/samples"));
    // The scaffolded controller says in a condition that all is well, which does not wake it again.
    dev.until("status.conditions[Ready].status set to \"True\"");
    walk.type_in(&format!("{export}; kubectl get guestbooks"));
    let dev = format!("$ kubewright dev\n{}", dev.end());
    assert!(!dev.contains("failed"), "{dev}");

    let checkout = operators::checkout();
    insta::with_settings!({filters => vec![
        (checkout.to_str().unwrap(), "[checkout]"),
        (walk.folder.to_str().unwrap(), "[folder]"),
        (r"127\.0\.0\.1:\d+", "127.0.0.1:[port]"),
        (r"process \d+", "process [id]"),
        (r"(?m)^ *\d+\.\d+ s  ?", "[time] "),
        (r"\d+(\.\d+)? ?(ms|s)\b", "[time]"),
        // The operator's output, and the cluster's own work, come between the lines at a time of their own.
        (r"(?m)^ +│ .*\n", ""),
        (r"(?m)^.* \S+-controller [+~-] .*\n", ""),
    ]}, {
        insta::assert_snapshot!("walk", format!("{first}{dev}\n{}", walk.seen));
    });
}
