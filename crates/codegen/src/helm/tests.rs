//! Charts of the golden projects: their text, and, where there is Helm, what it renders. With their defaults they are
//! `config/default`, and every value does something.

use std::path::Path;

use serde_json::{Value, json};

use super::*;
use crate::plan::MemoryFiles;
use crate::scaffold;
use crate::yaml;

/// A golden project.
fn golden(name: &str) -> MemoryFiles {
    fn add(root: &Path, folder: &Path, files: &mut MemoryFiles) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                add(root, &path, files);
            } else if let Ok(text) = std::fs::read_to_string(&path) {
                let path = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                files.0.insert(path, text);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../testdata/golden")
        .join(name);
    let mut files = MemoryFiles::default();
    for part in ["config", "PROJECT"] {
        let path = root.join(part);
        if path.is_dir() {
            add(&root, &path, &mut files);
        } else {
            files.0.insert(part.to_owned(), std::fs::read_to_string(path).unwrap());
        }
    }
    files
}

fn with_chart(name: &str) -> MemoryFiles {
    let mut files = golden(name);
    let before = files.clone();
    let project = Project::load(&before).unwrap();
    let mut plan = Plan::new(&before);
    chart(&project, "dist", false, &mut plan).unwrap();
    files.apply(&plan);
    files
}

/// Whether Helm can be used; says so when it cannot, and fails where it is insisted on.
#[allow(clippy::print_stderr, reason = "what did not run is told aloud")]
fn helm_is_there() -> bool {
    let there = std::process::Command::new("helm").arg("version").output().is_ok();
    let insisted = std::env::var_os("KUBEWRIGHT_REQUIRE_HELM").is_some();
    assert!(
        there || !insisted,
        "helm is not on the PATH, and KUBEWRIGHT_REQUIRE_HELM insists on it"
    );
    if !there {
        eprintln!("did not run: helm is not on the PATH, so that no chart was rendered");
    }
    there
}

/// The answer of Helm about a chart with these values.
#[expect(clippy::disallowed_methods, reason = "Helm reads a chart from a folder")]
fn by_helm(files: &MemoryFiles, arguments: &[&str], said: &[(&str, Value)]) -> String {
    let folder = tempfile::tempdir().unwrap();
    for (path, text) in files.0.iter().filter(|(path, _)| path.starts_with("dist/chart/")) {
        let place = folder.path().join(path);
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        let mut text = text.clone();
        if path.ends_with("/values.yaml") && !said.is_empty() {
            let mut values = yaml::parse(&text).unwrap();
            for (pointer, value) in said {
                *values.pointer_mut(pointer).unwrap() = value.clone();
            }
            text = yaml::to_string(&values);
        }
        std::fs::write(place, text).unwrap();
    }
    let done = std::process::Command::new("helm")
        .args(arguments)
        .current_dir(folder.path().join("dist"))
        .output()
        .unwrap();
    let said = String::from_utf8(done.stdout).unwrap();
    let wrong = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "helm {arguments:?}:\n{said}{wrong}");
    said
}

/// The objects of a release with these values.
fn released(files: &MemoryFiles, release: &str, said: &[(&str, Value)]) -> Vec<Value> {
    let project = Project::load(files).unwrap();
    let namespace = if release == project.name {
        project.namespace()
    } else {
        "elsewhere".to_owned()
    };
    let rendered = by_helm(files, &["template", release, "chart", "--namespace", &namespace], said);
    let documents = rendered.split("\n---\n").map(|text| text.trim_start_matches("---\n"));
    let documents = documents.filter(|text| {
        text.lines()
            .any(|line| !line.starts_with('#') && !line.trim().is_empty())
    });
    documents
        .map(|text| yaml::parse(text).unwrap_or_else(|why| panic!("{why}\n{text}")))
        .collect()
}

const GOLDEN: [&str; 6] = ["plain", "multigroup", "conversion", "core", "external", "deploy-image"];

/// A template without its actions: lines of them go, and a word stands for those within a line.
fn without_actions(template: &str) -> String {
    let actions = regex::Regex::new(r"\{\{.*?\}\}").unwrap();
    let lines = template.lines().filter(|line| {
        let line = line.trim();
        !(line.starts_with("{{") && line.ends_with("}}") && actions.replace_all(line, "").trim().is_empty())
    });
    let lines = lines.map(|line| actions.replace_all(line, "x") + "\n");
    lines.collect()
}

