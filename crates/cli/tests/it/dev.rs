//! `kubewright dev` as its user meets it: a project is built, run, broken, mended, crashed and ended.
//!
//! The operator of these tests is the small one of `support::project`. The work of a real operator with the runtime is
//! tested there.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use crate::support::project::{Project, REMOTE_KUBECONFIG, SAMPLE, declaration};
use crate::support::{self, KUBEWRIGHT, client_of};
use kubewright::k8s_openapi::api::core::v1::Secret;
use kubewright::kube::api::ListParams;
use kubewright::kube::config::Kubeconfig;
use kubewright::kube::{self, Api};
use serde_json::{Value, json};

/// A `dev` that runs, and its events.
struct Dev {
    process: Child,
    events: Receiver<String>,
    told: Vec<String>,
}

impl Dev {
    fn start(project: &Project, arguments: &[&str]) -> Dev {
        let mut process = project
            .command(&[&["dev", "--output", "json"], arguments].concat())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = process.stdout.take().unwrap();
        let (send, events) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(out).lines().map_while(Result::ok) {
                // A test that failed reads no more.
                let _ = send.send(line);
            }
        });
        Dev {
            process,
            events,
            told: Vec::new(),
        }
    }

    /// Reads events until one fits; gives up when `dev` ends or has not told it after a minute and a half.
    fn until(&mut self, event: &str, fits: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + Duration::from_secs(90);
        while let Ok(line) = self.events.recv_timeout(end.saturating_duration_since(Instant::now())) {
            let told: Value = serde_json::from_str(&line).expect("every line is a JSON object");
            self.told.push(line);
            if told["event"] == event && fits(&told) {
                return told;
            }
        }
        panic!("dev never told {event}; it told:\n{}", self.told.join("\n"));
    }

    fn says(&mut self, line: &str) {
        self.until("log", |event| event["line"] == line);
    }

    fn end(mut self) {
        let asked = Instant::now();
        let sent = Command::new("kill")
            .args(["-INT", &self.process.id().to_string()])
            .status();
        assert!(sent.unwrap().success());
        assert!(self.process.wait().unwrap().success(), "Ctrl-C is a clean end");
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "Ctrl-C took {:?}",
            asked.elapsed()
        );
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
    assert!(
        ready["kubeconfig"]
            .as_str()
            .unwrap()
            .ends_with(".kubewright/kubeconfig")
    );
    dev.until("compiled", |event| event["new"] == true);
    let applied = dev.until("definitions", |_| true);
    assert_eq!(
        applied["objects"][0],
        json!({"name": "guestbooks.webapp.my.domain", "applied": "created"})
    );
    dev.until("operator-ready", |_| true);
    let samples = dev.until("samples", |_| true);
    assert_eq!(
        samples["objects"][0],
        json!({"name": "Guestbook default/hello", "applied": "created"})
    );

    // A field that is spelled wrongly is told, with the file.
    project.write(
        "config/samples/webapp_v1_guestbook.yaml",
        &SAMPLE.replace("size", "sise"),
    );
    let wrong = dev.until("trouble", |event| event["diagnostic"]["code"] == "KWR0705");
    assert!(wrong.to_string().contains("spec.sise"), "{wrong}");
    project.write("config/samples/webapp_v1_guestbook.yaml", SAMPLE);
    dev.until("samples", |_| true);

    // A build that fails replaces nothing; the first error is shown with its place.
    project.source("broken", "let size: i32 = \"three\";");
    let failed = dev.until("not-compiled", |_| true);
    assert!(
        failed["place"].as_str().unwrap().starts_with("src/main.rs:"),
        "{failed}"
    );
    assert!(
        failed["first"].as_str().unwrap().contains("mismatched types"),
        "{failed}"
    );
    assert!(
        !dev.told.iter().any(|line| line.contains("operator-ended")),
        "the last good build runs on"
    );

    // Mended, it is replaced.
    project.source("two", "");
    dev.until("operator-ended", |event| event["asked"] == true);
    dev.says("I am two");

    // A default that does not fit is found before the server is asked.
    project.write(
        "src/declaration.json",
        &declaration(json!({"type": "integer", "default": "many"})),
    );
    dev.until("trouble", |event| event.to_string().contains("default"));

    // The server refuses a definition: told in its words, and the operator stays.
    let moved = declaration(json!({"type": "integer"})).replace("Namespaced", "Cluster");
    project.write("src/declaration.json", &moved);
    let refused = dev.until("trouble", |event| event["diagnostic"]["code"] == "KWR0703");
    assert!(refused.to_string().contains("scope"), "{refused}");
    project.write(
        "src/declaration.json",
        &declaration(json!({"type": "integer", "maximum": 10})),
    );
    let changed = dev.until("definitions", |_| true);
    assert_eq!(changed["objects"][0]["applied"], "changed");
    dev.until("operator-ready", |_| true);

    // A crash is shown with its reason and started again.
    project.source("three", "panic!(\"no luck\");");
    let crashed = dev.until("operator-ended", |event| event["asked"] == false);
    assert!(crashed["how"].as_str().unwrap().contains("panicked"), "{crashed}");
    assert!(crashed["said"].to_string().contains("no luck"), "{crashed}");
    dev.until("operator-started", |_| true);

    // The cluster and its objects are still those of the beginning.
    project.source("four", "");
    dev.says("I am four");
    dev.end();
    assert!(
        !project.path().join("target/debug/.kubewright-dev").exists(),
        "nothing is left behind"
    );
}

