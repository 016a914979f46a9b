//! The environment of a container: its variables, where their values come from, and references to fields and resources.

use kubewright_schema::names;

use super::PodFacts;
use crate::strategies::check::{At, Errors};
use crate::strategies::pods::projections;

const VARIABLE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

/// `ValidateEnv`.
pub(super) fn environment(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    for entry in at.items() {
        let name = entry.key("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if !is_variable(name.text()) {
            errors.invalid(&name, VARIABLE);
        }
        let source = entry.key("valueFrom");
        if source.present() {
            value_from(errors, &source, !entry.text_of("value").is_empty());
            let file = source.key("fileKeyRef");
            if file.present() {
                volume_of_file(errors, &file.key("volumeName"), facts);
            }
        }
    }
}

/// `validateEnvVarValueFrom`.
fn value_from(errors: &mut Errors, at: &At<'_>, has_value: bool) {
    const SOURCES: [&str; 5] = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let given = SOURCES.iter().filter(|source| at.has(source)).count();
    let field = at.key("fieldRef");
    if field.present() {
        field_reference(errors, &field, &ENVIRONMENT_FIELDS);
    }
    let resource = at.key("resourceFieldRef");
    if resource.present() {
        resource_reference(errors, &resource, false);
    }
    for (source, name_required) in [("configMapKeyRef", true), ("secretKeyRef", true)] {
        let source = at.key(source);
        if source.present() {
            let name = source.key("name");
            if name_required {
                errors.messages(&name, names::dns1123_subdomain(name.text()));
            }
            let key = source.key("key");
            if key.text().is_empty() {
                errors.required(&key, "");
            } else {
                errors.messages(&key, names::config_map_key(key.text()));
            }
        }
    }
    if at.has("fileKeyRef") {
        file_reference(errors, &at.key("fileKeyRef"));
    }
    if given == 0 {
        errors.invalid_value(
            at,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if has_value {
        errors.invalid_value(at, "", "may not be specified when `value` is not empty");
    } else if given > 1 {
        errors.invalid_value(at, "", "may not have more than one field specified at a time");
    }
}

/// A `fileKeyRef`: a variable out of a file in an `emptyDir` of the pod.
fn file_reference(errors: &mut Errors, at: &At<'_>) {
    let key = at.key("key");
    if key.text().is_empty() {
        errors.required(&key, "");
    } else if !is_variable(key.text()) {
        errors.invalid(&key, VARIABLE);
    }
    let volume = at.key("volumeName");
    if volume.text().is_empty() {
        errors.required(&volume, "");
    }
    let path = at.key("path");
    if path.text().is_empty() {
        errors.required(&path, "");
    } else {
        projections::no_backsteps(errors, &path);
        if path.text().starts_with("..") && !path.text().starts_with("../") {
            errors.invalid(&path, "must not start with '..'");
        }
    }
}

/// The volume that a `fileKeyRef` names is an `emptyDir` of the pod.
fn volume_of_file(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    match facts.volume(at.text()) {
        None => errors.not_found(at),
        Some(known) if !known.has("emptyDir") => {
            errors.invalid(at, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}

/// The fields of a pod that an environment variable may show.
const ENVIRONMENT_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

/// A `fieldRef` that may name the fields in `supported` (`validateObjectFieldSelector`).
pub(crate) fn field_reference(errors: &mut Errors, at: &At<'_>, supported: &[&str]) {
    const KNOWN: [&str; 14] = [
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.hostNetwork",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ];
    let path = at.key("fieldPath");
    if path.text().is_empty() {
        errors.required(&path, "");
        return;
    }
    let version = at.text_of("apiVersion");
    if !["", "v1"].contains(&version) {
        let why = format!("error converting fieldPath: unsupported pod version: {version}");
        errors.invalid(&path, why);
        return;
    }
    let unknown = |errors: &mut Errors, why: &str| {
        errors.invalid(&path, format!("error converting fieldPath: {why}: {}", path.text()));
    };
    let subscripted = path.text().strip_suffix("']").and_then(|text| text.split_once("['"));
    match subscripted {
        Some(("metadata.annotations", key)) => {
            let key = key.to_lowercase();
            for message in names::qualified_name(&key) {
                errors.invalid_value(at, key.as_str(), message);
            }
        }
        Some(("metadata.labels", key)) => {
            for message in names::qualified_name(key) {
                errors.invalid_value(at, key, message);
            }
        }
        Some(_) => unknown(errors, "field label does not support subscript"),
        None if supported.contains(&path.text()) => {}
        None if KNOWN.contains(&path.text()) || path.text() == "status.phase" => errors.unsupported(&path, supported),
        None => unknown(errors, "field label not supported"),
    }
}

/// A `resourceFieldRef`; that of a volume names its container (`validateContainerResourceFieldSelector`).
pub(crate) fn resource_reference(errors: &mut Errors, at: &At<'_>, of_volume: bool) {
    const SUPPORTED: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = at.key("resource");
    if of_volume && at.text_of("containerName").is_empty() {
        errors.required(&at.key("containerName"), "");
    } else if resource.text().is_empty() {
        errors.required(&resource, "");
    } else if !SUPPORTED.contains(&resource.text())
        && !resource.text().starts_with("limits.hugepages-")
        && !resource.text().starts_with("requests.hugepages-")
    {
        errors.unsupported(&resource, &SUPPORTED);
    }
    divisor(errors, at, resource.text());
}

/// `validateContainerResourceDivisor`.
fn divisor(errors: &mut Errors, at: &At<'_>, resource: &str) {
    const BYTES: [&str; 13] = [
        "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
    ];
    let Some((_, name)) = resource.split_once('.') else {
        return;
    };
    let (allowed, what): (&[&str], &str) = match name {
        "cpu" => (&["1m", "1"], "cpu"),
        "memory" => (&BYTES, "memory"),
        "ephemeral-storage" => (&BYTES, "local ephemeral storage"),
        name if name.starts_with("hugepages-") => (&BYTES, "hugepages"),
        _ => return,
    };
    let divisor = at.key("divisor");
    if matches!(divisor.text(), "" | "0") || allowed.contains(&divisor.text()) {
        return;
    }
    let values = if what == "cpu" {
        "1m and 1".to_owned()
    } else {
        allowed.join(", ")
    };
    errors.invalid_value(
        &divisor,
        resource,
        format!("only divisor's values {values} are supported with the {what} resource"),
    );
}

/// `ValidateEnvFrom`.
pub(super) fn environment_sources(errors: &mut Errors, at: &At<'_>) {
    for entry in at.items() {
        let given: Vec<At<'_>> = ["configMapRef", "secretRef"]
            .iter()
            .map(|source| entry.key(source))
            .filter(At::present)
            .collect();
        let prefix = entry.key("prefix");
        if !prefix.text().is_empty() && !is_variable(prefix.text()) {
            errors.invalid(&prefix, VARIABLE);
        }
        for source in &given {
            let name = source.key("name");
            if name.text().is_empty() {
                errors.required(&name, "");
            } else {
                errors.messages(&name, names::dns1123_subdomain(name.text()));
            }
        }
        match given.len() {
            0 => errors.invalid_value(at, "", "must specify one of: `configMapRef` or `secretRef`"),
            1 => {}
            _ => errors.invalid_value(at, "", "may not have more than one field specified at a time"),
        }
    }
}
