//! Volumes and their provisioners: PersistentVolume, PersistentVolumeClaim, and the kinds of `storage.k8s.io`.
//!
//! A claim and a volume get the finalizers that the admission plugin StorageObjectInUseProtection adds; a controller
//! takes them away.
//!
//! `volume` beside it has the rules of PersistentVolume.
//!
//! Not here: binding and provisioning, which are a controller's.

mod claims;
pub(crate) mod sources;
mod volume;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::measure;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

pub(crate) use self::volume::VOLUME;
use super::check::{At, Errors, absent, child, ensure, fill, fixed, get, keep};
use super::pods::scheduling::label_selector;
use super::pods::warnings::{old_label, old_labels};
pub(crate) use claims::CLAIM;
use kubewright_model::duration::check_token_seconds;
use kubewright_model::{GenerationRule, MetadataChecks, PLAIN, StatusMetadata, Strategy};

const STORED: Strategy = Strategy {
    delete_returns_object: true,
    ..PLAIN
};

/// How StorageClasses are written.
pub(crate) const CLASS: Strategy = Strategy {
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        fill(object, "reclaimPolicy", "Delete");
        fill(object, "volumeBindingMode", "Immediate");
    },
    validate_create: class,
    warnings: |new, _| {
        let mut warn = Vec::new();
        for term in At::root(new).key("allowedTopologies").items() {
            for expression in term.key("matchLabelExpressions").items() {
                let key = expression.key("key");
                warn.extend(old_label(key.text()).map(|why| format!("{}: {why}", key.path)));
            }
        }
        warn
    },
    validate_update: |new, _| class(new),
    fields: &[
        fixed(&["parameters"], "ValidateStorageClassUpdate"),
        fixed(&["provisioner"], "ValidateStorageClassUpdate"),
        fixed(&["reclaimPolicy"], "ValidateStorageClassUpdate"),
        fixed(&["volumeBindingMode"], "ValidateStorageClassUpdate"),
    ],
    ..STORED
};

/// Whether pods wait for a driver that a node lacks is behind a feature that is off: it is dropped.
fn without_prevention(driver: &mut Value) {
    if let Some(spec) = driver.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("preventPodSchedulingIfMissing");
    }
}

/// A generation is counted, but a new driver has none.
pub(super) fn count_driver(new: &mut Value, old: &Value) {
    if get(new, &["spec"]) != get(old, &["spec"]) {
        let generation = kubewright_model::object::generation(old) + 1;
        kubewright_model::object::metadata_mut(new).insert("generation".to_owned(), generation.into());
    }
}

/// How CSIDrivers are written.
pub(crate) const DRIVER: Strategy = Strategy {
    unconditional_update: false,
    prepare_create: |new, _| without_prevention(new),
    prepare_update: |new, old, _| {
        without_prevention(new);
        count_driver(new, old);
    },
    default: |object| {
        let Some(spec) = object.as_object_mut().and_then(|object| ensure(object, "spec")) else {
            return;
        };
        fill(spec, "attachRequired", true);
        for flag in ["podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"] {
            fill(spec, flag, false);
        }
        fill(spec, "fsGroupPolicy", "ReadWriteOnceWithFSType");
        if absent(spec, "volumeLifecycleModes") {
            fill(spec, "volumeLifecycleModes", json!(["Persistent"]));
        }
    },
    validate_create: driver,
    warnings: |new, old| {
        const UNSAFE: &str = "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible \
                              logging of tokens in volume attributes";
        let spec = At::root(new).key("spec");
        let open = !spec.key("tokenRequests").is_empty() && !spec.key("serviceAccountTokenInSecrets").present();
        let said = old.is_some_and(|old| get(old, &["spec", "tokenRequests"]) == spec.key("tokenRequests").value);
        (open && !said).then(|| UNSAFE.to_owned()).into_iter().collect()
    },
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(driver(new));
        let (spec, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
        // Kubernetes misspells the path of the first one.
        let attach = spec.key("attachRequired");
        errors.immutable(
            &attach.moved(spec.path.key("attachedRequired")),
            &was.key("attachRequired"),
        );
        errors.into_vec()
    },
    fields: &[fixed(&["spec", "volumeLifecycleModes"], "ValidateCSIDriverUpdate")],
    ..STORED
};

