//! What a pod requests of a node, and what a node has: resources and ports of the host.
//!
//! Pure. The scheduler places pods by it, and a kubelet admits them by it.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::core::v1::{Container, Node, Pod, ResourceRequirements};
use kubewright::k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::quantity::milli;

/// Amounts in thousandths by name.
pub type Amounts = BTreeMap<String, i128>;
/// A port of the host: address, protocol, number.
pub type HostPort = (String, String, i32);

/// The allocatable amounts of a node.
pub fn allocatable(node: &Node) -> Amounts {
    amounts(node.status.as_ref().and_then(|status| status.allocatable.as_ref()))
}

fn amounts(list: Option<&BTreeMap<String, Quantity>>) -> Amounts {
    let list = list.into_iter().flatten();
    list.filter_map(|(name, quantity)| Some((name.clone(), milli(quantity)?)))
        .collect()
}

/// The requests of a pod (`PodRequests`): the sum of its containers and sidecars, or the need of an init container
/// beside the sidecars that were started before it, whichever is more; or its pod-level requests; and its overhead.
pub fn of(pod: &Pod) -> Amounts {
    in_all(pod, true, |_| {})
}

/// The requests of a pod: `complete` adds to those of each container; what the pod requests as a whole may count.
pub fn in_all(pod: &Pod, as_a_whole: bool, complete: impl Fn(&mut Amounts)) -> Amounts {
    let Some(spec) = pod.spec.as_ref() else {
        return Amounts::new();
    };
    let of = |container: &Container| {
        let mut amounts = of_container(pod, container);
        complete(&mut amounts);
        amounts
    };
    let (mut sum, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for container in &spec.containers {
        add(&mut sum, &of(container));
    }
    for container in spec.init_containers.iter().flatten() {
        let mut wanted = of(container);
        if container.restart_policy.as_deref() == Some("Always") {
            add(&mut sum, &wanted);
            add(&mut sidecars, &wanted);
            wanted = sidecars.clone();
        } else {
            add(&mut wanted, &sidecars);
        }
        raise(&mut peak, &wanted);
    }
    raise(&mut sum, &peak);
    if as_a_whole {
        sum.extend(of_resources(spec.resources.as_ref()));
    }
    add(&mut sum, &amounts(spec.overhead.as_ref()));
    sum
}

/// The requests of a container: what it wants, has, or was promised, whichever is more, so that a resize under way counts
/// (`determineEffectiveRequests`); what it wants counts not if its node can never give it.
fn of_container(pod: &Pod, container: &Container) -> Amounts {
    let wanted = of_resources(container.resources.as_ref());
    let Some(status) = &pod.status else { return wanted };
    let init = status.init_container_statuses.iter().flatten();
    let mut all = init.chain(status.container_statuses.iter().flatten());
    let known = all.find(|known| known.name == container.name);
    let Some((known, has)) = known.and_then(|known| Some((known, known.resources.as_ref()?))) else {
        return wanted;
    };
    let requests = container.resources.as_ref().and_then(|wants| wants.requests.as_ref());
    if has.requests.as_ref() == requests && known.allocated_resources.as_ref() == requests {
        return wanted;
    }
    let mut conditions = status.conditions.iter().flatten();
    let is_infeasible = conditions
        .any(|condition| condition.type_ == "PodResizePending" && condition.reason.as_deref() == Some("Infeasible"));
    let mut most = if is_infeasible { Amounts::new() } else { wanted };
    raise(&mut most, &amounts(has.requests.as_ref()));
    raise(&mut most, &amounts(known.allocated_resources.as_ref()));
    most
}

/// The requests of a container, or of a pod as a whole.
pub fn of_resources(resources: Option<&ResourceRequirements>) -> Amounts {
    amounts(resources.and_then(|resources| resources.requests.as_ref()))
}

/// Adds amounts to others.
pub fn add(sum: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let total = sum.entry(name.clone()).or_default();
        *total = total.saturating_add(*amount);
    }
}

