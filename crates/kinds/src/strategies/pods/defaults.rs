//! Defaults of a pod's spec: `SetDefaults_…` of core/v1 and the defaults of the conversion to the internal type.
//!
//! [`spec`] is for a pod and for every pod template; [`pod`] adds the defaults that only a pod itself gets.

use std::str::FromStr;

use kubewright_schema::quantity::Quantity;
use serde_json::{Value, json};

use super::images;
use crate::strategies::check::{Object, child, each, ensure, fill, fill_number, fill_text, get, text};
use kubewright_model::facts::amounts;
use kubewright_model::facts::needs::containers_need;
use kubewright_model::facts::pods::CONTAINER_LISTS;

/// Defaults of a `Pod`.
pub(crate) fn pod(object: &mut Value) {
    pod_but_whole(object);
    if let Some(pod) = object.as_object_mut().and_then(|object| child(object, "spec")) {
        whole_requests(pod);
    }
}

/// The same but for the pod-level resources.
pub(crate) fn pod_but_whole(object: &mut Value) {
    let Some(object) = object.as_object_mut() else { return };
    if let Some(status) = ensure(object, "status") {
        addresses(status);
    }
    let Some(pod) = ensure(object, "spec") else { return };
    spec(pod);
    fill(pod, "enableServiceLinks", true);
    let host_network = pod.get("hostNetwork") == Some(&Value::Bool(true));
    for list in ["initContainers", "containers"] {
        for container in each(pod, list) {
            requests_from_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
    let Some(whole) = child(pod, "resources") else { return };
    for list in ["limits", "requests"] {
        if let Some(list) = child(whole, list) {
            canonical_quantities(list);
        }
    }
}

/// `podIP` is the first of `podIPs`, and the one that counts where they differ.
fn addresses(status: &mut Object) {
    let first = status.get("podIPs").and_then(|list| list.pointer("/0/ip")).cloned();
    let single = text(status, "podIP").to_owned();
    match first {
        Some(first) if single.is_empty() => {
            status.insert("podIP".to_owned(), first);
        }
        Some(first) if first == single.as_str() => {}
        _ if single.is_empty() => {}
        _ => {
            status.insert("podIPs".to_owned(), json!([{"ip": single}]));
        }
    }
}

/// Defaults of a template: its metadata and spec, for workloads.
pub(crate) fn template(owner: &mut Object) {
    let Some(template) = ensure(owner, "template") else {
        return;
    };
    ensure(template, "metadata");
    if let Some(pod) = ensure(template, "spec") {
        spec(pod);
    }
}

/// Defaults of a `PodSpec`.
pub(crate) fn spec(pod: &mut Object) {
    fill_text(pod, "dnsPolicy", "ClusterFirst");
    fill_text(pod, "restartPolicy", "Always");
    fill_text(pod, "schedulerName", "default-scheduler");
    fill(pod, "securityContext", json!({}));
    fill(pod, "terminationGracePeriodSeconds", 30);
    service_account(pod);
    for source in each(pod, "volumes") {
        volume(source);
    }
    for list in CONTAINER_LISTS {
        for entry in each(pod, list) {
            container(entry);
        }
    }
    if let Some(overhead) = child(pod, "overhead") {
        canonical_quantities(overhead);
    }
    // Go writes a list that is empty here as nothing at all, except `containers`, which is always written.
    for list in ["initContainers", "ephemeralContainers", "volumes"] {
        if pod.get(list).and_then(Value::as_array).is_some_and(Vec::is_empty) {
            pod.remove(list);
        }
    }
    fill(pod, "containers", Value::Null);
}

/// `serviceAccount` is the old name of `serviceAccountName`: the server keeps both the same.
fn service_account(pod: &mut Object) {
    let new = text(pod, "serviceAccountName").to_owned();
    let name = if new.is_empty() {
        text(pod, "serviceAccount").to_owned()
    } else {
        new
    };
    if name.is_empty() {
        pod.remove("serviceAccount");
        pod.remove("serviceAccountName");
    } else {
        pod.insert("serviceAccountName".to_owned(), name.clone().into());
        pod.insert("serviceAccount".to_owned(), name.into());
    }
}

fn container(container: &mut Object) {
    let policy = pull_policy(text(container, "image"));
    fill_text(container, "imagePullPolicy", policy);
    fill_text(container, "terminationMessagePath", "/dev/termination-log");
    fill_text(container, "terminationMessagePolicy", "File");
    ensure(container, "resources");
    // Most containers have few fields: one pass over them is cheaper than a lookup of each that has defaults.
    for (field, value) in container.iter_mut() {
        match (field.as_str(), value) {
            ("ports", Value::Array(ports)) => {
                for port in ports.iter_mut().filter_map(Value::as_object_mut) {
                    fill_text(port, "protocol", "TCP");
                }
            }
            ("resources", Value::Object(resources)) if !resources.is_empty() => {
                for list in ["limits", "requests"] {
                    if let Some(list) = child(resources, list) {
                        canonical_quantities(list);
                    }
                }
            }
            ("env", Value::Array(entries)) => {
                entries.iter_mut().filter_map(Value::as_object_mut).for_each(variable);
            }
            ("livenessProbe" | "readinessProbe" | "startupProbe", Value::Object(probe)) => self::probe(probe),
            ("lifecycle", Value::Object(lifecycle)) => {
                for name in ["postStart", "preStop"] {
                    if let Some(get) = child(lifecycle, name).and_then(|handler| child(handler, "httpGet")) {
                        http_get(get);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Defaults of an `EnvVar`.
fn variable(entry: &mut Object) {
    if let Some(source) = child(entry, "valueFrom") {
        if let Some(field) = child(source, "fieldRef") {
            fill_text(field, "apiVersion", "v1");
        }
        if let Some(field) = child(source, "resourceFieldRef") {
            fill(field, "divisor", "0");
        }
    }
}

/// An image with the tag `latest` is pulled each time.
fn pull_policy(image: &str) -> &'static str {
    match images::tag_of(image) {
        Some("latest") => "Always",
        _ => "IfNotPresent",
    }
}

fn probe(probe: &mut Object) {
    fill_number(probe, "timeoutSeconds", 1);
    fill_number(probe, "periodSeconds", 10);
    fill_number(probe, "successThreshold", 1);
    fill_number(probe, "failureThreshold", 3);
    if let Some(get) = child(probe, "httpGet") {
        http_get(get);
    }
    if let Some(grpc) = child(probe, "grpc") {
        fill(grpc, "service", "");
    }
}

fn http_get(get: &mut Object) {
    fill_text(get, "path", "/");
    fill_text(get, "scheme", "HTTP");
}

/// Quantities are written in their canonical form (`0.5` becomes `500m`), numbers become text. A value that is not a
/// quantity stays for validation.
pub(crate) fn canonical_quantities(list: &mut Object) {
    for value in list.values_mut() {
        if let Some(quantity) = quantity(value) {
            let text = quantity.to_string();
            // Nothing is counted in less than thousandths.
            *value = if text.ends_with(['n', 'u']) {
                Quantity::new(quantity.milli_value(), -3, quantity.format()).to_string()
            } else {
                text
            }
            .into();
        }
    }
}

fn quantity(value: &Value) -> Option<Quantity> {
    match value {
        Value::String(text) => Quantity::from_str(text).ok(),
        Value::Number(number) => Quantity::from_str(&number.to_string()).ok(),
        _ => None,
    }
}

/// Defaults the pod-level requests: the sum of the containers' requests, or else the pod-level limit.
fn whole_requests(pod: &mut Object) {
    const COMPUTED: [&str; 2] = ["cpu", "memory"];
    // Few pods have pod-level resources, and counting their containers' needs takes a copy.
    if !pod.contains_key("resources") {
        return;
    }
    let sums = containers_need(&Value::Object(pod.clone()), "requests");
    let Some(whole) = child(pod, "resources") else { return };
    let limits = whole.get("limits").cloned().unwrap_or_default();
    for name in COMPUTED {
        let sum = sums.get(name).map(|sum| Value::from(sum.to_string()));
        let Some(amount) = sum.or_else(|| limits.get(name).cloned()) else {
            continue;
        };
        if let Some(requests) = ensure(whole, "requests") {
            fill(requests, name, amount);
        }
    }
}

/// Completes the pod-level resources of which the client gave some (`DefaultPodLevelResources`, from Kubernetes 1.37
/// on): limits of huge pages and requests are those of the containers together, and a request is else the limit. A limit
/// is that of the containers together if all have one, and at least the request.
pub(crate) fn complete_whole(pod: &mut Object) {
    let is_huge = |name: &str| name.starts_with("hugepages-");
    let is_whole = |name: &str| matches!(name, "cpu" | "memory") || is_huge(name);
    if !pod.contains_key("resources") {
        return;
    }
    let spec = Value::Object(pod.clone());
    let Some(whole) = child(pod, "resources") else { return };
    let given = |field: &str| whole.get(field).map(amounts::parse).unwrap_or_default();
    let (mut requests, mut limits) = (given("requests"), given("limits"));
    if requests.is_empty() && limits.is_empty() {
        return;
    }
    let most = containers_need(&spec, "limits");
    for (name, amount) in most.iter().filter(|(name, _)| is_huge(name)) {
        if !requests.contains_key(name) {
            limits.entry(name.clone()).or_insert_with(|| amount.clone());
        }
    }
    let needed = containers_need(&spec, "requests").into_iter();
    let needed = needed.filter(|(name, _)| is_whole(name) && !is_huge(name));
    let limited = limits.clone().into_iter().filter(|(name, _)| is_whole(name));
    for (name, amount) in needed.chain(limited) {
        requests.entry(name).or_insert(amount);
    }
    let lists = CONTAINER_LISTS.iter().filter_map(|list| spec.get(list)?.as_array());
    let containers: Vec<&Value> = lists.flatten().collect();
    for (name, request) in requests.iter().filter(|(name, _)| is_whole(name)) {
        let has_limit = |container: &&Value| get(container, &["resources", "limits", name]) != &Value::Null;
        let together = most.get(name).filter(|_| containers.iter().all(has_limit));
        if let (Some(together), false) = (together, limits.contains_key(name)) {
            let amount = if request > together { request } else { together };
            limits.insert(name.clone(), amount.clone());
        }
    }
    for (field, list) in [("requests", requests), ("limits", limits)] {
        if !list.is_empty() {
            whole.insert(field.to_owned(), amounts::to_value(&list));
        }
    }
}

/// A pod's container without a request for a limited resource requests the limit.
fn requests_from_limits(container: &mut Object) {
    let Some(resources) = child(container, "resources") else {
        return;
    };
    let Some(limits) = resources
        .get("limits")
        .and_then(Value::as_object)
        .filter(|limits| !limits.is_empty())
        .cloned()
    else {
        return;
    };
    let Some(requests) = ensure(resources, "requests") else {
        return;
    };
    for (name, limit) in limits {
        fill(requests, &name, limit);
    }
}

fn host_ports(container: &mut Object) {
    for port in each(container, "ports") {
        if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
            fill_number(port, "hostPort", number);
        }
    }
}

fn volume(volume: &mut Object) {
    if !volume.iter().any(|(key, value)| key != "name" && !value.is_null()) {
        volume.insert("emptyDir".to_owned(), json!({}));
    }
    for (kind, of_kind) in sources(volume) {
        match kind {
            "secret" | "configMap" => fill(of_kind, "defaultMode", 420),
            "downwardAPI" => {
                fill(of_kind, "defaultMode", 420);
                downward_items(of_kind);
            }
            "projected" => {
                fill(of_kind, "defaultMode", 420);
                each(of_kind, "sources").for_each(projection);
            }
            "image" => {
                let policy = pull_policy(text(of_kind, "reference"));
                fill_text(of_kind, "pullPolicy", policy);
            }
            "emptyDir" if !of_kind.is_empty() => {
                if let Some(limit) = of_kind.get_mut("sizeLimit")
                    && let Some(quantity) = quantity(limit)
                {
                    *limit = quantity.to_string().into();
                }
            }
            "ephemeral" => {
                if let Some(claim) = child(of_kind, "volumeClaimTemplate") {
                    ensure(claim, "metadata");
                    if let Some(spec) = ensure(claim, "spec") {
                        claim_spec(spec);
                    }
                }
            }
            _ => shared_source(kind, of_kind),
        }
    }
}

/// The fields of a volume that are objects: normally only its one source.
fn sources(volume: &mut Object) -> impl Iterator<Item = (&str, &mut Object)> {
    volume
        .iter_mut()
        .filter_map(|(kind, of_kind)| Some((kind.as_str(), of_kind.as_object_mut()?)))
}

/// Defaults of a source of a projected volume.
fn projection(source: &mut Object) {
    if let Some(token) = child(source, "serviceAccountToken") {
        fill(token, "expirationSeconds", 3600);
    }
    if let Some(downward) = child(source, "downwardAPI") {
        downward_items(downward);
    }
}

/// Defaults of the sources that volumes of pods and PersistentVolumes share.
pub(crate) fn source(volume: &mut Object) {
    for (kind, of_kind) in sources(volume) {
        shared_source(kind, of_kind);
    }
}

fn shared_source(kind: &str, source: &mut Object) {
    match kind {
        "hostPath" => fill(source, "type", ""),
        "iscsi" => fill_text(source, "iscsiInterface", "default"),
        "rbd" => {
            fill_text(source, "pool", "rbd");
            fill_text(source, "user", "admin");
            fill_text(source, "keyring", "/etc/ceph/keyring");
        }
        "scaleIO" => {
            fill_text(source, "storageMode", "ThinProvisioned");
            fill_text(source, "fsType", "xfs");
        }
        "azureDisk" => {
            fill(source, "cachingMode", "ReadWrite");
            fill(source, "kind", "Shared");
            fill(source, "fsType", "ext4");
            fill(source, "readOnly", false);
        }
        _ => {}
    }
}

fn downward_items(source: &mut Object) {
    for item in each(source, "items") {
        if let Some(field) = child(item, "fieldRef") {
            fill_text(field, "apiVersion", "v1");
        }
    }
}

/// Defaults of a `PersistentVolumeClaimSpec`.
pub(crate) fn claim_spec(spec: &mut Object) {
    fill(spec, "volumeMode", "Filesystem");
    if let Some(resources) = ensure(spec, "resources") {
        for list in ["limits", "requests"] {
            if let Some(list) = child(resources, list) {
                canonical_quantities(list);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(mut given: Value, wanted: &Value) {
        pod(&mut given);
        assert_eq!(&given, wanted);
        let once = given.clone();
        pod(&mut given);
        assert_eq!(given, once, "defaults are idempotent");
    }

    #[test]
    fn a_small_pod_is_filled_in() {
        check(
            json!({"spec": {"containers": [{"name": "c", "image": "nginx", "ports": [{"containerPort": 80}]}]}}),
            &json!({"status": {}, "spec": {
                "containers": [{
                    "name": "c", "image": "nginx", "ports": [{"containerPort": 80, "protocol": "TCP"}], "resources": {},
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"
                }],
                "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
                "schedulerName": "default-scheduler", "enableServiceLinks": true
            }}),
        );
    }

    #[test]
    fn sources_probes_and_resources_are_filled_in() {
        let mut given = json!({"spec": {
            "serviceAccountName": "sa", "hostNetwork": true,
            "volumes": [{"name": "a"}, {"name": "b", "configMap": {"name": "x"}}, {"name": "h", "hostPath": {"path": "/x"}},
                {"name": "s", "scaleIO": {"fsType": "ext4"}},
                {"name": "p", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
            "containers": [{
                "name": "c", "image": "a/b:1", "ports": [{"containerPort": 8080}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "lifecycle": {"preStop": {"httpGet": {"port": 1}}},
                "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "resources": {"limits": {"cpu": 0.5, "memory": "1024Mi"}}
            }]
        }});
        pod(&mut given);
        for (pointer, wanted) in [
            ("/spec/serviceAccount", json!("sa")),
            ("/spec/volumes/0/emptyDir", json!({})),
            ("/spec/volumes/1/configMap/defaultMode", json!(420)),
            ("/spec/volumes/2/hostPath/type", json!("")),
            (
                "/spec/volumes/3/scaleIO",
                json!({"storageMode": "ThinProvisioned", "fsType": "ext4"}),
            ),
            (
                "/spec/volumes/4/projected/sources/0/serviceAccountToken/expirationSeconds",
                json!(3600),
            ),
            ("/spec/containers/0/imagePullPolicy", json!("IfNotPresent")),
            ("/spec/containers/0/ports/0/hostPort", json!(8080)),
            (
                "/spec/containers/0/livenessProbe",
                json!({"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10,
                    "successThreshold": 1, "failureThreshold": 3}),
            ),
            ("/spec/containers/0/lifecycle/preStop/httpGet/scheme", json!("HTTP")),
            ("/spec/containers/0/env/0/valueFrom/fieldRef/apiVersion", json!("v1")),
            (
                "/spec/containers/0/resources/limits",
                json!({"cpu": "500m", "memory": "1Gi"}),
            ),
            (
                "/spec/containers/0/resources/requests",
                json!({"cpu": "500m", "memory": "1Gi"}),
            ),
        ] {
            assert_eq!(given.pointer(pointer), Some(&wanted), "{pointer}");
        }
    }
}
