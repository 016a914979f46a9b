//! `install`, `deploy`, `build-installer` and back, against the embedded cluster.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::path::Path;
use std::process::Command;

use kubewright::kube::Client;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kubewright_codegen::project::{Project, Resource, Webhooks};
use kubewright_codegen::{MemoryFiles, Plan, config};
use serde_json::{Value, json};
use support::{KUBEWRIGHT, RunningCluster};

/// A project on disk whose generated files are there, as after `kubewright manifests`.
fn project(webhooks: bool) -> tempfile::TempDir {
    let mut project = Project::new("guestbook", "my.domain");
    let mut resource = Resource::own("webapp", "my.domain", "v1", "Guestbook", true);
    resource.webhooks = webhooks.then(|| Webhooks {
        validation: true,
        ..Webhooks::default()
    });
    project.resources.push(resource);
    let nothing = MemoryFiles::default();
    let mut plan = Plan::new(&nothing);
    config::sync(None, &project, &mut plan).unwrap();
    let mut files = MemoryFiles::default();
    files.apply(&plan);
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "guestbooks.webapp.my.domain"},
        "spec": {
            "group": "webapp.my.domain", "scope": "Namespaced",
            "names": {"kind": "Guestbook", "listKind": "GuestbookList", "plural": "guestbooks", "singular": "guestbook"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "manager-role"},
        "rules": [{"apiGroups": ["webapp.my.domain"], "resources": ["guestbooks"], "verbs": ["get", "list", "watch"]}],
    });
    let webhook = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "validating-webhook-configuration"}, "webhooks": [],
    });
    for (path, text) in [
        ("PROJECT", project.to_text()),
        ("Cargo.toml", "[package]\nname = \"guestbook\"\n".to_owned()),
        ("config/crd/bases/webapp.my.domain_guestbooks.yaml", crd.to_string()),
        ("config/rbac/role.yaml", role.to_string()),
        ("config/webhook/manifests.yaml", webhook.to_string()),
    ] {
        files.0.insert(path.to_owned(), text);
    }
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in &files.0 {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// What the command said (standard output, then standard error), and whether it succeeded.
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
        &["guestbooks.webapp.my.domain created", "1 CRDs are established"],
    );
    check(
        project,
        cluster,
        &["install"],
        true,
        &["guestbooks.webapp.my.domain unchanged"],
    );
    let deploy = ["deploy", "--image", "example.com/guestbook:v1"];
    check(
        project,
        cluster,
        &deploy,
        true,
        &["image example.com/guestbook:v1", "the operator is available"],
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
    check(project, cluster, &deploy, true, &["the operator is available"]);
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
