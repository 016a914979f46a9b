//! APIs that Kubernetes removed (operator-framework/api's `AlphaDeprecatedAPIsValidator`): an error in the version that
//! is asked for, or that the operator says it needs; a warning otherwise.

use std::collections::BTreeMap;

use serde_json::Value;

use super::read::Bundle;
use super::types::tolerant;
use super::{Findings, Options, Place, text, values};

/// Group and version, and the kinds that it had.
type Kinds = (&'static str, &'static [&'static str]);

/// The kinds that are gone, by the version of Kubernetes that removed them.
const REMOVED: [(u64, &[Kinds]); 3] = [
    (
        22,
        &[
            ("apiextensions.k8s.io/v1beta1", &["CustomResourceDefinition"]),
            ("scheduling.k8s.io/v1beta1", &["PriorityClass"]),
            (
                "rbac.authorization.k8s.io/v1beta1",
                &["ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"],
            ),
            ("apiregistration.k8s.io/v1beta1", &["APIService"]),
            ("authentication.k8s.io/v1beta1", &["TokenReview"]),
            (
                "authorization.k8s.io/v1beta1",
                &[
                    "LocalSubjectAccessReview",
                    "SelfSubjectAccessReview",
                    "SubjectAccessReview",
                ],
            ),
            (
                "admissionregistration.k8s.io/v1beta1",
                &["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"],
            ),
            ("coordination.k8s.io/v1beta1", &["Lease"]),
            ("extensions/v1beta1", &["Ingress"]),
            ("networking.k8s.io/v1beta1", &["Ingress", "IngressClass"]),
            (
                "storage.k8s.io/v1beta1",
                &["CSIDriver", "CSINode", "StorageClass", "VolumeAttachment"],
            ),
            ("certificates.k8s.io/v1beta1", &["CertificateSigningRequest"]),
        ],
    ),
    (
        25,
        &[
            ("batch/v1beta1", &["CronJob"]),
            ("discovery.k8s.io/v1beta1", &["EndpointSlice"]),
            ("events.k8s.io/v1beta1", &["Event"]),
            ("autoscaling/v2beta1", &["HorizontalPodAutoscaler"]),
            ("policy/v1beta1", &["PodDisruptionBudget", "PodSecurityPolicy"]),
            ("node.k8s.io/v1beta1", &["RuntimeClass"]),
        ],
    ),
    (26, &[("autoscaling/v2beta2", &["HorizontalPodAutoscaler"])]),
];

/// Checks the objects of the bundle, and the kinds that the ClusterServiceVersion names.
pub(super) fn apis(bundle: &Bundle, options: &Options, findings: &mut Findings) {
    let name = Place::Value(bundle.name());
    let asked = match options.optional_values.get("k8s-version") {
        Some(text) => {
            let asked = tolerant(text);
            if asked.is_none() {
                findings.error(name, format!("k8s-version {text:?} is no version: write 1.25"));
            }
            asked
        }
        None => None,
    };
    let least = tolerant(text(&bundle.csv, "spec.minKubeVersion"));
    let has = |version: &Option<semver::Version>, minor: u64| {
        version
            .as_ref()
            .is_some_and(|version| *version >= semver::Version::new(1, minor, 0))
    };
    let named = named(bundle);
    for (minor, removed) in REMOVED {
        let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (version, kind, who) in &named {
            if removed
                .iter()
                .any(|(known, kinds)| known == version && kinds.contains(kind))
            {
                found.entry(kind).or_default().push(who);
            }
        }
        if !found.is_empty() {
            let found: Vec<String> = found
                .iter()
                .map(|(kind, names)| format!("{kind} ({})", names.join(", ")))
                .collect();
            let why = format!(
                "Kubernetes 1.{minor} removed APIs that the bundle has: {}. See \
                 https://kubernetes.io/docs/reference/using-api/deprecation-guide/#v1-{minor}",
                found.join(", ")
            );
            if has(&asked, minor) || has(&least, minor) {
                findings.error(name, why);
            } else {
                findings.warning(name, why);
            }
        }
    }
    let rules = ["permissions", "clusterPermissions"].map(|part| format!("spec.install.spec.{part}.*.rules.*"));
    let includes = |list: &Value, word: &str| {
        list.as_array()
            .is_some_and(|items| items.iter().any(|item| item == word))
    };
    let mut rules = rules.iter().flat_map(|path| values(&bundle.csv, path));
    if rules.any(|rule| includes(&rule["apiGroups"], "policy") && includes(&rule["resources"], "podsecuritypolicies")) {
        findings.warning(
            name,
            "the operator has rights for podsecuritypolicies, which Kubernetes 1.25 removed",
        );
    }
}

/// Version, kind and name of the objects, and of the kinds that the operator says it uses.
fn named(bundle: &Bundle) -> Vec<(&str, &str, &str)> {
    let objects = bundle.objects.iter().map(|(_, object)| object);
    let mut all: Vec<(&str, &str, &str)> = objects
        .map(|object| {
            (
                text(object, "apiVersion"),
                text(object, "kind"),
                text(object, "metadata.name"),
            )
        })
        .collect();
    for relation in ["owned", "required"] {
        for entry in values(&bundle.csv, &format!("spec.customresourcedefinitions.{relation}.*")) {
            let resources = values(entry, "resources.*").into_iter();
            all.extend(resources.map(|used| (text(used, "version"), text(used, "kind"), text(entry, "name"))));
        }
    }
    all
}
