//! `kubewright demo` as its user meets it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{KUBEWRIGHT, kubectl_is_there};
use serde_json::Value;

#[test]
fn once_tells_the_walk_and_succeeds() {
    let output = Command::new(KUBEWRIGHT).args(["demo", "--once"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for text in [
        "cluster     ready in",
        "export KUBECONFIG=",
        "the operator runs as system:serviceaccount:guestbook-system:controller-manager",
        "guestbooks.webapp.my.domain/v1 is established",
        "because Guestbook default/hello",
        "+ created Deployment default/hello",
        "+ created Service default/hello",
        "~ changed Guestbook default/hello status",
        "because Deployment default/hello changed: ",
        "Guestbook default/hello is Ready after",
    ] {
        assert!(said.contains(text), "the demo should say {text:?}; it said:\n{said}");
    }
    assert!(
        !said.contains('\u{1b}'),
        "no colours where standard output is no terminal"
    );
}

/// Their demos are programs of their own packages, and tested there.
#[test]
fn the_other_examples_say_how_they_are_run() {
    for operator in ["sidecarset", "database", "autorebooter"] {
        let output = Command::new(KUBEWRIGHT).args(["demo", operator]).output().unwrap();
        let wrong = String::from_utf8_lossy(&output.stderr);
        let command = format!("cargo run -p {operator} --example {operator}-demo");
        assert!(!output.status.success() && wrong.contains(&command), "{wrong}");
    }
}

/// A demo that runs, and its events.
struct Demo {
    process: Child,
    events: std::io::Lines<BufReader<std::process::ChildStdout>>,
}

impl Demo {
    fn start() -> Demo {
        let mut process = Command::new(KUBEWRIGHT)
            .args(["demo", "--output", "json"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let events = BufReader::new(process.stdout.take().unwrap()).lines();
        Demo { process, events }
    }

    /// Reads events until one fits. The pipe ends when the demo does, so this cannot wait for ever on a demo that
    /// failed.
    fn until(&mut self, what: &str, fits: impl Fn(&Value) -> bool) -> Value {
        for line in self.events.by_ref() {
            let event: Value = serde_json::from_str(&line.unwrap()).expect("every line is a JSON object");
            if fits(&event) {
                return event;
            }
        }
        panic!("the demo ended before {what}");
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn changes_from_another_terminal_show_with_their_cause() {
    let mut demo = Demo::start();
    let ready = demo.until("the cluster was ready", |event| event["event"] == "ready");
    demo.until("the Guestbook was Ready", |event| event["event"] == "reached");
    if kubectl_is_there() {
        let kubectl = |arguments: &[&str]| {
            let kubeconfig = ready["kubeconfig"].as_str().unwrap();
            let status = Command::new("kubectl")
                .args(arguments)
                .env("KUBECONFIG", kubeconfig)
                .stdout(Stdio::null())
                .status();
            assert!(status.unwrap().success(), "kubectl {arguments:?}");
        };
        kubectl(&["scale", "guestbook", "hello", "--replicas=3"]);
        demo.until("the scaling caused a reconcile", |event| {
            event["event"] == "reconcile" && event["causes"].to_string().contains("spec.size 2 → 3")
        });
        demo.until("the Deployment was scaled", |event| {
            event["event"] == "write" && event["changes"].to_string().contains("spec.replicas")
        });
        kubectl(&["delete", "guestbook", "hello", "--wait=false"]);
        demo.until("the children went", |event| {
            event["event"] == "write" && event["verb"] == "delete" && event["object"] == "Deployment default/hello"
        });
    }
    let asked = Instant::now();
    let sent = Command::new("kill")
        .args(["-INT", &demo.process.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
    assert!(demo.process.wait().unwrap().success(), "Ctrl-C is a clean end");
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "Ctrl-C took {:?}",
        asked.elapsed()
    );
}
