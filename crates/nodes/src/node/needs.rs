//! The objects that a pod refers to and cannot start without: Secrets and ConfigMaps of its environment and its
//! volumes.

use kubewright::k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};
use kubewright::{Client, Result};

/// A Secret or a ConfigMap that a pod needs, or one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) is_secret: bool,
    pub(super) name: String,
    pub(super) key: Option<String>,
    /// The container that it keeps from starting, or the volume that cannot be mounted.
    pub(super) place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Container(String),
    Volume(String),
}

/// All needs of a pod, volumes first, as a kubelet comes across them. An optional reference is none.
pub(super) fn of(pod: &Pod) -> Vec<Need> {
    let Some(spec) = pod.spec.as_ref() else {
        return vec![];
    };
    let mut needs = Vec::new();
    for volume in spec.volumes.iter().flatten() {
        let secret = volume.secret.as_ref().filter(|source| source.optional != Some(true));
        let map = volume
            .config_map
            .as_ref()
            .filter(|source| source.optional != Some(true));
        let names = [
            (true, secret.and_then(|source| source.secret_name.clone())),
            (false, map.map(|source| source.name.clone())),
        ];
        for (is_secret, name) in names {
            needs.extend(name.map(|name| Need {
                is_secret,
                name,
                key: None,
                place: Place::Volume(volume.name.clone()),
            }));
        }
    }
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        of_environment(container, &mut needs);
    }
    needs
}

fn of_environment(container: &Container, needs: &mut Vec<Need>) {
    let mut add = |is_secret: bool, name: &str, key: Option<&str>, optional: Option<bool>| {
        if optional != Some(true) {
            needs.push(Need {
                is_secret,
                name: name.to_owned(),
                key: key.map(str::to_owned),
                place: Place::Container(container.name.clone()),
            });
        }
    };
    for source in container.env_from.iter().flatten() {
        if let Some(map) = &source.config_map_ref {
            add(false, &map.name, None, map.optional);
        }
        if let Some(secret) = &source.secret_ref {
            add(true, &secret.name, None, secret.optional);
        }
    }
    for source in container
        .env
        .iter()
        .flatten()
        .filter_map(|variable| variable.value_from.as_ref())
    {
        if let Some(map) = &source.config_map_key_ref {
            add(false, &map.name, Some(&map.key), map.optional);
        }
        if let Some(secret) = &source.secret_key_ref {
            add(true, &secret.name, Some(&secret.key), secret.optional);
        }
    }
}

/// The needs that are not met, and why, in the kubelet's words.
pub(super) async fn unmet(pod: &Pod, client: &Client) -> Result<Vec<(Need, String)>> {
    let namespace = pod.metadata.namespace.as_deref();
    let mut unmet = Vec::new();
    for need in of(pod) {
        let (kind, lower) = if need.is_secret {
            ("Secret", "secret")
        } else {
            ("ConfigMap", "configmap")
        };
        let keys: Option<Vec<String>> = if need.is_secret {
            let found = client.get::<Secret>(namespace, &need.name).await?;
            found.map(|secret| secret.data.iter().flatten().map(|(key, _)| key.clone()).collect())
        } else {
            // Only the metadata of all ConfigMaps are watched.
            let found = client.live::<ConfigMap>(namespace, &need.name).await?;
            found.map(|map| {
                let binary = map.binary_data.iter().flatten().map(|(key, _)| key.clone());
                map.data
                    .iter()
                    .flatten()
                    .map(|(key, _)| key.clone())
                    .chain(binary)
                    .collect()
            })
        };
        let why = match (keys, &need.key) {
            (None, _) => format!("{lower} \"{}\" not found", need.name),
            (Some(keys), Some(key)) if !keys.contains(key) => {
                let namespace = namespace.unwrap_or_default();
                format!("couldn't find key {key} in {kind} {namespace}/{}", need.name)
            }
            _ => continue,
        };
        unmet.push((need, why));
    }
    Ok(unmet)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_pod_needs() {
        let check = |spec: Value, expected: &[&str]| {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
            let text = |need: &Need| {
                let place = match &need.place {
                    Place::Container(name) => format!("container {name}"),
                    Place::Volume(name) => format!("volume {name}"),
                };
                let kind = if need.is_secret { "secret" } else { "map" };
                format!(
                    "{kind} {} {} for {place}",
                    need.name,
                    need.key.as_deref().unwrap_or("-")
                )
            };
            assert_eq!(of(&pod).iter().map(text).collect::<Vec<_>>(), expected);
        };
        check(json!({ "containers": [{ "name": "c" }] }), &[]);
        check(
            json!({
                "containers": [{
                    "name": "c",
                    "envFrom": [{ "configMapRef": { "name": "m" } }, { "secretRef": { "name": "s", "optional": true } }],
                    "env": [{ "name": "A", "valueFrom": { "secretKeyRef": { "name": "s", "key": "k" } } }, { "name": "B", "value": "b" }],
                }],
                "volumes": [{ "name": "v", "secret": { "secretName": "t" } }, { "name": "e", "emptyDir": {} }],
            }),
            &[
                "secret t - for volume v",
                "map m - for container c",
                "secret s k for container c",
            ],
        );
    }
}
