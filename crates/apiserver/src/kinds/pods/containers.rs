//! Rules for containers: names, images, ports, environment, mounts, probes, lifecycle hooks and security.

use std::collections::{BTreeMap, BTreeSet};

use kubewright_schema::error::FieldError;
use kubewright_schema::names;
use serde_json::json;

use super::{host, projections, resources, windows};
use crate::kinds::check::{At, Errors, check_port, check_port_or_name, port_name_messages};

const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];
const MAX_ID: i64 = i32::MAX as i64;

/// What the rules for containers need to know of the pod around them.
pub(crate) struct PodFacts<'a> {
    pub(crate) spec: At<'a>,
    pub(crate) claims: BTreeSet<&'a str>,
    pub(crate) volumes: BTreeSet<&'a str>,
    /// All volumes by their names; of several of one name the first.
    pub(crate) by_name: BTreeMap<&'a str, At<'a>>,
    pub(crate) grace_period: i64,
}

/// `spec.containers`: at least one.
pub(crate) fn containers(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    if at.is_empty() {
        errors.required(at, "");
        return;
    }
    let mut names = BTreeSet::new();
    for entry in at.items() {
        name(errors, &entry.key("name"));
        container(errors, &entry, facts);
        unique(errors, &entry.key("name"), &mut names);
        lifecycle(errors, &entry.key("lifecycle"), facts);
        probes(errors, &entry);
        if entry.key("restartPolicy").present() {
            restart_policy(errors, &entry.key("restartPolicy"));
        }
        restart_rules(errors, &entry, true);
    }
    host::host_ports(errors, at.items());
}

/// `spec.initContainers`, whose names are unique together with the others.
pub(crate) fn init_containers(errors: &mut Errors, at: &At<'_>, regular: &At<'_>, facts: &PodFacts<'_>) {
    let mut names: BTreeSet<&str> = regular.items().map(|entry| entry.key("name").text()).collect();
    for entry in at.items() {
        name(errors, &entry.key("name"));
        container(errors, &entry, facts);
        unique(errors, &entry.key("name"), &mut names);
        // They run one after the other. Upstream looks at lists of one, so all are the first.
        host::host_ports(errors, std::iter::once(entry.moved(at.path.index(0))));
        restart_policy(errors, &entry.key("restartPolicy"));
        restart_rules(errors, &entry, false);
        if entry.key("restartPolicy").text() == "Always" {
            lifecycle(errors, &entry.key("lifecycle"), facts);
            probes(errors, &entry);
        } else {
            for field in ["lifecycle", "livenessProbe", "readinessProbe", "startupProbe"] {
                if entry.key(field).present() {
                    errors.forbidden(
                        &entry.key(field),
                        "may not be set for init containers without restartPolicy=Always",
                    );
                }
            }
        }
    }
}

/// `spec.ephemeralContainers`: names are unique, and most fields may not be set.
pub(crate) fn ephemeral_containers(errors: &mut Errors, at: &At<'_>, spec: &At<'_>, facts: &PodFacts<'_>) {
    let mut names: BTreeSet<&str> = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| spec.key(list).items().collect::<Vec<_>>())
        .map(|entry| entry.key("name").text())
        .collect();
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
            if entry.key(field).present() && !(entry.key(field).value.is_array() && entry.key(field).is_empty()) {
                errors.forbidden(&entry.key(field), "cannot be set for an Ephemeral Container");
            }
        }
        if !entry.keys(&["resources", "limits"]).is_empty() || !entry.keys(&["resources", "requests"]).is_empty() {
            errors.forbidden(&entry.key("resources"), "cannot be set for an Ephemeral Container");
        }
    }
}

/// A field of all items of a list.
pub(super) fn texts<'a>(list: &At<'a>, field: &str) -> BTreeSet<&'a str> {
    list.items().map(|item| item.key(field).text()).collect()
}

fn name(errors: &mut Errors, at: &At<'_>) {
    if at.text().is_empty() {
        errors.required(at, "");
    } else {
        errors.messages(at, names::dns1123_label(at.text()));
    }
}

fn unique<'a>(errors: &mut Errors, at: &At<'a>, seen: &mut BTreeSet<&'a str>) {
    if !at.text().is_empty() && !seen.insert(at.text()) {
        errors.duplicate(at);
    }
}

