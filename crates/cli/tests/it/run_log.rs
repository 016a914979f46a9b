//! `kubewright cluster --log` and `kubewright log`: what one writes, the other tells, also while it grows.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use kubewright::k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{KUBEWRIGHT, RunningCluster};

fn log(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(KUBEWRIGHT);
    command.arg("log").args(arguments).current_dir(folder);
    command.output().unwrap()
}

/// What it prints, without the times.
fn told(folder: &Path, arguments: &[&str]) -> Vec<String> {
    let Output { status, stdout, stderr } = log(folder, arguments);
    assert!(status.success(), "{}", String::from_utf8_lossy(&stderr));
    let text = String::from_utf8(stdout).unwrap();
    let line = |line: &str| line.rsplit("  ").next().unwrap_or_default().trim().to_owned();
    text.lines().map(line).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_tells_what_happened_in_it() {
    let mut cluster = RunningCluster::start(&["--controllers", "none", "--log", "run.log"]);
    let folder = cluster.folder.path().to_owned();
    let mut following = Command::new(KUBEWRIGHT)
        .args([
            "log",
            "run.log",
            "--follow",
            "--only",
            "commits",
            "--object",
            "configmaps default/",
        ])
        .current_dir(&folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client().await, "default");
    let map = json!({"metadata": {"name": "one"}, "data": {"color": "red"}});
    maps.create(&PostParams::default(), &serde_json::from_value(map).unwrap())
        .await
        .unwrap();
    let blue = Patch::Merge(json!({"data": {"color": "blue"}}));
    maps.patch("one", &PatchParams::default(), &blue).await.unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut changed = String::new();
    while !changed.contains("MODIFIED") {
        changed = lines.next().expect("it goes on").unwrap();
    }
    assert!(changed.ends_with(r#"data.color "red" → "blue""#), "{changed}");
    following.kill().unwrap();
    following.wait().unwrap();

    let stopped = Command::new("kill")
        .arg(cluster.process.id().to_string())
        .status()
        .unwrap();
    assert!(stopped.success() && cluster.process.wait().unwrap().success());
    let about = |only: &str| {
        told(
            &folder,
            &["run.log", "--only", only, "--object", "configmaps default/one"],
        )
    };
    let of = |lines: Vec<String>| -> Vec<String> {
        let plain = lines
            .iter()
            .map(|line| line.split(" (").next().unwrap_or_default().to_owned());
        plain.collect()
    };
    let object = "configmaps default/one";
    assert_eq!(
        of(about("writes")),
        [format!("create {object} → 201"), format!("patch {object} → 200")]
    );
    assert_eq!(
        of(about("commits")),
        [format!("ADDED {object}"), format!("MODIFIED {object}")]
    );
    assert!(
        about("reads").is_empty() && about("events").is_empty(),
        "nobody read it"
    );
    let nobody = told(&folder, &["run.log", "--only", "writes", "--client", "nobody"]);
    assert!(nobody.is_empty(), "{nobody:?}");

    let Output { stdout, .. } = log(
        &folder,
        &["run.log", "--output", "json", "--only", "commits", "--object", object],
    );
    let last = String::from_utf8(stdout).unwrap().lines().last().unwrap().to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!(last["event"], "entry");
    assert_eq!(last["what"]["commit"]["object"]["data"]["color"], "blue", "{last}");
    assert_eq!(last["changes"], json!([r#"data.color "red" → "blue""#]), "{last}");
}

#[test]
fn what_is_no_log_is_said_to_be_none() {
    let place = tempfile::tempdir().unwrap();
    std::fs::write(place.path().join("pod.yaml"), "kind: Pod\n").unwrap();
    let check = |arguments: &[&str], words: &[&str]| {
        let Output { status, stdout, stderr } = Command::new(KUBEWRIGHT)
            .args(arguments)
            .current_dir(place.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&stderr);
        assert!(!status.success() && stdout.is_empty(), "{arguments:?}: {text}");
        for words in words {
            assert!(text.contains(words), "{words:?} is not in {text}");
        }
    };
    check(&["log", "none.log"], &["none.log", "No such file", "--log FILE"]);
    check(&["log", "."], &["cannot read the run log"]);
    check(&["log", "pod.yaml"], &["no run log"]);
    check(
        &["cluster", "--log", "pod.yaml"],
        &["no run log", "nothing has been started"],
    );
    assert_eq!(std::fs::read(place.path().join("pod.yaml")).unwrap(), b"kind: Pod\n");
}
