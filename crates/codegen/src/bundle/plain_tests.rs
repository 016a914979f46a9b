//! Bundles of rendered manifests, and scorecard's tests of bundles.

use super::scorecard::State;
use super::tests::{csv, golden, made, options};
use super::*;
use crate::MemoryFiles;

fn input(text: &str) -> Input {
    Input {
        manifests: vec![("input".to_owned(), text.to_owned())],
        kustomize_folder: "config/manifests".to_owned(),
    }
}

fn generated(files: &MemoryFiles, options: &Options, input: &Input) -> MemoryFiles {
    let plan = generate(files, options, input).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut after = files.clone();
    after.apply(&plan);
    let again = generate(&after, options, input).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(again.is_empty(), "twice is once:\n{}", again.diff());
    after
}

#[test]
fn rendered_manifests_make_the_bundle_of_the_project() {
    for name in ["plain", "deploy-image", "multigroup"] {
        let whole = made(&golden(name), &options());
        let project = Project::load(&whole).unwrap();
        let mut rendered = rendered(&project, &options(), &Plan::new(&whole)).unwrap();
        rendered.extend(kustomize::build("config/samples", &whole).unwrap());
        let mut before = whole.clone();
        before.0.retain(|path, _| !path.starts_with("bundle"));
        let after = generated(&before, &options(), &input(&yaml::documents_to_string(&rendered)));
        for (path, text) in whole.0 {
            assert_eq!(after.0.get(&path), Some(&text), "{name}: {path}");
        }
    }
}

/// An operator in another language: two Deployments of one account, webhooks by named ports, a role of clusters.
const FOREIGN: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: manager, namespace: shop}
spec:
  selector: {matchLabels: {app: manager}}
  template:
    metadata: {labels: {app: manager}}
    spec:
      serviceAccountName: shop
      containers:
      - name: manager
        image: example.com/shop:v1
        env:
        - {name: WATCH_NAMESPACE, value: shop}
        - {name: RELATED_IMAGE_DATA_BASE, value: "example.com/db:v2"}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: hooks, namespace: shop}
spec:
  selector: {matchLabels: {app: hooks}}
  template:
    metadata: {labels: {app: hooks, tier: web}}
    spec:
      serviceAccountName: shop
      containers: [{name: hooks, image: "example.com/hooks:v1"}]
---
apiVersion: v1
kind: Service
metadata: {name: hooks, namespace: shop}
spec:
  selector: {app: hooks}
  ports: [{port: 8443, targetPort: https}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: shop}
