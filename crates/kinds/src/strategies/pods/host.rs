//! The parts of its host that a pod may use: host namespaces, Windows, profiles, claims, block devices.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::{Value, json};

use super::containers::{PodFacts, texts};
use super::windows;
use crate::strategies::check::{At, Errors};
use kubewright_model::facts::pods::CONTAINER_LISTS;

/// In the network of the host a container has the port that it listens at. Upstream does not look at init containers
/// here (`validatePodHostNetworkDeps`).
pub(crate) fn network(errors: &mut Errors, at: &At<'_>) {
    if !at.key("hostNetwork").is_true() {
        return;
    }
    for container in at.key("containers").items() {
        for port in container.key("ports").items() {
            let host = port.key("hostPort");
            if host.int().unwrap_or(0) != 0 && host.int() != port.key("containerPort").int() {
                errors.invalid(&host, "must match `containerPort` when `hostNetwork` is true");
            }
        }
    }
}

/// Rules for the whole spec that concern its host (`validatePodSpecSecurityContext`).
pub(crate) fn host(errors: &mut Errors, at: &At<'_>) {
    if at.key("shareProcessNamespace").is_true() && at.key("hostPID").is_true() {
        let share = at.keys(&["securityContext", "shareProcessNamespace"]);
        errors.invalid_value(&share, true, "ShareProcessNamespace and HostPID cannot both be enabled");
    }
    if at.key("hostUsers").value == &json!(false) {
        host_users(errors, at);
    }
    windows::host_processes(errors, at);
    let system = at.key("os");
    if system.present() {
        let name = system.text_of("name");
        if name.is_empty() {
            errors.required(&system.key("name"), "");
        } else if !["linux", "windows"].contains(&name) {
            errors.push(FieldError::not_supported(
                system.path.to_string(),
                name,
                &["linux", "windows"],
            ));
        }
        match name {
            "windows" => on_windows(errors, at),
            "linux" => on_linux(errors, at),
            _ => {}
        }
    }
}

fn every_container<'a>(at: &At<'a>) -> impl Iterator<Item = At<'a>> {
    let lists: Vec<At<'a>> = CONTAINER_LISTS.iter().map(|list| at.key(list)).collect();
    lists.into_iter().flat_map(|list| list.items().collect::<Vec<_>>())
}

/// `validateHostUsers`.
fn host_users(errors: &mut Errors, at: &At<'_>) {
    const WHY: &str = "when `hostUsers` is false";
    // Two of the paths have a capital letter in Kubernetes, too.
    for (field, shown) in [
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ] {
        if at.key(field).is_true() {
            errors.forbidden(&at.key(shown), WHY);
        }
    }
    for container in every_container(at) {
        if !container.key("volumeDevices").is_empty() {
            errors.forbidden(&container.key("volumeDevices"), WHY);
        }
    }
}

/// `validateWindows`.
fn on_windows(errors: &mut Errors, at: &At<'_>) {
    const WHY: &str = "cannot be set for a windows pod";
    let context = at.key("securityContext");
    let mut refuse = |field: &At<'_>, set: bool| {
        if set {
            errors.forbidden(field, WHY);
        }
    };
    for field in ["appArmorProfile", "seLinuxOptions"] {
        refuse(&context.key(field), context.has(field));
    }
    refuse(&at.key("hostUsers"), at.has("hostUsers"));
    for field in ["hostPID", "hostIPC"] {
        refuse(&at.key(field), at.key(field).is_true());
    }
    for field in ["seccompProfile", "fsGroup", "fsGroupChangePolicy"] {
        refuse(&context.key(field), context.has(field));
    }
    refuse(&context.key("sysctls"), !context.key("sysctls").is_empty());
    refuse(&at.key("shareProcessNamespace"), at.has("shareProcessNamespace"));
    for field in [
        "runAsUser",
        "runAsGroup",
        "supplementalGroups",
        "supplementalGroupsPolicy",
        "seLinuxChangePolicy",
    ] {
        refuse(&context.key(field), context.has(field));
    }
    for container in every_container(at) {
        let context = container.key("securityContext");
        for field in [
            "appArmorProfile",
            "seLinuxOptions",
            "seccompProfile",
            "capabilities",
            "readOnlyRootFilesystem",
            "privileged",
            "allowPrivilegeEscalation",
            "procMount",
            "runAsUser",
            "runAsGroup",
        ] {
            refuse(&context.key(field), context.has(field));
        }
    }
}

