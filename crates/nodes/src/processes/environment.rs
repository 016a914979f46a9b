//! The environment of a container: variables of Services, `envFrom`, `env`, with the rules of a kubelet
//! (`makeEnvironmentVariables`).
//!
//! The referenced objects are read first ([`Sources`]), and the rest is pure. Not here: paths in values, which are
//! rewritten by `paths`.

use std::collections::BTreeMap;

use kubewright::k8s_openapi::ByteString;
use kubewright::{Client, Result};
use kubewright_objects::api::core::v1::{
    ConfigMap, Container, EnvVarSource, ObjectFieldSelector, Pod, ResourceFieldSelector, Secret, Service,
};

use kubewright_objects::{meta, quantity};

/// The objects from which the environment of a pod's containers is made.
#[derive(Default)]
pub(crate) struct Sources {
    pub(super) secrets: BTreeMap<String, Secret>,
    pub(super) maps: BTreeMap<String, ConfigMap>,
    services: Vec<Service>,
    /// Where the API server is reached.
    pub(super) api: Option<(String, u16)>,
    /// The addresses of the pod and its node.
    pub(super) ip: String,
    pub(super) host: String,
}

impl Sources {
    /// Reads the objects that a pod refers to, in its environment and in its volumes.
    pub(super) async fn read(client: &Client, pod: &Pod, api: Option<(String, u16)>) -> Result<Sources> {
        let namespace = pod.metadata.namespace.as_deref();
        let mut sources = Sources {
            api,
            ..Sources::default()
        };
        let (secrets, maps) = named(pod);
        for name in secrets {
            if let Some(secret) = client.get::<Secret>(namespace, &name).await? {
                sources.secrets.insert(name, (*secret).clone());
            }
        }
        for name in maps {
            if let Some(map) = client.live::<ConfigMap>(namespace, &name).await? {
                sources.maps.insert(name, map);
            }
        }
        let wants_services = pod
            .spec
            .as_ref()
            .is_none_or(|spec| spec.enable_service_links != Some(false));
        if wants_services {
            let services = client.list::<Service>(namespace).await?;
            sources.services = services.iter().map(|service| (**service).clone()).collect();
        }
        Ok(sources)
    }

    /// The variables of a container, each once, in no order. Variables with values that lack something are an error, in
    /// words.
    pub(super) fn of(&self, pod: &Pod, container: &Container) -> Result<BTreeMap<String, String>, String> {
        let mut all = BTreeMap::new();
        for source in container.env_from.iter().flatten() {
            let prefix = source.prefix.as_deref().unwrap_or_default();
            if let Some(found) = source.config_map_ref.as_ref().and_then(|map| self.maps.get(&map.name)) {
                let texts = found.data.iter().flatten();
                all.extend(texts.map(|(key, value)| (format!("{prefix}{key}"), value.clone())));
            }
            if let Some(found) = source
                .secret_ref
                .as_ref()
                .and_then(|secret| self.secrets.get(&secret.name))
            {
                let texts = found.data.iter().flatten();
                all.extend(texts.map(|(key, value)| (format!("{prefix}{key}"), lossy(value))));
            }
        }
        let services = self.service_variables();
        for variable in container.env.iter().flatten() {
            let value = match (&variable.value, &variable.value_from) {
                (Some(value), _) => {
                    let known = |name: &str| all.get(name).or_else(|| services.get(name)).cloned();
                    Some(expand(value, known))
                }
                (None, Some(source)) => self.value(pod, container, source)?,
                (None, None) => Some(String::new()),
            };
            if let Some(value) = value {
                all.insert(variable.name.clone(), value);
            }
        }
        for (name, value) in services {
            all.entry(name).or_insert(value);
        }
        Ok(all)
    }

