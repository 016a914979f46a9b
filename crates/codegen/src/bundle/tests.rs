//! Bundles of golden projects, looked at; and the refused ones.

#![allow(clippy::disallowed_methods, reason = "tests read the golden projects")]

use super::*;
use crate::MemoryFiles;

pub(super) fn golden(name: &str) -> MemoryFiles {
    let root = format!("{}/../../testdata/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files = MemoryFiles::default();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.to_string_lossy()[root.len() + 1..].to_owned();
            if path.is_dir() {
                folders.push(path.to_string_lossy().into_owned());
            } else if name.starts_with("config/") || name == "PROJECT" {
                files.0.insert(name, std::fs::read_to_string(&path).unwrap());
            }
        }
    }
    files
}

pub(super) fn options() -> Options {
    Options {
        version: "0.1.0".to_owned(),
        channels: vec!["alpha".to_owned()],
        output: "bundle".to_owned(),
        authors: vec!["Ann <ann@example.com>".to_owned()],
        repository: Some("https://example.com/shop".to_owned()),
        cli_version: "0.1.0".to_owned(),
        ..Options::default()
    }
}

pub(super) fn made(files: &MemoryFiles, options: &Options) -> MemoryFiles {
    let plan = bundle(files, options).unwrap_or_else(|wrong| panic!("{wrong}"));
    let mut after = files.clone();
    after.apply(&plan);
    let again = bundle(&after, options).unwrap_or_else(|wrong| panic!("{wrong}"));
    assert!(again.is_empty(), "twice is once:\n{}", again.diff());
    after
}

pub(super) fn csv(files: &MemoryFiles) -> Value {
    let mut found = files
        .0
        .iter()
        .filter(|(path, _)| path.starts_with("bundle/") && path.ends_with("clusterserviceversion.yaml"));
    yaml::parse(found.next().unwrap().1).unwrap()
}

#[test]
fn a_bundle_of_a_kind_that_runs_an_image() {
    let files = made(&golden("deploy-image"), &options());
    let shown: String = files
        .0
        .iter()
        .filter(|(path, _)| path.starts_with("bundle") || path.starts_with("config/manifests"))
        .map(
            |(path, text)| match path.contains("/manifests/") && !path.contains("clusterserviceversion") {
                true => format!("=== {path}\n"),
                false => format!("=== {path}\n{text}"),
            },
        )
        .collect();
    insta::assert_snapshot!(shown);
}

#[test]
fn every_golden_project_has_a_bundle_that_says_its_webhooks_and_rights() {
    for (name, owned, hooks) in [
        ("plain", 1, 2),
        ("multigroup", 3, 1),
        ("conversion", 2, 2),
        ("core", 0, 2),
        ("external", 0, 1),
        ("deploy-image", 1, 1),
    ] {
        let files = made(&golden(name), &options());
        let csv = csv(&files);
        let list = |path: &str| csv.pointer(path).and_then(Value::as_array).map_or(0, Vec::len);
        assert_eq!(list("/spec/customresourcedefinitions/owned"), owned, "{name}");
        assert_eq!(list("/spec/webhookdefinitions"), hooks, "{name}");
        let rights = &csv["spec"]["install"]["spec"];
        let account = format!("{name}-controller-manager");
        assert_eq!(rights["clusterPermissions"][0]["serviceAccountName"], account.as_str());
        assert_eq!(rights["permissions"][0]["serviceAccountName"], account.as_str());
        // Everything of config/rbac/role.yaml is there.
        let role = kustomize::documents("role", &files.0["config/rbac/role.yaml"]).unwrap();
        for rule in role[0]["rules"].as_array().unwrap() {
            let granted = rights["clusterPermissions"][0]["rules"].as_array().unwrap();
            assert!(granted.contains(rule), "{name}: {rule}");
        }
        let paths = files.0.keys().filter(|path| path.starts_with("bundle/manifests/"));
        for path in paths {
            let text = &files.0[path];
            assert!(!text.contains("cert-manager"), "{path}");
            assert!(
                !path.contains("serviceaccount") && !path.contains("webhook-service"),
                "{path}"
            );
        }
        let pod = csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"].to_string();
        assert!(
            !pod.contains("webhook-server-cert"),
            "{name}: OLM mounts its own certificate"
        );
    }
}

