//! Rules for containers: names, images, ports, environment, mounts, probes, lifecycle hooks and security.

mod environment;
mod probes;
mod security;

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::error::FieldError;
use kubewright_schema::names;

use super::{host, resources};
use crate::strategies::check::{At, Errors, check_port};
use environment::{environment, environment_sources};
pub(super) use environment::{field_reference, resource_reference};
use probes::{lifecycle, probes};
pub(crate) use security::pod_security;
use security::security;

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

/// The fields that every container has, most of them by default. Many containers have no others.
const EVERY: [&str; 6] = [
    "image",
    "imagePullPolicy",
    "name",
    "resources",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

/// The facts about a pod that the rules for its containers need.
pub(crate) struct PodFacts<'a> {
    pub(crate) spec: At<'a>,
    pub(crate) claims: BTreeSet<&'a str>,
    pub(crate) volumes: BTreeSet<&'a str>,
    /// All volumes by their names; of several of one name the first. Few containers ask for one.
    pub(crate) by_name: OnceCell<BTreeMap<&'a str, At<'a>>>,
    pub(crate) grace_period: i64,
}

impl<'a> PodFacts<'a> {
    pub(crate) fn volume(&self, name: &str) -> Option<&At<'a>> {
        let named = || super::validate::first_by_name(&self.spec.key("volumes"));
        self.by_name.get_or_init(named).get(name)
    }
}

/// `spec.containers`: at least one (`validateContainers`).
pub(crate) fn containers(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    if at.is_empty() {
        errors.required(at, "");
        return;
    }
    let mut names = BTreeSet::new();
    for entry in at.items() {
        let of_entry = entry.key("name");
        name(errors, &of_entry);
        container(errors, &entry, facts);
        unique(errors, &of_entry, &mut names);
        if !entry.has_beyond(&EVERY) {
            continue;
        }
        if entry.has("lifecycle") {
            lifecycle(errors, &entry.key("lifecycle"), facts);
        }
        probes(errors, &entry);
        if entry.has("restartPolicy") {
            restart_policy(errors, &entry.key("restartPolicy"));
        }
        restart_rules(errors, &entry, true);
    }
    host::host_ports(errors, at.items_with("ports"));
}

/// `spec.initContainers`, whose names are unique together with the others (`validateInitContainers`).
pub(crate) fn init_containers(errors: &mut Errors, at: &At<'_>, regular: &At<'_>, facts: &PodFacts<'_>) {
    if at.is_empty() {
        return;
    }
    let mut names = texts(regular, "name");
    for entry in at.items() {
        name(errors, &entry.key("name"));
        container(errors, &entry, facts);
        unique(errors, &entry.key("name"), &mut names);
        // They run one after the other. Upstream looks at lists of one, so all are the first.
        host::host_ports(errors, std::iter::once(entry.moved(at.path.index(0))));
        restart_policy(errors, &entry.key("restartPolicy"));
        restart_rules(errors, &entry, false);
        if entry.text_of("restartPolicy") == "Always" {
            lifecycle(errors, &entry.key("lifecycle"), facts);
            probes(errors, &entry);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if entry.has(field) {
                    errors.forbidden(
                        &entry.key(field),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
    }
}

/// `spec.ephemeralContainers`: names are unique, and most fields may not be set (`validateEphemeralContainers`).
pub(crate) fn ephemeral_containers(errors: &mut Errors, at: &At<'_>, spec: &At<'_>, facts: &PodFacts<'_>) {
    if at.is_empty() {
        return;
    }
    let lists = ["containers", "initContainers"].map(|list| texts(&spec.key(list), "name"));
    let others: BTreeSet<&str> = lists.into_iter().flatten().collect();
    let mut names = others.clone();
    for entry in at.items() {
        name(errors, &entry.key("name"));
        container(errors, &entry, facts);
        unique(errors, &entry.key("name"), &mut names);
        for field in [
            "ports",
            "livenessProbe",
            "readinessProbe",
            "startupProbe",
            "lifecycle",
            "resizePolicy",
            "restartPolicy",
        ] {
            if entry.has(field) && !(entry.key(field).value.is_array() && entry.key(field).is_empty()) {
                errors.forbidden(&entry.key(field), "cannot be set for an Ephemeral Container");
            }
        }
        if !entry.keys(&["resources", "limits"]).is_empty() || !entry.keys(&["resources", "requests"]).is_empty() {
            errors.forbidden(&entry.key("resources"), "cannot be set for an Ephemeral Container");
        }
        let target = entry.key("targetContainerName");
        if !target.text().is_empty() && !others.contains(target.text()) {
            errors.not_found(&target);
        }
        // Parts of volumes stay mounted until the pod ends.
        for mount in entry.key("volumeMounts").items() {
            for field in ["subPath", "subPathExpr"] {
                let part = mount.key(field);
                if !part.text().is_empty() {
                    errors.forbidden(&part, "cannot be set for an Ephemeral Container");
                }
            }
        }
    }
}

/// A field of all items of a list.
pub(super) fn texts<'a>(list: &At<'a>, field: &str) -> BTreeSet<&'a str> {
    list.items().map(|item| item.text_of(field)).collect()
}

/// `validateContainerCommon`.
fn name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        errors.required(at, "");
    } else {
        errors.messages(at, names::dns1123_label(at.text()));
    }
}

