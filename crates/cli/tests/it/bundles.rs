//! Bundles of others: validated, generated from rendered manifests and scored, as a Makefile of operator-sdk asks for it;
//! installed by an OLM that this file plays, and cleaned up.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kubewright::kube::Client;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::{KUBEWRIGHT, RunningCluster};

const MANIFESTS: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: shop}
spec:
  selector: {matchLabels: {app: manager}}
  template:
    metadata: {labels: {app: manager}}
    spec:
      serviceAccountName: shop
      containers: [{name: manager, image: "example.com/shop:v1"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: shop}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: shop}
subjects: [{kind: ServiceAccount, name: shop, namespace: shop}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shops.shop.example.com}
spec:
  group: shop.example.com
  names: {kind: Shop, plural: shops}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: integer}}}}}}
---
apiVersion: shop.example.com/v1
kind: Shop
metadata: {name: sample}
spec: {size: 3}
"#;

/// Types a line in a folder, with a text on standard input: the exit status, standard output, standard error.
fn types(folder: &Path, line: &str, input: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(KUBEWRIGHT);
    command.args(line.split_whitespace()).current_dir(folder);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut process = command.spawn().unwrap();
    // A command that reads nothing may have closed it.
    let _ = process.stdin.take().unwrap().write_all(input.as_bytes());
    let output = process.wait_with_output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A folder with the bundle that operator-sdk's Makefile asks for.
fn generated() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let project = "layout: [go.kubebuilder.io/v4]\nprojectName: shop\nversion: \"3\"\n";
    fs::write(folder.path().join("PROJECT"), project).unwrap();
    let line = "generate bundle -q --overwrite --version 0.1.0 --channels=stable --default-channel=stable";
    let (code, out, err) = types(folder.path(), line, MANIFESTS);
    assert_eq!(code, Some(0), "{out}{err}");
    folder
}

fn replaced(folder: &Path, file: &str, from: &str, to: &str) {
    let path = folder.join(file);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{file} has no {from:?}:\n{text}");
    fs::write(path, text.replace(from, to)).unwrap();
}

#[test]
fn a_bundle_of_rendered_manifests_is_valid_and_scored() {
    let folder = generated();
    let check = |line: &str, code: i32, expected: &[&str]| {
        let (found, out, err) = types(folder.path(), line, "");
        assert_eq!(found, Some(code), "{line}:\n{out}{err}");
        for word in expected {
            assert!(
                (out.clone() + &err).contains(word),
                "{line} should say {word:?}:\n{out}{err}"
            );
        }
    };
    check("bundle validate ./bundle", 0, &["is valid", "minKubeVersion"]);
    check(
        "bundle validate ./bundle --select-optional suite=operatorframework",
        0,
        &["requests no CPU"],
    );
    check(
        "bundle validate ./bundle --select-optional name=multiarch",
        1,
        &["pulls"],
    );
    check(
        "bundle validate --list-optional",
        0,
        &["good-practices", "suite=operatorframework"],
    );
    check("bundle validate example.com/bundle:v1", 1, &["images are not pulled"]);
    check(
        "bundle validate ./bundle --optional-values k8s-version",
        2,
        &["KEY=VALUE"],
    );
    check("bundle scorecard", 1, &["basic-check-spec", "olm-crds-have-resources"]);
    check("scorecard ./bundle --selector suite=basic", 0, &["pass"]);
    check("scorecard nowhere", 1, &["no such folder"]);

    // The base is written once, and is the user's then.
    check("generate kustomize manifests -q", 0, &[]);
    replaced(
        folder.path(),
        "config/manifests/bases/shop.clusterserviceversion.yaml",
        "displayName: Shop",
        "displayName: The Shop",
    );
    check("generate kustomize manifests -q", 0, &[]);
    let (code, ..) = types(folder.path(), "bundle generate --version 0.2.0", MANIFESTS);
    assert_eq!(code, Some(0));
    let csv = fs::read_to_string(folder.path().join("bundle/manifests/shop.clusterserviceversion.yaml")).unwrap();
    assert!(
        csv.contains("displayName: The Shop") && csv.contains("name: shop.v0.2.0"),
        "{csv}"
    );

    // The same from a folder, and from two.
    let (crd, others) = MANIFESTS
        .split_once("---\napiVersion: apiextensions")
        .map(|(others, crd)| (format!("apiVersion: apiextensions{crd}"), others.to_owned()))
        .unwrap();
    for name in ["deploy", "crds"] {
        fs::create_dir(folder.path().join(name)).unwrap();
    }
    fs::write(folder.path().join("deploy/all.yaml"), others).unwrap();
    fs::write(folder.path().join("crds/crd.yaml"), crd).unwrap();
    check(
        "generate bundle --version 0.2.0 --deploy-dir deploy --crds-dir crds",
        0,
        &["nothing to change"],
    );
    check("generate bundle --version 0.2.0 --input-dir none", 1, &["no folder"]);
    check("generate bundle --version 0.2.0", 1, &["no manifests"]);
}

