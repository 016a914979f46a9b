//! Rules for the volumes of a pod.

use std::collections::BTreeSet;
use std::str::FromStr;

use kubewright_schema::budget;
use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use kubewright_schema::quantity::Quantity;

use super::projections::{descending, downward_file, key_to_path, mode, no_backsteps, projections};
use super::scheduling::label_selector;
use crate::strategies::check::{At, Errors, Must, check_fields, rule};

/// Checks `spec.volumes` of a pod and gives the names that mounts may use. A pod that has no name yet has no claims
/// either.
pub(crate) fn volumes<'a>(errors: &mut Errors, at: &At<'a>, pod: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for volume in at.items() {
        let before = errors.len();
        source(errors, &volume);
        let name = volume.key("name");
        if volume.has("ephemeral") && !pod.is_empty() && !name.text().is_empty() {
            let claim = format!("{pod}-{}", name.text());
            for message in names::dns1123_subdomain(&claim) {
                errors.invalid(&name, format!("PVC name {claim:?}: {message}"));
            }
        }
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
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephfs",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
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
];

/// The sources that a volume has, in the order of [`SOURCES`]. A volume has few fields: one pass over them is cheaper
/// than a lookup of each source.
fn given(volume: &At<'_>) -> Vec<&'static str> {
    let fields = volume.value.as_object().into_iter().flatten();
    let there = fields.filter(|(_, value)| !value.is_null());
    let mut given: Vec<usize> = there
        .filter_map(|(field, _)| {
            budget::spend(1);
            SOURCES.iter().position(|source| source == field)
        })
        .collect();
    given.sort_unstable();
    given.into_iter().map(|at| SOURCES[at]).collect()
}

/// `validateVolumeSource`.
fn source(errors: &mut Errors, volume: &At<'_>) {
    let given = given(volume);
    let Some((first, others)) = given.split_first() else {
        errors.required(volume, "must specify a volume type");
        return;
    };
    // The path of this one kind is another upstream.
    let shown = if *first == "gcePersistentDisk" {
        "persistentDisk"
    } else {
        first
    };
    let source = volume.key(first).moved(volume.path.key(shown));
    one_source(errors, first, &source);
    if *first == "iscsi" {
        // The error in a pod is more precise than that in a PersistentVolume.
        iscsi(errors, &source, "must be valid format starting with iqn, eui, or naa");
    }
    for source in others {
        // Two paths are misspelt upstream.
        let shown = match *source {
            "cephfs" => "cephFS",
            "downwardAPI" => "downwarAPI",
            source => source,
        };
        let at = volume.key(source);
        errors.forbidden(
            &at.moved(volume.path.key(shown)),
            "may not specify more than 1 volume type",
        );
    }
    if !given.contains(&"iscsi") {
        return;
    }
    let iscsi = volume.key("iscsi");
    let target = volume.text_of("name").len() + 1 + iscsi.text_of("targetPortal").len();
    if iscsi.has("initiatorName") && target > 64 {
        errors.invalid(
            &volume.key("name"),
            "Total length of <volume name>:<iscsi.targetPortal> must be under 64 characters if iscsi.initiatorName is specified.",
        );
    }
}

/// The rules of one source, as pods and PersistentVolumes share them (`validateVolumeSource`).
pub(crate) fn one_source(errors: &mut Errors, kind: &str, at: &At<'_>) {
    let fields: &[&str] = match kind {
        "hostPath" => &["path"],
        "secret" => &["secretName"],
        "configMap" => &["name"],
        "persistentVolumeClaim" => &["claimName"],
        "nfs" => &["server", "path"],
        "iscsi" => &["targetPortal", "iqn"],
        "gitRepo" => &["repository"],
        "cephfs" => &["monitors"],
        "rbd" => &["monitors", "image"],
        "cinder" | "portworxVolume" | "awsElasticBlockStore" => &["volumeID"],
        "glusterfs" => &["endpoints", "path"],
        "azureFile" => &["secretName", "shareName"],
        "azureDisk" => &["diskName", "diskURI"],
        "csi" | "flexVolume" => &["driver"],
        "vsphereVolume" => &["volumePath"],
        "gcePersistentDisk" => &["pdName"],
        "photonPersistentDisk" => &["pdID"],
        "storageos" => &["volumeName"],
        "scaleIO" => &["gateway", "system", "volumeName"],
        _ => &[],
    };
    for field in fields {
        required(errors, &at.key(field));
    }
    match kind {
        "hostPath" => host_path(errors, at),
        "nfs" if !at.text_of("path").starts_with('/') => {
            errors.invalid_value(&at.key("path"), at.text_of("path"), "must be an absolute path");
        }
        "emptyDir" if at.text_of("sizeLimit").starts_with('-') => {
            errors.forbidden(
                &at.key("sizeLimit"),
                "SizeLimit field must be a valid resource quantity",
            );
        }
        "gitRepo" => descending(errors, &at.key("directory")),
        "storageos" => storage_os(errors, at),
        "fc" => fibre_channel(errors, at),
        "cinder" => secret_reference(errors, at),
        "flexVolume" => options(errors, &at.key("options")),
        "azureDisk" => azure_disk(errors, at),
        "csi" => csi(errors, at),
        "quobyte" => quobyte(errors, at),
        "flocker" => flocker(errors, at),
        "image" => {
            required(errors, &at.key("reference"));
            errors.one_of(&at.key("pullPolicy"), &["Always", "IfNotPresent", "Never"], false);
        }
        "gcePersistentDisk" | "awsElasticBlockStore" => {
            let partition = at.key("partition");
            if partition.int().is_some_and(|number| !(0..=255).contains(&number)) {
                errors.invalid(&partition, "must be between 1 and 255, inclusive");
            }
        }
        "secret" | "configMap" => {
            mode(errors, &at.key("defaultMode"));
            at.key("items").items().for_each(|item| key_to_path(errors, &item));
        }
        "downwardAPI" => {
            mode(errors, &at.key("defaultMode"));
            at.key("items")
                .items()
                .for_each(|item| downward_file(errors, &item, at));
        }
        "projected" => {
            mode(errors, &at.key("defaultMode"));
            projections(errors, at);
        }
        "ephemeral" => {
            let claim = at.key("volumeClaimTemplate");
            if claim.present() {
                template_metadata(errors, &claim.key("metadata"));
                claim_spec(errors, &claim.key("spec"));
            } else {
                errors.required(&claim, "");
            }
        }
        _ => {}
    }
}

/// The metadata of a template: labels and annotations, nothing else (`ValidateTemplateObjectMeta`).
pub(crate) fn template_metadata(errors: &mut Errors, at: &At<'_>) {
    const NAMED_LATER: [&str; 13] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    let (notes, labels) = (at.key("annotations"), at.key("labels"));
    errors.extend(names::annotations(notes.value, &notes.path));
    errors.extend(names::labels(labels.value, &labels.path));
    for name in NAMED_LATER {
        let field = at.key(name);
        // A number that is a pointer to Go is there even when it is 0.
        let zero = field.int() == Some(0) && name == "generation";
        if field.present() && field.value != "" && !zero {
            // Upstream makes the name out of that in Go.
            let shown = if name == "uid" { "uID" } else { name };
            errors.forbidden(&field.moved(at.path.key(shown)), "cannot be set");
        }
    }
}

/// A text or a list that may not be empty.
pub(crate) fn required(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() && at.is_empty() {
        errors.required(at, "");
    }
}

/// A reference to a secret, if there is one, says its name (`validatePVSecretReference`).
pub(crate) fn secret_reference(errors: &mut Errors, source: &At<'_>) {
    let reference = source.key("secretRef");
    if reference.present() {
        required(errors, &reference.key("name"));
    }
}

/// `validateHostPathVolumeSource`.
fn host_path(errors: &mut Errors, at: &At<'_>) {
    if at.text_of("path").is_empty() {
        return;
    }
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

/// The error for a name that begins like an iSCSI name but does not have its format.
pub(crate) const ISCSI_FORMAT: &str = "must be valid format";

/// The rules of an `iscsi` source. `unknown`: the error for a name that begins in none of the three forms.
/// `validateISCSIVolumeSource`.
pub(crate) fn iscsi(errors: &mut Errors, at: &At<'_>, unknown: &str) {
    let name = |errors: &mut Errors, name: &At<'_>| {
        if !is_iscsi_name(name.text()) {
            let prefixed = ["iqn", "eui", "naa"].iter().any(|form| name.text().starts_with(form));
            errors.invalid(name, if prefixed { ISCSI_FORMAT } else { unknown });
        }
    };
    if !at.text_of("iqn").is_empty() {
        name(errors, &at.key("iqn"));
    }
    let lun = at.key("lun");
    if lun.int().is_some_and(|lun| !(0..=255).contains(&lun)) {
        errors.invalid(&lun, "must be between 0 and 255, inclusive");
    }
    let authenticates = ["chapAuthDiscovery", "chapAuthSession"]
        .iter()
        .any(|field| at.key(field).is_true());
    if authenticates && !at.has("secretRef") {
        errors.required(&at.key("secretRef"), "");
    }
    let initiator = at.key("initiatorName");
    if initiator.present() {
        name(errors, &initiator.moved(at.path.key("initiatorname")));
    }
}

/// The three forms of iSCSI names: `iqn.2001-04.com.example:x`, `eui.` and `naa.` with their hexadecimal digits.
fn is_iscsi_name(name: &str) -> bool {
    let hex = |digits: &str, lengths: &[usize]| {
        lengths.contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    if let Some(rest) = name.strip_prefix("iqn.") {
        let (date, rest) = rest.split_once('.').unwrap_or((rest, ""));
        let digits = |text: &str, length: usize| text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit());
        let (year, month) = date.split_once('-').unwrap_or((date, ""));
        let (authority, _) = rest.split_once(':').unwrap_or((rest, ""));
        let (first, last) = (authority.chars().next(), authority.chars().last());
        let plain = |c: char| c.is_ascii_alphanumeric();
        return digits(year, 4)
            && digits(month, 2)
            && first.is_some_and(plain)
            && last.is_some_and(plain)
            && authority.chars().all(|c| plain(c) || matches!(c, '.' | '-'));
    }
    name.strip_prefix("eui.").is_some_and(|digits| hex(digits, &[16]))
        || name.strip_prefix("naa.").is_some_and(|digits| hex(digits, &[16, 32]))
}

/// `validateQuobyteVolumeSource`.
fn quobyte(errors: &mut Errors, at: &At<'_>) {
    const PAIRS: &str = "must be a host:port pair or multiple pairs separated by commas";
    let registry = at.key("registry");
    if registry.text().is_empty() {
        errors.required(&registry, PAIRS);
    } else if at.text_of("tenant").len() > 64 {
        errors.required(
            &at.key("tenant"),
            "must be a UUID and may not exceed a length of 64 characters",
        );
    } else {
        for _ in registry.text().split(',').filter(|pair| !is_host_and_port(pair)) {
            errors.invalid(&registry, PAIRS);
        }
    }
    required(errors, &at.key("volume"));
}

/// Whether Go would split it (`net.SplitHostPort`): one colon, or more inside of brackets; both sides may be empty.
fn is_host_and_port(pair: &str) -> bool {
    let Some((host, port)) = pair.rsplit_once(':') else {
        return false;
    };
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']'),
        None => Some(host).filter(|host| !host.contains(':')),
    };
    host.is_some_and(|host| !host.contains(['[', ']'])) && !port.contains(['[', ']'])
}