#[test]
fn a_chart_is_yaml_around_its_actions() {
    for name in GOLDEN {
        let files = with_chart(name);
        yaml::parse(&files.0["dist/chart/values.yaml"]).unwrap_or_else(|why| panic!("{name}: {why}"));
        let is_template = |path: &str| path.starts_with("dist/chart/templates/") && path.ends_with(".yaml");
        for (path, text) in files.0.iter().filter(|(path, _)| is_template(path)) {
            let opened = ["{{- if ", "{{- with ", "{{- range "].map(|word| text.matches(word).count());
            let closed = text.matches("{{- end }}").count();
            assert_eq!(opened.iter().sum::<usize>(), closed, "{name}: {path}:\n{text}");
            let plain = without_actions(text);
            let object = yaml::parse(&plain).unwrap_or_else(|why| panic!("{name}: {path}: {why}\n{plain}"));
            assert!(
                object["kind"].is_string() && object["apiVersion"].is_string(),
                "{name}: {path}"
            );
        }
    }
}

#[test]
fn the_text_of_a_chart() {
    let mut text = String::new();
    for (path, of_file) in with_chart("conversion").0 {
        let Some(path) = path.strip_prefix("dist/chart/") else {
            continue;
        };
        // Those of templates/helm, and roles in which only names are the release's.
        let is_plain = ["NOTES.txt", "_helpers.tpl", ".helmignore", "-role.yaml"].map(|end| path.ends_with(end));
        if is_plain.contains(&true) {
            continue;
        }
        // The schema is text of the definition.
        let shown = of_file.split_once("\n  versions:\n").filter(|_| path.contains("/crd/"));
        let shown = shown.map_or(of_file.clone(), |(before, _)| format!("{before}\n  versions: …\n"));
        text += &format!("=== {path}\n{shown}");
    }
    insta::assert_snapshot!(text);
}