fn unique<'a>(errors: &mut Errors, at: &At<'a>, seen: &mut BTreeSet<&'a str>) {
    if !seen.insert(at.text()) {
        errors.duplicate(at);
    }
}

/// `validateContainerCommon`. Most containers have few of the fields, and a pod may have thousands of containers: what is
/// absent is not looked at more closely.
fn container(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    if at.text_of("image").is_empty() {
        errors.required(&at.key("image"), "");
    }
    errors.field_of(at, "terminationMessagePolicy", &["File", "FallbackToLogsOnError"], true);
    let has_more = at.has_beyond(&EVERY);
    if has_more {
        mounted(errors, at, facts);
    }
    errors.field_of(at, "imagePullPolicy", &["Always", "IfNotPresent", "Never"], true);
    if at.has_some("resources") {
        let resources = at.key("resources");
        resources::requirements(errors, &resources, resources::Of::Container);
        host::claims_used(errors, &resources.key("claims"), &facts.claims);
    }
    if has_more && at.has("resizePolicy") {
        let restart = facts.spec.text_of("restartPolicy");
        host::resize_policy(errors, &at.key("resizePolicy"), restart);
    }
    if has_more && at.has("securityContext") {
        security(errors, &at.key("securityContext"), facts);
    }
}

/// The ports, the environment, the mounts and the devices of a container.
fn mounted(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    if at.has("ports") {
        ports(errors, &at.key("ports"));
    }
    if at.has("env") {
        environment(errors, &at.key("env"), facts);
    }
    if at.has("envFrom") {
        environment_sources(errors, &at.key("envFrom"));
    }
    mounts(errors, at, facts);
    host::devices(errors, at, facts);
}

/// `validateContainerRestartPolicy`.
fn restart_policy(errors: &mut Errors, at: &At<'_>) {
    if at.present() && !["Always", "Never", "OnFailure"].contains(&at.text()) {
        errors.unsupported(at, &["Always", "Never", "OnFailure"]);
    }
}

/// `restartPolicyRules`: upon which exit codes a container starts again. `all`: they are looked at even when the policy
/// is missing.
fn restart_rules(errors: &mut Errors, container: &At<'_>, all: bool) {
    const MAX_RULES: usize = 20;
    const MAX_CODES: usize = 255;
    if !container.has("restartPolicyRules") {
        return;
    }
    let at = container.key("restartPolicyRules");
    if at.is_empty() {
        return;
    }
    if !container.has("restartPolicy") {
        let why = "must specify restartPolicy when restart rules are used";
        errors.required(&container.key("restartPolicy"), why);
        if !all {
            return;
        }
    }
    if at.len() > MAX_RULES {
        errors.push(FieldError::too_many(at.path.to_string(), at.len(), MAX_RULES));
    }
    for rule in at.items() {
        if !["Restart", "RestartAllContainers"].contains(&rule.text_of("action")) {
            errors.unsupported(&rule.key("action"), &["Restart", "RestartAllContainers"]);
        }
        let codes = rule.key("exitCodes");
        if !codes.present() {
            errors.required(&codes, "must be specified");
            continue;
        }
        if !["In", "NotIn"].contains(&codes.text_of("operator")) {
            errors.unsupported(&codes.key("operator"), &["In", "NotIn"]);
        }
        let values = codes.key("values");
        if values.len() > MAX_CODES {
            errors.push(FieldError::too_many(values.path.to_string(), values.len(), MAX_CODES));
        }
    }
}

