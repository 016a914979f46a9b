//! Which SidecarSets cannot be together: two that may mean the same pod and put different things under one name into
//! it.

use kubewright::FieldErrors;
use kubewright::webhook::field_path;
use sidecarset_api::v1alpha1::{SidecarContainer, SidecarSet};

use super::selecting;

/// The parts of `set` that are taken by another one that may select the same pods (`validateSidecarConflict`).
pub fn check<'a>(set: &SidecarSet, others: impl IntoIterator<Item = &'a SidecarSet>) -> FieldErrors {
    let mut errors = FieldErrors::new();
    let meets = |other: &&SidecarSet| other.metadata.name != set.metadata.name && selecting::may_meet(set, other);
    for other in others.into_iter().filter(meets) {
        containers(
            "spec.containers",
            &set.spec.containers,
            &other.spec.containers,
            other,
            &mut errors,
        );
        let (ours, theirs) = (&set.spec.init_containers, &other.spec.init_containers);
        containers("spec.initContainers", ours, theirs, other, &mut errors);
        volumes(set, other, &mut errors);
    }
    errors
}

fn containers(
    path: &str,
    ours: &[SidecarContainer],
    theirs: &[SidecarContainer],
    other: &SidecarSet,
    errors: &mut FieldErrors,
) {
    for (index, container) in ours.iter().enumerate() {
        let name = &container.container.name;
        if theirs.iter().any(|taken| taken.container.name == *name) {
            let detail = format!("container {name} already exist in {}", name_of(other));
            errors.invalid(format!("{}.name", field_path(path, index)), name, detail);
        }
    }
}

fn volumes(set: &SidecarSet, other: &SidecarSet, errors: &mut FieldErrors) {
    for (index, volume) in set.spec.volumes.iter().enumerate() {
        let mut theirs = other.spec.volumes.iter();
        if theirs.any(|taken| taken.name == volume.name && taken != volume) {
            let name = &volume.name;
            let detail = format!("volume {name} is in conflict with {}", name_of(other));
            errors.invalid(format!("{}.name", field_path("spec.volumes", index)), name, detail);
        }
    }
}

fn name_of(set: &SidecarSet) -> &str {
    set.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_name_is_taken_where_pods_are_shared() {
        let set = |name: &str, spec: Value| SidecarSet::new(name, serde_json::from_value(spec).expect("a spec"));
        let spec = |app: &str, container: &str, volume: Value| {
            json!({
                "selector": {"matchLabels": {"app": app}}, "containers": [{"name": container}],
                "volumes": [{"name": "v", "emptyDir": volume}],
            })
        };
        let first = set("first", spec("a", "c", json!({})));
        let check = |other: SidecarSet, expected: &str| {
            assert_eq!(super::check(&other, [&first]).to_string(), expected, "{other:?}");
        };
        check(first.clone(), "[]");
        check(set("second", spec("b", "c", json!({}))), "[]");
        check(set("second", spec("a", "d", json!({}))), "[]");
        check(
            set("second", spec("a", "c", json!({}))),
            "spec.containers[0].name: Invalid value: \"c\": container c already exist in first",
        );
        check(
            set("second", spec("a", "d", json!({"medium": "Memory"}))),
            "spec.volumes[0].name: Invalid value: \"v\": volume v is in conflict with first",
        );
    }
}
