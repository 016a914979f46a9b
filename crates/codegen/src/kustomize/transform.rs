//! The transformers of a folder for all of its objects: `namespace`, `namePrefix`, `labels`, `images`.

use serde_json::{Map, Value};

use super::fields::FieldSpec;
use super::kustomization::{Entry, Image, Labels, broken};
use super::object::Object;
use crate::codes;
use crate::config::split_image;
use crate::diagnostic::Diagnostic;

/// Where namespaces stand in kinds that kustomize knows, besides `metadata.namespace`.
pub(super) fn namespace_fields() -> Vec<FieldSpec> {
    vec![
        FieldSpec::new("apiregistration.k8s.io", "APIService", "spec/service/namespace").creating(),
        FieldSpec::new(
            "apiextensions.k8s.io",
            "CustomResourceDefinition",
            "spec/conversion/webhook/clientConfig/service/namespace",
        ),
    ]
}

/// Puts everything that lives in a namespace into this one.
pub(super) fn namespace(name: &str, fields: &[FieldSpec], objects: &mut [Object]) -> Result<(), Diagnostic> {
    for at in 0..objects.len() {
        let object = &mut objects[at];
        object.remember();
        let id = object.id();
        if !id.is_cluster_scoped() {
            set(&mut object.value, "namespace", name);
        } else if id.group.is_empty() && id.kind == "Namespace" {
            set(&mut object.value, "name", name);
        }
        if matches!(id.kind.as_str(), "RoleBinding" | "ClusterRoleBinding") {
            // Other subjects follow the account that they name, when references are mended.
            let subjects = object.value["subjects"].as_array_mut();
            for subject in subjects.into_iter().flatten() {
                if subject["name"] == "default" {
                    subject["namespace"] = name.into();
                }
            }
        }
        for field in fields.iter().filter(|field| field.fits(&id)) {
            field.visit(&mut object.value, &mut |found| *found = name.into());
        }
        unique(objects, at)?;
    }
    Ok(())
}

/// No two objects may become the same.
fn unique(objects: &[Object], changed: usize) -> Result<(), Diagnostic> {
    let id = objects[changed].id();
    let same = |(at, other): &(usize, &Object)| *at != changed && other.id().is_same(&id);
    match objects.iter().enumerate().find(same) {
        None => Ok(()),
        Some((_, other)) => Err(
            Diagnostic::new(codes::config::AMBIGUOUS, format!("cannot have {} twice", id.title()))
                .at(other.place.clone())
                .at(objects[changed].place.clone())
                .because("both come into the same namespace")
                .fix("rename one of them"),
        ),
    }
}

fn set(value: &mut Value, field: &str, text: &str) {
    if let Some(object) = value.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert(field.to_owned(), text.into());
        }
    }
}

/// Puts a prefix before all names but those that must not change.
pub(super) fn prefix(prefix: &str, objects: &mut [Object]) {
    for object in objects {
        let original = object.original();
        let keeps = match original.kind.as_str() {
            "CustomResourceDefinition" | "Namespace" => true,
            "APIService" => original.group == "apiregistration.k8s.io",
            _ => false,
        };
        if !keeps {
            object.prefixes.push(prefix.to_owned());
            object.remember();
            let name = format!("{prefix}{}", object.id().name);
            set(&mut object.value, "name", &name);
        }
    }
}

/// Kinds with a pod template, and where it is.
const TEMPLATES: [(&str, &str, &str); 7] = [
    ("", "ReplicationController", "spec/template"),
    ("", "Deployment", "spec/template"),
    ("", "ReplicaSet", "spec/template"),
    ("", "DaemonSet", "spec/template"),
    ("apps", "StatefulSet", "spec/template"),
    ("batch", "Job", "spec/template"),
    ("batch", "CronJob", "spec/jobTemplate/spec/template"),
];

/// Adds labels.
pub(super) fn labels(entry: &Entry<Labels>, objects: &mut [Object]) -> Result<(), Diagnostic> {
    let labels = &entry.value;
    let text = |value: &Value| value.is_string();
    if let Some((name, _)) = labels.pairs.iter().find(|(_, value)| !text(value)) {
        let why = format!("the label {name} is not a text: put it in quotes");
        return Err(broken(entry.place.clone(), why));
    }
    let mut fields = vec![FieldSpec::new("", "", "metadata/labels").creating()];
    if labels.include_selectors || labels.include_templates {
        let of_template =
            |(group, kind, path): &(&str, &str, &str)| FieldSpec::new(group, kind, &format!("{path}/metadata/labels"));
        fields.extend(TEMPLATES.iter().map(|row| of_template(row).creating()));
        fields.push(FieldSpec::new("batch", "CronJob", "spec/jobTemplate/metadata/labels").creating());
        fields.push(FieldSpec::new("apps", "StatefulSet", "spec/volumeClaimTemplates[]/metadata/labels").creating());
    }
    if labels.include_selectors {
        fields.extend(selectors());
    }
    for object in objects {
        let id = object.id();
        for field in fields.iter().filter(|field| field.fits(&id)) {
            field.visit(&mut object.value, &mut |found| {
                if found.is_null() {
                    *found = Value::Object(Map::new());
                }
                if let Some(present) = found.as_object_mut() {
                    present.extend(labels.pairs.clone());
                }
            });
        }
    }
    Ok(())
}

