//! A cluster with the kind `Site`, and an operator whose Sites are releases of a chart.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kubewright::kube::api::{ListParams, Patch, PatchParams, PostParams};
use kubewright::kube::{Api, CustomResource};
use kubewright_operators::helm::{self, Helm, Options};
use kubewright_testing::{RunningOperator, TestCluster};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use super::charts::{self, Files};

/// What the values of a chart stand in.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize)]
#[kube(
    group = "demo.example.com",
    version = "v1alpha1",
    kind = "Site",
    namespaced,
    schema = "disabled",
    status = "SiteStatus",
    crates(kube_core = "kubewright::kube::core", k8s_openapi = "k8s_openapi")
)]
pub(super) struct SiteSpec {
    #[serde(flatten)]
    values: Map<String, Value>,
}

/// What the operator says of a Site.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SiteStatus {
    #[serde(default)]
    pub(super) conditions: Vec<Condition>,
    pub(super) deployed_release: Option<Deployed>,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    reason: String,
    #[serde(default)]
    message: String,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Deployed {
    pub(super) name: String,
    pub(super) manifest: String,
}

impl Site {
    /// `True InstallSuccessful`, or nothing.
    pub(super) fn condition(&self, kind: &str) -> String {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        let mut found = conditions.filter(|condition| condition.kind == kind);
        found
            .next()
            .map(|condition| format!("{} {}", condition.status, condition.reason).trim().to_owned())
            .unwrap_or_default()
    }

    pub(super) fn message(&self, kind: &str) -> String {
        let conditions = self.status.iter().flat_map(|status| &status.conditions);
        let mut found = conditions.filter(|condition| condition.kind == kind);
        found
            .next()
            .map(|condition| condition.message.clone())
            .unwrap_or_default()
    }
}

fn crd(kind: &str) -> CustomResourceDefinition {
    let plural = format!("{}s", kind.to_lowercase());
    let any = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.demo.example.com")},
        "spec": {
            "group": "demo.example.com",
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{
                "name": "v1alpha1", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": any, "status": any}}},
            }],
        },
    });
    serde_json::from_value(crd).expect("a CRD")
}

/// The Helm program on this machine; says so when there is none.
pub(super) fn real_helm() -> Option<PathBuf> {
    let named = std::env::var_os(helm::PROGRAM).map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let on_path = || {
        std::env::split_paths(&path)
            .map(|folder| folder.join("helm"))
            .find(|helm| helm.is_file())
    };
    let found = named.or_else(on_path);
    if found.is_none() {
        eprintln!(
            "NOT RUN: there is no Helm on this machine: install Helm 3 or 4, or name it in {}",
            helm::PROGRAM
        );
    }
    found
}

/// A cluster, and how Helm reaches it.
pub(super) struct World {
    pub(super) cluster: TestCluster,
    pub(super) namespace: String,
    pub(super) helm: Arc<Helm>,
    folder: TempDir,
    program: PathBuf,
}

impl World {
    pub(super) async fn new(program: PathBuf) -> World {
        let cluster = TestCluster::start()
            .await
            .expect("a cluster")
            .with_deadline(Duration::from_secs(180));
        cluster
            .install_crds([crd("Site"), crd("Page")])
            .await
            .expect("the kinds");
        let folder = tempfile::tempdir().expect("a folder");
        let kubeconfig = folder.path().join("kubeconfig");
        fs::write(&kubeconfig, cluster.kubeconfig().await.expect("an address")).expect("a file");
        let helm = Helm::at(program.clone(), Some(kubeconfig))
            .await
            .expect("it says its version");
        World {
            namespace: cluster.namespace().await.expect("a namespace"),
            cluster,
            helm: Arc::new(helm),
            folder,
            program,
        }
    }

    /// Runs the operator of `watches.yaml`, in which `CHART` stands for a chart.
    pub(super) async fn run(&self, watches: &str, chart: &TempDir) -> RunningOperator {
        self.run_with(watches, chart, Options::default()).await
    }