/// `validateLinux`.
fn on_linux(errors: &mut Errors, at: &At<'_>) {
    let own = at.key("securityContext");
    let contexts = every_container(at).map(|container| container.key("securityContext"));
    for context in std::iter::once(own).chain(contexts.collect::<Vec<_>>()) {
        let options = context.key("windowsOptions");
        if options.present() {
            errors.forbidden(&options, "windows options cannot be set for a linux pod");
        }
    }
}

/// `seccompProfile` of a pod or a container (`validateSeccompProfileField`).
pub(crate) fn seccomp(errors: &mut Errors, at: &At<'_>) {
    if !at.present() {
        return;
    }
    let (kind, file) = (at.key("type"), at.key("localhostProfile"));
    if kind.text().is_empty() {
        errors.required(&kind, "type is required when seccompProfile is set");
    } else {
        errors.one_of_all(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]);
    }
    if kind.text() != "Localhost" {
        if file.present() {
            // Upstream shows the whole profile.
            let whole = at.value.clone();
            errors.invalid_value(&file, whole, "can only be set when seccomp type is Localhost");
        }
    } else if !file.present() {
        errors.required(&file, "must be set when seccomp type is Localhost");
    } else if file.text().starts_with('/') {
        errors.invalid(&file, "must be a relative path");
    } else if file.text().split('/').any(|part| part == "..") {
        errors.invalid(&file, "must not contain '..'");
    }
}