    fn value(&self, pod: &Pod, container: &Container, source: &EnvVarSource) -> Result<Option<String>, String> {
        if let Some(field) = &source.field_ref {
            return self.field(pod, field).map(Some);
        }
        if let Some(resource) = &source.resource_field_ref {
            return resource_field(pod, container, resource).map(Some);
        }
        if let Some(key) = &source.config_map_key_ref {
            let found = self
                .maps
                .get(&key.name)
                .and_then(|map| map.data.as_ref()?.get(&key.key));
            return match (found, key.optional) {
                (Some(text), _) => Ok(Some(text.clone())),
                (None, Some(true)) => Ok(None),
                (None, _) => Err(format!("couldn't find key {} in ConfigMap {}", key.key, key.name)),
            };
        }
        if let Some(key) = &source.secret_key_ref {
            let found = self
                .secrets
                .get(&key.name)
                .and_then(|secret| secret.data.as_ref()?.get(&key.key));
            return match (found, key.optional) {
                (Some(bytes), _) => Ok(Some(lossy(bytes))),
                (None, Some(true)) => Ok(None),
                (None, _) => Err(format!("couldn't find key {} in Secret {}", key.key, key.name)),
            };
        }
        Err("a variable takes its value from a source that processes do not have".to_owned())
    }

    /// A field of the pod (`podFieldSelectorRuntimeValue`).
    pub(super) fn field(&self, pod: &Pod, field: &ObjectFieldSelector) -> Result<String, String> {
        let metadata = &pod.metadata;
        let spec = pod.spec.as_ref();
        let path = field.field_path.as_str();
        let keyed = |before: &str| path.strip_prefix(before)?.strip_prefix("['")?.strip_suffix("']");
        if let Some(key) = keyed("metadata.labels") {
            return Ok(metadata
                .labels
                .iter()
                .flatten()
                .find(|(name, _)| *name == key)
                .map_or_else(String::new, |(_, value)| value.clone()));
        }
        if let Some(key) = keyed("metadata.annotations") {
            return Ok(meta::annotation(metadata, key).unwrap_or_default().to_owned());
        }
        let lines = |map: Option<&BTreeMap<String, String>>| -> String {
            let lines = map.into_iter().flatten().map(|(key, value)| format!("{key}={value:?}"));
            lines.collect::<Vec<_>>().join("\n")
        };
        Ok(match path {
            "metadata.name" => meta::name(metadata).to_owned(),
            "metadata.namespace" => metadata.namespace.clone().unwrap_or_default(),
            "metadata.uid" => meta::uid(metadata).to_owned(),
            "metadata.labels" => lines(metadata.labels.as_ref()),
            "metadata.annotations" => lines(metadata.annotations.as_ref()),
            "spec.nodeName" => spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            "spec.serviceAccountName" => spec
                .and_then(|spec| spec.service_account_name.clone())
                .unwrap_or_default(),
            "status.hostIP" | "status.hostIPs" => self.host.clone(),
            "status.podIP" | "status.podIPs" => self.ip.clone(),
            other => return Err(format!("unsupported fieldPath: {other}")),
        })
    }

    /// The variables for the Services of the container's namespace, and for the API server (`envvars.FromServices`).
    fn service_variables(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        if let Some((host, port)) = &self.api {
            of_service(
                &mut all,
                "KUBERNETES",
                host,
                &[(Some("https".to_owned()), i32::from(*port), "tcp".to_owned())],
            );
        }
        for service in &self.services {
            let spec = service.spec.as_ref();
            let ip = spec.and_then(|spec| spec.cluster_ip.as_deref()).unwrap_or_default();
            let name = meta::name(&service.metadata);
            let ports: Vec<_> = spec
                .into_iter()
                .flat_map(|spec| spec.ports.iter().flatten())
                .map(|port| {
                    let protocol = port.protocol.as_deref().unwrap_or("TCP").to_ascii_lowercase();
                    (port.name.clone(), port.port, protocol)
                })
                .collect();
            if ip.is_empty() || ip == "None" || name == "kubernetes" {
                continue;
            }
            of_service(&mut all, &name.to_ascii_uppercase().replace('-', "_"), ip, &ports);
        }
        all
    }
}

