//! Which EndpointSlices a Service is to have, and the changes of those that it has.
//!
//! Pure. One slice holds endpoints of one family that have the same ports, [`MAX`] at most. Invariant: an endpoint that
//! stays is not moved to another slice, so that a change of one pod is a change of one slice
//! (`reconcileByPortMapping`).

use std::collections::{BTreeMap, BTreeSet};

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubewright_objects::api::core::v1::{Pod, Service};
use kubewright_objects::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use super::pods::{self, Family};
use super::{HEADLESS, MANAGED_BY, SERVICE_NAME};
use kubewright_objects::meta;

/// How many endpoints a slice holds (`--max-endpoints-per-slice`).
const MAX: usize = 100;
/// The value of [`MANAGED_BY`] on our slices.
pub(super) const MANAGER: &str = "endpointslice-controller.k8s.io";

/// Endpoints that belong into slices of their own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    pub(super) family: Family,
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// The endpoints of a Service. `zone` answers the zone of a node, and none for a node that does not exist; a pod on
/// such a node is left out unless everything is published, and counted in the second answer.
pub(super) fn groups(
    service: &Service,
    pods: &[&Pod],
    zone: impl Fn(&str) -> Option<Option<String>>,
) -> (Vec<Group>, usize) {
    let Some(spec) = service.spec.as_ref() else {
        return (vec![], 0);
    };
    let (mut groups, mut left_out): (Vec<Group>, usize) = (vec![], 0);
    for family in pods::families(spec) {
        for pod in pods.iter().filter(|pod| pods::is_listed(pod, true)) {
            let known = pods::node(pod).and_then(&zone);
            if known.is_none() && !pods::publishes_all(service) {
                left_out = left_out.saturating_add(1);
                continue;
            }
            let Some(endpoint) = pods::endpoint(pod, service, family, known.flatten()) else {
                continue;
            };
            let ports = pods::ports(pod, spec);
            let same = |group: &&mut Group| group.family == family && group.ports == ports;
            match groups.iter_mut().find(same) {
                Some(group) => group.endpoints.push(endpoint),
                None => groups.push(Group {
                    family,
                    ports,
                    endpoints: vec![endpoint],
                }),
            }
        }
        // A Service without endpoints has an empty slice all the same, which shows that a controller manages it.
        if !groups.iter().any(|group| group.family == family) {
            groups.push(Group {
                family,
                ports: vec![],
                endpoints: vec![],
            });
        }
    }
    (groups, left_out)
}

/// The writes.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<EndpointSlice>,
}

/// From the present slices to the wanted ones.
pub(super) fn plan(service: &Service, groups: Vec<Group>, existing: &[&EndpointSlice]) -> Plan {
    let labels = labels(service);
    let mut plan = Plan::default();
    let mut left: Vec<&EndpointSlice> = existing.to_vec();
    for group in groups {
        let fits = |slice: &&&EndpointSlice| {
            slice.address_type == group.family.text() && slice.ports.as_deref().unwrap_or_default() == group.ports
        };
        let mut ours: Vec<&EndpointSlice> = left.iter().filter(fits).copied().collect();
        left.retain(|slice| !fits(&slice));
        // A slice of other ports is used again before one is made and another deleted.
        if ours.is_empty()
            && let Some(other) = left.iter().position(|slice| slice.address_type == group.family.text())
        {
            ours.push(left.remove(other));
        }
        fill(service, &labels, group, &ours, &mut plan);
    }
    plan.delete.extend(left.into_iter().cloned());
    plan
}

/// Puts the endpoints of a group into its slices.
fn fill(service: &Service, labels: &BTreeMap<String, String>, group: Group, ours: &[&EndpointSlice], plan: &mut Plan) {
    let mut wanted: BTreeMap<String, Endpoint> = BTreeMap::new();
    for endpoint in group.endpoints {
        wanted.insert(key(&endpoint), endpoint);
    }
    let mut contents: Vec<Vec<Endpoint>> = Vec::new();
    for slice in ours {
        let there = slice.endpoints.iter().flatten();
        contents.push(there.filter_map(|endpoint| wanted.remove(&key(endpoint))).collect());
    }
    let mut new = wanted.into_values();
    for content in &mut contents {
        let room = MAX.saturating_sub(content.len());
        content.extend(new.by_ref().take(room));
    }
    let mut rest: Vec<Endpoint> = new.collect();
    let nothing = contents.iter().all(Vec::is_empty) && rest.is_empty();
    for (index, (slice, content)) in ours.iter().zip(contents).enumerate() {
        // Of several slices those that are empty go; the only one stays.
        if content.is_empty() && !(nothing && index == 0) {
            plan.delete.push((*slice).clone());
            continue;
        }
        let mut next = (*slice).clone();
        next.endpoints = Some(content);
        next.ports = Some(group.ports.clone());
        next.metadata.labels = Some(labels.clone());
        if !is_same(&next, slice) {
            plan.update.push(next);
        }
    }
    if ours.is_empty() && nothing {
        plan.create
            .push(slice(service, labels, &group.ports, group.family, vec![]));
    }
    while !rest.is_empty() {
        let more = rest.split_off(MAX.min(rest.len()));
        let content = std::mem::replace(&mut rest, more);
        plan.create
            .push(slice(service, labels, &group.ports, group.family, content));
    }
}