    pub(super) async fn run_with(&self, watches: &str, chart: &TempDir, options: Options) -> RunningOperator {
        let file = self.folder.path().join("watches.yaml");
        let text = watches.replace("CHART", &chart.path().display().to_string());
        fs::write(&file, text).expect("a file");
        let variable = |name: &str| (name == "IMAGE").then(|| "mine/web:7".to_owned());
        let operator = helm::operator(&file, self.helm.clone(), options, variable).await;
        let operator = operator.expect("the file is right");
        self.cluster.run_as_admin(operator).await.expect("it runs")
    }

    /// The operator of one chart.
    pub(super) async fn sites(&self, files: Files) -> (TempDir, RunningOperator) {
        let chart = charts::write(files);
        let running = self
            .run(
                "- {group: demo.example.com, version: v1alpha1, kind: Site, chart: CHART}\n",
                &chart,
            )
            .await;
        (chart, running)
    }

    pub(super) fn api<K>(&self) -> Api<K>
    where
        K: kubewright::kube::Resource<DynamicType = (), Scope = kubewright::kube::core::NamespaceResourceScope>,
    {
        Api::namespaced(self.cluster.kube(), &self.namespace)
    }

    pub(super) async fn create(&self, name: &str, annotations: Value, values: Value) {
        let site = json!({
            "apiVersion": "demo.example.com/v1alpha1", "kind": "Site",
            "metadata": {"name": name, "annotations": annotations},
            "spec": values,
        });
        let site: Site = serde_json::from_value(site).expect("a Site");
        self.api::<Site>()
            .create(&PostParams::default(), &site)
            .await
            .expect("it is created");
    }

    pub(super) async fn change(&self, name: &str, values: Value) {
        let patch = Patch::Merge(json!({"spec": values}));
        let params = PatchParams::default();
        self.api::<Site>()
            .patch(name, &params, &patch)
            .await
            .expect("it is changed");
    }

    pub(super) async fn delete(&self, name: &str) {
        self.api::<Site>()
            .delete(name, &Default::default())
            .await
            .expect("it is deleted");
    }

    /// Waits for a state of a Site.
    pub(super) async fn site(&self, name: &str, what: &str, is: impl Fn(&Site) -> bool) -> Arc<Site> {
        let found = self.cluster.wait_for::<Site>(&self.namespace, name, what, is).await;
        found.unwrap_or_else(|why| panic!("{why}"))
    }

    /// Waits until a Site has a condition, `True InstallSuccessful`; empty for none.
    pub(super) async fn condition(&self, name: &str, kind: &str, expected: &str) -> Arc<Site> {
        self.site(name, &format!("condition {kind} is {expected:?}"), |site| {
            site.condition(kind) == expected
        })
        .await
    }

    /// The revisions of a release, `1 superseded, 2 deployed`.
    pub(super) async fn revisions(&self, name: &str) -> String {
        let params = ListParams::default().labels(&format!("owner=helm,name={name}"));
        let secrets = self.api::<Secret>().list(&params).await.expect("Secrets");
        let mut found: Vec<(u32, String)> = secrets
            .iter()
            .filter_map(|secret| {
                let labels = secret.metadata.labels.as_ref()?;
                Some((labels.get("version")?.parse().ok()?, labels.get("status")?.clone()))
            })
            .collect();
        found.sort();
        let told: Vec<String> = found
            .iter()
            .map(|(version, status)| format!("{version} {status}"))
            .collect();
        told.join(", ")
    }

    /// Runs Helm as a person does.
    pub(super) async fn by_hand(&self, arguments: &[&str]) -> String {
        let output = tokio::process::Command::new(&self.program)
            .args(arguments)
            .args(["--namespace", &self.namespace])
            .env("KUBECONFIG", self.folder.path().join("kubeconfig"))
            .env("HELM_CACHE_HOME", self.folder.path())
            .env("KUBECACHEDIR", self.folder.path())
            .output()
            .await
            .expect("helm runs");
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
    }
}
