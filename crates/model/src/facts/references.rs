//! The objects that pods and persistent volumes refer to: a kubelet needs them besides the pods and volumes.
//!
//! The functions answer names in the namespace of the pod, in the order of the pod (`VisitPodSecretNames`,
//! `VisitPodConfigmapNames`, `VisitPVSecretNames`). Empty names are left out.

use serde_json::Value;

use super::pods::CONTAINER_LISTS;
use crate::object;
use crate::values::{get, items};

/// The annotation of a pod that a kubelet made from a file, and shows in the API only (`MirrorPodAnnotationKey`).
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// Whether the pod is the picture of one that only its kubelet knows.
pub fn is_mirror(pod: &Value) -> bool {
    !get(pod, &["metadata", "annotations", MIRROR]).is_null()
}

/// Sources of volumes that name a secret, and where.
const SECRET_SOURCES: [&[&str]; 10] = [
    &["azureFile", "secretName"],
    &["cephfs", "secretRef", "name"],
    &["cinder", "secretRef", "name"],
    &["flexVolume", "secretRef", "name"],
    &["rbd", "secretRef", "name"],
    &["secret", "secretName"],
    &["scaleIO", "secretRef", "name"],
    &["iscsi", "secretRef", "name"],
    &["storageos", "secretRef", "name"],
    &["csi", "nodePublishSecretRef", "name"],
];

fn name<'a>(value: &'a Value, path: &[&str]) -> Option<&'a str> {
    get(value, path).as_str().filter(|name| !name.is_empty())
}

fn containers(pod: &Value) -> impl Iterator<Item = &Value> {
    CONTAINER_LISTS.iter().flat_map(|list| items(pod, &["spec", list]))
}

/// The names that containers take variables from: all of `whole`, or one key by `single`.
fn of_environment<'a>(pod: &'a Value, whole: &'a str, single: &'a str) -> impl Iterator<Item = &'a str> {
    containers(pod).flat_map(move |container| {
        let sources = items(container, &["envFrom"]).iter();
        let variables = items(container, &["env"]).iter();
        sources
            .filter_map(move |source| name(source, &[whole, "name"]))
            .chain(variables.filter_map(move |variable| name(variable, &["valueFrom", single, "name"])))
    })
}

/// The sources of projected volumes.
pub fn projected(pod: &Value) -> impl Iterator<Item = &Value> {
    items(pod, &["spec", "volumes"])
        .iter()
        .flat_map(|volume| items(volume, &["projected", "sources"]))
}

/// The secrets of a pod.
pub fn secrets(pod: &Value) -> impl Iterator<Item = &str> {
    let pulls = items(pod, &["spec", "imagePullSecrets"]).iter();
    let of_volumes = items(pod, &["spec", "volumes"])
        .iter()
        .flat_map(|volume| SECRET_SOURCES.iter().filter_map(|path| name(volume, path)));
    pulls
        .filter_map(|secret| name(secret, &["name"]))
        .chain(of_environment(pod, "secretRef", "secretKeyRef"))
        .chain(of_volumes)
        .chain(projected(pod).filter_map(|source| name(source, &["secret", "name"])))
}

/// The ConfigMaps of a pod.
pub fn config_maps(pod: &Value) -> impl Iterator<Item = &str> {
    let volumes = items(pod, &["spec", "volumes"]).iter();
    of_environment(pod, "configMapRef", "configMapKeyRef")
        .chain(volumes.filter_map(|volume| name(volume, &["configMap", "name"])))
        .chain(projected(pod).filter_map(|source| name(source, &["configMap", "name"])))
}

/// The claim that a volume of the pod is, by name or made for the pod.
pub fn volume_claim(pod: &Value, volume: &Value) -> Option<String> {
    if let Some(claim) = name(volume, &["persistentVolumeClaim", "claimName"]) {
        return Some(claim.to_owned());
    }
    let own = get(volume, &["ephemeral"]).is_object();
    own.then(|| {
        format!(
            "{}-{}",
            object::name(pod),
            get(volume, &["name"]).as_str().unwrap_or("")
        )
    })
}

/// The PersistentVolumeClaims of a pod.
pub fn volume_claims(pod: &Value) -> impl Iterator<Item = String> {
    let volumes = items(pod, &["spec", "volumes"]).iter();
    volumes.filter_map(move |volume| volume_claim(pod, volume))
}

