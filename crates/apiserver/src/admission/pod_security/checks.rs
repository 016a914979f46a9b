//! The table of the Pod Security Standards' rules: each has a level, and says since which minor version it reads a pod
//! how. The rules themselves stand in `baseline` and `restricted`.
//!
//! Invariants: rules are evaluated in the order of their ids, those of the baseline first, because clients read the
//! message; a restricted rule replaces the weaker baseline rule that it names.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{
    SELINUX_TYPES, SYSCTLS, added_capabilities, app_armor, bad_seccomp, host_namespaces, host_paths, host_ports,
    host_process, privileged, probed_hosts, proc_mount, seccomp_annotations, selinux, sysctls,
};
use super::levels::{Level, LevelVersion};
use super::restricted::{all_capabilities, escalation, run_as_non_root, run_as_root, seccomp, volumes};
use crate::values::get;

/// A violation, in short and in detail.
pub(super) struct Violation {
    reason: &'static str,
    detail: String,
}

/// Everything that is wrong with a pod; empty when it may run.
#[derive(Default)]
pub(super) struct Violations(Vec<Violation>);

impl Violations {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `hostPort, privileged`
    pub(super) fn reasons(&self) -> String {
        let reasons: Vec<&str> = self.0.iter().map(|violation| violation.reason).collect();
        reasons.join(", ")
    }

    /// `hostPort (container "c" uses hostPort 80), …`
    pub(super) fn details(&self) -> String {
        let details: Vec<String> = self
            .0
            .iter()
            .map(|violation| format!("{} ({})", violation.reason, violation.detail))
            .collect();
        details.join(", ")
    }
}

/// How one version of a rule reads a pod.
type Rule = fn(&Pod<'_>) -> Option<Violation>;

struct Check {
    id: &'static str,
    level: Level,
    /// Minor versions since which a rule counts, ascending.
    since: &'static [(u64, Rule)],
    /// The baseline rule that this one replaces.
    replaces: Option<&'static str>,
}

const fn baseline(id: &'static str, since: &'static [(u64, Rule)]) -> Check {
    Check {
        id,
        level: Level::Baseline,
        since,
        replaces: None,
    }
}

const fn restricted(id: &'static str, replaces: Option<&'static str>, since: &'static [(u64, Rule)]) -> Check {
    Check {
        id,
        level: Level::Restricted,
        since,
        replaces,
    }
}

/// In the order in which they are reported.
const CHECKS: [Check; 19] = [
    baseline("appArmorProfile", &[(0, app_armor)]),
    baseline("capabilities_baseline", &[(0, added_capabilities)]),
    baseline("hostNamespaces", &[(0, host_namespaces)]),
    baseline("hostPathVolumes", &[(0, host_paths)]),
    baseline("hostPorts", &[(0, host_ports)]),
    baseline("hostProbesAndHostLifecycle", &[(34, probed_hosts)]),
    baseline("privileged", &[(0, privileged)]),
    baseline(
        "procMount",
        &[(0, proc_mount), (35, |pod| unless(pod.own_users(), || proc_mount(pod)))],
    ),
    baseline(
        "seLinuxOptions",
        &[
            (0, |pod| selinux(pod, &SELINUX_TYPES[..4])),
            (31, |pod| selinux(pod, &SELINUX_TYPES)),
        ],
    ),
    baseline(
        "seccompProfile_baseline",
        &[(0, seccomp_annotations), (19, bad_seccomp)],
    ),
    baseline(
        "sysctls",
        &[
            (0, |pod| sysctls(pod, &SYSCTLS[..5])),
            (27, |pod| sysctls(pod, &SYSCTLS[..6])),
            (29, |pod| sysctls(pod, &SYSCTLS[..10])),
            (32, |pod| sysctls(pod, &SYSCTLS)),
        ],
    ),
    baseline("windowsHostProcess", &[(0, host_process)]),
    restricted(
        "allowPrivilegeEscalation",
        None,
        &[
            (8, escalation),
            (25, |pod| unless(pod.is_windows(), || escalation(pod))),
        ],
    ),
    restricted(
        "capabilities_restricted",
        Some("capabilities_baseline"),
        &[
            (22, all_capabilities),
            (25, |pod| unless(pod.is_windows(), || all_capabilities(pod))),
        ],
    ),
    restricted("procMount_restricted", Some("procMount"), &[(35, proc_mount)]),
    restricted("restrictedVolumes", Some("hostPathVolumes"), &[(0, volumes)]),
    restricted(
        "runAsNonRoot",
        None,
        &[
            (0, run_as_non_root),
            (35, |pod| unless(pod.own_users(), || run_as_non_root(pod))),
        ],
    ),
    restricted(
        "runAsUser",
        None,
        &[
            (23, run_as_root),
            (35, |pod| unless(pod.own_users(), || run_as_root(pod))),
        ],
    ),
    restricted(
        "seccompProfile_restricted",
        Some("seccompProfile_baseline"),
        &[(19, seccomp), (25, |pod| unless(pod.is_windows(), || seccomp(pod)))],
    ),
];

/// The violations of `level` by a pod with this metadata and spec.
pub(super) fn evaluate(level: LevelVersion, metadata: &Value, spec: &Value) -> Violations {
    let pod = Pod { metadata, spec };
    let minor = level.version.unwrap_or(u64::MAX);
    let active: Vec<(&Check, Rule)> = CHECKS
        .iter()
        .filter(|check| check.level <= level.level)
        .filter_map(|check| Some((check, check.since.iter().rev().find(|(since, _)| *since <= minor)?.1)))
        .collect();
    let replaced: BTreeSet<&str> = active.iter().filter_map(|(check, _)| check.replaces).collect();
    let found = active
        .iter()
        .filter(|(check, _)| !replaced.contains(check.id))
        .filter_map(|(_, rule)| rule(&pod));
    Violations(found.collect())
}

/// A pod, or the template of one.
pub(super) struct Pod<'a> {
    pub(super) metadata: &'a Value,
    pub(super) spec: &'a Value,
}

