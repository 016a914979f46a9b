//! Which claims a pod has, how they are made from templates, and which reservations remain. Pure.

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kubewright_objects::api::core::v1::{Pod, PodResourceClaim};
use kubewright_objects::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference, ResourceClaimTemplate};

use kubewright_objects::meta;
use kubewright_objects::pods;

/// The annotation of a claim with the entry of the pod that it was made for.
pub(crate) const ENTRY: &str = "resource.kubernetes.io/pod-claim-name";
/// How long the part of a name before the generated one may be.
const LONGEST: usize = 57;
/// How many consumers a claim may have (`ResourceClaimReservedForMaxSize`).
const CONSUMERS: usize = 256;

/// The entries of a pod.
pub(crate) fn entries(pod: &Pod) -> &[PodResourceClaim] {
    let spec = pod.spec.as_ref();
    spec.and_then(|spec| spec.resource_claims.as_deref())
        .unwrap_or_default()
}

/// What a pod was told about a claim from a template.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ClaimStatus<'a> {
    Nothing,
    /// It needs none.
    Unneeded,
    Claim(&'a str),
}

pub(crate) fn told<'a>(pod: &'a Pod, entry: &PodResourceClaim) -> ClaimStatus<'a> {
    let mut statuses = pod
        .status
        .iter()
        .flat_map(|status| status.resource_claim_statuses.iter().flatten());
    match statuses.find(|status| status.name == entry.name) {
        None => ClaimStatus::Nothing,
        Some(status) => status
            .resource_claim_name
            .as_deref()
            .map_or(ClaimStatus::Unneeded, ClaimStatus::Claim),
    }
}

/// The claim of an entry, as far as it is known.
pub(crate) fn claim_name<'a>(pod: &'a Pod, entry: &'a PodResourceClaim) -> Option<&'a str> {
    let own = entry.resource_claim_name.as_deref();
    own.or_else(|| match told(pod, entry) {
        ClaimStatus::Claim(name) => Some(name),
        _ => None,
    })
}

/// Whether a claim was made for this pod (`IsForPod`).
pub(crate) fn is_for(pod: &Pod, claim: &ResourceClaim) -> bool {
    meta::controller_of(&claim.metadata).is_some_and(|owner| owner.uid == meta::uid(&pod.metadata))
}

