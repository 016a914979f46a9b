//! `install`, `deploy`, `build-installer` and back, against the embedded cluster.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use crate::support::project::deployable as project;
use crate::support::{KUBEWRIGHT, RunningCluster};
use k8s_openapi::api::core::v1::Namespace;
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
    let undeploy = ["undeploy", "--yes", "--timeout", "1s"];
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
        &["undeploy", "--yes"],
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
fn webhooks_need_nothing_that_is_not_in_the_cluster() {
    let cluster = RunningCluster::start(&[]);
    let project = project(true);
    check(
        project.path(),
        Some(&cluster),
        &["deploy"],
        true,
        &[
            "ValidatingWebhookConfiguration guestbook-validating-webhook-configuration created",
            "the pods are ready",
        ],
    );
}

#[test]
fn what_is_missing_is_said_before_or_after() {
    let cluster = RunningCluster::start(&["--controllers", "none"]);
    let with_webhooks = project(true);
    let path = with_webhooks.path().join("config/default/kustomization.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let text = text.replace("\n- ../certificates\n", "\n#- ../certificates\n");
    std::fs::write(&path, text.replace("#- ../certmanager\n", "- ../certmanager\n")).unwrap();
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
        &["it was not waited for"],
    );
    check(plain.path(), None, &["deploy"], false, &["KWR0801", "/nonexistent"]);
}

/// The namespace of the operator, with these labels.
async fn namespace(client: &Client, name: &str, labels: Value) {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = json!({"metadata": {"name": name, "labels": labels}});
    let namespace = serde_json::from_value(namespace).unwrap();
    namespaces.create(&PostParams::default(), &namespace).await.unwrap();
}

async fn labels(client: &Client, name: &str) -> Option<BTreeMap<String, String>> {
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let found = namespaces.get_opt(name).await.unwrap()?;
    Some(found.metadata.labels.unwrap_or_default())
}

/// The project with its operator in another namespace.
fn project_in(namespace: &str) -> tempfile::TempDir {
    let project = project(false);
    let path = project.path().join("config/default/kustomization.yaml");
    let text = std::fs::read_to_string(&path).unwrap();
    let ours = "namespace: guestbook-system\n";
    assert!(text.contains(ours), "{text}");
    std::fs::write(&path, text.replace(ours, &format!("namespace: {namespace}\n"))).unwrap();
    project
}

#[tokio::test]
async fn namespaces_of_others_are_left_alone() {
    let running = RunningCluster::start(&[]);
    let cluster = Some(&running);
    let client = running.client().await;
    // Of Kubernetes, or everybody's: never, whatever labels they have.
    for system in ["kube-system", "kube-public", "kube-mine", "default"] {
        let before = labels(&client, system).await;
        let project = project_in(system);
        for arguments in [&["deploy"][..], &["deploy", "--dry-run"], &["deploy", "--diff"]] {
            let says = ["KWR0617", &format!("Namespace {system}"), "nothing was changed"];
            check(project.path(), cluster, arguments, false, &says);
        }
        let (_, said) = run(project.path(), cluster, &["undeploy", "--yes", "--ignore-not-found"]);
        assert!(!said.contains(&format!("Namespace {system} deleted")), "{said}");
        assert_eq!(labels(&client, system).await, before);
    }
    // Of somebody else, who was there first.
    namespace(
        &client,
        "guestbook-system",
        json!({"team": "others", "app.kubernetes.io/name": "ledger"}),
    )
    .await;
    let before = labels(&client, "guestbook-system").await;
    let project = project(false);
    let project = project.path();
    for arguments in [
        &["deploy"][..],
        &["deploy", "--dry-run"],
        &["deploy", "--force-conflicts"],
    ] {
        check(
            project,
            cluster,
            arguments,
            false,
            &[
                "KWR0617",
                "Namespace guestbook-system",
                "app.kubernetes.io/name is ledger",
                "kubectl label namespace guestbook-system app.kubernetes.io/name=guestbook",
            ],
        );
    }
    assert_eq!(labels(&client, "guestbook-system").await, before);
}

