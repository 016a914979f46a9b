//! The claims of a StatefulSet's pods: their form, and their owners under `persistentVolumeClaimRetentionPolicy`
//! (KEP-1847).
//!
//! Pure. Invariants: with Retain and Retain the set owns nothing; a claim of an earlier set or pod of the same name is
//! not touched; where another controller owns a claim, our own references are taken back.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kubewright_objects::api::apps::v1::StatefulSet;
use kubewright_objects::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, Pod, Volume};

use kubewright_objects::meta;

/// Whether claims are deleted, with the set and with a scale down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Policy {
    pub(crate) when_deleted: bool,
    pub(crate) when_scaled: bool,
}

impl Policy {
    /// The policy of the spec; claims are retained unless it says otherwise.
    pub(crate) fn of(set: &StatefulSet) -> Policy {
        let policy = set
            .spec
            .as_ref()
            .and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
        let deletes = |of: Option<&String>| of.is_some_and(|of| of == "Delete");
        Policy {
            when_deleted: deletes(policy.and_then(|policy| policy.when_deleted.as_ref())),
            when_scaled: deletes(policy.and_then(|policy| policy.when_scaled.as_ref())),
        }
    }
}

/// The claims of the pod of that name, by the name of their template.
pub(crate) fn of_pod(set: &StatefulSet, pod: &str) -> Vec<(String, PersistentVolumeClaim)> {
    let Some(spec) = set.spec.as_ref() else { return vec![] };
    let selected: BTreeMap<String, String> = spec.selector.match_labels.clone().unwrap_or_default();
    let templates = spec.volume_claim_templates.iter().flatten();
    templates
        .map(|template| {
            let mut claim = template.clone();
            let of = meta::name(&template.metadata).to_owned();
            claim.metadata.name = Some(format!("{of}-{pod}"));
            claim.metadata.namespace = set.metadata.namespace.clone();
            claim.metadata.labels.get_or_insert_default().extend(selected.clone());
            claim.status = None;
            (of, claim)
        })
        .collect()
}

/// The volumes of the pod: its claims, and of those that it has already the ones that are no claims.
pub(crate) fn volumes(set: &StatefulSet, pod: &str, present: Vec<Volume>) -> Vec<Volume> {
    let claims = of_pod(set, pod);
    let mut volumes: Vec<Volume> = claims
        .iter()
        .map(|(name, claim)| Volume {
            name: name.clone(),
            persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
                claim_name: meta::name(&claim.metadata).to_owned(),
                read_only: None,
            }),
            ..Volume::default()
        })
        .collect();
    let named = |volume: &Volume| claims.iter().any(|(name, _)| *name == volume.name);
    volumes.extend(present.into_iter().filter(|volume| !named(volume)));
    volumes
}

/// Whether the reference names this object by kind and name.
fn names(reference: &OwnerReference, other: &OwnerReference) -> bool {
    let group = |version: &str| {
        version
            .split_once('/')
            .map_or(String::new(), |(group, _)| group.to_owned())
    };
    reference.kind == other.kind
        && reference.name == other.name
        && group(&reference.api_version) == group(&other.api_version)
}

/// Whether a claim belongs to an earlier object of the same name: a new pod must wait until it has gone.
pub(crate) fn is_stale(claim: &PersistentVolumeClaim, owner: &OwnerReference) -> bool {
    let references = claim.metadata.owner_references.iter().flatten();
    references
        .filter(|reference| names(reference, owner))
        .any(|reference| reference.uid != owner.uid)
}

/// The owners that the claim shall have; `None` when they are right (`isClaimOwnerUpToDate`,
/// `updateClaimOwnerRefForSetAndPod`). `scaled_down`: the set does not want the pod any more.
pub(crate) fn owners(
    policy: Policy,
    claim: &PersistentVolumeClaim,
    set: &OwnerReference,
    pod: &OwnerReference,
    scaled_down: bool,
) -> Option<Vec<OwnerReference>> {
    let present = claim.metadata.owner_references.clone().unwrap_or_default();
    if is_stale(claim, set) || is_stale(claim, pod) {
        return None;
    }
    let is_ours = |reference: &OwnerReference| names(reference, set) || names(reference, pod);
    let mut wanted: Vec<OwnerReference> = present
        .iter()
        .filter(|reference| !is_ours(reference))
        .cloned()
        .collect();
    let retains = !policy.when_deleted && !policy.when_scaled;
    let foreign = !retains && wanted.iter().any(|reference| reference.controller == Some(true));
    if !foreign {
        if policy.when_deleted && !(policy.when_scaled && scaled_down) {
            wanted.push(set.clone());
        }
        if policy.when_scaled && scaled_down {
            wanted.push(pod.clone());
        }
    }
    let key = |of: &[OwnerReference]| {
        let mut key: Vec<_> = of.iter().map(|of| (of.uid.clone(), of.controller)).collect();
        key.sort();
        key
    };
    (key(&present) != key(&wanted)).then_some(wanted)
}

/// A controller reference to a pod.
pub(crate) fn pod_reference(pod: &Pod) -> OwnerReference {
    meta::reference_to(pod)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(kind: &str, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: if kind == "Pod" { "v1" } else { "apps/v1" }.to_owned(),
            kind: kind.to_owned(),
            name: "x".to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: Some(true),
        }
    }

    #[test]
    fn owners_of_a_claim() {
        let of = |word: &str| match word {
            "set" => reference("StatefulSet", "set"),
            "pod" => reference("Pod", "pod"),
            other => reference("Other", other),
        };
        // when_deleted, when_scaled, scaled down, owners before => after ("same": untouched)
        let check = |when_deleted, when_scaled, scaled_down, before: &[&str], expected: &str| {
            let mut claim = PersistentVolumeClaim::default();
            claim.metadata.owner_references = Some(before.iter().map(|word| of(word)).collect());
            let policy = Policy {
                when_deleted,
                when_scaled,
            };
            let after = owners(policy, &claim, &of("set"), &of("pod"), scaled_down);
            let text = after.map(|after| after.iter().map(|of| of.uid.clone()).collect::<Vec<_>>().join(" "));
            assert_eq!(
                text.as_deref().unwrap_or("same"),
                expected,
                "{policy:?} {scaled_down} {before:?}"
            );
        };
        check(false, false, false, &[], "same");
        check(false, false, true, &[], "same");
        check(false, false, false, &["set"], "");
        check(true, false, false, &[], "set");
        check(true, false, true, &[], "set");
        check(true, false, false, &["set"], "same");
        check(false, true, false, &[], "same");
        check(false, true, true, &[], "pod");
        check(false, true, false, &["pod"], "");
        check(true, true, false, &[], "set");
        check(true, true, true, &["set"], "pod");
        check(true, true, false, &["pod"], "set");
        // Another controller has it.
        check(true, true, false, &["another"], "same");
        check(true, true, false, &["another", "set"], "another");
    }

    #[test]
    fn claims_of_earlier_objects_are_left_alone() {
        let mut claim = PersistentVolumeClaim::default();
        claim.metadata.owner_references = Some(vec![reference("Pod", "earlier")]);
        let policy = Policy {
            when_deleted: false,
            when_scaled: true,
        };
        let (set, pod) = (reference("StatefulSet", "set"), reference("Pod", "pod"));
        assert!(is_stale(&claim, &pod) && !is_stale(&claim, &set));
        assert_eq!(owners(policy, &claim, &set, &pod, true), None);
    }
}