/// The identity of an endpoint: its pod, or else its addresses.
pub(super) fn key(endpoint: &Endpoint) -> String {
    let uid = endpoint.target_ref.as_ref().and_then(|target| target.uid.clone());
    uid.unwrap_or_else(|| endpoint.addresses.join(","))
}

/// `null` and an empty list are the same, as the API stores them.
fn is_same(a: &EndpointSlice, b: &EndpointSlice) -> bool {
    let endpoints = |slice: &EndpointSlice| slice.endpoints.clone().unwrap_or_default();
    let ports = |slice: &EndpointSlice| slice.ports.clone().unwrap_or_default();
    endpoints(a) == endpoints(b) && ports(a) == ports(b) && a.metadata.labels == b.metadata.labels
}

fn slice(
    service: &Service,
    labels: &BTreeMap<String, String>,
    ports: &[EndpointPort],
    family: Family,
    endpoints: Vec<Endpoint>,
) -> EndpointSlice {
    EndpointSlice {
        metadata: ObjectMeta {
            generate_name: Some(format!("{}-", meta::name(&service.metadata))),
            namespace: service.metadata.namespace.clone(),
            labels: Some(labels.clone()),
            owner_references: Some(vec![meta::controller_reference("v1", "Service", &service.metadata)]),
            ..ObjectMeta::default()
        },
        address_type: family.text().to_owned(),
        endpoints: Some(endpoints),
        ports: Some(ports.to_vec()),
    }
}