/// The identity of a driver on a node is immutable; the number of volumes it takes may change.
const DRIVER_FIELDS: [&str; 3] = ["name", "nodeID", "topologyKeys"];

/// How CSINodes are written.
pub(crate) const NODE: Strategy = Strategy {
    unconditional_update: false,
    metadata_checks: MetadataChecks::CREATE,
    validate_create: node,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(node(new));
        let drivers = At::root(new).keys(&["spec", "drivers"]);
        let mut named = BTreeMap::new();
        for driver in drivers.items() {
            named.entry(driver.key("name").text()).or_insert(driver);
        }
        for before in At::root(old).keys(&["spec", "drivers"]).items() {
            if let Some(after) = named.get(before.key("name").text())
                && DRIVER_FIELDS
                    .iter()
                    .any(|field| after.key(field).value != before.key(field).value)
            {
                // The field that may change is left out of the error.
                let mut shown = after.value.clone();
                if let Some(shown) = shown.as_object_mut() {
                    shown.remove("allocatable");
                }
                errors.invalid_value(&after.moved(drivers.path.clone()), shown, "field is immutable");
            }
        }
        errors.into_vec()
    },
    ..STORED
};

/// How VolumeAttachments are written.
pub(crate) const ATTACHMENT: Strategy = Strategy {
    status_metadata: StatusMetadata::RESET,
    unconditional_update: false,
    metadata_checks: MetadataChecks::CREATE,
    status_metadata_checks: MetadataChecks::CREATE,
    default: |object| {
        let spec = object.as_object_mut().and_then(|object| child(object, "spec"));
        let source = spec.and_then(|spec| child(spec, "source"));
        if let Some(inline) = source.and_then(|source| child(source, "inlineVolumeSpec")) {
            super::pods::defaults::source(inline);
        }
    },
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({"attached": false}));
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_status: |new, _| {
        // Upstream reports another limit than the one it checks.
        const MAX_MESSAGE: usize = 1024;
        const SAID: usize = 256 * 1024;
        let mut errors = Errors::default();
        for field in ["attachError", "detachError"] {
            let message = At::root(new).keys(&["status", field, "message"]);
            if message.text().len() > MAX_MESSAGE {
                errors.push(FieldError::too_long(message.path.to_string(), SAID));
            }
        }
        errors.into_vec()
    },
    validate_create: attachment,
    validate_update: |new, _| attachment(new),
    fields: &[fixed(&["spec"], "ValidateVolumeAttachmentUpdate")],
    ..STORED
};

/// How VolumeAttributesClasses are written.
pub(crate) const ATTRIBUTES: Strategy = Strategy {
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    validate_create: attributes,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(attributes(new));
        for field in ["driverName", "parameters"] {
            let at = At::root(new).key(field);
            if at.value != At::root(old).key(field).value {
                errors.forbidden(&at, format!("updates to {field} are forbidden."));
            }
        }
        errors.into_vec()
    },
    ..STORED
};

/// How CSIStorageCapacities are written.
pub(crate) const CAPACITY: Strategy = Strategy {
    unconditional_update: false,
    delete_returns_object: false,
    generation: GenerationRule::Never,
    metadata_checks: MetadataChecks::UPDATE_AND_CREATE,
    validate_create: capacity,
    warnings: |new, _| {
        let mut warn = Vec::new();
        old_labels(&At::root(new).key("nodeTopology"), false, &mut warn);
        warn
    },
    validate_update: |new, _| capacity(new),
    fields: &[
        fixed(&["nodeTopology"], "ValidateCSIStorageCapacityUpdate"),
        fixed(&["storageClassName"], "ValidateCSIStorageCapacityUpdate"),
    ],
    ..STORED
};

/// Checks a list of access modes; all errors are about the list (`ValidatePersistentVolumeSpec`).
pub(crate) fn access_modes(errors: &mut Errors, at: &At<'_>) {
    const MODES: [&str; 4] = ["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    for mode in at.items() {
        if !MODES.contains(&mode.text()) {
            errors.unsupported(&mode.moved(at.path.clone()), &MODES);
        }
    }
    if at.len() > 1 && at.items().any(|mode| mode.text() == "ReadWriteOncePod") {
        errors.forbidden(at, "may not use ReadWriteOncePod with other access modes");
    }
}

