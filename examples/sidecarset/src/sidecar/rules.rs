//! The rules for a SidecarSet by itself, and its immutable fields (`validateSidecarSetSpec`). Conflicts with other sets
//! are in `conflicts.rs`; fields of containers and volumes are the API server's own task, see `webhook`.

use kubewright::FieldErrors;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright::k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubewright::kube::core::Selector;
use kubewright::webhook::field_path;
use sidecarset_api::v1alpha1::{SidecarContainer, SidecarSet, UpdateStrategyType, UpgradeType};

use super::{hash, selecting, source};

const LONGEST_NAME: usize = 63;

/// The errors in a SidecarSet.
pub fn check(set: &SidecarSet) -> FieldErrors {
    let mut errors = FieldErrors::new();
    name(set, &mut errors);
    selectors(set, &mut errors);
    if set.spec.containers.is_empty() && set.spec.init_containers.is_empty() {
        errors.required(
            "spec.containers",
            "no initContainer or container defined for SidecarSet",
        );
    }
    for (path, container) in all_containers(set) {
        own_fields(&path, container, &mut errors);
    }
    strategy(set, &mut errors);
    if set.spec.revision_history_limit.is_some_and(|limit| limit < 0) {
        let limit = set.spec.revision_history_limit;
        errors.invalid("spec.revisionHistoryLimit", limit, "must be greater than or equal to 0");
    }
    errors
}

/// The immutable fields: the names of containers and how they are upgraded. Containers may go.
pub fn check_update(old: &SidecarSet, new: &SidecarSet) -> FieldErrors {
    let mut errors = FieldErrors::new();
    for (index, container) in new.spec.containers.iter().enumerate() {
        let path = field_path("spec.containers", index);
        let name = &container.container.name;
        let mut before = old.spec.containers.iter();
        match before.find(|before| before.container.name == *name) {
            None => errors.invalid(format!("{path}.name"), name, format!("container {name} is not found")),
            Some(before) if upgrade_type(before) != upgrade_type(container) => {
                let detail = format!("container {name} upgradeType is immutable");
                errors.invalid(
                    format!("{path}.upgradeStrategy.upgradeType"),
                    upgrade_type(container),
                    detail,
                );
            }
            Some(_) => {}
        }
    }
    errors
}

fn upgrade_type(container: &SidecarContainer) -> UpgradeType {
    let strategy = container.upgrade_strategy.as_ref();
    strategy
        .and_then(|strategy| strategy.upgrade_type)
        .unwrap_or(UpgradeType::ColdUpgrade)
}

fn all_containers(set: &SidecarSet) -> impl Iterator<Item = (String, &SidecarContainer)> {
    let numbered = |list: &'static str| move |(index, container)| (field_path(list, index), container);
    let containers = set.spec.containers.iter().enumerate().map(numbered("spec.containers"));
    let init = set
        .spec
        .init_containers
        .iter()
        .enumerate()
        .map(numbered("spec.initContainers"));
    containers.chain(init)
}

fn name(set: &SidecarSet, errors: &mut FieldErrors) {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        errors.invalid("metadata.name", name, "must consist of alphanumeric characters or '-'");
    }
    if name.len() > LONGEST_NAME {
        errors.too_long("metadata.name", LONGEST_NAME);
    }
}

fn selectors(set: &SidecarSet, errors: &mut FieldErrors) {
    let mut check = |path: &str, selector: &LabelSelector| {
        if selecting::is_empty(selector) {
            errors.invalid(path, selector, "empty selector is not valid for sidecarset.");
        } else if let Err(why) = Selector::try_from(selector.clone()) {
            errors.invalid(path, selector, why.to_string());
        }
    };
    if let Some(selector) = &set.spec.selector {
        check("spec.selector", selector);
    }
    if let Some(selector) = &set.spec.namespace_selector {
        check("spec.namespaceSelector", selector);
    }
    if let Some(selector) = &set.spec.update_strategy.selector {
        check("spec.updateStrategy.selector", selector);
    }
    if set.spec.selector.is_none() {
        errors.required("spec.selector", "no selector defined for SidecarSet");
    }
}

