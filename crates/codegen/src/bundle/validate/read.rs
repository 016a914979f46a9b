//! The folder of a bundle: which files are there, and the objects in them.
//!
//! As OLM's tools, it takes the first object of each file. What keeps a bundle from being read at all is an error here;
//! the rules are elsewhere.

use std::collections::BTreeMap;
use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;
use kubewright_schema::decode;
use serde_json::Value;

use crate::codes;
use crate::diagnostic::{Diagnostic, Place};
use crate::plan::Files;
use crate::yaml;

use super::{ATTEMPTED, text, types};

/// The annotation with the name of the manifests' folder.
pub(super) const MANIFESTS: &str = "operators.operatorframework.io.bundle.manifests.v1";

/// What is beside the manifests.
pub(super) struct Layout {
    /// The kind of bundle that the manifests make: `registry+v1`, `plain+v1` or `helm+v1`.
    pub(super) media_type: &'static str,
    /// Whether there is a folder `manifests`, and one `metadata`.
    pub(super) folders: [bool; 2],
    /// The annotations of `metadata`, when one of its files has some.
    pub(super) annotations: Option<BTreeMap<String, Value>>,
    pub(super) dependencies: Vec<Value>,
}

/// The objects.
pub(super) struct Bundle {
    pub(super) csv: Value,
    /// Objects with their files, the ClusterServiceVersion among them.
    pub(super) objects: Vec<(String, Value)>,
    pub(super) channels: Vec<String>,
    pub(super) default_channel: String,
    pub(super) package: String,
    /// The bytes of the manifests, and what is left of them in the ConfigMap that carries them.
    pub(super) size: usize,
    pub(super) compressed: usize,
    /// Files with more objects than are read.
    pub(super) longer: Vec<String>,
    /// Keys that stand twice in one map.
    pub(super) doubled: Vec<String>,
}

impl Bundle {
    /// The name of the ClusterServiceVersion.
    pub(super) fn name(&self) -> &str {
        text(&self.csv, "metadata.name")
    }

    /// The definitions of a version of the API.
    pub(super) fn definitions(&self, version: &str) -> impl Iterator<Item = &Value> {
        let version = format!("apiextensions.k8s.io/{version}");
        let objects = self.objects.iter().map(|(_, object)| object);
        objects.filter(move |object| object["kind"] == "CustomResourceDefinition" && object["apiVersion"] == *version)
    }
}

fn unreadable(file: &str, why: impl std::fmt::Display) -> Diagnostic {
    Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
        .at(Place::file(file))
        .because(why)
}

/// Reads a folder. There are no objects in a bundle that is a chart.
pub(super) fn bundle(files: &dyn Files) -> Result<(Option<Bundle>, Layout), Diagnostic> {
    let all = files.list("")?;
    if all.is_empty() {
        return Err(Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
            .because("the folder is empty, or there is none")
            .fix("name the folder that has manifests and metadata"));
    }
    let annotations = annotations(&all, files)?;
    let folder = match annotations.get(MANIFESTS).and_then(Value::as_str) {
        Some(folder) => folder.trim_start_matches("./").trim_end_matches('/').to_owned(),
        None => "manifests".to_owned(),
    };
    let prefix = format!("{folder}/");
    let manifests: Vec<&String> = all.iter().filter(|path| path.starts_with(&prefix)).collect();
    if manifests.is_empty() {
        return Err(unreadable(&folder, "it has no files").fix(format!(
            "put the manifests there, or correct the annotation {MANIFESTS}"
        )));
    }
    let is_chart = manifests.iter().any(|path| path[prefix.len()..] == *"Chart.yaml");
    let mut metadata = metadata(&all, files)?;
    if is_chart {
        metadata.media_type = "helm+v1";
        return Ok((None, metadata));
    }
    let mut bundle = objects(&manifests, &prefix, files)?;
    metadata.media_type = "registry+v1";
    let said = |key: &str| text_of(&annotations, &format!("operators.operatorframework.io.bundle.{key}"));
    bundle.package = said("package.v1").to_owned();
    bundle.default_channel = said("channel.default.v1").to_owned();
    bundle.channels = said("channels.v1").split(',').map(str::to_owned).collect();
    Ok((Some(bundle), metadata))
}

fn text_of<'m>(map: &'m BTreeMap<String, Value>, key: &str) -> &'m str {
    map.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The annotations: those of `metadata/annotations.yaml`, or of the first file that has some.
fn annotations(all: &[String], files: &dyn Files) -> Result<BTreeMap<String, Value>, Diagnostic> {
    const USUAL: &str = "metadata/annotations.yaml";
    if let Some(text) = files.read(USUAL)? {
        let value = yaml::parse(&text).map_err(|why| unreadable(USUAL, why))?;
        if let Some(found) = annotations_of(&value).filter(|found| !found.is_empty()) {
            return Ok(found);
        }
    }
    for path in all.iter().filter(|path| !path.starts_with('.') && *path != USUAL) {
        let value = files.read(path).ok().flatten().and_then(|text| yaml::parse(&text).ok());
        if let Some(found) = value
            .as_ref()
            .and_then(annotations_of)
            .filter(|found| !found.is_empty())
        {
            return Ok(found);
        }
    }
    Err(Diagnostic::new(codes::config::INVALID_BUNDLE, ATTEMPTED)
        .because("no file of the folder has the annotations of a bundle")
        .fix("name the folder that has metadata/annotations.yaml"))
}