/// `appArmorProfile` of a pod or a container.
pub(crate) fn app_armor(errors: &mut Errors, at: &At<'_>) {
    const MAX_PROFILE: usize = 4095;
    const NEEDED: &str = "must be set when AppArmor type is Localhost";
    if !at.present() {
        return;
    }
    let (kind, file) = (at.key("type"), at.key("localhostProfile"));
    match kind.text() {
        "Localhost" if !file.present() => errors.required(&file, NEEDED),
        "Localhost" if file.text().trim() != file.text() => {
            errors.invalid(&file, "must not be padded with whitespace");
        }
        "Localhost" if file.text().is_empty() => errors.required(&file, NEEDED),
        "Localhost" if file.text().len() > MAX_PROFILE => {
            errors.push(FieldError::too_long(file.path.to_string(), MAX_PROFILE));
        }
        "Localhost" => {}
        "RuntimeDefault" | "Unconfined" => {
            if file.present() {
                errors.invalid(&file, "can only be set when AppArmor type is Localhost");
            }
        }
        "" => errors.required(&kind, "type is required when appArmorProfile is set"),
        _ => errors.unsupported(&kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

/// `spec.resourceClaims`; gives the names that containers may use.
pub(crate) fn claims<'a>(errors: &mut Errors, at: &At<'a>) -> BTreeSet<&'a str> {
    const SOURCES: [&str; 2] = ["resourceClaimName", "resourceClaimTemplateName"];
    let mut seen = BTreeSet::new();
    for claim in at.items() {
        let name = claim.key("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if seen.insert(name.text()) {
            errors.messages(&name, names::dns1123_label(name.text()));
        } else {
            errors.duplicate(&name);
        }
        match SOURCES.iter().filter(|source| claim.has(source)).count() {
            0 => errors.invalid(
                &claim,
                "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
            ),
            1 => {}
            _ => errors.invalid(
                &claim,
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified",
            ),
        }
        for source in SOURCES.iter().map(|source| claim.key(source)).filter(At::present) {
            errors.messages(&source, names::dns1123_subdomain(source.text()));
        }
    }
    seen
}

/// `resources.claims` of a container: each names a claim of the pod (`validateResourceClaimNames`).
pub(crate) fn claims_used(errors: &mut Errors, at: &At<'_>, known: &BTreeSet<&str>) {
    let mut seen: BTreeSet<(&str, &str)> = BTreeSet::new();
    for claim in at.items() {
        let (name, request) = (claim.text_of("name"), claim.text_of("request"));
        if name.is_empty() {
            errors.required(&claim, "");
            continue;
        }
        let mut twice = |shown: String| errors.push(FieldError::duplicate(claim.path.to_string(), shown));
        // All requests of the claim, one of them, and some of them next to all of them.
        if seen.contains(&(name, "")) {
            twice(name.to_owned());
        } else {
            let known = !seen.insert((name, request));
            let of_claim = seen.range((name, "")..).take_while(|part| part.0 == name);
            let parts = match request.is_empty() {
                true => of_claim.filter(|part| !part.1.is_empty()).count(),
                false => 0,
            };
            if known {
                twice(format!("{name}/{request}"));
            }
            (0..parts).for_each(|_| twice(name.to_owned()));
            if !request.is_empty() {
                errors.messages(&claim.key("request"), names::dns1123_label(request));
            }
        }
        if !known.contains(name) {
            let mut error = FieldError::not_found(claim.path.to_string(), name);
            let names: Vec<&str> = known.iter().copied().collect();
            let rest = if names.is_empty() {
                " which is empty".to_owned()
            } else {
                format!(": {}", names.join(", "))
            };
            error.detail = format!("must be one of the names in pod.spec.resourceClaims{rest}");
            errors.push(error);
        }
    }
}

/// `volumeDevices` of a container: volumes that are claims, at paths of their own.
pub(crate) fn devices(errors: &mut Errors, container: &At<'_>, facts: &PodFacts<'_>) {
    let (mut names, mut paths) = (BTreeSet::new(), BTreeSet::new());
    if !container.has("volumeDevices") {
        return;
    }
    let mounts = container.key("volumeMounts");
    let (mount_names, mount_paths) = (texts(&mounts, "name"), texts(&mounts, "mountPath"));
    for device in container.key("volumeDevices").items() {
        let (name, path) = (device.key("name"), device.key("devicePath"));
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if !names.insert(name.text()) {
            errors.invalid(&name, "must be unique");
        }
        // A volume with errors is none.
        let known = facts
            .volume(name.text())
            .filter(|_| facts.volumes.contains(name.text()));
        match known {
            None => errors.not_found(&name),
            Some(volume) if !volume.has("persistentVolumeClaim") && !volume.has("ephemeral") => {
                errors.invalid(
                    &name,
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode",
                );
            }
            Some(_) => {}
        }
        if path.text().is_empty() {
            errors.required(&path, "");
        } else if path.text().split('/').any(|part| part == "..") {
            errors.invalid(&path, "can not contain backsteps ('..')");
        }
        if !paths.insert(path.text()) {
            errors.invalid(&path, "must be unique");
        }
        if mount_names.contains(name.text()) {
            errors.invalid(&name, "must not already exist in volumeMounts");
        }
        if mount_paths.contains(path.text()) {
            errors.invalid(&path, "must not already exist as a path in volumeMounts");
        }
    }
}

/// `resizePolicy` of a container; all errors are the list's.
pub(crate) fn resize_policy(errors: &mut Errors, at: &At<'_>, restart: &str) {
    let mut seen = BTreeSet::new();
    for policy in at.items() {
        let (resource, action) = (policy.text_of("resourceName"), policy.text_of("restartPolicy"));
        if !seen.insert(resource) {
            errors.push(FieldError::duplicate(policy.path.to_string(), resource));
        }
        for (value, known) in [
            (resource, ["cpu", "memory"]),
            (action, ["NotRequired", "RestartContainer"]),
        ] {
            if value.is_empty() {
                errors.required(at, "");
            } else if !known.contains(&value) {
                errors.push(FieldError::not_supported(at.path.to_string(), value, &known));
            }
        }
        if restart == "Never" && action != "NotRequired" {
            errors.invalid_value(at, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'");
        }
    }
}

/// Two containers that run at the same time may not wait at the same port of the host.
pub(crate) fn host_ports<'a>(errors: &mut Errors, containers: impl Iterator<Item = At<'a>>) {
    let mut seen = BTreeSet::new();
    for port in containers.flat_map(|container| container.key("ports").items().collect::<Vec<_>>()) {
        let number = port.key("hostPort").int().unwrap_or(0);
        let text = format!("{}/{}/{number}", port.text_of("protocol"), port.text_of("hostIP"));
        if number != 0 && !seen.insert(text.clone()) {
            errors.push(FieldError::duplicate(
                port.key("hostPort").path.to_string(),
                Value::from(text),
            ));
        }
    }
}
