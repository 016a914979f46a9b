//! Projects as kubebuilder makes them, and the same projects as ours.
#![allow(
    dead_code,
    clippy::unwrap_used,
    reason = "each test program uses a part, and a test fails by panicking"
)]

pub(crate) mod compare;

use std::collections::BTreeMap;
use std::path::Path;

use kubewright_codegen::project::{LAYOUT, Project, Resource};
use kubewright_codegen::{MemoryFiles, Plan, config, kustomize, manifests};
use serde::Deserialize;
use serde_json::Value;

/// A recorded project.
#[derive(Deserialize)]
pub(crate) struct Recording {
    #[serde(skip)]
    pub(crate) name: String,
    pub(crate) commands: Vec<String>,
    #[serde(rename = "PROJECT")]
    project: Value,
    objects: Vec<Value>,
    rendered: BTreeMap<String, Vec<usize>>,
}

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../codegen/testdata/kubebuilder");

/// All recorded projects.
pub(crate) fn recordings() -> Vec<Recording> {
    let mut found: Vec<Recording> = std::fs::read_dir(FOLDER)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "json") && !path.ends_with("allowed.json"))
        .map(|path| {
            let mut recording: Recording = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            recording.name = path.file_stem().unwrap().to_string_lossy().into_owned();
            recording
        })
        .collect();
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(!found.is_empty(), "no recordings in {FOLDER}");
    found
}

/// The differences that are meant, and which of them were met.
pub(crate) struct Meant {
    allowed: Vec<(compare::Allowed, bool)>,
}

impl Meant {
    pub(crate) fn read() -> Meant {
        let mut meant = Meant { allowed: Vec::new() };
        meant.and(&std::fs::read_to_string(format!("{FOLDER}/allowed.json")).unwrap());
        meant
    }

    /// Adds a list of differences in the form of `allowed.json`.
    pub(crate) fn and(&mut self, list: &str) {
        let allowed: Vec<compare::Allowed> = serde_json::from_str(list).unwrap();
        assert!(
            allowed.iter().all(|allowed| !allowed.reason.is_empty()),
            "each has a reason"
        );
        self.allowed.extend(allowed.into_iter().map(|allowed| (allowed, false)));
    }

    fn covers(&mut self, project: &str, rendering: &str, difference: &compare::Difference) -> bool {
        let found = self
            .allowed
            .iter_mut()
            .find(|(allowed, _)| allowed.covers(project, rendering, difference));
        found.map(|(_, met)| *met = true).is_some()
    }

    /// The differences that were never met: the list is to stay true.
    pub(crate) fn never_met(&self) -> String {
        let never = self.allowed.iter().filter(|(_, met)| !met);
        never.map(|(allowed, _)| format!("never met: {allowed:?}\n")).collect()
    }
}

/// Folder and variant of a recorded rendering: `default@all`.
pub(crate) fn parts(rendering: &str) -> (String, &str) {
    let (dir, variant) = rendering.split_once('@').unwrap_or((rendering, ""));
    (format!("config/{dir}"), variant)
}

impl Recording {
    /// The renderings: `default@all` and the like, with their objects.
    pub(crate) fn renderings(&self) -> impl Iterator<Item = (&str, Vec<Value>)> {
        self.rendered.keys().map(|name| (name.as_str(), self.objects_of(name)))
    }

    pub(crate) fn objects_of(&self, rendering: &str) -> Vec<Value> {
        let indices = self.rendered.get(rendering).into_iter().flatten();
        indices.map(|index| self.objects[*index].clone()).collect()
    }

    /// The differences between the renderings of a tree and the recorded ones, except for intended ones; a line for
    /// each.
    pub(crate) fn differences(&self, tree: &MemoryFiles, meant: &mut Meant) -> String {
        let mut wrong = String::new();
        for (rendering, expected) in self.renderings() {
            let (dir, variant) = parts(rendering);
            match kustomize::build(&dir, &switched(tree, variant)) {
                Err(why) => wrong.push_str(&format!("{} {rendering}: {why}\n", self.name)),
                Ok(actual) => {
                    for difference in compare::differences(&expected, &actual) {
                        if !meant.covers(&self.name, rendering, &difference) {
                            wrong.push_str(&format!("{} {rendering}: {difference:?}\n", self.name));
                        }
                    }
                }
            }
        }
        wrong
    }