#[tokio::test]
async fn a_namespace_that_was_taken_over_stays_when_the_operator_goes() {
    let running = RunningCluster::start(&[]);
    let cluster = Some(&running);
    let client = running.client().await;
    let project = project(false);
    check(
        project.path(),
        cluster,
        &["deploy"],
        true,
        &["Namespace guestbook-system created"],
    );
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let taken = json!({"metadata": {"labels": {"app.kubernetes.io/name": "ledger"}}});
    namespaces
        .patch("guestbook-system", &PatchParams::default(), &Patch::Merge(&taken))
        .await
        .unwrap();
    for arguments in [&["undeploy", "--dry-run"][..], &["undeploy", "--yes"]] {
        check(
            project.path(),
            cluster,
            arguments,
            true,
            &["Namespace guestbook-system stays", "ledger"],
        );
    }
    let left = namespaces.get("guestbook-system").await.unwrap();
    assert_eq!(left.metadata.deletion_timestamp, None);
    let (_, said) = run(project.path(), cluster, &["undeploy", "--dry-run"]);
    assert!(said.contains("0 objects to delete"), "everything else is gone:\n{said}");
}

#[tokio::test]
async fn what_deletes_shows_what_goes_and_wants_a_word() {
    let project = project(false);
    let project = project.path();
    let running = RunningCluster::start(&[]);
    let cluster = Some(&running);
    check(project, cluster, &["deploy"], true, &[]);
    let guestbooks = guestbooks(&running.client().await);
    for name in ["one", "two"] {
        let guestbook = json!({"apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": name}});
        let guestbook = serde_json::from_value(guestbook).unwrap();
        guestbooks.create(&PostParams::default(), &guestbook).await.unwrap();
    }
    for command in ["uninstall", "undeploy"] {
        let says = [
            "KWR0618",
            "      2 Guestbook",
            "      1 CustomResourceDefinition",
            "--yes",
        ];
        check(project, cluster, &[command], false, &says);
        check(
            project,
            cluster,
            &[command, "--output", "json"],
            false,
            &[r#""event":"goes""#, r#""count":2"#],
        );
    }
    // Nothing went, and no file of the project was asked to.
    assert_eq!(guestbooks.list(&Default::default()).await.unwrap().items.len(), 2);
    check(
        project,
        cluster,
        &["uninstall", "--yes"],
        true,
        &["uninstalled: 1 CRD is gone"],
    );
    check(
        project,
        cluster,
        &["undeploy", "--yes", "--ignore-not-found"],
        true,
        &["undeployed"],
    );
    // What is not there needs no word.
    check(project, cluster, &["undeploy"], false, &["KWR0615"]);
}

/// The kubeconfig of the cluster as that of one that is not of this machine: its server is reached through a tunnel.
fn tunnel(running: &RunningCluster) -> std::path::PathBuf {
    let text = std::fs::read_to_string(running.kubeconfig()).unwrap();
    let path = running.folder.path().join("tunnel");
    let mut config: Value = kubewright_codegen::yaml::parse(&text).unwrap();
    config["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes.default.svc".into();
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[test]
fn no_context_is_guessed_that_the_project_has_not_used() {
    let project = project(false);
    let running = RunningCluster::start(&[]);
    let kubeconfig = tunnel(&running);
    let run = |arguments: &[&str]| {
        let mut command = Command::new(KUBEWRIGHT);
        let output = command
            .args(arguments)
            .current_dir(project.path())
            .env("KUBECONFIG", &kubeconfig)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(said).unwrap())
    };
    let guessed = |arguments: &[&str]| {
        let (succeeded, said) = run(arguments);
        assert!(!succeeded && said.contains("KWR0702"), "{arguments:?} said:\n{said}");
        assert!(said.contains("--context kubernetes-admin@kubewright"), "{said}");
    };
    let all = [
        &["install"][..],
        &["deploy", "--no-wait"],
        &["deploy", "--dry-run"],
        &["uninstall", "--yes"],
        &["undeploy", "--yes"],
        &["run"],
    ];
    for arguments in all {
        guessed(arguments);
    }
    let named = ["install", "--context", "kubernetes-admin@kubewright"];
    let (succeeded, said) = run(&named);
    assert!(succeeded, "{said}");
    // From now on the project has used it.
    let (succeeded, said) = run(&["deploy", "--no-wait"]);
    assert!(succeeded, "{said}");
    // The same name for another server is another cluster.
    let text = std::fs::read_to_string(&kubeconfig).unwrap();
    std::fs::write(&kubeconfig, text.replace("https://127.0.0.1:", "https://192.0.2.7:")).unwrap();
    for arguments in all {
        guessed(arguments);
    }
}
