//! Names of other objects: where they stand, and how they follow when those objects get other names or namespaces.
//!
//! References are mended once, when the outermost folder is done, as kustomize does. A reference is meant for the
//! object of the right kind that was once called so; when several were, the one that went through the same prefixes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::fields::FieldSpec;
use super::kustomization::{Field, NameReference};
use super::object::{Id, Object};
use crate::codes;
use crate::diagnostic::Diagnostic;

/// A field that names an object of some kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reference {
    /// Group, version and kind that is named; an empty one is any.
    group: String,
    version: String,
    kind: String,
    field: FieldSpec,
}

pub(super) fn field(field: Field) -> FieldSpec {
    FieldSpec {
        group: field.group,
        version: field.version,
        kind: field.kind,
        path: field.path,
        create: field.create,
    }
}

/// Adds the references of a configuration.
pub(super) fn configure(configured: Vec<NameReference>, references: &mut Vec<Reference>) {
    for reference in configured {
        for spec in reference.field_specs {
            let new = Reference {
                group: reference.group.clone(),
                version: reference.version.clone(),
                kind: reference.kind.clone(),
                field: field(spec),
            };
            if !references.contains(&new) {
                references.push(new);
            }
        }
    }
}

/// The pod template of each kind that has one.
const PODS: [(&str, &str); 9] = [
    ("Pod", "spec"),
    ("PodTemplate", "template/spec"),
    ("Deployment", "spec/template/spec"),
    ("ReplicaSet", "spec/template/spec"),
    ("DaemonSet", "spec/template/spec"),
    ("StatefulSet", "spec/template/spec"),
    ("Job", "spec/template/spec"),
    ("CronJob", "spec/jobTemplate/spec/template/spec"),
    ("ReplicationController", "spec/template/spec"),
];

/// The references of pods: target version, kind, and fields within the specification of a pod.
const IN_PODS: &[(&str, &[&str])] = &[
    (
        "ConfigMap",
        &[
            "volumes/configMap/name",
            "containers/env/valueFrom/configMapKeyRef/name",
            "initContainers/env/valueFrom/configMapKeyRef/name",
            "containers/envFrom/configMapRef/name",
            "initContainers/envFrom/configMapRef/name",
            "volumes/projected/sources/configMap/name",
        ],
    ),
    (
        "Secret",
        &[
            "volumes/secret/secretName",
            "containers/env/valueFrom/secretKeyRef/name",
            "initContainers/env/valueFrom/secretKeyRef/name",
            "containers/envFrom/secretRef/name",
            "initContainers/envFrom/secretRef/name",
            "imagePullSecrets/name",
            "volumes/projected/sources/secret/name",
        ],
    ),
    ("ServiceAccount", &["serviceAccountName"]),
    ("PersistentVolumeClaim", &["volumes/persistentVolumeClaim/claimName"]),
];

const RBAC: &str = "rbac.authorization.k8s.io";
const ADMISSION: &str = "admissionregistration.k8s.io";