fn container(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    let image = at.key("image");
    if image.text().is_empty() {
        errors.required(&image, "");
    } else if image.text().trim() != image.text() {
        errors.invalid(&image, "must not have leading or trailing whitespace");
    }
    errors.one_of(
        &at.key("terminationMessagePolicy"),
        &["File", "FallbackToLogsOnError"],
        true,
    );
    ports(errors, &at.key("ports"));
    environment(errors, &at.key("env"), facts);
    environment_sources(errors, &at.key("envFrom"));
    mounts(errors, at, facts);
    host::devices(errors, at, &facts.by_name);
    errors.one_of(&at.key("imagePullPolicy"), &["Always", "IfNotPresent", "Never"], true);
    resources::requirements(errors, &at.key("resources"), resources::Of::Container);
    host::claims_used(errors, &at.keys(&["resources", "claims"]), &facts.claims);
    let restart = facts.spec.key("restartPolicy").text();
    host::resize_policy(errors, &at.key("resizePolicy"), restart);
    security(errors, &at.key("securityContext"), facts);
}

fn restart_policy(errors: &mut Errors, at: &At<'_>) {
    if at.present() && !["Always", "Never", "OnFailure"].contains(&at.text()) {
        errors.unsupported(at, &["Always", "Never", "OnFailure"]);
    }
}

/// `restartPolicyRules`: upon which exit codes a container starts again. `all`: they are looked at even when the policy is missing.
fn restart_rules(errors: &mut Errors, container: &At<'_>, all: bool) {
    const MAX_RULES: usize = 20;
    const MAX_CODES: usize = 255;
    let at = container.key("restartPolicyRules");
    if at.is_empty() {
        return;
    }
    if !container.key("restartPolicy").present() {
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
        if !["Restart", "RestartAllContainers"].contains(&rule.key("action").text()) {
            errors.unsupported(&rule.key("action"), &["Restart", "RestartAllContainers"]);
        }
        let codes = rule.key("exitCodes");
        if !codes.present() {
            errors.required(&codes, "must be specified");
            continue;
        }
        if !["In", "NotIn"].contains(&codes.key("operator").text()) {
            errors.unsupported(&codes.key("operator"), &["In", "NotIn"]);
        }
        let values = codes.key("values");
        if values.len() > MAX_CODES {
            errors.push(FieldError::too_many(values.path.to_string(), values.len(), MAX_CODES));
        }
    }
}