fn raise(sum: &mut Amounts, least: &Amounts) {
    for (name, amount) in least {
        let total = sum.entry(name.clone()).or_default();
        *total = (*total).max(*amount);
    }
}

/// The ports of the host that a pod takes.
pub fn host_ports(pod: &Pod) -> BTreeSet<HostPort> {
    let spec = pod.spec.iter();
    let ports = spec
        .flat_map(|spec| &spec.containers)
        .flat_map(|container| container.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let number = port.host_port.filter(|number| *number > 0)?;
            let address = port.host_ip.clone().filter(|ip| !ip.is_empty());
            let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
            Some((address.unwrap_or_else(|| "0.0.0.0".to_owned()), protocol, number))
        })
        .collect()
}

/// Whether two ports of the host are the same; `0.0.0.0` stands for every address.
pub fn is_same_port((address, protocol, number): &HostPort, (other, of, at): &HostPort) -> bool {
    let every = |address: &str| address == "0.0.0.0";
    of == protocol && at == number && (other == address || every(other) || every(address))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn what_a_pod_asks_for() {
        let check = |spec: Value, expected: &[(&str, i128)]| {
            let pod: Pod = serde_json::from_value(json!({ "spec": spec })).expect("a pod");
            let found: Vec<(String, i128)> = of(&pod).into_iter().collect();
            let expected: Vec<(String, i128)> = expected
                .iter()
                .map(|(name, amount)| ((*name).to_owned(), *amount))
                .collect();
            assert_eq!(found, expected, "{spec}");
        };
        let asks = |cpu: &str| json!({ "name": "c", "resources": { "requests": { "cpu": cpu } } });
        let sidecar =
            |cpu: &str| json!({ "name": "s", "restartPolicy": "Always", "resources": { "requests": { "cpu": cpu } } });
        check(json!({ "containers": [{ "name": "c" }] }), &[]);
        check(json!({ "containers": [asks("1"), asks("500m")] }), &[("cpu", 1500)]);
        check(
            json!({ "containers": [asks("1")], "initContainers": [asks("3")] }),
            &[("cpu", 3000)],
        );
        check(
            json!({ "containers": [asks("1")], "initContainers": [sidecar("1"), asks("2")] }),
            &[("cpu", 3000)],
        );
        check(
            json!({ "containers": [asks("1")], "initContainers": [asks("1"), sidecar("1")] }),
            &[("cpu", 2000)],
        );
        check(
            json!({ "containers": [asks("1")], "overhead": { "cpu": "250m" } }),
            &[("cpu", 1250)],
        );
        check(
            json!({ "containers": [asks("1")], "resources": { "requests": { "cpu": "4" } } }),
            &[("cpu", 4000)],
        );
    }

    /// A container counts with the most of what it wants, has and was promised.
    #[test]
    fn what_a_pod_asks_for_while_it_is_resized() {
        let check = |wants: &str, has: &str, promised: &str, reason: &str, expected: i128| {
            let requests = |cpu: &str| json!({ "cpu": cpu });
            let status = json!({ "name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "resources": { "requests": requests(has) }, "allocatedResources": requests(promised) });
            let condition = json!({ "type": "PodResizePending", "status": "True", "reason": reason });
            let pod = json!({ "spec": { "containers": [{ "name": "c", "resources": { "requests": requests(wants) } }] },
                "status": { "containerStatuses": [status], "conditions": [condition] } });
            let pod: Pod = serde_json::from_value(pod).expect("a pod");
            assert_eq!(
                of(&pod).get("cpu"),
                Some(&expected),
                "{wants} {has} {promised} {reason}"
            );
        };
        check("1", "1", "1", "", 1000);
        check("3", "1", "1", "Deferred", 3000);
        check("3", "1", "1", "Infeasible", 1000);
        check("1", "2", "1", "", 2000);
        check("1", "1", "2", "", 2000);
    }
}
