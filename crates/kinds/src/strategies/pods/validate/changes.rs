//! The fields of a pod that may change, by an update of the object and by its subresources.

use std::collections::BTreeSet;

use kubewright_schema::error::FieldError;
use kubewright_schema::{Minor, internal, measure};
use serde_json::Value;

use super::{first_by_name, spec};
use crate::strategies::check::{At, Errors, ensure, keep};
use crate::strategies::pods::{annotations, scheduling};
use kubewright_model::facts::pods::qos_class;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` \
    (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// Errors in a pod that changes: nearly nothing of the spec may (`ValidatePodUpdate`).
pub(crate) fn update(new: &Value, old: &Value, minor: Minor) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    let was = At::root(old).key("spec");
    let notes = At::root(new).keys(&["metadata", "annotations"]);
    annotations::annotations(&mut errors, &notes, &at);
    spec(&mut errors, &at, kubewright_model::object::name(new));
    annotations::changes(&mut errors, &notes, &At::root(old).keys(&["metadata", "annotations"]));
    for list in ["containers", "initContainers"] {
        if at.key(list).len() != was.key(list).len() {
            errors.forbidden(&at.key(list), "pod updates may not add or remove containers");
            return errors.into_vec();
        }
        for container in at.key(list).items() {
            let image = container.key("image");
            if image.text().is_empty() {
                errors.required(&image, "");
            }
            if image.text().trim().len() != image.text().len() {
                errors.invalid(&image, "must not have leading or trailing whitespace");
            }
        }
    }
    if deadline(&mut errors, &at, &was) {
        return errors.into_vec();
    }
    tolerations(&mut errors, &at, &was);
    scheduling_gates(&mut errors, &at, &was);
    if at.value == was.value {
        return errors.into_vec();
    }
    let munged = with_what_may_change(&mut errors, &at, &was);
    if munged != *was.value {
        let difference = internal::difference(minor, "", "Pod", "spec", was.value, &munged);
        errors.forbidden(
            &at,
            format!("pod updates may not change fields other than {UPDATABLE}\n{difference}"),
        );
    }
    errors.into_vec()
}

/// The new spec with the old values of mutable fields, so that the rest can be compared.
/// `ValidatePodUpdate` and `validateNodeSelectorMutation`.
fn with_what_may_change(errors: &mut Errors, at: &At<'_>, was: &At<'_>) -> Value {
    let mut munged = measure::copy(at.value);
    for list in ["containers", "initContainers"] {
        let containers = munged.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for (container, before) in containers.zip(was.key(list).items()) {
            keep(container, before.value, "image");
        }
    }
    for field in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        keep(&mut munged, was.value, field);
    }
    let grace = "terminationGracePeriodSeconds";
    if was.key(grace).int().is_some_and(|seconds| seconds < 0) && at.key(grace).int() == Some(1) {
        keep(&mut munged, was.value, grace);
    }
    // While a gate holds the pod back, where it may run can still be narrowed.
    if !was.key("schedulingGates").is_empty() {
        let selector = at.key("nodeSelector");
        let changed = |(key, before): (&str, At<'_>)| selector.key(key).value != before.value;
        if was.key("nodeSelector").entries().any(changed) {
            errors.invalid(
                &selector,
                "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
            );
        }
        keep(&mut munged, was.value, "nodeSelector");
        let required = [
            "affinity",
            "nodeAffinity",
            "requiredDuringSchedulingIgnoredDuringExecution",
        ];
        narrowed(
            errors,
            &at.keys(&required).key("nodeSelectorTerms"),
            &was.keys(&required).key("nodeSelectorTerms"),
        );
        let affinity = was.key("affinity");
        let others = ["podAffinity", "podAntiAffinity"];
        if !affinity.present() && others.iter().all(|kind| !at.key("affinity").has(kind)) {
            keep(&mut munged, was.value, "affinity");
        } else if let Some(spec) = munged.as_object_mut()
            && let Some(after) = ensure(spec, "affinity")
        {
            let mut value = Value::Object(std::mem::take(after));
            keep(&mut value, affinity.value, "nodeAffinity");
            spec.insert("affinity".to_owned(), value);
        }
    }
    munged
}

/// The terms that a node must fit may say more, never less (`validateNodeAffinityMutation`).
fn narrowed(errors: &mut Errors, terms: &At<'_>, were: &At<'_>) {
    if !were.is_empty() && were.len() != terms.len() {
        errors.invalid(
            terms,
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
        return;
    }
    for (term, before) in terms.items().zip(were.items()) {
        let lists = ["matchExpressions", "matchFields"];
        let had_none = lists.iter().all(|list| before.key(list).is_empty());
        let has_none = lists.iter().all(|list| term.key(list).is_empty());
        let only_adds = |list: &&str| {
            let mut kept = term.key(list).items();
            before
                .key(list)
                .items()
                .all(|old| kept.next().is_some_and(|new| new.value == old.value))
        };
        if (had_none && !has_none) || !lists.iter().all(only_adds) {
            errors.invalid(&term, "only additions are allowed (no mutations or deletions)");
        }
    }
}

/// Whether the deadline is so wrong that nothing else is looked at (`ValidatePodUpdate`).
pub(super) fn deadline(errors: &mut Errors, at: &At<'_>, was: &At<'_>) -> bool {
    const FIELD: &str = "activeDeadlineSeconds";
    let new = at.key(FIELD);
    match (new.int(), was.key(FIELD).int()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.invalid(&new, "must be between 0 and 2147483647, inclusive");
            true
        }
        (Some(seconds), Some(before)) if seconds > before => {
            errors.invalid(&new, "must be less than or equal to previous value");
            true
        }
        (None, Some(_)) => {
            errors.invalid_value(
                &new,
                Value::Null,
                "must not update from a positive integer to nil value",
            );
            false
        }
        _ => false,
    }
}

/// `validateOnlyAddedTolerations`.
pub(super) fn tolerations(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let new = at.key("tolerations");
    let without_seconds = |at: &At<'_>| {
        let mut value = at.value.clone();
        if let Some(map) = value.as_object_mut() {
            map.remove("tolerationSeconds");
        }
        value.to_string()
    };
    let kept: BTreeSet<String> = new.items().map(|toleration| without_seconds(&toleration)).collect();
    if was
        .key("tolerations")
        .items()
        .any(|toleration| !kept.contains(&without_seconds(&toleration)))
    {
        errors.forbidden(
            &new,
            "existing toleration can not be modified except its tolerationSeconds",
        );
    } else {
        // Upstream looks at them here and with the rest.
        scheduling::tolerations(errors, &new);
    }
}

/// `validateOnlyDeletedSchedulingGates`.
fn scheduling_gates(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let names = |at: &At<'_>| -> BTreeSet<String> {
        at.key("schedulingGates")
            .items()
            .map(|gate| gate.text_of("name").to_owned())
            .collect()
    };
    let old = names(was);
    for gate in at.key("schedulingGates").items() {
        let name = gate.key("name");
        if !old.contains(name.text()) {
            let why = format!(
                "only deletion is allowed, but found new scheduling gate '{}'",
                name.text()
            );
            errors.forbidden(&name, why);
        }
    }
}

/// Errors in a change of `/ephemeralcontainers`: those that are there stay as they are.
/// Upstream: `ValidatePodEphemeralContainersUpdate`.
pub(crate) fn ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let at = At::root(new).key("spec");
    spec(&mut errors, &at, kubewright_model::object::name(new));
    let list = at.key("ephemeralContainers");
    let named = first_by_name(&list);
    for before in At::root(old).keys(&["spec", "ephemeralContainers"]).items() {
        let name = before.text_of("name");
        match named.get(name) {
            None => errors.forbidden(
                &list,
                format!("existing ephemeral containers {name:?} may not be removed\n"),
            ),
            Some(after) if after.value != before.value => {
                let path = "spec.ephemeralContainers[0]";
                let (before, after) = (before.value, after.value);
                let difference = internal::difference(Minor::OLDEST, "", "Pod", path, before, after);
                errors.forbidden(
                    &list,
                    format!("existing ephemeral containers {name:?} may not be changed\n{difference}"),
                );
            }
            Some(_) => {}
        }
    }
    errors.into_vec()
}

/// Errors in a change of `/resize`: requests and limits fit each other, and the class of the pod stays.
/// Upstream: `ValidatePodResize`.
pub(crate) fn resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (at, was) = (At::root(new).key("spec"), At::root(old).key("spec"));
    spec(&mut errors, &at, kubewright_model::object::name(new));
    if was.key("os").text_of("name") == "windows" {
        let mut only = Errors::default();
        only.push(FieldError::forbidden("", "windows pods cannot be resized"));
        return only.into_vec();
    }
    let class = qos_class(old);
    if qos_class(new) != class {
        errors.invalid_value(&at, class, "Pod QOS Class may not change as a result of resizing");
    }
    let running = At::root(old)
        .keys(&["status", "containerStatuses"])
        .items()
        .find(|status| status.keys(&["state", "running"]).present())
        .map(|status| status.has("resources"));
    if running == Some(false) {
        errors.forbidden(&at, "Pod running on node without support for resize");
    }
    let known = errors.len();
    for list in ["containers", "initContainers"] {
        if at.key(list).len() != was.key(list).len() {
            errors.forbidden(&at.key(list), format!("{list} may not be added or removed on resize"));
            continue;
        }
        for (container, before) in at.key(list).items().zip(was.key(list).items()) {
            if container.text_of("name") != before.text_of("name") {
                errors.forbidden(
                    &container.key("name"),
                    format!("{list} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    if errors.len() > known {
        return errors.into_vec();
    }
    for list in ["initContainers", "containers"] {
        for (container, before) in at.key(list).items().zip(was.key(list).items()) {
            if list == "containers" || container.text_of("restartPolicy") == "Always" {
                nothing_removed(&mut errors, &container.key("resources"), &before.key("resources"));
            }
        }
    }
    only_cpu_and_memory(&mut errors, &at, &was);
    errors.into_vec()
}

/// `validatePodLevelResourcesResize` and `validateContainerResize`.
fn nothing_removed(errors: &mut Errors, new: &At<'_>, old: &At<'_>) {
    for list in ["requests", "limits"] {
        let now = new.key(list);
        if old.key(list).entries().any(|(name, _)| !now.has(name)) {
            errors.forbidden(&now, format!("resource {list} cannot be removed"));
        }
    }
}

/// `ValidatePodResize`.
fn only_cpu_and_memory(errors: &mut Errors, at: &At<'_>, was: &At<'_>) {
    let others = |container: &At<'_>| {
        let mut value = container.value.clone();
        for list in ["requests", "limits"] {
            let amounts = value
                .pointer_mut(&format!("/resources/{list}"))
                .and_then(Value::as_object_mut);
            if let Some(amounts) = amounts {
                amounts.remove("cpu");
                amounts.remove("memory");
            }
        }
        // An empty list of amounts is none.
        if let Some(resources) = value.get_mut("resources").and_then(Value::as_object_mut) {
            resources.retain(|_, amounts| amounts.as_object().is_none_or(|amounts| !amounts.is_empty()));
        }
        value
    };
    for (container, before) in at.key("containers").items().zip(was.key("containers").items()) {
        if others(&container) != others(&before) {
            errors.forbidden(at, "only cpu and memory resources are mutable");
        }
    }
    for (container, before) in at.key("initContainers").items().zip(was.key("initContainers").items()) {
        if container.text_of("restartPolicy") == "Always" {
            if others(&container) != others(&before) {
                errors.forbidden(
                    &container,
                    "only cpu and memory resources for init or sidecar containers are mutable",
                );
            }
        } else if container.value != before.value {
            errors.forbidden(at, "resources for non-sidecar init containers are immutable");
        }
    }
}