#[test]
fn what_people_said_stays_and_old_files_go() {
    let mut files = made(&golden("plain"), &options());
    let base = "config/manifests/bases/plain.clusterserviceversion.yaml";
    let text = files.0[base].replace("The operator plain.", "Keeps books of guests.");
    files.0.insert(
        base.to_owned(),
        text + "  minKubeVersion: 1.30.0\n  replaces: plain.v0.0.9\n",
    );
    files
        .0
        .insert("bundle/manifests/mine.yaml".to_owned(), "kind: ConfigMap\n".to_owned());
    files.0.insert(
        "bundle/manifests/old.yaml".to_owned(),
        format!("{HEADER}kind: ConfigMap\n"),
    );
    let newer = Options {
        version: "0.2.0-rc.1".to_owned(),
        image: Some("registry.example.com/plain:v0.2.0".to_owned()),
        channels: vec!["alpha".to_owned(), "stable".to_owned()],
        default_channel: Some("stable".to_owned()),
        ..options()
    };
    let files = made(&files, &newer);
    let csv = csv(&files);
    assert_eq!(csv["metadata"]["name"], "plain.v0.2.0-rc.1");
    assert_eq!(csv["spec"]["description"], "Keeps books of guests.");
    assert_eq!(csv["spec"]["replaces"], "plain.v0.0.9");
    let container = &csv["spec"]["install"]["spec"]["deployments"][0]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "registry.example.com/plain:v0.2.0");
    assert!(files.0.contains_key("bundle/manifests/mine.yaml"));
    assert!(!files.0.contains_key("bundle/manifests/old.yaml"));
    let annotations = &files.0["bundle/metadata/annotations.yaml"];
    assert!(
        annotations.contains("bundle.channel.default.v1: stable"),
        "{annotations}"
    );
}

#[test]
fn what_olm_would_refuse_is_refused() {
    let plain = golden("plain");
    let with = |path: &str, from: &str, to: &str| {
        let mut files = made(&plain, &options());
        let text = files.0.get_mut(path).unwrap_or_else(|| panic!("{path}"));
        assert!(text.contains(from), "{path}: {text}");
        *text = text.replace(from, to);
        files
    };
    let base = "config/manifests/bases/plain.clusterserviceversion.yaml";
    let sample = "config/samples/webapp_v1_guestbook.yaml";
    let rbac = "config/rbac/kustomization.yaml";
    let mut foreign = plain.clone();
    foreign
        .0
        .insert("bundle.Dockerfile".to_owned(), "FROM scratch\n".to_owned());
    let mut extra = with(rbac, "resources:\n", "resources:\n- job.yaml\n");
    extra.0.insert(
        "config/rbac/job.yaml".to_owned(),
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: once}\nspec: {}\n".to_owned(),
    );
    let version = |version: &str| Options {
        version: version.to_owned(),
        ..options()
    };
    let channel = |channels: &str, default: &str| Options {
        channels: channels.split(' ').map(str::to_owned).collect(),
        default_channel: Some(default.to_owned()),
        ..options()
    };
    let cases = [
        (plain.clone(), version("1.0")),
        (plain.clone(), version("1.0.0+build")),
        (plain.clone(), version("1.0.0-RC.1")),
        (with(base, "spec:\n", "spec:\n  minKubeVersion: 1.30\n"), options()),
        (plain.clone(), channel("alpha", "stable")),
        (
            plain.clone(),
            channel("al pha", "alpha").tap(|options| options.channels = vec!["al,pha".to_owned()]),
        ),
        (
            plain.clone(),
            options().tap(|options| options.package = Some("Not_A_Name".to_owned())),
        ),
        (foreign, options()),
        (extra, options()),
        (with(base, "displayName: Plain", "displayName: \"\""), options()),
        (with(base, "kind: ClusterServiceVersion", "kind: Other"), options()),
        (
            with(
                base,
                "spec:\n",
                "spec:\n  installModes:\n  - {type: AllNamespaces, supported: false}\n",
            ),
            options(),
        ),
        (
            with(
                base,
                "spec:\n",
                "spec:\n  installModes:\n  - {type: Everywhere, supported: true}\n",
            ),
            options(),
        ),
        (
            with(base, "spec:\n", "spec:\n  icon:\n  - {mediatype: image/svg+xml}\n"),
            options(),
        ),
        (with(sample, "kind: Guestbook", "kind: Guestbooks"), options()),
        (
            with(
                "config/webhook/manifests.yaml",
                "    - webapp.my.domain\n",
                "    - '*'\n",
            ),
            options(),
        ),
    ];
    let mut told = String::new();
    for (at, (files, options)) in cases.iter().enumerate() {
        let plan = bundle(files, options);
        match plan {
            Err(wrong) => told += &format!("{at}: {wrong}\n\n"),
            Ok(plan) => {
                let warnings: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
                told += &format!("{at}: made, with {}\n\n", warnings.join("\n"));
            }
        }
    }
    insta::assert_snapshot!(told);
}

