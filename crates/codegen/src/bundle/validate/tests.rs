//! One good bundle, and what is found when a line of it is another.

use super::*;
use crate::MemoryFiles;

const ANNOTATIONS: &str = "annotations:
  operators.operatorframework.io.bundle.mediatype.v1: registry+v1
  operators.operatorframework.io.bundle.manifests.v1: manifests/
  operators.operatorframework.io.bundle.metadata.v1: metadata/
  operators.operatorframework.io.bundle.package.v1: cups
  operators.operatorframework.io.bundle.channels.v1: stable,candidate
  operators.operatorframework.io.bundle.channel.default.v1: stable
";

const CSV: &str = r#"apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: cups.v1.2.0
  annotations:
    alm-examples: '[{"apiVersion": "kitchen.example.com/v1", "kind": "Cup", "metadata": {"name": "a"}}]'
    capabilities: Basic Install
    categories: "Storage, Database"
spec:
  displayName: Cups
  version: 1.2.0
  minKubeVersion: 1.30.0
  provider: {name: Kitchen}
  maintainers: [{name: Ann, email: ann@example.com}]
  links: [{name: Kitchen, url: "https://example.com"}]
  icon: [{base64data: aGk=, mediatype: image/png}]
  installModes:
  - {type: OwnNamespace, supported: false}
  - {type: AllNamespaces, supported: true}
  customresourcedefinitions:
    owned:
    - {name: cups.kitchen.example.com, version: v1, kind: Cup, description: A cup.}
  install:
    strategy: deployment
    spec:
      clusterPermissions:
      - serviceAccountName: cups
        rules:
        - {apiGroups: [""], resources: [pods], verbs: [get]}
      deployments:
      - name: cups
        spec:
          replicas: 1
          selector: {matchLabels: {app: cups}}
          template:
            metadata: {labels: {app: cups}}
            spec:
              serviceAccountName: cups
              containers:
              - {name: manager, image: "example.com/cups:v1", resources: {requests: {cpu: 1m, memory: 1Mi}}}
"#;

const CRD: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: cups.kitchen.example.com
spec:
  group: kitchen.example.com
  names: {kind: Cup, plural: cups}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";

const SERVICE: &str = "apiVersion: v1
kind: Service
metadata:
  name: metrics
spec:
  ports: [{port: 8443}]
";

/// Every validator that runs here.
const ALL: &str = "name in (operatorhubv2,capabilities,categories,alpha-deprecated-apis,good-practices)";

fn bundle() -> MemoryFiles {
    MemoryFiles::from([
        ("metadata/annotations.yaml", ANNOTATIONS),
        ("manifests/cups.clusterserviceversion.yaml", CSV),
        ("manifests/crd.yaml", CRD),
        ("manifests/service.yaml", SERVICE),
    ])
}

/// The findings about the bundle after a text in it was replaced, wherever it stands; or why it cannot be read.
fn found(change: (&str, &str), options: &Options) -> String {
    let (from, to) = change;
    let mut files = bundle();
    assert!(
        files.0.values().any(|text| text.contains(from)),
        "{from:?} is nowhere in the bundle"
    );
    for text in files.0.values_mut() {
        *text = text.replace(from, to);
    }
    printed(&files, options)
}

fn printed(files: &MemoryFiles, options: &Options) -> String {
    match validate(files, options) {
        Err(wrong) => format!("{wrong}\n"),
        Ok(report) => {
            let errors = report.outputs.iter().any(|finding| finding.level == Level::Error);
            assert_eq!(report.passed, !errors, "an error is one that fails");
            let lines = report.outputs.into_iter().map(|finding| finding.message + "\n");
            lines.collect()
        }
    }
}

fn all() -> Options {
    Options {
        select_optional: ALL.to_owned(),
        ..Options::default()
    }
}

#[test]
fn nothing_is_found_in_a_good_bundle() {
    assert_eq!(printed(&bundle(), &all()), "");
    let report = validate(&bundle(), &all()).unwrap();
    assert_eq!(report.definitions.len(), 1, "an API server judges its definition");
}

