//! What goes wrong: Helm is missing, a chart does not render, an upgrade is refused, and nobody learns a secret of it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kubewright_operators::helm::{Helm, Options, operator};
use serde_json::json;
use tempfile::TempDir;

use super::charts;
use super::kit::{World, real_helm};
use crate::killed::Killed;

/// A program that plays Helm: it writes down how it was called, and then does as `script` says.
fn fake(script: &str) -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("helm");
    let calls = folder.path().join("calls").display().to_string();
    let text = format!(
        "#!/bin/sh\ncase \"$1\" in version) echo v3.19.0; exit 0;; esac\n{{ echo \"$@\"; env; }} >> {calls}\n{script}\n"
    );
    fs::write(&program, text).expect("a file");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may run");
    (folder, program)
}

#[tokio::test]
async fn a_program_that_is_not_helm_is_named() {
    let check = async |script: &str, expected: &str| {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("helm");
        fs::write(&program, script).expect("a file");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("it may run");
        let why = Helm::at(program.clone(), None)
            .await
            .expect_err("it is not Helm")
            .to_string();
        assert!(
            why.contains(expected) && why.contains(&program.display().to_string()),
            "{why}"
        );
    };
    check("#!/bin/sh\necho v2.17.0\n", "Helm 3 or 4 is needed").await;
    check("#!/bin/sh\necho hello\n", "its version is \"hello\"").await;
    check("#!/bin/sh\necho 'Error: no' >&2; exit 1\n", "no").await;
    let why = Helm::at("/nowhere/helm".into(), None)
        .await
        .expect_err("there is none")
        .to_string();
    assert!(why.contains("/nowhere/helm"), "{why}");
}