/// A request with one thing changed.
trait Tap: Sized {
    fn tap(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }
}

impl Tap for Options {}

#[test]
fn titles_are_words() {
    for (name, words) in [
        ("containerPort", "Container Port"),
        ("HTTPRoute", "HTTP Route"),
        ("memstore", "Memstore"),
        ("sea-lanes", "Sea Lanes"),
        ("v2Size", "V2 Size"),
    ] {
        assert_eq!(title(name), words);
    }
}

#[test]
fn scorecard_is_configured_where_it_is_asked_for() {
    const FILE: &str = "bundle/tests/scorecard/config.yaml";
    let plain = golden("plain");
    let check = |files: &MemoryFiles, scorecard: bool, image: Option<&str>| {
        let options = Options { scorecard, ..options() };
        let made = made(files, &options);
        let text = made.0.get(FILE).map(|text| yaml::parse(text).unwrap());
        let tests = text.as_ref().map(|text| &text["stages"][0]["tests"]);
        assert_eq!(tests.and_then(|tests| tests[0]["image"].as_str()), image);
        for (path, words) in [
            ("bundle.Dockerfile", "COPY bundle/tests/scorecard /tests/scorecard/"),
            ("bundle/metadata/annotations.yaml", "test.mediatype.v1: scorecard+v1"),
        ] {
            assert_eq!(
                made.0[path].contains(words),
                image.is_some(),
                "{path}: {}",
                made.0[path]
            );
        }
        made
    };
    check(&plain, false, None);
    let usual = Some("quay.io/operator-framework/scorecard-test:v1.42.0");
    let with = check(&plain, true, usual);
    // A file that is no longer needed goes.
    check(&with, false, None);
    let mut listed = plain.clone();
    let project = &plain.0["PROJECT"];
    let plugins = "plugins:\n  scorecard.sdk.operatorframework.io/v2: {}\nprojectName:";
    listed
        .0
        .insert("PROJECT".into(), project.replacen("projectName:", plugins, 1));
    check(&listed, false, usual);
    let mut own = plain.clone();
    let mut add = |path: &str, text: &str| own.0.insert(format!("config/scorecard/{path}"), text.to_owned());
    add(
        "kustomization.yaml",
        "resources:\n- bases/config.yaml\npatches:\n- path: patches/basic.yaml\n  target: {group: scorecard.operatorframework.io, kind: Configuration, name: config, version: v1alpha3}\n",
    );
    add(
        "bases/config.yaml",
        "apiVersion: scorecard.operatorframework.io/v1alpha3\nkind: Configuration\nmetadata: {name: config}\nstages:\n- parallel: true\n  tests: []\n",
    );
    add(
        "patches/basic.yaml",
        "- op: add\n  path: /stages/0/tests/-\n  value: {entrypoint: [mine], image: example.com/mine}\n",
    );
    check(&own, false, Some("example.com/mine"));
    own.0.insert(
        "config/scorecard/bases/config.yaml".into(),
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\nstages: [{tests: []}]\n".into(),
    );
    let wrong = bundle(&own, &options())
        .err()
        .map(|wrong| wrong.to_string())
        .unwrap_or_default();
    assert!(!wrong.is_empty());
}

#[test]
fn a_bundle_says_by_which_layout_its_project_was_made() {
    let mut files = golden("deploy-image");
    let project = files.0["PROJECT"].replace("rust.kubewright.dev/v1-alpha", "helm.sdk.operatorframework.io/v1");
    files.0.insert("PROJECT".to_owned(), project);
    let files = made(&files, &options());
    for file in ["bundle.Dockerfile", "bundle/metadata/annotations.yaml"] {
        let text = &files.0[file];
        assert!(
            text.contains("project_layout") && text.contains("helm.sdk.operatorframework.io/v1"),
            "{text}"
        );
    }
}
