//! PersistentVolumes: defaults, rules and warnings, also of the volumes that attachments carry inline.
//!
//! Not here: the parts that sources share with those of pods (see `pods::volumes`).

use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::quantity::Quantity;
use kubewright_schema::{Minor, internal, names};
use serde_json::{Value, json};

use super::claims::{OLD_ANNOTATIONS, old_annotations};
use super::{STORED, access_modes, class_name, driver_name, resource_amount};
use crate::strategies::check::{At, Errors, child, ensure, fill, fill_text, get, keep};
use crate::strategies::pods::defaults::{self, canonical_quantities};
use crate::strategies::pods::scheduling::node_selector;
use crate::strategies::pods::volumes::{self, required};
use crate::strategies::pods::warnings::{OLD_VOLUMES, old_labels};
use kubewright_model::{Empties, MetadataChecks, StatusMetadata, Strategy};

/// How PersistentVolumes are written.
pub(crate) const VOLUME: Strategy = Strategy {
    empties: Empties::Seen,
    status_metadata: StatusMetadata::WRITTEN,
    metadata_checks: MetadataChecks::CREATE_TWICE,
    default: default_volume,
    prepare_create: |object, context| {
        if let Some(object) = object.as_object_mut() {
            let now = kubewright_model::env::rfc3339(context.env.now());
            object.insert(
                "status".to_owned(),
                json!({"phase": "Pending", "lastPhaseTransitionTime": now}),
            );
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    prepare_status: |new, old, context| {
        let (phase, was) = (get(new, &["status", "phase"]).clone(), get(old, &["status", "phase"]));
        let said = get(new, &["status", "lastPhaseTransitionTime"]);
        let before = get(old, &["status", "lastPhaseTransitionTime"]).clone();
        let time = match (said == &before || said.is_null(), &phase == was) {
            (true, false) => kubewright_model::env::rfc3339(context.env.now()).into(),
            (true, true) => before,
            (false, _) => said.clone(),
        };
        if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
            && !time.is_null()
        {
            status.insert("lastPhaseTransitionTime".to_owned(), time);
        }
    },
    validate_create: |new| {
        let mut errors = volume(new);
        errors.extend(mount_options(new));
        errors
    },
    validate_update: update_volume,
    warnings: |new, _| warnings(&At::root(new)),
    ..STORED
};

fn default_volume(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        fill_text(status, "phase", "Pending");
    }
    let Some(spec) = ensure(object, "spec") else { return };
    fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    fill(spec, "volumeMode", "Filesystem");
    if let Some(capacity) = child(spec, "capacity") {
        canonical_quantities(capacity);
    }
    defaults::source(spec);
    if let Some(share) = child(spec, "azureFile") {
        // Go writes this field out even when the client did not set it.
        share.entry("secretNamespace").or_insert(Value::Null);
    }
}

const SOURCES: [&str; 23] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
    "image",
];

/// Kinds of sources that take mount options from the annotation that was the field's forerunner.
const MOUNTABLE: [&str; 13] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "gcePersistentDisk",
    "glusterfs",
    "iscsi",
    "nfs",
    "photonPersistentDisk",
    "quobyte",
    "rbd",
    "vsphereVolume",
];

/// Where the spec of a volume stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Place<'a> {
    /// In a PersistentVolume of this name.
    Volume(&'a str),
    /// In a VolumeAttachment, without a PersistentVolume.
    Inline,
}

fn warnings(volume: &At<'_>) -> Vec<String> {
    // Some that pods warn of were never warned of here.
    const UNSAID: [&str; 3] = ["gitRepo", "flocker", "quobyte"];
    let mut warn = Vec::new();
    old_annotations(volume, &OLD_ANNOTATIONS, &mut warn);
    let spec = volume.key("spec");
    let terms = spec.keys(&["nodeAffinity", "required", "nodeSelectorTerms"]);
    for term in terms.items() {
        old_labels(&term, false, &mut warn);
    }
    let policy = spec.key("persistentVolumeReclaimPolicy");
    if policy.text() == "Recycle" {
        warn.push(format!(
            "{}: The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning.",
            policy.path
        ));
    }
    for (kind, shown, why) in OLD_VOLUMES {
        if spec.key(kind).present() && !UNSAID.contains(&kind) {
            warn.push(format!("{}: {why}", spec.path.key(shown)));
        }
    }
    warn
}

/// `ValidatePersistentVolume`.
fn volume(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let name = get(new, &["metadata", "name"]).as_str().unwrap_or("");
    spec(&mut errors, &At::root(new).key("spec"), Place::Volume(name));
    errors.into_vec()
}

