//! `kubewright dev` as its user meets it: a project is built, run, broken, mended, crashed and ended.
//!
//! The operator of these tests is a program of the standard library alone, so that a build takes a second: it declares itself, says on the
//! socket that it is ready, and prints a word. What a real operator does with the runtime is tested there.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test fails by panicking")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::KUBEWRIGHT;

const MANIFEST: &str = "[package]\nname = \"guestbook\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n";

const SAMPLE: &str = "\
apiVersion: webapp.my.domain/v1
kind: Guestbook
metadata:
  name: hello
  namespace: default
spec:
  size: 2
";

/// The operator's source; `WORD` and `BODY` are replaced.
const SOURCE: &str = r###"
use std::io::Write;

fn main() {
    if std::env::args().nth(1).as_deref() == Some("__declaration") {
        println!("{}", include_str!("declaration.json"));
        return;
    }
    println!("I am WORD");
    let path = std::env::var("KUBEWRIGHT_OBSERVE").unwrap();
    let mut socket = std::os::unix::net::UnixStream::connect(path).unwrap();
    writeln!(socket, r##"{"hello":{"operator":"guestbook","controllers":["guestbook"]}}"##).unwrap();
    writeln!(socket, r##"{"observed":{"controllerStarted":{"controller":"guestbook"}}}"##).unwrap();
    BODY
    loop {
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
}
"###;

fn declaration(size: Value) -> String {
    let schema = json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": size}}}});
    json!({
        "declaration": 1, "name": "guestbook", "kubewright": "0.1.0",
        "crds": [{"rust": "v1::Guestbook", "crd": {
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "guestbooks.webapp.my.domain"},
            "spec": {
                "group": "webapp.my.domain", "scope": "Namespaced",
                "names": {"plural": "guestbooks", "singular": "guestbook", "kind": "Guestbook", "listKind": "GuestbookList"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        }}],
        "controllers": [], "webhooks": [], "conversions": [], "rbac": [],
    })
    .to_string()
}

/// A project with its own target folder.
struct Project(tempfile::TempDir);

impl Project {
    fn new() -> Project {
        let project = Project(tempfile::tempdir().unwrap());
        project.write("Cargo.toml", MANIFEST);
        project.write("config/samples/webapp_v1_guestbook.yaml", SAMPLE);
        project.write("src/declaration.json", &declaration(json!({"type": "integer"})));
        project.source("one", "");
        project
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.path().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn source(&self, word: &str, body: &str) {
        self.write("src/main.rs", &SOURCE.replace("WORD", word).replace("BODY", body));
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(KUBEWRIGHT);
        command
            .args(arguments)
            .current_dir(self.path())
            .env("CARGO_TARGET_DIR", self.path().join("target"))
            .env_remove("KUBECONFIG")
            .env("HOME", home(self.path()))
            .stdin(Stdio::null());
        command
    }
}

/// A home without a kubeconfig, in which cargo and rustup are found all the same.
fn home(empty: &Path) -> PathBuf {
    // The variables that name them are set by rustup's own wrapper when tests run under cargo.
    match (std::env::var_os("CARGO_HOME"), std::env::var_os("RUSTUP_HOME")) {
        (Some(_), Some(_)) => empty.to_path_buf(),
        _ => std::env::var_os("HOME").map_or_else(|| empty.to_path_buf(), PathBuf::from),
    }
}

/// A `dev` that runs, and its events.
struct Dev {
    process: Child,
    events: std::io::Lines<BufReader<ChildStdout>>,
    told: Vec<String>,
}

impl Dev {
    fn start(project: &Project, arguments: &[&str]) -> Dev {
        let mut process = project
            .command(&[&["dev", "--output", "json"], arguments].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let events = BufReader::new(process.stdout.take().unwrap()).lines();
        Dev {
            process,
            events,
            told: Vec::new(),
        }
    }

    /// Reads events until one fits. The pipe ends when `dev` does, so this cannot wait for ever on one that failed.
    fn until(&mut self, event: &str, fits: impl Fn(&Value) -> bool) -> Value {
        for line in self.events.by_ref() {
            let line = line.unwrap();
            let told: Value = serde_json::from_str(&line).expect("every line is a JSON object");
            self.told.push(line);
            if told["event"] == event && fits(&told) {
                return told;
            }
        }
        panic!("dev ended before it told {event}; it told:\n{}", self.told.join("\n"));
    }

    fn says(&mut self, line: &str) {
        self.until("log", |event| event["line"] == line);
    }

    fn end(mut self) {
        let asked = Instant::now();
        let sent = Command::new("kill").args(["-INT", &self.process.id().to_string()]).status();
        assert!(sent.unwrap().success());
        assert!(self.process.wait().unwrap().success(), "Ctrl-C is a clean end");
        assert!(asked.elapsed() < Duration::from_secs(5), "Ctrl-C took {:?}", asked.elapsed());
    }
}

impl Drop for Dev {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_day_with_dev() {
    let project = Project::new();
    let mut dev = Dev::start(&project, &["--samples"]);

    let ready = dev.until("ready", |_| true);
    assert!(ready["kubeconfig"].as_str().unwrap().ends_with(".kubewright/kubeconfig"));
    dev.until("compiled", |event| event["new"] == true);
    let applied = dev.until("definitions", |_| true);
    assert_eq!(applied["objects"][0], json!({"name": "guestbooks.webapp.my.domain", "applied": "created"}));
    dev.until("operator-ready", |_| true);
    let samples = dev.until("samples", |_| true);
    assert_eq!(samples["objects"][0], json!({"name": "Guestbook default/hello", "applied": "created"}));

    // A field that is spelled wrongly is told, with the file.
    project.write("config/samples/webapp_v1_guestbook.yaml", &SAMPLE.replace("size", "sise"));
    let wrong = dev.until("trouble", |_| true);
    assert_eq!(wrong["diagnostic"]["code"], "KWR0705");
    assert!(wrong.to_string().contains("spec.sise"), "{wrong}");
    project.write("config/samples/webapp_v1_guestbook.yaml", SAMPLE);
    dev.until("samples", |_| true);

    // What does not compile replaces nothing; the first error is told with its place.
    project.source("broken", "let size: i32 = \"three\";");
    let failed = dev.until("not-compiled", |_| true);
    assert!(failed["place"].as_str().unwrap().starts_with("src/main.rs:"), "{failed}");
    assert!(failed["first"].as_str().unwrap().contains("mismatched types"), "{failed}");
    assert!(!dev.told.iter().any(|line| line.contains("operator-ended")), "the last good build runs on");

    // Mended, it is replaced.
    project.source("two", "");
    dev.until("operator-ended", |event| event["asked"] == true);
    dev.says("I am two");

    // The server refuses a definition: told in its words, and the operator stays.
    project.write("src/declaration.json", &declaration(json!({"type": "integer", "default": "many"})));
    let refused = dev.until("trouble", |_| true);
    assert_eq!(refused["diagnostic"]["code"], "KWR0703");
    assert!(refused.to_string().contains("default"), "{refused}");
    project.write("src/declaration.json", &declaration(json!({"type": "integer", "maximum": 10})));
    let changed = dev.until("definitions", |_| true);
    assert_eq!(changed["objects"][0]["applied"], "changed");
    dev.until("operator-ready", |_| true);

    // A crash is shown with its reason and started again.
    project.source("three", "panic!(\"no luck\");");
    let crashed = dev.until("operator-ended", |event| event["asked"] == false);
    assert!(crashed["how"].as_str().unwrap().contains("panicked"), "{crashed}");
    assert!(crashed["said"].to_string().contains("no luck"), "{crashed}");
    dev.says("I am three");

    // The cluster and its objects are still those of the beginning.
    project.source("four", "");
    dev.says("I am four");
    dev.end();
    assert!(!project.path().join("target/debug/.kubewright-dev").exists(), "nothing is left behind");
}

#[test]
fn two_in_one_project_are_one_too_many() {
    let project = Project::new();
    let mut dev = Dev::start(&project, &[]);
    dev.until("ready", |_| true);
    let second = project.command(&["dev"]).output().unwrap();
    assert!(!second.status.success());
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("another `kubewright dev` runs in this project"), "{said}");
    dev.end();
}

#[test]
fn a_cluster_far_away_is_refused_unless_it_is_named() {
    let project = Project::new();
    project.write(
        "prod.yaml",
        "apiVersion: v1\nkind: Config\ncurrent-context: prod-eu\nclusters:\n- name: eu\n  cluster: {server: 'https://192.0.2.7'}\n\
         contexts:\n- name: prod-eu\n  context: {cluster: eu, user: me}\nusers:\n- name: me\n  user: {token: t}\n",
    );
    let refused = project.command(&["dev", "--kubeconfig", "prod.yaml", "--context", "prod-eu"]).output().unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.contains("[KWR0702]") && said.contains("https://192.0.2.7"), "{said}");

    // Without --context the file is where to write to, and this one is not ours.
    let kept = project.command(&["dev", "--kubeconfig", "prod.yaml"]).output().unwrap();
    assert!(String::from_utf8_lossy(&kept.stderr).contains("will not overwrite prod.yaml"));
    assert!(fs::read_to_string(project.path().join("prod.yaml")).unwrap().contains("prod-eu"));
}

#[test]
fn run_says_which_cluster_and_what_it_lacks() {
    let cluster = support::RunningCluster::start(&[]);
    let project = Project::new();
    let kubeconfig = cluster.kubeconfig();
    let lacking = project
        .command(&["run", "--kubeconfig", kubeconfig.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&lacking.stdout);
    assert!(said.contains("runs against context kubernetes-admin@kubewright, https://127.0.0.1:"), "{said}");
    let why = String::from_utf8_lossy(&lacking.stderr);
    assert!(why.contains("[KWR0724]") && why.contains("guestbooks.webapp.my.domain is not installed"), "{why}");

    // An operator without definitions of its own needs none; it runs until it ends, and its status counts.
    project.write("src/declaration.json", r#"{"declaration": 1, "crds": []}"#);
    project.write(
        "src/main.rs",
        "fn main() {\n    if std::env::args().nth(1).as_deref() == Some(\"__declaration\") {\n        print!(\"{}\", include_str!(\"declaration.json\"));\n        return;\n    }\n    \
         println!(\"webhooks {:?}\", std::env::var(\"ENABLE_WEBHOOKS\"));\n    std::process::exit(3);\n}\n",
    );
    let ended = project
        .command(&["run", "--kubeconfig", kubeconfig.to_str().unwrap()])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(said.contains("webhooks Ok(\"false\")"), "{said}");
    let why = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && why.contains("exit status: 3"), "{why}");
}

#[test]
fn doctor_finds_what_does_not_compile() {
    let project = Project::new();
    let good = project.command(&["doctor", "--output", "json"]).output().unwrap();
    let said = String::from_utf8_lossy(&good.stdout);
    assert!(good.status.success(), "{said}");
    let checks: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(checks.iter().any(|check| check["what"] == "rust" && check["state"] == "good"), "{said}");
    assert!(checks.iter().any(|check| check["what"] == "kubewright" && check["state"] == "good"), "{said}");

    project.source("broken", "let size: i32 = \"three\";");
    let bad = project.command(&["doctor"]).output().unwrap();
    assert!(!bad.status.success());
    let said = String::from_utf8_lossy(&bad.stdout);
    assert!(said.contains("✗ build          does not compile"), "{said}");
}

/// On a terminal the screen is drawn, and the terminal is as it was when all is over.
#[test]
fn a_terminal_is_given_back() {
    let there = Command::new("script").arg("--version").output().is_ok();
    if !there {
        eprintln!("skipped: this machine has no `script` to play a terminal");
        return;
    }
    let project = Project::new();
    let command = format!("stty -echo; stty -a > before; {KUBEWRIGHT} dev; stty -a > after");
    let mut played = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .current_dir(project.path())
        .env("CARGO_TARGET_DIR", project.path().join("target"))
        .env("TERM", "xterm")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = played.stdout.take().unwrap();
    let mut seen = String::new();
    let mut buffer = [0; 4096];
    let mut input = played.stdin.take();
    while let Ok(count @ 1..) = out.read(&mut buffer) {
        seen.push_str(&String::from_utf8_lossy(&buffer[..count]));
        // The operator runs, so the screen was drawn; `q` is a key and needs no Enter.
        if seen.contains("running") && let Some(mut keys) = input.take() {
            use std::io::Write as _;
            keys.write_all(b"q").unwrap();
            keys.flush().unwrap();
            // Kept open: a terminal whose other end is closed hangs up.
            std::mem::forget(keys);
        }
    }
    assert!(played.wait().unwrap().success(), "{seen}");
    assert!(seen.contains("\u{1b}[?1049h") && seen.contains("\u{1b}[?1049l"), "the screen is entered and left");
    let state = |file: &str| fs::read_to_string(project.path().join(file)).unwrap();
    assert_eq!(state("before"), state("after"));
}
