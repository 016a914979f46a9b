//! PersistentVolumeClaims: their defaults, their rules, and their mutable fields.

use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::quantity::Quantity;
use kubewright_schema::{Minor, internal, names};
use serde_json::Value;

use super::{STORED, resource_amount, sources};
use crate::strategies::check::{At, Errors, ensure, fill_text, get, keep};
use crate::strategies::pods::warnings::fractions;
use crate::strategies::pods::{defaults, volumes};
use crate::strategies::system::empty_status;
use kubewright_model::facts::amounts::is_native;
use kubewright_model::{MetadataChecks, StatusMetadata, Strategy};

/// How PersistentVolumeClaims are written.
pub(crate) const CLAIM: Strategy = Strategy {
    status_metadata: StatusMetadata::WRITTEN,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: default_claim,
    prepare_create: |object, _| {
        sources::fill_in(object, &Value::Null);
        // The phase is a default: readers of the stored claim see it, admission plugins do not.
        empty_status(object);
    },
    prepare_update: |new, old, _| {
        keep(new, old, "status");
        sources::fill_in(new, old);
    },
    validate_create: claim,
    validate_update: update_claim,
    validate_status: |new, _| claim_status(new),
    warnings: |new, _| {
        let mut warn = Vec::new();
        old_annotations(&At::root(new), &OLD_ANNOTATIONS[..1], &mut warn);
        let resources = At::root(new).keys(&["spec", "resources"]);
        for list in ["requests", "limits"] {
            fractions(&resources.key(list), &["storage"], &mut warn);
        }
        warn
    },
    ..STORED
};

/// `SetDefaults_PersistentVolumeClaim`.
fn default_claim(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        fill_text(status, "phase", "Pending");
    }
    if let Some(spec) = ensure(object, "spec") {
        defaults::claim_spec(spec);
    }
}

/// `ValidatePersistentVolumeClaimSpec`.
fn claim(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    volumes::claim_spec(&mut errors, &spec);
    errors.into_vec()
}

/// `ValidatePersistentVolumeClaimUpdate`.
fn update_claim(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    errors.extend(claim(new));
    let spec = At::root(new).key("spec");
    let bound = get(new, &["status", "phase"]) == "Bound";
    let mut now = get(new, &["spec"]).clone();
    let mut was = get(old, &["spec"]).clone();
    // Binding sets the volume; a default class may be found later.
    if get(&was, &["volumeName"]).as_str().unwrap_or("").is_empty() {
        keep(&mut was, &now.clone(), "volumeName");
    }
    if get(&was, &["storageClassName"]).is_null() && !get(&now, &["storageClassName"]).is_null() {
        keep(&mut now, &was, "storageClassName");
    }
    if bound {
        keep(&mut now, &was, "volumeAttributesClassName");
        if let Some(requests) = now.pointer_mut("/resources/requests") {
            keep(requests, get(&was, &["resources", "requests"]), "storage");
        }
    }
    if now != was {
        let difference = internal::difference(Minor::OLDEST, "", "PersistentVolumeClaim", "spec", &was, &now);
        errors.forbidden(
            &spec,
            format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"),
        );
    }
    let amount = |value: &Value, keys: &[&str]| Quantity::from_str(get(value, keys).as_str().unwrap_or(""));
    let asked = amount(new, &["spec", "resources", "requests", "storage"]);
    let before = amount(old, &["spec", "resources", "requests", "storage"]);
    let has = amount(old, &["status", "capacity", "storage"]);
    // An absent amount counts as zero.
    let or_nothing = |amount: Result<Quantity, _>| amount.or_else(|_| Quantity::from_str("0"));
    if let (Ok(asked), Ok(before), Ok(has)) = (or_nothing(asked), or_nothing(before), or_nothing(has))
        && asked < before
        && asked <= has
    {
        errors.forbidden(
            &spec.keys(&["resources", "requests", "storage"]),
            "field can not be less than status.capacity",
        );
    }
    let mode = spec.key("volumeMode").moved(At::root(new).key("volumeMode").path);
    errors.immutable(&mode, &At::root(old).keys(&["spec", "volumeMode"]));
    let class = spec.key("volumeAttributesClassName");
    let current = At::root(old).keys(&["status", "currentVolumeAttributesClassName"]);
    if class.value != At::root(old).keys(&["spec", "volumeAttributesClassName"]).value && current.present() {
        let why = "is forbidden when status.currentVolumeAttributesClassName is not nil";
        if !class.present() {
            errors.forbidden(&class, format!("update to nil {why}"));
        } else if class.text().is_empty() {
            errors.forbidden(&class, format!("update to empty string {why}"));
        }
    }
    errors.into_vec()
}

/// `status` of a claim, which controllers and drivers write (`ValidatePersistentVolumeClaimStatusUpdate`).
fn claim_status(new: &Value) -> Vec<FieldError> {
    const RESIZES: [&str; 5] = [
        "ControllerResizeInProgress",
        "ControllerResizeInfeasible",
        "NodeResizeInProgress",
        "NodeResizeInfeasible",
        "NodeResizePending",
    ];
    let mut errors = Errors::default();
    let status = At::root(new).key("status");
    for (_, amount) in status.key("capacity").entries() {
        resource_amount(&mut errors, &amount);
    }
    let allocated = status.key("allocatedResources");
    for (name, amount) in allocated.entries() {
        if claimed_resource(&mut errors, &allocated, name) {
            resource_amount(&mut errors, &amount);
        }
    }
    let resizes = status.key("allocatedResourceStatuses");
    for (name, state) in resizes.entries() {
        claimed_resource(&mut errors, &resizes, name);
        if !RESIZES.contains(&state.text()) {
            // The error shows the name of the resource, not its state.
            errors.push(FieldError::not_supported(resizes.path.to_string(), name, &RESIZES));
        }
    }
    errors.into_vec()
}

/// The name of a resource that a claim may have: storage, or one with a foreign domain. Errors are the map's; whether
/// there were none (`validatePersistentVolumeClaimResourceKey`).
fn claimed_resource(errors: &mut Errors, at: &At<'_>, name: &str) -> bool {
    let before = errors.len();
    let messages = names::qualified_name(name);
    if messages.is_empty() && is_native(name) && name != "storage" {
        errors.push(FieldError::not_supported(at.path.to_string(), name, &["storage"]));
    }
    for message in messages {
        errors.invalid_value(at, name, message);
    }
    errors.len() == before
}

/// Annotations that were fields' forerunners.
pub(super) const OLD_ANNOTATIONS: [(&str, &str); 2] = [
    (
        "volume.beta.kubernetes.io/storage-class",
        "deprecated since v1.8; use \"storageClassName\" attribute instead",
    ),
    (
        "volume.beta.kubernetes.io/mount-options",
        "deprecated since v1.31; use \"mountOptions\" attribute instead",
    ),
];

pub(super) fn old_annotations(object: &At<'_>, old: &[(&str, &str)], warn: &mut Vec<String>) {
    for (key, entry) in object.keys(&["metadata", "annotations"]).entries() {
        let known = old.iter().filter(|(name, _)| *name == key);
        warn.extend(known.map(|(_, why)| format!("{}: {why}", entry.path)));
    }
}
