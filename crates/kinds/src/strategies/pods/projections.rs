//! Rules for the volumes of a pod that are made of parts: keys of Secrets and ConfigMaps, fields of the pod, tokens,
//! certificates.

use std::collections::BTreeSet;

use super::containers::{field_reference, resource_reference};
use super::scheduling::label_selector;
use super::volumes::required;
use crate::strategies::certificates::signer_name;
use crate::strategies::check::{At, Errors};
use crate::strategies::trust::bundle_name;
use kubewright_model::duration::check_token_seconds;

/// The fields of a pod that a file of a downward API volume may show.
const FIELDS: [&str; 5] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// `sources` of a projected volume (`validateProjectionSources`).
pub(super) fn projections(errors: &mut Errors, volume: &At<'_>) {
    let mut paths = BTreeSet::new();
    for source in volume.key("sources").items() {
        let given: Vec<At<'_>> = [
            "secret",
            "configMap",
            "downwardAPI",
            "serviceAccountToken",
            "clusterTrustBundle",
            "podCertificate",
        ]
        .iter()
        .map(|kind| source.key(kind))
        .filter(At::present)
        .collect();
        for kind in ["secret", "configMap"] {
            keys(errors, &source.key(kind), volume, &mut paths);
        }
        let fields = source.key("downwardAPI");
        for item in fields.key("items").items() {
            downward_file(errors, &item, &fields);
            take(errors, &item.key("path"), volume, item.text_of("path"), &mut paths);
        }
        token(errors, &source.key("serviceAccountToken"), volume);
        bundle(errors, &source.key("clusterTrustBundle"), volume, &mut paths);
        certificate(errors, &source.key("podCertificate"), volume, &mut paths);
        if given.len() > 1 {
            errors.forbidden(&source, "may not specify more than 1 volume type per source");
        }
    }
}

/// Notes a path in the volume; `shown` is the path in the error when it is taken.
fn take<'a>(errors: &mut Errors, path: &At<'a>, volume: &At<'_>, shown: &str, paths: &mut BTreeSet<&'a str>) {
    if !path.text().is_empty() && !paths.insert(path.text()) {
        errors.invalid_value(volume, shown, "conflicting duplicate paths");
    }
}

fn keys<'a>(errors: &mut Errors, at: &At<'a>, volume: &At<'_>, paths: &mut BTreeSet<&'a str>) {
    if !at.present() {
        return;
    }
    required(errors, &at.key("name"));
    for item in at.key("items").items() {
        key_to_path(errors, &item);
        take(errors, &item.key("path"), volume, at.text_of("name"), paths);
    }
}

/// `validateProjectionSources`.
fn token(errors: &mut Errors, at: &At<'_>, volume: &At<'_>) {
    if !at.present() {
        return;
    }
    let seconds = at.key("expirationSeconds");
    if let Some(Err(why)) = seconds.int().map(check_token_seconds) {
        errors.invalid(&seconds, why);
    }
    // Upstream says `path` of the volume.
    let path = at.key("path").moved(volume.path.key("path"));
    if path.text().is_empty() {
        errors.required(&path, "");
    } else {
        file(errors, &path);
    }
}

/// By its name or by its signer (`validateProjectionSources`).
fn bundle<'a>(errors: &mut Errors, at: &At<'a>, volume: &At<'_>, paths: &mut BTreeSet<&'a str>) {
    if !at.present() {
        return;
    }
    let (name, signer, selector) = (at.key("name"), at.key("signerName"), at.key("labelSelector"));
    match (name.present(), signer.present()) {
        (true, true) => errors.invalid(at, "only one of name and signerName may be used"),
        (true, false) => {
            if name.text().is_empty() {
                errors.required(&name, "must be a valid object name");
            }
            let of = name
                .text()
                .rsplit_once(':')
                .map(|(signer, _)| signer.replacen(':', "/", 1));
            for why in bundle_name(name.text(), of.as_deref().unwrap_or_default()) {
                errors.invalid(&name, format!("not a valid clustertrustbundlename: {why}"));
            }
            if selector.present() {
                errors.invalid(&selector, "labelSelector must be unset if name is specified");
            }
        }
        (false, true) => {
            if signer.text().is_empty() {
                errors.required(&signer, "must be a valid signer name");
            }
            signer_name(errors, &signer);
            label_selector(errors, &selector);
        }
        (false, false) => errors.required(at, "either name or signerName must be specified"),
    }
    let path = at.key("path");
    required(errors, &path);
    file(errors, &path);
    // Also an empty path is taken only once.
    if !paths.insert(path.text()) {
        errors.invalid_value(volume, path.text(), "conflicting duplicate paths");
    }
}

