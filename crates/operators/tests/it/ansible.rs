//! Runs: how they begin, how they end, what is said of them. The runner is a player of ours; with
//! `KUBEWRIGHT_ANSIBLE`, a virtual environment with ansible-core, ansible-runner and kubernetes.core, it is the real one.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use kubewright::kube::api::{Patch, PatchParams};
use kubewright_operators::ansible::operator;
use serde_json::json;

use crate::killed::Killed;
use crate::support::{Counts, Job, Scene, json as read, until};

#[tokio::test]
async fn an_object_leads_to_a_run_and_its_end_is_told() {
    let scene = Scene::new("").await;
    let running = scene.run().await;
    scene.create("a", "well", &[]).await;
    let job = scene.wait("a", "ran", |job| job.holds("Successful")).await;
    let awaits = job.condition("Running");
    assert_eq!((awaits.status.as_str(), awaits.reason.as_str()), ("True", "Successful"));
    assert_eq!(awaits.message, "Awaiting next reconciliation");
    let counts = Counts {
        ok: 2,
        changed: 1,
        completion: "2026-01-01T00:00:00.000001+00:00".to_owned(),
        ..Counts::default()
    };
    assert_eq!(awaits.ansible_result, Some(counts));
    assert_eq!(job.condition("Failure").status, "False");
    let folder = scene.runs("a");
    let given = read(&folder.join("given"));
    assert_eq!(given["node_count"], 1);
    assert_eq!(
        given["ansible_operator_meta"],
        json!({"name": "a", "namespace": scene.namespace})
    );
    assert_eq!(given["_test_example_com_job"]["metadata"]["name"], "a");
    assert_eq!(given["_test_example_com_job_spec"]["nodeCount"], 1);
    until("the last run is marked", || folder.join("artifacts/latest").exists()).await;
    assert!(
        !folder.join("env").exists(),
        "the variables of a run that has ended are still there"
    );
    assert_eq!(fs::metadata(&folder).unwrap().mode() & 0o777, 0o700);

    let patch = json!({"spec": {"nodeCount": 2}});
    scene
        .api()
        .patch("a", &PatchParams::default(), &Patch::Merge(patch))
        .await
        .unwrap();
    until("a change of the spec leads to a run", || {
        folder.join("given").exists() && read(&folder.join("given"))["node_count"] == 2
    })
    .await;
    scene.api().delete("a", &Default::default()).await.unwrap();
    until("nothing is left of it", || !folder.exists()).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_run_that_fails_says_why() {
    let scene = Scene::new("").await;
    let running = scene.run().await;
    for (name, expected) in [
        ("fails", "the disk is full"),
        (
            "killed",
            "ansible-runner was killed by signal 9 before its playbook had ended",
        ),
        (
            "silent",
            "ansible-runner ended with status 0 before its playbook had ended",
        ),
        (
            "broken",
            "ansible-runner ended with status 4 before its playbook had ended\n[ERROR]: the role has a typing error",
        ),
    ] {
        scene.create(name, name, &[]).await;
        let job = scene.wait(name, "failed", |job| job.holds("Failure")).await;
        let failure = job.condition("Failure");
        assert_eq!(
            (failure.reason.as_str(), failure.message.as_str()),
            ("Failed", expected)
        );
        assert!(!job.holds("Successful"));
        until("it is tried again", || scene.count(name) > 1).await;
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn without_the_program_nothing_starts_and_later_the_object_says_so() {
    let mut scene = Scene::new("").await;
    let player = std::mem::replace(
        &mut scene.options.runner,
        scene.folder.path().join("nowhere/ansible-runner"),
    );
    let refused = operator(scene.options.clone()).await.err().unwrap().to_string();
    assert!(
        refused.contains("there is no program") && refused.contains("pip"),
        "{refused}"
    );
    scene.options.runner = player.clone();
    let running = scene.run().await;
    let fails = async |name: &str, words: [&str; 2]| {
        scene.create(name, "well", &[]).await;
        let job = scene.wait(name, "failed", |job| job.holds("Failure")).await;
        let message = job.condition("Failure").message;
        assert!(words.iter().all(|word| message.contains(word)), "{message}");
    };
    let script = fs::read_to_string(&player)
        .unwrap()
        .replace("#!/bin/sh", "#!/nowhere/python3");
    fs::write(&player, script).unwrap();
    fails(
        "a",
        ["interpreter \"/nowhere/python3\" is not there", "install --force"],
    )
    .await;
    fs::remove_file(player).unwrap();
    fails("b", ["there is no program", "pip"]).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn without_a_period_no_run_is_due() {
    let mut scene = Scene::new("").await;
    scene.options.reconcile_period = std::time::Duration::ZERO;
    scene.options.max_concurrent_reconciles = 1; // what is due runs before what comes later
    let running = scene.run().await;
    let never = ("ansible.sdk.operatorframework.io/reconcile-period", "0s");
    for (name, annotations) in [("flag", &[][..]), ("annotation", &[never][..]), ("later", &[][..])] {
        scene.create(name, "well", annotations).await;
        scene.wait(name, "ran", |job| job.holds("Successful")).await;
    }
    assert_eq!((scene.count("flag"), scene.count("annotation")), (1, 1));
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_playbook_finds_the_roles_of_its_project() {
    let mut scene = Scene::new("").await;
    let folder = scene.folder.path().to_owned();
    fs::write(folder.join("play.yml"), "- {hosts: localhost, roles: [player]}").unwrap();
    let watches = "- {group: test.example.com, version: v1, kind: Job, playbook: play.yml}";
    fs::write(folder.join("watches.yaml"), watches).unwrap();
    let own = folder.join("roles").display().to_string();
    for (name, said, expected) in [("a", None, own.as_str()), ("b", Some("/elsewhere"), "/elsewhere")] {
        scene.options.roles_path = said.map(str::to_owned);
        let running = scene.run().await;
        scene.create(name, "well", &[]).await;
        scene.wait(name, "ran", |job| job.holds("Successful")).await;
        let given = fs::read_to_string(scene.runs(name).join("roles")).unwrap();
        assert_eq!(given.split(':').next(), Some(expected));
        running.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_finalizer_runs_before_its_object_goes() {
    let finalizer = "  finalizer:\n    name: test.example.com/finalizer\n    vars: {state: absent}\n";
    let scene = Scene::new(finalizer).await;
    let running = scene.run().await;
    scene.create("a", "waits", &[]).await;
    let folder = scene.runs("a");
    until("it runs", || folder.join("waits").exists()).await;
    assert_eq!(read(&folder.join("given")).get("state"), None);
    fs::write(folder.join("go"), "").unwrap();
    let job = scene.wait("a", "ran", |job| job.holds("Successful")).await;
    assert_eq!(
        job.metadata.finalizers,
        Some(vec!["test.example.com/finalizer".to_owned()])
    );
    scene.api().delete("a", &Default::default()).await.unwrap();
    until("the finalizer runs", || folder.join("waits").exists()).await;
    assert_eq!(read(&folder.join("given"))["state"], "absent");
    assert!(
        scene.api().get_opt("a").await.unwrap().is_some(),
        "it went before its finalizer had run"
    );
    fs::write(folder.join("go"), "").unwrap();
    scene.cluster.wait_gone::<Job>(&scene.namespace, "a").await.unwrap();
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_object_may_say_when_it_runs_again() {
    let scene = Scene::new("").await;
    let running = scene.run().await;
    let period = "ansible.sdk.operatorframework.io/reconcile-period";
    scene.create("often", "well", &[(period, "100ms")]).await;
    until("it runs again and again", || scene.count("often") > 2).await;
    scene.create("wrong", "well", &[(period, "soon")]).await;
    let job = scene.wait("wrong", "failed", |job| job.holds("Failure")).await;
    assert!(job.condition("Failure").message.contains("\"soon\" is no duration"));
    assert_eq!(scene.count("wrong"), 0);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_stop_ends_the_run_and_the_next_operator_runs_it_again() {
    let scene = Scene::new("").await;
    let running = scene.run().await;
    scene.create("a", "waits", &[]).await;
    let folder = scene.runs("a");
    until("it runs", || folder.join("waits").exists()).await;
    running.stop().await.unwrap();
    assert!(!folder.join("env").exists(), "what the run was given is still there");
    fs::remove_file(folder.join("waits")).unwrap();
    let running = scene.run().await;
    until("it runs again", || folder.join("waits").exists()).await;
    fs::write(folder.join("go"), "").unwrap();
    scene.wait("a", "ran", |job| job.holds("Successful")).await;
    running.stop().await.unwrap();
}

#[tokio::test]
async fn many_objects_at_once_all_run() {
    let scene = Scene::new("").await;
    let running = scene.run().await;
    for number in 0..50 {
        scene.create(&format!("a{number}"), "well", &[]).await;
    }
    for number in 0..50 {
        scene
            .wait(&format!("a{number}"), "ran", |job| job.holds("Successful"))
            .await;
    }
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_kind_may_come_later_than_its_operator() {
    let mut scene = Scene::new("").await;
    let text = "- {group: test.example.com, version: v1, kind: Job, role: player}\n- {group: later.example.com, version: v1, kind: Late, role: player}\n";
    fs::write(scene.folder.path().join("watches.yaml"), text).unwrap();
    scene.options.name = "two".to_owned();
    let running = scene.run().await;
    scene.create("a", "well", &[]).await;
    scene.wait("a", "ran", |job| job.holds("Successful")).await;
    running.stop().await.unwrap();
}

/// The life of an object whose operator is gone after so many of its writes, and is started anew. How many writes the
/// two sent.
async fn lives(dies_after: usize) -> usize {
    let finalizer = "  finalizer:\n    name: test.example.com/finalizer\n    vars: {state: absent}\n";
    let scene = Scene::new(finalizer).await;
    let killed = Killed::after(&scene.cluster, dies_after, |call| call.group == "test.example.com");
    let first = scene.run().await;
    let life = async {
        scene.create("a", "well", &[]).await;
        scene.wait("a", "ran", |job| job.holds("Successful")).await;
        let patch = Patch::Merge(json!({"spec": {"nodeCount": 2}}));
        let params = PatchParams::default();
        scene.api().patch("a", &params, &patch).await.unwrap();
        let folder = scene.runs("a");
        until("a change of the spec leads to a run", || {
            fs::read_to_string(folder.join("given")).is_ok_and(|given| given.contains("\"node_count\":2"))
        })
        .await;
        scene.wait("a", "ran again", |job| job.holds("Successful")).await;
        scene.api().delete("a", &Default::default()).await.unwrap();
        let gone = scene.cluster.wait_gone::<Job>(&scene.namespace, "a").await;
        gone.unwrap();
        until("nothing is left of it", || !folder.exists()).await;
    };
    killed.succeeded(first, scene.run(), life).await
}

#[tokio::test]
async fn an_operator_may_be_killed_after_each_of_its_writes() {
    let writes = lives(usize::MAX).await;
    assert!(writes >= 6, "statuses and a finalizer are written: {writes}");
    for dies_after in 1..=writes {
        lives(dies_after).await;
    }
}
