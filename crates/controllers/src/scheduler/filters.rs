//! The filters of a pod on the nodes, at this moment: the filter plugins of kube-scheduler, in its order.

use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright_objects::api::core::v1::{Node, Pod};

use super::cache::{Cache, NodeInfo};
use super::devices::Devices;
use super::fit::{Refusal, Requirements};
use super::neighbours::{Namespaces, Neighbours};
use super::volumes::Volumes;
use kubewright_objects::meta;

/// The surroundings of a pod that is to be placed.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a Volumes,
    pub(super) devices: &'a Devices,
    pub(super) namespaces: &'a Namespaces,
    pub(super) nodes: &'a [Arc<Node>],
    /// Selects the pods that belong together with it.
    pub(super) default_selector: Option<&'a LabelSelector>,
}

/// The filters of a pod on the nodes, at this moment.
pub(super) struct Filters<'a> {
    requirements: Requirements<'a>,
    volumes: &'a Volumes,
    devices: &'a Devices,
    cache: &'a Cache,
    neighbours: Neighbours,
    pub(super) all: Vec<&'a Node>,
    /// Another pod uses a volume that only one may use.
    taken: Option<Refusal>,
}

impl<'a> Filters<'a> {
    pub(super) fn new(pod: &'a Pod, around: &Surroundings<'a>, cache: &'a Cache) -> Filters<'a> {
        let all: Vec<&Node> = around.nodes.iter().map(|node| &**node).collect();
        Filters {
            requirements: Requirements::of(pod),
            volumes: around.volumes,
            devices: around.devices,
            taken: around.volumes.taken(pod, cache),
            cache,
            neighbours: Neighbours::of(pod, &all, cache, around.namespaces),
            all,
        }
    }

    /// Why a node refuses; nothing when it does not.
    pub(super) fn ask(&self, node: &Node) -> Option<Refusal> {
        let nothing = NodeInfo::default();
        let taken = self.cache.on(meta::name(&node.metadata)).unwrap_or(&nothing);
        let refusal = self.requirements.refusal(node, taken).or_else(|| self.taken.clone());
        refusal.or_else(|| {
            let other = self.volumes.refusal(node).or_else(|| self.neighbours.refusal(node));
            other.or_else(|| self.devices.refusal(node))
        })
    }
}
