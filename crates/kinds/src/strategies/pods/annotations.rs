//! Annotations of pods with a meaning: profiles of seccomp and AppArmor from before they had fields, and the deletion
//! cost.
//!
//! An AppArmor annotation becomes the field that replaced it ([`sync_app_armor`]); where both are given they must say
//! the same.

use std::cell::LazyCell;
use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::projections::descending;
use crate::strategies::check::{At, Errors, Object, child, ensure, get};
use kubewright_model::facts::references::MIRROR;

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const LOCALHOST: &str = "localhost/";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];

/// The errors in the annotations of a pod or a template with this spec (`ValidatePodSpecificAnnotations`).
pub(crate) fn annotations(errors: &mut Errors, all: &At<'_>, spec: &At<'_>) {
    let names = LazyCell::new(|| {
        let containers = LISTS.iter().flat_map(|list| spec.key(list).items());
        let names = containers.map(|container| container.text_of("name"));
        names.collect::<BTreeSet<_>>()
    });
    for (key, entry) in all.entries() {
        let child = entry.moved(all.path.key(key));
        if key == MIRROR && spec.text_of("nodeName").is_empty() {
            errors.invalid(&entry, "must set spec.nodeName if mirror pod annotation is set");
        }
        if key == DELETION_COST && !is_cost(entry.text()) {
            errors.invalid(&entry, "must be a 32bit integer");
        }
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp(errors, &child);
        }
        if let Some(container) = key.strip_prefix(APP_ARMOR) {
            if !names.contains(container) {
                errors.invalid_value(&entry, container, "container not found");
            }
            let text = entry.text();
            if !matches!(text, "" | "runtime/default" | "unconfined") && !text.starts_with(LOCALHOST) {
                errors.invalid(&entry, format!("invalid AppArmor profile name: {text:?}"));
            }
        }
    }
}

/// The errors in a change of annotations: some annotations are immutable (`ValidatePodSpecificAnnotationUpdates`).
pub(crate) fn changes(errors: &mut Errors, all: &At<'_>, before: &At<'_>) {
    let what = |key: &str| match key {
        MIRROR => Some("mirror pod annotation"),
        key if key.starts_with(APP_ARMOR) => Some("AppArmor annotations"),
        _ => None,
    };
    for (key, entry) in before.entries() {
        if let Some(what) = what(key).filter(|_| all.key(key).value != entry.value) {
            errors.forbidden(&entry, format!("may not remove or update {what}"));
        }
    }
    for (key, entry) in all.entries() {
        if let Some(what) = what(key).filter(|_| !before.has(key)) {
            errors.forbidden(&entry, format!("may not add {what}"));
        }
    }
}

/// A 32-bit integer without a plus sign or leading zeros.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    text.parse::<i32>().is_ok() && (digits == "0" || !digits.starts_with('0')) && !text.starts_with('+')
}

/// `ValidateSeccompPodAnnotations` and `ValidateSeccompProfile`.
fn seccomp(errors: &mut Errors, at: &At<'_>) {
    let text = at.text();
    if matches!(text, "runtime/default" | "docker/default" | "unconfined") {
        return;
    }
    match text.strip_prefix(LOCALHOST) {
        Some(path) => {
            let path = Value::from(path);
            descending(
                errors,
                &At {
                    value: &path,
                    path: at.path.clone(),
                },
            );
        }
        None => errors.invalid(at, "must be a valid seccomp profile"),
    }
}