/// The annotation of mount options, which only some sources take.
fn mount_options(new: &Value) -> Vec<FieldError> {
    const OPTIONS: &str = "volume.beta.kubernetes.io/mount-options";
    let mut errors = Errors::default();
    let annotations = At::root(new).keys(&["metadata", "annotations"]);
    let spec = At::root(new).key("spec");
    if annotations.key(OPTIONS).present() && !MOUNTABLE.iter().any(|kind| spec.key(kind).present()) {
        errors.forbidden(
            &annotations.key(OPTIONS),
            "may not specify mount options for this volume type",
        );
    }
    errors.into_vec()
}

/// Checks the spec of a volume; an inline one may say less (`ValidatePersistentVolumeSpec`).
pub(super) fn spec(errors: &mut Errors, spec: &At<'_>, place: Place<'_>) {
    let inline = place == Place::Inline;
    if inline {
        inline_spec(errors, spec);
    }
    let modes = spec.key("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "");
    }
    access_modes(errors, &modes);
    if !inline {
        capacity(errors, &spec.key("capacity"));
        errors.one_of(
            &spec.key("persistentVolumeReclaimPolicy"),
            &["Delete", "Recycle", "Retain"],
            false,
        );
        node_affinity(errors, &spec.key("nodeAffinity"));
    }
    let mut sources = SOURCES.iter().filter(|name| spec.key(name).present());
    match sources.next() {
        Some(kind) => source(errors, spec, kind, place),
        None => errors.required(spec, "must specify a volume type"),
    }
    for more in sources {
        // The path of one is another upstream.
        let shown = if *more == "cephfs" { "cephFS" } else { more };
        errors.forbidden(
            &spec.key(more).moved(spec.path.key(shown)),
            "may not specify more than 1 volume type",
        );
    }
    if !inline {
        class_name(errors, &spec.key("storageClassName"));
    }
    let mode = spec.key("volumeMode");
    if !inline && mode.present() && !["Block", "Filesystem"].contains(&mode.text()) {
        errors.unsupported(&mode, &["Block", "Filesystem"]);
    }
    if !inline {
        attributes_class(errors, spec);
    }
}

/// The fields that make no sense without a PersistentVolume (`ValidatePersistentVolumeSpec`).
fn inline_spec(errors: &mut Errors, spec: &At<'_>) {
    const WHERE: &str = "in the context of inline volumes";
    for field in ["claimRef", "capacity", "nodeAffinity", "storageClassName"] {
        let at = spec.key(field);
        let is_reference = matches!(field, "claimRef" | "nodeAffinity");
        if at.present() && (is_reference || !at.text().is_empty() || !at.is_empty()) {
            errors.forbidden(&at, format!("may not be specified {WHERE}"));
        }
    }
    let policy = spec.key("persistentVolumeReclaimPolicy");
    if !matches!(policy.text(), "" | "Retain") {
        errors.forbidden(&policy, format!("may only be Retain {WHERE}"));
    }
    let mode = spec.key("volumeMode");
    if mode.present() && mode.text() != "Filesystem" {
        errors.forbidden(
            &mode,
            format!("may not specify volumeMode other than Filesystem {WHERE}"),
        );
    }
    if !spec.key("csi").present() {
        errors.required(&spec.key("csi"), "has to be specified in the context of inline volumes");
    }
}

/// `ValidatePersistentVolumeSpec`.
fn capacity(errors: &mut Errors, capacity: &At<'_>) {
    if capacity.is_empty() {
        errors.required(capacity, "");
    }
    if capacity.len() != 1 || !capacity.key("storage").present() {
        let shown = capacity.value.clone();
        errors.push(FieldError::not_supported(
            capacity.path.to_string(),
            shown,
            &["storage"],
        ));
    }
    for (_, entry) in capacity.entries() {
        resource_amount(errors, &entry);
        if Quantity::from_str(entry.text()).is_ok_and(|amount| amount.sign() <= 0) {
            errors.invalid(&entry, "must be greater than zero");
        }
    }
}

/// `validateVolumeNodeAffinity`.
fn node_affinity(errors: &mut Errors, affinity: &At<'_>) {
    if !affinity.present() {
        return;
    }
    let required = affinity.key("required");
    if !required.present() {
        errors.required(&required, "must specify required node constraints");
        return;
    }
    node_selector(errors, &required);
}

/// `ValidatePersistentVolumeSpec`.
fn attributes_class(errors: &mut Errors, spec: &At<'_>) {
    let class = spec.key("volumeAttributesClassName");
    if !class.present() {
        return;
    }
    if class.text().is_empty() {
        errors.required(&class, "an empty string is disallowed");
    }
    class_name(errors, &class);
    if !spec.key("csi").present() {
        errors.required(
            &spec.key("csi"),
            "has to be specified when using volumeAttributesClassName",
        );
    }
}