#[test]
fn each_mistake_is_found_and_nothing_else() {
    let changes = [
        // the layout
        ("registry+v1", "plain+v1"),
        ("  operators.operatorframework.io.bundle.package.v1: cups\n", ""),
        ("channel.default.v1: stable", "channel.default.v1: fast"),
        ("bundle.channels.v1: stable,candidate", "bundle.channels.v1: ''"),
        ("annotations:\n  operators", "other:\n  operators"),
        ("bundle.manifests.v1: manifests/", "bundle.manifests.v1: elsewhere/"),
        // what keeps it from being read
        ("kind: ClusterServiceVersion", "kind: Service"),
        ("displayName: Cups", "displayName: [Cups]"),
        ("replicas: 1", "replicas: one"),
        ("version: 1.2.0\n", "version: next\n"),
        ("apiextensions.k8s.io/v1", "apiextensions.k8s.io/v2"),
        ("kind: Service", "kind: [Service"),
        // the ClusterServiceVersion
        ("name: cups.v1.2.0", "name: Cups.v1.2.0"),
        ("  displayName: Cups", "  displayName: ''"),
        ("    strategy: deployment\n", ""),
        ("alm-examples: '[", "alm-examples: '[["),
        ("\"kind\": \"Cup\"", "\"kind\": \"Mug\""),
        ("    alm-examples:", "    olm.skiprange: '1'\n    no-examples:"),
        ("supported: true", "supported: false"),
        ("type: OwnNamespace", "type: AllNamespaces"),
        ("type: OwnNamespace", "type: Everywhere"),
        ("  minKubeVersion: 1.30.0\n", ""),
        ("minKubeVersion: 1.30.0", "minKubeVersion: '1.30'"),
        ("apiVersion: operators.coreos.com/v1alpha1", "apiVersion: v1alpha1"),
        (
            "  installModes:\n  - {type: OwnNamespace, supported: false}",
            "  webhookdefinitions: [{type: ConversionWebhook, conversionCRDs: [a]}]\n  installModes:\n  - {type: OwnNamespace, supported: true}",
        ),
        // the objects together
        ("version: v1, kind: Cup, d", "version: v2, kind: Cup, d"),
        (
            "    owned:\n    - {name: cups.kitchen.example.com, version: v1, kind: Cup, description: A cup.}\n",
            "    owned: []\n",
        ),
        (
            "  displayName: Cups",
            "  maturity: 1\n  displayName: Cups\n  maturity: 2",
        ),
        (
            "kind: Service\nmetadata:\n  name: metrics",
            "kind: Pod\nmetadata:\n  name: metrics",
        ),
        (
            "kind: Service\nmetadata:\n  name: metrics",
            "kind: ServiceAccount\nmetadata:\n  name: cups",
        ),
        ("name: metrics", "name: metrics\n  namespace: cups\n  labels: {a b: c}"),
        (
            "  displayName: Cups",
            "  relatedImages: [{name: a, image: 'A:b:c'}]\n  displayName: Cups",
        ),
        (
            "kind: Service\n",
            "kind: Service\n# more\n---\nkind: Service\n---\nkind: Service\n",
        ),
        // what catalogs want
        ("provider: {name: Kitchen}", "provider: {}"),
        ("email: ann@example.com", "email: ann"),
        ("url: \"https://example.com\"", "url: here"),
        ("mediatype: image/png", "mediatype: image/bmp"),
        ("  icon: [{base64data: aGk=, mediatype: image/png}]\n", ""),
        ("capabilities: Basic Install", "capabilities: Basic"),
        ("Storage, Database", "Storage, Cutlery"),
        (
            "apiVersion: apiextensions.k8s.io/v1\n",
            "apiVersion: apiextensions.k8s.io/v1beta1\n",
        ),
        (
            "{apiGroups: [\"\"], resources: [pods], verbs: [get]}",
            "{apiGroups: [apiextensions.k8s.io], resources: ['*'], verbs: [create]}",
        ),
        (
            "apiGroups: [\"\"], resources: [pods]",
            "apiGroups: [policy], resources: [podsecuritypolicies]",
        ),
        ("resources: {requests: {cpu: 1m, memory: 1Mi}}", "env: []"),
        ("description: A cup.", "displayName: A cup"),
        ("stable", "beta"),
        ("name: cups.v1.2.0", "name: cups-1.2"),
    ];
    let told: String = changes
        .iter()
        .map(|change| format!("{:?}\n-> {:?}\n{}\n", change.0, change.1, found(*change, &all())))
        .collect();
    insta::assert_snapshot!(told);
}

#[test]
fn a_version_of_kubernetes_makes_a_removed_api_an_error() {
    let old = ("kind: Service\nmetadata", "kind: PriorityClass\nmetadata");
    let check = |version: Option<&str>, least: &str, expected: &str| {
        let mut files = bundle();
        for text in files.0.values_mut() {
            *text = text.replace(old.0, old.1).replace(
                "apiVersion: v1\nkind: Pri",
                "apiVersion: scheduling.k8s.io/v1beta1\nkind: Pri",
            );
            *text = text.replace("minKubeVersion: 1.30.0", &format!("minKubeVersion: {least}"));
        }
        let values = version.map(|version| ("k8s-version".to_owned(), version.to_owned()));
        let options = Options {
            select_optional: "name=alpha-deprecated-apis".to_owned(),
            optional_values: values.into_iter().collect(),
            ..Options::default()
        };
        let found = printed(&files, &options);
        assert!(found.starts_with(expected), "{version:?} {least}: {found}");
    };
    check(None, "1.20.0", "Warning: ");
    check(Some("1.21"), "1.20.0", "Warning: ");
    check(Some("1.22"), "1.20.0", "Error: ");
    check(Some("v1.29.1"), "1.20.0", "Error: ");
    check(None, "1.22.0", "Error: ");
    check(Some("soon"), "1.20.0", "Error: ");
}