fn of_service(all: &mut BTreeMap<String, String>, prefix: &str, host: &str, ports: &[(Option<String>, i32, String)]) {
    let mut add = |name: String, value: String| all.insert(format!("{prefix}_{name}"), value);
    add("SERVICE_HOST".to_owned(), host.to_owned());
    for (at, (name, port, protocol)) in ports.iter().enumerate() {
        let upper = protocol.to_ascii_uppercase();
        if at == 0 {
            add("SERVICE_PORT".to_owned(), port.to_string());
            add("PORT".to_owned(), format!("{protocol}://{host}:{port}"));
        }
        if let Some(name) = name {
            let name = name.to_ascii_uppercase().replace('-', "_");
            add(format!("SERVICE_PORT_{name}"), port.to_string());
        }
        let of_port = format!("PORT_{port}_{upper}");
        add(of_port.clone(), format!("{protocol}://{host}:{port}"));
        add(format!("{of_port}_PROTO"), protocol.clone());
        add(format!("{of_port}_PORT"), port.to_string());
        add(format!("{of_port}_ADDR"), host.to_owned());
    }
}

/// A container's own requests and limits (`resource.ExtractContainerResourceValue`).
pub(super) fn resource_field(
    pod: &Pod,
    container: &Container,
    field: &ResourceFieldSelector,
) -> Result<String, String> {
    let spec = pod.spec.iter();
    let mut all = spec.flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let of = match &field.container_name {
        Some(name) => all
            .find(|other| other.name == *name)
            .ok_or_else(|| format!("container {name} not found"))?,
        None => container,
    };
    let unsupported = || format!("unsupported container resource : {}", field.resource);
    let (kind, name) = field.resource.split_once('.').ok_or_else(unsupported)?;
    let resources = of.resources.as_ref();
    let amounts = match kind {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(unsupported()),
    };
    let milli: i128 = amounts
        .and_then(|amounts| amounts.get(name))
        .and_then(quantity::milli)
        .unwrap_or(0);
    let divisor = field
        .divisor
        .as_ref()
        .and_then(quantity::milli)
        .filter(|divisor| *divisor > 0)
        .unwrap_or(1000);
    let rounded = milli.saturating_add(divisor - 1) / divisor;
    Ok(rounded.to_string())
}

/// The Secrets and ConfigMaps that a pod names.
fn named(pod: &Pod) -> (Vec<String>, Vec<String>) {
    let (mut secrets, mut maps) = (Vec::new(), Vec::new());
    let spec = pod.spec.iter();
    for container in spec
        .clone()
        .flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers))
    {
        for source in container.env_from.iter().flatten() {
            maps.extend(source.config_map_ref.as_ref().map(|map| map.name.clone()));
            secrets.extend(source.secret_ref.as_ref().map(|secret| secret.name.clone()));
        }
        for source in container
            .env
            .iter()
            .flatten()
            .filter_map(|variable| variable.value_from.as_ref())
        {
            maps.extend(source.config_map_key_ref.as_ref().map(|key| key.name.clone()));
            secrets.extend(source.secret_key_ref.as_ref().map(|key| key.name.clone()));
        }
    }
    for volume in spec.flat_map(|spec| spec.volumes.iter().flatten()) {
        maps.extend(volume.config_map.as_ref().map(|map| map.name.clone()));
        secrets.extend(volume.secret.as_ref().and_then(|secret| secret.secret_name.clone()));
        for source in volume
            .projected
            .iter()
            .flat_map(|projected| projected.sources.iter().flatten())
        {
            maps.extend(source.config_map.as_ref().map(|map| map.name.clone()));
            secrets.extend(source.secret.as_ref().map(|secret| secret.name.clone()));
        }
    }
    (secrets, maps)
}

fn lossy(bytes: &ByteString) -> String {
    String::from_utf8_lossy(&bytes.0).into_owned()
}