/// Where objects select others by labels.
fn selectors() -> Vec<FieldSpec> {
    let core = |kind, path| FieldSpec {
        version: "v1".to_owned(),
        ..FieldSpec::new("", kind, path).creating()
    };
    let mut fields = vec![
        core("Service", "spec/selector"),
        core("ReplicationController", "spec/selector"),
        FieldSpec::new("", "Deployment", "spec/selector/matchLabels").creating(),
        FieldSpec::new("", "ReplicaSet", "spec/selector/matchLabels").creating(),
        FieldSpec::new("", "DaemonSet", "spec/selector/matchLabels").creating(),
        FieldSpec::new("apps", "StatefulSet", "spec/selector/matchLabels").creating(),
        FieldSpec::new("batch", "Job", "spec/selector/matchLabels"),
        FieldSpec::new("batch", "CronJob", "spec/jobTemplate/spec/selector/matchLabels"),
        FieldSpec::new("policy", "PodDisruptionBudget", "spec/selector/matchLabels"),
        FieldSpec::new("networking.k8s.io", "NetworkPolicy", "spec/podSelector/matchLabels"),
        FieldSpec::new(
            "networking.k8s.io",
            "NetworkPolicy",
            "spec/ingress/from/podSelector/matchLabels",
        ),
        FieldSpec::new(
            "networking.k8s.io",
            "NetworkPolicy",
            "spec/egress/to/podSelector/matchLabels",
        ),
    ];
    for kind in ["Deployment", "StatefulSet"] {
        for affinity in ["podAffinity", "podAntiAffinity"] {
            let before = format!("spec/template/spec/affinity/{affinity}");
            for path in [
                "preferredDuringSchedulingIgnoredDuringExecution/podAffinityTerm/labelSelector/matchLabels",
                "requiredDuringSchedulingIgnoredDuringExecution/labelSelector/matchLabels",
            ] {
                fields.push(FieldSpec::new("apps", kind, &format!("{before}/{path}")));
            }
        }
        let spread = "spec/template/spec/topologySpreadConstraints/labelSelector/matchLabels";
        fields.push(FieldSpec::new("apps", kind, spread));
    }
    fields
}

/// Changes an image wherever a container has it.
pub(super) fn image(image: &Image, objects: &mut [Object]) {
    for object in objects {
        if object.kind() != "CustomResourceDefinition" {
            in_containers(&mut object.value, image);
        }
    }
}

fn in_containers(value: &mut Value, image: &Image) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| in_containers(item, image)),
        Value::Object(fields) => {
            for (name, inner) in fields {
                in_containers(inner, image);
                if matches!(name.as_str(), "containers" | "initContainers") {
                    for container in inner.as_array_mut().into_iter().flatten() {
                        if let Some(changed) = container["image"].as_str().and_then(|old| changed(old, image)) {
                            container["image"] = changed.into();
                        }
                    }
                }
            }
        }
        _ => {}
    }
}

/// The image with its new name; none when it is another one.
fn changed(old: &str, image: &Image) -> Option<String> {
    let (name, tag, digest) = split_image(old)?;
    if name != image.name {
        return None;
    }
    let new = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
    // A tag such as 1.0 without quotes is a number to YAML.
    let new_tag = image.new_tag.as_ref().map(|tag| match tag {
        Value::String(tag) => tag.clone(),
        other => other.to_string(),
    });
    let (tag, digest) = match (new(&new_tag), new(&image.digest)) {
        (None, None) => (tag.map(str::to_owned), digest.map(str::to_owned)),
        replaced => replaced,
    };
    let mut text = new(&image.new_name).unwrap_or_else(|| name.to_owned());
    for (mark, part) in [(':', tag), ('@', digest)] {
        if let Some(part) = part {
            text.push(mark);
            text.push_str(&part);
        }
    }
    Some(text)
}
