//! The objects that a pod refers to and cannot start without: Secrets and ConfigMaps of its environment and its
//! volumes.

use kubewright::{Client, Result};
use kubewright_objects::api::core::v1::{ConfigMap, Container, KeyToPath, Pod, Secret};
use kubewright_objects::meta;

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
        let mut add = |is_secret: bool, name: &str, items: Option<&[KeyToPath]>, optional: Option<bool>| {
            if optional == Some(true) {
                return;
            }
            let need = |key: Option<String>| Need {
                is_secret,
                name: name.to_owned(),
                key,
                place: Place::Volume(volume.name.clone()),
            };
            match items.unwrap_or_default() {
                [] => needs.push(need(None)),
                items => needs.extend(items.iter().map(|item| need(Some(item.key.clone())))),
            }
        };
        if let Some(source) = &volume.secret {
            let name = source.secret_name.as_deref().unwrap_or_default();
            add(true, name, source.items.as_deref(), source.optional);
        }
        if let Some(source) = &volume.config_map {
            add(false, &source.name, source.items.as_deref(), source.optional);
        }
        let projected = volume
            .projected
            .iter()
            .flat_map(|source| source.sources.iter().flatten());
        for part in projected {
            if let Some(source) = &part.secret {
                add(true, &source.name, source.items.as_deref(), source.optional);
            }
            if let Some(source) = &part.config_map {
                // It comes into every namespace by itself, and all pods have it.
                let is_root = source.name == "kube-root-ca.crt";
                add(
                    false,
                    &source.name,
                    source.items.as_deref(),
                    source.optional.or(is_root.then_some(true)),
                );
            }
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

/// Why a container may not run as the user that it asks for (`verifyRunAsNonRoot`). Which user an image has is not known.
pub(super) fn breaks_non_root(pod: &Pod, container: &Container) -> Option<String> {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref());
    let own = container.security_context.as_ref();
    let demands = own
        .and_then(|own| own.run_as_non_root)
        .or(of_pod.and_then(|all| all.run_as_non_root));
    let user = own
        .and_then(|own| own.run_as_user)
        .or(of_pod.and_then(|all| all.run_as_user));
    (demands == Some(true) && user == Some(0)).then(|| {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let (name, uid) = (meta::name(&pod.metadata), meta::uid(&pod.metadata));
        format!(
            "container's runAsUser breaks non-root policy (pod: \"{name}_{namespace}({uid})\", container: {})",
            container.name
        )
    })
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
            (Some(keys), Some(key)) if !keys.contains(key) && matches!(need.place, Place::Volume(_)) => {
                // `secret.MakePayload`, `configmap.MakePayload`.
                let what = if need.is_secret { "secret" } else { "config" };
                format!("references non-existent {what} key: {key}")
            }
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
    fn users_that_may_not_be_root() {
        let check = |of_pod: Value, own: Value, expected: bool| {
            let container = json!({ "name": "c", "securityContext": own });
            let pod = json!({ "spec": { "securityContext": of_pod, "containers": [container] } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            let container = &pod.spec.as_ref().expect("a spec").containers[0];
            assert_eq!(breaks_non_root(&pod, container).is_some(), expected, "{of_pod} {own}");
        };
        check(json!({}), json!({}), false);
        check(json!({ "runAsNonRoot": true }), json!({}), false);
        check(json!({ "runAsNonRoot": true, "runAsUser": 0 }), json!({}), true);
        check(
            json!({ "runAsNonRoot": true, "runAsUser": 0 }),
            json!({ "runAsUser": 7 }),
            false,
        );
        check(json!({ "runAsNonRoot": true }), json!({ "runAsUser": 0 }), true);
        check(json!({ "runAsUser": 0 }), json!({ "runAsNonRoot": true }), true);
        check(
            json!({ "runAsNonRoot": true, "runAsUser": 0 }),
            json!({ "runAsNonRoot": false }),
            false,
        );
    }

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
                "volumes": [
                    { "name": "v", "secret": { "secretName": "t" } }, { "name": "e", "emptyDir": {} },
                    { "name": "w", "configMap": { "name": "x", "items": [{ "key": "k", "path": "p" }] } },
                    { "name": "p", "projected": { "sources": [
                        { "secret": { "name": "y", "items": [{ "key": "l", "path": "p" }] } },
                        { "configMap": { "name": "z" } }, { "configMap": { "name": "o", "optional": true } },
                    ] } },
                ],
            }),
            &[
                "secret t - for volume v",
                "map x k for volume w",
                "secret y l for volume p",
                "map z - for volume p",
                "map m - for container c",
                "secret s k for container c",
            ],
        );
    }
}
