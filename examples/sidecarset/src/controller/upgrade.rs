//! The changes that an upgrade in place makes in a pod: the images of the set's containers, and the pod's own record.
//! Pure.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::api::core::v1::{Pod, PodCondition};
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use sidecarset_api::v1alpha1::SidecarSet;

use super::pods::{INPLACE_UPDATE_STATE, LastStatus, UpdateState, container_status};
use crate::sidecar::hash::Hashes;
use crate::sidecar::record;

/// The condition of a pod that says whether all its sets can upgrade it in place.
pub const UPGRADABLE: &str = "SidecarSetUpgradable";

/// The pod with the images of the set.
///
/// # Errors
/// When the records cannot be written as JSON.
pub fn upgraded(
    pod: &Pod,
    set: &SidecarSet,
    hashes: &Hashes,
    revision: &str,
    now: &Time,
) -> Result<Pod, serde_json::Error> {
    let mut new = pod.clone();
    let mut last = BTreeMap::new();
    for sidecar in &set.spec.containers {
        let name = &sidecar.container.name;
        let mut containers = new.spec.iter_mut().flat_map(|spec| &mut spec.containers);
        let Some(container) = containers.find(|container| container.name == *name) else {
            continue;
        };
        if container.image != sidecar.container.image {
            container.image.clone_from(&sidecar.container.image);
            let image_id = container_status(pod, name)
                .map(|status| status.image_id.clone())
                .unwrap_or_default();
            last.insert(name.clone(), LastStatus { image_id });
        }
    }
    let mut states = record::map_of::<UpdateState>(pod, INPLACE_UPDATE_STATE);
    let state = UpdateState {
        revision: revision.to_owned(),
        update_timestamp: now.clone(),
        last_container_statuses: last,
    };
    states.insert(set.metadata.name.clone().unwrap_or_default(), state);
    record::annotate(&mut new, INPLACE_UPDATE_STATE, serde_json::to_string(&states)?);
    record::write(&mut new, set, hashes, revision, now.clone())?;
    Ok(new)
}

/// The condition of a pod after a set reported whether it can upgrade it; `None` when it says so already, or when no
/// set has ever reported that it cannot.
pub fn condition(pod: &Pod, set: &str, upgradable: bool, now: &Time) -> Option<PodCondition> {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let before = conditions.into_iter().find(|condition| condition.type_ == UPGRADABLE);
    if before.is_none() && upgradable {
        return None;
    }
    let message = before.and_then(|before| before.message.as_deref()).unwrap_or("{}");
    let mut sets: BTreeMap<String, bool> = serde_json::from_str(message).unwrap_or_default();
    if sets.insert(set.to_owned(), upgradable) == Some(upgradable) {
        return None;
    }
    let all = sets.values().all(|upgradable| *upgradable);
    let status = if all { "True" } else { "False" };
    let reason = if all {
        "AllSidecarsetUpgradable"
    } else {
        "UpdateImmutableField"
    };
    let since = before.filter(|before| before.status == status);
    Some(PodCondition {
        type_: UPGRADABLE.to_owned(),
        status: status.to_owned(),
        reason: Some(reason.to_owned()),
        message: serde_json::to_string(&sets).ok(),
        last_transition_time: since.map_or(Some(now.clone()), |since| since.last_transition_time.clone()),
        ..PodCondition::default()
    })
}

/// Puts a condition in the place of the one of its type.
pub fn set_condition(pod: &mut Pod, condition: PodCondition) {
    let conditions = pod.status.get_or_insert_default().conditions.get_or_insert_default();
    match conditions.iter_mut().find(|present| present.type_ == condition.type_) {
        Some(present) => *present = condition,
        None => conditions.push(condition),
    }
}

#[cfg(test)]
mod tests {
    use kubewright::jiff::Timestamp;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_condition_is_written_when_it_says_something_new() {
        let now = Time(Timestamp::UNIX_EPOCH);
        let mut pod = Pod::default();
        let mut check = |set: &str, upgradable: bool, expected: Option<(&str, &str, &str)>| {
            let made = condition(&pod, set, upgradable, &now);
            let told = made.clone().map(|made| {
                let text = |text: Option<String>| text.unwrap_or_default();
                (made.status, text(made.reason), text(made.message))
            });
            let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
            assert_eq!(told, expected, "{set} {upgradable}");
            made.into_iter().for_each(|made| set_condition(&mut pod, made));
        };
        check("a", true, None);
        check("a", false, Some(("False", "UpdateImmutableField", r#"{"a":false}"#)));
        check("a", false, None);
        check(
            "b",
            true,
            Some(("False", "UpdateImmutableField", r#"{"a":false,"b":true}"#)),
        );
        check(
            "a",
            true,
            Some(("True", "AllSidecarsetUpgradable", r#"{"a":true,"b":true}"#)),
        );
    }

    #[test]
    fn only_images_and_records_change() {
        let spec = json!({"containers": [{"name": "s", "image": "v2", "command": ["not", "taken"]}]});
        let set = SidecarSet::new("set", serde_json::from_value(spec).expect("a spec"));
        let pod: Pod = serde_json::from_value(json!({
            "spec": {"containers": [{"name": "main", "image": "m"}, {"name": "s", "image": "v1"}]},
            "status": {"containerStatuses": [
                {"name": "s", "image": "v1", "imageID": "id-1", "ready": true, "restartCount": 0},
            ]},
        }))
        .expect("a pod");
        let hashes = crate::sidecar::hash::of(&set.spec);
        let new = upgraded(&pod, &set, &hashes, "set-1", &Time(Timestamp::UNIX_EPOCH)).expect("JSON");
        let spec = serde_json::to_value(&new.spec).expect("JSON");
        assert_eq!(
            spec,
            json!({"containers": [{"name": "main", "image": "m"}, {"name": "s", "image": "v2"}]})
        );
        let states = record::map_of::<UpdateState>(&new, INPLACE_UPDATE_STATE);
        assert_eq!(states["set"].last_container_statuses["s"].image_id, "id-1");
        assert_eq!(record::hashes(&new, "set"), Some(hashes));
    }
}
