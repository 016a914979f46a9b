//! `kubewright status`: what the operator manages, read from a cluster.

use std::process::{Command, Output};

use k8s_openapi::api::core::v1::ConfigMap;
use kubewright::kube::ResourceExt as _;
use kubewright::kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::support::project::deployable;
use crate::support::{KUBEWRIGHT, RunningCluster};

fn typed(line: &str, project: &std::path::Path, cluster: &RunningCluster) -> Output {
    let mut command = Command::new(KUBEWRIGHT);
    command
        .args(line.split_whitespace())
        .arg("--kubeconfig")
        .arg(cluster.kubeconfig());
    command.current_dir(project).output().unwrap()
}

fn out(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_and_children_are_a_tree() {
    let cluster = RunningCluster::start(&[]);
    let project = deployable(false);
    let status = |line: &str| typed(&format!("status {line}"), project.path(), &cluster);
    let nothing = out(&status(""));
    assert!(
        nothing.contains("none of the project's kinds is installed"),
        "{nothing}"
    );
    out(&typed("install", project.path(), &cluster));
    assert!(out(&status("")).contains("there are no guestbooks"));

    let client = cluster.client().await;
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("webapp.my.domain", "v1", "Guestbook"));
    let guestbooks: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &kind);
    let hello = json!({
        "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "metadata": {"name": "hello"},
        "status": {"conditions": [{"type": "Ready", "status": "False", "reason": "NoPods", "message": "0 of 1"}]},
    });
    let hello = serde_json::from_value(hello).unwrap();
    let hello = guestbooks.create(&PostParams::default(), &hello).await.unwrap();
    let child = json!({
        "metadata": {"name": "pages", "ownerReferences": [{
            "apiVersion": "webapp.my.domain/v1", "kind": "Guestbook", "name": "hello", "uid": hello.uid().unwrap(),
        }]},
    });
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let child = serde_json::from_value(child).unwrap();
    maps.create(&PostParams::default(), &child).await.unwrap();

    for line in ["", "guestbooks", "guestbook/hello", "Guestbook -n default"] {
        let text = out(&status(line));
        let expected = "✗ Guestbook default/hello  Ready=False: NoPods: 0 of 1\n└─ · ConfigMap pages\n";
        assert!(text.contains(expected), "{line}: {text}");
        assert!(text.contains("2 objects, 1 not ready"), "{line}: {text}");
    }
    assert!(out(&status("-n kube-system")).contains("there are no guestbooks"));
    let lines = out(&status("-o json"));
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let object = lines.iter().find(|line| line["event"] == "object").unwrap();
    assert_eq!(
        (&object["ready"], &object["children"][0]["name"]),
        (&json!(false), &json!("pages"))
    );

    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    let merge = PatchParams::default();
    guestbooks.patch("hello", &merge, &Patch::Merge(&ready)).await.unwrap();
    let text = out(&status(""));
    assert!(text.contains("✓ Guestbook default/hello  Ready\n"), "{text}");

    let wrong = status("teapots");
    let text = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(
        !wrong.status.success() && text.contains("the project's kinds are Guestbook"),
        "{text}"
    );
}