    /// The tree of a project on disk; when its code was not built, with the files that are generated from it as
    /// [`Recording::generated`] has them.
    pub(crate) fn on_disk(&self, root: &Path, built: bool) -> MemoryFiles {
        let mut files = MemoryFiles::default();
        read_below(root, "config", &mut files);
        if !built {
            self.generated(&mut files);
        }
        files
    }

    /// The project that our command would have made.
    pub(crate) fn project(&self) -> Project {
        let mut project = self.project.clone();
        project["layout"] = Value::from(vec![LAYOUT]);
        Project::parse(&project.to_string()).unwrap()
    }

    /// The project after each of the commands that made it.
    pub(crate) fn steps(&self) -> Vec<Project> {
        let whole = self.project();
        let mut project = whole.clone();
        project.resources.clear();
        project.plugins.clear();
        (project.multigroup, project.namespaced) = (false, false);
        let mut steps: Vec<Project> = Vec::new();
        for command in self.commands.iter().filter(|command| !command.starts_with("make")) {
            project.multigroup |= command.contains("--multigroup");
            project.namespaced |= command.contains("--namespaced") && !command.contains("create");
            let flag = |name: &str| {
                let after = command.split(&format!("--{name} ")).nth(1)?;
                after.split(' ').next()
            };
            if let Some(kind) = flag("kind") {
                let wanted = |resource: &&Resource| {
                    Some(resource.group.as_str()) == flag("group")
                        && Some(resource.version.as_str()) == flag("version")
                        && resource.kind == kind
                };
                let resource = whole.resources.iter().find(wanted).unwrap();
                let at = project.resources.iter().position(|other| wanted(&other));
                let at = at.unwrap_or_else(|| {
                    project.resources.push(resource.clone());
                    project.resources.len() - 1
                });
                if command.contains("create webhook") {
                    project.resources[at] = resource.clone();
                } else {
                    project.resources[at].webhooks = None;
                }
            }
            if command.contains("deploy-image") {
                project.plugins.clone_from(&whole.plugins);
            }
            steps.push(project.clone());
        }
        let last = steps.last().unwrap();
        assert_eq!(
            last.resources, whole.resources,
            "{}: the commands lead elsewhere",
            self.name
        );
        assert_eq!((last.multigroup, last.namespaced), (whole.multigroup, whole.namespaced));
        steps
    }

    /// Our `config/`, with the files that are generated from the code as [`Recording::generated`] has them.
    pub(crate) fn tree(&self) -> MemoryFiles {
        let mut files = MemoryFiles::default();
        let mut before = None;
        for after in self.steps() {
            files = synced(before.as_ref(), &after, files);
            before = Some(after);
        }
        self.generated(&mut files);
        files
    }

    /// The roles that `manifests` derives for the project: from its controllers, as they are scaffolded.
    fn roles(&self) -> Vec<Value> {
        // The plugin's controller makes Deployments and holds a finalizer.
        let of_plugin = self.commands.iter().any(|command| command.contains("deploy-image"));
        let deployment = manifests::Kind {
            group: "apps".to_owned(),
            version: "v1".to_owned(),
            kind: "Deployment".to_owned(),
            plural: "deployments".to_owned(),
            namespaced: true,
            ..manifests::Kind::default()
        };
        let deployments: Vec<manifests::Kind> = of_plugin.then_some(deployment).into_iter().collect();
        let project = self.project();
        let controllers = project.resources.iter().flat_map(|resource| {
            let names = project.controller_names(resource);
            let deployments = deployments.clone();
            names.into_iter().map(move |name| manifests::Controller {
                name,
                reconciles: manifests::Kind {
                    group: resource.full_group(),
                    version: resource.version.clone(),
                    kind: resource.kind.clone(),
                    plural: resource.plural(),
                    // Built-in kinds with controllers are namespaced in all recordings; PROJECT says it of own kinds
                    // only.
                    namespaced: resource.api.is_none() || resource.is_namespaced(),
                    rust: String::new(),
                },
                owns: deployments.clone(),
                finalizer: of_plugin.then(String::new),
                events: true,
                ..manifests::Controller::default()
            })
        });
        let crds = self.objects_of("crd").into_iter().flat_map(|crd| {
            let versions = crd["spec"]["versions"].as_array().cloned().unwrap_or_default();
            versions.into_iter().map(move |version| {
                let mut crd = crd.clone();
                crd["spec"]["versions"] = Value::from(vec![version]);
                manifests::Crd {
                    crd,
                    ..manifests::Crd::default()
                }
            })
        });
        let declaration = manifests::Declaration {
            controllers: controllers.collect(),
            crds: crds.collect(),
            ..manifests::Declaration::default()
        };
        let options = manifests::Options {
            namespace: project.namespaced.then(|| project.namespace()),
            ..manifests::Options::default()
        };
        manifests::objects(&declaration, &MemoryFiles::default(), &options)
            .unwrap_or_else(|wrong| panic!("{}: {wrong:?}", self.name))
            .roles
    }