/// The labels of the Service, and our own (`setEndpointSliceLabels`).
fn labels(service: &Service) -> BTreeMap<String, String> {
    let mut labels = meta::labels(&service.metadata).clone();
    let reserved: BTreeSet<&str> = [HEADLESS, SERVICE_NAME, MANAGED_BY].into();
    labels.retain(|key, _| !reserved.contains(key.as_str()));
    if service.spec.as_ref().is_some_and(pods::is_headless) {
        labels.insert(HEADLESS.to_owned(), String::new());
    }
    labels.insert(SERVICE_NAME.to_owned(), meta::name(&service.metadata).to_owned());
    labels.insert(MANAGED_BY.to_owned(), MANAGER.to_owned());
    labels
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: Value) -> Service {
        let service = json!({ "metadata": { "name": "web", "namespace": "a", "uid": "s" }, "spec": spec });
        serde_json::from_value(service).expect("a Service")
    }

    /// `name ip words`, with `node`, `ready`, `going`, `done`, `other` (another number behind the port `http`).
    fn pod(text: &str) -> Pod {
        let mut words = text.split(' ');
        let (name, ip) = (words.next().expect("a name"), words.next().expect("an address"));
        let has = |word: &str| text.split(' ').any(|there| there == word);
        serde_json::from_value(json!({
            "metadata": { "name": name, "uid": name, "namespace": "a", "deletionTimestamp": has("going").then_some("2026-01-01T00:00:00Z") },
            "spec": {
                "nodeName": has("node").then_some("n"), "hostname": name, "subdomain": "web",
                "containers": [{ "name": "c", "ports": [{ "name": "http", "containerPort": if has("other") { 9090 } else { 8080 } }] }],
            },
            "status": {
                "phase": if has("done") { "Succeeded" } else { "Running" }, "podIPs": [{ "ip": ip }],
                "conditions": [{ "type": "Ready", "status": if has("ready") { "True" } else { "False" } }],
            },
        }))
        .expect("a pod")
    }

    /// Each slice: ports, then `name:ready/serving/terminating` of each endpoint.
    fn text(slices: &[EndpointSlice]) -> Vec<String> {
        let flag = |flag: Option<bool>| if flag == Some(true) { 't' } else { 'f' };
        let one = |slice: &EndpointSlice| {
            let ports = slice.ports.iter().flatten().filter_map(|port| port.port);
            let ports: Vec<String> = ports.map(|port| port.to_string()).collect();
            let endpoints = slice.endpoints.iter().flatten().map(|endpoint| {
                let conditions = endpoint.conditions.clone().unwrap_or_default();
                let name = endpoint.target_ref.as_ref().and_then(|target| target.name.clone());
                let flags = [conditions.ready, conditions.serving, conditions.terminating].map(flag);
                format!("{}:{}", name.unwrap_or_default(), flags.iter().collect::<String>())
            });
            let endpoints: Vec<String> = endpoints.collect();
            format!("{} [{}]", ports.join(","), endpoints.join(" "))
        };
        slices.iter().map(one).collect()
    }

    fn check(spec: Value, pods: &[&str], expected: &[&str]) {
        let (service, pods) = (service(spec), pods.iter().map(|text| pod(text)).collect::<Vec<_>>());
        let (groups, _) = groups(&service, &pods.iter().collect::<Vec<_>>(), |node| {
            (node == "n").then_some(None)
        });
        let plan = plan(&service, groups, &[]);
        assert_eq!(text(&plan.create), expected);
        assert!(plan.update.is_empty() && plan.delete.is_empty());
    }

    #[test]
    fn endpoints_of_a_service() {
        let http = || json!({ "clusterIP": "10.0.0.1", "ports": [{ "port": 80, "targetPort": "http" }] });
        check(http(), &[], &[" []"]);
        check(
            http(),
            &["a 10.1.0.1 node ready", "b 10.1.0.2 node"],
            &["8080 [a:ttf b:fff]"],
        );
        check(http(), &["a 10.1.0.1 node ready going"], &["8080 [a:ftt]"]);
        check(http(), &["a 10.1.0.1 ready", "b 10.1.0.2 node done"], &[" []"]);
        check(
            http(),
            &["a 10.1.0.1 node ready", "b 10.1.0.2 node other"],
            &["8080 [a:ttf]", "9090 [b:fff]"],
        );
        check(http(), &["a fd00::1 node ready"], &[" []"]);
        let mut published = http();
        published["publishNotReadyAddresses"] = json!(true);
        check(published, &["a 10.1.0.1"], &["8080 [a:tff]"]);
        let dual = json!({ "ipFamilies": ["IPv4", "IPv6"], "ports": [{ "port": 80 }] });
        check(dual, &["a 10.1.0.1 node ready"], &["80 [a:ttf]", " []"]);
    }

    #[test]
    fn traffic_that_stays_near() {
        let check = |distribution: Value, zone: Option<&str>, expected: Value| {
            let service = service(json!({ "ports": [{ "port": 80 }], "trafficDistribution": distribution }));
            let pod = pod("a 10.1.0.1 node");
            let (groups, _) = groups(&service, &[&pod], |_| Some(zone.map(str::to_owned)));
            let plan = plan(&service, groups, &[]);
            let hints = plan.create[0].endpoints.as_ref().expect("one")[0].hints.clone();
            assert_eq!(json!(hints), expected, "{distribution} {zone:?}");
        };
        let (x, n) = (json!([{ "name": "x" }]), json!([{ "name": "n" }]));
        check(json!(null), Some("x"), json!(null));
        check(json!("PreferClose"), Some("x"), json!({ "forZones": x }));
        check(json!("PreferSameZone"), Some("x"), json!({ "forZones": x }));
        check(json!("PreferSameZone"), None, json!(null));
        check(
            json!("PreferSameNode"),
            Some("x"),
            json!({ "forZones": x, "forNodes": n }),
        );
        check(json!("PreferSameNode"), None, json!({ "forNodes": n }));
    }

    #[test]
    fn endpoints_stay_in_their_slice() {
        let service = service(json!({ "ports": [{ "port": 80 }] }));
        let names: Vec<String> = (0..150)
            .map(|number| format!("p{number:03} 10.1.0.{number} node ready"))
            .collect();
        let pods: Vec<Pod> = names.iter().map(|text| pod(text)).collect();
        let wanted = |pods: &[Pod]| groups(&service, &pods.iter().collect::<Vec<_>>(), |_| Some(None)).0;
        let first = plan(&service, wanted(&pods), &[]);
        let sizes = |slices: &[EndpointSlice]| -> Vec<usize> {
            let sizes = slices.iter().map(|slice| slice.endpoints.as_ref().map_or(0, Vec::len));
            sizes.collect()
        };
        assert_eq!(sizes(&first.create), [100, 50]);
        let slices: Vec<&EndpointSlice> = first.create.iter().collect();
        assert_eq!(plan(&service, wanted(&pods), &slices), Plan::default());
        // One of the first slice goes: only that is written. Then all of the second go: it is deleted.
        let second = plan(&service, wanted(&pods[1..]), &slices);
        assert_eq!(
            (sizes(&second.update), second.create.len(), second.delete.len()),
            (vec![99], 0, 0)
        );
        let third = plan(&service, wanted(&pods[..100]), &slices);
        assert_eq!((third.update.len(), third.create.len(), third.delete.len()), (0, 0, 1));
        let none = plan(&service, wanted(&[]), &slices);
        assert_eq!((sizes(&none.update), none.delete.len()), (vec![0], 1));
    }
}