#[test]
fn a_package_elsewhere_is_part_of_the_operator() {
    let project = Project::new();
    let manifest = fs::read_to_string(project.path().join("Cargo.toml")).unwrap();
    project.write(
        "Cargo.toml",
        &format!("{manifest}\n[dependencies]\nwords = {{ path = \"../words\" }}\n"),
    );
    project.write(
        "../words/Cargo.toml",
        "[package]\nname = \"words\"\nversion = \"0.1.0\"\nedition = \"2024\"\n",
    );
    project.write("../words/src/lib.rs", "pub const WORD: &str = \"first\";");
    project.source("one", "println!(\"the {} word\", words::WORD);");
    let mut dev = Dev::start(&project, &[]);
    dev.says("the first word");
    project.write("../words/src/lib.rs", "pub const WORD: &str = \"second\";");
    dev.says("the second word");
    dev.end();
}

/// The rights of this `dev`'s operator: the answer to a list of secrets, with the kubeconfig that it was given.
fn listing_secrets(dev: &mut Dev) -> Result<usize, String> {
    let told = dev.until("log", |event| {
        event["line"]
            .as_str()
            .is_some_and(|line| line.starts_with("KUBECONFIG="))
    });
    let path = told["line"].as_str().unwrap().trim_start_matches("KUBECONFIG=");
    let config = Kubeconfig::read_from(path).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let secrets: Api<Secret> = Api::all(client_of(config).await);
        match secrets.list(&ListParams::default()).await {
            Ok(list) => Ok(list.items.len()),
            Err(kube::Error::Api(status)) => Err(status.message.clone()),
            Err(other) => panic!("{other}"),
        }
    })
}