#[test]
fn mistakes_of_a_bundle_are_reported_as_operator_sdk_reports_them() {
    let folder = generated();
    let crd = "bundle/manifests/shop.example.com_shops.yaml";
    let csv = "bundle/manifests/shop.clusterserviceversion.yaml";
    replaced(folder.path(), csv, "strategy: deployment", "strategy: ''");
    // An API server refuses the first; operator-sdk overlooks the second.
    replaced(folder.path(), crd, "plural: shops", "plural: stores");
    replaced(folder.path(), crd, "type: integer", "type: whole");
    let (code, out, err) = types(folder.path(), "bundle validate bundle -o json-alpha1", "");
    assert_eq!(code, Some(1), "{out}{err}");
    let report: Value = serde_json::from_str(&out).unwrap_or_else(|why| panic!("{why}: {out}"));
    assert_eq!(report["passed"], false);
    let has = |level: &str, words: &str| {
        let outputs = report["outputs"].as_array().unwrap();
        let mut found = outputs.iter().filter(|output| output["type"] == level);
        assert!(
            found.any(|output| output["message"].as_str().unwrap().contains(words)),
            "{level} {words}: {out}"
        );
    };
    has("error", "Error: Field spec.install.strategy: ");
    has("error", "plural");
    has("warning", "Warning: Value shop.v0.1.0: spec.minKubeVersion");
    let (code, out, err) = types(folder.path(), "bundle validate bundle", "");
    assert_eq!(code, Some(1));
    assert!(
        out.contains("error: Field spec.install.strategy") && err.contains("is not valid"),
        "{out}{err}"
    );
}

/// Kinds of OLM that `bundle run` needs.
const OLM: [(&str, &str); 5] = [
    ("v1alpha1", "CatalogSource"),
    ("v1alpha1", "ClusterServiceVersion"),
    ("v1alpha1", "InstallPlan"),
    ("v1", "OperatorGroup"),
    ("v1alpha1", "Subscription"),
];

fn of_olm(kind: &str) -> ApiResource {
    let (version, kind) = OLM.into_iter().find(|(_, known)| *known == kind).unwrap();
    ApiResource {
        group: "operators.coreos.com".to_owned(),
        version: version.to_owned(),
        api_version: format!("operators.coreos.com/{version}"),
        kind: kind.to_owned(),
        plural: format!("{}s", kind.to_lowercase()),
    }
}

/// A definition of a kind that may say anything.
fn definition(group: &str, version: &str, kind: &str) -> Value {
    let plural = format!("{}s", kind.to_lowercase());
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural},
            "scope": "Namespaced",
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
            }],
        },
    })
}

/// OLM, as far as a Subscription can tell: a plan when the catalog is served, and the operator when it is approved.
struct PlayedOlm {
    client: Client,
    /// The phase of the operator in the end.
    phase: &'static str,
}

impl PlayedOlm {
    async fn installs(client: &Client) {
        let definitions = Api::<DynamicObject>::all_with(
            client.clone(),
            &ApiResource {
                group: "apiextensions.k8s.io".to_owned(),
                version: "v1".to_owned(),
                api_version: "apiextensions.k8s.io/v1".to_owned(),
                kind: "CustomResourceDefinition".to_owned(),
                plural: "customresourcedefinitions".to_owned(),
            },
        );
        let own = [("shop.example.com", "v1", "Shop")];
        let of_olm = OLM.map(|(version, kind)| ("operators.coreos.com", version, kind));
        for (group, version, kind) in of_olm.into_iter().chain(own) {
            let object = serde_json::from_value(definition(group, version, kind)).unwrap();
            definitions.create(&PostParams::default(), &object).await.unwrap();
        }
        for (_, kind) in OLM {
            let api = Api::<DynamicObject>::default_namespaced_with(client.clone(), &self::of_olm(kind));
            while api.list(&Default::default()).await.is_err() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        Api::default_namespaced_with(self.client.clone(), &of_olm(kind))
    }

    async fn merges(&self, kind: &str, name: &str, patch: Value) {
        let merge = Patch::Merge(patch);
        self.api(kind)
            .patch(name, &PatchParams::default(), &merge)
            .await
            .unwrap();
    }

    /// Acts until it is dropped.
    async fn acts(self) {
        let subscription = "shop-v0-1-0-sub";
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            let found = self.api("Subscription").get_opt(subscription).await.unwrap();
            let source = self.api("CatalogSource").get_opt("shop-catalog").await.unwrap();
            let (Some(found), Some(source)) = (found, source) else {
                continue;
            };
            let is_served = source.data["spec"]["address"]
                .as_str()
                .is_some_and(|address| address.ends_with(":50051"));
            if !is_served {
                continue;
            }
            if found.data["status"]["installPlanRef"].is_null() {
                let plan = json!({"metadata": {"name": "install-1"}, "spec": {"approved": false}});
                let mut plan: DynamicObject = serde_json::from_value(plan).unwrap();
                plan.types = Some(kubewright::kube::core::TypeMeta {
                    api_version: "operators.coreos.com/v1alpha1".to_owned(),
                    kind: "InstallPlan".to_owned(),
                });
                // An earlier run may have left one.
                let _ = self.api("InstallPlan").create(&PostParams::default(), &plan).await;
                let status = json!({"status": {"installPlanRef": {"name": "install-1"}, "currentCSV": "shop.v0.1.0"}});
                self.merges("Subscription", subscription, status).await;
                continue;
            }
            let plan = self.api("InstallPlan").get("install-1").await.unwrap();
            if plan.data["spec"]["approved"] != true || !found.data["status"]["installedCSV"].is_null() {
                continue;
            }
            let csv = json!({
                "apiVersion": "operators.coreos.com/v1alpha1",
                "kind": "ClusterServiceVersion",
                "metadata": {"name": "shop.v0.1.0"},
                "spec": {"customresourcedefinitions": {"owned": [
                    {"name": "shops.shop.example.com", "version": "v1", "kind": "Shop"},
                ]}},
                "status": {"phase": self.phase, "reason": "InstallCheckFailed", "message": "the pod crashed"},
            });
            let csv = serde_json::from_value(csv).unwrap();
            self.api("ClusterServiceVersion")
                .create(&PostParams::default(), &csv)
                .await
                .unwrap();
            let status = json!({"status": {"installedCSV": "shop.v0.1.0"}});
            self.merges("Subscription", subscription, status).await;
        }
    }
}

