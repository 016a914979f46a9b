//! A kind, a program that plays `ansible-runner`, and an operator of both.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use kubewright::kube::core::ObjectMeta;
use kubewright::kube::{Api, CustomResource};
use kubewright_operators::ansible::{Options, operator};
use kubewright_testing::{RunningOperator, TestCluster};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the tests run for.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[kube(
    group = "test.example.com",
    version = "v1",
    kind = "Job",
    plural = "jobs",
    namespaced,
    status = "Status"
)]
#[serde(rename_all = "camelCase")]
pub struct JobSpec {
    /// What the player does.
    pub mode: String,
    #[serde(default)]
    pub node_count: u32,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
pub struct Status {
    #[serde(default)]
    pub conditions: Vec<Condition>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ansible_result: Option<Counts>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default)]
pub struct Counts {
    pub ok: u32,
    pub changed: u32,
    pub skipped: u32,
    pub failures: u32,
    pub completion: String,
}

impl Job {
    pub(crate) fn condition(&self, kind: &str) -> Condition {
        let mut conditions = self.status.iter().flat_map(|status| &status.conditions);
        conditions
            .find(|condition| condition.kind == kind)
            .cloned()
            .unwrap_or_default()
    }

    pub(crate) fn holds(&self, kind: &str) -> bool {
        self.condition(kind).status == "True"
    }
}

/// Plays `ansible-runner`: the mode of the object says how a run goes. It counts its runs in `runs`, and writes what it
/// was given to `given`, beside the artifacts.
const PLAYER: &str = r#"#!/bin/sh
dir="$2"
while [ $# -gt 0 ]; do [ "$1" = -i ] && ident="$2"; shift; done
events="$dir/artifacts/$ident/job_events"
mkdir -p "$events"
cp "$dir/env/extravars" "$dir/given"
printf '%s' "$ANSIBLE_ROLES_PATH" > "$dir/roles"
echo x >> "$dir/runs"
mode=$(sed -n 's/.*"mode":"\([a-z]*\)".*/\1/p' "$dir/given")
ends() {
  printf '{"uuid":"s","counter":9,"event":"playbook_on_stats","created":"2026-01-01T00:00:00.000001+00:00","event_data":{"ok":{"localhost":2},"changed":{"localhost":1},"failures":{"localhost":%s}}}' "$1" > "$events/9-s.json"
}
case "$mode" in
  fails)
    printf '{"uuid":"f","counter":8,"event":"runner_on_failed","event_data":{"task":"t","res":{"msg":"the disk is full"}}}' > "$events/8-f.json"
    ends 1
    exit 2 ;;
  killed) kill -9 $$ ;;
  silent) exit 0 ;;
  broken)
    echo 'ok: [localhost] => {"data": "c2VjcmV0"}'
    echo '[ERROR]: the role has a typing error'
    exit 4 ;;
  waits)
    rm -f "$dir/go"
    touch "$dir/waits"
    while [ ! -e "$dir/go" ]; do sleep 0.05; done
    rm -f "$dir/waits"
    ends 0 ;;
  *) ends 0 ;;
esac
"#;

/// A cluster with the kind, a namespace, and the folder of an operator.
pub(crate) struct Scene {
    pub cluster: TestCluster,
    pub namespace: String,
    pub folder: tempfile::TempDir,
    pub options: Options,
}

impl Scene {
    /// `more` is added to the entry of the kind in `watches.yaml`.
    pub(crate) async fn new(more: &str) -> Scene {
        let cluster = TestCluster::start().await.unwrap();
        cluster.install_crd::<Job>().await.unwrap();
        let namespace = cluster.namespace().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("roles/player/tasks")).unwrap();
        let player = folder.path().join("ansible-runner");
        fs::write(&player, PLAYER).unwrap();
        fs::set_permissions(&player, fs::Permissions::from_mode(0o755)).unwrap();
        let entry = format!("- group: test.example.com\n  version: v1\n  kind: Job\n  role: player\n{more}");
        fs::write(folder.path().join("watches.yaml"), entry).unwrap();
        let path = std::env::var("PATH").unwrap_or_default();
        let options = Options {
            runner: player,
            runs: folder.path().join("runs"),
            proxy_port: 0,
            metrics_port: None,
            max_concurrent_reconciles: 4,
            ..Options::new(folder.path(), BTreeMap::from([("PATH".to_owned(), path)]))
        };
        Scene {
            cluster,
            namespace,
            folder,
            options,
        }
    }

    pub(crate) async fn run(&self) -> RunningOperator {
        let operator = operator(self.options.clone()).await.unwrap();
        self.cluster.run_as_admin(operator).await.unwrap()
    }

    pub(crate) fn api(&self) -> Api<Job> {
        Api::namespaced(self.cluster.kube(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str, mode: &str, annotations: &[(&str, &str)]) {
        let spec = JobSpec {
            mode: mode.to_owned(),
            node_count: 1,
        };
        let mut job = Job::new(name, spec);
        let notes = annotations
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        job.metadata = ObjectMeta {
            annotations: Some(notes.collect()),
            ..job.metadata
        };
        self.api().create(&Default::default(), &job).await.unwrap();
    }

    pub(crate) async fn wait(&self, name: &str, what: &str, holds: impl Fn(&Job) -> bool + Send + Sync) -> Job {
        let found = self.cluster.wait_for::<Job>(&self.namespace, name, what, holds).await;
        (*found.unwrap()).clone()
    }

    /// The folder of an object's runs.
    pub(crate) fn runs(&self, name: &str) -> PathBuf {
        self.options
            .runs
            .join("test.example.com/v1/Job")
            .join(&self.namespace)
            .join(name)
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        fs::read_to_string(self.runs(name).join("runs"))
            .unwrap_or_default()
            .lines()
            .count()
    }
}

/// Waits until a file says so, or another state of this machine is there.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let waited = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    assert!(waited.is_ok(), "in a minute not: {what}");
}

/// The JSON of a file; null while it is being written.
pub(crate) fn json(path: &Path) -> serde_json::Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap_or_default()
}