fn class_name(errors: &mut Errors, at: &At<'_>) {
    if !at.text().is_empty() {
        errors.messages(at, names::dns1123_subdomain(at.text()));
    }
}

/// A quantity that may be as small as nothing (`validateBasicResource`).
fn resource_amount(errors: &mut Errors, at: &At<'_>) {
    if let Ok(amount) = Quantity::from_str(at.text())
        && amount.value() < 0
    {
        let shown = i64::try_from(amount.value()).unwrap_or(i64::MIN);
        errors.invalid_value(at, shown, "must be a valid resource quantity");
    }
}

fn not_negative(errors: &mut Errors, at: &At<'_>) {
    if Quantity::from_str(at.text()).is_ok_and(|amount| amount.sign() < 0) {
        errors.invalid(at, "must be greater than or equal to 0");
    }
}

/// `ValidateCSIDriverName`.
fn driver_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        errors.required(at, "");
    } else if at.text().len() > 63 {
        errors.push(FieldError::too_long(at.path.to_string(), 63));
    }
    if !at.text().is_empty() {
        errors.messages(at, names::dns1123_subdomain(&at.text().to_lowercase()));
    }
}

/// `ValidateStorageClass`.
fn class(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let provisioner = at.key("provisioner");
    if provisioner.text().is_empty() {
        errors.required(&provisioner, "");
    } else {
        let lower = provisioner.text().to_lowercase();
        for message in names::qualified_name(&lower) {
            errors.invalid_value(&provisioner, lower.clone(), message);
        }
    }
    parameters(&mut errors, &at.key("parameters"), true);
    errors.one_of(&at.key("reclaimPolicy"), &["Delete", "Retain"], false);
    let mode = at.key("volumeBindingMode");
    if mode.present() {
        errors.one_of_all(&mode, &["Immediate", "WaitForFirstConsumer"]);
    } else {
        errors.required(&mode, "");
    }
    let mut terms = BTreeSet::new();
    for term in at.key("allowedTopologies").items() {
        let mut seen = BTreeSet::new();
        let expressions = term.key("matchLabelExpressions");
        // Terms are the same when they allow the same, and one that says nothing is as good as any.
        if !terms.insert(measure::shown(expressions.value)) || expressions.is_empty() {
            let path = expressions.path.to_string();
            errors.push(FieldError::duplicate(path, ""));
        }
        for expression in term.key("matchLabelExpressions").items() {
            let (key, values) = (expression.key("key"), expression.key("values"));
            if values.is_empty() {
                errors.required(&values, "");
            }
            let mut known = BTreeSet::new();
            for value in values.items().filter(|value| !known.insert(value.text())) {
                errors.duplicate(&value);
            }
            for message in names::qualified_name(key.text()) {
                errors.invalid_value(&key, key.text(), message);
            }
            if !seen.insert(key.text()) {
                errors.duplicate(&key);
            }
        }
    }
    errors.into_vec()
}

/// The most bytes of all parameters together.
const MAX_PARAMETERS: usize = 256 * 1024;

/// `validateParameters`.
fn parameters(errors: &mut Errors, at: &At<'_>, may_be_empty: bool) {
    if at.is_empty() && !may_be_empty {
        errors.required(at, "must contain at least one key/value pair");
    }
    if at.len() > 512 {
        errors.push(FieldError::too_long(at.path.to_string(), 512));
    }
    let mut size = 0;
    for (key, value) in at.entries() {
        if key.is_empty() {
            errors.invalid_value(at, key, "field can not be empty.");
        }
        size += key.len() + value.text().len();
    }
    if size > MAX_PARAMETERS {
        errors.push(FieldError::too_long(at.path.to_string(), MAX_PARAMETERS));
    }
}