fn certificate<'a>(errors: &mut Errors, at: &At<'a>, volume: &At<'_>, paths: &mut BTreeSet<&'a str>) {
    const KEYS: [&str; 6] = ["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    if !at.present() {
        return;
    }
    signer_name(errors, &at.key("signerName"));
    if !KEYS.contains(&at.text_of("keyType")) {
        errors.unsupported(&at.key("keyType"), &KEYS);
    }
    let seconds = at.key("maxExpirationSeconds");
    let own = at.text_of("signerName").starts_with("kubernetes.io/");
    let most = if own { 24 * 3600 } else { 91 * 24 * 3600 };
    if seconds.int().is_some_and(|seconds| seconds < 3600) {
        errors.invalid(&seconds, "if provided, maxExpirationSeconds must be >= 3600");
    }
    if seconds.int().is_some_and(|seconds| seconds > most) {
        errors.invalid(&seconds, format!("if provided, maxExpirationSeconds must be <= {most}"));
    }
    let mut any = false;
    for field in ["credentialBundlePath", "keyPath", "certificateChainPath"] {
        let path = at.key(field);
        if !path.text().is_empty() {
            any = true;
            file(errors, &path);
            take(errors, &path, volume, path.text(), paths);
        }
    }
    if !any {
        errors.required(
            at,
            "specify at least one of credentialBundlePath, keyPath, and certificateChainPath",
        );
    }
}

/// An item of a Secret or ConfigMap: a key, and the file that shows it (`validateKeyToPath`).
pub(super) fn key_to_path(errors: &mut Errors, at: &At<'_>) {
    required(errors, &at.key("key"));
    required(errors, &at.key("path"));
    file(errors, &at.key("path"));
    mode(errors, &at.key("mode"));
}

/// An item of the downward API. Upstream names the volume, not the item (`validateDownwardAPIVolumeFile`).
pub(super) fn downward_file(errors: &mut Errors, item: &At<'_>, volume: &At<'_>) {
    let part = |field: &str| item.key(field).moved(volume.path.key(field));
    required(errors, &part("path"));
    file(errors, &part("path"));
    let (field, resource) = (part("fieldRef"), part("resourceFieldRef"));
    if field.present() {
        field_reference(errors, &field, &FIELDS);
        if resource.present() {
            errors.invalid_value(
                volume,
                "resource",
                "fieldRef and resourceFieldRef can not be specified simultaneously",
            );
        }
    } else if resource.present() {
        resource_reference(errors, &resource, true);
    } else {
        errors.required(volume, "one of fieldRef and resourceFieldRef is required");
    }
    mode(errors, &part("mode"));
}

/// A path of a file below the volume (`ValidateLocalNonReservedPath`).
fn file(errors: &mut Errors, at: &At<'_>) {
    descending(errors, at);
    // A path with `..` as a step was reported above.
    if at.text().starts_with("..") && !at.text().starts_with("../") {
        errors.invalid(at, "must not start with '..'");
    }
}

/// A relative path that does not step back (`validateLocalDescendingPath`).
pub(super) fn descending(errors: &mut Errors, at: &At<'_>) {
    if at.text().starts_with('/') {
        errors.invalid(at, "must be a relative path");
    }
    no_backsteps(errors, at);
}

/// A path without `..` (`validatePathNoBacksteps`).
pub(super) fn no_backsteps(errors: &mut Errors, at: &At<'_>) {
    if at.text().split('/').any(|part| part == "..") {
        errors.invalid(at, "must not contain '..'");
    }
}

/// Permission bits (`validateDownwardAPIVolumeFile`).
pub(super) fn mode(errors: &mut Errors, at: &At<'_>) {
    if at.int().is_some_and(|mode| !(0..=0o777).contains(&mode)) {
        errors.invalid(at, "must be a number between 0 and 0777 (octal), both inclusive");
    }
}