/// `validateContainerPorts`.
fn ports(errors: &mut Errors, at: &At<'_>) {
    let mut names = BTreeSet::new();
    for port in at.items() {
        let name = port.key("name");
        if !name.text().is_empty() {
            errors.messages(&name, names::port_name(name.text()));
            if names::port_name(name.text()).is_empty() && !names.insert(name.text()) {
                errors.duplicate(&name);
            }
        }
        let number = port.key("containerPort");
        if number.int().unwrap_or(0) == 0 {
            errors.required(&number, "");
        } else {
            check_port(errors, &number);
        }
        let host = port.key("hostPort");
        if host.int().unwrap_or(0) != 0 {
            check_port(errors, &host);
        }
        errors.one_of(&port.key("protocol"), &PROTOCOLS, true);
    }
}

/// `ValidateVolumeMounts`.
fn mounts(errors: &mut Errors, container: &At<'_>, facts: &PodFacts<'_>) {
    if !container.has("volumeMounts") {
        return;
    }
    let (at, devices) = (&container.key("volumeMounts"), container.key("volumeDevices"));
    let privileged = container.keys(&["securityContext", "privileged"]).is_true();
    let mut points = BTreeSet::new();
    let (device_names, device_paths) = (texts(&devices, "name"), texts(&devices, "devicePath"));
    for mount in at.items() {
        let name = mount.key("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        }
        if !facts.volumes.contains(name.text()) {
            errors.not_found(&name);
        }
        let path = mount.key("mountPath");
        if path.text().is_empty() {
            errors.required(&path, "");
        }
        if !points.insert(path.text()) {
            errors.invalid(&path, "must be unique");
        }
        if device_names.contains(name.text()) {
            errors.invalid(&name, "must not already exist in volumeDevices");
        }
        if device_paths.contains(path.text()) {
            errors.invalid(&path, "must not already exist as a path in volumeDevices");
        }
        // Kubernetes reports the next three without the index of the mount.
        let propagation = mount.key("mountPropagation").moved(at.path.key("mountPropagation"));
        errors.one_of_all(&propagation, &["Bidirectional", "HostToContainer", "None"]);
        if propagation.text() == "Bidirectional" && !privileged {
            errors.forbidden(
                &propagation,
                "Bidirectional mount propagation is available only to privileged containers",
            );
        }
        for field in ["subPath", "subPathExpr"] {
            let sub = mount.key(field).moved(at.path.key(field));
            if !sub.text().is_empty() {
                if sub.text().starts_with('/') {
                    errors.invalid(&sub, "must be a relative path");
                }
                if sub.text().split('/').any(|part| part == "..") {
                    errors.invalid(&sub, "must not contain '..'");
                }
            }
        }
        if !mount.text_of("subPath").is_empty() && !mount.text_of("subPathExpr").is_empty() {
            errors.invalid(
                &mount.key("subPathExpr"),
                "subPathExpr and subPath are mutually exclusive",
            );
        }
        recursive_read_only(errors, at, &mount);
    }
}

/// `recursiveReadOnly` of a mount, which is reported without its index as well.
fn recursive_read_only(errors: &mut Errors, list: &At<'_>, mount: &At<'_>) {
    let at = mount.key("recursiveReadOnly").moved(list.path.key("recursiveReadOnly"));
    match at.text() {
        _ if !at.present() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.key("readOnly").is_true() {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            if !["", "None"].contains(&mount.text_of("mountPropagation")) {
                errors.forbidden(
                    &at,
                    "may only be specified when mountPropagation is None or not specified",
                );
            }
        }
        _ => errors.unsupported(&at, &["Disabled", "Enabled", "IfPossible"]),
    }
}
