//! The projects in `testdata/golden`: the command makes them, they work, and a cluster takes them.
//!
//! `KUBEWRIGHT_UPDATE_GOLDEN=1 cargo test -p kubewright-cli --test it golden::they_are_made` makes them anew. Building
//! them takes minutes and is asked for (see `support::operators`); files generated from their code are made and compared
//! there, all others always.

mod table;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::pin::pin;

use crate::support::operators::{self, checkout, type_in};
use crate::support::{self, RunningCluster};
use futures::StreamExt;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::kube::ResourceExt;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams, WatchEvent, WatchParams};
use kubewright_codegen::project::Project;
use kubewright_codegen::{MemoryFiles, Plan, manifests};
use serde_json::json;
use table::{Golden, PROJECTS};

fn folder(golden: &Golden) -> PathBuf {
    checkout().join("testdata/golden").join(golden.name)
}

/// Makes a project below `place`, except the files that are generated from its code.
fn made(golden: &Golden, place: &Path) -> MemoryFiles {
    // As deep below a checkout as the committed one, because its path to the checkout is relative.
    let project = place.join("testdata/golden").join(golden.name);
    fs::create_dir_all(&project).unwrap();
    for command in golden.commands {
        type_in(&format!("kubewright {command}"), &project);
    }
    for edit in golden.edits {
        let path = project.join(edit.file);
        let text = fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let found = text.matches(edit.from).count();
        assert_eq!(
            found, 1,
            "{}: {} should hold once, and holds {found} times:\n{}\nin\n{text}",
            golden.name, edit.file, edit.from
        );
        fs::write(&path, text.replace(edit.from, edit.to)).unwrap();
    }
    files(&project)
}

/// The files of a project, without those that git does not see.
fn files(project: &Path) -> MemoryFiles {
    let mut found = BTreeMap::new();
    let mut folders = vec![project.to_path_buf()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path.strip_prefix(project).unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                folders.push(path);
            } else if name != "Cargo.lock" {
                found.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
    }
    MemoryFiles(found)
}

/// Whether a file is generated from the project's code, which must be built for that.
fn is_generated(path: &str) -> bool {
    path == manifests::ROLES || path == manifests::WEBHOOKS || path.starts_with(manifests::CRDS)
}

/// The changes from the committed files to the generated ones.
fn difference<'a>(committed: &'a MemoryFiles, made: &MemoryFiles) -> Plan<'a> {
    let mut plan = Plan::new(committed);
    for path in committed.0.keys() {
        if !made.0.contains_key(path) && !is_generated(path) {
            plan.remove(path).unwrap();
        }
    }
    for (path, text) in &made.0 {
        plan.write(path, text.clone()).unwrap();
    }
    plan
}

fn update(golden: &Golden, plan: &Plan<'_>) {
    let project = folder(golden);
    for (path, change) in plan.changes() {
        let path = project.join(path);
        match &change.after {
            Some(text) => {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            None => fs::remove_file(path).unwrap(),
        }
    }
    // What is generated from the code stays while the code does: the operator need not be built.
    let is_code = |path: &str| path.ends_with(".rs") || path.ends_with("Cargo.toml");
    if plan.changes().any(|(path, _)| is_code(path)) && operators::are_built() {
        operators::lock(&project);
        eprintln!("{}: {}", golden.name, type_in("kubewright manifests", &project));
    }
}

#[test]
fn they_are_made_by_the_command() {
    let updating = std::env::var_os("KUBEWRIGHT_UPDATE_GOLDEN").is_some();
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(checkout().join("crates"), place.path().join("crates")).unwrap();
    let mut stale = String::new();
    for golden in PROJECTS {
        let made = made(golden, place.path());
        if updating {
            fs::create_dir_all(folder(golden)).unwrap();
        }
        let committed = files(&folder(golden));
        let plan = difference(&committed, &made);
        if updating {
            update(golden, &plan);
        } else if !plan.is_empty() {
            stale.push_str(&format!("testdata/golden/{}:\n{}\n", golden.name, plan.diff()));
        }
    }
    assert!(
        stale.is_empty(),
        "{stale}These are not what the command makes; KUBEWRIGHT_UPDATE_GOLDEN=1 makes them anew."
    );
}

#[test]
fn there_are_no_others() {
    let folders = fs::read_dir(checkout().join("testdata/golden")).unwrap();
    let folders = folders
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir());
    let mut names: Vec<String> = folders.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    let mut known: Vec<&str> = PROJECTS.iter().map(|golden| golden.name).collect();
    known.sort_unstable();
    assert_eq!(names, known, "folders in testdata/golden, and the table of this test");
}