/// The other references: group, version and kind of the target; group, kind and path of the field.
const OTHERS: &[(&str, &str, &str, &str, &str, &str)] = &[
    (
        "",
        "",
        "Deployment",
        "",
        "HorizontalPodAutoscaler",
        "spec/scaleTargetRef/name",
    ),
    (
        "",
        "",
        "ReplicationController",
        "",
        "HorizontalPodAutoscaler",
        "spec/scaleTargetRef/name",
    ),
    (
        "",
        "",
        "ReplicaSet",
        "",
        "HorizontalPodAutoscaler",
        "spec/scaleTargetRef/name",
    ),
    (
        "",
        "",
        "StatefulSet",
        "",
        "HorizontalPodAutoscaler",
        "spec/scaleTargetRef/name",
    ),
    ("", "v1", "ConfigMap", "", "Role", "rules/resourceNames"),
    ("", "v1", "ConfigMap", "", "ClusterRole", "rules/resourceNames"),
    ("", "v1", "Secret", "", "Ingress", "spec/tls/secretName"),
    ("", "v1", "Secret", "", "ServiceAccount", "imagePullSecrets/name"),
    ("", "v1", "Secret", "", "Role", "rules/resourceNames"),
    ("", "v1", "Secret", "", "ClusterRole", "rules/resourceNames"),
    ("", "v1", "Service", "apps", "StatefulSet", "spec/serviceName"),
    (
        "",
        "v1",
        "Service",
        "",
        "Ingress",
        "spec/rules/http/paths/backend/service/name",
    ),
    ("", "v1", "Service", "", "Ingress", "spec/defaultBackend/service/name"),
    (
        "",
        "v1",
        "Service",
        "apiregistration.k8s.io",
        "APIService",
        "spec/service/name",
    ),
    (
        "",
        "v1",
        "Service",
        ADMISSION,
        "ValidatingWebhookConfiguration",
        "webhooks/clientConfig/service",
    ),
    (
        "",
        "v1",
        "Service",
        ADMISSION,
        "MutatingWebhookConfiguration",
        "webhooks/clientConfig/service",
    ),
    (RBAC, "", "Role", RBAC, "RoleBinding", "roleRef/name"),
    (RBAC, "", "ClusterRole", RBAC, "RoleBinding", "roleRef/name"),
    (RBAC, "", "ClusterRole", RBAC, "ClusterRoleBinding", "roleRef/name"),
    ("", "v1", "ServiceAccount", RBAC, "RoleBinding", "subjects"),
    ("", "v1", "ServiceAccount", RBAC, "ClusterRoleBinding", "subjects"),
    (
        "",
        "v1",
        "PersistentVolume",
        "",
        "PersistentVolumeClaim",
        "spec/volumeName",
    ),
    ("", "v1", "PersistentVolume", "", "ClusterRole", "rules/resourceNames"),
    (
        "storage.k8s.io",
        "v1",
        "StorageClass",
        "",
        "PersistentVolume",
        "spec/storageClassName",
    ),
    (
        "storage.k8s.io",
        "v1",
        "StorageClass",
        "",
        "PersistentVolumeClaim",
        "spec/storageClassName",
    ),
    (
        "storage.k8s.io",
        "v1",
        "StorageClass",
        "",
        "StatefulSet",
        "spec/volumeClaimTemplates/spec/storageClassName",
    ),
    (
        ADMISSION,
        "",
        "ValidatingAdmissionPolicy",
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "spec/policyName",
    ),
];

/// The references that kustomize knows without being told.
pub(super) fn known() -> Vec<Reference> {
    let reference = |group: &str, version: &str, kind: &str, field: FieldSpec| Reference {
        group: group.to_owned(),
        version: version.to_owned(),
        kind: kind.to_owned(),
        field,
    };
    let mut known = Vec::new();
    for (target, paths) in IN_PODS {
        for (kind, before) in PODS {
            for path in *paths {
                known.push(reference(
                    "",
                    "v1",
                    target,
                    FieldSpec::new("", kind, &format!("{before}/{path}")),
                ));
            }
        }
    }
    for (kind, before) in PODS {
        let field = FieldSpec::new("", kind, &format!("{before}/priorityClassName"));
        known.push(reference("scheduling.k8s.io", "v1", "PriorityClass", field));
    }
    for (group, version, kind, in_group, in_kind, path) in OTHERS {
        known.push(reference(group, version, kind, FieldSpec::new(in_group, in_kind, path)));
    }
    known
}

/// Lets every reference follow.
pub(super) fn mend(objects: &mut [Object], references: &[Reference]) -> Result<(), Diagnostic> {
    for at in 0..objects.len() {
        let original = objects[at].original();
        let mut value = objects[at].value.clone();
        for reference in references.iter().filter(|reference| reference.field.fits(&original)) {
            let referrer = Referrer {
                object: &objects[at],
                reference,
                candidates: objects,
            };
            let mut failed = None;
            let field = FieldSpec {
                create: false,
                ..reference.field.clone()
            };
            field.visit(&mut value, &mut |found| {
                if let Err(why) = referrer.update(found) {
                    failed = Some(why);
                }
            });
            if let Some(why) = failed {
                return Err(why);
            }
        }
        objects[at].value = value;
    }
    Ok(())
}

