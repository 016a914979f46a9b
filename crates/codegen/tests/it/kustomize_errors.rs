//! The renderer's errors for kustomizations that it cannot render.

use kubewright_codegen::{MemoryFiles, kustomize};

#[test]
fn what_cannot_be_rendered_is_told_with_its_place() {
    let object = "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n";
    // kustomization.yaml of the folder, and further files.
    let table: &[(&str, &[(&str, &str)])] = &[
        ("configMapGenerator:\n- name: a\n", &[]),
        (
            "resources:\n- a.yaml\n\npatches:\n- path: p.yaml\n  options: {allowNameChange: true}\n",
            &[("a.yaml", object)],
        ),
        ("resources:\n- https://example.com/a.yaml\n", &[]),
        ("resources:\n- ../other\n", &[]),
        (
            "resources:\n- ../crd\n",
            &[("config/crd/kustomization.yaml", "resources:\n- bases/x.yaml\n")],
        ),
        (
            "resources:\n- ../part\n",
            &[("config/part/kustomization.yaml", "kind: Component\nnamePrefix: a\n")],
        ),
        ("resources:\n- ../default\n", &[]),
        (
            "resources:\n- a.yaml\n- b.yaml\n",
            &[("a.yaml", object), ("b.yaml", object)],
        ),
        ("resources:\n- a.yaml\n", &[("a.yaml", "kind: Service\n")]),
        ("resources:\n- a.yaml\n", &[("a.yaml", "a: [\n")]),
        (
            "resources:\n- a.yaml\npatches:\n- patch: |\n    apiVersion: v1\n    kind: Service\n    metadata: {name: b}\n",
            &[("a.yaml", object)],
        ),
        (
            "resources:\n- a.yaml\npatches:\n- target: {kind: Service}\n  patch: '[{op: replace, path: /spec/x, value: 1}]'\n",
            &[("a.yaml", object)],
        ),
        (
            "resources:\n- a.yaml\nreplacements:\n- source: {kind: Service, fieldPath: spec.x}\n  targets:\n  - select: {kind: Service}\n",
            &[("a.yaml", object)],
        ),
        ("resources: a\n", &[]),
        ("namespace: a\nnamespace: b\n", &[]),
        ("", &[]),
    ];
    let mut told = String::new();
    for (kustomization, more) in table {
        let mut files = MemoryFiles::default();
        files.0.insert(
            "config/default/kustomization.yaml".to_owned(),
            (*kustomization).to_owned(),
        );
        for (path, text) in *more {
            let path = if path.contains('/') {
                (*path).to_owned()
            } else {
                format!("config/default/{path}")
            };
            files.0.insert(path, (*text).to_owned());
        }
        let wrong = kustomize::build("config/default", &files).unwrap_err();
        told.push_str(&format!("{kustomization}{wrong}\n\n"));
    }
    insta::assert_snapshot!(told);
}