fn annotations_of(value: &Value) -> Option<BTreeMap<String, Value>> {
    let found = value.get("annotations")?.as_object()?;
    Some(found.iter().map(|(key, value)| (key.clone(), value.clone())).collect())
}

/// What is in `metadata`.
fn metadata(all: &[String], files: &dyn Files) -> Result<Layout, Diagnostic> {
    let has = |folder: &str| all.iter().any(|path| path.starts_with(folder));
    let mut layout = Layout {
        media_type: "plain+v1",
        folders: [has("manifests/"), has("metadata/")],
        annotations: None,
        dependencies: Vec::new(),
    };
    let is_in = |path: &&String| path.strip_prefix("metadata/").is_some_and(|rest| !rest.contains('/'));
    for path in all.iter().filter(is_in) {
        // A file that cannot be read is none of these two.
        let Some(value) = files.read(path)?.and_then(|text| yaml::parse(&text).ok()) else {
            continue;
        };
        let found = annotations_of(&value);
        if layout.annotations.is_none() && found.is_some() {
            layout.annotations = found;
        } else if layout.dependencies.is_empty() {
            layout.dependencies = value["dependencies"].as_array().cloned().unwrap_or_default();
        }
    }
    Ok(layout)
}

/// The objects beside the ClusterServiceVersion.
fn objects(manifests: &[&String], prefix: &str, files: &dyn Files) -> Result<Bundle, Diagnostic> {
    let mut csv = None;
    let mut objects = Vec::new();
    let (mut size, mut compressed, mut longer, mut doubled) = (0, 0, Vec::new(), Vec::new());
    for path in manifests {
        let name = &path[prefix.len()..];
        if name.contains('/') {
            return Err(
                unreadable(path, "there is a folder among the manifests").fix("move its files beside the others")
            );
        }
        if name.starts_with('.') {
            return Err(unreadable(path, "there is a hidden file among the manifests").fix("remove it"));
        }
        let content = files.read(path)?.unwrap_or_default();
        size += content.len();
        compressed += in_config_map(content.as_bytes());
        let mut documents = documents(&content);
        let first = documents.next().unwrap_or_default();
        let read = decode::yaml(first.as_bytes())
            .map_err(|why| unreadable(path, why).fix("correct it, or take the file back from version control"))?;
        let mut object = read.value;
        if !object.is_object() {
            return Err(unreadable(path, "it has no object").fix("remove it, or write a manifest"));
        }
        doubled.extend(read.duplicates.into_iter().map(|twice| format!("{path}: {twice}")));
        if documents.next().is_some() {
            longer.push((*path).clone());
        }
        match text(&object, "kind") {
            "ClusterServiceVersion" => {
                types::check(&mut object).map_err(|why| unreadable(path, why))?;
                if csv.replace(object.clone()).is_some() {
                    return Err(unreadable(path, "it is the second ClusterServiceVersion of the bundle")
                        .fix("a bundle is one version of an operator: remove the others"));
                }
            }
            "CustomResourceDefinition" => {
                let version = text(&object, "apiVersion");
                if !["apiextensions.k8s.io/v1", "apiextensions.k8s.io/v1beta1"].contains(&version) {
                    return Err(unreadable(path, format!("{version:?} has no CustomResourceDefinition"))
                        .fix("apiVersion: apiextensions.k8s.io/v1"));
                }
            }
            _ => {}
        }
        objects.push(((*path).clone(), object));
    }
    let Some(csv) = csv else {
        return Err(
            unreadable(prefix.trim_end_matches('/'), "no file has a ClusterServiceVersion")
                .fix("kubewright bundle writes one from config/"),
        );
    };
    Ok(Bundle {
        csv,
        objects,
        channels: Vec::new(),
        default_channel: String::new(),
        package: String::new(),
        size,
        compressed,
        longer,
        doubled,
    })
}

/// The documents of a file that say something.
fn documents(content: &str) -> impl Iterator<Item = String> {
    let mut all = vec![String::new()];
    for line in content.lines() {
        if line.trim_end() == "---" || line.starts_with("--- ") {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let says = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    all.into_iter().filter(move |text| text.lines().any(says))
}

/// The bytes that a manifest takes in the ConfigMap that carries the bundle: compressed, and then in base64.
fn in_config_map(content: &[u8]) -> usize {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let written = encoder.write_all(content).and_then(|()| encoder.finish());
    let compressed = written.expect("memory takes everything that is written").len();
    compressed.div_ceil(3) * 4
}
