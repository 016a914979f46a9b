//! Rules for the volumes of a pod.

use std::collections::BTreeSet;
use std::str::FromStr;

use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;

use crate::kinds::check::{At, Errors};

/// Checks `spec.volumes` and gives the names that mounts may use.
pub(crate) fn volumes<'a>(errors: &mut Errors, at: &At<'a>) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for volume in at.items() {
        let before = errors.len();
        source(errors, &volume);
        let name = volume.key("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else {
            errors.messages(&name, names::dns1123_label(name.text()));
            if seen.contains(name.text()) {
                errors.duplicate(&name);
            }
        }
        // A volume with errors takes no name, so that one mistake gives one error.
        if errors.len() == before {
            seen.insert(name.text());
        }
    }
    seen
}

/// The kinds of volumes in the order in which Kubernetes looks at them: the first counts, each further one is an error.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "flocker",
    "downwardAPI",
    "fc",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
    "quobyte",
    "flexVolume",
];

fn source(errors: &mut Errors, volume: &At<'_>) {
    let mut given = SOURCES.iter().filter(|source| volume.key(source).present());
    let Some(first) = given.next() else {
        errors.required(volume, "must specify a volume type");
        return;
    };
    one_source(errors, first, &volume.key(first));
    for source in given {
        errors.forbidden(&volume.key(source), "may not specify more than 1 volume type");
    }
}

fn one_source(errors: &mut Errors, kind: &str, at: &At<'_>) {
    let required: &[&str] = match kind {
        "hostPath" => &["path"],
        "secret" => &["secretName"],
        "configMap" => &["name"],
        "persistentVolumeClaim" => &["claimName"],
        "nfs" => &["server", "path"],
        "csi" => &["driver"],
        "iscsi" => &["targetPortal", "iqn"],
        "gitRepo" => &["repository"],
        "cephfs" => &["monitors"],
        "rbd" => &["monitors", "image"],
        "cinder" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "flexVolume" => &["driver"],
        "portworxVolume" => &["volumeID"],
        "vsphereVolume" => &["volumePath"],
        "gcePersistentDisk" => &["pdName"],
        "awsElasticBlockStore" => &["volumeID"],
        _ => &[],
    };
    for field in required {
        let field = at.key(field);
        if field.text().is_empty() && field.is_empty() {
            errors.required(&field, "");
        }
    }
    match kind {
        "hostPath" => {
            no_backsteps(errors, &at.key("path"));
            let types = [
                "",
                "BlockDevice",
                "CharDevice",
                "Directory",
                "DirectoryOrCreate",
                "File",
                "FileOrCreate",
                "Socket",
            ];
            errors.one_of(&at.key("type"), &types, false);
        }
        "nfs" if !at.key("path").text().is_empty() && !at.key("path").text().starts_with('/') => {
            errors.invalid(&at.key("path"), "must be an absolute path");
        }
        "emptyDir" if at.key("sizeLimit").text().starts_with('-') => {
            errors.forbidden(
                &at.key("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            );
        }
        "secret" | "configMap" | "downwardAPI" => {
            mode(errors, &at.key("defaultMode"));
            items(errors, &at.key("items"), kind);
        }
        "projected" => {
            mode(errors, &at.key("defaultMode"));
            for source in at.key("sources").items() {
                projection(errors, &source);
            }
        }
        "ephemeral" => {
            let claim = at.key("volumeClaimTemplate");
            if claim.present() {
                claim_spec(errors, &claim.key("spec"));
            } else {
                errors.required(&claim, "");
            }
        }
        _ => {}
    }
}

fn projection(errors: &mut Errors, at: &At<'_>) {
    let kinds = [
        "secret",
        "configMap",
        "downwardAPI",
        "serviceAccountToken",
        "clusterTrustBundle",
        "podCertificate",
    ];
    for (index, kind) in kinds.into_iter().filter(|kind| at.key(kind).present()).enumerate() {
        let source = at.key(kind);
        if index > 0 {
            errors.forbidden(&source, "may not specify more than 1 volume type per source");
            continue;
        }
        match kind {
            "secret" | "configMap" => {
                if source.key("name").text().is_empty() {
                    errors.required(&source.key("name"), "");
                }
                items(errors, &source.key("items"), kind);
            }
            "downwardAPI" => items(errors, &source.key("items"), kind),
            "serviceAccountToken" => {
                if source.key("path").text().is_empty() {
                    errors.required(&source.key("path"), "");
                }
                let seconds = source.key("expirationSeconds");
                if seconds.int().is_some_and(|seconds| seconds < 600) {
                    errors.invalid(&seconds, "may not specify a duration less than 10 minutes");
                }
            }
            _ => {}
        }
    }
}

fn items(errors: &mut Errors, at: &At<'_>, kind: &str) {
    for item in at.items() {
        if kind == "downwardAPI" {
            if !item.key("fieldRef").present() && !item.key("resourceFieldRef").present() {
                errors.required(&item, "one of fieldRef and resourceFieldRef is required");
            }
        } else if item.key("key").text().is_empty() {
            errors.required(&item.key("key"), "");
        }
        let path = item.key("path");
        if path.text().is_empty() {
            errors.required(&path, "");
        } else if path.text().starts_with('/') {
            errors.invalid(&path, "must be a relative path");
        } else {
            no_backsteps(errors, &path);
        }
        mode(errors, &item.key("mode"));
    }
}

fn no_backsteps(errors: &mut Errors, at: &At<'_>) {
    if at.text().split('/').any(|part| part == "..") {
        errors.invalid(at, "must not contain '..'");
    }
}

fn mode(errors: &mut Errors, at: &At<'_>) {
    if at.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.invalid(at, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}

/// A `PersistentVolumeClaimSpec`, of a claim itself, of ephemeral volumes and of a StatefulSet's templates.
pub(crate) fn claim_spec(errors: &mut Errors, at: &At<'_>) {
    let modes = at.key("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    crate::kinds::storage::access_modes(errors, &modes);
    // Kubernetes leaves `requests` out of the path.
    let resources = at.key("resources");
    let storage = resources.keys(&["requests", "storage"]);
    let storage = storage.moved(resources.path.map_key("storage"));
    if storage.present() {
        if Quantity::from_str(storage.text()).is_ok_and(|amount| amount.sign() <= 0) {
            errors.invalid(&storage, "must be greater than zero");
        }
    } else {
        errors.required(&storage, "");
    }
    let class = at.key("storageClassName");
    if !class.text().is_empty() {
        errors.messages(&class, names::dns1123_subdomain(class.text()));
    }
    errors.one_of(&at.key("volumeMode"), &["Block", "Filesystem"], false);
}
