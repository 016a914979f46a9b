//! The filters of a pod on the nodes, at this moment: the filter plugins of kube-scheduler, in its order.

use std::sync::Arc;

use kubewright::k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kubewright_objects::api::core::v1::Pod;

use super::cache::{Cache, NodeInfo};
use super::devices::Devices;
use super::fit::{Refusal, Requirements};
use super::neighbours::Neighbours;
use super::term::Namespaces;
use super::volumes::Volumes;
use kubewright_objects::NodeView;

/// The surroundings of a pod that is to be placed.
pub(super) struct Surroundings<'a> {
    pub(super) volumes: &'a Volumes,
    pub(super) devices: &'a Devices,
    pub(super) namespaces: &'a Namespaces,
    pub(super) nodes: &'a [Arc<NodeView>],
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
    pub(super) all: Vec<&'a NodeView>,
    /// Another pod uses a volume that only one may use.
    taken: Option<Refusal>,
}

impl<'a> Filters<'a> {
    pub(super) fn new(pod: &'a Pod, around: &Surroundings<'a>, cache: &'a Cache) -> Filters<'a> {
        let all: Vec<&NodeView> = around.nodes.iter().map(|node| &**node).collect();
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

    /// Whether the pod names its nodes, and this is none of them.
    pub(super) fn passes_over(&self, node: &NodeView) -> bool {
        self.requirements.passes_over(node)
    }

    /// Why a node refuses; what is used of it when it does not.
    pub(super) fn ask(&self, node: &NodeView) -> Result<&'a NodeInfo, Refusal> {
        let taken = self.cache.on(node.name());
        let refusal = self.requirements.refusal(node, taken).or_else(|| self.taken.clone());
        let refusal = refusal.or_else(|| {
            let other = self.volumes.refusal(&node.node);
            let other = other.or_else(|| self.neighbours.refusal(&node.node));
            other.or_else(|| self.devices.refusal(&node.node))
        });
        refusal.map_or(Ok(taken), Err)
    }
}
