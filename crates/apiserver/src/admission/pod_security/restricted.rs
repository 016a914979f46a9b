//! The rules that the level `restricted` adds.

use std::collections::BTreeSet;

use serde_json::Value;

use super::baseline::{adding, bad_seccomp, must_not_add};
use super::checks::{Pod, Violation, in_context, items, joined, name, named, plural, uses, violation};
use crate::values::get;

pub(super) fn all_capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let keeping = pod.bad(|container| {
        !items(get(container, &["securityContext", "capabilities", "drop"])).any(|name| name == "ALL")
    });
    let (containers, capabilities) = adding(pod, &["NET_BIND_SERVICE"]);
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            named("container", &keeping)
        ));
    }
    if !containers.is_empty() {
        details.push(must_not_add(&containers, capabilities));
    }
    if details.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", details.join("; "))
}

pub(super) fn seccomp(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(bad) = bad_seccomp(pod) {
        return Some(bad);
    }
    if !pod.security("seccompProfile").is_null() {
        return None;
    }
    let unset = pod.bad(|container| in_context(container, "seccompProfile").is_null());
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
        named("container", &unset)
    );
    violation("seccompProfile", detail)
}

pub(super) fn escalation(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.bad(|container| in_context(container, "allowPrivilegeEscalation") != false);
    if containers.is_empty() {
        return None;
    }
    let detail = format!(
        "{} must set securityContext.allowPrivilegeEscalation=false",
        named("container", &containers)
    );
    violation("allowPrivilegeEscalation != false", detail)
}

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

pub(super) fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let kind_of = |volume: &Value| {
        let fields = volume.as_object().into_iter().flatten();
        let mut kinds = fields.filter(|(key, value)| *key != "name" && !value.is_null());
        kinds
            .next()
            .map_or_else(|| "unknown".to_owned(), |(key, _)| key.clone())
    };
    let mut kinds = BTreeSet::new();
    let bad: Vec<&str> = items(get(pod.spec, &["volumes"]))
        .filter(|volume| VOLUMES.iter().all(|kind| get(volume, &[kind]).is_null()))
        .map(|volume| {
            kinds.insert(kind_of(volume));
            name(volume)
        })
        .collect();
    if bad.is_empty() {
        return None;
    }
    let detail = format!(
        "{} {} {} {}",
        named("volume", &bad),
        uses(bad.len()),
        plural("restricted volume type", kinds.len()),
        joined(kinds.iter().map(String::as_str))
    );
    violation("restricted volume types", detail)
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let of_pod = pod.security("runAsNonRoot");
    let explicit = pod.bad(|container| in_context(container, "runAsNonRoot") == false);
    if let Some(setters) = pod.setters(of_pod == false, &explicit) {
        return violation(
            REASON,
            format!("{setters} must not set securityContext.runAsNonRoot=false"),
        );
    }
    if of_pod == true {
        return None;
    }
    let unset = pod.bad(|container| in_context(container, "runAsNonRoot").is_null());
    if unset.is_empty() {
        return None;
    }
    let detail = format!(
        "pod or {} must set securityContext.runAsNonRoot=true",
        named("container", &unset)
    );
    violation(REASON, detail)
}

pub(super) fn run_as_root(pod: &Pod<'_>) -> Option<Violation> {
    let containers = pod.bad(|container| in_context(container, "runAsUser") == 0);
    let setters = pod.setters(pod.security("runAsUser") == 0, &containers)?;
    violation("runAsUser=0", format!("{setters} must not set runAsUser=0"))
}