/// Profiles that a new pod gives both as a field and as an annotation (`ValidateAppArmorPodAnnotations`).
pub(super) fn profiles(errors: &mut Errors, pod: &At<'_>) {
    let (spec, all) = (pod.key("spec"), pod.keys(&["metadata", "annotations"]));
    if all.is_empty() {
        return;
    }
    let annotation = |key: &str| all.value.get(key).and_then(Value::as_str);
    let of_pod = spec.keys(&["securityContext", "seccompProfile"]);
    matching(errors, &of_pod, of_pod.value, annotation(SECCOMP_POD), "seccomp");
    let containers = || LISTS.iter().flat_map(|list| spec.key(list).items());
    for container in containers() {
        let profile = container.keys(&["securityContext", "seccompProfile"]);
        let key = format!("{SECCOMP_CONTAINER}{}", container.text_of("name"));
        matching(errors, &profile, profile.value, annotation(&key), "seccomp");
    }
    if spec.keys(&["os", "name"]).text() == "windows" {
        return;
    }
    let of_pod = spec.keys(&["securityContext", "appArmorProfile"]);
    for container in containers() {
        let own = container.keys(&["securityContext", "appArmorProfile"]);
        let counts = if own.present() { own.value } else { of_pod.value };
        let key = format!("{APP_ARMOR}{}", container.text_of("name"));
        matching(errors, &own, counts, annotation(&key), "apparmor");
    }
}

/// Compares a profile with the annotation for it. `what` is `seccomp` or `apparmor`.
/// `validateAppArmorAnnotationsAndFieldsMatchOnCreate` and `validateSeccompAnnotationsAndFieldsMatch`.
fn matching(errors: &mut Errors, at: &At<'_>, profile: &Value, annotation: Option<&str>, what: &str) {
    let Some(annotation) = annotation else { return };
    let same = match get(profile, &["type"]).as_str() {
        Some("Unconfined") => annotation == "unconfined",
        Some("RuntimeDefault") => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        Some("Localhost") => match annotation.strip_prefix(LOCALHOST) {
            Some(path) if get(profile, &["localhostProfile"]) == path => true,
            Some(_) => {
                let why = format!("{what} profile in annotation and field must match");
                errors.forbidden(&at.key("localhostProfile"), why);
                return;
            }
            None => false,
        },
        _ => true,
    };
    if !same {
        errors.forbidden(
            &at.key("type"),
            format!("{what} type in annotation and field must match"),
        );
    }
}

/// The profile that an annotation names; none when it names none that can be had.
fn app_armor_profile(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        annotation => {
            let path = annotation.strip_prefix(LOCALHOST)?;
            let fits = !path.is_empty() && path.trim() == path && path.len() <= 4095;
            fits.then(|| json!({"type": "Localhost", "localhostProfile": path}))
        }
    }
}

/// Gives containers of a new pod the profile that only an annotation says.
pub(super) fn sync_app_armor(pod: &mut Object) {
    // Only the annotations are copied: `managedFields` is in the metadata, too, and may be the larger half of a pod.
    let annotations = pod
        .get("metadata")
        .map(|metadata| get(metadata, &["annotations"]).clone());
    let Some(Value::Object(annotations)) = annotations else {
        return;
    };
    let Some(spec) = child(pod, "spec") else { return };
    if spec.get("os").is_some_and(|os| get(os, &["name"]) == "windows") {
        return;
    }
    let of_pod = spec
        .get("securityContext")
        .map_or(Value::Null, |context| get(context, &["appArmorProfile"]).clone());
    for list in LISTS {
        let containers = spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for container in containers.filter_map(Value::as_object_mut) {
            let key = format!("{APP_ARMOR}{}", crate::strategies::check::text(container, "name"));
            let annotation = annotations.get(&key).and_then(Value::as_str);
            let own = container
                .get("securityContext")
                .map(|context| get(context, &["appArmorProfile"]));
            let (Some(annotation), true) = (annotation, own.is_none_or(Value::is_null)) else {
                continue;
            };
            if let Some(profile) = app_armor_profile(annotation).filter(|profile| *profile != of_pod)
                && let Some(context) = ensure(container, "securityContext")
            {
                context.insert("appArmorProfile".to_owned(), profile);
            }
        }
    }
}

