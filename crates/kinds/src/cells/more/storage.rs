//! Cells of volumes, claims and the kinds of `storage.k8s.io`.

use jiff::Timestamp;
use serde_json::Value;

use super::{flag, joined};
use crate::cells::{NONE, or, text};
use kubewright_model::Cell;
use kubewright_model::values::{At, get};

pub(super) const UNSET: &str = "<unset>";

pub(super) fn deleted(object: &Value) -> bool {
    !get(object, &["metadata", "deletionTimestamp"]).is_null()
}

/// A value as a text: numbers and percentages stand where either may stand.
pub(super) fn plain(value: &Value, none: &str) -> Value {
    match value {
        Value::Null => none.into(),
        Value::String(text) => text.as_str().into(),
        other => other.to_string().into(),
    }
}

fn modes(list: &At<'_>) -> Value {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| list.items().any(|item| item.text() == mode);
    let found: Vec<&str> = SHORT
        .iter()
        .filter(|(mode, _)| has(mode))
        .map(|(_, short)| *short)
        .collect();
    found.join(",").into()
}

fn phase(object: &Value, _: Timestamp) -> Value {
    if deleted(object) {
        "Terminating".into()
    } else {
        text(object, &["status", "phase"]).into()
    }
}

/// The class of a volume or claim: the annotation of old, or the field.
pub(super) fn class(object: &Value, _: Timestamp) -> Value {
    let old = text(
        object,
        &["metadata", "annotations", "volume.beta.kubernetes.io/storage-class"],
    );
    or(old, text(object, &["spec", "storageClassName"])).into()
}

fn attributes_class(object: &Value, _: Timestamp) -> Value {
    plain(get(object, &["spec", "volumeAttributesClassName"]), UNSET)
}

fn volume_mode(object: &Value, _: Timestamp) -> Value {
    plain(get(object, &["spec", "volumeMode"]), UNSET)
}

pub(crate) const VOLUME: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| plain(get(object, &["spec", "capacity", "storage"]), "0")),
    Cell::With(|object, _| modes(&At::root(object).keys(&["spec", "accessModes"]))),
    Cell::With(|object, _| text(object, &["spec", "persistentVolumeReclaimPolicy"]).into()),
    Cell::With(phase),
    Cell::With(|object, _| {
        let claim = At::root(object).keys(&["spec", "claimRef"]);
        if claim.present() {
            format!("{}/{}", claim.key("namespace").text(), claim.key("name").text()).into()
        } else {
            "".into()
        }
    }),
    Cell::With(class),
    Cell::With(attributes_class),
    Cell::With(|object, _| text(object, &["status", "reason"]).into()),
    Cell::Age,
    Cell::With(volume_mode),
];

/// A value that a claim has only once it is bound to a volume.
fn of_bound(object: &Value, shown: impl Fn() -> Value) -> Value {
    if text(object, &["spec", "volumeName"]).is_empty() {
        "".into()
    } else {
        shown()
    }
}

pub(crate) const CLAIM: &[Cell] = &[
    Cell::Name,
    Cell::With(phase),
    Cell::With(|object, _| text(object, &["spec", "volumeName"]).into()),
    Cell::With(|object, _| of_bound(object, || plain(get(object, &["status", "capacity", "storage"]), "0"))),
    Cell::With(|object, _| of_bound(object, || modes(&At::root(object).keys(&["status", "accessModes"])))),
    Cell::With(class),
    Cell::With(attributes_class),
    Cell::Age,
    Cell::With(volume_mode),
];

pub(crate) const DRIVER: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| {
        get(object, &["spec", "attachRequired"])
            .as_bool()
            .unwrap_or(true)
            .into()
    }),
    Cell::With(|object, _| flag(object, &["spec", "podInfoOnMount"])),
    Cell::With(|object, _| flag(object, &["spec", "storageCapacity"])),
    Cell::With(|object, _| {
        let requests = At::root(object).keys(&["spec", "tokenRequests"]);
        let all: Vec<&str> = requests.items().map(|request| request.key("audience").text()).collect();
        if all.is_empty() {
            UNSET.into()
        } else {
            all.join(",").into()
        }
    }),
    Cell::With(|object, _| flag(object, &["spec", "requiresRepublish"])),
    Cell::With(|object, _| or(&joined(&At::root(object).keys(&["spec", "volumeLifecycleModes"])), NONE).into()),
    Cell::Age,
];

pub(crate) const CSI_NODE: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| At::root(object).keys(&["spec", "drivers"]).len().into()),
    Cell::Age,
];

const PROVISIONER: Cell = Cell::With(|object, _| text(object, &["provisioner"]).into());
const RECLAIM_POLICY: Cell = Cell::With(|object, _| or(text(object, &["reclaimPolicy"]), "Delete").into());
const BINDING_MODE: Cell = Cell::With(|object, _| or(text(object, &["volumeBindingMode"]), "Immediate").into());
const EXPANSION: Cell = Cell::With(|object, _| flag(object, &["allowVolumeExpansion"]));

pub(crate) const STORAGE_CLASS: &[Cell] = &[
    Cell::With(|object, _| {
        let name = text(object, &["metadata", "name"]);
        if is_default_class(object) {
            format!("{name} (default)").into()
        } else {
            name.into()
        }
    }),
    PROVISIONER,
    RECLAIM_POLICY,
    BINDING_MODE,
    EXPANSION,
    Cell::Age,
];

/// From Kubernetes 1.37 on, where a list marks the one that counts.
pub(crate) const STORAGE_CLASS_SINCE_37: &[Cell] = &[
    Cell::Name,
    PROVISIONER,
    RECLAIM_POLICY,
    BINDING_MODE,
    EXPANSION,
    Cell::Age,
];

/// Whether a class calls itself the default one.
pub(crate) fn is_default_class(class: &Value) -> bool {
    let is_default = |key: &str| text(class, &["metadata", "annotations", key]) == "true";
    is_default("storageclass.kubernetes.io/is-default-class")
        || is_default("storageclass.beta.kubernetes.io/is-default-class")
}

pub(crate) const ATTACHMENT: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["spec", "attacher"]).into()),
    Cell::With(|object, _| text(object, &["spec", "source", "persistentVolumeName"]).into()),
    Cell::With(|object, _| text(object, &["spec", "nodeName"]).into()),
    Cell::With(|object, _| flag(object, &["status", "attached"])),
    Cell::Age,
];

pub(crate) const ATTRIBUTES_CLASS: &[Cell] = &[
    Cell::Name,
    Cell::With(|object, _| text(object, &["driverName"]).into()),
    Cell::Age,
];
