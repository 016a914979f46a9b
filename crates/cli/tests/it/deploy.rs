//! `install`, `deploy`, `build-installer` and back, against the embedded cluster.

use std::path::Path;
use std::process::Command;

use crate::support::project::deployable as project;
use crate::support::{KUBEWRIGHT, RunningCluster};
use kubewright::kube::Client;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

/// The output of the command (standard output, then standard error), and whether it succeeded.
fn run(project: &Path, cluster: Option<&RunningCluster>, arguments: &[&str]) -> (bool, String) {
    let mut command = Command::new(KUBEWRIGHT);
    command
        .args(arguments)
        .current_dir(project)
        .env("KUBECONFIG", "/nonexistent")
        .env_remove("IMG");
    if let Some(cluster) = cluster {
        command.env("KUBECONFIG", cluster.kubeconfig());
    }
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

/// Checks that the command succeeds or fails, and says the words.
fn check(project: &Path, cluster: Option<&RunningCluster>, arguments: &[&str], succeeds: bool, says: &[&str]) {
    let (succeeded, said) = run(project, cluster, arguments);
    assert_eq!(succeeded, succeeds, "{arguments:?} said:\n{said}");
    for words in says {
        assert!(
            said.contains(words),
            "{arguments:?} should say {words:?}, said:\n{said}"
        );
    }
}

fn guestbooks(client: &Client) -> Api<DynamicObject> {
    let resource = ApiResource {
        group: "webapp.my.domain".to_owned(),
        version: "v1".to_owned(),
        api_version: "webapp.my.domain/v1".to_owned(),
        kind: "Guestbook".to_owned(),
        plural: "guestbooks".to_owned(),
    };
    Api::default_namespaced_with(client.clone(), &resource)
}

#[test]
fn an_installer_is_one_file_and_no_other_file_changes() {
    let project = project(false);
    let kustomization = project.path().join("config/manager/kustomization.yaml");
    let before = std::fs::read_to_string(&kustomization).unwrap();
    let build = ["build-installer", "--image", "example.com/guestbook:v1"];
    check(
        project.path(),
        None,
        &build,
        true,
        &["create dist/install.yaml", "15 objects"],
    );
    check(project.path(), None, &build, true, &["nothing to change"]);
    let text = std::fs::read_to_string(project.path().join("dist/install.yaml")).unwrap();
    assert!(text.contains("image: example.com/guestbook:v1\n"), "{text}");
    assert!(
        text.contains("name: guestbook-controller-manager\n  namespace: guestbook-system\n"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&kustomization).unwrap(), before);

    std::fs::remove_file(project.path().join("config/rbac/role.yaml")).unwrap();
    check(
        project.path(),
        None,
        &build,
        false,
        &["KWR0602", "fix: kubewright manifests"],
    );
}

#[tokio::test]
async fn a_project_comes_and_goes_and_finalizers_are_kept() {
    let project = project(false);
    let project = project.path();
    let running = RunningCluster::start(&[]);
    let cluster = Some(&running);
    check(
        project,
        cluster,
        &["install"],
        true,
        &["guestbooks.webapp.my.domain created", "1 CRD is established"],
    );
    check(
        project,
        cluster,
        &["install"],
        true,
        &["guestbooks.webapp.my.domain unchanged"],
    );
    let doctor = ["doctor", "--no-build"];
    let (_, said) = run(project, cluster, &doctor);
    assert!(
        said.contains("definitions    1, installed as in config/crd/bases"),
        "{said}"
    );
    let definition = project.join("config/crd/bases/webapp.my.domain_guestbooks.yaml");
    let current = std::fs::read_to_string(&definition).unwrap();
    let newer = current.replace(
        r#""x-kubernetes-preserve-unknown-fields":true"#,
        r#""properties":{"spec":{"type":"object"}}"#,
    );
    assert_ne!(newer, current);
    std::fs::write(&definition, newer).unwrap();
    let (_, said) = run(project, cluster, &doctor);
    let stale = "the cluster's guestbooks.webapp.my.domain is not that of config/crd/bases: \
                 spec.versions[v1].schema.openAPIV3Schema.properties, \
                 spec.versions[v1].schema.openAPIV3Schema.x-kubernetes-preserve-unknown-fields [KWR0807]";
    assert!(said.contains(stale), "{said}");
    std::fs::write(&definition, current).unwrap();
    let deploy = ["deploy", "--image", "example.com/guestbook:v1"];
    check(
        project,
        cluster,
        &deploy,
        true,
        &[
            "image example.com/guestbook:v1",
            "nothing runs in them: this cluster simulates its nodes",
            "kubewright dev",
        ],
    );
    let (_, again) = run(project, cluster, &deploy);
    assert!(
        !again.contains("created") && !again.contains("configured"),
        "twice is once:\n{again}"
    );

    let guestbooks = guestbooks(&running.client().await);
    let guestbook: DynamicObject = serde_json::from_value::<DynamicObject>(json!({
        "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook",
        "metadata": {"name": "kept", "finalizers": ["my.domain/cleanup"]},
    }))
    .unwrap();
    guestbooks.create(&PostParams::default(), &guestbook).await.unwrap();
    let undeploy = ["undeploy", "--timeout", "1s"];
    check(
        project,
        cluster,
        &undeploy,
        false,
        &[
            "KWR0614",
            "default/kept (my.domain/cleanup)",
            "nothing else has been deleted",
        ],
    );
    check(project, cluster, &deploy, true, &["simulates its nodes"]);
    let none: Value = json!({"metadata": {"finalizers": null}});
    guestbooks
        .patch("kept", &PatchParams::default(), &Patch::Merge(&none))
        .await
        .unwrap();
    check(
        project,
        cluster,
        &["undeploy"],
        true,
        &["undeployed: 15 objects are gone"],
    );
    check(
        project,
        cluster,
        &["undeploy"],
        false,
        &["KWR0615", "15 of 15 objects were not there"],
    );
    check(project, cluster, &["undeploy", "--ignore-not-found=true"], true, &[]);
    check(project, cluster, &["uninstall", "--ignore-not-found"], true, &[]);
}

#[tokio::test]
async fn what_would_happen_is_told_and_does_not() {
    let project = project(false);
    let project = project.path();
    let running = RunningCluster::start(&[]);
    let cluster = Some(&running);
    let version = || async { running.client().await.list_api_groups().await.unwrap().groups.len() };
    let before = version().await;
    let check = |arguments: &[&str], succeeds: bool, says: &[&str]| check(project, cluster, arguments, succeeds, says);
    check(
        &["install", "--dry-run"],
        true,
        &[
            "guestbooks.webapp.my.domain would be created",
            "nothing was changed: 1 object to create",
        ],
    );
    check(&["deploy", "--dry-run"], true, &["15 objects to create, 0 to change"]);
    check(
        &["deploy", "--diff"],
        true,
        &[
            "+++ b/Deployment guestbook-system/guestbook-controller-manager",
            "+kind: Namespace",
        ],
    );
    check(&["undeploy", "--dry-run"], true, &["0 objects to delete, 15 not there"]);
    assert_eq!(version().await, before, "nothing was installed");

    check(&["deploy"], true, &["15 objects"]);
    check(
        &["deploy", "--dry-run"],
        true,
        &["0 objects to create, 0 to change, 15 as they should be"],
    );
    let image = ["deploy", "--image", "example.com/guestbook:v2"];
    check(
        &[&image[..], &["--dry-run"]].concat(),
        true,
        &[
            "0 objects to create, 1 to change",
            "guestbook-controller-manager would be configured",
        ],
    );
    check(
        &[&image[..], &["--diff"]].concat(),
        true,
        &["-        image: controller:latest\n+        image: example.com/guestbook:v2\n"],
    );
    let (_, said) = run(project, cluster, &[&image[..], &["--diff"]].concat());
    assert!(!said.contains("Namespace"), "what stays is not in the diff:\n{said}");

    let guestbooks = guestbooks(&running.client().await);
    let kept = json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": "kept"}});
    let kept: DynamicObject = serde_json::from_value(kept).unwrap();
    guestbooks.create(&PostParams::default(), &kept).await.unwrap();
    check(
        &["uninstall", "--dry-run"],
        true,
        &[
            "Guestbook default/kept would be deleted",
            "2 objects to delete, 0 not there",
        ],
    );
    check(
        &["undeploy", "--diff"],
        true,
        &["--- a/Guestbook default/kept", "16 objects to delete"],
    );
    check(&["undeploy", "--diff", "--dry-run"], false, &["cannot be used with"]);
    assert!(guestbooks.get_opt("kept").await.unwrap().is_some());
}

#[test]
fn what_is_missing_is_said_before_or_after() {
    let cluster = RunningCluster::start(&["--controllers", "none"]);
    let with_webhooks = project(true);
    check(
        with_webhooks.path(),
        Some(&cluster),
        &["deploy"],
        false,
        &[
            "KWR0611",
            "no kind Certificate in cert-manager.io/v1",
            "install cert-manager",
        ],
    );
    let plain = project(false);
    check(
        plain.path(),
        Some(&cluster),
        &["deploy", "--timeout", "1s"],
        false,
        &[
            "KWR0613",
            "Deployment guestbook-system/guestbook-controller-manager did not become ready in time",
            "it has no pods",
        ],
    );
    check(
        plain.path(),
        Some(&cluster),
        &["deploy", "--no-wait"],
        true,
        &["nothing was waited for"],
    );
    check(plain.path(), None, &["deploy"], false, &["KWR0801", "/nonexistent"]);
}
