//! The rules of the level `baseline`.

use std::collections::BTreeSet;

use kubewright_schema::error::quote;
use serde_json::Value;

use super::checks::{Pod, Violation, in_context, items, joined, name, named, plural, text, uses, violation};
use crate::values::get;

pub(super) fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |profile: &Value| {
        let kind = text(profile, &["type"]).to_owned();
        let bad = !profile.is_null() && kind != "RuntimeDefault" && kind != "Localhost";
        if bad {
            values.insert(kind);
        }
        bad
    };
    let of_pod = is_bad(pod.security("appArmorProfile"));
    let containers = pod.bad(|container| is_bad(in_context(container, "appArmorProfile")));
    let mut setters: Vec<String> = pod.setters(of_pod, &containers).into_iter().collect();
    let mut annotations: Vec<String> = pod
        .annotations()
        .filter(|(key, value)| {
            let allowed = value.is_empty() || *value == "runtime/default" || value.starts_with("localhost/");
            key.starts_with("container.apparmor.security.beta.kubernetes.io/") && !allowed
        })
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    annotations.sort();
    if !annotations.is_empty() {
        setters.push(plural("annotation", annotations.len()));
    }
    if setters.is_empty() {
        return None;
    }
    let values: Vec<String> = values.into_iter().chain(annotations).collect();
    let reason = match values.len() {
        1 => "forbidden AppArmor profile",
        _ => "forbidden AppArmor profiles",
    };
    let values = joined(values.iter().map(String::as_str));
    violation(
        reason,
        format!(
            "{} must not set AppArmor profile type to {values}",
            setters.join(" and ")
        ),
    )
}

pub(super) const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Containers that add capabilities outside of `allowed`, and these capabilities.
pub(super) fn adding<'a>(pod: &Pod<'a>, allowed: &[&str]) -> (Vec<&'a str>, BTreeSet<&'a str>) {
    let mut found = BTreeSet::new();
    let containers = pod.bad(|container| {
        let added = items(get(container, &["securityContext", "capabilities", "add"])).filter_map(Value::as_str);
        let bad: Vec<&str> = added.filter(|name| !allowed.contains(name)).collect();
        found.extend(bad.iter().copied());
        !bad.is_empty()
    });
    (containers, found)
}

pub(super) fn must_not_add(containers: &[&str], capabilities: BTreeSet<&str>) -> String {
    format!(
        "{} must not include {} in securityContext.capabilities.add",
        named("container", containers),
        joined(capabilities)
    )
}

pub(super) fn added_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let (containers, capabilities) = adding(pod, &CAPABILITIES);
    if containers.is_empty() {
        return None;
    }
    violation("non-default capabilities", must_not_add(&containers, capabilities))
}

pub(super) fn host_namespaces(pod: &Pod<'_>) -> Option<Violation> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .iter()
        .filter(|field| get(pod.spec, &[field]) == true)
        .map(|field| format!("{field}=true"))
        .collect();
    if shared.is_empty() {
        return None;
    }
    violation("host namespaces", shared.join(", "))
}

pub(super) fn host_paths(pod: &Pod<'_>) -> Option<Violation> {
    let volumes: Vec<&str> = items(get(pod.spec, &["volumes"]))
        .filter(|volume| !get(volume, &["hostPath"]).is_null())
        .map(name)
        .collect();
    if volumes.is_empty() {
        return None;
    }
    violation("hostPath volumes", named("volume", &volumes))
}

pub(super) fn host_ports(pod: &Pod<'_>) -> Option<Violation> {
    // Sorted as texts, not as numbers.
    let mut ports = BTreeSet::new();
    let containers = pod.bad(|container| {
        let bad: Vec<String> = items(get(container, &["ports"]))
            .filter_map(|port| get(port, &["hostPort"]).as_i64())
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect();
        ports.extend(bad.iter().cloned());
        !bad.is_empty()
    });
    if containers.is_empty() {
        return None;
    }
    let (word, count) = (plural("hostPort", ports.len()), containers.len());
    let ports: Vec<String> = ports.into_iter().collect();
    let detail = format!(
        "{} {} {word} {}",
        named("container", &containers),
        uses(count),
        ports.join(", ")
    );
    violation("hostPort", detail)
}

pub(super) fn probed_hosts(pod: &Pod<'_>) -> Option<Violation> {
    const HANDLERS: [&[&str]; 5] = [
        &["livenessProbe"],
        &["readinessProbe"],
        &["startupProbe"],
        &["lifecycle", "postStart"],
        &["lifecycle", "preStop"],
    ];
    let mut hosts = BTreeSet::new();
    let containers: BTreeSet<&str> = pod
        .bad(|container| {
            let found: Vec<&str> = HANDLERS
                .iter()
                .flat_map(|handler| {
                    let handler = get(container, handler);
                    [
                        text(handler, &["httpGet", "host"]),
                        text(handler, &["tcpSocket", "host"]),
                    ]
                })
                .filter(|host| !host.is_empty())
                .collect();
            hosts.extend(found.iter().copied());
            !found.is_empty()
        })
        .into_iter()
        .collect();
    if containers.is_empty() {
        return None;
    }
    let containers: Vec<&str> = containers.into_iter().collect();
    let detail = format!(
        "{} {} {} {}",
        named("container", &containers),
        uses(containers.len()),
        plural("probe or lifecycle host", hosts.len()),
        joined(hosts)
    );
    violation("probe or lifecycle host", detail)
}