#[test]
fn dependencies_have_their_types() {
    let check = |line: &str, expected: &str| {
        let mut files = bundle();
        files.0.insert(
            "metadata/dependencies.yaml".to_owned(),
            format!("dependencies:\n- {line}\n"),
        );
        let found = printed(&files, &Options::default());
        assert!(
            found.contains(expected) && found.is_empty() == expected.is_empty(),
            "{line}: {found}"
        );
    };
    check("{type: olm.package, value: {packageName: a, version: '>1.0.0'}}", "");
    check("{type: olm.package, value: {packageName: a}}", "has no version");
    check("{type: olm.gvk, value: {group: a, version: v1, kind: A}}", "");
    check("{type: olm.gvk, value: {group: a, version: v1}}", "has no kind");
    check("{type: olm.label, value: {label: a}}", "");
    check("{type: olm.constraint, value: {cel: {rule: 'true'}}}", "");
    check("{type: crate, value: {}}", "unknown type");
}

#[test]
fn what_is_asked_for_is_known_and_can_run() {
    let check = |selector: &str, expected: &str| {
        let options = Options {
            select_optional: selector.to_owned(),
            ..Options::default()
        };
        let wrong = validate(&bundle(), &options).unwrap_err().to_string();
        assert!(wrong.contains(expected), "{selector}: {wrong}");
    };
    check("name=nobody", "no validator");
    check("name in (", "no label selector");
    check("name=multiarch", "pulls");
    check("name=community", "OpenShift");
    let options = Options {
        select_optional: "suite=operatorframework".to_owned(),
        ..Options::default()
    };
    assert_eq!(printed(&bundle(), &options), "");
    let own = Options {
        select_optional: "name=categories".to_owned(),
        categories: Some(vec!["Cutlery".to_owned()]),
        ..Options::default()
    };
    assert_eq!(found(("Storage, Database", "Cutlery"), &own), "");
    assert!(printed(&bundle(), &own).contains("Storage"));
}

#[test]
fn a_bundle_is_no_larger_than_a_config_map() {
    // Text that does not become smaller: a counter through a mixer.
    let noise: String = (0u64..)
        .map(|n| format!("{:x}", n.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (n << 7)))
        .take(120_000)
        .collect();
    let mut files = bundle();
    files.0.insert(
        "manifests/map.yaml".to_owned(),
        format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: a}}\ndata: {{a: '{noise}'}}\n"),
    );
    let found = printed(&files, &Options::default());
    assert!(
        found.starts_with("Error: ") && found.contains("at most 1.0 MB"),
        "{found}"
    );
}

#[test]
fn charts_are_helms_own_matter() {
    let annotations = ANNOTATIONS.replace("registry+v1", "helm+v1");
    let files = MemoryFiles::from([
        ("metadata/annotations.yaml", annotations.as_str()),
        ("manifests/Chart.yaml", "name: a\n"),
    ]);
    assert_eq!(printed(&files, &all()), "");
}

#[test]
fn folders_that_are_no_bundle_say_so() {
    let check = |files: MemoryFiles, expected: &str| {
        let found = printed(&files, &Options::default());
        assert!(found.contains(expected), "{found}");
    };
    check(MemoryFiles::default(), "empty");
    check(MemoryFiles::from([("a.yaml", "a: 1\n")]), "annotations");
    check(
        MemoryFiles::from([("metadata/annotations.yaml", ANNOTATIONS)]),
        "has no files",
    );
    let mut more = bundle();
    more.0.insert("manifests/deep/a.yaml".to_owned(), SERVICE.to_owned());
    check(more, "a folder among the manifests");
    let mut hidden = bundle();
    hidden.0.insert("manifests/.a.yaml".to_owned(), SERVICE.to_owned());
    check(hidden, "a hidden file");
    let mut two = bundle();
    two.0.insert("manifests/z.yaml".to_owned(), CSV.to_owned());
    check(two, "second ClusterServiceVersion");
    let mut empty = bundle();
    empty.0.insert("manifests/z.yaml".to_owned(), "# nothing\n".to_owned());
    check(empty, "no object");
}