webhooks:
- name: v.shop.example.com
  admissionReviewVersions: [v1]
  sideEffects: None
  clientConfig: {service: {name: hooks, namespace: shop, path: /validate, port: 8443}}
  rules: [{apiGroups: [shop.example.com], apiVersions: [v1], operations: [CREATE], resources: [shops]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: shop, namespace: shop}
rules: [{apiGroups: [""], resources: [pods], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: shop, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: shop}
subjects: [{kind: ServiceAccount, name: shop, namespace: shop}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: shop-auth}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:auth-delegator"}
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
---
apiVersion: scorecard.operatorframework.io/v1alpha3
kind: Configuration
metadata: {name: config}
stages:
- tests:
  - {entrypoint: [scorecard-test, basic-check-spec], image: example.com/tests:v1, labels: {suite: basic}}
  - {entrypoint: [scorecard-test, olm-spec-descriptors], image: example.com/tests:v1, labels: {suite: olm}}
  - {entrypoint: [scorecard-test, olm-crds-have-resources], image: example.com/tests:v1, labels: {suite: olm}}
  - {entrypoint: [own, stress], image: example.com/own:v1, labels: {suite: own}}
"#;

#[test]
fn an_operator_in_another_language_becomes_a_bundle() {
    let project = MemoryFiles::from([(
        "PROJECT",
        "domain: example.com\nlayout: [go.kubebuilder.io/v4]\nprojectName: shop\nversion: \"3\"\n",
    )]);
    let after = generated(&project, &options(), &input(FOREIGN));
    let shown: String = after
        .0
        .iter()
        .filter(|(path, _)| path.starts_with("bundle"))
        .map(|(path, text)| format!("=== {path}\n{text}"))
        .collect();
    insta::assert_snapshot!(shown);

    let mut files = MemoryFiles::default();
    for (path, text) in &after.0 {
        if let Some(path) = path.strip_prefix("bundle/") {
            files.0.insert(path.to_owned(), text.clone());
        }
    }
    let report = validate::validate(&files, &validate::Options::default()).unwrap();
    assert!(report.passed, "{:?}", report.outputs);
    let states = |selector: &str| -> Vec<(String, State)> {
        let tests = scorecard::run(&files, selector).unwrap();
        tests.into_iter().map(|test| (test.name, test.state)).collect()
    };
    let named = |name: &str, state: State| (name.to_owned(), state);
    assert_eq!(
        states(""),
        [
            named("basic-check-spec", State::Pass),
            named("olm-spec-descriptors", State::Pass),
            named("olm-crds-have-resources", State::Fail),
            named("stress", State::Error),
        ]
    );
    assert_eq!(states("suite=basic"), [named("basic-check-spec", State::Pass)]);
    assert!(scorecard::run(&files, "suite in (").is_err());
}

#[test]
fn each_of_scorecards_tests_can_fail() {
    let made = made(&golden("plain"), &options());
    let check = |test: &str, file: &str, from: &str, to: &str, expected: (State, &str)| {
        let mut files = MemoryFiles::default();
        let mut changed = from.is_empty();
        for (path, text) in &made.0 {
            let Some(path) = path.strip_prefix("bundle/") else {
                continue;
            };
            let mut text = text.clone();
            if path.ends_with(file) {
                changed |= text.contains(from);
                text = text.replace(from, to);
            }
            files.0.insert(path.to_owned(), text);
        }
        assert!(changed, "{from:?} is nowhere in {file}");
        let found = scorecard::run(&files, &format!("test={test}-test")).unwrap();
        assert_eq!(found.len(), 1, "{test}");
        let said = format!("{:?} {:?}", found[0].errors, found[0].suggestions);
        assert_eq!(found[0].state, expected.0, "{test}: {said}");
        assert!(said.contains(expected.1), "{test}: {said}");
    };
    let csv = "clusterserviceversion.yaml";
    check("basic-check-spec", csv, "", "", (State::Pass, ""));
    check(
        "basic-check-spec",
        csv,
        "\"spec\"",
        "\"data\"",
        (State::Pass, "has no spec"),
    );
    check("olm-bundle-validation", csv, "", "", (State::Pass, "minKubeVersion"));
    check(
        "olm-bundle-validation",
        csv,
        "  installModes:",
        "  modes:",
        (State::Fail, "installModes"),
    );
    check("olm-crds-have-validation", csv, "", "", (State::Pass, ""));
    check(
        "olm-crds-have-validation",
        csv,
        "\"spec\": {}",
        "\"spec\": {\"colour\": 1}",
        (State::Fail, "spec.colour"),
    );
    check("olm-crds-have-resources", csv, "", "", (State::Fail, "no resources"));
    check("olm-spec-descriptors", csv, "", "", (State::Pass, ""));
    check(
        "olm-spec-descriptors",
        csv,
        "\"spec\": {}",
        "\"spec\": {\"colour\": 1}",
        (State::Fail, "colour"),
    );
    check("olm-status-descriptors", csv, "", "", (State::Pass, "no status"));
}

#[test]
fn what_is_missing_in_the_input_is_said() {
    let none = Options {
        version: String::new(),
        ..options()
    };
    let package = |options: &Options| Options {
        package: Some("shop".to_owned()),
        ..options.clone()
    };
    let check = |options: &Options, text: &str, expected: &str| {
        let wrong = generate(&MemoryFiles::default(), options, &input(text)).err();
        let wrong = wrong.map(|wrong| wrong.to_string()).unwrap_or_default();
        assert!(wrong.contains(expected), "{wrong:?} should say {expected:?}");
    };
    check(&options(), FOREIGN, "--package");
    check(&package(&none), FOREIGN, "--version");
    check(&package(&options()), "", "no manifests");
    check(&package(&options()), "a: b: c", "input");
    check(
        &package(&options()),
        "apiVersion: v1\nkind: Service\nmetadata: {name: a}\n",
        "no Deployment",
    );
    let no_role = FOREIGN.replace("kind: Role\n", "kind: ClusterRole\n");
    check(&package(&options()), &no_role, "not among the manifests");
    // The base is among the manifests, and says the version.
    let base = "---\napiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: shop.v0.3.0}\nspec: {displayName: Shop, version: 0.3.0, icon: [{base64data: '', mediatype: ''}]}\n";
    let after = generated(
        &MemoryFiles::default(),
        &package(&none),
        &input(&format!("{FOREIGN}{base}")),
    );
    assert_eq!(csv(&after)["spec"]["version"], "0.3.0");
    assert_eq!(csv(&after)["spec"]["displayName"], "Shop");
    assert!(csv(&after)["spec"].get("icon").is_none(), "an icon without a picture");
}