pub(super) fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.bad(|container| in_context(container, "privileged") == true);
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.privileged=true",
        named("container", &containers)
    );
    violation("privileged", detail)
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let containers = pod.bad(|container| {
        let value = in_context(container, "procMount");
        let bad = !value.is_null() && value != "Default";
        if bad {
            values.insert(value.as_str().unwrap_or(""));
        }
        bad
    });
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must not set securityContext.procMount to {}",
        named("container", &containers),
        joined(values)
    );
    violation("procMount", detail)
}

pub(super) const SELINUX_TYPES: [&str; 5] = [
    "",
    "container_t",
    "container_init_t",
    "container_kvm_t",
    "container_engine_t",
];

pub(super) fn selinux(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let (mut user, mut role) = (false, false);
    let mut is_bad = |options: &Value| {
        let kind = text(options, &["type"]);
        let bad_kind = !allowed.contains(&kind);
        if bad_kind {
            types.insert(kind.to_owned());
        }
        let (has_user, has_role) = (
            !text(options, &["user"]).is_empty(),
            !text(options, &["role"]).is_empty(),
        );
        user |= has_user;
        role |= has_role;
        bad_kind || has_user || has_role
    };
    let of_pod = is_bad(pod.security("seLinuxOptions"));
    let containers = pod.bad(|container| is_bad(in_context(container, "seLinuxOptions")));
    let setters = pod.setters(of_pod, &containers)?;
    let mut data = Vec::new();
    if !types.is_empty() {
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        data.push(named("type", &types));
    }
    for (set, field) in [(user, "user"), (role, "role")] {
        if set {
            data.push(format!("{field} may not be set"));
        }
    }
    let detail = format!(
        "{setters} set forbidden securityContext.seLinuxOptions: {}",
        data.join("; ")
    );
    violation("seLinuxOptions", detail)
}

pub(super) fn seccomp_annotations(pod: &Pod<'_>) -> Option<Violation> {
    let names: BTreeSet<String> = pod
        .containers()
        .map(|container| format!("container.seccomp.security.alpha.kubernetes.io/{}", name(container)))
        .chain(["seccomp.security.alpha.kubernetes.io/pod".to_owned()])
        .collect();
    let forbidden: BTreeSet<String> = pod
        .annotations()
        .filter(|(key, value)| {
            let allowed = ["runtime/default", "docker/default"].contains(value) || value.starts_with("localhost/");
            names.contains(*key) && !allowed
        })
        .map(|(key, value)| format!("{key}={}", quote(value)))
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", forbidden.len());
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    violation("seccompProfile", format!("forbidden {word} {}", forbidden.join(", ")))
}

pub(super) fn is_bad_seccomp(profile: &Value) -> bool {
    !profile.is_null() && !["RuntimeDefault", "Localhost"].contains(&text(profile, &["type"]))
}

pub(super) fn bad_seccomp(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut is_bad = |profile: &Value| {
        let bad = is_bad_seccomp(profile);
        if bad {
            values.insert(text(profile, &["type"]).to_owned());
        }
        bad
    };
    let of_pod = is_bad(pod.security("seccompProfile"));
    let containers = pod.bad(|container| is_bad(in_context(container, "seccompProfile")));
    let setters = pod.setters(of_pod, &containers)?;
    let values = joined(values.iter().map(String::as_str));
    let detail = format!("{setters} must not set securityContext.seccompProfile.type to {values}");
    violation("seccompProfile", detail)
}

/// Ascending by the version that allowed them: 1.0, 1.27, 1.29, 1.32.
pub(super) const SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

pub(super) fn sysctls(pod: &Pod<'_>, allowed: &[&str]) -> Option<Violation> {
    let forbidden: Vec<&str> = items(pod.security("sysctls"))
        .map(name)
        .filter(|name| !allowed.contains(name))
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    violation("forbidden sysctls", forbidden.join(", "))
}

pub(super) fn host_process(pod: &Pod<'_>) -> Option<Violation> {
    let is_bad = |options: &Value| get(options, &["hostProcess"]) == true;
    let containers = pod.bad(|container| is_bad(in_context(container, "windowsOptions")));
    let setters = pod.setters(is_bad(pod.security("windowsOptions")), &containers)?;
    let detail = format!("{setters} must not set securityContext.windowsOptions.hostProcess=true");
    violation("hostProcess", detail)
}