/// The ResourceClaims of a pod, as far as they are known: of a template the status says which claim was made.
pub fn resource_claims(pod: &Value) -> impl Iterator<Item = &str> {
    let statuses = || items(pod, &["status", "resourceClaimStatuses"]).iter();
    let wanted = items(pod, &["spec", "resourceClaims"]).iter();
    let claims = wanted.filter_map(move |claim| {
        name(claim, &["resourceClaimName"]).or_else(|| {
            let made = statuses().find(|status| get(status, &["name"]) == get(claim, &["name"]))?;
            name(made, &["resourceClaimName"])
        })
    });
    claims.chain(name(
        pod,
        &["status", "extendedResourceClaimStatus", "resourceClaimName"],
    ))
}

/// Sources of persistent volumes whose secret is in the claim's namespace unless they name one.
const CLAIMED: [&str; 5] = ["cephfs", "flexVolume", "rbd", "scaleIO", "iscsi"];
/// References that always name their namespace.
const NAMED: [&[&str]; 5] = [
    &["cinder", "secretRef"],
    &["storageos", "secretRef"],
    &["csi", "nodePublishSecretRef"],
    &["csi", "nodeStageSecretRef"],
    &["csi", "nodeExpandSecretRef"],
];

/// The secrets of a persistent volume that the kubelet reads, each as `namespace/name`.
pub fn volume_secrets(volume: &Value) -> Vec<String> {
    let spec = get(volume, &["spec"]);
    let claimed = get(spec, &["claimRef", "namespace"]).as_str().unwrap_or("");
    let key = |namespace: Option<&str>, name: Option<&str>| Some(format!("{}/{}", namespace.unwrap_or(claimed), name?));
    let azure = get(spec, &["azureFile"]);
    let mut all = vec![key(name(azure, &["secretNamespace"]), name(azure, &["secretName"]))];
    for source in CLAIMED {
        let secret = get(spec, &[source, "secretRef"]);
        all.push(key(name(secret, &["namespace"]), name(secret, &["name"])));
    }
    for path in NAMED {
        let secret = get(spec, path);
        let namespace = name(secret, &["namespace"]).unwrap_or("");
        all.push(key(Some(namespace), name(secret, &["name"])));
    }
    all.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_secrets_of_a_volume_are_in_its_claims_namespace_unless_it_says_another() {
        #[track_caller]
        fn check(source: &Value, expected: &[&str]) {
            let mut volume = json!({"spec": {"claimRef": {"namespace": "n", "name": "c"}}});
            for (key, value) in source.as_object().unwrap() {
                volume["spec"][key] = value.clone();
            }
            assert_eq!(volume_secrets(&volume), expected, "{source}");
        }
        check(&json!({"azureFile": {"secretName": "s"}}), &["n/s"]);
        check(
            &json!({"azureFile": {"secretName": "s", "secretNamespace": "m"}}),
            &["m/s"],
        );
        check(&json!({"rbd": {"secretRef": {"name": "s"}}}), &["n/s"]);
        check(
            &json!({"iscsi": {"secretRef": {"name": "s", "namespace": "m"}}}),
            &["m/s"],
        );
        check(&json!({"cinder": {"secretRef": {"name": "s"}}}), &["/s"]);
        let csi = json!({"csi": {"nodeStageSecretRef": {"name": "s", "namespace": "m"},
            "controllerPublishSecretRef": {"name": "unseen", "namespace": "m"}}});
        check(&csi, &["m/s"]);
        check(&json!({"rbd": {"secretRef": {"name": ""}}}), &[]);
        check(&json!({"rbd": 7}), &[]);
    }

    #[test]
    fn a_claim_of_a_template_is_known_when_the_status_says_it() {
        let mut pod = json!({"spec": {"resourceClaims": [
            {"name": "a", "resourceClaimName": "direct"}, {"name": "b", "resourceClaimTemplateName": "t"}]}});
        assert_eq!(resource_claims(&pod).collect::<Vec<_>>(), ["direct"]);
        pod["status"] = json!({"resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}],
            "extendedResourceClaimStatus": {"resourceClaimName": "extended"}});
        assert_eq!(
            resource_claims(&pod).collect::<Vec<_>>(),
            ["direct", "made", "extended"]
        );
    }
}