/// `ValidateCSIDriver`.
fn driver(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    for required in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if !spec.key(required).present() {
            errors.required(&spec.key(required), "");
        }
    }
    errors.one_of_all(&spec.key("fsGroupPolicy"), &["File", "None", "ReadWriteOnceWithFSType"]);
    let mut seen = BTreeSet::new();
    for request in spec.key("tokenRequests").items() {
        let audience = request.key("audience");
        if !seen.insert(audience.text()) {
            errors.push(FieldError::duplicate(audience.path.to_string(), audience.text()));
            continue;
        }
        let seconds = request.key("expirationSeconds");
        if let Some(Err(why)) = seconds.int().map(check_token_seconds) {
            errors.invalid(&seconds, why);
        }
    }
    let in_secrets = spec.key("serviceAccountTokenInSecrets");
    if in_secrets.present() && spec.key("tokenRequests").is_empty() {
        errors.invalid(
            &in_secrets,
            "serviceAccountTokenInSecrets is set but no tokenRequests are specified",
        );
    }
    let modes = spec.key("volumeLifecycleModes");
    for mode in modes.items() {
        errors.one_of_all(&mode.moved(modes.path.clone()), &["Persistent", "Ephemeral"]);
    }
    let period = spec.key("nodeAllocatableUpdatePeriodSeconds");
    if period.int().is_some_and(|seconds| seconds < 10) {
        errors.invalid(&period, "must be greater than or equal to 10 seconds");
    }
    errors.into_vec()
}

/// `ValidateCSINode`.
fn node(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let mut seen = BTreeSet::new();
    for driver in At::root(new).keys(&["spec", "drivers"]).items() {
        driver_name(&mut errors, &driver.key("name"));
        let id = driver.key("nodeID");
        if id.text().is_empty() {
            errors.required(&id, "");
        } else if id.text().len() > 256 {
            errors.invalid(&id, "must be 256 characters or less");
        }
        let count = driver.keys(&["allocatable", "count"]);
        errors.non_negative(&count);
        if !seen.insert(driver.key("name").text()) {
            errors.duplicate(&driver.key("name"));
        }
        let mut keys = BTreeSet::new();
        for key in driver.key("topologyKeys").items() {
            // Kubernetes reports keys at the driver.
            let key = key.moved(driver.path.clone());
            if key.text().is_empty() {
                errors.required(&key, "");
            }
            for message in names::qualified_name(key.text()) {
                errors.invalid_value(&key, key.text(), message);
            }
            if !keys.insert(key.text().to_owned()) {
                errors.duplicate(&key);
            }
        }
    }
    errors.into_vec()
}

/// `ValidateVolumeAttachment`.
fn attachment(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    driver_name(&mut errors, &spec.key("attacher"));
    let source = spec.key("source");
    let (inline, name) = (source.key("inlineVolumeSpec"), source.key("persistentVolumeName"));
    match (inline.present(), name.present()) {
        (false, false) => errors.required(
            &source,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        (true, true) => errors.forbidden(
            &source,
            "must specify exactly one of inlineVolumeSpec and persistentVolumeName",
        ),
        _ => {}
    }
    if inline.present() && !name.present() {
        volume::spec(&mut errors, &inline, volume::Place::Inline);
    }
    if name.present() && !inline.present() && name.text().is_empty() {
        errors.required(&name, "must specify non empty persistentVolumeName");
    }
    let node = spec.key("nodeName");
    for message in names::dns1123_subdomain(node.text()) {
        errors.invalid_value(&node, node.text(), message);
    }
    if name.present() {
        errors.messages(&name, names::dns1123_subdomain(name.text()));
    }
    errors.into_vec()
}

/// `ValidateVolumeAttributesClass`.
fn attributes(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let driver = at.key("driverName");
    if driver.text().is_empty() {
        errors.required(&driver, "");
    } else {
        let lower = driver.text().to_lowercase();
        for message in names::qualified_name(&lower) {
            errors.invalid_value(&driver, lower.clone(), message);
        }
    }
    parameters(&mut errors, &at.key("parameters"), false);
    errors.into_vec()
}

/// `ValidateCSIStorageCapacity`.
fn capacity(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new);
    let class = at.key("storageClassName");
    for message in names::dns1123_subdomain(class.text()) {
        errors.invalid_value(&class, class.text(), message);
    }
    not_negative(&mut errors, &at.key("capacity"));
    label_selector(&mut errors, &at.key("nodeTopology"));
    errors.into_vec()
}