#[test]
fn the_operator_runs_under_the_role_that_it_declares() {
    const SAY: &str = "println!(\"KUBECONFIG={}\", std::env::var(\"KUBECONFIG\").unwrap());";
    let project = Project::new();
    project.source("one", SAY);
    let mut dev = Dev::start(&project, &[]);
    let account = dev.until("account", |_| true);
    assert_eq!(
        account["user"],
        "system:serviceaccount:guestbook-system:controller-manager"
    );
    let refused = listing_secrets(&mut dev).unwrap_err();
    assert!(
        refused.starts_with(
            "secrets is forbidden: User \"system:serviceaccount:guestbook-system:controller-manager\" cannot list"
        ),
        "{refused}"
    );

    // A rule that is declared counts from the next start on, and no longer than it is declared.
    let plain = declaration(json!({"type": "integer"}));
    let mut more: Value = serde_json::from_str(&plain).unwrap();
    more["rbac"] = json!([{"groups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    project.write("src/declaration.json", &more.to_string());
    assert!(listing_secrets(&mut dev).is_ok());
    more["rbac"][0]["roleName"] = "vault".into();
    project.write("src/declaration.json", &more.to_string());
    assert!(listing_secrets(&mut dev).is_ok());
    project.write("src/declaration.json", &plain);
    listing_secrets(&mut dev).unwrap_err();
    dev.end();

    let mut dev = Dev::start(&project, &["--as-admin"]);
    assert!(listing_secrets(&mut dev).is_ok());
    dev.end();
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
    project.write("prod.yaml", REMOTE_KUBECONFIG);
    let refused = project
        .command(&["dev", "--kubeconfig", "prod.yaml", "--context", "prod-eu"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(
        said.contains("[KWR0702]") && said.contains("https://192.0.2.7"),
        "{said}"
    );

    // Without --context the file is where to write to, and this one is not ours.
    let kept = project.command(&["dev", "--kubeconfig", "prod.yaml"]).output().unwrap();
    assert!(String::from_utf8_lossy(&kept.stderr).contains("will not overwrite prod.yaml"));
    assert!(
        fs::read_to_string(project.path().join("prod.yaml"))
            .unwrap()
            .contains("prod-eu")
    );
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
    assert!(
        said.contains("runs against context kubernetes-admin@kubewright, https://127.0.0.1:"),
        "{said}"
    );
    let why = String::from_utf8_lossy(&lacking.stderr);
    assert!(
        why.contains("[KWR0724]") && why.contains("guestbooks.webapp.my.domain is not installed"),
        "{why}"
    );

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
    let role = "runs under its role, as system:serviceaccount:guestbook-system:controller-manager";
    assert!(said.contains(role), "{said}");
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
    assert!(
        checks
            .iter()
            .any(|check| check["what"] == "rust" && check["state"] == "good"),
        "{said}"
    );
    assert!(
        checks
            .iter()
            .any(|check| check["what"] == "kubewright" && check["state"] == "good"),
        "{said}"
    );

    project.source("broken", "let size: i32 = \"three\";");
    let bad = project.command(&["doctor"]).output().unwrap();
    assert!(!bad.status.success());
    let said = String::from_utf8_lossy(&bad.stdout);
    assert!(
        said.contains("it does not compile; the first error is at src/main.rs:") && said.contains("[KWR0391]"),
        "{said}"
    );
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
    // The test may itself run with NO_COLOR; an empty value is none.
    for (no_color, bold) in [("", true), ("1", false)] {
        let seen = on_a_terminal(&project, no_color);
        assert!(
            seen.contains("\u{1b}[?1049h") && seen.contains("\u{1b}[?1049l"),
            "the screen is entered and left"
        );
        assert_eq!(seen.contains("\u{1b}[1m"), bold, "NO_COLOR={no_color}: {seen}");
        let state = |file: &str| fs::read_to_string(project.path().join(file)).unwrap();
        assert_eq!(state("before"), state("after"));
    }
}

/// The output of a `dev` on a terminal, which is quit with `q` when its operator is ready.
fn on_a_terminal(project: &Project, no_color: &str) -> String {
    let command = format!("stty -echo; stty -a > before; {KUBEWRIGHT} dev; stty -a > after");
    let mut played = Command::new("script")
        .args(["-q", "-e", "-c", &command, "/dev/null"])
        .current_dir(project.path())
        .env("CARGO_TARGET_DIR", project.path().join("target"))
        .env("TERM", "xterm")
        .env("NO_COLOR", no_color)
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
        if seen.contains("ready: guestbook")
            && let Some(mut keys) = input.take()
        {
            use std::io::Write as _;
            keys.write_all(b"q").unwrap();
            keys.flush().unwrap();
            // Kept open: a terminal whose other end is closed hangs up.
            std::mem::forget(keys);
        }
    }
    assert!(played.wait().unwrap().success(), "{seen}");
    seen
}
