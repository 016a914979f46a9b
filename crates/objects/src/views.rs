//! Pods and Nodes without the fields that few controllers read. Each view is made once for each version of an object, so
//! that a controller that looks at all pods of a Service, or at all nodes, decodes none.
//!
//! Invariant: what is there is as in the object; what is left out is missing, as if it were not set.

use crate::api::core::v1::{Affinity, Container, Node, NodeSpec, NodeStatus, Pod, PodSpec, PodStatus};
use kubewright::View;
use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::meta;
use crate::node::{HOSTNAME, ZONE, zone_key};
use crate::requests::{self, Amounts};

/// What is kept of the metadata.
fn metadata(of: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        annotations: None,
        managed_fields: None,
        ..of.clone()
    }
}

fn node_affinity(affinity: Option<&Affinity>) -> Option<Affinity> {
    let node_affinity = affinity?.node_affinity.clone()?;
    Some(Affinity {
        node_affinity: Some(node_affinity),
        ..Affinity::default()
    })
}

/// A pod as a workload or a Service counts it: metadata without annotations, its node or its affinity to nodes, name in
/// DNS and ports, phase, conditions and addresses.
#[derive(Clone, Debug)]
pub struct PodView(pub Pod);

impl View<Pod> for PodView {
    fn of(pod: &Pod) -> PodView {
        let ports = |container: &Container| Container {
            ports: container.ports.clone(),
            restart_policy: container.restart_policy.clone(),
            ..Container::default()
        };
        // Most containers have no ports, and the room of a container is large.
        let with_ports = |containers: &[Container]| -> Vec<Container> {
            let with_ports = containers.iter().filter(|container| container.ports.is_some());
            with_ports.map(ports).collect()
        };
        let spec = pod.spec.as_ref().map(|spec| PodSpec {
            containers: with_ports(&spec.containers),
            init_containers: spec.init_containers.as_deref().map(with_ports),
            node_name: spec.node_name.clone(),
            hostname: spec.hostname.clone(),
            affinity: node_affinity(spec.affinity.as_ref()),
            subdomain: spec.subdomain.clone(),
            ..PodSpec::default()
        });
        let status = pod.status.as_ref().map(|status| PodStatus {
            phase: status.phase.clone(),
            conditions: status.conditions.clone(),
            pod_ip: status.pod_ip.clone(),
            pod_ips: status.pod_ips.clone(),
            ..PodStatus::default()
        });
        PodView(Pod {
            metadata: metadata(&pod.metadata),
            spec,
            status,
        })
    }
}

/// A node as pods are placed by it (`framework.NodeInfo`): metadata without annotations, taints and images, whether it
/// is cordoned, and what it has.
#[derive(Clone, Debug)]
pub struct NodeView {
    /// The node.
    pub node: Node,
    /// What it has for pods, in thousandths.
    pub allocatable: Amounts,
    /// Its labels of the host name and the zone, over which most pods are spread.
    hostname: Option<String>,
    zone: Option<String>,
    /// Whether it has a region or a zone.
    pub is_zoned: bool,
}

impl View<Node> for NodeView {
    fn of(node: &Node) -> NodeView {
        let spec = node.spec.as_ref().map(|spec| NodeSpec {
            taints: spec.taints.clone(),
            unschedulable: spec.unschedulable,
            ..NodeSpec::default()
        });
        let status = node.status.as_ref().map(|status| NodeStatus {
            images: status.images.clone(),
            ..NodeStatus::default()
        });
        let label = |key: &str| meta::labels(&node.metadata).get(key).cloned();
        NodeView {
            allocatable: requests::allocatable(node),
            hostname: label(HOSTNAME),
            zone: label(ZONE),
            is_zoned: zone_key(node) != ("", ""),
            node: Node {
                metadata: metadata(&node.metadata),
                spec,
                status,
            },
        }
    }
}

impl NodeView {
    /// Its name.
    pub fn name(&self) -> &str {
        meta::name(&self.node.metadata)
    }

    /// The value of a label.
    pub fn label(&self, key: &str) -> Option<&str> {
        match key {
            HOSTNAME => self.hostname.as_deref(),
            ZONE => self.zone.as_deref(),
            _ => meta::labels(&self.node.metadata).get(key).map(String::as_str),
        }
    }

    /// How much it has of a resource; nothing of one that it does not list.
    pub fn room(&self, resource: &str) -> i128 {
        self.allocatable.get(resource).copied().unwrap_or(0)
    }
}
