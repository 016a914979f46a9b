//! `kubewright cluster` as its user meets it: the line, the file, the signals, and its refusals.

use std::io::{BufRead as _, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::project::REMOTE_KUBECONFIG;
use crate::support::{KUBEWRIGHT, RunningCluster};
use futures::StreamExt as _;
use kubewright::k8s_openapi::api::apps::v1::Deployment;
use kubewright::kube::Api;
use kubewright::kube::api::{PostParams, WatchEvent, WatchParams};

fn refused(arguments: &[&str], expected: &[&str]) {
    let Output { status, stdout, stderr } = Command::new(KUBEWRIGHT).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&stderr);
    assert!(!status.success(), "{arguments:?} must fail");
    assert!(
        stdout.is_empty(),
        "{arguments:?} printed {:?}",
        String::from_utf8_lossy(&stdout)
    );
    for text in expected {
        assert!(said.contains(text), "{arguments:?} should say {text:?}, said:\n{said}");
    }
}

fn signal(process: &Child, name: &str) {
    let sent = Command::new("kill")
        .args([format!("-{name}"), process.id().to_string()])
        .status()
        .unwrap();
    assert!(sent.success());
}

#[test]
fn the_ready_line_names_address_kubeconfig_and_time() {
    let cluster = RunningCluster::start(&["--controllers", "none"]);
    let line = &cluster.ready_line;
    assert!(
        line.contains("https://127.0.0.1:") && line.contains(" ms ") && line.contains("KUBECONFIG=kubeconfig"),
        "{line}"
    );
    assert!(cluster.kubeconfig().exists(), "the file is there when the line is");
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(cluster.kubeconfig()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "the kubeconfig holds a private key");
}

#[test]
fn machines_get_json() {
    let cluster = RunningCluster::start_json(&["--controllers", "none", "--output", "json"]);
    let event: serde_json::Value = serde_json::from_str(&cluster.ready_line).unwrap();
    assert_eq!(event["event"], "ready");
    assert!(event["address"].as_str().unwrap().starts_with("https://127.0.0.1:"));
    assert!(event["milliseconds"].as_f64().unwrap() > 0.0);
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !reached() {
        assert!(begun.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::yield_now();
    }
}

/// The start never finishes, because it reads its kubeconfig from a pipe that stays open.
#[test]
fn a_second_signal_ends_it_before_it_is_ready() {
    let process = Command::new(KUBEWRIGHT)
        .args(["cluster", "--controllers", "none", "--kubeconfig", "/dev/stdin"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut starting = Controllers(process);
    // It listens for signals before it opens the pipe once more; a signal before that would end it cleanly.
    let open = format!("/proc/{}/fd", starting.0.id());
    until("it reads its kubeconfig", || {
        let files = std::fs::read_dir(&open).unwrap().flatten();
        let files: Vec<_> = files.filter_map(|file| file.path().read_link().ok()).collect();
        let pipe = std::path::Path::new(&open).join("0").read_link().unwrap();
        files.iter().filter(|file| **file == pipe).count() == 2
    });
    signal(&starting.0, "INT");
    signal(&starting.0, "TERM");
    let mut ended = None;
    until("two signals end it", || {
        ended = starting.0.try_wait().unwrap();
        ended.is_some()
    });
    let ended = ended.unwrap();
    assert_eq!(ended.code(), Some(130), "{ended}");
}

#[test]
fn it_ends_with_its_parent_when_asked_to() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    // A shell that starts it and is killed: no signal reaches the cluster.
    let script = format!(
        "'{KUBEWRIGHT}' cluster --controllers none --exit-with-parent --kubeconfig '{}' & wait",
        kubeconfig.display()
    );
    let mut shell = Command::new("sh")
        .args(["-c", &script])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("it is ready", || kubeconfig.exists());
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    let server = text
        .lines()
        .find_map(|line| line.trim().strip_prefix("server: https://"));
    let address: SocketAddr = server.unwrap().parse().unwrap();
    assert!(TcpStream::connect(address).is_ok());
    shell.kill().unwrap();
    shell.wait().unwrap();
    until("it is gone", || TcpStream::connect(address).is_err());
}

#[test]
fn signals_stop_it_cleanly_and_at_once() {
    for name in ["INT", "TERM"] {
        let mut cluster = RunningCluster::start(&[]);
        let asked = Instant::now();
        signal(&cluster.process, name);
        let status = cluster.process.wait().unwrap();
        assert!(status.success(), "SIG{name} is a clean stop: {status}");
        assert!(
            asked.elapsed() < Duration::from_secs(5),
            "SIG{name} took {:?}",
            asked.elapsed()
        );
    }
}

#[test]
fn what_it_cannot_do_it_refuses_in_words() {
    refused(
        &["cluster", "--data-dir", "/dev/null/folder"],
        &[
            "cannot start the cluster",
            "because:",
            "cannot create /dev/null/folder",
            "name a folder, not a file",
        ],
    );
    let file = tempfile::NamedTempFile::new().expect("a file");
    let file = file.path().to_str().expect("a path");
    refused(
        &["cluster", "--data-dir", file],
        &["cannot start the cluster", file, "name a folder, not a file"],
    );
    refused(&["cluster", "--repair"], &["--data-dir"]);
    refused(
        &["cluster", "--controllers", "deployment,nonsense"],
        &["nonsense", "deployment"],
    );
    refused(&["cluster", "--listen", "127.0.0.1"], &["--listen"]);
    refused(&["cluster", "--listen", "localhost:seven"], &["localhost:0"]);
    refused(&["cluster", "--listen", ":8443"], &["localhost:0"]);
    refused(
        &["cluster", "--listen", "203.0.113.1:1"],
        &["cannot listen on 203.0.113.1:1", "because:"],
    );
    refused(&["nonsense"], &["nonsense"]);
}

#[test]
fn a_data_folder_serves_one_cluster_at_a_time_and_is_repaired_only_when_free() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let data = data.to_str().unwrap();
    let mut cluster = RunningCluster::start(&["--controllers", "none", "--data-dir", data]);
    let holder = format!("is in use by process {}", cluster.process.id());
    refused(&["cluster", "--data-dir", data], &["cannot start the cluster", &holder]);
    refused(
        &["cluster", "--data-dir", data, "--repair"],
        &["cannot repair", &holder],
    );
    signal(&cluster.process, "TERM");
    assert!(cluster.process.wait().unwrap().success());
    let output = Command::new(KUBEWRIGHT)
        .args(["cluster", "--data-dir", data, "--repair"])
        .output()
        .unwrap();
    assert!(output.status.success());
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.starts_with("nothing is damaged: "), "{said}");
}

