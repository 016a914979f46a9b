//! Volumes and what provides them: PersistentVolume, PersistentVolumeClaim, and the kinds of `storage.k8s.io`.
//!
//! A claim and a volume get the finalizers that the admission plugin StorageObjectInUseProtection adds; a controller takes them away.
//!
//! Not here: binding and provisioning, which are a controller's; the contents of the many kinds of volume sources beyond hostPath, local and
//! CSI, which are checked by their schema only.

use std::collections::BTreeSet;
use std::str::FromStr;

use kubewright_schema::error::FieldError;
use kubewright_schema::quantity::Quantity;
use kubewright_schema::{internal, names};
use serde_json::{Value, json};

use super::check::{At, Errors, Object, absent, child, ensure, fill, fill_text, get, keep, text};
use super::pods::scheduling::{label_selector, node_selector};
use super::pods::warnings::fractions;
use super::pods::{defaults, volumes};
use crate::registry::{GenerationRule, PLAIN, StatusMetadata, Strategy};

const STORED: Strategy = Strategy {
    delete_returns_object: true,
    ..PLAIN
};

/// How PersistentVolumes are written.
pub(crate) const VOLUME: Strategy = Strategy {
    status_metadata: StatusMetadata::WRITTEN,
    default: default_volume,
    prepare_create: |object, context| {
        protect(object, "kubernetes.io/pv-protection");
        if let Some(object) = object.as_object_mut() {
            let now = crate::env::rfc3339(context.env.now());
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
            (true, false) => crate::env::rfc3339(context.env.now()).into(),
            (true, true) => before,
            (false, _) => said.clone(),
        };
        if let Some(status) = new.get_mut("status").and_then(Value::as_object_mut)
            && !time.is_null()
        {
            status.insert("lastPhaseTransitionTime".to_owned(), time);
        }
    },
    validate_create: volume,
    validate_update: update_volume,
    ..STORED
};

/// How PersistentVolumeClaims are written.
pub(crate) const CLAIM: Strategy = Strategy {
    status_metadata: StatusMetadata::WRITTEN,
    default: default_claim,
    prepare_create: |object, _| {
        protect(object, "kubernetes.io/pvc-protection");
        data_source(object);
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({"phase": "Pending"}));
        }
    },
    prepare_update: |new, old, _| {
        keep(new, old, "status");
        data_source(new);
    },
    validate_create: claim,
    validate_update: update_claim,
    warnings: |new, _| {
        let mut warn = Vec::new();
        let resources = At::root(new).keys(&["spec", "resources"]);
        for list in ["requests", "limits"] {
            fractions(&resources.key(list), &["storage"], &mut warn);
        }
        warn
    },
    ..STORED
};

/// How StorageClasses are written.
pub(crate) const CLASS: Strategy = Strategy {
    default: |object| {
        let Some(object) = object.as_object_mut() else { return };
        fill(object, "reclaimPolicy", "Delete");
        fill(object, "volumeBindingMode", "Immediate");
    },
    validate_create: class,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(class(new));
        let (new, old) = (At::root(new), At::root(old));
        if new.key("parameters").value != old.key("parameters").value {
            errors.forbidden(&new.key("parameters"), "updates to parameters are forbidden.");
        }
        if new.key("provisioner").value != old.key("provisioner").value {
            errors.invalid(&new.key("provisioner"), "field is immutable");
        }
        errors.immutable(&new.key("reclaimPolicy"), &old.key("reclaimPolicy"));
        errors.immutable(&new.key("volumeBindingMode"), &old.key("volumeBindingMode"));
        errors.into_vec()
    },
    ..STORED
};

/// How CSIDrivers are written.
pub(crate) const DRIVER: Strategy = Strategy {
    unconditional_update: false,
    prepare_update: |new, old, _| {
        // A generation is counted, but a new driver has none.
        if get(new, &["spec"]) != get(old, &["spec"]) {
            let generation = crate::object::generation(old) + 1;
            crate::object::metadata_mut(new).insert("generation".to_owned(), generation.into());
        }
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
        errors.immutable(&spec.key("volumeLifecycleModes"), &was.key("volumeLifecycleModes"));
        errors.into_vec()
    },
    ..STORED
};

