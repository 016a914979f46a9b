//! Operators of roles and of charts: from an empty folder to an object that is there, wrong, right and gone, each command
//! typed.
//!
//! Ansible is played by a script that ends as a run does, or is the one of `KUBEWRIGHT_ANSIBLE`. Helm is Helm itself.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use kubewright::kube::Api;
use kubewright::kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::support::{KUBEWRIGHT, RunningCluster};

mod explored;
mod failures;

/// How long a state may take to be there.
const PATIENCE: Duration = Duration::from_secs(120);

/// Plays `ansible-runner`: a run fails while the role has a task that fails.
const PLAYER: &str = r#"#!/bin/sh
dir="$2"
while [ $# -gt 0 ]; do [ "$1" = -i ] && ident="$2"; shift; done
events="$dir/artifacts/$ident/job_events"
mkdir -p "$events"
failed=0
if grep -q builtin.fail roles/memcached/tasks/main.yml; then
  failed=1
  printf '{"uuid":"f","counter":1,"event":"runner_on_failed","event_data":{"task":"t","res":{"msg":"the disk is full"}}}' > "$events/1-f.json"
fi
printf '{"uuid":"s","counter":2,"event":"playbook_on_stats","created":"2026-01-01T00:00:00.000001+00:00","event_data":{"ok":{"localhost":1},"failures":{"localhost":%s}}}' "$failed" > "$events/2-s.json"
exit "$failed"
"#;

/// A project's folder, and the cluster of its commands.
struct Typist {
    cluster: RunningCluster,
    /// The project is in `project`.
    folder: tempfile::TempDir,
    environment: Vec<(&'static str, PathBuf)>,
}

impl Typist {
    fn new(environment: Vec<(&'static str, PathBuf)>) -> Typist {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("project")).unwrap();
        Typist {
            cluster: RunningCluster::start(&[]),
            folder,
            environment,
        }
    }

    fn project(&self) -> PathBuf {
        self.folder.path().join("project")
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(KUBEWRIGHT);
        command
            .args(line.split_whitespace())
            .current_dir(self.project())
            .env("KUBECONFIG", self.cluster.kubeconfig())
            .envs(self.environment.iter().cloned());
        command
    }

    /// Types a line that succeeds, and returns what it prints.
    fn types(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "kubewright {line}:\n{said}");
        said
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.project().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// The objects of the kind of a sample, and the sample.
    async fn sample(&self, file: &str, plural: &str) -> (Api<DynamicObject>, DynamicObject) {
        let text = fs::read_to_string(self.project().join("config/samples").join(file)).unwrap();
        let object: DynamicObject = serde_saphyr::from_str(&text).unwrap();
        let types = object.types.clone().unwrap();
        let (group, version) = types.api_version.split_once('/').unwrap();
        let resource = ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: types.api_version.clone(),
            kind: types.kind.clone(),
            plural: plural.to_owned(),
        };
        let client = self.cluster.client().await;
        (Api::default_namespaced_with(client, &resource), object)
    }
}

/// An operator that runs, and its lines.
struct Running {
    process: Child,
    lines: Receiver<String>,
}

impl Running {
    fn start(mut command: Command) -> Running {
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (send, lines) = channel();
        let out = BufReader::new(process.stdout.take().unwrap());
        let err = BufReader::new(process.stderr.take().unwrap());
        let sends = send.clone();
        // A test that failed reads no more.
        std::thread::spawn(move || {
            for line in out.lines().map_while(Result::ok) {
                let _ = sends.send(line);
            }
        });
        std::thread::spawn(move || {
            for line in err.lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Running { process, lines }
    }

    /// Ends it as a cluster does, and returns what it said.
    fn ends(mut self) -> String {
        let sent = Command::new("kill").arg(self.process.id().to_string()).status();
        assert!(sent.unwrap().success());
        let status = self.process.wait().unwrap();
        let said: Vec<String> = self.lines.iter().collect();
        let said = said.join("\n");
        assert!(status.success(), "{status}:\n{said}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Waits until an object, or its absence, is as it should be.
async fn until(api: &Api<DynamicObject>, name: &str, what: &str, holds: impl Fn(Option<&DynamicObject>) -> bool) {
    let end = Instant::now() + PATIENCE;
    loop {
        let object = api.get_opt(name).await.unwrap();
        if holds(object.as_ref()) {
            return;
        }
        assert!(Instant::now() < end, "{name} is not {what}: {object:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Whether a condition is true.
fn is(object: Option<&DynamicObject>, condition: &str) -> bool {
    let conditions = object.and_then(|object| object.data["status"]["conditions"].as_array());
    let mut all = conditions.into_iter().flatten();
    all.any(|entry| entry["type"] == condition && entry["status"] == "True")
}

fn executable(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Installs and runs an operator of Memcacheds, until its role was successful for the sample.
async fn runs_its_sample(typist: &Typist) -> (Running, Api<DynamicObject>) {
    typist.types("install");
    let run = "ansible-operator run --proxy-port 0 --metrics-bind-address 0 --health-probe-bind-address 0";
    let running = Running::start(typist.command(run));
    let (api, sample) = typist.sample("cache_v1alpha1_memcached.yaml", "memcacheds").await;
    api.create(&PostParams::default(), &sample).await.unwrap();
    until(&api, "memcached-sample", "successful", |object| {
        is(object, "Successful")
    })
    .await;
    (running, api)
}

#[tokio::test]
async fn a_role_from_an_empty_folder_to_an_object_that_is_gone() {
    let played = tempfile::tempdir().unwrap();
    let named = std::env::var_os("KUBEWRIGHT_ANSIBLE").map(PathBuf::from);
    let environment = named.clone().unwrap_or_else(|| played.path().to_owned());
    if named.is_none() {
        executable(&environment.join("bin/ansible-runner"), PLAYER);
    }
    let typist = Typist::new(vec![("VIRTUAL_ENV", environment)]);
    typist.types("init --plugins ansible --domain example.com --project-name memcached-operator");
    typist.types("create api --group cache --version v1alpha1 --kind Memcached --generate-role");
    let (running, api) = runs_its_sample(&typist).await;
    let tasks = "roles/memcached/tasks/main.yml";
    typist.write(tasks, "- ansible.builtin.fail: {msg: the disk is full}\n");
    let patch = Patch::Merge(json!({"spec": {"size": 2}}));
    api.patch("memcached-sample", &PatchParams::default(), &patch)
        .await
        .unwrap();
    until(&api, "memcached-sample", "failed", |object| {
        is(object, "Failure") && format!("{object:?}").contains("the disk is full")
    })
    .await;
    typist.write(tasks, "[]\n");
    until(&api, "memcached-sample", "successful again", |object| {
        is(object, "Successful") && !is(object, "Failure")
    })
    .await;
    api.delete("memcached-sample", &DeleteParams::default()).await.unwrap();
    until(&api, "memcached-sample", "gone", |object| object.is_none()).await;
    running.ends();

    // By force another way to run the kind takes the place of the first.
    typist.types("create api --group cache --version v1alpha1 --kind Memcached --generate-playbook --force");
    let watches = fs::read_to_string(typist.project().join("watches.yaml")).unwrap();
    assert!(
        watches.contains("playbook: playbooks/memcached.yml") && !watches.contains("role:"),
        "{watches}"
    );
}

#[test]
fn what_cannot_run_is_told_before_anything_runs() {
    let typist = Typist::new(vec![("VIRTUAL_ENV", PathBuf::from("/nonexistent"))]);
    let check = |line: &str, words: &[&str]| {
        let mut command = typist.command(line);
        command.env("PATH", "/nonexistent").env_remove("KUBEWRIGHT_HELM");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!output.status.success(), "kubewright {line}:\n{said}");
        for word in words {
            assert!(said.contains(word), "kubewright {line} should say {word:?}:\n{said}");
        }
    };
    check("ansible-operator run", &["watches.yaml"]);
    typist.write(
        "watches.yaml",
        "- group: a.example.com\n  version: v1\n  kind: A\n  role: a\n",
    );
    typist.write("roles/a/tasks/main.yml", "");
    check("ansible-operator run", &["ansible-runner"]);
    typist.write(
        "watches.yaml",
        "- group: a.example.com\n  version: v1\n  kind: A\n  chart: a\n",
    );
    typist.write("a/Chart.yaml", "apiVersion: v2\nname: a\nversion: 0.1.0\n");
    check("helm-operator run", &["elm"]);
}

/// Helm on this machine; says so when there is none.
fn helm() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::var_os("KUBEWRIGHT_HELM").map(PathBuf::from).or_else(|| {
        let mut folders = std::env::split_paths(&path);
        folders.find_map(|folder| Some(folder.join("helm")).filter(|helm| helm.is_file()))
    });
    if found.is_none() {
        eprintln!("NOT RUN: there is no Helm on this machine: install Helm 3 or 4, or name it in KUBEWRIGHT_HELM");
    }
    found
}

#[tokio::test]
async fn a_chart_from_an_empty_folder_to_a_release_that_is_gone() {
    let Some(helm) = helm() else { return };
    let typist = Typist::new(vec![("KUBEWRIGHT_HELM", helm)]);
    typist.write("../web/Chart.yaml", "apiVersion: v2\nname: web\nversion: 0.1.0\n");
    typist.write("../web/values.yaml", "words: hello\n");
    typist.write(
        "../web/templates/settings.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ .Release.Name }}}\ndata: {words: {{ required \"words are needed\" .Values.words | quote }}}\n",
    );
    typist.types("init --plugins helm --domain example.com --project-name web-operator");
    typist.types("create api --group demo --version v1alpha1 --kind Web --helm-chart ../web");
    typist.types("install");
    let running =
        Running::start(typist.command("helm-operator run --metrics-bind-address 0 --health-probe-bind-address 0"));

    let (api, sample) = typist.sample("demo_v1alpha1_web.yaml", "webs").await;
    api.create(&PostParams::default(), &sample).await.unwrap();
    until(&api, "web-sample", "deployed", |object| is(object, "Deployed")).await;
    let settings = Api::<DynamicObject>::default_namespaced_with(
        typist.cluster.client().await,
        &ApiResource::erase::<k8s_openapi::api::core::v1::ConfigMap>(&()),
    );
    let has = |words: &'static str| {
        move |object: Option<&DynamicObject>| object.is_some_and(|it| it.data["data"]["words"] == words)
    };
    until(&settings, "web-sample", "there", has("hello")).await;
    let merge = |words: &str| Patch::Merge(json!({"spec": {"words": words}}));
    api.patch("web-sample", &PatchParams::default(), &merge("bye"))
        .await
        .unwrap();
    until(&settings, "web-sample", "upgraded", has("bye")).await;
    api.patch("web-sample", &PatchParams::default(), &merge(""))
        .await
        .unwrap();
    until(&api, "web-sample", "told", |object| {
        format!("{object:?}").contains("words are needed")
    })
    .await;
    api.delete("web-sample", &DeleteParams::default()).await.unwrap();
    until(&api, "web-sample", "gone", |object| object.is_none()).await;
    until(&settings, "web-sample", "gone", |object| object.is_none()).await;
    running.ends();
}
