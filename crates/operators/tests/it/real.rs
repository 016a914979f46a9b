//! The real Ansible. `KUBEWRIGHT_ANSIBLE` names a virtual environment with ansible (for kubernetes.core), ansible-runner,
//! ansible-runner-http and kubernetes.

use std::fs;
use std::path::{Path, PathBuf};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kubewright::kube::Api;
use kubewright::kube::api::{Patch, PatchParams};
use serde_json::json;

use crate::support::{Job, Scene, until};

const TASKS: &str = r#"
- name: settings
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: ConfigMap
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      data: {nodes: "{{ node_count | string }}"}
- name: a password
  kubernetes.core.k8s:
    definition:
      apiVersion: v1
      kind: Secret
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      stringData: {password: "hunter2"}
  no_log: true
- name: servers
  kubernetes.core.k8s:
    wait: true
    definition:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "{{ ansible_operator_meta.name }}", namespace: "{{ ansible_operator_meta.namespace }}"}
      spec:
        replicas: "{{ node_count }}"
        selector: {matchLabels: {app: "{{ ansible_operator_meta.name }}"}}
        template:
          metadata: {labels: {app: "{{ ansible_operator_meta.name }}"}}
          spec: {containers: [{name: c, image: memcached}]}
- name: asked to fail
  ansible.builtin.fail: {msg: "there is no more room"}
  when: mode == 'fails'
- name: asked to wait
  ansible.builtin.command: sleep 600
  when: mode == 'waits'
"#;

/// A scene with the real runner.
async fn scene() -> Scene {
    let environment = std::env::var("KUBEWRIGHT_ANSIBLE").expect("KUBEWRIGHT_ANSIBLE names a virtual environment");
    let mut scene = Scene::new("").await;
    fs::write(scene.folder.path().join("roles/player/tasks/main.yml"), TASKS).unwrap();
    let set = [
        ("VIRTUAL_ENV", environment.clone()),
        ("ANSIBLE_GATHERING", "explicit".to_owned()),
    ];
    scene
        .options
        .environment
        .extend(set.map(|(name, value)| (name.to_owned(), value)));
    scene.options.runner = PathBuf::from(environment).join("bin/ansible-runner");
    scene.options.max_concurrent_reconciles = 2;
    scene
}

/// The process of the runner that works in a folder.
fn process(folder: &Path) -> Option<i32> {
    let folder = folder.display().to_string();
    let all = fs::read_dir("/proc")
        .ok()?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let mut ours = all.filter(|number| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        line.contains("ansible-runner") && line.contains(&folder)
    });
    ours.next()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Ansible: KUBEWRIGHT_ANSIBLE names a virtual environment with it"]
async fn a_role_makes_what_its_object_asks_for() {
    let scene = scene().await;
    let scene = Scene {
        cluster: scene.cluster.with_deadline(std::time::Duration::from_secs(240)),
        ..scene
    };
    let running = scene.run().await;
    scene.create("a", "well", &[]).await;
    scene.create("b", "fails", &[]).await;
    let job = scene.wait("a", "ran", |job| job.holds("Successful")).await;
    assert!(
        job.condition("Running")
            .ansible_result
            .is_some_and(|counts| counts.ok >= 3 && counts.failures == 0)
    );
    let failed = scene.wait("b", "failed", |job| job.holds("Failure")).await;
    assert_eq!(failed.condition("Failure").message, "there is no more room");
    assert!(
        failed
            .condition("Failure")
            .ansible_result
            .is_some_and(|counts| counts.failures == 1)
    );
    scene.api().delete("b", &Default::default()).await.unwrap();

    let namespace = Some(scene.namespace.as_str());
    let (maps, secrets) = (
        Api::<ConfigMap>::namespaced(scene.cluster.kube(), &scene.namespace),
        Api::<Secret>::namespaced(scene.cluster.kube(), &scene.namespace),
    );
    let owned = |owners: Option<Vec<_>>| owners.is_some_and(|owners: Vec<_>| owners.len() == 1);
    assert!(owned(maps.get("a").await.unwrap().metadata.owner_references));
    assert!(owned(secrets.get("a").await.unwrap().metadata.owner_references));
    let patch = json!({"spec": {"nodeCount": 2}});
    scene
        .api()
        .patch("a", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    let two = |deployment: &Deployment| deployment.status.as_ref().and_then(|status| status.ready_replicas) == Some(2);
    scene
        .cluster
        .wait_for::<Deployment>(namespace, "a", "has two replicas", two)
        .await
        .unwrap();
    scene.wait("a", "ran again", |job| job.holds("Successful")).await;
    let first = maps.get("a").await.unwrap().metadata.uid;
    maps.delete("a", &Default::default()).await.unwrap();
    let anew = move |map: &ConfigMap| map.metadata.uid != first;
    scene
        .cluster
        .wait_for::<ConfigMap>(namespace, "a", "was made anew", anew)
        .await
        .unwrap();
    scene.wait("a", "ran again", |job| job.holds("Successful")).await;
    let recorded = fs::read_to_string(scene.runs("a").join("artifacts/latest/stdout")).unwrap_or_default();
    assert!(
        !recorded.contains("hunter2") && !recorded.contains("aHVudGVyMg=="),
        "the output has the password"
    );

    scene.api().delete("a", &Default::default()).await.unwrap();
    scene.cluster.wait_gone::<Job>(namespace, "a").await.unwrap();
    scene.cluster.wait_gone::<Deployment>(namespace, "a").await.unwrap();
    scene.cluster.wait_gone::<ConfigMap>(namespace, "a").await.unwrap();
    scene.cluster.wait_gone::<Secret>(namespace, "a").await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Ansible: KUBEWRIGHT_ANSIBLE names a virtual environment with it"]
async fn a_runner_that_is_killed_fails_its_run_and_a_stop_ends_one() {
    let scene = scene().await;
    let scene = Scene {
        cluster: scene.cluster.with_deadline(std::time::Duration::from_secs(240)),
        ..scene
    };
    let running = scene.run().await;
    scene.create("a", "waits", &[]).await;
    let namespace = Some(scene.namespace.as_str());
    scene
        .cluster
        .wait_for::<Deployment>(namespace, "a", "is there", |_| true)
        .await
        .unwrap();
    let folder = scene.runs("a");
    let killed = process(&folder).expect("a runner");
    let pid = rustix::process::Pid::from_raw(killed).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let job = scene.wait("a", "failed", |job| job.holds("Failure")).await;
    assert!(
        job.condition("Failure").message.contains("killed by signal 9"),
        "{:?}",
        job.status
    );
    until("it is tried again", || {
        process(&folder).is_some_and(|next| next != killed)
    })
    .await;
    running.stop().await.unwrap();
    until("the run has ended with its operator", || process(&folder).is_none()).await;
}