fn ports(errors: &mut Errors, at: &At<'_>) {
    let mut names = BTreeSet::new();
    for port in at.items() {
        let name = port.key("name");
        if !name.text().is_empty() {
            errors.messages(&name, port_name_messages(name.text()));
            if port_name_messages(name.text()).is_empty() && !names.insert(name.text()) {
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

const VARIABLE: &str =
    "a valid environment variable name must consist only of printable ASCII characters other than '='";

fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| (b' '..=b'~').contains(&byte) && byte != b'=')
}

fn environment(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    for entry in at.items() {
        let name = entry.key("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if !is_variable(name.text()) {
            errors.invalid(&name, VARIABLE);
        }
        let source = entry.key("valueFrom");
        if source.present() {
            value_from(errors, &source, !entry.key("value").text().is_empty());
            let file = source.key("fileKeyRef");
            if file.present() {
                file_reference(errors, &file, facts);
            }
        }
    }
}

fn value_from(errors: &mut Errors, at: &At<'_>, has_value: bool) {
    const SOURCES: [&str; 5] = [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ];
    let given = SOURCES.iter().filter(|source| at.key(source).present()).count();
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
fn file_reference(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
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
    match facts.by_name.get(volume.text()) {
        None => errors.not_found(&volume),
        Some(known) if !known.key("emptyDir").present() => {
            errors.invalid(&volume, "referenced volume must be of type emptyDir");
        }
        Some(_) => {}
    }
}

/// What an environment variable may show of a pod.
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

/// A `fieldRef` that may name the fields in `supported`.
pub(super) fn field_reference(errors: &mut Errors, at: &At<'_>, supported: &[&str]) {
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
    let version = at.key("apiVersion").text();
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

/// A `resourceFieldRef`; that of a volume names its container.
pub(super) fn resource_reference(errors: &mut Errors, at: &At<'_>, of_volume: bool) {
    const SUPPORTED: [&str; 6] = [
        "limits.cpu",
        "limits.ephemeral-storage",
        "limits.memory",
        "requests.cpu",
        "requests.ephemeral-storage",
        "requests.memory",
    ];
    let resource = at.key("resource");
    if of_volume && at.key("containerName").text().is_empty() {
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

fn environment_sources(errors: &mut Errors, at: &At<'_>) {
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

fn mounts(errors: &mut Errors, container: &At<'_>, facts: &PodFacts<'_>) {
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
        errors.one_of(&propagation, &["Bidirectional", "HostToContainer", "None"], false);
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
        if !mount.key("subPath").text().is_empty() && !mount.key("subPathExpr").text().is_empty() {
            errors.invalid(
                &mount.key("subPathExpr"),
                "subPathExpr and subPath are mutually exclusive",
            );
        }
        recursive_read_only(errors, at, &mount);
    }
}

/// `recursiveReadOnly` of a mount, which is told without its index as well.
fn recursive_read_only(errors: &mut Errors, list: &At<'_>, mount: &At<'_>) {
    let at = mount.key("recursiveReadOnly").moved(list.path.key("recursiveReadOnly"));
    match at.text() {
        _ if !at.present() => {}
        "Disabled" => {}
        "Enabled" | "IfPossible" => {
            if !mount.key("readOnly").is_true() {
                errors.forbidden(&at, "may only be specified when readOnly is true");
            }
            if !["", "None"].contains(&mount.key("mountPropagation").text()) {
                errors.forbidden(
                    &at,
                    "may only be specified when mountPropagation is None or not specified",
                );
            }
        }
        _ => errors.unsupported(&at, &["Disabled", "Enabled", "IfPossible"]),
    }
}

fn probes(errors: &mut Errors, container: &At<'_>) {
    for field in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let at = container.key(field);
        if !at.present() {
            continue;
        }
        handler(errors, &at, &["exec", "httpGet", "tcpSocket", "grpc"]);
        for number in [
            "initialDelaySeconds",
            "timeoutSeconds",
            "periodSeconds",
            "successThreshold",
            "failureThreshold",
        ] {
            errors.non_negative(&at.key(number));
        }
        let grace = at.key("terminationGracePeriodSeconds");
        if grace.int().is_some_and(|seconds| seconds <= 0) {
            errors.invalid(&grace, "must be greater than 0");
        }
        if field == "readinessProbe" {
            if grace.present() {
                errors.invalid(&grace, "must not be set for readinessProbes");
            }
            continue;
        }
        let success = at.key("successThreshold");
        if success.present() && success.int() != Some(1) {
            errors.invalid(&success, "must be 1");
        }
    }
}

fn lifecycle(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    for hook in ["postStart", "preStop"] {
        let hook = at.key(hook);
        if !hook.present() {
            continue;
        }
        handler(errors, &hook, &["exec", "httpGet", "tcpSocket", "sleep"]);
        let seconds = hook.keys(&["sleep", "seconds"]);
        let only = ["exec", "httpGet", "tcpSocket"]
            .iter()
            .all(|kind| !hook.key(kind).present());
        if only && hook.key("sleep").present() && !(0..=facts.grace_period).contains(&seconds.int().unwrap_or(0)) {
            errors.invalid_value(
                &hook.key("sleep"),
                seconds.int().unwrap_or(0),
                format!(
                    "must be non-negative and less than terminationGracePeriodSeconds ({})",
                    facts.grace_period
                ),
            );
        }
    }
}

/// Exactly one of the kinds of handlers; only the first is looked at more closely.
fn handler(errors: &mut Errors, at: &At<'_>, kinds: &[&str]) {
    let given: Vec<&str> = kinds.iter().copied().filter(|kind| at.key(kind).present()).collect();
    let Some((first, rest)) = given.split_first() else {
        errors.required(at, "must specify a handler type");
        return;
    };
    for kind in rest {
        errors.forbidden(&at.key(kind), "may not specify more than 1 handler type");
    }
    let action = at.key(first);
    match *first {
        "exec" if action.key("command").is_empty() => errors.required(&action.key("command"), ""),
        "httpGet" => {
            if action.key("path").text().is_empty() {
                errors.required(&action.key("path"), "");
            }
            check_port_or_name(errors, &action.key("port"));
            errors.one_of(&action.key("scheme"), &["HTTP", "HTTPS"], true);
            for header in action.key("httpHeaders").items() {
                let name = header.key("name").text();
                let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
                if name.is_empty() || !name.bytes().all(known) {
                    errors.invalid_value(
                        &action.key("httpHeaders"),
                        name,
                        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for \
                         validation is '[-A-Za-z0-9]+')",
                    );
                }
            }
        }
        "tcpSocket" => check_port_or_name(errors, &action.key("port")),
        "grpc" => check_port(errors, &action.key("port")),
        _ => {}
    }
}

fn id(errors: &mut Errors, at: &At<'_>) {
    if at.int().is_some_and(|id| !(0..=MAX_ID).contains(&id)) {
        errors.invalid(at, "must be between 0 and 2147483647, inclusive");
    }
}

fn security(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    if !at.present() {
        return;
    }
    id(errors, &at.key("runAsUser"));
    id(errors, &at.key("runAsGroup"));
    if at.key("procMount").present() {
        errors.one_of(&at.key("procMount"), &["Default", "Unmasked"], true);
        if at.key("procMount").text() == "Unmasked" && facts.spec.key("hostUsers").value != &json!(false) {
            errors.invalid(&at.key("procMount"), "`hostUsers` must be false to use `Unmasked`");
        }
    }
    host::seccomp(errors, &at.key("seccompProfile"));
    host::app_armor(errors, &at.key("appArmorProfile"));
    windows::options(errors, &at.key("windowsOptions"));
    if at.key("allowPrivilegeEscalation").value == &json!(false) {
        const WHY: &str = "cannot set `allowPrivilegeEscalation` to false and";
        if at.key("privileged").is_true() {
            errors.invalid(at, format!("{WHY} `privileged` to true"));
        }
        let mut added = at.keys(&["capabilities", "add"]).items();
        if added.any(|add| add.text() == "CAP_SYS_ADMIN") {
            errors.invalid(at, format!("{WHY} `capabilities.Add` CAP_SYS_ADMIN"));
        }
    }
}

/// `spec.securityContext` of the pod.
pub(crate) fn pod_security(errors: &mut Errors, spec: &At<'_>) {
    let at = &spec.key("securityContext");
    for field in ["fsGroup", "runAsUser", "runAsGroup"] {
        id(errors, &at.key(field));
    }
    for group in at.key("supplementalGroups").items() {
        id(errors, &group);
    }
    let mut names = BTreeSet::new();
    for sysctl in at.key("sysctls").items() {
        let name = sysctl.key("name");
        if name.text().is_empty() {
            errors.required(&name, "");
        } else if !is_sysctl(name.text()) {
            errors.invalid(
                &name,
                "must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$",
            );
        } else if !names.insert(name.text()) {
            errors.duplicate(&name);
        }
        if let Some(host) = shared_with_host(spec, name.text()) {
            errors.invalid(&name, format!("may not be specified when '{host}' is true"));
        }
    }
    if at.key("fsGroupChangePolicy").present() {
        errors.one_of(&at.key("fsGroupChangePolicy"), &["Always", "OnRootMismatch"], true);
    }
    host::seccomp(errors, &at.key("seccompProfile"));
    if at.key("supplementalGroupsPolicy").present() {
        errors.one_of(&at.key("supplementalGroupsPolicy"), &["Merge", "Strict"], true);
    }
    host::app_armor(errors, &at.key("appArmorProfile"));
    if at.key("seLinuxChangePolicy").present() {
        errors.one_of(&at.key("seLinuxChangePolicy"), &["Recursive"], true);
    }
    windows::options(errors, &at.key("windowsOptions"));
}

/// The field by which a pod shares with its host what a sysctl would change.
fn shared_with_host(spec: &At<'_>, sysctl: &str) -> Option<&'static str> {
    let of_ipc = |name: &str| {
        name == "kernel.sem"
            || ["kernel.shm", "kernel.msg", "fs.mqueue."]
                .iter()
                .any(|prefix| name.starts_with(prefix))
    };
    let field = match sysctl {
        name if name.starts_with("net.") => "hostNetwork",
        name if of_ipc(name) => "hostIPC",
        _ => return None,
    };
    spec.key(field).is_true().then_some(field)
}

fn is_sysctl(name: &str) -> bool {
    name.len() <= 253
        && name.split(['.', '/']).all(|part| {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            edge(part.chars().next())
                && edge(part.chars().last())
                && part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_')
        })
}
