//! The `config/` folder beside kubebuilder's, and our renderer beside kustomize.
#![allow(clippy::disallowed_methods, reason = "tests may write files")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::print_stderr, reason = "what is skipped is said aloud")]

use std::collections::BTreeMap;
use std::process::Command;

use kubewright_codegen::{MemoryFiles, kustomize};
use kubewright_schema::decode;
use serde_json::Value;

use crate::support::{Meant, parts, recordings, switched, synced};

#[test]
fn projects_render_to_what_kubebuilders_do_but_for_what_is_meant() {
    let mut meant = Meant::read();
    let mut wrong = String::new();
    for recording in recordings() {
        wrong.push_str(&recording.differences(&recording.tree(), &mut meant));
    }
    wrong.push_str(&meant.never_met());
    assert!(wrong.is_empty(), "{wrong}");
}

/// A tree on disk.
fn on_disk(files: &MemoryFiles) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in &files.0 {
        let path = folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    folder
}

/// The rendering of a folder by `kubectl kustomize`; none without kubectl.
fn kubectl(files: &MemoryFiles, dir: &str) -> Option<Result<Vec<Value>, String>> {
    let folder = on_disk(files);
    let output = Command::new("kubectl")
        .args(["kustomize", dir])
        .current_dir(folder.path())
        .output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: there is no kubectl on the PATH to compare with");
        return None;
    };
    if !output.status.success() {
        return Some(Err(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    let text = String::from_utf8(output.stdout).unwrap();
    let documents = text
        .split("\n---\n")
        .map(|text| decode::yaml(text.as_bytes()).unwrap().value);
    Some(Ok(documents.filter(|value| !value.is_null()).collect()))
}

#[test]
fn our_renderer_makes_what_kustomize_makes_in_the_same_order() {
    for recording in recordings() {
        let tree = recording.tree();
        // The folders below config/default are rendered with it; alone they are looked at in two projects that have all
        // of them.
        let alone = ["webhooks", "conversion"].contains(&recording.name.as_str());
        let mut renderings: Vec<&str> = recording.renderings().map(|(name, _)| name).collect();
        renderings.retain(|rendering| alone || rendering.starts_with("default"));
        // The renderings that the original cannot make.
        if recording.name == "conversion-only" {
            renderings.extend(["default", "webhook"]);
        }
        for rendering in renderings {
            let (dir, variant) = parts(rendering);
            let files = switched(&tree, variant);
            let Some(theirs) = kubectl(&files, &dir) else { return };
            let theirs = theirs.unwrap_or_else(|why| panic!("{} {rendering}: {why}", recording.name));
            let ours = kustomize::build(&dir, &files).unwrap();
            same(&ours, &theirs, &format!("{} {rendering}", recording.name));
        }
    }
}

fn same(ours: &[Value], theirs: &[Value], what: &str) {
    assert_eq!(titles(ours), titles(theirs), "{what}");
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert!(ours == theirs, "{what}\nours   {ours}\ntheirs {theirs}");
    }
}

fn titles(objects: &[Value]) -> Vec<String> {
    let title = |object: &Value| format!("{} {}", object["kind"], object["metadata"]["name"]);
    objects.iter().map(title).collect()
}

#[test]
fn what_users_add_renders_as_kustomize_does() {
    let base = recordings()
        .into_iter()
        .find(|recording| recording.name == "webhooks")
        .unwrap()
        .tree();
    let default = base.0["config/default/kustomization.yaml"].clone();
    // The text that is appended to config/default/kustomization.yaml, and further files.
    let table: &[(&str, &[(&str, &str)])] = &[
        (
            "labels:\n- includeSelectors: true\n  pairs: {team: a, \"n\": \"1\"}\n",
            &[],
        ),
        ("labels:\n- includeTemplates: true\n  pairs: {team: a}\n", &[]),
        ("labels:\n- pairs: {team: a}\n", &[]),
        (
            "patches:\n- path: p.yaml\n",
            &[(
                "p.yaml",
                "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: controller-manager, namespace: system}\nspec:\n  replicas: 2\n  template:\n    spec:\n      containers:\n      - name: sidecar\n        image: s\n      - name: manager\n        env: [{name: A, value: b}]\n        ports: [{containerPort: 8081, name: health, protocol: TCP}, {containerPort: 1}]\n        livenessProbe: null\n      tolerations: [{operator: Exists}]\n      volumes: [{name: v, emptyDir: {}}]\n",
            )],
        ),
        (
            "patches:\n- target: {kind: Deployment}\n  patch: |\n    - op: replace\n      path: /spec/replicas\n      value: 3\n- target: {kind: Service, name: web.*}\n  patch: |\n    $patch: delete\n    kind: x\n    metadata: {name: x}\n",
            &[],
        ),
        (
            "patches:\n- target: {labelSelector: control-plane=controller-manager}\n  patch: |\n    kind: x\n    metadata: {name: x, annotations: {a: b}}\n",
            &[],
        ),
        (
            "images:\n- name: controller\n  newName: registry:5000/a/b\n  newTag: v1\n- name: registry:5000/a/b\n  digest: sha256:aa\n",
            &[],
        ),
        (
            "resources:\n- ../rbac\n- ../manager\n- ../crd\n- names.yaml\n- extra.yaml\n",
            &[(
                "extra.yaml",
                "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: ConfigMap\n  metadata: {name: settings}\n- apiVersion: v1\n  kind: Pod\n  metadata: {name: p, namespace: other}\n  spec:\n    serviceAccountName: controller-manager\n    containers: [{name: c, image: i, envFrom: [{configMapRef: {name: settings}}, {configMapRef: {name: foreign}}]}]\n---\n# nothing\n---\napiVersion: example.com/v1\nkind: Thing\nmetadata: {name: t}\n---\napiVersion: autoscaling/v2\nkind: HorizontalPodAutoscaler\nmetadata: {name: h}\nspec: {scaleTargetRef: {kind: Deployment, name: controller-manager}}\n---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: d}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: absent}\nsubjects: [{kind: ServiceAccount, name: default}, {kind: User, name: u}]\n",
            )],
        ),
        (
            "replacements:\n- path: replacements.yaml\n- source: {kind: Deployment, fieldPath: \"spec.template.spec.containers.[name=manager].image\", options: {delimiter: ':', index: 1}}\n  targets:\n  - select: {kind: Service}\n    fieldPaths: [\"metadata.annotations.[x.y/version]\"]\n    options: {create: true}\n",
            &[],
        ),
    ];
    for (appended, more) in table {
        let mut files = base.clone();
        // A field stands once: an appended one replaces the one that is there.
        let field = appended.split_once('\n').unwrap().0;
        let mut text = default.clone();
        if let Some(at) = text.find(&format!("\n{field}\n")) {
            let rest = &text[at + 1..];
            let end = rest.find("\n\n").map_or(text.len(), |end| at + 1 + end);
            text.replace_range(at + 1..end, "");
        }
        let text = format!("{text}\n{appended}");
        files.0.insert("config/default/kustomization.yaml".to_owned(), text);
        for (path, text) in *more {
            files.0.insert(format!("config/default/{path}"), (*text).to_owned());
        }
        let Some(theirs) = kubectl(&files, "config/default") else {
            return;
        };
        let theirs = theirs.unwrap_or_else(|why| panic!("{appended}: {why}"));
        let ours = kustomize::build("config/default", &files).unwrap_or_else(|why| panic!("{appended}: {why}"));
        same(&ours, &theirs, appended);
    }
}

#[test]
fn what_comes_goes_again_without_a_trace() {
    for recording in recordings() {
        let steps = recording.steps();
        let mut trees: Vec<BTreeMap<String, String>> = Vec::new();
        let mut files = MemoryFiles::default();
        let mut before = None;
        for after in &steps {
            files = synced(before, after, files);
            assert_eq!(synced(Some(after), after, files.clone()), files, "twice is once");
            trees.push(files.0.clone());
            before = Some(after);
        }
        for (at, after) in steps.iter().enumerate().rev().skip(1) {
            files = synced(Some(&steps[at + 1]), after, files);
            similar_asserts(&files.0, &trees[at], &format!("{} back to step {at}", recording.name));
        }
    }
}

fn similar_asserts(actual: &BTreeMap<String, String>, expected: &BTreeMap<String, String>, what: &str) {
    let paths = |files: &BTreeMap<String, String>| files.keys().cloned().collect::<Vec<_>>();
    assert_eq!(paths(actual), paths(expected), "{what}");
    for (path, text) in expected {
        assert_eq!(&actual[path], text, "{what}: {path}");
    }
}