struct Referrer<'a> {
    object: &'a Object,
    reference: &'a Reference,
    candidates: &'a [Object],
}

impl Referrer<'_> {
    fn update(&self, found: &mut Value) -> Result<(), Diagnostic> {
        match found {
            Value::String(name) => {
                if let Some(target) = self.target(name, None)? {
                    *name = target.id().name;
                }
                Ok(())
            }
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.update(item)),
            Value::Object(fields) => {
                let namespace = fields.get("namespace").and_then(Value::as_str);
                let Some(name) = fields.get("name").and_then(Value::as_str) else {
                    return Ok(());
                };
                if let Some(target) = self.target(name, namespace)? {
                    let id = target.id();
                    fields.insert("name".to_owned(), id.name.into());
                    if !id.namespace.is_empty() {
                        fields.insert("namespace".to_owned(), id.namespace.into());
                    }
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The object that is meant, if it is one of these and its name changed.
    fn target(&self, name: &str, namespace: Option<&str>) -> Result<Option<&Object>, Diagnostic> {
        let mut found: Vec<&Object> = self.candidates.iter().filter(|object| self.can_reach(object)).collect();
        if let Some(namespace) = namespace {
            let first = |object: &&Object| object.original().namespace == namespace;
            if found.iter().any(first) {
                found.retain(first);
            } else {
                found.retain(|object| object.id().namespace == namespace);
            }
        }
        let reference = self.reference;
        found.retain(|object| object.previous.iter().any(|id| id.name == name));
        let (group, version, kind) = (&reference.group, &reference.version, &reference.kind);
        found.retain(|object| object.previous.iter().any(|id| id.is_kind(group, version, kind)));
        if reference.field.path.ends_with("roleRef/name") {
            let role = &self.object.value["roleRef"];
            let text = |field: &str| role[field].as_str().unwrap_or_default().to_owned();
            let (group, kind) = (text("apiGroup"), text("kind"));
            found.retain(|object| object.previous.iter().any(|id| id.is_kind(&group, "", &kind)));
        }
        if found.len() > 1 {
            found.retain(|object| self.same_prefixes(object, true));
        }
        if found.len() > 1 {
            found.retain(|object| self.same_prefixes(object, false));
        }
        let names: BTreeSet<(String, String)> = found
            .iter()
            .map(|object| object.id())
            .map(|Id { name, namespace, .. }| (name, namespace))
            .collect();
        if names.len() > 1 {
            let mut ambiguous = Diagnostic::new(
                codes::config::AMBIGUOUS,
                format!("cannot tell whom {} means by {name}", self.object.id().title()),
            )
            .at(self.object.place.clone().field(&reference.field.path));
            for object in found {
                ambiguous = ambiguous.at(object.place.clone());
            }
            return Err(ambiguous
                .because("several objects were called so")
                .fix("rename one of them"));
        }
        Ok(found.first().copied())
    }

    /// Whether the object could be named by this one at all: it is cluster-wide, in the same namespace, or a subject of
    /// a binding.
    fn can_reach(&self, other: &Object) -> bool {
        let (own, id) = (self.object.id(), other.id());
        own.is_cluster_scoped()
            || id.is_cluster_scoped()
            || id.effective_namespace() == own.effective_namespace()
            || id.kind == "ServiceAccount" && own.kind == "RoleBinding"
    }

    fn same_prefixes(&self, other: &Object, or_none: bool) -> bool {
        let (own, other) = (&self.object.prefixes, &other.prefixes);
        if or_none && (own.is_empty() || other.is_empty()) {
            return true;
        }
        own.ends_with(other) || other.ends_with(own)
    }
}