/// Annotations that do nothing any more.
const WITHOUT_EFFECT: [(&str, &str); 3] = [
    (
        "scheduler.alpha.kubernetes.io/critical-pod",
        "non-functional in v1.16+; use the \"priorityClassName\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
    (
        "security.alpha.kubernetes.io/unsafe-sysctls",
        "non-functional in v1.11+; use the \"sysctls\" field instead",
    ),
];

/// Warnings about annotations of a pod or a template that fields replaced. A new pod has the AppArmor profile of its
/// annotation by now ([`sync_app_armor`]).
pub(super) fn warnings(pod: &At<'_>, warn: &mut Vec<String>) {
    const NO_SECCOMP: &str = "non-functional in v1.27+; use the \"seccompProfile\" field instead";
    let (spec, all) = (pod.key("spec"), pod.keys(&["metadata", "annotations"]));
    if all.is_empty() {
        return;
    }
    let mut warn_at = |key: &str, why: &str| warn.push(format!("{}: {why}", all.path.map_key(key)));
    let has = |key: &str| all.value.get(key).is_some();
    for (key, why) in WITHOUT_EFFECT {
        if has(key) {
            warn_at(key, why);
        }
    }
    if has(SECCOMP_POD) && !spec.keys(&["securityContext", "seccompProfile"]).present() {
        warn_at(SECCOMP_POD, NO_SECCOMP);
    }
    let of_pod = spec.keys(&["securityContext", "appArmorProfile"]);
    for container in LISTS.iter().flat_map(|list| spec.key(list).items()) {
        let name = container.text_of("name");
        let context = container.key("securityContext");
        let key = format!("{SECCOMP_CONTAINER}{name}");
        if has(&key) && !context.has("seccompProfile") {
            warn_at(&key, NO_SECCOMP);
        }
        let key = format!("{APP_ARMOR}{name}");
        let named = all.value.get(&key).and_then(Value::as_str).map(app_armor_profile);
        let own = context.key("appArmorProfile");
        let synced = pod.path.is_root() && named.as_ref().is_some_and(|named| named.as_ref() == Some(own.value));
        let same = named.as_ref().is_some_and(|named| named.as_ref() == Some(of_pod.value));
        if named.is_some() && (synced || (!own.present() && !same)) {
            warn_at(
                &key,
                "deprecated since v1.30; use the \"appArmorProfile\" field instead",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(annotations: Value, want: &[&str]) {
        let mut pod = json!({"metadata": {"annotations": annotations}, "spec": {"containers": [{"name": "c"}]}});
        let mut errors = Errors::default();
        annotations_of(&mut errors, &pod);
        let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
        assert_eq!(found, want);
        sync_app_armor(pod.as_object_mut().expect("an object"));
    }

    #[test]
    fn some_annotations_stay_as_they_came() {
        let check = |old: Value, new: Value, want: &[&str]| {
            let (old, new) = (json!({"annotations": old}), json!({"annotations": new}));
            let mut errors = Errors::default();
            changes(
                &mut errors,
                &At::root(&new).key("annotations"),
                &At::root(&old).key("annotations"),
            );
            let found: Vec<String> = errors.into_vec().iter().map(ToString::to_string).collect();
            assert_eq!(found, want);
        };
        let armor = format!("{APP_ARMOR}c");
        check(
            json!({"a": "b", MIRROR: "x"}),
            json!({"a": "c", MIRROR: "x", "d": "e"}),
            &[],
        );
        check(
            json!({MIRROR: "x", armor.clone(): "unconfined"}),
            json!({MIRROR: "y"}),
            &[
                "annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may not remove or update \
                 AppArmor annotations",
                "annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation",
            ],
        );
        check(
            json!({}),
            json!({MIRROR: "y", armor: "unconfined"}),
            &[
                "annotations[container.apparmor.security.beta.kubernetes.io/c]: Forbidden: may not add AppArmor annotations",
                "annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation",
            ],
        );
    }

    fn annotations_of(errors: &mut Errors, pod: &Value) {
        let pod = At::root(pod);
        annotations(errors, &pod.keys(&["metadata", "annotations"]), &pod.key("spec"));
    }

    #[test]
    fn annotations_are_checked() {
        check(json!({SECCOMP_POD: "runtime/default", DELETION_COST: "-5"}), &[]);
        check(
            json!({SECCOMP_POD: "x"}),
            &[
                "metadata.annotations.seccomp.security.alpha.kubernetes.io/pod: Invalid value: \"x\": must be a valid seccomp profile",
            ],
        );
        check(
            json!({DELETION_COST: "+5"}),
            &[
                "metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+5\": must be a 32bit integer",
            ],
        );
    }
}