/// The fields beside those of a `core/v1` Container.
fn own_fields(path: &str, container: &SidecarContainer, errors: &mut FieldErrors) {
    if upgrade_type(container) == UpgradeType::HotUpgrade {
        let detail = "HotUpgrade is not supported by this operator";
        errors.forbidden(format!("{path}.upgradeStrategy.upgradeType"), detail);
    }
    let unsupported = [
        ("resourcesPolicy", &container.resources_policy),
        ("shareVolumeDevicePolicy", &container.share_volume_device_policy),
    ];
    for (field, _) in unsupported.iter().filter(|(_, value)| value.is_some()) {
        errors.forbidden(
            format!("{path}.{field}"),
            format!("{field} is not supported by this operator"),
        );
    }
    for (index, transfer) in container.transfer_env.iter().enumerate() {
        let path = field_path(format!("{path}.transferEnv"), index);
        let field_ref = transfer
            .source_container_name_from
            .as_ref()
            .and_then(|from| from.field_ref.as_ref());
        if let Some(field_ref) = field_ref {
            let fields = ["metadata.labels", "metadata.annotations"];
            if !fields
                .iter()
                .any(|field| source::key_in(&field_ref.field_path, field).is_some())
            {
                let detail = "must be metadata.labels['<KEY>'] or metadata.annotations['<KEY>']";
                let path = format!("{path}.sourceContainerNameFrom.fieldRef.fieldPath");
                errors.invalid(path, &field_ref.field_path, detail);
            }
        }
    }
}

fn strategy(set: &SidecarSet, errors: &mut FieldErrors) {
    let strategy = &set.spec.update_strategy;
    if strategy.type_ == Some(UpdateStrategyType::NotUpdate) {
        return;
    }
    if set.spec.init_containers.iter().any(hash::is_native_sidecar) {
        let detail = "The initContainer in-place upgrade is not currently supported.";
        errors.invalid("spec.updateStrategy.type", UpdateStrategyType::RollingUpdate, detail);
    }
    let keeps_some = strategy.partition.as_ref().is_some_and(|partition| {
        !matches!(partition, IntOrString::Int(0)) && *partition != IntOrString::String("0%".to_owned())
    });
    if keeps_some && strategy.selector.is_some() {
        let detail = "Partition and Selector cannot be used together";
        errors.invalid("spec.updateStrategy.partition", &strategy.partition, detail);
    }
    for (path, number) in [
        ("partition", &strategy.partition),
        ("maxUnavailable", &strategy.max_unavailable),
    ] {
        if let Some(number) = number.as_ref().filter(|number| !is_amount(number)) {
            let detail = "must be a non-negative integer or a percentage (e.g. \"20%\")";
            errors.invalid(format!("spec.updateStrategy.{path}"), number, detail);
        }
    }
}