#[tokio::test]
async fn a_bundle_is_installed_by_the_clusters_olm_and_cleaned_up() {
    let folder = generated();
    let cluster = RunningCluster::start(&[]);
    let client = cluster.client().await;
    let check = async |line: &str, code: i32, expected: &[&str]| {
        let kubeconfig = cluster.kubeconfig().display().to_string();
        let (line, folder) = (format!("{line} --kubeconfig {kubeconfig}"), folder.path().to_owned());
        let typed = line.clone();
        let (found, out, err) = tokio::task::spawn_blocking(move || types(&folder, &typed, ""))
            .await
            .unwrap();
        assert_eq!(found, Some(code), "{line}:\n{out}{err}");
        for word in expected {
            assert!(
                (out.clone() + &err).contains(word),
                "{line} should say {word:?}:\n{out}{err}"
            );
        }
    };
    let run = "bundle run registry.example.com/shop-bundle:v0.1.0";
    check(run, 1, &["OLM is not there", "kubewright deploy"]).await;
    PlayedOlm::installs(&client).await;

    // Nobody acts: what was created stays, is in the way of a second run, and goes.
    check(
        &format!("{run} --timeout 1s"),
        1,
        &["gave up waiting for OLM's install plan"],
    )
    .await;
    check(run, 1, &["CatalogSource shop-catalog", "bundle cleanup"]).await;
    check(
        "cleanup shop",
        0,
        &[
            "Subscription shop-v0-1-0-sub deleted",
            "OperatorGroup operator-sdk-og deleted",
        ],
    )
    .await;
    check("cleanup shop", 1, &["nothing of the package shop"]).await;

    let gone = async |api: Api<DynamicObject>, name: &str| {
        while api.get_opt(name).await.unwrap().is_some() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let pods = Api::<DynamicObject>::default_namespaced_with(
        client.clone(),
        &ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&()),
    );
    let pod = "registry-example-com-shop-bundle-v0-1-0";
    gone(pods.clone(), pod).await;

    for (phase, code, said) in [
        ("Failed", 1, "the pod crashed"),
        ("Succeeded", 0, "OLM has installed shop.v0.1.0"),
    ] {
        let olm = PlayedOlm {
            client: client.clone(),
            phase,
        };
        let acting = tokio::spawn(olm.acts());
        check(run, code, &["InstallPlan install-1 approved", said]).await;
        acting.abort();
        let kept = if phase == "Failed" { " --delete-all=false" } else { "" };
        check(
            &format!("bundle cleanup shop{kept}"),
            0,
            &["ClusterServiceVersion shop.v0.1.0 deleted"],
        )
        .await;
        // The catalog's pod and ConfigMap go with their owner.
        gone(pods.clone(), pod).await;
        let plans = Api::<DynamicObject>::default_namespaced_with(client.clone(), &of_olm("InstallPlan"));
        plans.delete("install-1", &Default::default()).await.unwrap();
    }
    let shops = ApiResource {
        group: "shop.example.com".to_owned(),
        version: "v1".to_owned(),
        api_version: "shop.example.com/v1".to_owned(),
        kind: "Shop".to_owned(),
        plural: "shops".to_owned(),
    };
    let shops = Api::<DynamicObject>::default_namespaced_with(client.clone(), &shops);
    while shops.list(&Default::default()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let groups = Api::<DynamicObject>::default_namespaced_with(client, &of_olm("OperatorGroup"));
    assert!(groups.list(&Default::default()).await.unwrap().items.is_empty());
}