    /// Adds the files that are generated from the code: the role as ours is, the rest from the recording. JSON is YAML.
    pub(crate) fn generated(&self, files: &mut MemoryFiles) {
        for mut crd in self.objects_of("crd") {
            let spec = crd["spec"].as_object_mut().unwrap();
            // Ours is a patch, as the original's.
            spec.remove("conversion");
            let (group, plural) = (&spec["group"], &spec["names"]["plural"]);
            let path = format!(
                "config/crd/bases/{}_{}.yaml",
                group.as_str().unwrap(),
                plural.as_str().unwrap()
            );
            files.0.insert(path, crd.to_string());
        }
        let roles: Vec<String> = self.roles().iter().map(Value::to_string).collect();
        files.0.insert(manifests::ROLES.to_owned(), roles.join("\n---\n"));
        let webhooks: Vec<String> = self
            .objects_of("webhook")
            .iter()
            .filter(|object| object["kind"] != "Service")
            .map(Value::to_string)
            .collect();
        if !webhooks.is_empty() {
            let text = webhooks.join("\n---\n");
            files.0.insert("config/webhook/manifests.yaml".to_owned(), text);
        }
    }
}

/// Adds the files below a folder.
fn read_below(root: &Path, folder: &str, files: &mut MemoryFiles) {
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let path = format!("{folder}/{}", entry.unwrap().file_name().to_string_lossy());
        if root.join(&path).is_dir() {
            read_below(root, &path, files);
        } else {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            files.0.insert(path, text);
        }
    }
}

/// The files after `sync`.
pub(crate) fn synced(before: Option<&Project>, after: &Project, mut files: MemoryFiles) -> MemoryFiles {
    let present = files.clone();
    let mut plan = Plan::new(&present);
    config::sync(before, after, &mut plan).unwrap_or_else(|why| panic!("{why}"));
    files.apply(&plan);
    files
}

/// `config/default` with the optional parts of a variant switched on or off, each by its line; with cert-manager where
/// there are certificates.
pub(crate) fn switched(files: &MemoryFiles, variant: &str) -> MemoryFiles {
    let mut files = files.clone();
    let on: &[&str] = match variant {
        "" | "metrics-off" => &[],
        "prometheus" => &["prometheus"],
        "network-policy" => &["network-policy"],
        "prometheus-network-policy" => &["prometheus", "network-policy"],
        "metrics-certs" => &["metrics-certs"],
        "prometheus-certs" => &["prometheus", "metrics-certs"],
        "all" => &["prometheus", "metrics-certs", "network-policy"],
        other => panic!("no such variant: {other}"),
    };
    let text = files.0.get_mut("config/default/kustomization.yaml").unwrap();
    let has_certificates = text.contains("\n- ../certificates\n");
    let mut switch = |from: String, to: String| {
        assert!(text.contains(&from), "{from:?} in {text}");
        *text = text.replace(&from, &to);
    };
    // The recorded projects have certificates of cert-manager, which a person chooses here.
    if has_certificates {
        switch("\n- ../certificates\n".to_owned(), "\n#- ../certificates\n".to_owned());
        switch("\n#- ../certmanager\n".to_owned(), "\n- ../certmanager\n".to_owned());
    }
    for part in on {
        switch(format!("\n#- ../{part}\n"), format!("\n- ../{part}\n"));
    }
    if variant == "metrics-off" {
        switch("\n- ../metrics\n".to_owned(), "\n#- ../metrics\n".to_owned());
    }
    files
}