/// Replaces `$(NAME)` by its known value, and `$$` by `$`; an unknown name stays (`expansion.Expand`).
pub(super) fn expand(text: &str, known: impl Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
        } else if let Some((name, after)) = rest.strip_prefix('(').and_then(|inner| inner.split_once(')')) {
            match known(name) {
                Some(value) => out.push_str(&value),
                None => out.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            out.push('$');
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn variables_in_texts() {
        let known = |name: &str| (name == "A").then(|| "a".to_owned());
        let check = |text: &str, expected: &str| assert_eq!(expand(text, known), expected, "{text}");
        check("$(A)/$(B)", "a/$(B)");
        check("$$(A) $A $", "$(A) $A $");
        check("$(A", "$(A");
        check("", "");
    }

    fn sources() -> Sources {
        let read = |value: Value| serde_json::from_value(value).expect("an object");
        Sources {
            maps: [(
                "m".to_owned(),
                serde_json::from_value(json!({ "data": { "K": "from-map", "L": "l" } })).expect("a map"),
            )]
            .into(),
            secrets: [(
                "s".to_owned(),
                serde_json::from_value(json!({ "data": { "P": "c2VjcmV0" } })).expect("a secret"),
            )]
            .into(),
            services: vec![read(json!({
                "metadata": { "name": "my-db" },
                "spec": { "clusterIP": "10.0.0.9", "ports": [{ "name": "sql", "port": 5432, "protocol": "TCP" }] },
            }))],
            api: Some(("127.0.0.1".to_owned(), 6443)),
            ip: "127.1.0.2".to_owned(),
            host: "127.0.0.1".to_owned(),
        }
    }

    #[test]
    fn where_values_come_from() {
        let check = |container: Value, name: &str, expected: &str| {
            let pod: Pod = serde_json::from_value(json!({
                "metadata": { "name": "p", "namespace": "n", "labels": { "app": "db" } },
                "spec": { "nodeName": "node", "containers": [] },
            }))
            .expect("a pod");
            let mut whole = json!({ "name": "c" });
            whole
                .as_object_mut()
                .expect("an object")
                .extend(container.as_object().expect("an object").clone());
            let parsed: Container = serde_json::from_value(whole).expect("a container");
            let found = sources()
                .of(&pod, &parsed)
                .map(|all| all.get(name).cloned().unwrap_or_else(|| "none".to_owned()));
            let (Ok(said) | Err(said)) = found;
            assert_eq!(said, expected, "{container} {name}");
        };
        let env = |value: Value| json!({ "env": [{ "name": "A", "valueFrom": value }] });
        check(
            json!({ "env": [{ "name": "A", "value": "x" }, { "name": "B", "value": "$(A)-$(C)" }] }),
            "B",
            "x-$(C)",
        );
        check(
            json!({ "envFrom": [{ "prefix": "X_", "configMapRef": { "name": "m" } }] }),
            "X_K",
            "from-map",
        );
        check(json!({ "envFrom": [{ "secretRef": { "name": "s" } }] }), "P", "secret");
        check(
            json!({ "envFrom": [{ "configMapRef": { "name": "m" } }], "env": [{ "name": "K", "value": "own" }] }),
            "K",
            "own",
        );
        check(
            env(json!({ "secretKeyRef": { "name": "s", "key": "P" } })),
            "A",
            "secret",
        );
        check(
            env(json!({ "secretKeyRef": { "name": "s", "key": "Q" } })),
            "A",
            "couldn't find key Q in Secret s",
        );
        check(
            env(json!({ "configMapKeyRef": { "name": "m", "key": "Q", "optional": true } })),
            "A",
            "none",
        );
        check(
            env(json!({ "fieldRef": { "fieldPath": "metadata.labels['app']" } })),
            "A",
            "db",
        );
        check(
            env(json!({ "fieldRef": { "fieldPath": "status.podIP" } })),
            "A",
            "127.1.0.2",
        );
        check(
            env(json!({ "fieldRef": { "fieldPath": "spec.other" } })),
            "A",
            "unsupported fieldPath: spec.other",
        );
        let limited = json!({
            "resources": { "limits": { "cpu": "1500m", "memory": "64Mi" } },
            "env": [{ "name": "A", "valueFrom": { "resourceFieldRef": { "resource": "limits.cpu" } } },
                    { "name": "M", "valueFrom": { "resourceFieldRef": { "resource": "limits.memory", "divisor": "1Mi" } } }],
        });
        check(limited.clone(), "A", "2");
        check(limited, "M", "64");
        check(json!({}), "MY_DB_SERVICE_HOST", "10.0.0.9");
        check(json!({}), "MY_DB_SERVICE_PORT_SQL", "5432");
        check(json!({}), "MY_DB_PORT_5432_TCP_ADDR", "10.0.0.9");
        check(json!({}), "KUBERNETES_SERVICE_PORT", "6443");
        check(
            json!({ "env": [{ "name": "A", "value": "$(KUBERNETES_SERVICE_HOST)" }] }),
            "A",
            "127.0.0.1",
        );
    }
}