/// One source: the rules that those of pods have, and the further fields of a cluster-scoped volume.
/// `ValidatePersistentVolumeSpec`.
fn source(errors: &mut Errors, spec: &At<'_>, kind: &str, place: Place<'_>) {
    let at = match kind {
        "gcePersistentDisk" => spec.key(kind).moved(spec.path.key("persistentDisk")),
        _ => spec.key(kind),
    };
    if !matches!(kind, "local" | "csi") {
        volumes::one_source(errors, kind, &at);
    }
    match kind {
        "hostPath" => {
            let policy = spec.key("persistentVolumeReclaimPolicy");
            if at.key("path").text() == "/" && policy.text() == "Recycle" {
                errors.forbidden(&policy, "may not be 'recycle' for a hostPath mount of '/'");
            }
        }
        "local" => local(errors, spec, &at),
        "csi" => csi(errors, &at),
        "glusterfs" => {
            let namespace = at.key("endpointsNamespace");
            if namespace.present() && namespace.text().is_empty() {
                errors.invalid(
                    &namespace,
                    "if the endpointnamespace is set, it must be a valid namespace name",
                );
            } else if namespace.present() {
                errors.messages(&namespace, names::dns1123_label(namespace.text()));
            }
        }
        "azureFile" if at.key("secretNamespace").present() => required(errors, &at.key("secretNamespace")),
        "cinder" | "storageos" if at.key("secretRef").present() => {
            required(errors, &at.keys(&["secretRef", "namespace"]));
        }
        "iscsi" => {
            volumes::iscsi(errors, &at, volumes::ISCSI_FORMAT);
            volumes::secret_reference(errors, &at);
            let portal = at.key("targetPortal");
            if let Place::Volume(name) = place
                && at.key("initiatorName").present()
                && name.len() + 1 + portal.text().len() > 64
            {
                errors.invalid(
                    &portal.moved(at.path.key("targetportal")),
                    "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
                );
            }
        }
        _ => {}
    }
}

/// `validateLocalVolumeSource` and `validatePathNoBacksteps`.
fn local(errors: &mut Errors, spec: &At<'_>, at: &At<'_>) {
    let path = at.key("path");
    required(errors, &path);
    if path.text().split('/').any(|part| part == "..") {
        errors.invalid(&path, "must not contain '..'");
    }
    let affinity = spec.key("nodeAffinity");
    if !affinity.present() {
        errors.required(&affinity, "Local volume requires node affinity");
    }
}

/// `validateCSIPersistentVolumeSource`.
fn csi(errors: &mut Errors, at: &At<'_>) {
    driver_name(errors, &at.key("driver"));
    required(errors, &at.key("volumeHandle"));
    // Secrets for staging were never checked.
    for reference in [
        "controllerPublishSecretRef",
        "controllerExpandSecretRef",
        "nodePublishSecretRef",
        "nodeExpandSecretRef",
    ] {
        let secret = at.key(reference);
        if secret.present() {
            secret_reference(errors, &secret);
        }
    }
}

/// `validatePVSecretReference`.
fn secret_reference(errors: &mut Errors, at: &At<'_>) {
    let (name, namespace) = (at.key("name"), at.key("namespace"));
    required(errors, &name);
    if !name.text().is_empty() {
        errors.messages(&name, names::dns1123_subdomain(name.text()));
    }
    required(errors, &namespace);
    if !namespace.text().is_empty() {
        errors.messages(&namespace, names::dns1123_label(namespace.text()));
    }
}

/// `ValidatePersistentVolumeUpdate`.
fn update_volume(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // Kubernetes checks a changed volume twice, and tells both.
    let found = volume(new);
    errors.extend(found.clone());
    errors.extend(mount_options(new));
    errors.extend(found);
    let (spec, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
    let mut now = spec.value.clone();
    let secret = |spec: &At<'_>| spec.keys(&["csi", "controllerExpandSecretRef"]).present();
    if was.key("csi").present()
        && !secret(&was)
        && let Some(csi) = now.get_mut("csi").and_then(Value::as_object_mut)
    {
        // It may be added later.
        csi.remove("controllerExpandSecretRef");
    }
    if SOURCES.iter().any(|name| get(&now, &[name]) != was.key(name).value) {
        let source = spec.key("persistentvolumesource");
        let difference = internal::difference(
            Minor::OLDEST,
            "",
            "PersistentVolume",
            &source.path.to_string(),
            was.value,
            &now,
        );
        errors.forbidden(
            &source,
            format!("spec.persistentvolumesource is immutable after creation\n{difference}"),
        );
    }
    let mode = spec.key("volumeMode").moved(At::root(new).key("volumeMode").path);
    errors.immutable(&mode, &was.key("volumeMode"));
    if was.key("nodeAffinity").present() {
        let affinity = spec.key("nodeAffinity").moved(At::root(new).key("nodeAffinity").path);
        if affinity.value != was.key("nodeAffinity").value {
            errors.invalid(
                &affinity,
                "field is immutable, except for updating from beta label to GA",
            );
        }
    }
    let class = spec.key("volumeAttributesClassName");
    if was.key("volumeAttributesClassName").present() && !class.present() {
        errors.forbidden(&class, "update from non-nil value to nil is forbidden");
    }
    errors.into_vec()
}
