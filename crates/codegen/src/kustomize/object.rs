//! Objects on their way through a kustomization, which remember their earlier names.

use serde_json::Value;

use crate::diagnostic::Place;

/// The identity of an object: group, version, kind, namespace and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Id {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    pub(super) namespace: String,
    pub(super) name: String,
}

/// The kinds of Kubernetes that live in no namespace, with their groups. A kind that is not known here is taken to live
/// in one, as kustomize does.
const CLUSTER_SCOPED: &[(&str, &[&str])] = &[
    ("", &["ComponentStatus", "Namespace", "Node", "PersistentVolume"]),
    (
        "admissionregistration.k8s.io",
        &[
            "MutatingAdmissionPolicy",
            "MutatingAdmissionPolicyBinding",
            "MutatingWebhookConfiguration",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding",
            "ValidatingWebhookConfiguration",
        ],
    ),
    ("apiextensions.k8s.io", &["CustomResourceDefinition"]),
    ("apiregistration.k8s.io", &["APIService"]),
    ("authentication.k8s.io", &["SelfSubjectReview", "TokenReview"]),
    (
        "authorization.k8s.io",
        &[
            "SelfSubjectAccessReview",
            "SelfSubjectRulesReview",
            "SubjectAccessReview",
        ],
    ),
    (
        "certificates.k8s.io",
        &["CertificateSigningRequest", "ClusterTrustBundle"],
    ),
    (
        "flowcontrol.apiserver.k8s.io",
        &["FlowSchema", "PriorityLevelConfiguration"],
    ),
    ("internal.apiserver.k8s.io", &["StorageVersion"]),
    ("networking.k8s.io", &["IngressClass", "IPAddress", "ServiceCIDR"]),
    ("node.k8s.io", &["RuntimeClass"]),
    ("policy", &["PodSecurityPolicy"]),
    ("rbac.authorization.k8s.io", &["ClusterRole", "ClusterRoleBinding"]),
    ("resource.k8s.io", &["DeviceClass", "ResourceSlice"]),
    ("scheduling.k8s.io", &["PriorityClass"]),
    (
        "storage.k8s.io",
        &[
            "CSIDriver",
            "CSINode",
            "StorageClass",
            "VolumeAttachment",
            "VolumeAttributesClass",
        ],
    ),
    ("storagemigration.k8s.io", &["StorageVersionMigration"]),
];

/// Whether a resource of Kubernetes lives in no namespace, by group and plural.
pub(crate) fn is_cluster_scoped(group: &str, plural: &str) -> bool {
    let kinds = CLUSTER_SCOPED
        .iter()
        .find(|(known, _)| *known == group)
        .map(|(_, kinds)| *kinds);
    kinds
        .unwrap_or_default()
        .iter()
        .any(|kind| crate::names::plural(kind) == plural)
}

impl Id {
    pub(super) fn of(value: &Value) -> Id {
        let text = |pointer: &str| {
            let found = value.pointer(pointer).and_then(Value::as_str);
            found.unwrap_or_default().to_owned()
        };
        let (group, version) = group_version(&text("/apiVersion"));
        Id {
            group,
            version,
            kind: text("/kind"),
            namespace: text("/metadata/namespace"),
            name: text("/metadata/name"),
        }
    }

    /// Whether objects of this kind certainly live in no namespace.
    pub(super) fn is_cluster_scoped(&self) -> bool {
        let of_group = CLUSTER_SCOPED.iter().find(|(group, _)| *group == self.group);
        of_group.is_some_and(|(_, kinds)| kinds.contains(&self.kind.as_str()))
    }

    /// The namespace for comparisons: none is `default`; a cluster-scoped object has one of its own.
    pub(super) fn effective_namespace(&self) -> &str {
        match self.namespace.as_str() {
            _ if self.is_cluster_scoped() => "_cluster_",
            "" => "default",
            namespace => namespace,
        }
    }

    /// Whether both name the same object.
    pub(super) fn is_same(&self, other: &Id) -> bool {
        self.effective_namespace() == other.effective_namespace()
            && self.name == other.name
            && (&self.group, &self.version, &self.kind) == (&other.group, &other.version, &other.kind)
    }

    /// Whether group, version and kind are these; an empty one is any.
    pub(super) fn is_kind(&self, group: &str, version: &str, kind: &str) -> bool {
        let fits = |wanted: &str, own: &str| wanted.is_empty() || wanted == own;
        fits(group, &self.group) && fits(version, &self.version) && fits(kind, &self.kind)
    }

    /// `Kind namespace/name`, for messages.
    pub(super) fn title(&self) -> String {
        if self.namespace.is_empty() {
            format!("{} {}", self.kind, self.name)
        } else {
            format!("{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// `apps/v1` in two.
pub(super) fn group_version(api_version: &str) -> (String, String) {
    match api_version.split_once('/') {
        Some((group, version)) => (group.to_owned(), version.to_owned()),
        None => (String::new(), api_version.to_owned()),
    }
}

/// An object, with the history of its names: references to old names are mended at the end.
#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) value: Value,
    /// Its identities before each change, oldest first.
    pub(super) previous: Vec<Id>,
    /// Prefixes that were put before its name, innermost first.
    pub(super) prefixes: Vec<String>,
    /// Where it was read.
    pub(super) place: Place,
}

impl Object {
    pub(super) fn new(value: Value, place: Place) -> Object {
        Object {
            value,
            previous: Vec::new(),
            prefixes: Vec::new(),
            place,
        }
    }

    pub(super) fn id(&self) -> Id {
        Id::of(&self.value)
    }

    /// Its identity in its file.
    pub(super) fn original(&self) -> Id {
        self.previous.first().cloned().unwrap_or_else(|| self.id())
    }

    /// All that it was and is called.
    pub(super) fn ids(&self) -> Vec<Id> {
        let mut ids = self.previous.clone();
        ids.push(self.id());
        ids
    }

    /// To be called before the name, namespace or kind changes.
    pub(super) fn remember(&mut self) {
        let id = self.id();
        if self.previous.last() != Some(&id) {
            self.previous.push(id);
        }
    }

    pub(super) fn kind(&self) -> &str {
        self.value["kind"].as_str().unwrap_or_default()
    }

    /// Whether it is only for the kustomization itself and not for the cluster.
    pub(super) fn is_local(&self) -> bool {
        let local = &self.value["metadata"]["annotations"]["config.kubernetes.io/local-config"];
        !local.is_null() && local != "false"
    }
}