/// A stand-in for cert-manager, because `config/default` of a project with webhooks has Certificates: its definitions,
/// and the one effect that a pod waits for, the Secret that a Certificate names.
struct CertManager(tokio::task::JoinHandle<()>);

impl CertManager {
    async fn install(cluster: &RunningCluster) -> Self {
        let client = cluster.client().await;
        let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
        for (plural, kind) in [("certificates", "Certificate"), ("issuers", "Issuer")] {
            let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
            let crd = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.cert-manager.io")},
                "spec": {
                    "group": "cert-manager.io", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
                    "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
                },
            });
            let crd = serde_json::from_value(crd).unwrap();
            definitions.create(&PostParams::default(), &crd).await.unwrap();
        }
        established(&definitions, "certificates.cert-manager.io").await;
        Self(tokio::spawn(Self::issue(client)))
    }

    async fn issue(client: kubewright::kube::Client) {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("cert-manager.io", "v1", "Certificate"));
        let certificates: Api<DynamicObject> = Api::all_with(client.clone(), &kind);
        let changes = certificates.watch(&WatchParams::default(), "0").await.unwrap();
        let mut changes = pin!(changes);
        while let Some(change) = changes.next().await {
            let WatchEvent::Added(certificate) = change.unwrap() else {
                continue;
            };
            let name = certificate.data["spec"]["secretName"].as_str().unwrap();
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &certificate.namespace().unwrap());
            let secret = json!({
                "metadata": {"name": name}, "type": "kubernetes.io/tls",
                "stringData": {"tls.crt": "a certificate", "tls.key": "a key"},
            });
            let secret = serde_json::from_value(secret).unwrap();
            secrets.create(&PostParams::default(), &secret).await.unwrap();
        }
    }
}

async fn established(definitions: &Api<CustomResourceDefinition>, name: &str) {
    let named = WatchParams::default().fields(&format!("metadata.name={name}"));
    let changes = definitions.watch(&named, "0").await.unwrap();
    let mut changes = pin!(changes);
    while let Some(change) = changes.next().await {
        let (WatchEvent::Added(crd) | WatchEvent::Modified(crd)) = change.unwrap() else {
            continue;
        };
        let conditions = crd.status.and_then(|status| status.conditions).unwrap_or_default();
        if conditions
            .iter()
            .any(|condition| condition.type_ == "Established" && condition.status == "True")
        {
            return;
        }
    }
    panic!("the watch of {name} ended before it was established");
}

impl Drop for CertManager {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Types a command line that talks to the cluster.
fn say(line: &str, project: &Path, cluster: &RunningCluster) -> String {
    type_in(
        &format!("{line} --kubeconfig {}", cluster.kubeconfig().display()),
        project,
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_takes_them() {
    let kubectl = support::kubectl_is_there();
    for golden in PROJECTS {
        let project = folder(golden);
        let before = files(&project);
        let cluster = RunningCluster::start(&[]);
        let _cert_manager = CertManager::install(&cluster).await;
        if project.join("config/samples").is_dir() {
            say("kubewright install", &project, &cluster);
            // Samples of several versions need the operator, which converts them.
            let converts = golden.commands.iter().any(|command| command.contains("--conversion"));
            if kubectl && !converts {
                let applied = say("kubectl apply --kustomize config/samples", &project, &cluster);
                assert!(!applied.contains("unchanged"), "{applied}");
            }
        }
        let deploy = "kubewright deploy --image example.com/operator:v1";
        let deployed = say(deploy, &project, &cluster);
        assert!(deployed.contains("the pods are ready"), "{deployed}");
        let again = say(deploy, &project, &cluster);
        assert!(
            !again.contains("created") && !again.contains("configured"),
            "{}: twice is once:\n{again}",
            golden.name
        );
        assert_eq!(files(&project), before, "{}: deploying writes nothing", golden.name);
    }
}

#[test]
fn they_build_and_pass_their_tests() {
    if !operators::are_built() {
        return;
    }
    for golden in PROJECTS {
        let project = folder(golden);
        operators::lock(&project);
        let packages = Project::load(&files(&project)).unwrap();
        // Not --all, which goes on into the checkout that the project depends on.
        let format = format!(
            "cargo fmt --check --package {} --package {}",
            packages.package(),
            packages.api_package()
        );
        for line in [
            "kubewright manifests --check",
            &format,
            "cargo clippy --quiet --workspace --all-targets -- -D warnings",
            "cargo test --quiet --workspace",
        ] {
            type_in(line, &project);
        }
    }
}