/// Without the parts that only releases have, and with unordered lists sorted.
fn plain(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for only in [
                "app.kubernetes.io/instance",
                "app.kubernetes.io/managed-by",
                "helm.sh/resource-policy",
                "imagePullPolicy",
            ] {
                fields.remove(only);
            }
            if let Some(args) = fields.get_mut("args").and_then(Value::as_array_mut) {
                args.sort_by_key(ToString::to_string);
            }
            fields.values_mut().for_each(plain);
            // Empty values have no meaning.
            fields.retain(|_, field| !field.is_null() && *field != json!({}) && *field != json!([]));
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

fn by_name(mut objects: Vec<Value>) -> Vec<Value> {
    objects.iter_mut().for_each(plain);
    objects.sort_by_key(|object| format!("{} {}", object["kind"], object["metadata"]["name"]));
    objects
}

#[test]
fn a_release_with_the_defaults_is_what_config_says() {
    if !helm_is_there() {
        return;
    }
    for name in GOLDEN {
        let files = with_chart(name);
        by_helm(&files, &["lint", "chart", "--strict"], &[]);
        let mut wanted = kustomize::build("config/default", &files).unwrap();
        wanted.retain(|object| object["kind"] != "Namespace");
        assert_alike(name, &by_name(released(&files, name, &[])), &by_name(wanted));
        for said in values_said() {
            assert!(!released(&files, name, &[said]).is_empty(), "{name}");
        }
    }
}

fn assert_alike(name: &str, made: &[Value], wanted: &[Value]) {
    let names = |objects: &[Value]| -> Vec<String> {
        objects
            .iter()
            .map(|object| format!("{} {}", object["kind"], object["metadata"]["name"]))
            .collect()
    };
    assert_eq!(names(made), names(wanted), "{name}");
    for (made, wanted) in made.iter().zip(wanted) {
        let (made, wanted) = (yaml::to_string(made), yaml::to_string(wanted));
        assert!(
            made == wanted,
            "{name}:\n{}",
            similar::TextDiff::from_lines(&wanted, &made).unified_diff()
        );
    }
}

#[test]
fn every_value_does_something() {
    if !helm_is_there() {
        return;
    }
    let files = with_chart("conversion");
    let defaults = released(&files, "conversion", &[]);
    for (pointer, value) in values_said() {
        // The release's name contains the chart's; only another name shows the effect of nameOverride.
        let (release, before) = if pointer == "/nameOverride" {
            ("other", released(&files, "other", &[]))
        } else {
            ("conversion", defaults.clone())
        };
        assert_ne!(
            released(&files, release, &[(pointer, value)]),
            before,
            "{pointer} changes something"
        );
    }
}

/// Every value that a chart has, with another content than its default.
fn values_said() -> Vec<(&'static str, Value)> {
    vec![
        ("/manager/replicas", json!(3)),
        ("/manager/image/repository", json!("example.com/other")),
        ("/manager/image/tag", json!("v9")),
        ("/manager/image/digest", json!("sha256:00")),
        ("/manager/image/pullPolicy", json!("Always")),
        ("/manager/imagePullSecrets", json!([{"name": "pull"}])),
        ("/manager/args", json!(["--leader-elect=false"])),
        ("/manager/env", json!([{"name": "A", "value": "1"}])),
        ("/manager/resources", json!({"limits": {"cpu": "2"}})),
        ("/manager/podSecurityContext", json!({"runAsUser": 7})),
        ("/manager/securityContext", json!({"runAsUser": 8})),
        ("/manager/nodeSelector", json!({"disk": "ssd"})),
        ("/manager/tolerations", json!([{"operator": "Exists"}])),
        ("/manager/affinity", json!({"podAffinity": {}})),
        ("/manager/topologySpreadConstraints", json!([{"maxSkew": 1}])),
        ("/manager/priorityClassName", json!("high")),
        ("/serviceAccount/enabled", json!(false)),
        ("/serviceAccount/name", json!("mine")),
        ("/serviceAccount/annotations", json!({"role": "r"})),
        ("/rbac/helpers/enabled", json!(false)),
        ("/crd/enabled", json!(false)),
        ("/crd/keep", json!(false)),
        ("/metrics/enabled", json!(false)),
        ("/metrics/port", json!(9000)),
        ("/webhook/enabled", json!(false)),
        ("/webhook/port", json!(9001)),
        ("/certManager/enabled", json!(false)),
        ("/prometheus/enabled", json!(true)),
        ("/networkPolicy/enabled", json!(true)),
        ("/nameOverride", json!("short")),
        ("/fullnameOverride", json!("whole")),
    ]
}

#[test]
fn no_name_of_the_project_is_left_in_another_release() {
    if !helm_is_there() {
        return;
    }
    let files = with_chart("conversion");
    for object in released(
        &files,
        "blue",
        &[
            ("/networkPolicy/enabled", json!(true)),
            ("/fullnameOverride", json!("blue")),
        ],
    ) {
        let mut object = object;
        if object["kind"] == "CustomResourceDefinition" {
            object["spec"]["versions"].take();
        }
        assert!(!object.to_string().contains("conversion-"), "{object:#}");
    }
}

#[test]
fn twice_is_once_and_what_people_wrote_stays() {
    let mut files = with_chart("plain");
    let project = Project::load(&files).unwrap();
    let again = files.clone();
    let mut plan = Plan::new(&again);
    chart(&project, "dist", false, &mut plan).unwrap();
    assert!(plan.is_empty(), "{}", plan.diff());
    files.0.insert("dist/chart/values.yaml".into(), "mine: true\n".into());
    files
        .0
        .insert("dist/chart/templates/mine.yaml".into(), "kind: Mine\n".into());
    let stale = format!("{HEADER}kind: Old\n");
    files.0.insert("dist/chart/templates/rbac/old.yaml".into(), stale);
    let edited = files.clone();
    let mut plan = Plan::new(&edited);
    chart(&project, "dist", false, &mut plan).unwrap();
    let changes: Vec<&str> = plan.changes().map(|(path, _)| path).collect();
    assert_eq!(changes, ["dist/chart/templates/rbac/old.yaml"]);
    let file = "dist/chart/templates/manager/controller-manager.yaml";
    files.0.insert(file.into(), "kind: Mine\n".into());
    let mut plan = Plan::new(&files);
    let refused = chart(&project, "dist", false, &mut plan).unwrap_err();
    assert!(refused.to_string().contains(file), "{refused}");
}

#[test]
fn plugins_of_project_are_scaffolded_again() {
    let mut files = golden("plain");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata/golden/plain/Cargo.toml");
    files
        .0
        .insert("Cargo.toml".to_owned(), std::fs::read_to_string(manifest).unwrap());
    let options = scaffold::Edit {
        plugins: ["helm", "grafana", "autoupdate"].map(str::to_owned).into(),
        output: Some("deploy".to_owned()),
        ..scaffold::Edit::default()
    };
    let before = files.clone();
    files.apply(&scaffold::edit(&before, &options).unwrap());
    let again = scaffold::whole(&files, "0.1.0").unwrap();
    let of_plugins = |files: &MemoryFiles| {
        let is_of_one = |path: &&String| {
            path.starts_with("deploy/") || path.starts_with("grafana/") || path.ends_with("auto_update.yml")
        };
        let found = files.0.iter().filter(|(path, _)| is_of_one(path));
        found
            .map(|(path, text)| (path.clone(), text.clone()))
            .collect::<Vec<_>>()
    };
    let wanted = of_plugins(&files);
    assert!(wanted.len() > 20, "{wanted:?}");
    assert_eq!(of_plugins(&again.files), wanted);
    assert_eq!(again.of_plugins.len(), wanted.len());
    assert_eq!(again.files.0["PROJECT"], files.0["PROJECT"]);
    // A missing file that a chart needs is reported, and the rest is written.
    files.0.retain(|path, _| path != "config/rbac/role.yaml");
    let again = scaffold::whole(&files, "0.1.0").unwrap();
    assert!(!again.files.0.keys().any(|path| path.starts_with("deploy/")));
    assert!(again.files.0.contains_key(".github/workflows/auto_update.yml"));
    let notes = again.notes.join("\n");
    assert!(notes.contains("left out what the plugin helm"), "{notes}");
}