#[tokio::test]
async fn a_watches_file_that_is_wrong_is_refused_with_its_place() {
    let (_folder, program) = fake("exit 1");
    let helm = Arc::new(Helm::at(program, None).await.expect("it says its version"));
    let chart = charts::write(charts::WEB);
    let check = async |rest: &str, expected: &str| {
        let file = chart.path().join("watches.yaml");
        let text = format!(
            "- version: v1\n  kind: A\n  {}\n",
            rest.replace("CHART", &chart.path().display().to_string())
        );
        fs::write(&file, text).expect("a file");
        let why = operator(&file, helm.clone(), Options::default(), |_| None).await;
        let why = why.expect_err(rest).to_string();
        assert!(why.contains(expected), "{rest}: {why}");
    };
    check("group: g", "watches.yaml:1: an entry needs a chart").await;
    check("chart: /nowhere", "watches.yaml:3: /nowhere cannot be read").await;
    check("chart: /", "watches.yaml:3: / is no chart").await;
    check(
        "chart: CHART\n  maxConcurrentReconciles: 0",
        "watches.yaml:4: maxConcurrentReconciles is a number from 1",
    )
    .await;
    check(
        "chart: CHART\n  dryRunOption: maybe",
        "watches.yaml:4: dryRunOption is client or server",
    )
    .await;
    check(
        "chart: CHART\n  overrideValues: {a: 1}",
        "watches.yaml:4: overrideValues a: it is a text",
    )
    .await;
    check(
        "chart: CHART\n  overrideValues:\n    'a[x]': y",
        "watches.yaml:4: overrideValues a[x]",
    )
    .await;
    check(
        "chart: CHART\n  overrideValues: [a]",
        "watches.yaml:4: overrideValues is a map",
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_learns_a_secret_of_the_values() {
    let (folder, program) = fake("said=$(cat); echo \"Error: INSTALLATION FAILED: cannot use $said\" >&2; exit 1");
    let world = World::new(program).await;
    let (_chart, _running) = world.sites(charts::WEB).await;
    world
        .create(
            "shop",
            json!({}),
            json!({"password": "hunter2hunter2", "image": {"tag": "visible"}}),
        )
        .await;
    let site = world.condition("shop", "ReleaseFailed", "True InstallError").await;
    let message = site.message("ReleaseFailed");
    assert!(
        message.contains("visible") && message.contains("\"password\":\"****\""),
        "{message}"
    );
    assert!(!message.contains("hunter2"), "{message}");
    let calls = fs::read_to_string(folder.path().join("calls")).expect("it was called");
    assert!(
        calls.contains("install shop") && calls.contains("--values -"),
        "{calls}"
    );
    assert!(!calls.contains("hunter2"), "{calls}");
    // Nor does Helm see the settings of the user who runs the operator.
    assert!(
        calls.contains("HELM_CACHE_HOME=") && calls.contains("HELM_DRIVER=secret"),
        "{calls}"
    );
    assert!(!calls.contains("CARGO"), "{calls}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chart_that_does_not_render_is_told_and_tried_again() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let (_chart, _running) = world.sites(charts::STRICT).await;
    world.create("a", json!({}), json!({"text": "broken"})).await;
    let site = world.condition("a", "ReleaseFailed", "True InstallError").await;
    assert!(
        site.message("ReleaseFailed").contains("it is broken"),
        "{}",
        site.message("ReleaseFailed")
    );
    assert_eq!(
        (site.condition("Deployed"), world.revisions("a").await),
        (String::new(), String::new())
    );
    // Values that the chart's schema refuses.
    world.create("b", json!({}), json!({"count": 0})).await;
    let site = world.condition("b", "ReleaseFailed", "True InstallError").await;
    assert!(
        site.message("ReleaseFailed").contains("count"),
        "{}",
        site.message("ReleaseFailed")
    );
    world.change("a", json!({"text": "right"})).await;
    let site = world.condition("a", "Deployed", "True InstallSuccessful").await;
    assert_eq!(site.condition("ReleaseFailed"), "");
    // Of a deployed release it is the comparison that fails; the release stays.
    world.change("a", json!({"text": "broken"})).await;
    let site = world.condition("a", "Irreconcilable", "True ReconcileError").await;
    assert_eq!(site.condition("Deployed"), "True InstallSuccessful");
    world.change("a", json!({"text": "right"})).await;
    world.condition("a", "Irreconcilable", "").await;
    assert_eq!(world.revisions("a").await, "1 deployed");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_that_is_refused_is_rolled_back() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let (_chart, _running) = world.sites(charts::WEB).await;
    world
        .create(
            "shop",
            json!({"helm.sdk.operatorframework.io/rollback-force": "false"}),
            json!({"replicas": 2}),
        )
        .await;
    world.condition("shop", "Deployed", "True InstallSuccessful").await;
    world
        .change("shop", json!({"replicas": -1, "image": {"tag": "2"}}))
        .await;
    let site = world.condition("shop", "ReleaseFailed", "True UpgradeError").await;
    assert!(
        site.message("ReleaseFailed").contains("failed to upgrade release"),
        "{}",
        site.message("ReleaseFailed")
    );
    let last = |revisions: &str| revisions.rsplit(", ").next().map(|last| last.ends_with("deployed"));
    assert_eq!(
        last(&world.revisions("shop").await),
        Some(true),
        "the one before is restored"
    );
    world.change("shop", json!({"replicas": 4})).await;
    let site = world.condition("shop", "ReleaseFailed", "").await;
    assert_eq!(site.condition("Deployed"), "True UpgradeSuccessful");
    let deployment = world.api::<Deployment>().get("shop").await.expect("it is there");
    assert_eq!(deployment.spec.and_then(|spec| spec.replicas), Some(4));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hook_that_fails_is_told_and_the_release_comes_right() {
    let Some(helm) = real_helm() else { return };
    let world = World::new(helm).await;
    let (_chart, _running) = world.sites(charts::FAILING).await;
    world.create("a", json!({}), json!({"text": "broken"})).await;
    let site = world.condition("a", "ReleaseFailed", "True InstallError").await;
    let message = site.message("ReleaseFailed");
    assert!(message.contains("IT-CANNOT-BE"), "{message}");
    world.change("a", json!({"text": "right"})).await;
    let site = world.condition("a", "ReleaseFailed", "").await;
    assert!(
        site.condition("Deployed").starts_with("True "),
        "{}",
        site.condition("Deployed")
    );
    // Of a release that is deployed: it goes back to what it was.
    world.change("a", json!({"text": "broken"})).await;
    world.condition("a", "ReleaseFailed", "True UpgradeError").await;
    let map = world.api::<k8s_openapi::api::core::v1::ConfigMap>().get("a").await;
    let text = map.expect("it is there").data.unwrap_or_default().remove("text");
    assert_eq!(text.as_deref(), Some("right"), "the one before is restored");
    world.change("a", json!({"text": "better"})).await;
    world.condition("a", "ReleaseFailed", "").await;
    let namespace = Some(world.namespace.as_str());
    world.delete("a").await;
    let gone = world.cluster.wait_gone::<super::kit::Site>(namespace, "a").await;
    gone.expect("it is gone");
}

/// The life of a release whose operator is gone after so many of its writes. How many writes there were.
async fn lives(helm: PathBuf, dies_after: usize) -> usize {
    let world = World::new(helm).await;
    let killed = Killed::after(&world.cluster, dies_after, |call| call.group == "demo.example.com");
    let chart = charts::write(charts::STRICT);
    let watches = "- {group: demo.example.com, version: v1alpha1, kind: Site, chart: CHART}\n";
    let first = world.run(watches, &chart).await;
    let successor = world.run(watches, &chart);
    let life = async {
        world.create("a", json!({}), json!({"text": "one"})).await;
        world.condition("a", "Deployed", "True InstallSuccessful").await;
        world.change("a", json!({"text": "two"})).await;
        let settings = |map: &k8s_openapi::api::core::v1::ConfigMap| {
            map.data
                .as_ref()
                .is_some_and(|data| data.get("text").is_some_and(|text| text == "two"))
        };
        let namespace = Some(world.namespace.as_str());
        let upgraded =
            world
                .cluster
                .wait_for::<k8s_openapi::api::core::v1::ConfigMap>(namespace, "a", "is upgraded", settings);
        upgraded.await.expect("it is upgraded");
        world.delete("a").await;
        let gone = world.cluster.wait_gone::<super::kit::Site>(namespace, "a").await;
        gone.expect("it is gone");
        assert_eq!(world.revisions("a").await, "", "the release is uninstalled");
    };
    killed.succeeded(first, successor, life).await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operator_may_be_killed_after_each_of_its_writes() {
    let Some(helm) = real_helm() else { return };
    let writes = lives(helm.clone(), usize::MAX).await;
    assert!(writes >= 4, "statuses and a finalizer are written: {writes}");
    for dies_after in 1..=writes {
        lives(helm.clone(), dies_after).await;
    }
}