/// `validateFlockerVolumeSource`.
fn flocker(errors: &mut Errors, at: &At<'_>) {
    let (name, id) = (at.key("datasetName"), at.key("datasetUUID"));
    match (name.text(), id.text()) {
        ("", "") => errors.required(at, "one of datasetName and datasetUUID is required"),
        ("", _) | (_, "") => {}
        _ => errors.invalid_value(
            at,
            "resource",
            "datasetName and datasetUUID can not be specified simultaneously",
        ),
    }
    if name.text().contains('/') {
        errors.invalid(&name, "must not contain '/'");
    }
}

/// `validateStorageOSVolumeSource`.
fn storage_os(errors: &mut Errors, at: &At<'_>) {
    for field in ["volumeName", "volumeNamespace"] {
        let name = at.key(field);
        if !name.text().is_empty() {
            errors.messages(&name, names::dns1123_label(name.text()));
        }
    }
    secret_reference(errors, at);
}

/// `validateFCVolumeSource`.
fn fibre_channel(errors: &mut Errors, at: &At<'_>) {
    let (targets, ids, lun) = (at.key("targetWWNs"), at.key("wwids"), at.key("lun"));
    if targets.is_empty() && ids.is_empty() {
        errors.required(&targets, "must specify either targetWWNs or wwids, but not both");
    }
    if targets.is_empty() {
        return;
    }
    if !ids.is_empty() {
        errors.invalid(&targets, "targetWWNs and wwids can not be specified simultaneously");
    }
    match lun.int() {
        None => errors.required(&lun, "lun is required if targetWWNs is specified"),
        Some(number) if !(0..=255).contains(&number) => errors.invalid(&lun, "must be between 0 and 255, inclusive"),
        Some(_) => {}
    }
}