impl<'a> Pod<'a> {
    /// Containers of all three sorts, in the order in which they are reported.
    pub(super) fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .flat_map(move |field| items(get(spec, &[field])))
    }

    pub(super) fn security(&self, field: &str) -> &'a Value {
        get(self.spec, &["securityContext", field])
    }

    pub(super) fn is_windows(&self) -> bool {
        get(self.spec, &["os", "name"]) == "windows"
    }

    /// Whether the pod has a user namespace of its own.
    pub(super) fn own_users(&self) -> bool {
        get(self.spec, &["hostUsers"]) == false
    }

    pub(super) fn annotations(&self) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        let all = get(self.metadata, &["annotations"]).as_object();
        all.into_iter()
            .flatten()
            .map(|(key, value)| (key.as_str(), value.as_str().unwrap_or("")))
    }

    /// Names of the containers that `is_bad` finds.
    pub(super) fn bad(&self, is_bad: impl FnMut(&&'a Value) -> bool) -> Vec<&'a str> {
        self.containers().filter(is_bad).map(name).collect()
    }

    /// What sets a forbidden field: the pod, containers, or both.
    pub(super) fn setters(&self, pod: bool, containers: &[&str]) -> Option<String> {
        let mut setters = Vec::new();
        if pod {
            setters.push("pod".to_owned());
        }
        if !containers.is_empty() {
            setters.push(named("container", containers));
        }
        (!setters.is_empty()).then(|| setters.join(" and "))
    }
}

fn unless(exempt: bool, rule: impl FnOnce() -> Option<Violation>) -> Option<Violation> {
    if exempt { None } else { rule() }
}

pub(super) fn items(list: &Value) -> impl Iterator<Item = &Value> {
    list.as_array().into_iter().flatten()
}

pub(super) fn name(named: &Value) -> &str {
    get(named, &["name"]).as_str().unwrap_or("")
}

pub(super) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    get(value, path).as_str().unwrap_or("")
}

pub(super) fn in_context<'a>(container: &'a Value, field: &str) -> &'a Value {
    get(container, &["securityContext", field])
}

pub(super) fn joined<'a>(texts: impl IntoIterator<Item = &'a str>) -> String {
    let quoted: Vec<String> = texts.into_iter().map(|text| format!("\"{text}\"")).collect();
    quoted.join(", ")
}

pub(super) fn plural(word: &str, count: usize) -> String {
    if count == 1 {
        word.to_owned()
    } else {
        format!("{word}s")
    }
}

/// `containers "a", "b"`
pub(super) fn named(word: &str, names: &[&str]) -> String {
    format!("{} {}", plural(word, names.len()), joined(names.iter().copied()))
}

pub(super) fn uses(count: usize) -> &'static str {
    if count == 1 { "uses" } else { "use" }
}

pub(super) fn violation(reason: &'static str, detail: impl Into<String>) -> Option<Violation> {
    Some(Violation {
        reason,
        detail: detail.into(),
    })
}