/// How CSINodes are written.
pub(crate) const NODE: Strategy = Strategy {
    unconditional_update: false,
    validate_create: node,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(node(new));
        let drivers = At::root(new).keys(&["spec", "drivers"]);
        for before in At::root(old).keys(&["spec", "drivers"]).items() {
            let same = |driver: &At<'_>| driver.key("name").text() == before.key("name").text();
            if let Some(after) = drivers.items().find(same)
                && after.value != before.value
            {
                errors.invalid(&drivers.moved(after.path.clone()), "field is immutable");
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
    prepare_create: |object, _| {
        if let Some(object) = object.as_object_mut() {
            object.insert("status".to_owned(), json!({"attached": false}));
        }
    },
    prepare_update: |new, old, _| keep(new, old, "status"),
    validate_create: attachment,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(attachment(new));
        errors.immutable(&At::root(new).key("spec"), &At::root(old).key("spec"));
        errors.into_vec()
    },
    ..STORED
};

/// How VolumeAttributesClasses are written.
pub(crate) const ATTRIBUTES: Strategy = Strategy {
    prepare_create: |object, _| protect(object, "kubernetes.io/vac-protection"),
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
    validate_create: capacity,
    validate_update: |new, old| {
        let mut errors = Errors::default();
        errors.extend(capacity(new));
        for field in ["nodeTopology", "storageClassName"] {
            errors.immutable(&At::root(new).key(field), &At::root(old).key(field));
        }
        errors.into_vec()
    },
    ..STORED
};

/// Keeps an object until whoever uses it has let go.
fn protect(object: &mut Value, finalizer: &str) {
    let mut finalizers: Vec<String> = crate::object::finalizers(object)
        .into_iter()
        .map(str::to_owned)
        .collect();
    if !finalizers.iter().any(|known| known == finalizer) {
        finalizers.push(finalizer.to_owned());
        crate::object::set_finalizers(object, finalizers);
    }
}

fn default_volume(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        fill_text(status, "phase", "Pending");
    }
    let Some(spec) = ensure(object, "spec") else { return };
    fill_text(spec, "persistentVolumeReclaimPolicy", "Retain");
    fill(spec, "volumeMode", "Filesystem");
    if let Some(path) = child(spec, "hostPath") {
        fill(path, "type", "");
    }
    if let Some(disk) = child(spec, "iscsi") {
        fill_text(disk, "iscsiInterface", "default");
    }
    if let Some(disk) = child(spec, "rbd") {
        fill_text(disk, "pool", "rbd");
        fill_text(disk, "user", "admin");
        fill_text(disk, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = child(spec, "scaleIO") {
        fill_text(disk, "storageMode", "ThinProvisioned");
        fill_text(disk, "fsType", "xfs");
    }
    if let Some(disk) = child(spec, "azureDisk") {
        fill(disk, "cachingMode", "ReadWrite");
        fill(disk, "kind", "Shared");
        fill(disk, "fsType", "ext4");
        fill(disk, "readOnly", false);
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

/// Checks a list of access modes; all errors are about the list.
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

fn positive(errors: &mut Errors, at: &At<'_>) {
    if Quantity::from_str(at.text()).is_ok_and(|amount| amount.sign() <= 0) {
        errors.invalid(at, "must be greater than zero");
    }
}

fn not_negative(errors: &mut Errors, at: &At<'_>) {
    if Quantity::from_str(at.text()).is_ok_and(|amount| amount.sign() < 0) {
        errors.invalid(at, "must be greater than or equal to 0");
    }
}

fn volume(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    let modes = spec.key("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "");
    }
    access_modes(&mut errors, &modes);
    let capacity = spec.key("capacity");
    if capacity.is_empty() {
        errors.required(&capacity, "");
    }
    if capacity.len() != 1 || !capacity.key("storage").present() {
        let value = if capacity.is_empty() {
            Value::Null
        } else {
            capacity.value.clone()
        };
        errors.push(FieldError::not_supported(
            capacity.path.to_string(),
            value,
            &["storage"],
        ));
    }
    for (_, entry) in capacity.entries() {
        positive(&mut errors, &entry);
    }
    errors.one_of(
        &spec.key("persistentVolumeReclaimPolicy"),
        &["Delete", "Recycle", "Retain"],
        false,
    );
    let affinity = spec.key("nodeAffinity");
    if affinity.present() {
        let required = affinity.key("required");
        if required.present() {
            node_selector(&mut errors, &required);
        } else {
            errors.required(&required, "must specify required node constraints");
        }
    }
    let mut sources = SOURCES.iter().map(|name| spec.key(name)).filter(At::present);
    match sources.next() {
        Some(first) => {
            source(&mut errors, &spec, &first);
            other_source(&mut errors, &spec);
        }
        None => errors.required(&spec, "must specify a volume type"),
    }
    for more in sources {
        errors.forbidden(&more, "may not specify more than 1 volume type");
    }
    class_name(&mut errors, &spec.key("storageClassName"));
    errors.one_of(&spec.key("volumeMode"), &["Block", "Filesystem"], false);
    errors.into_vec()
}

fn source(errors: &mut Errors, spec: &At<'_>, source: &At<'_>) {
    let path = source.key("path");
    if spec.key("hostPath").present() {
        if path.text().is_empty() {
            errors.required(&path, "");
        } else {
            no_backsteps(errors, &path);
        }
        if path.text() == "/" && spec.key("persistentVolumeReclaimPolicy").text() == "Recycle" {
            errors.forbidden(
                &spec.key("persistentVolumeReclaimPolicy"),
                "may not be 'recycle' for a hostPath mount of '/'",
            );
        }
    } else if spec.key("local").present() {
        if path.text().is_empty() {
            errors.required(&path, "");
        } else {
            no_backsteps(errors, &path);
        }
        if !spec.key("nodeAffinity").present() {
            errors.required(&spec.key("nodeAffinity"), "Local volume requires node affinity");
        }
    } else if spec.key("nfs").present() {
        for field in ["server", "path"] {
            if source.key(field).text().is_empty() {
                errors.required(&source.key(field), "");
            }
        }
        if !path.text().is_empty() && !path.text().starts_with('/') {
            errors.invalid(&path, "must be an absolute path");
        }
    } else if spec.key("csi").present() {
        driver_name(errors, &source.key("driver"));
        if source.key("volumeHandle").text().is_empty() {
            errors.required(&source.key("volumeHandle"), "");
        }
    }
}

/// The sources of networks and clouds: those of pods, and what a volume beyond any namespace must say besides.
fn other_source(errors: &mut Errors, spec: &At<'_>) {
    let Some(kind) = SOURCES
        .iter()
        .find(|name| spec.key(name).present())
        .filter(|name| !["hostPath", "local", "nfs", "csi"].contains(name))
    else {
        return;
    };
    let at = match *kind {
        "gcePersistentDisk" => spec.key(kind).moved(spec.path.key("persistentDisk")),
        _ => spec.key(kind),
    };
    volumes::one_source(errors, kind, &at);
    let namespace = match *kind {
        "glusterfs" => at.key("endpointsNamespace"),
        "azureFile" => at.key("secretNamespace"),
        "cinder" if at.key("secretRef").present() => at.keys(&["secretRef", "namespace"]),
        _ => return,
    };
    if *kind == "glusterfs" {
        if namespace.present() && namespace.text().is_empty() {
            errors.invalid(
                &namespace,
                "if the endpointnamespace is set, it must be a valid namespace name",
            );
        }
    } else if namespace.text().is_empty() && (*kind == "cinder" || namespace.present()) {
        errors.required(&namespace, "");
    }
}

fn no_backsteps(errors: &mut Errors, at: &At<'_>) {
    if at.text().split('/').any(|part| part == "..") {
        errors.invalid(at, "must not contain '..'");
    }
}

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

fn update_volume(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    // Kubernetes checks a changed volume twice, and tells both.
    errors.extend(volume(new));
    errors.extend(volume(new));
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
        let difference = internal::difference("", "PersistentVolume", &source.path.to_string(), was.value, &now);
        errors.forbidden(
            &source,
            format!("spec.persistentvolumesource is immutable after creation\n{difference}"),
        );
    }
    let mode = spec.key("volumeMode").moved(At::root(new).key("volumeMode").path);
    errors.immutable(&mode, &was.key("volumeMode"));
    if was.key("nodeAffinity").present() {
        let affinity = spec.key("nodeAffinity").moved(At::root(new).key("nodeAffinity").path);
        errors.immutable(&affinity, &was.key("nodeAffinity"));
    }
    let class = spec.key("volumeAttributesClassName");
    if was.key("volumeAttributesClassName").present() && !class.present() {
        errors.forbidden(&class, "update from non-nil value to nil is forbidden");
    }
    errors.into_vec()
}

fn default_claim(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        fill_text(status, "phase", "Pending");
    }
    if let Some(spec) = ensure(object, "spec") {
        defaults::claim_spec(spec);
    }
}

/// `dataSource` takes claims and snapshots only, others are dropped; it and `dataSourceRef` follow each other.
fn data_source(object: &mut Value) {
    let Some(spec) = object.as_object_mut().and_then(|object| child(object, "spec")) else {
        return;
    };
    let known = child(spec, "dataSource").is_none_or(|source: &mut Object| {
        let kind = text(source, "kind");
        match text(source, "apiGroup") {
            "" => kind == "PersistentVolumeClaim",
            group => group == "snapshot.storage.k8s.io" && kind == "VolumeSnapshot",
        }
    });
    if !known {
        spec.remove("dataSource");
    }
    // Sources in other namespaces are behind a feature that is off.
    if child(spec, "dataSourceRef").is_some_and(|reference| !text(reference, "namespace").is_empty()) {
        spec.remove("dataSourceRef");
    }
    match (spec.get("dataSource").cloned(), spec.get("dataSourceRef").cloned()) {
        (Some(source), None) => {
            spec.insert("dataSourceRef".to_owned(), source);
        }
        (None, Some(reference)) if reference.get("namespace").is_none_or(|namespace| namespace == "") => {
            spec.insert("dataSource".to_owned(), reference);
        }
        _ => {}
    }
}

fn claim(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    label_selector(&mut errors, &spec.key("selector"));
    volumes::claim_spec(&mut errors, &spec);
    let class = spec.key("volumeAttributesClassName");
    if !class.text().is_empty() {
        errors.messages(&class, names::dns1123_subdomain(class.text()));
    }
    errors.into_vec()
}

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
        let difference = internal::difference("", "PersistentVolumeClaim", "spec", &was, &now);
        errors.forbidden(
            &spec,
            format!("spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims\n{difference}"),
        );
    }
    let amount = |value: &Value, keys: &[&str]| Quantity::from_str(get(value, keys).as_str().unwrap_or(""));
    let asked = amount(new, &["spec", "resources", "requests", "storage"]);
    let before = amount(old, &["spec", "resources", "requests", "storage"]);
    let has = amount(old, &["status", "capacity", "storage"]);
    // What is absent is nothing.
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
        errors.one_of(&mode, &["Immediate", "WaitForFirstConsumer"], false);
    } else {
        errors.required(&mode, "");
    }
    for term in at.key("allowedTopologies").items() {
        let mut seen = BTreeSet::new();
        for expression in term.key("matchLabelExpressions").items() {
            let (key, values) = (expression.key("key"), expression.key("values"));
            if values.is_empty() {
                errors.required(&values, "");
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

fn parameters(errors: &mut Errors, at: &At<'_>, may_be_empty: bool) {
    if at.is_empty() && !may_be_empty {
        errors.required(at, "must contain at least one key/value pair");
    }
    if at.len() > 512 {
        errors.push(FieldError::too_long(at.path.to_string(), 512));
    }
    for (key, _) in at.entries() {
        if key.is_empty() {
            errors.invalid_value(at, key, "field can not be empty.");
        }
    }
}

fn driver(new: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let spec = At::root(new).key("spec");
    for required in ["attachRequired", "podInfoOnMount", "storageCapacity"] {
        if !spec.key(required).present() {
            errors.required(&spec.key(required), "");
        }
    }
    errors.one_of(
        &spec.key("fsGroupPolicy"),
        &["File", "None", "ReadWriteOnceWithFSType"],
        false,
    );
    let mut seen = BTreeSet::new();
    for request in spec.key("tokenRequests").items() {
        let audience = request.key("audience");
        if !seen.insert(audience.text()) {
            errors.push(FieldError::duplicate(audience.path.to_string(), audience.text()));
        }
        let seconds = request.key("expirationSeconds");
        if seconds.int().is_some_and(|seconds| seconds < 600) {
            errors.invalid(&seconds, "may not specify a duration less than 10 minutes");
        } else if seconds.int().is_some_and(|seconds| seconds > 1 << 32) {
            errors.invalid(&seconds, "may not specify a duration larger than 2^32 seconds");
        }
    }
    let modes = spec.key("volumeLifecycleModes");
    for mode in modes.items() {
        errors.one_of(&mode.moved(modes.path.clone()), &["Persistent", "Ephemeral"], true);
    }
    errors.into_vec()
}

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
        for key in driver.key("topologyKeys").items() {
            // Kubernetes reports keys at the driver.
            let key = key.moved(driver.path.clone());
            if key.text().is_empty() {
                errors.required(&key, "");
            }
            for message in names::qualified_name(key.text()) {
                errors.invalid_value(&key, key.text(), message);
            }
        }
    }
    errors.into_vec()
}

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
    if name.present() && name.text().is_empty() {
        errors.required(&name, "must specify non empty persistentVolumeName");
    }
    let node = spec.key("nodeName");
    for message in names::dns1123_subdomain(node.text()) {
        errors.invalid_value(&node, node.text(), message);
    }
    errors.into_vec()
}

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