/// Whether it is a number of pods or a percentage of them.
fn is_amount(number: &IntOrString) -> bool {
    match number {
        IntOrString::Int(number) => *number >= 0,
        IntOrString::String(text) => text
            .strip_suffix('%')
            .is_some_and(|digits| digits.parse::<u16>().is_ok() && digits.bytes().all(|byte| byte.is_ascii_digit())),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn set(spec: Value) -> SidecarSet {
        SidecarSet::new("set", serde_json::from_value(spec).expect("a spec"))
    }

    /// A set that is right, with these changes.
    fn with(changes: Value) -> SidecarSet {
        let mut spec =
            json!({"selector": {"matchLabels": {"app": "a"}}, "containers": [{"name": "c", "image": "c:1"}]});
        for (key, value) in changes.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        set(spec)
    }

    #[test]
    fn each_rule_names_its_field() {
        let check = |changes: Value, expected: &str| {
            let errors = super::check(&with(changes.clone())).to_string();
            assert_eq!(errors, expected, "{changes}");
        };
        let fine = "[]";
        check(json!({}), fine);
        check(
            json!({"selector": null}),
            "spec.selector: Required value: no selector defined for SidecarSet",
        );
        check(
            json!({"selector": {}}),
            "spec.selector: Invalid value: {}: empty selector is not valid for sidecarset.",
        );
        check(
            json!({"namespaceSelector": {}}),
            "spec.namespaceSelector: Invalid value: {}: empty selector is not valid for sidecarset.",
        );
        check(
            json!({"containers": []}),
            "spec.containers: Required value: no initContainer or container defined for SidecarSet",
        );
        let selector = json!({"matchLabels": {"canary": "true"}});
        check(json!({"updateStrategy": {"selector": selector, "partition": 0}}), fine);
        check(
            json!({"updateStrategy": {"selector": selector, "partition": "50%"}}),
            r#"spec.updateStrategy.partition: Invalid value: "50%": Partition and Selector cannot be used together"#,
        );
        let amount = r#"must be a non-negative integer or a percentage (e.g. "20%")"#;
        check(
            json!({"updateStrategy": {"maxUnavailable": "abc"}}),
            &format!(r#"spec.updateStrategy.maxUnavailable: Invalid value: "abc": {amount}"#),
        );
        check(
            json!({"updateStrategy": {"partition": -1}}),
            &format!("spec.updateStrategy.partition: Invalid value: -1: {amount}"),
        );
        let native = json!([{"name": "i", "image": "i:1", "restartPolicy": "Always"}]);
        check(
            json!({"initContainers": native}),
            "spec.updateStrategy.type: Invalid value: \"RollingUpdate\": The initContainer in-place upgrade is not currently supported.",
        );
        check(
            json!({"initContainers": native, "updateStrategy": {"type": "NotUpdate"}}),
            fine,
        );
        check(
            json!({"containers": [{"name": "c", "resourcesPolicy": {}, "upgradeStrategy": {"upgradeType": "HotUpgrade"}}]}),
            "[spec.containers[0].upgradeStrategy.upgradeType: Forbidden: HotUpgrade is not supported by this operator, \
             spec.containers[0].resourcesPolicy: Forbidden: resourcesPolicy is not supported by this operator]",
        );
        let from = json!({"fieldRef": {"fieldPath": "spec.nodeName"}});
        check(
            json!({"containers": [{"name": "c", "transferEnv": [{"sourceContainerNameFrom": from, "envName": "A"}]}]}),
            "spec.containers[0].transferEnv[0].sourceContainerNameFrom.fieldRef.fieldPath: Invalid value: \"spec.nodeName\": \
             must be metadata.labels['<KEY>'] or metadata.annotations['<KEY>']",
        );
    }

    #[test]
    fn names_have_letters_digits_and_hyphens() {
        let check = |name: &str, expected: usize| {
            let mut set = with(json!({}));
            set.metadata.name = Some(name.to_owned());
            assert_eq!(super::check(&set).len(), expected, "{name}");
        };
        check("log-agent", 0);
        check("log.agent", 1);
        check(&"a".repeat(63), 0);
        check(&"a".repeat(64), 1);
    }

    #[test]
    fn containers_keep_their_names_and_their_kind_of_upgrade() {
        let check = |containers: Value, expected: &str| {
            let errors = check_update(
                &with(json!({"containers": [{"name": "a"}, {"name": "b"}]})),
                &with(containers),
            );
            assert_eq!(errors.to_string(), expected);
        };
        check(json!({"containers": [{"name": "b", "image": "new"}]}), "[]");
        check(
            json!({"containers": [{"name": "a"}, {"name": "c"}]}),
            "spec.containers[1].name: Invalid value: \"c\": container c is not found",
        );
        check(
            json!({"containers": [{"name": "a", "upgradeStrategy": {"upgradeType": "HotUpgrade"}}]}),
            "spec.containers[0].upgradeStrategy.upgradeType: Invalid value: \"HotUpgrade\": container a upgradeType is immutable",
        );
    }
}
