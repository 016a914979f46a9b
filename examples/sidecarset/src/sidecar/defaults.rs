//! The defaults of a SidecarSet. The fields of containers and volumes are the API server's own task, see `webhook`.

use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use sidecarset_api::v1alpha1::{
    PodInjectPolicy, ShareVolumePolicyType, SidecarContainer, SidecarSet, UpdateStrategyType, UpgradeType,
};

use super::hash::{self, HASH, HASH_WITHOUT_IMAGE};

/// How many ControllerRevisions are kept.
pub const REVISION_HISTORY_LIMIT: i32 = 10;

/// Fills in what is left open (`SetDefaultsSidecarSet`).
pub fn set(set: &mut SidecarSet) {
    let spec = &mut set.spec;
    let strategy = &mut spec.update_strategy;
    strategy.type_.get_or_insert(UpdateStrategyType::RollingUpdate);
    if strategy.type_ == Some(UpdateStrategyType::RollingUpdate) {
        strategy.max_unavailable.get_or_insert(IntOrString::Int(1));
        strategy.partition.get_or_insert(IntOrString::Int(0));
    }
    spec.revision_history_limit.get_or_insert(REVISION_HISTORY_LIMIT);
    for container in &mut spec.containers {
        set_of_container(container, PodInjectPolicy::Before);
    }
    for container in &mut spec.init_containers {
        set_of_container(container, PodInjectPolicy::After);
    }
}

/// Writes down the hashes of the SidecarSet, when all defaults are set.
pub fn annotate(set: &mut SidecarSet) {
    let hashes = hash::of(&set.spec);
    let annotations = set.metadata.annotations.get_or_insert_default();
    annotations.insert(HASH.to_owned(), hashes.full);
    annotations.insert(HASH_WITHOUT_IMAGE.to_owned(), hashes.without_image);
}

fn set_of_container(container: &mut SidecarContainer, policy: PodInjectPolicy) {
    container.pod_inject_policy.get_or_insert(policy);
    let upgrade = container.upgrade_strategy.get_or_insert_default();
    upgrade.upgrade_type.get_or_insert(UpgradeType::ColdUpgrade);
    let share = container.share_volume_policy.get_or_insert_default();
    share.type_.get_or_insert(ShareVolumePolicyType::Disabled);
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_is_left_open_is_filled_in_once() {
        let check = |spec: Value, expected: Value| {
            let mut once = SidecarSet::new("s", serde_json::from_value(spec.clone()).expect("a spec"));
            super::set(&mut once);
            annotate(&mut once);
            assert_eq!(serde_json::to_value(&once.spec).expect("JSON"), expected, "{spec}");
            let mut twice = once.clone();
            super::set(&mut twice);
            annotate(&mut twice);
            assert_eq!(once, twice, "{spec}");
        };
        let words = |policy: &str| {
            json!({
                "name": "c", "podInjectPolicy": policy,
                "upgradeStrategy": {"upgradeType": "ColdUpgrade"}, "shareVolumePolicy": {"type": "disabled"},
            })
        };
        let rolling = json!({"type": "RollingUpdate", "maxUnavailable": 1, "partition": 0});
        check(
            json!({"containers": [{"name": "c"}], "initContainers": [{"name": "c"}]}),
            json!({
                "containers": [words("BeforeAppContainer")], "initContainers": [words("AfterAppContainer")],
                "updateStrategy": rolling, "revisionHistoryLimit": 10,
            }),
        );
        let given = json!({
            "containers": [words("AfterAppContainer")], "revisionHistoryLimit": 2,
            "updateStrategy": {"type": "RollingUpdate", "maxUnavailable": "20%", "partition": 3},
        });
        check(given.clone(), given);
        check(
            json!({"updateStrategy": {"type": "NotUpdate"}}),
            json!({"updateStrategy": {"type": "NotUpdate"}, "revisionHistoryLimit": 10}),
        );
    }
}