/// A claim of a pod, from a template.
pub(crate) fn claim(pod: &Pod, entry: &PodResourceClaim, template: &ResourceClaimTemplate) -> ResourceClaim {
    let from = template.spec.metadata.clone().unwrap_or_default();
    let mut annotations = from.annotations.unwrap_or_default();
    annotations.insert(ENTRY.to_owned(), entry.name.clone());
    ResourceClaim {
        metadata: ObjectMeta {
            generate_name: Some(base(meta::name(&pod.metadata), &entry.name)),
            namespace: pod.metadata.namespace.clone(),
            annotations: Some(annotations),
            labels: from.labels,
            owner_references: Some(vec![OwnerReference {
                api_version: "v1".to_owned(),
                kind: "Pod".to_owned(),
                name: meta::name(&pod.metadata).to_owned(),
                uid: meta::uid(&pod.metadata).to_owned(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        spec: template.spec.spec.clone(),
        status: None,
    }
}

/// The name before its generated part. Of long names both parts lose as large a share.
fn base(pod: &str, entry: &str) -> String {
    let whole = format!("{pod}-{entry}-");
    if whole.len() <= LONGEST {
        return whole;
    }
    let cut = |text: &str, of: usize| -> String { text.chars().take(text.len() * LONGEST / of).collect() };
    format!("{}-{}", cut(pod, whole.len()), cut(entry, whole.len()))
}

/// The claim with a reservation for a pod, if it is allocated and has none (`CanBeReserved`).
pub(crate) fn reserved(pod: &Pod, claim: &ResourceClaim) -> Option<ResourceClaim> {
    let status = claim.status.as_ref()?;
    status.allocation.as_ref()?;
    let there = status.reserved_for.as_deref().unwrap_or_default();
    let uid = meta::uid(&pod.metadata);
    if there.len() >= CONSUMERS || there.iter().any(|consumer| consumer.uid == uid) {
        return None;
    }
    let mut next = claim.clone();
    let consumers = next.status.as_mut()?.reserved_for.get_or_insert_default();
    consumers.push(ResourceClaimConsumerReference {
        api_group: None,
        name: meta::name(&pod.metadata).to_owned(),
        resource: "pods".to_owned(),
        uid: uid.to_owned(),
    });
    Some(next)
}

fn is_pod(consumer: &ResourceClaimConsumerReference) -> bool {
    consumer.resource == "pods" && consumer.api_group.as_deref().is_none_or(str::is_empty)
}

fn consumers(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    let status = claim.status.as_ref();
    status
        .and_then(|status| status.reserved_for.as_deref())
        .unwrap_or_default()
}

/// The pods that reserve a claim.
pub(crate) fn pods_of(claim: &ResourceClaim) -> impl Iterator<Item = &ResourceClaimConsumerReference> {
    consumers(claim).iter().filter(|consumer| is_pod(consumer))
}

/// The reservations without those of pods with these uids. What else reserves it is not known, and stays.
pub(crate) fn remaining(claim: &ResourceClaim, gone: &[String]) -> Vec<ResourceClaimConsumerReference> {
    let stays = |consumer: &&ResourceClaimConsumerReference| !is_pod(consumer) || !gone.contains(&consumer.uid);
    consumers(claim).iter().filter(stays).cloned().collect()
}

/// Whether a pod will not run any more (`isPodDone`).
pub(crate) fn is_finished(pod: &Pod) -> bool {
    pods::is_finished(pod) || (meta::is_deleting(&pod.metadata) && pods::node_of(pod).is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn names_of_claims() {
        let check = |pod: usize, entry: usize, expected: (usize, usize)| {
            let (pod, entry) = ("p".repeat(pod), "e".repeat(entry));
            let (pods, entries) = expected;
            let found = base(&pod, &entry);
            let expected = format!("{}-{}", "p".repeat(pods), "e".repeat(entries));
            assert_eq!(found.trim_end_matches('-'), expected);
            assert!(found.len() <= LONGEST);
        };
        check(3, 2, (3, 2));
        check(40, 15, (40, 15));
        check(60, 40, (33, 22));
    }

    fn claim_of(status: Value) -> ResourceClaim {
        let claim = json!({ "metadata": { "name": "c" }, "spec": {}, "status": status });
        serde_json::from_value(claim).expect("a claim")
    }

    #[test]
    fn reservations() {
        let pod: Pod = serde_json::from_value(json!({ "metadata": { "name": "p", "uid": "1" } })).expect("a pod");
        let check = |status: Value, expected: bool| {
            assert_eq!(
                reserved(&pod, &claim_of(status.clone())).is_some(),
                expected,
                "{status}"
            );
        };
        let of = |resource: &str, uid: &str| json!({ "resource": resource, "name": "p", "uid": uid });
        check(json!({}), false);
        check(json!({ "allocation": {} }), true);
        check(json!({ "allocation": {}, "reservedFor": [of("pods", "2")] }), true);
        check(json!({ "allocation": {}, "reservedFor": [of("pods", "1")] }), false);
        check(
            json!({ "allocation": {}, "reservedFor": vec![of("pods", "2"); CONSUMERS] }),
            false,
        );

        let claim = claim_of(json!({ "reservedFor": [of("pods", "1"), of("pods", "2"), of("others", "1")] }));
        let left: Vec<String> = remaining(&claim, &["1".to_owned()])
            .into_iter()
            .map(|one| one.resource + &one.uid)
            .collect();
        assert_eq!(left, ["pods2", "others1"]);
        assert_eq!(pods_of(&claim).count(), 2);
    }
}
