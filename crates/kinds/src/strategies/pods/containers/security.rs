//! Security contexts: the user and the privileges with which a container or a pod runs.

use std::collections::BTreeSet;

use serde_json::json;

use super::PodFacts;
use crate::strategies::check::{At, Errors};
use crate::strategies::pods::{host, windows};

const MAX_ID: i64 = i32::MAX as i64;

/// `ValidateSecurityContext`.
fn id(errors: &mut Errors, at: &At<'_>) {
    if at.int().is_some_and(|id| !(0..=MAX_ID).contains(&id)) {
        errors.invalid(at, "must be between 0 and 2147483647, inclusive");
    }
}

/// `ValidateSecurityContext`.
pub(super) fn security(errors: &mut Errors, at: &At<'_>, facts: &PodFacts<'_>) {
    if !at.present() {
        return;
    }
    id(errors, &at.key("runAsUser"));
    id(errors, &at.key("runAsGroup"));
    errors.one_of_all(&at.key("procMount"), &["Default", "Unmasked"]);
    if at.text_of("procMount") == "Unmasked" && facts.spec.key("hostUsers").value != &json!(false) {
        errors.invalid(&at.key("procMount"), "`hostUsers` must be false to use `Unmasked`");
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

/// `spec.securityContext` of the pod (`ValidatePodSecurityContext`).
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
    errors.one_of_all(&at.key("fsGroupChangePolicy"), &["Always", "OnRootMismatch"]);
    host::seccomp(errors, &at.key("seccompProfile"));
    errors.one_of_all(&at.key("supplementalGroupsPolicy"), &["Merge", "Strict"]);
    host::app_armor(errors, &at.key("appArmorProfile"));
    errors.one_of_all(&at.key("seLinuxChangePolicy"), &["Recursive"]);
    windows::options(errors, &at.key("windowsOptions"));
}

/// The field by which a pod shares the namespace of a sysctl with its host.
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

/// `IsValidSysctlName`.
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