#[test]
fn a_data_folder_remembers_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().to_str().unwrap();
    let serve = |version: &str| {
        let arguments = [
            "--controllers",
            "none",
            "--data-dir",
            data,
            "--kubernetes-version",
            version,
        ];
        drop(RunningCluster::start(&arguments));
    };
    serve("1.36");
    serve("1.37");
    refused(
        &["cluster", "--data-dir", data],
        &[
            "holds the objects of a cluster of Kubernetes 1.37",
            "start it with --kubernetes-version 1.37",
        ],
    );
    serve("1.37");
    refused(
        &["cluster", "--kubernetes-version", "1.35"],
        &["Kubernetes 1.35 is not served; there are 1.36 and 1.37"],
    );
}

#[test]
fn a_foreign_kubeconfig_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, "current-context: production\n").unwrap();
    refused(
        &["cluster", "--kubeconfig", path.to_str().unwrap()],
        &["will not overwrite", "not written by kubewright"],
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "current-context: production\n");
}

#[test]
fn version_names_both_versions() {
    let output = Command::new(KUBEWRIGHT).arg("version").output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        said.starts_with("kubewright 0.1.0 (embedded Kubernetes API v1.36"),
        "{said}"
    );
}

#[test]
fn controllers_are_not_run_where_nobody_asked_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config");
    std::fs::write(&path, REMOTE_KUBECONFIG).unwrap();
    let path = path.to_str().unwrap();
    refused(
        &["controllers", "--kubeconfig", path],
        &[
            "refusing to run controllers against context prod-eu",
            "192.0.2.7",
            "--allow-context prod-eu",
        ],
    );
    refused(&["controllers", "--kubeconfig", "/dev/null/config"], &["--kubeconfig"]);
    let printed = Command::new(KUBEWRIGHT)
        .args(["controllers", "--role"])
        .output()
        .unwrap();
    assert!(printed.status.success());
    assert!(String::from_utf8_lossy(&printed.stdout).contains("kind: ClusterRole\n"));
}

/// A program whose end is this guard's.
struct Controllers(Child);

impl Drop for Controllers {
    fn drop(&mut self) {
        // It may have been stopped by the test already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// An API server without controllers, and the controllers beside it: a Deployment gets its pods, and they become Ready.
#[tokio::test]
async fn controllers_beside_another_api_server() {
    let cluster = RunningCluster::start(&["--controllers", "none"]);
    let process = Command::new(KUBEWRIGHT)
        .args(["controllers", "--nodes", "2", "--kubeconfig"])
        .arg(cluster.kubeconfig())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut controllers = Controllers(process);
    let mut line = String::new();
    let mut stdout = BufReader::new(controllers.0.stdout.take().unwrap());
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("kubewright controllers run  context "), "{line}");
    let deployments: Api<Deployment> = Api::default_namespaced(cluster.client().await);
    let web: Deployment = serde_json::from_value(serde_json::json!({
        "metadata": { "name": "web" }, "spec": {
            "replicas": 2, "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "app:1" }] } },
        },
    }))
    .unwrap();
    deployments.create(&PostParams::default(), &web).await.unwrap();
    let parameters = WatchParams::default().timeout(60);
    let mut events = std::pin::pin!(deployments.watch(&parameters, "0").await.unwrap());
    let is_ready = |event: &WatchEvent<Deployment>| match event {
        WatchEvent::Modified(seen) => seen
            .status
            .as_ref()
            .is_some_and(|status| status.ready_replicas == Some(2)),
        _ => false,
    };
    while !is_ready(&events.next().await.expect("within a minute").unwrap()) {}
    let sent = Command::new("kill")
        .args(["-TERM", &controllers.0.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    assert!(controllers.0.wait().unwrap().success(), "SIGTERM is a clean stop");
}