fn options(errors: &mut Errors, at: &At<'_>) {
    for (key, entry) in at.entries() {
        let namespace = key.split_once('/').map_or(key, |(namespace, _)| namespace);
        let namespace = format!(".{}", namespace.to_lowercase());
        if namespace.ends_with(".kubernetes.io") || namespace.ends_with(".k8s.io") {
            errors.invalid_value(&entry, key, "kubernetes.io and k8s.io namespaces are reserved");
        }
    }
}

/// `validateAzureDisk`.
fn azure_disk(errors: &mut Errors, at: &At<'_>) {
    let caching = Must::BeAbsentOrOneOf(&["None", "ReadOnly", "ReadWrite"]);
    let disk = Must::BeAbsentOrOneOf(&["Dedicated", "Managed", "Shared"]);
    let rules = [
        rule(&["cachingMode"], caching, "validateAzureDisk"),
        rule(&["kind"], disk, "validateAzureDisk"),
    ];
    check_fields(errors, &rules, at, None);
    let kind = at.key("kind");
    let address = at.key("diskURI");
    let (prefix, form) = match kind.text() {
        "Managed" => (
            "/subscriptions/",
            "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}",
        ),
        _ => (
            "https://",
            "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd",
        ),
    };
    if kind.present() && !address.text().starts_with(prefix) {
        errors.unsupported(&address, &[form]);
    }
}

/// `validateCSIVolumeSource`.
fn csi(errors: &mut Errors, at: &At<'_>) {
    let driver = at.key("driver");
    if !driver.text().is_empty() {
        csi_driver_name(errors, &driver);
    }
    let secret = at.key("nodePublishSecretRef");
    let name = secret.key("name");
    if secret.present() && name.text().is_empty() {
        errors.required(&name, "");
    } else if secret.present() {
        errors.messages(&name.moved(at.path.key("name")), names::dns1123_subdomain(name.text()));
    }
}

/// The name of a CSI driver that is not empty (`ValidateCSIDriverName`).
pub(crate) fn csi_driver_name(errors: &mut Errors, at: &At<'_>) {
    if at.text().len() > 63 {
        errors.push(FieldError::too_long(at.path.to_string(), 63));
    }
    errors.messages(at, names::dns1123_subdomain(&at.text().to_lowercase()));
}

/// A `PersistentVolumeClaimSpec`, of a claim itself, of ephemeral volumes and of a StatefulSet's templates.
pub(crate) fn claim_spec(errors: &mut Errors, at: &At<'_>) {
    let modes = at.key("accessModes");
    if modes.is_empty() {
        errors.required(&modes, "at least 1 access mode is required");
    }
    label_selector(errors, &at.key("selector"));
    crate::strategies::storage::access_modes(errors, &modes);
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
    let mode = at.key("volumeMode");
    if mode.present() && !["Block", "Filesystem"].contains(&mode.text()) {
        errors.unsupported(&mode, &["Block", "Filesystem"]);
    }
    let attributes = at.key("volumeAttributesClassName");
    if !attributes.text().is_empty() {
        errors.messages(&attributes, names::dns1123_subdomain(attributes.text()));
    }
    crate::strategies::storage::sources::validate(errors, at);
}
